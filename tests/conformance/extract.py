"""Takes the requirements out of the standard's XML: one row for each sentence with a MUST or SHOULD.

The XML has no section numbers; they follow from order, as in the printed standard: sections are numbered
within a part, titled passages and types within a section ("2.7.5" is the fifth type of the seventh section of
part 2). Where the Standard of 2012 is divided otherwise, its number counts (`oasis.toml`). An id is the
number and the sentence's place among the requirements there: ``2.7.5-03``.

    python -m tests.conformance.extract FOLDER-OF-XML

writes the tables of `amqp_broker.conformance.requirements` again. Reasons that stand in them stay, and so do
the rows that were chosen by hand (their ids end with a word): sentences without a key word that scenarios
show nevertheless. The XML is the working group's text of 2011; what the OASIS Standard of 2012 says otherwise
is in `oasis.toml`.
"""

import re
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from amqp_broker.conformance import requirements

NAMESPACE = "{http://www.amqp.org/schema/amqp.xsd}"

PARTS = {1: "types", 2: "transport", 3: "messaging", 4: "transactions", 5: "security"}
"""The parts of the standard, by number, and the name of their XML file."""

NUMBERED = re.compile(r"-\d\d$")
"""What the id of a row ends with that was extracted; others were chosen by hand."""

OASIS = tomllib.loads(Path(__file__).with_name("oasis.toml").read_text(encoding="utf-8"))
"""What the Standard says otherwise than the XML."""

LEVEL_PATTERN = re.compile(r"\b(?:MUST|SHOULD)(?: (?:NOT|not))?\b|\b(?:must|should)(?: (?:NOT|not))?\b")


class Sentence(NamedTuple):
    """One sentence of the standard, and where it stands."""

    section: str
    title: str
    text: str


class Extracted(NamedTuple):
    """One sentence of the standard with a requirement in it."""

    id: str
    section: str
    title: str
    level: str
    sentence: str


def _flat_text(element: ElementTree.Element) -> str:
    """Returns the text of a paragraph on one line; references become the name they refer to."""
    parts: list[str] = [element.text or ""]
    for child in element:
        if child.tag == NAMESPACE + "xref":
            parts.append(child.text or child.get("choice") or child.get("name") or "")
        elif child.tag != NAMESPACE + "todo":
            parts.append(_flat_text(child))
        parts.append(child.tail or "")
    return re.sub(r"\s+([.,;])", r"\1", re.sub(r"\s+", " ", "".join(parts))).strip()


def _split_sentences(text: str) -> list[str]:
    """Splits at the ends of sentences; abbreviations (e.g., i.e.) and full stops inside parentheses do not
    end one.
    """
    pieces = re.split(r"(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<=[.?!])\s+(?=[A-Z\"(])", text)
    sentences: list[str] = []
    for piece in pieces:
        if sentences and sentences[-1].count("(") > sentences[-1].count(")"):
            sentences[-1] += " " + piece
        else:
            sentences.append(piece)
    return sentences


def _paragraphs(element: ElementTree.Element, title: str) -> Iterator[tuple[str, str]]:
    """Yields (title, text) of each paragraph below ``element``; the title of a field's text is "type:
    field".
    """
    for child in element:
        if child.tag == NAMESPACE + "p":
            yield title, _flat_text(child)
        elif child.tag in (NAMESPACE + "field", NAMESPACE + "choice"):
            yield from _paragraphs(child, f"{title}: {child.get('name')}")
        elif child.tag != NAMESPACE + "picture" and not _is_titled(child):
            yield from _paragraphs(child, title)


def _numbered(part: int, root: ElementTree.Element) -> Iterator[tuple[str, str, ElementTree.Element]]:
    """Yields (section number, title, element with text) for everything in one part."""
    for section_index, section in enumerate(root.findall(NAMESPACE + "section"), 1):
        number = f"{part}.{section_index}"
        place, place_title, sub = number, section.get("title") or section.get("name") or "", 0
        constants = ""
        for element in section:
            if _is_titled(element):
                sub += 1
                place, place_title = f"{number}.{sub}", element.get("title") or ""
                if len(element) == 0:
                    # A titled passage without text is the heading of the types that follow: they count below
                    # it.
                    number, sub = place, 0
                yield place, place_title, element
                for below, inner in enumerate(filter(_is_titled, element), 1):
                    yield f"{place}.{below}", inner.get("title") or "", inner
            elif element.tag == NAMESPACE + "type":
                sub += 1
                yield f"{number}.{sub}", element.get("name") or "", element
            elif element.tag == NAMESPACE + "definition":
                # The constants of a section are its last passage (2.8.19).
                constants = constants or f"{number}.{sub + 1}"
                yield constants, element.get("name") or "", element
            else:
                yield place, place_title, element


def _is_titled(element: ElementTree.Element) -> bool:
    """Whether this is a passage with a title, which is a section of its own (4.4.4 has three)."""
    return element.tag == NAMESPACE + "doc" and bool(element.get("title"))


