"""`running_broker()`: a broker in a thread of its own, for test suites of any framework.

with running_broker() as broker:           # or `async with`, in asyncio and trio: the loop is never blocked
    connect(broker.url)                    # amqp://127.0.0.1:PORT
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from difflib import get_close_matches
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from amqp_broker.configuration import BrokerConfig, ListenerConfig
from amqp_broker.embedded_clock import EmbeddedClock
from amqp_broker.embedded_questions import Questions
from amqp_broker.exit_status import leaves

if TYPE_CHECKING:
    from amqp_broker.faults import Faults

START_TIMEOUT_S: Final = 30.0  # recovery of a large store; a memory broker takes milliseconds
STOP_TIMEOUT_S: Final = 30.0  # the clean stop is bounded itself; this only turns a hang into an error
LISTEN: Final = ListenerConfig(url="amqp://127.0.0.1:0")


class RunningBroker(Questions):
    """A broker that runs in a thread.  Made by `running_broker`; safe to use from any thread but its own."""

    def __init__(self, config: BrokerConfig, faults: Faults | None = None, grace_s: float = 0.0) -> None:
        self.config = config
        self._faults: Any = faults
        self.clock = EmbeddedClock(self.call)
        """Its time: `clock.advance(30)`."""
        self._grace_s = grace_s
        self._urls: tuple[str, ...] = ()
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: Any = None
        self._broker: Any = None
        self._calls: set[Future[Any]] = set()
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
        function. Raises what that raises, and RuntimeError once the broker has stopped.
        """
        token, answer = self._token, Future[Any]()
        if token is None:
            raise RuntimeError(HAS_STOPPED)

        async def there() -> None:
            try:
                result = function(self._broker, *arguments)
                answer.set_result(await result if hasattr(result, "__await__") else result)
            except Exception as error:
                answer.set_exception(error)
            except BaseException:
                answer.set_exception(RuntimeError(HAS_STOPPED))
                raise

        def begin() -> None:
            try:
                self._nursery.start_soon(there)
            except RuntimeError:  # it is closed: the broker is just stopping
                answer.set_exception(RuntimeError(HAS_STOPPED))

        self._calls.add(answer)
        try:
            token.run_sync_soon(begin)
        except trio.RunFinishedError:
            answer.set_exception(RuntimeError(HAS_STOPPED))
        try:
            return answer.result()
        finally:
            self._calls.discard(answer)

    def stop(self, grace_s: float | None = None) -> None:
        """Stop and wait: what was accepted is stored, every client is told, and has `grace_s` seconds to
        close (by default what `running_broker` was told). Raises what ended the broker if that was not us.
        Harmless when called again.
        """
        grace = self._grace_s if grace_s is None else grace_s
        token, self._token = self._token, None
        if token is not None:
            try:
                token.run_sync_soon(self._broker.stop, grace)
            except trio.RunFinishedError:
                pass
        self._thread.join(grace + STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise RuntimeError(f"the broker did not stop within {grace + STOP_TIMEOUT_S} s")
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _plain_url(self) -> str:
        return "amqp" + self.url[self.url.index("://") :]

    def _wait_until_ready(self) -> None:
        if not self._ready.wait(START_TIMEOUT_S):
            raise RuntimeError(f"the broker did not start within {START_TIMEOUT_S} s")
        if self._token is None:
            self.stop()
            raise RuntimeError("the broker ended while it started")

    def _run(self) -> None:
        try:
            trio.run(self._serve, clock=self.clock, strict_exception_groups=True)
        except BaseException as error:
            found = list(leaves(error))
            self._error = found[0] if len(found) == 1 else error
        finally:
            self._ready.set()
            for answer in [*self._calls]:
                if not answer.done():
                    answer.set_exception(RuntimeError(HAS_STOPPED))

    async def _serve(self) -> None:
        from amqp_broker.broker import open_broker

        options: dict[str, Any] = {} if self._faults is None else {"faults": self._faults}
        async with open_broker(self.config, wall_clock=self.clock.wall_ms, **options) as broker:
            self._urls = tuple(await broker.start_listeners())
            self._broker = broker
            async with trio.open_nursery() as self._nursery:
                self._token = trio.lowlevel.current_trio_token()
                self._ready.set()
                await broker.stopped()
                self._nursery.cancel_scope.cancel()


HAS_STOPPED: Final = "the broker has stopped"


class running_broker:
    """A broker in a thread on an ephemeral port of loopback, in memory unless `config` says otherwise: a
    BrokerConfig, or what stands in a configuration file (`memory_config`).

    Stops at the end of the block: what was accepted is stored, and a client that is still connected is told,
    and cut off after `grace_s` seconds. Raises what opening raises (ConfigurationError, ListenError,
    StoreInUse), and StoreFailed at the end of the block when a commit failed inside it.
    """

    def __init__(
        self, config: BrokerConfig | str = "", *, faults: Faults | None = None, grace_s: float = 0.0
    ) -> None:
        self._config = memory_config(config) if isinstance(config, str) else config
        self._faults = faults
        self._grace_s = grace_s
        self._broker: RunningBroker | None = None

    def __enter__(self) -> RunningBroker:
        broker = RunningBroker(self._config, self._faults, self._grace_s)
        broker._wait_until_ready()
        self._broker = broker
        return broker

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._broker is not None, "it was entered"
        try:
            self._broker.stop()
        except Exception as error:
            if kind is None:
                raise
            import traceback  # the error of the block is the one to see

            traceback.print_exception(error)

    async def __aenter__(self) -> RunningBroker:
        try:
            broker: RunningBroker = await _beside_the_loop(self.__enter__)
        except BaseException:
            if self._broker is not None:  # cancelled while it started
                self._broker.stop()
            raise
        return broker

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _beside_the_loop(self.__exit__, kind, value, trace)


async def _beside_the_loop(function: Any, *arguments: Any) -> Any:
    """What a function returns that takes a moment, in a thread of asyncio or trio."""
    if trio.lowlevel.in_trio_run():
        with trio.CancelScope(shield=True):  # a broker that is there has to be stopped
            return await trio.to_thread.run_sync(function, *arguments)
    import asyncio

    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise


def memory_config(toml: str = "", **changes: Any) -> BrokerConfig:
    """A BrokerConfig in memory on an ephemeral loopback port: `toml` as it stands in a configuration file,
    and then these changes. Raises ConfigurationError, and TypeError for what is no field of BrokerConfig.
    """
    ordinary = config = BrokerConfig()
    if toml:
        from amqp_broker.configuration import parse_configuration

        config = parse_configuration(toml)
    listeners = (LISTEN,) if config.listeners == ordinary.listeners else config.listeners
    return changed(config, **{"memory": True, "listeners": listeners, **changes})


def changed(config: BrokerConfig, **changes: Any) -> BrokerConfig:
    """With these fields instead. Raises TypeError for what is none."""
    known = [field.name for field in attrs.fields(BrokerConfig)]
    for name in changes:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f": {', '.join(known)}"
            raise TypeError(f"expected fields of BrokerConfig, got {name!r:.80}{hint}")
    return attrs.evolve(config, **changes)
