"""One data directory, many lives of the broker on it, clients under load in each, and a drain with a check at
the end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from amqp_broker.persistence.sqlite import check_directory
from tests.crash.broker_process import BrokerProcess, NotListening
from tests.crash.history import History, check_history
from tests.crash.traffic import Client, DrainingClient, ReceivingClient, SendingClient

JOIN_SECONDS: Final = 30.0
SECONDS_TO_FIRST_EVENT: Final = 20.0


@dataclass(slots=True)
class Load:
    """How many clients there are, on which queues."""

    senders: int = 3
    receivers: int = 3
    queues: tuple[str, ...] = ("orders", "invoices")


@dataclass(slots=True)
class Scenario:
    """The lives so far: their history, and complaints that are not in the history."""

    directory: Path
    seed: int
    load: Load = field(default_factory=Load)
    history: History = field(default_factory=History)
    complaints: list[str] = field(default_factory=list)
    lives: int = 0

    def start(self, environment: Mapping[str, str] | None = None) -> BrokerProcess:
        """The next life of the broker."""
        self.lives += 1
        return BrokerProcess(self.directory / "data", self.directory / "broker.log", environment=environment)

    def clients(self, port: int) -> list[Client]:
        """Started clients of this life, spread over the queues."""
        life, queues = self.lives, self.load.queues
        clients: list[Client] = []
        for number in range(self.load.senders):
            name = f"s{number}.{life}"
            chance = random.Random(f"{self.seed} {name}")
            clients.append(
                SendingClient(name, port, life, queues[number % len(queues)], self.history, chance)
            )
        for number in range(self.load.receivers):
            name = f"r{number}.{life}"
            chance = random.Random(f"{self.seed} {name}")
            clients.append(
                ReceivingClient(name, port, life, queues[number % len(queues)], self.history, chance)
            )
        for client in clients:
            client.start()
        return clients

    def wait_for_traffic(self, events_before: int) -> None:
        """Until a client has recorded something in this life."""
        deadline = time.monotonic() + SECONDS_TO_FIRST_EVENT
        while len(self.history.events) == events_before and time.monotonic() < deadline:
            time.sleep(0.000_2)

    def join(self, clients: list[Client]) -> None:
        """Wait for clients whose broker is gone; what they met besides that is a complaint."""
        for client in clients:
            client.join(JOIN_SECONDS)
            if client.is_alive():
                self.complaints.append(f"client {client.name} did not end with its broker")
            elif client.problem is not None:
                self.complaints.append(
                    f"client {client.name}: {type(client.problem).__name__}: {client.problem}"
                )

    def finish(self) -> list[str]:
        """Drain all queues in a last life, stop it, check the store and the history: all complaints."""
        broker = self.start()
        try:
            port = broker.wait_until_listening()
            drains: list[Client] = [
                DrainingClient(f"d{number}.{self.lives}", port, self.lives, queue, self.history)
                for number, queue in enumerate(self.load.queues)
            ]
            for drain in drains:
                drain.start()
            for drain in drains:
                drain.join()
                if drain.problem is not None:
                    self.complaints.append(
                        f"drain of {drain.queue}: {type(drain.problem).__name__}: {drain.problem}"
                    )
            status = broker.stop()
            if status != 0:
                self.complaints.append(f"a clean stop ended with {status}; {broker.log_tail()}")
        except NotListening as error:
            return [*self.complaints, f"the last life: {error}"]
        finally:
            broker.kill()
        self.complaints += [f"checker: {words}" for words in check_directory(self.directory / "data")]
        return self.complaints + check_history(self.history.events)
