"""`amqp-broker pipeline` where something is missing: a message that says what to do, and status 2."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from amqp_broker.command_line import main


def test_without_an_archive_it_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """audit, report and compact look for the archive before Spark is started."""

    def started(*arguments: object, **settings: object) -> None:
        raise AssertionError("Spark was started for nothing")

    monkeypatch.setattr("amqp_broker.pipeline.session.spark_session", started)
    for command in ("audit", "report", "compact"):
        assert main(["pipeline", command, str(tmp_path)]) == 2
        assert "expected an archive of events, found none" in capsys.readouterr().err


def test_without_the_history_it_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """check-history wants its files."""
    assert main(["pipeline", "check-history", str(tmp_path / "gone.jsonl")]) == 2
    assert "gone.jsonl: expected a history of JSON lines" in capsys.readouterr().err


def test_without_pyspark_it_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker that was installed without the extra says what to install."""
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    history = tmp_path / "history.jsonl"
    history.touch()
    assert main(["pipeline", "check-history", str(history)]) == 2
    assert "pip install 'amqp-broker[pipeline]'" in capsys.readouterr().err


def test_a_wrong_command_is_told_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    """argparse's usage, and its status."""
    assert main(["pipeline", "sing"]) == 2
    assert "archive" in capsys.readouterr().err
    assert main(["pipeline", "--help"]) == 0
    assert "check-history" in capsys.readouterr().out
