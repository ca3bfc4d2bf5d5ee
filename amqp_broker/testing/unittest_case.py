"""A broker for each test of `unittest`."""

from __future__ import annotations

import unittest
from typing import ClassVar

from amqp_broker.configuration import BrokerConfig
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.testing.scripted_faults import ScriptedFaults
from amqp_broker.testing.traces import FrameTrace


class BrokerTestCase(unittest.TestCase):
    """`self.broker` is a broker of the test's own: in memory, with faults and recorded frames.

    For coroutines: `class Mine(BrokerTestCase, unittest.IsolatedAsyncioTestCase)`.
    """

    broker_config: ClassVar[BrokerConfig | str] = ""
    """Another configuration: as in a file, or a BrokerConfig."""

    broker: RunningBroker

    def setUp(self) -> None:
        """Start it; it is stopped after the test, whatever came of that."""
        super().setUp()
        faults = ScriptedFaults(FrameTrace())
        self.broker = self.enterContext(running_broker(self.broker_config, faults=faults))
