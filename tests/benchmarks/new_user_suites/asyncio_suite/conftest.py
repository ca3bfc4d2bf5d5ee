"""A broker for each test, beside the event loop that the test runs in (the plugin of anyio runs it)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from amqp_broker import RunningBroker, running_broker
from amqp_broker.testing import FrameTrace, ScriptedFaults


@pytest.fixture
def anyio_backend() -> str:
    """The program is written for asyncio."""
    return "asyncio"


@pytest.fixture
async def broker(anyio_backend: str) -> AsyncIterator[RunningBroker]:
    """With faults and recorded frames."""
    async with running_broker(faults=ScriptedFaults(FrameTrace())) as broker:
        yield broker
