"""The files with large bodies that are read: which of them somebody still wants, and which are open.

    a message in memory --tail--> BodyFile        as long as there is one, nobody removes its file
    read --number--> a descriptor; beyond OPEN_BODIES_MAX of them, the one that was used longest ago is closed

So any number of messages may be half sent: a piece is read by its place, and a file is opened again for it.
Everything here is in the thread of the store's `apply`, but the end of a BodyFile, in any, and the `close` of
one that nobody wants, in the worker of a step.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

PREFIX: Final = "store.bodies."
OPEN_BODIES_MAX: Final = 64
"""Descriptors for reading: a process has 1,024 by default, and connections need theirs."""
UNREADABLE: Final = (errno.EIO, errno.ENXIO, errno.ENOENT)
"""Errors that say something of a file: what was in it is lost. Others say something of this moment."""


def path_of(directory: str | os.PathLike[str], number: int) -> str:
    """The file with a number."""
    return os.path.join(directory, f"{PREFIX}{number}")


class BodyFile:
    """The file of one body. It stays on the disk as long as a row has the body, or somebody has this."""

    __slots__ = ("__weakref__", "_bodies", "number")

    def __init__(self, bodies: OpenBodies, number: int) -> None:
        self._bodies = bodies
        self.number = number

    def read(self, octets: int, at: int) -> bytes:
        """At most so many octets. Raises OSError."""
        return self._bodies.read(self.number, octets, at)


class OpenBodies:
    """Those of one store. `let_go` is told, in any thread, the number of a file that nobody wants any more.
    """

    def __init__(
        self, directory: str | os.PathLike[str], let_go: Callable[[int], None] = lambda number: None
    ) -> None:
        self._directory = os.fspath(directory)
        self._let_go = let_go
        self._wanted: dict[int, weakref.ref[BodyFile]] = {}
        self._open: OrderedDict[int, int] = OrderedDict()  # descriptors, the one that was used last behind

    def file(self, number: int) -> BodyFile:
        """The file with a number, for a message of which the rest is in it."""
        known = self._wanted.get(number)
        found = None if known is None else known()
        if found is None:
            found = BodyFile(self, number)
            self._wanted[number] = weakref.ref(found, lambda gone: self._forget(number, gone))
        return found

    def _forget(self, number: int, gone: weakref.ref[BodyFile]) -> None:
        if self._wanted.get(number) is gone:
            del self._wanted[number]
            self._let_go(number)

    def wants(self, number: int) -> bool:
        """Whether somebody has the file."""
        return number in self._wanted

    def read(self, number: int, octets: int, at: int) -> bytes:
        """At most so many octets of a file. Raises OSError."""
        descriptor = self._open.get(number, -1)
        if descriptor >= 0:
            self._open.move_to_end(number)
        else:
            while len(self._open) >= OPEN_BODIES_MAX:
                os.close(self._open.popitem(last=False)[1])
            descriptor = os.open(path_of(self._directory, number), os.O_RDONLY | os.O_CLOEXEC)
            self._open[number] = descriptor
        return os.pread(descriptor, octets, at)

    def close(self, number: int | None = None) -> None:
        """Let go of a file, whose room is free when it is removed then; without a number, of all."""
        numbers = [*self._open] if number is None else [number]
        for each in numbers:
            descriptor = self._open.pop(each, -1)
            if descriptor >= 0:
                os.close(descriptor)
