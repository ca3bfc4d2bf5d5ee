"""What the clients of one kind do in all the lives of a broker, and what must be true of it in the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Thread

from amqp_broker.testing.blocking_peer import PATIENCE_S, BlockingPeer, ConnectionLost
from tests.crash.deaths import Death
from tests.crash.evidence import Record
from tests.support.broker_clients import body_of, take_everything


class LivingClient(Thread):
    """A client in one life of the broker: a connection with its thread, which ends when the connection is
    lost (that is what a kill does). What it meets besides is kept as `problem`.
    """

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name=name, daemon=True)
        self.port = port
        self.problem: BaseException | None = None

    def run(self) -> None:
        """Until the broker is gone."""
        try:
            self.connect_and_drive()
        except ConnectionLost:
            pass
        except Exception as error:  # a refusal, a silence: whatever no kill explains must not be lost
            self.problem = error

    def connect_and_drive(self) -> None:
        """One connection with its traffic."""
        with BlockingPeer.connect("127.0.0.1", self.port, container_id=self.name) as connection:
            self.drive(connection)

    def drive(self, connection: BlockingPeer) -> None:
        """The traffic of this client."""
        raise AssertionError("a subclass drives")


class Workload(ABC):
    """It outlives the brokers: in each life clients are made, which end with it. The last life is for
    `settle`, and after it comes `check`. What is wrong already is in `complaints`.
    """

    name: str
    points: tuple[str, ...] = ()
    """The fault points on the way of what these clients do, besides those that all messages pass."""
    configuration = ""
    """What the broker has to be told, as TOML."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.clients: Sequence[LivingClient] = ()

    def start(self, port: int, life: int, end: str = "") -> None:
        """The clients of a life, which is to end at a point, or at any moment."""
        self.run(self.made_clients(port, life, end))

    def run(self, clients: Sequence[LivingClient]) -> None:
        """They work from now on."""
        self.clients = clients
        for client in clients:
            client.start()

    def made_clients(self, port: int, life: int, end: str) -> Sequence[LivingClient]:
        """The clients of a life, to be started; nobody where a subclass makes none."""
        return ()

    def reached(self, end: str) -> bool:
        """Whether the clients are at a point of their own, which the broker does not know."""
        return False

    def recorded(self) -> int:
        """How much the clients did and were told in all lives."""
        return 0

    def awaited_commit(self) -> Callable[[], bool] | None:
        """What is true as soon as one of many is sent from now on, if there are such."""
        return None

    def check_alive(self) -> None:
        """While the broker lives, no client may have lost its connection."""
        for client in self.clients:
            if not client.is_alive() and client.problem is None:
                self.complaints.append(f"client {client.name} lost its connection while the broker lived")

    def join(self) -> None:
        """Wait for clients whose time is over; what they met besides that is a complaint."""
        for client in self.clients:
            client.join(PATIENCE_S)
            if client.is_alive():
                self.complaints.append(f"client {client.name} did not end with its broker")
            elif client.problem is not None:
                self.complaints.append(
                    f"client {client.name}: {type(client.problem).__name__}: {client.problem}"
                )

    def settle(self, port: int, life: int) -> None:  # noqa: B027
        """Find out what is not known yet, and take everything that is there."""

    @abstractmethod
    def check(self, deaths: Sequence[Death], data: Path) -> list[str]:
        """What is wrong now that everything is known. `deaths` are those that may have been on the way of
        these clients only; `data` is the store of a broker that has stopped.
        """

    @abstractmethod
    def records(self) -> Iterable[Record]:
        """What was done and told, in order: `who`, `what`, and what else belongs to it."""

    @abstractmethod
    def summary(self) -> str:
        """What happened, in figures."""


def drain(port: int, queue: str) -> list[str]:
    """The bodies of everything that a queue has, in its order."""
    with BlockingPeer.connect("127.0.0.1", port, container_id=f"drain-{queue}") as connection:
        receiver = connection.begin().attach_receiver("drain", queue)
        return [body_of(delivery).decode() for delivery in take_everything(receiver)]
