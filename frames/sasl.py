"""The bodies of SASL frames (5.3.3). What may hold a secret is never printed."""

from typing import Final

from amqp_broker.frames.composite import Composite, composite, wire

SASL_OK: Final = 0
SASL_AUTH: Final = 1
SASL_SYS: Final = 2
SASL_SYS_PERM: Final = 3
SASL_SYS_TEMP: Final = 4


@composite(0x40, ("sasl-frame",))
class SaslMechanisms(Composite):
    """The mechanisms that the server supports (5.3.3.1)."""

    sasl_server_mechanisms: tuple[str, ...] = wire("symbol", multiple=True, mandatory=True, default=None)


@composite(0x41, ("sasl-frame",))
class SaslInit(Composite):
    """The client's choice of a mechanism (5.3.3.2)."""

    mechanism: str = wire("symbol", mandatory=True, default=None)
    initial_response: bytes | None = wire("binary", secret=True, default=None)
    hostname: str | None = wire("string", default=None)


@composite(0x42, ("sasl-frame",))
class SaslChallenge(Composite):
    """The server's challenge (5.3.3.3)."""

    challenge: bytes = wire("binary", secret=True, mandatory=True, default=None)


@composite(0x43, ("sasl-frame",))
class SaslResponse(Composite):
    """The client's response (5.3.3.4)."""

    response: bytes = wire("binary", secret=True, mandatory=True, default=None)


@composite(0x44, ("sasl-frame",))
class SaslOutcome(Composite):
    """How the exchange ended (5.3.3.5): 0 ok, 1 auth, 2 sys, 3 sys-perm, 4 sys-temp."""

    code: int = wire("sasl-code", mandatory=True, default=None)
    additional_data: bytes | None = wire("binary", secret=True, default=None)
