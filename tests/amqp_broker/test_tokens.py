"""Bearer tokens: whom they prove, and what proves nothing."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from cryptography.hazmat.primitives import serialization

from amqp_broker import tokens as module
from amqp_broker.authorisation import Principal
from amqp_broker.configuration import ConfigurationError, TokenIssuerConfig
from amqp_broker.sasl_mechanisms import Challenge, Failure, Success
from amqp_broker.token_mechanisms import INVALID, OAUTHBEARER, XOAUTH2, Bearer
from amqp_broker.tokens import JWKS_BYTES_MAX, Holder, KeysUnusable, TokenRefused, Tokens, fetched
from tests.support.tokens import AUDIENCE, ISSUER, ec_key, jwks, rsa_key, token, write_jwks


def issuer(**changes: Any) -> TokenIssuerConfig:
    """The usual one, whose keys come from a file."""
    return TokenIssuerConfig(**{"issuer": ISSUER, "audience": AUDIENCE, **changes})


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    """With two keys in a file, of two kinds."""
    file = write_jwks(tmp_path / "keys.json", k1="one", ec1="one")
    return Tokens((issuer(jwks_file=file, roles_claim="roles"),))


def test_a_token_proves_its_holder_for_as_long_as_it_says(tokens: Tokens) -> None:
    """Name, roles and time come from the claims; either key will do."""
    holder = tokens.holder(token("ada", roles=["till", "shop"]))
    assert (holder.name, holder.roles, holder.any_user) == ("ada", ("till", "shop"), False)
    assert 290 < holder.lasts_s <= 310  # with the leeway
    assert tokens.holder(token("bob", key=ec_key("one"), algorithm="ES256", kid="ec1")).name == "bob"
    assert tokens.holder(token(roles="a b")).roles == ("a", "b")
    assert tokens.holder(token()).roles == ()


def text_of(algorithm: str) -> str:
    """A token but for its signature, with everything else as it should be."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": 2**40}
    parts = (json.dumps(part).encode() for part in ({"alg": algorithm, "kid": "k1"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def unsigned() -> str:
    """`alg: none`, the oldest trick."""
    return text_of("none") + "."


def signed_with_the_public_key() -> str:
    """HS256 with what everybody knows as its secret, the second oldest."""
    pem = rsa_key("one").public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    text = text_of("HS256")
    proof = hmac.digest(pem, text.encode(), hashlib.sha256)
    return f"{text}.{base64.urlsafe_b64encode(proof).decode().rstrip('=')}"


REFUSED = {
    "no token": lambda: "no token",
    "nothing": lambda: "",
    "dots": lambda: "..",
    "unsigned": unsigned,
    "by the public key": signed_with_the_public_key,
    "another issuer's key": lambda: token(key=rsa_key("other")),
    "an unknown key": lambda: token(kid="k2"),
    "no key's name, of two": lambda: token(kid=None),
    "another key's name": lambda: token(kid="ec1"),
    "expired": lambda: token(exp=int(time.time()) - 60),
    "no end": lambda: token(exp=None),
    "an end that is none": lambda: token(exp="soon"),
    "not yet": lambda: token(nbf=int(time.time()) + 60),
    "for somebody else": lambda: token(aud="another broker"),
    "for nobody": lambda: token(aud=None),
    "of an unknown issuer": lambda: token(iss="https://other.example/"),
    "of no issuer": lambda: token(iss=None),
    "no name": lambda: token(None),
    "everybody": lambda: token("*"),
    "anonymous": lambda: token("anonymous"),
    "a name of two lines": lambda: token("a\nb"),
    "a number": lambda: token(7),  # type: ignore[arg-type]
    "too many roles": lambda: token(roles=["r"] * 300),
    "roles that are none": lambda: token(roles={"a": 1}),
}


@pytest.mark.parametrize("made", REFUSED.values(), ids=REFUSED)
def test_what_proves_nothing_is_refused(tokens: Tokens, made: Any) -> None:
    """Each is TokenRefused, whose text shows nothing of the token."""
    text = made()
    with pytest.raises(TokenRefused) as refused:
        tokens.holder(text)
    for part in text.split("."):
        assert len(part) < 12 or part not in str(refused.value)


def test_a_token_is_not_changed_on_the_way(tokens: Tokens) -> None:
    """Every single octet of it counts."""
    right = token()
    for at in range(0, len(right), 7):
        # The last letter before a dot has bits that stand for nothing.
        if right[at] == "." or right[at + 1 : at + 2] in (".", ""):
            continue
        wrong = right[:at] + ("A" if right[at] != "A" else "B") + right[at + 1 :]
        with pytest.raises(TokenRefused):
            tokens.holder(wrong)


def test_a_file_of_keys_that_changes_is_read_again(tmp_path: Path) -> None:
    """A new key counts at once, and one that is gone does not any more."""
    file = tmp_path / "keys.json"
    tokens = Tokens((issuer(jwks_file=write_jwks(file, k1="one")),))
    tokens.load()
    assert tokens.holder(token()).name == "ada"
    write_jwks(file, k2="other")
    os.utime(file, ns=(1, 1))
    assert tokens.holder(token(key=rsa_key("other"), kid="k2")).name == "ada"
    with pytest.raises(TokenRefused):
        tokens.holder(token())
    file.write_text("{")
    with pytest.raises(KeysUnusable, match="keys.json"):
        tokens.holder(token(key=rsa_key("other"), kid="k2"))


def test_the_only_key_needs_no_name(tmp_path: Path) -> None:
    """RFC 7515: `kid` is a hint."""
    tokens = Tokens((issuer(jwks_file=write_jwks(tmp_path / "keys.json", k1="one")),))
    assert tokens.holder(token(kid=None)).name == "ada"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": []}', '{"keys": 7}', " " * (JWKS_BYTES_MAX + 1)])
def test_keys_that_are_none_are_told_at_the_start(tmp_path: Path, text: str) -> None:
    """The file is named."""
    file = tmp_path / "keys.json"
    file.write_text(text)
    with pytest.raises(KeysUnusable, match="keys.json"):
        Tokens((issuer(jwks_file=str(file)),)).load()
    with pytest.raises(KeysUnusable, match="missing"):
        Tokens((issuer(jwks_file=str(tmp_path / "missing")),)).load()


def test_too_many_keys_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JWKS_KEYS_MAX."""
    monkeypatch.setattr(module, "JWKS_KEYS_MAX", 1)
    with pytest.raises(KeysUnusable, match="2 keys, more than 1"):
        Tokens((issuer(jwks_file=write_jwks(tmp_path / "keys.json", k1="one", k2="other")),)).load()


class _Keys(http.server.BaseHTTPRequestHandler):
    """Answers with `answers`, one after the other, the last for ever."""

    answers: list[tuple[int, bytes]]
    asked: int

    def do_GET(self) -> None:
        """One answer."""
        status, body = type(self).answers[min(type(self).asked, len(type(self).answers) - 1)]
        type(self).asked += 1
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def key_server(*answers: tuple[int, bytes]) -> Iterator[tuple[str, type[_Keys]]]:
    """Its URL, and its handler, which counts."""
    handler = type("Handler", (_Keys,), {"answers": list(answers), "asked": 0})
    with http.server.HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/keys", handler
        finally:
            server.shutdown()
            thread.join()


def test_keys_are_fetched_once_and_again_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each token, and not for each token that names a key that nobody has."""
    now = [1_000.0]
    monkeypatch.setattr("amqp_broker.tokens.time.monotonic", lambda: now[0])
    first, second = (json.dumps(keys).encode() for keys in (jwks(k1="one"), jwks(k1="one", k2="other")))
    with key_server((200, first), (200, second)) as (url, handler):
        tokens = Tokens((issuer(jwks_url=url),))
        for _ in range(3):
            assert tokens.holder(token()).name == "ada"
        assert handler.asked == 1
        new = token(key=rsa_key("other"), kid="k2")
        for _ in range(3):
            with pytest.raises(TokenRefused):
                tokens.holder(new)
        assert handler.asked == 1  # not again within JWKS_AGAIN_S
        now[0] += module.JWKS_AGAIN_S
        assert tokens.holder(new).name == "ada"
        assert handler.asked == 2
        now[0] += module.JWKS_FRESH_S
        tokens.holder(new)
        assert handler.asked == 3


def test_what_was_fetched_holds_while_the_issuer_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """For JWKS_STALE_S; then nothing of it is trusted."""
    now = [1_000.0]
    monkeypatch.setattr("amqp_broker.tokens.time.monotonic", lambda: now[0])
    with key_server((200, json.dumps(jwks(k1="one")).encode()), (500, b"")) as (url, handler):
        tokens = Tokens((issuer(jwks_url=url),))
        tokens.holder(token())
        now[0] += module.JWKS_FRESH_S
        assert tokens.holder(token()).name == "ada"
        assert handler.asked == 2
        now[0] += module.JWKS_STALE_S
        with pytest.raises(KeysUnusable, match="127.0.0.1"):
            tokens.holder(token())
        with pytest.raises(TokenRefused):
            tokens.holder(token())


def test_an_answer_that_is_no_http_is_no_answer() -> None:
    """The issuer is away, and its keys hold; a broker is not at fault for it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(65_536)
                peer.sendall(b"garbage\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/keys"
        with pytest.raises(KeysUnusable, match="cannot be fetched"):
            Tokens((issuer(jwks_url=url),)).holder(token())
        thread.join()


def test_an_answer_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """In size (JWKS_BYTES_MAX), in time (JWKS_TIMEOUT_S), and in place: no redirection is followed."""
    with key_server((200, b"x" * (JWKS_BYTES_MAX + 100_000))) as (url, _):
        assert JWKS_BYTES_MAX < len(fetched(url)) <= JWKS_BYTES_MAX + module.READ_BYTES
        with pytest.raises(KeysUnusable, match="more than"):
            Tokens((issuer(jwks_url=url),)).holder(token())
        monkeypatch.setattr(module, "JWKS_TIMEOUT_S", 0.0001)
        with pytest.raises(OSError):
            fetched(url)
    monkeypatch.undo()
    with key_server((302, b"")) as (url, _), pytest.raises(OSError, match="302"):
        fetched(url)


@pytest.mark.parametrize(
    "url", ["http://issuer.example/", "file:///etc/passwd", "ftp://127.0.0.1/", "https://", "https://a:b@c/"]
)
def test_keys_come_by_https_or_from_this_machine(url: Any) -> None:
    """What is read on the way can be changed on the way."""
    with pytest.raises(ConfigurationError, match="jwks_url"):
        issuer(jwks_url=url)


def test_an_issuer_has_its_keys_in_one_place() -> None:
    """A file or a URL."""
    with pytest.raises(ConfigurationError, match="jwks_file"):
        issuer()
    with pytest.raises(ConfigurationError, match="jwks_file"):
        issuer(jwks_file="a", jwks_url="https://a/")


# The mechanisms


def bearer(mechanism: str, known: str = "ada") -> Bearer:
    """One login, at a broker that takes the token `good` for ada."""

    def holder_of(text: str) -> Holder:
        if text != "good":
            raise TokenRefused("expected good")
        return Holder("ada", (), 7.0, False)

    def user_of(holder: Holder) -> Principal | None:
        return Principal(holder.name, mechanism) if holder.name == known else None

    return Bearer(mechanism, holder_of, user_of)


GOOD = [
    (OAUTHBEARER, b"n,,\1auth=Bearer good\1\1"),
    (OAUTHBEARER, b"n,a=ada,\1host=h\1port=1\1auth=Bearer good\1\1"),
    (OAUTHBEARER, b"y,,\1auth=bearer good\1\1"),
    (XOAUTH2, b"user=ada\1auth=Bearer good\1\1"),
    (XOAUTH2, b"user=\1auth=Bearer good\1\1"),
]
BAD = [
    b"",
    b"good",
    b"n,,\1auth=Bearer bad\1\1",
    b"user=ada\1auth=Bearer bad\1\1",
    b"n,a=bob,\1auth=Bearer good\1\1",
    b"user=bob\1auth=Bearer good\1\1",
    b"n,,\1auth=Bearer good\1",
    b"n,,\1auth=Bearer \1\1",
    b"n,,\1auth=Basic good\1\1",
    b"n,,\1auth=Bearer good\1auth=Bearer good\1\1",
    b"p=tls-unique,,\1auth=Bearer good\1\1",
    b"\xff\xfe",
]


@pytest.mark.parametrize(("mechanism", "response"), GOOD)
def test_a_good_token_logs_in(mechanism: str, response: bytes) -> None:
    """With or without the name before it, at once or after a challenge; it lasts as long as the token."""
    assert bearer(mechanism).step(response) == Success(Principal("ada", mechanism), lasts_s=7.0)
    late = bearer(mechanism)
    assert late.step(None) == Challenge(b"")
    assert isinstance(late.step(response), Success)


@pytest.mark.parametrize("mechanism", [OAUTHBEARER, XOAUTH2])
@pytest.mark.parametrize("response", BAD)
def test_anything_else_fails_once_it_was_told_why(mechanism: str, response: bytes) -> None:
    """What is no token fails at once; a token that is refused is told so, and then fails whatever comes."""
    login = bearer(mechanism)
    answer = login.step(response)
    if answer == Challenge(INVALID):
        answer = login.step(b"n,,\1auth=Bearer good\1\1")
    assert isinstance(answer, Failure)
    assert "good" not in answer.reason.removesuffix("expected good")


@pytest.mark.parametrize(("mechanism", "response"), GOOD)
def test_a_token_of_nobody_fails(mechanism: str, response: bytes) -> None:
    """It is good, and no user's."""
    login = bearer(mechanism, known="bob")
    assert login.step(response) == Challenge(INVALID)
    answer = login.step(b"\1")
    assert isinstance(answer, Failure) and answer.name == "ada"


def test_a_holder_is_compared_by_value() -> None:
    """As attrs has it; the test of roles relies on it."""
    assert attrs.evolve(Holder("a", (), 1.0, False), name="b") == Holder("b", (), 1.0, False)
