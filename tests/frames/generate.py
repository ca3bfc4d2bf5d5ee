"""Writes `frames/generated.py` from the declarations: `python -m tests.frames.generate`.

A reader is straight-line code: the fields in their order, the usual constructors of each type first. A writer
is one prepared struct: every field in its widest form, and what is encoded already behind them.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from amqp_broker.frames import Discharge, Disposition, Flow, TransactionalState, Transfer
from amqp_broker.frames.composite import Composite
from amqp_broker.frames.declarations import DECLARATIONS, CompositeDeclaration, FieldDeclaration
from amqp_broker.frames.restricted_types import ARCHETYPE_PRIMITIVES

GENERATED: Final = Path(__file__).resolve().parents[2] / "frames" / "generated.py"
LINE: Final = 110
FIELDS_AT: Final = 14  # header of the frame, descriptor, and size and count of a list8
TOP: Final = r'''"""Readers and writers of the hot composites: `python -m tests.frames.generate` writes them.

Each reader takes the composite whose descriptor is at `start`, in data that ends with it or at `stop`. What
is not set is -1 or None. The answer None means that the general decoder has to decide, also about errors; any
other answer is what it would have said. A delivery-state stays encoded, from `state_at` to `state_end`; both
are -1 without one.
"""

from __future__ import annotations

import struct
from typing import Final

from amqp_broker.frames.field_readers import (
    OCTETS,
    boolean,
    boolean_or_false,
    boolean_or_none,
    end_of_state,
    enter_list,
    flag,
    octets_or_none,
    ubyte,
    uint,
    uint_or,
)
from amqp_broker.frames.field_writers import list_frame
from amqp_broker.frames.outcomes import {outcomes}, TransactionalState
from amqp_broker.frames.transactions import Discharge
'''
PYTHON_TYPES: Final = {"uint": "int", "boolean": "bool", "ubyte": "int", "binary": "bytes", "*": "int"}


class Reader:
    """A reader to be written.

    It returns a `head` (a class of plain attributes, written with it), a `composite` or a `tuple`. `absent`
    has the Python of fields that are not set, where it is not the usual one. Behind the list of a composite
    with `payload` more octets may follow; the field `left_out` is checked, and not returned.
    """

    def __init__(
        self, composite: type[Composite], form: str, payload: bool = False, left_out: str = "", **absent: str
    ) -> None:
        self.declaration: CompositeDeclaration = DECLARATIONS[composite]
        self.class_name: str = composite.__name__ + ("Head" if form == "head" else "")
        self.form = form
        self.payload = payload
        self.left_out = left_out
        self.absent = absent

    def absent_of(self, field: FieldDeclaration) -> str:
        """The Python of a field that is not set; "" for a mandatory one."""
        if field.attribute in self.absent or field.mandatory:
            return self.absent.get(field.attribute, "")
        if self.form == "composite" or field.source == "binary":
            return "None"
        return "-1" if field.default is None else repr(field.default)

    def results(self, count: int) -> list[tuple[str, str, str]]:
        """Name, Python type and absent value of what the first `count` fields are read into."""
        found: list[tuple[str, str, str]] = []
        for field in self.declaration.fields[:count]:
            name, absent = field.attribute, self.absent_of(field)
            if is_place(field):
                found += [(f"{name}_at", "int", "-1"), (f"{name}_end", "int", "-1")]
            elif is_read(field) and name != self.left_out:
                kind = "int" if absent == "-1" else PYTHON_TYPES[field.source]
                found.append((name, f"{kind} | None" if absent == "None" else kind, absent or "-1"))
        return found

    def made(self, count: int) -> str:
        """What is returned when the list had `count` fields."""
        there = len(self.results(count))
        rows = self.results(len(self.declaration.fields))
        if self.form == "tuple":
            values = [name if number < there else absent for number, (name, _, absent) in enumerate(rows)]
            return f"({', '.join(values)})"
        values = [name for name, _, _ in rows[:there]]
        return "head" if self.form == "head" else f"{self.class_name}({', '.join(values)})"


READERS: Final = (
    Reader(Flow, "head"),
    Reader(Transfer, "head", payload=True),
    Reader(Disposition, "tuple", left_out="batchable", last="first"),
    Reader(TransactionalState, "composite"),
    Reader(Discharge, "composite"),
)
# The composite, how many of its fields the struct holds, and what its encoded rest is called.
WRITERS: Final = ((Flow, 4, "link"), (Disposition, 4, "state"))


def text() -> str:
    """What `frames/generated.py` has to be."""
    parts = [TOP.replace("{outcomes}", ", ".join(OUTCOMES.values()))]
    parts += [head_class(reader) for reader in READERS if reader.form == "head"]
    parts += [read_function(reader) for reader in READERS]
    parts += [write_function(DECLARATIONS[composite], count, rest) for composite, count, rest in WRITERS]
    return "\n\n".join(parts)


def is_place(field: FieldDeclaration) -> bool:
    """Whether a field stays encoded, so that the reader says where it is."""
    return field.requires == "delivery-state"


def is_read(field: FieldDeclaration) -> bool:
    """Whether the reader knows values of a field; one with another value is the general decoder's."""
    return field.source != "map"


