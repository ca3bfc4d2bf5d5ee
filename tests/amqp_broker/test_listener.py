"""Listeners: TCP, TLS, and the bound on sockets that have not logged in."""

from __future__ import annotations

import errno
import os
import resource
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
import trustme

from amqp_broker import listener, log_setup
from amqp_broker.certificates import certificate_name
from amqp_broker.configuration import BrokerConfig, ListenerConfig
from amqp_broker.configuration_limits import BrokerLimits
from amqp_broker.host_names import counted_address
from amqp_broker.links import Refusals
from amqp_broker.listener import (
    ACCEPT_AGAIN_S,
    RECOVERED_S,
    ListenError,
    OpenListener,
    ServeConnection,
    open_listeners,
    serve_listeners,
)
from amqp_broker.peers import ADDRESSES_MAX, AddressRates, Admission, PeerInfo
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.support.by_hand import in_trio

ANY = ListenerConfig(url="amqp://127.0.0.1:0")
DEADLINE_S = PATIENCE_S

dialled: list[trio.SocketStream] = []
"""What `dial` opened, for `listening` to close."""


@attrs.frozen
class Keys:
    """A certificate authority, what it signed, and the files of it."""

    authority: trustme.CA
    server: str
    key: str
    authority_file: str

    def listener(self, **changes: object) -> ListenerConfig:
        """An amqps listener that uses them."""
        values: dict[str, Any] = {
            "url": "amqps://127.0.0.1:0",
            "certificate_file": self.server,
            "key_file": self.key,
            **changes,
        }
        return ListenerConfig(**values)

    def client(self, name: str | None = None) -> ssl.SSLContext:
        """A client's TLS settings, with a certificate of this common name."""
        context = ssl.create_default_context(cafile=self.authority_file)
        if name is not None:
            self.authority.issue_cert(f"{name}@example.com", common_name=name).configure_cert(context)
        return context


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """Made on the spot."""
    directory: Path = tmp_path_factory.mktemp("keys")
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1", "localhost")
    server.cert_chain_pems[0].write_to_path(directory / "server.pem")
    server.private_key_pem.write_to_path(directory / "server.key")
    authority.cert_pem.write_to_path(directory / "ca.pem")
    return Keys(authority, *(str(directory / name) for name in ("server.pem", "server.key", "ca.pem")))


async def echo(stream: trio.abc.Stream, peer: PeerInfo) -> None:
    """Say who it is, then give back what comes."""
    await stream.send_all(f"{peer.tls} {certificate_name(peer.certificate)}\n".encode())
    async for data in stream:
        await stream.send_all(data)


@asynccontextmanager
async def listening(
    configs: list[ListenerConfig], serve: ServeConnection = echo, limits: BrokerLimits | None = None,
    refusals: Refusals | None = None,
) -> AsyncIterator[list[OpenListener]]:
    """Listeners on free ports."""
    listeners = await open_listeners(configs)
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            known = refusals or Refusals()
            await nursery.start(_serve, listeners, limits or BrokerLimits(), serve, known, nursery)
            try:
                yield listeners
            finally:
                while dialled:
                    await trio.aclose_forcefully(dialled.pop())
            nursery.cancel_scope.cancel()


async def _serve(
    listeners: list[OpenListener],
    limits: BrokerLimits,
    serve: ServeConnection,
    refusals: Refusals,
    nursery: trio.Nursery,
    task_status: trio.TaskStatus[None],
) -> None:
    await serve_listeners(
        listeners, lambda: limits, serve, refusals=refusals, handler_nursery=nursery, task_status=task_status
    )


async def dial(listener: OpenListener) -> trio.SocketStream:
    """A connection to a listener's printed URL."""
    config = ListenerConfig(url=listener.url.replace("amqps", "amqp"))
    stream = await trio.open_tcp_stream(config.host, config.port)
    dialled.append(stream)
    return stream


async def line_of(stream: trio.abc.Stream) -> bytes:
    """What comes until the line or the connection ends."""
    data = b""
    while not data.endswith(b"\n"):
        try:
            more = await stream.receive_some()
        except trio.BrokenResourceError:
            break
        if not more:
            break
        data += more
    return data


