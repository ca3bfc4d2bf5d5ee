"""The tables of the configuration beside limits: listeners, queue policies, users, access rules, logging."""

from __future__ import annotations

import ipaddress
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from amqp_broker.addresses import (
    TEMPORARY_PREFIX,
    AddressError,
    NodePattern,
    parse_address,
    parse_pattern,
)
from amqp_broker.authorisation import ACTIONS, ANONYMOUS_NAME, ANY_USER
from amqp_broker.configuration_fields import (
    KEY,
    SECRET,
    TUPLE,
    ConfigurationError,
    flag,
    one_of,
    optional,
    shown,
    text,
    whole_number,
    wrong,
)
from amqp_broker.coordinator import ORDER_DEBOUNCE_MS, ORDER_MAX_DELAY_MS

AMQP_PORT: Final = 5672
AMQPS_PORT: Final = 5671
BACKLOG_SOCKETS: Final = 1_024  # connections that the kernel keeps for us while we are busy
VOLATILE_BYTES: Final = (
    64 * 1_024 * 1_024
)  # messages that are not durable are in memory only: four of the largest
PATH_BYTES_MAX: Final = 4_096
ON_FIRST_USE: Final = "on-first-use"
AT_START: Final = "at-start"
STRICT: Final = "strict"
QUEUE_KIND: Final = "queue"
LOG_KIND: Final = "log"  # nobody takes messages, they are read by offset
MIXED_MESSAGES: Final = "mixed"
NORMAL_MESSAGES: Final = "normal"  # no half messages
TRANSACTION_MESSAGES: Final = "transaction"  # half messages only, as RocketMQ has it
SEQUENCE_OFF: Final = "off"
SEQUENCE_OPTIONAL: Final = "optional"
SEQUENCE_REQUIRED: Final = "required"
RETENTION_MS_MAX: Final = 100 * 365 * 24 * 3_600_000  # what is kept for ever is kept for a century
ORDER_MS_MAX: Final = 60_000  # MSMQ waits for 10 s at most; a sender takes longer silence for a loss


def _listen_url(instance: Any, field: attrs.Attribute[Any], value: Any) -> None:
    """`amqp://host:port` or `amqps://host:port`, and nothing behind it."""
    allowed = "must be amqp://HOST:PORT or amqps://HOST:PORT with a port from 0 to 65535 (0: any free one)"
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        raise wrong(field, value, allowed)
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise wrong(field, value, allowed) from None
    rest = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if (
        parts.scheme not in ("amqp", "amqps")
        or not parts.hostname
        or rest
        or (port is None and ":" in _tail(parts.netloc))
    ):
        raise wrong(field, value, allowed)


def _tail(netloc: str) -> str:
    """What follows the host, so that the colons of an IPv6 address don't look like a port's."""
    return netloc.rsplit("]", 1)[-1]


@attrs.frozen(kw_only=True)
class ListenerConfig:
    """One `[[listener]]`: where to accept connections, and who may come in that way.

    `anonymous` None means: on a loopback address as long as no users are configured.
    """

    url: str = attrs.field(default=f"amqp://127.0.0.1:{AMQP_PORT}", validator=_listen_url)
    anonymous: bool | None = attrs.field(default=None, validator=optional(flag))
    plain_without_tls: bool = attrs.field(default=False, validator=flag)
    certificate_file: str | None = attrs.field(default=None, validator=optional(text(PATH_BYTES_MAX)))
    key_file: str | None = attrs.field(default=None, validator=optional(text(PATH_BYTES_MAX)))
    client_ca_file: str | None = attrs.field(default=None, validator=optional(text(PATH_BYTES_MAX)))
    require_client_certificate: bool = attrs.field(default=False, validator=flag)
    backlog_sockets: int = attrs.field(default=BACKLOG_SOCKETS, validator=whole_number(1, 65_535, "sockets"))

    def __attrs_post_init__(self) -> None:
        if self.tls and (self.certificate_file is None or self.key_file is None):
            missing = "certificate_file" if self.certificate_file is None else "key_file"
            raise ConfigurationError(missing, None, f"is missing, and {self.url} needs it for TLS")
        if not self.tls:
            for name in ("certificate_file", "key_file", "client_ca_file"):
                if getattr(self, name) is not None:
                    raise ConfigurationError(
                        name, shown(getattr(self, name)), f"is for amqps:// only, but url is {self.url}"
                    )
        if self.require_client_certificate and self.client_ca_file is None:
            raise ConfigurationError("require_client_certificate", "true", "needs client_ca_file")
        if self.plain_without_tls and not self.tls and not self.loopback:
            allowed = f"is allowed on loopback addresses only, but url is {self.url}"
            raise ConfigurationError("plain_without_tls", "true", allowed)

    @property
    def tls(self) -> bool:
        """Whether connections begin with a TLS handshake."""
        return self.url.startswith("amqps:")

    @property
    def scheme(self) -> str:
        """`amqp` or `amqps`."""
        return "amqps" if self.tls else "amqp"

    @property
    def host(self) -> str:
        """The host name or address to listen on."""
        host = urlsplit(self.url).hostname
        assert host is not None, "the validator has seen a host"
        return host

    @property
    def port(self) -> int:
        """The port to listen on; 0 lets the system choose."""
        port = urlsplit(self.url).port
        return port if port is not None else AMQPS_PORT if self.tls else AMQP_PORT

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether this host name or address is of the machine itself; a name other than localhost is not looked
    up.
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.split("%", 1)[0]).is_loopback
    except ValueError:
        return False


