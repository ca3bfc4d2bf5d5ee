"""What holds for every test: it finds logging as a fresh process does, hypothesis does not judge how busy the
machine is, and a run can be repeated.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import pytest
from _pytest.runner import runtestprotocol
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
# Everyday a quarter of the examples, and of random histories (tests/support/examples.py): `.ci/run compiled`
# tries all, and so does who looks for a seeded fault.
settings.register_profile("house", settings.get_profile("thorough"), max_examples=ALL // 4)
settings.load_profile("house")

HERE: Final = Path(__file__).resolve().parent
IN_MEMORY: Final = Path("/dev/shm")
ROOM_BYTES: Final = 2 * 1024**3
"""A whole run has a tenth of it at a time: what a test that passed has written is removed."""
BALLAST_BYTES: Final = 64 * 1024
"""Enough that there is a file, which goes and comes."""


def pytest_configure() -> None:
    """Data directories of tests are in memory, where that is a file system with room: thousands of small
    stores wait for a disk else. What a store leaves to a power cut is asked in tests/power_loss.
    """
    if os.access(IN_MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(IN_MEMORY).free > ROOM_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


def pytest_collection_finish() -> None:
    """A broker in a test reserves little of the disk: 16 MiB that are memory are a third of what its start
    costs. (Those that are processes reserve all of it.)
    """
    from amqp_broker.persistence import free_space, sqlite_store

    assert sqlite_store.BALLAST_NAME  # it is loaded: as it is, it compares the constants
    free_space.BALLAST_BYTES = BALLAST_BYTES  # type: ignore[misc]


def pytest_xdist_auto_num_workers() -> int | None:
    """One worker more than there are cores, as tests wait for a sixth of their time: for processes that they
    start, for a moment to pass. None: what the environment says counts.
    """
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else len(os.sched_getaffinity(0)) + 1


def _begin_with_own_share(config: pytest.Config) -> None:
    """In a fresh clone every worker would rewrite the asserts of every module, all of them at the same time:
    three quarters of its collection. So each begins with modules of its own, and finds the others' when it
    gets to them.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or [Path(each).resolve() for each in config.args] != [HERE]:
        return
    passed_over = set(config.getini("norecursedirs"))
    files = [path for path in sorted(HERE.rglob("test_*.py")) if passed_over.isdisjoint(path.parts)]
    number, count = int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for path in files[number::count]:
        with suppress(Exception):  # the collection meets it again, and tells it
            import_module(".".join(path.relative_to(HERE.parent).with_suffix("").parts))
    with suppress(ImportError):  # it is private to hypothesis, which does without
        _read_own_share(number, count)


def _read_own_share(number: int, count: int) -> None:
    """What hypothesis keeps in its folder: the constants of our modules, and which characters UTF-8 has."""
    from hypothesis.internal.charmap import intervals_from_codec
    from hypothesis.internal.constants_ast import constants_from_module

    for name, module in [*sys.modules.items()]:
        if name.startswith("amqp_broker.") and crc32(name.encode()) % count == number:
            constants_from_module(module)
    if number == 0:
        intervals_from_codec("utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """What is there after the collection, half a million objects, stays: the collector of garbage need not
    look at it, neither now nor during the tests.
    """
    gc.disable()
    try:
        _begin_with_own_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The folder of a test is made before all else and removed after all else: stores and brokers that the
    test leaves open are closed in between.
    """
    for item in items:
        names = getattr(item, "fixturenames", [])
        if "tmp_path" in names:
            names.remove("tmp_path")
            names.insert(0, "tmp_path")


@contextmanager
def _fresh_logging() -> Iterator[None]:
    """What a test configures, and the lines that it causes, count in no other."""
    before, log_setup._sink = log_setup._sink, log_setup._Sink()
    try:
        yield
    finally:
        log_setup._sink = before
        logging.getLogger(log_setup.PROGRAM).setLevel(logging.NOTSET)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """As pytest does it; what it costs is paid for each of thousands of small tests. So logging is no
    fixture, and a worker tells of a set-up and a tear-down that passed only where their times are asked for.
    """
    tells_all = "PYTEST_XDIST_WORKER" not in os.environ or item.config.option.durations is not None
    with _fresh_logging():
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in runtestprotocol(item, log=tells_all, nextitem=nextitem):
            if not tells_all and (report.when == "call" or not report.passed):
                item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
