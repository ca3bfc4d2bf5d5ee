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
    is_default: bool
    secret: bool


def configuration_type(nodes: BrokerNodes) -> EntityType[ConfiguredValue]:
    """The type of one broker."""

    def make(one: ConfiguredValue, values: Mapping[str, Any]) -> None:
        change_configuration(nodes, one.key, values["value"])

    changes = Changes(("value",), make, f"another value until the broker stops, of {', '.join(LIVE_KEYS)}")
    return EntityType(
        "configuration", "a key of the configuration, `queue[0].pattern` where there are several tables",
        lambda: _values(nodes.config, ""), lambda one: one.key,
        {
            "value": lambda one: one.value,
            "is_default": lambda one: one.is_default,
            "secret": lambda one: one.secret,
        },
        changes=changes,
    )  # fmt: skip


def _values(table: attrs.AttrsInstance, path: str) -> Iterator[ConfiguredValue]:
    for field in attrs.fields(type(table)):
        key, value = path + key_of(field), getattr(table, field.name)
        if attrs.has(type(value)):
            yield from _values(value, f"{key}.")
        elif isinstance(value, tuple) and value and all(attrs.has(type(each)) for each in value):
            for at, each in enumerate(value):
                yield from _values(each, f"{key}[{at}].")
        else:
            secret = bool(field.metadata.get(SECRET))
            shown = "(not shown)" if secret and value is not None else _plain(value)
            yield ConfiguredValue(key, shown, value == _default(field), secret)


def _default(field: attrs.Attribute[Any]) -> Any:
    default: Any = field.default
    return default.factory() if hasattr(default, "factory") else default


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)