def _pattern(instance: Any, field: attrs.Attribute[Any], value: Any) -> None:
    try:
        parse_pattern(value)
    except AddressError as error:
        raise wrong(field, value, f"must be a pattern: name, prefix.* or prefix.** ({error})") from None


@attrs.frozen(kw_only=True)
class QueuePolicy:
    """One `[[queue]]`: what holds for the queues that the pattern names; the most specific pattern wins.

    `create`: `on-first-use` makes the queue when a link asks for it, `strict` answers amqp:not-found unless
    it exists, `at-start` (exact names only) makes it when the broker starts.
    `kind` `log` archives each message when it becomes available: nobody can take it, it is read by offset
    until retention drops it.  A log needs `retention_ms` or `retention_bytes`, and has no other bounds.
    In `max_messages` and `max_bytes` 0 means: no bound but the disk's.  `max_volatile_bytes` bounds what only
    memory holds.
    `message_type` says whether half messages, ordinary ones or both (`mixed`) are taken.
    `sequence` says whether messages may, must or cannot be of a stream that is accepted in order and exactly
    once; outcomes of such messages are told `order_debounce_ms` (in TOML `ack_debounce_ms`, MSMQ's word)
    after the last one of a burst, at most `order_max_delay_ms` (`ack_max_delay_ms`) after those before.
    `retention_ms` and `retention_bytes` keep settled messages readable by offset, until they are older, or
    all of the queue's together larger, than that; with both at 0 nothing is kept.
    `events` has the event log tell what becomes of each message: put, delivered, settled, dead, expired.
    Every message of a queue that retains or has events is stored, durable or not.
    """

    pattern: str = attrs.field(validator=_pattern)
    create: str = attrs.field(default=ON_FIRST_USE, validator=one_of(ON_FIRST_USE, STRICT, AT_START))
    kind: str = attrs.field(default=QUEUE_KIND, validator=one_of(QUEUE_KIND, LOG_KIND))
    max_messages: int = attrs.field(default=0, validator=whole_number(0, 2**48, "messages, 0 for no bound"))
    max_bytes: int = attrs.field(default=0, validator=whole_number(0, 2**60, "bytes, 0 for no bound"))
    max_volatile_bytes: int = attrs.field(
        default=VOLATILE_BYTES, validator=whole_number(64 * 1_024, 2**60, "bytes")
    )
    message_type: str = attrs.field(
        default=MIXED_MESSAGES, validator=one_of(MIXED_MESSAGES, NORMAL_MESSAGES, TRANSACTION_MESSAGES)
    )
    sequence: str = attrs.field(
        default=SEQUENCE_OPTIONAL, validator=one_of(SEQUENCE_OFF, SEQUENCE_OPTIONAL, SEQUENCE_REQUIRED)
    )
    order_debounce_ms: int = attrs.field(
        default=ORDER_DEBOUNCE_MS,
        validator=whole_number(0, ORDER_MS_MAX, "milliseconds, 0 for at once"),
        metadata={KEY: "ack_debounce_ms"},
    )
    order_max_delay_ms: int = attrs.field(
        default=ORDER_MAX_DELAY_MS,
        validator=whole_number(1, ORDER_MS_MAX, "milliseconds"),
        metadata={KEY: "ack_max_delay_ms"},
    )
    retention_ms: int = attrs.field(
        default=0, validator=whole_number(0, RETENTION_MS_MAX, "milliseconds, 0 for no bound by age")
    )
    retention_bytes: int = attrs.field(
        default=0, validator=whole_number(0, 2**60, "bytes, 0 for no bound by size")
    )
    events: bool = attrs.field(default=False, validator=flag)

    def __attrs_post_init__(self) -> None:
        if self.create == AT_START:
            if not self.node_pattern.exact:
                allowed = (
                    f'"{AT_START}" needs the exact name of a queue, but pattern is {shown(self.pattern)}'
                )
                raise ConfigurationError("create", shown(self.create), allowed)
            if parse_address(self.pattern).reserved:
                raise ConfigurationError(
                    "pattern", shown(self.pattern), "'$' is kept for the broker's own nodes"
                )
            if self.pattern.startswith(TEMPORARY_PREFIX):
                raise ConfigurationError(
                    "pattern", shown(self.pattern), f"'{TEMPORARY_PREFIX}' is kept for dynamic nodes"
                )
        if self.kind == LOG_KIND:
            self._check_log()

    def _check_log(self) -> None:
        if not self.retains:
            raise ConfigurationError(
                "retention_ms",
                "0",
                'must be above 0 where kind is "log" (or else retention_bytes): what bounds it is what it '
                f"keeps; {RETENTION_MS_MAX} is a century",
            )
        for name, default in (("max_messages", 0), ("max_bytes", 0), ("max_volatile_bytes", VOLATILE_BYTES)):
            value = getattr(self, name)
            if value != default:
                raise ConfigurationError(
                    name,
                    shown(value),
                    'is for kind "queue" only: a log takes every message, and drops the oldest ones by '
                    "retention_ms and retention_bytes",
                )

    @property
    def archives(self) -> bool:
        """Whether it is for logs."""
        return self.kind == LOG_KIND

    @property
    def retains(self) -> bool:
        """Whether settled messages are kept."""
        return self.retention_ms > 0 or self.retention_bytes > 0

    @property
    def node_pattern(self) -> NodePattern:
        """The parsed pattern."""
        return parse_pattern(self.pattern)


