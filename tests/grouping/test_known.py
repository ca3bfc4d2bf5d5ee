"""Faults that were found by hand, each in its smallest program: the same in one group as one at a time."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.grouping.stage import (
    FIRST_CHECK_MS,
    MAX_AGE_MS,
    TOMBSTONE_MS,
    Chunk,
    Program,
    all_at_once,
    all_in_one,
    by_connection,
    one_by_one,
    run_program,
)
from tests.grouping.steps import (
    AttachReceiver,
    AttachSender,
    Disk,
    Leave,
    Pass,
    Send,
    Settle,
    Step,
    Subscribe,
    Tick,
)
from tests.grouping.stores import MemoryStores, SqliteStores, Stores, quick_folder
from tests.grouping.verdicts import differences, wrongs

OUTCOMES = ("accepted", "rejected", "released", "modified", "modified-here")
ASKED_ONLY = "$half-check/g"
BY_OUTCOME = "$half-check/g/by-outcome"


@pytest.fixture(params=["memory", "sqlite"])
def stores(request: pytest.FixtureRequest) -> Iterator[Stores]:
    """Both kinds of stores."""
    if request.param == "memory":
        yield MemoryStores()
        return
    folder = quick_folder()
    yield SqliteStores(folder)
    shutil.rmtree(folder)


def same(stores: Stores, setup: list[Step], *steps: Step, policy: str = "rollback") -> None:
    """However these steps are grouped, the broker lives and does what it does one at a time."""
    program = Program(tuple(setup), steps, policy)
    keyed = by_connection(steps)
    serial = run_program(program, one_by_one(keyed), stores)
    assert not wrongs(serial), f"{program}\none at a time: {wrongs(serial)}"
    plans = {
        "in one group": all_in_one(keyed),
        "in one segment": all_at_once(keyed),
        "while the first commits": all_in_one(keyed, own=True),
    }
    for name, plan in plans.items():
        found = differences(serial, run_program(program, plan, stores))
        assert not found, f"{program}\n{name}: {found}"


# Half messages: a check that is out, and a decision


def asked(where: str = BY_OUTCOME, destination: str = "b") -> list[Step]:
    """A half message has been asked about."""
    return [
        AttachSender(0, "put", f"$half/g/{destination}"),
        AttachSender(0, "resolve", "$half-resolve/g"),
        Send(0, "put", ("half", "h", "body")),
        AttachReceiver(0, "checks", where, 1),
        Pass(-1, FIRST_CHECK_MS + 100),
    ]


def asked_twice(where: str = BY_OUTCOME) -> list[Step]:
    """As often as the group asks."""
    return [
        *asked(where),
        Settle(0, "checks", 0, 0, "modified", True),
        AttachReceiver(0, "checks again", where, 1),
        Pass(-1, 31_000),
    ]


def decided(verdict: str) -> Send:
    """By the producer."""
    return Send(0, "resolve", ("resolve", "h", verdict))


EVERYWHERE = pytest.mark.parametrize("where", [BY_OUTCOME, ASKED_ONLY], ids=["by outcome", "asked"])
POLICIES = pytest.mark.parametrize("policy", ["rollback", "park"])
VERDICTS = pytest.mark.parametrize("verdict", ["commit", "rollback"])
ANSWERS = pytest.mark.parametrize("outcome", OUTCOMES)


@EVERYWHERE
@VERDICTS
@ANSWERS
def test_answer_beside_a_decision(stores: Stores, outcome: str, verdict: str, where: str) -> None:
    """A check is answered, and the half message decided by its producer, in one segment."""
    for settled in (True, False):
        answer = Settle(0, "checks", 0, 0, outcome, settled)
        same(stores, asked(where), answer, decided(verdict))
        same(stores, asked(where), decided(verdict), answer)


@EVERYWHERE
@POLICIES
@VERDICTS
@pytest.mark.parametrize("outcome", ["accepted", "modified"])
def test_last_answer_beside_a_decision(
    stores: Stores, outcome: str, verdict: str, policy: str, where: str
) -> None:
    """The last answer that the group waits for ends the half message by policy, beside a decision."""
    answer = Settle(0, "checks again", 0, 0, outcome, True)
    same(stores, asked_twice(where), answer, decided(verdict), policy=policy)
    same(stores, asked_twice(where), decided(verdict), answer, policy=policy)


@EVERYWHERE
@POLICIES
@pytest.mark.parametrize("first", [*OUTCOMES, "commit", "rollback"])
def test_maximum_age_in_the_midst(stores: Stores, first: str, policy: str, where: str) -> None:
    """The age of a half message ends it while a decision about it is on its way, and another one comes."""
    step = Settle(0, "checks again", 0, 0, first, True) if first in OUTCOMES else decided(first)
    steps = (step, Pass(-1, MAX_AGE_MS), decided("commit"))
    program = Program(tuple(asked_twice(where)), steps, policy)
    keyed = tuple(enumerate(steps))
    serial = run_program(program, one_by_one(keyed), stores)
    assert not wrongs(serial), f"{program}\none at a time: {wrongs(serial)}"
    for own in (False, True):
        plan = (Chunk(keyed, held=True, merged=False, own=own),)
        found = differences(serial, run_program(program, plan, stores))
        assert not found, f"{program}\n{'own' if own else 'one'} group: {found}"


@POLICIES
@VERDICTS
def test_decision_at_the_maximum_age(stores: Stores, verdict: str, policy: str) -> None:
    """A half message is decided in the group in which its age ends it."""
    again = Send(0, "put", ("half", "h", "body"))
    same(stores, asked(), Pass(-1, MAX_AGE_MS), decided(verdict), again, decided(verdict), policy=policy)


@pytest.mark.parametrize("early_ms", range(-12, 3))
def test_id_put_again_when_its_tombstone_expires(stores: Stores, early_ms: int) -> None:
    """However near a put is to the end of the tombstone of its half-id, it is new or refused."""
    put = Send(0, "put", ("half", "h", "body"))
    resolve = Send(0, "resolve", ("resolve", "h", "rollback"))
    setup: list[Step] = [*asked()[:3], resolve, Pass(-1, TOMBSTONE_MS + early_ms), Tick(-1)]
    program = Program(tuple(setup), (put,))
    for plan in (one_by_one([(0, put)]), all_in_one([(0, put)])):
        found = wrongs(run_program(program, plan, stores))
        assert not found, f"{program}\n{found}"


# Outcomes without settling


def holding(count: int) -> list[Step]:
    """A receiver that has so many messages."""
    return [
        AttachSender(0, "to", "a"),
        *(Send(0, "to", ("plain", f"m{number}", True)) for number in range(count)),
        AttachReceiver(0, "from", "a", count),
    ]


LEAVES = {
    "detach": Leave(0, "from", False),
    "close link": Leave(0, "from", True),
    "end": Leave(0, None, False),
    "close": Leave(0, None, True),
}


@pytest.mark.parametrize("leave", LEAVES)
@ANSWERS
def test_outcome_then_gone(stores: Stores, outcome: str, leave: str) -> None:
    """An outcome that is not settled, and the end of the link in the same segment."""
    same(stores, holding(2), Settle(0, "from", 0, 1, outcome, False), LEAVES[leave])


@pytest.mark.parametrize(("first", "second"), list(itertools.product(OUTCOMES, OUTCOMES)))
def test_two_outcomes_of_one_delivery(stores: Stores, first: str, second: str) -> None:
    """Two outcomes for one delivery, neither settled: the first is its outcome."""
    same(stores, holding(1), Settle(0, "from", 0, 0, first, False), Settle(0, "from", 0, 0, second, False))


@pytest.mark.parametrize(("first", "second"), list(itertools.product(OUTCOMES, OUTCOMES)))
def test_overlapping_ranges(stores: Stores, first: str, second: str) -> None:
    """Two ranges that overlap: each delivery has the first outcome that it was given."""
    same(stores, holding(3), Settle(0, "from", 0, 1, first, False), Settle(0, "from", 1, 2, second, False))


# Sets


def sealed(*epochs: int, destination: str = "b", mixed: bool = False) -> list[Step]:
    """One sealed set for each epoch."""
    setup: list[Step] = [AttachSender(0, "resolve", "$half-resolve/g")]
    for epoch in epochs:
        name = f"s{epoch}"
        where = MIXED[epoch % len(MIXED)] if mixed else destination
        setup += [
            AttachSender(0, name, f"$half-set/g/p/{epoch}/{name}/{where}"),
            Send(0, name, ("row", f"row of {epoch}")),
            Send(0, "resolve", ("seal", name, epoch, (f"row of {epoch}",))),
        ]
    return setup


def commit_of_epoch(epoch: int) -> Send:
    """With the set that `sealed` made for it."""
    return Send(0, "resolve", ("commit-epoch", epoch, ((f"s{epoch}", (f"row of {epoch}",)),)))


MIXED = ("b", "e.c", "b")
DESTINATIONS = pytest.mark.parametrize("destination", ["b", "e.c", "r.d", "x.f"])


@DESTINATIONS
def test_epochs_in_order(stores: Stores, destination: str) -> None:
    """Epochs that are committed in their order in one segment are all committed."""
    commits = [commit_of_epoch(epoch) for epoch in (1, 2, 3)]
    same(stores, sealed(1, 2, 3, destination=destination), *commits)


def test_epochs_in_order_to_different_queues(stores: Stores) -> None:
    """However long the commit of an epoch takes, the next one comes behind it."""
    for epochs in ((1, 2, 3), (2, 3, 4), (3, 4, 5)):
        same(stores, sealed(*epochs, mixed=True), *[commit_of_epoch(epoch) for epoch in epochs])


@DESTINATIONS
def test_epochs_out_of_order(stores: Stores, destination: str) -> None:
    """An epoch behind a later one is stale, and its set gone."""
    same(stores, sealed(1, 2, destination=destination), commit_of_epoch(2), commit_of_epoch(1))


@DESTINATIONS
def test_epoch_twice_and_sealed_again(stores: Stores, destination: str) -> None:
    """What comes behind a commit in its segment meets a decision."""
    seal = Send(0, "resolve", ("seal", "s1", 1, ("row of 1",)))
    void = Send(0, "resolve", ("void", "s1"))
    same(stores, sealed(1, destination=destination), commit_of_epoch(1), commit_of_epoch(1), seal, void)
    same(stores, sealed(1, destination=destination), void, seal, commit_of_epoch(1))


def test_stage_seal_commit(stores: Stores) -> None:
    """A set is staged, sealed and committed in one segment."""
    setup: list[Step] = [
        AttachSender(0, "resolve", "$half-resolve/g"),
        AttachSender(0, "s1", "$half-set/g/p/1/s1/b"),
    ]
    same(
        stores, setup,
        Send(0, "s1", ("row", "row of 1")), Send(0, "resolve", ("seal", "s1", 1, ("row of 1",))),
        commit_of_epoch(1),
    )  # fmt: skip


def _calls(epochs: int) -> int:
    """How many functions a segment of so many commits of epochs calls."""
    steps = tuple(Send(0, "resolve", ("commit-epoch", epoch, ())) for epoch in range(1, epochs + 1))
    setup = (AttachSender(0, "resolve", "$half-resolve/g"),)
    count = 0

    def profile(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        run = run_program(Program(setup, steps), all_in_one(list(enumerate(steps))), MemoryStores())
    finally:
        sys.setprofile(None)
    assert set(run.answers.values()) == {("accepted!",)}, set(run.answers.values())
    return count


def test_many_epochs_cost_what_they_are() -> None:
    """Four times as many epochs in one group cost about four times as much."""
    few, many = _calls(100), _calls(400)
    assert many < 6 * few, f"{few} calls for 100 epochs, {many} for 400"


# A full disk


ROOMS = pytest.mark.parametrize("room", ["units", "groups", "commits", "nothing"])


@ROOMS
@pytest.mark.parametrize("count", [1, 2, 3])
def test_puts_refused_for_want_of_room(stores: Stores, count: int, room: str) -> None:
    """A run of puts that the store refuses is answered without anybody else's help."""
    puts = [Send(0, "put", ("half", f"new {number}", "body")) for number in range(count)]
    same(stores, asked()[:2], Disk(-1, room), *puts)


