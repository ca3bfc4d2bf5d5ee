"""The receiving end of a link: transfers to deliveries, credit, and our outcomes (2.6.7, 2.6.12, 2.6.14,
2.7.5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from amqp_broker.frames import RECEIVER, Attach, Error, Rejected, TransactionalState, encode_state
from amqp_broker.frames.hot_frames import Delivery, TransferHead, TransferLayout, link_fields
from amqp_broker.links.deliveries import PartialDelivery
from amqp_broker.links.dispositions import runs_of, txn_id_of
from amqp_broker.links.errors import (
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    TRANSFER_LIMIT_EXCEEDED,
    link_error,
)
from amqp_broker.links.events import (
    CreditDrained,
    DeliveriesSettled,
    DeliveryResumed,
    LinkLeaving,
    PartReceived,
    StreamLost,
    StreamReceived,
    WorkLost,
)
from amqp_broker.links.link import Link
from amqp_broker.links.link_states import LinkState
from amqp_broker.links.memory_budget import no_memory
from amqp_broker.links.windows import ReceiverCredit

if TYPE_CHECKING:
    from amqp_broker.links.deliveries import OutgoingDelivery
    from amqp_broker.links.session import Session

_ATTACHED = LinkState.ATTACHED
_SETTLED_BY_SENDER = 1
_UNSETTLED_BY_SENDER = 0
_SECOND = 1
CHUNK_BYTES: Final = 64  # what a part of a delivery costs beside its octets


class ReceiverLink(Link):
    """We receive. Credit is kept at a level (`set_credit`, `processed`) or given by hand (`flow`)."""

    def __init__(self, session: Session, name: str, handle: int) -> None:
        super().__init__(session, name, handle, RECEIVER)
        self.flow_state = ReceiverCredit(session.limits.unsettled_per_link)
        self.layout: TransferLayout | None = None
        self.partial: PartialDelivery | None = None
        self.keeps_messages = False
        """What comes on it stays in memory: no credit is given as long as the account is pressed."""
        self.apart = False
        """Whether it makes no difference if something comes before or after what comes on other links that
        say so: the runs of one read are one run then.
        """
        self.stream_bytes = 0
        """Incomplete deliveries of which more is in memory are told (PartReceived); 0: none is."""
        self.available = 0
        """The sender's last word on how many messages wait for credit (2.6.7)."""
        # What we gave an outcome in mode second, by number, until the sender settles.
        self._awaiting: dict[int, Delivery] = {}
        # Outcomes that the caller is in no hurry to tell, in order.
        self._deferred: list[tuple[list[Delivery], Any]] = []

    @property
    def credit(self) -> int:
        """What the sender may still send."""
        return self.flow_state.outstanding

    def set_credit(self, target: int) -> None:
        """The level of credit that is kept from now on; what is beyond it is taken back. At most the
        unsettled limit.

        A drain that is not answered yet ends by it: the sender is told, no CreditDrained follows, and where
        its answer crosses ours the level is restored.
        """
        state = self.flow_state
        draining = state.drain
        target = max(0, min(target, state.unsettled_limit))
        if state.kept and target == state.target and target <= state.outstanding * 2:
            return
        state.kept = True
        state.drain = False
        state.target = target
        if self.state is _ATTACHED:
            room = self._room()
            if draining or room != state.outstanding:
                self._send_flow(room, False)

    def renews_no_more(self) -> None:
        """Credit is given by hand (`flow`) from now on; what the sender has stays."""
        self.flow_state.kept = False

    def flow(
        self, credit: int, drain: bool = False, echo: bool = False, properties: dict[str, Any] | None = None
    ) -> None:
        """Gives exactly this credit, once; `drain` asks the sender to use it up or give it back
        (CreditDrained).

        `properties` are those of the flow: `{"txn-id": ...}` makes what the sender acquires for this credit
        part of the transaction (4.4.3).
        """
        state = self.flow_state
        state.kept = False
        state.drain = drain
        if self.state is _ATTACHED or self.state is LinkState.ATTACH_SENT:
            self._send_flow(credit, echo, properties)

    def processed(self, count: int) -> None:
        """The caller is done with `count` of the deliveries it was given: credit and session window are
        renewed.
        """
        state = self.flow_state
        count = min(count, state.unprocessed)
        state.unprocessed -= count
        self.session.held -= count
        if self.state is _ATTACHED:
            self.renew()
        self._decided()

    def renew(self) -> None:
        """Sends a flow when less than half of the credit or of the session window is left. For want of
        memory credit is taken back.
        """
        flow = self.flow_state
        attached = self.state is _ATTACHED
        if self.keeps_messages and self.session.account.pressed:
            if attached and flow.kept and flow.outstanding > 0:
                self._send_flow(0, False)
            else:
                self.session.renew_window()
        elif attached and flow.renewable():
            self._send_flow(flow.room(), False)
        else:
            self.session.renew_window()

    def _room(self) -> int:
        """What the level of credit allows to give now."""
        return 0 if self.keeps_messages and self.session.account.pressed else self.flow_state.room()

    def undecided(self) -> bool:
        """Whether the caller has deliveries that it is not done with, or gave no outcome."""
        if self.partial is not None:
            self._lose(self.partial)
            self._abort(self.partial)
        return self.flow_state.unprocessed > 0 or self.flow_state.unsettled > len(self._awaiting)

    def tell_leaving(self) -> None:
        """Tells the caller, once, that the peer has left and our answer waits."""
        if not self.session.owed(self):
            self.session.connection.events.tell(LinkLeaving(self))

    def _decided(self) -> None:
        """Something was: the answer that waited for the last of it can go out."""
        if self.session.owed(self) and not self.undecided():
            if self.leaving is not None:
                self.answer_detach()
            else:
                self.session.link_decided(self)

    def settle(self, deliveries: list[Delivery], state: Any) -> None:
        """Gives `deliveries` the outcome `state`: one disposition for each range of consecutive delivery-ids
        (2.7.6).

        Settled in mode first; in mode second unsettled, and DeliveriesSettled follows. What the sender
        settled is passed over, and so is everything once the link is gone.
        """
        if not deliveries or not self.may_settle():
            return
        encoded = encode_state(state)
        if self.settles_first():
            self.session.settle_first([delivery.delivery_id for delivery in deliveries], encoded)
            return
        first = [delivery.delivery_id for delivery in deliveries if delivery.rcv_settle_mode != _SECOND]
        if first:
            self.session.settle_first(first, encoded)
        self._settle_second(
            [delivery for delivery in deliveries if delivery.rcv_settle_mode == _SECOND], state, encoded
        )

    def reject(self, deliveries: list[Delivery], error: Error, txn_id: bytes | None = None) -> None:
        """Our own refusal of these messages, provisionally where it names a transaction: settles as `settle`
        does, and is counted.
        """
        state: Any = Rejected(error=error)
        if self.may_settle():
            self.session.connection.settings.refusals.told(error.condition, len(deliveries))
        self.settle(deliveries, state if txn_id is None else TransactionalState(txn_id=txn_id, outcome=state))

    def settles_first(self) -> bool:
        """Whether it settles whatever comes on it with the outcome."""
        return self.rcv_settle_mode != _SECOND

    def may_settle(self) -> bool:
        """Whether outcomes can still be told on it."""
        return self.state is _ATTACHED or self.leaving is not None

    def settle_later(self, deliveries: list[Delivery], state: Any) -> None:
        """Settle these deliveries as `settle` does, with the next `settle_deferred`; equal states of
        neighbours go into one range.

        By itself this happens before the end of the link, and when the sender's flow drains or asks for an
        echo.
        """
        if self.session.owed(self):
            self.settle(deliveries, state)  # the answer to a detach, end or close waits for it
        elif self._deferred and self._deferred[-1][1] == state:
            self._deferred[-1][0].extend(deliveries)
        else:
            self._deferred.append((list(deliveries), state))

    def settle_deferred(self) -> None:
        """Tells what waits; nothing happens when nothing does."""
        if self._deferred:
            deferred, self._deferred = self._deferred, []
            for deliveries, state in deferred:
                self.settle(deliveries, state)

    def dispose(self, deliveries: list[Delivery], state: Any, settled: bool) -> None:
        """Tells `state` for `deliveries`, settled or not whatever the settle mode: a transaction controller
        keeps what it retires unsettled until the discharge (4.4.2).

        Unsettled ones may be told again; DeliveriesSettled follows when the sender settles them.
        """
        if not deliveries or not self.may_settle():
            return
        encoded = encode_state(state)
        if settled:
            self.session.settle_first([delivery.delivery_id for delivery in deliveries], encoded)
        else:
            self._settle_second(deliveries, state, encoded)

    def awaits(self, delivery: Delivery) -> bool:
        """Whether it has its outcome, and the sender has not settled it yet (mode second, 2.6.12)."""
        return self.session.number_of(delivery.delivery_id) in self._awaiting

    # --- for the session

    def on_attach(self, attach: Attach, ours: bool) -> None:
        """The sender's attach; `ours` tells that it answers ours. Its source and settle mode are
        authoritative.
        """
        self.attach_received(attach)
        self.source = attach.source
        self.snd_settle_mode = attach.snd_settle_mode
        if not ours:
            self.target = attach.target
            self.rcv_settle_mode = attach.rcv_settle_mode
        self.flow_state.start(attach.initial_delivery_count or 0)

    def limit_messages(self, max_message_size: int | None) -> None:
        """How large a message may be, before our attach says so; never beyond our own limit."""
        limit = self.session.limits.max_message_bytes
        self.max_message_size = limit if max_message_size is None else min(limit, max_message_size)

    def accepted(self, credit: int) -> None:
        """Our attach is out: the sender gets its credit."""
        self.set_credit(credit)

    def on_flow(self, delivery_count: int, available: int) -> None:
        """The sender's flow."""
        state = self.flow_state
        self.available = max(0, available)
        if delivery_count >= 0:
            state.flow_received(delivery_count)
        if state.drain and state.outstanding == 0:
            state.drain = False
            self.session.connection.events.tell(CreditDrained(self))
        elif state.renewable():
            self.renew()  # the sender gave credit back that we want kept

    def on_transfer(self, head: TransferHead, payload: bytes, state: object) -> Delivery | None:
        """One transfer; the delivery when it is complete. Raises RemoteProtocolError."""
        partial = self.partial
        if partial is None:
            partial = self._begin(head)
        else:
            self._check_continuation(partial, head)
            if state is not None:
                _check_transaction(partial, state)
        self.partial = partial
        if head.settled == 1 and not partial.sent_settled:
            partial.sent_settled = True
            if not partial.settled:
                partial.settled = True
                self._forget(partial.number)
        if head.batchable:
            partial.batchable = True
        if state is not None:
            partial.state = state
        if head.aborted:
            if self._resumes(partial):
                self._release(partial)
                if not partial.settled:
                    self._forget(partial.number)
                self._tell_resumed(partial, b"", True)
            else:
                self._abort(partial)
            return None
        self._check_size(partial, payload)
        if not head.more:
            return self._complete(partial, payload)
        self._keep(partial, payload)
        return None

    def _keep(self, partial: PartialDelivery, payload: bytes) -> None:
        """A part of it that is not the last one. Raises a link error where there is no room for it."""
        session = self.session
        size = len(payload)
        if not session.partial_bytes.take(size):
            raise link_error(
                RESOURCE_LIMIT_EXCEEDED,
                f"incomplete deliveries take all of the {session.partial_bytes.limit_bytes} octets that are "
                f"set aside for them (limits.partial_deliveries_bytes)",
                "partial_deliveries_bytes",
            )
        if not session.account.take(size + CHUNK_BYTES):
            session.partial_bytes.give_back(size)
            raise link_error(
                RESOURCE_LIMIT_EXCEEDED, no_memory(session.account, f"delivery {partial.delivery_id}"),
                "memory_bytes",
            )
        partial.chunks.append(payload)
        partial.kept_chunks += 1
        partial.size_bytes += size
        partial.last_at = session.connection.now
        session.connection.partial_links.add(self)
        large = partial.size_bytes > self.stream_bytes or partial.stream is not None
        if large and self.stream_bytes and not partial.told and not partial.resumed:
            partial.told = True
            session.connection.events.tell(PartReceived(self, partial))

    def take_parts(self, partial: PartialDelivery, stream: Any) -> list[bytes]:
        """What came so far of the delivery that is incomplete, and was not taken before; it is the caller's
        memory from now on. `stream` is what the caller makes of it. PartReceived tells when more has come.
        """
        assert self.partial is partial, "the delivery is over"
        chunks = partial.chunks
        partial.taken_bytes += partial.size_bytes
        self._give_memory_back(partial)
        partial.chunks = []
        partial.stream = stream
        partial.told = False
        return chunks

    def sender_settled(self, first: int, last: int) -> None:
        """The sender settled the deliveries from `first` to `last` (numbers), which were unsettled here."""
        self.flow_state.unsettled -= last - first + 1
        partial = self.partial
        if partial is not None and first <= partial.number <= last:
            partial.settled = True
        known: list[Delivery] = []
        if self._awaiting:
            for number in range(first, last + 1):
                delivery = self._awaiting.pop(number, None)
                if delivery is not None:
                    known.append(delivery)
        if known:
            self.session.connection.events.tell(DeliveriesSettled(self, known))
        self.renew()

    # --- parts

    def _begin(self, head: TransferHead) -> PartialDelivery:
        """The first transfer of a delivery: takes a delivery-id and a credit."""
        number = self.session.take_delivery_id(head.delivery_id, self)
        flow = self.flow_state
        if self.incomplete and not head.resume:
            raise link_error(
                NOT_ALLOWED,
                f"delivery {head.delivery_id} is a new one, but our unsettled map was incomplete: only "
                f"deliveries that are resumed may come before the link was detached and resumed once more "
                f"(2.7.3)",
            )
        if flow.acceptable() <= 0:
            raise link_error(
                TRANSFER_LIMIT_EXCEEDED,
                f"delivery {head.delivery_id} on link {self.name[:64]!r}, but its credit is used up: "
                f"the delivery-limit is {flow.allowed & 0xFFFFFFFF}",
            )
        if head.delivery_tag is None or len(head.delivery_tag) > 32:
            raise link_error(
                INVALID_FIELD,
                f"the first transfer of delivery {head.delivery_id} needs a delivery-tag (2.7.5)",
            )
        mode = self.rcv_settle_mode if head.rcv_settle_mode < 0 else head.rcv_settle_mode
        if mode > self.rcv_settle_mode and head.settled != 1:
            raise link_error(
                INVALID_FIELD,
                f"rcv-settle-mode {mode} on a transfer, but the link's is {self.rcv_settle_mode} (2.7.5)",
            )
        settled = head.settled == 1
        partial = PartialDelivery(number, head.delivery_tag, max(0, head.message_format), mode)
        partial.settled = partial.sent_settled = settled
        partial.resumed = head.resume
        partial.begun_at = partial.last_at = self.session.connection.now
        flow.received(1, 0 if settled else 1)
        self.session.held += 1
        if not settled:
            self.session.unsettled_in.add(number, number, self)
        return partial

    def _check_continuation(self, partial: PartialDelivery, head: TransferHead) -> None:
        """A later transfer may leave out what the first one said, and not say something else: "It is an error
        if the delivery-tag on a continuation transfer differs from the delivery-tag on the first transfer of
        a delivery", and so for delivery-id and message-format (2.7.5). Raises a link error.
        """
        number = partial.delivery_id
        if head.delivery_id >= 0 and head.delivery_id != number:
            wrong = f"delivery-id {head.delivery_id}"
        elif head.delivery_tag is not None and head.delivery_tag != partial.delivery_tag:
            wrong = f"delivery-tag {head.delivery_tag[:32].hex()} instead of {partial.delivery_tag.hex()}"
        elif head.message_format >= 0 and head.message_format != partial.message_format:
            wrong = f"message-format {head.message_format} instead of {partial.message_format}"
        elif head.settled == 0 and partial.sent_settled:
            # Unset it would mean true here (2.7.5): who says false waits for an outcome that never comes.
            wrong = "settled false after settled true"
        else:
            return
        raise link_error(
            INVALID_FIELD,
            f"{wrong} on link {self.name[:64]!r} while delivery {number} is incomplete: a link sends one "
            f"delivery at a time, and its later transfers say what the first one said (2.7.5)",
        )

    def _check_size(self, partial: PartialDelivery, payload: bytes) -> None:
        limit = self.max_message_size
        if limit and partial.taken_bytes + partial.size_bytes + len(payload) > limit:
            raise link_error(
                MESSAGE_SIZE_EXCEEDED,
                f"delivery {partial.delivery_id} has more than {limit} octets, the link's max-message-size "
                f"(limits.max_message_size_bytes, or ring_bytes of its [[queue]])",
            )

    def check_settled(self, settled: bool) -> None:
        """A complete delivery has to keep the negotiated snd-settle-mode (2.7.5)."""
        if self.snd_settle_mode == _SETTLED_BY_SENDER and not settled:
            raise link_error(NOT_ALLOWED, "an unsettled delivery, but the link's snd-settle-mode is settled")
        if self.snd_settle_mode == _UNSETTLED_BY_SENDER and settled:
            raise link_error(NOT_ALLOWED, "a settled delivery, but the link's snd-settle-mode is unsettled")

    def _complete(self, partial: PartialDelivery, payload: bytes) -> Delivery | None:
        if partial.chunks:
            partial.chunks.append(payload)
            payload = b"".join(partial.chunks)
        if partial.resumed:
            if self._resumes(partial):
                self._release(partial)
                self._tell_resumed(partial, payload, False)
            else:
                self._lose(partial)
                # 2.7.5: the receiver MUST ignore resumed deliveries that are not in its local unsettled map.
                self._abort(partial)
            return None
        self.check_settled(partial.settled)
        self._release(partial)
        if partial.stream is not None:
            delivery = _delivery_of(partial, payload)
            self.session.connection.events.tell(StreamReceived(self, delivery, partial.stream))
            return None
        return _delivery_of(partial, payload)

    def _resumes(self, partial: PartialDelivery) -> bool:
        """Whether it is one that our attach said to be unsettled here."""
        known = self.unsettled_map
        return partial.resumed and known is not None and partial.delivery_tag in known

    def _tell_resumed(self, partial: PartialDelivery, payload: bytes, aborted: bool) -> None:
        """The caller, who answers it; resumed once more on this link, it would be ignored."""
        assert self.unsettled_map is not None, "it was in there"
        del self.unsettled_map[partial.delivery_tag]
        event = DeliveryResumed(self, _delivery_of(partial, payload), aborted)
        self.session.connection.events.tell(event)

    def _lose(self, partial: PartialDelivery) -> None:
        """Nobody will be given this delivery: the transaction that it names has to know."""
        txn_id = txn_id_of(partial.state)
        if txn_id is not None and self.session.settings.server:
            part = f"delivery {partial.delivery_id} on link {self.name[:64]!r}"
            events = self.session.connection.events
            events.tell(WorkLost(txn_id, part, "it did not come to its end on this link"))

    def _abort(self, partial: PartialDelivery) -> None:
        """The delivery will not be given to the caller; an aborted one is implicitly settled (2.7.5)."""
        self._release(partial)
        if not partial.settled:
            self._forget(partial.number)
        if partial.stream is not None:
            self.session.connection.events.tell(StreamLost(self, partial.stream))
        self.processed(1)

    def _release(self, partial: PartialDelivery) -> None:
        """The delivery is not in progress any more: its memory is given back."""
        self._give_memory_back(partial)
        partial.chunks = []
        self.session.connection.partial_links.discard(self)
        self.partial = None

    def _give_memory_back(self, partial: PartialDelivery) -> None:
        if partial.kept_chunks:
            self.session.partial_bytes.give_back(partial.size_bytes)
            self.session.account.give_back(partial.size_bytes + partial.kept_chunks * CHUNK_BYTES)
            partial.size_bytes = partial.kept_chunks = 0

    def _forget(self, number: int) -> None:
        for _ in self.session.unsettled_in.take(number, number):
            self.flow_state.unsettled -= 1

    def forget_awaited(self, first: int, last: int) -> None:
        """The deliveries with these numbers are settled: nobody waits for their sender to do so."""
        if self._awaiting:
            for number in range(first, last + 1):
                self._awaiting.pop(number, None)

    def _settle_second(self, deliveries: list[Delivery], state: Any, encoded: bytes) -> None:
        session = self.session
        by_number = {}
        for delivery in deliveries:
            by_number[session.number_of(delivery.delivery_id)] = delivery
            delivery.state = state
        for first, last in runs_of([delivery.delivery_id for delivery in deliveries], session.next_delivery):
            for found_first, found_last, link in session.unsettled_in.find(first, last):
                assert link is self, "a link settles its own deliveries only"
                for number in range(found_first, found_last + 1):
                    self._awaiting[number] = by_number[number]
                session.send_disposition(RECEIVER, found_first, found_last, False, encoded)
        self._decided()

    def count_settled(self, settled: int) -> None:
        """So many of its deliveries were settled by us."""
        flow = self.flow_state
        short = flow.unsettled_limit - flow.unsettled < flow.target - flow.unprocessed
        flow.unsettled -= settled
        if short and self.state is _ATTACHED:
            self.renew()
        self._decided()

    def _send_flow(self, credit: int, echo: bool, properties: dict[str, Any] | None = None) -> None:
        flow = self.flow_state
        flow.grant(credit)
        count = flow.delivery_count & 0xFFFFFFFF if self.remote_attach is not None else -1
        self.session.send_flow(
            link_fields(self.handle, count, credit, drain=flow.drain, echo=echo, properties=properties)
        )

    def answer_echo(self) -> None:
        """Tells our flow state because the peer asked (2.7.4)."""
        self._send_flow(self.flow_state.outstanding, False)

    def _drop(self) -> list[OutgoingDelivery]:
        flow = self.flow_state
        if self.partial is not None:
            self._lose(self.partial)
            self._release(self.partial)
        self.session.unsettled_in.drop_link(self)
        self.session.held -= flow.unprocessed
        flow.unprocessed = 0
        flow.unsettled = 0
        self._awaiting.clear()
        self._deferred.clear()
        self.layout = None
        return []


def _delivery_of(partial: PartialDelivery, payload: bytes) -> Delivery:
    return Delivery(
        partial.delivery_id, partial.delivery_tag, partial.message_format, partial.settled, payload,
        partial.state, partial.rcv_settle_mode, partial.batchable,
    )  # fmt: skip


def _check_transaction(partial: PartialDelivery, state: object) -> None:
    """A later transfer with a state. Raises a link error when it is of another transaction.

    "Note that if delivery is split across several `transfer` frames then all frames MUST be explicitly
    associated with the same transaction" (4.4.1): what begins outside of a transaction cannot join one later.
    A later transfer without a state is taken, as "the state of the delivery (not the transfer)" (2.7.5)
    stays what it was.
    """
    before = txn_id_of(partial.state)
    after = txn_id_of(state)
    if before != after:
        raise link_error(
            NOT_ALLOWED,
            f"a transfer of delivery {partial.delivery_id} is in {_transaction(after)}, "
            f"but its first one was in {_transaction(before)} (4.4.1)",
        )


def _transaction(txn_id: bytes | None) -> str:
    """In words, shortened to what a txn-id may have."""
    return "no transaction" if txn_id is None else f"transaction {txn_id[:32].hex()}"
