"""The server's side of a SASL exchange on one connection (5.3.2): the engine's events to the login, and
back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from amqp_broker.authentication import Challenge, Failure, Login, Step, Success
from amqp_broker.connection import Expiring
from amqp_broker.frames import Error
from amqp_broker.sasl_mechanisms import OUTCOME_SYSTEM

if TYPE_CHECKING:
    from amqp_broker.authentication import Authenticator
    from amqp_broker.connection import Connection
    from amqp_broker.links import SaslInitReceived, SaslResponseReceived
    from amqp_broker.peers import PeerInfo


class LoginEnd(Expiring):
    """Ends a connection when the proof of its login, a token, does not hold any more."""

    def __init__(self, connection: Connection, lasts_s: float) -> None:
        self._connection = connection
        self._at: float | None = trio.current_time() + lasts_s

    def next_deadline(self) -> float | None:
        """The end of the token's time."""
        return self._at

    def expire(self, now: float) -> None:
        """Close, once."""
        if self._at is not None and now >= self._at:
            self._at = None
            self._connection.log.info("login.expired", principal=self._connection.principal.name)
            description = "the token of the login has expired"
            self._connection.engine.close(
                Error(condition="amqp:unauthorized-access", description=description)
            )


class SaslDialogue:
    """One for each connection; a success gives the connection its principal."""

    def __init__(self, connection: Connection, authenticator: Authenticator, peer: PeerInfo) -> None:
        self._connection = connection
        self._authenticator = authenticator
        self._peer = peer
        self._login: Login | None = None

    async def on_init(self, event: SaslInitReceived) -> None:
        """The client chose a mechanism."""
        self._login = self._authenticator.begin(event.mechanism, self._peer.listener, self._peer)
        await self._respond(event.initial_response)

    async def on_response(self, event: SaslResponseReceived) -> None:
        """The client answered a challenge."""
        await self._respond(event.response)

    async def _respond(self, response: bytes | None) -> None:
        assert self._login is not None, "the engine lets no response come before the init"
        try:
            answer: Step = await self._login.respond(response)
        except Exception:
            # Ours, or of a library: the peer still gets the outcome that the standard has for it.
            self._connection.log.exception("login.internal_error", mechanism=self._login.mechanism)
            answer = Failure("a fault of the broker", code=OUTCOME_SYSTEM)
        engine = self._connection.engine
        if isinstance(answer, Challenge):
            engine.sasl_challenge(answer.data)
        elif isinstance(answer, Success):
            self._connection.principal = answer.principal
            if answer.lasts_s is not None:
                self._connection.expiring[LoginEnd(self._connection, answer.lasts_s)] = None
            engine.sasl_outcome(answer.code, answer.additional_data)
        else:
            self._connection.log.warning(
                "login.failed", mechanism=self._login.mechanism, name=answer.name, reason=answer.reason
            )
            engine.sasl_outcome(answer.code)
