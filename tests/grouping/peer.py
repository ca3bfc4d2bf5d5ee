"""A client that is nothing but frames: it writes what it is told, waits for nothing, and records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    Begin,
    Coordinator,
    Declared,
    Described,
    Disposition,
    Modified,
    Rejected,
    Released,
    Source,
    Symbol,
    Target,
    TransactionalState,
)
from amqp_broker.testing.blocking_peer import ConnectionLost
from amqp_broker.testing.peer import PeerReceiver, PeerSender, PeerSession, ids_of
from tests.support.controllers import ALL_OUTCOMES
from tests.support.jumping_broker import JumpingBroker, JumpingPeer

Link = PeerSender | PeerReceiver
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


def end_of(link: Link) -> str | None:
    """How the broker detached a link: a condition, or an empty string; None as long as it has not."""
    if link.detached is None:
        return None
    return "" if link.detached.error is None else link.detached.error.condition


class Peer(JumpingPeer):
    """One connection with one session. It sends without credit, too, and an error is recorded."""

    checks_credit = raises_errors = False

    def __init__(self, broker: JumpingBroker) -> None:
        super().__init__(broker)
        self.links: dict[str, Link] = {}
        """All that were attached, by name."""
        self.answers: dict[int, list[str]] = {}
        """What became of our deliveries, by delivery-id; a settled state ends with `!`."""
        self.told: dict[int, list[str]] = {}
        """What we were told of deliveries to us, after an outcome of ours."""
        self.declared: dict[int, bytes] = {}
        self.forgotten: set[int] = set()
        """Deliveries that we have settled, of which we need not be told anything."""
        self.gone = False
        """We have ended the session or closed the connection."""
        self.lost = False
        self.session: PeerSession

    def introduce(self, name: str) -> None:
        """Put what comes before all links."""
        self.open(name)
        self.session = self.begin()

    def pump_until(self, reached: Callable[[], object], timeout: float | None = None) -> None:
        """Nothing is waited for."""

    def make_session(self, channel: int, begin: Begin) -> PeerSession:
        """One that records in words."""
        return Session(self, channel, begin)

    @property
    def ended(self) -> str | None:
        """How the broker ended the session or the connection: a condition, or an empty string."""
        end = self.session.ended or self.closed
        if end is None:
            return None
        return "" if end.error is None else end.error.condition

    # Writing

    def flush(self) -> None:
        """One write, which is one read of the broker."""
        try:
            if not self.lost:
                super().flush()
        except ConnectionLost:
            self.lost = True

    def attach_sender(self, name: str, address: str | None, *, properties: Any = None) -> Link:
        """Attach a sender; without an address to the coordinator, with an empty one to the anonymous
        terminus.
        """
        link = self.links[name] = self.session.attach_sender(
            name, None, source=Source(outcomes=ALL_OUTCOMES), properties=properties,
            target=Coordinator() if address is None else Target(address=address or None),
        )  # fmt: skip
        return link

    def attach_receiver(
        self, name: str, address: str | None, *, credit: int = 0, settled: bool = False, copy: bool = False,
        dynamic: bool = False, selector: str = "",
    ) -> PeerReceiver:  # fmt: skip
        """Attach a receiver, with credit, and perhaps with a selector."""
        source = Source(address=address, dynamic=dynamic, distribution_mode="copy" if copy else None)
        if selector:
            source.filter = {"selector": Described(Symbol("apache.org:selector-filter:string"), selector)}
        link = self.links[name] = self.session.attach_receiver(
            name, address, credit=credit, source=source, snd_settle_mode=1 if settled else 2
        )
        return link

    def attach_subscriber(self, key: str, name: str, source: Source | None, credit: int) -> PeerReceiver:
        """Attach a link called `name` to a subscription, or (None) to the one that its name had; `key` finds
        it among `links`.
        """
        shared = ("shared",) if "|" in name else None
        link = self.links[key] = self.session.attach_receiver(
            name, None, credit=credit, source=source, desired_capabilities=shared
        )
        return link

    def send(self, link: Link, payload: bytes, *, settled: bool, txn_id: bytes | None = None) -> int:
        """One delivery; its delivery-id."""
        assert isinstance(link, PeerSender)
        number = link.send(payload, settled=settled, txn_id=txn_id)
        if not settled:
            self.answers[number] = []
        return number

    # Reading

    def hear(self) -> None:
        """Record what came, until the connection is over."""
        try:
            if not self.lost:
                super().hear()
        except ConnectionLost:
            self.lost = True

    def leave(self) -> None:
        """The wire breaks."""
        self.lost = True
        self.abort()


class Session(PeerSession):
    """The session of such a connection."""

    def __init__(self, peer: Peer, channel: int, begin: Begin) -> None:
        super().__init__(peer, channel, begin)
        self._peer = peer

    def on_disposition(self, disposition: Disposition) -> None:
        """Each word of the broker, also a second one about what is settled."""
        super().on_disposition(disposition)
        word = word_of(disposition.state) + ("!" if disposition.settled else "")
        for number in ids_of(disposition):
            if disposition.role != RECEIVER:
                self._peer.told.setdefault(number, []).append(word)
                continue
            if number in self._peer.answers:
                self._peer.answers[number].append(word)
            if isinstance(disposition.state, Declared):
                self._peer.declared[number] = disposition.state.txn_id
