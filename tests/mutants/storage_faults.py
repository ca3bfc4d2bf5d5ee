"""Seeded faults of what transactions take up and of what they store, and what must notice."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant, scenarios
from tests.mutants.rule_faults import BOUNDS_TESTS, RULES_TESTS, SERVICE, TABLE, WIRE_TESTS

EVENT_TESTS: Final = "tests/amqp_broker/test_events_transactions.py"
STORE_TESTS: Final = "tests/persistence/test_store_suite.py"
DISCHARGE: Final = "amqp_broker/operations/discharge.py"
POSTING: Final = "amqp_broker/operations/posting.py"

_BOUNDS: Final = (
    Mutant(
        "posts keep no room",
        "amqp_broker/queue.py",
        "        self.reserved_messages += count\n",
        "        pass\n",
        (f"{WIRE_TESTS}::test_a_post_keeps_room_until_its_transaction_ends",),
        "capacity and ttl",
    ),
    Mutant(
        "senders do not see the room that is kept",
        "amqp_broker/queue.py",
        "self.limits.max_messages - self.message_count - self.reserved_messages - out)",
        "self.limits.max_messages - self.message_count - out)",
        (f"{WIRE_TESTS}::test_a_post_keeps_room_until_its_transaction_ends",),
        "capacity and ttl",
    ),
    Mutant(
        "a rollback leaks the room that was kept",
        POSTING,
        "            self.queue.unreserve(self.operations, self.size_bytes)\n            self._nodes.drained",
        "            self._nodes.drained",
        (f"{WIRE_TESTS}::test_a_rollback_gives_the_room_back",) + scenarios("4.4.1/capacity-reserved"),
        "capacity and ttl",
    ),
    Mutant(
        "a commit leaks the room that was kept",
        POSTING,
        "        if self.reserved:\n            queue.unreserve(self.operations, self.size_bytes)\n",
        "",
        (f"{WIRE_TESTS}::test_a_post_keeps_room_until_its_transaction_ends",),
        "capacity and ttl",
    ),
    Mutant(
        "ttl is not judged at the commit",
        POSTING,
        "                    self.records = queue.fresh(self.records, now_ms)\n",
        "",
        (f"{EVENT_TESTS}::test_expiry_before_the_discharge_is_no_put",),
        "capacity and ttl",
    ),
    Mutant(
        "a connection may have any number of transactions",
        TABLE,
        "        return len(self._live) >= self.limits.live\n",
        "        return len(self._live) >= 1 << 30\n",
        (f"{WIRE_TESTS}::test_a_flood_of_declares_is_answered_and_leaks_nothing",) + scenarios("4.2/flood"),
        "limits",
    ),
    Mutant(
        "a transaction may have any number of operations",
        TABLE,
        "            transaction.operations + operations <= limits.operations\n",
        "            transaction.operations + operations <= 1 << 30\n",
        (f"{BOUNDS_TESTS}::test_work_beyond_the_limits_leaves_only_the_rollback",)
        + scenarios("4.4/too-many-operations"),
        "limits",
    ),
    Mutant(
        "a transaction may be of any size",
        TABLE,
        "            and transaction.size_bytes + size_bytes <= limits.bytes_per_transaction\n",
        "            and transaction.size_bytes + size_bytes <= 1 << 60\n",
        (f"{BOUNDS_TESTS}::test_work_beyond_the_limits_leaves_only_the_rollback",)
        + scenarios("4.4/too-many-octets"),
        "limits",
    ),
    Mutant(
        "a post beyond the limits is left out of the commit",
        TABLE,
        "            transaction.fail(error)\n            return error\n",
        "            return error\n",
        (f"{BOUNDS_TESTS}::test_work_beyond_the_limits_leaves_only_the_rollback",),
        "limits",
    ),
    Mutant(
        "an outcome beyond the limits is left out of the commit",
        TABLE,
        "                return\n            transaction.fail(self._too_much(transaction))\n",
        "                return\n",
        (f"{BOUNDS_TESTS}::test_work_beyond_the_limits_leaves_only_the_rollback",),
        "limits",
    ),
    Mutant(
        "an acquisition beyond the limits is left out of the commit",
        TABLE,
        "            transaction.fail(error)\n            raise error\n",
        "            raise error\n",
        (f"{BOUNDS_TESTS}::test_work_beyond_the_limits_leaves_only_the_rollback",),
        "limits",
    ),
    Mutant(
        "what is beyond the limits has another condition",
        "coordinator/errors.py",
        '    condition = "amqp:resource-limit-exceeded"\n',
        '    condition = "amqp:transaction:rollback"\n',
        (f"{BOUNDS_TESTS}::test_work_beyond_the_limits_leaves_only_the_rollback",) + scenarios("4.2/flood"),
        "limits",
    ),
)

_STORE: Final = (
    Mutant(
        "a discharge is stored in two commits",
        DISCHARGE,
        "            unit.extend(stored_by(work))\n",
        "            from amqp_broker.operations.posting import Step\n"
        "            self._transactions._nodes.writer.defer(Step(stored_by(work)))\n",
        (f"{RULES_TESTS}::test_everything_of_a_discharge_is_one_commit",),
        "one commit",
    ),
    Mutant(
        "a discharge is accepted before its COMMIT",
        SERVICE,
        "            self._nodes.writer.collect(discharge)\n",
        "            link.settle([delivery], ACCEPTED)\n            self._nodes.writer.collect(discharge)\n",
        (f"{RULES_TESTS}::test_a_discharge_is_accepted_after_the_commit_only",),
        "after the commit",
    ),
    Mutant(
        "the messages of a discharge are there before its COMMIT",
        SERVICE,
        "            self._nodes.writer.collect(discharge)\n",
        "            for posting in found.postings:\n"
        "                queue = posting.queue\n"
        "                queue.number(posting.records)\n"
        "                queue.make_available(posting.records, posting.size_bytes)\n"
        "                self._nodes.pump(queue)\n"
        "            self._nodes.writer.collect(discharge)\n",
        (f"{RULES_TESTS}::test_a_discharge_is_accepted_after_the_commit_only",),
        "after the commit",
    ),
    Mutant(
        "what a transaction retired is not stored",
        DISCHARGE,
        "        return retire_verbs(queue_id, records_of(work))\n",
        "        return []\n",
        (f"{RULES_TESTS}::test_after_a_crash_all_of_it_is_there_or_nothing",),
        "all or nothing",
    ),
    Mutant(
        "what a transaction posted is not stored",
        DISCHARGE,
        "        unit = super().prepare(now_ms)\n",
        "        unit = super().prepare(now_ms)[:1]\n",
        (f"{RULES_TESTS}::test_after_a_crash_all_of_it_is_there_or_nothing",),
        "all or nothing",
    ),
    Mutant(
        "how a transaction changed a message is not stored",
        DISCHARGE,
        "    return return_verbs(queue_id, work.items, outcome)\n",
        "    return []\n",
        (f"{RULES_TESTS}::test_after_a_crash_all_of_it_is_there_or_nothing",),
        "all or nothing",
    ),
    Mutant(
        "a commit that met a full disk is accepted",
        SERVICE,
        "            ended = self._table.commit_failed(transaction, reason)\n",
        "            ended = self._table.commit_done(transaction)\n",
        (f"{RULES_TESTS}::test_a_full_disk_at_the_commit_rolls_back_and_the_broker_goes_on",),
        "store error",
    ),
    Mutant(
        "a commit that met a full disk is answered with another condition",
        TABLE,
        "        return self._end(transaction, False, TransactionRollback(reason))\n",
        "        return self._end(transaction, False, TransactionLimitExceeded(reason))\n",
        (f"{RULES_TESTS}::test_a_full_disk_at_the_commit_rolls_back_and_the_broker_goes_on",),
        "store error",
    ),
    Mutant(
        "numbers of messages that were not stored are lost",
        POSTING,
        "        super().undo()\n        if self.reserved:\n",
        "        if not self.reserved:\n            super().undo()\n        else:\n",
        (f"{RULES_TESTS}::test_a_full_disk_at_the_commit_rolls_back_and_the_broker_goes_on",),
        "store error",
    ),
    Mutant(
        "the record of a discharge is a unit of its own",
        DISCHARGE,
        "        unit.append(Discharged(transaction.txn_id, now_ms))\n",
        "        from amqp_broker.operations.posting import Step\n"
        "        record = Discharged(transaction.txn_id, now_ms)\n"
        "        self._transactions._nodes.writer.submit(Step([record]))\n",
        (
            f"{RULES_TESTS}::test_everything_of_a_discharge_is_one_commit",
            f"{RULES_TESTS}::test_a_discharge_that_the_store_refuses_leaves_no_record",
        ),
        "outcome record",
    ),
    Mutant(
        "there is no record of a discharge",
        DISCHARGE,
        "        unit.append(Discharged(transaction.txn_id, now_ms))\n",
        "",
        (
            f"{WIRE_TESTS}::test_the_outcome_of_a_discharge_can_be_asked_by_anybody_who_knows_its_id",
            f"{RULES_TESTS}::test_after_a_crash_all_of_it_is_there_or_nothing",
        ),
        "outcome record",
    ),
    Mutant(
        "the record of a discharge has a commit of its own",
        "persistence/sqlite_store.py",
        "            self._placement = self._outcomes.write(group.discharges)\n",
        "            self._unit.commit()\n"
        "            self._unit.begin()\n"
        "            self._placement = self._outcomes.write(group.discharges)\n",
        (f"{STORE_TESTS}::test_sqlite_store[discharge_is_one_unit-cache]",),
        "outcome record",
    ),
    Mutant(
        "records of discharges are forgotten at once",
        "persistence/generations.py",
        "            too_many = left > self._keep_count and",
        "            too_many = left > 0 and",
        (f"{STORE_TESTS}::test_sqlite_store_forgets[outcomes_are_kept_for_their_time]",),
        "outcome record",
    ),
)

FAULTS: Final = _BOUNDS + _STORE
