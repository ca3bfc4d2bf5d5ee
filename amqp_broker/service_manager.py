"""What a service manager is told of the broker's life, as systemd has it (sd_notify(3)).

    READY=1                               it listens
    RELOADING=1, MONOTONIC_USEC; READY=1  it reads its configuration again; it is done
    WATCHDOG=1                            its loop goes round and commits return, each half of WATCHDOG_USEC
    STOPPING=1                            a stop was asked for
    STATUS=...                            for people, `systemctl status`

Where nobody asked for it (NOTIFY_SOCKET), nothing is told.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Final

import trio

from amqp_broker.log_setup import logger

NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG_USEC: Final = "WATCHDOG_USEC"
WATCHDOG_PID: Final = "WATCHDOG_PID"
TELL_S: Final = 5.0
"""So long a message waits for room in the socket: a service manager that hangs must not stop a broker."""
STATUS_CHARACTERS: Final = 256
BEATS: Final = 2
"""Messages in the time of the watchdog: systemd's own advice."""

_log = logger("service_manager")


class ServiceManager:
    """Whom the broker tells how it is; nobody where `address` is empty."""

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        """`address` is the path of a datagram socket, or `@` and an abstract name."""
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_s = watchdog_s
        """Within so many seconds it wants to hear that the loop goes round; 0: it does not."""
        self._serving = ""

    async def tell(self, *assignments: str) -> None:
        """Send one message. What goes wrong is logged, and changes nothing."""
        if not self._address:
            return
        octets = "\n".join(assignments).encode()
        try:
            with trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_DGRAM) as sock:
                with trio.fail_after(TELL_S):
                    await sock.connect(self._address)  # so that the system says when there is room again
                    await sock.send(octets)
        except (OSError, trio.TooSlowError) as error:
            _log.warning("service_manager.not_told", what=assignments[0], reason=str(error) or "it hangs")

    async def ready(self, serving: str) -> None:
        """It serves; `serving` says where, for people."""
        self._serving = serving
        await self.tell("READY=1", _status(serving))

    async def stopping(self, what: str) -> None:
        """A stop was asked for."""
        await self.tell("STOPPING=1", _status(what))

    @asynccontextmanager
    async def reloading(self) -> AsyncIterator[None]:
        """While the configuration is read again; why that was refused stands in the status."""
        await self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")
        status = self._serving
        try:
            yield
        except Exception as error:
            status = f"{self._serving}; the last reload was refused: {error}"
            raise
        finally:
            with trio.CancelScope(shield=True):
                await self.tell("READY=1", _status(status))

    async def keep_watched(self, stuck_s: Callable[[], float]) -> None:
        """Tell it again and again that the loop goes round: a loop that hangs tells nothing, and systemd ends
        the process. Nothing is told either while a commit has been under way, as `stuck_s` says, for longer
        than the watchdog waits.
        """
        if self.watchdog_s <= 0:
            return
        while True:
            if stuck_s() <= self.watchdog_s:
                await self.tell("WATCHDOG=1")
            await trio.sleep(self.watchdog_s / BEATS)


def _status(text: str) -> str:
    line = " ".join(text.split())
    return f"STATUS={line if len(line) <= STATUS_CHARACTERS else line[: STATUS_CHARACTERS - 3] + '...'}"


def service_manager(environment: MutableMapping[str, str] = os.environ) -> ServiceManager:
    """That of the environment, which forgets it: a process that this one starts is none of its services."""
    address = environment.pop(NOTIFY_SOCKET, "")
    watched, of = environment.pop(WATCHDOG_USEC, "0"), environment.pop(WATCHDOG_PID, str(os.getpid()))
    if address and not address.startswith(("/", "@")):
        _log.warning("service_manager.not_known", address=address)
        return ServiceManager()
    is_ours = of == str(os.getpid()) and watched.isascii() and watched.isdecimal()
    return ServiceManager(address, int(watched) / 1e6 if is_ours else 0.0)
