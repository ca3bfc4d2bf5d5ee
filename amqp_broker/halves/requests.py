"""Messages of the half-message dialogue as values: a put, a resolution, and the check that the broker writes.

put         half-id = application property half_id, else properties.message-id; half_first_check_ms,
            half_max_age_ms; everything else is the message itself
resolution  correlation-id = the half-id, subject = commit or rollback, application property half_reason
check       a message of the broker with the body of the half message, and half_... application properties
"""

from __future__ import annotations

import hashlib
import uuid
from typing import Any, Final

import attrs

from amqp_broker.coordinator import (
    HalfInput,
    HalfSettings,
    OpenHalf,
    half_id_of,
    half_id_value,
)
from amqp_broker.frames import (
    INTEGERS,
    Int,
    Long,
    Message,
    Properties,
    Symbol,
    Timestamp,
    annotated,
    decode_value,
    encode_section,
)
from amqp_broker.frames.message_peek import peek_answer, peek_header, peek_named
from amqp_broker.halves.addresses import resolve_address
from amqp_broker.nodes.refusals import NodeRefused

HALF_PREFIX: Final = "half_"
HALF_ID: Final = "half_id"
FIRST_CHECK: Final = "half_first_check_ms"
MAX_AGE: Final = "half_max_age_ms"
REASON: Final = "half_reason"
PUT_PROPERTIES: Final = (HALF_ID, FIRST_CHECK, MAX_AGE)
FORBIDDEN_PROPERTIES: Final = ("seq_stream", "seq_id", "seq_no", "seq_prev")
FORBIDDEN_ANNOTATIONS: Final = (
    "x-opt-delivery-time", "x-opt-delivery-delay", "x-opt-seq-stream", "x-opt-seq-id", "x-opt-seq-no",
    "x-opt-seq-prev",
)  # fmt: skip
HALF_ID_ANNOTATION: Final = "x-opt-half-id"
DEAD_LETTER_REASON: Final = "x-opt-dead-letter-reason"
CHECK_BODY_BYTES: Final = 256 * 1_024  # a larger body is left out of a check: it is only a reminder
REASON_CHARACTERS: Final = 1_024  # of a resolver's reason that are kept
SUBJECTS: Final = {"commit": HalfInput.COMMIT, "rollback": HalfInput.ROLLBACK}



@attrs.define
class PutRequest:
    """What a message to `$half/<group>/<destination>` says. `body` is everything after the header."""

    half_id: bytes
    digest: bytes
    body: bytes
    first_check_ms: int
    max_age_ms: int
    priority: int
    ttl_ms: int


@attrs.define
class Resolution:
    """What a message to `$half-resolve/<group>` says: `what` is COMMIT or ROLLBACK."""

    half_id: bytes
    what: HalfInput
    reason: str


def read_put(payload: bytes, settings: HalfSettings) -> PutRequest:
    """The put of a message. Raises NodeRefused, and DecodeError where its sections are malformed."""
    return _put_by_bytes(payload, settings) or _put_by_sections(payload, settings)


def _put_by_bytes(payload: bytes, settings: HalfSettings) -> PutRequest | None:
    """The put of a message of a layout that most clients send; None for every other layout."""
    _durable, priority, ttl_ms, _first, _count, end = peek_header(payload)
    body = payload[end:]
    found = peek_named(body)
    if found is None:
        return None
    message_id, properties, after, names = found
    half_id = half_id_of(message_id)
    if half_id is None:
        return None
    for key in names:
        if key in FORBIDDEN_PROPERTIES or key.startswith(HALF_PREFIX):
            return None
    return PutRequest(
        half_id,
        hashlib.sha256(properties + body[after:]).digest(),
        body,
        min(settings.first_check_ms, settings.max_age_ms),
        settings.max_age_ms,
        4 if priority is None else priority,
        ttl_ms or 0,
    )


def _put_by_sections(payload: bytes, settings: HalfSettings) -> PutRequest:
    message = Message(payload)
    message.check()
    named = message.application_properties or {}
    properties = message.properties or Properties()
    _refuse_reserved(named, message.message_annotations or {})
    given = named.get(HALF_ID)
    if given is not None and not isinstance(given, str):
        raise NodeRefused("amqp:invalid-field", f"{HALF_ID}: expected a string, got {given!r:.80}")
    half_id = half_id_of(properties.message_id if given is None else given)
    if half_id is None:
        raise NodeRefused(
            "half:id-required",
            f"expected a half-id of 1 to 256 octets in the application property {HALF_ID} or in "
            f"properties.message-id, got {properties.message_id if given is None else given!r:.80}",
        )
    first_check_ms = _milliseconds(named, FIRST_CHECK, settings.first_check_ms, settings.max_age_ms)
    max_age_ms = _milliseconds(named, MAX_AGE, settings.max_age_ms, settings.max_age_ms)
    _durable, priority, ttl_ms, _first, _count, _end = peek_header(payload)
    return PutRequest(
        half_id,
        digest_of(message),
        payload[message.after_delivery_annotations_offset :],
        min(first_check_ms, max_age_ms),
        max_age_ms,
        4 if priority is None else priority,
        ttl_ms or 0,
    )


