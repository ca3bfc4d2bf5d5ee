"""Faults in logs: what is not archived, not kept, or taken all the same."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

LOGS: Final = "tests/amqp_broker/test_logs.py"
MAKING: Final = "tests/amqp_broker/test_log_making.py"
WAYS: Final = f"{LOGS}::test_every_way_in_is_archived_at_once"
LOG_FILE: Final = "amqp_broker/log.py"
MAKING_FILE: Final = "amqp_broker/retained/log_making.py"

FAULTS: Final = (
    Mutant(
        "what is posted to a log waits on disk for a consumer",
        LOG_FILE,
        "[Post(self.queue_id, records), self.archive_verb(records[0].offset, len(records))]",
        "[Post(self.queue_id, records)]",
        (f"{WAYS}[disk-posted]",),
    ),
    Mutant(
        "a set that is committed to a log waits on disk for a consumer",
        "amqp_broker/half_sets/deciding.py",
        "        unit.extend(self._archived())\n",
        "",
        (f"{WAYS}[disk-sets]",),
    ),
    Mutant(
        "of several sets that are committed to a log the first one is archived",
        "amqp_broker/half_sets/deciding.py",
        "log.archive_verb(first, log.next_offset - first)",
        "log.archive_verb(first, 1)",
        (f"{WAYS}[disk-sets]",),
    ),
    Mutant(
        "a half message that is committed to a log waits on disk for a consumer",
        "amqp_broker/halves/units.py",
        "queue.post_verbs(records, len(records))",
        "queue.post_verbs(records, len(records))[:1]",
        (f"{WAYS}[disk-halves]",),
    ),
    Mutant(
        "messages of a log take room in memory",
        LOG_FILE,
        "        if records:\n",
        "        super().make_available(records, size)\n        if records:\n",
        (f"{WAYS}[disk-posted]",),
    ),
    Mutant(
        "sets of a log take room in memory",
        LOG_FILE,
        "        self.backlog.available_to = first_offset + count\n",
        "        super().make_stored_available(first_offset, count, size)\n",
        (f"{WAYS}[disk-sets]",),
    ),
    Mutant(
        "a log is made before its retention",
        "amqp_broker/queues.py",
        "keep_ms=policy.retention_ms, keep_bytes=policy.retention_bytes",
        "keep_ms=0, keep_bytes=0",
        (f"{MAKING}::test_no_message_comes_before_the_retention_of_its_log",),
    ),
    Mutant(
        "a consumer takes messages from a log",
        "amqp_broker/retained/reading.py",
        "and not source.dynamic and self._retained.is_log(source.address)",
        "and source.distribution_mode == COPY and self._retained.is_log(source.address)",
        (f"{LOGS}::test_nobody_takes_messages[memory-move]",),
    ),
    Mutant(
        "a browser of a log begins at what comes",
        "amqp_broker/retained/reading.py",
        "        self._request = attrs.evolve(self._request, start=Start(FIRST))\n",
        "",
        (f"{LOGS}::test_a_browser_is_shown_everything_from_the_first_on[memory]",),
    ),
    Mutant(
        "a time to live ends in a transaction for a log, too",
        LOG_FILE,
        "        return records\n",
        "        return super().fresh(records, now_ms + 1000)\n",
        (f"{WAYS}[memory-in_transactions]",),
    ),
    Mutant(
        "the journal lets messages of a log wait for ever",
        LOG_FILE,
        "        return ARCHIVED\n",
        "        return super().outcome_at_once()\n",
        (f"{WAYS}[memory-posted]",),
    ),
    Mutant(
        "what has expired does not become a part of the log",
        "amqp_broker/expiry.py",
        "if queue is not None and not isinstance(queue, Log) and node.settings.get(EXPIRES):",
        "if queue is not None and node.settings.get(EXPIRES):",
        (f"{MAKING}::test_nothing_expires_any_more_when_a_queue_is_a_log",),
    ),
    Mutant(
        "what was not kept goes when its queue becomes a log",
        MAKING_FILE,
        "again = [record for record in records if record.offset < first_kept]",
        "again = records[:0]",
        (f"{MAKING}::test_a_queue_becomes_a_log[0-False]",),
    ),
    Mutant(
        "what is posted again stays where it was, too",
        MAKING_FILE,
        "        unit = retire_verbs(queue.queue_id, records)\n",
        "        unit = retire_verbs(queue.queue_id, records[1:])\n",
        (f"{MAKING}::test_making_a_log_goes_on_where_it_was_cut_off[3-True]",),
    ),
    Mutant(
        "a queue becomes a log in two commits for each page",
        MAKING_FILE,
        "            await self._nodes.store_step(self._verbs(page.records, first_kept))\n",
        "            for verb in self._verbs(page.records, first_kept):\n"
        "                await self._nodes.store_step([verb])\n",
        (f"{MAKING}::test_making_a_log_goes_on_where_it_was_cut_off[3-False]",),
    ),
    Mutant(
        "what retention kept waits on although its queue became a log",
        MAKING_FILE,
        "            await self._nodes.store_step([Retire(queue.queue_id, first_kept, end - 1)])\n",
        "",
        (f"{MAKING}::test_a_queue_becomes_a_log[86400000-False]",),
    ),
    Mutant(
        "a set that is archived at once counts as live in its rows",
        "persistence/moving.py",
        "    live_bytes = run.live_bytes if moved.live_count else 0\n",
        "    live_bytes = run.live_bytes\n",
        (f"{MAKING}::test_a_log_is_there_after_a_restart",),
    ),
)
