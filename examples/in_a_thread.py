"""A broker in a thread, beside any program: `python examples/in_a_thread.py`."""

from __future__ import annotations

import sys

from amqp_broker import running_broker
from amqp_broker.bench.command_line import run as bench


def main() -> int:
    """Start a broker, send and receive a thousand messages, and stop it again."""
    with running_broker() as broker:
        print(f"the broker listens on {broker.url}")
        return bench([broker.url, "--count", "1000", "--durable"])


if __name__ == "__main__":
    sys.exit(main())
