"""The configuration of a broker: made in Python, or read from TOML and checked once.

    config = BrokerConfig(memory=True, listeners=(ListenerConfig(url="amqp://127.0.0.1:0"),))
    config = load_configuration("broker.toml")

Each table of the file is a class, and each key a field that says what may stand there and what it means; the
`[limits]` stand in `configuration_limits`.  Paths in a file are relative to the file.  An unknown key is an
error.
"""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import attrs

from amqp_broker.addresses import (
    TEMPORARY_PREFIX,
    AddressError,
    NodePattern,
    is_group_name,
    parse_address,
    parse_pattern,
    parse_topic_pattern,
)
from amqp_broker.authorisation import ACTIONS, ANONYMOUS_NAME, ANY_USER
from amqp_broker.configuration_fields import (
    FLAG,
    Allowed,
    ConfigurationError,
    Problem,
    Table,
    about,
    any_of,
    each,
    one_of,
    setting,
    shown,
    text,
    whole_number,
)
from amqp_broker.configuration_limits import DAY_MS, BrokerLimits
from amqp_broker.coordinator import PARK_POLICY, ROLLBACK_POLICY, HalfSettings
from amqp_broker.coordinator.sequences import ORDER_DEBOUNCE_MS, ORDER_MAX_DELAY_MS

__all__ = [
    "AT_START",
    "DEAD_LETTERS",
    "DEFAULT_DATA_DIR",
    "LOG_KIND",
    "NORMAL_MESSAGES",
    "ON_FIRST_USE",
    "QUEUE_KIND",
    "SEQUENCE_OFF",
    "SEQUENCE_REQUIRED",
    "STRICT",
    "TOPIC_KIND",
    "TRANSACTION_MESSAGES",
    "AccessRule",
    "AliasConfig",
    "BindingConfig",
    "BrokerConfig",
    "BrokerLimits",
    "CertificateConfig",
    "ConfigurationError",
    "HalfGroupConfig",
    "HttpConfig",
    "ListenerConfig",
    "LoggingConfig",
    "Problem",
    "QueuePolicy",
    "TokenIssuerConfig",
    "TracingConfig",
    "UserConfig",
    "is_loopback",
    "is_user_name",
    "load_configuration",
    "parse_configuration",
    "shown",
]

DEFAULT_DATA_DIR: Final = "amqp-broker-data"
CONFIGURATION_BYTES_MAX: Final = 16 * 1_024 * 1_024  # 50,000 users; a device given by mistake ends here
PATH: Final = text(4_096)
AMQP_PORT: Final = 5672
PORTS: Final = {"amqp": AMQP_PORT, "amqps": 5671, "ws": 80, "wss": 443}
BACKLOG_SOCKETS: Final = 1_024  # connections that the kernel keeps for us while we are busy
VOLATILE_BYTES: Final = 64 * 1_024 * 1_024  # what is not durable is in memory only: four of the largest
QUEUE_BYTES_MAX: Final = 2**60
LAST_VALUE_KEY_BYTES: Final = 255  # of the name of a property
LAST_VALUES_MAX: Final = 1_000_000  # keys are in memory, some 360 octets each, and are read at each start
DEAD_LETTERS: Final = "dead-letters"
ON_FIRST_USE: Final = "on-first-use"
AT_START: Final = "at-start"
STRICT: Final = "strict"
QUEUE_KIND: Final = "queue"
TOPIC_KIND: Final = "topic"  # what is sent there is copied to each subscription
LOG_KIND: Final = "log"  # nobody takes messages, they are read by offset
MIXED_MESSAGES: Final = "mixed"
NORMAL_MESSAGES: Final = "normal"  # no half messages
TRANSACTION_MESSAGES: Final = "transaction"  # half messages only, as RocketMQ has it
URI_FORM: Final = "uri"  # queue://q, topic://t
RABBITMQ_FORM: Final = "rabbitmq"  # /queues/q, /exchanges/e/k
ARTEMIS_FORM: Final = "artemis"  # address::queue
SEQUENCE_OFF: Final = "off"
SEQUENCE_OPTIONAL: Final = "optional"
SEQUENCE_REQUIRED: Final = "required"
RETENTION_MS_MAX: Final = 100 * 365 * DAY_MS  # what is kept for ever is kept for a century
ORDER_MS_MAX: Final = 60_000  # MSMQ waits for 10 s at most; a sender takes longer silence for a loss
YEAR_MS: Final = 365 * DAY_MS
HALF_DEFAULTS: Final = HalfSettings()


def _is_listen_url(value: object) -> bool:
    """SCHEME://HOST:PORT, and nothing behind it."""
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        return False
    parts = urlsplit(value)
    rest = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    # What follows an IPv6 address has no more of its colons.
    empty_port = parts.port is None and ":" in parts.netloc.rsplit("]", 1)[-1]
    return parts.scheme in PORTS and bool(parts.hostname) and not rest and not empty_port


LISTEN_URL: Final = Allowed(
    "must be amqp://HOST:PORT, amqps, ws or wss, with a port from 0 to 65535 (0: any free one)",
    _is_listen_url,
)


def _is_origin(value: object) -> bool:
    parts = urlsplit(value) if isinstance(value, str) else None
    return parts is not None and bool(parts.hostname) and value == f"{parts.scheme}://{parts.netloc}"


ORIGIN: Final = Allowed("must be as a browser says it, https://HOST or https://HOST:PORT", _is_origin)


def _is_server_name(value: object) -> bool:
    name = str(value).removeprefix("*.")
    return text(253).holds(value) and name.isascii() and set(name.lower()) <= SERVER_NAME_CHARACTERS


SERVER_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")
SERVER_NAME: Final = Allowed('must be a host name, or "*." and a domain', _is_server_name)


