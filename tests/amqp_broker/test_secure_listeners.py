"""TLS of listeners: which certificate a client is shown, files that change, and TLS inside the AMQP port."""

from __future__ import annotations

import shutil
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from amqp_broker import listener_tls
from amqp_broker.configuration import BrokerLimits, CertificateConfig, ListenerConfig
from amqp_broker.embedding import RunningBroker, memory_config, running_broker
from amqp_broker.frames import AMQP_HEADER, SASL_HEADER, TLS_HEADER
from amqp_broker.listener_tls import CIPHERS, ListenError, ListenerTls, tls_context_of
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.amqp_broker.test_listener import Keys
from tests.amqp_broker.test_listener import keys as keys
from tests.amqp_broker.test_logins import SaslSocket, config, mutual


def shown(broker: RunningBroker, context: ssl.SSLContext, server_name: str | None) -> bytes:
    """The certificate that a client is shown who asks for this name."""
    context.check_hostname = False
    with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
        with context.wrap_socket(transport, server_hostname=server_name) as secure:
            certificate = secure.getpeercert(binary_form=True)
            assert certificate is not None
            return certificate


def issue(authority: trustme.CA, directory: Path, name: str) -> tuple[str, str, bytes]:
    """A certificate of this name: its files, and what a client is shown."""
    made = authority.issue_cert(name)
    paths = [directory / f"{name.strip('*.')}.pem", directory / f"{name.strip('*.')}.key"]
    made.cert_chain_pems[0].write_to_path(paths[0])
    made.private_key_pem.write_to_path(paths[1])
    return str(paths[0]), str(paths[1]), ssl.PEM_cert_to_DER_cert(made.cert_chain_pems[0].bytes().decode())


def test_a_client_is_shown_the_certificate_of_the_name_that_it_asks_for(keys: Keys, tmp_path: Path) -> None:
    """By its whole name, by its domain, in any case; otherwise that of the listener."""
    one_file, one_key, one = issue(keys.authority, tmp_path, "one.example.org")
    all_file, all_key, every = issue(keys.authority, tmp_path, "*.example.net")
    certificates = (
        CertificateConfig(server_names=("one.example.org",), certificate_file=one_file, key_file=one_key),
        CertificateConfig(server_names=("*.example.net",), certificate_file=all_file, key_file=all_key),
    )
    with running_broker(config(listeners=(mutual(keys),), certificates=certificates)) as broker:
        usual = shown(broker, keys.client(), None)
        assert shown(broker, keys.client(), "one.example.org") == one
        assert shown(broker, keys.client(), "ONE.example.org") == one
        assert shown(broker, keys.client(), "two.example.net") == every
        assert shown(broker, keys.client(), "a.two.example.net") == usual
        assert shown(broker, keys.client(), "example.net") == usual
        assert shown(broker, keys.client(), "two.example.org") == usual
    assert len({usual, one, every}) == 3


def test_clients_certificates_count_whatever_name_was_asked_for(keys: Keys, tmp_path: Path) -> None:
    """What is verified does not hang on what is shown, and neither does a login bound to it."""
    file, key, _ = issue(keys.authority, tmp_path, "localhost")
    certificate = CertificateConfig(server_names=("localhost",), certificate_file=file, key_file=key)
    with running_broker(config(listeners=(mutual(keys),), certificates=(certificate,))) as broker:
        with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
            with keys.client("ada").wrap_socket(transport, server_hostname="localhost") as secure:
                client = SaslSocket(secure)
                assert client.mechanisms()[:2] == ("EXTERNAL", "SCRAM-SHA-512-PLUS")
                assert client.log_in("EXTERNAL", b"") == 0


def replaced(keys: Keys, directory: Path) -> tuple[ListenerConfig, Callable[[], bytes]]:
    """A listener with files of its own, and what puts others there and tells what is shown then."""
    for name in (keys.server, keys.key):
        shutil.copy(name, directory)
    files = [directory / Path(name).name for name in (keys.server, keys.key)]

    def replace() -> bytes:
        file, key, certificate = issue(keys.authority, directory, "new.example.org")
        shutil.move(file, files[0])
        shutil.move(key, files[1])
        return certificate

    return keys.listener(certificate_file=str(files[0]), key_file=str(files[1])), replace