@ROOMS
@VERDICTS
def test_decision_beside_a_full_disk(stores: Stores, verdict: str, room: str) -> None:
    """A decision in a group that a full disk refuses gives back what was reserved, once."""
    posts = [Send(0, "to", ("plain", "m", True)), Send(0, "put", ("half", "new", "body"))]
    setup = [*asked(), AttachSender(0, "to", "b")]
    last = decided(verdict)
    for steps in ([last, *posts], [*posts, last], [posts[0], last, posts[1]], [last]):
        same(stores, setup, Disk(-1, room), *steps)
        same(stores, setup, Disk(-1, room), *steps, Disk(-1, "enough"), *steps)


@ROOMS
def test_outcomes_beside_a_full_disk(stores: Stores, room: str) -> None:
    """What is settled beside a full disk is settled once there is room."""
    settle, post = Settle(0, "from", 0, 1, "accepted", True), Send(0, "to", ("plain", "m", True))
    same(stores, holding(2), Disk(-1, room), settle, post, Disk(-1, "enough"), post)
    same(stores, holding(2), Disk(-1, room), post, settle, Disk(-1, "enough"), post)


@ROOMS
@pytest.mark.parametrize("links", [1, 2])
def test_stream_beside_a_full_disk(stores: Stores, room: str, links: int) -> None:
    """What follows what had no room is judged without it: the stream did not begin."""
    setup: list[Step] = [AttachSender(who, "stream", "s") for who in range(links)]
    steps = [
        Send(step % links, "stream", ("sequenced", seq_id, seq_no, seq_no - 1))
        for step, (seq_id, seq_no) in enumerate([(1, 1), (1, 2), (1, 1), (2, 1), (2, 2)])
    ]
    same(stores, setup, Disk(-1, room), *steps, Disk(-1, "enough"), Send(0, "stream", ("sequenced", 1, 1, 0)))


