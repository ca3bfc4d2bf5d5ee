"""Every type of the standard's XML against our tables and declarations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from amqp_broker import frames
from amqp_broker.frames import Symbol, Ulong, decode_composite, encode_composite, encode_value, sasl
from amqp_broker.frames.declarations import BY_DESCRIPTOR_CODE, DECLARATIONS, CompositeDeclaration
from amqp_broker.frames.limits import MIN_MAX_FRAME_SIZE
from amqp_broker.frames.primitive_types import ARRAY, COMPOUND, ENCODINGS, FIXED, VARIABLE
from amqp_broker.frames.restricted_types import RESTRICTED_TYPES, SETTLE_MODE_SECOND
from amqp_broker.frames.sections import SECTION_SYMBOLS
from tests.frames.extract_spec import EXTRACT, extract

SPEC: Final[dict[str, Any]] = json.loads(EXTRACT.read_text())
TYPES: Final[dict[str, Any]] = SPEC["types"]
XML: Final = Path(__file__).resolve().parents[2].parent / "shared" / "spec" / "amqp-1.0" / "xml"

COMPOSITES: Final = sorted(name for name, found in TYPES.items() if found["class"] == "composite")
OURS: Final = {declaration.name: declaration for declaration in DECLARATIONS.values()}


def declaration_of(name: str) -> CompositeDeclaration:
    """Our declaration of a composite."""
    return OURS[name]


def test_the_extract_is_what_the_xml_says() -> None:
    """Where the standard's XML lies beside the checkout, the checked-in extract equals it; it is never
    empty.
    """
    if XML.is_dir():
        assert extract(XML) == SPEC
    assert len(TYPES) > 80
    assert len(COMPOSITES) > 30


def test_every_encoding_of_the_standard_is_in_the_table() -> None:
    """Code, name, category and width of each encoding of each primitive type, and no others."""
    categories = {"fixed": FIXED, "variable": VARIABLE, "compound": COMPOUND, "array": ARRAY}
    wanted = {
        (name, row.get("name", ""), int(row["code"], 16), categories[row["category"]], int(row["width"]))
        for name, found in TYPES.items()
        if found["class"] == "primitive"
        for row in found["encodings"]
    }
    assert wanted == {(row.type_name, row.name, row.code, row.category, row.width) for row in ENCODINGS}


def test_every_composite_is_declared() -> None:
    """The composites of the standard and ours are the same set."""
    assert sorted(OURS) == COMPOSITES
    assert len(BY_DESCRIPTOR_CODE) == len(DECLARATIONS)


@pytest.mark.parametrize("name", COMPOSITES)
def test_descriptor_and_archetypes(name: str) -> None:
    """Symbol, code, and what the composite provides."""
    found = TYPES[name]
    domain, code = found["descriptors"][0]["code"].split(":")
    ours = declaration_of(name)
    assert int(domain, 16) == 0
    assert ours.code == int(code, 16)
    assert ours.symbol == found["descriptors"][0]["name"]
    assert sorted(ours.provides) == sorted(found.get("provides", []))


@pytest.mark.parametrize("name", COMPOSITES)
def test_fields(name: str) -> None:
    """Name, type, mandatory, default, multiple and requires of each field, in order."""
    fields = TYPES[name].get("fields", [])
    ours = declaration_of(name).fields
    assert [field.name for field in ours] == [field["name"] for field in fields]
    for mine, field in zip(ours, fields, strict=True):
        assert mine.type_name == field["type"], mine.path
        assert mine.mandatory == (field.get("mandatory") == "true"), mine.path
        assert mine.multiple == (field.get("multiple") == "true"), mine.path
        assert mine.requires == field.get("requires", "") or not mine.requires, mine.path
        if mine.source == "*":
            assert mine.requires == field["requires"], mine.path
        assert mine.default == default_of(field), mine.path
        assert type(mine.default) is type(default_of(field)), mine.path
        assert mine.source == primitive_of(field["type"]), mine.path
        assert mine.attribute == field["name"].replace("-", "_")


def primitive_of(type_name: str) -> str:
    """The primitive type at the bottom of a restricted one; a composite is its own."""
    found = TYPES.get(type_name)
    if found is None or found["class"] != "restricted":
        return type_name
    return primitive_of(found["source"])


def default_of(field: dict[str, Any]) -> object:
    """A field's default as a Python value: choices by their names."""
    text = field.get("default")
    if text is None:
        return None
    for choice in TYPES.get(field["type"], {}).get("choices", []):
        if choice["name"] == text:
            text = choice["value"]
    primitive = primitive_of(field["type"])
    if primitive == "boolean":
        return {"true": True, "false": False}[text]
    return int(text) if primitive in ("ubyte", "ushort", "uint", "ulong") else text


