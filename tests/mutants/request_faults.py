"""Seeded faults that keep each conformance scenario of part 4 honest: control links, ids, posts."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant, scenarios
from tests.mutants.rule_faults import REQUESTS, SERVICE, TABLE
from tests.mutants.storage_faults import POSTING

FAULTS: Final = (
    Mutant(
        "posts before the peer's detach are dropped",
        "amqp_broker/nodes/queue_sink.py",
        "        if self.queue.deleted:\n            self.lose",
        "        if not self.link.attached:\n"
        "            return\n"
        "        if self.queue.deleted:\n"
        "            self.lose",
        scenarios("4.1/links-closed-at-once", "4.1/other-session-ended"),
        "5",
    ),
    Mutant(
        "requests before the peer's detach are dropped",
        "amqp_broker/nodes/coordinator.py",
        "            if self.ended:\n                return\n",
        "            if not self.link.attached:\n                return\n",
        scenarios("4.1/closed-after-the-discharge"),
        "5",
    ),
    Mutant(
        "the end of a sender spoils its transactions",
        "amqp_broker/nodes/queue_sink.py",
        "        queue.produce_no_more(self)\n",
        "        queue.produce_no_more(self)\n"
        "        for t in self.transactions._table.live():\n"
        "            self.transactions._table.fail(t, 'x')\n",
        scenarios("4.1/posting-link-closed"),
        "5",
    ),
    Mutant(
        "the end of a receiver gives back what its transaction retires",
        TABLE,
        "            if held is None:\n"
        "                free.append(item)\n"
        "            elif not held.settled:\n",
        "            if held is None or True:\n"
        "                free.append(item)\n"
        "            elif not held.settled:\n",
        scenarios("4.1/retiring-link-closed"),
        "9",
    ),
    Mutant(
        "the end of a receiver forgets that nobody can settle any more",
        TABLE,
        "                held.settled = True\n                held.left = left\n",
        "                pass\n",
        scenarios("4.1/retiring-link-closed-rollback"),
        "9",
    ),
    Mutant(
        "a terminated control link keeps its transactions",
        "amqp_broker/nodes/coordinator.py",
        "        self._transactions.control_gone(self.link)\n",
        "        self.ended or self._transactions.control_gone(self.link)\n",
        scenarios("4.2/settled-declare-rolls-back", "4.3/settled-discharge"),
        "2",
    ),
    Mutant(
        "work on a control link is taken for a declare",
        REQUESTS,
        '        raise NotAllowed("transactional work on a control link (4.1)")\n',
        "        return Declare()\n",
        scenarios("4.1/no-work-on-control-link", "4.1/no-work-terminates"),
        "requests",
    ),
    Mutant(
        "whatever is no request is a declare",
        REQUESTS,
        "    if len(sections) != 1 or not isinstance(sections[0], AmqpValue):\n"
        "        raise MalformedRequest(",
        "    if len(sections) != 1 or not isinstance(sections[0], AmqpValue):\n"
        "        return Declare()\n"
        "        raise MalformedRequest(",
        scenarios("4.2/neither", "4.2/neither-rejected"),
        "requests",
    ),
    Mutant(
        "malformed requests end the control link",
        REQUESTS,
        "    if isinstance(error, (NotAllowed, ControlLinkTerminated)):",
        "    if isinstance(error, (NotAllowed, ControlLinkTerminated, MalformedRequest)):",
        scenarios("4.2/neither-rejected"),
        "requests",
    ),
    Mutant(
        "other sections beside a request are an error",
        REQUESTS,
        "    try:\n        sections",
        "    if payload[2:3] != b'\\x77':\n        raise MalformedRequest('x')\n    try:\n        sections",
        scenarios("4.2/other-sections"),
        "requests",
    ),
    Mutant(
        "only the first request of a run is answered",
        "amqp_broker/nodes/coordinator.py",
        "            self._transactions.request(self.link, delivery)\n",
        "            self._transactions.request(self.link, delivery)\n            return\n",
        scenarios("4.2/pipelined-flood", "4.1/credit"),
        "requests",
    ),
    Mutant(
        "the first pieces of a message are lost",
        "links/receiver_link.py",
        '            payload = b"".join(partial.chunks)\n',
        "            payload = partial.chunks[-1]\n",
        scenarios("4.2/several-frames", "4.4.1/several-frames"),
        "requests",
    ),
    Mutant(
        "an aborted request ends its link",
        "links/receiver_link.py",
        "        if head.aborted:\n",
        "        if head.aborted:\n            self.detach(None)\n",
        scenarios("4.2/unfinished-requests"),
        "requests",
    ),
    Mutant(
        "a declare is accepted without an id",
        SERVICE,
        "link.settle([delivery], Declared(txn_id=txn_id))",
        "link.settle([delivery], ACCEPTED)",
        scenarios("4.2/declare"),
        "requests",
    ),
    Mutant(
        "a rollback commits",
        TABLE,
        "        if request.fail:\n"
        "            transaction.advance(TransactionInput.DISCHARGE_FAIL)\n"
        "            return self._end(transaction, False)\n",
        "",
        scenarios(
            "4.3/fail-always",
            "4.4.1/rollback",
            "4.4.1/settled-rollback",
            "4.4.1/several-queues",
            "4.3/interleaved",
            "4.4/churn",
        ),
        "4",
    ),
    Mutant(
        "a discharge without the flag is a rollback",
        TABLE,
        "        if request.fail:\n",
        "        if request.fail is not False:\n",
        scenarios("4.3/fail-not-set"),
        "4",
    ),
    Mutant(
        "a rollback is refused where there is work",
        TABLE,
        "        if request.fail:\n            transaction.advance",
        "        if request.fail and (transaction.postings or transaction.held):\n"
        "            raise TransactionRollback('no')\n"
        "        if request.fail:\n"
        "            transaction.advance",
        scenarios("4.3/fail-always"),
        "4",
    ),
    Mutant(
        "the rollback of an unknown transaction is accepted",
        SERVICE,
        "        found = self._table.discharge(link, request, self.connection.engine.partial_txn_ids())\n",
        "        if request.fail and request.txn_id not in self._table._live:\n"
        "            link.settle([delivery], ACCEPTED)\n"
        "            return\n"
        "        found = self._table.discharge(link, request, self.connection.engine.partial_txn_ids())\n",
        scenarios("4.3/unknown-id-with-fail"),
        "unknown id",
    ),
    Mutant(
        "an unknown transaction has another condition",
        "coordinator/errors.py",
        'condition = "amqp:transaction:unknown-id"',
        'condition = "amqp:not-found"',
        scenarios("4.3/over", "4.3/unknown-id-with-fail"),
        "unknown id",
    ),
    Mutant(
        "an unknown transaction ends the session",
        "amqp_broker/nodes/queue_sink.py",
        "                    self.detach(error.error())\n                    break",
        "                    self.link.session.end(error.error())\n                    break",
        scenarios("4.1/work-after-the-end-detaches"),
        "unknown id",
    ),
    Mutant(
        "a txn-id that cannot be one means the newest transaction",
        TABLE,
        "        txn_id = request.txn_id\n",
        "        txn_id = request.txn_id if 0 < len(request.txn_id) <= 32 else next(iter(self._live), b'')\n",
        scenarios("4.3/ids-that-are-none"),
        "unknown id",
    ),
    Mutant(
        "a post in a transaction that cannot be one is in none",
        "amqp_broker/nodes/queue_sink.py",
        "    return state.txn_id if isinstance(state, TransactionalState) else None",
        "    known = isinstance(state, TransactionalState) and 0 < len(state.txn_id) <= 32\n"
        "    return state.txn_id if known else None",
        scenarios("4.4/states-that-are-none"),
        "unknown id",
    ),
    Mutant(
        "what has ended is still called live",
        SERVICE,
        "        self._nodes.live_transactions.leave(transaction)\n",
        "",
        scenarios("4.3/asked-after-the-end", "4.3/asked-afterwards"),
        "question",
    ),
    Mutant(
        "a discharge that never was is called committed",
        "amqp_broker/nodes/outcomes.py",
        "return NOT_COMMITTED if committed_at_ms is None else COMMITTED",
        "return COMMITTED if committed_at_ms is None else COMMITTED",
        scenarios("4.3/lost-answer", "4.3/asked-afterwards"),
        "question",
    ),
    Mutant(
        "ids of any length can be asked for",
        "amqp_broker/nodes/outcomes.py",
        "0 < len(correlation_id) <= TXN_ID_BYTES_MAX",
        "True",
        scenarios("4.3/question-refused"),
        "question",
    ),
    Mutant(
        "what a lost connection had acquired stays acquired",
        SERVICE,
        "        elif work.effect is Effect.RELEASE:\n            self._release",
        "        elif work.effect is Effect.RELEASE and consumer.link.attached:\n"
        "            self._release",
        scenarios("4.4/many-cut-at-once", "4.4/cut-anywhere"),
        "10",
    ),
    Mutant(
        "the time to live begins with the commit",
        POSTING,
        "                if record.expires_at_ms:\n",
        "                if record.expires_at_ms:\n"
        "                    record.expires_at_ms = now_ms + 60000\n",
        scenarios("4.4.1/expires"),
        "capacity and ttl",
    ),
)
