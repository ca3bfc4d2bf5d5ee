"""How much memory there is: the machine's, or what the control groups of the process leave of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqp_broker import machine_memory
from amqp_broker.configuration import BrokerConfig, BrokerLimits
from amqp_broker.machine_memory import UNKNOWN_BYTES, machine_memory_bytes, memory_bytes

GIB = 1 << 30


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 8 GiB."""
    monkeypatch.setattr(machine_memory, "_physical_bytes", lambda: 8 * GIB)


def write(root: Path, path: str, text: str) -> None:
    """A file of the system."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_a_machine_without_control_groups(tmp_path: Path) -> None:
    """All of its memory counts."""
    assert machine_memory_bytes(tmp_path) == 8 * GIB


def test_the_least_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    """Version 2: a group may have no limit of its own, and be in one that has."""
    write(tmp_path, "proc/self/cgroup", "0::/system.slice/broker.service\n")
    write(tmp_path, "sys/fs/cgroup/system.slice/broker.service/memory.max", "max\n")
    write(tmp_path, "sys/fs/cgroup/system.slice/memory.max", f"{2 * GIB}\n")
    write(tmp_path, "sys/fs/cgroup/memory.max", f"{4 * GIB}\n")
    assert machine_memory_bytes(tmp_path) == 2 * GIB


def test_a_container_sees_its_group_as_the_root(tmp_path: Path) -> None:
    """With a namespace of its own the limit stands at the top."""
    write(tmp_path, "proc/self/cgroup", "0::/\n")
    write(tmp_path, "sys/fs/cgroup/memory.max", f"{GIB}\n")
    assert machine_memory_bytes(tmp_path) == GIB


def test_the_first_version_of_control_groups(tmp_path: Path) -> None:
    """The controller named memory counts, and no other; a limit above the machine's memory is none."""
    write(tmp_path, "proc/self/cgroup", "4:cpu,cpuacct:/b\n3:memory:/docker/abc\nodd line\n")
    write(tmp_path, "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", f"{3 * GIB}\n")
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert machine_memory_bytes(tmp_path) == 3 * GIB


def test_where_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that does not say how much it has: one GiB, or what a control group says."""
    monkeypatch.setattr(machine_memory, "_physical_bytes", lambda: None)
    assert machine_memory_bytes(tmp_path) == UNKNOWN_BYTES == GIB


def test_the_budget_is_half_of_it_or_what_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """But enough for four messages of the largest size, on the smallest machine, too."""
    monkeypatch.setattr("amqp_broker.machine_memory.machine_memory_bytes", lambda: 8 * GIB)
    assert memory_bytes(BrokerConfig()) == 4 * GIB
    assert memory_bytes(BrokerConfig(limits=BrokerLimits(memory_bytes=GIB))) == GIB
    monkeypatch.setattr("amqp_broker.machine_memory.machine_memory_bytes", lambda: 1)
    assert memory_bytes(BrokerConfig()) == 4 * BrokerLimits().max_message_size_bytes
