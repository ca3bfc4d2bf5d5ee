"""The checks of what transactions are for: consume, transform, produce, each message once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from client import TIMEOUT_S, CheckFailed, Client, check, expect, settle
from controller import Controller
from proton import Delivery, Message, uint

MESSAGES = 300
LARGEST_BATCH = 12
KILLS = 6
MOVER = Path(__file__).with_name("mover.py")


def move(client: Client, controller: Controller, chance: random.Random, size: int, way: bool) -> bool:
    """Moves ``size`` messages from the queue to the queue ``-out`` and says whether that was committed."""
    receiver = client.receiver(credit=size)
    sender = client.connection.create_sender(f"{client.queue}-out")
    transaction = controller.declare(settle_before_discharge=way)
    deliveries = []
    for _ in range(size):
        delivery, message = receiver.receive()
        transaction.accept(delivery)
        deliveries.append(delivery)
        controller.send(transaction, sender, [Message(body=message.body)])
    commit = chance.random() < 0.6
    if commit:
        controller.commit(transaction)
        if not way:
            for delivery in deliveries:
                expect("settled by the broker at the commit", True, delivery.settled)
                delivery.settle()
    else:
        controller.abort(transaction)
    receiver.close()
    sender.close()
    return commit


def expect_all_moved(client: Client) -> None:
    receiver = client.receiver_of(f"{client.queue}-out", credit=MESSAGES)
    moved = [receiver.accept().body for _ in range(MESSAGES)]
    expect("in the second queue, in order", list(range(MESSAGES)), moved)
    expect("more in the second queue", 0, receiver.drained())
    expect("left in the first queue", 0, client.receiver().drained())


@check(f"transaction: {MESSAGES} messages moved with random aborts: each once, in order")
def random_aborts(client: Client) -> None:
    client.send(Message(body=uint(n)) for n in range(MESSAGES))
    controller = Controller(client)
    chance = random.Random(4)
    left, aborts = MESSAGES, 0
    while left:
        size = min(left, chance.randint(1, LARGEST_BATCH))
        if move(client, controller, chance, size, way=chance.random() < 0.5):
            left -= size
        else:
            aborts += 1
    expect("some were aborted", True, aborts > 5)
    expect_all_moved(client)


def wait_for_rollback(client: Client) -> None:
    """Returns when each message is in one queue or the other: the broker knows that the process is dead."""
    counts = [-1]
    deadline = time.monotonic() + TIMEOUT_S
    while sum(counts) != MESSAGES:
        if time.monotonic() > deadline:
            raise CheckFailed(f"messages in the two queues: expected {MESSAGES} together, got {counts}")
        counts = []
        for address in (client.queue, f"{client.queue}-out"):
            receiver = client.receiver_of(address, credit=MESSAGES)
            counts.append(receiver.drained())
            receiver.close()


@contextmanager
def mover(client: Client, *arguments: object) -> Iterator[Iterator[str]]:
    """A process that works on the check's queues, as the lines that it prints; it is killed at the end."""
    command = [sys.executable, str(MOVER), client.url, client.queue, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield iter(process.stdout)
        finally:
            process.kill()


@check(f"transaction: moved by a process that is killed {KILLS} times: each once, in order")
def killed_again_and_again(client: Client) -> None:
    client.send(Message(body=uint(n)) for n in range(MESSAGES))
    chance = random.Random(5)
    for number in range(KILLS):
        with mover(client, "move", number) as lines:
            for _ in range(chance.randint(1, 5)):
                expect("line of the process", "moved", next(lines, "nothing").strip())
        wait_for_rollback(client)
    with mover(client, "finish", KILLS) as lines:
        expect("last line of the process", "finished", [*lines][-1].strip())
    expect_all_moved(client)


def killed_in_the_middle(client: Client, way: bool) -> None:
    client.send(Message(body=uint(n)) for n in range(5))
    with mover(client, "stop in the middle", int(way)) as lines:
        expect("line of the process", "in the middle", next(lines, "nothing").strip())
        expect("sends seen while it lives", 0, client.receiver_of(f"{client.queue}-out", credit=10).drained())
        others = client.receiver(credit=10)
        expect("seen of what it received", 2, others.drained())
        for body in (3, 4):
            delivery, message = others.receive()
            expect("not received by it", body, message.body)
            settle(delivery, Delivery.RELEASED)
        others.close()
    again = client.receiver(credit=5)
    for body in range(5):
        message = again.accept()
        expect("comes again, with delivery-count", (body, 0), (message.body, message.delivery_count))
    expect("sends seen after its death", 0, client.receiver_of(f"{client.queue}-out", credit=10).drained())


@check("transaction: its process is killed in the middle: rolled back")
def killed_unsettled(client: Client) -> None:
    killed_in_the_middle(client, way=False)


@check("transaction: its process is killed in the middle, settle_before_discharge: rolled back")
def killed_settled(client: Client) -> None:
    killed_in_the_middle(client, way=True)
