"""SASL on the server's side: every mechanism, what is offered where, and what a failure tells."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import scramp
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.authentication import (
    RESPONSE_BYTES_MAX,
    Authenticator,
    Challenge,
    Failure,
    Step,
    Success,
)
from amqp_broker.authorisation import ANONYMOUS, Principal
from amqp_broker.certificates import Certificate
from amqp_broker.configuration import BrokerConfig, BrokerLimits, ListenerConfig, UserConfig
from amqp_broker.frames import encode_sasl_frame
from amqp_broker.frames.sasl import SaslChallenge, SaslOutcome
from amqp_broker.listener import PeerInfo
from amqp_broker.sasl_mechanisms import split_identity
from amqp_broker.verifiers import SCRAM_SHA_256, SCRAM_SHA_512, make_verifier

SALT = bytes(range(16))
MECHANISMS = [SCRAM_SHA_256, SCRAM_SHA_512]
DELAY_MS = 750

ADA = UserConfig(
    name="ada",
    scram_sha_256=str(make_verifier(SCRAM_SHA_256, "word", 4_096, SALT)),
    scram_sha_512=str(make_verifier(SCRAM_SHA_512, "word", 4_096, SALT)),
)
COMMA = UserConfig(name="a,b=c", scram_sha_256=str(make_verifier(SCRAM_SHA_256, "word", 4_096, SALT)))
PLAIN_LISTENER = ListenerConfig(url="amqp://127.0.0.1:0", plain_without_tls=True)
LOOPBACK = ListenerConfig(url="amqp://127.0.0.1:0")
OPEN = ListenerConfig(url="amqp://0.0.0.0:0")
TLS = ListenerConfig(url="amqps://0.0.0.0:0", certificate_file="c", key_file="k")
LIMITS = BrokerLimits(login_failure_delay_ms=DELAY_MS)


def certificate_of(name: str) -> Certificate:
    """As `ssl` gives it."""
    return {"subject": ((("commonName", name),),)}


def authenticator(*users: UserConfig) -> Authenticator:
    """One with these users."""
    return Authenticator(BrokerConfig(users=users or (ADA, COMMA), limits=LIMITS))


def on_virtual_time(dialogue: Callable[[], object]) -> tuple[object, float]:
    """What an async dialogue returns, and how many virtual seconds it took."""

    async def timed() -> tuple[object, float]:
        start = trio.current_time()
        result = await dialogue()  # type: ignore[misc]
        return result, trio.current_time() - start

    return trio.run(timed, clock=trio.testing.MockClock(autojump_threshold=0))


def answers(
    auth: Authenticator, mechanism: str, listener: ListenerConfig, *responses: bytes | None
) -> list[Step]:
    """What a login answers to these responses."""

    async def dialogue() -> list[Step]:
        login = auth.begin(mechanism, listener)
        return [await login.respond(response) for response in responses]

    result, _ = on_virtual_time(dialogue)
    assert isinstance(result, list)
    return result


def scram(
    auth: Authenticator, mechanism: str, name: str, password: str, *, identity: str | None = None
) -> tuple[scramp.ScramClient, Step]:
    """A whole exchange with scramp's client; returns the client and the last answer."""
    client = scramp.ScramClient([mechanism], name, password)
    if identity is not None:
        client.gs2_header = _Header(identity)

    async def dialogue() -> Step:
        login = auth.begin(mechanism, LOOPBACK)
        first = await login.respond(client.get_client_first().encode())
        if not isinstance(first, Challenge):
            return first
        client.set_server_first(first.data.decode())
        return await login.respond(client.get_client_final().encode())

    result, _ = on_virtual_time(dialogue)
    assert isinstance(result, (Challenge, Success, Failure))
    return client, result


