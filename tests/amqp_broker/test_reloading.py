"""The configuration is read again: by `$management` and by call, and what becomes of who is connected."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
import trustme

from amqp_broker import log_setup
from amqp_broker.authentication import Authenticator
from amqp_broker.authorisation import CONNECT, RECEIVE, RELOAD, SEND, Principal
from amqp_broker.broker import Broker, open_broker
from amqp_broker.client import BlockingConnection, ConnectionGone, LinkRefused, LoginRefused, connect
from amqp_broker.command_line import main
from amqp_broker.configuration import (
    AccessRule,
    BrokerConfig,
    BrokerLimits,
    CertificateConfig,
    ConfigurationError,
    ListenerConfig,
    LoggingConfig,
    QueuePolicy,
    TokenIssuerConfig,
    UserConfig,
    load_configuration,
)
from amqp_broker.embedding import RunningBroker, memory_config, running_broker
from amqp_broker.frames import SASL_HEADER, Close
from amqp_broker.listener import peer_of_stream
from amqp_broker.reloading.logins import LoginChanges
from amqp_broker.reloading.reload import TOLD_MAX, Reloaded, ReloadRefused, told
from amqp_broker.reloading.reload import reload as reload_broker
from amqp_broker.serving import _reload_at_signals
from amqp_broker.testing.blocking_peer import PATIENCE_S
from amqp_broker.verifiers import SCRAM_SHA_256, make_verifier
from tests.amqp_broker.test_listener import Keys
from tests.amqp_broker.test_listener import keys as keys
from tests.amqp_broker.test_logins import SaslSocket, mutual
from tests.amqp_broker.test_secure_listeners import issue, replaced, shown

VERIFIER = str(make_verifier(SCRAM_SHA_256, "word", 4_096, bytes(16)))
OTHER = str(make_verifier(SCRAM_SHA_256, "other", 4_096, bytes(16)))
ADA, BOB = (UserConfig(name=name, scram_sha_256=VERIFIER) for name in ("ada", "bob"))
EVERYTHING = (CONNECT, SEND, RECEIVE, "create")
RULES = (AccessRule(users=("ada", "bob"), actions=EVERYTHING, nodes=("**",)),)
LISTENER = ListenerConfig(url="amqp://127.0.0.1:0", plain_without_tls=True)
SECURE = memory_config(
    users=(ADA, BOB), access_rules=RULES, listeners=(LISTENER,), limits=BrokerLimits(login_failure_delay_ms=1)
)


def reload(broker: RunningBroker, config: BrokerConfig) -> Reloaded:
    """Have this configuration hold."""
    done: Reloaded = broker.call(Broker.reload, config)
    return done


def changed(config: BrokerConfig, **changes: Any) -> BrokerConfig:
    """Another one."""
    return attrs.evolve(config, **changes)


@contextmanager
def as_user(broker: RunningBroker, name: str, password: str = "word") -> Iterator[BlockingConnection]:
    """A connection of this user."""
    with connect(broker.url, user=name, password=password) as client:
        yield client


def ended(client: BlockingConnection, why: str) -> None:
    """The connection was closed, and its client told why."""
    with pytest.raises(ConnectionGone, match=f"amqp:unauthorized-access: {why}"):
        for _ in range(2):  # what is under way when it ends may still come
            with suppress(LinkRefused):
                client.open_sender("q").send(b"x")


def goes_on(client: BlockingConnection, address: str = "q") -> None:
    """It can be used."""
    client.open_sender(address).send(b"x")


# Users and rights


def test_a_removed_user_is_out_and_others_go_on() -> None:
    """The open connection is closed with the reason; nobody can log in by the old password."""
    with running_broker(SECURE) as broker, as_user(broker, "ada") as ada, as_user(broker, "bob") as bob:
        goes_on(ada)
        rules = (AccessRule(users=("bob",), actions=EVERYTHING, nodes=("**",)),)
        done = reload(broker, changed(SECURE, users=(BOB,), access_rules=rules))
        assert (done.closed_connections, done.waits) == (1, ())
        assert done.changed == ('user "ada": gone', "access: 1 new, 1 gone")
        ended(ada, "'ada' is no user any more: the configuration was reloaded")
        goes_on(bob)
        with pytest.raises(LoginRefused), as_user(broker, "ada"):
            pass


def test_another_password_ends_who_came_by_the_old_one() -> None:
    """And the new one is needed at once."""
    with running_broker(SECURE) as broker, as_user(broker, "ada") as ada, as_user(broker, "bob") as bob:
        reload(broker, changed(SECURE, users=(attrs.evolve(ADA, scram_sha_256=OTHER), BOB)))
        ended(ada, "'ada' has to log in again: what proves the user was changed")
        goes_on(bob)
        with pytest.raises(LoginRefused), as_user(broker, "ada"):
            pass
        with as_user(broker, "ada", "other") as again:
            goes_on(again)


@pytest.mark.parametrize(
    "rules",
    [
        (AccessRule(users=("ada",), actions=(CONNECT, SEND, RECEIVE), nodes=("**",)),),
        (AccessRule(users=("ada",), actions=EVERYTHING, nodes=("q", "q.*")),),
    ],
)
def test_who_may_less_is_closed_and_may_the_rest_again(rules: tuple[AccessRule, ...]) -> None:
    """An action less, or fewer nodes."""
    config = changed(SECURE, queue_policies=(QueuePolicy(pattern="q", create="at-start"),))
    with running_broker(config) as broker:
        with as_user(broker, "ada") as ada:
            reload(broker, changed(broker.config, access_rules=rules))
            ended(ada, "'ada' may do less than before")
        with as_user(broker, "ada") as again:
            goes_on(again)
            with pytest.raises(LinkRefused):
                again.open_sender("somewhere.else")


def test_who_may_more_goes_on_and_may_it_at_once() -> None:
    """By a new rule, and by a role that the user got."""
    less = (AccessRule(users=("ada",), actions=EVERYTHING, nodes=("q",)),)
    more = (*less, AccessRule(roles=("writer",), actions=(SEND, "create"), nodes=("orders.*",)))
    writer = attrs.evolve(ADA, roles=("writer",))
    with running_broker(changed(SECURE, access_rules=less)) as broker, as_user(broker, "ada") as ada:
        with pytest.raises(LinkRefused):
            ada.open_sender("orders.eu")
        wanted = changed(SECURE, users=(writer, BOB), access_rules=more)
        assert reload(broker, wanted).closed_connections == 0
        goes_on(ada, "orders.eu")
        assert reload(broker, changed(wanted, users=(ADA, BOB), access_rules=less)).closed_connections == 1
        ended(ada, "'ada' may do less than before")


def test_a_broker_that_was_open_to_everybody_closes_who_did_not_log_in() -> None:
    """As soon as there are users, nobody is anonymous."""
    with running_broker(memory_config()) as broker, connect(broker.url) as client:
        goes_on(client)
        wanted = changed(broker.config, users=(ADA,), access_rules=RULES[:0])
        assert reload(broker, wanted).closed_connections == 1
        ended(client, "'anonymous' has to log in now")
        with pytest.raises(LoginRefused):
            connect(broker.url)


def test_who_is_logging_in_meanwhile_begins_again() -> None:
    """A login that was begun before is judged by nobody's former password, where others need none, either."""
    config = changed(SECURE, listeners=(attrs.evolve(LISTENER, anonymous=True),))
    with running_broker(config) as broker:
        with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
            client = SaslSocket(transport)
            client.mechanisms()
            more = changed(config, users=(*SECURE.users, UserConfig(name="eve")))
            assert reload(broker, more).closed_connections == 1
            assert client.hear() is None or client.hear() is None


