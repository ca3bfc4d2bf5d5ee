"""The process that the checks of ``exactly_once`` kill: ``python mover.py URL QUEUE TASK NUMBER``."""

from __future__ import annotations

import random
import sys

from client import Client
from controller import Controller
from exactly_once import LARGEST_BATCH, MESSAGES, move
from proton import Message

UNTIL_KILLED_S = 60
"""How long the process waits for its death, should its parent have died before it."""


def move_all(client: Client, number: int) -> None:
    """Moves until the first queue is empty; the parent kills this process somewhere between two lines."""
    controller = Controller(client)
    chance = random.Random(number)
    while True:
        counting = client.receiver(credit=MESSAGES)
        left = counting.drained()
        counting.close()
        if not left:
            return
        move(client, controller, chance, min(left, chance.randint(1, LARGEST_BATCH)), way=number % 2 == 1)
        print("moved", flush=True)


def stop_in_the_middle(client: Client, way: bool) -> None:
    controller = Controller(client)
    receiver = client.receiver(credit=3)
    sender = client.connection.create_sender(f"{client.queue}-out")
    transaction = controller.declare(settle_before_discharge=way)
    for _ in range(3):
        delivery, message = receiver.receive()
        transaction.accept(delivery)
        controller.send(transaction, sender, [Message(body=message.body)])
    print("in the middle", flush=True)
    client.connection.wait(lambda: False, timeout=UNTIL_KILLED_S)


def main() -> None:
    url, queue, task, number = sys.argv[1:]
    client = Client(url)
    client.queue = queue
    if task == "stop in the middle":
        stop_in_the_middle(client, way=number == "1")
    else:
        move_all(client, int(number))
    client.close()
    print("finished", flush=True)


main()
