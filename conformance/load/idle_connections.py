"""Connections that do nothing: opened with two sessions each, to weigh what one costs the broker."""

from __future__ import annotations

import resource
import socket
from typing import Final

from amqp_broker.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    Begin,
    Open,
    SaslInit,
    encode_frame,
    encode_sasl_frame,
)

WINDOW: Final = 2_048


def raise_the_limit_of_files() -> None:
    """As many sockets as the system allows this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def open_idle(host: str, port: int, number: int) -> socket.socket:
    """One connection with two sessions, everything sent at once; it returns when the broker has answered."""
    connected = socket.create_connection((host, port), timeout=30)
    init = SaslInit(mechanism="ANONYMOUS", initial_response=b"idle")
    # It never sends a heartbeat, so it must be measured within the idle time-out.
    opening = Open(container_id=f"idle-{number}", hostname=host, channel_max=7)
    begin = Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW)
    frames = [encode_frame(0, opening), encode_frame(0, begin), encode_frame(1, begin)]
    connected.sendall(SASL_HEADER + encode_sasl_frame(init))
    expect(connected, 2, after_header=True)
    connected.sendall(AMQP_HEADER + b"".join(frames))
    expect(connected, 3, after_header=True)
    return connected


def expect(connected: socket.socket, frames: int, after_header: bool) -> None:
    """Read a header and so many frames; raises ConnectionError when the broker hangs up."""
    if after_header:
        exactly(connected, 8)
    while frames:
        size = int.from_bytes(exactly(connected, 4), "big")
        body = exactly(connected, size - 4)
        if len(body) > 4:
            frames -= 1


def exactly(connected: socket.socket, size: int) -> bytes:
    """So many bytes."""
    data = b""
    while len(data) < size:
        more = connected.recv(size - len(data))
        if not more:
            raise ConnectionError("the broker closed an idle connection")
        data += more
    return data
