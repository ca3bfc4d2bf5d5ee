"""An audit of a day's traffic: `python examples/pipeline/audit_a_day.py [--orders 1000] [--out report.html]`.

A broker in this process keeps what was consumed and logs what happens; a shop sends orders and a kitchen
takes them, and both write down what they did. Then the log is archived as Parquet, every message and every
half message is accounted for, also against what they wrote, and the report says PASS or FAIL. Against your
own broker:

    amqp-broker pipeline archive amqp://127.0.0.1:5672 ./archive --compact
    amqp-broker pipeline report ./archive --out report.html
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import attrs

from amqp_broker import running_broker
from amqp_broker.configuration import BrokerConfig, ListenerConfig, load_configuration
from amqp_broker.pipeline import command_line
from amqp_broker.pipeline.demo_traffic import CONFIGURATION, ORDERS, Consumer, Shop
from amqp_broker.pipeline.history_file import HistoryWriter


def configured(folder: Path) -> BrokerConfig:
    """A broker that keeps and logs, on any free port."""
    file = folder / "broker.toml"
    file.write_text(CONFIGURATION)
    return attrs.evolve(
        load_configuration(str(file)),
        data_dir=str(folder / "data"),
        listeners=(ListenerConfig(url="amqp://127.0.0.1:0"),),
    )


def main() -> int:
    """The day, its archive, its report."""
    options = argparse.ArgumentParser(description="an audit of a day's traffic")
    options.add_argument("--orders", type=int, default=1000)
    options.add_argument("--out", default="report.html")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        archive, written = str(folder / "archive"), folder / "history.jsonl"
        with (
            written.open("w") as file,
            HistoryWriter(file) as history,
            running_broker(configured(folder)) as broker,
        ):
            kitchen = Consumer(broker.url, ORDERS, history)
            kitchen.start()
            with Shop(broker.url, history) as shop:
                available = shop.send(chosen.orders)
                kitchen.wait_for(available)
            kitchen.end()
            print(f"{available} orders were consumed")
            archived = command_line.run(["archive", broker.url, archive, "--compact"])
        if archived != command_line.DONE:
            return archived
        audit = ["report", archive, "--history", str(written), "--out", chosen.out, "--drained"]
        return command_line.run(audit)


if __name__ == "__main__":
    sys.exit(main())
