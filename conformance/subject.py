"""The broker as something that can die: whether it still serves, what its process is busy with, how it is
started again.

Nothing here waits for ever. A command that was given runs in a process group of its own: one that ends has
done its work; one that goes on running is the broker, and is ended with the run.
"""

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from itertools import count
from pathlib import Path

import attrs

from amqp_broker.conformance.broker import Broker, Settings
from amqp_broker.conformance.outcomes import CannotConnect, Unexpected

HUNG_AFTER_FRAMES = 2
"""A broker that listens and answers nothing for as long as so many frames may take is said to hang: longer
than a pause of a collector, or a burst that a scenario has left it with.
"""

BACK_WITHIN_S = 3.0
"""How long somebody else may take to start a broker again that has gone."""

READY_S = 60.0
"""How long a broker may take to start, unless its description says otherwise."""

GOODBYE_S = 1.0
"""How long a look waits for the answer to its close."""

END_S = 5.0
"""How long what we started may take to end by itself."""

LOOK_EACH_S = 0.05
"""How often its threads are looked at."""

PAUSES = 4
"""How many looks may find a thread waiting that spins: one of Python's lets others by."""

SPUN_FOR_S = 5.0
"""How much of a processor's time a thread has to use without a pause while nobody asks anything of the
broker, before it is said to spin: a collector or a compiler would have ended. Not of the clock's: where
others keep the machine busy a thread waits for its turn, and looks as if it ran.
"""

SPUN_WITHIN_S = 30.0
"""A thread that does not get so much in this time cannot be judged: it is not said to spin."""

SUSPICIOUS_AFTER_S = 2.0
NOT_AGAIN_S = 10.0
"""When a thread uses so much while scenarios run, they wait until it is known what it does; and not again
soon, since a compiler at work looks the same.
"""

TICKS_EACH_S = os.sysconf("SC_CLK_TCK")
"""What Linux counts a thread's time in."""

LISTENS = "0A"
"""The state of a socket that listens, in Linux's table."""


class Trouble(Enum):
    """What has become of a broker."""

    DIED = "died"
    CLOSED = "does not let anybody in any more"
    HANGS = "hangs"
    SPINS = "spins"


@attrs.frozen
class State:
    """What a look at the broker showed; no trouble where it serves."""

    trouble: Trouble | None = None
    detail: str = ""


class Program:
    """The broker's process, where Linux lets us see it: on this machine."""

    def __init__(self, host: str, port: int) -> None:
        loopback = host in ("localhost", "::1") or host.startswith("127.")
        pid = _listener(port) if loopback else None
        self.pid = None if pid == os.getpid() else pid  # a broker in our own process is as busy as we are

    @property
    def has_ended(self) -> bool:
        """Whether the process that listened is there no more, whoever listens now. One that was ended and
        whose parent has not asked for its status yet is not there either (state Z, no thread but the first).
        """
        if self.pid is None:
            return False
        process = Path(f"/proc/{self.pid}")
        try:
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            return state == "Z" and len(list((process / "task").iterdir())) == 1
        except OSError:
            return True

    def running(self) -> dict[str, float]:
        """Returns the threads that run, or wait for a processor, and how many seconds each has used so far;
        none where nobody can say.
        """
        found = {}
        with suppress(OSError):
            for thread in Path(f"/proc/{self.pid}/task").iterdir() if self.pid is not None else ():
                with suppress(OSError):
                    state, *fields = (thread / "stat").read_text().rpartition(")")[2].split()
                    if state == "R":
                        found[thread.name] = (int(fields[10]) + int(fields[11])) / TICKS_EACH_S
        return found


def _listener(port: int) -> int | None:
    """Returns the process that listens on a port of this machine, if it can be seen."""
    sockets = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{fields[9]}]")
    if not sockets:
        return None
    for folder in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError):
            for descriptor in folder.iterdir():
                with suppress(OSError):
                    if os.readlink(descriptor) in sockets:
                        return int(folder.parent.name)
    return None


class LoadWatch:
    """Which threads of a program run without a pause, seen in passing while scenarios run."""

    def __init__(self, program: Program, not_before: float = 0.0) -> None:
        self._program = program
        self._not_before = not_before
        self._looked = 0.0
        self._since: dict[str, float] = {}
        self._used_before: dict[str, float] = {}
        self._used: dict[str, float] = {}
        self._missed: dict[str, int] = {}

    def look(self) -> None:
        """Notes who runs."""
        now = time.monotonic()
        if now - self._looked < LOOK_EACH_S:
            return
        self._looked = now
        running = self._program.running()
        for thread, used in running.items():
            if thread not in self._since:
                self._since[thread], self._used_before[thread] = now, used
            self._used[thread] = used
            self._missed[thread] = 0
        for thread in self._since.keys() - running:
            self._missed[thread] += 1
            if self._missed[thread] > PAUSES:
                del self._since[thread]

    @property
    def busy_since(self) -> float:
        """When the thread that has run for longest began."""
        return min(self._since.values(), default=time.monotonic())

    @property
    def used_s(self) -> float:
        """How much of a processor's time the thread has used that has used most without a pause."""
        return max((self._used[one] - self._used_before[one] for one in self._since), default=0.0)

    def is_suspicious(self) -> bool:
        """Whether a thread has used so much that what it does has to be looked into."""
        return self.used_s >= SUSPICIOUS_AFTER_S and time.monotonic() >= self._not_before


