"""The command `amqp-broker`: usage, exit statuses, signals, and what it prints."""

from __future__ import annotations

import gc
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from amqp_broker import __version__, serving
from amqp_broker.command_line import main
from amqp_broker.configuration import parse_configuration
from amqp_broker.exit_status import CANNOT_LISTEN
from amqp_broker.frames import encode_message
from amqp_broker.persistence import Post, Record, Retain
from amqp_broker.testing.blocking_peer import PATIENCE_S, BlockingPeer
from amqp_broker.testing.peer import PeerError
from amqp_broker.testing.store_suite.helpers import do, new_queue
from amqp_broker.verifiers import parse_verifier, password_matches
from tests.persistence.stores import small_store

BROKER = [sys.executable, "-W", "error", "-m", "amqp_broker"]
ANY_PORT = "amqp://127.0.0.1:0"
WAIT_S = PATIENCE_S


class Process:
    """A broker process and what it said."""

    def __init__(self, *arguments: str, imports: bool = False) -> None:
        """`imports`: it says on standard error what it loads."""
        python = [BROKER[0], *(["-X", "importtime"] if imports else []), *BROKER[1:]]
        self.process = subprocess.Popen(
            [*python, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def listening(self) -> int:
        """The port of the first line on standard output."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = re.fullmatch(r"listening on amqp://127\.0\.0\.1:(\d+)\n", line)
        assert match is not None, (line, self.process.poll(), self.end()[1])
        return int(match[1])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; exit status and standard error."""
        self.process.send_signal(number)
        return self.end()

    def end(self) -> tuple[int, str]:
        """Exit status and standard error, once it has ended."""
        _, errors = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, errors

    def close(self) -> None:
        """Whatever happened, nothing is left over."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture(name="start")
def _start() -> Iterator[type[Process]]:
    """Starts brokers and ends them."""
    started: list[Process] = []

    class Started(Process):
        def __init__(self, *arguments: str, imports: bool = False) -> None:
            super().__init__(*arguments, imports=imports)
            started.append(self)

    yield Started
    for process in started:
        process.close()


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(name="run")
def _run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Exit status, standard output and standard error of a command that ends by itself, in this process."""
    monkeypatch.setattr(serving, "_tune_process", lambda: None)

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        return status, *capsys.readouterr()

    yield run
    gc.enable()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_serving_broker_cleanly(start: type[Process], number: signal.Signals) -> None:
    """It says where it listens, serves, and ends with status 0."""
    broker = start("serve", "--memory", "--listen", ANY_PORT)
    port = broker.listening()
    with BlockingPeer.connect("127.0.0.1", port) as connection:
        connection.begin()
    status, errors = broker.stop(number)
    assert status == 0, errors
    assert "Traceback" not in errors
    assert "ResourceWarning" not in errors


def test_a_stop_with_an_open_connection_closes_it_with_an_error(start: type[Process]) -> None:
    """The client is told amqp:connection:forced, and the broker does not wait for long."""
    broker = start("serve", "--memory", "--listen", ANY_PORT)
    port = broker.listening()
    with BlockingPeer.connect("127.0.0.1", port) as connection:
        connection.begin()
        broker.process.send_signal(signal.SIGTERM)
        with pytest.raises(PeerError) as caught:
            connection.pump_until(lambda: False)
        assert caught.value.error is not None
        assert caught.value.error.condition == "amqp:connection:forced"
    assert broker.end()[0] == 0


def test_a_peer_that_does_not_answer_delays_a_stop_by_the_grace_only(
    start: type[Process], tmp_path: Path
) -> None:
    """The close of the broker is never answered; `stop_grace_ms` bounds the wait, and the status is 0."""
    file = tmp_path / "broker.toml"
    file.write_text(f'memory = true\n[[listener]]\nurl = "{ANY_PORT}"\n[limits]\nstop_grace_ms = 200\n')
    broker = start("serve", "--config", str(file))
    with BlockingPeer.connect("127.0.0.1", broker.listening()) as connection:
        connection.begin()
        assert broker.stop()[0] == 0


def test_sighup_has_the_file_read_again(start: type[Process], tmp_path: Path) -> None:
    """What the command line says goes on; a wrong file is refused, and the broker serves as before."""
    file = tmp_path / "broker.toml"
    file.write_text("memory = true\n")
    broker = start("serve", "--config", str(file), "--listen", ANY_PORT)
    port = broker.listening()
    assert broker.process.stderr is not None

    def hang_up(source: str, event: str) -> list[dict[str, object]]:
        """Send the signal; all events up to this one."""
        file.write_text(source)
        broker.process.send_signal(signal.SIGHUP)
        told = []
        for line in broker.process.stderr or ():
            told.append(json.loads(line))
            if told[-1]["event"] == event:
                break
        return told

    told = hang_up("memory = true\n[limits]\nmax_connections = 7\n", "audit.done")
    assert told[-1]["principal"] == "SIGHUP" and told[-1]["operation"] == "RELOAD"
    assert "limits.max_connections = 7, was 16384" in [each.get("what") for each in told]
    assert [each for each in told if each["event"] == "configuration.waits_for_start"] == []
    reason = hang_up("memory = 1\n", "configuration.refused")[-1]["reason"]
    assert reason == "memory = 1: must be true or false"
    BlockingPeer.connect("127.0.0.1", port).close()
    assert broker.stop()[0] == 0


def test_each_listener_has_its_line(start: type[Process]) -> None:
    """Two URLs, two lines, both serve."""
    broker = start("serve", "--memory", "--listen", ANY_PORT, "--listen", ANY_PORT)
    ports = {broker.listening(), broker.listening()}
    assert len(ports) == 2
    for port in ports:
        BlockingPeer.connect("127.0.0.1", port).close()


def test_a_second_broker_on_the_same_data_exits_with_75(
    start: type[Process], tmp_path: Path, run: Run
) -> None:
    """The first one goes on serving."""
    arguments = ("serve", "--data", str(tmp_path / "data"), "--listen", ANY_PORT)
    first = start(*arguments)
    port = first.listening()
    status, out, errors = run(*arguments)
    assert (status, out) == (75, "")
    assert str(tmp_path / "data") in errors
    BlockingPeer.connect("127.0.0.1", port).close()
    assert first.stop()[0] == 0


def test_data_is_there_after_a_restart(start: type[Process], tmp_path: Path) -> None:
    """The default is to keep: what was accepted is delivered by the next broker on the same directory."""
    arguments = ("serve", "--data", str(tmp_path / "data"), "--listen", ANY_PORT)
    first = start(*arguments)
    with BlockingPeer.connect("127.0.0.1", first.listening()) as connection:
        sender = connection.begin().attach_sender("s", "orders")
        connection.pump_until(lambda: sender.may_send)
        number = sender.send(_message())
        connection.pump_until(lambda: number in sender.outcomes)
    assert first.stop()[0] == 0
    second = start(*arguments)
    with BlockingPeer.connect("127.0.0.1", second.listening()) as connection:
        receiver = connection.begin().attach_receiver("r", "orders", credit=1)
        connection.pump_until(lambda: bool(receiver.deliveries))
        assert b"kept" in receiver.deliveries[0].payload


def _message() -> bytes:
    from amqp_broker.frames import Header, encode_message

    return encode_message(header=Header(durable=True), body=b"kept")


def test_the_check_finds_nothing_wrong_with_a_sound_store(
    start: type[Process], tmp_path: Path, run: Run
) -> None:
    """Status 0 for a sound store, 75 while a broker holds it, not 0 for a directory without a store."""
    data = str(tmp_path / "data")
    broker = start("serve", "--data", data, "--listen", ANY_PORT)
    broker.listening()
    assert run("check", data)[0] == 75
    assert broker.stop()[0] == 0
    assert run("check", data)[:2] == (0, f"{data}: no faults found\n")
    assert run("check", str(tmp_path / "none"))[0] == 74
    assert not (tmp_path / "none").exists()


def test_the_check_tells_and_removes_a_message_that_an_older_version_took(tmp_path: Path, run: Run) -> None:
    """Its sections are malformed, as those of nothing that is taken today; `--remove` takes what is told."""
    directory = tmp_path / "data"
    malformed = b"\x00\x53\x72\xd1\x00\x00\x00\x04\xff\xff\xff\xff"
    store = small_store(directory)
    queue_id = new_queue(store, "kept")
    sound = encode_message(message_annotations={"x-opt-a": 1}, body=b"x")
    records = [Record(0, sound), Record(1, malformed + sound), Record(2, sound)]
    do(store, Retain(queue_id, 3_600_000, 0), Post(queue_id, records))
    store.close()
    status, told, _ = run("check", str(directory))
    (finding,) = told.splitlines()
    subject = f"queue {queue_id} (kept), offset 1"
    assert status == 1 and finding.startswith(f"{subject}: the message is malformed: ")
    status, told, _ = run("check", str(directory), "--remove", subject)
    assert status == 0 and told.splitlines()[1] == f"{directory}: no faults found"


BAD = [
    (
        ["serve", "--config", "{file}"],
        "[limits]\nmax_frame_size_bytes = 1",
        "limits.max_frame_size_bytes = 1",
    ),
    (["serve", "--config", "{file}"], "colour = 1", "colour: unknown key"),
    (["serve", "--config", "{file}"], "= 1", "TOML"),
    (["serve", "--config", "{file}/none"], "", "cannot be read"),
    (["serve", "--memory", "--listen", "http://x"], "", '--listen = "http://x"'),
    (["serve", "--data", "{file}", "--listen", ANY_PORT], "", "data_dir"),
    (["serve", "--data", "{file}/deeper", "--listen", ANY_PORT], "", "data_dir"),
    (["serve", "--memory", "--data", "x"], "", "not allowed with"),
    (["serve", "--quiet"], "", "--quiet"),
    (["serve", "extra"], "", "extra"),
    ([], "", "COMMAND"),
    (["fly"], "", "fly"),
]


@pytest.mark.parametrize(("arguments", "source", "complaint"), BAD, ids=range(len(BAD)))
def test_a_bad_configuration_exits_with_2_and_names_the_field(
    arguments: list[str], source: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message is on standard error, without a traceback; nothing is on standard output."""
    file = tmp_path / "broker.toml"
    file.write_text(source)
    status = main([argument.replace("{file}", str(file)) for argument in arguments])
    out, errors = capsys.readouterr()
    assert (status, out) == (2, "")
    assert complaint in errors
    assert "Traceback" not in errors


def test_the_process_itself_exits_with_2(tmp_path: Path) -> None:
    """The exit status and the message reach the shell, with the file's name."""
    file = tmp_path / "broker.toml"
    file.write_text("[limits]\nmax_sessions = 0\n")
    command = [*BROKER, "serve", "--config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"amqp-broker: {file}: limits.max_sessions = 0: must be a whole number from 1 to 65536 (sessions)\n"
    )


def test_a_port_in_use_exits_with_69_and_names_the_listener(run: Run) -> None:
    """Nothing is printed on standard output, since nothing is served; it may be free at the next start."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"amqp://127.0.0.1:{taken.getsockname()[1]}"
        status, out, errors = run("serve", "--memory", "--listen", url)
    assert (status, out) == (CANNOT_LISTEN, "")
    assert f'listener[0].url = "{url}"' in errors
    assert "Traceback" not in errors


def test_standard_output_that_nobody_reads_does_not_stop_the_broker(tmp_path: Path) -> None:
    """The line about listening goes into a closed pipe; a signal still stops it with 0."""
    reading, writing = os.pipe()
    os.close(reading)
    port_file = tmp_path / "broker.toml"
    port_file.write_text(
        'memory = true\n[[listener]]\nurl = "amqp://127.0.0.1:0"\n[logging]\nformat = "json"\n'
    )
    process = subprocess.Popen(
        [*BROKER, "serve", "--config", str(port_file)], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert process.stderr is not None
    assert "standard_output.closed" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 0


def test_a_user_is_added_without_the_password_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The printed table is configuration, holds no password, and its verifiers know the right one."""
    monkeypatch.setattr("sys.stdin", io.StringIO("geheim\n"))
    assert main(["user", "add", 'a"da', "--iterations", "4096"]) == 0
    out, _ = capsys.readouterr()
    assert "geheim" not in out
    (table,) = tomllib.loads(out)["user"]
    assert table["name"] == 'a"da'
    for key in ("scram_sha_256", "scram_sha_512"):
        assert password_matches(parse_verifier(table[key]), "geheim")
    assert parse_configuration(out).users[0].name == 'a"da'


@pytest.mark.parametrize(
    ("arguments", "password", "complaint"),
    [
        (["ada"], "", "password is empty"),
        (["ada"], "\n", "password is empty"),
        (["ada"], "a\x07b\n", "password cannot be used"),
        (["ada"], "x" * 2_000 + "\n", "more than 1024"),
        (["*"], "word\n", "NAME"),
        (["ada", "--iterations", "10"], "word\n", "--iterations = 10"),
        (["ada", "--password", "word"], "word\n", "--password"),
    ],
)
def test_a_user_that_cannot_be_added_exits_with_2(
    arguments: list[str],
    password: str,
    complaint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Empty and forbidden passwords, names with a meaning of their own, too few iterations."""
    monkeypatch.setattr("sys.stdin", io.StringIO(password))
    assert main(["user", "add", *arguments]) == 2
    out, errors = capsys.readouterr()
    assert out == ""
    assert complaint in errors


def test_users_are_listed_without_their_verifiers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Name and mechanisms, one user in each line."""
    monkeypatch.setattr("sys.stdin", io.StringIO("geheim\n"))
    main(["user", "add", "ada", "--iterations", "4096"])
    file = tmp_path / "broker.toml"
    file.write_text(capsys.readouterr().out + '\n[[user]]\nname = "eve"\n')
    assert main(["user", "list", "--config", str(file)]) == 0
    assert capsys.readouterr().out == "ada\tSCRAM-SHA-256 SCRAM-SHA-512\neve\tEXTERNAL\n"


def test_help_and_version_exit_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    """They print and do nothing else."""
    for arguments in (["--help"], ["serve", "--help"], ["user", "add", "--help"]):
        assert main(arguments) == 0
    capsys.readouterr()
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"amqp-broker {__version__}\n"


def test_usage_errors_load_neither_trio_nor_the_store() -> None:
    """What a command does not need is not imported: listening has to begin within half a second."""
    code = (
        "import sys; from amqp_broker.command_line import main; status = main(['serve', '--listen', 'x']);"
        "heavy = {'trio', 'structlog', 'sqlite_utils', 'pysqlite3', 'scramp', 'amqp_broker.links'};"
        "loaded = heavy & set(sys.modules);"
        "sys.exit(f'loaded {loaded}' if loaded else status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 2, done.stderr


def test_a_start_loads_what_it_needs(start: type[Process], tmp_path: Path) -> None:
    """Not what migrates older stores, reads selectors, or is managed: time and memory of every broker."""
    broker = start("serve", "--data", str(tmp_path), "--listen", ANY_PORT, imports=True)
    broker.listening()
    status, told = broker.stop(signal.SIGTERM)
    assert status == 0
    loaded = set(re.findall(r"^import time:.*\| +(\S+)$", told, re.MULTILINE))
    assert {"trio", "pysqlite3", "amqp_broker.features", "amqp_broker.persistence.migrations"} <= loaded
    rare = {"sqlite_utils", "click", "lark", "rich.console"}
    rare |= {"amqp_broker.management.node", "amqp_broker.rabbitmq.node"}
    assert not loaded & rare
