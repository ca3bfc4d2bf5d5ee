"""What a process of a run says while it works, and when it gives up."""

from __future__ import annotations

import json
import time

PROGRESS_S = 0.5


def say(**line: object) -> None:
    """One line for the command line."""
    print(json.dumps(line), flush=True)


class Clock:
    """Progress twice a second, and an end when nothing has moved for too long."""

    def __init__(self, timeout_s: float, silent: bool = False) -> None:
        self.timeout_s = timeout_s
        self.silent = silent
        self.moved_at = self.said_at = time.monotonic()
        self.cpu = time.process_time()
        self.position = -1

    def tick(self, position: int, at: int) -> bool:
        """False when `position` has stood still for the whole time-out."""
        now = time.monotonic()
        if position != self.position:
            self.position, self.moved_at = position, now
        if now - self.said_at > PROGRESS_S and not self.silent:
            self.said_at = now
            say(at=at)
        return now - self.moved_at < self.timeout_s

    def cpu_s(self) -> float:
        """The processor time that this process took since it began, in seconds."""
        return time.process_time() - self.cpu