def test_a_user_by_certificate_is_one_as_long_as_it_is_the_users(keys: Keys) -> None:
    """It belongs to somebody else now, so it is nobody's."""
    config = changed(SECURE, users=(UserConfig(name="ada"), BOB), listeners=(mutual(keys),))
    with running_broker(config) as broker:
        with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
            with keys.client("ada").wrap_socket(transport, server_hostname="127.0.0.1") as secure:
                client = SaslSocket(secure)
                client.mechanisms()
                assert client.log_in("EXTERNAL", b"") == 0
                client.exchange_open()
                assert reload(broker, config).closed_connections == 0
                other = UserConfig(name="eve", certificates=("CN=ada",))
                done = reload(broker, changed(config, users=(*config.users, other)))
                assert done.closed_connections == 1


@pytest.mark.parametrize("by_path", [True, False])
def test_certificates_of_an_authority_that_counts_no_more_are_proof_no_more(
    keys: Keys, tmp_path: Path, by_path: bool
) -> None:
    """Whether the file is another one, or has something else in it; a password is not touched by that."""
    file = shutil.copy(keys.authority_file, tmp_path)
    listener = keys.listener(client_ca_file=file)
    config = changed(SECURE, users=(attrs.evolve(ADA, certificates=("CN=ada",)), BOB), listeners=(listener,))
    with running_broker(config) as broker:
        with secure_socket(broker, keys.client("ada")) as ada, secure_socket(broker, keys.client("x")) as bob:
            logged_in(ada, "EXTERNAL", b"")
            logged_in(bob, "PLAIN", b"\0bob\0word")
            assert reload(broker, config).closed_connections == 0
            other = tmp_path / "other.pem" if by_path else Path(file)
            trustme.CA().cert_pem.write_to_path(other)
            listener = attrs.evolve(listener, client_ca_file=str(other))
            assert reload(broker, changed(config, listeners=(listener,))).closed_connections == 1
            close = ada.hear()
            assert isinstance(close, Close) and close.error is not None
            assert "'ada' has a certificate that was verified by another" in (close.error.description or "")


