"""The server's side of a SASL exchange on one connection (5.3.2): the engine's events to the login, and
back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp_broker.authentication import Challenge, Login, Success

if TYPE_CHECKING:
    from amqp_broker.authentication import Authenticator
    from amqp_broker.connection import Connection
    from amqp_broker.links import SaslInitReceived, SaslResponseReceived
    from amqp_broker.peers import PeerInfo


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
        answer = await self._login.respond(response)
        engine = self._connection.engine
        if isinstance(answer, Challenge):
            engine.sasl_challenge(answer.data)
        elif isinstance(answer, Success):
            self._connection.principal = answer.principal
            engine.sasl_outcome(answer.code, answer.additional_data)
        else:
            self._connection.log.warning(
                "login.failed", mechanism=self._login.mechanism, name=answer.name, reason=answer.reason
            )
            engine.sasl_outcome(answer.code)
