"""Epochs are committed, sets are sealed and voided, once and for all, at one broker and over several
(docs/protocols/sets.md: decide, several brokers). One broker is enough: it is shown another as coordinator,
or as store.
"""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.halves import Halves
from amqp_broker.conformance.messages import (
    APPLICATION_PROPERTIES,
    data,
    info_of,
    map_of,
    properties_of,
)
from amqp_broker.conformance.outcomes import expect, expect_equal, expect_state
from amqp_broker.conformance.queues import expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.sets import (
    CONFLICT,
    INVALID,
    MISMATCH,
    PREPARED,
    SEALED,
    STALE,
    UNDECIDED,
    UNKNOWN,
    UNSEALED,
    VOIDED,
    Named,
    Sets,
    checksum,
    refusal,
)
from amqp_broker.frames import Accepted, Disposition, Long, Properties, Rejected, Ulong, plain_value


@scenario("set.decide/order", "set.commit", "set.epoch")
def order(broker: Broker, sets: Sets) -> None:
    """Sets stand in the order named, the messages of each in that of their staging."""
    one, two = sets.sealed("one", b"1", b"2"), sets.sealed("two", b"3", b"4")
    sets.commit(two, one)
    expect_left(broker, sets.queue, b"3", b"4", b"1", b"2", in_order=True)


@scenario("set.decide/repeat", "set.commit", "set.final")
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


@scenario("set.decide/all-or-nothing", "set.commit")
def all_or_nothing(broker: Broker, sets: Sets) -> None:
    """One that is not as it should be, and nothing happens; the epoch can be committed still."""
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


@scenario("set.decide/losers", "set.epoch", "set.refused-stale")
def losers(broker: Broker, sets: Sets) -> None:
    """All other sets of the producer up to the epoch are gone, and an epoch that was passed over stays so."""
    earlier = sets.sealed("earlier", b"1", epoch=1)
    sets.sealed("loser", b"2", epoch=2)
    sets.sealed("later", b"3", epoch=3)
    winner = sets.sealed("winner", b"4", epoch=2)
    sets.commit(winner, epoch=2)
    expect_equal("what is staged", ["later"], [each["set"] for each in sets.status()["sets"]])
    refusal(sets.asked_to_commit([earlier], epoch=1), STALE)
    expect_left(broker, sets.queue, b"4")


@scenario("set.decide/empty", "set.empty-epoch", "set.late")
def empty(sets: Sets) -> None:
    """An epoch without sets is decided; epochs need not be dense."""
    sets.commit(epoch=7)
    found = sets.status(7)
    expect_equal("decided and winners", (True, []), (found["decided"], found["winners"]))
    expect_equal("latest", 7, found["latest"])
    expect_equal("whether another is decided", False, sets.status(6)["decided"])


@scenario("set.decide/seal", "set.seal", "set.checksum-all")
def seal(sets: Sets) -> None:
    """Again with the same is accepted; otherwise a mismatch, which says both, also in the info map."""
    one = sets.sealed("one", b"1", b"2")
    sets.seal(one)
    error = refusal(sets.asked_to_seal(("one", 3, 5)), MISMATCH)
    info = info_of(error)
    told = [info.get(f"half_{name}") for name in ("expected_count", "expected_checksum", "count", "checksum")]
    expect_equal("the info map", [3, 5, 2, one[2]], told)
    for number in (3, 5, 2, one[2]):
        expect_equal(f"whether the words have {number}", True, str(number) in (error.description or ""))
    refusal(sets.asked_to_seal(("never", 1, 1)), UNKNOWN)
    refusal(sets.asked_to_seal(one, epoch=2), UNKNOWN)


@scenario("set.decide/void", "set.void")
def void(broker: Broker, sets: Sets) -> None:
    """What is voided is gone, absent ones are accepted; of what was committed it is a conflict."""
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


@scenario("set.decide/status", "set.status-reply", "set.status")
def status(sets: Sets) -> None:
    """What is decided, and what is staged, for one epoch or for all."""
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


@scenario("set.decide/numbers", "set.numbers")
def numbers(broker: Broker, sets: Sets) -> None:
    """Of any integral type; a checksum may be negative."""
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


@scenario("set.decide/lines", "set.lines")
def lines(broker: Broker, sets: Sets) -> None:
    """Sets may be named in a string, a line for each, by clients whose maps have no lists in them."""
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


@scenario("set.decide/malformed", "set.malformed")
def malformed(broker: Broker, sets: Sets) -> None:
    """Without a field, or with a wrong one: amqp:invalid-field, and nothing happened."""
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


@scenario("set.decide/race", "set.order", "set.final")
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


@scenario("set.asked/check", "set.asked", "set.no-commit", waits=True)
def check(broker: Broker, halves: Halves, sets: Sets) -> None:
    """A set that is not decided is asked about; accepted by outcome commits nothing; rejected voids it."""
    checker = halves.checker(by_outcome=True)
    link = sets.stager("one")
    sets.stage(link, data(b"1"))
    link.detach()
    sets.session.peer.drop()
    asked = halves.next(checker.link, within_s=20)
    properties = properties_of(asked.payload) or Properties()
    expect_equal("subject", "check-set", properties.subject)
    expect_equal("correlation-id", None, properties.correlation_id)
    named = plain_value(map_of(asked.payload, APPLICATION_PROPERTIES))
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


