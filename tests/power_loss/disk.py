"""A disk that remembers what was synced: replay recorded calls, and ask for the states a power cut could
leave.

What a call changed is *pending* until a sync of that file (for its bytes and its size) or of its directory
(for its name). A power cut keeps any part of what is pending: nothing, all, the first calls only, or a random
set of 512-byte sectors; and a file that grew may hold anything where no sector arrived. A name is never made
durable by syncing the file: only by syncing its directory, which is the weakest promise that file systems
give.

A sync that failed may have dropped what it could not write, and the next one does not tell: only what is
written once more, and synced then, is durable. The end of a process alone changes nothing of all that.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.power_loss.recording import Call, NotRecorded

SECTOR_BYTES: Final = 512
_REMOVE_DIRECTORY: Final = 0x200

State = dict[str, bytes | None]
"""One state of the directory: the bytes of each file by its path, None for a directory."""


class File:
    """One file (or directory): what is durable, what was written last, and the changes in between."""

    __slots__ = ("current", "durable", "is_directory", "pending", "doubtful")

    def __init__(self, content: bytes = b"", *, is_directory: bool = False) -> None:
        self.durable = content
        self.current = bytearray(content)
        self.pending: list[tuple[int, bytes | None]] = []  # (offset, bytes) written, or (size, None) set
        self.is_directory = is_directory
        self.doubtful: list[tuple[int, bytes | None]] = []  # the first of `pending`: a sync of them failed

    def write(self, offset: int, data: bytes) -> None:
        _put(self.current, offset, data)
        self.pending.append((offset, data))

    def resize(self, size: int) -> None:
        _resize(self.current, size)
        self.pending.append((size, None))

    def sync(self, succeeded: bool) -> None:
        """A sync that failed may have dropped what it could not write, and a later one does not write it: it
        is durable only once it was written again and synced.
        """
        if not succeeded:
            self.doubtful = self.pending[:]
            return
        doubtful = self.doubtful
        durable = bytearray(self.durable)
        for offset, data in self.pending[len(doubtful) :]:
            _resize(durable, offset) if data is None else _put(durable, offset, data)
            doubtful = [piece for old in doubtful for piece in _without(old, offset, data)]
        self.durable = bytes(durable)
        self.pending, self.doubtful = doubtful, doubtful[:]

    def partly(self, chance: random.Random) -> bytes:
        """The content as a power cut could leave it."""
        way = chance.random()
        if not self.pending or way < 0.1:
            return self.durable
        if way < 0.2:
            return bytes(self.current)
        content = bytearray(self.durable)
        if way < 0.4:
            for offset, data in self.pending[: chance.randrange(len(self.pending) + 1)]:
                _resize(content, offset) if data is None else _put(content, offset, data)
            return bytes(content)
        self._put_sectors(
            content, chance, chance.choice((0.1, 0.5, 0.9, 0.98)), garbage=chance.random() < 0.5
        )
        return bytes(content)

    def _put_sectors(self, content: bytearray, chance: random.Random, kept: float, *, garbage: bool) -> None:
        draw = chance.random
        for offset, data in self.pending:
            if data is None:
                if draw() < kept:
                    _resize(content, offset)
                continue
            start, end = offset, offset + len(data)
            while start < end:
                stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
                if draw() < kept:
                    if garbage and start > len(content):
                        content += chance.randbytes(start - len(content))
                    _put(content, start, data[start - offset : stop - offset])
                start = stop


@dataclass(slots=True)
class _NameChange:
    """A pending change of names: `path` becomes `file` (or nothing); a rename also removes `old_path`."""

    directory: str
    path: str
    file: File | None
    old_path: str | None = None

    def apply(self, names: dict[str, File]) -> None:
        if self.old_path is not None:
            names.pop(self.old_path, None)
        if self.file is None:
            names.pop(self.path, None)
        else:
            names[self.path] = self.file


@dataclass(slots=True)
class Disk:
    """The recorded directory while it is replayed; `base` is what it held, durably, before the first call."""

    names: dict[str, File] = field(default_factory=dict)
    durable_names: dict[str, File] = field(default_factory=dict)
    pending_names: list[_NameChange] = field(default_factory=list)
    by_inode: dict[int, File] = field(default_factory=dict)
    changes: int = 0
    syncs: int = 0

    @classmethod
    def of(cls, base: Mapping[str, bytes | None]) -> Disk:
        disk = cls()
        for path, content in base.items():
            disk.names[path] = File(content or b"", is_directory=content is None)
        disk.names.setdefault("", File(is_directory=True))
        disk.durable_names = dict(disk.names)
        return disk

    def replay(self, call: Call) -> bool:
        """Apply one call; True when it changed what a power cut could leave."""
        match call.letter:
            case "M":
                return False
            case "O":
                self.by_inode[call.inode] = self._named(call.path)
                return False
            case "C" | "D":
                made = File(is_directory=call.letter == "D")
                self.by_inode[call.inode] = made
                self._rename(_NameChange(os.path.dirname(call.path), call.path, made))
            case "W":
                self._opened(call).write(call.offset, call.data)
            case "T":
                self._opened(call).resize(call.offset)
            case "U":
                self._rename(_NameChange(os.path.dirname(call.path), call.path, None))
            case "R":
                old, new = (os.fsdecode(part) for part in call.data.split(b"\0"))
                self._rename(_NameChange(os.path.dirname(new), new, self._named(old), old))
            case "S":
                self._sync(call)
            case letter:
                raise NotRecorded(f"a call {letter!r} that the replayer does not know")
        self.changes += 1
        return True

    def lost(self) -> State:
        """Only what was synced."""
        return _listed({path: (file, file.durable) for path, file in self.durable_names.items()})

    def kept(self) -> State:
        """Everything, as after the end of the process alone."""
        return _listed({path: (file, bytes(file.current)) for path, file in self.names.items()})

    def partly(self, chance: random.Random) -> State:
        """A random state between those two."""
        names = dict(self.durable_names)
        way = chance.random()
        if way < 0.25:
            changes = list(self.pending_names)
        elif way < 0.6:
            changes = self.pending_names[: chance.randrange(len(self.pending_names) + 1)]
        else:
            changes = [change for change in self.pending_names if chance.random() < 0.5]
        for change in changes:
            change.apply(names)
        return _listed({path: (file, file.partly(chance)) for path, file in names.items()})

    def restarted(self) -> Disk:
        """The same for the next process: the system is the same one, and nothing was synced by the death."""
        self.by_inode = {}
        return self

    def has_pending(self) -> bool:
        return bool(self.pending_names) or any(file.pending for file in self.names.values())

    def _named(self, path: str) -> File:
        try:
            return self.names[path]
        except KeyError:
            raise NotRecorded(f"{path!r} was opened, but no recorded call made it") from None

    def _opened(self, call: Call) -> File:
        return self.by_inode[call.inode]

    def _rename(self, change: _NameChange) -> None:
        change.apply(self.names)
        self.pending_names.append(change)

    def _sync(self, call: Call) -> None:
        file = self._opened(call)
        self.syncs += 1
        file.sync(call.result == 0)
        if not file.is_directory or call.result != 0:
            return
        waiting = []
        for change in self.pending_names:
            if self.names.get(change.directory) is file:
                change.apply(self.durable_names)
            else:
                waiting.append(change)
        self.pending_names = waiting


def _without(
    old: tuple[int, bytes | None], offset: int, data: bytes | None
) -> Iterator[tuple[int, bytes | None]]:
    """What is left of an older change behind a newer one."""
    start, written = old
    if written is None:
        return  # a size is the file system's own: its journal has the later one
    end = start + len(written)
    low, high = (offset, offset + len(data)) if data is not None else (offset, end)
    if start < low:
        yield start, written[: low - start]
    if end > high:
        yield max(start, high), written[max(high - start, 0) :]


def _put(content: bytearray, offset: int, data: bytes) -> None:
    if offset > len(content):
        content += bytes(offset - len(content))
    content[offset : offset + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content += bytes(size - len(content))


def _listed(found: dict[str, tuple[File, bytes]]) -> State:
    """A name is there only when every directory above it is."""
    state: State = {}
    for path in sorted(found):
        file, content = found[path]
        above = os.path.dirname(path)
        if path and (above == "" or (above in state and state[above] is None)):
            state[path] = None if file.is_directory else content
    return state


def write_state(state: Mapping[str, bytes | None], directory: Path) -> None:
    """Make `directory` hold exactly `state`."""
    _clear(directory, keep=state)
    for path, content in state.items():
        target = f"{directory}/{path}"
        if content is None:
            os.makedirs(target, exist_ok=True)
            continue
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(handle, content)
        finally:
            os.close(handle)


def read_state(directory: Path) -> State:
    """What `directory` holds."""
    state: State = {}
    for at, directories, files in os.walk(directory):
        for name in directories:
            state[os.path.relpath(os.path.join(at, name), directory)] = None
        for name in files:
            path = os.path.join(at, name)
            state[os.path.relpath(path, directory)] = Path(path).read_bytes()
    return state


def _clear(directory: Path, keep: Mapping[str, bytes | None]) -> None:
    for at, directories, files in os.walk(directory, topdown=False):
        for name in files:
            path = os.path.join(at, name)
            if keep.get(os.path.relpath(path, directory)) is None:
                os.unlink(path)
        for name in directories:
            path = os.path.join(at, name)
            if os.path.relpath(path, directory) not in keep:
                os.rmdir(path)
    directory.mkdir(parents=True, exist_ok=True)
