"""Tests of the pipeline that need neither Spark nor Arrow."""
