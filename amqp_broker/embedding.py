"""`running_broker()`: a broker in a thread of its own, for test suites of any framework.

with running_broker() as broker:
    connect(broker.url)                    # amqp://127.0.0.1:PORT
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from amqp_broker.configuration import BrokerConfig, ListenerConfig
from amqp_broker.exit_status import leaves

if TYPE_CHECKING:
    from amqp_broker.faults import Faults

START_TIMEOUT_S: Final = 30.0  # recovery of a large store; a memory broker takes milliseconds
STOP_TIMEOUT_S: Final = 30.0  # the clean stop is bounded itself; this only turns a hang into an error


class RunningBroker:
    """A broker that runs in a thread.  Made by `running_broker`; safe to use from any thread."""

    def __init__(self, config: BrokerConfig, faults: Faults | None) -> None:
        self.config = config
        self._faults = faults
        self._urls: tuple[str, ...] = ()
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._broker: Any = None
        self._thread = threading.Thread(target=self._run, name="amqp-broker", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the first listener accepts connections."""
        return self._urls[0]

    @property
    def urls(self) -> tuple[str, ...]:
        """Where each listener accepts connections."""
        return self._urls

    @property
    def host(self) -> str:
        """The host of `url`."""
        return ListenerConfig(url=self._plain_url()).host

    @property
    def port(self) -> int:
        """The port of `url`."""
        return ListenerConfig(url=self._plain_url()).port

    @property
    def alive(self) -> bool:
        """Whether the broker still runs."""
        return self._thread.is_alive()

    def call(self, function: Any, *arguments: Any) -> Any:
        """Run `function(broker, *arguments)` in the broker's thread, and await it if it is a coroutine
        function.
        """
        assert self._token is not None, "running_broker waits until the broker has started"
        broker = self._broker

        async def there() -> Any:
            result = function(broker, *arguments)
            return await result if hasattr(result, "__await__") else result

        return trio.from_thread.run(there, trio_token=self._token)

    def stop(self, grace_s: float | None = None) -> None:
        """Stop and wait.  Raises what ended the broker if that was not us.  Harmless when called again."""
        grace = self.config.limits.stop_grace_ms / 1_000 if grace_s is None else grace_s
        token, self._token = self._token, None
        if token is not None:
            try:
                token.run_sync_soon(self._broker.stop, grace)
            except trio.RunFinishedError:
                pass
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise RuntimeError(f"the broker did not stop within {STOP_TIMEOUT_S} s")
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _plain_url(self) -> str:
        return self.url.replace("amqps://", "amqp://", 1)

    def _wait_until_ready(self) -> None:
        if not self._ready.wait(START_TIMEOUT_S):
            raise RuntimeError(f"the broker did not start within {START_TIMEOUT_S} s")
        if self._token is None:
            self.stop()
            raise RuntimeError("the broker ended while it started")

    def _run(self) -> None:
        try:
            trio.run(self._serve, strict_exception_groups=True)
        except BaseException as error:
            found = list(leaves(error))
            self._error = found[0] if len(found) == 1 else error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        from amqp_broker.broker import open_broker

        options: dict[str, Any] = {} if self._faults is None else {"faults": self._faults}
        async with open_broker(self.config, **options) as broker:
            self._urls = tuple(await broker.start_listeners())
            self._broker = broker
            self._token = trio.lowlevel.current_trio_token()
            self._ready.set()
            await broker.stopped()


@contextmanager
def running_broker(
    config: BrokerConfig | None = None, *, faults: Faults | None = None
) -> Iterator[RunningBroker]:
    """A broker in a thread on an ephemeral port of loopback, in memory unless `config` says otherwise.

    Stops cleanly at the end of the block.  Raises what opening raises (ConfigurationError, ListenError,
    StoreInUse), and StoreFailed at the end of the block when a commit failed inside it.
    """
    if config is None:
        config = BrokerConfig(memory=True, listeners=(ListenerConfig(url="amqp://127.0.0.1:0"),))
    broker = RunningBroker(config, faults)
    broker._wait_until_ready()
    try:
        yield broker
    except BaseException:
        try:
            broker.stop()
        except Exception as error:  # the error of the block is the one to see
            import traceback

            traceback.print_exception(error)
        raise
    else:
        broker.stop()


def memory_config(**changes: Any) -> BrokerConfig:
    """A BrokerConfig in memory on an ephemeral loopback port, with these changes."""
    config = BrokerConfig(memory=True, listeners=(ListenerConfig(url="amqp://127.0.0.1:0"),))
    return attrs.evolve(config, **changes)
