"""Builds the client programs and runs them against an AMQP 1.0 broker that is already running.

``python conformance/clients/run.py amqp://127.0.0.1:5672`` needs Python 3.11 and the clients' toolchains; the
first build loads the libraries from their package registries. README.md says what each program shows.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
BUILD = HERE / ".build"
"""Everything that is made here and may be deleted, beside ``node_modules`` and Maven's ``target``."""

BUILD_TIMEOUT_S = 1_800
CONNECT_TIMEOUT_S = 5
RUN_TIMEOUT_S = 600
"""A run takes seconds; a client gives up on one step after 20 to 30 s, so this is twenty hopeless steps."""

OK, SKIP, FAIL = "ok", "skip", "FAIL"

HOW_TO_GET = {
    "cc": "a C compiler: on Debian, apt-get install gcc libc6-dev",
    "pkg-config": "pkg-config: on Debian, apt-get install pkg-config",
    "libsasl2": "Cyrus SASL: on Debian, apt-get install libsasl2-dev libsasl2-modules libssl-dev",
    "npm": "Node.js 18 or later with npm: https://nodejs.org, or on Debian, apt-get install nodejs npm",
    "node": "Node.js 18 or later: https://nodejs.org, or on Debian, apt-get install nodejs",
    "mvn": "Apache Maven 3.8 or later: https://maven.apache.org, or on Debian, apt-get install maven",
    "javac": "a Java development kit, 17 or later: on Debian, apt-get install openjdk-17-jdk-headless",
    "java": "a Java runtime, 17 or later: on Debian, apt-get install openjdk-17-jre-headless",
    "go": "Go 1.25 or later: https://go.dev/dl",
    "cargo": "Rust 1.85 or later with cargo: https://rustup.rs",
}


class BuildError(Exception):
    """A client could not be built; the text says why and, for a missing tool, how to get it."""


@dataclass(frozen=True)
class Client:
    """One client program: what it needs, how it is built, how it is called.

    The URL comes after the command, and after that, if not all checks are wanted, a part of their names.
    """

    name: str
    tools: tuple[str, ...]
    build: Callable[[Client], None]
    command: Callable[[], list[str]]

    @property
    def folder(self) -> Path:
        return HERE / self.name


@dataclass
class Result:
    """What one client printed, counted, and how it ended."""

    client: str
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys((OK, SKIP, FAIL), 0))
    problem: str = ""
    seconds: float = 0.0

    def add(self, line: str) -> str | None:
        """Counts a line of the program and returns its kind, or ``None`` for a line that is no check's."""
        kind, _, rest = line.partition(" ")
        if kind not in self.counts or not rest:
            return None
        self.counts[kind] += 1
        return kind

    def end(self, status: int) -> None:
        """Judges the exit status together with the lines: neither alone is enough to pass."""
        if self.problem:
            return
        if status != 0 and not self.counts[FAIL]:
            self.problem = f"ended with status {status} and no FAIL line"
        elif status == 0 and self.counts[FAIL]:
            self.problem = f"printed {self.counts[FAIL]} FAIL lines and ended with status 0"
        elif status == 0 and not self.counts[OK]:
            self.problem = "ended with status 0 and no check"

    @property
    def passed(self) -> bool:
        return not self.problem and not self.counts[FAIL] and self.counts[OK] > 0


def say(text: str) -> None:
    print(text, flush=True)


