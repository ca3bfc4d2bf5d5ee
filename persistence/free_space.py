"""Room on the disk: when to refuse new messages, and the last reserve that lets settling go on.

    free   0 ....... low water ......... low water + 1/4 ........
              refuse posts  |  as it was  |  take posts

Settling needs room too: a DELETE grows the WAL. When even that room is gone, or nearly, the ballast file is
dropped, and it comes back when there is enough for it above the upper mark.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from amqp_broker.persistence.store import SpaceState

LOW_WATER_BYTES: Final = 64 * 1024 * 1024  # more than the WAL grows by in a group: the guard acts first
BALLAST_BYTES: Final = 16 * 1024 * 1024  # a WAL of 4 MiB, its checkpoint, and as much again
CRITICAL_BYTES: Final = 4 * 1024 * 1024  # when less is free, the ballast goes before SQLite meets the end
PLENTY: Final = 32  # times the upper mark: so much room cannot go within the next few groups
ASKED_BYTES: Final = 1024 * 1024  # of messages that come piece by piece: then the system is asked again
UNASKED_GROUPS: Final = 15  # of them where there is plenty, since asking costs as much as a small insert
assert CRITICAL_BYTES < BALLAST_BYTES < LOW_WATER_BYTES


def free_bytes_of(directory: str) -> int:
    """What an ordinary user may still write on the file system of `directory`."""
    state = os.statvfs(directory)
    return state.f_bavail * state.f_frsize


class SpaceGuard:
    """Watches the disk of one data directory, and owns its ballast file."""

    def __init__(
        self,
        ballast_path: str,
        low_water_bytes: int,
        ballast_bytes: int,
        free_bytes: Callable[[], int],
    ) -> None:
        self._path = ballast_path
        self._low_water_bytes = low_water_bytes
        self._resume_bytes = low_water_bytes + low_water_bytes // 4
        self._ballast_bytes = ballast_bytes
        self._free_bytes = free_bytes
        self._refusing = False
        self._tripped = False
        self._unasked = 0
        self._unasked_bytes = ASKED_BYTES  # of messages that come piece by piece, since the system was asked
        self._ballast_present = (
            os.path.exists(ballast_path) and os.path.getsize(ballast_path) >= ballast_bytes
        )
        self.restore_ballast()

    def refuse_posts(self) -> bool:
        """Ask before each group with new messages."""
        if self._unasked:
            self._unasked -= 1
            return False
        free = self._free_bytes()
        if free < CRITICAL_BYTES:
            self.drop_ballast()
        if self._tripped:
            # SQLite met the end of the disk in the last group: whatever the numbers say, not this time.
            self._tripped = False
            return True
        if self._refusing:
            self._refusing = free < self._resume_bytes
        else:
            self._refusing = free < self._low_water_bytes
            if free > PLENTY * self._resume_bytes:
                self._unasked = UNASKED_GROUPS
        return self._refusing

    def refuses(self, promised_bytes: int = 0) -> bool:
        """Whether a message that comes piece by piece has no place now, where so much is promised to it and
        to those that are under way.
        """
        free = self._free_bytes()
        if free <= PLENTY * self._resume_bytes:
            self._unasked = 0  # what comes piece by piece is no group, and may be much
        return self._refusing or free < self._low_water_bytes + promised_bytes

    def refuses_more(self, octets: int) -> bool:
        """Whether so many octets more of such messages are refused: no group that settles may miss them. The
        system, which counts what it has not written yet, is asked once for each ASKED_BYTES of all of them.
        """
        self._unasked_bytes += octets
        if self._unasked_bytes <= ASKED_BYTES:
            return False
        self._unasked_bytes = octets
        return self.refuses(ASKED_BYTES + octets)

    def trip(self) -> None:
        """SQLite met the end of the disk: make room for settling, and refuse new messages at least once."""
        self._tripped = True
        self._unasked = 0
        self.drop_ballast()

    def drop_ballast(self) -> None:
        """Give the reserve to the file system; harmless if it is gone."""
        if self._ballast_present:
            self._ballast_present = False
            os.unlink(self._path)

    def restore_ballast(self) -> bool:
        """Put the reserve back if there is room for it above the upper mark; True if it was."""
        if self._ballast_present or not self._ballast_bytes:
            return False
        if self._free_bytes() < self._resume_bytes + self._ballast_bytes:
            return False
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, self._ballast_bytes)
        except OSError:  # it became full meanwhile, or a limit for files: then there is no reserve
            os.unlink(self._path)
            return False
        finally:
            os.close(descriptor)
        self._ballast_present = True
        return True

    def state(self) -> SpaceState:
        """The room on the disk and the state of this guard; asking changes nothing."""
        return SpaceState(self._free_bytes(), self._low_water_bytes, self._refusing, self._ballast_present)
