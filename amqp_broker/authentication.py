"""SASL on the server's side: one class for each mechanism, driven by the connection task (part 5.3).

    authenticator = Authenticator(config)                        # one for the broker
    mechanisms = authenticator.mechanisms_for(listener, peer)    # what sasl-mechanisms offers
    login = authenticator.begin("SCRAM-SHA-256", listener, peer)
    answer = await login.respond(initial_response)               # Challenge | Success | Failure
    ...                             # then connection.sasl_challenge or connection.sasl_outcome

The mechanisms themselves are plain machines: `step(response) -> Challenge | Success | Failure`.  `Login` puts
the slow ones into a worker thread and delays failures, so that guessing is slow and the loop is not.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from amqp_broker.authorisation import ANONYMOUS, Principal
from amqp_broker.verifiers import (
    HASHES,
    SALT_BYTES,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Verifier,
    parse_verifier,
    password_matches,
)

if TYPE_CHECKING:
    from amqp_broker.configuration import BrokerConfig
    from amqp_broker.configuration_tables import ListenerConfig

OUTCOME_OK: Final = 0  # part 5.3.3.6, sasl-code
OUTCOME_AUTH: Final = 1

RESPONSE_BYTES_MAX: Final = 4_096  # no mechanism here needs more than a name, a nonce and a proof
VERIFYING_THREADS: Final = (
    2  # PBKDF2 of many logins must not take all worker threads, nor both cores for long
)


class Peer(Protocol):
    """What authentication wants to know of the other end; `listener.PeerInfo` has it."""

    @property
    def certificate_name(self) -> str | None: ...


@attrs.frozen
class Challenge:
    """Send this as sasl-challenge and come back with the response."""

    data: bytes = attrs.field(repr=False)


@attrs.frozen
class Success:
    """The peer is who it says.  `additional_data` goes into the sasl-outcome (the signature of SCRAM)."""

    principal: Principal
    additional_data: bytes | None = attrs.field(default=None, repr=False)
    code: int = OUTCOME_OK


@attrs.frozen
class Failure:
    """The peer did not prove it.  `reason` is for the log only; the peer learns the code (part 5.3.3.6)."""

    reason: str
    name: str | None = None
    code: int = OUTCOME_AUTH


Step = Challenge | Success | Failure


class Mechanism(Protocol):
    """A SASL mechanism in the midst of one login."""

    slow: bool
    """Whether `step` hashes for long and belongs into a worker thread."""

    def step(self, response: bytes | None) -> Step:
        """The answer to the initial response (None: there was none) or to that to the last challenge."""
        ...


class Anonymous:
    """ANONYMOUS (RFC 4505): the response is a trace that nobody relies on."""

    slow = False

    def step(self, response: bytes | None) -> Step:
        """Always a success."""
        return Success(ANONYMOUS)


class External:
    """EXTERNAL (RFC 4422 appendix A): the TLS layer has already verified a client certificate."""

    slow = False

    def __init__(self, certificate_name: str) -> None:
        self._name = certificate_name

    def step(self, response: bytes | None) -> Step:
        """A success; an authorisation identity other than the certificate's name is refused."""
        if response and response != self._name.encode("utf-8"):
            return Failure("authorisation identity differs from the certificate", self._name)
        return Success(Principal(self._name, "EXTERNAL"))


class Plain:
    """PLAIN (RFC 4616): authorisation identity, name and password, each ended by a NUL but the last."""

    slow = True

    def __init__(self, verifier_of: Callable[[str], tuple[Verifier, bool]]) -> None:
        self._verifier_of = verifier_of
        self._challenged = False

    def step(self, response: bytes | None) -> Step:
        """Verify the password against a verifier; an unknown name takes as long as a wrong password."""
        if response is None and not self._challenged:
            self._challenged = True
            return Challenge(b"")
        parts = (response or b"").split(b"\0")
        if len(parts) != 3:
            return Failure(f"PLAIN response has {len(parts)} parts, expected 3")
        try:
            identity, name, password = (part.decode("utf-8") for part in parts)
        except UnicodeDecodeError:
            return Failure("PLAIN response is not UTF-8")
        verifier, known = self._verifier_of(name)
        matches = password_matches(verifier, password)
        if not (matches and known):
            return Failure("wrong password" if known else "unknown user", name)
        if identity not in ("", name):
            return Failure("authorisation identity differs from the name", name)
        return Success(Principal(name, "PLAIN"))


