"""A server that says what a test tells it to, and hears nothing but how much came: a broker that
misbehaves.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from amqp_broker.frames import AMQP_HEADER, Begin, Open, encode_frame

EVERYTHING = 1_000_000
"""More octets than a client sends: the server stays until the client goes."""

Step = bytes | int | str
"""Octets to send, a number of octets to wait for, or "reset" to drop the connection rudely."""


def octets(*performatives: object) -> bytes:
    """Frames on channel 0."""
    return b"".join(encode_frame(0, performative) for performative in performatives)


OPENED = AMQP_HEADER + octets(Open(container_id="server"))
BEGUN = OPENED + octets(Begin(remote_channel=0, next_outgoing_id=0, incoming_window=100, outgoing_window=100))


def _play(listener: socket.socket, dialogues: tuple[list[Step], ...]) -> None:
    for steps in dialogues:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(connection, steps), daemon=True).start()


def _serve(connection: socket.socket, steps: list[Step]) -> None:
    with connection, suppress(ConnectionError):
        connection.settimeout(10)
        _converse(connection, steps)


def _converse(connection: socket.socket, steps: list[Step]) -> None:
    for step in steps:
        if isinstance(step, bytes):
            connection.sendall(step)
        elif isinstance(step, int):
            got = 0
            while got < step:
                data = connection.recv(step - got)
                if not data:
                    return
                got += len(data)
        else:
            linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


@contextmanager
def scripted_server(*dialogues: list[Step]) -> Iterator[int]:
    """Serves one connection for each dialogue, in the order in which they come; gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_play, args=(listener, dialogues), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