@pytest.mark.parametrize("kind", ["plain", "sequenced"])
def test_run_that_has_room_message_by_message(stores: Stores, kind: str) -> None:
    """A run that is too large for the room there is comes in as far as its messages do."""
    plain = kind == "plain"
    messages = [("plain", f"m{n}", True) if plain else ("sequenced", 1, n, n - 1) for n in (1, 2, 3)]
    steps = [Send(0, "to", message) for message in messages]
    same(stores, [AttachSender(0, "to", "s")], Disk(-1, "one"), *steps, Disk(-1, "enough"), steps[-1])


# Cursors


def test_cursor_forgotten_and_moved(stores: Stores) -> None:
    """A cursor that is moved behind its end is there."""
    setup: list[Step] = [
        AttachSender(0, "to", "r.d"),
        Send(0, "to", ("plain", "m0", True)),
        Send(0, "to", ("plain", "m1", True)),
        AttachReceiver(0, "replies", None, 100, settled=True),
        AttachSender(0, "asks", "$retained"),
        Send(0, "asks", ("cursor", "move", "c", (("r.d", 1),))),
    ]
    forget = Send(0, "asks", ("cursor", "forget", "c", ()))
    move = Send(0, "asks", ("cursor", "move", "c", (("r.d", 2),)))
    again = Send(0, "asks", ("cursor", "move", "c", (("r.d", 1),)))
    look = Send(0, "asks", ("cursor", "cursor", "c", ()))
    same(stores, setup, forget, move)
    same(stores, setup, move, forget, look)
    same(stores, setup, move, look, forget, again, look)


