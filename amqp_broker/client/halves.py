"""The half-message dialogue from the producer's side, as values: no links, no waiting.

put       half_message(...) to put_address(...)            accepted: prepared, nobody sees it yet
resolve   resolution_message(...) to resolve_address(...)  accepted: decided
check     half_of(received) from check_address(...)        answered by a resolution, or by its outcome
"""

from __future__ import annotations

import copy
import logging
from enum import Enum
from typing import Any, Final, Protocol, cast

import attrs

from amqp_broker.addresses import is_group_name
from amqp_broker.client.errors import ClientError, WrongUse
from amqp_broker.client.half_errors import HalfNotSupported, number_of
from amqp_broker.client.messages import OutgoingMessage, ReceivedMessage, message
from amqp_broker.frames import Accepted, Error, Modified, Properties, Rejected
from amqp_broker.halves.addresses import BY_OUTCOME, CHECK, PUT

HALF_VERSION: Final = 1


class Resolution(Enum):
    """What became of a local transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"
    """It is not decided yet, or cannot be told: the broker asks again later."""


@attrs.frozen
class Receipt:
    """What `send_in_transaction` did."""

    half_id: Any
    resolution: Resolution
    """What the local transaction said."""
    told: bool
    """The broker has stored it. False: the check-back decides."""
    error: ClientError | None = None
    """Why the broker could not be told, although the resolution is known."""


@attrs.frozen
class Half:
    """A half message that the broker asks about."""

    half_id: Any
    group: str
    destination: str
    attempt: int
    """From 1; unknown answers before this one are counted."""
    age_ms: int
    """Since it was stored, by the broker's clock."""
    deadline_ms: int
    """When it will be rolled back or parked without an answer; ms since the Unix epoch."""
    body: Any
    """None where it was left out."""
    body_omitted: bool
    """It has more than the 256 KiB that a check brings."""
    application_properties: dict[str, Any]
    """The producer's own."""


_PROPERTIES: Final = frozenset(field.name for field in attrs.fields(cast(Any, Properties)))


def expect_group(group: str) -> str:
    """The name of a producer group. Raises WrongUse."""
    if not is_group_name(group):
        raise WrongUse(f"expected a group of 1 to 64 of A-Z a-z 0-9 . _ -, found {group!r:.80}")
    return group


def put_address(group: str, destination: str) -> str:
    """Where half messages for `destination` are put."""
    return f"{PUT}/{group}/{destination}"


def check_address(group: str, by_outcome: bool) -> str:
    """Where the broker asks."""
    return f"{CHECK}/{group}/{BY_OUTCOME}" if by_outcome else f"{CHECK}/{group}"


class HalfLink(Protocol):
    """A sender or receiver of either shell."""

    core: Any

    def close(self) -> None:
        """Detaches."""


def expect_half_link(link: HalfLink) -> None:
    """Raises HalfNotSupported, and closes the link, unless the peer says that it knows half messages.

    A broker that makes queues on first use would take them as usual ones, and keep them for ever.
    """
    found = link.core.remote_properties.get("half-version")
    if found is None or number_of(found) != HALF_VERSION:
        link.close()
        raise HalfNotSupported(
            f"expected the link property half-version {HALF_VERSION} from {link.core.address!r}, "
            f"found {found!r}: the peer knows no half messages of this kind"
        )


def half_message(
    body: Any,
    half_id: Any,
    *,
    first_check_ms: int | None = None,
    max_age_ms: int | None = None,
    properties: Properties | None = None,
    application_properties: dict[str, Any] | None = None,
    **fields: Any,
) -> OutgoingMessage:
    """The message to put. The half-id is its message-id; where the properties have another one, it goes into
    the application property `half_id`, as a string. `fields` are those of `message`, and single ones of the
    properties.
    """
    single = {name: fields.pop(name) for name in list(fields) if name in _PROPERTIES}
    if single and properties is not None:
        raise WrongUse(f"expected either properties or single fields of them, found both: {sorted(single)}")
    made = Properties(**single) if properties is None else copy.copy(properties)
    named = dict(application_properties or {})
    if made.message_id is None:
        made.message_id = half_id
    elif made.message_id != half_id:
        if not isinstance(half_id, str):
            kind = type(half_id).__name__
            raise WrongUse(f"expected a half-id of type str beside another message-id, found {kind}")
        named["half_id"] = half_id
    if first_check_ms is not None:
        named["half_first_check_ms"] = first_check_ms
    if max_age_ms is not None:
        named["half_max_age_ms"] = max_age_ms
    return message(body, properties=made, application_properties=named or None, **fields)


def resolution_message(half_id: Any, resolution: Resolution, reason: str | None = None) -> OutgoingMessage:
    """The message that decides."""
    if resolution is Resolution.UNKNOWN:
        raise WrongUse("expected COMMIT or ROLLBACK: what is unknown is not told, the broker asks later")
    return message(
        properties=Properties(correlation_id=half_id, subject=resolution.value),
        application_properties=None if reason is None else {"half_reason": reason},
    )


def half_of(received: ReceivedMessage) -> Half:
    """What a check asks about. Raises WrongUse for a message that is none, and DecodeError."""
    named = dict(received.application_properties)
    try:
        return Half(
            half_id=received.properties.correlation_id,
            group=named.pop("half_group"),
            destination=named.pop("half_destination"),
            attempt=number_of(named.pop("half_attempt")),
            age_ms=number_of(named.pop("half_age_ms")),
            deadline_ms=number_of(named.pop("half_deadline")),
            body=None if (omitted := bool(named.pop("half_body_omitted", False))) else received.body,
            body_omitted=omitted,
            application_properties={
                key: value for key, value in named.items() if not key.startswith("half_")
            },
        )
    except KeyError as error:
        raise WrongUse(f"expected a check, but {received!r} has no application property {error}") from None


def expect_resolution(answer: object, whose: str) -> Resolution:
    """What the caller's function returned. Raises TypeError for anything but a Resolution."""
    if not isinstance(answer, Resolution):
        raise TypeError(f"expected a Resolution from {whose}, found {answer!r:.80}")
    return answer


def unresolved(error: Exception, half_id: Any, group: str) -> None:
    """Says on the error of a local transaction what it means for its half message."""
    error.add_note(
        f"half message {half_id!r} of group {group!r} is not resolved: the broker will ask a checker about it"
    )


def log_check_error(half: Half | None, error: Exception) -> None:
    """What becomes of errors of a checker where nobody wants them: the log `amqp_broker.client`."""
    whom = (
        "a message that is no check" if half is None else f"half message {half.half_id!r} of {half.group!r}"
    )
    logging.getLogger("amqp_broker.client").error("check of %s failed", whom, exc_info=error)


def outcome_of_check(resolution: Resolution, by_outcome: bool) -> Any:
    """The outcome of a check. Where outcomes do not decide, it says no more than that we were asked."""
    if not by_outcome or resolution is Resolution.COMMIT:
        return Accepted()
    if resolution is Resolution.ROLLBACK:
        return Rejected(error=Error(condition="half:rolled-back", description="by the checker"))
    return UNKNOWN_OUTCOME


UNKNOWN_OUTCOME: Final = Modified(delivery_failed=True)
"""The outcome of a check-back whose answer is not known: it counts as an attempt at both addresses."""
