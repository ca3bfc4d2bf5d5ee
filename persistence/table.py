"""A table, declared once: its columns and their types, its key, and what its checksum covers.

From a declaration come its statements, the checksum of a row, values out of sound rows, and the walk of
verification. The tables themselves are made by schema.py; a test holds that it makes what is declared.

What is stored is compared with its checksum before it is believed: a CRC-32. Measured per message, CPython
3.11, microseconds for 100 B / 1 KiB / 10 KiB / 64 KiB, with zlib and hashlib: crc32 0.21, 0.42, 2.3, 15;
adler32 0.10, 0.41, 3.5, 29 (weak for short input); sha1 0.53, 1.1, 6.7, 40; blake2b 0.46, 1.7, 13, 87; md5
0.60, 2.2, 16, 107.
Against flipped bits and lost sectors 32 bits are enough; nobody signs anything with it. It covers, unless a
table has a rule of its own:

    integers | lengths of the first `measured` octets | octets | what a later version added and is not default
      8 each    8 each, little-endian, with a sign      as is    an integer: 8; octets: a zero before them
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from operator import itemgetter
from textwrap import indent
from typing import Any, Final, Generic, NamedTuple, TypeVar

import attrs

from amqp_broker.persistence.checksums import crc32
from amqp_broker.persistence.errors import RowDamaged, StoreCorrupt
from amqp_broker.persistence.sqlite_library import Parameters
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

K = TypeVar("K", int, bytes)
V = TypeVar("V")

ROWS_AT_ONCE: Final = 256  # of a walk
INTEGER: Final = "INTEGER"
TEXT: Final = "TEXT"
BLOB: Final = "BLOB"
_LOWEST: Final[dict[str, object]] = {INTEGER: -1 << 63, TEXT: b"", BLOB: b""}


class Column(NamedTuple):
    """A column. Where version `since` added it to its table, rows of before have `default`. `field` is its
    name in the value of a row, if that is another one.
    """

    name: str
    type: str
    since: int = 0
    default: int | str = 0
    nullable: bool = False
    field: str = ""


def integers(*names: str) -> list[Column]:
    """Columns that hold numbers."""
    return [Column(name, INTEGER) for name in names]


def texts(*names: str) -> list[Column]:
    """Columns that hold texts."""
    return [Column(name, TEXT) for name in names]


def blobs(*names: str) -> list[Column]:
    """Columns that hold octets."""
    return [Column(name, BLOB) for name in names]


class SqlTable(Generic[V]):
    """A table of rows with checksums, which `make` makes values of.

    A row has the columns in the order in which they are declared, whatever their order in the file, and its
    checksum last. Texts are read as octets: what is damaged may be no UTF-8. `since` is the version of the
    schema that made the table, and `sealed` the one that gave it checksums, if that was later. `checksum` is
    a rule of its own: a function of all columns, texts encoded.

    Where `make` is a class of attrs, its fields are columns: `row` takes such a value, and the columns that
    are no fields. Else `make` takes all columns, and so does `row`. `value` gives the value of a row that was
    read, None if it is damaged; `made` that of one that is sound; `checksum_of` tells the checksum that it
    should have. Python writes these functions from the declaration, as attrs does the methods of a class: a
    loop over the columns costs a fifth of all that a row costs.
    """

    row: Callable[..., Parameters]
    checksum_of: Callable[[Row], int]
    made: Callable[[Row], V]
    value: Callable[[Row], V | None]

    def __init__(
        self,
        name: str,
        since: int,
        key: tuple[str, ...],
        columns: list[Column],
        make: Callable[..., V],
        *,
        measured: int = 0,
        checksum: Callable[..., int] | None = None,
        sealed: int = 0,
    ) -> None:
        self.name = name
        self.since = since
        self.key = key
        self.columns = columns
        self.sealed = sealed
        self.names = [column.name for column in columns]
        self.selected = self.selected_of()
        into = f"INTO {name} ({', '.join(self.names)}, checksum) VALUES ({'?, ' * len(columns)}?)"
        self.insert = f"INSERT {into}"
        self.replace = f"REPLACE {into}"
        written: dict[str, Any] = {
            "crc32": crc32, "error": struct.error, "make": make, "octets_of": struct.Struct("<q").pack,
            "pack": struct.Struct(f"<{sum([_is_number(one) for one in columns]) + measured}q").pack,
            "rule": checksum,
        }  # fmt: skip
        fields = [field.name for field in attrs.fields(make)] if attrs.has(make) else []  # type: ignore[arg-type]
        exec(_code(columns, fields, measured, checksum is not None), written)
        self.row, self.checksum_of = written["row"], written["checksum_of"]
        self.made, self.value = written["made"], written["value"]

    def selected_of(self, version: int = 1 << 30) -> str:
        """The columns of a row as a SELECT names them in a store of that version of the schema."""
        found = [
            ("''" if column.type == TEXT else str(column.default)) if column.since > version
            else f"{self.name}.{column.name}"
            for column in self.columns
        ]  # fmt: skip
        for at, column in enumerate(self.columns):
            if column.type == TEXT:
                found[at] = f"CAST({found[at]} AS BLOB)"
        return ", ".join([*found, "NULL" if self.sealed > version else f"{self.name}.checksum"])

    def select(self, rest: str) -> str:
        """A SELECT of whole rows; `rest` stands behind the name of the table."""
        return f"SELECT {self.selected} FROM {self.name} {rest}"

    def update(self, *names: str) -> tuple[str, Callable[[Row], Parameters]]:
        """An UPDATE of some columns, and what takes its parameters from a row."""
        sets = "=?, ".join([*names, "checksum"])
        where = "=? AND ".join(self.key)
        at = [self.names.index(name) for name in (*names, *self.key)]
        at.insert(len(names), len(self.names))
        return f"UPDATE {self.name} SET {sets}=? WHERE {where}=?", itemgetter(*at)

    def is_sound(self, row: Row) -> bool:
        """Does a row match its checksum? A damaged one may hold values of any type."""
        try:
            return bool(self.checksum_of(row) == row[-1])
        except (struct.error, TypeError):
            return False

    def query(self, unit: UnitOfWork, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Rows for an answer. Raises RowDamaged if they cannot be read, StoreFailed."""
        try:
            return unit.query(sql, parameters)
        except StoreCorrupt as error:
            raise RowDamaged(f"the stored rows of {self.name} cannot be read: {error}") from error

    def only(self, unit: UnitOfWork, sql: str, parameters: Parameters, what: str) -> V | None:
        """The value of the first row that a query finds, None if it finds none. Raises StoreFailed, and
        RowDamaged, in which `what` names the row by the parameters.
        """
        for row in self.query(unit, sql, parameters):
            found = self.value(row)
            if found is None:
                raise RowDamaged(f"{what.format(*parameters)} does not match its checksum")
            return found
        return None

    def walk(self, unit: UnitOfWork, version: int) -> Iterator[Row]:
        """All rows of a store of that version, in the order of the key. Raises StoreCorrupt, StoreFailed."""
        at = [self.names.index(name) for name in self.key]
        marks = ", ".join(["CAST(? AS TEXT)" if self.columns[i].type == TEXT else "?" for i in at])
        key = ", ".join([f"{self.name}.{name}" for name in self.key])
        columns = self.selected_of(version)
        sql = f"SELECT {columns} FROM {self.name} WHERE ({key})>({marks}) ORDER BY {key} LIMIT {ROWS_AT_ONCE}"
        after: Parameters = tuple([_LOWEST[self.columns[i].type] for i in at])
        while rows := unit.query(sql, after):
            yield from rows
            after = tuple([rows[-1][i] for i in at])


