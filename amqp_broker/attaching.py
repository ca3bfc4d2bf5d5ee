"""The answer to an attach: which node, whether the peer may, and what the link's termini really are (2.6.3,
3.5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from amqp_broker.authorisation import BROWSE, RECEIVE, SEND, TRANSACT
from amqp_broker.configuration_tables import TRANSACTION_MESSAGES
from amqp_broker.control_nodes import ControlNode, ControlNodeLink
from amqp_broker.frames import Coordinator, Error, Released, Source, Target
from amqp_broker.half_sets.attaching import accept_staging, is_set_target
from amqp_broker.halves.addresses import CHECK, PARKED, is_half_address
from amqp_broker.halves.checking import CheckSource, ParkedSource
from amqp_broker.halves.nodes import HALF_MESSAGES, HALF_PROPERTIES, HalfPutNode, HalfResolveNode
from amqp_broker.halves.runs import HalfNodeLink
from amqp_broker.links import AttachReceived, ReceiverLink, SenderLink
from amqp_broker.persistence import StoreFull
from amqp_broker.producers import Producer
from amqp_broker.queue import Consumer, Queue
from amqp_broker.registry import NodeRefused
from amqp_broker.retained.attaching import accept_browser, accept_reader, reads_by_offset
from amqp_broker.retained.filters import RetainedRefused
from amqp_broker.sequences.attaching import check_stream, sequence_answer
from amqp_broker.termini import (
    COPY,
    LOG,
    MOVE,
    OUTCOMES,
    TerminusRefused,
    no_queue,
    source_answer,
    target_answer,
)

if TYPE_CHECKING:
    from amqp_broker.link_owner import LinkOwner
    from amqp_broker.node_service import NodeService
    from amqp_broker.services import Services

UNSETTLED_WANTED: Final = "expected snd-settle-mode unsettled or mixed, got settled"
SETTLED_MODE: Final = 1  # snd-settle-mode settled (2.8.2)


async def answer_attach(task: LinkOwner, services: Services, event: AttachReceived) -> None:
    """Accept or refuse the link of `event`; a refusal says why with a null terminus and a detach (2.6.3)."""
    link = event.link
    try:
        if isinstance(link, ReceiverLink):
            await _accept_producer(task, services, link, event)
        else:
            await _accept_consumer(task, services, link, event)
        services.nodes.link_names.take(task.link_key(link), task, link)
    except (NodeRefused, TerminusRefused) as refused:
        _refuse(task, link, refused.condition, refused.description)
    except RetainedRefused as refused:
        link.refuse(refused.error)
        task.log.info("link.refused", name=link.name, condition=refused.error.condition, reason=str(refused))
    except StoreFull as full:
        _refuse(task, link, "amqp:resource-limit-exceeded", f"the queue could not be made: {full}")


def _refuse(task: LinkOwner, link: ReceiverLink | SenderLink, condition: str, description: str) -> None:
    link.refuse(Error(condition=condition, description=description))
    task.log.info("link.refused", name=link.name, condition=condition, reason=description)


async def _accept_producer(
    task: LinkOwner, services: Services, link: ReceiverLink, event: AttachReceived
) -> None:
    nodes = services.nodes
    target = event.attach.target
    if isinstance(target, Coordinator):
        _accept_control(task, nodes, link, event)
        return
    if not isinstance(target, Target):
        raise TerminusRefused("amqp:invalid-field", f"expected a target, got {target!r:.80}")
    if is_set_target(target):
        await _accept_staging(task, services, link, event, target)
        return
    if isinstance(target.address, str) and not target.dynamic:
        node = await services.control_node(task.principal, target.address)
        if node is not None:
            _accept_control_node(task, nodes, link, event, node, target)
            return
    answer = target_answer(target, None)  # refuses before a node is made for it
    queue: Queue | None = None
    if target.dynamic:
        if target.address is not None:
            raise TerminusRefused("amqp:invalid-field", "a dynamic target must not name an address (3.5.4)")
        check_stream(event.attach)
        queue = nodes.temporary_queue(task.principal, task.container_id, link.name)
    elif target.address is not None:
        queue = await nodes.node_for(task.principal, _text(target.address), SEND)
    if queue is not None and nodes.config.policy_of(queue.name).message_type == TRANSACTION_MESSAGES:
        raise TerminusRefused(
            "amqp:not-allowed",
            f"queue {queue.name!r} has message_type transaction: it takes half messages only "
            f"($half/<group>/{queue.name})",
        )
    answer.address = None if queue is None else queue.name
    if queue is not None and queue.archives:
        answer.capabilities = (*(no_queue(answer.capabilities) or ()), LOG)
    credit = nodes.config.limits.link_credit
    stream, properties = await sequence_answer(
        services.sequences, task.principal, queue, event.attach, answer
    )
    producer = Producer(task, link, queue, credit, bool(target.dynamic))
    producer.name_stream(stream)
    task.dispatcher.serve_producer(link, producer)
    if queue is not None:
        queue.producers.add(producer)
    full = queue is not None and queue.full()
    link.accept(
        source=event.attach.source,
        target=answer,
        properties=properties,
        max_message_size=nodes.config.limits.max_message_size_bytes,
        credit=0 if full else credit,
    )
    if full and queue is not None:
        producer.blocked = True
        queue.blocked.append(producer)
    task.log.debug("link.attached", name=link.name, role="receiver", target=answer.address)


async def _accept_staging(
    task: LinkOwner, services: Services, link: ReceiverLink, event: AttachReceived, target: Target
) -> None:
    address = services.half_nodes.address(_text(target.address))
    services.half_nodes.group(task.principal, address)
    await accept_staging(task, services.nodes, services.half_sets, link, event, target, address)


def _accept_control_node(
    task: LinkOwner,
    nodes: NodeService,
    link: ReceiverLink,
    event: AttachReceived,
    node: ControlNode,
    target: Target,
) -> None:
    if node.unsettled_only and event.attach.snd_settle_mode == SETTLED_MODE:
        raise TerminusRefused("amqp:not-allowed", UNSETTLED_WANTED)
    answer = target_answer(target, _text(target.address))
    service = ControlNodeLink(task, node)
    properties = None
    if isinstance(node, (HalfPutNode, HalfResolveNode)):
        answer.capabilities = (HALF_MESSAGES,)
        service = HalfNodeLink(task, node)
        properties = dict(HALF_PROPERTIES)
    task.dispatcher.serve_posts(link, service)
    link.accept(
        source=event.attach.source,
        target=answer,
        properties=properties,
        max_message_size=nodes.config.limits.max_message_size_bytes,
        credit=nodes.config.limits.link_credit,
    )
    task.log.debug("link.attached", name=link.name, role="receiver", target=answer.address)


def _accept_half_source(
    task: LinkOwner, services: Services, link: SenderLink, event: AttachReceived, source: Source
) -> None:
    """A link on which half messages are asked about, or parked ones are looked at."""
    name = _text(source.address)
    address = services.half_nodes.address(name)
    group = services.half_nodes.group(task.principal, address)
    answer = source_answer(source, name)
    answer.capabilities = (HALF_MESSAGES,)
    if address.kind == CHECK:
        if event.attach.snd_settle_mode == SETTLED_MODE:
            raise TerminusRefused(
                "amqp:not-allowed", "expected snd-settle-mode unsettled or mixed, got settled"
            )
        answer.distribution_mode = MOVE
        answer.default_outcome = Released()
        answer.outcomes = tuple(OUTCOMES.values())
        link.accept(source=answer, target=event.attach.target, properties=dict(HALF_PROPERTIES))
        task.dispatcher.serve_source(
            link, CheckSource(task, services.halves, group, link, address.by_outcome)
        )
    elif address.kind == PARKED:
        if source.distribution_mode != COPY:
            raise TerminusRefused(
                "amqp:not-allowed", "expected distribution-mode copy: it is to look at them"
            )
        link.accept(source=answer, target=event.attach.target, properties=dict(HALF_PROPERTIES))
        task.dispatcher.serve_source(link, ParkedSource(task, services.halves, group, link))
    else:
        raise TerminusRefused("amqp:not-allowed", f"{name!r:.120} is sent to, not received from")
    task.log.debug("link.attached", name=link.name, role="sender", source=answer.address)


def _accept_control(task: LinkOwner, nodes: NodeService, link: ReceiverLink, event: AttachReceived) -> None:
    if not nodes.authoriser.authorise(task.principal, TRANSACT):
        raise TerminusRefused("amqp:unauthorized-access", f"{task.principal.rule_name!r} may not transact")
    task.dispatcher.serve_transactions(link, event)
    task.log.debug("link.attached", name=link.name, role="receiver", target="the coordinator")


async def _accept_consumer(
    task: LinkOwner, services: Services, link: SenderLink, event: AttachReceived
) -> None:
    nodes = services.nodes
    source = event.attach.source
    if not isinstance(source, Source):
        raise TerminusRefused("amqp:invalid-field", f"expected a source, got {source!r:.80}")
    if source.distribution_mode not in (None, MOVE, COPY):
        raise TerminusRefused(
            "amqp:not-implemented",
            f"expected distribution-mode move or copy, got {source.distribution_mode!r:.80}",
        )
    if isinstance(event.attach.target, Coordinator):
        raise TerminusRefused("amqp:not-implemented", "nothing is sent to a coordinator from here (4.5.1)")
    if isinstance(source.address, str) and is_half_address(source.address) and not source.dynamic:
        _accept_half_source(task, services, link, event, source)
        return
    if reads_by_offset(source):
        await accept_reader(task, services.retained, link, event, source)
        return
    browser = source.distribution_mode == COPY
    answer = source_answer(source, "")  # refuses before a node is made for it
    if source.dynamic:
        if source.address is not None:
            raise TerminusRefused("amqp:invalid-field", "a dynamic source must not name an address (3.5.3)")
        queue = nodes.temporary_queue(task.principal, task.container_id, link.name)
    elif source.address is None:
        raise TerminusRefused(
            "amqp:invalid-field", "expected the address of a node in source.address, got null"
        )
    else:
        queue = await nodes.node_for(task.principal, _text(source.address), BROWSE if browser else RECEIVE)
    if queue.archives:
        await accept_browser(task, services.retained, link, event, source, queue)
        return
    answer.address = queue.name
    consumer = Consumer(
        task,
        link,
        queue,
        browser=browser,
        settled=event.attach.snd_settle_mode == SETTLED_MODE,
        default_outcome=answer.default_outcome,
        outcomes=frozenset(answer.outcomes or ()),
        temporary=bool(source.dynamic),
        largest=link.remote_max_message_size,
    )
    task.dispatcher.serve_consumer(link, consumer)
    queue.attach(consumer)
    link.accept(source=answer, target=event.attach.target)
    task.log.debug(
        "link.attached", name=link.name, role="sender", source=answer.address, mode=answer.distribution_mode
    )


def _text(address: Any) -> str:
    if not isinstance(address, str):
        raise TerminusRefused(
            "amqp:invalid-field", f"expected a string as address, got {type(address).__name__}"
        )
    return address
