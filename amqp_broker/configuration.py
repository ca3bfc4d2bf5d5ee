"""The configuration of a broker: made in Python, or read from TOML and checked once.

    config = BrokerConfig(memory=True, listeners=(ListenerConfig(url="amqp://127.0.0.1:0"),))
    config = load_configuration("broker.toml")

Paths in a file are relative to the file.  An unknown key is an error.  See `configuration_tables` and
`configuration_limits` for the tables.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import attrs

from amqp_broker.configuration_fields import (
    KEY,
    TABLE,
    TABLES,
    ConfigurationError,
    flag,
    read_table,
    shown,
    text,
)
from amqp_broker.configuration_halves import HalfGroupConfig
from amqp_broker.configuration_limits import BrokerLimits
from amqp_broker.configuration_tables import (
    AT_START,
    ON_FIRST_USE,
    STRICT,
    AccessRule,
    ListenerConfig,
    LoggingConfig,
    QueuePolicy,
    UserConfig,
)

__all__ = [
    "AT_START",
    "DEFAULT_DATA_DIR",
    "ON_FIRST_USE",
    "STRICT",
    "AccessRule",
    "BrokerConfig",
    "BrokerLimits",
    "ConfigurationError",
    "ListenerConfig",
    "LoggingConfig",
    "HalfGroupConfig",
    "QueuePolicy",
    "UserConfig",
    "load_configuration",
    "parse_configuration",
]

DEFAULT_DATA_DIR: Final = "amqp-broker-data"
CONFIGURATION_BYTES_MAX: Final = (
    16 * 1_024 * 1_024
)  # 50,000 users; a device or a log given by mistake ends here
DEFAULT_POLICY: Final = QueuePolicy(pattern="**")


def _all_of(cls: type) -> Any:
    """A validator: a tuple of instances of one class (only Python callers can get this wrong)."""

    def check(instance: Any, field: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, tuple) or not all(isinstance(item, cls) for item in value):
            name = field.metadata.get(KEY, field.name)
            raise ConfigurationError(name, shown(value), f"must be a tuple of {cls.__name__}")

    return check


@attrs.frozen(kw_only=True)
class BrokerConfig:
    """Everything a broker is told.  Raises ConfigurationError, which names the field, the value and what is
    allowed.

    `memory` keeps everything in memory, and `data_dir` is not looked at then.
    """

    container_id: str = attrs.field(default="amqp-broker", validator=text(255))
    data_dir: str = attrs.field(default=DEFAULT_DATA_DIR, validator=text(4_096))
    memory: bool = attrs.field(default=False, validator=flag)
    allow_unsafe_sqlite: bool = attrs.field(default=False, validator=flag)
    listeners: tuple[ListenerConfig, ...] = attrs.field(
        factory=lambda: (ListenerConfig(),),
        validator=_all_of(ListenerConfig),
        metadata={KEY: "listener", TABLES: ListenerConfig},
    )
    limits: BrokerLimits = attrs.field(
        factory=BrokerLimits,
        validator=attrs.validators.instance_of(BrokerLimits),
        metadata={TABLE: BrokerLimits},
    )
    queue_policies: tuple[QueuePolicy, ...] = attrs.field(
        default=(), validator=_all_of(QueuePolicy), metadata={KEY: "queue", TABLES: QueuePolicy}
    )
    half_groups: tuple[HalfGroupConfig, ...] = attrs.field(
        default=(), validator=_all_of(HalfGroupConfig), metadata={KEY: "half_group", TABLES: HalfGroupConfig}
    )
    half_groups_on_first_use: bool = attrs.field(default=True, validator=flag)
    users: tuple[UserConfig, ...] = attrs.field(
        default=(), validator=_all_of(UserConfig), metadata={KEY: "user", TABLES: UserConfig}
    )
    access_rules: tuple[AccessRule, ...] = attrs.field(
        default=(), validator=_all_of(AccessRule), metadata={KEY: "access", TABLES: AccessRule}
    )
    logging: LoggingConfig = attrs.field(
        factory=LoggingConfig,
        validator=attrs.validators.instance_of(LoggingConfig),
        metadata={TABLE: LoggingConfig},
    )

    def __attrs_post_init__(self) -> None:
        _check_unique("user", "name", [user.name for user in self.users])
        _check_unique("half_group", "name", [group.name for group in self.half_groups])
        _check_unique("queue", "pattern", [policy.pattern for policy in self.queue_policies])
        names = {user.name for user in self.users}
        for index, rule in enumerate(self.access_rules):
            for position, user in enumerate(rule.users):
                if user not in names and user not in ("*", "anonymous"):
                    field = f"access[{index}].users[{position}]"
                    allowed = 'must be the name of a [[user]], "anonymous" or "*"'
                    raise ConfigurationError(field, shown(user), allowed)

        for index, listener in enumerate(self.listeners):
            if not self._somebody_can_log_in(listener):
                field = f"listener[{index}].anonymous"
                allowed = f"must be true, or users be configured: nobody could log in at {listener.url}"
                raise ConfigurationError(field, None, allowed)

    def _somebody_can_log_in(self, listener: ListenerConfig) -> bool:
        verifiers = any(user.scram_sha_256 or user.scram_sha_512 for user in self.users)
        certificates = listener.client_ca_file is not None and bool(self.users)
        return self.anonymous_allowed(listener) or verifiers or certificates

    @property
    def open_access(self) -> bool:
        """Whether nobody is configured, so that everybody who gets in may do everything."""
        return not self.users and not self.access_rules

    def anonymous_allowed(self, listener: ListenerConfig) -> bool:
        """Whether this listener takes SASL ANONYMOUS and the bare AMQP header."""
        if listener.anonymous is not None:
            return listener.anonymous
        return listener.loopback and not self.users

    def policy_of(self, name: str) -> QueuePolicy:
        """The most specific policy whose pattern names this queue; by default on first use, no bounds."""
        best = DEFAULT_POLICY
        best_rank = None
        for policy in self.queue_policies:
            pattern = policy.node_pattern
            if pattern.matches(name) and (best_rank is None or pattern.rank < best_rank):
                best, best_rank = policy, pattern.rank
        return best

    def queues_at_start(self) -> tuple[str, ...]:
        """The names of the queues that exist from the start."""
        return tuple(policy.pattern for policy in self.queue_policies if policy.create == AT_START)


def _check_unique(table: str, key: str, values: list[str]) -> None:
    """Raise for the second of two tables with the same key."""
    seen: dict[str, int] = {}
    for index, value in enumerate(values):
        if value in seen:
            allowed = f"must be unique, but {table}[{seen[value]}].{key} is the same"
            raise ConfigurationError(f"{table}[{index}].{key}", shown(value), allowed)
        seen[value] = index


def parse_configuration(source: str, directory: str | os.PathLike[str] = ".") -> BrokerConfig:
    """The configuration that this TOML text spells; relative paths in it are taken from `directory`."""
    import tomllib  # only a broker with a file needs it

    try:
        table = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError("TOML", None, f"cannot be read: {error}") from None
    config = read_table(BrokerConfig, table)
    base = Path(directory)
    listeners = tuple(_with_paths_from(base, listener) for listener in config.listeners)
    return attrs.evolve(config, data_dir=str(base / config.data_dir), listeners=listeners)


def load_configuration(path: str | os.PathLike[str]) -> BrokerConfig:
    """Read a configuration file.  Raises ConfigurationError, also for a file that cannot be read."""
    file = Path(path)
    try:
        with file.open("rb") as stream:
            data = stream.read(CONFIGURATION_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(str(file), None, f"cannot be read: {error.strerror or error}") from None
    if len(data) > CONFIGURATION_BYTES_MAX:
        raise ConfigurationError(str(file), None, f"is larger than {CONFIGURATION_BYTES_MAX} bytes")
    try:
        source = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigurationError(str(file), None, f"is not UTF-8 (byte {error.start})") from None
    return parse_configuration(source, file.parent)


def _with_paths_from(base: Path, listener: ListenerConfig) -> ListenerConfig:
    """The same listener with the paths of its files made relative to `base`."""
    paths: dict[str, Any] = {}
    for name in ("certificate_file", "key_file", "client_ca_file"):
        value = getattr(listener, name)
        if value is not None:
            paths[name] = str(base / value)
    return attrs.evolve(listener, **paths) if paths else listener
