"""What can go wrong between bytes and values, each with the condition that the wire knows for it (2.8.15,
2.8.16).
"""


class AmqpError(Exception):
    """Base of all errors that have a condition of the standard.

    `condition` is the error's symbol, `description` says what was expected and what came, `info` goes into
    the error's info map.
    """

    condition: str = "amqp:internal-error"

    def __init__(
        self, description: str = "", condition: str | None = None, info: dict[str, object] | None = None
    ) -> None:
        super().__init__(description)
        if condition is not None:
            self.condition = condition
        self.description = description
        self.info: dict[str, object] = {} if info is None else info

    def __str__(self) -> str:
        return f"{self.condition}: {self.description}" if self.description else self.condition


class DecodeError(AmqpError):
    """The peer's bytes are not a value, composite or message of the standard."""

    condition = "amqp:decode-error"


class FramingError(AmqpError):
    """The peer's bytes are not a frame: size, data offset or type is wrong (2.3)."""

    condition = "amqp:connection:framing-error"


class EncodeError(AmqpError):
    """The caller asked for a value that the wire cannot carry. Ours, never the peer's fault."""

    condition = "amqp:internal-error"