def call(client: Client, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
    """Runs one build step in the client's folder; its output is shown only if it fails."""
    say(f"build {client.name}: {Path(command[0]).name} {' '.join(command[1:])}")
    try:
        done = subprocess.run(
            command,
            cwd=client.folder,
            env=os.environ | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=BUILD_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{command[0]} took more than {BUILD_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise BuildError(f"{command[0]} ended with status {done.returncode}:\n{done.stdout.strip()}")


def check_tools(client: Client) -> None:
    missing = [tool for tool in client.tools if shutil.which(tool) is None]
    if missing:
        ways = "; ".join(f"{tool} is missing, get {HOW_TO_GET[tool]}" for tool in missing)
        raise BuildError(ways)


def proton_is_importable(python: str) -> bool:
    """Whether this Python has the library, with Cyrus SASL, which brings SCRAM. ``-I`` keeps our folder
    ``proton`` from standing in for it.
    """
    probe = [python, "-I", "-c", "import proton.reactor; assert proton.SASL.extended()"]
    return subprocess.run(probe, cwd=BUILD, capture_output=True).returncode == 0


def proton_python() -> str:
    if proton_is_importable(sys.executable):
        return sys.executable
    return str(BUILD / "proton" / "bin" / "python")


def build_proton(client: Client) -> None:
    python = proton_python()
    if python == sys.executable:
        say("build proton: this Python has it already")
        return
    if not Path(python).exists():
        call(client, [sys.executable, "-m", "venv", str(BUILD / "proton")])
    if not proton_is_importable(python):
        check_tools(Client(client.name, ("cc", "pkg-config"), client.build, client.command))
        # A wheel that pip has kept may have been built where there was no Cyrus SASL.
        anew = ["--no-cache-dir", "--force-reinstall"]
        call(client, [python, "-m", "pip", "install", "--quiet", *anew, "-r", "requirements.txt"])
        if not proton_is_importable(python):
            raise BuildError(f"proton was built without Cyrus SASL; get {HOW_TO_GET['libsasl2']}")


def build_rhea(client: Client) -> None:
    call(client, ["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"])


def build_with_maven(client: Client) -> None:
    call(client, ["mvn", "--batch-mode", "--quiet", "package"])


def build_go_amqp(client: Client) -> None:
    for name, package in (("go-amqp", "."), ("go-amqp-logins", "./logins")):
        call(client, ["go", "build", "-mod=readonly", "-o", str(BUILD / name), package])


def build_fe2o3_amqp(client: Client) -> None:
    call(client, ["cargo", "build", "--quiet", "--locked"], {"CARGO_TARGET_DIR": str(BUILD / "fe2o3-amqp")})


def java_command(name: str, *options: str) -> list[str]:
    target = HERE / name / "target"
    class_path = os.pathsep.join([str(target / "classes"), str(target / "lib" / "*")])
    return ["java", *options, "-cp", class_path, "interop.Interop"]


def protonj2_command() -> list[str]:
    """Without Netty's search for leaks: it tells pages about what the library leaves to the collector."""
    return java_command("protonj2", "-Dio.netty.leakDetection.level=disabled")


CLIENTS = (
    Client("proton", (), build_proton, lambda: [proton_python(), str(HERE / "proton" / "interop.py")]),
    Client("rhea", ("npm", "node"), build_rhea, lambda: ["node", str(HERE / "rhea" / "interop.js")]),
    Client("qpid-jms", ("mvn", "javac", "java"), build_with_maven, lambda: java_command("qpid-jms")),
    Client("protonj2", ("mvn", "javac", "java"), build_with_maven, protonj2_command),
    Client(
        "java-programs",
        ("mvn", "javac", "java"),
        build_with_maven,
        lambda: java_command("java-programs"),
    ),
    Client("joram", ("mvn", "javac", "java"), build_with_maven, lambda: java_command("joram")),
    Client("go-amqp", ("go",), build_go_amqp, lambda: [str(BUILD / "go-amqp")]),
    Client(
        "fe2o3-amqp",
        ("cargo",),
        build_fe2o3_amqp,
        lambda: [str(BUILD / "fe2o3-amqp" / "debug" / "amqp-interop")],
    ),
)


def build(client: Client) -> Result:
    """Builds a client; the result's problem is empty when that went well."""
    result = Result(client.name)
    started = time.monotonic()
    try:
        check_tools(client)
        client.build(client)
    except BuildError as error:
        result.problem = f"could not be built: {error}"
        say(f"build {client.name}: {result.problem}")
    else:
        say(f"build {client.name}: done in {time.monotonic() - started:.0f} s")
    return result


def stop(process: subprocess.Popen[str]) -> None:
    """Ends a program with its children: it leads a session of its own."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)


def run(client: Client, url: str, verbose: bool, checks: str = "") -> Result:
    """Runs a built client, all of it or the checks with this in their names, and counts its lines."""
    result = Result(client.name)
    say(f"run {client.name}: {url}")

    def too_late() -> None:
        result.problem = f"took more than {RUN_TIMEOUT_S} s"
        stop(process)

    started = time.monotonic()
    with subprocess.Popen(
        [*client.command(), url, *([checks] if checks else [])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        watch = threading.Timer(RUN_TIMEOUT_S, too_late)
        watch.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                kind = result.add(line.rstrip("\n"))
                if verbose or kind != OK:
                    say(f"{client.name}: {line.rstrip()}")
            status = process.wait()
        finally:
            watch.cancel()
            stop(process)
    result.end(status)
    result.seconds = time.monotonic() - started
    return result


def table(results: Sequence[Result]) -> str:
    lines = [f"{'client':<13} {OK:>5} {SKIP:>5} {FAIL:>5} {'seconds':>8}"]
    for result in results:
        numbers = " ".join(f"{result.counts[kind]:>5}" for kind in (OK, SKIP, FAIL))
        problem = result.problem.splitlines()[0] if result.problem else ""
        lines.append(f"{result.client:<13} {numbers} {result.seconds:>8.1f}  {problem}".rstrip())
    return "\n".join(lines)


def broker_url(url: str) -> str:
    """Checks the URL early: eight programs in five languages would each complain in their own way."""
    parts = urlsplit(url)
    if parts.scheme != "amqp" or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise argparse.ArgumentTypeError(f"expected amqp://host:port, got {url!r}")
    if parts.username or parts.password:
        raise argparse.ArgumentTypeError("user and password go into AMQP_USER and AMQP_PASSWORD, not the URL")
    return f"amqp://{parts.hostname}:{parts.port or 5672}"


def check_broker(url: str) -> None:
    """One sentence here instead of hundreds of FAIL lines when no broker is there."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname, parts.port), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise SystemExit(f"run.py: no broker at {url}: {error}") from error


def chosen(names: str) -> list[Client]:
    by_name = {client.name: client for client in CLIENTS}
    wanted = [name.strip() for name in names.split(",")]
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        allowed = ", ".join(by_name)
        raise argparse.ArgumentTypeError(f"unknown client {', '.join(unknown)}; there are {allowed}")
    return [by_name[name] for name in wanted]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.py", description="AMQP 1.0 clients against a broker.")
    parser.add_argument("url", nargs="?", type=broker_url, help="amqp://host:port of the broker")
    parser.add_argument("--only", type=chosen, default=list(CLIENTS), metavar="NAMES", help="as rhea,go-amqp")
    parser.add_argument("--checks", default="", metavar="PART", help="the checks with this in their names")
    parser.add_argument("--build-only", action="store_true", help="build the clients and stop")
    parser.add_argument("--keep-going", action="store_true", help="go on to the next client after a failure")
    parser.add_argument("--verbose", action="store_true", help="print the checks that passed, too")
    options = parser.parse_args(arguments)
    if options.url is None and not options.build_only:
        parser.error("the URL of a running broker is missing: amqp://host:port")
    return options


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if not options.build_only:
        check_broker(options.url)
    BUILD.mkdir(exist_ok=True)
    results: list[Result] = []
    for client in options.only:
        result = build(client)
        if not result.problem and not options.build_only:
            result = run(client, options.url, options.verbose, options.checks)
        results.append(result)
        failed = bool(result.problem) if options.build_only else not result.passed
        if failed and not options.keep_going:
            break
    if options.build_only:
        return 1 if any(result.problem for result in results) else 0
    say(table(results))
    left = len(options.only) - len(results)
    if left:
        say(f"{left} clients not run; --keep-going runs them all")
    return 0 if not left and all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
