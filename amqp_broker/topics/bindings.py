"""Bindings: queues that get what is sent to the topics of a pattern, as subscriptions do.

    [[binding]] of the configuration     --at the start--> Binding, which stays
    CREATE of $management, of RabbitMQ   --COMMIT--> Binding, kept with its queue until somebody deletes it

A queue gets a message once, however many of its bindings are for it. Bindings go with their queue, and those
of an exchange of RabbitMQ with the topic of its name; those of a queue in memory are in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

import attrs

from amqp_broker.addresses import RESERVED_PREFIX, AddressError, TopicPattern, parse_topic_pattern
from amqp_broker.filters.source_filter import FilterRefused, selector_filter
from amqp_broker.log_setup import logger
from amqp_broker.management.errors import Unmanageable
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.operations.removal import Removal, Then
from amqp_broker.persistence import CreateNode, DeleteNode, RecoveredNode, Unit
from amqp_broker.queue import Queue
from amqp_broker.topics.topic import Member, Topic
from amqp_broker.topics.topics import Topics

BINDING_KIND: Final = "binding"  # of nodes of the store
BINDING_PREFIX: Final = "$binding/"
NAME_BYTES_MAX: Final = 4_096  # three names of 255 bytes, percent-encoded, and what stands between them


@attrs.frozen
class Wanted:
    """What a binding says: the pattern of topics, the name of the queue, which messages it gets, and the
    exchange of RabbitMQ with whose topic it goes ("": none).
    """

    topic: str
    queue: str
    selector: str | None = None
    source: str = ""


@attrs.frozen(eq=False)
class Binding:
    """One that exists. `name` is its place for one of the configuration; `node_id` is 0 for what the store
    does not know.
    """

    name: str
    wanted: Wanted
    pattern: TopicPattern
    member: Member
    configured: bool
    node_id: int = 0


class Bindings:
    """All bindings of one broker, by their names."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._nodes = topics.nodes
        self._found: dict[str, Binding] = {}
        self._lost: Unit = []  # of which the start found no queue
        self._log = logger("bindings")
        self._nodes.queues.needs.append(self._why_needed)
        self._nodes.queues.leaving.append(self._queue_leaves)
        topics.leaving.append(self._topic_leaves)
        self._nodes.names.joins = self._joins

    def all(self) -> list[Binding]:
        """Every binding."""
        return [*self._found.values()]

    def find(self, name: str) -> Binding | None:
        """The binding of this name."""
        return self._found.get(name)

    # At the start

    def recover(self, nodes: Iterable[RecoveredNode]) -> None:
        """Take up those that the store has, after all queues. What can't be bound any more is forgotten, and
        the log says so.
        """
        for node in nodes:
            if node.kind == BINDING_KIND:
                settings: dict[str, Any] = dict(node.settings)
                name = settings.pop("name")
                try:
                    self._enter(name, self._made(Wanted(**settings)), node.queue_id)
                except Unmanageable as refused:
                    self._log.warning("binding.given_up", name=name, reason=str(refused))
                    self._lost.append(DeleteNode(node.queue_id))

    def begin(self) -> None:
        """Bind the queues of the configuration, which are made by now."""
        for place, each in enumerate(self._nodes.config.bindings):
            made = self._made(Wanted(each.topic, each.queue, each.selector))
            self._enter(str(place), made, 0, configured=True)
        if self._lost:
            lost, self._lost = self._lost, []
            self._nodes.writer.submit(Removal(lost, _nothing))

    # While the broker runs

    async def make(self, name: str, wanted: Wanted) -> bool:
        """Have a binding that is there from now on, also after a restart if its queue is; False if it was.
        Raises Unmanageable, NodeRefused and StoreError.
        """
        if name.isdecimal() or not 0 < len(name.encode()) <= NAME_BYTES_MAX:
            why = f"expected a name of 1 to {NAME_BYTES_MAX} bytes that is no number, got {name!r:.80}"
            raise Unmanageable(400, why)
        async with self._topics.making:
            known = self._found.get(name)
            if known is not None:
                if known.wanted != wanted:
                    raise Unmanageable(409, f"binding {name!r:.80} is another one: {known.wanted!r:.200}")
                return False
            made = self._made(wanted)
            pattern, queue = made[0], made[1].queue
            if pattern.text.startswith(RESERVED_PREFIX):
                raise Unmanageable(400, f"{pattern.text!r:.80} names a node of the broker, and no topic")
            if pattern.exact and self._nodes.queues.find(pattern.text) is not None:
                raise Unmanageable(409, f"{pattern.text!r} is a queue, and only a topic has bindings")
            self._topics.check_receivers(pattern)
            settings: dict[str, object] = {"name": name, **attrs.asdict(wanted)}
            verb = CreateNode(BINDING_PREFIX + quote(name, safe=""), BINDING_KIND, settings)

            def stored() -> None:
                if not queue.deleted:
                    self._enter(name, made, verb.queue_id)
                elif verb.queue_id:
                    self._nodes.writer.submit(Removal([DeleteNode(verb.queue_id)], _nothing))

            await self._topics.store([verb] if queue.persistent else [], stored)
            if queue.deleted:
                raise NodeRefused("amqp:resource-deleted", f"queue {queue.name!r} was deleted")
            return True

    def _made(self, wanted: Wanted) -> tuple[TopicPattern, Member, Wanted]:
        """Raises Unmanageable for what can't be bound."""
        queues = self._nodes.queues
        queue = queues.find(wanted.queue)
        if queue is None:
            why = f"expected the address of a queue that is there, got {wanted.queue!r:.120}"
            raise Unmanageable(404, why)
        if queue.events:
            why = f"queue {queue.name!r} has events, which tell of links only: it can't be bound"
            raise Unmanageable(409, why)
        try:
            pattern = parse_topic_pattern(wanted.topic, self._nodes.config.limits.address_bytes)
            found = selector_filter(wanted.selector) if wanted.selector else None
        except (AddressError, FilterRefused) as error:
            raise Unmanageable(400, str(error)) from None
        return pattern, Member(queue, found, bound=True, source=wanted.source), wanted

    def _enter(
        self, name: str, made: tuple[TopicPattern, Member, Wanted], node_id: int, *, configured: bool = False
    ) -> None:
        pattern, member, wanted = made
        self._found[name] = Binding(name, wanted, pattern, member, configured, node_id)
        self._topics.join(pattern, member)
        if pattern.exact:
            self._topics.look_for(pattern.text)

    def delete(self, binding: Binding, then: Then) -> None:
        """Its queue gets nothing by it from now on; `then` is told when a start would not find it, either."""
        verbs = self._leave([binding])
        self._nodes.writer.submit(Removal(verbs, then))

    def _leave(self, leaving: Iterable[Binding]) -> Unit:
        verbs: Unit = []
        for each in leaving:
            del self._found[each.name]
            self._topics.leave(each.pattern, each.member)
            if each.node_id:
                verbs.append(DeleteNode(each.node_id))
        return verbs

    def _topic_leaves(self, topic: Topic) -> Unit:
        """A topic is gone, and what goes with it."""
        return self._leave([each for each in self._found.values() if each.wanted.source == topic.name])

    def _queue_leaves(self, queue: Queue) -> Unit:
        """A queue is gone, and its bindings with it."""
        return self._leave([each for each in self._found.values() if each.member.queue is queue])

    def _joins(self, topic: str, queue: str) -> bool:
        return any(
            each.member.queue.name == queue and each.pattern.matches(topic) for each in self._found.values()
        )

    def _why_needed(self, queue: Queue) -> str:
        """Why a queue can't be deleted by hand; empty: it can."""
        bound = any(each.configured and each.member.queue is queue for each in self._found.values())
        return "a [[binding]] names it" if bound else ""


def _nothing(_: Any) -> None:
    """Nobody waits for it."""
