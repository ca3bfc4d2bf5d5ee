"""A soak of some hundred acts: whatever it does works, nothing grows fast, nothing is left; and
what is planted is found.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import pytest

from amqp_broker.client import connect
from tests.soak import run
from tests.soak.acts import ACTS, User
from tests.soak.ground import COMMAND, ground_of
from tests.soak.run import Soak
from tests.soak.verdict import LATENCIES

_BROKER: Final = """
import os
import sys
from amqp_broker.command_line import main
from amqp_broker.connection import Connection
from amqp_broker.log_setup import logger
kept, ended = [], Connection.on_ended
def on_ended(connection):
    ended(connection)
    kept.append(None)
    {}
Connection.on_ended = on_ended
sys.exit(main(["serve", *sys.argv[1:]]))
"""
MINUTES: Final = 20.0
"""A soak by acts ends before, however slow the machine."""


def planted(statement: str) -> tuple[str, ...]:
    """A broker that does so whenever a connection has ended; `kept` has one for each of them."""
    return sys.executable, "-c", _BROKER.format(statement)


def test_nothing_grows_and_nothing_is_left(tmp_path: Path) -> None:
    """Latency is not judged closely: other tests run beside it."""
    with ground_of(tmp_path) as ground:
        soak = Soak(ground, MINUTES, seed=5, rate=8, acts=720)
        soak.run(beside_others=True)
    assert soak.complaints == []
    assert soak.findings
    judged = [found for found in soak.findings if found.rule.figure not in LATENCIES]
    assert [str(found) for found in judged if not found.flat] == []
    assert set(soak.done) >= {act.__name__ for act, weight in ACTS if weight > 4}, soak.told()


def test_a_leak_is_found(tmp_path: Path) -> None:
    """Of each connection that ends something stays."""
    with ground_of(tmp_path, planted('kept.append((connection, bytearray(b"." * 60_000)))')) as ground:
        soak = Soak(ground, MINUTES, seed=5, rate=12, acts=600)
        soak.run(beside_others=True)
    grown = {finding.rule.figure for finding in soak.findings if not finding.flat}
    assert grown - set(LATENCIES) == {"memory"}


def comes_and_goes(user: User) -> None:
    """A connection."""
    connect(user.ground.url).close()


LEFT: Final[list[Any]] = []


def stays(user: User) -> None:
    """A connection that nobody closes."""
    LEFT.append(connect(user.ground.url))


@pytest.mark.parametrize(
    ("act", "command", "complaint"),
    [
        (stays, COMMAND, "connection: "),
        (comes_and_goes, planted('logger("planted").error("planted.fault")'), "planted.fault"),
        (comes_and_goes, planted("len(kept) < 30 or os._exit(7)"), "the broker ended with 7"),
        (comes_and_goes, planted('kept.append(open("/dev/null"))'), "descriptors: "),
    ],
)
def test_what_is_wrong_is_a_complaint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Any, command: tuple[str, ...], complaint: str
) -> None:
    """Something that is left, an error in the log, a broker that dies, descriptors: and the run ends."""
    monkeypatch.setattr(run, "ACTS", ((act, 1),))
    with ground_of(tmp_path, command) as ground:
        soak = Soak(ground, 0.5, seed=5, rate=20, acts=60, gone_within_s=1)
        soak.run(beside_others=True)
        for client in LEFT:
            client.close()
        LEFT.clear()
    assert any(complaint in told for told in soak.complaints), soak.complaints
    assert not soak.good and soak.told()
