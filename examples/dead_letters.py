"""A message that kills whoever handles it: `python examples/dead_letters.py`.

Workers, each a process, take 100 orders from a queue; a worker that meets order 42 dies of it, and another
one takes its place. After ten deaths the broker has the order among the dead letters, and all others were
handled once. Then the bug is mended, and the order goes the way back to its queue.
"""

from __future__ import annotations

import os
import subprocess
import sys

from amqp_broker import connect, running_broker

ORDERS, DEAD_LETTERS = "orders", "dead-letters"
COUNT, DEADLY = 100, 42


def work(url: str, mended: bool) -> None:
    """Handle orders until there are none, and say which."""
    with connect(url) as connection:
        receiver = connection.open_receiver(ORDERS)
        while (received := receiver.receive_now()) is not None:
            if int(received.body) == DEADLY and not mended:
                os._exit(1)
            sys.stdout.write(f"{received.body}\n")
            sys.stdout.flush()
            receiver.accept(received)


def run_worker(url: str, mended: str = "") -> tuple[int, list[int]]:
    """The status of a worker's process, and the orders that it has handled."""
    command = [sys.executable, __file__, url, mended]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return done.returncode, [int(line) for line in done.stdout.split()]


def main() -> None:
    """Workers until one of them lives; a look at the dead letters; the way back."""
    with running_broker() as broker:
        with connect(broker.url) as connection:
            connection.open_sender(ORDERS).send_many(str(order) for order in range(COUNT))
        handled: list[int] = []
        deaths = 0
        while True:
            status, orders = run_worker(broker.url)
            handled += orders
            if status == 0:
                break
            deaths += 1
        assert sorted(handled) == [order for order in range(COUNT) if order != DEADLY], handled
        print(f"{deaths} workers died, {len(handled)} orders were handled, each once")
        with connect(broker.url) as connection:
            letter = connection.open_receiver(DEAD_LETTERS).receive(timeout_s=20)
            noted = {key.value: value for key, value in letter.message_annotations.items()}
            address, reason = noted["x-opt-dead-letter-address"], noted["x-opt-dead-letter-reason"]
            tries = noted["x-opt-dead-letter-count"].value
            print(f"order {letter.body}, from {address}: {reason}, {tries} tries")
        moved = broker.call(lambda running: running.redrive(DEAD_LETTERS))
        status, orders = run_worker(broker.url, "mended")
        print(f"{moved} went back, and was handled: {orders}")
        assert (moved, status, orders) == (1, 0, [DEADLY])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(sys.argv[1], sys.argv[2] == "mended")
    else:
        main()
