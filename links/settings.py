"""What one end of a connection announces and allows."""

from typing import Any

import attrs

from amqp_broker.links.limits import Limits, OperationRate, PartialBytes
from amqp_broker.links.memory_budget import Account, MemoryBudget
from amqp_broker.links.refusals import Refusals


@attrs.define
class ConnectionSettings:
    """Given to `Connection`; never changed by it.

    `sasl_mechanisms` are offered by a server, in decreasing preference; a client sets `sasl` to start with
    the SASL header and then names its mechanism by `sasl_init`. `allow_bare_header` lets a client skip SASL.
    """

    server: bool = True
    container_id: str = ""
    hostname: str | None = None
    max_frame_size: int = 65_536
    """Octets, announced and enforced (2.7.1)."""
    channel_max: int = 1_023
    """Announced and enforced: 1,024 sessions."""
    handle_max: int = 4_095
    """Announced and enforced: 4,096 links for each session."""
    idle_time_out_ms: int = 30_000
    """Announced; enforced at twice this (2.4.5). 0: none."""
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: dict[str, Any] | None = None
    sasl_mechanisms: tuple[str, ...] = ("ANONYMOUS",)
    allow_bare_header: bool = True
    sasl: bool = False
    limits: Limits = attrs.field(factory=Limits)
    partial_bytes: PartialBytes = attrs.field(factory=PartialBytes)
    """Shared by all connections of the process."""
    account: Account = attrs.field(factory=lambda: Account(MemoryBudget()))
    """What is kept in memory for this connection."""
    refusals: Refusals = attrs.field(factory=Refusals)
    """Where refusals are counted, of all connections of the process."""
    peer_rate: OperationRate | None = None
    """Control operations of all connections from the peer's address, so that a new connection is no new
    start.
    """
    next_outgoing_id: int = 0
    """Where transfer-ids and delivery-ids of sessions start; tests start near 2^32."""
    initial_delivery_count: int = 0