@pytest.mark.parametrize("question", ["move", "hold", "forget"])
@pytest.mark.parametrize("leave", ["link", "session"])
def test_request_whose_reply_queue_goes(stores: Stores, question: str, leave: str) -> None:
    """What was done is never told as refused because nobody waits for the reply any more."""
    setup: list[Step] = [
        AttachSender(0, "to", "r.d"),
        Send(0, "to", ("plain", "m0", True)),
        AttachReceiver(0, "replies", None, 100, settled=True),
        AttachSender(0, "asks", "$retained"),
    ]
    positions = () if question == "forget" else (("r.d", 1),)
    asks = Send(0, "asks", ("cursor", question, "c", positions))
    same(stores, setup, asks, Leave(0, "replies" if leave == "link" else None, closed=leave == "link"))


# Transactions in a pipeline

IN_TRANSACTION: list[Step] = [
    AttachSender(0, "control", None),
    AttachSender(0, "put", "$half/g/b"),
    AttachSender(0, "resolve", "$half-resolve/g"),
    Send(0, "control", ("declare", "t")),
]


@pytest.mark.parametrize("txn", ["t", None])
@pytest.mark.parametrize("verdict", ["commit", "rollback"])
@pytest.mark.parametrize("fail", [True, False])
def test_put_resolve_discharge(stores: Stores, txn: str | None, verdict: str, fail: bool) -> None:
    """A half message is put (in a transaction or before it) and decided in the transaction; that ends."""
    same(
        stores, IN_TRANSACTION,
        Send(0, "put", ("half", "h", "body"), txn=txn),
        Send(0, "resolve", ("resolve", "h", verdict), txn="t"),
        Send(0, "control", ("discharge", "t", fail)),
    )  # fmt: skip