def _is_number(column: Column) -> bool:
    return column.type == INTEGER and not column.since


def _code(columns: list[Column], fields: list[str], measured: int, ruled: bool) -> str:
    """The functions of a table, in Python; the octets of a text have its name with a `_` behind it."""
    names = [column.name for column in columns]
    read = [f"{column.name}_" if column.type == TEXT else column.name for column in columns]
    given, encoded = list(names), ""
    decoded = {column.field or column.name: column.name for column in columns}
    for column, octets in zip(columns, read, strict=True):
        name, field = column.name, column.field or column.name
        if field in fields:
            given.remove(name)
            encoded += f"    {name} = value.{field}\n"
        if column.type == TEXT:
            none = "None if {} is None else " if column.nullable else ""
            encoded += f"    {octets} = {none.format(name)}{name}.encode()\n"
            decoded[field] = f"{none.format(octets)}{octets}.decode()"
    made = f"make({', '.join([decoded[field] for field in fields or decoded])})"
    summed = f"found = rule({', '.join(read)})\n" if ruled else _summed(columns, read, measured)
    unpacked = f"(row):\n    {', '.join(read)}, checksum = row\n"
    return (
        f"def row({', '.join(['value'] * bool(fields) + given)}):\n"
        f"{encoded}{indent(summed, ' ' * 4)}    return ({', '.join(names)}, found)\n"
        f"def checksum_of{unpacked}{indent(summed, ' ' * 4)}    return found\n"
        f"def made{unpacked}    return {made}\n"
        f"def value{unpacked}    try:\n{indent(summed, ' ' * 8)}    except (error, TypeError):\n"
        f"        return None\n    return {made} if found == checksum else None\n"
    )


def _summed(columns: list[Column], read: list[str], measured: int) -> str:
    first = [name for name, column in zip(read, columns, strict=True) if not column.since]
    numbers = [name for name, column in zip(read, columns, strict=True) if _is_number(column)]
    octets = first[len(numbers) :]
    packed = f"pack({', '.join([*numbers, *[f'len({name})' for name in octets[:measured]]])})"
    joined = f"b''.join(({packed}, {', '.join(octets)}))" if octets else packed
    lines = f"found = crc32({joined})\n"
    for name, column in zip(read, columns, strict=True):
        if column.since:
            more = f"octets_of({name})" if column.type == INTEGER else f"b'\\0' + {name}"
            default = repr(column.default.encode() if isinstance(column.default, str) else column.default)
            lines += f"if {name} != {default}:\n    found = crc32({more}, found)\n"
    return lines


def sound_page(
    read: Callable[[K, int], list[Row]],
    value_of: Callable[[Row], V | None],
    key_of: Callable[[Row], K],
    after: K,
    count: int,
) -> list[V]:
    """Up to `count` values behind the key `after`; `read` gives rows behind a key, up to a limit. What is
    damaged is left out, and the page is full nevertheless if there is enough.
    """
    found: list[V] = []
    while len(found) < count:
        limit = count - len(found)
        rows = read(after, limit)
        found.extend([value for value in map(value_of, rows) if value is not None])
        if len(rows) < limit:
            break
        last = key_of(rows[-1])
        if not isinstance(last, type(after)) or last <= after:
            break  # a damaged key would lead round in a circle
        after = last
    return found
