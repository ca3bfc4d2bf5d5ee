"""How the runner judges a client program, told with small programs in place of the six."""

from __future__ import annotations

import importlib.util
import socket
import sys
from pathlib import Path
from types import ModuleType

import pytest

RUNNER = Path(__file__).resolve().parents[2] / "conformance" / "clients" / "run.py"


def load_runner() -> ModuleType:
    """The runner is a script outside every package, so that it needs nothing but Python."""
    spec = importlib.util.spec_from_file_location("clients_run", RUNNER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


run = load_runner()


def client_that(program: str, *tools: str) -> run.Client:  # type: ignore[name-defined]
    """A client whose program is this Python text and whose build does nothing."""
    return run.Client("proton", tools, lambda _: None, lambda: [sys.executable, "-c", program])


@pytest.mark.parametrize(
    ("program", "passed"),
    [
        ("print('ok a'); print('skip b: why')", True),
        ("print('ok a'); print('FAIL b: c'); raise SystemExit(1)", False),
        ("print('ok a'); print('FAIL b: c')", False),
        ("print('ok a'); raise SystemExit(3)", False),
        ("import os; print('ok a', flush=True); os.kill(os.getpid(), 11)", False),
        ("print('skip everything: why')", False),
        ("print('ok')", False),
        ("", False),
    ],
)
def test_passing_needs_checks_and_exit_status(program: str, passed: bool) -> None:
    """A client passes only with at least one check, no FAIL line, and status 0."""
    assert run.run(client_that(program), "amqp://127.0.0.1:1", verbose=False).passed is passed


def test_the_program_gets_the_url() -> None:
    """The URL is the program's last argument."""
    result = run.run(
        client_that("import sys; print('ok', sys.argv[-1])"), "amqp://127.0.0.1:1", verbose=False
    )
    assert result.counts == {"ok": 1, "skip": 0, "FAIL": 0}


def test_some_of_the_checks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """--checks reaches the program as a second argument, and only then."""
    monkeypatch.setattr(run, "check_broker", lambda url: None)
    monkeypatch.setattr(run, "CLIENTS", (client_that("import sys; print('ok', *sys.argv[1:])"),))
    for more in ([], ["--checks", "older than"]):
        assert run.main(["amqp://127.0.0.1:1", "--verbose", *more]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("proton: ok")] == [
        "proton: ok amqp://127.0.0.1:1",
        "proton: ok amqp://127.0.0.1:1 older than",
    ]


def test_only_failures_and_skips_are_shown_unless_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    """Hundreds of lines that say ok would hide the one that does not."""
    client = client_that("print('ok a'); print('FAIL b: c'); raise SystemExit(1)")
    run.run(client, "amqp://127.0.0.1:1", verbose=False)
    assert capsys.readouterr().out.splitlines()[1:] == ["proton: FAIL b: c"]
    run.run(client, "amqp://127.0.0.1:1", verbose=True)
    assert capsys.readouterr().out.splitlines()[1:] == ["proton: ok a", "proton: FAIL b: c"]


def test_a_program_that_never_ends_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit ends the program and is the problem that is told."""
    monkeypatch.setattr(run, "RUN_TIMEOUT_S", 0.2)
    result = run.run(
        client_that("import threading; threading.Event().wait()"), "amqp://127.0.0.1:1", verbose=False
    )
    assert result.problem == "took more than 0.2 s"
    assert not result.passed


def test_a_missing_tool_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lacks Go reads so, not a traceback."""
    monkeypatch.setenv("PATH", "")
    result = run.build(client_that("", "go"))
    assert result.problem == f"could not be built: go is missing, get {run.HOW_TO_GET['go']}"


def test_every_tool_has_a_way_to_get_it() -> None:
    """No client may name a tool without help."""
    assert {tool for client in run.CLIENTS for tool in client.tools} <= set(run.HOW_TO_GET)


def test_every_client_has_its_folder() -> None:
    """The table of clients and the folders beside the runner are the same six."""
    folders = {
        path.name
        for path in RUNNER.parent.iterdir()
        if path.is_dir() and not path.name.startswith((".", "_"))
    }
    assert {client.name for client in run.CLIENTS} == folders


@pytest.mark.parametrize(
    "url", ["127.0.0.1:5672", "http://127.0.0.1", "amqp://u:p@127.0.0.1", "amqp://h/queue"]
)
def test_a_bad_url_is_refused_before_anything_is_built(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The URL is checked once, here, and not six times by six programs."""
    with pytest.raises(SystemExit) as ended:
        run.main([url])
    assert ended.value.code == 2
    assert "argument url" in capsys.readouterr().err


def test_no_broker_is_one_sentence() -> None:
    """Without a broker nothing is built, and the port that refused is named."""
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        url = f"amqp://127.0.0.1:{unheard.getsockname()[1]}"
        with pytest.raises(SystemExit, match=f"no broker at {url}"):
            run.main([url])


def test_an_unknown_client_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """A slip in --only must not run nothing and pass."""
    with pytest.raises(SystemExit):
        run.main(["amqp://127.0.0.1:1", "--only", "rhea,qpid"])
    assert (
        "unknown client qpid; "
        "there are proton, rhea, qpid-jms, protonj2, java-programs, joram, go-amqp, fe2o3-amqp"
        in capsys.readouterr().err
    )


def test_the_first_failure_ends_the_run_unless_told_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 1 either way; --keep-going runs the others too."""
    monkeypatch.setattr(run, "check_broker", lambda url: None)
    bad, good = client_that("raise SystemExit(1)"), client_that("print('ok a')")
    monkeypatch.setattr(run, "CLIENTS", (bad, good))
    assert run.main(["amqp://127.0.0.1:1"]) == 1
    assert "1 clients not run" in capsys.readouterr().out
    assert run.main(["amqp://127.0.0.1:1", "--keep-going"]) == 1
    assert "not run" not in capsys.readouterr().out
    monkeypatch.setattr(run, "CLIENTS", (good, good))
    assert run.main(["amqp://127.0.0.1:1"]) == 0