class _Header:
    """A gs2-header with an authorisation identity, as Cyrus clients send it."""

    def __init__(self, identity: str) -> None:
        self._text = f"n,a={identity.replace('=', '=3D').replace(',', '=2C')},"

    def __str__(self) -> str:
        return self._text

    def make_cbind_input(self, _: object) -> bytes:
        return self._text.encode()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_scram_proves_both_sides_to_each_other(mechanism: str) -> None:
    """The right password succeeds, and the client can verify the signature in the outcome."""
    client, answer = scram(authenticator(), mechanism, "ada", "word")
    assert isinstance(answer, Success)
    assert answer.principal == Principal("ada", mechanism)
    assert answer.additional_data is not None
    client.set_server_final(answer.additional_data.decode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    ("name", "password", "reason"), [("ada", "Word", "SCRAM"), ("bob", "word", "unknown user")]
)
def test_scram_tells_a_wrong_password_and_an_unknown_user_alike(
    mechanism: str, name: str, password: str, reason: str
) -> None:
    """Both get a challenge, both fail at the end with the same code and nothing else; the log knows more."""
    _, answer = scram(authenticator(), mechanism, name, password)
    assert isinstance(answer, Failure)
    assert (answer.code, answer.name) == (1, name)
    assert reason in answer.reason


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_unknown_user_has_the_same_salt_each_time_and_after_a_restart(mechanism: str) -> None:
    """Otherwise the salt tells who exists: a known user's never changes."""

    def salt_of(auth: Authenticator, name: str) -> str:
        first = f"n,,n={name},r=abc".encode()
        (answer,) = answers(auth, mechanism, LOOPBACK, first)
        assert isinstance(answer, Challenge)
        return answer.data.decode().split(",", 1)[1]

    one, two = authenticator(), authenticator()
    assert salt_of(one, "bob") == salt_of(one, "bob") == salt_of(two, "bob")
    assert salt_of(one, "bob") != salt_of(one, "carl")
    assert salt_of(one, "bob").split(",i=")[1] == salt_of(one, "ada").split(",i=")[1]
    assert len(salt_of(one, "bob")) == len(salt_of(one, "ada"))
    assert salt_of(one, "bob") != salt_of(authenticator(ADA), "bob")


def test_scram_takes_the_name_as_authorisation_identity() -> None:
    """Cyrus clients name themselves twice; scramp alone would refuse them."""
    client, answer = scram(authenticator(), SCRAM_SHA_256, "ada", "word", identity="ada")
    assert isinstance(answer, Success)
    assert answer.additional_data is not None
    client.set_server_final(answer.additional_data.decode())
    _, escaped = scram(authenticator(), SCRAM_SHA_256, "a,b=c", "word", identity="a,b=c")
    assert isinstance(escaped, Success)


def test_nobody_acts_for_somebody_else() -> None:
    """Another authorisation identity than the own name fails, in SCRAM and PLAIN."""
    _, answer = scram(authenticator(), SCRAM_SHA_256, "ada", "word", identity="bob")
    assert isinstance(answer, Failure)
    (plain,) = answers(authenticator(), "PLAIN", PLAIN_LISTENER, b"bob\0ada\0word")
    assert isinstance(plain, Failure)


def test_a_client_that_expects_channel_binding_is_not_fooled() -> None:
    """The header is part of the proof: changing it on the way breaks the login."""
    client = scramp.ScramClient([SCRAM_SHA_256], "ada", "word")

    async def dialogue() -> Step:
        login = authenticator().begin(SCRAM_SHA_256, LOOPBACK)
        first = await login.respond(client.get_client_first().replace("n,,", "y,,", 1).encode())
        assert isinstance(first, Challenge)
        client.set_server_first(first.data.decode())
        return await login.respond(client.get_client_final().encode())

    result, _ = on_virtual_time(dialogue)
    assert isinstance(result, Failure)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@given(noise=st.lists(st.binary(max_size=60) | st.text(max_size=60).map(str.encode), min_size=1, max_size=3))
def test_noise_in_scram_is_a_failure(mechanism: str, noise: list[bytes]) -> None:
    """Whatever a peer answers: a challenge, or a failure; never an exception and never a success."""
    for answer in answers(authenticator(), mechanism, LOOPBACK, *noise):
        assert isinstance(answer, (Challenge, Failure))


FIELD = st.one_of(
    st.binary(max_size=600),
    st.text(max_size=600).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.integers(0, 700).map(lambda count: b"x" * count),
    st.sampled_from([b"", b"\0", b"=", b"=2C", b",", b"p=tls-unique", b"a=ada", b"ada", b"\xed\xa0\x80"]),
)


