"""Epochs are committed, sets are sealed and voided, once and for all (docs/protocols/sets.md: decide)."""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.halves import Halves
from amqp_broker.conformance.messages import APPLICATION_PROPERTIES, data, map_of, properties_of
from amqp_broker.conformance.outcomes import expect_equal
from amqp_broker.conformance.queues import expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.sets import (
    CONFLICT,
    INVALID,
    MISMATCH,
    PROFILE,
    STALE,
    UNKNOWN,
    UNSEALED,
    Sets,
    checksum,
    refusal,
)
from amqp_broker.conformance.transactions import expect_state
from amqp_broker.frames import Accepted, Disposition, Long, Properties, Ulong


def numbers_of(info: Any) -> dict[str, Any]:
    """Returns an info map as plain values."""
    return {str(key): getattr(value, "value", value) for key, value in (info or {}).items()}


@scenario("set.decide/order", "set.commit", "set.epoch", profile=PROFILE)
def order(broker: Broker) -> None:
    """Sets stand in the order named, the messages of each in that of their staging."""
    sets = Sets(broker)
    one, two = sets.sealed("one", b"1", b"2"), sets.sealed("two", b"3", b"4")
    sets.commit(two, one)
    expect_left(broker, sets.queue, b"3", b"4", b"1", b"2", in_order=True)


@scenario("set.decide/repeat", "set.commit", "set.final", profile=PROFILE)
def repeat(broker: Broker) -> None:
    """A commit is accepted again, whatever it names, also from somebody else, and delivers once."""
    sets, other = Sets(broker), Sets(broker, "other")
    one = sets.sealed("one", b"1")
    sets.commit(one)
    sets.commit(one)
    other.commit()
    other.commit(("never", 9, 9))
    expect_left(broker, sets.queue, b"1")
    expect_equal("winners", ["one"], [each["set"] for each in other.status(1)["winners"]])


@scenario("set.decide/all-or-nothing", "set.commit", profile=PROFILE)
def all_or_nothing(broker: Broker) -> None:
    """One that is not as it should be, and nothing happens; the epoch can be committed still."""
    sets = Sets(broker)
    one = sets.sealed("one", b"1")
    link = sets.stager("open")
    sets.stage(link, data(b"2"))
    open_set = ("open", 1, checksum(data(b"2")))
    for bad, condition in (
        (("never", 1, 1), UNKNOWN),
        (open_set, UNSEALED),
        ((one[0], one[1] + 1, one[2]), MISMATCH),
        ((one[0], one[1], one[2] ^ 1), MISMATCH),
    ):
        named = [bad] if bad[0] == one[0] else [one, bad]
        refusal(sets.asked_to_commit(named), condition)
    expect_equal("whether it is decided", False, sets.status(1)["decided"])
    link.detach()
    sets.commit(one)
    expect_left(broker, sets.queue, b"1")


@scenario("set.decide/losers", "set.epoch", "set.refused-stale", profile=PROFILE)
def losers(broker: Broker) -> None:
    """All other sets of the producer up to the epoch are gone, and an epoch that was passed over stays so."""
    sets = Sets(broker)
    earlier = sets.sealed("earlier", b"1", epoch=1)
    sets.sealed("loser", b"2", epoch=2)
    sets.sealed("later", b"3", epoch=3)
    winner = sets.sealed("winner", b"4", epoch=2)
    sets.commit(winner, epoch=2)
    expect_equal("what is staged", ["later"], [each["set"] for each in sets.status()["sets"]])
    refusal(sets.asked_to_commit([earlier], epoch=1), STALE)
    expect_left(broker, sets.queue, b"4")


@scenario("set.decide/empty", "set.empty-epoch", "set.late", profile=PROFILE)
def empty(broker: Broker) -> None:
    """An epoch without sets is decided; epochs need not be dense."""
    sets = Sets(broker)
    sets.commit(epoch=7)
    found = sets.status(7)
    expect_equal("decided and winners", (True, []), (found["decided"], found["winners"]))
    expect_equal("latest", 7, found["latest"])
    expect_equal("whether another is decided", False, sets.status(6)["decided"])


