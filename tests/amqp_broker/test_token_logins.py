"""Logins by SCRAM-SHA-1, bound to TLS, by rules on certificates and by tokens, over real sockets."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
import scramp
import trio

from amqp_broker.authorisation import CONNECT, CREATE, RECEIVE
from amqp_broker.client import LinkRefused, LoginRefused
from amqp_broker.client.async_client import open_client
from amqp_broker.client.blocking import connect
from amqp_broker.client.errors import ConnectionGone
from amqp_broker.configuration import (
    AccessRule,
    BrokerConfig,
    ConfigurationError,
    TokenIssuerConfig,
    UserConfig,
)
from amqp_broker.embedding import memory_config, running_broker
from amqp_broker.frames import AMQP_HEADER, SASL_HEADER, encode_sasl_frame
from amqp_broker.frames.sasl import SaslChallenge, SaslInit, SaslOutcome, SaslResponse
from amqp_broker.sasl_mechanisms import END_POINT
from amqp_broker.verifiers import SCRAM_SHA_1, make_verifier
from tests.amqp_broker.test_listener import Keys
from tests.amqp_broker.test_listener import keys as keys
from tests.amqp_broker.test_logins import (
    ADA,
    LIMITS,
    PLAIN_LISTENER,
    RULES,
    SALT,
    SaslSocket,
    config,
    dialled,
    mutual,
)
from tests.support.tokens import AUDIENCE, ISSUER, token, write_jwks

OLD = UserConfig(name="old", scram_sha_1=str(make_verifier(SCRAM_SHA_1, "word", 4_096, SALT)))
RULE = AccessRule(users=("*",), actions=(CONNECT,))


def test_scram_sha_1_is_for_who_has_such_a_verifier() -> None:
    """OASIS has it as SHOULD: by configuration, and never beside others for a user who has none."""
    with running_broker(config(users=(ADA, OLD), access_rules=(RULE,))) as broker:
        with dialled(broker) as client:
            assert client.mechanisms() == ("SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN")
        with dialled(broker) as client:
            client.mechanisms()
            assert scram(client, "SCRAM-SHA-1", "old", "word") == 0
        with dialled(broker) as client:
            client.mechanisms()
            assert scram(client, "SCRAM-SHA-1", "ada", "word") == 1
    with running_broker(config(access_rules=(RULE,))) as broker, dialled(broker) as client:
        assert "SCRAM-SHA-1" not in client.mechanisms()
    with running_broker(config(users=(OLD,), access_rules=(RULE,))) as broker:
        with connect(broker.url, container_id="c", user="old", password="word"):
            pass
        with pytest.raises(LoginRefused):
            connect(broker.url, container_id="c", user="old", password="wrong")


def scram(client: Any, name: str, user: str, password: str, binding: Any = None) -> int:
    """The code of the outcome, by scramp's client."""
    machine = scramp.ScramClient([name], user, password, channel_binding=binding)
    first = machine.get_client_first()
    client.say(encode_sasl_frame(SaslInit(mechanism=name, initial_response=first.encode())))
    answer = client.hear()
    if isinstance(answer, SaslChallenge):
        machine.set_server_first(answer.challenge.decode())
        client.say(encode_sasl_frame(SaslResponse(response=machine.get_client_final().encode())))
        answer = client.hear()
    assert isinstance(answer, SaslOutcome)
    return int(answer.code)


def channel_of(client: SaslSocket) -> ssl.SSLSocket:
    """Its TLS."""
    assert isinstance(client.transport, ssl.SSLSocket)
    return client.transport


def test_a_login_is_bound_to_the_certificate_that_was_shown(keys: Keys) -> None:
    """Both sides take tls-server-end-point, and another certificate's proof is none."""
    with running_broker(config(listeners=(mutual(keys),))) as broker:
        for name in ("SCRAM-SHA-512-PLUS", "SCRAM-SHA-256-PLUS"):
            with dialled(broker, keys.client()) as client:
                client.mechanisms()
                assert scram(client, name, "ada", "word", (END_POINT, channel_of(client))) == 0
            with dialled(broker, keys.client()) as client:
                client.mechanisms()
                assert scram(client, name, "ada", "word", (END_POINT, b"x" * 32)) == 1
            with dialled(broker, keys.client()) as client:
                client.mechanisms()
                assert scram(client, name, "ada", "wrong", (END_POINT, channel_of(client))) == 1


