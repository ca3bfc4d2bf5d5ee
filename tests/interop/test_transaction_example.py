"""The transactional example of docs/how-to/transactions.md, as a process of its own against a broker."""

from __future__ import annotations

import subprocess
import sys

from amqp_broker.embedding import running_broker
from amqp_broker.frames import Message
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.support.broker_clients import counts, receive, session_to
from tests.tidy.sources import ROOT


def test_each_order_became_an_invoice_in_one_transaction() -> None:
    """Three committed transactions: the orders are gone, the invoices there, and their outcomes known."""
    with running_broker() as broker:
        command = [sys.executable, str(ROOT / "examples" / "in_transactions.py"), broker.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = [line.split() for line in done.stdout.splitlines()]
        assert [word for _, word in lines] == ["committed"] * 3
        assert counts(broker, "orders") == (0, 0)
        with session_to(broker) as session:
            found = receive(session.attach_receiver("r", "invoices", credit=10), 3)
        texts = [Message(each.payload).body_sections()[0].value for each in found]
        assert texts == [f"invoice for order {number}" for number in (1, 2, 3)]
