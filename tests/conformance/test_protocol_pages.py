"""The pages of protocols beside the standard, and the rows that the scenarios show."""

import pytest

from amqp_broker.conformance.requirements import PROTOCOLS, load_requirements
from tests.tidy.sources import text_files


@pytest.mark.parametrize("protocol", PROTOCOLS.values())
def test_each_sentence_stands_in_the_page_of_its_protocol(protocol: str) -> None:
    """Word for word, so that the page and what is shown do not part."""
    page = " ".join(text_files()[f"docs/protocols/{protocol}.md"].split())
    rows = [row for row in load_requirements().values() if row.protocol == protocol]
    assert len(rows) > 30
    assert [row.id for row in rows if " ".join(row.sentence.split()) not in page] == []
