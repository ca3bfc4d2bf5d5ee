"""The whole pipeline on one machine: `python -m amqp_broker.pipeline.demo [--orders 2000] [--out FILE]
[--keep DIR]`.

A broker on a free port of loopback, a shop that sends orders (a fifth of them as half messages, of which it
forgets some), a streaming query that reads each order once and writes its invoice once, a kitchen and a
clerk that take orders and invoices. All of them write down what they did. Then the broker's log is archived
and audited, against what they wrote too, and the report is written. With `--keep` the archive, the history,
the checkpoint and the broker's data stay, to be looked at. No Java is needed on the machine. Exit status 0 if
every order has exactly one invoice and the report says PASS.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from amqp_broker.pipeline import command_line
from amqp_broker.pipeline.demo_traffic import CONFIGURATION, INVOICES, ORDERS, Consumer, Shop
from amqp_broker.pipeline.errors import PipelineError
from amqp_broker.pipeline.history_file import HistoryWriter
from amqp_broker.pipeline.progress import Progress
from amqp_broker.pipeline.told import told
from amqp_broker.testing.broker_process import running

SUBSCRIPTION: Final = "invoicing"
LEFT: Final = {
    "archive": "the journal as Parquet, with what the broker told of it",
    "history.jsonl": "what the clients wrote down",
    "checkpoint": "Spark's, of the streaming query",
    "broker.toml": "what the broker was told",
    "data": "what it stored",
}
"""What `--keep` leaves."""


def start_query(spark: Any, url: str, folder: Path) -> Any:
    """The streaming query: from each order its invoice, exactly once."""
    orders = (
        spark.readStream.format("amqp")
        .option("amqp.url", url)
        .option("subscribe", ORDERS)
        .option("subscription", SUBSCRIPTION)
        .option("startingOffsets", "earliest")
        .load()
    )
    return (
        orders.selectExpr("concat('invoice for ', cast(body as string)) as body")
        .writeStream.format("amqp")
        .option("amqp.url", url)
        .option("address", INVOICES)
        .option("producerGroup", "invoices")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="500 milliseconds")
        .start()
    )


def run(orders: int, out: Path, folder: Path, progress: Progress) -> int:
    """The demo in `folder`; the exit status."""
    from amqp_broker.pipeline.session import spark_session

    with progress.step("Spark starts"):
        spark = spark_session("amqp-broker", settings=command_line.AUDIT_SETTINGS)
    progress.watch(spark)
    archive, written = str(folder / "archive"), str(folder / "history.jsonl")
    configuration = folder / "broker.toml"
    configuration.write_text(CONFIGURATION)
    process = running("--config", str(configuration), "--data", str(folder / "data"))
    with open(written, "w") as file, HistoryWriter(file) as history, process as broker:
        url = broker.url
        progress.say(f"the broker listens on {url}")
        query = start_query(spark, url, folder)
        kitchen, clerk = Consumer(url, ORDERS, history), Consumer(url, INVOICES)
        kitchen.start()
        clerk.start()
        try:
            with Shop(url, history) as shop:
                with progress.step(f"{orders:,} orders are sent"):
                    available = shop.send(orders)
                with progress.step(f"{available:,} of them are delivered, the others were rolled back"):
                    kitchen.wait_for(available)
            with progress.step(f"{available:,} invoices are written and delivered"):
                _wait_for_invoices(clerk, available, query)
        finally:
            query.stop()
            kitchen.end()
            clerk.end()
        said = ["--quiet"] if progress.is_quiet else []
        archived = command_line.run(["archive", url, archive, "--compact", *said])
    if archived != command_line.DONE:
        return archived
    progress.say(f"{clerk.done:,} invoices for {available:,} orders, {len(clerk.bodies):,} different ones")
    status = command_line.run(
        ["report", archive, "--out", str(out), "--drained", "--history", written, *said]
    )
    return status if clerk.done == len(clerk.bodies) == available else command_line.FAILED


def _wait_for_invoices(clerk: Consumer, count: int, query: Any) -> None:
    """Raises what ended the query, if anything did."""
    try:
        clerk.wait_for(count)
    except TimeoutError:
        if query.exception() is None:
            raise
        failed = query.exception()
        raise PipelineError(f"the query failed: {told(failed) or failed}") from None


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    """Where everything is made: in a folder that stays, or in one that goes."""
    if keep is not None:
        Path(keep).mkdir(parents=True)
        yield Path(keep).resolve()
    else:
        with tempfile.TemporaryDirectory() as made:
            yield Path(made)


def _say_what_is_left(folder: Path) -> None:
    print(f"left: {folder.as_uri()}")
    for name, what in LEFT.items():
        print(f"    {name:<14} {what}")
    history = folder / "history.jsonl"
    print(f"    amqp-broker pipeline audit {folder / 'archive'} --history {history} --drained")
    print(f"    amqp-broker serve --config {folder / 'broker.toml'} --data {folder / 'data'}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run it, say where the report is, and open it where there is a terminal."""
    options = argparse.ArgumentParser(prog="python -m amqp_broker.pipeline.demo", description=__doc__)
    options.add_argument("--orders", type=int, default=2000)
    options.add_argument("--out", default="report.html", help="the report (default report.html here)")
    options.add_argument("--keep", metavar="DIR", help="leave everything else here, too: a new folder")
    options.add_argument("--no-browser", action="store_true", help="do not open the report")
    chosen = options.parse_args(argv)
    out = Path(chosen.out).resolve()
    try:
        with _folder(chosen.keep) as folder:
            status = run(chosen.orders, out, folder, Progress())
    except (PipelineError, RuntimeError, TimeoutError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return command_line.WRONG
    if chosen.keep:
        _say_what_is_left(Path(chosen.keep).resolve())
    print(f"open {out.as_uri()}")
    if sys.stdout.isatty() and not chosen.no_browser:
        webbrowser.open(out.as_uri())
    return status


if __name__ == "__main__":
    sys.exit(main())