def takes_only_frames_of_512_octets(answer: Step) -> None:
    """What the connection does with it: an answer that fits no SASL frame would be a fault of the broker."""
    if isinstance(answer, Challenge):
        encode_sasl_frame(SaslChallenge(challenge=answer.data))
    elif isinstance(answer, Success):
        encode_sasl_frame(SaslOutcome(code=answer.code, additional_data=answer.additional_data))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@given(
    flag=st.just(b"n") | FIELD, identity=st.just(b"") | FIELD, name=st.just(b"ada") | FIELD,
    nonce=st.just(b"abc") | FIELD, extra=st.just(b"") | FIELD,
    binding=st.just(b"biws") | FIELD, proof=st.just(b"AAAA") | FIELD, own_nonce=st.just(b"") | FIELD,
)  # fmt: skip
def test_no_field_of_scram_is_an_internal_error(
    mechanism: str, flag: bytes, identity: bytes, name: bytes, nonce: bytes, extra: bytes, binding: bytes,
    proof: bytes, own_nonce: bytes,
) -> None:  # fmt: skip
    """Each field by itself, whatever is in it: a challenge that can be sent, or a failure."""

    async def dialogue() -> list[Step]:
        login = authenticator().begin(mechanism, LOOPBACK)
        first = await login.respond(flag + b"," + identity + b",n=" + name + b",r=" + nonce + extra)
        if not isinstance(first, Challenge):
            return [first]
        whole = own_nonce or first.data[2:].split(b",")[0]
        return [first, await login.respond(b"c=" + binding + b",r=" + whole + extra + b",p=" + proof)]

    result, _ = on_virtual_time(dialogue)
    assert isinstance(result, list)
    for answer in result:
        assert isinstance(answer, (Challenge, Failure))
        takes_only_frames_of_512_octets(answer)


@pytest.mark.parametrize("salt_bytes", [12, 16, 128])
def test_a_nonce_of_any_length_gets_an_answer_that_can_be_sent(salt_bytes: int) -> None:
    """A challenge repeats the peer's nonce: up to what a SASL frame takes it comes, beyond it the login
    fails.
    """
    user = UserConfig(
        name="ada", scram_sha_256=str(make_verifier(SCRAM_SHA_256, "word", 4_096, bytes(salt_bytes)))
    )
    auth, kinds = authenticator(user), []
    for count in range(1, 480):
        (answer,) = answers(auth, SCRAM_SHA_256, LOOPBACK, b"n,,n=ada,r=" + b"x" * count)
        takes_only_frames_of_512_octets(answer)
        kinds.append(type(answer))
    assert kinds == sorted(kinds, key=lambda kind: kind is Failure)
    assert kinds.count(Challenge) >= 200
    assert kinds[-1] is Failure


@given(identity=FIELD, name=FIELD, password=FIELD)
def test_no_field_of_plain_is_an_internal_error(identity: bytes, name: bytes, password: bytes) -> None:
    """Whatever is in its three fields, it is a failure, unless it is the password."""
    (answer,) = answers(authenticator(), "PLAIN", PLAIN_LISTENER, identity + b"\0" + name + b"\0" + password)
    assert isinstance(answer, Failure)


@given(response=st.none() | FIELD)
def test_no_field_of_anonymous_and_external_is_an_internal_error(response: bytes | None) -> None:
    """A trace is anything; an identity is the certificate's name or fails."""
    (answer,) = answers(Authenticator(BrokerConfig()), "ANONYMOUS", LOOPBACK, response)
    assert isinstance(answer, Success)
    peer = PeerInfo(TLS, "h:1", "h", tls=True, certificate=certificate_of("ada"))

    async def dialogue() -> Step:
        return await authenticator().begin("EXTERNAL", TLS, peer).respond(response)

    external, _ = on_virtual_time(dialogue)
    assert isinstance(external, Success if response in (None, b"", b"ada") else Failure)


def test_a_mechanism_without_initial_response_asks_for_it() -> None:
    """An init without response gets an empty challenge, once (RFC 4422, 3.)."""
    auth = authenticator()
    first, second = answers(auth, "PLAIN", PLAIN_LISTENER, None, b"\0ada\0word")
    assert first == Challenge(b"")
    assert isinstance(second, Success)
    empty, challenge = answers(auth, SCRAM_SHA_256, LOOPBACK, None, b"n,,n=ada,r=abc")
    assert empty == Challenge(b"")
    assert isinstance(challenge, Challenge)


