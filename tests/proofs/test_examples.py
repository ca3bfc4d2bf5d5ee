"""The example programs run as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amqp_broker.configuration import load_configuration
from tests.examples.snippets import documents
from tests.tidy.sources import ROOT, text_files


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python process in the checkout."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ".", **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("name", ["in_a_thread.py", "in_trio.py"])
def test_the_example_ends_well(name: str) -> None:
    """Each example program listens, talks to its broker, and ends with status 0."""
    done = run(f"examples/{name}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "listens on amqp://127.0.0.1:" in done.stdout


def test_the_example_of_dead_letters_handles_99_once() -> None:
    """A consumer crashes on one of 100 messages: it is dead after ten tries, all others came once."""
    done = run("examples/dead_letters.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "10 workers died, 99 orders were handled, each once",
        "order 42, from orders: max-deliveries, 10 tries",
        "1 went back, and was handled: [42]",
    ]


def test_the_example_of_half_messages_ships_what_is_in_the_database() -> None:
    """Two shops are killed in between; what the table says decides, and each shipment comes once."""
    done = run("examples/half_messages.py")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[:4] == [
        "order-3: after the commit of the database",
        "order-3: its shop was killed",
        "order-4: before the commit of the database",
        "order-4: its shop was killed",
    ]
    assert sorted(lines[4:]) == [
        "order-1: commit, and the broker knows: True",
        "order-2: rollback, and the broker knows: True",
        "order-3: the broker asks; the table says placed",
        "order-4: the broker asks; the table says cancelled",
        "warehouse: ship order-1",
        "warehouse: ship order-3",
    ]


def test_the_example_of_the_fixture_passes(tmp_path: Path) -> None:
    """The plugin's fixture works in a test suite that knows nothing else of us."""
    example = tmp_path / "test_with_fixture.py"
    example.write_text((ROOT / "examples" / "test_with_fixture.py").read_text())
    plugins = ["-p", "amqp_broker.testing.pytest_plugin", "-p", "no:cacheprovider"]
    arguments = ["-m", "pytest", "-q", *plugins, "-c", os.devnull, "--rootdir", str(tmp_path), str(example)]
    done = run(*arguments, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTEST_ADDOPTS="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_example_configuration_is_valid() -> None:
    """The file is read as `serve --config` reads it."""
    config = load_configuration(ROOT / "examples" / "broker.toml")
    assert config.queues_at_start() == ("orders.incoming",)
    assert config.policy_of("orders.returned").create == "strict"


@pytest.mark.parametrize("name", [*documents(), "CONTRIBUTING.md"])
def test_a_document_names_commands_that_exist(name: str) -> None:
    """Every `python -m`, and every file of the examples and of conformance, is there."""
    words = [word.strip("`().,;:") for word in text_files()[name].split()]
    modules = [after for word, after in zip(words, words[1:], strict=False) if word == "-m"]
    missing = []
    for module in sorted(set(modules) - {"venv", "pytest"}):
        path = ROOT / module.replace(".", "/")
        if not (path.with_suffix(".py").exists() or (path / "__main__.py").exists()):
            missing.append(module)
    missing += [
        word
        for word in words
        if word.startswith(("examples/", "conformance/")) and not (ROOT / word).exists()
    ]
    assert missing == []


def test_the_ci_calls_the_readme_test_command() -> None:
    """There is one test command, and `.ci/run` takes it from the README."""
    lines = [line for line in text_files()["README.md"].splitlines() if line.endswith("python -m pytest")]
    assert len(lines) == 1
    assert "README.md" in (ROOT / ".ci" / "run").read_text()
