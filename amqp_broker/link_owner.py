"""What stands behind a link, and what that and the answer to an attach may ask of the connection.

`LinkOwner` is a `connection_task.ConnectionTask`, `LinkTable` its `dispatcher.Dispatcher`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from amqp_broker.authorisation import Principal
from amqp_broker.coordinator import Ended, Transaction
from amqp_broker.frames import Error
from amqp_broker.links import AttachReceived, Delivery, OutgoingDelivery, ReceiverLink, SenderLink


class Source(Protocol):
    """What stands behind a link on which we send and that is no queue's."""

    def on_credit(self) -> None:
        """Credit or drain changed, or there is room again."""

    def on_outcomes(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        """The receiver gave a run of deliveries this state."""

    def on_detached(self, unsettled: list[OutgoingDelivery]) -> None:
        """The link is gone."""


class Service(Protocol):
    """What stands behind a link that feeds no queue: the coordinator, or a node that answers questions."""

    def on_deliveries(self, link: ReceiverLink, deliveries: list[Delivery]) -> None:
        """A run of complete messages; the service calls `link.processed`."""

    def on_detached(self, link: ReceiverLink) -> None:
        """The link is gone."""


class OwnedTransactions(Protocol):
    """The transactions of one connection, for those that refuse work in them, or take part."""

    def find(self, txn_id: object) -> Transaction:
        """The live one. Raises TransactionError."""

    def refuse_posts(
        self, transaction: Transaction, link: ReceiverLink, deliveries: list[Delivery], error: Error
    ) -> None:
        """Provisionally rejected."""

    def post_to_node(
        self, transaction: Transaction, link: ReceiverLink, delivery: Delivery, node: Any
    ) -> None:
        """A message for a control node, as a part of the transaction."""


class LinkTable(Protocol):
    """What stands behind each link of one connection."""

    @property
    def transactions(self) -> OwnedTransactions:
        """Those that control links of the connection declared."""

    def serve_source(self, link: SenderLink, source: Source) -> None:
        """From now on `source` stands behind a link on which we send."""

    def serve_consumer(self, link: SenderLink, consumer: Any) -> None:
        """From now on a queue's consumer does."""

    def serve_posts(self, link: ReceiverLink, service: Service) -> None:
        """From now on `service` takes what arrives on a link."""

    def serve_producer(self, link: ReceiverLink, producer: Any) -> None:
        """From now on what arrives on it is posted."""

    def serve_transactions(self, link: ReceiverLink, event: AttachReceived) -> None:
        """A control link: the transactions of this connection stand behind it, and accept it (4.1)."""

    def wait_for_output(self, source: Source) -> None:
        """Have `source.on_credit` called when the output has room again."""

    def wait_no_more(self, source: Source) -> None:
        """It is not to be called; harmless where nothing waits."""


class LinkOwner(Protocol):
    """One connection. Outside of its own turns only what leaves mail may be called: `run_in_turn`,
    `answered`, `deliver`, `unblock`, `node_deleted`, `steal`.
    """

    log: Any
    principal: Principal

    @property
    def dispatcher(self) -> LinkTable:
        """What stands behind its links."""

    @property
    def container_id(self) -> str:
        """The peer's container-id, from its open."""

    def link_key(self, link: ReceiverLink | SenderLink) -> tuple[str, str, bool, str]:
        """What a link is known by among all connections (2.6.1), and whose it is."""

    def fail(self, error: Exception) -> None:
        """A fault of the broker met what the peer asked for: the connection ends."""

    def run_in_turn(self, call: Callable[..., None], *arguments: Any) -> None:
        """Have `call(*arguments)` run in a turn of this connection, where its engine may be touched."""

    def answered(self, link: ReceiverLink, delivery: Delivery, outcome: Any) -> None:
        """One of the broker's own nodes is done with a message of this connection."""

    def deliver(self, consumer: Any, records: list[Any]) -> None:
        """A queue assigned `records` to a consumer of this connection."""

    def unblock(self, producer: Any) -> None:
        """A full queue has room again."""

    def node_deleted(self, link: ReceiverLink | SenderLink, queue: Any) -> None:
        """The node that a link of this connection was attached to is gone."""

    def steal(self, link: ReceiverLink | SenderLink) -> None:
        """Another connection of the same container attached a link of this name (2.6.1)."""


class TransactionOwner(LinkOwner, Protocol):
    """One connection, as its transactions know it."""

    def partial_txn_ids(self) -> set[bytes]:
        """Of the deliveries that are half here; in a turn of this connection."""

    def tell_discharged(self, job: Any, ended: Ended) -> None:
        """The discharge of a transaction of this connection is decided."""

    def tell_ended(self, ended: Ended) -> None:
        """A transaction of this connection was rolled back from outside."""
