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
from typing import TYPE_CHECKING, Any, Final, Protocol

from amqp_broker.sasl_mechanisms import (
    Anonymous,
    Challenge,
    External,
    Failure,
    Mechanism,
    Plain,
    Scram,
    Step,
    Success,
)
from amqp_broker.verifiers import (
    HASHES,
    ITERATIONS,
    SALT_BYTES,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Verifier,
    parse_verifier,
)

if TYPE_CHECKING:
    from amqp_broker.configuration import BrokerConfig, ListenerConfig

__all__ = ["Authenticator", "Challenge", "Failure", "Login", "Step", "Success"]

RESPONSE_BYTES_MAX: Final = 4_096  # no mechanism here needs more than a name, a nonce and a proof
CHALLENGE_BYTES_MAX: Final = 485  # what a SASL frame of 512 octets takes beside its header and field lengths
VERIFYING_THREADS: Final = (
    2  # PBKDF2 of many logins must not take all worker threads, nor both cores for long
)


class Peer(Protocol):
    """What authentication wants to know of the other end; `listener.PeerInfo` has it."""

    @property
    def certificate_name(self) -> str | None: ...


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
        if isinstance(answer, Challenge) and len(answer.data) > CHALLENGE_BYTES_MAX:
            # A challenge repeats the nonce of the peer, and a SASL frame never has more than 512 octets
            # (5.3.1).
            answer = Failure(
                f"the peer's nonce makes a challenge of {len(answer.data)} bytes, more than "
                f"{CHALLENGE_BYTES_MAX}"
            )
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
        self._models: dict[str, Verifier] = {}  # what a fake verifier looks like: that of the first user
        secret = hashlib.sha256(b"fake salts")
        for user in config.users:
            texts = [text for text in (user.scram_sha_512, user.scram_sha_256) if text is not None]
            verifiers = [parse_verifier(text) for text in texts]
            self._users[user.name] = {verifier.mechanism: verifier for verifier in verifiers}
            for verifier in verifiers:
                self._models.setdefault(verifier.mechanism, verifier)
            for text in texts:
                secret.update(text.encode("utf-8"))
        # Known users keep their salt over a restart, so the fake ones have to, too; only who has all the
        # verifiers could tell them apart.
        self._fake_secret = secret.digest() if config.users else secrets.token_bytes(32)
        self._limiter: Any = None

    def mechanisms_for(self, listener: ListenerConfig, peer: Peer | None = None) -> tuple[str, ...]:
        """The mechanisms that this listener offers to this peer, strongest first.

        EXTERNAL is offered to the certificate of a configured user: that an authority signed a name makes
        nobody a user of this broker. PLAIN is offered over TLS, or on a loopback listener whose setting
        allows it.
        """
        offered = []
        if peer is not None and peer.certificate_name in self._users:
            offered.append("EXTERNAL")
        for mechanism in (SCRAM_SHA_512, SCRAM_SHA_256):
            if mechanism in self._models:
                offered.append(mechanism)
        plain_allowed = listener.tls or (listener.plain_without_tls and listener.loopback)
        if plain_allowed and self._models:
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
            assert peer is not None and peer.certificate_name is not None, (
                "offered to a user's certificate only"
            )
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
        usual = SCRAM_SHA_256 if SCRAM_SHA_256 in self._models else SCRAM_SHA_512
        return self._fake_verifier(usual, name), False

    def _fake_verifier(self, mechanism: str, name: str) -> Verifier:
        """What an unknown user is answered with: always the same for the same name, and never matched."""
        model = self._models.get(mechanism)
        salt_bytes, iterations = (len(model.salt), model.iterations) if model else (SALT_BYTES, ITERATIONS)
        seed = hmac.digest(self._fake_secret, f"{mechanism}:{name}".encode(), "sha512")
        salt = (seed * (salt_bytes // len(seed) + 1))[:salt_bytes]
        size = hashlib.new(HASHES[mechanism]).digest_size
        return Verifier(mechanism, iterations, salt, secrets.token_bytes(size), secrets.token_bytes(size))