def read_sentences(part: int, folder: Path) -> list[Sentence]:
    """Returns all sentences of one part, read from ``folder`` (the standard's XML files), in its order, with
    the numbers of the Standard of 2012.
    """
    root = ElementTree.parse(folder / f"{PARTS[part]}.xml").getroot()
    return [
        Sentence(OASIS["sections"].get(section, section), OASIS["titles"].get(title, title), sentence)
        for section, section_title, element in _numbered(part, root)
        for title, text in _paragraphs(element, section_title)
        for sentence in _split_sentences(text)
    ]


def _level(words: list[str]) -> str:
    """Returns the strongest of the key words in a sentence; lower case stays, so that a reader can tell."""
    strongest = min(words, key=lambda word: (word[:4].islower(), not word.upper().startswith("MUST")))
    return strongest if strongest.islower() else strongest.upper()


def extract_part(part: int, folder: Path) -> list[Extracted]:
    """Returns the requirements of one part: every sentence with a key word (2.7.1: "MUST", "should")."""
    rows: list[Extracted] = []
    counts: dict[str, int] = {}
    for section, title, text in read_sentences(part, folder):
        words = LEVEL_PATTERN.findall(text)
        if words:
            counts[section] = counts.get(section, 0) + 1
            rows.append(Extracted(f"{section}-{counts[section]:02}", section, title, _level(words), text))
    return rows


def standard_part(part: int, folder: Path) -> list[Extracted]:
    """Returns the rows of one part as the OASIS Standard has them."""
    rows: list[Extracted] = []
    for row in extract_part(part, folder):
        sentence = sentence_of_2012(row.id, row.sentence)
        if sentence is not None:
            rows.append(row._replace(sentence=sentence, level=level_of(sentence)))
    return rows


def level_of(sentence: str) -> str:
    """Returns the level of a sentence: its strongest key word, or ``says``."""
    words = LEVEL_PATTERN.findall(sentence)
    return _level(words) if words else "says"


def sentence_of_2012(row_id: str, sentence: str) -> str | None:
    """The row's sentence in the OASIS Standard; None for one that requires nothing there. Raises
    AssertionError when the amended words do not stand in it.
    """
    if row_id in OASIS["dropped"]:
        return None
    if row_id in OASIS["amended"]:
        words = OASIS["amended"][row_id]
        assert words["old"] in sentence, f"{row_id} does not say {words['old']!r}"
        sentence = sentence.replace(words["old"], words["new"])
    if row_id in OASIS["raised"]:
        sentence = re.sub(r"\b(must|should|may)\b( not\b)?", lambda found: found.group(0).upper(), sentence)
    if row_id in OASIS["weakened"]:
        sentence = re.sub(r"\bmay\b", "can", sentence)
    return re.sub(r"(?<!-)\btime-out", "timeout", re.sub(r"\bi\.e\.(?!,)", "i.e.,", sentence))


def chosen_in(row_id: str, section: str, sentence: str, sentences: list[Sentence]) -> bool:
    """Whether a row that was chosen by hand stands in the standard, in its section, as the Standard of 2012
    has it.
    """
    amended = OASIS["amended"].get(row_id, {"old": ""})["old"]
    return any(
        sentence_of_2012(row_id, one.text) == sentence
        for one in sentences
        if one.section == section and amended in one.text
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def write_table(path: Path, rows: list[dict[str, str]]) -> None:
    """Writes one part's table: TOML, one block for each row, keys in a fixed order."""
    blocks = []
    for row in rows:
        keys = [
            key for key in ("id", "section", "title", "level", "sentence", "kind", "reason") if row.get(key)
        ]
        blocks.append("\n".join(["[[requirement]]", *(f"{key} = {_quoted(row[key])}" for key in keys)]))
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")


def rewrite_tables(xml_folder: Path, table_folder: Path) -> None:
    """Writes the tables of all parts anew from the XML; keeps reasons and the rows that were chosen by
    hand.
    """
    for part in PARTS:
        path = table_folder / f"part{part}.toml"
        old: list[dict[str, str]] = []
        if path.exists():
            old = tomllib.loads(path.read_text(encoding="utf-8")).get("requirement", [])
        reasons = {row["sentence"] + row["id"]: row for row in old if row.get("kind")}
        rows: list[dict[str, str]] = []
        for extracted in standard_part(part, xml_folder):
            known = reasons.get(extracted.sentence + extracted.id, {})
            rows.append(
                {**extracted._asdict(), "kind": known.get("kind", ""), "reason": known.get("reason", "")}
            )
        write_table(path, rows + [row for row in old if not NUMBERED.search(row["id"])])


def main() -> int:
    """Rewrites the tables from the folder named on the command line."""
    if len(sys.argv) != 2:
        print("usage: python -m tests.conformance.extract FOLDER-OF-XML", file=sys.stderr)
        return 2
    rewrite_tables(Path(sys.argv[1]), Path(requirements.__file__).parent)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
