"""Logging in: which mechanism, and its steps against the broker's own machines."""

from __future__ import annotations

import pytest
from scramp import ScramMechanism

from amqp_broker.client import sasl
from amqp_broker.client.errors import LoginRefused
from amqp_broker.client.sasl import Login
from amqp_broker.client.settings import ClientSettings, Endpoint
from amqp_broker.sasl_mechanisms import Challenge, Failure, Plain, Scram, Success
from amqp_broker.verifiers import SCRAM_SHA_256, SCRAM_SHA_512, Verifier, make_verifier

ALL = ("SCRAM-SHA-256", "PLAIN", "ANONYMOUS", "SCRAM-SHA-512", "EXTERNAL")
VERIFIERS = {
    name: make_verifier(name, "word", 4_096, bytes(range(16))) for name in (SCRAM_SHA_256, SCRAM_SHA_512)
}


def login(
    user: str | None = "ada", password: str = "word", *, tls: bool = False, host: str = "127.0.0.1"
) -> Login:
    """A login at an endpoint."""
    settings = ClientSettings(container_id="c", user=user, password=password)
    return Login(settings, Endpoint(host, 5671, tls))


def begun(mechanism: str, password: str = "word") -> tuple[Login, bytes]:
    """A login with this mechanism, and its first message."""
    client = login(password=password)
    chosen, first = client.choose((mechanism,))
    assert chosen == mechanism and first is not None
    return client, first


def scram_server(mechanism: str) -> Scram:
    """The broker's end."""

    def verifier_of(name: str) -> tuple[Verifier, bool]:
        return VERIFIERS[mechanism], name == "ada"

    return Scram(mechanism, verifier_of)


@pytest.mark.parametrize(
    ("user", "tls", "host", "offered", "chosen"),
    [
        ("ada", False, "127.0.0.1", ALL, "SCRAM-SHA-512"),
        ("ada", False, "127.0.0.1", ("ANONYMOUS", "SCRAM-SHA-256", "PLAIN"), "SCRAM-SHA-256"),
        ("ada", False, "localhost", ("ANONYMOUS", "PLAIN"), "PLAIN"),
        ("ada", True, "broker.example", ("PLAIN",), "PLAIN"),
        (None, False, "127.0.0.1", ALL, "ANONYMOUS"),
        (None, True, "broker.example", ALL, "EXTERNAL"),
        (None, True, "broker.example", ("ANONYMOUS",), "ANONYMOUS"),
    ],
)
def test_the_strongest_that_both_can_is_chosen(
    user: str | None, tls: bool, host: str, offered: tuple[str, ...], chosen: str
) -> None:
    """By what we have to show, and never a password in the clear where others listen."""
    assert login(user, tls=tls, host=host).choose(offered)[0] == chosen


@pytest.mark.parametrize("offered", [("PLAIN", "ANONYMOUS"), ()])
def test_a_password_is_not_sent_in_the_clear(offered: tuple[str, ...]) -> None:
    """Nor is a user turned into nobody."""
    with pytest.raises(LoginRefused, match=r"SCRAM-SHA-1 for user 'ada', .* \(PLAIN needs TLS\)"):
        login(host="broker.example").choose(offered)


def test_plain_in_the_clear_can_be_allowed() -> None:
    """By whoever knows the network."""
    settings = ClientSettings(container_id="c", user="ada", password="word", plain_without_tls=True)
    client = Login(settings, Endpoint("broker.example", 5672, tls=False))
    assert client.choose(("PLAIN",)) == ("PLAIN", b"\0ada\0word")
    assert isinstance(Plain(lambda name: (VERIFIERS[SCRAM_SHA_256], True)).step(b"\0ada\0word"), Success)


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
def test_scram_proves_both_sides(mechanism: str) -> None:
    """Against the broker's own machine, with the server's signature in the outcome."""
    client, first = begun(mechanism)
    server = scram_server(mechanism)
    challenge = server.step(first)
    assert isinstance(challenge, Challenge)
    answer = server.step(client.respond(challenge.data))
    assert isinstance(answer, Success)
    client.succeeded(answer.additional_data)


def test_scram_with_the_signature_in_a_challenge() -> None:
    """Some servers send server-final as a challenge; the response to it is empty."""
    client, first = begun(SCRAM_SHA_256)
    server = scram_server(SCRAM_SHA_256)
    challenge = server.step(first)
    assert isinstance(challenge, Challenge)
    answer = server.step(client.respond(challenge.data))
    assert isinstance(answer, Success) and answer.additional_data is not None
    assert client.respond(answer.additional_data) == b""
    client.succeeded(None)


def test_a_wrong_password_does_not_convince_the_server() -> None:
    """The proof is another one."""
    client, first = begun(SCRAM_SHA_256, "other")
    server = scram_server(SCRAM_SHA_256)
    challenge = server.step(first)
    assert isinstance(challenge, Challenge)
    assert isinstance(server.step(client.respond(challenge.data)), Failure)


@pytest.mark.parametrize("data", [None, b"", b"v=AAAA", b"e=other-error", b"\xff"])
def test_a_server_without_the_password_is_found_out(data: bytes | None) -> None:
    """Whoever says yes to everything cannot sign."""
    client, first = begun(SCRAM_SHA_256)
    challenge = scram_server(SCRAM_SHA_256).step(first)
    assert isinstance(challenge, Challenge)
    client.respond(challenge.data)
    with pytest.raises(LoginRefused, match="the peer did not prove that it knows user 'ada'"):
        client.succeeded(data)


def test_success_before_any_proof_is_none() -> None:
    """An outcome right after the first message skips the server's part."""
    client, _ = begun(SCRAM_SHA_256)
    with pytest.raises(LoginRefused, match="did not prove"):
        client.succeeded(b"v=AAAA")


@pytest.mark.parametrize("challenge", [b"", b"r=x", b"r=other,s=AAAA,i=4096", b"\xff", b"e=unknown-user"])
def test_a_challenge_that_makes_no_sense(challenge: bytes) -> None:
    """The login ends with an error, and no proof is given."""
    client, _ = begun(SCRAM_SHA_256)
    with pytest.raises(LoginRefused):
        client.respond(challenge)


def test_a_peer_that_only_wants_to_keep_us_busy() -> None:
    """The iterations of PBKDF2 are the server's word, and bounded."""
    mechanism = ScramMechanism(SCRAM_SHA_256)
    client, first = begun(SCRAM_SHA_256)
    keys = mechanism.make_auth_info("word", iteration_count=4_096)
    server = mechanism.make_server(lambda name: keys)
    server.set_client_first(first.decode())
    challenge = server.get_server_first().replace("i=4096", f"i={sasl.ITERATIONS_MAX + 1}")
    with pytest.raises(LoginRefused, match="expected at most 1000000 iterations"):
        client.respond(challenge.encode())


@pytest.mark.parametrize("mechanism", ["PLAIN", "ANONYMOUS"])
def test_a_challenge_where_none_belongs(mechanism: str) -> None:
    """These mechanisms say all they have to say at once."""
    client = login("ada" if mechanism == "PLAIN" else None)
    client.choose((mechanism,))
    with pytest.raises(LoginRefused, match=f"expected the outcome of {mechanism}, but a challenge came"):
        client.respond(b"")


def test_secrets_are_not_printed() -> None:
    """Neither in a repr nor in an error."""
    client = login(password="s3cret")
    client.choose(("PLAIN",))
    assert "s3cret" not in repr(client) + str(client.refused(1)) + repr(vars(client)["user"])
