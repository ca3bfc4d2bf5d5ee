"""What the Python processes are that Spark starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyspark


def modules_of_spark() -> dict[str, tuple[str, str]]:
    """Of this process: where each comes from, and where it is compiled, if it is."""
    specs = {name: getattr(module, "__spec__", None) for name, module in sys.modules.items()}
    return {
        name: (str(spec.origin), str(spec.cached))
        for name, spec in specs.items()
        if spec is not None and name.startswith(("pyspark.", "py4j."))
    }


def test_a_worker_has_the_compiled_modules_of_the_installed_package(spark: Any) -> None:
    """Not those of Spark's zip, which each process would compile again (see `spark_home`)."""
    (found,) = spark.sparkContext.parallelize([0], 1).map(lambda _: modules_of_spark()).collect()
    packages = Path(pyspark.__file__).parent.parent
    assert "pyspark.worker" in found
    for name, (origin, cached) in found.items():
        assert Path(origin).is_relative_to(packages), f"{name} comes from {origin}"
        assert Path(cached).exists(), f"{name} is compiled by each process"
