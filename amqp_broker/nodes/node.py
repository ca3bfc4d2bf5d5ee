"""What an address names: a Node. It gives a link its Sink or its Source.

    attach --> registry --> Node --admit--> may the peer?
                                 --check_sink, check_source--> can it be had as asked? and our terminus
                                 --make--> what has to be there, and is not
                                 --open_sink, open_source--> what stands behind the link
    message through the anonymous terminus --> Node --admit, check, make, relayed--> a Sink for that message

A node is made for one attach, or for one message: what lasts is what it opens. It raises NodeRefused where it
can't be had as asked: the peer is answered with the error (2.6.3). Nothing is left behind by what is refused,
because every check comes before anything is made: checks are no coroutines, so they can't have anything
stored, and what `open_...` still asks the store can refuse only what was there before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from amqp_broker.frames import Attach, Error, Source, Target
from amqp_broker.links import ReceiverLink, SenderLink
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.nodes.termini import source_answer, target_answer

if TYPE_CHECKING:
    from amqp_broker.authorisation import Principal
    from amqp_broker.connection import Connection, Sink
    from amqp_broker.connection import Source as LinkSource
    from amqp_broker.filters.source_filter import SourceFilter
    from amqp_broker.nodes.queue_sink import PostRule
    from amqp_broker.queues import Site
    from amqp_broker.transactions import Transactions


class Attachment:
    """An attach while it is answered: who asks for what, and our side of the answer as it grows."""

    def __init__(
        self, connection: Connection, transactions: Transactions, link: Any, attach: Attach, credit: int
    ) -> None:
        self.connection = connection
        self.transactions = transactions
        """The transactions of the connection."""
        self.link: Any = link
        """A ReceiverLink for `open_sink`, a SenderLink for `open_source`."""
        self.attach = attach
        """The attach of the peer."""
        self.answer: Any = None
        """Our terminus as it really is: a target for `open_sink`, a source for `open_source`."""
        self.filter: SourceFilter | None = None
        """Which messages `open_source` is asked for; None is all."""
        self.properties: dict[str, Any] | None = None
        """The properties of our attach."""
        self.rule: PostRule | None = None
        """The rule for what a link to the anonymous terminus posts, whatever the queue."""
        self.credit = credit
        """The credit with which a link begins that sends to us."""
        self.max_message_size: int | None = None
        """The octets of a message that a link may send to us, where that is less than to any node (2.7.3)."""
        self.unsettled: dict[bytes, Any] | None = None
        """What is unsettled here of a link that is resumed, by delivery-tag."""

    @property
    def principal(self) -> Principal:
        """The principal that attaches."""
        return self.connection.principal

    @property
    def target(self) -> Target:
        """The target that the peer wants to send to."""
        target = self.attach.target
        assert isinstance(target, Target), "the registry has looked"
        return target

    @property
    def source(self) -> Source:
        """The source that the peer wants to receive from."""
        source = self.attach.source
        assert isinstance(source, Source), "the registry was asked for its node"
        return source

    def accept(self, context: Sink | LinkSource) -> None:
        """Answer the attach; from now on `context` stands behind the link."""
        link: ReceiverLink | SenderLink = self.link
        self.connection.serve(link, context)
        if isinstance(link, ReceiverLink):
            link.accept(
                source=self.attach.source, target=self.answer, properties=self.properties, credit=self.credit,
                max_message_size=self.max_message_size, unsettled=self.unsettled,
            )  # fmt: skip
        else:
            link.accept(
                source=self.answer, target=self.attach.target, properties=self.properties,
                unsettled=self.unsettled,
            )  # fmt: skip

    def refuse(self, error: Error, limit: str = "") -> None:
        """Answer the attach with a null terminus and a detach that says why (2.6.3)."""
        self.link.refuse(error, limit)


class Node:
    """Base of all kinds. `name` is the address as the peer wrote it; "" for those that have none."""

    unsettled_only: ClassVar[bool] = False
    """A link on which everything is sent settled is refused: one side has to learn the outcomes."""
    capabilities: ClassVar[tuple[str, ...]] = ()
    """The capabilities of our terminus; none: those that the terminus has already."""
    properties: ClassVar[dict[str, Any] | None] = None
    """The properties of our attach; None: those that opening sets."""
    is_sent_to: ClassVar[bool] = True
    """Whether it is a node for those who send; else the address names nothing for them."""
    is_received_from: ClassVar[bool] = False
    """Whether it is a node for those who receive; else the address names nothing for them."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.sites: tuple[Site, ...] = ()
        """Queues that have to be there before anything is opened; a check says which."""

    @property
    def there(self) -> bool:
        """Whether nothing has to be made before it is opened."""
        return all(site.queue is not None for site in self.sites)

    def admit(self, principal: Principal) -> None:
        """Whether `principal` has the right that an attach needs. Raises NodeRefused."""

    def check(self, principal: Principal) -> None:
        """Whether `principal` may send here, on a link or one message. Raises NodeRefused."""

    def check_sink(self, attachment: Attachment) -> None:
        """Whether a link that sends here can be had as asked, and what its target is. Raises NodeRefused."""
        self.check(attachment.principal)
        attachment.answer = target_answer(attachment.target, self.name)

    def check_source(self, attachment: Attachment) -> None:
        """Whether a link that receives here can be had as asked, and what its source is. Raises NodeRefused.
        """
        attachment.answer = source_answer(attachment.source, self.name)

    async def make(self, attachment: Attachment) -> None:
        """Make everything that the link needs. Raises NodeRefused where there is no room."""
        for site in self.sites:
            await site.make()

    async def open_sink(self, attachment: Attachment) -> Sink:
        """The sink of a link that sends here. Raises NodeRefused."""
        raise NodeRefused("amqp:not-allowed", f"{self.name!r:.120} is received from, not sent to")

    async def open_source(self, attachment: Attachment) -> LinkSource:
        """The source of a link that receives here. Raises NodeRefused."""
        raise NodeRefused("amqp:not-allowed", f"{self.name!r:.120} is sent to, not received from")

    def relayed(self, relay: Sink, attachment: Attachment) -> Sink:
        """The sink for one message that came on a link to the anonymous terminus, behind which `relay`
        stands. Raises NodeRefused.
        """
        raise NodeRefused("amqp:not-allowed", f"{self.name!r:.120} needs a link of its own")
