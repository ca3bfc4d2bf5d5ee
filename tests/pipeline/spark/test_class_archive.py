"""The classes of Spark from an archive: in use where one is named, and never a reason to fail or to speak."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from amqp_broker.pipeline.java import find_java
from tests.pipeline.spark.class_archive import CLASSES, ONE_COMPILER, short_life


def test_without_one_it_is_one_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not named, or not there."""
    monkeypatch.delenv(CLASSES, raising=False)
    assert short_life() == ONE_COMPILER
    monkeypatch.setenv(CLASSES, str(tmp_path / "classes.jsa"))
    assert short_life() == ONE_COMPILER


def test_one_that_does_not_fit_is_passed_over_in_silence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file of something else, and the archive of other jars: Java runs, and says nothing of it."""
    spoilt, other, jar = tmp_path / "spoilt.jsa", tmp_path / "other.jsa", tmp_path / "a.jar"
    spoilt.write_bytes(bytes(range(256)) * 1_000)
    jar.write_bytes(b"PK\5\6" + bytes(18))
    java = str(find_java() / "bin" / "java")
    made = [java, f"-XX:ArchiveClassesAtExit={other}", "-Xlog:disable", "-cp", str(jar), "-version"]
    subprocess.run(made, capture_output=True, check=True, timeout=60)
    assert other.stat().st_size > 0
    for file in (spoilt, other):
        monkeypatch.setenv(CLASSES, str(file))
        options = short_life().split()
        assert f"-XX:SharedArchiveFile={file}" in options
        ran = subprocess.run(
            [java, *options, "-cp", str(tmp_path), "-XshowSettings:locale", "-version"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert ran.returncode == 0 and ran.stdout == "" and "cds" not in ran.stderr.lower(), ran


def test_the_one_that_is_named_is_in_use(spark: Any) -> None:
    """By the Java of these tests, which has none where none is named."""
    java = spark._jvm.java.lang
    maps = Path(f"/proc/{java.ProcessHandle.current().pid()}/maps").read_text()
    mapped = {Path(line.split()[-1]) for line in maps.splitlines() if line.endswith(".jsa")}
    its_own = Path(java.System.getProperty("java.home")).resolve()
    named = os.environ.get(CLASSES)
    expected = {Path(named).resolve()} if named else set()
    assert {file for file in mapped if not file.is_relative_to(its_own)} == expected
