"""Sequenced streams in the answer to an attach: the capability of the target, and where the link's stream
stands.

    attach   properties: seq-stream = the stream of all its messages
    answer   target capability tx-sequence; properties: seq-id, seq-no = the last accepted of the stream
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from amqp_broker.authorisation import Principal
from amqp_broker.frames import Attach, Error, Target, Uint, Ulong
from amqp_broker.persistence import RowDamaged
from amqp_broker.sequences.fields import stream_property
from amqp_broker.sequences.positions import TooManyStreams
from amqp_broker.termini import TerminusRefused

if TYPE_CHECKING:
    from amqp_broker.queue import Queue
    from amqp_broker.sequences.service import SequenceService

TX_SEQUENCE: Final = "tx-sequence"


def check_stream(attach: Attach) -> None:
    """Before a node is made for the link. Raises TerminusRefused where its stream can be none."""
    named = stream_property(attach.properties)
    if isinstance(named, Error):
        raise TerminusRefused(named.condition, named.description or "")


async def sequence_answer(
    sequences: SequenceService, principal: Principal, queue: Queue | None, attach: Attach, target: Target
) -> tuple[str | None, dict[str, Any] | None]:
    """The stream of the link's messages, and the properties of our attach; `target`, the one that we answer
    with, gets the capability. A link to the anonymous terminus (`queue` None) may name a stream, which is
    then that of each message's node. Raises TerminusRefused.
    """
    if queue is not None:
        if queue.sequences.off:
            return None, None
        target.capabilities = (*(target.capabilities or ()), TX_SEQUENCE)
    check_stream(attach)
    stream = stream_property(attach.properties)
    if queue is None or not isinstance(stream, str):
        return stream if isinstance(stream, str) else None, None
    try:
        found = await sequences.position(queue, stream)
    except RowDamaged as error:
        raise TerminusRefused(
            "amqp:internal-error", f"where stream {stream!r} stands is not known: {error}"
        ) from None
    except TooManyStreams as error:
        raise TerminusRefused("amqp:resource-limit-exceeded", str(error)) from None
    if found.owner not in ("", principal.rule_name) and not sequences.may_use(principal, queue):
        raise TerminusRefused(
            "amqp:unauthorized-access",
            f"stream {stream!r} belongs to another principal than {principal.rule_name!r}",
        )
    return stream, {"seq-id": Ulong(found.seq_id), "seq-no": Uint(found.seq_no)}