OTHER = "6e0f3f0e-53a3-4d0c-9a3e-5a1a8a7b0c01"
STORE = "6e0f3f0e-53a3-4d0c-9a3e-5a1a8a7b0c02"
THIRD = "6e0f3f0e-53a3-4d0c-9a3e-5a1a8a7b0c03"
FAR: Named = ("far", 7, 77, STORE)


def states(sets: Sets) -> dict[str, str]:
    """Returns the state of each set that is staged."""
    return {each["set"]: each["state"] for each in sets.status()["sets"]}


@scenario("set.brokers/own", "set.own-store")
def own(broker: Broker, sets: Sets) -> None:
    """Who is named as coordinator or as store of its own sets has them as ever; both at once are refused."""
    log = sets.status()["store_id"]
    one, two = sets.sealed("one", b"1", coordinator=log), sets.sealed("two", b"2", store=log)
    expect_equal("states", {"one": "sealed", "two": "sealed"}, states(sets))
    refusal(sets.asked_to_seal(("three", 1, 1), coordinator=OTHER, store=STORE), INVALID)
    sets.commit(one, (*two, log), coordinator=log)
    expect_left(broker, sets.queue, b"1", b"2", in_order=True)


@scenario("set.brokers/prepare", "set.prepare", "set.promise", "set.status-brokers", "set.refused-prepared")
def prepare(broker: Broker, sets: Sets) -> None:
    """A prepared set says whose it is, and nobody but its coordinator ends it."""
    one = sets.sealed("one", b"1", coordinator=OTHER)
    told = {"set": "one", "epoch": 1, "state": "prepared", "count": 1, "checksum": one[2]}
    told["coordinator"] = OTHER
    expect_equal("sets", [told], sets.status()["sets"])
    sets.seal(one, coordinator=OTHER)
    for outcome in (
        sets.asked_to_seal(one),
        sets.asked_to_seal(one, coordinator=THIRD),
        sets.asked_to_void("one"),
        sets.asked_to_void("one", coordinator=THIRD),
        sets.asked_to_commit([one]),
        sets.asked_to_commit([], epoch=2),
        sets.asked_to_commit([one], coordinator=THIRD),
    ):
        info = info_of(refusal(outcome, PREPARED))
        expect_equal("the info map", {"half_set": "one", "half_epoch": 1, "half_coordinator": OTHER}, info)
    expect_equal("states", {"one": "prepared"}, states(sets))
    sets.commit(one, coordinator=OTHER)
    expect_left(broker, sets.queue, b"1")


@scenario("set.brokers/apply", "set.apply", "set.status-brokers")
def apply(broker: Broker, sets: Sets) -> None:
    """Its winners in the order named, once; losers are gone, and later epochs stay."""
    one, two = sets.sealed("one", b"1", b"2", coordinator=OTHER), sets.sealed("two", b"3", coordinator=OTHER)
    sets.sealed("loser", b"4", coordinator=OTHER)
    sets.sealed("later", b"5", epoch=2, coordinator=OTHER)
    sets.commit(two, one, coordinator=OTHER)
    sets.commit(two, one, coordinator=OTHER)
    found = sets.status(1)
    expect_equal("coordinators", (OTHER, OTHER), (found.get("coordinator"), found.get("latest_coordinator")))
    expect_equal("winners", ["two", "one"], [each["set"] for each in found["winners"]])
    expect_equal("states", {"later": "prepared"}, states(sets))
    sets.commit(epoch=2, coordinator=OTHER)
    expect_equal("states", {}, states(sets))
    expect_left(broker, sets.queue, b"3", b"1", b"2", in_order=True)


@scenario("set.brokers/refused", "set.refused-not-prepared", "set.refused-other-winners")
def refused(broker: Broker, sets: Sets) -> None:
    """What is not prepared is not applied; and a decision that was another before is told."""
    one, plain = sets.sealed("one", b"1", coordinator=OTHER), sets.sealed("plain", b"2")
    refusal(sets.asked_to_seal(plain, coordinator=OTHER), SEALED)
    refusal(sets.asked_to_commit([one, plain], coordinator=OTHER), UNSEALED)
    refusal(sets.asked_to_commit([one, ("never", 1, 1)], coordinator=OTHER), UNKNOWN)
    refusal(sets.asked_to_commit([(one[0], 2, one[2])], coordinator=OTHER), MISMATCH)
    expect_equal("whether it is decided", False, sets.status(1)["decided"])
    sets.commit(one, coordinator=OTHER)
    refusal(sets.asked_to_commit([], coordinator=OTHER), CONFLICT)
    sets.commit(one, coordinator=OTHER)
    expect_left(broker, sets.queue, b"1")