def test_sequence_in_a_transaction_behind_a_plain_step(stores: Stores) -> None:
    """A stream goes on in a transaction behind a message that is posted without one, in one segment."""
    setup = [*IN_TRANSACTION, AttachSender(0, "stream", "s")]
    same(
        stores, setup,
        Send(0, "stream", ("sequenced", 1, 1, 0)),
        Send(0, "stream", ("sequenced", 1, 2, 1), txn="t"),
        Send(0, "control", ("discharge", "t", False)),
        Send(0, "stream", ("sequenced", 1, 3, 2)),
    )  # fmt: skip


@pytest.mark.parametrize("behind", ["queue", "half"])
def test_work_behind_a_request_that_dooms_its_transaction(stores: Stores, behind: str) -> None:
    """What is refused by what the store has is refused before the rest of its transaction is answered."""
    setup: list[Step] = [
        *IN_TRANSACTION,
        AttachSender(0, "queue", "q"),
        Send(0, "put", ("half", "h", "body")),
    ]
    other = Send(0, "put", ("half", "h", "another body"), txn="t")
    sends = {
        "queue": Send(0, "queue", ("plain", "m", True), txn="t"),
        "half": Send(0, "put", ("half", "new", "body"), txn="t"),
    }
    same(stores, setup, other, sends[behind])
    same(stores, setup, other, sends[behind], other, Send(0, "control", ("discharge", "t", False)))


@ROOMS
def test_cursor_behind_what_a_full_disk_refuses(stores: Stores, room: str) -> None:
    """What waited for the group before it is done too, when the operations of that are done one by one."""
    setup: list[Step] = [
        *IN_TRANSACTION,
        AttachSender(0, "stream", "x.f"),
        AttachSender(0, "plain", "e.c"),
        AttachSender(0, "kept", "r.d"),
        AttachReceiver(0, "replies", None, 100, settled=True),
        AttachSender(0, "asks", "$retained"),
    ]
    same(
        stores, setup,
        Disk(-1, room),
        Send(0, "plain", ("plain", "m", True)),
        Send(0, "stream", ("sequenced", 2, 1, 0), txn="t"),
        Send(0, "asks", ("cursor", "move", "c", (("r.d", 4),))),
    )  # fmt: skip


