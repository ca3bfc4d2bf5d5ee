"""What the clients of one kind do in all the lives of a broker, and what must be true of it in the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from tests.crash.deaths import Death
from tests.crash.evidence import Record
from tests.support.broker_clients import body_of, take_everything
from tests.support.wire_client import WireConnection


class Workload(ABC):
    """It outlives the brokers: in each life clients are started, which end with it. The last life is for
    `settle`, and after it comes `check`.
    """

    name: ClassVar[str]
    points: ClassVar[tuple[str, ...]]
    """The fault points on the way of what these clients do."""

    @abstractmethod
    def start(self, port: int, life: int, point: str) -> None:
        """The clients of a life, which is to end at a point, or at any moment."""

    def reached(self, point: str) -> bool:
        """Whether the clients are at a point of their own, which the broker does not know."""
        return False

    @abstractmethod
    def join(self) -> None:
        """Their broker is gone: wait for them."""

    @abstractmethod
    def settle(self, port: int) -> None:
        """Find out what is not known yet, and take everything that is there."""

    @abstractmethod
    def check(self, deaths: Sequence[Death]) -> list[str]:
        """All complaints."""

    @abstractmethod
    def records(self) -> Iterable[Record]:
        """What was done and told, in order."""

    @abstractmethod
    def summary(self) -> str:
        """What happened, in figures."""


def drain(port: int, queue: str) -> list[str]:
    """The bodies of everything that a queue has, in its order."""
    with WireConnection.connect("127.0.0.1", port, container_id=f"drain-{queue}") as connection:
        receiver = connection.begin().attach_receiver("drain", queue)
        return [body_of(delivery).decode() for delivery in take_everything(receiver)]
