"""Bytes between the core and a socket that is not waited for: as they are, or through TLS.

    core --bytes--> outgoing() --bytes--> socket
    core <--bytes-- incoming() <--bytes-- socket

TLS works on memory, not on the socket: whoever holds the connection's lock may call, and nobody waits inside.
"""

from __future__ import annotations

import ssl
from typing import Protocol


class TransportBytes(Protocol):
    """What the pump wants. `ready`: bytes of ours can reach the peer."""

    ready: bool

    def incoming(self, data: bytes) -> bytes:
        """What the peer says in what was read. Raises OSError (ssl.SSLError is one)."""

    def outgoing(self, data: bytes) -> bytes:
        """What is to be written for `data` of ours, which may be b""."""


class PlainBytes:
    """Without TLS."""

    ready = True

    def incoming(self, data: bytes) -> bytes:
        return data

    def outgoing(self, data: bytes) -> bytes:
        return data


class SecureBytes:
    """A TLS client. What is to be sent during the handshake waits for its end."""

    def __init__(self, context: ssl.SSLContext, hostname: str) -> None:
        self._read = ssl.MemoryBIO()
        self._write = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._read, self._write, server_hostname=hostname)
        self._waiting = b""
        self.ready = False

    def incoming(self, data: bytes) -> bytes:
        """Raises ssl.SSLError, also for a certificate that is not trusted."""
        self._read.write(data)
        if not self._shake():
            return b""
        parts = []
        while True:
            try:
                part = self.tls.read(65_536)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                break
            if not part:
                break
            parts.append(part)
        return b"".join(parts)

    def outgoing(self, data: bytes) -> bytes:
        self._waiting += data
        if self._shake() and self._waiting:
            self.tls.write(self._waiting)
            self._waiting = b""
        return self._write.read()

    def _shake(self) -> bool:
        """Whether the handshake is done; goes on with it."""
        if not self.ready:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                return False
            self.ready = True
        return True