def test_who_has_to_show_a_certificate_now_has_to_log_in_again(keys: Keys) -> None:
    """Who has shown one goes on."""
    listener = mutual(keys)
    with running_broker(changed(SECURE, listeners=(listener,))) as broker:
        with secure_socket(broker, keys.client()) as ada, secure_socket(broker, keys.client("x")) as bob:
            logged_in(ada, "PLAIN", b"\0ada\0word")
            logged_in(bob, "PLAIN", b"\0bob\0word")
            required = attrs.evolve(listener, require_client_certificate=True)
            assert reload(broker, changed(broker.config, listeners=(required,))).closed_connections == 1
            close = ada.hear()
            assert isinstance(close, Close) and close.error is not None
            assert "'ada' has to show a certificate now" in (close.error.description or "")


@pytest.mark.parametrize("another", [True, False])
def test_hands_that_are_shaken_meanwhile(another: bool, keys: Keys, tmp_path: Path) -> None:
    """What the former authority signed is verified by the former TLS, so it is let go; where a reload has
    changed something else, it goes on.
    """
    users = (attrs.evolve(ADA, certificates=("CN=ada",)), BOB)
    config = changed(SECURE, users=users, listeners=(mutual(keys),))
    with running_broker(config) as broker:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        secure = keys.client("ada").wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
            with pytest.raises(ssl.SSLWantReadError):
                secure.do_handshake()
            transport.sendall(outgoing.read())
            incoming.write(transport.recv(65_536))  # the broker has begun
            other = tmp_path / "other.pem"
            trustme.CA().cert_pem.write_to_path(other)
            listener = attrs.evolve(config.listeners[0], client_ca_file=str(other))
            listeners = (listener,) if another else config.listeners
            limits = attrs.evolve(config.limits, link_credit=50)
            reload(broker, changed(config, listeners=listeners, limits=limits))
            while True:
                with suppress(ssl.SSLWantReadError):
                    secure.do_handshake()
                    break
                incoming.write(transport.recv(65_536))
            secure.write(SASL_HEADER)
            transport.sendall(outgoing.read())
            assert what_comes(secure, incoming, transport) == (b"" if another else SASL_HEADER[:1])


@contextmanager
def secure_socket(broker: RunningBroker, context: ssl.SSLContext) -> Iterator[SaslSocket]:
    """A client inside TLS."""
    with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as transport:
        with context.wrap_socket(transport, server_hostname="127.0.0.1") as secure:
            yield SaslSocket(secure)


def logged_in(client: SaslSocket, mechanism: str, response: bytes) -> None:
    """Its connection is open."""
    client.mechanisms()
    assert client.log_in(mechanism, response) == 0
    client.exchange_open()


