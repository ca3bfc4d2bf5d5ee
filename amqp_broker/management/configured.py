"""The configuration that a broker runs with, as `$management` tells it: a value for each key, no secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from amqp_broker.configuration_fields import SECRET, key_of
from amqp_broker.management.changing import LIVE_KEYS, change_configuration
from amqp_broker.management.entity_types import Changes, EntityType

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes


@attrs.frozen
class ConfiguredValue:
    """What stands, or could stand, at one key of the file."""

    key: str
    value: Any
    at_start: Any
    is_default: bool
    secret: bool


def configuration_type(nodes: BrokerNodes) -> EntityType[ConfiguredValue]:
    """The type of one broker."""

    def make(one: ConfiguredValue, values: Mapping[str, Any]) -> None:
        change_configuration(nodes, one.key, values["value"])

    keys = ", ".join(LIVE_KEYS)
    changes = Changes(("value",), make, f"another value until the file is read again, of {keys}")
    return EntityType(
        "configuration", "a key of the configuration, `queue[0].pattern` where there are several tables",
        lambda: _values(nodes.config, nodes.config_at_start, ""), lambda one: one.key,
        {
            "value": lambda one: one.value,
            "at_start": lambda one: one.at_start,
            "is_default": lambda one: one.is_default,
            "secret": lambda one: one.secret,
        },
        changes=changes,
    )  # fmt: skip


def _values(
    table: attrs.AttrsInstance, at_start: attrs.AttrsInstance, path: str
) -> Iterator[ConfiguredValue]:
    for field in attrs.fields(type(table)):
        key, value, first = path + key_of(field), getattr(table, field.name), getattr(at_start, field.name)
        if attrs.has(type(value)):
            yield from _values(value, first, f"{key}.")
        elif isinstance(value, tuple) and value and all(attrs.has(type(each)) for each in value):
            for at, each in enumerate(value):
                yield from _values(each, first[at], f"{key}[{at}].")
        else:
            secret = bool(field.metadata.get(SECRET))
            yield ConfiguredValue(
                key, _shown(value, secret), _shown(first, secret), value == _default(field), secret
            )


def _shown(value: Any, secret: bool) -> Any:
    return "(not shown)" if secret and value is not None else _plain(value)


def _default(field: attrs.Attribute[Any]) -> Any:
    default: Any = field.default
    return default.factory() if hasattr(default, "factory") else default


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)