@pytest.mark.parametrize("name", ["ada", "a,b=c"])
def test_plain_checks_the_password_against_the_verifier(name: str) -> None:
    """Right and wrong passwords of a known user."""
    (right,) = answers(authenticator(), "PLAIN", PLAIN_LISTENER, f"\0{name}\0word".encode())
    assert isinstance(right, Success)
    assert right.principal == Principal(name, "PLAIN")
    (wrong,) = answers(authenticator(), "PLAIN", PLAIN_LISTENER, f"\0{name}\0Word".encode())
    assert isinstance(wrong, Failure)


def test_plain_prepares_the_name_as_scram_does() -> None:
    """Two spellings of one name are one user (SASLprep, RFC 4013)."""
    (answer,) = answers(authenticator(), "PLAIN", PLAIN_LISTENER, "\0a\u00adda\0word".encode())
    assert isinstance(answer, Success)
    assert answer.principal == Principal("ada", "PLAIN")


def test_an_unknown_user_costs_what_a_known_one_does() -> None:
    """Salt length and iterations of a fake verifier are those of the configured users."""
    user = UserConfig(name="u", scram_sha_512=str(make_verifier(SCRAM_SHA_512, "word", 5_000, bytes(70))))
    auth = authenticator(user)
    known, unknown = (answers(auth, SCRAM_SHA_512, LOOPBACK, f"n,,n={n},r=x".encode()) for n in ("u", "v"))
    assert isinstance(known[0], Challenge)
    assert isinstance(unknown[0], Challenge)
    assert len(known[0].data) == len(unknown[0].data)
    assert known[0].data.endswith(b",i=5000")
    assert unknown[0].data.endswith(b",i=5000")
    verifier, is_known = auth._plain_verifier("v")
    assert (verifier.mechanism, verifier.iterations, is_known) == (SCRAM_SHA_512, 5_000, False)


@pytest.mark.parametrize(
    "response", [b"", b"ada\0word", b"\0bob\0word", b"\0\xff\0word", b"\0ada\0word\0", b"\0ada\0"]
)
def test_plain_refuses_everything_else(response: bytes) -> None:
    """Missing parts, unknown users, no UTF-8, too many parts, no password."""
    (answer,) = answers(authenticator(), "PLAIN", PLAIN_LISTENER, response)
    assert isinstance(answer, Failure)


def test_plain_is_refused_without_tls() -> None:
    """A listener that does not offer PLAIN refuses it, with the right password as well."""
    for listener in (LOOPBACK, OPEN):
        assert "PLAIN" not in authenticator().mechanisms_for(listener)
        (answer,) = answers(authenticator(), "PLAIN", listener, b"\0ada\0word")
        assert isinstance(answer, Failure)
        assert "not offered" in answer.reason


def test_what_is_offered_depends_on_the_listener() -> None:
    """Strongest first; PLAIN over TLS or where a loopback setting says so; ANONYMOUS by rule."""
    scrams = (SCRAM_SHA_512, SCRAM_SHA_256)
    both, nobody = authenticator(), Authenticator(BrokerConfig())
    assert both.mechanisms_for(LOOPBACK) == scrams
    assert both.mechanisms_for(PLAIN_LISTENER) == (*scrams, "PLAIN")
    assert both.mechanisms_for(TLS) == (*scrams, "PLAIN")
    assert nobody.mechanisms_for(LOOPBACK) == ("ANONYMOUS",)
    assert nobody.mechanisms_for(TLS) == ()
    anonymous_tls = ListenerConfig(
        url="amqps://0.0.0.0:0", certificate_file="c", key_file="k", anonymous=True
    )
    assert both.mechanisms_for(anonymous_tls) == (*scrams, "PLAIN", "ANONYMOUS")
    assert authenticator(COMMA).mechanisms_for(LOOPBACK) == (SCRAM_SHA_256,)


def test_anonymous_asks_nothing() -> None:
    """With and without a trace."""
    for trace in (None, b"", b"me@example.com"):
        (answer,) = answers(Authenticator(BrokerConfig()), "ANONYMOUS", LOOPBACK, trace)
        assert isinstance(answer, Success)
        assert answer.principal == ANONYMOUS


