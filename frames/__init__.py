"""Room `frames`: bytes to values and back, the bottom of the house (parts 1, 2.3, 2.7, 3.2, 3.4, 3.5, 4.5 and
5.3).

Everything here is pure: no sockets, no clock, no state of a connection.
"""

from amqp_broker.frames.composite_decoding import decode_composite
from amqp_broker.frames.composite_encoding import encode_composite, register_composites
from amqp_broker.frames.decoding import decode_value
from amqp_broker.frames.delivery import Delivery
from amqp_broker.frames.delivery_states import decode_state, encode_state
from amqp_broker.frames.encoding import encode_value
from amqp_broker.frames.errors import AmqpError, DecodeError, EncodeError
from amqp_broker.frames.field_writers import link_fields
from amqp_broker.frames.flat_maps import encode_flat_map, extend_from_map, read_entries, read_flat_map
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
from amqp_broker.frames.generated import (
    FlowHead,
    TransferHead,
    encode_disposition,
    encode_flow,
    read_disposition,
    read_transfer,
)
from amqp_broker.frames.hot_frames import HotFrames
from amqp_broker.frames.layout import (
    Sendable,
    TransferEncoder,
    TransferLayout,
)
from amqp_broker.frames.limits import MIN_MAX_FRAME_SIZE, SECTION_NODES_MAX
from amqp_broker.frames.message import Message
from amqp_broker.frames.message_check import UNSURE, check_body
from amqp_broker.frames.message_encoding import annotated, encode_message, encode_section
from amqp_broker.frames.message_parts import read_properties, split_many
from amqp_broker.frames.message_peek import (
    find_maps,
    peek_answer,
    peek_header,
    peek_identity,
    peek_named,
    read_request,
)
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
    SASL_AUTH,
    SASL_OK,
    SENDER,
    SETTLE_MODE_FIRST,
    SETTLE_MODE_MIXED,
    SETTLE_MODE_SETTLED,
    SETTLE_MODE_UNSETTLED,
)
from amqp_broker.frames.sasl import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from amqp_broker.frames.sections import AmqpSequence, AmqpValue, Data, Header, Properties
from amqp_broker.frames.stamps import OffsetStamp
from amqp_broker.frames.termini import (
    AnyTarget,
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
    Array,
    Byte,
    Decimal128,
    Described,
    Double,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)

register_composites()

__all__ = [
    "read_disposition",
    "read_transfer",
    "AMQP_HEADER",
    "Accepted",
    "AmqpError",
    "AmqpSequence",
    "AmqpValue",
    "AnyTarget",
    "Array",
    "Attach",
    "Begin",
    "Byte",
    "Close",
    "Coordinator",
    "Data",
    "Decimal128",
    "Declare",
    "Declared",
    "DecodeError",
    "DeleteOnClose",
    "DeleteOnNoLinks",
    "DeleteOnNoLinksOrMessages",
    "DeleteOnNoMessages",
    "Delivery",
    "Described",
    "Detach",
    "Discharge",
    "Disposition",
    "Double",
    "EMPTY_FRAME",
    "EncodeError",
    "End",
    "Error",
    "Float",
    "Flow",
    "FlowHead",
    "Frame",
    "FrameReader",
    "Header",
    "HotFrames",
    "Int",
    "Long",
    "MIN_MAX_FRAME_SIZE",
    "Message",
    "Modified",
    "OffsetStamp",
    "Open",
    "Properties",
    "ProtocolHeader",
    "RECEIVER",
    "Received",
    "Rejected",
    "Released",
    "SASL_AUTH",
    "SASL_HEADER",
    "SASL_OK",
    "SECTION_NODES_MAX",
    "SENDER",
    "SETTLE_MODE_FIRST",
    "SETTLE_MODE_MIXED",
    "SETTLE_MODE_SETTLED",
    "SETTLE_MODE_UNSETTLED",
    "SaslChallenge",
    "SaslInit",
    "SaslMechanisms",
    "SaslOutcome",
    "SaslResponse",
    "Sendable",
    "Short",
    "Source",
    "Symbol",
    "TLS_HEADER",
    "Target",
    "Timestamp",
    "TransactionalState",
    "Transfer",
    "TransferEncoder",
    "TransferHead",
    "TransferLayout",
    "UNSURE",
    "Ubyte",
    "Uint",
    "Ulong",
    "Ushort",
    "annotated",
    "check_body",
    "decode_composite",
    "decode_state",
    "decode_value",
    "encode_composite",
    "encode_disposition",
    "encode_flat_map",
    "encode_flow",
    "encode_frame",
    "encode_message",
    "encode_sasl_frame",
    "encode_section",
    "encode_state",
    "encode_value",
    "extend_from_map",
    "find_maps",
    "link_fields",
    "peek_answer",
    "peek_header",
    "peek_identity",
    "peek_named",
    "read_entries",
    "read_flat_map",
    "read_properties",
    "read_request",
    "shorten",
    "split_many",
    "takes_rejected",
]
