"""The answer to an attach: which node, whether the peer may, and what the link's termini really are (2.6.3,
3.5).
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.connection import Connection, Sink
from amqp_broker.connection import Source as LinkSource
from amqp_broker.frames import Coordinator, Error, Source
from amqp_broker.links import AttachReceived, ReceiverLink
from amqp_broker.nodes.node import Attachment, Node
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.nodes.termini import COPY, MOVE

if TYPE_CHECKING:
    from amqp_broker.frames import Attach
    from amqp_broker.nodes.registry import Registry
    from amqp_broker.transactions import Transactions

UNSETTLED_WANTED: Final = "expected snd-settle-mode unsettled or mixed, got settled"
SETTLED_MODE: Final = 1  # snd-settle-mode settled (2.8.2)


async def answer_attach(
    connection: Connection, transactions: Transactions, registry: Registry, event: AttachReceived, credit: int
) -> None:
    """Accept or refuse the link of `event`; a refusal says why with a null terminus and a detach (2.6.3).
    `credit` is that of ordinary links which send to us.
    """
    link = event.link
    attachment = Attachment(connection, transactions, link, event.attach, credit)
    try:
        context: Sink | LinkSource
        attachment.attach = _in_our_words(registry, event.attach, isinstance(link, ReceiverLink))
        if isinstance(link, ReceiverLink):
            node = _admitted(attachment, registry.target(attachment.attach.target))
            node.check_sink(attachment)
            await node.make(attachment)
            context = await node.open_sink(attachment)
        else:
            node = _admitted(attachment, registry.source(_source(attachment.attach)))
            node.check_source(attachment)
            await node.make(attachment)
            context = await node.open_source(attachment)
    except NodeRefused as refused:
        _refuse(attachment, refused.error, refused.limit)
        return
    answer = attachment.answer
    if node.capabilities:
        answer.capabilities = node.capabilities
    if attachment.attach is not event.attach:
        written: Any = event.attach.target if isinstance(link, ReceiverLink) else event.attach.source
        answer.address = written.address  # clients compare
    if node.properties is not None:
        attachment.properties = dict(node.properties)
    attachment.accept(context)
    role = "receiver" if isinstance(link, ReceiverLink) else "sender"
    address = None if isinstance(answer, Coordinator) else answer.address
    kind = type(node).__name__
    connection.log.debug("link.attached", name=link.name, role=role, node=kind, address=address)


def _in_our_words(registry: Registry, attach: Attach, sends: bool) -> Attach:
    """The attach with our terminus named as we name it; that of the peer stays as it is."""
    ours = attach.target if sends else attach.source
    asked = registry.asked(ours)
    if asked is ours:
        return attach
    found = copy(attach)
    if sends:
        found.target = asked
    else:
        found.source = asked
    return found


def _admitted(attachment: Attachment, node: Node) -> Node:
    node.admit(attachment.principal)
    if node.unsettled_only and attachment.attach.snd_settle_mode == SETTLED_MODE:
        raise NodeRefused("amqp:not-allowed", UNSETTLED_WANTED)
    return node


def _source(attach: Attach) -> Source | None:
    """What a link receives from, if it can be that of any node."""
    source = attach.source
    if source is None:
        return None
    if not isinstance(source, Source):
        raise NodeRefused("amqp:invalid-field", f"expected a source, got {source!r:.80}")
    if source.distribution_mode not in (None, MOVE, COPY):
        raise NodeRefused(
            "amqp:not-implemented",
            f"expected distribution-mode move or copy, got {source.distribution_mode!r:.80}",
        )
    if isinstance(attach.target, Coordinator):
        raise NodeRefused("amqp:not-implemented", "nothing is sent to a coordinator from here (4.5.1)")
    return source


def _refuse(attachment: Attachment, error: Error, limit: str = "") -> None:
    attachment.refuse(error, limit)
    attachment.connection.log.info(
        "link.refused", name=attachment.link.name, condition=error.condition, reason=error.description
    )
