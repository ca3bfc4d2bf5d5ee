"""The table of the standard's rows: complete, equal to the XML, and each row shown or excused."""

import re
from pathlib import Path

import pytest

from amqp_broker.conformance.requirements import KINDS, Requirement, load_requirements, section_key
from amqp_broker.conformance.scenario import load_scenarios
from tests.conformance.extract import (
    LEVEL_PATTERN,
    NUMBERED,
    OASIS,
    PARTS,
    chosen_in,
    extract_part,
    level_of,
    read_sentences,
    rewrite_tables,
    sentence_of_2012,
    standard_part,
    write_table,
)

XML = Path(__file__).resolve().parents[3] / "shared" / "spec" / "amqp-1.0" / "xml"
"""The standard, where the project is developed; elsewhere the tables stand for it."""

SMALL_PART = """<?xml version="1.0"?>
<amqp xmlns="http://www.amqp.org/schema/amqp.xsd" name="types" label="a small standard">
  <section name="first" title="First"><doc><p>Nothing here. A peer MUST NOT shout, e.g. in
  capitals.</p></doc></section>
  <section name="second" title="Second">
    <doc><p>It SHOULD whisper. It says so.</p></doc>
    <doc title="Whispering"><p>A <xref name="whisper"/> must
      be short (it MUST end. It SHOULD be heard).</p></doc>
    <type name="word" class="composite" source="list">
      <field name="letters"><doc><p>This field should not be empty.</p></doc></field>
    </type>
    <doc title="Within"><p>Nothing.</p><doc title="Inner"><p>It MUST be counted.</p></doc></doc>
    <doc title="Heading"/>
    <type name="below" class="composite" source="list"><doc><p>MUST count below.</p></doc></type>
    <definition name="LAST"><doc><p>It MUST be the last.</p></doc></definition>
    <definition name="VERY-LAST"><doc><p>It SHOULD stand beside it.</p></doc></definition>
  </section>
</amqp>
"""


def _small_standard(folder: Path) -> Path:
    for name in PARTS.values():
        (folder / f"{name}.xml").write_text(SMALL_PART)
    return folder


def _shown() -> set[str]:
    return {row_id for one in load_scenarios() for row_id in one.rows}


def test_sections_are_numbered_as_in_print(tmp_path: Path) -> None:
    """Sections count within a part, titled passages and types within a section, types below a bare heading,
    passages within a passage, and constants as the last passage.
    """
    rows = extract_part(2, _small_standard(tmp_path))
    assert [(row.id, row.level) for row in rows] == [
        ("2.1-01", "MUST NOT"),
        ("2.2-01", "SHOULD"),
        ("2.2.1-01", "MUST"),
        ("2.2.2-01", "should not"),
        ("2.2.3.1-01", "MUST"),
        ("2.2.4.1-01", "MUST"),
        ("2.2.4.2-01", "MUST"),
        ("2.2.4.2-02", "SHOULD"),
    ]


def test_a_sentence_is_whole_and_on_one_line(tmp_path: Path) -> None:
    """References become their names; abbreviations and parentheses do not end a sentence."""
    rows = extract_part(2, _small_standard(tmp_path))
    assert rows[0].sentence == "A peer MUST NOT shout, e.g. in capitals."
    assert rows[2].sentence == "A whisper must be short (it MUST end. It SHOULD be heard)."
    assert rows[3].title == "word: letters"


