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
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.authorisation import Principal
from amqp_broker.certificates import owners
from amqp_broker.configuration_fields import ConfigurationError, Problem
from amqp_broker.sasl_mechanisms import (
    PLUS,
    Anonymous,
    Challenge,
    External,
    Failure,
    Mechanism,
    Plain,
    Scram,
    Step,
    Success,
    end_point_of,
)
from amqp_broker.verifiers import (
    HASHES,
    ITERATIONS,
    SALT_BYTES,
    SCRAM_SHA_1,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Verifier,
    parse_verifier,
)

if TYPE_CHECKING:
    from amqp_broker.configuration import BrokerConfig, ListenerConfig
    from amqp_broker.peers import PeerInfo
    from amqp_broker.tokens import Holder, Tokens

__all__ = ["Authenticator", "Challenge", "Failure", "Login", "Step", "Success"]

RESPONSE_BYTES_MAX: Final = 4_096  # no mechanism here needs more than a name, a nonce and a proof
CHALLENGE_BYTES_MAX: Final = 485  # what a SASL frame of 512 octets takes beside its header and field lengths
VERIFYING_THREADS: Final = (
    2  # PBKDF2 of many logins must not take all worker threads, nor both cores for long
)


FOR_PLAIN: Final = (SCRAM_SHA_256, SCRAM_SHA_512, SCRAM_SHA_1)
"""What PLAIN is checked against: the first that the user has."""
TOKEN_MECHANISMS: Final = ("OAUTHBEARER", "XOAUTH2")


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
        elif response is not None and len(response) > self._authenticator.response_bytes_max(self.mechanism):
            most = self._authenticator.response_bytes_max(self.mechanism)
            answer = Failure(f"response has {len(response)} bytes, more than {most}")
        elif self._mechanism.slow:
            limiter = self._authenticator.verifying_limiter(self.mechanism)
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

    def __init__(self, config: BrokerConfig, before: Authenticator | None = None) -> None:
        """`before` is the one whose place it takes, where there was one."""
        self._config = config
        self.failure_delay_s = config.limits.login_failure_delay_ms / 1_000
        self._users: dict[str, dict[str, Verifier]] = {}
        self._roles: dict[str, tuple[str, ...]] = {}
        self._models: dict[str, Verifier] = {}  # what a fake verifier looks like: that of the first user
        secret = hashlib.sha256(b"fake salts")
        for user in config.users:
            texts = user.verifiers
            verifiers = [parse_verifier(text) for text in texts]
            self._users[user.name] = {verifier.mechanism: verifier for verifier in verifiers}
            for verifier in verifiers:
                self._models.setdefault(verifier.mechanism, verifier)
            self._roles[user.name] = user.roles
            for text in texts:
                secret.update(text.encode("utf-8"))
        # Known users keep their salt over a restart, so the fake ones have to, too; only who has all the
        # verifiers could tell them apart. They keep it over a reload that adds a user as well: those whose
        # salt changed would be the unknown ones.
        self._fake_secret: bytes = secret.digest() if config.users else secrets.token_bytes(32)
        if before is not None and before._config.users:
            self._fake_secret = before._fake_secret
        self._limiters: dict[bool, Any] = {}
        self._tokens = _tokens_of(config) if config.token_issuers else None

    def mechanisms_for(self, listener: ListenerConfig, peer: PeerInfo | None = None) -> tuple[str, ...]:
        """The mechanisms that this listener offers to this peer, strongest first.

        EXTERNAL is offered to the certificate of a configured user: that an authority signed a name makes
        nobody a user of this broker. PLAIN and tokens are taken over TLS, or on a loopback listener whose
        setting allows it.
        """
        offered = []
        if self.owner_of(peer) is not None:
            offered.append("EXTERNAL")
        scram = [mechanism for mechanism in HASHES if mechanism in self._models]
        if scram and peer is not None and end_point_of(peer.shown_certificate) is not None:
            offered += [mechanism + PLUS for mechanism in scram]
        offered += scram
        in_clear = listener.plain_without_tls and listener.loopback
        secure = listener.tls if peer is None else peer.tls
        if self._tokens is not None and (secure or in_clear):
            offered += TOKEN_MECHANISMS
        if self._models and (secure or in_clear):
            offered.append("PLAIN")
        if self._config.anonymous_allowed(listener):
            offered.append("ANONYMOUS")
        return tuple(offered)

    def begin(self, mechanism: str, listener: ListenerConfig, peer: PeerInfo | None = None) -> Login:
        """A login with this mechanism; one that is not offered here fails at its first step."""
        if mechanism not in self.mechanisms_for(listener, peer):
            return Login(self, mechanism, None)
        made: Mechanism
        if mechanism == "ANONYMOUS":
            made = Anonymous()
        elif mechanism == "EXTERNAL":
            owner = self.owner_of(peer)
            assert owner is not None, "offered to a user's certificate only"
            made = External(owner, self._roles_of(owner))
        elif mechanism == "PLAIN":
            made = Plain(self._plain_verifier, self._roles_of)
        elif mechanism in TOKEN_MECHANISMS:
            made = self._bearer(mechanism)
        else:
            hashed = mechanism.removesuffix(PLUS)
            end_point = None if peer is None else end_point_of(peer.shown_certificate)
            made = Scram(
                mechanism, lambda name: self._scram_verifier(hashed, name), self._roles_of, end_point
            )  # fmt: skip
        return Login(self, mechanism, made)

    def verifying_limiter(self, mechanism: str) -> Any:
        """The trio.CapacityLimiter of password hashing; tokens, whose keys may be fetched, have another."""
        of_tokens = mechanism in TOKEN_MECHANISMS
        if of_tokens not in self._limiters:
            import trio

            self._limiters[of_tokens] = trio.CapacityLimiter(VERIFYING_THREADS)
        return self._limiters[of_tokens]

    def response_bytes_max(self, mechanism: str) -> int:
        """Of one response."""
        return self._config.limits.token_bytes if mechanism in TOKEN_MECHANISMS else RESPONSE_BYTES_MAX

    def owner_of(self, peer: PeerInfo | None) -> str | None:
        """The one user whose the peer's certificate is. One that rules give to several is nobody's."""
        if peer is None or peer.certificate is None:
            return None
        found = owners(peer.certificate, [(user.name, user.certificates) for user in self._config.users])
        return found[0] if len(found) == 1 else None

    def _roles_of(self, name: str) -> tuple[str, ...]:
        return self._roles.get(name, ())

    def _bearer(self, mechanism: str) -> Mechanism:
        from amqp_broker.token_mechanisms import Bearer

        assert self._tokens is not None, "offered where there are issuers only"

        def user_of(holder: Holder) -> Principal | None:
            if holder.name not in self._roles and not holder.any_user:
                return None
            roles = dict.fromkeys([*self._roles_of(holder.name), *holder.roles])
            return Principal(holder.name, mechanism, tuple(roles))

        return Bearer(mechanism, self._tokens.holder, user_of)

    def _scram_verifier(self, mechanism: str, name: str) -> tuple[Verifier, bool]:
        verifier = self._users.get(name, {}).get(mechanism)
        return (verifier, True) if verifier is not None else (self._fake_verifier(mechanism, name), False)

    def _plain_verifier(self, name: str) -> tuple[Verifier, bool]:
        verifiers = self._users.get(name, {})
        for mechanism in FOR_PLAIN:
            if mechanism in verifiers:
                return verifiers[mechanism], True
        usual = next(mechanism for mechanism in FOR_PLAIN if mechanism in self._models)
        return self._fake_verifier(usual, name), False

    def _fake_verifier(self, mechanism: str, name: str) -> Verifier:
        """What an unknown user is answered with: always the same for the same name, and never matched."""
        model = self._models.get(mechanism)
        salt_bytes, iterations = (len(model.salt), model.iterations) if model else (SALT_BYTES, ITERATIONS)
        seed = hmac.digest(self._fake_secret, f"{mechanism}:{name}".encode(), "sha512")
        salt = (seed * (salt_bytes // len(seed) + 1))[:salt_bytes]
        size = hashlib.new(HASHES[mechanism]).digest_size
        return Verifier(mechanism, iterations, salt, secrets.token_bytes(size), secrets.token_bytes(size))


def _tokens_of(config: BrokerConfig) -> Tokens:
    """The issuers, with what is in their files. Raises ConfigurationError."""
    try:
        from amqp_broker.tokens import KeysUnusable, Tokens
    except ImportError as error:
        needed = f"needs pip install 'amqp-broker[tokens]' ({error})"
        raise ConfigurationError(Problem("token_issuer", None, needed)) from None
    tokens = Tokens(config.token_issuers)
    try:
        tokens.load()
    except KeysUnusable as error:
        raise ConfigurationError(Problem("token_issuer.jwks_file", None, str(error))) from None
    return tokens
