"""A message that kills whoever handles it, with a client of others."""

from __future__ import annotations

import subprocess
import sys

from proton import Message
from proton.utils import BlockingConnection

from amqp_broker.testing import running_broker
from tests.tidy.sources import ROOT

COUNT, DEADLY, TRIES = 100, 42, 10
ORDERS, DEAD = "orders", "dead-letters"


def test_one_of_100_kills_its_consumer_ten_times_and_99_are_handled_once() -> None:
    """Each consumer is a process with python-qpid-proton; after ten deaths the message is
    among the dead letters, and says why.
    """
    handled: list[str] = []
    with running_broker() as broker:
        connection = BlockingConnection(broker.url)
        sender = connection.create_sender(ORDERS)
        for number in range(COUNT):
            sender.send(Message(body=f"order {number}", durable=True))
        deaths = 0
        command = [sys.executable, "-m", "tests.interop.crashing_consumer", broker.url, ORDERS]
        while True:
            done = subprocess.run(
                [*command, f"order {DEADLY}"], cwd=ROOT, stdout=subprocess.PIPE, text=True
            )
            handled += done.stdout.splitlines()
            if done.returncode == 0:
                break
            deaths += 1
            assert deaths <= TRIES, "the message still comes"
        letter = connection.create_receiver(DEAD).receive(timeout=20.0)
        connection.close()
    noted = {str(key): value for key, value in letter.annotations.items()}
    assert deaths == TRIES
    assert sorted(handled) == sorted(f"order {number}" for number in range(COUNT) if number != DEADLY)
    assert letter.body == f"order {DEADLY}"
    assert noted["x-opt-dead-letter-reason"] == "max-deliveries"
    assert (noted["x-opt-dead-letter-address"], noted["x-opt-dead-letter-count"]) == (ORDERS, TRIES)