@attrs.frozen(kw_only=True)
class CertificateConfig(Table):
    """One `[[certificate]]`: what clients are shown that ask for one of these names (SNI), by each listener
    with TLS instead of its own.
    """

    server_names: tuple[str, ...] = attrs.field(
        validator=each(SERVER_NAME), metadata=about("the names; `*.` stands for one label"))
    certificate_file: str = attrs.field(validator=PATH, metadata=about("PEM: the certificate and its chain"))
    key_file: str = attrs.field(validator=PATH, metadata=about("PEM: its private key"))


@attrs.frozen(kw_only=True)
class ListenerConfig(Table):
    """One `[[listener]]`: where to accept connections, and who may come in that way."""

    url: str = setting(
        f"amqp://127.0.0.1:{AMQP_PORT}", LISTEN_URL,
        "where to listen; amqps for TLS, ws and wss for WebSocket")
    anonymous: bool | None = setting(
        None, FLAG,
        "whether SASL ANONYMOUS and the bare AMQP header get in; by default on a loopback address as long as "
        "no users are configured")
    plain_without_tls: bool = setting(
        False, FLAG, "whether passwords may come in clear, on loopback addresses only")
    certificate_file: str | None = setting(
        None, PATH,
        "for TLS, PEM: the certificate and its chain; on amqp:// clients may ask for TLS then (5.2.1)")
    key_file: str | None = setting(None, PATH, "for TLS, PEM: the certificate's private key")
    client_ca_file: str | None = setting(None, PATH, "for TLS, PEM: who may issue clients' certificates")
    require_client_certificate: bool = setting(
        False, FLAG, "whether clients without a certificate stay out; needs client_ca_file")
    backlog_sockets: int = setting(
        BACKLOG_SOCKETS, whole_number(1, 65_535, "sockets"), "connections that the kernel keeps waiting")
    origins: tuple[str, ...] = setting(
        (), any_of(ORIGIN), "for ws and wss: pages from where may connect, in browsers; without one none")

    def contradictions(self) -> Iterator[Problem]:
        """What TLS needs, what is for TLS only, and passwords that everybody could read."""
        needed, optional = ("certificate_file", "key_file"), ("client_ca_file",)
        begun = any(getattr(self, name) is not None for name in (*needed, *optional))
        for name in (*needed, *optional):
            value = getattr(self, name)
            if (self.tls or begun) and value is None and name in needed:
                yield Problem(name, None, f"is missing, and {self.url} needs it for TLS")
            elif self.scheme == "ws" and value is not None:
                yield Problem(name, shown(value), f"is for TLS only, but url is {self.url}")
        if self.require_client_certificate and not self.tls:
            allowed = f"is for amqps and wss only: at {self.url} clients may come without TLS"
            yield Problem("require_client_certificate", "true", allowed)
        elif self.require_client_certificate and self.client_ca_file is None:
            yield Problem("require_client_certificate", "true", "needs client_ca_file")
        if self.origins and not self.websocket:
            yield Problem("origins", shown(self.origins), f"are for ws and wss only, but url is {self.url}")
        if self.plain_without_tls and not self.tls and not self.loopback:
            allowed = f"is allowed on loopback addresses only, but url is {self.url}"
            yield Problem("plain_without_tls", "true", allowed)

    @property
    def tls(self) -> bool:
        """Whether connections begin with a TLS handshake."""
        return self.scheme in ("amqps", "wss")

    @property
    def websocket(self) -> bool:
        """Whether AMQP stands in a WebSocket."""
        return self.scheme in ("ws", "wss")

    @property
    def scheme(self) -> str:
        """One of PORTS."""
        return urlsplit(self.url).scheme

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
        return port if port is not None else PORTS[self.scheme]

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


PATTERN: Final = Allowed(
    "must be a pattern: name, prefix.* or prefix.**", lambda value: parse_pattern(value) is not None
)


def _is_queue_address(value: object) -> bool:
    try:
        address = parse_address(value)
    except AddressError as error:
        raise ValueError(str(error)) from None
    return not address.reserved and not address.name.startswith(TEMPORARY_PREFIX)


QUEUE_ADDRESS: Final = Allowed(
    f"must be the address of a queue, which begins neither with '$' nor with '{TEMPORARY_PREFIX}'",
    _is_queue_address,
)


def _to_keep(what: str, high: int, unit: str) -> Any:
    return setting(
        0, whole_number(0, high, f"{unit}, 0 for no bound by {what}"),
        f"settled messages stay readable by offset, bounded by their {what}; without both bounds none do",
    )


_NOT_OF_A_TOPIC: Final = (
    "create", "message_type", "sequence", "retention_ms", "retention_bytes", "events", "exclusive",
    "duplicate_window_ms", "last_value_key", "ring_messages", "ring_bytes",
)  # fmt: skip
_NOT_OF_A_LOG: Final = (
    "max_messages", "max_bytes", "max_volatile_bytes", "priorities", "exclusive", "groups",
    "consumer_timeout_ms", "duplicate_window_ms", "last_value_key", "ring_messages", "ring_bytes",
)  # fmt: skip