def what_comes(secure: ssl.SSLObject, incoming: ssl.MemoryBIO, transport: socket.socket) -> bytes:
    """The next octets, or none where the stream ends."""
    while True:
        with suppress(ssl.SSLWantReadError):
            return secure.read(1)
        try:
            data = transport.recv(65_536)
        except ConnectionResetError:
            return b""
        if not data:
            return b""
        incoming.write(data)


def test_tokens_of_an_issuer_that_was_changed_are_proof_no_more() -> None:
    """Another issuer beside it changes nothing for them."""
    rules = (AccessRule(users=("*",), actions=EVERYTHING, nodes=("**",)),)

    def issuer(name: str, **fields: Any) -> TokenIssuerConfig:
        return TokenIssuerConfig(issuer=name, audience="a", jwks_url="https://keys.example.org", **fields)

    def why(
        *issuers: TokenIssuerConfig, users: tuple[UserConfig, ...] = SECURE.users, name: str = "eve"
    ) -> str:
        before = changed(SECURE, token_issuers=(issuer("one", any_user=True),), access_rules=rules)
        after = changed(before, token_issuers=issuers, users=users)
        login = LoginChanges(before, after, Authenticator(SECURE))
        return login.why_ended(Principal(name, "OAUTHBEARER", ("role",)), peer_of_stream(LISTENER))

    assert why(issuer("one", any_user=True), issuer("two")) == ""
    assert "has a token of an issuer that was changed" in why(issuer("one"))
    assert "is no user any more" in why(issuer("one", any_user=True), users=(BOB,), name="ada")


# What else holds at once


def test_limits_hold_for_who_comes_now_and_queues_are_as_the_file_says() -> None:
    """A queue that is wanted from the start is there; one that is there has its new bounds."""
    config = memory_config(queue_policies=(QueuePolicy(pattern="small", max_messages=5),))
    with running_broker(config) as broker, connect(broker.url) as client:
        goes_on(client, "small")
        policies = (
            QueuePolicy(pattern="small", max_messages=2, exclusive=True),
            QueuePolicy(pattern="new", create="at-start"),
            QueuePolicy(pattern="late", message_type="transaction"),
        )
        limits = BrokerLimits(max_connections=1, memory_bytes=2**28, max_message_size_bytes=2_000)
        done = reload(broker, changed(config, queue_policies=policies, limits=limits))
        assert done.waits == ('queue "small": exclusive = true, of queues that are there (1)',)
        shown = broker.ask("READ", "queue", name="small")
        assert (shown["max_messages"], shown["messages"]) == (2, 1)
        assert broker.ask("READ", "queue", name="new")["messages"] == 0
        assert broker.ask("READ", "broker", name="self")["memory_limit_bytes"] == 2**28
        with pytest.raises(LinkRefused):
            client.open_sender("late")
        goes_on(client, "new")
        with socket.create_connection((broker.host, broker.port), timeout=PATIENCE_S) as one_more:
            assert one_more.recv(1) == b""


def test_what_an_operator_changed_of_a_queue_goes_before_the_file() -> None:
    """As at a start; RESET gives it what the file says now."""
    config = memory_config(queue_policies=(QueuePolicy(pattern="q", max_messages=5),))
    with running_broker(config) as broker:
        broker.declare("q")
        broker.ask("UPDATE", "queue", body={"max_messages": 7}, name="q")
        policy = QueuePolicy(pattern="q", max_messages=6, max_deliveries=3)
        reload(broker, changed(config, queue_policies=(policy,)))
        shown = broker.ask("READ", "queue", name="q")
        assert (shown["max_messages"], shown["max_deliveries"]) == (7, 3)
        broker.ask("RESET", "queue", name="q")
        assert broker.ask("READ", "queue", name="q")["max_messages"] == 6


def test_what_management_changed_of_the_configuration_is_as_the_file_says_again() -> None:
    """And `at_start` is what was read last."""
    with running_broker(memory_config()) as broker:
        key = "limits.max_connections"
        broker.ask("UPDATE", "configuration", body={"value": 7}, name=key)
        done = reload(broker, memory_config(users=(), aliases=()))
        assert done.changed == (f"{key} = 16384, was 7",)
        shown = broker.ask("READ", "configuration", name=key)
        assert (shown["value"], shown["at_start"]) == (16384, 16384)