def _user_name(instance: Any, field: attrs.Attribute[Any], value: Any) -> None:
    text(255)(instance, field, value)
    if value in (ANY_USER, ANONYMOUS_NAME):
        raise wrong(
            field,
            value,
            f'must be another name: "{ANY_USER}" and "{ANONYMOUS_NAME}" have their meaning in rules',
        )
    if not _prepared(value):
        raise wrong(field, value, "must be a name that SASLprep (RFC 4013) leaves as it is")


def _prepared(name: str) -> bool:
    """Whether SASLprep leaves a name as it is; a client's is prepared before it is looked up."""
    if name.isascii():
        return True
    from amqp_broker.verifiers import prepared_name

    return prepared_name(name) == name


def _verifier_of(mechanism: str) -> Any:
    """A validator: a verifier as `amqp-broker user add` prints it, of this mechanism."""

    def check(instance: Any, field: attrs.Attribute[Any], value: Any) -> None:
        from amqp_broker.verifiers import (
            VerifierError,
            parse_verifier,
        )  # hashing is loaded when users are configured

        try:
            verifier = parse_verifier(value)
        except VerifierError as error:
            raise wrong(field, value, f"{error}; use what amqp-broker user add prints") from None
        if verifier.mechanism != mechanism:
            raise wrong(
                field, value, f"must be a verifier of {mechanism}, but is one of {verifier.mechanism}"
            )

    return optional(check)


@attrs.frozen(kw_only=True)
class UserConfig:
    """One `[[user]]`: a name and what proves it.  Verifiers are stored, never passwords.

    A user without a verifier can log in with a client certificate (EXTERNAL) only.
    """

    name: str = attrs.field(validator=_user_name)
    scram_sha_256: str | None = attrs.field(
        default=None, repr=False, validator=_verifier_of("SCRAM-SHA-256"), metadata={SECRET: True}
    )
    scram_sha_512: str | None = attrs.field(
        default=None, repr=False, validator=_verifier_of("SCRAM-SHA-512"), metadata={SECRET: True}
    )


def _words(check_word: Any) -> Any:
    """A validator: a non-empty tuple of strings, each checked."""

    def check(instance: Any, field: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, tuple) or not value:
            raise wrong(field, value, "must be an array of at least one string")
        for index, word in enumerate(value):
            try:
                check_word(instance, field, word)
            except ConfigurationError as error:
                raise ConfigurationError(f"{error.field}[{index}]", error.value, error.allowed) from None

    return check


@attrs.frozen(kw_only=True)
class AccessRule:
    """One `[[access]]`: these users may do these actions on these nodes.  `users = ["*"]` is everybody."""

    users: tuple[str, ...] = attrs.field(validator=_words(text(255)), metadata={TUPLE: True})
    actions: tuple[str, ...] = attrs.field(validator=_words(one_of(*ACTIONS)), metadata={TUPLE: True})
    nodes: tuple[str, ...] = attrs.field(default=("**",), validator=_words(_pattern), metadata={TUPLE: True})


@attrs.frozen(kw_only=True)
class LoggingConfig:
    """The `[logging]` table.  `auto` writes for people on a terminal and JSON lines elsewhere."""

    level: str = attrs.field(default="info", validator=one_of("debug", "info", "warning", "error"))
    format: str = attrs.field(default="auto", validator=one_of("auto", "console", "json"))
