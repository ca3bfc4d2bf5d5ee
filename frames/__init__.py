"""Room `frames`: bytes to values and back, the bottom of the house (parts 1, 2.3, 2.7, 3.2, 3.4, 3.5, 4.5 and
5.3).

Everything here is pure: no sockets, no clock, no state of a connection.

What few need has a door of its own: `sasl` (the bodies of SASL frames), `hot_frames` (what the engine reads
and writes without composites), `message_peek` (what is read of a message without decoding it), `flat_maps`,
`message_parts` and `columns` (many messages at once).
"""

import amqp_broker.frames.sasl  # noqa: F401 - composites are known when they are declared
from amqp_broker.frames.body_check import BodyCheck, cut_body, find_body
from amqp_broker.frames.composite_decoding import decode_composite
from amqp_broker.frames.composite_encoding import encode_composite, register_composites
from amqp_broker.frames.decoding import decode_value
from amqp_broker.frames.delivery_states import decode_state, encode_state
from amqp_broker.frames.encoding import encode_value
from amqp_broker.frames.errors import AmqpError, DecodeError, EncodeError
from amqp_broker.frames.framing import (
    AMQP_HEADER,
    EMPTY_FRAME,
    SASL_HEADER,
    TLS_HEADER,
    Frame,
    FrameReader,
    ProtocolHeader,
    encode_frame,
    encode_sasl_frame,
)
from amqp_broker.frames.limits import MIN_MAX_FRAME_SIZE, SECTION_NODES_MAX
from amqp_broker.frames.message import Message
from amqp_broker.frames.message_check import TIMED, UNSURE, check_body
from amqp_broker.frames.message_encoding import annotated, encode_message, encode_section
from amqp_broker.frames.outcomes import (
    Accepted,
    Declared,
    Error,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
)
from amqp_broker.frames.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Transfer,
)
from amqp_broker.frames.printing import shorten
from amqp_broker.frames.restricted_types import (
    RECEIVER,
    SENDER,
    SETTLE_MODE_FIRST,
    SETTLE_MODE_MIXED,
    SETTLE_MODE_SETTLED,
    SETTLE_MODE_UNSETTLED,
)
from amqp_broker.frames.sections import AmqpSequence, AmqpValue, Data, Header, Properties
from amqp_broker.frames.stamps import OffsetStamp
from amqp_broker.frames.termini import (
    LIFETIME_POLICIES,
    Coordinator,
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Source,
    Target,
    takes_rejected,
)
from amqp_broker.frames.transactions import Declare, Discharge
from amqp_broker.frames.values import (
    INTEGERS,
    Array,
    Byte,
    Decimal128,
    Described,
    Double,
    Float,
    Int,
    IntegerValue,
    Long,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    plain_value,
)

register_composites()

__all__ = [
    "AMQP_HEADER", "Accepted", "AmqpError", "AmqpSequence", "AmqpValue", "Array", "Attach", "Begin",
    "BodyCheck", "Byte", "Close", "Coordinator", "Data", "Decimal128", "Declare", "Declared", "DecodeError",
    "DeleteOnClose", "DeleteOnNoLinks", "DeleteOnNoLinksOrMessages", "DeleteOnNoMessages", "Described",
    "Detach", "Discharge", "Disposition", "Double", "EMPTY_FRAME", "EncodeError", "End", "Error", "Float",
    "Flow", "Frame", "FrameReader", "Header", "INTEGERS", "Int", "IntegerValue",
    "LIFETIME_POLICIES", "Long", "MIN_MAX_FRAME_SIZE", "Message", "Modified", "OffsetStamp", "Open",
    "Properties", "ProtocolHeader", "RECEIVER", "Received", "Rejected", "Released", "SASL_HEADER",
    "SECTION_NODES_MAX", "SENDER", "SETTLE_MODE_FIRST", "SETTLE_MODE_MIXED", "SETTLE_MODE_SETTLED",
    "SETTLE_MODE_UNSETTLED", "Short", "Source", "Symbol", "TLS_HEADER", "Target", "Timestamp",
    "TIMED",
    "TransactionalState", "Transfer", "UNSURE", "Ubyte", "Uint", "Ulong", "Ushort", "annotated",
    "check_body", "cut_body", "decode_composite", "decode_state", "decode_value", "encode_composite",
    "encode_frame", "encode_message", "encode_sasl_frame", "encode_section", "encode_state", "encode_value",
    "find_body",
    "plain_value",
    "shorten",
    "takes_rejected",
]  # fmt: skip
