"""What takes long says how far it is: one line for each step, which changes on a terminal; elsewhere it is
told at its end, and what takes long says so now and then.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

LOOK_EVERY_S: Final = 0.3
SAY_EVERY_S: Final = 10.0
"""Where there is no terminal."""


class Progress:
    """Steps of a long piece of work; `spark` is asked for the tasks of its running stages."""

    def __init__(self, stream: IO[str] | None = None, spark: Any = None, *, quiet: bool = False) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._spark = spark
        self.is_quiet = quiet
        self.took_s: dict[str, float] = {}

    @property
    def shows(self) -> bool:
        """Whether there is a terminal, on which a line is shown while something goes on."""
        return not self.is_quiet and self._stream.isatty()

    def watch(self, spark: Any) -> None:
        """From now on tasks of this session are counted."""
        self._spark = spark

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A named step; how long it took is kept in `took_s`."""
        begun = time.monotonic()
        done = threading.Event()
        shows = self.shows
        watch = self._show if shows else self._tell
        watcher = threading.Thread(target=watch, args=(name, begun, done), daemon=True)
        if not self.is_quiet:
            watcher.start()
        try:
            yield
        finally:
            done.set()
            if not self.is_quiet:
                watcher.join()
        self.took_s[name] = time.monotonic() - begun
        self.say(f"{name}: {self.took_s[name]:.1f} s", clear=shows)

    def say(self, text: str, *, clear: bool = False) -> None:
        """One line that stays."""
        if not self.is_quiet:
            self._stream.write(f"\r\x1b[K{text}\n" if clear else f"{text}\n")
            self._stream.flush()

    def _show(self, name: str, begun: float, done: threading.Event) -> None:
        while not done.wait(LOOK_EVERY_S):
            text = f"{name} {self._tasks()}{time.monotonic() - begun:.0f} s"
            self._stream.write(f"\r\x1b[K{text}")
            self._stream.flush()

    def _tell(self, name: str, begun: float, done: threading.Event) -> None:
        while not done.wait(SAY_EVERY_S):
            self.say(f"{name}: {self._tasks()}{time.monotonic() - begun:.0f} s so far")

    def _tasks(self) -> str:
        """The tasks of the stages that run now."""
        if self._spark is None:
            return ""
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        finished = sum(stage.numCompletedTasks for stage in known)
        return f"{finished} of {sum(stage.numTasks for stage in known)} tasks, " if known else ""
