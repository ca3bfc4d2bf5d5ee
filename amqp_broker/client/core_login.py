"""What happens before the open: how the engine is set up, and the SASL steps that lead to the login (5.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from amqp_broker.client.errors import LoginRefused
from amqp_broker.client.sasl import Login
from amqp_broker.client.settings import ClientSettings, Endpoint
from amqp_broker.frames import MIN_MAX_FRAME_SIZE
from amqp_broker.frames.sasl import SASL_OK
from amqp_broker.links import (
    Connection,
    ConnectionSettings,
    Limits,
    SaslChallengeReceived,
    SaslMechanismsReceived,
    SaslOutcomeReceived,
)

TOKEN_FRAME_BYTES: Final = 65_536  # more than any broker takes of a token


class CoreLogin:
    """Answers what the peer asks during SASL. `refused` is why there will be no connection, or None."""

    def __init__(self, engine: Connection, settings: ClientSettings, endpoint: Endpoint) -> None:
        self.refused: LoginRefused | None = None
        self._engine = engine
        self._hostname = settings.hostname or endpoint.host
        self._login = Login(settings, endpoint)
        self.handlers: dict[type, Callable[[Any], None]] = {
            SaslMechanismsReceived: self._on_mechanisms,
            SaslChallengeReceived: self._on_challenge,
            SaslOutcomeReceived: self._on_outcome,
        }

    def _on_mechanisms(self, event: SaslMechanismsReceived) -> None:
        try:
            mechanism, response = self._login.choose(event.mechanisms)
        except LoginRefused as error:
            self._refuse(error)
        else:
            self._engine.sasl_init(mechanism, response, self._hostname)

    def _on_challenge(self, event: SaslChallengeReceived) -> None:
        try:
            self._engine.sasl_response(self._login.respond(event.challenge))
        except LoginRefused as error:
            self._refuse(error)

    def _on_outcome(self, event: SaslOutcomeReceived) -> None:
        if event.code != SASL_OK:
            self.refused = self._login.refused(event.code)
            return
        try:
            self._login.succeeded(event.additional_data)
        except LoginRefused as error:
            self._refuse(error)

    def _refuse(self, error: LoginRefused) -> None:
        """It is us who do not go on."""
        self.refused = error
        self._engine.lose(None)


def engine_settings(settings: ClientSettings, endpoint: Endpoint) -> ConnectionSettings:
    """The client's end of the engine."""
    return ConnectionSettings(
        server=False,
        container_id=settings.container_id,
        hostname=settings.hostname or endpoint.host,
        max_frame_size=settings.max_frame_size_bytes,
        idle_time_out_ms=settings.idle_time_out_ms,
        sasl=settings.sasl,
        limits=Limits(
            open_timeout_s=settings.open_timeout_s,
            header_timeout_s=min(2.0, settings.open_timeout_s),
            close_timeout_s=settings.close_timeout_s,
            max_message_bytes=settings.max_message_bytes,
            sasl_frame_size=MIN_MAX_FRAME_SIZE if settings.token is None else TOKEN_FRAME_BYTES,
        ),
    )
