"""What is asked about sets of half messages on `$half-resolve/<group>`: seal, commit-epoch, void, status."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from amqp_broker.coordinator import Resolver
from amqp_broker.coordinator.half_sets import SetState
from amqp_broker.frames import DecodeError, Message, Properties, Rejected
from amqp_broker.half_sets.answers import internal_error
from amqp_broker.half_sets.deciding import CommitEpoch, VoidSets
from amqp_broker.half_sets.enlisting import EnlistSet, VoteSets
from amqp_broker.half_sets.operations import SealSet, SetOperation
from amqp_broker.half_sets.requests import (
    SET_SUBJECTS,
    CommitRequest,
    SealRequest,
    SetRequest,
    StatusRequest,
    VoidRequest,
    read_set_request,
    write_status,
)
from amqp_broker.nodes.refusals import NodeRefused, refusal_of
from amqp_broker.operations.posting import Question
from amqp_broker.persistence import RowDamaged
from amqp_broker.replies import PendingReply

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.half_sets.half_sets import HalfSets
    from amqp_broker.nodes.requests import Request

SETS_SHOWN: Final = 1_000  # in the reply to a status request: the oldest


def is_about_sets(asked: Request) -> bool:
    """Whether the subject of a message is a request about sets."""
    try:
        properties = Message(asked.payload).properties
    except DecodeError:
        return False
    return properties is not None and properties.subject in SET_SUBJECTS


class SetRequests:
    """Has requests about sets judged and answered."""

    def __init__(self, nodes: BrokerNodes, sets: HalfSets) -> None:
        self._nodes = nodes
        self._sets = sets

    def take(self, group: str, asked: Request) -> bool:
        """Take a message that is about sets; False if it is not."""
        try:
            message = Message(asked.payload)
            own_store = self._nodes.store_id
            request = read_set_request(message, message.properties or Properties(), own_store)
        except (NodeRefused, DecodeError) as refused:
            asked.answer(Rejected(error=refusal_of(refused)))
            return True
        if request is None:
            return False
        self._do(group, request, asked)
        return True

    def _do(self, group: str, request: SetRequest, asked: Request) -> None:
        sets, answer = self._sets, asked.answer
        operation: SetOperation
        if isinstance(request, SealRequest) and request.store:
            operation = EnlistSet(sets, group, request, asked.container_id, answer)
        elif isinstance(request, SealRequest):
            operation = SealSet(sets, group, request, answer)
        elif isinstance(request, CommitRequest):
            operation = CommitEpoch(sets, group, request, Resolver.PRODUCER, answer)
        elif isinstance(request, VoidRequest) and request.store:
            operation = VoteSets(sets, group, request, answer)
        elif isinstance(request, VoidRequest):
            operation = VoidSets(sets, group, request, Resolver.PRODUCER, "", answer)
        else:
            self._tell_status(group, request, asked)
            return
        operation.asker = asked.connection
        sets.enter(operation)

    def _tell_status(self, group: str, request: StatusRequest, asked: Request) -> None:
        try:
            reply = PendingReply(self._nodes, asked, request.reply_to)
        except NodeRefused as refused:
            asked.answer(Rejected(error=refused.error))
            return
        look = partial(self._look, group, request, reply)
        self._nodes.writer.submit(Question(look, reply.failed, asked.connection))

    def _look(self, group: str, request: StatusRequest, reply: PendingReply) -> Callable[[], None]:
        """What is decided and what is staged, as the requests before it leave it."""
        sets, epoch = self._sets, request.epoch
        producer = sets.known(group, request.producer)
        try:
            found = None if epoch is None else sets.decision(producer, epoch)
            latest = sets.latest_decision(producer)
        except RowDamaged as damaged:
            return partial(reply.refuse, internal_error(f"the store: {damaged}"))
        shown = [
            each
            for each in producer.sets.values()
            if (epoch is None or each.epoch == epoch) and each.state is not SetState.VOIDED
        ][:SETS_SHOWN]
        if found is not None:
            found = attrs.evolve(found, decided_at_ms=self._nodes.clock.shown(found.decided_at_ms))
        payload = write_status(request.correlation_id, self._nodes.store_id, found, latest, shown)
        return partial(reply.send, payload)
