"""The bounds of transactions. Each is a default that the configuration may change."""

from typing import Final

LIVE_PER_CONNECTION: Final = 64  # a controller works on a few at a time; a flood of declares ends here
OPERATIONS_PER_TRANSACTION: Final = 10_000  # what one discharge puts into one store commit
BYTES_PER_TRANSACTION: Final = 64 << 20  # messages that only this transaction keeps in memory
TIMEOUT_S: Final = 120.0  # from the declare; what it holds is free again then
REMEMBERED_PER_CONNECTION: Final = 256  # aborted ones whose reason the next use is told
REMEMBERED_S: Final = 600.0  # and for how long: well beyond any controller that is still there
TXN_ID_BYTES: Final = 16  # random, so that nobody guesses one; the standard allows 32 (4.5.4)
CONTROL_LINK_CREDIT: Final = 10  # the least that a control link is kept at

assert REMEMBERED_PER_CONNECTION >= LIVE_PER_CONNECTION, "all that are live may time out at once"
assert REMEMBERED_S > TIMEOUT_S, "who was late is told so for longer than it may be late"
assert TXN_ID_BYTES <= 32, "4.5.4"


class TransactionLimits:
    """The bounds of one broker: counts, octets, and seconds."""

    __slots__ = ("bytes_per_transaction", "live", "operations", "timeout_s")

    def __init__(
        self,
        live: int = LIVE_PER_CONNECTION,
        operations: int = OPERATIONS_PER_TRANSACTION,
        bytes_per_transaction: int = BYTES_PER_TRANSACTION,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.live = live
        self.operations = operations
        self.bytes_per_transaction = bytes_per_transaction
        self.timeout_s = timeout_s
