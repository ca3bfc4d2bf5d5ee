"""`$half-set/<group>/<producer>/<epoch>/<set>/<destination>` as a node: messages are staged there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from amqp_broker.authorisation import SEND, Principal
from amqp_broker.connection import Connection, Sink
from amqp_broker.frames import Error, Rejected
from amqp_broker.half_sets.operations import OpenPart
from amqp_broker.half_sets.staging import StagingSink
from amqp_broker.halves.addresses import SET, HalfAddress
from amqp_broker.halves.destinations import check_destination
from amqp_broker.halves.nodes import HalfNode, HalfNodes
from amqp_broker.nodes.node import Attachment
from amqp_broker.nodes.refusals import NodeRefused

if TYPE_CHECKING:
    from amqp_broker.coordinator.half_sets import SetPart
    from amqp_broker.half_sets.half_sets import HalfSets
    from amqp_broker.nodes.registry import Registry


def register_sets(registry: Registry, half_nodes: HalfNodes, sets: HalfSets) -> None:
    """Register the node of all addresses of sets."""
    registry.register(SET, lambda name: SetNode(half_nodes, name, half_nodes.address(name), sets), below=True)


class SetNode(HalfNode):
    """One part of one set: the messages that are staged for one destination."""

    unsettled_only = True

    def __init__(self, half_nodes: HalfNodes, name: str, address: HalfAddress, sets: HalfSets) -> None:
        super().__init__(half_nodes, name, address)
        self._sets = sets
        self._part: SetPart | None = None

    def check(self, principal: Principal) -> None:
        """Admits who may also send to the destination, which has to take half messages and to stay."""
        site = self.half_nodes.nodes.site(principal, self.address.destination, SEND)
        check_destination(site)
        if not site.persistent:
            reason = f"queue {site.name!r} is temporary: what a set stages is for queues that stay"
            raise NodeRefused("amqp:not-allowed", reason)
        self.sites = (site,)

    async def make(self, attachment: Attachment) -> None:
        """The part first: what a set says against it is known when that is stored."""
        self._part = await self._open_part(attachment.connection)
        await super().make(attachment)

    async def open_sink(self, attachment: Attachment) -> Sink:
        """The sink that stages what is sent."""
        assert self._part is not None, "the part is made before"
        staging = StagingSink(
            attachment, self.half_nodes.nodes, self._sets, self._part, self.sites[0].made
        )
        attachment.credit = staging.begin()
        return staging

    async def _open_part(self, connection: Connection) -> SetPart:
        done = trio.Event()
        outcomes: list[Any] = []

        def answer(outcome: Any) -> None:
            outcomes.append(outcome)
            done.set()

        operation = OpenPart(self._sets, self.address, connection.container_id, answer)
        operation.asker = connection
        self._sets.enter(operation)
        await done.wait()
        if isinstance(outcomes[0], Rejected):
            error = outcomes[0].error
            assert isinstance(error, Error), "a refusal says why"
            raise NodeRefused(error.condition, error.description or "")
        assert operation.part is not None, "what was not refused is there"
        return operation.part