@attrs.frozen(kw_only=True)
class QueuePolicy(Table):
    """One `[[queue]]`: what holds for the queues that the pattern names; the most specific pattern wins.

    A log needs `retention_ms` or `retention_bytes`, and has no other bounds.  Every message of a queue that
    retains or has events is stored, durable or not.
    """

    pattern: str = attrs.field(
        validator=PATTERN, metadata=about("the queues' name, or what their names begin with"))
    create: str = setting(
        ON_FIRST_USE, one_of(ON_FIRST_USE, STRICT, AT_START),
        "whether a queue is made when a link asks for it, never (amqp:not-found), or when the broker starts "
        "(exact names only)")
    kind: str = setting(
        QUEUE_KIND, one_of(QUEUE_KIND, LOG_KIND, TOPIC_KIND),
        "a log archives each message when it becomes available: nobody can take it, it is read by offset "
        "until retention drops it; a topic copies each message to its subscriptions, of each of which the "
        "bounds are")
    exclusive: bool = setting(
        False, FLAG, "whether one link at a time may receive, beside those that only browse")
    groups: bool = setting(
        False, FLAG, "whether messages with one group-id go to one consumer, in order, while it holds them")
    max_groups: int = setting(
        10_000, whole_number(1, 10_000_000, "groups"),
        "held at a time; beyond that one ends of which no consumer has a message, the longest unused first")
    group_rebalance: bool = setting(
        False, FLAG, "whether a new consumer gets its share of the groups that are held")
    consumer_timeout_ms: int = setting(
        0, whole_number(0, YEAR_MS, "milliseconds, 0 for any time"),
        "that a receiving link may keep a message without an outcome: then it is detached")
    max_messages: int = setting(
        0, whole_number(0, 2**48, "messages, 0 for no bound"), "of a queue; without a bound the disk's holds")
    max_bytes: int = setting(
        0, whole_number(0, QUEUE_BYTES_MAX, "bytes, 0 for no bound"), "of a queue; without one the disk's")
    max_volatile_bytes: int = setting(
        VOLATILE_BYTES, whole_number(64 * 1_024, QUEUE_BYTES_MAX, "bytes"), "that only memory holds")
    message_type: str = setting(
        MIXED_MESSAGES, one_of(MIXED_MESSAGES, NORMAL_MESSAGES, TRANSACTION_MESSAGES),
        "whether half messages, ordinary ones or both are taken")
    sequence: str = setting(
        SEQUENCE_OPTIONAL, one_of(SEQUENCE_OFF, SEQUENCE_OPTIONAL, SEQUENCE_REQUIRED),
        "whether messages are of streams, which are accepted in order and exactly once")
    order_debounce_ms: int = setting(
        ORDER_DEBOUNCE_MS, whole_number(0, ORDER_MS_MAX, "milliseconds, 0 for at once"),
        "outcomes of a stream's messages are told so long after the last one of a burst (MSMQ's word)",
        key="ack_debounce_ms")
    order_max_delay_ms: int = setting(
        ORDER_MAX_DELAY_MS, whole_number(1, ORDER_MS_MAX, "milliseconds"),
        "and at most so long after the outcomes that were told before",
        key="ack_max_delay_ms")
    retention_ms: int = _to_keep("age", RETENTION_MS_MAX, "milliseconds")
    retention_bytes: int = _to_keep("size", QUEUE_BYTES_MAX, "bytes")
    max_deliveries: int = setting(
        10, whole_number(0, 2**31 - 1, "deliveries, 0 for no bound"),
        "that may fail: after so many a message goes to the dead letters")
    dead_letter_address: str = setting(
        DEAD_LETTERS, QUEUE_ADDRESS,
        "where what is rejected, fails too often, is deliverable nowhere or expires goes")
    expiry_address: str | None = setting(
        None, QUEUE_ADDRESS, "where what expires goes instead; by default to dead_letter_address")
    undeliverable_wait_ms: int = setting(
        60_000, whole_number(1, YEAR_MS, "milliseconds"),
        "for which a message that every receiving link called undeliverable-here waits for another one")
    redelivery_delay_ms: int = setting(
        0, whole_number(0, YEAR_MS, "milliseconds, 0 for at once"),
        "after its first failed delivery a message is not offered for so long")
    redelivery_factor: int = setting(
        2, whole_number(1, 100, "times"), "as long after each more: 1 for always the same")
    redelivery_delay_max_ms: int = setting(
        600_000, whole_number(1, YEAR_MS, "milliseconds"), "and never longer than this")
    priorities: bool = setting(
        False, FLAG,
        "whether a message of a higher priority goes first, among those in memory; never in a queue of dead "
        "letters, whose oldest go first")
    duplicate_window_ms: int = setting(
        0, whole_number(0, YEAR_MS, "milliseconds, 0 for no detection"),
        "in which a message whose message-id was posted before is accepted and not posted again")
    max_duplicate_ids: int = setting(
        100_000, whole_number(1, 10_000_000, "message-ids"),
        "remembered at a time: beyond that the oldest is forgotten before its window is over")
    ring_messages: int = setting(
        0, whole_number(0, 2**48, "messages, 0 for no ring"),
        "that wait: a new one drops the oldest that no consumer holds; below max_messages, where that is set")
    ring_bytes: int = setting(
        0, whole_number(0, QUEUE_BYTES_MAX, "bytes, 0 for no ring"),
        "that wait: the oldest go until a new message fits, and a larger one is refused; below max_bytes, "
        "where that is set")
    last_value_key: str | None = setting(
        None, text(LAST_VALUE_KEY_BYTES),
        "an application-property, of each value of which the last message waits: a new one replaces the one "
        f"before it; needs max_messages or ring_messages, of at most {LAST_VALUES_MAX}")
    events: bool = setting(
        False, FLAG,
        "whether the journal tells what becomes of each message: put, delivered, settled, dead, expired",
    )

    def contradictions(self) -> Iterator[Problem]:
        """What cannot be made at the start, and what does not go with a log."""
        if self.create == AT_START:
            pattern = shown(self.pattern)
            if not self.node_pattern.exact:
                allowed = f'"{AT_START}" needs the exact name of a queue, but pattern is {pattern}'
                yield Problem("create", shown(self.create), allowed)
            elif parse_address(self.pattern).reserved:
                yield Problem("pattern", pattern, "'$' is kept for the broker's own nodes")
            elif self.pattern.startswith(TEMPORARY_PREFIX):
                yield Problem("pattern", pattern, f"'{TEMPORARY_PREFIX}' is kept for dynamic nodes")
        yield from self._not_above(("redelivery_delay_ms", "redelivery_delay_max_ms"))
        if self.replaces:
            yield from self._contradictions_of_replacing()
        if self.archives:
            yield from self._contradictions_of_a_log()
        if self.copies:
            yield from self._contradictions_of_a_topic()

    def _contradictions_of_replacing(self) -> Iterator[Problem]:
        for name, bound in (("ring_messages", "max_messages"), ("ring_bytes", "max_bytes")):
            ring, most = getattr(self, name), getattr(self, bound)
            if 0 < most <= ring:
                allowed = f"must be below {bound} ({most}), which counts what consumers hold"
                yield Problem(name, shown(ring), allowed)
        if self.archives or self.copies:
            return
        if self.message_type != NORMAL_MESSAGES:
            asked = "ring_messages" if self.ring_messages else "ring_bytes"
            asked = "last_value_key" if self.last_value_key else asked
            allowed = f'must be "{NORMAL_MESSAGES}" where {asked} is set: half messages drop nothing'
            yield Problem("message_type", shown(self.message_type), allowed)
        if self.last_value_key and not 0 < (self.ring_messages or self.max_messages) <= LAST_VALUES_MAX:
            name = "ring_messages" if self.ring_messages else "max_messages"
            allowed = f"must be from 1 to {LAST_VALUES_MAX} where last_value_key is set: memory has all keys"
            yield Problem(name, shown(getattr(self, name)), allowed)

    def _contradictions_of_a_topic(self) -> Iterator[Problem]:
        fields = attrs.fields_dict(QueuePolicy)
        for name in _NOT_OF_A_TOPIC:
            value = getattr(self, name)
            if value != fields[name].default:
                allowed = 'is not for kind "topic", which keeps nothing: its subscriptions do'
                yield Problem(name, shown(value), allowed)

    def _contradictions_of_a_log(self) -> Iterator[Problem]:
        if not self.retains:
            yield Problem(
                "retention_ms", "0",
                'must be above 0 where kind is "log" (or else retention_bytes): what bounds it is what it '
                f"keeps; {RETENTION_MS_MAX} is a century",
            )
        for name in _NOT_OF_A_LOG:
            value = getattr(self, name)
            if value != attrs.fields_dict(QueuePolicy)[name].default:
                yield Problem(
                    name, shown(value),
                    'is for kind "queue" only: a log takes every message, and drops the oldest ones by '
                    "retention_ms and retention_bytes",
                )

    @property
    def archives(self) -> bool:
        """Whether it is for logs."""
        return self.kind == LOG_KIND

    @property
    def copies(self) -> bool:
        """Whether it is for topics."""
        return self.kind == TOPIC_KIND

    @property
    def retains(self) -> bool:
        """Whether settled messages are kept."""
        return self.retention_ms > 0 or self.retention_bytes > 0

    @property
    def judges(self) -> bool:
        """Whether there is a rule about what comes."""
        return self.duplicate_window_ms > 0 or self.replaces

    @property
    def replaces(self) -> bool:
        """Whether new messages put older ones out."""
        return self.ring_messages > 0 or self.ring_bytes > 0 or self.last_value_key is not None

    @property
    def node_pattern(self) -> NodePattern:
        """The parsed pattern."""
        return parse_pattern(self.pattern)