def wrapped(items: list[str], indent: int) -> list[str]:
    """Items with commas behind them, in as few lines as there may be."""
    lines = [" " * indent]
    for item in items:
        if len(lines[-1]) + len(item) + 1 > LINE:
            lines.append(" " * indent)
        lines[-1] += item + ", "
    return [line.rstrip() for line in lines]


def head_class(reader: Reader) -> str:
    """The class of a reader's result."""
    rows = reader.results(len(reader.declaration.fields)) + [("payload_at", "int", "0")] * reader.payload
    lines = [
        f"class {reader.class_name}:",
        f'    """The fields of one {reader.declaration.name}, in their order."""',
        "",
        "    __slots__ = (",
        *wrapped([f'"{name}"' for name, _, _ in rows], 8),
        "    )  # fmt: skip",
        "",
        "    def __init__(self) -> None:",
        *[f"        self.{name}: {kind} = {absent}" for name, kind, absent in rows],
    ]
    return "\n".join(lines) + "\n"


def read_function(reader: Reader) -> str:
    """One reader."""
    declaration = reader.declaration
    assert declaration.required_count, "a list without fields is not read"
    name = declaration.name.replace("-", "_")
    rows = reader.results(len(declaration.fields))
    if reader.form == "tuple":
        words = ", ".join(word for word, _, _ in rows)
        returned = f"tuple[{', '.join(kind for _, kind, _ in rows)}]"
        what = f"({words}) of the {declaration.name} at `start`, or None"
    else:
        returned, what = reader.class_name, f"The {declaration.name} at `start`, or None"
    parameters, wrong = "start: int, stop: int", "> stop" if reader.payload else "!= stop"
    if reader.form == "composite":
        parameters, wrong = "start: int = 0", "!= len(data)"
    lines = [
        f"def read_{name}(data: bytes, {parameters}) -> {returned} | None:",
        f'    """{what}."""',
        "    try:",
        *entering(declaration, wrong),
        *([f"        head = {reader.class_name}()"] if reader.form == "head" else []),
        *(["        head.payload_at = end"] if reader.form == "head" and reader.payload else []),
    ]
    for number, field in enumerate(declaration.fields, 1):
        lines += field_lines(reader, field)
        if number < len(declaration.fields) and number >= declaration.required_count:
            lines += early(reader, number)
    count = len(declaration.fields)
    lines += [
        f"        if at != end or count != {count}:",
        "            return None",
        "    except (IndexError, ValueError, struct.error):",
        "        return None",
        f"    return {reader.made(count)}",
    ]
    return "\n".join(lines) + "\n"


def early(reader: Reader, count: int) -> list[str]:
    """The list may end behind its first `count` fields."""
    return ["        if at == end:", f"            return {reader.made(count)} if count == {count} else None"]


def entering(declaration: CompositeDeclaration, wrong: str) -> list[str]:
    """From the descriptor to the first field; `wrong` says which end of the list is."""
    descriptor = f"\\x00\\x53\\x{declaration.code:02x}"
    return [
        f'        if data[start : start + 4] == b"{descriptor}\\xc0":',
        "            at, end, count = start + 6, start + 5 + data[start + 4], data[start + 5]",
        "        else:",
        f'            at, end, count = enter_list(data, start, b"{descriptor}")',
        f"        if end {wrong}:",
        "            return None",
    ]


def field_lines(reader: Reader, field: FieldDeclaration) -> list[str]:
    """Reads the field at `at`, and goes behind it."""
    name = f"head.{field.attribute}" if reader.form == "head" else field.attribute
    absent = reader.absent_of(field)
    if is_place(field):
        lines = [] if reader.form == "head" else [f"        {name}_at = {name}_end = -1"]
        return [
            *lines,
            "        if data[at] != 0x40:",
            f"            {name}_at, {name}_end = at, end_of_state(data, at, end)",
            f"        at = max(at + 1, {name}_end)",
        ]
    if not is_read(field):
        return ["        if data[at] != 0x40:", "            return None", "        at += 1"]
    if field.requires == "outcome":
        return outcome_lines(name)
    if field.attribute == reader.left_out:
        return [
            "        if (code := data[at]) != 0x41 and code != 0x42:",
            "            boolean_or_false(data, at, code)",
            "        at += OCTETS[code]",
        ]
    (source,) = ARCHETYPE_PRIMITIVES.get(field.requires, (field.source,))
    if source == "binary":
        return octets_lines(name, field.octets_max, absent)
    value = VALUES[source](absent)
    if source == "ubyte":
        assert field.choices == tuple(range(len(field.choices))), field.path
        value = value.replace("MOST", str(len(field.choices) - 1))
    return [f"        {name} = {value}", "        at += OCTETS[code]"]