class _HeaderWithIdentity:
    """The gs2-header of a client that names itself as authorisation identity, too (`n,a=ada,`).

    Cyrus clients do so.  scramp refuses any authorisation identity, and takes the header without it; but the
    proof is over the header as it was sent, which is what this gives back.
    """

    def __init__(self, header: str) -> None:
        self._header = header.encode("utf-8")

    def make_cbind_input(self, channel_binding: object) -> bytes:
        """What the client has to repeat in its final message."""
        return self._header


class Scram:
    """SCRAM-SHA-256 and SCRAM-SHA-512 without channel binding (RFC 5802, RFC 7677)."""

    slow = False  # the server hashes five times, the client has the PBKDF2

    def __init__(self, mechanism: str, verifier_of: Callable[[str], tuple[Verifier, bool]]) -> None:
        from scramp import ScramMechanism  # loads half of asyncio; a broker without users never needs it

        self._mechanism = mechanism
        self._verifier_of = verifier_of
        self._known = False
        self._name: str | None = None
        self._server: Any = ScramMechanism(mechanism).make_server(self._keys_of)
        self._states = iter((self._first, self._final))
        self._challenged = False

    def step(self, response: bytes | None) -> Step:
        """client-first gives server-first as challenge; client-final gives the outcome with server-final."""
        from scramp import ScramException

        if response is None and self._name is None and not self._challenged:
            self._challenged = True
            return Challenge(b"")
        state = next(self._states, None)
        if state is None:
            return Failure("SCRAM response after the end", self._name)
        try:
            return state((response or b"").decode("utf-8"))
        except UnicodeDecodeError:
            return Failure("SCRAM message is not UTF-8", self._name)
        except ScramException as error:
            known = self._name is None or self._known
            return Failure(f"SCRAM: {error}" if known else "unknown user", self._name)

    def _keys_of(self, name: str) -> tuple[bytes, bytes, bytes, int]:
        verifier, self._known = self._verifier_of(name)
        self._name = name
        return verifier.salt, verifier.stored_key, verifier.server_key, verifier.iterations

    def _first(self, message: str) -> Step:
        header, identity, rest = split_identity(message)
        self._server.set_client_first(header + rest if identity is None else f"{header[:2]},{rest}")
        if identity is not None:
            if identity != self._name:
                return Failure("authorisation identity differs from the name", self._name)
            self._server.gs2_header = _HeaderWithIdentity(header)
        return Challenge(self._server.get_server_first().encode("utf-8"))

    def _final(self, message: str) -> Step:
        self._server.set_client_final(message)
        final = self._server.get_server_final().encode("utf-8")
        if not self._known:
            return Failure("unknown user", self._name)
        assert self._name is not None, "set_client_first has asked for the keys"
        return Success(Principal(self._name, self._mechanism), final)


def split_identity(message: str) -> tuple[str, str | None, str]:
    """(gs2-header, authorisation identity or None, client-first-message-bare) of a client-first-message."""
    parts = message.split(",", 2)
    if len(parts) != 3:
        return "", None, message
    flag, identity, rest = parts
    if not identity.startswith("a="):
        return f"{flag},{identity},", None, rest
    name = identity[2:].replace("=2C", ",").replace("=3D", "=")
    return f"{flag},{identity},", name, rest


class Login:
    """One peer's attempt.  `respond` is awaited once for each sasl-init and sasl-response."""

    __slots__ = ("_authenticator", "_mechanism", "mechanism")

    def __init__(self, authenticator: Authenticator, name: str, mechanism: Mechanism | None) -> None:
        self._authenticator = authenticator
        self._mechanism = mechanism
        self.mechanism = name

    async def respond(self, response: bytes | None) -> Step:
        """The answer to send.  A failure comes late on purpose (`limits.login_failure_delay_ms`)."""
        import trio

        answer: Step
        if self._mechanism is None:
            answer = Failure(f"mechanism {self.mechanism[:32]!r} is not offered here")
        elif response is not None and len(response) > RESPONSE_BYTES_MAX:
            answer = Failure(f"response has {len(response)} bytes, more than {RESPONSE_BYTES_MAX}")
        elif self._mechanism.slow:
            limiter = self._authenticator.verifying_limiter()
            step = self._mechanism.step
            answer = await trio.to_thread.run_sync(step, response, limiter=limiter, abandon_on_cancel=True)
        else:
            answer = self._mechanism.step(response)
        if isinstance(answer, Failure):
            self._mechanism = None
            await trio.sleep(self._authenticator.failure_delay_s)
        return answer