TOPIC_PATTERN: Final = Allowed(
    "must be the name of a topic, or a pattern of words with dots: * is any word, # any number of them",
    lambda value: parse_topic_pattern(value) is not None,
)
QUEUE_NAME: Final = Allowed(
    "must be the name of a queue, and none of the broker's own",
    lambda value: not (parse_address(value).reserved or value.startswith(TEMPORARY_PREFIX)),
)
SELECTOR: Final = Allowed("must be a selector of JMS", lambda value: _is_selector(value))


def _is_selector(value: object) -> bool:
    from amqp_broker.filters.selector_grammar import parse_selector  # only a selector needs the grammar

    return isinstance(value, str) and parse_selector(value) is not None


@attrs.frozen(kw_only=True)
class BindingConfig(Table):
    """One `[[binding]]`: a queue that also gets what is sent to topics, as a durable subscription does."""

    topic: str = attrs.field(
        validator=TOPIC_PATTERN, metadata=about("the topic, or a pattern: `*` is any word, `#` any number"))
    queue: str = attrs.field(validator=QUEUE_NAME, metadata=about("the queue; it is made at the start"))
    selector: str | None = setting(None, SELECTOR, "which messages it gets, in the language of JMS")


@attrs.frozen(kw_only=True)
class AliasConfig(Table):
    """One `[[alias]]`: another name for a queue or topic, by which links and messages reach it, too."""

    name: str = attrs.field(validator=QUEUE_NAME, metadata=about("the other name"))
    node: str = attrs.field(validator=QUEUE_NAME, metadata=about("the name of the queue or topic"))


GROUP_NAME: Final = Allowed(
    "must be 1 to 64 of A-Z a-z 0-9 . _ -", lambda value: isinstance(value, str) and is_group_name(value)
)


def _half_ms(default: int, low: int, high: int, meaning: str) -> Any:
    return setting(default, whole_number(low, high, "milliseconds"), meaning)


