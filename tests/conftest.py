"""What holds for every test: it finds logging as a fresh process does, hypothesis does not judge how busy the
machine is, and a run can be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from amqp_broker import log_setup

# CI runs on two shared cores: a slow example says nothing about the code. Blobs make a failure repeatable.
settings.register_profile(
    "searching", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
# The same commit has the same verdict each time. Who looks for new examples asks for it:
# `python -m pytest --hypothesis-profile=searching`, `python -m tests.model`, `python -m tests.grouping`.
settings.register_profile("house", settings.get_profile("searching"), derandomize=True)
settings.load_profile("house")


@pytest.fixture(autouse=True)
def _fresh_logging(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test configures, and the lines that it causes, count in no other."""
    monkeypatch.setattr(log_setup, "_sink", log_setup._Sink())
    yield
    logging.getLogger(log_setup.PROGRAM).setLevel(logging.NOTSET)
