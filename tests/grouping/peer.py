"""A client that is nothing but frames over a memory stream: it writes what it is told and records."""

from __future__ import annotations

from typing import Any, Final

import attrs
import trio

from amqp_broker.frames import (
    AMQP_HEADER,
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declared,
    Detach,
    Disposition,
    End,
    Flow,
    Frame,
    FrameReader,
    Modified,
    Open,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode_frame,
)

WINDOW: Final = 2**31 - 1
ALL_OUTCOMES: Final = (
    "amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list",
)  # fmt: skip
WORDS: Final[dict[type, str]] = {Accepted: "accepted", Released: "released", Modified: "modified"}


def word_of(state: object) -> str:
    """A delivery state in words that do not depend on times and random names."""
    if isinstance(state, Rejected):
        if state.error is None:
            return "rejected"
        info = {str(key): getattr(value, "value", value) for key, value in (state.error.info or {}).items()}
        told = "".join(f" {key}={info[key]}" for key in sorted(info) if not key.endswith("_at"))
        return f"rejected {state.error.condition}{told}"
    if isinstance(state, TransactionalState):
        return f"provisional {word_of(state.outcome)}"
    if isinstance(state, Declared):
        return "declared"
    return WORDS.get(type(state), repr(state))


@attrs.define
class Arrival:
    """A delivery from the broker; `answers` are what it was told after an outcome of ours."""

    delivery_id: int
    payload: bytes
    settled: bool
    answers: list[str] = attrs.field(factory=list)
    forgotten: bool = False
    """We have settled it, and need not be told anything."""


@attrs.define
class Link:
    """One of our link endpoints."""

    name: str
    handle: int
    sends: bool
    gone: bool = False
    """We have detached it, or ended what it is on."""
    ended: str | None = None
    """How the broker detached it: a condition, or an empty string."""
    address: str = ""
    credit: int = 0
    delivery_count: int = 0
    arrivals: list[Arrival] = attrs.field(factory=list)
    partial: Arrival | None = None

    @property
    def checks(self) -> bool:
        """Whether the broker asks about half messages on it."""
        return self.address.startswith("$half-check/")


