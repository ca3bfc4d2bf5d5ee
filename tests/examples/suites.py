"""The test suites of `examples/testing` in other languages: `python -m tests.examples.suites`.

Each runs in a copy of its folder, against the `amqp-broker test-server` of this checkout, which it starts
itself. The first run of each loads its libraries from their registries.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from tests.tidy.sources import ROOT

EXAMPLES: Final = ROOT / "examples" / "testing"
TARGET: Final = ROOT / "conformance" / "clients" / ".build" / "suite"
SECONDS: Final = 600
"""A first build of the Rust suite takes a minute and a half on two cores."""


@attrs.frozen
class Suite:
    """The folder of one, and what prepares and runs it."""

    folder: str
    commands: tuple[tuple[str, ...], ...]


SUITES: Final = (
    Suite("node", (("npm", "install", "--no-audit", "--no-fund", "--loglevel=error"), ("node", "--test"))),
    Suite("java", (("mvn", "--batch-mode", "--quiet", "test"),)),
    Suite("go", (("go", "test", "-mod=readonly", "./..."),)),
    Suite("rust", (("cargo", "test", "--quiet", "--locked", "--target-dir", str(TARGET)),)),
)


def run(suite: Suite) -> str:
    """Run one; what is wrong, or nothing."""
    with tempfile.TemporaryDirectory() as name:
        broker = Path(name, "amqp-broker")
        broker.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m amqp_broker "$@"\n')
        broker.chmod(0o755)
        folder = Path(name, "suite")
        shutil.copytree(EXAMPLES / suite.folder, folder)
        for command in suite.commands:
            done = subprocess.run(
                command, cwd=folder, env={**os.environ, "AMQP_BROKER": str(broker)}, text=True,
                stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False,
            )  # fmt: skip
            if done.returncode:
                return f"{command[0]} ended with status {done.returncode}:\n{done.stdout}{done.stderr}"
    return ""


def main(arguments: Sequence[str]) -> int:
    """Those that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [suite.folder for suite in SUITES]
    parser.add_argument("only", nargs="*", help=f"some of {', '.join(names)}")
    wanted = parser.parse_args(arguments).only or names
    if not {*wanted} <= {*names}:
        parser.error(f"there are {', '.join(names)}")
    failed = False
    for suite in [each for each in SUITES if each.folder in wanted]:
        wrong = run(suite)
        failed = failed or bool(wrong)
        print(f"{suite.folder}: {wrong or 'ok'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
