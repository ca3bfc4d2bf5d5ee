"""How tests start the Java of a driver that lives for a test; and the classes of one, laid out once.

    python -m tests.pipeline.spark.class_archive FILE

runs a query and an archive of few messages, and keeps the classes that they loaded (160 MB, half a
minute). With AMQP_TEST_CLASSES=FILE the Java of each driver maps them, instead of reading and checking each
class anew: a session costs about half of the processor time. It is good for the Java and the jars that it was
made with, and passed over without a word by any other Java; without it, all is as it was, and slower.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

CLASSES: Final = "AMQP_TEST_CLASSES"
ONE_COMPILER: Final = "-XX:TieredStopAtLevel=1"
"""The better compiler would never earn what it costs."""
SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""An archive that is not for this Java or these jars, and a class that no archive takes, are no news."""
SENT: Final = 20
SECONDS_TO_WRITE: Final = 300.0


def short_life() -> str:
    """The options of a Java that lives for a test."""
    file = os.environ.get(CLASSES)
    if not file or not Path(file).is_file():
        return ONE_COMPILER
    return f"{ONE_COMPILER} -XX:SharedArchiveFile={file} {SILENT}"


def make(file: Path) -> None:
    """Writes the archive. Raises OSError where Java did not."""
    from pyspark import SparkContext

    from amqp_broker.pipeline import command_line
    from amqp_broker.pipeline.session import JAVA_OPTIONS, spark_session

    options = f"-XX:+UseSerialGC {ONE_COMPILER} -XX:ArchiveClassesAtExit={file} {SILENT}"
    settings = command_line.AUDIT_SETTINGS | {JAVA_OPTIONS: options, "spark.sql.codegen.wholeStage": "false"}
    with tempfile.TemporaryDirectory() as folder:
        spark = spark_session("classes", settings=settings)
        status = _load(spark, Path(folder))
        spark.stop()
        java = SparkContext._gateway.proc
        java.stdin.close()  # it ends when nobody is there any more
        java.wait(SECONDS_TO_WRITE)
    if status != 0 or not file.is_file():
        raise OSError(f"expected the classes of Spark in {file}, but what loads them ended with {status}")


def _load(spark: Any, folder: Path) -> int:
    """A query and an archive, for their classes; the status of the archive."""
    from amqp_broker.client import connect
    from amqp_broker.pipeline import command_line
    from amqp_broker.pipeline.demo import start_query
    from amqp_broker.pipeline.demo_traffic import CONFIGURATION, ORDERS
    from amqp_broker.testing import memory_config, running_broker

    with running_broker(memory_config(CONFIGURATION)) as broker:
        with connect(broker.url) as connection:
            connection.open_sender(ORDERS).send_many(b"%d" % number for number in range(SENT))
        query = start_query(spark, broker.url, folder)
        query.processAllAvailable()
        query.stop()
        return command_line.run(["archive", broker.url, str(folder / "archive"), "--compact", "--quiet"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes it, and says how large it is."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.pipeline.spark.class_archive", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("file", type=Path)
    file = parser.parse_args(arguments).file.absolute()
    make(file)
    print(f"{CLASSES}={file} ({file.stat().st_size / 1e6:.0f} MB)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
