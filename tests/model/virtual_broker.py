"""A broker in a thread of its own whose time stands still, and jumps when the machine says so."""

from __future__ import annotations

import trio
import trio.testing

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig
from amqp_broker.embedding import RunningBroker
from amqp_broker.exit_status import leaves
from amqp_broker.faults import Faults


class VirtualBroker(RunningBroker):
    """A `RunningBroker`, with its thread and its socket, on a clock that only `jump` moves."""

    def __init__(self, config: BrokerConfig, faults: Faults | None) -> None:
        self.clock = trio.testing.MockClock()
        super().__init__(config, faults)
        self._wait_until_ready()

    def _run(self) -> None:
        try:
            trio.run(self._serve, strict_exception_groups=True, clock=self.clock)
        except BaseException as error:
            found = list(leaves(error))
            self._error = found[0] if len(found) == 1 else error
        finally:
            self._ready.set()

    def jump(self, seconds: float) -> None:
        """So much time passes, all at once."""

        def there(_: Broker) -> None:
            self.clock.jump(seconds)

        self.call(there)
