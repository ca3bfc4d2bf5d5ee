"""Protocol headers and the SASL dialogue, before the AMQP connection proper (2.2, 5.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.frames import AMQP_HEADER, SASL_HEADER, ProtocolHeader, encode_sasl_frame
from amqp_broker.frames.sasl import (
    SASL_AUTH,
    SASL_OK,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from amqp_broker.links.connection_states import ConnectionInput
from amqp_broker.links.errors import (
    FRAMING_ERROR,
    NOT_ALLOWED,
    LocalProtocolError,
    RemoteProtocolError,
    connection_error,
)
from amqp_broker.links.events import (
    SaslChallengeReceived,
    SaslInitReceived,
    SaslMechanismsReceived,
    SaslOutcomeReceived,
    SaslResponseReceived,
)
from amqp_broker.links.sasl_states import SASL_TABLE, SENT_BY_SERVER, SaslInput, SaslState

if TYPE_CHECKING:
    from amqp_broker.links.connection import Connection

UNAUTHORIZED_ACCESS: Final = "amqp:unauthorized-access"


class Negotiation:
    """The stage before `open`. `sasl_state` is None outside SASL."""

    __deletable__ = ("connection",)

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.settings = connection.settings
        self.sasl_state: SaslState | None = None
        self.header_sent = b""
        self._handlers: dict[type, Callable[[Any], None]] = {
            SaslMechanisms: self._on_mechanisms,
            SaslInit: self._on_init,
            SaslChallenge: self._on_challenge,
            SaslResponse: self._on_response,
            SaslOutcome: self._on_outcome,
        }

    def let_go(self) -> None:
        """Nothing comes any more."""
        self._handlers.clear()
        del self.connection

    @property
    def in_sasl(self) -> bool:
        """SASL frames are expected."""
        return self.sasl_state is not None and self.sasl_state not in (SaslState.DONE, SaslState.FAILED)

    def start(self) -> None:
        """A client speaks first (2.2)."""
        self._send_header(SASL_HEADER if self.settings.sasl else AMQP_HEADER)

    def _send_header(self, header: bytes) -> None:
        self.header_sent = header
        if header == SASL_HEADER:
            self.connection.output.write(header)
            self.sasl_state = SaslState.START
        else:
            self.connection.send_header(header)

    def acceptable_header(self) -> bytes:
        """What we answer to a header that we do not take: one that we would."""
        if (
            self.sasl_state is SaslState.DONE
            or self.settings.allow_bare_header
            or not self.settings.sasl_mechanisms
        ):
            return AMQP_HEADER
        return SASL_HEADER

    def header_received(self, header: ProtocolHeader) -> None:
        """The peer's protocol header. Raises a connection error after writing ours when they do not match
        (2.2).
        """
        if self.settings.server:
            self._header_of_client(header.octets)
        else:
            self._header_of_server(header.octets)

    def _header_of_client(self, octets: bytes) -> None:
        done = self.sasl_state is SaslState.DONE
        if octets == SASL_HEADER and self.sasl_state is None and self.settings.sasl_mechanisms:
            self._send_header(SASL_HEADER)
            self.send(
                SaslInput.MECHANISMS, SaslMechanisms(sasl_server_mechanisms=self.settings.sasl_mechanisms)
            )
        elif octets == AMQP_HEADER and (
            done or (self.sasl_state is None and self.settings.allow_bare_header)
        ):
            self.connection.step(ConnectionInput.R_HDR)
            self._send_header(AMQP_HEADER)
        else:
            self.refuse_header(f"protocol header {octets!r}")

    def refuse_header(self, what: str) -> None:
        """Writes the header that we would take, and raises the error that closes (2.2)."""
        ours = self.acceptable_header()
        self.connection.output.write(ours)
        self.connection.step(ConnectionInput.R_HDR)
        self.connection.step(ConnectionInput.S_OTHER_HDR)
        raise connection_error(FRAMING_ERROR, f"expected the protocol header {ours!r}, but found {what}")

    def _header_of_server(self, octets: bytes) -> None:
        if octets != self.header_sent:
            if self.header_sent == AMQP_HEADER:
                self.connection.step(ConnectionInput.R_OTHER_HDR)
            raise connection_error(
                FRAMING_ERROR, f"expected the protocol header {self.header_sent!r}, but found {octets!r}"
            )
        if octets == AMQP_HEADER:
            self.connection.step(ConnectionInput.R_HDR)

    # --- SASL frames

    def frame_received(self, performative: Any) -> None:
        """One SASL frame. Raises a connection error when it is out of order (5.3.2)."""
        handler = self._handlers.get(type(performative))
        if handler is None:
            raise connection_error(
                FRAMING_ERROR, f"expected a SASL frame, but found {type(performative).__name__}"
            )
        handler(performative)

    def _on_mechanisms(self, frame: SaslMechanisms) -> None:
        self._receive(SaslInput.MECHANISMS)
        self.connection.events.tell(SaslMechanismsReceived(frame.sasl_server_mechanisms))

    def _on_init(self, frame: SaslInit) -> None:
        self._receive(SaslInput.INIT)
        if frame.mechanism not in self.settings.sasl_mechanisms:
            self.fail(SASL_AUTH)
            raise connection_error(
                UNAUTHORIZED_ACCESS,
                f"SASL mechanism {frame.mechanism[:64]!r}, but offered are "
                f"{', '.join(self.settings.sasl_mechanisms)}",
            )
        self.connection.wants_answer(
            SaslInitReceived(frame.mechanism, frame.initial_response, frame.hostname)
        )

    def _on_challenge(self, frame: SaslChallenge) -> None:
        self._receive(SaslInput.CHALLENGE)
        self.connection.events.tell(SaslChallengeReceived(frame.challenge))

    def _on_response(self, frame: SaslResponse) -> None:
        self._receive(SaslInput.RESPONSE)
        self.connection.wants_answer(SaslResponseReceived(frame.response))

    def _on_outcome(self, frame: SaslOutcome) -> None:
        self._receive(SaslInput.OUTCOME_OK if frame.code == SASL_OK else SaslInput.OUTCOME_FAILED)
        self.connection.events.tell(SaslOutcomeReceived(frame.code, frame.additional_data))
        if frame.code == SASL_OK:
            self.connection.reader.expect_header()
            self.connection.open_now(AMQP_HEADER)
        else:
            raise connection_error(UNAUTHORIZED_ACCESS, f"SASL failed with code {frame.code}")

    # --- what the caller says

    def outcome(self, code: int, additional_data: bytes | None) -> None:
        """Server: the verdict."""
        if code != SASL_OK:
            self.fail(code)
            return
        self.send(SaslInput.OUTCOME_OK, SaslOutcome(code=code, additional_data=additional_data))
        self.connection.reader.expect_header()

    def fail(self, code: int) -> None:
        """Server: the verdict is no; additional data is not set then (5.3.3.6)."""
        self.send(SaslInput.OUTCOME_FAILED, SaslOutcome(code=code))

    # --- the table

    def _receive(self, what: SaslInput) -> None:
        wrong_side = SENT_BY_SERVER[what] is self.settings.server
        following = None if self.sasl_state is None or wrong_side else SASL_TABLE[self.sasl_state][what]
        if following is None:
            raise self._out_of_order(what)
        self.sasl_state = following

    def _out_of_order(self, what: SaslInput) -> RemoteProtocolError:
        state = "no SASL exchange" if self.sasl_state is None else f"state {self.sasl_state.value}"
        return connection_error(NOT_ALLOWED, f"{what.value} is out of order in {state} (5.3.2)")

    def send(self, what: SaslInput, frame: Any) -> None:
        """One frame of ours. Raises LocalProtocolError when it is out of order, or the other side's."""
        wrong_side = SENT_BY_SERVER[what] is not self.settings.server
        following = None if self.sasl_state is None or wrong_side else SASL_TABLE[self.sasl_state][what]
        if following is None:
            raise LocalProtocolError(
                f"cannot send {what.value} in state {self.sasl_state and self.sasl_state.value}"
            )
        encoded = encode_sasl_frame(frame, self.connection.limits.sasl_frame_size)
        self.sasl_state = following
        self.connection.output.write(encoded)