def test_the_dead_letters_have_their_new_bounds() -> None:
    """Which are limits, where no [[queue]] says others."""
    with running_broker(memory_config()) as broker:
        broker.declare("dead-letters")
        reload(broker, memory_config(limits=BrokerLimits(dead_letter_messages=7)))
        assert broker.ask("READ", "queue", name="dead-letters")["max_messages"] == 7


def test_the_log_has_its_new_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said from then on; the reload itself is told at its new level."""
    sink, written = log_setup._Sink(), io.StringIO()
    monkeypatch.setattr(log_setup, "_sink", sink)
    log_setup.configure_logging(memory_config(logging=LoggingConfig(level="error", format="json")), written)
    with running_broker(memory_config()) as broker:
        reload(broker, memory_config(logging=LoggingConfig(level="info", format="json")))
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    events = {line["event"]: line for line in lines}
    assert events["configuration.reloaded"]["changed"] == 1
    assert events["configuration.changed"]["what"] == 'logging.format = "json", was "auto"'


def test_certificates_are_read_again_and_new_ones_shown(keys: Keys, tmp_path: Path) -> None:
    """By the listener, and by name; connections go on."""
    listener, replace = replaced(keys, tmp_path)
    with running_broker(changed(SECURE, listeners=(listener,))) as broker:
        before = shown(broker, keys.client(), None)
        after = replace()
        done = reload(broker, broker.config)
        assert done.changed == ("listener[0]: its certificates, by name or by content",)
        assert shown(broker, keys.client(), None) == after != before
        file, key, one = issue(keys.authority, tmp_path, "one.example.org")
        named = CertificateConfig(server_names=("one.example.org",), certificate_file=file, key_file=key)
        reload(broker, changed(broker.config, certificates=(named,)))
        assert shown(broker, keys.client(), "one.example.org") == one
        wrong = attrs.evolve(listener, key_file=file)
        with pytest.raises(ReloadRefused, match=r"listener\[0\].certificate_file"):
            users = (*SECURE.users, UserConfig(name="eve"))
            reload(broker, changed(broker.config, listeners=(wrong,), users=users))
        assert shown(broker, keys.client(), None) == after


# What is wrong changes nothing


def test_what_cannot_be_read_changes_nothing() -> None:
    """Whatever else the file says; the answer has the reason."""
    with running_broker(SECURE) as broker, as_user(broker, "ada") as ada:

        async def read_wrong(running: Broker) -> None:
            def wrong() -> BrokerConfig:
                return load_configuration("/nowhere/at/all.toml")

            before = running.config, running.authenticator, running.nodes.authoriser
            running._read_again = wrong
            with pytest.raises(ReloadRefused, match="cannot be read"):
                await running.reload()
            assert (running.config, running.authenticator, running.nodes.authoriser) == before

        broker.call(read_wrong)
        goes_on(ada)
        with pytest.raises(ReloadRefused, match="nobody could log in"):
            open_one = ListenerConfig(url="amqp://127.0.0.1:1", anonymous=True)
            nobody = (UserConfig(name="ada"), UserConfig(name="bob"))
            reload(broker, changed(SECURE, listeners=(open_one,), users=nobody))
        goes_on(ada)


def test_a_key_that_is_changed_meanwhile_is_not_overlooked() -> None:
    """The plan is made anew for what holds by then."""
    with running_broker(memory_config()) as broker:

        async def meanwhile(running: Broker) -> Reloaded:
            changes = iter([7, 8])

            def read() -> BrokerConfig:
                limits = attrs.evolve(running.config.limits, max_cursors=next(changes, 9))
                if limits.max_cursors == 7:
                    running.nodes.config = attrs.evolve(running.config, limits=limits)
                return memory_config()

            running._read_again = read
            return await running.reload()

        assert broker.call(meanwhile).changed == ("limits.max_cursors = 10000, was 7",)


def test_a_queue_that_is_made_meanwhile_is_as_the_file_says() -> None:
    """Also where it was made by what the former one said."""
    wanted = memory_config(queue_policies=(QueuePolicy(pattern="q", max_messages=2),))
    with running_broker(memory_config()) as broker:

        async def meanwhile(running: Broker) -> Reloaded:
            def read() -> BrokerConfig:
                trio.from_thread.run(running.nodes.queues.create, "q")
                return wanted

            running._read_again = read
            return await running.reload()

        broker.call(meanwhile)
        assert broker.ask("READ", "queue", name="q")["max_messages"] == 2


def test_listeners_that_open_meanwhile_are_not_overlooked() -> None:
    """A reload that has begun before is prepared again for them, and no other begins while they open."""

    async def main() -> None:
        reads = []

        def read() -> BrokerConfig:
            reads.append("the file")
            return memory_config(limits=BrokerLimits(max_connections=7))

        async with open_broker(memory_config()) as broker:
            creating = broker.nodes.queues.creating
            async with trio.open_nursery() as nursery, creating:
                nursery.start_soon(reload_broker, broker, read)
                while not creating.statistics().tasks_waiting:
                    await trio.lowlevel.checkpoint()
                await broker.start_listeners()
            assert (len(reads), broker.config.limits.max_connections) == (2, 7)
        async with open_broker(memory_config()) as broker, trio.open_nursery() as nursery:
            async with broker._reloading:
                nursery.start_soon(broker.start_listeners)
                await trio.testing.wait_all_tasks_blocked()
                assert broker.configured_listeners == []
            broker.stop(0)

    trio.run(main)


def test_a_signal_that_comes_early_waits_until_the_broker_listens() -> None:
    """So its service manager is not told that it is ready, when the reload is over."""

    async def main() -> None:
        done = trio.Event()

        def read() -> BrokerConfig:
            trio.from_thread.run_sync(done.set)
            return memory_config()

        async with open_broker(memory_config(), read_again=read) as broker, trio.open_nursery() as nursery:
            listening = trio.Event()
            await nursery.start(_reload_at_signals, broker, listening)
            os.kill(os.getpid(), signal.SIGHUP)
            await trio.testing.wait_all_tasks_blocked()
            assert not (broker._reloading.locked() or done.is_set())
            listening.set()
            with trio.fail_after(PATIENCE_S):
                await done.wait()
            nursery.cancel_scope.cancel()

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # of which trio gives back what nobody has taken
    try:
        trio.run(main)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_unused_credit_is_asked_back_after_the_new_time() -> None:
    """Also by what shares the credit of a queue since before."""
    with running_broker(memory_config()) as broker:
        broker.declare("q")

        def shares(running: Broker) -> Any:
            queue = running.nodes.queues.find("q")
            assert queue is not None
            return running.nodes.shares_of(queue)

        before = broker.call(shares)
        reload(broker, memory_config(limits=BrokerLimits(idle_credit_ms=7_000)))
        assert before is broker.call(shares) and before._idle_s() == 7.0


def test_a_new_user_tells_nobody_who_is_none() -> None:
    """The salt of an unknown name stays over a reload, as that of a known one does."""
    with running_broker(SECURE) as broker:

        def salt(running: Broker) -> bytes:
            return running.authenticator._fake_verifier(SCRAM_SHA_256, "nobody").salt

        before = broker.call(salt)
        reload(broker, changed(SECURE, users=(*SECURE.users, UserConfig(name="eve", scram_sha_256=OTHER))))
        assert broker.call(salt) == before


# By $management


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    """A configuration file: who may reload, and who not."""
    path = tmp_path / "broker.toml"
    path.write_text(FILE)
    return path


FILE = f"""
memory = true
[[listener]]
url = "amqp://127.0.0.1:0"
plain_without_tls = true
[[user]]
name = "boss"
scram_sha_256 = "{VERIFIER}"
[[user]]
name = "ada"
scram_sha_256 = "{VERIFIER}"
[[access]]
users = ["boss"]
actions = ["reload"]
nodes = ["$management"]
[[access]]
users = ["*"]
actions = ["connect", "send", "receive", "create", "manage-write"]
nodes = ["**"]
"""


@contextmanager
def of_file(file: Path) -> Iterator[RunningBroker]:
    """A broker that reads this file again."""

    async def reads(running: Broker) -> None:
        running._read_again = lambda: load_configuration(file)

    with running_broker(load_configuration(file)) as broker:
        broker.call(reads)
        yield broker


def url_as(broker: RunningBroker, user: str) -> str:
    """Where this user asks."""
    return broker.url.replace("amqp://", f"amqp://{user}:word@")


def test_the_command_says_what_changed(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the audit log who asked for it; a password is in neither."""
    sink, written = log_setup._Sink(), io.StringIO()
    monkeypatch.setattr(log_setup, "_sink", sink)
    log_setup.configure_logging(memory_config(logging=LoggingConfig(format="json")), written)
    with of_file(file) as broker:
        of_ada = FILE[: FILE.index('"ada"')] + FILE[FILE.index('"ada"') :].replace(VERIFIER, OTHER)
        file.write_text(f'container_id = "other"\n{of_ada}')
        assert main(["reload", "--url", url_as(broker, "boss")]) == 0
        assert capsys.readouterr().out == (
            'changed: user "ada": scram_sha_256 is another one\n'
            'at the next start: container_id = "other", was "amqp-broker"\n'
            "0 connections closed\n"
        )
        assert main(["reload", "--json", "--url", url_as(broker, "boss")]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["changed"], found["closed_connections"], found["not_made"]) == ([], 0, [])
        file.write_text("memory = 1")
        assert main(["reload", "--url", url_as(broker, "boss")]) == 1
        assert "409: nothing was changed: memory = 1: must be true or false" in capsys.readouterr().err
    lines = [json.loads(line) for line in written.getvalue().splitlines()]
    audit = [line for line in lines if line["event"] == "audit.done"]
    assert [(line["operation"], line["type"], line["principal"]) for line in audit] == [
        ("RELOAD", "broker", "boss")
    ] * 2
    assert [line["event"] for line in lines].count("configuration.refused") == 1
    assert OTHER not in written.getvalue() and VERIFIER not in written.getvalue()


