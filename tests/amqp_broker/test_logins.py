"""Logins at a real broker, over real sockets: every mechanism, and what a stranger gets."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import attrs
import pytest
import scramp

from amqp_broker import log_setup
from amqp_broker.authorisation import CONNECT, CREATE, RECEIVE, SEND
from amqp_broker.configuration import (
    AccessRule,
    BrokerConfig,
    BrokerLimits,
    ListenerConfig,
    LoggingConfig,
    UserConfig,
)
from amqp_broker.embedding import RunningBroker, memory_config, running_broker
from amqp_broker.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    AmqpError,
    Close,
    Open,
    ProtocolHeader,
    encode_frame,
    encode_sasl_frame,
)
from amqp_broker.frames.sasl import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from amqp_broker.sasl_mechanisms import Plain, Step
from amqp_broker.testing.blocking_peer import PATIENCE_S, BlockingPeer, ConnectionLost
from amqp_broker.testing.peer import PeerError
from amqp_broker.verifiers import SCRAM_SHA_256, SCRAM_SHA_512, make_verifier
from tests.amqp_broker.test_listener import Keys
from tests.amqp_broker.test_listener import keys as keys

SALT = bytes(range(16))
ADA = UserConfig(
    name="ada",
    scram_sha_256=str(make_verifier(SCRAM_SHA_256, "word", 4_096, SALT)),
    scram_sha_512=str(make_verifier(SCRAM_SHA_512, "word", 4_096, SALT)),
)
RULES = (
    AccessRule(users=("ada",), actions=(CONNECT, SEND, CREATE), nodes=("orders.**",)),
    AccessRule(users=("ada",), actions=(RECEIVE,), nodes=("orders.done",)),
)
PLAIN_LISTENER = ListenerConfig(url="amqp://127.0.0.1:0", plain_without_tls=True)
LIMITS = BrokerLimits(login_failure_delay_ms=1)
PLAIN = ("PLAIN", b"\0ada\0word")


def config(**changes: object) -> BrokerConfig:
    """A broker with one user, who may send below `orders` and receive from `orders.done`."""
    base = memory_config(users=(ADA,), access_rules=RULES, listeners=(PLAIN_LISTENER,), limits=LIMITS)
    return attrs.evolve(base, **changes)  # type: ignore[arg-type]


def mutual(keys: Keys) -> ListenerConfig:
    """A listener that takes certificates."""
    return keys.listener(client_ca_file=keys.authority_file)


class SaslSocket(BlockingPeer):
    """A client that says what the test wants it to say."""

    raises_errors = False

    def say(self, *octets: bytes) -> None:
        """Write."""
        self.put_octets(b"".join(octets))
        self.flush()

    def hear(self) -> object:
        """The next protocol header or performative; None at the end of the stream."""
        try:
            return self.next()
        except ConnectionLost:
            return None

    def hear_header(self) -> bytes:
        """The next eight octets."""
        self.reader.expect_header()
        header = self.hear()
        assert isinstance(header, ProtocolHeader)
        return header.octets

    def mechanisms(self) -> tuple[str, ...]:
        """Exchange SASL headers; what is offered."""
        self.say(SASL_HEADER)
        assert self.hear_header() == SASL_HEADER
        offered = self.hear()
        assert isinstance(offered, SaslMechanisms)
        return tuple(offered.sasl_server_mechanisms or ())

    def log_in(self, mechanism: str, response: bytes) -> int:
        """By one response; the code of the outcome."""
        self.say(encode_sasl_frame(SaslInit(mechanism=mechanism, initial_response=response)))
        outcome = self.hear()
        assert isinstance(outcome, SaslOutcome)
        return outcome.code

    def exchange_open(self) -> object:
        """Exchange AMQP headers and open; what the broker answers."""
        self.say(AMQP_HEADER, encode_frame(0, Open(container_id="test")))
        assert self.hear_header() == AMQP_HEADER
        return self.hear()


@contextmanager
def dialled(broker: RunningBroker, context: ssl.SSLContext | None = None) -> Iterator[SaslSocket]:
    """A connected client, inside TLS with a context."""
    with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
        if context is None:
            yield SaslSocket(transport)
        else:
            with context.wrap_socket(transport, server_hostname="127.0.0.1") as secure:
                yield SaslSocket(secure)


def scram_outcome(client: SaslSocket, mechanism: str, name: str, password: str) -> SaslOutcome:
    """The whole exchange with scramp's client, which checks the broker's signature as well."""
    scram = scramp.ScramClient([mechanism], name, password)
    first = scram.get_client_first().encode()
    client.say(encode_sasl_frame(SaslInit(mechanism=mechanism, initial_response=first)))
    challenge = client.hear()
    assert isinstance(challenge, SaslChallenge)
    scram.set_server_first(challenge.challenge.decode())
    client.say(encode_sasl_frame(SaslResponse(response=scram.get_client_final().encode())))
    outcome = client.hear()
    assert isinstance(outcome, SaslOutcome)
    if outcome.code == 0:
        assert outcome.additional_data is not None
        scram.set_server_final(outcome.additional_data.decode())
    return outcome


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
def test_scram_logs_in_and_opens(mechanism: str) -> None:
    """Both sides prove what they know, then AMQP begins. A wrong password and an unknown user get the same
    code and end, and no signature that could be tried offline.
    """
    with running_broker(config()) as broker:
        for name, password in (("ada", "Word"), ("bob", "word")):
            with dialled(broker) as client:
                client.mechanisms()
                outcome = scram_outcome(client, SCRAM_SHA_256, name, password)
                assert (outcome.code, outcome.additional_data) == (1, None)
                assert client.hear() is None
        with dialled(broker) as client:
            assert mechanism in client.mechanisms()
            assert scram_outcome(client, mechanism, "ada", "word").code == 0
            assert isinstance(client.exchange_open(), Open)


def test_with_users_nobody_gets_in_without_a_login() -> None:
    """The bare AMQP header is answered with the SASL header, then the end (2.2); ANONYMOUS is not offered."""
    with running_broker(config()) as broker, dialled(broker) as client:
        client.say(AMQP_HEADER, encode_frame(0, Open(container_id="test")))
        assert client.hear_header() == SASL_HEADER
        assert client.hear() is None


def test_anonymous_by_login_and_by_bare_header() -> None:
    """The development broker takes both."""
    with running_broker() as broker:
        for login in (None, ("ANONYMOUS", b"me"), ("ANONYMOUS", None)):
            with BlockingPeer.connect(broker.host, broker.port, login=login) as connection:
                connection.begin()


def test_a_user_may_do_what_the_rules_say_and_nothing_else() -> None:
    """Sending below orders, receiving from orders.done; the rest is amqp:unauthorized-access at the link."""
    with running_broker(config()) as broker:
        with BlockingPeer.connect(broker.host, broker.port, login=PLAIN) as connection:
            session = connection.begin()
            session.attach_sender("a", "orders.new")
            session.attach_sender("b", "orders.done")
            session.attach_receiver("c", "orders.done")
            for attach in (session.attach_receiver, session.attach_sender):
                with pytest.raises(PeerError) as caught:
                    attach("d", "orders.new" if attach == session.attach_receiver else "invoices")
                assert caught.value.error is not None
                assert caught.value.error.condition == "amqp:unauthorized-access"


def test_a_user_without_the_right_to_connect_is_closed() -> None:
    """The login succeeds, the open is answered and closed with amqp:unauthorized-access."""
    rules = (AccessRule(users=("ada",), actions=(SEND,)),)
    with running_broker(config(access_rules=rules)) as broker, dialled(broker) as client:
        client.mechanisms()
        client.log_in(*PLAIN)
        assert isinstance(client.exchange_open(), Open)
        close = client.hear()
        assert isinstance(close, Close)
        assert close.error is not None
        assert close.error.condition == "amqp:unauthorized-access"


def test_plain_inside_tls_logs_in(keys: Keys) -> None:
    """amqps offers PLAIN, and EXTERNAL only to who has shown a certificate."""
    with running_broker(config(listeners=(mutual(keys),))) as broker:
        assert broker.url.startswith("amqps://")
        with dialled(broker, keys.client()) as client:
            scram = (SCRAM_SHA_512, SCRAM_SHA_256)
            assert client.mechanisms() == (*[each + "-PLUS" for each in scram], *scram, "PLAIN")
            assert client.log_in(*PLAIN) == 0
            assert isinstance(client.exchange_open(), Open)


def test_external_takes_the_certificate(keys: Keys) -> None:
    """Mutual TLS proves the name; the rules speak of it."""
    with running_broker(config(listeners=(mutual(keys),))) as broker:
        with dialled(broker, keys.client("ada")) as client:
            assert client.mechanisms()[0] == "EXTERNAL"
            assert client.log_in("EXTERNAL", b"") == 0
            assert isinstance(client.exchange_open(), Open)


@pytest.mark.parametrize("name", ["mallory", "anonymous"])
def test_a_certificate_of_nobody_is_nobody(keys: Keys, name: str) -> None:
    """A rule for everybody, and a certificate that is signed but no user's: EXTERNAL fails."""
    rules = (AccessRule(users=("anonymous", "*"), actions=(CONNECT, SEND, CREATE)),)
    with running_broker(config(listeners=(mutual(keys),), access_rules=rules)) as broker:
        with dialled(broker, keys.client(name)) as client:
            assert "EXTERNAL" not in client.mechanisms()
            assert client.log_in("EXTERNAL", b"") == 1
            assert client.hear() is None


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
def test_a_nonce_that_fits_no_challenge_is_a_failed_login(
    mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    """390 characters fit the init, but not the challenge that repeats them: an outcome, and no fault in the
    log.
    """
    with running_broker(config()) as broker, dialled(broker) as client:
        client.mechanisms()
        first = b"n,,n=ada,r=" + b"x" * 390
        assert client.log_in(mechanism, first) == 1
        assert client.hear() is None
    assert "internal_error" not in caplog.text


def test_a_fault_within_a_login_is_told_as_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What nobody expected of a mechanism: the outcome sys (2) for the peer, one event with its trace for
    us.
    """

    def broken(self: Plain, response: bytes | None) -> Step:
        raise ZeroDivisionError

    monkeypatch.setattr(Plain, "step", broken)
    with running_broker(config()) as broker, dialled(broker) as client:
        client.mechanisms()
        assert client.log_in(*PLAIN) == 2
        assert client.hear() is None
    assert caplog.text.count("login.internal_error") == 1
    assert "ZeroDivisionError" in caplog.text


def test_nothing_of_a_password_is_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither a right one nor a wrong one, at the most talkative level."""
    talkative = config(logging=LoggingConfig(level="debug"))
    log_setup.configure_logging(talkative)
    with running_broker(talkative) as broker:
        for response in (b"\0ada\0word", b"\0ada\0passphrase"):
            with dialled(broker) as client:
                client.mechanisms()
                client.log_in("PLAIN", response)
    errors = capfd.readouterr().err
    assert '"login.failed"' in errors
    assert '"name": "ada"' in errors
    assert "passphrase" not in errors
    assert b"passphrase".hex() not in errors


def test_sasl_noise_never_logs_in() -> None:
    """Frames out of order, a second init, AMQP frames instead of SASL, a wrong password: the end, and the
    broker lives.
    """
    init = encode_sasl_frame(SaslInit(mechanism="PLAIN", initial_response=b"\0ada\0no"))
    scripts = [
        [encode_sasl_frame(SaslResponse(response=b"x"))],
        [init, init],
        [encode_frame(0, Open(container_id="test"))],
        [AMQP_HEADER],
        [b"\0\0\2\1\2\1\0\0" + bytes(505)],
        [encode_sasl_frame(SaslOutcome(code=0))],
    ]
    with running_broker(config()) as broker:
        for script in scripts:
            with dialled(broker) as client:
                client.mechanisms()
                client.say(*script)
                heard: list[object] = []
                with suppress(AmqpError):  # a header after the end
                    while (item := client.hear()) is not None:
                        heard.append(item)
                assert not any(isinstance(item, SaslOutcome) and item.code == 0 for item in heard)
                assert not any(isinstance(item, Open) for item in heard)
        with BlockingPeer.connect(broker.host, broker.port, login=PLAIN) as connection:
            connection.begin()
