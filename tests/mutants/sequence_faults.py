"""Seeded faults of sequenced streams: in order and exactly once, and what the wire says of it."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

RULE: Final = "coordinator/sequences.py"
JOBS: Final = "amqp_broker/sequences/operations.py"
JUDGING: Final = "amqp_broker/sequences/judging.py"
POSITIONS: Final = "amqp_broker/sequences/positions.py"
FIELDS: Final = "amqp_broker/sequences/fields.py"
LINKS: Final = "amqp_broker/sequences/links.py"
WORK: Final = "amqp_broker/sequences/transactions.py"
CLIENT: Final = "amqp_broker/sequences/client.py"

RULE_TESTS: Final = "tests/coordinator/test_sequence_table.py"
TABLE_TESTS: Final = "tests/amqp_broker/test_sequences_table.py"
ORDER_TESTS: Final = "tests/amqp_broker/test_sequences_orders.py"
LINK_TESTS: Final = "tests/amqp_broker/test_sequences_links.py"
FIELD_TESTS: Final = "tests/amqp_broker/test_sequences_fields.py"
WORK_TESTS: Final = "tests/amqp_broker/test_sequences_transactions.py"
TIMER_TESTS: Final = "tests/amqp_broker/test_sequences_acknowledgements.py"
CLIENT_TESTS: Final = "tests/amqp_broker/test_sequences_client.py"
MANY_TESTS: Final = "tests/amqp_broker/test_sequences_many.py"
KILL_TESTS: Final = (
    "tests/crash/test_sequenced_kills.py::test_a_kill_before_and_after_the_commit_with_resend[commit.before]"
)

_RULE: Final = (
    Mutant(
        "sequences: the source read literally, the position moves also when a message is refused",
        RULE,
        "    return answer, position.after(numbering) if answer is _A.ACCEPT else position\n",
        "    return answer, StreamPosition(numbering.seq_id, numbering.seq_no, position.former)\n",
        (RULE_TESTS, TABLE_TESTS),
    ),
    Mutant(
        "sequences: a gap is accepted",
        RULE,
        "    (_S, True, _P.ABOVE): (3, _A.GAP),\n",
        "    (_S, True, _P.ABOVE): (3, _A.ACCEPT),\n",
        (RULE_TESTS, TABLE_TESTS, ORDER_TESTS),
    ),
    Mutant(
        "sequences: a sender may not chain over what it dropped",
        RULE,
        "    (_S, True, _P.BELOW): (2, _A.ACCEPT),\n",
        "    (_S, True, _P.BELOW): (2, _A.GAP),\n",
        (RULE_TESTS, TABLE_TESTS),
    ),
    Mutant(
        "sequences: duplicates of a former id are stale",
        RULE,
        "        for former_id, last in self.former:\n            if former_id == seq_id:\n",
        "        for former_id, last in self.former:\n            if former_id > seq_id > former_id:\n",
        (RULE_TESTS, TABLE_TESTS),
    ),
    Mutant(
        "sequences: an id of 0 is taken",
        RULE,
        "        if not 0 < self.seq_id <= SEQ_ID_MAX:\n",
        "        if not 0 <= self.seq_id <= SEQ_ID_MAX:\n",
        (RULE_TESTS, FIELD_TESTS),
    ),
    Mutant(
        "sequences: a message may stand behind itself",
        RULE,
        "        if not 0 <= self.seq_prev < self.seq_no:\n",
        "        if not 0 <= self.seq_prev <= self.seq_no:\n",
        (RULE_TESTS,),
    ),
)

_STORED: Final = (
    Mutant(
        "sequences: two runs of one commit are judged on the same position",
        POSITIONS,
        "        if pending is not None:\n            return pending[-1][1]\n",
        "        if pending is not None and not pending:\n            return pending[-1][1]\n",
        (ORDER_TESTS,),
    ),
    Mutant(
        "sequences: a run that is undone leaves its position",
        JOBS,
        "        self._sequences.positions.undo(self, changes)\n",
        "        self._sequences.positions.stored(self, self.queue, changes)\n",
        (ORDER_TESTS,),
    ),
    Mutant(
        "sequences: a refused run leaves its position",
        JOBS,
        "        self._connection.run_in_turn(self._then, self, error)\n",
        "        judging = self._sequences.judging(self.queue, self._principal)\n"
        "        judge(judging, self._records, self._places)\n"
        "        self._sequences.positions.stored(self, self.queue, judging.changes(0))\n"
        "        self._connection.run_in_turn(self._then, self, error)\n",
        (ORDER_TESTS,),
    ),
    Mutant(
        "sequences: the state is not stored with the messages",
        JOBS,
        "    return [Advance(stream) for stream in streams if stream.seq_id]\n",
        "    return []\n",
        (ORDER_TESTS, KILL_TESTS),
    ),
    Mutant(
        "sequences: names that were never accepted are stored",
        JOBS,
        "    return [Advance(stream) for stream in streams if stream.seq_id]\n",
        "    return [Advance(stream) for stream in streams]\n",
        (ORDER_TESTS,),
    ),
    Mutant(
        "sequences: senders are told before the COMMIT",
        JOBS,
        "        return unit + advances(queue, self._changes)\n",
        "        self._connection.run_in_turn(self._then, self, None)\n"
        "        return unit + advances(queue, self._changes)\n",
        (ORDER_TESTS, KILL_TESTS),
    ),
    Mutant(
        "sequences: below the low-water mark the state goes on without the messages",
        "persistence/node_table.py",
        "            assert isinstance(verb, Advance)\n            if refuse_posts:\n",
        "            assert isinstance(verb, Advance)\n            if refuse_posts and kind is Post:\n",
        (ORDER_TESTS,),
    ),
    Mutant(
        "sequences: memory keeps the position of every stream",
        POSITIONS,
        "        if len(self._remembered) > self._most:\n",
        "        if len(self._remembered) < 0:\n",
        (MANY_TESTS,),
    ),
    Mutant(
        "sequences: what memory has forgotten begins anew",
        POSITIONS,
        "            stream = self._lookup(*key) or Stream(",
        "            stream = Stream(",
        (MANY_TESTS,),
    ),
)

_WIRE: Final = (
    Mutant(
        "sequences: a duplicate is stored",
        JUDGING,
        "        if answer is _DUPLICATE:\n            return False, ACCEPTED\n",
        "        if answer is _DUPLICATE:\n            return True, ACCEPTED\n",
        (TABLE_TESTS,),
    ),
    Mutant(
        "sequences: everybody may use everybody's streams",
        JUDGING,
        "        if view.owner != self._who and view.owner and not self._may_use():\n",
        "        if view.owner != self._who and not view.owner and not self._may_use():\n",
        (LINK_TESTS,),
    ),
    Mutant(
        "sequences: in an open broker streams belong to nobody",
        "amqp_broker/sequences/sequences.py",
        "authoriser.grants(principal, SEQUENCE",
        "authoriser.authorise(principal, SEQUENCE",
        (ORDER_TESTS,),
    ),
    Mutant(
        "sequences: refusals are not counted",
        JUDGING,
        "        view.counted += 1\n",
        "        view.counted += 0\n",
        (TABLE_TESTS,),
    ),
    Mutant(
        "sequences: required queues take messages without a place",
        LINKS,
        "            places = [MISSING if place is None else place for place in places]\n",
        "            places = [place for place in places]\n",
        (LINK_TESTS,),
    ),
    Mutant(
        "sequences: a queue without sequences judges",
        LINKS,
        "        if queue.sequences.off:\n            return False\n",
        "",
        (LINK_TESTS,),
    ),
    Mutant(
        "sequences: a settled gap is dropped in silence",
        LINKS,
        "            if type(outcome) is Rejected and any(delivery.settled for delivery in deliveries):\n",
        "            if type(outcome) is None and any(delivery.settled for delivery in deliveries):\n",
        (LINK_TESTS,),
    ),
    Mutant(
        "sequences: each refusal is told in a range of its own",
        LINKS,
        "        if runs and (outcome is last or outcome == last):\n",
        "        if runs and outcome is ACCEPTED and outcome is last:\n",
        (LINK_TESTS,),
    ),
    Mutant(
        "sequences: the first of two forms that differ wins",
        FIELDS,
        "        if annotated.setdefault(field, value) != value:\n",
        "        if annotated.setdefault(field, value) is None:\n",
        (FIELD_TESTS,),
    ),
    Mutant(
        "sequences: a reset forgets on disk only",
        POSITIONS,
        "            if queue.persistent:\n                key = (stream.queue_id, stream.stream)\n",
        "            if queue.persistent and stream.seq_id:\n"
        "                key = (stream.queue_id, stream.stream)\n",
        (LINK_TESTS,),
    ),
)

_TOLD: Final = (
    Mutant(
        "sequences: nothing is told before a detach",
        "links/link.py",
        "        self.settle_deferred()\n        self._receive(LinkInput.R_DETACH)\n",
        "        self._receive(LinkInput.R_DETACH)\n",
        (TIMER_TESTS,),
    ),
    Mutant(
        "sequences: nothing is told before an end",
        "links/session.py",
        "        self.settle_deferred()\n        self._receive_state(SessionInput.R_END)\n",
        "        self._receive_state(SessionInput.R_END)\n",
        (TIMER_TESTS,),
    ),
    Mutant(
        "sequences: nothing is told before a close",
        "links/connection.py",
        "        for session in self.sessions.values():\n            session.settle_deferred()\n",
        "",
        (TIMER_TESTS,),
    ),
    Mutant(
        "sequences: a flow that drains or asks is not heard",
        "links/session_frames.py",
        "        if flow.drain or flow.echo:\n            link.settle_deferred()\n",
        "",
        (TIMER_TESTS,),
    ),
    Mutant(
        "sequences: a message that is not batchable waits",
        LINKS,
        "        or not all(delivery.batchable for delivery in deliveries)\n",
        "",
        (TIMER_TESTS,),
    ),
    Mutant(
        "sequences: credit is waited for",
        LINKS,
        "        or link.credit * FLUSH_PART < sink.credit\n",
        "",
        (TIMER_TESTS,),
    ),
    Mutant(
        "sequences: the window is waited for",
        LINKS,
        "    if window.incoming_window * FLUSH_PART < window.capacity:\n",
        "    if window.incoming_window < 0:\n",
        (TIMER_TESTS,),
    ),
    Mutant(
        "sequences: the connection knows nothing of the timer",
        LINKS,
        "        self._connection.expiring[self._deadline] = None\n",
        "",
        (TIMER_TESTS,),
    ),
)

_TRANSACTIONS: Final = (
    Mutant(
        "sequences: a discharge does not look where the stream is by now",
        WORK,
        "            if (now.seq_id, now.seq_no) != (found.seq_id, found.seq_no):\n",
        "            if (now.seq_id, now.seq_no) < (found.seq_id, 0):\n",
        (WORK_TESTS,),
    ),
    Mutant(
        "sequences: a rolled back transaction leaves its tentative state",
        WORK,
        "        self._sequences.forget_tentative(self.transaction)\n",
        "",
        (WORK_TESTS,),
    ),
    Mutant(
        "sequences: each post of a transaction is judged on the durable state",
        WORK,
        "            tentative[stream.queue_id, stream.stream] = stream\n",
        "            pass\n",
        (WORK_TESTS,),
    ),
    Mutant(
        "sequences: a full queue moves the stream",
        JUDGING,
        "                return False, full\n            view.position = after\n",
        "                view.position = after\n                return False, full\n"
        "            view.position = after\n",
        (WORK_TESTS,),
    ),
    Mutant(
        "sequences: a settled gap commits",
        WORK,
        "            raise Refused(self.failure.error())\n",
        "            pass\n",
        (WORK_TESTS,),
    ),
    Mutant(
        "sequences: a transaction stores its messages without the state",
        WORK,
        "        return unit + advances(self.queue, self._left)\n",
        "        return unit\n",
        ("tests/crash/test_sequenced_kills.py::test_kills_at_any_moment",),
    ),
)

_CLIENT: Final = (
    Mutant(
        "sequences: a client opens a new id beside what is not acknowledged",
        CLIENT,
        "        if self._waiting and self._uncertain:\n",
        "        if self._waiting and self._uncertain is None:\n",
        (CLIENT_TESTS,),
    ),
    Mutant(
        "sequences: a client forgets what is not acknowledged for a new id",
        CLIENT,
        "        for message in messages:\n            self.put(message)\n",
        "",
        (CLIENT_TESTS,),
    ),
    Mutant(
        "sequences: a client sends again only what is new after a gap",
        CLIENT,
        "        for waiting in self._waiting.values():\n            waiting.sent = False\n",
        "",
        (CLIENT_TESTS,),
    ),
    Mutant(
        "sequences: a client does not chain over what it dropped",
        CLIENT,
        "            self._waiting[following].prev = dropped.prev\n",
        "            pass\n",
        (CLIENT_TESTS,),
    ),
)

FAULTS: Final = _RULE + _STORED + _WIRE + _TOLD + _TRANSACTIONS + _CLIENT
