"""The brokers that the sets of one producer are spread over, often a single one: the first coordinates, the
others are participants.

A client for each is opened when it is first asked. What a broker refuses, or that it cannot be reached, is
said with which one it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from amqp_broker.client import BlockingConnection, ClientError, ConnectFailed, Gone, WaitTimeout
from amqp_broker.pipeline.errors import BrokerUnreachable, EpochError
from amqp_broker.pipeline.set_client import EpochStatus, SetClient, SetRefused

COORDINATOR: Final = 0
T = TypeVar("T")


class SetBrokers:
    """`names` say in messages which broker it is, `connect(number)` gives a connection, and `drop(number)`
    closes one that was of no use.
    """

    def __init__(
        self,
        names: Sequence[str],
        group: str,
        connect: Callable[[int], BlockingConnection],
        drop: Callable[[int], None],
    ) -> None:
        self.names = names
        self._group = group
        self._connect = connect
        self._drop = drop
        self.coordinator = COORDINATOR
        """Which of them decides."""
        self._clients: dict[int, SetClient] = {}
        self._stores: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.names)

    def ask(self, number: int, question: Callable[[SetClient], T]) -> T:
        """The answer of one broker. Raises BrokerUnreachable, after which it is asked over a new
        connection, and what it refused.
        """
        return self.guard(number, lambda: question(self._client(number)))

    def _client(self, number: int) -> SetClient:
        client = self._clients.get(number)
        if client is None:
            client = self._clients[number] = SetClient(self._connect(number), self._group)
        return client

    def guard(self, number: int, do: Callable[[], T]) -> T:
        """Does something with one broker otherwise, with the errors of `ask`."""
        try:
            return do()
        except SetRefused as refused:
            refused.args = (f"the broker at {self.names[number]}: {refused}",)
            raise
        except (Gone, WaitTimeout, ConnectFailed, BrokerUnreachable) as error:
            self._clients.pop(number, None)
            self._stores.pop(number, None)
            self._drop(number)
            if isinstance(error, BrokerUnreachable):
                raise
            raise BrokerUnreachable(
                f"the broker at {self.names[number]} did not answer: {error}; is it still running?"
            ) from None

    def status(self, number: int, producer: str, epoch: int) -> EpochStatus:
        """What one broker knows of an epoch."""
        found = self.ask(number, lambda client: client.status(producer, epoch))
        if len(self) > 1 and not found.store:
            raise EpochError(
                f"the broker at {self.names[number]} does not tell the id of its store: several brokers in "
                "the option amqp.url want amqp-brokers of this release"
            )
        self._stores[number] = found.store
        return found

    def store(self, number: int, producer: str, epoch: int) -> str:
        """The id of a broker's store; asked for once on each connection."""
        return self._stores.get(number) or self.status(number, producer, epoch).store

    def number_of(self, store: str) -> int | None:
        """Which broker has this store, of those that told theirs."""
        return next((number for number, known in self._stores.items() if known == store), None)

    def find(self, store: str, producer: str, epoch: int) -> int | None:
        """Which broker has this store; those that did not tell theirs are asked. Raises BrokerUnreachable."""
        found = self.number_of(store)
        if found is None:
            found = next((n for n in range(len(self)) if self.store(n, producer, epoch) == store), None)
        return found

    def close(self) -> None:
        """Detaches everywhere; the connections stay: they live on, for hundreds of batches, and links must
        not pile up on them. A client whose connection is gone has nothing to detach.
        """
        for client in self._clients.values():
            with suppress(ClientError):
                client.close()
        self._clients.clear()