def test_a_changed_certificate_is_shown_without_a_restart(
    keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are looked at when somebody connects, not more often than each LOOK_S; connections go on."""
    monkeypatch.setattr(listener_tls, "LOOK_S", 0.0)
    listener, replace = replaced(keys, tmp_path)
    with running_broker(config(listeners=(listener,))) as broker:
        before = shown(broker, keys.client(), None)
        with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
            with keys.client().wrap_socket(transport, server_hostname="127.0.0.1") as secure:
                after = replace()
                assert shown(broker, keys.client(), None) == after != before
                assert SaslSocket(secure).mechanisms()
        Path(str(listener.key_file)).write_text("no key")
        assert shown(broker, keys.client(), None) == after  # what can't be used changes nothing


def test_certificates_are_read_again_on_a_call(keys: Keys, tmp_path: Path) -> None:
    """All of them or none; what is wrong is named."""
    listener, replace = replaced(keys, tmp_path)
    tls = ListenerTls(listener, (), "listener[0]")
    context = tls.context(0.0)
    replace()
    assert tls.context(listener_tls.LOOK_S / 2) is context
    tls.reload()
    new = tls.context(listener_tls.LOOK_S / 2)
    assert new is not context
    Path(str(listener.key_file)).write_text("no key")
    with pytest.raises(ListenError, match=r"listener\[0\]\.certificate_file"):
        tls.reload()
    assert tls.context(listener_tls.LOOK_S / 2) is new


def test_only_modern_tls_is_spoken(keys: Keys) -> None:
    """1.2 and newer, with forward secrecy and authenticated encryption."""
    context = tls_context_of(keys.listener())
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    for cipher in context.get_ciphers():
        assert cipher["aead"], cipher["name"]
        assert cipher["name"].startswith(("TLS_", "ECDHE-")), cipher["name"]
    assert CIPHERS


# TLS inside the AMQP port (5.2.1)


def inside(keys: Keys, **changes: object) -> ListenerConfig:
    """An amqp listener with a certificate."""
    return keys.listener(url="amqp://127.0.0.1:0", client_ca_file=keys.authority_file, **changes)


def test_tls_begins_where_the_first_header_asks_for_it(keys: Keys) -> None:
    """The header comes back, then hands are shaken, and inside there is SASL, with what needs TLS."""
    with running_broker(config(listeners=(inside(keys),))) as broker:
        assert broker.url.startswith("amqp://")
        with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
            for octet in TLS_HEADER:  # in pieces, as any network may deliver it
                transport.sendall(bytes([octet]))
            assert transport.recv(8, socket.MSG_WAITALL) == TLS_HEADER
            with keys.client("ada").wrap_socket(transport, server_hostname="127.0.0.1") as secure:
                client = SaslSocket(secure)
                offered = client.mechanisms()
                assert offered[0] == "EXTERNAL" and "PLAIN" in offered
                assert client.log_in("EXTERNAL", b"") == 0


def test_without_that_header_there_is_no_tls(keys: Keys) -> None:
    """The other headers are answered as ever, and a password is not asked for in the clear."""
    with running_broker(config(listeners=(inside(keys),))) as broker:
        with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
            assert SaslSocket(transport).mechanisms() == ("SCRAM-SHA-512", "SCRAM-SHA-256")
        with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
            transport.sendall(AMQP_HEADER)
            assert transport.recv(8, socket.MSG_WAITALL) == SASL_HEADER


@pytest.mark.parametrize("octets", [b"", b"AMQP", b"GET / HTTP/1.1\r\n\r\n", TLS_HEADER[:5] + b"\2\0\0"])
def test_anything_else_ends_as_on_any_listener(keys: Keys, octets: bytes) -> None:
    """The answer is the header that is taken, or nothing where nothing came."""
    with running_broker(config(listeners=(inside(keys),))) as broker:
        with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
            transport.sendall(octets)
            transport.shutdown(socket.SHUT_WR)
            assert transport.recv(100) in (b"", SASL_HEADER)


def test_without_a_certificate_the_header_is_refused() -> None:
    """The answer is a header that would be taken (2.2)."""
    with running_broker(memory_config()) as broker:
        with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
            transport.sendall(TLS_HEADER)
            assert transport.recv(8, socket.MSG_WAITALL) in (AMQP_HEADER, SASL_HEADER)


def test_who_says_nothing_is_closed_in_time(keys: Keys) -> None:
    """limits.header_timeout_ms holds while the first octets are waited for."""
    limits = BrokerLimits(header_timeout_ms=50)
    with running_broker(config(listeners=(inside(keys),), limits=limits)) as broker:
        with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
            transport.sendall(b"AM")
            assert transport.recv(100) in (b"", SASL_HEADER)