def test_external_takes_the_name_from_the_certificate() -> None:
    """Offered with a verified certificate only; another identity is refused."""
    auth = authenticator(ADA, UserConfig(name="eve"))
    peer = PeerInfo(TLS, "h:1", "h", tls=True, certificate=certificate_of("eve"))
    assert auth.mechanisms_for(TLS, peer)[0] == "EXTERNAL"
    assert "EXTERNAL" not in auth.mechanisms_for(TLS, PeerInfo(TLS, "h:1", "h", tls=True))

    async def dialogue() -> list[Step]:
        return [
            await auth.begin("EXTERNAL", TLS, peer).respond(response)
            for response in (None, b"", b"eve", b"ada")
        ]

    result, _ = on_virtual_time(dialogue)
    assert isinstance(result, list)
    assert [type(answer) for answer in result] == [Success, Success, Success, Failure]
    assert result[0].principal == Principal("eve", "EXTERNAL")


@pytest.mark.parametrize("name", ["mallory", "anonymous", "*", "ADA", "ada ", "\u00adada"])
def test_a_certificate_is_a_user_only_if_it_is_configured(name: str) -> None:
    """What an authority signed is a name, and no right: EXTERNAL is neither offered to it nor taken."""
    for auth in (authenticator(), Authenticator(BrokerConfig())):
        peer = PeerInfo(TLS, "h:1", "h", tls=True, certificate=certificate_of(name))
        assert "EXTERNAL" not in auth.mechanisms_for(TLS, peer)

        async def dialogue(auth: Authenticator = auth, peer: PeerInfo = peer) -> Step:
            return await auth.begin("EXTERNAL", TLS, peer).respond(None)

        answer, _ = on_virtual_time(dialogue)
        assert isinstance(answer, Failure)


def test_failures_are_slow_and_successes_are_not() -> None:
    """A wrong password costs the configured delay, so that guessing does."""

    async def wrong() -> Step:
        return await authenticator().begin("PLAIN", PLAIN_LISTENER).respond(b"\0ada\0Word")

    async def unknown_mechanism() -> Step:
        return await authenticator().begin("NTLM", PLAIN_LISTENER).respond(b"")

    async def right() -> Step:
        return await authenticator().begin("ANONYMOUS", ListenerConfig(anonymous=True)).respond(b"")

    assert on_virtual_time(wrong)[1] == pytest.approx(DELAY_MS / 1_000)
    assert on_virtual_time(unknown_mechanism)[1] == pytest.approx(DELAY_MS / 1_000)
    assert on_virtual_time(right)[1] == 0


def test_after_a_failure_nothing_succeeds() -> None:
    """A login that failed stays failed, with the right password as well."""
    result = answers(authenticator(), "PLAIN", PLAIN_LISTENER, b"\0ada\0Word", b"\0ada\0word")
    assert [type(answer) for answer in result] == [Failure, Failure]


def test_an_oversized_response_is_not_looked_at() -> None:
    """Beyond a bound nothing is hashed or parsed."""
    (answer,) = answers(authenticator(), "PLAIN", PLAIN_LISTENER, b"\0ada\0" + b"x" * RESPONSE_BYTES_MAX)
    assert isinstance(answer, Failure)
    assert "more than" in answer.reason


def test_nothing_secret_is_printed() -> None:
    """Challenges, successes and failures go into logs."""
    _, success = scram(authenticator(), SCRAM_SHA_256, "ada", "word")
    (failure,) = answers(authenticator(), "PLAIN", PLAIN_LISTENER, b"\0ada\0hush")
    assert "v=" not in repr(success)
    assert "hush" not in repr(failure)
    assert "s=" not in repr(Challenge(b"r=x,s=y,i=1"))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("n,,n=ada,r=x", ("n,,", None, "n=ada,r=x")),
        ("n,a=ada,n=ada,r=x", ("n,a=ada,", "ada", "n=ada,r=x")),
        ("y,a=a=2Cb=3Dc,n=q,r=x", ("y,a=a=2Cb=3Dc,", "a,b=c", "n=q,r=x")),
        ("rubbish", ("", None, "rubbish")),
        ("p=tls-unique,,n=ada,r=x", ("p=tls-unique,,", None, "n=ada,r=x")),
    ],
)
def test_the_header_of_client_first_is_taken_apart(
    message: str, expected: tuple[str, str | None, str]
) -> None:
    """gs2-header, authorisation identity, and the bare message (RFC 5802, 7.)."""
    assert split_identity(message) == expected
