"""The life of each thing in the journal: which event may follow which, and what is wrong if another does.

A life is a table of states, words and cells: in each of these states each of these words (kinds of events)
leads to the state of the cell (`.`: the same), or is a fault: `fault>state`. The word `end` is the end of
the log. Each pair of a state and a word stands in it once. FIELDS are the columns of each type of event, and
FAULTS says what each fault means. judging.py reads all that, with what an event has to have in common with
those before it; tests/pipeline/planter.py plants faults by it.

    message      {address, offset}     from its coming to its end
    half         {group, half_id}      from its put to its decision
    set          {group, set_id}       of a producer: sealed, and visible or void with an epoch
    epoch        {group, producer}     decided once, rising
    queue        {address}             its offsets are dense and rise
    sequence     {address, stream}     (id, number) rises
    transaction  {txn_id}              one instant
    consumer     {address, container}  gets what it gets in order, mostly
    log                                its numbers are dense, its clock does not go back

What became of cursors the journal does not tell, so they have no life here.
"""

from __future__ import annotations

from typing import Final

import attrs

from amqp_broker.pipeline.audit_result import FAULT

WARNING: Final = "warning"
LEDGER: Final = "ledger"
TRANSACTIONS: Final = "transactions"
LOG: Final = "log"
END: Final = "end"

MESSAGE: Final = """
before                                     | put back failed                       | waiting
before                                     | shelved away                          | archived
before waiting                             | deliver                               | out
before waiting out                         | accepted                              | accepted
before waiting out                         | rejected                              | refused
before waiting out                         | dead expire                           | dead
before absent accepted dead archived       | end                                   | .
absent                                     | put                                   | waiting
absent                                     | shelved                               | archived
absent                                     | deliver                               | early
absent early                               | accepted                              | phantom>accepted
absent early                               | rejected                              | phantom>refused
absent early                               | back failed                           | phantom>absent
absent early                               | away                                  | phantom>archived
absent                                     | dead expire                           | dead-unknown>dead
early                                      | put shelved                           | too-early>out
early out                                  | deliver                               | .
early                                      | dead expire                           | phantom>dead
early                                      | end                                   | phantom>.
waiting out accepted refused dead archived | put shelved                           | number-twice>
waiting                                    | back failed                           | .
waiting out                                | away                                  | archived
waiting out                                | end                                   | open>.
out                                        | back failed                           | waiting
accepted                                   | deliver                               | delivered-again>
accepted refused                           | accepted rejected                     | settled-twice>
accepted refused dead                      | back failed                           | settled-after>
accepted refused dead                      | away                                  | archived-taken>
accepted                                   | dead expire                           | dead-accepted>
refused                                    | deliver                               | delivered-again>dead
refused                                    | dead                                  | dead
refused                                    | expire end                            | not-dead>dead
dead                                       | deliver                               | delivered-after-death>
dead                                       | accepted                              | dead-accepted>
dead                                       | rejected                              | settled-twice>
dead                                       | dead expire                           | dead-twice>
archived                                   | deliver accepted rejected back failed | archived-taken>
archived                                   | away dead expire                      | archived-taken>
"""
"""`before`: it may have come before the log begins; `early`: out of the queue before it is in it; `refused`:
rejected, and with the same commit it is dead. `back`: released or modified, `failed`: with delivery-failed,
`away`: its queue became a log, `shelved`: put by a log.
"""

