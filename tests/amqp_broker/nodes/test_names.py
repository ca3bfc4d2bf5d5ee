"""Addresses in the forms of other brokers, and aliases: each names one node, which rights, filters and
answers know by one name.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import attrs
import pytest

from amqp_broker.authorisation import Principal
from amqp_broker.configuration import (
    AccessRule,
    AliasConfig,
    BindingConfig,
    BrokerConfig,
    ConfigurationError,
    QueuePolicy,
)
from amqp_broker.frames import AmqpValue, Properties, Source, Target, encode_message
from amqp_broker.names import Names
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.testing import memory_config
from tests.links.pair import Message as Sendable
from tests.support.by_hand import Served, at_hand, text
from tests.support.managing import Asking, asks

FORMS = ("uri", "rabbitmq", "artemis")
BOUND = BindingConfig(topic="orders.*", queue="audit")
CONFIG = memory_config(
    address_forms=FORMS,
    bindings=(BOUND,),
    aliases=(AliasConfig(name="old", node="new"), AliasConfig(name="news", node="news.all")),
    queue_policies=(QueuePolicy(pattern="news.**", kind="topic"),),
)

SENDS: list[tuple[str, str, str | None]] = [
    ("plain", "plain", None),
    ("queue://q", "q", "queue"),
    ("topic://a.b", "a.b", "topic"),
    ("other://q", "other://q", None),
    ("/queues/q", "q", "queue"),
    ("/queues/a%2Fb%20%C3%A9", "a/b é", "queue"),
    ("/queues/queue%3A%2F%2Fq", "queue://q", "queue"),
    ("/exchanges/e/k", "e.k", "topic"),
    ("/exchanges/e/k.l", "e.k.l", "topic"),
    ("/exchanges/e", "e", "topic"),
    ("/exchanges/e/", "e", "topic"),
    ("/queue/q", "/queue/q", None),
    ("a::a", "a", "queue"),
    ("orders.eu::audit", "audit", "queue"),
    ("old", "new", None),
    ("queue://old", "new", "queue"),
    ("/queues/old", "new", "queue"),
    ("$management", "$management", None),
    ("/management", "$rabbitmq", None),
]
REFUSED: list[tuple[str, bool, str]] = [
    ("/queues/", False, "amqp:invalid-field"),
    ("/queues/a/b", True, "amqp:invalid-field"),
    ("/queues/a%2", True, "amqp:invalid-field"),
    ("/queues/a%zz", True, "amqp:invalid-field"),
    ("/queues/%FF", True, "amqp:invalid-field"),
    ("/queues/%24management", True, "amqp:not-found"),
    ("queue://$events", True, "amqp:not-found"),
    ("/exchanges/", False, "amqp:invalid-field"),
    ("/exchanges/e/k/l", False, "amqp:invalid-field"),
    ("/exchanges/amq.default/q", False, "amqp:not-found"),
    ("/exchanges/e/k", True, "amqp:not-allowed"),
    ("orders::audit", True, "amqp:not-found"),
    ("a::b::c", True, "amqp:invalid-field"),
    ("a::", True, "amqp:invalid-field"),
]


@pytest.mark.parametrize(("address", "name", "capability"), SENDS)
def test_each_form_names_a_node(address: str, name: str, capability: str | None) -> None:
    """And says what it is, where the form does."""
    names = Names(CONFIG)
    names.joins = lambda topic, queue: (topic, queue) == ("orders.eu", "audit")
    assert names.of(address) == (name, capability)


@pytest.mark.parametrize(("address", "receives", "condition"), REFUSED)
def test_what_a_form_cannot_mean_is_refused(address: str, receives: bool, condition: str) -> None:
    """Never taken for the name of a new queue, in which nobody would look."""
    with pytest.raises(NodeRefused) as refused:
        Names(CONFIG).of(address, receives=receives)
    assert refused.value.error.condition == condition


@pytest.mark.parametrize("address", ["/queues/q", "queue://q", "old", "/management"])
@at_hand(CONFIG)
async def test_the_answer_has_the_address_that_was_asked_for(at: Served, address: str) -> None:
    """python-qpid-proton refuses a link whose answer has another one; `$management` tells the node's name."""
    properties = {"paired": True}
    up = await at.sender(address, properties=properties)
    down = await at.receiver(address, 1, properties=properties)
    assert (up.target.address, down.source.address, at.detached) == (address, address, [])


@pytest.mark.parametrize("address", [each[0] for each in SENDS[1:14]])
def test_a_form_that_is_not_asked_for_is_a_name(address: str) -> None:
    """By default an address is a name as it stands."""
    assert Names(memory_config()).of(address) == (address, None)


def test_the_management_node_of_rabbitmq_is_never_a_queue() -> None:
    """Its clients would wait for an answer for ever."""
    with pytest.raises(NodeRefused, match=r"\$management"):
        Names(memory_config()).of("/management")


@pytest.mark.parametrize("address", ["queue://q", "/queues/q", "q::q", "q"])
@at_hand(CONFIG)
async def test_all_forms_are_one_queue(at: Served, address: str) -> None:
    """What is sent by one form is received by each other."""
    link = await at.sender(address)
    link.send([text(b"1")])
    await at.settle()
    await at.receiver("/queues/q", 5)
    assert at.bodies() == [b"1"]
    assert [queue.name for queue in at.broker.nodes.queues.queues()] == ["audit", "q"]


