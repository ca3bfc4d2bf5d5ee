"""A copy of a store while it is in use, by SQLite's backup API: copying would drop SQLite's locks.

    step, step, ... step          finish
    pieces of the database,       is the copy whole? sums, everything synced,
    between two groups            the directory gets its name

What is committed between two steps is in the copy too: SQLite writes changed pages to both. So a backup ends,
however much is stored meanwhile, and is the store as its last group before the last step left it.

The API wants one call for all of the copy. It is made in a thread of its own, which takes turns with the
caller: each waits while the other one runs.

A file with large bodies that the newest former backup beside this one has as well is linked, not written
again: it is one file with two names, and each of the two backups can be removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import attrs

from amqp_broker.persistence.body_files import FILES_OF_ROWS, PREFIX, body_file_names
from amqp_broker.persistence.data_directory import sync_path
from amqp_broker.persistence.errors import BackupFailed, StoreCorrupt, StoreError
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.schema import STORE_ID
from amqp_broker.persistence.sqlite_library import DATABASE_ERRORS, Connection, connect, translate, verify
from amqp_broker.persistence.store_file import DATABASE_NAME, closed_store

BACKUP_STEP_PAGES: Final = 256  # 2 MiB of 8 KiB pages between two chances for the writer
MANIFEST_NAME: Final = "backup.json"
PARTIAL_SUFFIX: Final = ".partial"
FORMAT: Final = 1
_PIECE_BYTES: Final = 1024 * 1024
_INSTRUCTIONS: Final = 100_000  # of SQLite's machine between two looks whether the backup was given up
_SQLITE_DONE: Final = 101


@attrs.frozen
class Manifest:
    """What a backup says of itself: the id of its store, when it was complete (ms of the wall clock), the
    version of the schema, and size and SHA-256 of each file.
    """

    store_id: str
    made_at_ms: int
    schema: int
    files: dict[str, tuple[int, str]]

    @property
    def byte_count(self) -> int:
        """Octets of all files."""
        return sum(size for size, _ in self.files.values())

    def written(self) -> str:
        """As it stands in its file."""
        files = {name: {"bytes": size, "sha256": digest} for name, (size, digest) in self.files.items()}
        told = {"format": FORMAT, "store_id": self.store_id, "made_at_ms": self.made_at_ms}
        return json.dumps({**told, "schema": self.schema, "files": files}, indent=1) + "\n"


def read_manifest(backup: Path) -> Manifest:
    """Raises FileNotFoundError where there is no backup, StoreCorrupt."""
    path = backup / MANIFEST_NAME
    if not path.is_file():
        raise FileNotFoundError(f"{backup} holds no backup: there is no {MANIFEST_NAME}")
    try:
        told = json.loads(path.read_bytes())
        if told["format"] != FORMAT:
            raise ValueError(f"its format is {told['format']!r}, this broker knows {FORMAT}")
        files = {str(name): (int(each["bytes"]), str(each["sha256"])) for name, each in told["files"].items()}
        manifest = Manifest(str(told["store_id"]), int(told["made_at_ms"]), int(told["schema"]), files)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreCorrupt(f"{path} cannot be read: {error!r:.200}") from None
    if DATABASE_NAME not in files or any(not _is_inside(name) for name in files):
        raise StoreCorrupt(f"{path} does not name the files of a store")
    return manifest


def former_backup(destination: Path, store_id: str) -> tuple[Path, Manifest] | None:
    """The newest whole backup of this store beside `destination`, where there is one."""
    found: list[tuple[int, Path, Manifest]] = []
    for path in destination.absolute().parent.iterdir():
        with suppress(OSError, StoreCorrupt):  # what is no backup, or not ours to read
            manifest = read_manifest(path)
            if manifest.store_id == store_id:
                found.append((manifest.made_at_ms, path, manifest))
    return max(found)[1:] if found else None


def _is_inside(name: str) -> bool:
    path = Path(name)
    return not path.is_absolute() and ".." not in path.parts and name != MANIFEST_NAME


class Backup:
    """One backup under way, to the directory `destination`, which appears complete and synced, or not at all.

    `step` until it says False, each between two groups of the store; then `finish`, which needs the store no
    more. `give_up` at any time, from any thread.
    """

    def __init__(
        self, connection: Connection, source: Path, destination: Path, store_id: str,
        let_go: Callable[[Backup], None] = lambda _: None,
    ) -> None:  # fmt: skip
        """`let_go(backup)`: the files beside the database may change again; until then none of them goes, and
        none is written again from its front. Raises FileExistsError, BackupFailed.
        """
        if destination.exists():
            raise FileExistsError(f"{destination} exists; a backup never overwrites")
        self.destination = destination
        self.partial = destination.with_name(destination.name + PARTIAL_SUFFIX)
        self.copied_pages = self.pages = 0
        self._connection = connection
        self._source = source
        self._store_id = store_id
        self._let_go = let_go
        self._beside: list[str] = []
        self._wanted: set[str] = set()  # of these, what rows of the copy point to
        self._go, self._arrived = threading.Semaphore(0), threading.Semaphore(0)
        self._at_work = threading.Lock()
        self._error: BaseException | None = None
        self._copied = self._finishing = self._given_up = False
        self._thread: threading.Thread | None = None
        with _translated():
            shutil.rmtree(self.partial, ignore_errors=True)  # of a backup that was interrupted
            self.partial.mkdir(mode=0o700)
        fault_point("backup.before")

    def step(self) -> bool:
        """Copy a piece; True while there is more. Raises BackupFailed; then nothing is left of it."""
        assert not self._copied, "a step after the last one"
        if self._thread is None:
            self._thread = threading.Thread(target=self._copy, name="amqp-broker-backup", daemon=True)
            self._thread.start()
        else:
            self._go.release()
        self._arrived.acquire()
        if self._error is not None:
            self._clear()
            with _translated():
                raise self._error
        if self._copied:
            try:
                with _translated():
                    self._beside = body_file_names(self._source)
            except BackupFailed:
                self._clear()
                raise
        return not self._copied

    def _copy(self) -> None:
        """In the thread: the one call, whose progress is the turn of the caller."""
        try:
            with closing(connect(str(self.partial / DATABASE_NAME))) as target:
                os.chmod(self.partial / DATABASE_NAME, 0o600)
                for setting in ("journal_mode=OFF", "synchronous=OFF"):  # `finish` syncs, or all of it goes
                    target.execute(f"PRAGMA {setting}").fetchall()
                self._connection.backup(target, pages=BACKUP_STEP_PAGES, progress=self._between, sleep=0)
        except BaseException as error:
            self._error = error
        else:
            self._copied = True
        finally:
            self._arrived.release()

    def _between(self, status: int, remaining: int, total: int) -> None:
        fault_point("backup.step")
        self.copied_pages, self.pages = total - remaining, total
        if status == _SQLITE_DONE:
            return
        self._arrived.release()
        self._go.acquire()
        if self._given_up:
            raise BackupFailed("it was given up")

    def finish(self, now_ms: int) -> Manifest:
        """Verify, sum and sync the copy, and give it its name. Raises BackupFailed; then nothing is left of
        it.
        """
        assert self._copied, "there are steps left"
        with self._at_work:
            self._finishing = True
            try:
                with _translated():
                    return self._finish(now_ms)
            except BaseException:
                self._clear()
                raise

    def wait_for_finish(self) -> None:
        """Return when no `finish` is under way; after `give_up` that is soon."""
        with self._at_work:
            pass

    def _finish(self, now_ms: int) -> Manifest:
        schema = self._check_whole()
        self._beside = [name for name in self._beside if name in self._wanted]
        files = {DATABASE_NAME: self._summed(self.partial / DATABASE_NAME)}
        former = former_backup(self.destination, self._store_id) if self._beside else None
        for name in self._beside:
            files[name] = self._brought(name, former)
        self._let_go(self)
        manifest = Manifest(self._store_id, now_ms, schema, files)
        (self.partial / MANIFEST_NAME).write_text(manifest.written())
        os.chmod(self.partial / MANIFEST_NAME, 0o600)
        for folder, _, names in os.walk(self.partial):
            for name in names:
                sync_path(Path(folder, name))
            sync_path(folder)
        fault_point("backup.before_rename")
        os.rename(self.partial, self.destination)
        sync_path(self.destination.absolute().parent)
        fault_point("backup.after")
        return manifest

    def _brought(self, name: str, former: tuple[Path, Manifest] | None) -> tuple[int, str]:
        """Size and sum of a file beside the database, once the copy has it."""
        path = self.partial / name
        if former is not None and name in former[1].files:
            there = self._summed(self._source / name)
            # What the disk has made of the former one since is no copy of anything.
            if there == former[1].files[name] and self._linked(former[0] / name, path) == there:
                return there
            path.unlink(missing_ok=True)
        if self._given_up:
            raise BackupFailed("it was given up")
        shutil.copyfile(self._source / name, path)
        os.chmod(path, 0o600)
        return self._summed(path)

    def _linked(self, former: Path, path: Path) -> tuple[int, str] | None:
        """Size and sum of the former file under its second name; None where the file system gives it none, or
        somebody else may write to it.
        """
        try:
            os.link(former, path)
            status = path.stat()
            ours = status.st_uid == os.geteuid() and not status.st_mode & 0o022
            return self._summed(path) if ours else None
        except OSError:
            return None

    def _summed(self, path: Path) -> tuple[int, str]:
        return sum_of(path, lambda: self._given_up)

    def _check_whole(self) -> int:
        """The schema's version of the copy, after SQLite's look at all of it."""
        uri = f"{(self.partial / DATABASE_NAME).absolute().as_uri()}?mode=ro&immutable=1"
        with closing(connect(uri, uri=True)) as target:
            target.set_progress_handler(lambda: self._given_up, _INSTRUCTIONS)
            verify(target)
            self._wanted = {f"{PREFIX}{number}" for (number,) in target.execute(FILES_OF_ROWS).fetchall()}
            ((version,),) = target.execute("PRAGMA user_version").fetchall()
        return int(version)

    def give_up(self) -> None:
        """Have it end: nothing is left of it on return, or soon, where `finish` is under way and raises
        BackupFailed. Harmless when it has ended.
        """
        self._given_up = True
        if self._thread is not None and not self._copied:
            self._go.release()
            self._thread.join()
        if not self._finishing:
            self._clear()

    def _clear(self) -> None:
        shutil.rmtree(self.partial, ignore_errors=True)
        self._let_go(self)


def back_up_closed(
    directory: str | os.PathLike[str], destination: str | os.PathLike[str], now_ms: int
) -> Manifest:
    """A backup of a store that no broker uses. Raises as `closed_store`, FileExistsError, BackupFailed."""
    with closed_store(directory) as store:
        ((store_id,),) = store.unit.query(STORE_ID)
        backup = Backup(store.connection, Path(directory), Path(destination), store_id)
        while backup.step():
            pass
        return backup.finish(now_ms)


def sum_of(path: Path, given_up: Callable[[], bool] = lambda: False) -> tuple[int, str]:
    """The size of a file, and its SHA-256 in hex digits."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            if given_up():
                raise BackupFailed("it was given up")
            digest.update(piece)
            size += len(piece)
    return size, digest.hexdigest()


@contextmanager
def _translated() -> Iterator[None]:
    """Whatever happens to the copy is no failure of the store."""
    try:
        yield
    except BackupFailed:
        raise
    except DATABASE_ERRORS as error:
        raise BackupFailed(f"the copy could not be made: {translate(error)}") from error
    except (OSError, StoreError) as error:
        raise BackupFailed(f"the copy could not be made: {error}") from error
