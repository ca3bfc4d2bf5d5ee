"""The node `$transactions`: how did a discharge end whose answer was lost?

    question   properties: correlation-id = the txn-id (binary, or its hex digits as a string),
                           reply-to = a queue that the asker reads
    reply      properties: correlation-id as asked, subject = the outcome; body: amqp-value, the outcome

    committed       it is stored; application property committed_at_ms says when (Unix epoch)
    pending         its discharge has arrived and its commit is in progress: ask again
    live            declared, and not discharged yet
    not-committed   rolled back, or never discharged, or older than what the store keeps

Where the store's own record is damaged the question is rejected with amqp:internal-error: nobody knows then.
The answer is exact because it is given between two commits: the live transactions are looked at first, then
the store.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.authorisation import TRANSACT
from amqp_broker.coordinator import TransactionState
from amqp_broker.frames import (
    AmqpValue,
    DecodeError,
    Error,
    Long,
    Message,
    Properties,
    Rejected,
    encode_message,
)
from amqp_broker.nodes.node import Attachment
from amqp_broker.nodes.refusals import NodeRefused, refusal_of
from amqp_broker.nodes.requests import Request, RequestNode, RequestSink
from amqp_broker.persistence import OutcomesDamaged
from amqp_broker.persistence.questions import DischargedAt
from amqp_broker.replies import PendingReply

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.persistence import Store

OUTCOME_ADDRESS: Final = "$transactions"
TXN_ID_BYTES_MAX: Final = 32  # 4.5.4: binary of at most 32 octets

COMMITTED: Final = "committed"
PENDING: Final = "pending"
LIVE: Final = "live"
NOT_COMMITTED: Final = "not-committed"


class OutcomeNode(RequestNode):
    """The node `$transactions`; each question needs the right to transact."""

    def __init__(self, nodes: BrokerNodes, name: str) -> None:
        super().__init__(name)
        self._nodes = nodes

    def sink(self, attachment: Attachment) -> OutcomeQuestions:
        """The sink for the questions of one link."""
        return OutcomeQuestions(self._nodes, attachment)


class OutcomeQuestions(RequestSink):
    """One link that asks the node `$transactions`."""

    def __init__(self, nodes: BrokerNodes, attachment: Attachment) -> None:
        super().__init__(attachment)
        self._nodes = nodes

    def receive(self, request: Request) -> None:
        """Take one question."""
        error = self._ask(request)
        if error is not None:
            request.answer(Rejected(error=error))

    def _ask(self, request: Request) -> Error | None:
        principal = request.principal
        if not self._nodes.authoriser.authorise(principal, TRANSACT):
            return Error(
                condition="amqp:unauthorized-access", description=f"{principal.rule_name!r} may not transact"
            )
        try:
            properties = Message(request.payload).properties or Properties()
        except DecodeError as error:
            return refusal_of(error)
        txn_id = _txn_id(properties.correlation_id)
        if txn_id is None:
            return _invalid(
                "expected the txn-id in properties.correlation-id, as binary or as a string of hex digits, "
                f"got {properties.correlation_id!r:.80}"
            )
        try:
            reply = PendingReply(self._nodes, request, properties.reply_to)
        except NodeRefused as refused:
            return refused.error
        self._nodes.writer.read(partial(self._look, txn_id, properties.correlation_id, reply), reply.failed)
        return None

    def _look(self, txn_id: bytes, correlation_id: Any, reply: PendingReply, store: Store) -> None:
        try:
            state, committed_at_ms = self._outcome(txn_id, store)
        except OutcomesDamaged as damaged:
            reply.refuse(Error(condition="amqp:internal-error", description=f"unknown: {damaged}"))
            return
        reply.send(
            encode_message(
                properties=Properties(correlation_id=correlation_id, subject=state),
                application_properties=None
                if committed_at_ms is None
                else {"committed_at_ms": Long(committed_at_ms)},
                body=AmqpValue(state),
            )
        )

    def _outcome(self, txn_id: bytes, store: Store) -> tuple[str, int | None]:
        transaction = self._nodes.live_transactions.find(txn_id)
        if transaction is not None:
            return PENDING if transaction.state is TransactionState.DISCHARGING else LIVE, None
        committed_at_ms = store.ask(DischargedAt(txn_id))
        if committed_at_ms is not None:
            committed_at_ms = self._nodes.clock.shown(committed_at_ms)
        return NOT_COMMITTED if committed_at_ms is None else COMMITTED, committed_at_ms


def _txn_id(correlation_id: object) -> bytes | None:
    if isinstance(correlation_id, str):
        try:
            correlation_id = bytes.fromhex(correlation_id)
        except ValueError:
            return None
    if isinstance(correlation_id, bytes) and 0 < len(correlation_id) <= TXN_ID_BYTES_MAX:
        return correlation_id
    return None


def _invalid(description: str) -> Error:
    return Error(condition="amqp:invalid-field", description=description)