@attrs.frozen(kw_only=True)
class HalfGroupConfig(Table):
    """One `[[half_group]]`: how the half messages of a producer group are checked back."""

    name: str = attrs.field(validator=GROUP_NAME, metadata=about("the group"))
    first_check_ms: int = _half_ms(HALF_DEFAULTS.first_check_ms, 1, YEAR_MS, "from put to the first check")
    max_age_ms: int = _half_ms(HALF_DEFAULTS.max_age_ms, 1, YEAR_MS, "from the put until policy decides")
    retry_ms: int = _half_ms(HALF_DEFAULTS.retry_ms, 1, DAY_MS, "to the second check; doubled after each")
    retry_max_ms: int = _half_ms(HALF_DEFAULTS.retry_max_ms, 1, YEAR_MS, "between two checks at most")
    max_attempts: int = setting(
        HALF_DEFAULTS.max_attempts, whole_number(1, 62, "answers"), "unknown ones until policy decides")
    lock_ms: int = _half_ms(HALF_DEFAULTS.lock_ms, 100, DAY_MS, "that one checker has for its outcome")
    max_pending: int = setting(
        HALF_DEFAULTS.max_pending, whole_number(1, 10_000_000, "half messages"), "that are not decided")
    tombstone_ms: int = _half_ms(
        HALF_DEFAULTS.tombstone_ms, 1_000, 10 * YEAR_MS, "for which a decision is remembered")
    policy: str = setting(
        ROLLBACK_POLICY, one_of(ROLLBACK_POLICY, PARK_POLICY), "what becomes of what nobody decides")

    def contradictions(self) -> Iterator[Problem]:
        """Times in the wrong order."""
        return self._not_above(("first_check_ms", "max_age_ms"), ("retry_ms", "retry_max_ms"))

    def settings(self) -> HalfSettings:
        """These values as the settings of a group."""
        fields = attrs.asdict(self)
        del fields["name"]
        return HalfSettings(**fields)


def is_user_name(value: Any) -> bool:
    """Whether a client's name, which is prepared before it is looked up, can be this one."""
    if not text(255).holds(value) or value in (ANY_USER, ANONYMOUS_NAME):
        return False
    return str(value).isascii() or _is_prepared(value)


def _is_prepared(name: str) -> bool:
    from amqp_broker.verifiers import prepared_name  # SASLprep is loaded for names beyond ASCII

    return prepared_name(name) == name


USER_NAME: Final = Allowed(
    "must be a string of 1 to 255 bytes of UTF-8 without control characters that SASLprep (RFC 4013) leaves "
    f'as it is, and neither "{ANY_USER}" nor "{ANONYMOUS_NAME}", which have their meaning in rules',
    is_user_name,
)


def _verifier_of(mechanism: str) -> Any:
    """A field for what `amqp-broker user add` prints, of this mechanism."""

    def holds(value: object) -> bool:
        from amqp_broker.verifiers import parse_verifier  # hashing is loaded when users are configured

        return parse_verifier(value).mechanism == mechanism

    allowed = Allowed(f"must be a verifier of {mechanism} as amqp-broker user add prints it", holds)
    return setting(None, allowed, f"what proves the password by {mechanism}", secret=True)


def _is_certificate_rule(value: object) -> bool:
    from amqp_broker.certificates import RULE_BYTES_MAX, parse_rule

    return text(RULE_BYTES_MAX).holds(value) and bool(parse_rule(str(value)))


CERTIFICATE_RULE: Final = Allowed(
    'must be what stands in a certificate, as "CN=shop,O=Example" or "DNS=*.shops.example.org"',
    _is_certificate_rule,
)
ROLE_NAMES: Final = any_of(text(255))


@attrs.frozen(kw_only=True)
class UserConfig(Table):
    """One `[[user]]`: a name and what proves it.  Verifiers are stored, never passwords.

    A user without a verifier can log in with a client certificate (EXTERNAL) or a token only.
    """

    name: str = attrs.field(validator=USER_NAME, metadata=about("as the client says it"))
    roles: tuple[str, ...] = setting((), ROLE_NAMES, "as what rules speak of the user, beside the name")
    certificates: tuple[str, ...] = setting(
        (), any_of(CERTIFICATE_RULE),
        "which client certificates are the user's: each is a rule, all of whose parts have to hold; without "
        "one it is the certificate whose single common name is the user's")
    scram_sha_1: str | None = _verifier_of("SCRAM-SHA-1")
    scram_sha_256: str | None = _verifier_of("SCRAM-SHA-256")
    scram_sha_512: str | None = _verifier_of("SCRAM-SHA-512")

    @property
    def verifiers(self) -> tuple[str, ...]:
        """Those that there are, the strongest first."""
        every = (self.scram_sha_512, self.scram_sha_256, self.scram_sha_1)
        return tuple(verifier for verifier in every if verifier is not None)


@attrs.frozen(kw_only=True)
class AccessRule(Table):
    """One `[[access]]`: these users may do these actions on these nodes."""

    users: tuple[str, ...] = setting(
        (), any_of(text(255)), 'their names; "*" is everybody, "anonymous" who has none')
    roles: tuple[str, ...] = setting((), ROLE_NAMES, "and whoever has one of these roles")
    actions: tuple[str, ...] = attrs.field(
        validator=each(one_of(*ACTIONS)), metadata=about("what they may do"))
    nodes: tuple[str, ...] = setting(("**",), each(PATTERN), "patterns of the nodes on which they may")

    def contradictions(self) -> Iterator[Problem]:
        """A rule for nobody."""
        if not self.users and not self.roles:
            yield Problem("users", None, "is missing, and so are roles: the rule is for nobody")


# Only keys that can't be guessed from what others sign: a secret that the broker shared could sign as well.
TOKEN_ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip


