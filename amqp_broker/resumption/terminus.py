"""A terminus that outlives its link, and what was unsettled when that ended (2.6.3, 3.5.6).

                    attach: it gets a `user`, what stands behind its link
    IN USE    --the link is closed, or its queue is gone--> ended
       ^      --the link is detached in another way--> WAITING, from when its expiry-policy says with a timer
       |                                                  |
       +------------ attach of the same link -------------+--its timeout is over--> ended

Where the peer sends, it remembers the delivery-tags of what it has taken with their outcomes, until the peer
settles them. Where the peer receives, the messages stay acquired: they are the deliveries of the links that
have gone.

Where it is durable (3.5.5) it has a number in the store, too. What it remembers is stored in the commit of
what it remembers it of, and forgotten there a little later. What it holds is stored before it is sent, and
forgotten in the commit of its outcome; after a restart it is withheld from its queue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import trio

from amqp_broker.connection import Connection
from amqp_broker.frames import Accepted, encode_state
from amqp_broker.links import Delivery, OutgoingDelivery, SenderLink, Session
from amqp_broker.nodes.queue_source import RELEASED
from amqp_broker.nodes.termini import CONFIGURATION, EXPIRY_WITH_LINK, UNSETTLED_STATE
from amqp_broker.operations.posting import Step
from amqp_broker.persistence import (
    ForgetHeld,
    ForgetUnsettled,
    KeepHeld,
    KeepTerminus,
    KeepUnsettled,
    Record,
    StoredTerminus,
    Unit,
)

if TYPE_CHECKING:
    from amqp_broker.operations.writer import Writer

SECOND: Final = 1  # rcv-settle-mode second (2.8.3)
SESSION_END: Final = "session-end"
_ACCEPTED: Final = encode_state(Accepted())
Key = tuple[str, str, bool, str]
"""Whose link it is: the user, its container-id, whether we send, and the name of the link (2.6.1)."""


class Terminus:
    """One of them. `expiry_policy` and `timeout_s` are what its last attach was answered; `over` is called
    when its time is over.
    """

    __slots__ = (
        "_writer", "attachments", "connection", "durable", "ends_at_ms", "expiry_policy", "held", "key",
        "left", "number", "outcomes", "over", "owner", "queue", "session", "timeout_s", "user", "withheld",
    )  # fmt: skip

    def __init__(self, key: Key, over: Callable[[Terminus], None], writer: Writer) -> None:
        self.key = key
        self.over = over
        self._writer = writer
        self.number = 0
        """In the store; 0: it is not there."""
        self.durable = 0
        """What its last attach was answered."""
        self.ends_at_ms = 0
        """By the broker's time, where its timer runs; else 0."""
        self.expiry_policy = EXPIRY_WITH_LINK
        self.timeout_s = 0
        self.queue: Any = None
        """The queue of its last link."""
        self.user: Any = None
        """What stands behind its link; None while it waits."""
        self.owner: Any = None
        """The source behind its last link: what is given up, it gives up."""
        self.session: Session | None = None
        """The session of its last link, where the peer has detached that and no more."""
        self.connection: Connection | None = None
        """The one with which, or with whose session, its time begins to run."""
        self.left = trio.Event()
        """Set when its link has gone."""
        self.attachments = 0
        """How many links it has had."""
        self.outcomes: dict[bytes, object] = {}
        """Of what the peer has sent and not settled, by delivery-tag; None: it is under way to the store."""
        self.held: dict[bytes, OutgoingDelivery] = {}
        """What the peer was sent and has not settled, of links that are gone."""
        self.withheld: dict[bytes, int] = {}
        """The same as the store had it after a restart, by offset, until a link comes."""

    def begin(self, user: Any, lasting: tuple[str, int]) -> None:
        """An attach takes it up: `user` stands behind the link from now on."""
        self.user = user
        self.queue = user.queue
        self.expiry_policy, self.timeout_s = lasting
        self.attachments += 1
        self.ends_at_ms = 0
        self.left = trio.Event()
        self.wait_no_more()

    @property
    def tag_prefix(self) -> bytes:
        """What the tags of new deliveries begin with: no two of its links have the same."""
        return self.attachments.to_bytes(4, "big")

    def reattaches(self, session: Session, unsettled: object) -> bool:
        """Whether its peer has only detached the link for a while in this session, where deliveries stay
        live: "When reattaching (as opposed to resuming), the unsettled map MUST be null" (2.7.3).
        """
        return unsettled is None and self.session is session and session.writable

    def link_gone(self, link: Any, connection: Connection, arm: Callable[[], None]) -> None:
        """Its link is gone, and it waits: `arm` is called when its timer starts (3.5.7)."""
        session: Session = link.session
        self.user = None
        self.session = session if session.writable else None
        self.left.set()
        if self.expiry_policy == EXPIRY_WITH_LINK:
            arm()
        elif self.expiry_policy == SESSION_END:
            if session.end_told:
                arm()
            else:
                self._arm_after(connection, session, arm)
        else:
            self._arm_after(connection, None, arm)

    def _arm_after(self, connection: Connection, session: Session | None, arm: Callable[[], None]) -> None:
        self.connection = connection
        connection.afterwards(self, session, arm)

    def wait_no_more(self) -> None:
        """It is taken up, or has ended."""
        if self.connection is not None:
            self.connection.not_afterwards(self)
            self.connection = None

    def wake(self) -> None:
        """Its timer: it may be over."""
        if self.user is None:
            self.over(self)

    # Where the peer sends

    def decide(self, deliveries: list[Delivery], outcome: object) -> None:
        """Remember the outcome of these; None: they are as if they had never come."""
        outcomes = self.outcomes
        for delivery in deliveries:
            if delivery.delivery_tag in outcomes:
                if outcome is not None:
                    outcomes[delivery.delivery_tag] = outcome
                else:
                    self.forget([delivery])

    def forget(
        self, deliveries: list[Delivery], then: Callable[[Exception | None], None] | None = None
    ) -> None:
        """Both sides have settled these. `then` is called when a restart would not bring them back: for what
        tells a peer that it may use their tags again.
        """
        outcomes = self.outcomes
        tags = [each.delivery_tag for each in deliveries if outcomes.pop(each.delivery_tag, self) is not self]
        if tags and self.keeps_unsettled:
            self.follow(tags, then)
        elif then is not None:
            then(None)

    # Where the peer sends, in the store

    @property
    def keeps_unsettled(self) -> bool:
        """Whether the store keeps what it remembers."""
        return self.number > 0 and self.durable == UNSETTLED_STATE

    def follow(
        self, delivery_tags: list[bytes], then: Callable[[Exception | None], None] | None = None
    ) -> None:
        """Have the store keep what it remembers of these; none: what it is. Nobody waits for that but `then`.
        """
        following = Following(self, delivery_tags, then)
        if then is None:
            self._writer.defer(following)
        else:
            self._writer.submit(following)

    def stored(self) -> StoredTerminus:
        """As the store has it."""
        user, container, sends, name = self.key
        return StoredTerminus(
            self.number, user, container, name, self.expiry_policy, self.timeout_s, self.ends_at_ms, sends,
            self.attachments if sends else 0,
        )  # fmt: skip

    def itself(self) -> Unit:
        """What makes the store have it as it is now."""
        return [KeepTerminus(self.stored())] if self.number else []

    def remembered(self, delivery_tags: list[bytes]) -> Unit:
        """What makes the store have of these what it remembers now. Of what is under way the store has what
        its commit says.
        """
        if not self.keeps_unsettled:
            return []
        unit: Unit = []
        outcomes = self.outcomes
        known = [(tag, outcomes[tag]) for tag in delivery_tags if tag in outcomes]
        states = {tag: encode_state(outcome) for tag, outcome in known if outcome is not None}
        gone = [tag for tag in delivery_tags if tag not in outcomes]
        if states:
            unit.append(KeepUnsettled(self.number, states))
        if gone:
            unit.append(ForgetUnsettled(self.number, gone))
        return unit

    def accepting(self, deliveries: list[Delivery]) -> Unit:
        """What a commit has to keep that takes these. In mode first they are settled as soon as they are told
        (2.8.3), and what the sender has settled meanwhile it does not ask for again.
        """
        if not self.keeps_unsettled:
            return []
        outcomes = self.outcomes
        states = {
            each.delivery_tag: _ACCEPTED
            for each in deliveries
            if each.rcv_settle_mode == SECOND and not each.settled and each.delivery_tag in outcomes
        }
        return [KeepUnsettled(self.number, states)] if states else []

    def refused(self, delivery: Delivery, outcome: object) -> None:
        """Remember why nothing of it is posted."""
        self.outcomes[delivery.delivery_tag] = outcome
        if self.keeps_unsettled:
            self.follow([delivery.delivery_tag])

    # Where the peer receives

    def holding(self, deliveries: dict[bytes, Record]) -> Unit:
        """What makes the store have that these are held, by delivery-tag. What only memory has it forgets."""
        tags = {record.offset: tag for tag, record in deliveries.items() if record.durable}
        return [KeepHeld(self.number, self.queue.queue_id, tags)] if tags and self.keeps_unsettled else []

    def letting_go(self, records: list[Record]) -> Unit:
        """What makes the store have that these are not held any more."""
        offsets = [record.offset for record in records if record.durable]
        if not offsets or not self.number or self.durable == CONFIGURATION:
            return []
        return [ForgetHeld(self.number, self.queue.queue_id, offsets)]

    def give_up(self) -> None:
        """What it holds is left: the same as at the end of a link of which nothing is kept (3.3.1)."""
        deliveries = self.take([*self.held])
        if deliveries:
            self.owner.left(deliveries)

    def return_anew(self, delivery_tags: list[bytes], *, resumes: bool) -> None:
        """The peer has nothing of these: the messages go back to their places, and are sent anew (3.4.6). One
        that `resumes` its link has not died of any of them.
        """
        deliveries = self.take(delivery_tags)
        if deliveries:
            if resumes:
                self.owner.suspect = None
            self.owner.leave(deliveries, RELEASED)

    def take(self, delivery_tags: list[bytes]) -> list[OutgoingDelivery]:
        """These are held no longer; those of which something can still become."""
        deliveries = [self.held.pop(tag) for tag in delivery_tags]
        if not deliveries or self.queue.deleted:
            return []
        return [delivery for delivery in deliveries if not delivery.decided]

    def forget_live(self) -> None:
        """The delivery-ids of detached links mean nothing any more (2.6.13)."""
        links: set[SenderLink] = {delivery.link for delivery in self.held.values()}
        for link in links:
            link.forget_live()


class Following(Step):
    """The store follows a terminus: it has what memory has when the group is made, however long this had to
    wait for room.
    """

    __slots__ = ("_delivery_tags", "_terminus")

    def __init__(
        self, terminus: Terminus, delivery_tags: list[bytes], then: Callable[[Exception | None], None] | None
    ) -> None:
        super().__init__([], then)
        self._terminus = terminus
        self._delivery_tags = delivery_tags

    def prepare(self, now_ms: int) -> Unit:
        """Nothing, where the terminus has ended."""
        tags = self._delivery_tags
        return self._terminus.remembered(tags) if tags else self._terminus.itself()
