"""The bodies of the messages to a transaction coordinator (4.5); its outcomes are in `outcomes`."""

from typing import Any

from amqp_broker.frames.composite import Composite, composite, wire


@composite(0x31)
class Declare(Composite):
    """Asks for a transaction id (4.5.2)."""

    global_id: Any = wire("*", requires="global-tx-id", default=None)


@composite(0x32)
class Discharge(Composite):
    """Commits a transaction, or rolls it back if `fail` (4.5.3)."""

    txn_id: bytes = wire("*", requires="txn-id", mandatory=True, default=None)
    fail: bool | None = wire("boolean", default=None)