def _is_keys_url(value: object) -> bool:
    if not isinstance(value, str) or not value.isprintable() or " " in value:
        return False
    parts = urlsplit(value)
    plain = parts.scheme == "http" and is_loopback(parts.hostname or "")
    return bool(parts.hostname) and (plain or parts.scheme == "https") and "@" not in parts.netloc


KEYS_URL: Final = Allowed("must be https://..., or http://... on a loopback address", _is_keys_url)


@attrs.frozen(kw_only=True)
class TokenIssuerConfig(Table):
    """One `[[token_issuer]]`: whose tokens (JWT) prove a user, by SASL OAUTHBEARER and XOAUTH2.

    It needs `pip install 'amqp-broker[tokens]'`, and either `jwks_file` or `jwks_url`. A connection ends
    when its token does.
    """

    issuer: str = attrs.field(validator=text(1_024), metadata=about("the claim `iss` of its tokens"))
    audience: str = attrs.field(
        validator=text(1_024), metadata=about("what has to stand in their claim `aud`: this broker"))
    jwks_file: str | None = setting(None, PATH, "its keys (RFC 7517); read again when the file changes")
    jwks_url: str | None = setting(None, KEYS_URL, "or where they are fetched, and again every ten minutes")
    algorithms: tuple[str, ...] = setting(
        TOKEN_ALGORITHMS, each(one_of(*TOKEN_ALGORITHMS)), "with which its tokens may be signed")
    user_claim: str = setting("sub", text(255), "the claim that has the user's name")
    roles_claim: str | None = setting(
        None, text(255), "the claim that has roles, as a list or as words: beside those of the `[[user]]`")
    any_user: bool = setting(
        False, FLAG, "whether users who are no `[[user]]` get in, with the roles of their token")
    leeway_s: int = setting(
        10, whole_number(0, 300, "seconds"), "by which the issuer's clock may be wrong")

    def contradictions(self) -> Iterator[Problem]:
        """No keys, or two places for them."""
        if (self.jwks_file is None) == (self.jwks_url is None):
            yield Problem("jwks_file", None, "must be there, or jwks_url, and not both")


def _is_http_url(value: object) -> bool:
    if not isinstance(value, str) or not value.startswith("http://"):
        return False
    return _is_listen_url("amqp://" + value.removeprefix("http://")) and urlsplit(value).port is not None


HTTP_URL: Final = Allowed(
    "must be http://HOST:PORT with a port from 0 to 65535 (0: any free one)", _is_http_url
)


@attrs.frozen(kw_only=True)
class HttpConfig(Table):
    """The `[http]` table: a listener for health checks and metrics, without a login.  Needs the extra
    `amqp-broker[metrics]`.
    """

    url: str | None = setting(None, HTTP_URL, "where to listen; without it there is no such listener")
    not_only_loopback: bool = setting(
        False, FLAG, "whether it may listen where other machines reach it: metrics have the names of queues")
    queues: tuple[str, ...] = setting(
        ("**",), each(PATTERN), "patterns of the queues that metrics tell apart, up to limits.metrics_labels")

    def contradictions(self) -> Iterator[Problem]:
        """An address that others reach."""
        if self.url is not None and not self.not_only_loopback and not is_loopback(self.host):
            allowed = "must be a loopback address, unless not_only_loopback = true lets others read it"
            yield Problem("url", shown(self.url), allowed)

    @property
    def host(self) -> str:
        """The host name or address to listen on."""
        return str(urlsplit(self.url).hostname)

    @property
    def port(self) -> int:
        """The port to listen on; 0 lets the system choose."""
        return int(urlsplit(self.url).port or 0)


@attrs.frozen(kw_only=True)
class LoggingConfig(Table):
    """The `[logging]` table."""

    level: str = setting("info", one_of("debug", "info", "warning", "error"), "the lowest that is written")
    format: str = setting(
        "auto", one_of("auto", "console", "json"), "auto: for people on a terminal, JSON lines elsewhere")


def _is_collector_url(value: object) -> bool:
    if not text(2_048).holds(value) or " " in str(value):
        return False
    parts = urlsplit(str(value))
    more = parts.query or parts.fragment or "@" in parts.netloc  # where a secret would be logged
    return bool(parts.hostname) and parts.scheme in ("http", "https") and not more


COLLECTOR_URL: Final = Allowed(
    "must be https://HOST:PORT/v1/traces, or http://... of at most 2048 bytes, without a login and a query",
    _is_collector_url,
)
PART: Final = Allowed(
    "must be a number from 0.0 to 1.0",
    lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1,
)


@attrs.frozen(kw_only=True)
class TracingConfig(Table):
    """The `[tracing]` table: spans of messages whose senders trace them, to a collector of OpenTelemetry.
    Needs the extra `amqp-broker[tracing]`.

    What would be beyond a bound is dropped and counted (`amqp_trace_spans_total`): messages never wait.
    """

    endpoint: str | None = setting(
        None, COLLECTOR_URL, "where spans are sent, by OTLP over HTTP; without it there are none")
    plain_http: bool = setting(
        False, FLAG, "whether http:// may lead to another machine: spans have the names of queues")
    service_name: str = setting("amqp-broker", text(255), "how the broker is called in traces")
    ratio: float = setting(
        1.0, PART, "of the traces that senders record, chosen by trace-id: which part the broker records")
    spans_per_s: int = setting(
        1_000, whole_number(1, 1_000_000, "spans"), "that are made in a second: each costs about 50 us")
    open_spans: int = setting(
        10_000, whole_number(1, 1_000_000, "spans"), "that wait for a commit or a discharge")
    queue_spans: int = setting(
        10_000, whole_number(1, 1_000_000, "spans"), "that wait for the collector, about 4 KB each")
    batch_spans: int = setting(
        500, whole_number(1, 10_000, "spans"), "that are sent at once; and most links of one span")
    interval_ms: int = setting(
        1_000, whole_number(10, 60_000, "milliseconds"), "for which less than a batch waits")
    timeout_ms: int = setting(
        5_000, whole_number(100, 60_000, "milliseconds"),
        "that the collector has for a batch, with all that is tried again; also for the last one at the end")

    def contradictions(self) -> Iterator[Problem]:
        """Names of queues that others could read; a batch that never is full."""
        yield from self._not_above(("batch_spans", "queue_spans"))
        parts = urlsplit(self.endpoint or "")
        if parts.scheme == "http" and not self.plain_http and not is_loopback(str(parts.hostname)):
            allowed = "must be https://, or on a loopback address, unless plain_http = true"
            yield Problem("endpoint", shown(self.endpoint), allowed)