def _refuse_reserved(named: dict[str, Any], annotations: dict[Any, Any]) -> None:
    for key in named:
        if key in FORBIDDEN_PROPERTIES or (key.startswith(HALF_PREFIX) and key not in PUT_PROPERTIES):
            raise NodeRefused("amqp:not-allowed", f"application property {key!r:.80} on a half message")
    for symbol in annotations:
        if isinstance(symbol, Symbol) and symbol.value in FORBIDDEN_ANNOTATIONS:
            raise NodeRefused("amqp:not-allowed", f"message annotation {symbol.value!r} on a half message")


def _milliseconds(named: dict[str, Any], key: str, default: int, most: int) -> int:
    value = named.get(key)
    if value is None:
        return default
    number = value.value if isinstance(value, INTEGERS) else value
    if type(number) is not int or not 0 <= number <= most:
        raise NodeRefused(
            "amqp:invalid-field", f"{key}: expected milliseconds from 0 to {most}, got {value!r:.80}"
        )
    return number


def digest_of(message: Message) -> bytes:
    """SHA-256 over the encoded bare message without message-id, creation-time and user-id, which differ when
    the same message is sent again.
    """
    bare = message.bare
    found = message.properties
    if found is None:
        return hashlib.sha256(bare).digest()
    rest = bare[decode_value(bare)[1] :]
    found.message_id = found.creation_time = found.user_id = None  # decoded for this message alone
    return hashlib.sha256(encode_section("properties", found) + rest).digest()


def read_resolution(payload: bytes) -> Resolution:
    """The resolution that a message is. Raises NodeRefused, and DecodeError."""
    return resolution_by_bytes(payload) or _resolution_by_sections(payload)


def resolution_by_bytes(payload: bytes) -> Resolution | None:
    """The resolution that a message of a layout is that most clients send; None for every other layout, and
    for what is no resolution. Raises DecodeError.
    """
    found = peek_answer(payload[peek_header(payload)[5] :])
    if found is None:
        return None
    what = SUBJECTS.get(found[0])
    half_id = half_id_of(found[1])
    return None if what is None or half_id is None else Resolution(half_id, what, "")


def _resolution_by_sections(payload: bytes) -> Resolution:
    message = Message(payload)
    properties = message.properties or Properties()
    what = SUBJECTS.get(properties.subject or "")
    if what is None:
        raise NodeRefused(
            "amqp:invalid-field", f"expected the subject commit or rollback, got {properties.subject!r:.80}"
        )
    half_id = half_id_of(properties.correlation_id)
    if half_id is None:
        raise NodeRefused(
            "amqp:invalid-field",
            f"expected the half-id in properties.correlation-id, got {properties.correlation_id!r:.80}",
        )
    reason = (message.application_properties or {}).get(REASON, "")
    return Resolution(half_id, what, reason[:REASON_CHARACTERS] if isinstance(reason, str) else "")


def write_check(
    group: str, half: OpenHalf, body: bytes, now_ms: int, deadline_ms: int,
    body_bytes: int = CHECK_BODY_BYTES,
) -> bytes:  # fmt: skip
    """The encoded check-back about a half message whose stored bytes after the header are `body`; a body of
    more than `body_bytes` octets is left out. Its sections are repeated octet for octet. `deadline_ms` is by
    the clock on the wall.
    """
    message = Message(body)
    named = dict(message.application_properties or {})
    named.update(
        {
            "half_id": half_id_value(half.half_id),
            "half_group": group,
            "half_destination": half.destination,
            "half_attempt": Int(half.attempts + 1),
            "half_age_ms": Long(half.age_ms(now_ms)),
            "half_deadline": Long(deadline_ms),
        }
    )
    sections = message.body or encode_section("data", b"")
    if len(body) > body_bytes:
        named["half_body_omitted"] = True
        sections = encode_section("data", b"")
    properties = Properties(
        message_id=str(uuid.uuid4()),
        correlation_id=half_id_value(half.half_id),
        reply_to=resolve_address(group),
        subject="check",
    )
    named_section = encode_section("application-properties", named)
    return encode_section("properties", properties) + named_section + sections


def delivered_body(half: OpenHalf, body: bytes, reason: str) -> bytes:
    """The message as it is delivered: octet for octet, with the annotation that names its half-id. In another
    queue than its own, that of the dead letters, the annotations say for which `reason`.
    """
    added = {HALF_ID_ANNOTATION: half_id_value(half.half_id)}
    if reason:
        added[DEAD_LETTER_REASON] = reason
    return annotated(body, added)


def parked_body(half: OpenHalf, body: bytes, put_at_ms: int) -> bytes:
    """A parked half message as it is shown: octet for octet, with annotations that say what it is, and when
    it was put by the clock on the wall.
    """
    return annotated(
        body,
        {
            HALF_ID_ANNOTATION: half_id_value(half.half_id),
            "x-opt-half-destination": half.destination,
            "x-opt-half-attempts": Int(half.attempts),
            "x-opt-half-put-at": Timestamp(put_at_ms),
        },
    )
