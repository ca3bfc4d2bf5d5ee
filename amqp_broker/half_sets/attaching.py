"""The answer to an attach at `$half-set/<group>/<producer>/<epoch>/<set>/<destination>`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import trio

from amqp_broker.authorisation import SEND
from amqp_broker.frames import Rejected, Target
from amqp_broker.half_sets.operations import OpenPart
from amqp_broker.half_sets.staging import StagingLink
from amqp_broker.halves.addresses import SET, HalfAddress
from amqp_broker.halves.destinations import check_destination
from amqp_broker.halves.nodes import HALF_MESSAGES, HALF_PROPERTIES
from amqp_broker.links import AttachReceived, ReceiverLink
from amqp_broker.registry import NodeRefused
from amqp_broker.termini import TerminusRefused, target_answer

if TYPE_CHECKING:
    from amqp_broker.coordinator import SetPart
    from amqp_broker.half_sets.service import SetService
    from amqp_broker.link_owner import LinkOwner
    from amqp_broker.node_service import NodeService

SETTLED_MODE: Final = 1  # snd-settle-mode settled (2.8.2)


def is_set_target(target: Target) -> bool:
    """Whether a link is to stage messages in a set."""
    address = target.address
    return isinstance(address, str) and not target.dynamic and address.partition("/")[0] == SET


async def accept_staging(
    task: LinkOwner, nodes: NodeService, sets: SetService, link: ReceiverLink, event: AttachReceived,
    target: Target, address: HalfAddress,
) -> None:  # fmt: skip
    """Accept the link of one who may. Raises NodeRefused, TerminusRefused: why not."""
    assert isinstance(target.address, str), "is_set_target has looked"
    if event.attach.snd_settle_mode == SETTLED_MODE:
        raise TerminusRefused("amqp:not-allowed", "expected snd-settle-mode unsettled or mixed, got settled")
    queue = await nodes.node_for(task.principal, address.destination, SEND)
    check_destination(nodes, queue)
    if not queue.persistent:
        reason = f"queue {queue.name!r} is temporary: what a set stages is for queues that stay"
        raise NodeRefused("amqp:not-allowed", reason)
    part = await _open_part(task, sets, address)
    answer = target_answer(target, target.address)
    answer.capabilities = (HALF_MESSAGES,)
    staging = StagingLink(task, nodes, sets, part, queue, link)
    task.dispatcher.serve_posts(link, staging)
    link.accept(
        source=event.attach.source,
        target=answer,
        properties=dict(HALF_PROPERTIES),
        max_message_size=nodes.config.limits.max_message_size_bytes,
        credit=staging.begin(),
    )
    task.log.debug("link.attached", name=link.name, role="receiver", target=answer.address)


async def _open_part(task: LinkOwner, sets: SetService, address: HalfAddress) -> SetPart:
    done = trio.Event()
    outcomes: list[Any] = []

    def answer(outcome: Any) -> None:
        outcomes.append(outcome)
        done.set()

    operation = OpenPart(sets, address, task.container_id, answer)
    operation.asker = task
    sets.enter(operation)
    await done.wait()
    if isinstance(outcomes[0], Rejected):
        error = outcomes[0].error
        assert error is not None, "a refusal says why"
        raise NodeRefused(str(error.condition), error.description or "")
    assert operation.part is not None, "what was not refused is there"
    return operation.part
