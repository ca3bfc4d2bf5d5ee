"""A light Spark session for one machine.

    spark = spark_session("orders", cores=2)
    spark.read.format("amqp").option("amqp.url", "amqp://127.0.0.1:5672").option("subscribe", "orders").load()

On a cluster the session comes from there; the data source needs nothing of this module but the same Python on
driver and workers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import amqp_broker
from amqp_broker.pipeline.errors import PipelineError
from amqp_broker.pipeline.java import find_java, wrapper_for
from amqp_broker.pipeline.spark_home import found_by_python, set_spark_home
from amqp_broker.pipeline.spark_log import SETTING, java_option
from amqp_broker.pipeline.told import tell_at_the_end

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
SETTINGS: Final[dict[str, str]] = {
    "spark.ui.enabled": "false",
    # Nobody else on the network has to find the driver.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "512m",
    "spark.sql.session.timeZone": "UTC",
    # Filters on offsets, times and addresses are what is read.
    "spark.sql.python.filterPushdown.enabled": "true",
    # One collector thread: two cores have other things to do.
    JAVA_OPTIONS: "-XX:+UseSerialGC",
    "spark.ui.showConsoleProgress": "false",
    # Sessions that share artifacts share Python workers: otherwise each query starts all of its own anew.
    "spark.sql.artifact.isolation.enabled": "false",
    # A Python worker that starts on a busy machine takes its time.
    "spark.python.authenticate.socketTimeout": "120s",
}
"""What `spark_session` sets unless it is told otherwise."""


def spark_session(
    name: str,
    *,
    cores: int = 2,
    tries: int = 1,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Any:
    """A SparkSession (the running one, if there is one) on this machine with `cores` tasks at a time.

    `tries`: how often a task may fail before its job does, plain local mode never tries again. `master` is
    for a cluster; `settings` override SETTINGS. Finds a Java and tells it, and this Python, to Spark by the
    environment. Raises NoJava, PipelineError without pyspark.

    Spark starts without a word, and says warnings and errors in a line each (`spark_log`); a program that
    ends by an error of the data source says that error at its end, not the traceback of Spark (`told`).
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise PipelineError(
            f"expected pyspark and pyarrow, but {error}: pip install 'amqp-broker[pipeline]'"
        ) from None
    prepare_environment()
    chosen = SETTINGS | dict(settings or {})
    if SETTING not in chosen[JAVA_OPTIONS]:
        chosen[JAVA_OPTIONS] += f" {java_option()}"
    tell_at_the_end()
    where = master or (f"local[{cores}]" if tries == 1 else f"local[{cores},{tries}]")
    builder = SparkSession.builder.master(where).appName(name)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def prepare_environment() -> Path:
    """Sets JAVA_HOME, SPARK_HOME, PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON for the Spark that this process
    starts; the Java's home. Without the last two, workers run whatever `python3` is on the path.
    """
    # The module that the wrapper leaves out is for MLlib, and Java warns of it at every start.
    home = wrapper_for(find_java())
    os.environ["JAVA_HOME"] = str(home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    set_spark_home()
    _show_to_workers(Path(amqp_broker.__file__).resolve().parents[1])
    return home


def _show_to_workers(folder: Path) -> None:
    """Spark finds data sources by looking through the folders of modules, which an editable installation is
    not among; its workers know the folders that PYTHONPATH names.
    """
    if not found_by_python(folder):
        known = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *([known] if known else [])])
