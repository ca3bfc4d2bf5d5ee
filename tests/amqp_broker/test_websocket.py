"""AMQP over WebSocket, over real sockets; the clients in other languages are in conformance/clients."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.typing import Origin, Subprotocol
from websockets.uri import parse_uri

from amqp_broker.configuration import BrokerLimits, ListenerConfig
from amqp_broker.embedding import RunningBroker, memory_config, running_broker
from amqp_broker.frames import AMQP_HEADER, EMPTY_FRAME, Close, Open, encode_frame
from amqp_broker.testing.blocking_peer import PATIENCE_S
from amqp_broker.websocket import SENT_BYTES
from tests.amqp_broker.test_listener import Keys
from tests.amqp_broker.test_listener import keys as keys

WS = ListenerConfig(url="ws://127.0.0.1:0", origins=("https://shop.example",))
OPENING = AMQP_HEADER + encode_frame(0, Open(container_id="test"))


class Socket:
    """A WebSocket client that says what the test wants it to say."""

    def __init__(self, transport: socket.socket, broker: RunningBroker, **options: Any) -> None:
        uri = parse_uri(broker.url)
        options = {"subprotocols": [Subprotocol("amqp")], **options}
        self.transport = transport
        self.protocol = ClientProtocol(uri, **options)
        self.protocol.send_request(self.protocol.connect())
        self.flush()

    def flush(self) -> None:
        """Write what the protocol has to say."""
        for piece in self.protocol.data_to_send():
            if piece:
                self.transport.sendall(piece)

    def events(self) -> list[Any]:
        """The next ones; none at the end of the stream."""
        while not (events := self.protocol.events_received()):
            data = self.transport.recv(65_536)
            if not data:
                return []
            self.protocol.receive_data(data)
            self.flush()
        return events

    def hear(self, count: int) -> bytes:
        """So many octets of AMQP, which come in binary messages of a bounded size."""
        octets = b""
        while len(octets) < count:
            for event in self.events():
                assert isinstance(event, Frame) and event.opcode is Opcode.BINARY, event
                assert len(event.data) <= SENT_BYTES
                octets += event.data
        return octets

    def close_code(self) -> int | None:
        """Of the Close frame that ends it."""
        with suppress(ConnectionResetError):  # it did not wait for our answer to its Close
            while self.events():
                pass
        return self.protocol.close_rcvd.code if self.protocol.close_rcvd is not None else None


@contextmanager
def connected(broker: RunningBroker, **options: Any) -> Iterator[Socket]:
    """A client whose request was sent."""
    with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
        yield Socket(transport, broker, **options)


def status(client: Socket) -> int:
    """Of the answer to the request."""
    (response,) = client.events()
    code: int = response.status_code
    return code


def test_amqp_is_spoken_in_binary_messages() -> None:
    """Cut anywhere, as in any stream; and the end is a Close frame, which comes after AMQP's own close."""
    with running_broker(memory_config(listeners=(WS,))) as broker:
        assert broker.url.startswith("ws://127.0.0.1:")
        with connected(broker) as client:
            assert status(client) == 101
            assert client.protocol.subprotocol == "amqp"
            for octet in OPENING:
                client.protocol.send_binary(bytes([octet]))
                client.flush()
            assert client.hear(9).startswith(AMQP_HEADER)
            client.protocol.send_ping(b"there?")
            client.flush()
            (pong,) = client.events()
            assert pong.opcode is Opcode.PONG and pong.data == b"there?"
            client.protocol.send_binary(encode_frame(0, Close()))
            client.flush()
            assert client.close_code() == 1000