HALF: Final = """
before                         | half resume                       | open
before open parked             | publish                           | shown
before shown                   | commit                            | committed
before open parked             | rollback                          | rolled
before parked                  | check answer homeless end         | .
before open                    | park                              | parked
absent hidden committed rolled | half                              | open
absent                         | publish                           | half-unknown>shown
absent                         | commit                            | half-unknown>committed
absent                         | rollback                          | half-unknown>rolled
absent                         | check answer park resume homeless | half-unknown>.
absent                         | end                               | .
open parked shown              | half                              | half-twice>
open parked                    | commit                            | not-visible>hidden
open shown                     | check answer homeless             | .
open                           | resume                            | not-parked>
open                           | end                               | undecided>.
parked                         | park                              | parked-twice>
parked                         | resume                            | open
shown committed                | publish                           | visible-twice>
shown                          | rollback                          | visible-rolled-back>rolled
shown                          | park resume                       | visible-undecided>
shown                          | end                               | visible-undecided>.
hidden                         | publish                           | visible-late>committed
hidden committed               | commit                            | decided-twice>
hidden committed               | rollback                          | contradictory>
hidden committed rolled        | check                             | asked-after>
hidden                         | answer homeless end | .
hidden                         | park resume                       | after-decision>
committed rolled               | answer end                        | .
committed rolled               | park resume homeless              | after-decision>
rolled                         | publish                           | visible-rolled-back>
rolled                         | commit                            | contradictory>
rolled                         | rollback                          | decided-twice>
"""
"""`shown`: visible, and with the same commit its decision is told, after it; `hidden`: committed into a queue
that tells no events, else that is a fault. A half-id may be put again once its decision is forgotten.
"""

SET: Final = """
before         | seal           | sealed
before sealed  | publish        | shown
before left    | void loses     | void
before         | decide end     | .
absent void    | seal           | sealed
absent         | publish        | set-unsealed>shown
absent sealed  | void           | void
absent         | loses          | void
sealed         | loses          | set-not-lost>void
absent         | decide         | .
absent empty   | end            | .
sealed empty   | seal           | set-sealed-twice>
sealed         | decide         | left
sealed         | end            | set-unresolved>.
empty          | publish        | set-torn>shown
empty          | void loses     | void
empty          | decide         | .
shown visible  | seal           | set-sealed-late>
shown          | publish        | .
shown visible  | void loses     | set-void-and-visible>
shown          | decide         | visible
shown          | end            | set-undecided>.
visible        | publish        | set-late>
visible        | decide end     | .
left           | seal           | set-sealed-twice>
left           | publish        | set-late>visible
left           | decide         | .
left           | end            | set-left>.
void           | publish        | set-void-and-visible>
void           | void loses     | .
void           | decide end     | .
"""
"""`decide`: of its epoch or a later one; then what is not visible `loses` with the same commit (`left`: that
is due); others may give it up before (`void`), and open it again. `empty`: sealed without a message. What was
never sealed is told of by its end only.
"""


@attrs.frozen
class Fault:
    """What a finding of one kind means; {names} are columns of the event that shows it."""

    audit: str
    says: str
    severity: str = FAULT
    because: str = ""
    """Why a warning is no fault: what a broker and clients that did nothing wrong may have done."""


def _warning(audit: str, says: str, because: str) -> Fault:
    return Fault(audit, says, WARNING, because)


