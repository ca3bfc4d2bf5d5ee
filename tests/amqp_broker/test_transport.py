"""How much is read at once, and how what does not go at once is written."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.links import Piece
from amqp_broker.transport import (
    FRAMES_IN_READ,
    JOINED_BYTES,
    LARGEST_READ_BYTES,
    PIECES_IN_WRITE,
    READ_BYTES,
    SocketTransport,
    behind,
    read_bytes,
)


def test_reads_grow_with_large_frames_only() -> None:
    """A read was full and a large frame is not whole: the next one takes several such frames at once."""
    assert read_bytes(READ_BYTES, 20_480) == LARGEST_READ_BYTES
    assert read_bytes(READ_BYTES, 4_096) == 4_096 * FRAMES_IN_READ
    assert read_bytes(READ_BYTES, 140) == READ_BYTES
    assert read_bytes(LARGEST_READ_BYTES, 0) == READ_BYTES


@given(st.integers(0, LARGEST_READ_BYTES), st.integers(0, 2**32))
def test_reads_have_a_bound_and_shrink(last: int, awaited_octets: int) -> None:
    """What is read is bounded whatever frame is announced; after a small read the next one is small."""
    most = read_bytes(last, awaited_octets)
    assert READ_BYTES <= most <= LARGEST_READ_BYTES
    assert last >= READ_BYTES or most == READ_BYTES


@given(st.lists(st.binary(max_size=5), max_size=6), st.integers(0, 30))
def test_what_is_behind_so_many_octets(pieces: list[bytes], octets: int) -> None:
    """All the rest, and nothing that is empty in front of it."""
    rest = behind(list(pieces), octets)
    assert b"".join(rest) == b"".join(pieces)[octets:]
    assert not rest or len(rest[0])


def over_a_socket(test: Callable[[SocketTransport, trio.SocketStream], Awaitable[None]]) -> None:
    """Run it with a transport, and the other end of its socket."""

    async def run() -> None:
        with trio.fail_after(30):
            ours, theirs = (
                trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in socket.socketpair()
            )
            async with ours, theirs:
                await test(SocketTransport(ours), theirs)

    trio.run(run)


def test_large_frames_come_in_large_reads() -> None:
    """A stream of large frames is read in more than READ_BYTES at once; a lone octet, in small ones again."""

    async def test(transport: SocketTransport, peer: trio.SocketStream) -> None:
        transport._stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * LARGEST_READ_BYTES)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * LARGEST_READ_BYTES)
        octets = 4 * READ_BYTES
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.send_all, bytes(octets))
            await trio.testing.wait_all_tasks_blocked()
            sizes = [len(await transport.receive(0))]
            while sum(sizes) < octets:
                sizes.append(len(await transport.receive(READ_BYTES)))
        assert sizes[0] == READ_BYTES and sizes[1] > READ_BYTES
        await peer.send_all(b"x")
        assert await transport.receive(READ_BYTES) == b"x"
        assert read_bytes(transport._last_bytes, READ_BYTES) == READ_BYTES

    over_a_socket(test)


@pytest.mark.parametrize("size", [10, JOINED_BYTES, 100_000])
def test_what_does_not_go_at_once_follows(size: int) -> None:
    """More pieces than the socket takes, joined or not: the other end reads them all, in order."""

    async def test(transport: SocketTransport, peer: trio.SocketStream) -> None:
        count = max(2 * PIECES_IN_WRITE, 8_000_000 // size // 8)
        pieces: list[Piece] = [bytes((n % 256,)) * size for n in range(count)]
        wanted = b"".join(pieces)
        rest = transport.send_now(pieces, len(wanted))
        assert rest or len(wanted) < READ_BYTES
        found = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transport.send_all, rest)
            while len(found) < len(wanted):
                found += await peer.receive_some(READ_BYTES)
        assert bytes(found) == wanted
        assert transport.send_now([b"a", b"b"], 2) == []
        assert await peer.receive_some(9) == b"ab"

    over_a_socket(test)


def test_a_broken_socket_is_told() -> None:
    """Writing to a peer that is gone raises what the connection's task expects."""

    async def test(transport: SocketTransport, peer: trio.SocketStream) -> None:
        await peer.aclose()
        with pytest.raises(trio.BrokenResourceError):
            transport.send_now([b"x"], 1)

    over_a_socket(test)
