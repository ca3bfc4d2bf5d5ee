"""The pytest plugin: brokers for the tests that ask for one.

    def test_mine(amqp_broker):                     # a broker of its own, in memory, on a free port
        connect(amqp_broker.url)

    @pytest.mark.amqp_broker("[limits]\\nlink_credit = 1\\n", container_id="shop")
    def test_full(amqp_broker): ...                 # as in a configuration file; fields of BrokerConfig

    def test_two(amqp_broker_factory):
        one, two = amqp_broker_factory(), amqp_broker_factory("[limits]\\nlink_credit = 1\\n")

    def test_shared(amqp_namespace):                # one broker for all tests, names of its own for each
        connect(amqp_namespace.url).open_sender(amqp_namespace.address("orders"))

Every broker records its frames (`broker.trace`, `broker.refused`; shown where a test fails), takes faults
(`broker.faults`) and logs to `logging.getLogger("amqp_broker")` from debug on. Whoever wants other settings
for all brokers overrides the fixture `amqp_broker_config`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from amqp_broker.configuration import BrokerConfig
    from amqp_broker.embedding import RunningBroker

MARKER: Final = "amqp_broker"
SHOWN_LINES: Final = 200
"""Of the frames of a broker, the last ones, where a test failed."""


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """pytest rewrites the asserts of every package that comes with a plugin. Ours is left as it is: that
    would take seconds. A `conftest.py` may import it, so this is done before.
    """
    marked = getattr(early_config.pluginmanager.rewrite_hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.difference_update({"amqp_broker", "pyspark_amqp"})


def pytest_configure(config: pytest.Config) -> None:
    """The marker is known, also where unknown ones are errors."""
    text = "amqp_broker(toml='', **changes): the configuration of the fixture `amqp_broker`"
    config.addinivalue_line("markers", text)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The marker configures `amqp_broker`: on a test without it, it would be ignored."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if item.get_closest_marker(MARKER) and "amqp_broker" not in names:
            raise pytest.UsageError(
                f"{item.nodeid}: the marker amqp_broker configures the fixture amqp_broker, which this test "
                f"does not have"
            )


class Factory:
    """Makes brokers, which are stopped when the test is over."""

    def __init__(self, base: BrokerConfig) -> None:
        self._base = base
        self._stack = ExitStack()
        self.brokers: list[RunningBroker] = []

    def __call__(
        self, config: BrokerConfig | str = "", *, faults: Any = None, **changes: Any
    ) -> RunningBroker:
        """A broker with this configuration, or with what this TOML and these changes say instead of
        `amqp_broker_config`.
        """
        from amqp_broker.embedding import changed, memory_config, running_broker
        from amqp_broker.testing import FrameTrace, ScriptedFaults

        if isinstance(config, str):
            config = memory_config(config) if config else self._base
        faults = ScriptedFaults(FrameTrace()) if faults is None else faults
        broker = self._stack.enter_context(running_broker(changed(config, **changes), faults=faults))
        self.brokers.append(broker)
        return broker

    def stop(self) -> None:
        """Stop them all, the last one first."""
        for broker in self.brokers:
            _warn_of(broker)
        self._stack.close()


def _warn_of(broker: RunningBroker) -> None:
    """A fault that never happened may be one that a test does not test."""
    for fault in getattr(broker.faults, "waiting", list)():
        warnings.warn(f"the fault scripted for {fault} never happened", stacklevel=1)


class Namespace:
    """Addresses that no other test uses, on a broker that others use, too."""

    def __init__(self, broker: RunningBroker, prefix: str) -> None:
        self.broker = broker
        self.url = broker.url
        self.prefix = prefix

    def address(self, name: str) -> str:
        """The address of this name."""
        return f"{self.prefix}{name}"

    def clear(self) -> None:
        """Delete what is at its addresses, and forget the faults of its test."""
        _warn_of(self.broker)
        self.broker.faults.clear()
        self.broker.clear(self.prefix)


@pytest.fixture(scope="session")
def amqp_broker_config() -> BrokerConfig:
    """What all brokers of these fixtures begin with. Override it for others, in memory or not."""
    from amqp_broker.embedding import memory_config

    return memory_config()


@pytest.fixture
def amqp_broker_factory(amqp_broker_config: BrokerConfig) -> Iterator[Callable[..., RunningBroker]]:
    """Makes brokers: `amqp_broker_factory(toml_or_config, faults=..., **changes)`."""
    factory = _logged(Factory(amqp_broker_config))
    yield factory
    factory.stop()


@pytest.fixture(name="amqp_broker")
def amqp_broker_fixture(
    request: pytest.FixtureRequest, amqp_broker_factory: Callable[..., RunningBroker]
) -> RunningBroker:
    """A running broker, configured by `@pytest.mark.amqp_broker(toml, faults=..., **changes)`."""
    marker = request.node.get_closest_marker(MARKER)
    return amqp_broker_factory() if marker is None else amqp_broker_factory(*marker.args, **marker.kwargs)


@pytest.fixture(scope="session")
def amqp_session_broker(amqp_broker_config: BrokerConfig) -> Iterator[RunningBroker]:
    """One broker for all tests of the session, or of the worker of pytest-xdist."""
    factory = _logged(Factory(amqp_broker_config))
    yield factory()
    factory.stop()


@pytest.fixture
def amqp_namespace(
    request: pytest.FixtureRequest, amqp_session_broker: RunningBroker
) -> Iterator[Namespace]:
    """Names of one test on the broker of the session; what is there is deleted after it."""
    name = re.sub(r"\W+", "-", request.node.name)[:64]
    namespace = Namespace(amqp_session_broker, f"{name}-{next(_NUMBERS)}.")
    yield namespace
    namespace.clear()


_NUMBERS = iter(range(1, 1 << 62))


def _logged(factory: Factory) -> Factory:
    """What brokers log reaches the log of the test."""
    import logging

    logger = logging.getLogger("amqp_broker")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.DEBUG)
    return factory


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed shows what was said to its brokers."""
    report = yield
    factory = getattr(item, "funcargs", {}).get("amqp_broker_factory")
    if factory is not None and report.failed:
        for broker in factory.brokers:
            trace = getattr(broker.faults, "trace", None)
            if trace is not None and trace.frames:
                lines = str(trace).splitlines()
                report.sections.append((f"frames of {broker.url}", "\n".join(lines[-SHOWN_LINES:])))
    return report
