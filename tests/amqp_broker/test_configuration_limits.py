"""The limits: their defaults are those of the design, and neighbours fit each other."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from amqp_broker import configuration_limits
from amqp_broker.configuration import ConfigurationError
from amqp_broker.configuration_limits import RELATIONS, BrokerLimits

DESIGN = {
    "login_timeout_ms": 10_000,
    "header_timeout_ms": 2_000,
    "tls_timeout_ms": 5_000,
    "login_buffer_bytes": 16 * 1_024,
    "login_frames": 8,
    "login_sockets": 512,
    "login_sockets_per_address": 32,
    "open_frame_size_bytes": 8_192,
    "max_frame_size_bytes": 65_536,
    "max_message_size_bytes": 16 * 1_024 * 1_024,
    "partial_deliveries_bytes": 256 * 1_024 * 1_024,
    "partial_idle_ms": 60_000,
    "partial_total_ms": 600_000,
    "memory_bytes": 0,
    "memory_wait_ms": 2_000,
    "max_sessions": 1_024,
    "max_links_per_session": 4_096,
    "max_links_per_connection": 16_384,
    "control_operations_per_s": 2_000,
    "control_operations_burst": 8_000,
    "address_operations_per_s": 4_000,
    "address_operations_burst": 32_000,
    "outcome_wait_ms": 2_000,
    "output_buffer_bytes": 256 * 1_024,
    "write_stall_timeout_ms": 60_000,
    "idle_time_out_ms": 30_000,
    "min_peer_idle_time_out_ms": 1_000,
    "max_unsettled_per_link": 2_048,
    "max_unsettled_per_session": 5_000,
    "address_bytes": 255,
    "log_field_characters": 256,
    "log_lines_per_minute": 60,
}


def test_the_defaults_are_those_of_the_design() -> None:
    """A default changes by decision, not by accident."""
    limits = attrs.asdict(BrokerLimits())
    assert {name: limits[name] for name in DESIGN} == DESIGN


@pytest.mark.parametrize(("lower", "higher"), RELATIONS)
def test_a_limit_above_its_neighbour_is_refused(lower: str, higher: str) -> None:
    """Of two limits where one contains the other, both can be reached."""
    defaults = attrs.asdict(BrokerLimits())
    field = attrs.fields_dict(BrokerLimits)[lower]
    with pytest.raises(ConfigurationError) as caught:
        BrokerLimits(**{lower: defaults[higher] + 1})
    assert caught.value.problems[0].field == field.name


def test_the_memory_has_room_for_messages_of_the_largest_size() -> None:
    """What could not hold four of them is refused, and says what would do; 0 is decided at the start."""
    with pytest.raises(ConfigurationError, match="at least 67108864") as caught:
        BrokerLimits(memory_bytes=64 * 1_024 * 1_024 - 1)
    assert caught.value.problems[0].field == "memory_bytes"
    with pytest.raises(ConfigurationError, match="at least 1048576"):
        BrokerLimits(memory_bytes=1, max_message_size_bytes=1_024)
    assert BrokerLimits(memory_bytes=64 * 1_024 * 1_024).memory_bytes == 64 * 1_024 * 1_024


def test_every_limit_is_read_somewhere() -> None:
    """A setting that does nothing is a lie: each one is asked for by the code that keeps it."""
    room = Path(configuration_limits.__file__).parent
    modules = [path for path in room.rglob("*.py") if path.name != "configuration_limits.py"]
    text = "\n".join(path.read_text() for path in modules)
    unread = [name for name in attrs.fields_dict(BrokerLimits) if f".{name}" not in text]
    assert unread == []
