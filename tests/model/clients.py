"""The clients of the machine: each a connection with two sessions, some control links, senders
and receivers, and what it has in hand.
"""

from __future__ import annotations

from typing import Any

from amqp_broker.frames import Accepted, Released, Source
from amqp_broker.testing.peer import PeerReceiver, PeerSender, PeerSession
from tests.model.books import ModelTransaction
from tests.model.queues import ModelMessage
from tests.model.wire import RecordingConnection
from tests.support.controllers import ALL_OUTCOMES, Controller
from tests.support.jumping_broker import JumpingBroker

SESSIONS = 2


class Control:
    """A control link. If its source does not offer `rejected`, failures end it (4.2, 4.3)."""

    def __init__(self, client: Client, session: PeerSession, name: str, rejects: bool) -> None:
        self.client = client
        self.rejects = rejects
        outcomes = ALL_OUTCOMES if rejects else ("amqp:accepted:list",)
        self.controller = Controller(session, name, outcomes)

    @property
    def link(self) -> PeerSender:
        """The link on the wire."""
        return self.controller.link

    def __repr__(self) -> str:
        return f"<control {self.link.name} of {self.client!r}>"


class Sender:
    """A sending link."""

    def __init__(self, link: PeerSender, queue: str) -> None:
        self.link = link
        self.queue = queue

    def __repr__(self) -> str:
        return f"<sender {self.link.name} to {self.queue}>"


class Receiver:
    """A receiving link. `held` are its deliveries that neither side has settled, by delivery-id."""

    def __init__(
        self, client: Client, link: PeerReceiver, queue: str, *, settled: bool, browser: bool,
        default: Any, narrow: bool,
    ) -> None:  # fmt: skip
        self.client = client
        self.link = link
        self.queue = queue
        self.settled = settled
        self.browser = browser
        self.default = Released() if default is None else default
        self.narrow = narrow  # accepted and released are all that it may say
        self.attached = True
        self.acquiring: ModelTransaction | None = None
        self.held: dict[int, ModelMessage] = {}
        self.said: set[int] = set()  # of these it gave an outcome last, whatever became of that
        self.suspect: ModelMessage | None = None
        self.seen: set[bytes] = set()
        self.owed: dict[bytes, ModelMessage] = {}  # what a browser has to be shown

    def __repr__(self) -> str:
        return f"<receiver {self.link.name} of {self.queue} of {self.client!r}>"


class Client:
    """One connection."""

    def __init__(self, broker: JumpingBroker, number: int) -> None:
        self.number = number
        self.connection = broker.connect_as(RecordingConnection, f"client-{number}")
        self.sessions = [self.connection.begin() for _ in range(SESSIONS)]
        self.controls: list[Control] = []
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        self._links_made = 0

    def __repr__(self) -> str:
        return f"<client {self.number}>"

    def _name(self) -> str:
        """A name that no link had before."""
        self._links_made += 1
        return f"link-{self.number}-{self._links_made}"

    def _session(self, which: int) -> PeerSession:
        return self.sessions[which % len(self.sessions)]

    def attach_control(self, which: int, *, rejects: bool) -> Control:
        """Attach and remember."""
        control = Control(self, self._session(which), self._name(), rejects)
        self.controls.append(control)
        return control

    def attach_sender(self, which: int, queue: str) -> Sender:
        """Attach and remember."""
        sender = Sender(self._session(which).attach_sender(self._name(), queue), queue)
        self.senders.append(sender)
        return sender

    def attach_receiver(
        self, which: int, queue: str, *, settled: bool, browser: bool, default: Any, narrow: bool
    ) -> Receiver:
        """Attach and remember."""
        # A default-outcome that is none of the outcomes is refused.
        narrow = narrow and isinstance(default, (Accepted, Released, type(None)))
        outcomes = ("amqp:accepted:list", "amqp:released:list") if narrow else ALL_OUTCOMES
        source = Source(
            address=queue, distribution_mode="copy" if browser else None, default_outcome=default,
            outcomes=outcomes,
        )  # fmt: skip
        link = self._session(which).attach_receiver(
            self._name(), queue, source=source, snd_settle_mode=1 if settled else 2
        )
        receiver = Receiver(
            self, link, queue, settled=settled, browser=browser, default=default, narrow=narrow
        )
        self.receivers.append(receiver)
        return receiver

    def links(self) -> int:
        """How many links are attached."""
        return len(self.controls) + len(self.senders) + len(self.receivers)