def test_who_could_bind_and_was_told_otherwise_is_refused(keys: Keys) -> None:
    """`y`: somebody between has taken the -PLUS mechanisms out of the offer."""
    with running_broker(config(listeners=(mutual(keys),))) as broker:
        with dialled(broker, keys.client()) as client:
            client.mechanisms()
            could = (END_POINT, channel_of(client))  # with which scramp says `y` where it takes no -PLUS
            assert scram(client, "SCRAM-SHA-256", "ada", "word", could) == 1
        with dialled(broker, keys.client()) as client:
            client.mechanisms()
            assert scram(client, "SCRAM-SHA-256", "ada", "word") == 0


def test_our_client_binds_where_it_can(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both shells of it; what it chose is seen from what the broker would refuse."""
    from amqp_broker.client import sasl

    chosen: list[str] = []
    choose = sasl.Login.choose

    def watched(self: sasl.Login, offered: Any) -> tuple[str, bytes | None]:
        answer = choose(self, offered)
        chosen.append(answer[0])
        return answer

    monkeypatch.setattr(sasl.Login, "choose", watched)
    listener = keys.listener()
    with running_broker(config(listeners=(listener,))) as broker:
        with connect(broker.url, container_id="c", user="ada", password="word", ssl_context=trusting(keys)):
            pass

        async def asynchronously() -> None:
            async with open_client(
                broker.url, container_id="c", user="ada", password="word", ssl_context=trusting(keys)
            ):
                pass

        trio.run(asynchronously)
    assert chosen == ["SCRAM-SHA-512-PLUS"] * 2


def trusting(keys: Keys) -> ssl.SSLContext:
    """A client's settings without a certificate of its own."""
    return keys.client()


def test_a_certificate_is_the_users_whose_rule_it_keeps(keys: Keys) -> None:
    """By subject and alternative name; a certificate of two users is nobody's."""
    till = UserConfig(name="till", certificates=("CN=till-*",))
    mail = UserConfig(name="mail", certificates=("email=bob@*.com",))
    users = (ADA, till, mail)
    with running_broker(config(users=users, listeners=(mutual(keys),), access_rules=(RULE,))) as broker:
        for name, offered in (("till-7", True), ("till", False), ("bob", True), ("ada", True)):
            with dialled(broker, keys.client(name)) as client:
                assert ("EXTERNAL" in client.mechanisms()) is offered, name
        with dialled(broker, keys.client("till-7")) as client:
            client.mechanisms()
            assert client.log_in("EXTERNAL", b"till") == 0
        with dialled(broker, keys.client("till-7")) as client:
            client.mechanisms()
            assert client.log_in("EXTERNAL", b"ada") == 1
    every = UserConfig(name="every", certificates=("CN=*",))
    both = config(users=(*users, every), listeners=(mutual(keys),), access_rules=(RULE,))
    with running_broker(both) as broker:
        with dialled(broker, keys.client("till-7")) as client:
            assert "EXTERNAL" not in client.mechanisms()


# Tokens


def token_config(tmp_path: Path, **changes: Any) -> BrokerConfig:
    """A broker that takes tokens of one issuer, for ada and whoever has a role."""
    issuer = TokenIssuerConfig(
        issuer=ISSUER, audience=AUDIENCE, jwks_file=write_jwks(tmp_path / "keys.json", k1="one"),
        roles_claim="roles", any_user=changes.pop("any_user", False),
    )  # fmt: skip
    nodes = ("tills.*", "orders.done")
    rules = (*RULES, AccessRule(roles=("till",), actions=(CONNECT, CREATE, RECEIVE), nodes=nodes))
    return attrs.evolve(
        memory_config(
            users=(UserConfig(name="ada"),), access_rules=rules, token_issuers=(issuer,),
            listeners=(PLAIN_LISTENER,), limits=LIMITS,
        ),
        **changes,
    )  # fmt: skip


@pytest.mark.parametrize("only", ["OAUTHBEARER", "XOAUTH2"])
def test_a_token_logs_in_with_the_rights_of_its_user_and_roles(
    tmp_path: Path, only: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user of the configuration has what rules say, and the roles of the token are added."""
    from amqp_broker.client import sasl

    monkeypatch.setattr(sasl, "TOKEN", (only,))
    with running_broker(token_config(tmp_path)) as broker:
        with connect(broker.url, container_id="c", token=token("ada")) as client:
            client.open_sender("orders.new")
            with pytest.raises(LinkRefused):
                client.open_receiver("tills.one")
        with connect(broker.url, container_id="c", user="ada", token=token("ada", roles=["till"])) as client:
            client.open_receiver("tills.one")
        for wrong in (token("bob", roles=["till"]), token("ada", aud="x"), "nonsense"):
            with pytest.raises(LoginRefused):
                connect(broker.url, container_id="c", token=wrong)
        with pytest.raises(LoginRefused):
            connect(broker.url, container_id="c", user="bob", token=token("ada"))


def test_an_issuer_may_prove_users_whom_nobody_has_configured(tmp_path: Path) -> None:
    """They have the rights of their roles, and nothing by their name."""
    with running_broker(token_config(tmp_path, any_user=True)) as broker:
        with connect(broker.url, container_id="c", token=token("bob", roles="other till")) as client:
            client.open_receiver("tills.one")
            with pytest.raises(LinkRefused):
                client.open_sender("orders.new")
        with pytest.raises(ConnectionGone, match="may not connect"):
            with connect(broker.url, container_id="c", token=token("bob")) as client:
                client.open_sender("orders.new")


def test_a_connection_ends_with_its_token(tmp_path: Path) -> None:
    """Its client is told why; a token for longer goes on."""
    leeway = 0
    base = token_config(tmp_path)
    issuers = (attrs.evolve(base.token_issuers[0], leeway_s=leeway),)
    with running_broker(attrs.evolve(base, token_issuers=issuers)) as broker:
        with connect(broker.url, container_id="long", token=token("ada")) as long:
            short = token("ada", roles=["till"], exp=int(time.time()) + 3)
            with connect(broker.url, container_id="c", token=short) as client:
                receiver = client.open_receiver("orders.done")
                with pytest.raises(ConnectionGone, match="the token of the login has expired"):
                    receiver.receive()
            long.open_sender("orders.new")


def test_a_token_is_not_asked_for_in_the_clear(tmp_path: Path, keys: Keys) -> None:
    """As a password: inside TLS, or on a loopback listener that says so."""
    from amqp_broker.configuration import ListenerConfig

    clear = ListenerConfig(url="amqp://127.0.0.1:0")
    with running_broker(token_config(tmp_path, listeners=(clear, PLAIN_LISTENER))) as broker:
        with dialled(broker) as client:
            client.say(SASL_HEADER)
            assert client.hear_header() == AMQP_HEADER  # there is nothing to offer
    with running_broker(token_config(tmp_path, listeners=(keys.listener(),))) as broker:
        with connect(broker.url, container_id="c", token=token("ada"), ssl_context=trusting(keys)) as client:
            client.open_sender("orders.new")


def test_a_frame_with_a_token_has_its_own_bound(tmp_path: Path) -> None:
    """limits.token_bytes instead of the standard's 512 octets, and only where tokens are taken."""
    with running_broker(token_config(tmp_path)) as broker:
        with dialled(broker) as client:
            client.mechanisms()
            init = SaslInit(mechanism="XOAUTH2", initial_response=b"x" * LIMITS.token_bytes)
            client.say(encode_sasl_frame(init, 100_000))
            assert client.hear() is None
        with dialled(broker) as client:
            client.mechanisms()
            init = SaslInit(mechanism="XOAUTH2", initial_response=b"x" * (LIMITS.token_bytes - 100))
            client.say(encode_sasl_frame(init, 100_000))
            assert isinstance(client.hear(), SaslOutcome)


def test_keys_that_cannot_be_read_end_the_start(tmp_path: Path) -> None:
    """With a sentence that names the file."""
    config = token_config(tmp_path)
    os.remove(tmp_path / "keys.json")
    with pytest.raises((ConfigurationError, BaseExceptionGroup)) as raised:
        with running_broker(config):
            pass
    assert "keys.json" in repr(raised.value)


def test_without_tokens_and_websockets_nothing_of_them_is_loaded() -> None:
    """Time and memory of every broker that has none."""
    code = (
        "import sys; from amqp_broker.embedding import memory_config, running_broker\n"
        "with running_broker(memory_config()): pass\n"
        "rare = {'jwt', 'cryptography', 'websockets', 'urllib.request', 'amqp_broker.tokens',"
        " 'amqp_broker.websocket', 'amqp_broker.token_mechanisms', 'scramp'}\n"
        "print(sorted(rare & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