def test_a_fragmented_message_is_octets_all_the_same() -> None:
    """Frames that continue one message."""
    with running_broker(memory_config(listeners=(WS,))) as broker, connected(broker) as client:
        assert status(client) == 101
        client.protocol.send_binary(OPENING[:5], fin=False)
        client.protocol.send_continuation(OPENING[5:11], fin=False)
        client.protocol.send_continuation(OPENING[11:], fin=True)
        client.flush()
        assert client.hear(9).startswith(AMQP_HEADER)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 101),
        ({"origin": Origin("https://shop.example")}, 101),
        ({"origin": Origin("https://evil.example")}, 403),
        ({"origin": Origin("http://shop.example")}, 403),
        ({"origin": Origin("https://shop.example.evil.example")}, 403),
        ({"origin": Origin("null")}, 403),
        ({"subprotocols": None}, 400),
        ({"subprotocols": [Subprotocol("mqtt")]}, 400),
        ({"subprotocols": [Subprotocol("mqtt"), Subprotocol("amqp")]}, 101),
    ],
)
def test_who_gets_in(options: dict[str, Any], expected: int) -> None:
    """Programs, and pages of the origins that the listener names; who speaks the subprotocol `amqp`."""
    with running_broker(memory_config(listeners=(WS,))) as broker, connected(broker, **options) as client:
        assert status(client) == expected
        if expected != 101:
            assert client.events() == []


