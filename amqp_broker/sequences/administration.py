"""Sequenced streams for an administrator: where they stand, and to have one begin anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from amqp_broker.addresses import AddressError, parse_address
from amqp_broker.operations.operation import answer_to
from amqp_broker.persistence import Store, Stream
from amqp_broker.persistence.questions import StreamsOf
from amqp_broker.sequences.operations import Reset
from amqp_broker.sequences.settings import sequences_of

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.queue import Queue
    from amqp_broker.sequences.sequences import Sequences

PAGE: Final = 1_000


@attrs.frozen
class StreamInfo:
    """What an administrator sees of a stream: its last accepted message (`seq_id`, `seq_no`), whose it is,
    and its former ids with their last numbers, the oldest first.

    `reject_count` is how many messages were not taken since the last one that was, duplicates included;
    `last_access_ms` (Unix epoch) when the last message of it came, taken or not.
    """

    queue: str
    stream: str
    owner: str
    seq_id: int
    seq_no: int
    former: tuple[tuple[int, int], ...]
    reject_count: int
    last_access_ms: int


class SequenceAdministration:
    """What `Broker` offers of streams."""

    def __init__(self, nodes: BrokerNodes, sequences: Sequences) -> None:
        self._nodes = nodes
        self._sequences = sequences

    async def streams(self, queue: str, after: str = "", count: int = PAGE) -> list[StreamInfo]:
        """At most `count` streams of a queue, in the order of their names, behind the name `after`; none if
        there is no such queue.
        """
        found = self._queue(queue)
        if found is None:
            return []
        if found.persistent:
            sequences = self._sequences

            def page(store: Store) -> list[Stream]:
                stored = store.ask(StreamsOf(found.queue_id, after, count))
                return [sequences.positions.latest(each) for each in stored]

            streams = await self._nodes.writer.ask(page)
        else:
            local = sequences_of(found).local
            streams = [local[name] for name in sorted(local) if name > after][:count]
        return [self._info(queue, stream) for stream in streams]

    async def reset(self, queue: str, stream: str) -> bool:
        """Have a stream begin anew, and belong to nobody; False if there was none. Raises StoreError."""
        found = self._queue(queue)
        if found is None:
            return False
        was: bool | Exception = await answer_to(
            lambda then: self._nodes.writer.submit(Reset(self._sequences, found, stream, then))
        )
        if isinstance(was, Exception):
            raise was
        return was

    def _info(self, queue: str, stream: Stream) -> StreamInfo:
        return StreamInfo(
            queue, stream.stream, stream.owner, stream.seq_id, stream.seq_no, stream.former,
            stream.reject_count, self._nodes.clock.shown(stream.last_access_ms),
        )  # fmt: skip

    def _queue(self, name: str) -> Queue | None:
        try:
            return self._nodes.queues.find(parse_address(name).name)
        except AddressError:
            return None
