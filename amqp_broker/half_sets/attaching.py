"""The answer to an attach at `$half-set/<group>/<producer>/<epoch>/<set>/<destination>`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from amqp_broker.authorisation import SEND
from amqp_broker.frames import Rejected, Target
from amqp_broker.half_sets.jobs import OpenPart
from amqp_broker.half_sets.staging import StagingLink
from amqp_broker.halves.addresses import SET, HalfAddress
from amqp_broker.halves.destinations import check_destination
from amqp_broker.halves.nodes import HALF_MESSAGES, HALF_PROPERTIES
from amqp_broker.links import AttachReceived, ReceiverLink
from amqp_broker.registry import NodeRefused
from amqp_broker.termini import TerminusRefused, target_answer

if TYPE_CHECKING:
    from amqp_broker.connection_task import ConnectionTask
    from amqp_broker.coordinator import SetPart
    from amqp_broker.node_service import NodeService

SETTLED_MODE: Final = 1  # snd-settle-mode settled (2.8.2)


def is_set_target(target: Target) -> bool:
    """Whether a link is to stage messages in a set."""
    address = target.address
    return isinstance(address, str) and not target.dynamic and address.partition("/")[0] == SET


async def accept_staging(
    task: ConnectionTask, nodes: NodeService, link: ReceiverLink, event: AttachReceived, target: Target
) -> None:
    """Accept the link. Raises NodeRefused, TerminusRefused: why not."""
    assert isinstance(target.address, str), "is_set_target has looked"
    address = nodes.half_nodes.address(target.address)
    nodes.half_nodes.group(task.principal, address)
    if event.attach.snd_settle_mode == SETTLED_MODE:
        raise TerminusRefused("amqp:not-allowed", "expected snd-settle-mode unsettled or mixed, got settled")
    queue = await nodes.node_for(task.principal, address.destination, SEND)
    check_destination(nodes, queue)
    if not queue.persistent:
        reason = f"queue {queue.name!r} is temporary: what a set stages is for queues that stay"
        raise NodeRefused("amqp:not-allowed", reason)
    part = await _open_part(task, nodes, address)
    answer = target_answer(target, target.address)
    answer.capabilities = (HALF_MESSAGES,)
    staging = StagingLink(task, nodes, nodes.half_sets, part, queue, link)
    task.dispatcher.posts.services[link] = staging
    link.accept(
        source=event.attach.source,
        target=answer,
        properties=dict(HALF_PROPERTIES),
        max_message_size=nodes.config.limits.max_message_size_bytes,
        credit=staging.begin(),
    )
    task.log.debug("link.attached", name=link.name, role="receiver", target=answer.address)


async def _open_part(task: ConnectionTask, nodes: NodeService, address: HalfAddress) -> SetPart:
    done = trio.Event()
    outcomes: list[Any] = []

    def answer(outcome: Any) -> None:
        outcomes.append(outcome)
        done.set()

    job = OpenPart(nodes.half_sets, address, task.container_id, answer)
    nodes.writer.submit(job)
    await done.wait()
    if isinstance(outcomes[0], Rejected):
        error = outcomes[0].error
        assert error is not None, "a refusal says why"
        raise NodeRefused(str(error.condition), error.description or "")
    assert job.part is not None, "what was not refused is there"
    return job.part
