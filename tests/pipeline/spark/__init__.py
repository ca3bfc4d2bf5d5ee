"""Tests of the pipeline that run Spark: `pytest tests/pipeline/spark`."""