@pytest.mark.parametrize("text", ["", "memory = true\n"])
def test_a_file_that_is_cut_off_opens_nothing(
    file: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """As an editor leaves it between two writes: the users are still those that there were."""
    with of_file(file) as broker:
        file.write_text(text)
        assert main(["reload", "--url", url_as(broker, "boss")]) == 1
        assert "only a start can open the broker to everybody" in capsys.readouterr().err
        with pytest.raises(LoginRefused):
            connect(broker.url)


def test_a_file_that_changes_while_it_is_read_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written to, or replaced by another one."""
    read = os.fstat

    def written(descriptor: int) -> os.stat_result:
        found = read(descriptor)
        file.write_text(FILE + "\n")
        return found

    def replaced_by_another(descriptor: int) -> os.stat_result:
        found = read(descriptor)
        other = file.with_name("other.toml")
        other.write_text(FILE)
        os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
        other.rename(file)
        return found

    for change in (written, replaced_by_another):
        file.write_text(FILE)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fstat", change)
            with pytest.raises(ConfigurationError, match="was changed while it was read: try again"):
                load_configuration(file)


def test_a_pipe_is_no_file_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written while it is read."""
    read_end, write_end = os.pipe()
    read = os.fstat

    def written(descriptor: int) -> os.stat_result:
        found = read(descriptor)
        with open(write_end, "w") as writing:
            writing.write(FILE)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", written)
        config = load_configuration(f"/dev/fd/{read_end}")
    os.close(read_end)
    assert [user.name for user in config.users] == ["boss", "ada"]


def test_only_who_has_the_right_can(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """manage-write is none, and neither is the right elsewhere."""
    with of_file(file) as broker:
        assert main(["reload", "--url", url_as(broker, "ada")]) == 1
    assert f"403: 'ada' may not {RELOAD} at '$management'" in capsys.readouterr().err


def test_without_a_file_there_is_nothing_to_read(capsys: pytest.CaptureFixture[str]) -> None:
    """And the answer says so."""
    with running_broker() as broker:
        assert main(["reload", "--url", broker.url]) == 1
    assert "409: nothing was changed: the broker was started without a configuration file" in (
        capsys.readouterr().err
    )


def test_a_thousand_changes_are_told_as_a_number() -> None:
    """The first ones as they are."""
    lines = tuple(f"user {number}: new" for number in range(1_000))
    assert told(lines) == [*lines[:TOLD_MAX], "and 900 more"]
    assert told(lines[:TOLD_MAX]) == [*lines[:TOLD_MAX]]


