"""A terminus that outlives its link, and what was unsettled when that ended (2.6.3, 3.5.6).

                    attach: it gets a `user`, what stands behind its link
    IN USE    --the link is closed, or its queue is gone--> ended
       ^      --the link is detached in another way--> WAITING, from when its expiry-policy says with a timer
       |                                                  |
       +------------ attach of the same link -------------+--its timeout is over--> ended

Where the peer sends, it remembers the delivery-tags of what it has taken with their outcomes, until the peer
settles them. Where the peer receives, the messages stay acquired: they are the deliveries of the links that
have gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import trio

from amqp_broker.connection import Connection
from amqp_broker.links import Delivery, OutgoingDelivery, SenderLink, Session
from amqp_broker.nodes.queue_source import RELEASED
from amqp_broker.nodes.termini import EXPIRY_WITH_LINK

SESSION_END: Final = "session-end"
Key = tuple[str, str, bool, str]
"""Whose link it is: the user, its container-id, whether we send, and the name of the link (2.6.1)."""


class Terminus:
    """One of them. `expiry_policy` and `timeout_s` are what its last attach was answered; `over` is called
    when its time is over.
    """

    __slots__ = (
        "attachments", "connection", "expiry_policy", "held", "key", "left", "outcomes", "over", "owner",
        "queue", "session", "timeout_s", "user",
    )  # fmt: skip

    def __init__(self, key: Key, over: Callable[[Terminus], None]) -> None:
        self.key = key
        self.over = over
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

    def begin(self, user: Any, lasting: tuple[str, int]) -> None:
        """An attach takes it up: `user` stands behind the link from now on."""
        self.user = user
        self.queue = user.queue
        self.expiry_policy, self.timeout_s = lasting
        self.attachments += 1
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
                if outcome is None:
                    del outcomes[delivery.delivery_tag]
                else:
                    outcomes[delivery.delivery_tag] = outcome

    def forget(self, deliveries: list[Delivery]) -> None:
        """Both sides have settled these."""
        for delivery in deliveries:
            self.outcomes.pop(delivery.delivery_tag, None)

    # Where the peer receives

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
        if self.queue.deleted:
            return []
        return [delivery for delivery in deliveries if not delivery.decided]

    def forget_live(self) -> None:
        """The delivery-ids of detached links mean nothing any more (2.6.13)."""
        links: set[SenderLink] = {delivery.link for delivery in self.held.values()}
        for link in links:
            link.forget_live()