DEFAULT_POLICY: Final = QueuePolicy(pattern="**")


def _tables(cls: type, meaning: str, key: str, default: object = ()) -> Any:
    """A field for an array of tables; only Python callers can get its type wrong."""

    def holds(value: object) -> bool:
        return isinstance(value, tuple) and all(isinstance(item, cls) for item in value)

    return setting(default, Allowed(f"must be a tuple of {cls.__name__}", holds), meaning, key=key)


def _table(cls: type, meaning: str) -> Any:
    """A field for one table."""
    allowed = Allowed(f"must be a {cls.__name__}", lambda value: isinstance(value, cls))
    return setting(attrs.Factory(cls), allowed, meaning)


@attrs.frozen(kw_only=True)
class BrokerConfig(Table):
    """Everything a broker is told.  Raises ConfigurationError, which names the field, the value and what is
    allowed.
    """

    container_id: str = setting("amqp-broker", text(255), "how the broker calls itself in open (2.7.1)")
    data_dir: str = setting(DEFAULT_DATA_DIR, PATH, "the directory where messages are kept")
    backup_dir: str | None = setting(
        None, PATH,
        "the directory, which has to be there, below which a running broker makes backups; without it, there "
        "are none")
    memory: bool = setting(False, FLAG, "keep everything in memory; data_dir is not looked at then")
    allow_unsafe_sqlite: bool = setting(False, FLAG, "start although this SQLite can damage the store")
    listeners: tuple[ListenerConfig, ...] = _tables(
        ListenerConfig, "where to accept connections", "listener", attrs.Factory(lambda: (ListenerConfig(),)))
    certificates: tuple[CertificateConfig, ...] = _tables(
        CertificateConfig, "of more names, for listeners with TLS", "certificate")
    limits: BrokerLimits = _table(BrokerLimits, "the bounds that a peer can run into")
    queue_policies: tuple[QueuePolicy, ...] = _tables(QueuePolicy, "what holds for which queues", "queue")
    bindings: tuple[BindingConfig, ...] = _tables(
        BindingConfig, "queues that get what is sent to topics", "binding")
    aliases: tuple[AliasConfig, ...] = _tables(AliasConfig, "other names of queues and topics", "alias")
    address_forms: tuple[str, ...] = setting(
        (), any_of(one_of(URI_FORM, RABBITMQ_FORM, ARTEMIS_FORM)),
        "which forms of other brokers addresses may have; without one an address is a name as it stands")
    product: str | None = setting(
        None, text(255), "the product that open names instead, for clients that look for one (2.7.1)")
    product_version: str | None = setting(
        None, text(255), "and its version")
    half_groups: tuple[HalfGroupConfig, ...] = _tables(
        HalfGroupConfig, "producer groups of half messages", "half_group")
    half_groups_on_first_use: bool = setting(
        True, FLAG, "whether a group that no table names is made when somebody uses it")
    users: tuple[UserConfig, ...] = _tables(UserConfig, "who can log in", "user")
    access_rules: tuple[AccessRule, ...] = _tables(AccessRule, "who may do what", "access")
    token_issuers: tuple[TokenIssuerConfig, ...] = _tables(
        TokenIssuerConfig, "whose tokens prove users", "token_issuer")
    http: HttpConfig = _table(HttpConfig, "health and metrics for who watches the broker")
    tracing: TracingConfig = _table(TracingConfig, "spans for who traces messages")
    logging: LoggingConfig = _table(LoggingConfig, "what is written to standard error")

    def contradictions(self) -> Iterator[Problem]:
        """Two tables for one thing, rules for nobody, listeners where nobody gets in."""
        yield from _repeated("user", "name", [user.name for user in self.users])
        yield from _repeated("half_group", "name", [group.name for group in self.half_groups])
        yield from _repeated("queue", "pattern", [policy.pattern for policy in self.queue_policies])
        yield from self._contradictions_of_aliases()
        for index, binding in enumerate(self.bindings):
            policy = self.policy_of(binding.queue)
            if policy.copies or policy.events:
                what = "a topic" if policy.copies else "a queue with events, which tell of links only"
                yield Problem(f"binding[{index}].queue", shown(binding.queue), f"must not be {what}")
        names = {ANY_USER, ANONYMOUS_NAME, *(user.name for user in self.users)}
        yield from _repeated("token_issuer", "issuer", [each.issuer for each in self.token_issuers])
        yield from self._contradictions_of_roles()
        for index, rule in enumerate(self.access_rules):
            for position, user in enumerate(rule.users):
                if user not in names:
                    allowed = f'must be the name of a [[user]], "{ANONYMOUS_NAME}" or "{ANY_USER}"'
                    yield Problem(f"access[{index}].users[{position}]", shown(user), allowed)
        for index, listener in enumerate(self.listeners):
            if not self._somebody_can_log_in(listener):
                allowed = f"must be true, or users be configured: nobody could log in at {listener.url}"
                yield Problem(f"listener[{index}].anonymous", None, allowed)

    def _contradictions_of_roles(self) -> Iterator[Problem]:
        roles = {role for rule in self.access_rules for role in rule.roles}
        for index, user in enumerate(self.users):
            for position, role in enumerate(user.roles):
                if role not in roles:
                    allowed = "must be a role that stands in an [[access]]"
                    yield Problem(f"user[{index}].roles[{position}]", shown(role), allowed)

    def _contradictions_of_aliases(self) -> Iterator[Problem]:
        names = [alias.name for alias in self.aliases]
        yield from _repeated("alias", "name", names)
        nodes = {*self.queues_at_start(), *(binding.topic for binding in self.bindings)}
        nodes |= self.dead_letter_addresses()
        for index, alias in enumerate(self.aliases):
            if alias.node in names:
                yield Problem(f"alias[{index}].node", shown(alias.node), "must not be an alias itself")
            if alias.name in nodes:
                allowed = "must not be that of a queue or topic that the configuration makes"
                yield Problem(f"alias[{index}].name", shown(alias.name), allowed)

    def _somebody_can_log_in(self, listener: ListenerConfig) -> bool:
        verifiers = any(user.verifiers for user in self.users) or bool(self.token_issuers)
        certificates = listener.client_ca_file is not None and bool(self.users)
        return self.anonymous_allowed(listener) or verifiers or certificates

    @property
    def open_access(self) -> bool:
        """Whether nobody is configured, so that everybody who gets in may do everything."""
        return not self.users and not self.access_rules and not self.token_issuers

    def anonymous_allowed(self, listener: ListenerConfig) -> bool:
        """Whether this listener takes SASL ANONYMOUS and the bare AMQP header."""
        if listener.anonymous is not None:
            return listener.anonymous
        return listener.loopback and not self.users and not self.token_issuers

    def policy_of(self, name: str) -> QueuePolicy:
        """The most specific policy whose pattern names this queue; by default on first use, no bounds."""
        best = DEFAULT_POLICY
        best_rank = None
        for policy in self.queue_policies:
            pattern = policy.node_pattern
            if pattern.matches(name) and (best_rank is None or pattern.rank < best_rank):
                best, best_rank = policy, pattern.rank
        return best

    def dead_letter_addresses(self) -> frozenset[str]:
        """The addresses of all queues that dead letters go to."""
        named = [policy.dead_letter_address for policy in self.queue_policies]
        named += [policy.expiry_address for policy in self.queue_policies if policy.expiry_address]
        return frozenset([DEAD_LETTERS, *named])

    def queues_at_start(self) -> tuple[str, ...]:
        """The names of the queues that exist from the start."""
        named = [policy.pattern for policy in self.queue_policies if policy.create == AT_START]
        return tuple(dict.fromkeys([*named, *(binding.queue for binding in self.bindings)]))


