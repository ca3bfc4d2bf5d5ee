"""The fixtures of the plugin, as a suite sees them that knows nothing else of us."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.tidy.sources import ROOT

OPTIONS = ["-p", "amqp_broker.testing.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers"]

PASSES = '''
import pytest
from amqp_broker.client import ClientError, connect

TIGHT = "[[queue]]\\npattern = 'orders'\\nmax_messages = 1\\n"
names = []


def send(url, address, count=1):
    with connect(url, timeout_s=20) as connection:
        connection.open_sender(address).send_many(["x"] * count)


@pytest.mark.amqp_broker(TIGHT, container_id="shop")
def test_a_marker(amqp_broker):
    amqp_broker.declare("orders")
    assert amqp_broker.ask("READ", "queue", "orders")["max_messages"] == 1
    assert amqp_broker.config.container_id == "shop"


def test_a_factory(amqp_broker_factory):
    one, two = amqp_broker_factory(), amqp_broker_factory(TIGHT)
    send(one.url, "orders", 3)
    assert (one.depth("orders"), two.depth("orders")) == (3, 0)


@pytest.mark.parametrize("time", [1, 2])
def test_a_namespace(amqp_namespace, amqp_session_broker, time):
    address = amqp_namespace.address("orders")
    names.append(address)
    assert amqp_namespace.broker is amqp_session_broker
    assert not [name for name in amqp_session_broker.queues() if name != "dead-letters"]
    send(amqp_namespace.url, address)
    assert amqp_session_broker.depth(address) == 1


def test_faults_that_stay_with_their_test(amqp_namespace):
    amqp_namespace.broker.faults.message().reject()
    amqp_namespace.broker.faults.grant_no_credit()


def test_nothing_of_that_is_left(amqp_namespace):
    send(amqp_namespace.url, amqp_namespace.address("orders"))


def test_two_names(amqp_session_broker):
    assert len(set(names)) == 2


def test_faults_and_time(amqp_broker):
    amqp_broker.faults.message().reject()
    with connect(amqp_broker.url) as connection:
        with pytest.raises(ClientError):
            connection.open_sender("orders").send("x")
    assert [each.what for each in amqp_broker.refused] == ["message"]
    amqp_broker.clock.advance(3600)
'''

CONFIGURED = '''
import pytest
from amqp_broker.testing import memory_config


@pytest.fixture(scope="session")
def amqp_broker_config():
    return memory_config(container_id="ours")


def test_it_is_ours(amqp_broker, amqp_session_broker):
    assert amqp_broker.config.container_id == amqp_session_broker.config.container_id == "ours"
'''

FAILS = '''
from amqp_broker.client import connect


def test_mine(amqp_broker):
    connection = connect(amqp_broker.url)
    connection.open_sender("orders")
    assert False
'''


MARKS = """
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config):
    hook = early_config.pluginmanager.rewrite_hook
    hook._must_rewrite.clear()
    hook._must_rewrite.update({"amqp_broker", "x"})
    return (yield)
"""


def run(folder: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """pytest, with nothing but our plugin."""
    (folder / "test_suite.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", *OPTIONS, "-c", os.devnull, "--rootdir", str(folder)]
    quiet = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, *options, str(folder / "test_suite.py")],
        cwd=folder, env={**os.environ, **quiet}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_suite_has_its_brokers(tmp_path: Path) -> None:
    """By marker, by the dozen, shared with names of each test's own, with faults and time."""
    done = run(tmp_path, PASSES)
    assert "8 passed" in done.stdout, done.stdout + done.stderr


def test_a_suite_says_once_how_all_brokers_are(tmp_path: Path) -> None:
    """By a fixture of its own, of the same name."""
    done = run(tmp_path, CONFIGURED)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_test_that_fails_shows_frames_and_log(tmp_path: Path) -> None:
    """What was said to the broker, and what the broker logged."""
    done = run(tmp_path, FAILS)
    assert "1 failed" in done.stdout, done.stdout + done.stderr
    assert "frames of amqp://127.0.0.1:" in done.stdout
    assert "C: [0] Attach(" in done.stdout
    assert "link.attached" in done.stdout


def test_a_suite_that_asks_for_no_broker_loads_none(tmp_path: Path) -> None:
    """Neither trio nor the store."""
    loaded = "{'trio', 'attrs', 'amqp_broker.broker'} & {*sys.modules}"
    text = f"import sys\ndef test_it():\n    assert not {loaded}\n"
    done = run(tmp_path, text)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_fault_that_never_happened_is_told(tmp_path: Path) -> None:
    """By a warning; and a marker that configures nothing is an error."""
    done = run(tmp_path, "def test_it(amqp_broker): amqp_broker.faults.message(2).drop()")
    assert done.returncode == 0 and "the fault scripted for message 2 never happened" in done.stdout
    done = run(tmp_path, "import pytest\n@pytest.mark.amqp_broker('')\ndef test_it(): pass")
    assert done.returncode != 0 and "configures the fixture amqp_broker" in done.stdout + done.stderr


def test_our_modules_are_not_rewritten(tmp_path: Path) -> None:
    """pytest would take seconds for the asserts of all of a package that comes with a plugin, also where a
    `conftest.py` imports it.
    """
    (tmp_path / "marks.py").write_text(MARKS)
    (tmp_path / "conftest.py").write_text("from amqp_broker import log_setup\n")
    text = """
import sys
def test_it(pytestconfig):
    assert "amqp_broker" not in pytestconfig.pluginmanager.rewrite_hook._must_rewrite
    assert "x" in pytestconfig.pluginmanager.rewrite_hook._must_rewrite
    assert "rewrite" not in type(sys.modules["amqp_broker.log_setup"].__loader__).__module__
"""
    done = run(tmp_path, text, "-p", "marks")
    assert done.returncode == 0, done.stdout