def uint_value(absent: str) -> str:
    """A uint of one octet first."""
    rare = "uint(data, at, code)"
    if absent:
        rare = f"uint_or(data, at, code, {absent})"
    return f"data[at + 1] if (code := data[at]) == 0x52 else {rare}"


def ubyte_value(absent: str) -> str:
    """There is only one constructor."""
    return f"{absent} if (code := data[at]) == 0x40 else ubyte(data, at, code, MOST)"


def boolean_value(absent: str) -> str:
    """The constructors without an octet first."""
    if absent == "-1":
        return "1 if (code := data[at]) == 0x41 else 0 if code == 0x42 else flag(data, at, code)"
    if absent == "None":
        return "(code := data[at]) == 0x41 or (False if code == 0x42 else boolean_or_none(data, at, code))"
    rare = "boolean_or_false" if absent else "boolean"
    return f"(code := data[at]) == 0x41 or (code != 0x42 and {rare}(data, at, code))"


def octets_lines(name: str, octets_max: int, absent: str) -> list[str]:
    """Binary with a size of one octet."""
    if absent:
        behind = f"1 if {name} is None else 2 + data[at + 1]"
        return [f"        {name} = octets_or_none(data, at, {octets_max})", f"        at += {behind}"]
    return [
        "        if data[at] != 0xA0:",
        "            return None",
        "        behind = at + 2 + data[at + 1]",
        f"        {name} = data[at + 2 : behind]",
        "        at = behind",
    ]


VALUES: Final = {"uint": uint_value, "ubyte": ubyte_value, "boolean": boolean_value}


# Outcomes without fields, as clients encode them.
OUTCOMES: Final = {
    rf"\x00\x53\x{declaration.code:02x}\x45": value_class.__name__
    for value_class, declaration in DECLARATIONS.items()
    if "outcome" in declaration.provides and not declaration.fields
}


def outcome_lines(name: str) -> list[str]:
    """An outcome without fields."""
    lines = [f"        {name}: {' | '.join(OUTCOMES.values())} | None = None"]
    for encoded, class_name in OUTCOMES.items():
        lines += [
            f'        {"if" if len(lines) == 1 else "elif"} data[at : at + 4] == b"{encoded}":',
            f"            {name} = {class_name}()",
            "            at += 4",
        ]
    lines += ["        elif data[at] == 0x40:", "            at += 1"]
    return [*lines, "        else:", "            return None"]


def write_function(declaration: CompositeDeclaration, count: int, rest: str) -> str:
    """The writer of a frame: `count` fields in one struct, and the encoded `rest` behind them."""
    name, code = declaration.name, f"0x{declaration.code:02x}"
    fields = declaration.fields[:count]
    is_one = is_place(declaration.fields[count])  # the rest is one field at most, or told by a count
    parameters = [f"{field.attribute}: {PYTHON_TYPES[field.source]}" for field in fields]
    parameters += [f"{rest}: bytes"] if is_one else [f'{rest}: bytes = b""', f"{rest}_fields: int = 0"]
    layout, values = "", list[str]()
    for field in fields:
        layout += {"boolean": "B", "uint": "BI"}[field.source]
        value = field.attribute
        if field is fields[0] and not field.mandatory:
            value = f"0 if {value} < 0 else {value}"
        values += [f"0x41 if {value} else 0x42"] if field.source == "boolean" else ["0x70", value]
    start = [f"size + {FIELDS_AT - 1}", "0x0200", "channel", f"0x0053{declaration.code:02x}C0"]
    lines = [
        f'_pack_{name}: Final = struct.Struct(">IHHIBB{layout}").pack',
        "",
        "",
        f"def encode_{name}(",
        *wrapped(["channel: int", *parameters], 4),
        ") -> bytes:  # fmt: skip",
        f'    """A {name} frame; what comes behind {fields[-1].name} is encoded in `{rest}`."""',
        f"    size = {struct.calcsize('>' + layout) + 1} + len({rest})",
        f"    count = {f'{count + 1} if {rest} else {count}' if is_one else f'{count} + {rest}_fields'}",
        f"    frame = _pack_{name}(",
        *wrapped([*start, "size if size < 256 else 0", "count", *values], 8),
        "    )  # fmt: skip",
    ]
    if not fields[0].mandatory:
        lines += [
            f"    if {fields[0].attribute} < 0:  # not set",
            f'        return list_frame(channel, {code}, count, b"\\x40" + frame[{FIELDS_AT + 5}:] + {rest})',
        ]
    lines += [
        "    if size > 255:",
        f"        return list_frame(channel, {code}, count, frame[{FIELDS_AT}:] + {rest})",
        f"    return frame + {rest}",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    GENERATED.write_text(text())