@scenario("set.brokers/earlier-first", "set.refused-undecided", "set.void-at-coordinator")
def earlier_first(broker: Broker, sets: Sets) -> None:
    """Prepared sets of earlier epochs are applied, or voided after the coordinator's vote, before a
    later one.
    """
    first = sets.sealed("first", b"1", epoch=1, coordinator=OTHER)
    sets.sealed("second", b"2", epoch=3, coordinator=OTHER)
    last = sets.sealed("last", b"3", epoch=9, coordinator=OTHER)
    info = info_of(refusal(sets.asked_to_commit([last], epoch=9, coordinator=OTHER), UNDECIDED))
    expect_equal("half_epochs", [1, 3], info["half_epochs"])
    sets.commit(first, epoch=1, coordinator=OTHER)
    sets.void("second", epoch=3, coordinator=OTHER)
    sets.void("second", epoch=3, coordinator=OTHER)
    refusal(sets.asked_to_void("first", epoch=1, coordinator=OTHER), CONFLICT)
    sets.commit(last, epoch=9, coordinator=OTHER)
    expect_left(broker, sets.queue, b"1", b"3", in_order=True)


@scenario("set.brokers/enlist", "set.enlist", "set.decide-far", "set.refused-elsewhere", "set.status-brokers")
def enlist(broker: Broker, sets: Sets) -> None:
    """A set of another store wins like any other, if it is named as it was enlisted."""
    far = ("far", 7, 77)
    sets.seal(far, store=STORE)
    sets.seal(far, store=STORE)
    told = {"set": "far", "epoch": 1, "state": "sealed", "count": 7, "checksum": 77, "store": STORE}
    expect_equal("sets", [told], sets.status()["sets"])
    for other in (("far", 8, 77), ("far", 7, 78)):
        refusal(sets.asked_to_seal(other, store=STORE), MISMATCH)
    refusal(sets.asked_to_seal(far, store=THIRD), MISMATCH)
    near = sets.sealed("near", b"1")
    refusal(sets.asked_to_seal(near, store=STORE), MISMATCH)
    for wrong in (far, (*far, THIRD), ("far", 7, 78, STORE), (*near, STORE)):
        refusal(sets.asked_to_commit([near, wrong] if wrong[0] == "far" else [wrong]), MISMATCH)
    sets.commit(FAR, near)
    winners = [
        {"set": "far", "count": 7, "checksum": 77, "store": STORE},
        {"set": "near", "count": 1, "checksum": near[2]},
    ]
    found = sets.status(1)
    expect_equal("winners", winners, found["winners"])
    expect_equal("coordinator", None, found.get("coordinator"))
    expect_left(broker, sets.queue, b"1")


@scenario("set.brokers/vote", "set.vote", "set.vote-kept", "set.refused-vote-about", "set.refused-winner")
def word(sets: Sets) -> None:
    """What the coordinator voted about never wins, also when it is enlisted later; no word about a winner."""
    for set_id in ("far", "wins"):
        sets.seal((set_id, 7, 77), store=STORE)
    refusal(sets.asked_to_void("far", store=STORE), INVALID)
    refusal(sets.asked_to_void("far", epoch=1, store=THIRD), MISMATCH)
    for _ in range(2):
        sets.void("far", "never", epoch=1, store=STORE)
    for set_id in ("far", "never"):
        refusal(sets.asked_to_seal((set_id, 7, 77), store=STORE), VOIDED)
        refusal(sets.asked_to_commit([("wins", 7, 77, STORE), (set_id, 7, 77, STORE)]), UNKNOWN)
    expect_equal("states", {"wins": "sealed"}, states(sets))
    sets.commit(("wins", 7, 77, STORE))
    refusal(sets.asked_to_void("far", "wins", epoch=1, store=STORE), CONFLICT)
    sets.void("far", epoch=1, store=STORE)


@scenario("set.brokers/asked", "set.asked-prepared", "set.promise", waits=True)
def asked(broker: Broker, halves: Halves, sets: Sets) -> None:
    """Both sides of a set are asked about; rejected by outcome does not end one that is prepared."""
    checker = halves.checker(by_outcome=True)
    sets.sealed("one", b"1", coordinator=OTHER)
    sets.seal(("far", 7, 77), store=STORE)
    sets.session.peer.drop()
    found: dict[str, dict[str, Any]] = {}
    checks = [halves.next(checker.link, within_s=20) for _ in range(2)]
    for check in checks:
        named = plain_value(map_of(check.payload, APPLICATION_PROPERTIES))
        found[named["half_set"]] = named
        checker.link.settle(check, Rejected(), settled=False)
        while check.delivery_id not in checker.session.settlements:
            checker.session.peer.expect_frame(Disposition)
    expect(set(found) == {"one", "far"}, f"expected checks about one and far, got {sorted(found)}")
    one, far = found["one"], found["far"]
    expect_equal("of the prepared one", ("prepared", OTHER), (one["half_state"], one.get("half_coordinator")))
    expect_equal("half_deadline", 2**63 - 1, one["half_deadline"])
    expect_equal("of the enlisted one", ("sealed", STORE), (far["half_state"], far.get("half_store")))
    after = Sets(broker, "after")
    expect_equal("states", {"one": "prepared"}, states(after))
    after.void("one", coordinator=OTHER)
    expect_left(broker, sets.queue)
