"""A body that is checked piece by piece is judged as the whole message is."""

from __future__ import annotations

import random

import pytest

from amqp_broker.frames import BodyCheck, DecodeError, Message, Symbol, cut_body, encode_message, find_body

PROPERTIES = bytes.fromhex("005373c00602a1026d3140")
DATA = b"\x00\x53\x75\xb0\x00\x00\x01\x00" + bytes(256)
SHORT = b"\x00\x53\x75\xa0\x03abc"
SEQUENCE = bytes.fromhex("005376c0050254015402")
VALUE = b"\x00\x53\x77\xb1\x00\x00\x00\x04text"
DESCRIBED = b"\x00\x53\x77\x00\xa3\x04name\x00\x80\x00\x00\x00\x00\x00\x00\x00\x01\xa1\x01x"
SYMBOLIC = b"\x00\xa3\x10amqp:data:binary\xa0\x01x"
FOOTER = bytes.fromhex("005378c10802a3037369675401")
WHOLE = {
    "data": DATA, "two": DATA + SHORT, "sequences": SEQUENCE * 2, "value": VALUE, "described": DESCRIBED,
    "symbolic": DATA + SYMBOLIC, "ulong": DATA + b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75\xa0\x01x",
    "footer": DATA + FOOTER, "null": b"\x00\x53\x77\x40", "long": b"\x00\x53\x77\x81" + bytes(8),
    "map": b"\x00\x53\x77\xc1\x03\x02\x40\x40", "empty list": b"\x00\x53\x77\x45",
}  # fmt: skip
BROKEN = {
    "cut": DATA[:-1], "cut in size": DATA + DATA[:6], "order": DATA + PROPERTIES, "mixed": DATA + VALUE,
    "twice": VALUE + VALUE, "constructor": b"\x00\x53\x75\xa1\x01x", "no section": DATA + b"\x40\x00",
    "foreign": DATA + b"\x00\x53\x10\xa0\x01x", "count": b"\x00\x53\x77\xd0\x00\x00\x00\x05\x00\x00\x00\x09x",
    "odd map": b"\x00\x53\x77\xc1\x02\x01\x40", "footer twice": DATA + FOOTER + FOOTER,
    "footer": DATA + FOOTER[:-1], "keys": DATA + bytes.fromhex("005378c10802a1037369675401"),
    "reserved": DATA + b"\x00\x53\x77\x00", "symbol": DATA + b"\x00\xa3\x10amqp:data",
    "descriptor alone": b"\x00\x53\x77\x00\xa3\x04name", "not described": b"\x00\x53\x77\x00\xa1\x01x\x40",
    "no symbol": b"\x00\x53\x77\x00\xa3\x02\xc3\xa4\x40",
    "too deep": b"\x00\x53\x77" + b"\x00\x44" * 99 + b"\x40",
    "half a list": b"\x00\x53\x77\xd0\x00\x00\x00\x09\x00\x00\x00\x01\x40",
}  # fmt: skip


def judged(octets: bytes, cuts: list[int], sections: int = 0) -> bool:
    """Whether the check takes it in pieces that end there."""
    check = BodyCheck(sections)
    try:
        for begin, end in zip([0, *cuts], [*cuts, len(octets)], strict=True):
            check.take(octets[begin:end])
            assert len(check._begun) < 40, "it keeps more than it needs"
        check.end(lambda last: octets[-last:])
    except DecodeError:
        return False
    return True


@pytest.mark.parametrize("name", [*WHOLE, *BROKEN])
def test_every_cut_gives_the_judgement_of_the_whole(name: str) -> None:
    """Wherever it is cut, once or at each octet."""
    octets = WHOLE.get(name) or BROKEN[name]
    try:
        Message(octets).check()
        expected = True
    except DecodeError:
        expected = False
    assert expected is (name in WHOLE)
    assert judged(octets, [*range(1, len(octets))]) is expected
    for cut in range(1, len(octets)):
        assert judged(octets, [cut]) is expected, cut


def test_damaged_octets_are_judged_as_the_whole_is() -> None:
    """Nothing but DecodeError is raised, whatever comes; and never another word than that of the whole."""
    rng = random.Random(4)
    for _ in range(4_000):
        octets = bytearray(rng.choice([*WHOLE.values()]))
        for _ in range(rng.randrange(1, 4)):
            octets[rng.randrange(min(len(octets), 40))] = rng.choice((0, 1, 0x53, 0x75, 0xA0, 0xFF))
        try:
            Message(bytes(octets)).check()
            expected = True
        except DecodeError:
            expected = False
        cuts = sorted(rng.sample(range(1, len(octets)), min(3, len(octets) - 1)))
        assert judged(bytes(octets), cuts) is expected, octets.hex()


def test_the_head_ends_where_the_body_begins() -> None:
    """As far as it is there, and usual; else nobody knows."""
    head = b"\x00\x53\x70\xc0\x02\x01\x41" + PROPERTIES
    assert find_body(head + DATA) == (len(head), 2)
    assert find_body(DATA) == (0, 0)
    assert find_body(head + DATA[:3]) == (-1, 2)
    for octets in (head, head[:-1], head + FOOTER, head + SYMBOLIC, b"", b"\x40"):
        assert find_body(octets)[0] == -1


def test_sections_before_the_body_count() -> None:
    """All together are SECTIONS_MAX at most."""
    assert judged(SHORT * 5, [], 65_531) and not judged(SHORT * 6, [], 65_531)


LONG = 70_000
LONG_FOOTER = encode_message(body=b"x", footer={Symbol("sum"): "y" * LONG})
LONG_SYMBOL = b"\x00\x53\x77\x00\xb3" + LONG.to_bytes(4, "big") + b"s" * LONG + b"\xa1\x01x"


@pytest.mark.parametrize("octets", [LONG_FOOTER, LONG_SYMBOL])
def test_no_part_of_a_body_has_a_bound_of_its_own(octets: bytes) -> None:
    """Whether a message passes piece by piece depends on others, and how it is cut on the moment: what is
    said of it does not.
    """
    Message(octets).check()
    for size in (1, 1_000, LONG, len(octets)):
        assert judged(octets, [*range(size, len(octets), size)]), size
        assert not judged(octets[:-1], [*range(size, len(octets) - 1, size)]), size
    wrong = octets.replace(b"ss", b"s\xff").replace(b"\xa3\x03sum", b"\xa1\x03sum")
    for size in (1_000, len(octets)):
        assert not judged(wrong, [*range(size, len(octets), size)]), size


def test_a_name_that_is_no_section_is_not_waited_for() -> None:
    """However long it says that it is."""
    with pytest.raises(DecodeError, match="a descriptor of 2147483647 octets"):
        BodyCheck(0).take(b"\x00\xb3\x7f\xff\xff\xff")


def test_of_a_body_that_is_cut_off_the_begin_is_there() -> None:
    """Of data as much as came; of others, and where nothing of their content is there, what stands before."""
    assert cut_body(DATA + SHORT) == DATA + SHORT
    for octets in (DATA[:20], DATA[:8], SHORT[:7]):
        found = Message(cut_body(octets)).body_sections()
        assert [bytes(section.value) for section in found] == [octets[octets[3] == 0xA0 and 5 or 8 :]]
    assert cut_body(DATA + VALUE[:9]) == DATA and cut_body(VALUE[:9]) == cut_body(DATA[:7]) == b""
