"""A soak of a minute and a half: whatever it does works, nothing grows fast, and nothing is left."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.soak.acts import ACTS
from tests.soak.ground import ground_of
from tests.soak.run import Soak

PLANTED: Final = """
import sys
from amqp_broker.command_line import main
from amqp_broker.connection import Connection
kept, ended = [], Connection.on_ended
def on_ended(connection):
    kept.append((connection, bytearray(b"." * 20_000)))
    ended(connection)
Connection.on_ended = on_ended
sys.exit(main(["serve", *sys.argv[1:]]))
"""
"""A broker that keeps each connection when it has ended, and what one may have in its buffers."""


def test_nothing_grows_and_nothing_is_left(tmp_path: Path) -> None:
    """Latency is not judged closely: other tests run beside it."""
    with ground_of(tmp_path) as ground:
        soak = Soak(ground, minutes=1.5, seed=5, rate=8)
        soak.run(beside_others=True)
    assert soak.complaints == []
    assert [str(finding) for finding in soak.findings if not finding.flat] == []
    assert set(soak.done) >= {act.__name__ for act, weight in ACTS if weight > 4}, soak.told()


def test_a_leak_is_found(tmp_path: Path) -> None:
    """Of each connection that ends something stays."""
    with ground_of(tmp_path, (sys.executable, "-c", PLANTED)) as ground:
        soak = Soak(ground, minutes=1.5, seed=5, rate=8)
        soak.run(beside_others=True)
    assert [finding.rule.figure for finding in soak.findings if not finding.flat] == ["memory"]
