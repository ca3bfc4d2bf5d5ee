"""Copies beside what else is stored, or could not be: their places and room are those of any message."""

from __future__ import annotations

import attrs
import pytest

from amqp_broker.configuration import BindingConfig, QueuePolicy
from amqp_broker.frames import Source
from amqp_broker.links.link_states import LinkState
from amqp_broker.testing import ScriptedFaults, memory_config
from tests.support.by_hand import Served, by_hand, commits_held, text
from tests.support.topics import durable, got, publisher, subscribe

CONFIG = attrs.evolve(
    memory_config(),
    bindings=(BindingConfig(topic="news", queue="bound"),),
    queue_policies=(QueuePolicy(pattern="small", kind="topic", max_messages=2),),
)


def test_nothing_overtakes_copies_whose_commit_is_in_progress() -> None:
    """Not even what needs no commit itself; the group is refused and made again meanwhile."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        link, direct = await publisher(at, "news"), await at.sender("bound", "direct")
        faults.refuse_commit()
        with commits_held(at, faults):
            link.send([text(b"a"), text(b"b")])
            await at.settle()
            direct.send([text(b"volatile", durable=False)])
            await at.settle()
        await at.rest()
        link.send([text(b"c")])
        await at.rest()
        assert at.conditions == ["accepted"] * 4
        assert await at.left("bound") == [b"a", b"b", b"volatile", b"c"]

    by_hand(main, CONFIG, faults)


def test_what_is_sent_to_a_topic_and_to_its_queue_keeps_its_order() -> None:
    """Also where the messages of several links to queues come in one read."""

    async def main(at: Served) -> None:
        links = [
            await publisher(at, "news"),
            await at.sender("bound", "direct"),
            await at.sender("other", "other"),
        ]
        for number, turn in enumerate((0, 1, 2, 1, 0, 1, 2, 0)):
            links[turn].send([text(b"%d" % number)])
        await at.rest()
        assert await at.left("bound") == [b"0", b"1", b"3", b"4", b"5", b"7"]

    by_hand(main, CONFIG)


@pytest.mark.parametrize("source", [durable("news"), None], ids=["subscriber", "source null"])
def test_the_close_is_answered_when_the_end_is_stored(source: Source | None) -> None:
    """Until then a start would find the subscription. A detach that ends nothing is answered at once."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        first = await subscribe(at, durable("news"))
        with commits_held(at, faults):
            first.detach(closed=False)
            await at.settle()
            assert first.state is LinkState.DETACHED
        at.detached.clear()
        second = await at.receiver(source, 0, "sub")
        with commits_held(at, faults):
            second.detach(closed=True)
            await at.settle()
            states = [second.state]
        await at.rest()
        states.append(second.state)
        assert states == [LinkState.DETACH_SENT, LinkState.DETACHED]
        at.detached.clear()
        await at.receiver(None, 0, "sub")
        assert at.condition() == "amqp:not-found"

    by_hand(main, CONFIG, faults)


def test_the_close_waits_for_room_on_the_disk() -> None:
    """As long as other outcomes do; the end is stored as soon as there is room."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        link = await subscribe(at, durable("news"))
        faults.refuse_commit(1, 3)
        link.detach(closed=True)
        await at.rest()
        assert link.state is LinkState.DETACHED
        assert not any(queue.persistent for queue in at.broker.nodes.queues.queues() if queue.name != "bound")

    by_hand(main, CONFIG, faults)


def test_what_was_refused_keeps_no_room() -> None:
    """The disk was full: the copies have left no trace."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        receiver = await subscribe(at, durable("small"))
        (queue,) = [each for each in at.broker.nodes.queues.queues() if each.name.startswith("$")]
        link = await publisher(at, "small")
        for _ in range(3):
            faults.refuse_commit(1, 2)  # with what else waits, and alone
            link.send([text(b"refused")])
            await at.rest()
            faults._commit_errors.clear()
            assert (queue.reserved_messages, queue.pending_posts, queue.next_offset) == (0, 0, 0)
        link.send([text(b"a"), text(b"b")])
        await at.rest()
        assert at.conditions == ["amqp:resource-limit-exceeded"] * 3 + ["accepted"] * 2
        assert got(at, receiver) == [b"a", b"b"]

    by_hand(main, CONFIG, faults)