def _repeated(table: str, key: str, values: list[str]) -> Iterator[Problem]:
    """Each table with the key of one before it."""
    seen: dict[str, int] = {}
    for index, value in enumerate(values):
        first = seen.setdefault(value, index)
        if first != index:
            allowed = f"must be unique, but {table}[{first}].{key} is the same"
            yield Problem(f"{table}[{index}].{key}", shown(value), allowed)


def parse_configuration(source: str, directory: str | os.PathLike[str] = ".") -> BrokerConfig:
    """The configuration that this TOML text spells; relative paths in it are taken from `directory`."""
    import tomllib  # only a broker with a file needs these two

    from amqp_broker.configuration_reading import structured

    try:
        table = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(Problem("TOML", None, f"cannot be read: {error}")) from None
    config = structured(BrokerConfig, table)
    base = Path(directory)
    return attrs.evolve(
        config,
        data_dir=str(base / config.data_dir),
        backup_dir=None if config.backup_dir is None else str(base / config.backup_dir),
        listeners=tuple(_with_paths_from(base, listener) for listener in config.listeners),
        certificates=tuple(_with_paths_from(base, each) for each in config.certificates),
        token_issuers=tuple(_with_paths_from(base, issuer) for issuer in config.token_issuers),
    )


def load_configuration(path: str | os.PathLike[str]) -> BrokerConfig:
    """Read a configuration file.  Raises ConfigurationError, also for a file that cannot be read."""
    file = Path(path)
    try:
        with file.open("rb") as stream:
            before = _version_of(os.fstat(stream.fileno()))
            data = stream.read(CONFIGURATION_BYTES_MAX + 1)
        if _version_of(file.stat()) != before:
            raise ConfigurationError(Problem(str(file), None, "was changed while it was read: try again"))
        if len(data) > CONFIGURATION_BYTES_MAX:
            raise ConfigurationError(
                Problem(str(file), None, f"is larger than {CONFIGURATION_BYTES_MAX} bytes")
            )
        source = data.decode("utf-8")
    except OSError as error:
        raise ConfigurationError(
            Problem(str(file), None, f"cannot be read: {error.strerror or error}")
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(Problem(str(file), None, f"is not UTF-8 (byte {error.start})")) from None
    return parse_configuration(source, file.parent)


def _version_of(status: os.stat_result) -> tuple[int, int, int] | None:
    """What differs where somebody writes to a file, or puts another one into its place; nothing of a pipe."""
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


WithFiles = TypeVar("WithFiles", ListenerConfig, CertificateConfig, TokenIssuerConfig)


def _with_paths_from(base: Path, table: WithFiles) -> WithFiles:
    """The table, with the paths of its files made relative to `base`."""
    paths: dict[str, Any] = {
        field.name: str(base / getattr(table, field.name))
        for field in attrs.fields(type(table))
        if field.validator is PATH and getattr(table, field.name) is not None
    }
    return attrs.evolve(table, **paths)
