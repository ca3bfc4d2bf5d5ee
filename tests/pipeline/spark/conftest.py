"""One Spark session for all tests of a process: local, two cores, failed tasks are tried again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amqp_broker.client import BlockingConnection, connect
from amqp_broker.embedding import RunningBroker
from amqp_broker.testing import running_broker
from tests.pipeline.spark.class_archive import short_life
from tests.pipeline.spark.hooks import FAULT_FILE, forget
from tests.support.retained import retaining


@pytest.fixture(scope="session")
def fault_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the fault that is due; Spark's processes know it by their environment."""
    path = tmp_path_factory.mktemp("faults") / "fault.json"
    os.environ[FAULT_FILE] = str(path)
    # Workers import this package, and Spark gives them no more than PYTHONPATH.
    checkout = str(Path(__file__).resolve().parents[3])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [checkout, os.environ.get("PYTHONPATH")]))
    return path


@pytest.fixture(scope="session")
def spark(fault_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session. A task may fail three times; record batches are small, so that there are several."""
    from amqp_broker.pipeline.session import spark_session

    session = spark_session(
        "tests",
        cores=2,
        tries=4,
        settings={
            "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.log.level": "ERROR",
            "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC {short_life()}",
            "spark.sql.codegen.wholeStage": "false",
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker in memory, in this process; `in.*` retain."""
    with running_broker(retaining("in.*")) as running:
        yield running


@pytest.fixture
def connection(broker: RunningBroker) -> Iterator[BlockingConnection]:
    """A connection of the test's own."""
    with connect(broker.url) as opened:
        yield opened


@pytest.fixture(autouse=True)
def no_fault(fault_file: Path) -> Iterator[None]:
    """No test inherits the fault of another."""
    forget(fault_file)
    yield
    forget(fault_file)
