"""What a stream keeps of one broker: the two cursors that it holds there, and where it stands.

<subscription>/start:<place>   where batch 0 began: Spark does not keep a source's first offset, and asks
                               again when that batch is repeated
<subscription>                 follows one batch behind, and keeps other queries out
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from amqp_broker.pipeline.offsets import Offsets, positions_at
from amqp_broker.pipeline.options import SUBSCRIPTION, Options
from amqp_broker.pipeline.planning import starting
from amqp_broker.pipeline.retained_client import Node, Retained, RetainedClient

START_SUFFIX: Final = "/start:"
"""Of the cursor that keeps where a subscription began; no subscription can have such a name."""


class BrokerPlace:
    """The side of a stream that one broker sees. Pickled: it connects when it is asked."""

    def __init__(self, options: Options, partition: int) -> None:
        self.address = options.brokers[partition]
        self._options = options
        self._partition = partition
        self._client: RetainedClient | None = None
        self.frozen: dict[str, int] = {}
        """Where the subscription began."""
        self.stands: dict[str, int] = {}
        """Where it stood when we took hold of it."""
        self.target: dict[str, int] | None = None
        """Where the trigger AvailableNow ends."""

    @property
    def client(self) -> RetainedClient:
        """Connected when it is asked."""
        if self._client is None:
            self._client = RetainedClient(self.address)
        return self._client

    def close(self) -> None:
        """Lets the cursors go."""
        if self._client is not None:
            self._client.close()

    def begin(self, nodes: dict[str, Node]) -> dict[str, int]:
        """Holds the cursors where the options begin; where that is."""
        begin = starting(self._options, self.client, nodes, self._partition)
        self.hold(begin)
        return begin

    @property
    def moved(self) -> bool:
        """Whether the cursor stands elsewhere than it began."""
        return self.stands != self.frozen

    def begin_anew(self, begin: dict[str, int]) -> None:
        """Forgets where the subscription was."""
        for cursor in self._cursors():
            self.client.forget(cursor)
        self.frozen, self.stands = {}, {}
        self.hold(begin)

    def hold_from(self, begin: Offsets, nodes: dict[str, Node]) -> None:
        """Hold the cursors for a query that is at `begin`. An address that is new to it begins with its first
        message.
        """
        start = {address: begin.positions.get(address, node.first) for address, node in nodes.items()}
        self.hold(start, begin.positions)

    def hold(self, start: dict[str, int], place: Mapping[str, int] = MappingProxyType({})) -> None:
        """Holds both cursors. Where they do not stand yet, the one is put to `start`, the other to the place
        of the query if it has one there, else to the first. Raises CursorInUse.
        """
        unknown = {address: offset for address, offset in start.items() if address not in self.frozen}
        if not unknown:
            return
        began, name = self._cursors()
        frozen = self.client.hold(began, unknown)
        stands = self.client.hold(name, {address: place.get(address, frozen[address]) for address in unknown})
        for address in unknown:
            self.frozen[address], self.stands[address] = frozen[address], stands[address]

    def at(self, begin: Offsets, nodes: Mapping[str, Node]) -> dict[str, int]:
        """Where the query is in these nodes."""
        return {address: begin.positions.get(address, self.frozen[address]) for address in nodes}

    def end(self, node: Node) -> int:
        """How far a batch may go."""
        return node.next if self.target is None else min(node.next, self.target.get(node.address, 0))

    def wait(self, at: Mapping[str, int], timeout_ms: int) -> Retained:
        """What the broker has when it has more, or when the time is over."""
        if at:
            self.client.wait(at, timeout_ms)
        return self.client.describe()

    def _cursors(self) -> tuple[str, str]:
        """That of the beginning, and the subscription's. Another starting place is another beginning."""
        options = self._options
        place = options["startingOffsets"] or SUBSCRIPTION
        if options.given("startingTimestamp"):
            place = f"{options['startingTimestamp']}-ms"
        elif isinstance(place, dict):
            text = json.dumps(positions_at(place, self._partition), sort_keys=True)
            place = hashlib.sha256(text.encode()).hexdigest()[:16]
        name = options["subscription"]
        return f"{name}{START_SUFFIX}{place}", name
