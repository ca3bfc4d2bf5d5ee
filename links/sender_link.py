"""The sending end of a link: messages to transfers, credit, and the receiver's outcomes (2.6.7, 2.6.12,
2.6.14).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.frames import (
    SENDER,
    Accepted,
    Attach,
    Detach,
    TransactionalState,
    Transfer,
    decode_state,
    encode_frame,
    encode_state,
)
from amqp_broker.frames.hot_frames import Sendable, TransferEncoder, link_fields
from amqp_broker.links.deliveries import (
    OutgoingDelivery,
    SendingDelivery,
    SentCopy,
    StreamingDelivery,
    TaggedDelivery,
    in_words,
)
from amqp_broker.links.dispositions import txn_id_of
from amqp_broker.links.errors import LocalProtocolError
from amqp_broker.links.events import BodyLost, BodySent, FlowReceived, WorkLost
from amqp_broker.links.limits import MIN_MAX_FRAME_SIZE
from amqp_broker.links.link import Link
from amqp_broker.links.link_states import LinkState
from amqp_broker.links.windows import SenderCredit

if TYPE_CHECKING:
    from amqp_broker.links.session import Session

_ATTACHED = LinkState.ATTACHED
_SETTLED = 1
# A peer may take frames of any size; larger ones would only make other links wait longer.
LARGEST_FRAME_BYTES: Final = 262_144
OUTPUT_QUARTERS: Final = 4
"""One transfer of a message that is split takes a quarter of the output's bound at most; one is left to what
others send.
"""
_MIXED = 2
_UNSETTLED = 0
RESUMED_STATE_BYTES: Final = 64
"""The largest state that a resumed transfer tells: what settles needs none (the example of 3.4.6, tag 12)."""
TAGGED_HEAD_BYTES: Final = 128
"""Room for tag, state and flags of a transfer with a tag of its own beside what an ordinary head has."""


class SenderLink(Link):
    """We send. Transactions of the receiver's flows are told by FlowReceived (4.4.3)."""

    def __init__(self, session: Session, name: str, handle: int) -> None:
        super().__init__(session, name, handle, SENDER)
        self.flow_state = SenderCredit(session.settings.initial_delivery_count)
        self.unsettled_count = 0
        self.tag_prefix = b""
        """What the delivery-tags of new deliveries begin with; not changed once the attach is answered."""
        self.outlived = False
        """Its source outlives it: what is unsettled when the peer detaches it is live (2.7.6)."""
        self.copies = False
        """What is sent has an offset and is not needed then: a `SentCopy` stands for it while unsettled."""
        self.remote_max_message_size = 0
        """Octets; 0 is none."""
        self.blocked = False
        """Took less than it was offered for another reason than credit; CreditReceived tells when that is
        over.
        """
        self._sending: SendingDelivery | None = None
        self._sending_encoder: TransferEncoder | None = None
        self._drain_due = False
        """The answer to a drain waits for the end of the message that is half sent."""
        self._encoder: TransferEncoder | None = None
        self._settled_encoder: TransferEncoder | None = None
        # Those of `send_in`, for the state that it had last: one transaction is many sends.
        self._state_encoders: dict[bool, TransferEncoder] = {}
        self._encoded_state = b""
        # FlowReceived events without an answer, and whether the last flow named a transaction.
        self._flows_told = 0
        self._flow_in_transaction = False
        self._credit_told = False
        # 2.7.3: after an incomplete unsettled map, of either side, no new deliveries may be sent.
        self._may_send_new = True
        self._detached_live = False

    @property
    def credit(self) -> int:
        """How many messages may still be sent."""
        return self.flow_state.credit

    @property
    def sending(self) -> bool:
        """A message is half sent, or its abort waits for the session's window; CreditReceived tells when that
        is over.
        """
        return self._sending is not None

    @property
    def drain(self) -> bool:
        """The receiver wants its credit used up or given back: send what is there, then call `drained`."""
        return self.flow_state.drain

    @property
    def available(self) -> int:
        """What the receiver was or will be told about waiting messages."""
        return self.flow_state.available

    def set_available(self, count: int) -> None:
        """How many messages wait for credit; the next flow tells it."""
        self.flow_state.available = max(0, count)

    def send(self, messages: Sequence[Sendable], settled: bool = False) -> int:
        """Sends the first messages and tells how many it took: what credit, window, unsettled and output
        bounds allow.

        In snd-settle-mode settled all are sent settled; in mode mixed `settled` decides. A message that is
        larger than a frame goes out in pieces as the window and the output allow; until then nothing more is
        taken. Raises LocalProtocolError for one beyond `remote_max_message_size`: it must not be offered
        here (2.7.3).
        """
        if self.state is not _ATTACHED:
            return 0
        settled = self.snd_settle_mode == _SETTLED or (settled and self.snd_settle_mode == _MIXED)
        encoder = self._settled_encoder if settled else self._encoder
        assert encoder is not None, "an attached link has its encoders"
        return self._send_messages(messages, settled, encoder)

    def send_in(
        self, messages: Sequence[Sendable], state: Any, settled: bool = False
    ) -> tuple[int, list[OutgoingDelivery]]:
        """`send` whose transfers all carry `state`, the transactional-state of the work (4.4); how many it
        took, and what of them was sent unsettled.

        Raises LocalProtocolError as `send` does, and when the encoded state has more than
        TransferEncoder.MAX_STATE_BYTES octets; EncodeError.
        """
        encoded = _encoded_for_transfers(state)
        if self.state is not _ATTACHED:
            return 0, []
        settled = self.snd_settle_mode == _SETTLED or (settled and self.snd_settle_mode == _MIXED)
        encoder = self._encoder_in(encoded, settled)
        first = self.session.next_outgoing_delivery
        taken = self._send_messages(messages, settled, encoder)
        if settled:
            return taken, []
        unsettled = self.session.unsettled_out
        return taken, [unsettled[number] for number in range(first, first + taken)]

    def _encoder_in(self, encoded: bytes, settled: bool) -> TransferEncoder:
        """Of transfers that carry a state."""
        if encoded != self._encoded_state:
            self._encoded_state = encoded
            self._state_encoders.clear()
        encoder = self._state_encoders.get(settled)
        if encoder is None:
            encoder = TransferEncoder(self.session.channel, self.handle, settled, encoded, self.tag_prefix)
            self._state_encoders[settled] = encoder
        return encoder

    def _send_messages(self, messages: Sequence[Sendable], settled: bool, encoder: TransferEncoder) -> int:
        """Sends what credit and everything else allow; how many it took."""
        bound = min(len(messages), self.flow_state.credit)
        largest = self.remote_max_message_size
        if largest and any(len(each.header_bytes) + len(each.body) > largest for each in messages):
            raise LocalProtocolError(f"a message of more than {largest} octets, the peer's max-message-size")
        taken = 0
        while taken < bound:
            room = min(bound - taken, self._sendable(settled))
            if room <= 0:
                break
            count = self._write(messages, taken, room, encoder, settled)
            if not count:
                break
            self.flow_state.sent(count)
            taken += count
        if taken and self.flow_state.drain and not self.flow_state.credit:
            # All credit went into messages; peers that wait for the word of it get it.
            self._answer_drain()
        if taken < bound:
            self._block()
        return taken

    def send_streamed(
        self, message: Any, pieces: Any, settled: bool = False, state: Any = None
    ) -> tuple[int, list[OutgoingDelivery]]:
        """Sends a message of which only the head is in memory; `pieces` have the rest (`StreamingDelivery`).
        How many it took, 1 or none, and what was sent unsettled, as `send_in`, which says what `state` is.
        Raises as that.

        Where a piece cannot be had, the delivery is aborted, and BodyLost tells that it was. Sent settled it
        is the receiver's when BodySent says so.
        """
        encoded = b"" if state is None else _encoded_for_transfers(state)
        self._check_largest(message, pieces)
        settled = self.snd_settle_mode == _SETTLED or (settled and self.snd_settle_mode == _MIXED)
        if self.state is not _ATTACHED or not self.flow_state.credit or self._sendable(settled) <= 0:
            self._block()
            return 0, []
        encoder = self._settled_encoder if settled else self._encoder
        if encoded:
            encoder = self._encoder_in(encoded, settled)
        assert encoder is not None, "an attached link has its encoders"
        if encoder.message_format != message.message_format:
            encoder.set_format(message.message_format)
        number = self.session.next_outgoing_delivery
        sending = StreamingDelivery(message, number, pieces)
        delivery = self._begin_sending(sending, encoder, settled)
        self.flow_state.sent(1)
        if self.flow_state.drain and not self.flow_state.credit:
            self._answer_drain()
        return 1, [] if delivery is None else [delivery]

    def _check_largest(self, message: Any, pieces: Any) -> None:
        largest = self.remote_max_message_size
        size = len(message.header_bytes) + len(message.body)
        if pieces is not None:
            size += int(pieces.size_bytes)
        if largest and size > largest:
            raise LocalProtocolError(f"a message of more than {largest} octets, the peer's max-message-size")

    def resume(
        self, delivery_tag: bytes, message: Any, *, payload: bool, state: Any = None, settled: bool = False,
        aborted: bool = False, pieces: Any = None,
    ) -> OutgoingDelivery | None:  # fmt: skip
        """Resumes a delivery that both sides had unsettled (2.6.13), for one credit; None: it does not go
        now, and CreditReceived tells when it is worth asking again.

        Without `payload` it only tells our `state`; `aborted` says that the message will not come. A
        `settled` state is told settled, whatever the snd-settle-mode is for new deliveries. `pieces` as of
        `send_streamed`.
        """
        if not self.flow_state.credit or self._room(False) <= 0 or self._flows_told:
            self._block()
            return None
        delivery = self._numbered(message, delivery_tag)
        number = delivery.number
        in_mode = settled and self.snd_settle_mode != _UNSETTLED
        if len(encode_state(state)) > RESUMED_STATE_BYTES:
            state = None
        if not in_mode and not aborted:
            self._unsettled(delivery)
        transfer = Transfer(
            handle=self.handle, delivery_id=number & 0xFFFFFFFF, delivery_tag=delivery_tag,
            message_format=message.message_format, settled=in_mode or aborted, state=state, resume=True,
            aborted=aborted,
        )  # fmt: skip
        self._write_tagged(transfer, _sending_of(message, number, pieces), payload)
        if settled and not in_mode:
            self.settle([delivery], state)
        return delivery

    def send_tagged(self, message: Any, delivery_tag: bytes, pieces: Any = None) -> bool:
        """Sends a message, unsettled, with a delivery-tag of the caller's: for one that is known before it is
        sent. `pieces` as of `send_streamed`. False: it does not go now, as `send` that takes nothing. Raises
        as `send`.
        """
        self._check_largest(message, pieces)
        if not self.flow_state.credit or self._sendable(False) <= 0:
            self._block()
            return False
        delivery = self._numbered(message, delivery_tag)
        self._unsettled(delivery)
        transfer = Transfer(
            handle=self.handle, delivery_id=delivery.delivery_id, delivery_tag=delivery_tag,
            message_format=message.message_format, settled=False,
        )  # fmt: skip
        self._write_tagged(transfer, _sending_of(message, delivery.number, pieces), True)
        if self.flow_state.drain and not self.flow_state.credit:
            self._answer_drain()
        return True

    def _numbered(self, message: Any, delivery_tag: bytes) -> TaggedDelivery:
        session = self.session
        number = session.next_outgoing_delivery
        session.next_outgoing_delivery = number + 1
        self.flow_state.sent(1)
        return TaggedDelivery(number, self, message, delivery_tag)

    def _unsettled(self, delivery: OutgoingDelivery) -> None:
        self.session.unsettled_out[delivery.number] = delivery
        self.unsettled_count += 1

    def _write_tagged(self, transfer: Transfer, sending: SendingDelivery, payload: bool) -> None:
        session = self.session
        octets = b""
        if payload:
            assert self._encoder is not None, "an attached link has its encoders"
            octets = bytes(sending.next_bytes(self._piece_bytes(self._encoder) - TAGGED_HEAD_BYTES) or b"")
            transfer.more = sending.sent_bytes < sending.total_bytes
        session.output.write(encode_frame(session.channel, transfer, octets))
        session.window.sent(1)
        if transfer.more:
            self._go_on_with(sending, self._encoder)

    def forget_live(self) -> None:
        """What was unsettled when it was detached is live no longer: it was resumed, or is given up."""
        if self._detached_live:
            self._detached_live = False
            self._drop()

    @property
    def detached_live(self) -> bool:
        """Whether the peer has detached it, and what it left unsettled can still be settled (2.7.6)."""
        return self._detached_live and self.session.writable

    def sendable(self) -> int:
        """How many messages `send` could take now; 0 while a large one is on its way or the output is full.

        When it is 0 although there is credit, CreditReceived tells when it is worth asking again, except for
        full output: when `data_to_send` was written, `next_waiting` of the output has those for whom it was.
        """
        count = min(self.flow_state.credit, self._sendable(self.snd_settle_mode == _SETTLED))
        if not count and self.flow_state.credit:
            self._block()
        return count

    def _block(self) -> None:
        session = self.session
        if not session.writable:
            return
        output = session.output
        if output.size_bytes >= output.limit_bytes:
            output.waiting[self] = None
        if not self.blocked:
            self.blocked = True
            session.blocked.append(self)

    def _sendable(self, settled: bool) -> int:
        """What everything but credit allows."""
        return 0 if self._flows_told or not self._may_send_new else self._room(settled)

    def _room(self, settled: bool) -> int:
        session = self.session
        output = session.output
        if self.state is not _ATTACHED or self._sending is not None or not session.writable:
            return 0
        if output.size_bytes >= output.limit_bytes:
            return 0
        room = session.window.remote_incoming_window
        if not settled:
            limits = session.limits
            room = min(
                room,
                limits.unsettled_per_link - self.unsettled_count,
                limits.unsettled_per_session - len(session.unsettled_out),
            )
        return max(0, room)

    def _write(
        self, messages: Sequence[Sendable], start: int, limit: int, encoder: TransferEncoder, settled: bool
    ) -> int:
        """Writes at most `limit` messages from `start` on."""
        session = self.session
        output = session.output
        room = output.limit_bytes - output.size_bytes
        first = session.next_outgoing_delivery
        max_frame = min(session.connection.remote_max_frame_size, LARGEST_FRAME_BYTES)
        taken, written = encoder.pack_run(messages, start, limit, first, room, max_frame, output.chunks)
        if taken:
            output.size_bytes += written
            output.wrote = True
            number = first
            if not settled:
                unsettled = session.unsettled_out
                for message in messages[start : start + taken]:
                    unsettled[number] = OutgoingDelivery(number, self, message)
                    number += 1
                self.unsettled_count += taken
                if self.copies:
                    self._forget_copies(first, number)
            session.next_outgoing_delivery = first + taken
            session.window.sent(taken)
        if taken < limit and written < room:
            self._begin_large(messages[start + taken], encoder, settled)
            return taken + 1
        return taken

    def _begin_large(self, message: Sendable, encoder: TransferEncoder, settled: bool) -> None:
        """Starts a message that needs several transfers."""
        sending = SendingDelivery(message, self.session.next_outgoing_delivery)
        self._begin_sending(sending, encoder, settled)

    def _begin_sending(
        self, sending: SendingDelivery, encoder: TransferEncoder, settled: bool
    ) -> OutgoingDelivery | None:
        """Its first transfer, which needs nothing but what is in memory; the delivery, unless it is settled.
        """
        session = self.session
        number = sending.number
        session.next_outgoing_delivery = number + 1
        delivery = None
        if not settled:
            delivery = session.unsettled_out[number] = OutgoingDelivery(number, self, sending.message)
            self.unsettled_count += 1
        payload = sending.next_bytes(self._piece_bytes(encoder))
        assert payload is not None, "a message has a header"
        session.output.write(encoder.first_of_many(number & 0xFFFFFFFF, len(payload)))
        session.output.write(payload)
        session.window.sent(1)
        self._go_on_with(sending, encoder)
        return delivery

    def _go_on_with(self, sending: SendingDelivery, encoder: TransferEncoder | None) -> None:
        """Its first transfer is out; the others follow as there is room."""
        self._sending = sending
        self._sending_encoder = encoder
        self.session.connection.sending_links[self] = None
        self._write_pieces(sending)

    def go_on(self) -> None:
        """Writes more of the message that is being sent, and tells the caller when it is out."""
        sending = self._sending
        if sending is not None and self._write_pieces(sending):
            self.wake()

    def _write_pieces(self, sending: SendingDelivery) -> bool:
        """Writes of a large message what window and output allow; True when it is out."""
        session = self.session
        output = session.output
        window = session.window
        encoder = self._sending_encoder
        assert encoder is not None, "what is being sent has its encoder"
        if sending.aborted:
            # Few octets, and whoever aborts wants it said before what is written next.
            if window.remote_incoming_window > 0:
                output.write(encoder.abort())
                window.sent(1)
                self._sent()
            return self._sending is None
        room = self._piece_bytes(encoder)
        most = output.limit_bytes - output.limit_bytes // OUTPUT_QUARTERS - room
        while window.remote_incoming_window > 0 and (not output.size_bytes or output.size_bytes < most):
            payload = sending.next_bytes(room)
            if payload is None:
                return self._lose_body(sending)
            more = sending.sent_bytes < sending.total_bytes
            output.write(encoder.continuation(more, len(payload)))
            output.write(payload)
            window.sent(1)
            if not more:
                if isinstance(sending, StreamingDelivery) and encoder.settled:
                    session.connection.events.tell(BodySent(self, sending.message))
                self._sent()
                return True
        return False

    def _lose_body(self, sending: SendingDelivery) -> bool:
        """The rest of what is being sent cannot be had: it is aborted, and the caller told. True when the
        peer was told.
        """
        assert isinstance(sending, StreamingDelivery), "what is in memory can be had"
        session, pieces = self.session, sending.pieces
        delivery = session.unsettled_out.pop(sending.number, None)
        if delivery is not None:
            self.unsettled_count -= 1
        lost = BodyLost(self, sending.message, delivery, str(pieces.why), bool(pieces.damaged))
        session.connection.events.tell(lost)
        sending.aborted = True
        told = self._write_pieces(sending)
        session.wake_blocked()
        return told

    def _forget_copies(self, first: int, end: int) -> None:
        """These copies are sent: memory does not keep them until the peer settles."""
        unsettled = self.session.unsettled_out
        for number in range(first, end):
            delivery = unsettled.get(number)
            if delivery is not None:
                delivery.message = SentCopy(delivery.message.offset)

    def _sent(self) -> None:
        if self.copies and self._sending is not None:
            self._forget_copies(self._sending.number, self._sending.number + 1)
        self._sending = None
        self._sending_encoder = None
        self.session.connection.sending_links.pop(self, None)
        if self._drain_due and self.state is _ATTACHED:
            self._drain_due = False
            self.answer_echo()

    def _piece_bytes(self, encoder: TransferEncoder) -> int:
        """The payload of one transfer of a message that is split."""
        connection = self.session.connection
        share = max(connection.output.limit_bytes // OUTPUT_QUARTERS, MIN_MAX_FRAME_SIZE)
        largest = min(connection.remote_max_frame_size, LARGEST_FRAME_BYTES, share)
        return largest - encoder.largest_head_bytes

    def settle(self, deliveries: list[OutgoingDelivery], state: Any = None) -> None:
        """Settles what the receiver did not settle: a settled disposition for each range of consecutive ids
        (2.7.6).

        Deliveries that are settled already are passed over. One that is still being sent is aborted, which
        settles it too (2.7.5), unless its outcome is accepted: then the receiver gets the rest.
        """
        session = self.session
        pop = session.unsettled_out.pop
        encoded = encode_state(state)
        sending = self._sending
        before = self.unsettled_count
        first = last = -1
        for delivery in deliveries:
            if delivery.link is not self or pop(delivery.number, None) is None:
                continue
            self.unsettled_count -= 1
            if sending is not None and sending.number == delivery.number and not _accepts(state):
                self._abort(sending)
                continue
            if delivery.number != last + 1 or first < 0:
                if first >= 0:
                    session.send_disposition(SENDER, first, last, True, encoded)
                first = delivery.number
            last = delivery.number
        if first >= 0:
            session.send_disposition(SENDER, first, last, True, encoded)
        if self.unsettled_count < before:
            session.wake_blocked()

    def abort_sending(self, message: Sendable | OutgoingDelivery) -> bool:
        """Sends no more of `message`, settled by anyone or not, but the transfer that aborts it (2.6.14);
        False when it is not the one being sent.

        The abort waits while the session's window is closed: see `sending`. An aborted delivery has used up
        its credit: the delivery-count went on with its first transfer, at both ends.
        """
        sending = self._sending
        if sending is None:
            return False
        if isinstance(message, OutgoingDelivery):
            if message.link is not self or message.number != sending.number:
                return False
        elif message is not sending.message:
            return False
        if self.session.unsettled_out.pop(sending.number, None) is not None:
            self.unsettled_count -= 1
        self._abort(sending)
        self.session.wake_blocked()
        return True

    def _abort(self, sending: SendingDelivery) -> None:
        if not sending.aborted:
            sending.aborted = True
            self.go_on()

    def drained(self) -> None:
        """Nothing is left to send: give all credit back and tell the receiver (2.6.7). Does nothing unless
        `drain`, nothing while a FlowReceived has no answer: its messages were not looked for yet, and nothing
        while a message is half sent: CreditReceived tells when it is out.
        """
        if self._flows_told or self._sending is not None:
            return
        if self.state is _ATTACHED and self.flow_state.drain and self.flow_state.credit:
            self.flow_state.drained()
            self.answer_echo()

    def flow_handled(self) -> None:
        """Answers a FlowReceived: after the last one the link may send again, and CreditReceived says so."""
        if self._flows_told:
            self._flows_told -= 1
            if not self._flows_told:
                self.wake()

    # --- for the session

    def on_attach(self, attach: Attach, ours: bool) -> None:
        """The receiver's attach; `ours` tells that it answers ours. Its target and settle mode are
        authoritative.
        """
        self.attach_received(attach)
        self.target = attach.target
        self.rcv_settle_mode = attach.rcv_settle_mode
        self.remote_max_message_size = attach.max_message_size or 0
        self._may_send_new = not attach.incomplete_unsettled
        if ours:
            self._prepare()
        else:
            self.source = attach.source
            self.snd_settle_mode = attach.snd_settle_mode

    def on_flow(
        self, delivery_count: int, link_credit: int, drain: bool, properties: dict[str, Any] | None
    ) -> None:
        """The receiver's flow."""
        self.flow_state.flow_received(delivery_count, link_credit, drain)
        if properties is not None:
            self._tell_flow(properties.get("txn-id"))
        if drain and not self.flow_state.credit:
            self._answer_drain()
        self.wake()

    def _tell_flow(self, txn_id: Any) -> None:
        """Tells each flow that names a transaction, and the one whose properties end this."""
        if txn_id is not None or self._flow_in_transaction:
            self._flow_in_transaction = txn_id is not None
            self._flows_told += 1
            self.session.connection.events.tell(FlowReceived(self, txn_id))

    def wake(self) -> None:
        """Tells the caller, once until it was given the events, that it may send."""
        if self.state is _ATTACHED and not self._credit_told:
            self._credit_told = True
            self.session.connection.events.tell_credit(self)

    def told_credit(self) -> None:
        """The caller has got the event."""
        self._credit_told = False

    def _answer_drain(self) -> None:
        """Tells that all credit is used up: "after sending all available messages" (2.6.7), so behind the
        last transfer of the one that is half sent.
        """
        self._drain_due = self._sending is not None
        if not self._drain_due:
            self.answer_echo()

    def answer_echo(self) -> None:
        """Tells our flow state (2.7.4). Receivers count a delivery when all of it has come: one that is half
        sent is told as credit that is not used yet, or they would count it twice.
        """
        flow = self.flow_state
        half = 0 if self._sending is None else 1
        count = (flow.delivery_count - half) & 0xFFFFFFFF
        credit = flow.credit + half
        self.session.send_flow(link_fields(self.handle, count, credit, flow.available, flow.drain))

    def accepted(self, credit: int) -> None:
        """Our attach is out: the link can send as soon as it gets credit."""
        self._prepare()

    def _prepare(self) -> None:
        channel, prefix = self.session.channel, self.tag_prefix
        self._encoder = TransferEncoder(channel, self.handle, False, b"", prefix)
        self._settled_encoder = TransferEncoder(channel, self.handle, True, b"", prefix)
        if self.incomplete:
            self._may_send_new = False

    def _initial_delivery_count(self) -> int | None:
        return self.flow_state.initial_delivery_count & 0xFFFFFFFF

    def _drop(self) -> list[OutgoingDelivery]:
        self._lose_sending("the link ended before all of it was sent")
        self._drain_due = False
        self._sent()
        self.session.output.waiting.pop(self, None)
        if not self.unsettled_count:
            return []
        unsettled = self.session.unsettled_out
        mine = [delivery for delivery in unsettled.values() if delivery.link is self]
        if self._detached_live:
            return mine
        for delivery in mine:
            del unsettled[delivery.number]
        self.unsettled_count = 0
        return mine

    def detach_received(self, detach: Detach) -> None:
        """The peer's detach: where the source outlives the link, what is unsettled is live, "as long as the
        links have not been closed or detached with an error" (2.7.6).
        """
        leaves = not detach.closed and detach.error is None and self.state is _ATTACHED
        self._detached_live = leaves and self.outlived
        super().detach_received(detach)

    def _lose_sending(self, why: str) -> None:
        """A message that is sent settled in a transaction, of which the rest will not be sent: its commit
        would be the acceptance of what nobody has got.
        """
        sending = self._sending
        if sending is None or sending.aborted or sending.number in self.session.unsettled_out:
            return
        encoder = self._sending_encoder
        if encoder is not None and encoder.state and self.session.settings.server:
            txn_id = txn_id_of(decode_state(encoder.state))  # not of what would be sent next
            if txn_id is not None:
                part = f"{in_words(sending.number & 0xFFFFFFFF, sending.number & 0xFFFFFFFF)} on link"
                self.session.connection.events.tell(WorkLost(txn_id, f"{part} {self.name[:64]!r}", why))


def _encoded_for_transfers(state: Any) -> bytes:
    encoded = encode_state(state)
    most = TransferEncoder.MAX_STATE_BYTES
    if len(encoded) > most:
        raise LocalProtocolError(f"a state of {len(encoded)} octets on transfers, at most {most} go")
    return encoded


def _sending_of(message: Any, number: int, pieces: Any) -> SendingDelivery:
    """Of which only the head is in memory, where there are `pieces`."""
    return SendingDelivery(message, number) if pieces is None else StreamingDelivery(message, number, pieces)


def _accepts(state: Any) -> bool:
    """Whether the message is the receiver's after this outcome, also as part of a transaction."""
    outcome = state.outcome if type(state) is TransactionalState else state
    return type(outcome) is Accepted
