"""Seeded faults that each break what this broker chose where part 4 of the standard is open, and what must
notice.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant, scenarios
from tests.mutants.rule_faults import (
    BOUNDS_TESTS,
    EFFECTS,
    REQUESTS,
    RULES_TESTS,
    SERVICE,
    TABLE,
    TABLE_TESTS,
    WIRE_TESTS,
)

PARTS_TESTS: Final = "tests/amqp_broker/nodes/test_lost_parts.py"
_IDS: Final = (
    Mutant(
        "a capability is offered that does not work",
        REQUESTS,
        "capabilities=tuple(CAPABILITIES))",
        'capabilities=(*CAPABILITIES, "amqp:any"))',
        scenarios("4.5.1/exactly", "4.5.1/capabilities"),
        "capabilities",
    ),
    Mutant(
        "a capability that works is not offered",
        REQUESTS,
        '    "amqp:multi-ssns-per-txn": TransactionTable.find,\n',
        "",
        scenarios("4.5.1/exactly"),
        "capabilities",
    ),
    Mutant(
        "one live transaction for each connection",
        TABLE,
        "        return len(self._live) >= self.limits.live\n",
        "        return len(self._live) >= 1\n",
        scenarios("4.2/several-at-a-time"),
        "capabilities",
    ),
    Mutant(
        "a transaction takes posts of its own session only",
        "amqp_broker/nodes/queue_sink.py",
        "                    transaction = self.transactions.find(txn_id)\n",
        "                    transaction = self.transactions.find(txn_id)\n"
        "                    if transaction.control.session is not self.link.session:\n"
        "                        transaction = None\n",
        scenarios("4.4.1/several-sessions"),
        "capabilities",
    ),
    Mutant(
        "a post in an unknown transaction is stored outside of any",
        "amqp_broker/nodes/queue_sink.py",
        "                    self.detach(error.error())\n                    break  #",
        "                    transaction = None  #",
        scenarios("4.4.1/unknown-id", "4.4.1/unknown-id-detaches", "4.1/work-after-the-end"),
        "unknown id",
    ),
    Mutant(
        "an outcome in an unknown transaction ends no link",
        SERVICE,
        "                consumer.detach(error.error())\n",
        "                pass\n",
        scenarios("4.4.2/unknown-id", "4.4.2/unknown-id-detaches"),
        "unknown id",
    ),
    Mutant(
        "a range over several links is the first link's matter",
        "links/session_frames.py",
        "        if delivery.link is not link:\n            if run:\n",
        "        if link is None:\n            if run:\n",
        scenarios("4.4.2/unknown-id-detaches", "4.4.2/several-links"),
        "unknown id",
    ),
    Mutant(
        "what was settled in an unknown transaction is lost",
        TABLE,
        "            self._settled_for_nothing(consumer, items, settled, disposed)\n",
        "",
        scenarios("4.4.2/unknown-id-detaches"),
        "unknown id",
    ),
    Mutant(
        "an unsettled outcome in an unknown transaction is applied",
        TABLE,
        "            self._settled_for_nothing(consumer, items, settled, disposed)\n",
        "            self._settled_for_nothing(consumer, items, True, disposed)\n",
        (f"{TABLE_TESTS}::test_an_unknown_id_settles_nothing_but_loses_nothing",)
        + scenarios("4.4.2/unknown-id-detaches"),
        "unknown id",
    ),
    Mutant(
        "a flow that names an unknown transaction gives plain credit",
        SERVICE,
        "            consumer.detach(error.error())\n            return\n        link.flow_handled()\n",
        "            pass\n        link.flow_handled()\n",
        scenarios("4.4.3/unknown-id", "4.4.3/unknown-id-detaches"),
        "unknown id",
    ),
    Mutant(
        "another control link may discharge",
        TABLE,
        "        if found is None or found.control is not control or found.state",
        "        if found is None or found.state",
        scenarios("4.3/another-control-link"),
        "foreign control link",
    ),
    Mutant(
        "txn-ids are counted",
        SERVICE,
        "            txn_id = self._new_txn_id()\n",
        "            txn_id = (len(self._nodes.live_transactions) + 1).to_bytes(16)\n",
        scenarios("4.5.4/id", "4.5.4/sixteen-octets"),
        "form of the id",
    ),
    Mutant(
        "random octets are used for two txn-ids",
        SERVICE,
        "        txn_id, self._random = self._random[:TXN_ID_BYTES], self._random[TXN_ID_BYTES:]\n",
        "        txn_id = self._random[:TXN_ID_BYTES]\n",
        scenarios("4.5.4/id"),
        "form of the id",
    ),
    Mutant(
        "txn-ids are short",
        TABLE,
        "TXN_ID_BYTES: Final = 16",
        "TXN_ID_BYTES: Final = 8",
        scenarios("4.5.4/sixteen-octets"),
        "form of the id",
    ),
    Mutant(
        "txn-ids come again after a restart",
        SERVICE,
        "            txn_id = self._new_txn_id()\n",
        "            vars(self._nodes).setdefault('ids', __import__('random').Random(4))\n"
        "            txn_id = self._nodes.ids.randbytes(TXN_ID_BYTES)\n",
        (f"{RULES_TESTS}::test_ids_are_never_used_again_in_the_life_of_a_store",),
        "form of the id",
    ),
)

_TIMEOUT: Final = (
    Mutant(
        "the timer of a transaction is not set",
        "amqp_broker/connection_task.py",
        "        due = self.connection.next_deadline()\n",
        "        due = None\n",
        (f"{BOUNDS_TESTS}::test_a_transaction_times_out_although_nothing_comes",),
        "timeout",
    ),
    Mutant(
        "a transaction that lasted too long goes on",
        "amqp_broker/connection_task.py",
        "        self.connection.expire(now)\n",
        "",
        (f"{BOUNDS_TESTS}::test_a_transaction_times_out_although_nothing_comes",)
        + scenarios("4.5.8/timeout"),
        "timeout",
    ),
    Mutant(
        "the configured timeout is not heard",
        SERVICE,
        "limits.transaction_timeout_ms / 1000,",
        "120.0,",
        (f"{BOUNDS_TESTS}::test_a_transaction_times_out_although_nothing_comes",),
        "timeout",
    ),
    Mutant(
        "the default timeout is another one",
        "amqp_broker/configuration_limits.py",
        "transaction_timeout_ms: int = _ms(\n        120_000",
        "transaction_timeout_ms: int = _ms(\n        12_000",
        (f"{BOUNDS_TESTS}::test_the_defaults_of_transactions_are_those_of_the_design",),
        "timeout",
    ),
    Mutant(
        "after its timeout a transaction is unknown",
        TABLE,
        "        self._aborted[transaction.txn_id] = transaction\n",
        "",
        (f"{BOUNDS_TESTS}::test_every_use_after_the_timeout_says_so",) + scenarios("4.5.8/timeout"),
        "timeout",
    ),
    Mutant(
        "a timeout is told as a rollback",
        TABLE,
        "        return TransactionTimeout(reason.description)\n",
        "        return TransactionRollback(reason.description)\n",
        (f"{BOUNDS_TESTS}::test_every_use_after_the_timeout_says_so",) + scenarios("4.5.8/timeout"),
        "timeout",
    ),
    Mutant(
        "a timeout ends the connection",
        SERVICE,
        '            self.connection.log.warning("transaction.timed_out",',
        "            self.connection.engine.close()\n"
        '            self.connection.log.warning("transaction.timed_out",',
        (f"{BOUNDS_TESTS}::test_every_use_after_the_timeout_says_so",),
        "timeout",
    ),
    Mutant(
        "the ids of aborted transactions pile up",
        TABLE,
        "        if len(self._aborted) > REMEMBERED_PER_CONNECTION:\n",
        "        if len(self._aborted) > 1 << 30:\n",
        (f"{TABLE_TESTS}::test_what_is_remembered_is_bounded_in_number_and_time",),
        "timeout",
    ),
    Mutant(
        "the ids of aborted transactions are kept for ever",
        TABLE,
        "            if aborted.deadline + REMEMBERED_S <= now:\n",
        "            if aborted.deadline + REMEMBERED_S <= 0:\n",
        (f"{TABLE_TESTS}::test_what_is_remembered_is_bounded_in_number_and_time",),
        "timeout",
    ),
)

_MESSAGES: Final = (
    Mutant(
        "an unsettled post that was rejected is left out of the commit",
        SERVICE,
        "        self._table.fail(transaction, refusal(link, deliveries, error))\n",
        "        if any(delivery.settled for delivery in deliveries):\n"
        "            self._table.fail(transaction, refusal(link, deliveries, error))\n",
        scenarios("4.4.1/rejected-cannot-commit", "4.4.1/queue-full"),
        "rejected post",
    ),
    Mutant(
        "outcomes for deliveries that are not there are passed over",
        "links/session_frames.py",
        "    if count <= last - first and type(state) is TransactionalState:\n",
        "    if count < 0 and type(state) is TransactionalState:\n",
        (f"{PARTS_TESTS}::test_an_outcome_for_a_delivery_that_is_not_there", *scenarios("4.4.2/link-gone")),
        "lost part",
    ),
    Mutant(
        "messages behind the end of their link are passed over",
        "amqp_broker/connection.py",
        '            self.lose(event.link, event.deliveries, LINK_ENDED)\n',
        "            pass\n",
        (f"{PARTS_TESTS}::test_postings_behind_one_that_ended_the_link",),
        "lost part",
    ),
    Mutant(
        "messages behind the one that ended their link are passed over",
        "amqp_broker/nodes/queue_sink.py",
        "        self.lose(deliveries[start:])\n",
        "",
        (f"{PARTS_TESTS}::test_postings_behind_one_that_ended_the_link",),
        "lost part",
    ),
    Mutant(
        "a transfer that ends its link is passed over",
        "links/session_frames.py",
        "        _lose_transfer(session, head.handle, head.delivery_id, named, error.description)\n",
        "        pass\n",
        ("tests/links/test_lost_work.py",),
        "lost part",
    ),
    Mutant(
        "an outcome that another transaction has decided is passed over",
        "amqp_broker/nodes/queue_source.py",
        '            self.lose(decided, state, "another outcome of theirs stands")\n',
        "            pass\n",
        (f"{PARTS_TESTS}::test_two_transactions_for_one_message_in_one_read",),
        "lost part",
    ),
    Mutant(
        "outcomes do not wait for the discharge that decides about their deliveries",
        "amqp_broker/connection.py",
        "        if self.transactions is not None and self.transactions.commit_in_progress(deliveries):\n",
        "        if self.transactions is not None and not deliveries:\n",
        (f"{PARTS_TESTS}::test_two_transactions_for_one_message_in_one_read",),
        "lost part",
    ),
    Mutant(
        "a message that was half sent is accepted by the commit",
        "links/sender_link.py",
        "        self._lose_sending()\n",
        "",
        ("tests/links/test_lost_work.py",),
        "lost part",
    ),
    Mutant(
        "a close is answered before the outcomes",
        "links/connection.py",
        "        if owing:\n            self.wait_for_outcomes(self)\n",
        "        if owing and not self.settings.server:\n            self.wait_for_outcomes(self)\n",
        ("tests/amqp_broker/test_leaving_on_the_wire.py",),
    ),
    Mutant(
        "a control link rolls back when its detach is answered",
        "links/link.py",
        "            self.tell_leaving()\n",
        "",
        ("tests/amqp_broker/nodes/test_coordinator.py",),
    ),
    Mutant(
        "a rolled back acquisition counts as a failed delivery",
        SERVICE,
        "        consumer.give_back(records, RELEASED)\n",
        "        for record in records:\n"
        "            record.delivery_count += 1\n"
        "        consumer.give_back(records, RELEASED)\n",
        scenarios("4.4.3/rollback-in-place"),
        "delivery-count",
    ),
    Mutant(
        "modified changes its message before the commit",
        SERVICE,
        "        table = self._table\n        self._disposed(\n",
        "        table = self._table\n"
        "        if hasattr(state.outcome, 'delivery_failed'):\n"
        "            consumer._change(deliveries, state.outcome)\n"
        "        self._disposed(\n",
        scenarios("4.4.2/rollback-then-released"),
        "delivery-count",
    ),
    Mutant(
        "rollback of a settled retirement releases instead of the default",
        SERVICE,
        "            consumer.apply(work.items, consumer.default_outcome, True)\n",
        "            consumer.apply(work.items, RELEASED, True)\n",
        scenarios("4.4.4/default-modified", "4.4.4/default-accepted", "4.4.4/default-at-the-end"),
        "delivery-count",
    ),
    Mutant(
        "a rolled back acquisition goes to the end of its queue",
        SERVICE,
        "        consumer.give_back(records, RELEASED)\n",
        "        consumer.queue.backlog.add(records)\n"
        "        self._nodes.pump(consumer.queue)\n",
        scenarios("4.4.3/rollback-in-place"),
        "place",
    ),
    Mutant(
        "what a default outcome returns goes to the end of its queue",
        "amqp_broker/nodes/queue_source.py",
        "            self.queue.give_back((record,))\n",
        "            self.queue.backlog.add([record])\n",
        scenarios("4.4.4/default-in-place"),
        "place",
    ),
    Mutant(
        "the commit takes what has no outcome",
        EFFECTS,
        "            ((Effect.KEEP_HELD, False), (Effect.RELEASE, True)),\n",
        "            ((Effect.RETIRE, True), (Effect.RELEASE, True)),\n",
        scenarios("4.4.3/no-outcome-stays"),
        "no outcome",
    ),
    Mutant(
        "the commit frees what has no outcome",
        EFFECTS,
        "            ((Effect.KEEP_HELD, False), (Effect.RELEASE, True)),\n",
        "            ((Effect.RELEASE, True), (Effect.RELEASE, True)),\n",
        scenarios("4.4.3/no-outcome-stays"),
        "no outcome",
    ),
    Mutant(
        "a rolled back acquisition is settled in its transaction's name",
        SERVICE,
        "                    RELEASED if released else",
        "                    TransactionalState(txn_id=txn_id, outcome=RELEASED) if released else",
        scenarios("4.4.3/rollback-settles"),
        "released",
    ),
    Mutant(
        "a rolled back acquisition is not settled",
        EFFECTS,
        "            ((Effect.KEEP_HELD, False), (Effect.RELEASE, True)),\n",
        "            ((Effect.KEEP_HELD, False), (Effect.RELEASE, False)),\n",
        scenarios("4.4.3/rollback-settles"),
        "released",
    ),
    Mutant(
        "links that end with the control link give back what its rollback gave back",
        SERVICE,
        "                item.decided = True\n",
        "                pass\n",
        (f"{WIRE_TESTS}::test_what_was_acquired_is_there_once_after_everything_ended_together",),
        "10",
    ),
    Mutant(
        "the first of two outcomes stays",
        "coordinator/transaction.py",
        "        held.outcome = outcome\n",
        "        held.outcome = held.outcome or outcome\n",
        scenarios("4.4.2/last-wins"),
        "last wins",
    ),
    Mutant(
        "a settled delivery comes to life with the next outcome",
        "coordinator/transaction.py",
        "        held.settled = held.settled or settled\n",
        "        held.settled = settled\n",
        (f"{TABLE_TESTS}::test_settling_is_for_good",),
        "last wins",
    ),
)

_ORDER: Final = (
    Mutant(
        "a commit is answered before what it retired is settled",
        SERVICE,
        "        self.tell(ended)\n"
        "        self._answer_when_aborted(ended, discharge.link, discharge.delivery)\n",
        "        self._answer_when_aborted(ended, discharge.link, discharge.delivery)\n"
        "        self.tell(ended)\n",
        scenarios("4.3/settlements-first"),
        "order",
    ),
    Mutant(
        "a rollback is answered before what it frees is settled",
        SERVICE,
        "            self._end(found)\n            self._answer_when_aborted(found, link, delivery)\n",
        "            self._answer_when_aborted(found, link, delivery)\n            self._end(found)\n",
        scenarios("4.4.3/rollback-settles"),
        "order",
    ),
    Mutant(
        "settlements and the answer to the discharge are two writes",
        SERVICE,
        "        self.tell(ended)\n"
        "        self._answer_when_aborted(ended, discharge.link, discharge.delivery)\n",
        "        self.tell(ended)\n        self.connection._wake.__self__._flush()\n"
        "        self._answer_when_aborted(ended, discharge.link, discharge.delivery)\n",
        (f"{BOUNDS_TESTS}::test_settlements_and_the_answer_are_one_write",),
        "order",
    ),
    Mutant(
        "a rollback is answered while a message is half sent",
        SERVICE,
        "        if sending:\n            self._aborting",
        "        if not link:\n            self._aborting",
        scenarios("4.4.3/half-sent-rollback"),
        "order",
    ),
    Mutant(
        "posts are available before the commit",
        SERVICE,
        "            refused = self.enlist(transaction, posting)\n",
        "            refused = self.enlist(transaction, posting)\n"
        "            queue.number(posting.records)\n"
        "            queue.make_available(posting.records, posting.size_bytes)\n"
        "            self._nodes.pump(queue)\n",
        scenarios(
            "4.4.1/commit",
            "4.4.1/invisible-to-itself",
            "4.4.1/settled-commit",
            "4.4.1/several-sessions",
            "4.4.3/own-posts",
        ),
        "visibility",
    ),
    Mutant(
        "copying links see posts before the commit",
        SERVICE,
        "            refused = self.enlist(transaction, posting)\n",
        "            refused = self.enlist(transaction, posting)\n"
        "            queue.number(posting.records)\n"
        "            queue.acquire_in_transaction(posting.records)\n"
        "            self._nodes.pump(queue)\n",
        scenarios("4.4.1/invisible-to-browsers"),
        "visibility",
    ),
    Mutant(
        "what a live transaction has acquired comes to others",
        SERVICE,
        "        consumer.queue.acquire_in_transaction(sent)\n",
        "        consumer.queue.give_back(sent)\n        self._nodes.pump(consumer.queue)\n",
        scenarios("4.4.3/invisible", "4.4.3/two-controllers"),
        "isolation",
    ),
    Mutant(
        "copying links do not see what a live transaction has acquired",
        SERVICE,
        "        consumer.queue.acquire_in_transaction(sent)\n",
        "",
        scenarios("4.4.3/browser-sees"),
        "isolation",
    ),
    Mutant(
        "copying links see what a commit has removed",
        SERVICE,
        "            work.consumer.queue.end_in_transaction(records_of(work))\n",
        "",
        scenarios("4.4.3/browser-sees"),
        "isolation",
    ),
    Mutant(
        "a control link has little credit",
        "amqp_broker/nodes/coordinator.py",
        "credit = 2 * CONTROL_LINK_CREDIT",
        "credit = CONTROL_LINK_CREDIT // 2",
        scenarios("4.1/credit"),
        "control credit",
    ),
    Mutant(
        "the credit of a control link is not renewed",
        "amqp_broker/nodes/coordinator.py",
        "            self.processed(1)  #",
        "            pass  #",
        scenarios("4.1/credit", "4.3/guesses"),
        "control credit",
    ),
    Mutant(
        "the credit of a control link waits for the disk",
        "amqp_broker/nodes/coordinator.py",
        "            self.processed(1)  #",
        "            self.processed(0 if self._transactions._nodes.writer._due else 1)  #",
        (f"{BOUNDS_TESTS}::test_a_control_link_keeps_its_credit_while_the_store_is_at_it",),
        "control credit",
    ),
)

FAULTS: Final = _IDS + _TIMEOUT + _MESSAGES + _ORDER
