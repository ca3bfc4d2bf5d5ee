"""The SASL mechanisms, server side: plain machines, one object for one login (part 5.3, RFC 4422).

step(initial response) --> Challenge --> step(response) --> ... --> Success | Failure
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Protocol

import attrs

from amqp_broker.authorisation import ANONYMOUS, Principal
from amqp_broker.verifiers import Verifier, password_matches, prepared_name

OUTCOME_OK: Final = 0  # part 5.3.3.6, sasl-code
OUTCOME_AUTH: Final = 1
OUTCOME_SYSTEM: Final = 2
PLUS: Final = "-PLUS"  # behind the name of SCRAM with channel binding (RFC 5802, section 4)
END_POINT: Final = "tls-server-end-point"  # RFC 5929; `ssl` gives no other one in TLS 1.3


@attrs.frozen
class Challenge:
    """Send this as sasl-challenge and come back with the response."""

    data: bytes = attrs.field(repr=False)


@attrs.frozen
class Success:
    """The peer is who it says. `additional_data` goes into the sasl-outcome (the signature of SCRAM); a
    proof that holds for some time only says how long, `lasts_s`.
    """

    principal: Principal
    additional_data: bytes | None = attrs.field(default=None, repr=False)
    code: int = OUTCOME_OK
    lasts_s: float | None = None


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


VerifierOf = Callable[[str], tuple[Verifier, bool]]
"""A user's verifier, and whether there is such a user."""
RolesOf = Callable[[str], tuple[str, ...]]
"""The roles of a user."""


def no_roles(name: str) -> tuple[str, ...]:
    """Of users without roles."""
    return ()


class Anonymous:
    """ANONYMOUS (RFC 4505): the response is a trace that nobody relies on."""

    slow = False

    def step(self, response: bytes | None) -> Step:
        """Always a success."""
        return Success(ANONYMOUS)


class External:
    """EXTERNAL (RFC 4422 appendix A): the TLS layer has already verified a client certificate."""

    slow = False

    def __init__(self, user: str, roles: tuple[str, ...] = ()) -> None:
        self._name = user
        self._roles = roles

    def step(self, response: bytes | None) -> Step:
        """A success; an authorisation identity other than the user of the certificate is refused."""
        if response and response != self._name.encode("utf-8"):
            return Failure("authorisation identity differs from the certificate", self._name)
        return Success(Principal(self._name, "EXTERNAL", self._roles))


class Plain:
    """PLAIN (RFC 4616): authorisation identity, name and password, each ended by a NUL but the last."""

    slow = True

    def __init__(self, verifier_of: VerifierOf, roles_of: RolesOf = no_roles) -> None:
        self._verifier_of = verifier_of
        self._roles_of = roles_of
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
        verifier, known = self._verifier_of(prepared_name(name) or name)
        matches = password_matches(verifier, password)
        if not (matches and known):
            return Failure("wrong password" if known else "unknown user", name)
        if identity not in ("", name):
            return Failure("authorisation identity differs from the name", name)
        name = prepared_name(name) or name
        return Success(Principal(name, "PLAIN", self._roles_of(name)))


class _HeaderWithIdentity:
    """The gs2-header of a client that names itself as authorisation identity, too (`n,a=ada,`).

    Cyrus clients do so.  scramp refuses any authorisation identity, and takes the header without it; but the
    proof is over the header as it was sent, which is what this gives back.
    """

    def __init__(self, header: str) -> None:
        self._header = header.encode("utf-8")

    def make_cbind_input(self, channel_binding: Any) -> bytes:
        """What the client has to repeat in its final message."""
        binding = bytes(channel_binding.data) if self._header.startswith(b"p=") else b""
        return self._header + binding


@cache
def end_point_of(certificate: str | None) -> bytes | None:
    """What a login is bound to where this certificate (PEM) was shown; None where there is no such thing:
    no TLS, or a signature whose hash nobody has named (RFC 5929, section 4).
    """
    from scramp import ScramException, ScramMechanism

    if certificate is None:
        return None
    try:
        server = ScramMechanism().make_server(lambda name: None, channel_binding=(END_POINT, certificate))
    except ScramException:
        return None
    return bytes(server.cb.data)


class Scram:
    """SCRAM (RFC 5802, RFC 7677). With `end_point` its -PLUS forms as well, which bind the login to the
    certificate that this side has shown (tls-server-end-point, RFC 5929): whoever stands between gets nothing
    that works elsewhere. Whoever could bind, and was told that this side can't, is refused then.
    """

    slow = False  # the server hashes five times, the client has the PBKDF2

    def __init__(
        self, mechanism: str, verifier_of: VerifierOf, roles_of: RolesOf = no_roles,
        end_point: bytes | None = None,
    ) -> None:  # fmt: skip
        from scramp import ScramMechanism  # loads half of asyncio; a broker without users never needs it

        self._mechanism = mechanism
        self._verifier_of = verifier_of
        self._roles_of = roles_of
        self._known = False
        self._name: str | None = None
        self._server: Any = ScramMechanism(mechanism).make_server(
            self._keys_of, channel_binding=end_point and (END_POINT, end_point)
        )
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
        flag, *_ = header.split(",")
        self._server.set_client_first(message if identity is None else f"{flag},,{rest}")
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
        return Success(Principal(self._name, self._mechanism, self._roles_of(self._name)), final)


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