class Authenticator:
    """The users of one broker, and which mechanisms each listener offers."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.failure_delay_s = config.limits.login_failure_delay_ms / 1_000
        self._users: dict[str, dict[str, Verifier]] = {}
        secret = hashlib.sha256(b"fake salts")
        for user in config.users:
            texts = [text for text in (user.scram_sha_512, user.scram_sha_256) if text is not None]
            verifiers = [parse_verifier(text) for text in texts]
            self._users[user.name] = {verifier.mechanism: verifier for verifier in verifiers}
            for text in texts:
                secret.update(text.encode("utf-8"))
        # Known users keep their salt over a restart, so the fake ones have to, too; only who has all the
        # verifiers could tell them apart.
        self._fake_secret = secret.digest() if config.users else secrets.token_bytes(32)
        self._limiter: Any = None

    def mechanisms_for(self, listener: ListenerConfig, peer: Peer | None = None) -> tuple[str, ...]:
        """The mechanisms that this listener offers to this peer, strongest first.  Never empty for a usable
        listener.

        PLAIN is offered over TLS, or on a loopback listener whose setting allows it.
        """
        offered = []
        if peer is not None and peer.certificate_name is not None:
            offered.append("EXTERNAL")
        for mechanism in (SCRAM_SHA_512, SCRAM_SHA_256):
            if any(mechanism in verifiers for verifiers in self._users.values()):
                offered.append(mechanism)
        plain_allowed = listener.tls or (listener.plain_without_tls and listener.loopback)
        if plain_allowed and any(self._users.values()):
            offered.append("PLAIN")
        if self._config.anonymous_allowed(listener):
            offered.append("ANONYMOUS")
        return tuple(offered)

    def begin(self, mechanism: str, listener: ListenerConfig, peer: Peer | None = None) -> Login:
        """A login with this mechanism; one that is not offered here fails at its first step."""
        if mechanism not in self.mechanisms_for(listener, peer):
            return Login(self, mechanism, None)
        made: Mechanism
        if mechanism == "ANONYMOUS":
            made = Anonymous()
        elif mechanism == "EXTERNAL":
            assert peer is not None and peer.certificate_name is not None, "offered with a certificate only"
            made = External(peer.certificate_name)
        elif mechanism == "PLAIN":
            made = Plain(self._plain_verifier)
        else:
            made = Scram(mechanism, lambda name: self._scram_verifier(mechanism, name))
        return Login(self, mechanism, made)

    def verifying_limiter(self) -> Any:
        """The trio.CapacityLimiter of password hashing."""
        if self._limiter is None:
            import trio

            self._limiter = trio.CapacityLimiter(VERIFYING_THREADS)
        return self._limiter

    def _scram_verifier(self, mechanism: str, name: str) -> tuple[Verifier, bool]:
        verifier = self._users.get(name, {}).get(mechanism)
        return (verifier, True) if verifier is not None else (self._fake_verifier(mechanism, name), False)

    def _plain_verifier(self, name: str) -> tuple[Verifier, bool]:
        verifiers = self._users.get(name, {})
        for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512):
            if mechanism in verifiers:
                return verifiers[mechanism], True
        return self._fake_verifier(SCRAM_SHA_256, name), False

    def _fake_verifier(self, mechanism: str, name: str) -> Verifier:
        """What an unknown user is answered with: always the same for the same name, and never matched."""
        salt = hmac.digest(self._fake_secret, f"{mechanism}:{name}".encode(), "sha256")[:SALT_BYTES]
        size = hashlib.new(HASHES[mechanism]).digest_size
        iterations = self._config.limits.scram_iterations
        return Verifier(mechanism, iterations, salt, secrets.token_bytes(size), secrets.token_bytes(size))