FAULTS: Final[dict[str, Fault]] = {
    # message
    "phantom": Fault(LEDGER, "it came out and never came in"),
    "too-early": Fault(LEDGER, "it was delivered before it was put"),
    "number-twice": Fault(LEDGER, "more than one message has this number"),
    "delivered-again": Fault(LEDGER, "it came to its end and was delivered again"),
    "settled-twice": Fault(LEDGER, "it was accepted or rejected more than once"),
    "settled-after": Fault(LEDGER, "it came to its end, and was given back afterwards"),
    "settled-by-another": _warning(
        LEDGER, "{container} settled it, and it was delivered to another",
        "its delivery to this one may be missing: a crash or a full disk loses the event, nothing else"),
    "archived-taken": Fault(LEDGER, "a log archived it, and something else became of it"),
    "dead-unknown": Fault(LEDGER, "given up, and never put"),
    "dead-accepted": Fault(LEDGER, "given up, and accepted too"),
    "dead-twice": Fault(LEDGER, "given up or expired more than once"),
    "dead-without-reason": Fault(LEDGER, "given up, and nobody said why"),
    "delivered-after-death": Fault(LEDGER, "given up and delivered afterwards"),
    "dead-unrejected": Fault(LEDGER, "given up as rejected, and nobody had rejected it"),
    "dead-otherwise": Fault(LEDGER, "rejected for one reason, and given up for {reason}"),
    "not-dead": Fault(LEDGER, "rejected, and it was not told that it is dead: lost"),
    "lost": Fault(LEDGER, "it came in and never came out"),
    "overtaken": _warning(
        LEDGER, "never delivered, and many later ones were",
        "no consumer's filter may take it, others may be more urgent, or its group may be in use"),
    "attempt": Fault(LEDGER, "attempt {attempt} does not follow from the attempts before it that failed"),
    "clock-backwards": _warning(
        LEDGER, "an event of it is earlier than the one before",
        "the clock on the wall may be set back while the broker runs, or stands"),
    # queue, consumer, sequence
    "offset-missing": Fault(LEDGER, "numbers were given to no message that is in the log"),
    "order": Fault(LEDGER, "it came in before the one with the number below"),
    "delivered-backwards": _warning(
        LEDGER, "messages in a row were delivered in falling order",
        "priorities, filters, groups and what is released turn the order, and the journal tells of none"),
    "sequence-gap": Fault(LEDGER, "numbers before it were left out, and its sender had not said so"),
    "sequence-order": Fault(LEDGER, "accepted after a later one"),
    "sequence-duplicate": Fault(LEDGER, "accepted more than once"),
    # half
    "unresolved": Fault(TRANSACTIONS, "not decided for too long"),
    "half-twice": Fault(TRANSACTIONS, "put again, and it was not decided"),
    "contradictory": Fault(TRANSACTIONS, "committed and rolled back"),
    "decided-twice": Fault(TRANSACTIONS, "decided more than once"),
    "half-unknown": Fault(TRANSACTIONS, "the log tells of it before it was put, or it never was"),
    "visible-undecided": Fault(TRANSACTIONS, "it became visible and nobody had decided"),
    "visible-early": Fault(TRANSACTIONS, "it became visible before its decision"),
    "visible-late": Fault(TRANSACTIONS, "it became visible after its decision, in another commit"),
    "visible-rolled-back": Fault(TRANSACTIONS, "it became visible and was rolled back"),
    "visible-twice": Fault(TRANSACTIONS, "it became visible more than once"),
    "visible-otherwise": Fault(TRANSACTIONS, "{bytes} octets of {container} are visible, others were put"),
    "visible-elsewhere": Fault(TRANSACTIONS, "the put, the decision and the message name different places"),
    "not-visible": Fault(TRANSACTIONS, "committed, and it never became visible"),
    "answer-without-check": Fault(TRANSACTIONS, "more answers than checks"),
    "asked-after": Fault(TRANSACTIONS, "asked about, and it was decided"),
    "after-decision": Fault(TRANSACTIONS, "a {type}, and it was decided"),
    "parked-twice": Fault(TRANSACTIONS, "parked, and it was parked"),
    "not-parked": Fault(TRANSACTIONS, "resumed, and it was not parked"),
    # set, epoch, transaction
    "set-torn": Fault(TRANSACTIONS, "not as many messages became visible as were sealed"),
    "set-unsealed": Fault(TRANSACTIONS, "visible, and never sealed"),
    "set-sealed-twice": Fault(TRANSACTIONS, "sealed more than once"),
    "set-sealed-late": Fault(TRANSACTIONS, "sealed, and its epoch was decided or it was visible"),
    "set-undecided": Fault(TRANSACTIONS, "visible, and its epoch was never decided"),
    "set-early": Fault(TRANSACTIONS, "visible before its epoch was decided"),
    "set-late": Fault(TRANSACTIONS, "visible after its epoch was decided, in another commit"),
    "set-void-and-visible": Fault(TRANSACTIONS, "given up, and visible too"),
    "set-unresolved": Fault(TRANSACTIONS, "sealed, and not decided for too long"),
    "set-not-lost": Fault(TRANSACTIONS, "given up by a decision that was not made then"),
    "set-left": Fault(TRANSACTIONS, "its epoch was decided, and it is neither visible nor void"),
    "sets-unseen": _warning(
        TRANSACTIONS, "epochs were decided, and no queue told of their messages",
        "their messages may have gone to queues without events"),
    "epoch-twice": Fault(TRANSACTIONS, "decided more than once"),
    "epoch-order": Fault(TRANSACTIONS, "decided after a higher one"),
    "epoch-rolled-back": Fault(TRANSACTIONS, "an epoch is only ever committed, and it is {outcome}"),
    "transaction-torn": Fault(TRANSACTIONS, "its parts were stored at different times"),
    # log
    "events-missing": Fault(LOG, "events are missing from the log"),
    "events-double": Fault(LOG, "an event is more than once in the archive"),
    "not-as-told": Fault(LOG, "as many events as the broker told of, and other ones"),
    "time-backwards": _warning(
        LOG, "earlier than the event before by more than a clock explains",
        "the clock on the wall may be set back; that nobody changed times afterwards the checksums say"),
    "event-malformed": Fault(LOG, "a {type} with fields that no {type} has, or without those that it needs"),
}  # fmt: skip

