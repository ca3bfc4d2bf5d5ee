"""Sets of several brokers: enlisted and decided at their coordinator, prepared and applied at a participant
(docs/protocols/sets.md: several brokers). One broker is enough: it is shown another as coordinator, or as
store.
"""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.halves import Halves
from amqp_broker.conformance.messages import APPLICATION_PROPERTIES, map_of
from amqp_broker.conformance.outcomes import Unexpected, expect_equal
from amqp_broker.conformance.queues import expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.sets import (
    CONFLICT,
    INVALID,
    MISMATCH,
    PREPARED,
    PROFILE,
    SEALED,
    UNDECIDED,
    UNKNOWN,
    UNSEALED,
    VOIDED,
    Named,
    Sets,
    refusal,
)
from amqp_broker.frames import Disposition, Rejected

OTHER = "6e0f3f0e-53a3-4d0c-9a3e-5a1a8a7b0c01"
STORE = "6e0f3f0e-53a3-4d0c-9a3e-5a1a8a7b0c02"
THIRD = "6e0f3f0e-53a3-4d0c-9a3e-5a1a8a7b0c03"
FAR: Named = ("far", 7, 77, STORE)


def states(sets: Sets) -> dict[str, str]:
    """Returns the state of each set that is staged."""
    return {each["set"]: each["state"] for each in sets.status()["sets"]}


def info_of(outcome: Any, condition: str) -> dict[str, Any]:
    """Returns the info map of a refusal, as plain values."""
    found = refusal(outcome, condition).info or {}
    return {str(key): getattr(value, "value", value) for key, value in found.items()}


@scenario("set.brokers/own", "set.own-store", profile=PROFILE)
def own(broker: Broker) -> None:
    """Who is named as coordinator or as store of its own sets has them as ever; both at once are refused."""
    sets = Sets(broker)
    log = sets.status()["store_id"]
    one, two = sets.sealed("one", b"1", coordinator=log), sets.sealed("two", b"2", store=log)
    expect_equal("states", {"one": "sealed", "two": "sealed"}, states(sets))
    refusal(sets.asked_to_seal(("three", 1, 1), coordinator=OTHER, store=STORE), INVALID)
    sets.commit(one, (*two, log), coordinator=log)
    expect_left(broker, sets.queue, b"1", b"2", in_order=True)


@scenario(
    "set.brokers/prepare", "set.prepare", "set.promise", "set.status-brokers", "set.refused-prepared",
    profile=PROFILE,
)  # fmt: skip
def prepare(broker: Broker) -> None:
    """A prepared set says whose it is, and nobody but its coordinator ends it."""
    sets = Sets(broker)
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
        info = info_of(outcome, PREPARED)
        expect_equal("the info map", {"half_set": "one", "half_epoch": 1, "half_coordinator": OTHER}, info)
    expect_equal("states", {"one": "prepared"}, states(sets))
    sets.commit(one, coordinator=OTHER)
    expect_left(broker, sets.queue, b"1")


@scenario("set.brokers/apply", "set.apply", "set.status-brokers", profile=PROFILE)
def apply(broker: Broker) -> None:
    """Its winners in the order named, once; losers are gone, and later epochs stay."""
    sets = Sets(broker)
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


@scenario(
    "set.brokers/refused", "set.refused-not-prepared", "set.refused-other-winners", profile=PROFILE
)  # fmt: skip
def refused(broker: Broker) -> None:
    """What is not prepared is not applied; and a decision that was another before is told."""
    sets = Sets(broker)
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


@scenario("set.brokers/earlier-first", "set.refused-undecided", "set.void-at-coordinator", profile=PROFILE)
def earlier_first(broker: Broker) -> None:
    """Prepared sets of earlier epochs are applied, or voided after the coordinator's vote, before a
    later one.
    """
    sets = Sets(broker)
    first = sets.sealed("first", b"1", epoch=1, coordinator=OTHER)
    sets.sealed("second", b"2", epoch=3, coordinator=OTHER)
    last = sets.sealed("last", b"3", epoch=9, coordinator=OTHER)
    info = info_of(sets.asked_to_commit([last], epoch=9, coordinator=OTHER), UNDECIDED)
    expect_equal("half_epochs", [1, 3], [getattr(each, "value", each) for each in info["half_epochs"]])
    sets.commit(first, epoch=1, coordinator=OTHER)
    sets.void("second", epoch=3, coordinator=OTHER)
    sets.void("second", epoch=3, coordinator=OTHER)
    refusal(sets.asked_to_void("first", epoch=1, coordinator=OTHER), CONFLICT)
    sets.commit(last, epoch=9, coordinator=OTHER)
    expect_left(broker, sets.queue, b"1", b"3", in_order=True)


@scenario(
    "set.brokers/enlist", "set.enlist", "set.decide-far", "set.refused-elsewhere", "set.status-brokers",
    profile=PROFILE,
)  # fmt: skip
def enlist(broker: Broker) -> None:
    """A set of another store wins like any other, if it is named as it was enlisted."""
    sets = Sets(broker)
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


@scenario(
    "set.brokers/vote", "set.vote", "set.vote-kept", "set.refused-vote-about", "set.refused-winner",
    profile=PROFILE,
)  # fmt: skip
def word(broker: Broker) -> None:
    """What the coordinator voted about never wins, also when it is enlisted later; no word about a winner."""
    sets = Sets(broker)
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


@scenario("set.brokers/asked", "set.asked-prepared", "set.promise", profile=PROFILE, waits=True)
def asked(broker: Broker) -> None:
    """Both sides of a set are asked about; rejected by outcome does not end one that is prepared."""
    halves = Halves(broker)
    sets = Sets(broker)
    checker = halves.checker(by_outcome=True)
    sets.sealed("one", b"1", coordinator=OTHER)
    sets.seal(("far", 7, 77), store=STORE)
    sets.session.peer.drop()
    found: dict[str, dict[str, Any]] = {}
    checks = [halves.next(checker.link, within_s=20) for _ in range(2)]
    for check in checks:
        named = map_of(check.payload, APPLICATION_PROPERTIES)
        plain = {str(key): getattr(value, "value", value) for key, value in named.items()}
        found[plain["half_set"]] = plain
        checker.link.settle(check, Rejected(), settled=False)
        while check.delivery_id not in checker.session.settlements:
            checker.session.peer.expect_frame(Disposition)
    if set(found) != {"one", "far"}:
        raise Unexpected(f"expected checks about one and far, got {sorted(found)}")
    one, far = found["one"], found["far"]
    expect_equal("of the prepared one", ("prepared", OTHER), (one["half_state"], one.get("half_coordinator")))
    expect_equal("half_deadline", 2**63 - 1, one["half_deadline"])
    expect_equal("of the enlisted one", ("sealed", STORE), (far["half_state"], far.get("half_store")))
    after = Sets(broker, "after")
    expect_equal("states", {"one": "prepared"}, states(after))
    after.void("one", coordinator=OTHER)
    expect_left(broker, sets.queue)