class Peer:
    """One connection with one session."""

    def __init__(self, name: str, stream: trio.abc.Stream) -> None:
        self.name = name
        self._stream = stream
        self._reader = FrameReader(2**20)
        self._reader.expect_header()
        self._output = [
            AMQP_HEADER,
            encode_frame(0, Open(container_id=name, max_frame_size=65_536)),
            encode_frame(0, Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW)),
        ]
        self.links: dict[str, Link] = {}
        self._by_remote_handle: dict[int, Link] = {}
        self._arrivals: dict[int, Arrival] = {}
        self.answers: dict[int, list[str]] = {}
        """What became of our deliveries, by delivery id; a settled state ends with `!`."""
        self.declared: dict[int, bytes] = {}
        self.next_delivery_id = 0
        self._next_incoming_id = 0
        self.gone = False
        """We have ended the session or closed the connection."""
        self.ended: str | None = None
        """How the broker ended the session or the connection."""
        self.lost = False

    # Writing

    def put(self, performative: object, payload: bytes = b"") -> None:
        """A frame for the next segment."""
        self._output.append(encode_frame(0, performative, payload))

    async def flush(self) -> None:
        """One write, which is one read of the broker."""
        data = b"".join(self._output)
        self._output.clear()
        if data and not self.lost:
            try:
                await self._stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self.lost = True

    def attach_sender(self, name: str, address: str | None, *, properties: Any = None) -> Link:
        """Attach a sender; without an address to the coordinator, with an empty one to the anonymous
        terminus.
        """
        target: Target | Coordinator = Coordinator() if address is None else Target(address=address or None)
        link = self.links[name] = Link(name, len(self.links), sends=True)
        self.put(
            Attach(
                name=name, handle=link.handle, role=SENDER, source=Source(outcomes=ALL_OUTCOMES),
                target=target, initial_delivery_count=0, properties=properties,
            )
        )  # fmt: skip
        return link

    def attach_receiver(
        self, name: str, address: str | None, *, credit: int = 0, settled: bool = False, copy: bool = False,
        dynamic: bool = False, filters: Any = None,
    ) -> Link:  # fmt: skip
        """Attach a receiver, with credit."""
        link = self.links[name] = Link(name, len(self.links), sends=False)
        source = Source(
            address=address, dynamic=dynamic, distribution_mode="copy" if copy else None, filter=filters
        )
        self.put(
            Attach(
                name=name, handle=link.handle, role=RECEIVER, source=source, target=Target(),
                snd_settle_mode=1 if settled else 2,
            )
        )  # fmt: skip
        if credit:
            self.flow(link, credit)
        return link

    def flow(self, link: Link, credit: int, *, drain: bool = False, txn_id: bytes | None = None) -> None:
        """Give credit, in a transaction if there is a txn-id."""
        link.credit = credit
        self.put(
            Flow(
                next_incoming_id=self._next_incoming_id, incoming_window=WINDOW, next_outgoing_id=0,
                outgoing_window=WINDOW, handle=link.handle, delivery_count=link.delivery_count,
                link_credit=credit, drain=drain, properties=None if txn_id is None else {"txn-id": txn_id},
            )
        )  # fmt: skip

    def send(self, link: Link, payload: bytes, *, settled: bool, txn_id: bytes | None = None) -> int:
        """One delivery in one frame; its delivery id."""
        number = self.next_delivery_id
        self.next_delivery_id += 1
        if not settled:
            self.answers[number] = []
        state = None if txn_id is None else TransactionalState(txn_id=txn_id)
        self.put(
            Transfer(
                handle=link.handle, delivery_id=number, delivery_tag=number.to_bytes(4, "big"),
                message_format=0, settled=settled, state=state,
            ),
            payload,
        )  # fmt: skip
        return number

    # Reading

    async def read(self) -> None:
        """Record what comes, until the connection is over."""
        try:
            while data := await self._stream.receive_some():
                self._reader.feed(bytes(data))
                while (frame := self._reader.next()) is not None:
                    if isinstance(frame, Frame) and frame.performative is not None:
                        self._handle(frame.performative, frame.payload)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self.lost = True

    def _handle(self, performative: object, payload: bytes) -> None:
        if isinstance(performative, Disposition):
            self._disposition(performative)
        elif isinstance(performative, Transfer):
            self._transfer(performative, payload)
        elif isinstance(performative, Attach):
            link = self.links[performative.name]
            self._by_remote_handle[performative.handle] = link
            terminus: Any = performative.target if link.sends else performative.source
            link.address = str(getattr(terminus, "address", "") or "")
        elif isinstance(performative, Detach):
            link = self._by_remote_handle.pop(performative.handle)
            link.ended = "" if performative.error is None else performative.error.condition
        elif isinstance(performative, End | Close):
            if self.ended is None:
                self.ended = "" if performative.error is None else performative.error.condition

    def _disposition(self, told: Disposition) -> None:
        word = word_of(told.state) + ("!" if told.settled else "")
        for number in range(told.first, (told.first if told.last is None else told.last) + 1):
            if told.role == RECEIVER:
                if number in self.answers:
                    self.answers[number].append(word)
                if isinstance(told.state, Declared):
                    self.declared[number] = told.state.txn_id
            elif number in self._arrivals:
                self._arrivals[number].answers.append(word)

    def _transfer(self, transfer: Transfer, payload: bytes) -> None:
        self._next_incoming_id += 1
        link = self._by_remote_handle[transfer.handle]
        arrival = link.partial
        if arrival is None:
            assert transfer.delivery_id is not None
            arrival = Arrival(transfer.delivery_id, b"", bool(transfer.settled))
            link.delivery_count += 1
            link.credit -= 1
        arrival.payload += payload
        link.partial = arrival if transfer.more else None
        if not transfer.more:
            link.arrivals.append(arrival)
            self._arrivals[arrival.delivery_id] = arrival

    async def leave(self) -> None:
        """The wire breaks."""
        self.lost = True
        await trio.aclose_forcefully(self._stream)
