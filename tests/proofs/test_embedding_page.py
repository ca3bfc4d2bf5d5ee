"""docs/how-to/embedding.md runs as it stands, as one module of tests; the kept hundred tests take seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from amqp_broker.testing.server import COMMANDS, usage
from tests.examples.snippets import snippets
from tests.examples.suites import SUITES
from tests.tidy.sources import ROOT

PAGE = "docs/how-to/embedding.md"
QUIET = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "PYTHONPATH": str(ROOT)}


def said_of(path: Path, folder: Path, *options: str) -> str:
    """What pytest says of a module, with our plugin and these options."""
    loaded = ["-p", "amqp_broker.testing.pytest_plugin", "-p", "anyio.pytest_plugin"]
    plugins = [*loaded, "-p", "no:cacheprovider", "--strict-markers"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *options, "-c", os.devnull, str(path)]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **QUIET}, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_the_page_is_a_suite(tmp_path: Path) -> None:
    """All of its blocks, one after the other."""
    module = tmp_path / "test_page.py"
    text = "\n\n".join(each.text for each in snippets(PAGE, "python"))
    module.write_text(text)
    said = said_of(module, tmp_path)
    assert f"{text.count('def test_')} passed" in said, said


def test_a_hundred_tests_pass_side_by_side() -> None:
    """The command of their docstring; how long it takes is for who measures."""
    said = said_of(ROOT / "examples" / "testing" / "test_hundred.py", ROOT, "-p", "xdist", "-n", "2")
    assert "100 passed" in said, said


def test_the_page_names_every_command_of_the_test_server() -> None:
    """And the suites in other languages are run by `.ci/run`."""
    page = (ROOT / PAGE).read_text()
    assert [usage(name) for name in COMMANDS if usage(name) not in page] == []
    step = (ROOT / ".ci" / "run").read_text().split("step_clients()")[1].split("\n}\n")[0]
    assert "tests.examples.suites" in step
    folders = {path.name for path in (ROOT / "examples" / "testing").iterdir() if path.is_dir()}
    assert folders - {"__pycache__"} == {suite.folder for suite in SUITES}