@scenario("set.decide/seal", "set.seal", "set.checksum-all", profile=PROFILE)
def seal(broker: Broker) -> None:
    """Again with the same is accepted; otherwise a mismatch, which says both, also in the info map."""
    sets = Sets(broker)
    one = sets.sealed("one", b"1", b"2")
    sets.seal(one)
    error = refusal(sets.asked_to_seal(("one", 3, 5)), MISMATCH)
    info = numbers_of(error.info)
    told = [info.get(f"half_{name}") for name in ("expected_count", "expected_checksum", "count", "checksum")]
    expect_equal("the info map", [3, 5, 2, one[2]], told)
    for number in (3, 5, 2, one[2]):
        expect_equal(f"whether the words have {number}", True, str(number) in (error.description or ""))
    refusal(sets.asked_to_seal(("never", 1, 1)), UNKNOWN)
    refusal(sets.asked_to_seal(one, epoch=2), UNKNOWN)


@scenario("set.decide/void", "set.void", profile=PROFILE)
def void(broker: Broker) -> None:
    """What is voided is gone, absent ones are accepted; of what was committed it is a conflict."""
    sets = Sets(broker)
    one, two = sets.sealed("one", b"1"), sets.sealed("two", b"2")
    sets.void("two", "never")
    refusal(sets.asked_to_commit([one, two]), UNKNOWN)
    sets.commit(one)
    sets.sealed("three", b"3", epoch=2)
    refusal(sets.asked_to_void("three", "one"), CONFLICT)
    refusal(sets.asked_to_void("one", epoch=1), CONFLICT)
    expect_equal("what is staged", ["three"], [each["set"] for each in sets.status()["sets"]])
    sets.void("three", epoch=2)
    expect_left(broker, sets.queue, b"1")


@scenario("set.decide/status", "set.status-reply", "set.status", profile=PROFILE)
def status(broker: Broker) -> None:
    """What is decided, and what is staged, for one epoch or for all."""
    sets = Sets(broker)
    nothing = sets.status(1)
    expect_equal("the type of store_id", str, type(nothing.pop("store_id", None)))
    expect_equal("nothing", {"decided": False, "winners": [], "sets": []}, nothing)
    one = sets.sealed("one", b"1")
    link = sets.stager("two", epoch=2)
    sets.stage(link, data(b"2"))
    link.detach()
    staged = [
        {"set": "one", "epoch": 1, "state": "sealed", "count": 1},
        {"set": "two", "epoch": 2, "state": "open", "count": 1},
    ]
    expect_equal("sets", staged, sets.status()["sets"])
    expect_equal("sets of an epoch", staged[1:], sets.status(2)["sets"])
    sets.commit(one)
    found = sets.status(1)
    winners = [{"set": "one", "count": 1, "checksum": one[2]}]
    expect_equal("winners", (True, winners, 1), (found["decided"], found["winners"], found["latest"]))
    expect_equal("the type of decided_at_ms", int, type(found.get("decided_at_ms")))


@scenario("set.decide/numbers", "set.numbers", profile=PROFILE)
def numbers(broker: Broker) -> None:
    """Of any integral type; a checksum may be negative."""
    sets = Sets(broker)
    link = sets.stager("one")
    payloads = [data(b"1"), data(b"2")]
    sets.stage(link, *payloads)
    link.detach()
    total = checksum(*payloads)
    body = {"producer": "p", "epoch": Long(1), "set": "one", "count": 2, "checksum": total}
    expect_state(sets.tell("seal", body), Accepted)
    expect_state(sets.tell("seal", {**body, "checksum": Ulong(total)}), Accepted)
    refusal(sets.tell("seal", {**body, "checksum": Long(-1)}), MISMATCH)
    named = {"set": "one", "count": Ulong(2), "checksum": Long(total)}
    expect_state(sets.tell("commit-epoch", {"producer": "p", "epoch": 1, "sets": [named]}), Accepted)
    expect_left(broker, sets.queue, b"1", b"2")


@scenario("set.decide/lines", "set.lines", profile=PROFILE)
def lines(broker: Broker) -> None:
    """Sets may be named in a string, a line for each, by clients whose maps have no lists in them."""
    sets = Sets(broker)
    (one, *_), two = sets.sealed("one", b"1"), sets.sealed("two", b"2")
    third = sets.sealed("three", b"3")
    sets.sealed("four", b"4")
    expect_state(sets.tell("void", {"producer": "p", "epoch": Long(1), "sets": f"{one}\nfour\n"}), Accepted)
    staged = sorted(each["set"] for each in sets.status(1)["sets"])
    expect_equal("what is staged", ["three", "two"], staged)
    signed = third[2] - (1 << 64)
    wrong = f"two {two[1]} {two[2]}\nthree {third[1]} {signed - 1}"
    refusal(sets.tell("commit-epoch", {"producer": "p", "epoch": Long(1), "sets": wrong}), MISMATCH)
    named = f"three {third[1]} {signed}\ntwo {two[1]} {two[2]}"
    expect_state(sets.tell("commit-epoch", {"producer": "p", "epoch": Long(1), "sets": named}), Accepted)
    expect_left(broker, sets.queue, b"3", b"2", in_order=True)
    expect_state(sets.tell("commit-epoch", {"producer": "p", "epoch": Long(2), "sets": ""}), Accepted)
    expect_equal("whether it is decided", True, sets.status(2)["decided"])


