"""Rights on groups of half messages: without one there is no such group."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest

from amqp_broker.configuration import AccessRule, BrokerLimits, HalfGroupConfig
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import Accepted, Source
from amqp_broker.testing.peer import PeerError
from tests.support.broker_clients import attach_with, session_to
from tests.support.halves import half, putter, tell
from tests.support.jumping_broker import PATIENT, JumpingBroker, Start


@pytest.fixture
def guarded() -> Iterator[RunningBroker]:
    """Groups from the configuration only; anonymous peers may do one thing with each of three, and everything
    with one that there is not.
    """
    rules = [
        AccessRule(users=("anonymous",), actions=("connect", "create", "send", "receive"), nodes=("**",)),
        AccessRule(users=("anonymous",), actions=("half-put",), nodes=("puts", "no-such-group")),
        AccessRule(users=("anonymous",), actions=("half-resolve",), nodes=("resolves", "no-such-group")),
        AccessRule(users=("anonymous",), actions=("half-check",), nodes=("checks", "no-such-group")),
    ]
    groups = tuple(HalfGroupConfig(name=name) for name in ("puts", "resolves", "checks", "nobody"))
    limits = BrokerLimits(idle_time_out_ms=2**32 - 1)
    config = attrs.evolve(
        PATIENT, access_rules=tuple(rules), half_groups=groups, half_groups_on_first_use=False, limits=limits
    )
    running = JumpingBroker(config)
    try:
        yield running
    finally:
        running.stop()


ADDRESSES = {
    "put": "$half/{}/q",
    "resolve": "$half-resolve/{}",
    "check": "$half-check/{}",
    "by-outcome": "$half-check/{}/by-outcome",
    "parked": "$half-parked/{}",
}
GIVEN = {("put", "puts"), ("resolve", "resolves"), ("check", "checks")}


@pytest.mark.parametrize("group", ["puts", "resolves", "checks", "nobody", "no-such-group"])
@pytest.mark.parametrize("kind", ADDRESSES)
def test_without_the_right_there_is_no_such_group(guarded: RunningBroker, kind: str, group: str) -> None:
    """The same condition and words for a group without the right and for no group; to answer by outcome needs
    the right to resolve, too.
    """
    address = ADDRESSES[kind].format(group)
    with session_to(guarded) as session:

        def attach() -> None:
            if kind in ("put", "resolve"):
                session.attach_sender("s", address)
            else:
                mode = "copy" if kind == "parked" else None
                attach_with(session, "r", source=Source(address=address, distribution_mode=mode))

        if (kind, group) in GIVEN:
            attach()
            return
        with pytest.raises(PeerError) as refused:
            attach()
        error = refused.value.error
        assert error is not None and error.condition == "amqp:not-found"
        assert error.description == f"no group of half messages {group!r} for you"


def test_a_put_needs_the_right_to_send_to_its_destination(start: Start) -> None:
    """`half-put` alone lets nobody around the access rules of queues."""
    rules = (
        AccessRule(users=("anonymous",), actions=("connect", "create", "half-put"), nodes=("**",)),
        AccessRule(users=("anonymous",), actions=("send",), nodes=("open.**",)),
    )
    running = start(attrs.evolve(PATIENT, access_rules=rules))
    with session_to(running) as session:
        assert isinstance(tell(putter(session, destination="open.q"), half("1")), Accepted)
        with pytest.raises(PeerError, match="unauthorized-access"):
            putter(session, destination="closed")
