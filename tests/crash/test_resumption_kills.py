"""A broker that is killed takes what a client sends once, where that resumes (a quick version of
`python -m tests.crash.kills --with resumption`), and each planted violation is found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from amqp_broker.persistence import KeepTerminus, StoredTerminus
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.testing.store_suite.helpers import do
from tests.crash.lives import run_kills
from tests.crash.resumption import Resumption

KILLS: Final = 3
SEED: Final = 4_711


def test_kills_at_random_moments_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """Each message is in the queue once."""
    complaints, line = run_kills(tmp_path, [Resumption(SEED)], KILLS, SEED, points=())
    assert complaints == [], line


@pytest.mark.parametrize(
    ("came", "words"),
    [
        ("1 2 3", ""),
        ("3 1 2", ""),
        ("1 3", "s 2 is committed, and 0 rows came"),
        ("1 2 2 3", "s 2 is committed, and 2 rows came"),
        ("1 2 3 4", "s 4 was delivered, and nobody sent it"),
    ],
)
def test_a_planted_violation_is_found(came: str, words: str, tmp_path: Path) -> None:
    """Lost, twice, invented."""
    workload = Resumption(SEED)
    workload.senders[0].sent = ["s 1", "s 2", "s 3"]
    workload.came = [f"s {number}" for number in came.split()]
    complaints = workload.check([], tmp_path)
    assert (complaints == []) is (not words) and words in "".join(complaints[:1]), complaints


def test_what_is_kept_for_nobody_is_found(tmp_path: Path) -> None:
    """A terminus of a link that was closed, and a sender that did not end."""
    store = SqliteStore(tmp_path)
    do(store, KeepTerminus(StoredTerminus(1, "u", "c", "l", "never", 1)))
    store.close()
    workload = Resumption(SEED)
    workload.senders[0].unsettled[b"tag"] = b"row"
    assert workload.check([], tmp_path) == [
        "resuming-0 is not done",
        "l is closed, and the store keeps its terminus and 0 of it",
    ]
