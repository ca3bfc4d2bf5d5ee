"""Every store that a test of this room leaves open is closed behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.persistence.stores import close_stores


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_stores()