@in_trio
async def test_the_printed_url_is_where_one_connects() -> None:
    """Port 0 becomes the real one, for IPv4 and IPv6."""
    async with listening([ANY, ListenerConfig(url="amqp://[::1]:0")]) as listeners:
        for listener in listeners:
            assert ":0" not in listener.url.rsplit("]", 1)[-1]
            assert await line_of(await dial(listener)) == b"False None\n"


@in_trio
async def test_a_port_in_use_names_the_listener() -> None:
    """The second of two listeners on one port; the first is closed again."""
    (first,) = await open_listeners([ANY])
    with pytest.raises(ListenError, match=r'listener\[1\].url = "amqp://127.0.0.1:\d+".*in use'):
        await open_listeners([ANY, ListenerConfig(url=first.url)])
    await first.trio_listener.aclose()


@in_trio
async def test_a_name_that_is_no_host_names_the_listener() -> None:
    """An address that is not ours."""
    with pytest.raises(ListenError, match=r"listener\[0\].url"):
        await open_listeners([ListenerConfig(url="amqp://192.0.2.1:0")])


@in_trio
async def test_a_handler_that_fails_ends_its_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once, and the next connection is served."""
    calls = 0

    async def serve(stream: trio.abc.Stream, peer: PeerInfo) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ZeroDivisionError
        await echo(stream, peer)

    async with listening([ANY], serve) as listeners:
        assert await line_of(await dial(listeners[0])) == b""
        assert await line_of(await dial(listeners[0])) == b"False None\n"
    assert [each.event for each in caplog.records].count("connection.failed") == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("in_all", [2, 9])
@in_trio
async def test_strangers_are_bounded_and_logins_make_room(in_all: int) -> None:
    """Beyond the bound sockets are closed at once; a login frees a place, and so does an end."""
    peers: list[PeerInfo] = []

    async def serve(stream: trio.abc.Stream, peer: PeerInfo) -> None:
        peers.append(peer)
        await echo(stream, peer)

    limits = BrokerLimits(login_sockets=in_all, login_sockets_per_address=2)
    async with listening([ANY], serve, limits) as (listener,):
        first, second = await dial(listener), await dial(listener)
        assert await line_of(first)
        assert await line_of(second)
        assert await line_of(await dial(listener)) == b""
        peers[0].logged_in()
        third = await dial(listener)
        assert await line_of(third)
        assert await line_of(await dial(listener)) == b""
        await second.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert await line_of(await dial(listener))


def test_one_address_cannot_take_all_places() -> None:
    """32 for each address, 512 in all."""
    admission = Admission(BrokerLimits)
    for number in range(32):
        assert admission.refusal("192.0.2.1") is None, number
        admission.enter("192.0.2.1")
    assert (admission.refusal("192.0.2.1") or ("",))[0] == "login_sockets_per_address"
    for number in range(512 - 32):
        host = f"192.0.2.{10 + number % 20}"
        assert admission.refusal(host) is None, number
        admission.enter(host)
    assert (admission.refusal("198.51.100.1") or ("",))[0] == "login_sockets"
    admission.leave("192.0.2.1")
    assert admission.refusal("198.51.100.1") is None
    assert admission.strangers == 511


def test_an_ipv6_host_is_one_address() -> None:
    """It has 2^64 addresses, and one place of each 64 bits; IPv4 is counted as it is."""
    assert counted_address("2001:db8::1") == counted_address("2001:db8:0:0:ffff::2%eth0")
    assert counted_address("2001:db8::1") != counted_address("2001:db8:0:1::1")
    for host in ("192.0.2.1", "::ffff:192.0.2.1", "memory", "no:address"):
        assert counted_address(host) == host
    admission = Admission(lambda: BrokerLimits(login_sockets_per_address=2))
    admission.enter("2001:db8::1")
    admission.enter("2001:db8::2")
    assert (admission.refusal("2001:db8::3") or ("",))[0] == "login_sockets_per_address"
    admission.leave("2001:db8::1")
    assert admission.refusal("2001:db8::3") is None
    assert admission.refusal("2001:db8:1::3") is None


def test_the_connections_of_one_address_share_a_rate() -> None:
    """So that a new connection is no new start; a few thousand are kept, those that work before others."""
    limits = BrokerLimits(control_operations_burst=2, address_operations_burst=3)
    rates = AddressRates(lambda: limits)
    busy = rates.of("192.0.2.1", 0.0)
    assert [busy.take(0.0) for _ in range(4)][-1] > 0
    for number in range(3 * ADDRESSES_MAX):
        rates.of(f"198.51.{number // 256}.{number % 256}", 0.0)
        assert rates.of("192.0.2.1", 0.0) is busy
        assert len(rates) <= ADDRESSES_MAX
    assert rates.of("192.0.2.2", 0.0) is not busy
    limits = BrokerLimits(control_operations_burst=2, address_operations_burst=4)
    assert [rates.of("192.0.2.1", 0.0).take(0.0) for _ in range(4)][-1] == 0


@in_trio
async def test_a_peers_rate_is_that_of_its_address() -> None:
    """The listener gives it to each connection."""
    seen: list[PeerInfo] = []

    async def serve(stream: trio.abc.Stream, peer: PeerInfo) -> None:
        seen.append(peer)
        await stream.send_all(b"x\n")

    async with listening([ANY], serve) as listeners:
        for _ in range(2):
            assert await line_of(await dial(listeners[0]))
    assert seen[0].operations is not None
    assert seen[0].operations is seen[1].operations


def test_a_full_table_of_descriptors_is_one_event(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not ten tracebacks a second: it is tried again, and whoever waits is served when there is room."""
    told: list[str] = []
    log_setup.configure_logging(BrokerConfig())

    async def serve(stream: trio.abc.Stream, peer: PeerInfo) -> None:
        await stream.send_all(b"served\n")

    async def main() -> None:
        (listener,) = await open_listeners([ANY])
        start = trio.current_time()
        errors = [OSError(errno.EMFILE, "Too many open files") for _ in range(200)]
        accept = trio.SocketListener.accept

        async def short(self: trio.SocketListener) -> trio.SocketStream:
            if errors:
                raise errors.pop()
            return await accept(self)

        monkeypatch.setattr(trio.SocketListener, "accept", short)
        async with trio.open_nursery() as nursery:
            await nursery.start(_serve, [listener], BrokerLimits(), serve, Refusals(), nursery)
            assert await line_of(await dial(listener)) == b"served\n"
            assert trio.current_time() - start >= 20.0
            told.append(capfd.readouterr().err)
            assert "accepts_again" not in told[0]
            await trio.sleep(RECOVERED_S + 1)
            assert await line_of(await dial(listener)) == b"served\n"
            nursery.cancel_scope.cancel()
        while dialled:
            await trio.aclose_forcefully(dialled.pop())
        told.append(capfd.readouterr().err)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    text = "".join(told)
    assert text.count("listener.out_of_resources") == 1
    assert "Too many open files" in text
    assert text.count("listener.accepts_again") == 1
    assert "Traceback" not in text + caplog.text


