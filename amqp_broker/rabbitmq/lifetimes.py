"""Queues that go by themselves, as RabbitMQ has them.

    auto-delete   a stored queue, gone when the last link that receives from it is: one has to have been there
    exclusive     a queue in memory, from which one connection may receive; gone with it
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from amqp_broker.configuration import QueuePolicy
from amqp_broker.connection import Connection, Sink, Source
from amqp_broker.frames import DeleteOnNoLinks
from amqp_broker.lifetime import Lifetime
from amqp_broker.management.errors import Unmanageable
from amqp_broker.nodes.queue_source import QueueSource
from amqp_broker.persistence import Unit
from amqp_broker.queue import Queue

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes

AUTO_DELETE: Final = "auto_delete"  # of the settings of a queue


class UntilLastReceiver(Lifetime):
    """That of a queue that is gone when nobody receives from it any more; before the first one it stays.
    Browsers are none.
    """

    __slots__ = ("_receivers", "_was_used")

    def __init__(self) -> None:
        super().__init__(DeleteOnNoLinks())
        self._receivers: set[Sink | Source] = set()
        self._was_used = False

    def joined(self, link: Sink | Source) -> None:
        """Only who takes messages counts."""
        if isinstance(link, QueueSource) and not link.browser:
            self._was_used = True
            self._receivers.add(link)

    def left(self, link: Sink | Source) -> None:
        """Harmless when called again."""
        self._receivers.discard(link)

    def over(self, messages: int) -> bool:
        """Whatever it holds is gone with it."""
        return self._was_used and not self._receivers


def fill(queue: Queue, policy: QueuePolicy) -> None:
    """A queue whose settings say so goes with its last receiver, also after a restart."""
    if queue.settings.get(AUTO_DELETE):
        queue.lifetime = UntilLastReceiver()


def is_auto_delete(queue: Queue) -> bool:
    """Whether a queue goes with its last receiver."""
    return isinstance(queue.lifetime, UntilLastReceiver)


async def make_auto_delete(nodes: BrokerNodes, name: str) -> None:
    """Make a stored queue that goes with its last receiver. Raises Unmanageable, NodeRefused, StoreError."""
    policy = nodes.config.policy_of(name)
    if policy.archives or policy.retains or policy.events:
        raise Unmanageable(
            409, f"queue {name!r:.80} can't go by itself: its [[queue]] says that it keeps messages or events"
        )
    await nodes.queues.create(name, {AUTO_DELETE: True})


async def make_exclusive(nodes: BrokerNodes, name: str, owner: Connection, *, auto_delete: bool) -> None:
    """Make a queue in memory that is of one connection, and goes with it. Raises NodeRefused."""
    settings: dict[str, object] = {AUTO_DELETE: True} if auto_delete else {}
    queue = await nodes.queues.create_in_memory(name, settings)
    if queue is not None:
        queue.owner = owner
        owner.afterwards(queue, None, partial(_owner_left, nodes, queue))


def leave(queue: Queue) -> Unit:
    """A queue is gone: its connection need not know it any more."""
    if isinstance(queue.owner, Connection):
        queue.owner.not_afterwards(queue)
    return []


def _owner_left(nodes: BrokerNodes, queue: Queue) -> None:
    if not queue.deleted:
        nodes.drop(queue, "the connection of its exclusive queue is gone")