HOLDING: list[Step] = [
    AttachSender(0, "control", None),
    *(Send(0, "control", ("declare", name)) for name in ("t", "u")),
    AttachSender(0, "to", "e.c"),
    *(Send(0, "to", ("plain", f"m{number}", True)) for number in range(4)),
    AttachReceiver(0, "from", "e.c", 4),
]


@pytest.mark.parametrize("txn", ["t", "u", None])
@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("first", ["accepted", "modified"])
def test_outcome_behind_the_discharge_that_decides(
    stores: Stores, first: str, settled: bool, txn: str | None
) -> None:
    """In the transaction that is over, in another one, or in none; also where the discharge is refused."""
    decides = Settle(0, "from", 1, 2, first, False, txn="t")
    again = Settle(0, "from", 1, 1, "modified", settled, txn=txn)
    ends = Send(0, "control", ("discharge", "t", False))
    rest = Send(0, "control", ("discharge", "u", False))
    same(stores, HOLDING, decides, ends, again, rest)
    same(stores, HOLDING, decides, Disk(-1, "commits"), ends, again, Disk(-1, "enough"), rest)
    same(stores, HOLDING, decides, ends, again, Leave(0, "from", closed=False), rest)


def test_outcome_of_what_is_decided_and_of_what_is_not(stores: Stores) -> None:
    """In one disposition of a transaction: it holds the rest, although it can't be committed any more."""
    same(
        stores, HOLDING,
        Settle(0, "from", 3, 3, "modified", False),
        Settle(0, "from", 1, 3, "modified", False, txn="t"),
        Settle(0, "from", 2, 3, "released", True, txn="u"),
        Send(0, "control", ("discharge", "t", False)),
    )  # fmt: skip


@pytest.mark.parametrize("before", ["discharge", "commit", "cursor"])
def test_message_of_memory_behind_what_the_store_decides(stores: Stores, before: str) -> None:
    """A message that nothing stores overtakes none that a decision before it brings, nor a reply."""
    setup: list[Step] = [
        *IN_TRANSACTION,
        AttachReceiver(0, "from", None, 1),
        AttachSender(0, "to", "@0/from"),
        AttachSender(0, "to b", "b"),
        AttachReceiver(0, "from b", "b", 1),
        Send(0, "put", ("half", "h", "body")),
        AttachSender(0, "kept", "r.d"),
        Send(0, "kept", ("plain", "m0", True)),
        AttachReceiver(0, "replies", None, 1, settled=True),
        AttachSender(0, "asks", "$retained"),
    ]
    steps = {
        "discharge": (
            Send(0, "to", ("plain", "m1", True), txn="t"),
            Send(0, "control", ("discharge", "t", False)),
            Send(0, "to", ("plain", "m2", False)),
        ),
        "commit": (
            Send(0, "resolve", ("resolve", "h", "commit")),
            Send(0, "to b", ("plain", "m2", False)),
        ),
        "cursor": (
            Send(0, "asks", ("cursor", "move", "c", (("r.d", 1),))),
            Send(0, "asks", ("cursor", "cursor", "c", ())),
        ),
    }  # fmt: skip
    same(stores, setup, *steps[before])


MESSAGES: dict[str, list[tuple[Any, ...]]] = {
    "a": [("plain", "m1", True), ("plain", "m2", True)],
    "s": [("sequenced", 1, 1, 0), ("sequenced", 1, 2, 1)],
    "": [("addressed", "a", "m1"), ("addressed", "a", "m2")],
    "$half/g/a": [("half", "h1", "body"), ("half", "h2", "body")],
}


