"""Values of the wire as VARIANT, read back by pyspark's own reader."""

from __future__ import annotations

import datetime
import json
import uuid
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import VariantVal

from amqp_broker.frames import Array, Described, Double, Float, Symbol, Timestamp, Ubyte, Ulong
from amqp_broker.pipeline.rows import json_of
from amqp_broker.pipeline.variants import variant_of

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
names = st.text(max_size=6) | st.sampled_from(["a", "b", "ä", "\U0001f600", "\uffee"])
scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=80) |
    st.binary(max_size=20) | st.floats(allow_nan=False, allow_infinity=False) | st.uuids() | st.integers(0,
    2**64 - 1).map(Ulong) | st.integers(0, 255).map(Ubyte) | st.text("abc", max_size=9).map(Symbol)
    | st.integers(-(10**13), 10**13).map(Timestamp) | st.floats(width=32, allow_nan=False).map(Float)
    | st.floats(allow_nan=False).map(Double)
)  # fmt: skip
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(names | st.integers(0, 9).map(Ulong), inner, max_size=40)
        | st.builds(Described, st.just(Symbol("d")), inner)
        | st.lists(st.integers(0, 9).map(Ulong), max_size=3).map(
            lambda items: Array("ulong", list[object](items))
        )
    ),
    max_leaves=40,
)


def expected(value: Any) -> Any:
    """What Python sees of it after Spark."""
    if isinstance(value, dict):
        return {str(getattr(key, "value", key)): expected(item) for key, item in value.items()}
    if isinstance(value, list):
        return [expected(item) for item in value]
    if isinstance(value, Array):
        return [expected(item) for item in value.items]
    if isinstance(value, Described):
        return expected(value.value)
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Timestamp):
        return EPOCH + datetime.timedelta(milliseconds=value.value)
    return getattr(value, "value", value)


@given(trees)
def test_spark_reads_back_what_was_written(value: Any) -> None:
    """Whatever is inside of what."""
    octets, metadata = variant_of(value)
    assert VariantVal(octets, metadata).toPython() == expected(value)


def test_large_objects_and_arrays_are_read_back() -> None:
    """Beyond the borders of one, two and three octets for counts and offsets."""
    wide = {f"name-{number}": number for number in range(300)}
    for value in (wide, list(range(300)), {"x": "y" * 70_000}, {"x": "y" * 2**24, "z": [b"\x00" * 300] * 2}):
        octets, metadata = variant_of(value)
        assert VariantVal(octets, metadata).toPython() == expected(value)


@given(
    st.dictionaries(names, scalars.filter(lambda value: not isinstance(value, (Float, Double))), max_size=5)
)
def test_json_says_the_same(value: dict[str, Any]) -> None:
    """As far as JSON can."""
    found = json.loads(json_of(value))
    assert set(found) == set(value)
    for name, item in value.items():
        if not isinstance(item, (bytes, Timestamp)):
            assert found[name] == expected(item)