def test_no_page_gets_in_where_no_origin_is_named() -> None:
    """A broker on this machine is not open to what a browser on it shows, nor by a name that leads here. What
    names the very address that it calls is a program: no page comes from there.
    """
    listener = ListenerConfig(url="ws://127.0.0.1:0")
    with running_broker(memory_config(listeners=(listener,))) as broker:
        with connected(broker, origin=Origin(f"http://127.0.0.1:{broker.port}")) as client:
            assert status(client) == 101
        others = ["http://127.0.0.1", "http://127.0.0.1:1", f"https://127.0.0.1:{broker.port}"]
        for origin in (*others, "https://shop.example", "null", ""):
            with connected(broker, origin=Origin(origin)) as client:
                assert status(client) == 403
        port = broker.port
        for host in (f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", ":", "[", "a b"):
            assert answered(broker, REBOUND % (host.encode(), host.encode()))[:12] == b"HTTP/1.1 403", host


REBOUND = (
    b"GET / HTTP/1.1\r\nHost: %s\r\nOrigin: http://%s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
    b"Sec-WebSocket-Protocol: amqp\r\n\r\n"
)


def test_a_stranger_is_given_no_more_room_than_on_tcp() -> None:
    """A message before the login is bounded by login_buffer_bytes, behind it by websocket_message_bytes."""
    limits = BrokerLimits(websocket_message_bytes=100_000)
    with running_broker(memory_config(listeners=(WS,), limits=limits)) as broker:
        with connected(broker) as client:
            assert status(client) == 101
            client.protocol.send_binary(AMQP_HEADER + bytes(limits.login_buffer_bytes))
            client.flush()
            assert client.close_code() == 1009
        with connected(broker) as client:
            assert status(client) == 101
            client.protocol.send_binary(OPENING)
            client.flush()
            client.hear(9)
            client.protocol.send_binary(EMPTY_FRAME * 5_000)
            client.flush()
            client.protocol.send_binary(encode_frame(0, Close()))
            client.flush()
            assert client.close_code() == 1000


def test_a_text_message_is_refused() -> None:
    """1003, as RFC 6455 has it for data of a type that is not taken."""
    with running_broker(memory_config(listeners=(WS,))) as broker, connected(broker) as client:
        assert status(client) == 101
        client.protocol.send_text(b"AMQP")
        client.flush()
        assert client.close_code() == 1003


def test_a_message_beyond_the_limit_is_refused() -> None:
    """websocket_message_bytes, 1009; also when it comes in pieces."""
    limits = BrokerLimits(websocket_message_bytes=16 * 1_024)
    with running_broker(memory_config(listeners=(WS,), limits=limits)) as broker:
        with connected(broker) as client:
            assert status(client) == 101
            client.protocol.send_binary(bytes(16 * 1_024 + 1))
            client.flush()
            assert client.close_code() == 1009
        with connected(broker) as client:
            assert status(client) == 101
            client.protocol.send_binary(OPENING + EMPTY_FRAME * 1_000, fin=False)
            client.protocol.send_continuation(EMPTY_FRAME * 2_000, fin=True)  # maybe in a read of its own
            client.flush()
            assert client.close_code() == 1009


def answered(broker: RunningBroker, octets: bytes) -> bytes:
    """All that comes back, to the end."""
    with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
        transport.sendall(octets)
        answer = b""
        while data := transport.recv(65_536):
            answer += data
        return answer


def test_a_handshake_has_bounds() -> None:
    """websocket_header_bytes and websocket_timeout_ms; what is no request gets an answer of HTTP or none."""
    limits = BrokerLimits(websocket_timeout_ms=100, websocket_header_bytes=512)
    with running_broker(memory_config(listeners=(WS,), limits=limits)) as broker:
        start = b"GET / HTTP/1.1\r\nHost: h\r\n"
        assert answered(broker, start + b"X: " + b"a" * 600) == b""
        assert answered(broker, start) == b""
        assert answered(broker, b"") == b""
        assert answered(broker, OPENING) == b""
        assert answered(broker, start + b"\r\n").startswith(b"HTTP/1.1 426 ")
        assert answered(broker, b"POST / HTTP/1.1\r\nHost: h\r\n\r\n")[:12] in (b"", b"HTTP/1.1 405")


def test_noise_behind_the_handshake_ends_the_connection() -> None:
    """Frames that are not masked, or of no opcode."""
    with running_broker(memory_config(listeners=(WS,))) as broker:
        for noise in (b"\x82\x01a", b"\x8f\x80\0\0\0\0", b"\xff" * 20):
            with connected(broker) as client:
                assert status(client) == 101
                client.transport.sendall(noise)
                assert client.close_code() == 1002


@contextmanager
def inside_tls(broker: RunningBroker, context: ssl.SSLContext) -> Iterator[socket.socket]:
    """A connection on which the handshake of TLS is done."""
    with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
        with context.wrap_socket(transport, server_hostname="127.0.0.1") as secure:
            yield secure


def test_within_tls(keys: Keys) -> None:
    """wss: the same inside. The address that was called is a program's origin here, too, also as Qpid JMS
    writes it.
    """
    listener = keys.listener(url="wss://127.0.0.1:0")
    with running_broker(memory_config(listeners=(listener,))) as broker:
        with inside_tls(broker, keys.client()) as secure:
            client = Socket(secure, broker)
            assert status(client) == 101
            client.protocol.send_binary(OPENING)
            client.flush()
            assert client.hear(9).startswith(AMQP_HEADER)
        origins = {"https://%s": 101, "http://%s": 101, "http://1%s": 403, "ws://%s": 403}
        for origin, expected in origins.items():
            with inside_tls(broker, keys.client()) as secure:
                address = f"127.0.0.1:{broker.port}"
                assert status(Socket(secure, broker, origin=Origin(origin % address))) == expected, origin


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("localhost:5", "http://localhost:5", 101),
        ("[::1]:5", "http://[::1]:5", 101),
        ("192.0.2.1:5", "https://192.0.2.1:5", 101),
        ("192.0.2.1:5", "http://192.0.2.1:5", 403),
        ("shop.example:5", "https://shop.example:5", 403),
    ],
)
def test_within_tls_an_origin_without_it_is_taken_on_this_machine_only(
    keys: Keys, host: str, origin: str, expected: int
) -> None:
    """Somebody in between could show a page without TLS at the address of another machine."""
    request = REBOUND.replace(b"http://%s", origin.encode()) % host.encode()
    with running_broker(memory_config(listeners=(keys.listener(url="wss://127.0.0.1:0"),))) as broker:
        with inside_tls(broker, keys.client()) as secure:
            secure.sendall(request)
            assert secure.recv(12) == b"HTTP/1.1 %d" % expected
