"""What drives a run: turns of reading and writing until everything is done, or nothing moves any more."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from typing import Final

from amqp_broker.bench.wire import Wire, wait_for

PROGRESS_S: Final = 0.5


class Driver(ABC):
    """One process's part of a run, which may be made of others. `wires` are its connections."""

    wires: tuple[Wire, ...] = ()
    parts: tuple[Driver, ...] = ()

    @property
    def finished(self) -> bool:
        """Everything is done, and what we answered is written."""
        return all(part.finished for part in self.parts)

    @property
    def position(self) -> int:
        """Grows with everything that moves."""
        return sum(part.position for part in self.parts)

    @property
    @abstractmethod
    def at(self) -> int:
        """How much is done, for whoever looks at the progress."""

    @abstractmethod
    def turn(self) -> None:
        """Read what has come and write what may go."""

    def pause_s(self) -> float:
        """How long to wait at most for something to read, or for room to write."""
        return PROGRESS_S

    @abstractmethod
    def result(self) -> dict[str, object]:
        """What this process tells the report."""


def say(**line: object) -> None:
    """One line for the command line."""
    print(json.dumps(line), flush=True)


def drive(driver: Driver, timeout_s: float, silent: bool = False) -> dict[str, object]:
    """Run it to its end, close its connections, and tell its result; `stalled` if nothing moved for the whole
    time-out. It says how far it is twice a second unless it is to be silent.
    """
    for wire in driver.wires:
        wire.begin_run()
    cpu, position = time.process_time(), -1
    moved_at = said_at = time.monotonic()
    while not driver.finished and time.monotonic() - moved_at < timeout_s:
        driver.turn()
        if not driver.finished:
            wait_for(*driver.wires, timeout_s=driver.pause_s())
        if driver.position != position:
            position, moved_at = driver.position, time.monotonic()
        if not silent and time.monotonic() - said_at > PROGRESS_S:
            said_at = time.monotonic()
            say(at=driver.at)
    cpu = time.process_time() - cpu
    result = {**driver.result(), "stalled": not driver.finished, "cpu_s": cpu}
    for wire in driver.wires:
        wire.close()
    return result
