"""What holds for every test: it finds logging as a fresh process does, hypothesis does not judge how busy the
machine is, and a run can be repeated.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from amqp_broker import log_setup
from tests.support.examples import ALL

# CI runs on two shared cores: a slow example says nothing about the code. Blobs make a failure repeatable.
settings.register_profile(
    "searching",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=ALL,
)
# The same commit has the same verdict each time. Who looks for new examples asks for it:
# `python -m pytest --hypothesis-profile=searching`, `python -m tests.model`, `python -m tests.grouping`.
settings.register_profile("thorough", settings.get_profile("searching"), derandomize=True)
# Everyday a quarter of the examples: `.ci/run compiled` tries all, and so does who looks for a seeded fault.
settings.register_profile("house", settings.get_profile("thorough"), max_examples=ALL // 4)
settings.load_profile("house")

HERE: Final = Path(__file__).resolve().parent
IN_MEMORY: Final = Path("/dev/shm")
ROOM_BYTES: Final = 2 * 1024**3
"""A whole run has a tenth of it at a time: what a test that passed has written is removed."""


def pytest_configure() -> None:
    """Data directories of tests are in memory, where that is a file system with room: thousands of small
    stores wait for a disk else. What a store leaves to a power cut is asked in tests/power_loss.
    """
    if os.access(IN_MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(IN_MEMORY).free > ROOM_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


def pytest_xdist_auto_num_workers() -> int | None:
    """One worker more than there are cores, as tests wait for a sixth of their time: for processes that they
    start, for a moment to pass. None: what the environment says counts.
    """
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else len(os.sched_getaffinity(0)) + 1


def _import_own_share(config: pytest.Config) -> None:
    """In a fresh clone every worker would rewrite the asserts of every module, all of them at the same time:
    three quarters of its collection. So each begins with modules of its own, and finds the others' when it
    gets to them.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or [Path(each).resolve() for each in config.args] != [HERE]:
        return
    passed_over = set(config.getini("norecursedirs"))
    files = [path for path in sorted(HERE.rglob("test_*.py")) if passed_over.isdisjoint(path.parts)]
    count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for path in files[int(worker.removeprefix("gw")) :: count]:
        with suppress(Exception):  # the collection meets it again, and tells it
            import_module(".".join(path.relative_to(HERE.parent).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """What is there after the collection, half a million objects, stays: the collector of garbage need not
    look at it, neither now nor during the tests.
    """
    gc.disable()
    try:
        _import_own_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _folder_is_there_to_the_end(request: pytest.FixtureRequest) -> None:
    """The folder of a test is made before all else and removed after all else: stores and brokers that the
    test leaves open are closed in between.
    """
    if "tmp_path" in request.fixturenames:
        request.getfixturevalue("tmp_path")


@pytest.fixture(autouse=True)
def _fresh_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test configures, and the lines that it causes, count in no other."""
    monkeypatch.setattr(log_setup, "_sink", log_setup._Sink())
    yield
    logging.getLogger(log_setup.PROGRAM).setLevel(logging.NOTSET)
