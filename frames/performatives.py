"""The performatives of part 2 (2.7) and the error that they carry (2.8.14)."""

from typing import Any

from amqp_broker.frames.composite import Composite, composite, wire
from amqp_broker.frames.outcomes import DeliveryState, Error
from amqp_broker.frames.termini import AnySource, AnyTarget


@composite(0x10, ("frame",))
class Open(Composite):
    """Negotiates the parameters of a connection (2.7.1). Sizes in octets, times in ms."""

    container_id: str = wire("string", mandatory=True, default=None)
    hostname: str | None = wire("string", default=None)
    max_frame_size: int = wire("uint", default=4294967295)
    channel_max: int = wire("ushort", default=65535)
    idle_time_out: int | None = wire("milliseconds", default=None)
    outgoing_locales: tuple[str, ...] | None = wire("ietf-language-tag", multiple=True, default=None)
    incoming_locales: tuple[str, ...] | None = wire("ietf-language-tag", multiple=True, default=None)
    offered_capabilities: tuple[str, ...] | None = wire("symbol", multiple=True, default=None)
    desired_capabilities: tuple[str, ...] | None = wire("symbol", multiple=True, default=None)
    properties: dict[str, Any] | None = wire("fields", default=None)


@composite(0x11, ("frame",))
class Begin(Composite):
    """Begins a session on a channel (2.7.2). Windows in transfers."""

    remote_channel: int | None = wire("ushort", default=None)
    next_outgoing_id: int = wire("transfer-number", mandatory=True, default=None)
    incoming_window: int = wire("uint", mandatory=True, default=None)
    outgoing_window: int = wire("uint", mandatory=True, default=None)
    handle_max: int = wire("handle", default=4294967295)
    offered_capabilities: tuple[str, ...] | None = wire("symbol", multiple=True, default=None)
    desired_capabilities: tuple[str, ...] | None = wire("symbol", multiple=True, default=None)
    properties: dict[str, Any] | None = wire("fields", default=None)


@composite(0x12, ("frame",))
class Attach(Composite):
    """Attaches a link to a session (2.7.3). `unsettled` maps delivery-tags to delivery states or None."""

    name: str = wire("string", mandatory=True, default=None)
    handle: int = wire("handle", mandatory=True, default=None)
    role: bool = wire("role", mandatory=True, default=None)
    snd_settle_mode: int = wire("sender-settle-mode", default=2)
    rcv_settle_mode: int = wire("receiver-settle-mode", default=0)
    source: AnySource = wire("*", requires="source", default=None)
    target: AnyTarget = wire("*", requires="target", default=None)
    unsettled: dict[Any, Any] | None = wire("map", default=None)
    incomplete_unsettled: bool = wire("boolean", default=False)
    initial_delivery_count: int | None = wire("sequence-no", default=None)
    max_message_size: int | None = wire("ulong", default=None)
    offered_capabilities: tuple[str, ...] | None = wire("symbol", multiple=True, default=None)
    desired_capabilities: tuple[str, ...] | None = wire("symbol", multiple=True, default=None)
    properties: dict[str, Any] | None = wire("fields", default=None)


@composite(0x13, ("frame",))
class Flow(Composite):
    """Updates the flow state of a session and, with a handle, of a link (2.7.4)."""

    next_incoming_id: int | None = wire("transfer-number", default=None)
    incoming_window: int = wire("uint", mandatory=True, default=None)
    next_outgoing_id: int = wire("transfer-number", mandatory=True, default=None)
    outgoing_window: int = wire("uint", mandatory=True, default=None)
    handle: int | None = wire("handle", default=None)
    delivery_count: int | None = wire("sequence-no", default=None)
    link_credit: int | None = wire("uint", default=None)
    available: int | None = wire("uint", default=None)
    drain: bool = wire("boolean", default=False)
    echo: bool = wire("boolean", default=False)
    properties: dict[str, Any] | None = wire("fields", default=None)


@composite(0x14, ("frame",))
class Transfer(Composite):
    """Carries a message or a part of one; the payload follows it in the frame (2.7.5)."""

    handle: int = wire("handle", mandatory=True, default=None)
    delivery_id: int | None = wire("delivery-number", default=None)
    delivery_tag: bytes | None = wire("delivery-tag", default=None)
    message_format: int | None = wire("message-format", default=None)
    settled: bool | None = wire("boolean", default=None)
    more: bool = wire("boolean", default=False)
    rcv_settle_mode: int | None = wire("receiver-settle-mode", default=None)
    state: DeliveryState = wire("*", requires="delivery-state", default=None)
    resume: bool = wire("boolean", default=False)
    aborted: bool = wire("boolean", default=False)
    batchable: bool = wire("boolean", default=False)


@composite(0x15, ("frame",))
class Disposition(Composite):
    """Tells the state of the deliveries from `first` to `last` (2.7.6)."""

    role: bool = wire("role", mandatory=True, default=None)
    first: int = wire("delivery-number", mandatory=True, default=None)
    last: int | None = wire("delivery-number", default=None)
    settled: bool = wire("boolean", default=False)
    state: DeliveryState = wire("*", requires="delivery-state", default=None)
    batchable: bool = wire("boolean", default=False)


@composite(0x16, ("frame",))
class Detach(Composite):
    """Detaches a link from its session, and closes it if `closed` (2.7.7)."""

    handle: int = wire("handle", mandatory=True, default=None)
    closed: bool = wire("boolean", default=False)
    error: Error | None = wire("error", default=None)


@composite(0x17, ("frame",))
class End(Composite):
    """Ends a session (2.7.8)."""

    error: Error | None = wire("error", default=None)


@composite(0x18, ("frame",))
class Close(Composite):
    """Closes a connection (2.7.9)."""

    error: Error | None = wire("error", default=None)
