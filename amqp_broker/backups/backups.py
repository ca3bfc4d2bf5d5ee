"""Backups of a running broker, one at a time: a piece of the store between two commits, then a rest.

    begin --> running: step, rest, step, rest, ... --> verifying --> done
                 |                                        |
                 +--- give up, or what went wrong --------+--> failed: nothing is left of it

Backups lie below `backup_dir` of the configuration, each in a directory of its name: a client names no path.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from amqp_broker.log_setup import logger
from amqp_broker.management.errors import Unmanageable
from amqp_broker.persistence import BackupFailed, Store, StoreError

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.persistence.rescue import Backup

RUNNING: Final = "running"
VERIFYING: Final = "verifying"
DONE: Final = "done"
FAILED: Final = "failed"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_PARTIAL: Final = ".partial"

Start = Callable[[Callable[[], Awaitable[Any]]], None]


class BackupRun:
    """One backup that was asked for. Times are milliseconds of the clock on the wall, 0 for not yet."""

    def __init__(self, name: str, path: Path, begun_at_ms: int) -> None:
        self.name = name
        self.path = path
        self.begun_at_ms = begun_at_ms
        self.ended_at_ms = 0
        self.state = RUNNING
        self.reason: str | None = None
        self.byte_count = 0
        self.given_up = False
        self.copying: Backup | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is under way."""
        return self.state in (DONE, FAILED)

    @property
    def percent(self) -> int:
        """Of the database, how much is copied."""
        if self.state in (VERIFYING, DONE):
            return 100
        copying = self.copying
        return 100 * copying.copied_pages // copying.pages if copying is not None and copying.pages else 0


class Backups:
    """All that were asked for since the start, as many as are told. `start` runs a task of the broker."""

    def __init__(self, nodes: BrokerNodes, start: Start) -> None:
        self._nodes = nodes
        self._start = start
        self._runs: deque[BackupRun] = deque(maxlen=nodes.config.limits.max_backups_listed)
        self._log = logger("backups")

    def runs(self) -> list[BackupRun]:
        """The latest ones, the oldest first."""
        return [*self._runs]

    def begin(self, name: str) -> None:
        """Begin a backup of this name. Raises Unmanageable."""
        directory = self._nodes.config.backup_dir
        if directory is None:
            raise Unmanageable(409, "expected `backup_dir` in the configuration, which says where backups go")
        if not _NAME.fullmatch(name) or name.endswith(_PARTIAL):
            raise Unmanageable(
                400, f"expected a name of 1 to 128 of A-Z a-z 0-9 . _ -, for a directory, got {name!r:.160}"
            )
        for run in self._runs:
            if not run.is_over:
                raise Unmanageable(409, f"the backup {run.name!r} is under way")
        path = Path(directory) / name
        if path.exists():
            raise Unmanageable(409, f"{name!r} exists; a backup never overwrites")
        run = BackupRun(name, path, self._now_ms())
        self._runs.append(run)
        self._log.info("backup.begun", name=name)
        self._start(lambda: self._run(run))

    def give_up(self, run: BackupRun) -> None:
        """Have it end. Raises Unmanageable where it has ended."""
        if run.is_over:
            raise Unmanageable(409, f"it is {run.state}: remove its directory, where there is one")
        run.given_up = True
        if run.state == VERIFYING and run.copying is not None:
            run.copying.give_up()

    async def _run(self, run: BackupRun) -> None:
        """Nothing that happens to a backup is a reason for the broker to end."""
        try:
            await self._make(run)
        except StoreError as error:
            self._failed(run, str(error))
        except trio.Cancelled:
            self._failed(run, "the broker ended")
            raise
        except Exception as error:
            self._log.exception("backup.fault", name=run.name)
            self._failed(run, f"a fault of the broker: {type(error).__name__}; see its log")

    async def _make(self, run: BackupRun) -> None:
        work = self._nodes.writer.work
        run.copying = copying = await work(lambda store: store.begin_backup(str(run.path)))
        try:
            while await self._step(run):
                pass
            if run.given_up:
                raise BackupFailed("it was given up by hand")
            run.state = VERIFYING
            now_ms = self._now_ms()
            manifest = await trio.to_thread.run_sync(copying.finish, now_ms, abandon_on_cancel=True)
        except BaseException:
            copying.give_up()
            with trio.CancelScope(shield=True):  # the broker's end leaves nothing half done
                await trio.to_thread.run_sync(copying.wait_for_finish)
            raise
        finally:
            self._nodes.writer.wake()  # the files beside the database may go again
        run.byte_count = manifest.byte_count
        run.state, run.ended_at_ms = DONE, self._now_ms()
        self._log.info("backup.done", name=run.name, bytes=run.byte_count)

    async def _step(self, run: BackupRun) -> bool:
        """Copy a piece, then rest for so long that all of it takes its share of the writer's time."""

        def step(store: Store) -> tuple[bool, float]:
            begun = time.perf_counter()
            if run.given_up:
                store.end_backup()
                raise BackupFailed("it was given up by hand")
            return store.backup_step(), time.perf_counter() - begun

        more, taken_s = await self._nodes.writer.work(step)
        share = self._nodes.config.limits.backup_share_percent
        await trio.sleep(taken_s * (100 - share) / share)
        return more

    def _failed(self, run: BackupRun, reason: str) -> None:
        run.state, run.reason, run.ended_at_ms = FAILED, reason, self._now_ms()
        self._log.error("backup.failed", name=run.name, reason=reason)

    def _now_ms(self) -> int:
        return self._nodes.clock.shown(self._nodes.clock.now_ms())
