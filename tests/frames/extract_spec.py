"""What the standard's XML says about types, as JSON: `python -m tests.frames.extract_spec XML_FOLDER` writes
it.

The extract is checked in beside this file, so that the declarations are compared with it everywhere; where
the XML itself is at hand, a test compares the extract with that.
"""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, Final

EXTRACT: Final = Path(__file__).with_name("spec_types.json")
PARTS: Final = ("types", "transport", "messaging", "transactions", "security")
NAMESPACE: Final = "{http://www.amqp.org/schema/amqp.xsd}"


def extract(folder: Path) -> dict[str, Any]:
    """Types and definitions of all five parts, by name."""
    types: dict[str, Any] = {}
    definitions: dict[str, str] = {}
    for part in PARTS:
        root = ElementTree.parse(folder / f"{part}.xml").getroot()
        for section in root.iter(NAMESPACE + "section"):
            for element in section.findall(NAMESPACE + "type"):
                types[element.attrib["name"]] = _type(element)
            for element in section.findall(NAMESPACE + "definition"):
                definitions[element.attrib["name"]] = element.attrib["value"]
    return {"types": types, "definitions": definitions}


def _type(element: ElementTree.Element) -> dict[str, Any]:
    found: dict[str, Any] = {"class": element.attrib["class"]}
    if "source" in element.attrib:
        found["source"] = element.attrib["source"]
    if "provides" in element.attrib:
        found["provides"] = [name.strip() for name in element.attrib["provides"].split(",")]
    for tag, wanted in (
        ("encoding", ("name", "code", "category", "width")),
        ("descriptor", ("name", "code")),
        ("field", ("name", "type", "requires", "default", "mandatory", "multiple")),
        ("choice", ("name", "value")),
    ):
        children = element.findall(NAMESPACE + tag)
        if children:
            found[tag + "s"] = [
                {key: child.attrib[key] for key in wanted if key in child.attrib} for child in children
            ]
    return found


if __name__ == "__main__":
    EXTRACT.write_text(json.dumps(extract(Path(sys.argv[1])), indent=1) + "\n")