@pytest.mark.parametrize("room", ["units", "groups", "commits"])
@pytest.mark.parametrize("target", MESSAGES)
def test_transactional_work_behind_what_a_full_disk_refuses(stores: Stores, target: str, room: str) -> None:
    """The refusal of a settled message ends its link: what came behind it is lost, not part of its
    transaction.
    """
    first, second = MESSAGES[target]
    same(
        stores, [*IN_TRANSACTION, AttachSender(0, "link", target)],
        Disk(-1, room),
        Send(0, "link", first, settled=True),
        Send(0, "link", second, txn="t"),
        Disk(-1, "enough"),
        Send(0, "control", ("discharge", "t", False)),
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["link", "shared", "durable"])
def test_a_subscription_has_nothing_of_what_was_sent_before(stores: Stores, kind: str) -> None:
    """Who gets a copy is judged when a group is made: one in memory was there before the group."""
    same(
        stores, [AttachSender(0, "to u.a", "u.a")],
        Send(0, "to u.a", ("plain", "m1", True)),
        Subscribe(0, "sub", "s|" if kind == "shared" else "s", "u.a", kind),
        Send(0, "to u.a", ("plain", "m2", True)),
    )  # fmt: skip


BY_RELAY = Send(0, "relay", ("addressed", "l.q", "m3"))
BY_HALF = Send(0, "put", ("half", "h", "body"))
BY_TRANSACTION = Send(0, "relay", ("addressed", "l.q", "m3"), txn="t")


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("outcome", ["accepted", "rejected"])
@pytest.mark.parametrize("post", [BY_RELAY, BY_HALF, BY_TRANSACTION], ids=["relay", "half", "transaction"])
def test_room_that_what_came_before_makes(stores: Stores, post: Send, outcome: str, settled: bool) -> None:
    """A full queue, of which a message is settled right before another one comes for which there is no
    credit.
    """
    setup = [
        AttachSender(0, "to", "l.q"),
        *(Send(0, "to", ("plain", f"m{number}", True)) for number in range(2)),
        Leave(0, "to", True),  # with its credit, for which room was kept
        AttachReceiver(0, "from", "l.q", 2),
        AttachSender(0, "relay", ""),
        AttachSender(0, "put", "$half/g/l.q"),
        AttachSender(0, "control", None),
        Send(0, "control", ("declare", "t")),
    ]
    same(stores, setup, Settle(0, "from", 0, 0, outcome, settled), post, post)


ASKS = Send(0, "asks", ("cursor", "cursor", "c", (), "l.q"))


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("outcome", ["accepted", "released"])
@pytest.mark.parametrize("address", ["asks", "relay"])
def test_room_for_a_reply_that_what_came_before_makes(
    stores: Stores, address: str, outcome: str, settled: bool
) -> None:
    """The queue for replies is full, and a message of it is settled right before one asks; or it is not."""
    setup = [
        AttachSender(0, "to", "l.q"),
        *(Send(0, "to", ("plain", f"m{number}", True)) for number in range(2)),
        Leave(0, "to", True),
        AttachReceiver(0, "from", "l.q", 2),
        AttachSender(0, "asks", "$retained"),
        AttachSender(0, "put", "$half/g/l.q"),
    ]
    between = [] if address == "asks" else [BY_HALF]
    same(stores, setup, Settle(0, "from", 0, 0, outcome, settled), ASKS, *between, ASKS)


def test_room_in_a_subscription_that_what_came_before_makes(stores: Stores) -> None:
    """As in a queue; each copy needs it."""
    setup = [
        AttachSender(0, "to", "u.a"),
        Subscribe(0, "sub", "s", "u.a", "durable", 5),
        *(Send(0, "to", ("plain", f"m{number}", True)) for number in range(5)),
    ]
    again = Send(0, "to", ("plain", "m5", True))
    same(stores, setup, Settle(0, "sub", 0, 0, "accepted", False), again, again)
