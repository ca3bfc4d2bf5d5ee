"""Listening sockets that systemd has opened and handed over (socket activation, sd_listen_fds(3)).

    LISTEN_PID   whom they are for
    LISTEN_FDS   how many, from descriptor 3 on

Each belongs to the listener of the configuration at its address, which takes it instead of opening one. So it
cannot be reached in another way than the configuration says.
"""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from typing import Final

import trio

from amqp_broker.listener_tls import ListenError

FIRST_DESCRIPTOR: Final = 3
SOCKETS_MAX: Final = 1_024
"""More were handed over by mistake: a listener has one for each address of its host."""


class GivenSockets:
    """Those that nobody has taken."""

    def __init__(self, sockets: list[socket.socket] | None = None) -> None:
        self._left = sockets or []

    async def take(self, host: str, port: int, backlog_sockets: int) -> list[trio.SocketListener]:
        """Those at an address of this host, with this port; empty: open some."""
        if not self._left:
            return []
        try:
            found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            return []  # that it has none is said where one is opened
        addresses = {(family, address[:2]) for family, _, _, _, address in found}
        taken = [each for each in self._left if (each.family, each.getsockname()[:2]) in addresses]
        self._left = [each for each in self._left if each not in taken]
        for each in taken:
            each.listen(backlog_sockets)
        return [trio.SocketListener(trio.socket.from_stdlib_socket(each)) for each in taken]

    def check_all_taken(self) -> None:
        """Whether each has a listener. Raises ListenError, and closes those that have none."""
        left, self._left = self._left, []
        names = ", ".join(_shown(each) for each in left)
        for each in left:
            each.close()
        if left:
            raise ListenError(f"expected a [[listener]] for each socket of systemd, and none is at {names}")


def _shown(one: socket.socket) -> str:
    if one.family not in (socket.AF_INET, socket.AF_INET6):
        return f"{one.getsockname()!r}, which is not TCP"  # Linux bounds such a name
    host, port = one.getsockname()[:2]
    return f"[{host}]:{port}" if one.family == socket.AF_INET6 else f"{host}:{port}"


def given_sockets(environment: MutableMapping[str, str] = os.environ) -> GivenSockets:
    """Those of the environment, which forgets them. Raises ListenError for what are no sockets."""
    owner, told = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if owner != str(os.getpid()):
        return GivenSockets()
    if not (told.isascii() and told.isdecimal() and int(told) <= SOCKETS_MAX):
        raise ListenError(f"LISTEN_FDS: expected a number up to {SOCKETS_MAX}, got {told!r:.80}")
    sockets = []
    for descriptor in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(told)):
        try:
            os.set_inheritable(descriptor, False)
            sockets.append(socket.socket(fileno=descriptor))
            is_listening = sockets[-1].getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as error:
            raise ListenError(f"LISTEN_FDS: descriptor {descriptor} is no socket: {error.strerror}") from None
        if not is_listening:
            raise ListenError(f"LISTEN_FDS: the socket {_shown(sockets[-1])} does not listen (Accept=yes?)")
    return GivenSockets(sockets)