@scenario("set.decide/malformed", "set.malformed", profile=PROFILE)
def malformed(broker: Broker) -> None:
    """Without a field, or with a wrong one: amqp:invalid-field, and nothing happened."""
    sets = Sets(broker)
    one = sets.sealed("one", b"1")
    body: dict[str, Any] = {"producer": "p", "epoch": 1, "sets": ["one"]}
    for subject, value in (
        ("seal", {}),
        ("seal", {"producer": "p", "epoch": 1, "set": "one", "count": 1}),
        ("seal", {"producer": "p", "epoch": "1", "set": "one", "count": 1, "checksum": 1}),
        ("commit-epoch", body),
        ("commit-epoch", {"producer": "p", "sets": []}),
        ("void", {"producer": "", "sets": ["one"]}),
        ("void", {"producer": "p", "sets": "one 1 1"}),
        ("commit-epoch", {"producer": "p", "epoch": 1, "sets": "one"}),
        ("commit-epoch", {"producer": "p", "epoch": 1, "sets": "one 1 one"}),
        ("status", {"producer": "p"}),
        ("seal", "no map"),
    ):
        refusal(sets.tell(subject, value), INVALID)
    sets.commit(one)
    expect_left(broker, sets.queue, b"1")


@scenario("set.decide/race", "set.order", "set.final", profile=PROFILE)
def race(broker: Broker) -> None:
    """Two commits of one epoch at once: both are accepted, one decides, and its sets alone are there."""
    sets, other = Sets(broker), Sets(broker, "other")
    expected: list[bytes] = []
    for epoch in range(1, 11):
        a, b = sets.sealed(f"a{epoch}", b"a", epoch=epoch), sets.sealed(f"b{epoch}", b"b", epoch=epoch)
        messages = []
        for winner, producer in ((a, sets), (b, other)):
            named = [{"set": winner[0], "count": Ulong(winner[1]), "checksum": Ulong(winner[2])}]
            messages.append((producer, {"producer": "p", "epoch": Ulong(epoch), "sets": named}))
        sent = [(producer, producer.ask("commit-epoch", body)) for producer, body in messages]
        for producer, number in sent:
            expect_state(producer.answer(number), Accepted)
        (chosen,) = [each["set"] for each in sets.status(epoch)["winners"]]
        expected.append(chosen[:1].encode())
    expect_left(broker, sets.queue, *expected, in_order=True)


@scenario("set.asked/check", "set.asked", "set.no-commit", profile=PROFILE, waits=True)
def check(broker: Broker) -> None:
    """A set that is not decided is asked about; accepted by outcome commits nothing; rejected voids it."""
    halves = Halves(broker)
    sets = Sets(broker)
    checker = halves.checker(by_outcome=True)
    link = sets.stager("one")
    sets.stage(link, data(b"1"))
    link.detach()
    sets.session.peer.drop()
    asked = halves.next(checker.link, within_s=20)
    properties = properties_of(asked.payload) or Properties()
    expect_equal("subject", "check-set", properties.subject)
    expect_equal("correlation-id", None, properties.correlation_id)
    named = numbers_of(map_of(asked.payload, APPLICATION_PROPERTIES))
    for name, value in (
        ("half_set", "one"), ("half_producer", "p"), ("half_epoch", 1), ("half_count", 1),
        ("half_state", "open"), ("half_group", sets.group), ("half_attempt", 1),
    ):  # fmt: skip
        expect_equal(name, value, named.get(name))
    checker.link.settle(asked, Accepted(), settled=False)
    while asked.delivery_id not in checker.session.settlements:
        checker.session.peer.expect_frame(Disposition)
    after = Sets(broker, "after")
    expect_equal("what is staged", "open", after.status()["sets"][0]["state"])
    after.void("one")
    expect_left(broker, sets.queue)
