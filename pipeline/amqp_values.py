"""Values of Spark's types as AMQP values (1.6), for what the sink sends.

    BOOLEAN boolean   BYTE byte   SHORT short   INT int   LONG long   FLOAT float   DOUBLE double
    STRING string     BINARY binary   TIMESTAMP timestamp (whole ms, the rest is cut)
    DECIMAL(p,0) ulong where it fits, else decimal128; other DECIMALs decimal128
    ARRAY list        MAP and STRUCT map   VARIANT by its content: integers are long, numbers double

A type is given as Spark writes it in JSON ("string", {"type": "struct", ...}); values are those of Arrow's
`to_pylist`. Neither Spark nor Arrow is imported here.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any, Final

from amqp_broker.frames import Byte, Decimal128, Float, Int, Short, Timestamp, Ulong
from amqp_broker.pipeline.errors import SchemaError

Convert = Callable[[Any], Any]

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_ULONG_MAX: Final = (1 << 64) - 1
_LONG_MIN: Final = -(1 << 63)
_LONG_MAX: Final = (1 << 63) - 1
_COEFFICIENT_DIGITS: Final = 34  # of a decimal128 (IEEE 754-2008)
_EXPONENT_BIAS: Final = 6176
_EXACT: Final = decimal.Context(prec=38, traps=[])


def same(value: Any) -> Any:
    """The value as it is: the encoder takes it."""
    return value


def timestamp_of(value: datetime.datetime) -> Timestamp:
    """Whole milliseconds since the Unix epoch; later ones of the second are cut off."""
    if value.tzinfo is None:
        raise SchemaError(f"expected a time with a zone, found {value}: cast TIMESTAMP_NTZ to TIMESTAMP")
    return Timestamp((value - _EPOCH) // _MILLISECOND)


def decimal_of(value: decimal.Decimal) -> Ulong | Decimal128:
    """A ulong for a whole number that fits (the source gives ulongs as DECIMAL(20,0)), else a decimal128 in
    the binary integer encoding.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise SchemaError(f"expected a number, found {value}")
    if exponent == 0 and not sign and value <= _ULONG_MAX:
        return Ulong(int(value))
    if len(digits) > _COEFFICIENT_DIGITS:
        raise SchemaError(f"expected at most {_COEFFICIENT_DIGITS} digits for a decimal128, found {value}")
    coefficient = int("".join(map(str, digits)))
    bits = sign << 127 | (exponent + _EXPONENT_BIAS) << 113 | coefficient
    return Decimal128(bits.to_bytes(16, "big"))


def variant_of(value: Any) -> Any:
    """What a VARIANT holds; Arrow brings it as a struct of two binaries."""
    from pyspark.sql.types import VariantVal

    with decimal.localcontext(_EXACT):
        found = VariantVal(bytes(value["value"]), bytes(value["metadata"])).toPython()
    return python_value(found)


def python_value(value: Any) -> Any:
    """A value of Python, as AMQP has it. Raises SchemaError for what AMQP has not."""
    kind = type(value)
    if kind in (type(None), bool, str, bytes, float):
        return value
    if kind is int:
        if not _LONG_MIN <= value <= _LONG_MAX:
            raise SchemaError(f"expected an integer of 64 bits, found {value}")
        return value
    if kind is decimal.Decimal:
        return decimal_of(value)
    if isinstance(value, datetime.datetime):
        return timestamp_of(value)
    if kind is dict:
        return {key: python_value(item) for key, item in value.items()}
    if kind in (list, tuple):
        return [python_value(item) for item in value]
    raise SchemaError(f"expected a value that AMQP has a type for, found a {kind.__name__}: {value!r:.80}")


_SIMPLE: Final[dict[str, Convert]] = {
    "boolean": same,
    "byte": Byte,
    "short": Short,
    "integer": Int,
    "long": same,
    "float": Float,
    "double": same,
    "string": same,
    "binary": same,
    "timestamp": timestamp_of,
    "variant": variant_of,
    "void": same,
}


def converter(kind: Any, path: str, *, simple: bool = False) -> Convert:
    """The function for values of this type; it is not called with None.

    Raises SchemaError for a type that AMQP has none for, which names the column at `path`; `simple`: lists
    and maps are none either (application-properties, 3.2.5).
    """
    found = _SIMPLE.get(kind) if isinstance(kind, str) else None
    if found is not None:
        return found
    if isinstance(kind, str) and kind.startswith("decimal"):
        return decimal_of
    name = kind["type"] if isinstance(kind, dict) else str(kind)
    if isinstance(kind, dict) and not simple:
        if name == "array":
            convert = nullable(converter(kind["elementType"], f"{path}[]"))
            return lambda items: list(map(convert, items))
        if name == "map":
            return map_of(kind, path)
        if name == "struct":
            return _struct_of(kind, path)
    what = "a simple type" if simple else "a type that AMQP has too"
    hint = "; cast it to TIMESTAMP" if name in ("date", "timestamp_ntz") else "; cast it, or drop the column"
    raise SchemaError(f"column {path}: expected {what}, found {name_of(kind)}{hint}")


def name_of(kind: Any) -> str:
    """A type for people."""
    return str(kind["type"] if isinstance(kind, dict) else kind).upper()


def nullable(convert: Convert) -> Convert:
    """The converter that gives null for None, and else what `convert` gives."""
    return lambda value: None if value is None else convert(value)


def map_of(kind: Any, path: str, *, simple: bool = False) -> Convert:
    """The converter for a MAP with strings as keys; Arrow brings it as pairs."""
    if kind["keyType"] != "string":
        raise SchemaError(f"column {path}: expected STRING as the keys of the map, found {kind['keyType']}")
    convert = converter(kind["valueType"], f"{path}[]", simple=simple)
    if convert is same:
        return dict
    return lambda pairs: {key: None if item is None else convert(item) for key, item in dict(pairs).items()}


def _struct_of(kind: Any, path: str, *, simple: bool = False) -> Convert:
    fields = [
        (field["name"], nullable(converter(field["type"], f"{path}.{field['name']}", simple=simple)))
        for field in kind["fields"]
    ]
    return lambda value: {name: convert(value[name]) for name, convert in fields}


def mapping(kind: Any, path: str, *, simple: bool = False) -> Convert:
    """The converter for a column that becomes a map with strings as keys: a MAP or a STRUCT."""
    name = kind["type"] if isinstance(kind, dict) else kind
    if name == "map":
        return map_of(kind, path, simple=simple)
    if name == "struct":
        return _struct_of(kind, path, simple=simple)
    raise SchemaError(f"column {path}: expected MAP<STRING, ...> or STRUCT, found {name_of(kind)}")