class Subject:
    """The broker of a run, and the commands that were given to start it."""

    def __init__(
        self, settings: Settings, *, start: str = "", restart: str = "", ready_s: float = READY_S
    ) -> None:
        self.settings = settings
        self._start, self._restart, self._ready_s = start, restart or start, ready_s
        self._running: subprocess.Popen[bytes] | None = None
        self._looks = count(1)
        self._find()

    @property
    def can_restart(self) -> bool:
        """Whether a command for that was given."""
        return bool(self._restart)

    def _find(self) -> None:
        self.program = Program(self.settings.address.host, self.settings.address.port)

    # ---- looking -------------------------------------------------------------------------------------------

    def look(self) -> State:
        """Opens a connection and begins a session, which every broker lets its user do."""
        broker = Broker(self.settings, f"look-{next(self._looks)}")
        try:
            session = broker.session()
            session.peer.timeout = GOODBYE_S
            with suppress(Unexpected):  # how it ends is for scenarios to judge
                session.end()
                session.peer.close()
        except CannotConnect as error:
            timed_out = isinstance(error.__cause__, TimeoutError)
            return State(Trouble.HANGS if timed_out else Trouble.DIED, str(error))
        except Unexpected as error:
            silent = "nothing came" in str(error)
            return State(Trouble.HANGS if silent else Trouble.CLOSED, f"on a new connection: {error}")
        except Exception as error:
            return State(Trouble.CLOSED, f"on a new connection: {type(error).__name__}: {error}")
        finally:
            broker.discard()
        return State()

    def look_patiently(self, stopped: Callable[[], object]) -> State:
        """Looks until the broker serves, or is in trouble for longer than a busy one may be."""
        begun = time.monotonic()
        while True:
            state = self.look()
            waited = time.monotonic() - begun
            hangs = state.trouble is Trouble.HANGS
            limit = HUNG_AFTER_FRAMES * self.settings.timeout_s if hangs else BACK_WITHIN_S
            if self.can_restart and state.trouble is Trouble.DIED:
                limit = 0.0
            if state.trouble is None or waited >= limit or stopped():
                break
            time.sleep(0.2)
        self._find()
        if state.trouble is Trouble.HANGS and self.spins(stopped).trouble is not None:
            return State(Trouble.SPINS, f"{state.detail}, and a thread of it runs without a pause")
        return state

    def spins(self, stopped: Callable[[], object]) -> State:
        """Looks what it does while nobody asks anything of it: for so long it would not be busy."""
        watch = LoadWatch(self.program)
        begun = time.monotonic()
        while watch.used_s < SPUN_FOR_S:
            watch.look()
            paused = watch.busy_since > begun + PAUSES * LOOK_EACH_S
            if paused or stopped() or time.monotonic() - begun > SPUN_WITHIN_S:
                return State()
            time.sleep(LOOK_EACH_S)
        detail = (
            f"while nobody asked anything of it, a thread of it ran for {watch.used_s:.0f} s without a pause"
        )
        return State(Trouble.SPINS, detail)

    # ---- starting ------------------------------------------------------------------------------------------

    def start(self, stopped: Callable[[], object]) -> str:
        """Starts it as its description says; returns what went wrong, empty where it listens then."""
        return self._command(self._start, stopped) if self._start else "no command is known that starts it"

    def restart(self, stopped: Callable[[], object]) -> str:
        """Starts it again; returns what went wrong."""
        self.end()
        return self._command(self._restart, stopped)

    def end(self) -> None:
        """Ends what a command has left running, with all that it has started itself."""
        if self._running is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._running.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._running.wait(END_S)
        with suppress(ProcessLookupError):
            os.killpg(self._running.pid, signal.SIGKILL)
        self._running.wait()
        self._running = None

    def _command(self, command: str, stopped: Callable[[], object]) -> str:
        """Runs a command until the broker serves."""
        former = self.program
        with tempfile.TemporaryFile() as output:  # not a pipe: what the command starts may keep it open
            try:
                process = subprocess.Popen(
                    shlex.split(command), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                    start_new_session=True,
                )  # fmt: skip
            except (OSError, ValueError) as error:
                return f"{command}: {error}"
            self._running = process
            end = time.monotonic() + self._ready_s
            state = State(Trouble.DIED, "not looked")
            while time.monotonic() < end and not stopped():
                if process.poll():
                    output.seek(0)
                    said = output.read()[-300:].decode(errors="replace").strip()
                    self.end()
                    return f"{command}: ended with {process.returncode}: {said}"
                # One that spins still serves: the command has to have ended it, or to have done its work.
                replaced = process.poll() is not None or former.pid is None or former.has_ended
                state = self.look() if replaced else State(Trouble.DIED, "the former one is still there")
                if state.trouble is None:
                    if process.poll() is not None:
                        self._running = None
                    self._find()
                    return ""
                time.sleep(0.1)
            self.end()
            return f"{command}: it does not serve within {self._ready_s:g} s: {state.detail}"
