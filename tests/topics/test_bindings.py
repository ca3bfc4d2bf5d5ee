"""Bindings: those that somebody makes while the broker runs, beside those of the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.configuration import BindingConfig, QueuePolicy
from amqp_broker.persistence.sqlite import verify_directory
from amqp_broker.testing import ScriptedFaults, memory_config
from amqp_broker.topics.bindings import NAME_BYTES_MAX
from tests.support.by_hand import Control, Served, by_hand, commits_held, posted, text
from tests.support.managing import Asking, asking, asks
from tests.support.topics import publish, publisher

CONFIG = memory_config(
    bindings=(BindingConfig(topic="fixed.#", queue="archive"),),
    queue_policies=(QueuePolicy(pattern="told", events=True),),
)  # fmt: skip
here = asks(CONFIG)


async def bind(one: Asking, name: str, topic: str, queue: str = "q", **more: Any) -> Any:
    """A binding that was not there, and its queue, which may be."""
    await one.ask("CREATE", "queue", name=queue)
    told = {"topic": topic, "queue": queue, **more}
    status, _, found, _ = await one.ask("CREATE", "binding", told, name=name)
    assert status == 201
    return found


@here
async def test_a_queue_is_bound_and_is_bound_no_more(one: Asking) -> None:
    """From then on, and up to then. To make it again is nothing new; another one has another name."""
    at = one.at
    await publish(at, "news.a", b"early")
    found = await bind(one, "mine", "news.*", selector="n = 1")
    assert {key: found[key] for key in ("name", "topic", "queue", "selector", "configured")} == {
        "name": "mine", "topic": "news.*", "queue": "q", "selector": "n = 1", "configured": False,
    }  # fmt: skip
    told = {"topic": "news.*", "queue": "q", "selector": "n = 1"}
    assert (await one.ask("CREATE", "binding", told, name="mine"))[0] == 200
    assert (await one.refused("CREATE", "binding", {**told, "topic": "x"}, name="mine"))[0] == 409
    await publish(at, "news.a", b"1", application_properties={"n": 1})
    await publish(at, "news.a", b"2", application_properties={"n": 2})
    assert await at.left("q") == [b"1"]
    found = await one.body("READ", "binding", name="mine")
    assert (found["copied"], found["passed_over"]) == (1, 1)
    assert (await one.ask("DELETE", "binding", name="mine"))[0] == 204
    await publish(at, "news.a", b"3", application_properties={"n": 1})
    assert await at.left("q", "again") == [b"1"]
    assert (await one.refused("DELETE", "binding", name="mine"))[0] == 404


@here
async def test_a_queue_gets_a_message_once(one: Asking) -> None:
    """However many of its bindings are for it, with filters and without, and in its order."""
    at = one.at
    await bind(one, "one", "news.*", selector="n = 1")
    await bind(one, "two", "news.#", selector="n > 0")
    await bind(one, "three", "news.a", selector="n = 3")
    await bind(one, "other", "news.a", "r")
    link = await publisher(at, "news.a")
    numbers = [0, 1, 2, 3]
    link.send([text(b"%d" % n, application_properties={"n": n}) for n in numbers])
    await at.settle()
    assert (await at.left("q"), await at.left("r", "r")) == ([b"1", b"2", b"3"], [b"0", b"1", b"2", b"3"])
    topic = await one.body("READ", "topic", name="news.a")
    assert (topic["copied"], topic["receivers"], topic["subscriptions"], topic["unrouted"]) == (7, 4, 0, 0)
    await bind(one, "all", "#")
    await publish(at, "news.a", b"x", b"y")
    assert (await at.left("q", "again"))[3:] == [b"x", b"y"]


@pytest.mark.parametrize(
    ("name", "told", "status", "why"),
    [
        ("b", {"topic": "t"}, 400, "expected topic and queue"),
        ("b", {"topic": "t", "queue": 1}, 400, "expected topic and queue"),
        ("b", {"topic": "t", "queue": "q", "colour": "red"}, 400, "only the attributes topic, queue"),
        ("b", {"topic": "t", "queue": "no"}, 404, "address of a queue that is there"),
        ("b", {"topic": "t", "queue": "told"}, 409, "has events"),
        ("b", {"topic": "q", "queue": "q"}, 409, "'q' is a queue"),
        ("b", {"topic": "$x", "queue": "q"}, 400, ""),
        ("b", {"topic": "t", "queue": "q", "selector": "n ="}, 400, ""),
        ("7", {"topic": "t", "queue": "q"}, 400, "no number"),
        ("b" * (NAME_BYTES_MAX + 1), {"topic": "t", "queue": "q"}, 400, "1 to 4096 bytes"),
    ],
)
def test_what_cannot_be_bound_is_refused(name: str, told: dict[str, Any], status: int, why: str) -> None:
    """Nothing is made."""

    @here
    async def run(one: Asking) -> None:
        for queue in ("q", "told"):
            await one.ask("CREATE", "queue", name=queue)
        got, said = await one.refused("CREATE", "binding", told, name=name)
        assert got == status and why in said
        assert len(one.at.broker.features.bindings.all()) == 1

    run()


@here
async def test_what_the_configuration_binds_stays(one: Asking) -> None:
    """It has its place as its name."""
    assert (await one.refused("DELETE", "binding", name="0"))[0] == 409
    assert (await one.refused("DELETE", "queue", name="archive", force=True))[0] == 409


FEW = attrs.evolve(CONFIG.limits, max_subscriptions=2, max_subscriptions_per_topic=1)


@asks(attrs.evolve(CONFIG, limits=FEW))
async def test_bindings_count_as_subscriptions(one: Asking) -> None:
    """Of the broker, and of a topic."""
    await bind(one, "one", "news")
    for topic, limit in (("news", "max_subscriptions"), ("other", "max_subscriptions")):
        status, why = await one.refused("CREATE", "binding", {"topic": topic, "queue": "q"}, name="two")
        assert status == 503 and limit in why


@here
async def test_a_queue_takes_its_bindings_with_it(one: Asking) -> None:
    """What is sent then goes to the others; one of the same name is not bound."""
    at = one.at
    await bind(one, "one", "news")
    await bind(one, "two", "news", "r")
    assert (await one.ask("DELETE", "queue", name="q"))[0] == 204
    await publish(at, "news", b"1")
    await one.ask("CREATE", "queue", name="q")
    assert (await at.left("q"), await at.left("r", "r")) == ([], [b"1"])
    assert [each.name for each in at.broker.features.bindings.all()] == ["0", "two"]


@here
async def test_a_transaction_goes_to_who_is_bound_when_it_is_committed(one: Asking) -> None:
    """Not to who was bound when it posted; the queue that is gone is no reason to roll back."""
    at = one.at
    await bind(one, "one", "news")
    control, link = Control(at), await publisher(at, "news")
    txn_id = await control.declare()
    await posted(at, link, txn_id, b"1")
    await bind(one, "two", "news", "r")
    assert (await one.ask("DELETE", "queue", name="q"))[0] == 204
    await control.commit(txn_id)
    assert await at.left("r", "r") == [b"1"]


@asks(attrs.evolve(CONFIG, address_forms=("artemis",)))
async def test_a_binding_joins_a_queue_to_a_topic(one: Asking) -> None:
    """So a client of Artemis finds the queue by both, as long as it is bound."""
    await bind(one, "mine", "news.*")
    await one.at.receiver("news.a::q", 1, "takes")
    assert not one.at.detached
    await one.ask("DELETE", "binding", name="mine")
    await one.at.receiver("news.a::q", 1, "again")
    assert one.at.condition() == "amqp:not-found"


def test_it_is_kept_with_its_queue(tmp_path: Path) -> None:
    """What the commit had is there after a restart; of a queue in memory nothing is stored."""
    config = attrs.evolve(CONFIG, memory=False, data_dir=str(tmp_path))

    async def before(at: Served) -> None:
        one = await asking(at)
        await bind(one, "a/ü", "news.*", selector="n = 1")
        await bind(one, "gone", "news.*", "r")
        await one.ask("DELETE", "binding", name="gone")
        queue = at.broker.nodes.queues.create_temporary("temp-x")
        await bind(one, "short", "news.#", queue.name)
        await publish(at, "news.a", b"0", application_properties={"n": 1})
        assert queue.message_count == 1

    async def after(at: Served) -> None:
        one = await asking(at)
        assert [each.name for each in at.broker.features.bindings.all()] == ["a/ü", "0"]
        await publish(at, "news.b", b"1", application_properties={"n": 1})
        await publish(at, "news.b", b"2", application_properties={"n": 2})
        assert (await at.left("q"), await at.left("r", "r")) == ([b"0", b"1"], [])
        assert (await one.ask("DELETE", "binding", name="a/ü"))[0] == 204

    async def last(at: Served) -> None:
        assert [each.name for each in at.broker.features.bindings.all()] == ["0"]

    for main in (before, after, last):
        by_hand(main, config)
        assert verify_directory(tmp_path) == []


def test_what_can_be_bound_no_more_is_forgotten(tmp_path: Path) -> None:
    """Its queue has events by now: the broker starts without, and a later start does not find it, either."""
    config = attrs.evolve(CONFIG, memory=False, data_dir=str(tmp_path))
    events = attrs.evolve(config, queue_policies=(QueuePolicy(pattern="q", events=True),))

    async def before(at: Served) -> None:
        await bind(await asking(at), "mine", "news.*")

    async def without(at: Served) -> None:
        assert [each.name for each in at.broker.features.bindings.all()] == ["0"]
        await at.settle()

    for main, how in ((before, config), (without, events), (without, config)):
        by_hand(main, how)


def test_a_queue_that_goes_while_it_is_bound(tmp_path: Path) -> None:
    """It is told, and nothing of the binding is left."""
    config = attrs.evolve(CONFIG, memory=False, data_dir=str(tmp_path))
    faults = ScriptedFaults()

    async def before(at: Served) -> None:
        one = await asking(at)
        await one.ask("CREATE", "queue", name="q")
        with commits_held(at, faults):
            one.asked += 1
            one.send({"operation": "CREATE", "type": "binding", "name": "b"}, {"topic": "t", "queue": "q"})
            await at.settle()
            verbs = at.broker.nodes.drop(at.queue())
            at.broker.nodes.store(verbs)
        await at.rest()
        assert len(at.received) == 1
        assert [each.name for each in at.broker.features.bindings.all()] == ["0"]

    async def after(at: Served) -> None:
        assert [each.name for each in at.broker.features.bindings.all()] == ["0"]

    by_hand(before, config, faults)
    by_hand(after, config)