def test_rewriting_keeps_reasons_and_chosen_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written by hand survives a new extraction; a reason whose sentence has changed does not."""
    monkeypatch.setitem(OASIS, "amended", {})
    _small_standard(tmp_path)
    tables = tmp_path / "tables"
    tables.mkdir()
    kept = {
        "id": "1.1-01",
        "section": "1.1",
        "title": "First",
        "level": "MUST NOT",
        "kind": "client",
        "sentence": "A peer MUST NOT shout, e.g. in capitals.",
        "reason": "the client does",
    }
    lost = {**kept, "id": "1.2-01", "sentence": "It SHOULD once have said something else."}
    says = {
        "id": "1.2-whisper",
        "section": "1.2",
        "title": "Second",
        "level": "says",
        "sentence": "It says so.",
    }
    write_table(tables / "part1.toml", [kept, lost, says])
    rewrite_tables(tmp_path, tables)
    text = (tables / "part1.toml").read_text()
    assert text.count("reason =") == 1 and 'reason = "the client does"' in text
    assert 'id = "1.2-whisper"' in text


def test_the_tables_equal_the_standard() -> None:
    """Every sentence with a key word is a row, word for word as the OASIS Standard has it, and every chosen
    sentence stands in the standard.
    """
    added = {row["id"] for row in OASIS["added"]}
    rows = load_requirements().values()
    for part in PARTS if XML.is_dir() else ():
        extracted = {(row.id, row.level, row.sentence) for row in standard_part(part, XML)}
        numbered = [row for row in rows if row.part == part and NUMBERED.search(row.id)]
        assert {(row.id, row.level, row.sentence) for row in numbered} == extracted
        sentences = read_sentences(part, XML)
        chosen = [row for row in rows if row.part == part and row.id not in added and row not in numbered]
        assert [row.id for row in chosen if not chosen_in(row.id, row.section, row.sentence, sentences)] == []
    assert sum(row.level != "says" for row in rows if not row.protocol) == 263


def test_what_the_oasis_standard_adds_is_there() -> None:
    """Each sentence is a row; what it changed is changed; and no key word is in small letters any
    more.
    """
    rows = load_requirements()
    for added in OASIS["added"]:
        row = rows[added["id"]]
        assert {name: getattr(row, name) for name in added} == added
        assert row.level == level_of(row.sentence)
    for row_id, words in OASIS["amended"].items():
        assert words["new"] in rows[row_id].sentence, row_id
    assert OASIS["sections"].keys().isdisjoint(row.section for row in rows.values())
    in_small_letters = re.compile(r"\b(must|should|may)\b|\bi\.e\.(?!,)|(?<!-)\btime-out")
    standard = [row for row in rows.values() if not row.protocol]
    assert [row.id for row in standard if in_small_letters.search(row.sentence)] == []
    assert rows.keys().isdisjoint(OASIS["dropped"])
    assert {row.level for row in rows.values() if not row.protocol} == {
        "MUST",
        "MUST NOT",
        "SHOULD",
        "SHOULD NOT",
        "says",
    }


def test_a_sentence_becomes_that_of_2012() -> None:
    """Raised, amended, dropped or as it was; an amendment that no longer fits is noticed."""
    assert sentence_of_2012("2.7.7-01", "It should contain details.") == "It SHOULD contain details."
    assert sentence_of_2012("2.4.5-06", "As they are a frame, they should not be sent after x.") == (
        "As they are a frame, they MUST NOT be sent after x."
    )
    assert sentence_of_2012("4.2-01", "The controller must obtain one.") is None
    assert sentence_of_2012("9.9-01", "It should stay.") == "It should stay."
    assert sentence_of_2012("2.8.7-tag", "It may be so, i.e. a time-out.") == "It can be so, i.e., a timeout."
    assert sentence_of_2012("9.9-01", "Half an idle-time-out.") == "Half an idle-time-out."
    with pytest.raises(AssertionError):
        sentence_of_2012("2.4.5-06", "something else")


def test_levels_stand_in_their_sentences() -> None:
    """A row of a level other than says has that word in its sentence; one of level says has none."""
    for row in load_requirements().values():
        words = {word.upper() for word in LEVEL_PATTERN.findall(row.sentence)}
        assert bool(words) == (row.level != "says"), row.id
        assert not words or row.level.upper() in words, row.id


def test_every_row_has_a_scenario_or_a_reason() -> None:
    """No row is passed over in silence, and none has both a scenario and an excuse."""
    shown = _shown()
    unclear = [row.id for row in load_requirements().values() if (row.id in shown) == bool(row.reason)]
    assert unclear == []


def test_reasons_are_of_a_known_kind() -> None:
    """A reason has a kind that the report can count, and says something."""
    for row in load_requirements().values():
        assert bool(row.kind) == bool(row.reason), row.id
        assert not row.kind or (row.kind in KINDS and len(row.reason) > 15), row.id


def test_sentences_without_a_key_word_are_there_for_a_scenario() -> None:
    """A row of the standard of level says has been chosen because a scenario shows it."""
    shown = _shown()
    assert [
        row.id
        for row in load_requirements().values()
        if row.level == "says" and not row.protocol and row.id not in shown
    ] == []


def test_scenarios_name_rows_that_exist() -> None:
    """Every row that a scenario names is in the table."""
    assert _shown() <= set(load_requirements())


def test_rows_are_in_the_standards_order() -> None:
    """Rows come by section: 2.9 before 2.10, and 5.3.3.2 after 5.3.2."""
    keys = [section_key(row.section) for row in load_requirements().values()]
    assert keys == sorted(keys)
    assert section_key("2.9") < section_key("2.10")


def test_a_row_knows_its_part_and_chapter() -> None:
    """The part is the first number, the chapter the first two."""
    row = Requirement("2.7.5-01", "2.7.5", "transfer", "MUST", "x MUST y")
    assert (row.part, row.chapter, row.protocol) == (2, "2.7", "")
    own = Requirement("half.put-id", "half.put", "Put", "says", "x")
    assert (own.part, own.protocol) == (0, "half-messages")
