"""The command ``amqp-conformance``: exit statuses and what it writes."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from amqp_broker.conformance.command_line import main
from amqp_broker.testing import running_broker
from tests.conformance.scripted_server import scripted_server


def test_a_broker_that_passes_gives_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that passes ends with 0, and writes both files."""
    junit, plain = tmp_path / "run.xml", tmp_path / "run.json"
    with running_broker() as broker:
        status = main(
            ["run", broker.url, "--only", "2.5.1/begin", "--junit", str(junit), "--json", str(plain)]
        )
    assert status == 0
    assert "scenarios: 1 passed, 0 failed" in capsys.readouterr().out
    assert ElementTree.parse(junit).getroot().tag == "testsuites"
    assert json.loads(plain.read_text())["scenarios_counts"]["passed"] == 1


def test_the_transcript_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    """With --transcript the dialogue of a scenario that passes is shown, too."""
    with running_broker() as broker:
        assert main(["run", broker.url, "--only", "2.5.1/begin", "--transcript"]) == 0
    assert "<- begin(remote_channel=0" in capsys.readouterr().out


def test_a_failure_gives_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A scenario that fails gives 1: here a gap is listed that is none."""
    gaps = tmp_path / "gaps.toml"
    gaps.write_text("[[gap]]\nscenario = '2.5.1/begin'\nreason = 'not true'\n")
    with running_broker() as broker:
        assert main(["run", broker.url, "--only", "2.5.1/begin", "--admit", str(gaps)]) == 1
    assert "take it off the list" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "http://localhost"],
        ["run", "amqp://localhost", "--only", "no-such-scenario"],
        ["run", "amqp://localhost", "--admit", "no-such-file.toml"],
        ["statement", "--json", "no-such-file.json"],
        ["statement", "--update", "no-such-file.md"],
    ],
)
def test_wrong_usage_gives_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be done is said on standard error, in one line."""
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("amqp-conformance: ")


def test_unknown_arguments_give_two(capsys: pytest.CaptureFixture[str]) -> None:
    """The parser's own refusals end with 2 as well."""
    with pytest.raises(SystemExit) as ended:
        main(["run", "amqp://localhost", "--jobs", "0"])
    assert ended.value.code == 2
    assert "must be 1 to 64" in capsys.readouterr().err


def test_nobody_there_gives_three(capsys: pytest.CaptureFixture[str]) -> None:
    """Where nobody listens the status is 3."""
    with scripted_server() as port:
        pass
    assert main(["run", f"amqp://127.0.0.1:{port}"]) == 3
    assert "cannot connect" in capsys.readouterr().err


def test_somebody_else_there_gives_three(capsys: pytest.CaptureFixture[str]) -> None:
    """Where somebody listens who speaks no AMQP the status is 3."""
    with scripted_server([8, b"HTTP/1.1 400 Bad Request\r\n\r\n"]) as port:
        assert main(["run", f"amqp://127.0.0.1:{port}", "--timeout", "1"]) == 3
    assert "no AMQP 1.0 broker answers there" in capsys.readouterr().err


def test_a_login_that_is_not_offered_gives_three(capsys: pytest.CaptureFixture[str]) -> None:
    """A user is given, but the broker offers no PLAIN: 3, and the reason without the password."""
    with running_broker() as broker:
        url = broker.url.replace("amqp://", "amqp://user:secret@")
        assert main(["run", url]) == 3
    error = capsys.readouterr().err
    assert "PLAIN is not offered" in error and "secret" not in error


@pytest.mark.parametrize(("what", "line"), [("scenarios", "2.2/zeroes"), ("requirements", "2.2-10 ")])
def test_lists(what: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Scenarios and requirements can be listed without a broker."""
    assert main(["list", what]) == 0
    assert line in capsys.readouterr().out


def test_the_statement_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The statement's table is printed, with the list of what is not shown on request."""
    assert main(["statement", "--unseen"]) == 0
    out = capsys.readouterr().out
    assert "| 2.7 Performatives |" in out and "`2.2-04`" in out