_NAMED: Final = "message_id seq_stream seq_id seq_no seq_prev outcome=archived"
FIELDS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "put": (("address offset bytes", f"producer container txn_id {_NAMED}"),
            ("address offset bytes outcome=archived reason", "")),
    "publish": (("address offset group half_id bytes", f"producer container txn_id {_NAMED}"),
                ("address offset group set_id producer epoch", f"bytes {_NAMED}")),
    "half": (("group half_id address container bytes", ""),),
    "seal": (("group set_id producer epoch count", ""),),
    "check": (("group attempt half_id", ""), ("group attempt set_id producer epoch", "")),
    "answer": (("group attempt half_id", ""), ("group attempt set_id producer epoch", "")),
    "decide": (("group half_id resolver outcome=committed address offset", "reason"),
               ("group half_id resolver outcome=rolled-back", "reason"),
               ("group producer epoch resolver outcome=committed", "")),
    "void": (("group set_id producer epoch reason", "resolver"),),
    "park": (("group half_id resolver", "reason"),),
    "resume": (("group half_id resolver", "reason"),),
    "deliver": (("address offset attempt", "container"),),
    "settle": (("address offset outcome=accepted", "container txn_id"),
               ("address offset outcome=rejected", "container txn_id reason"),
               ("address offset outcome=released", "container txn_id reason"),
               ("address offset outcome=modified", "container txn_id reason"),
               ("address offset outcome=archived reason", "")),
    "dead": (("address offset", "reason"), ("address group half_id reason", "")),
    "expire": (("address offset", ""),),
    "reject": (("address", "producer container reason seq_stream seq_id seq_no txn_id"),),
}  # fmt: skip
"""The shapes of each type: the columns that it needs, and that it may have; `name=word`: with this word."""
TOGETHER: Final = {"seq_no": "seq_stream", "seq_id": "seq_no", "seq_prev": "seq_id"}
"""Where the first is, the second is, too."""
SAME: Final = ("producer", "container")
SENT: Final = ("put", "publish", "reject")
"""Of what is sent to a queue the former two are the same, but that a set has no container."""
RESOLVERS: Final = ("producer", "check", "admin", "deadline")
LEAST: Final = {"offset": 0, "bytes": 0, "count": 0, "attempt": 1, "epoch": 0}
"""The least value of a column."""

Cells = dict[str, dict[str, tuple[str, str]]]
"""For each state and word the next state, and the fault or nothing."""


def read(table: str) -> Cells:
    """A table above, as it is looked up."""
    cells: Cells = {}
    for line in table.strip().splitlines():
        states, words, cell = (part.split() for part in line.split("|"))
        fault, parted, after = cell[0].rpartition(">")
        for state in states:
            of_state = cells.setdefault(state, {})
            for word in words:
                assert word not in of_state, f"{state} {word} stands twice"
                of_state[word] = (state if after in (".", "") else after, fault if parted else "")
    return cells
