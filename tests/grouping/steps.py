"""What programs are made of: steps as values, and the frames that each of them is on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    AmqpValue,
    Close,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Header,
    Modified,
    Properties,
    Rejected,
    Released,
    TransactionalState,
    Uint,
    Ulong,
    encode_message,
)
from amqp_broker.testing.peer import PeerReceiver
from tests.support.half_sets import checksum, commit_of, request, seal_of, void_of
from tests.support.halves import half, resolution
from tests.support.sequenced import annotated
from tests.support.topics import durable, selector, shared, shared_durable, topic

if TYPE_CHECKING:
    from tests.grouping.peer import Link, Peer
    from tests.grouping.stage import Stage

OUTCOMES: Final[dict[str, Any]] = {
    "accepted": Accepted(),
    "rejected": Rejected(),
    "released": Released(),
    "modified": Modified(delivery_failed=True),
    "modified-here": Modified(delivery_failed=True, undeliverable_here=True),
}
KINDS: Final[dict[str, Any]] = {
    "link": topic,
    "durable": durable,
    "shared": shared,
    "shared-durable": shared_durable,
}
"""Of subscriptions."""
GROUP: Final = "g"
PRODUCER: Final = "p"


def payload_of(spec: tuple[Any, ...], stage: Stage, peer: Peer) -> bytes | None:
    """The message that a step describes; None if it names a transaction or a link that there is not."""
    kind, *rest = spec
    if kind == "discharge":
        txn_id = stage.txns.get(rest[0])
        if txn_id is None:
            return None
        return encode_message(body=AmqpValue(Discharge(txn_id=txn_id, fail=rest[1])))
    if kind == "cursor":
        return _cursor(peer, *rest)
    made: bytes = PAYLOADS[kind](*rest)
    return made


def _plain(body: str, durable: bool, ttl: int | None = None) -> bytes:
    return encode_message(header=Header(durable=durable, ttl=ttl), body=body.encode())


def _named(message_id: str, body: str, durable: bool) -> bytes:
    return encode_message(
        header=Header(durable=durable), properties=Properties(message_id=message_id), body=body.encode()
    )


def _keyed(key: str, body: str, durable: bool) -> bytes:
    named = {KEY: key} if key else None
    return encode_message(header=Header(durable=durable), application_properties=named, body=body.encode())


def _addressed(address: str, body: str) -> bytes:
    return encode_message(header=Header(durable=True), properties=Properties(to=address), body=body.encode())


def _half(half_id: str, body: str, first_check_ms: int | None = None) -> bytes:
    named = None if first_check_ms is None else {"half_first_check_ms": Uint(first_check_ms)}
    return half(half_id, body.encode(), named=named)


def _row(body: str) -> bytes:
    return encode_message(body=body.encode())


def _seal(set_id: str, epoch: int, bodies: tuple[str, ...]) -> bytes:
    return seal_of(set_id, len(bodies), checksum(*[_row(body) for body in bodies]), epoch=epoch)


def _commit_epoch(epoch: int, sets: tuple[tuple[str, tuple[str, ...]], ...]) -> bytes:
    winners = [(name, len(bodies), checksum(*[_row(body) for body in bodies])) for name, bodies in sets]
    return commit_of(*winners, epoch=epoch)


def _sequenced(seq_id: int, number: int, prev: int) -> bytes:
    return annotated((seq_id, number, prev))


def _cursor(
    peer: Peer, operation: str, name: str, positions: tuple[tuple[str, int], ...], replies: str = ""
) -> bytes | None:
    if not replies and "replies" not in peer.links:
        return None
    body: dict[str, Any] = {"cursor": name}
    if operation == "move":
        body["positions"] = {address: Ulong(offset) for address, offset in positions}
    if operation == "hold":
        body["start"] = {address: Ulong(offset) for address, offset in positions}
    replies = replies or peer.links["replies"].address
    return request(operation, body, reply_to=replies, correlation_id=operation)


KEY: Final = "key"
PAYLOADS: Final[dict[str, Any]] = {
    "plain": _plain,
    "named": _named,
    "keyed": _keyed,
    "addressed": _addressed,
    "half": _half,
    "resolve": lambda half_id, verdict: resolution(half_id, verdict),
    "row": _row,
    "seal": _seal,
    "commit-epoch": _commit_epoch,
    "void": lambda *set_ids: void_of(*set_ids),
    "sequenced": _sequenced,
    "declare": lambda name: encode_message(body=AmqpValue(Declare())),
}


@attrs.frozen
class Step:
    """One request or event of connection number `who`; -1 is the world: the clock and the disk."""

    who: int

    def put(self, stage: Stage, key: int) -> None:
        """Its frames for the next segment of its connection; nothing if what it names is not there."""
        raise AssertionError("a step says what it puts on the wire")

    def _link(self, stage: Stage, name: str) -> Link | None:
        peer = stage.peers[self.who]
        link = peer.links.get(name)
        return None if peer.gone or link is None or link.detach_sent else link


@attrs.frozen
class AttachSender(Step):
    """A link to an address, or (None) to the coordinator, or (empty) to the anonymous terminus."""

    link: str
    address: str | None
    stream: str | None = None

    def put(self, stage: Stage, key: int) -> None:
        peer = stage.peers[self.who]
        if not peer.gone and self.link not in peer.links:
            address = stage.address(self.address)
            properties = None if self.stream is None else {"seq-stream": self.stream}
            peer.attach_sender(self.link, address, properties=properties)


@attrs.frozen
class AttachReceiver(Step):
    """A link from an address, or (None) from a queue that lives as long as the link."""

    link: str
    address: str | None
    credit: int = 0
    settled: bool = False
    copy: bool = False
    selector: str = ""

    def put(self, stage: Stage, key: int) -> None:
        peer = stage.peers[self.who]
        if not peer.gone and self.link not in peer.links:
            peer.attach_receiver(
                self.link, stage.address(self.address), credit=self.credit, settled=self.settled,
                copy=self.copy, dynamic=self.address is None, selector=self.selector,
            )  # fmt: skip


@attrs.frozen
class Subscribe(Step):
    """A link to a subscription of one of `KINDS` to a topic, or (None) to the durable one that `name` had.
    Several links of a program have one name, one after the other.
    """

    link: str
    name: str
    topic: str | None
    kind: str = "durable"
    credit: int = 0
    selector: str = ""

    def put(self, stage: Stage, key: int) -> None:
        peer = stage.peers[self.who]
        if not peer.gone and self.link not in peer.links:
            source = None
            if self.topic is not None:
                filters = selector(self.selector) if self.selector else None
                source = KINDS[self.kind](self.topic, filter=filters)
            peer.attach_subscriber(self.link, self.name, source, self.credit)


@attrs.frozen
class Send(Step):
    """One message; `message` says what it is (`PAYLOADS`), `txn` the transaction that it is posted in."""

    link: str
    message: tuple[Any, ...]
    settled: bool = False
    txn: str | None = None

    def put(self, stage: Stage, key: int) -> None:
        peer = stage.peers[self.who]
        link = self._link(stage, self.link)
        txn_id = None if self.txn is None else stage.txns.get(self.txn)
        payload = payload_of(self.message, stage, peer)
        if link is None or payload is None or (self.txn is not None and txn_id is None):
            return
        number = peer.send(link, payload, settled=self.settled, txn_id=txn_id)
        stage.sent[key] = (self.who, self.link, number)
        if self.message[0] == "declare":
            stage.declares[(self.who, number)] = self.message[1]


@attrs.frozen
class Settle(Step):
    """An outcome for the deliveries from number `first` to number `last` that arrived on a link."""

    link: str
    first: int
    last: int
    outcome: str
    settled: bool
    txn: str | None = None

    def put(self, stage: Stage, key: int) -> None:
        link = self._link(stage, self.link)
        if not isinstance(link, PeerReceiver) or self.last >= len(link.deliveries):
            return
        peer = stage.peers[self.who]
        state = OUTCOMES[self.outcome]
        numbers = [each.delivery_id for each in link.deliveries][self.first : self.last + 1]
        if self.settled:
            peer.forgotten.update(numbers)
        if self.txn is not None:
            txn_id = stage.txns.get(self.txn)
            if txn_id is None:
                return
            state = TransactionalState(txn_id=txn_id, outcome=state)
        first, last = numbers[0], numbers[-1]
        peer.put(Disposition(role=RECEIVER, first=first, last=last, settled=self.settled, state=state))


@attrs.frozen
class Credit(Step):
    """More credit for a receiving link; in a transaction what is sent for it is acquired in that."""

    link: str
    credit: int
    txn: str | None = None

    def put(self, stage: Stage, key: int) -> None:
        link = self._link(stage, self.link)
        txn_id = None if self.txn is None else stage.txns.get(self.txn)
        if isinstance(link, PeerReceiver) and (self.txn is None or txn_id is not None):
            link.flow(self.credit, txn_id=txn_id)


@attrs.frozen
class Leave(Step):
    """Detach or close a link; without a link end the session, or (`closed`) close the connection."""

    link: str | None
    closed: bool

    def put(self, stage: Stage, key: int) -> None:
        peer = stage.peers[self.who]
        if peer.gone:
            return
        if self.link is not None:
            link = self._link(stage, self.link)
            if link is not None:
                peer.put(Detach(handle=link.handle, closed=self.closed))
            return
        peer.put(Close() if self.closed else End())
        peer.gone = True


@attrs.frozen
class Pass(Step):
    """So many milliseconds pass, by every clock."""

    ms: int

    def put(self, stage: Stage, key: int) -> None:
        stage.jump(self.ms)


@attrs.frozen
class Tick(Step):
    """From now on the wall clock moves on by a millisecond whenever it is read."""

    def put(self, stage: Stage, key: int) -> None:
        stage.ticking = True


@attrs.frozen
class Disk(Step):
    """What there is room for from now on; see `HeldStore.room`."""

    room: str

    def put(self, stage: Stage, key: int) -> None:
        stage.store.room = self.room


__all__ = [
    "AttachReceiver", "AttachSender", "Credit", "Disk", "Leave", "Pass", "Send", "Settle", "Step",
    "Subscribe", "Tick",
]  # fmt: skip
