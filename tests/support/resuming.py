"""Programs that resume their links after any loss of the connection: the exactly-once dialogue of 2.6.12,
and unsettled maps as the standard has them. Frames by hand, so that a mistake of our engine does not meet
itself.

What a program knows outlives its connections: `Producer.unsettled`, `Consumer.unsettled`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from amqp_broker.frames import SENDER, Accepted, Disposition, Source, Target
from amqp_broker.links import Resumption, resumption_of
from amqp_broker.testing.peer import PeerReceiver, PeerSender, PeerSession
from tests.support.broker_clients import body_of, message

SECOND: Final = 1
LASTING: Final[dict[str, Any]] = {"expiry_policy": "connection-close", "timeout": 600}
DURABLE: Final[dict[str, Any]] = {**LASTING, "durable": 2}
"""With its unsettled state (3.5.5)."""
OUTCOME: Final = Accepted()
FRAME_OCTETS: Final = 400
UNDER_WAY: Final = 5


class Producer:
    """Sends `bodies`, each once. `unsettled` are those that may be there or not, by delivery-tag."""

    def __init__(
        self, address: str, bodies: list[bytes], name: str = "producer", *,
        lasting: dict[str, Any] = LASTING, **fields: Any,
    ) -> None:  # fmt: skip
        self.address = address
        self.name = name
        self.bodies = bodies
        self.lasting = lasting
        self.fields = fields
        self.unsettled: dict[bytes, bytes] = {}
        self.settled = 0
        self.resumed = 0
        self._next_tag = 0
        self._ids: dict[int, bytes] = {}

    @property
    def done(self) -> bool:
        """Whether everything is settled."""
        return not self.bodies and not self.unsettled

    def attach(self, session: PeerSession) -> PeerSender:
        """Attach the link, and resume what is unsettled."""
        self._ids = {}
        link = session.attach_sender(
            self.name, self.address, target=Target(address=self.address, **self.lasting),
            rcv_settle_mode=SECOND, unsettled=dict.fromkeys(self.unsettled), **self.fields,
        )  # fmt: skip
        return link

    def resume(self, link: PeerSender) -> None:
        """Compare the maps, and resume by the table."""
        attach = link.remote_attach
        assert attach is not None
        assert not attach.incomplete_unsettled
        theirs = attach.unsettled or {}
        ours: dict[bytes, Any] = dict.fromkeys(self.unsettled)
        for tag in theirs:
            assert tag in ours, "what only the target has unsettled it considers settled"
        for tag in list(ours):
            link.session.connection.pump_until(lambda: link.may_send)
            what = resumption_of(ours, theirs, tag)
            if what is Resumption.TELL:
                self.resumed += 1
                link.send(b"", delivery_tag=tag, resume=True, settled=True, state=theirs[tag])
                self._settle(tag)
            else:
                resumed = what is Resumption.GO_ON
                self._send(link, tag, resume=resumed)

    def _send(self, link: PeerSender, tag: bytes, **fields: Any) -> None:
        number = link.session.next_delivery_id
        self._ids[number] = tag
        payload = message(self.unsettled[tag], durable=True)
        link.send(payload, delivery_tag=tag, frame_octets=FRAME_OCTETS, **fields)

    def send_one(self, link: PeerSender) -> None:
        """Send the next message, if there is credit."""
        if self.bodies and link.may_send and len(self.unsettled) < UNDER_WAY:
            tag = b"%d" % self._next_tag
            self._next_tag += 1
            self.unsettled[tag] = self.bodies.pop(0)
            self._send(link, tag)

    def hear(self, link: PeerSender) -> None:
        """Settle what has an outcome."""
        for number, state in list(link.outcomes.items()):
            del link.outcomes[number]
            tag = self._ids.pop(number, b"")
            if tag in self.unsettled:
                assert state == OUTCOME, state
                self._settle(tag)
                link.session.put(Disposition(role=SENDER, first=number, settled=True, state=OUTCOME))

    def _settle(self, tag: bytes) -> None:
        del self.unsettled[tag]
        self.settled += 1


class Consumer:
    """Receives, and does its work once for each delivery. `unsettled` are the outcomes that it came to, by
    delivery-tag, of what the other side may not know; `bodies` is its work.
    """

    def __init__(
        self, address: str, name: str = "consumer", *, lasting: dict[str, Any] = LASTING, **fields: Any
    ) -> None:
        self.address = address
        self.name = name
        self.lasting = lasting
        self.fields = fields
        self.unsettled: dict[bytes, Any] = {}
        self.bodies: list[bytes] = []
        self.resumed = 0
        self._ids: dict[int, bytes] = {}

    def attach(self, session: PeerSession) -> PeerReceiver:
        """Attach the link, and forget what only we have unsettled."""
        self._ids = {}
        link = session.attach_receiver(
            self.name, self.address, source=Source(address=self.address, **self.lasting),
            rcv_settle_mode=SECOND, unsettled=dict(self.unsettled), **self.fields,
        )  # fmt: skip
        return link

    def resume(self, link: PeerReceiver) -> None:
        """What the source does not know any more it has settled (2.6.13)."""
        attach = link.remote_attach
        assert attach is not None
        assert not attach.incomplete_unsettled
        theirs = attach.unsettled or {}
        for tag in [tag for tag in self.unsettled if tag not in theirs]:
            del self.unsettled[tag]

    def hear(
        self, link: PeerReceiver, *, tells: Callable[[], bool] = lambda: True,
        outcome: Callable[[], Any] = lambda: OUTCOME,
    ) -> None:  # fmt: skip
        """Work on what has come, and tell the outcome; forget what the other side has settled. An outcome
        that is not told now is told when the link is resumed. What gets another `outcome` is not worked on.
        """
        while link.deliveries:
            delivery = link.deliveries.popleft()
            tag = delivery.delivery_tag
            if delivery.transfer.resume:
                self.resumed += 1
                assert tag in self.unsettled, "only what both have unsettled is resumed"
            else:
                assert tag not in self.unsettled, "a tag of something unsettled (2.6.12)"
            if delivery.settled:
                assert delivery.state == self.unsettled.pop(tag)
                continue
            if self.unsettled.get(tag) is None:
                self.unsettled[tag] = outcome()
                if self.unsettled[tag] == OUTCOME:
                    self.bodies.append(body_of(delivery))
            self._ids[delivery.delivery_id] = tag
            if tells():
                link.settle([delivery], self.unsettled[tag], settled=False)
        while link.confirmed:
            self.unsettled.pop(self._ids.pop(link.confirmed.popleft()), None)