def test_sockets_leave_descriptors_to_the_store(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes when only those are left waits until somebody goes, and is served then; nothing leaks."""
    log_setup.configure_logging(BrokerConfig())

    async def serve(stream: trio.abc.Stream, peer: PeerInfo) -> None:
        await stream.send_all(b"served\n")
        await stream.receive_some()

    async def main() -> None:
        (opened,) = await open_listeners([ANY])
        before = set(os.listdir("/proc/self/fd"))
        lowest = os.dup(0)
        os.close(lowest)
        # Two for each connection, since this process dials them, too: there is room for four.
        most = lowest + 8 + 2
        monkeypatch.setattr(listener, "KEPT_DESCRIPTORS", 2)
        monkeypatch.setattr(resource, "getrlimit", lambda kind: (most, most))
        async with trio.open_nursery() as nursery:
            await nursery.start(_serve, [opened], BrokerLimits(), serve, Refusals(), nursery)
            first = [await dial(opened) for _ in range(4)]
            for stream in first:
                assert await line_of(stream) == b"served\n"
            late = [await dial(opened) for _ in range(2)]
            with trio.move_on_after(20 * ACCEPT_AGAIN_S):
                pytest.fail(f"served: {await late[0].receive_some()!r}")
            for stream in first[:2]:
                await stream.aclose()
            for stream in late:
                assert await line_of(stream) == b"served\n"
            *_, waits = [await dial(opened) for _ in range(4)]
            with trio.move_on_after(20 * ACCEPT_AGAIN_S):
                pytest.fail(f"served: {await waits.receive_some()!r}")
            nursery.cancel_scope.cancel()
        while dialled:
            await trio.aclose_forcefully(dialled.pop())
        assert set(os.listdir("/proc/self/fd")) <= before

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.05))
    text = capfd.readouterr().err
    assert text.count("listener.out_of_resources") == 1
    assert "kept for the store" in text


def test_logging_in_twice_counts_once() -> None:
    """The connection task and the listener both say that a socket is no stranger any more."""
    admission = Admission(BrokerLimits)
    for _ in range(2):
        admission.enter("h")
    peer = PeerInfo(ANY, "h:1", "h", admission=admission)
    peer.logged_in()
    peer.logged_in()
    assert admission.strangers == 1


@in_trio
async def test_tls_shakes_hands_and_carries_bytes(keys: Keys) -> None:
    """An amqps listener serves inside TLS."""
    async with listening([keys.listener()]) as listeners:
        assert listeners[0].url.startswith("amqps://127.0.0.1:")
        stream = trio.SSLStream(await dial(listeners[0]), keys.client(), server_hostname="127.0.0.1")
        assert await line_of(stream) == b"True None\n"
        await stream.send_all(b"hello\n")
        assert await line_of(stream) == b"hello\n"


@in_trio
async def test_mutual_tls_gives_the_name_of_the_certificate(keys: Keys) -> None:
    """With a client CA a certificate is verified and its common name known; without one nothing is proved."""
    async with listening([keys.listener(client_ca_file=keys.authority_file)]) as listeners:
        for name in ("ada", None):
            context = keys.client(name)
            stream = trio.SSLStream(await dial(listeners[0]), context, server_hostname="127.0.0.1")
            assert await line_of(stream) == f"True {name}\n".encode()


@in_trio
async def test_a_missing_or_foreign_client_certificate_is_refused(
    keys: Keys, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a certificate is required, and where it comes from another authority."""
    foreign = Keys(trustme.CA(), "", "", "")
    required = keys.listener(client_ca_file=keys.authority_file, require_client_certificate=True)
    refusals = Refusals()
    async with listening([required], refusals=refusals) as listeners:
        stranger = ssl.create_default_context(cafile=keys.authority_file)
        foreign.authority.issue_cert("eve@example.com", common_name="eve").configure_cert(stranger)
        for context in (keys.client(), stranger):
            stream = trio.SSLStream(await dial(listeners[0]), context, server_hostname="127.0.0.1")
            try:
                assert await line_of(stream) == b""
            except ssl.SSLError:
                continue
    assert "connection.failed" not in caplog.text
    assert refusals.counts == {"login": 2}


@in_trio
async def test_a_peer_that_does_not_speak_tls_is_closed(keys: Keys) -> None:
    """AMQP bytes on the TLS port, and silence beyond the time-out."""
    limits = BrokerLimits(tls_timeout_ms=50, header_timeout_ms=50)
    async with listening([keys.listener()], limits=limits) as listeners:
        loud = await dial(listeners[0])
        await loud.send_all(b"AMQP\x00\x01\x00\x00" * 4)
        assert b"True" not in await line_of(loud)
        assert await line_of(await dial(listeners[0])) == b""


@in_trio
async def test_key_files_that_cannot_be_used_name_their_field(keys: Keys, tmp_path: Path) -> None:
    """No such file, no certificate, a foreign key, no authority."""
    other = tmp_path / "other.key"
    trustme.CA().issue_cert("x.example").private_key_pem.write_to_path(other)
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("rubbish")
    cases = [
        ({"certificate_file": str(tmp_path / "none.pem")}, "certificate_file"),
        ({"certificate_file": str(rubbish)}, "certificate_file"),
        ({"key_file": str(other)}, "key_file"),
        ({"client_ca_file": str(rubbish)}, "client_ca_file"),
    ]
    for changes, field in cases:
        with pytest.raises(ListenError, match=rf"listener\[0\].*{field}"):
            await open_listeners([keys.listener(**changes)])