def test_restricted_types() -> None:
    """Source and choices of each restricted type that a field has."""
    used = {field.type_name for ours in OURS.values() for field in ours.fields} & set(TYPES)
    used -= {name for name in used if TYPES[name]["class"] != "restricted"}
    assert used == set(RESTRICTED_TYPES)
    for name in used:
        ours = RESTRICTED_TYPES[name]
        assert ours.source == primitive_of(name)
        choices = [choice["value"] for choice in TYPES[name].get("choices", [])]
        if name == "role":
            assert choices == ["false", "true"]
        else:
            assert [str(choice) for choice in ours.choices] == choices, name


def test_message_sections() -> None:
    """Descriptor and code of each section of a message."""
    wanted = {
        found["descriptors"][0]["name"]: int(found["descriptors"][0]["code"].split(":")[1], 16)
        for found in TYPES.values()
        if "section" in found.get("provides", [])
    }
    assert wanted == SECTION_SYMBOLS


def test_definitions() -> None:
    """The standard's constants that we name."""
    definitions = SPEC["definitions"]
    assert int(definitions["MIN-MAX-FRAME-SIZE"]) == MIN_MAX_FRAME_SIZE
    version = bytes(int(definitions[name]) for name in ("MAJOR", "MINOR", "REVISION"))
    assert frames.AMQP_HEADER == b"AMQP\x00" + version
    assert frames.TLS_HEADER == b"AMQP\x02" + version
    assert frames.SASL_HEADER == b"AMQP\x03" + version


def test_constants_of_choices() -> None:
    """Roles, settle modes and SASL codes have the standard's values."""

    def values(type_name: str) -> dict[str, str]:
        return {choice["name"]: choice["value"] for choice in TYPES[type_name]["choices"]}

    assert values("role") == {"sender": str(frames.SENDER).lower(), "receiver": str(frames.RECEIVER).lower()}
    assert values("sender-settle-mode") == {
        "unsettled": str(frames.SETTLE_MODE_UNSETTLED),
        "settled": str(frames.SETTLE_MODE_SETTLED),
        "mixed": str(frames.SETTLE_MODE_MIXED),
    }
    assert values("receiver-settle-mode") == {
        "first": str(frames.SETTLE_MODE_FIRST),
        "second": str(SETTLE_MODE_SECOND),
    }
    assert values("sasl-code") == {
        "ok": str(sasl.SASL_OK),
        "auth": str(sasl.SASL_AUTH),
        "sys": str(sasl.SASL_SYS),
        "sys-perm": str(sasl.SASL_SYS_PERM),
        "sys-temp": str(sasl.SASL_SYS_TEMP),
    }


def test_every_composite_is_exported_under_its_name() -> None:
    """`amqp_broker.frames` has the class of each composite, named as in the standard; its door `sasl` those
    of SASL, and the lifetime policies are one name.
    """
    known = vars(frames) | vars(sasl) | {policy.__name__: policy for policy in frames.LIFETIME_POLICIES}
    for made, declaration in DECLARATIONS.items():
        assert known["".join(part.title() for part in declaration.name.split("-"))] is made


@pytest.mark.parametrize("name", COMPOSITES)
def test_a_composite_is_found_by_each_form_of_its_descriptor(name: str) -> None:
    """The ulong in all its encodings, and the symbol in both."""
    ours = declaration_of(name)
    samples: dict[str, Any] = {"txn_id": b"t", "condition": "c", "sasl_server_mechanisms": ("PLAIN",)}
    plain: dict[str, Any] = {"string": "s", "symbol": "s", "binary": b"b", "boolean": True}
    value = ours.make(
        **{
            field.attribute: samples.get(field.attribute, plain.get(field.source, 1))
            for field in ours.fields
            if field.mandatory
        }
    )
    data = encode_composite(value)
    assert data[:3] == b"\x00" + encode_value(Ulong(ours.code))
    forms = [
        encode_value(Ulong(ours.code)),
        b"\x80" + ours.code.to_bytes(8, "big"),
        encode_value(Symbol(ours.symbol)),
        b"\xb3" + len(ours.symbol).to_bytes(4, "big") + ours.symbol.encode(),
    ]
    for form in forms:
        decoded, offset = decode_composite(b"\x00" + form + data[3:])
        assert decoded == value
        assert offset == 1 + len(form) + len(data) - 3
