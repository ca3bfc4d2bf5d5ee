"""Who may subscribe to what, how many may, how long one waits, and who has a container-id for itself."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from amqp_broker.addresses import AddressError, parse_pattern, parse_topic_pattern
from amqp_broker.authorisation import RECEIVE, Authoriser, Principal
from amqp_broker.configuration import AccessRule, BindingConfig, BrokerConfig, QueuePolicy
from amqp_broker.embedding import running_broker
from amqp_broker.frames import Close, Source, Symbol, Target
from amqp_broker.persistence.sqlite import verify_directory
from amqp_broker.testing import memory_config, run_with_virtual_clock
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.peer import PeerError
from tests.support.by_hand import Served, at_hand, served
from tests.support.topics import durable, got, publish, shared_durable, subscribe, topic

EVERYBODY = ("*",)


def allowed(*nodes: str, actions: tuple[str, ...] = ("connect", "send", "receive")) -> BrokerConfig:
    """A broker with one rule for everybody."""
    rule = AccessRule(users=EVERYBODY, actions=actions, nodes=nodes)
    policies = (QueuePolicy(pattern="news.**", kind="topic"), QueuePolicy(pattern="news", kind="topic"))
    return attrs.evolve(memory_config(), access_rules=(rule,), queue_policies=policies)


@pytest.mark.parametrize(
    ("nodes", "asked", "may"),
    [
        (("news.eu",), "news.eu", True),
        (("news.eu",), "news.*", False),
        (("news.*",), "news.*", True),
        (("news.*",), "news.#", False),
        (("news.**",), "news.*.x.#", True),
        (("news.**",), "news.#", False),  # `news` itself is among them
        (("news", "news.**"), "news.#", True),
        (("news.**",), "*.eu", False),
        (("news.**",), "#", False),
        (("**",), "#", True),
        (("*",), "*", True),
        (("*",), "#", False),
        (("news.**",), "news.#.eu", True),
    ],
)
def test_a_pattern_needs_the_right_to_all_of_it(nodes: tuple[str, ...], asked: str, may: bool) -> None:
    """One rule, or a few, that cover it; what is not sure is not allowed."""
    rules = [AccessRule(users=EVERYBODY, actions=(RECEIVE,), nodes=nodes)]
    pattern = parse_topic_pattern(asked)
    assert Authoriser(rules).authorise_all(Principal("me", "PLAIN"), RECEIVE, pattern.words) is may
    if may:
        names = [name for name in NAMES if pattern.matches(name)]
        assert all(any(parse_pattern(node).matches(name) for node in nodes) for name in names)


NAMES = ("news", "news.eu", "news.eu.x", "news.x.eu", "eu", "other.eu", "news.a.x.b")


@pytest.mark.parametrize("text", ["", "a*", "a.*b", "x" * 256, " a", "\x00"])
def test_what_is_no_pattern(text: str) -> None:
    """A wildcard is a word of its own."""
    with pytest.raises(AddressError):
        parse_topic_pattern(text)


@at_hand(allowed("news.*"))
async def test_rights_to_receive(at: Served) -> None:
    """As for queues; a durable subscription is something that is created."""
    await subscribe(at, topic("news.eu"))
    for source in (Source(address="news.#"), topic("other"), Source(address="#")):
        await at.receiver(source, name="wrong")
        assert at.condition() == "amqp:unauthorized-access"
    await at.receiver(durable("news.eu"), name="kept")
    assert at.condition() == "amqp:unauthorized-access"
    await at.sender(Target(address="news", capabilities=("topic",)), "wrong")
    assert at.condition() == "amqp:unauthorized-access"


@at_hand(allowed("**"))
async def test_a_topic_that_nobody_configured_needs_the_right_to_create(at: Served) -> None:
    """The capability alone makes none."""
    await at.sender(Target(address="other", capabilities=("topic",)), "wrong")
    assert at.condition() == "amqp:not-found"
    await at.receiver(Source(dynamic=True, capabilities=("temporary-topic",)), name="dynamic")
    assert at.condition() == "amqp:unauthorized-access"
    await at.sender("news.eu")
    assert not at.detached


@at_hand(max_subscriptions=3, max_subscriptions_per_topic=2, subscription_name_bytes=4)
async def test_bounds_of_subscriptions(at: Served) -> None:
    """Of all, of one topic, and of the name of one that has a name."""
    await subscribe(at, topic("a"), "1")
    await subscribe(at, topic("a"), "2")
    await at.receiver(topic("a"), name="3")
    assert at.condition() == "amqp:resource-limit-exceeded"
    await subscribe(at, topic("b"), "4")
    await at.receiver(topic("c"), name="5")
    assert at.condition() == "amqp:resource-limit-exceeded"
    await at.receiver(durable("b"), name="fives")
    assert at.condition() == "amqp:invalid-field"


@at_hand()
async def test_a_durable_subscription_with_a_timeout(at: Served) -> None:
    """3.5.3: it begins when the link is gone, and ends when it is back."""
    source = Source(
        address="news", capabilities=("topic",), durable=1, expiry_policy="link-detach", timeout=10
    )
    link = await subscribe(at, source)
    assert (link.source.durable, link.source.expiry_policy, link.source.timeout) == (1, "link-detach", 10)
    for seconds, kept in ((9, [b"a"]), (11, [])):
        link.detach(closed=False)
        await at.settle()
        at.detached.clear()
        await publish(at, "news", b"a")
        await at.pass_time(seconds)
        link = await subscribe(at, source)
        assert got(at, link) == kept
    await at.receiver(
        Source(address="news", capabilities=("topic",), durable=1, expiry_policy="connection-close"), name="x"
    )
    assert at.condition() == "amqp:not-implemented"


@at_hand()
async def test_a_shared_name_is_for_one_topic_while_it_is_used(at: Served) -> None:
    """JMS: "an error"; and a shared and an unshared one have not one name."""
    await subscribe(at, shared_durable("a"), "s")
    await at.receiver(shared_durable("b"), name="s|2")
    assert at.condition() == "amqp:not-allowed"
    other = at.another("client")
    await other.receiver(durable("a"), name="s")
    assert other.condition() == "amqp:not-allowed"


@at_hand()
async def test_who_takes_a_link_over_does_not_end_its_subscription(at: Served) -> None:
    """2.6.1: a client that comes back before its old connection is gone; nothing was closed by the peer."""
    old = at.another("me")
    await subscribe(old, durable("news"))
    await publish(at, "news", b"a")
    new = at.another("me")
    await subscribe(new, durable("news"))
    assert old.condition() == "amqp:link:stolen"
    await publish(at, "news", b"b")
    assert new.bodies() == [b"a", b"b"]


def test_what_lasts_is_there_after_a_start(tmp_path: Path) -> None:
    """Topics that clients declared, durable subscriptions with their filters, bindings."""
    binding = BindingConfig(topic="news", queue="audit", selector="body = 'b'")
    config = attrs.evolve(memory_config(), memory=False, data_dir=str(tmp_path), bindings=(binding,))

    async def before() -> None:
        async with served(config) as at:
            await subscribe(at, durable("news"), credit=0)
            await publish(at, "news", b"a", b"b", ttl=3_600_000)
            await at.pass_time(1)

    async def after() -> None:
        async with served(config) as at:
            await at.sender("news")
            await publish(at, "news", b"c")
            link = await subscribe(at, durable("news"))
            assert got(at, link) == [b"a", b"b", b"c"]
            await at.settle()

    run_with_virtual_clock(before)
    assert verify_directory(tmp_path) == []
    run_with_virtual_clock(after)
    assert verify_directory(tmp_path) == []
    run_with_virtual_clock(before)


def test_one_connection_of_a_container_that_asks_for_it() -> None:
    """`sole-connection-for-container`: a second one is refused until the first is gone, if it asks, too."""
    sole = ("sole-connection-for-container",)
    with running_broker(memory_config()) as broker:

        def connect(container_id: str, desired: tuple[str, ...] = sole) -> BlockingPeer:
            peer = BlockingPeer.connect(
                broker.host, broker.port, container_id=container_id, desired=desired
            )
            peer.begin()
            return peer

        first = connect("me")
        second = BlockingPeer.connect(broker.host, broker.port, container_id="me", desired=sole)
        with pytest.raises(PeerError, match="invalid-field") as refused:
            second.expect(Close)
        error = refused.value.error
        assert error is not None and error.info == {"invalid-field": Symbol("container-id")}
        second.close()
        connect("me", ()).close()
        connect("other").close()
        first.close()
        connect("me").close()