@pytest.mark.parametrize("address", ["topic://orders.eu", "/exchanges/orders/eu"])
@at_hand(CONFIG)
async def test_an_exchange_is_a_topic_whose_bindings_are_ours(at: Served, address: str) -> None:
    """A queue that is bound gets a copy, a subscription another one."""
    await at.receiver("topic://orders.#", 5, "subscribes")
    link = await at.sender(address)
    assert link.target.capabilities == ("topic",)
    link.send([text(b"1")])
    await at.receiver("orders.eu::audit", 5, "takes")
    assert at.bodies() == [b"1", b"1"]


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("name", ["old", "queue://q", "/queues/q", "a::q", "/management"])
@asks(CONFIG)
async def test_nothing_is_made_by_hand_that_no_link_would_find(one: Asking, name: str, kind: str) -> None:
    """A name that leads elsewhere."""
    status, why = await one.refused("CREATE", kind, name=name)
    assert status == 409 and repr(name) in why


@at_hand(CONFIG)
async def test_messages_name_nodes_by_the_same_forms(at: Served) -> None:
    """The anonymous terminus: properties.to."""
    link = await at.sender(None)
    for to in ("queue://q", "/queues/q", "q::q", "old", "/exchanges/orders/eu"):
        link.send([text(b"1", properties=Properties(to=to))])
    link.send([text(b"1", properties=Properties(to="/management"))])
    await at.settle()
    assert sorted(at.conditions) == ["accepted"] * 5 + ["amqp:not-allowed"]
    counts = {queue.name: queue.message_count for queue in at.broker.nodes.queues.queues()}
    assert counts == {"q": 3, "new": 1, "audit": 1}


@at_hand(CONFIG)
async def test_replies_go_where_a_form_says(at: Served) -> None:
    """`reply-to` of a request to the broker itself."""
    await at.receiver("/queues/answers", 5)
    asks = await at.sender("$management", "asks")
    asked = {"operation": "GET-TYPES", "type": "org.amqp.management"}
    properties = Properties(reply_to="/queues/answers", message_id="1")
    request = encode_message(properties=properties, application_properties=asked, body=AmqpValue(None))
    asks.send([Sendable(request)])
    await at.settle()
    assert len(at.take()) == 1


@pytest.mark.parametrize("address", ["queue://news.all", "/queues/news.all"])
@at_hand(CONFIG)
async def test_a_topic_is_not_had_as_a_queue(at: Served, address: str) -> None:
    """The form says which of both is meant."""
    await at.sender(address)
    assert at.condition() == "amqp:not-allowed"
    await at.receiver(address)
    assert at.condition() == "amqp:not-allowed"


RULES = (
    AccessRule(users=("anonymous",), actions=("connect", "create")),
    AccessRule(users=("anonymous",), actions=("send",), nodes=("new",)),
    AccessRule(users=("anonymous",), actions=("receive",), nodes=("old", "/queues/new")),
)


@pytest.mark.parametrize("address", ["old", "queue://new", "/queues/new", "new::new", "/queues/old"])
@at_hand(attrs.evolve(CONFIG, access_rules=RULES))
async def test_rights_are_those_of_the_node(at: Served, address: str) -> None:
    """However it is written: who may use an alias is who may use its node, and nobody else."""
    at.connection.principal = Principal("anonymous")
    await at.sender(address)
    assert at.detached == []
    await at.receiver(Source(address=address))
    assert at.condition() == "amqp:unauthorized-access"


@at_hand(CONFIG)
async def test_an_alias_of_a_topic(at: Served) -> None:
    """It subscribes to the topic, and sends there."""
    got = await at.receiver("news", 5)
    assert got.source.distribution_mode == "copy"
    link = await at.sender(Target(address="news"))
    link.send([text(b"1")])
    await at.settle()
    assert at.bodies() == [b"1"]
    assert at.broker.nodes.queues.find("news") is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"aliases": (AliasConfig(name="a", node="b"), AliasConfig(name="b", node="c"))}, "alias[0].node"),
        ({"aliases": (AliasConfig(name="a", node="a"),)}, "alias[0].node"),
        ({"aliases": (AliasConfig(name="a", node="b"), AliasConfig(name="a", node="c"))}, "alias[1].name"),
        ({"aliases": (AliasConfig(name="audit", node="b"),), "bindings": (BOUND,)}, "alias[0].name"),
        ({"aliases": (AliasConfig(name="dead-letters", node="b"),)}, "alias[0].name"),
        ({"address_forms": ("uri", "kafka")}, "address_forms[1]"),
    ],
)
def test_names_that_contradict(changes: dict[str, Any], field: str) -> None:
    """One alias leads to one node, and hides none that the configuration makes."""
    with pytest.raises(ConfigurationError) as found:
        BrokerConfig(memory=True, **changes)
    assert [problem.field for problem in found.value.problems] == [field]


@pytest.mark.parametrize(("product", "number"), [(None, None), ("RabbitMQ", "4.1.0")])
def test_the_product_in_open_is_a_setting(product: str | None, number: str | None) -> None:
    """2.7.1: clients that look for another one find it."""

    async def look(at: Served) -> None:
        opened = at.client.remote_open
        found = None if opened is None else opened.properties
        assert found is not None
        told = {getattr(key, "value", key): value for key, value in found.items()}
        assert (told["product"], told["version"]) == (
            product or "amqp-broker", number or version("amqp-broker")
        )  # fmt: skip

    at_hand(memory_config(product=product, product_version=number))(look)()
