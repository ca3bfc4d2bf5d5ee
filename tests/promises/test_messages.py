"""Where a message may be: each planted violation is found, whether one place is possible or several are."""

from __future__ import annotations

import pytest

from tests.promises.messages import Place, Whereabouts

GONE = "came back: m was received on two, and was gone for good"
TWICE = "twice: m was received on two while one held it"
HAPPENED = {
    "post": lambda message: message.post(),
    "perhaps post": lambda message: message.post(sure=False),
    "get": lambda message: message.received("one"),
    "back": lambda message: message.give_back(),
    "remove": lambda message: message.remove(),
    "perhaps remove": lambda message: message.remove(sure=False),
    "fail": lambda message: message.tried(1),
    "perhaps fail": lambda message: message.tried(0, 1),
}


def after(*happened: str) -> Whereabouts:
    """A message to which that happened, and in which nothing was wrong."""
    message = Whereabouts("m")
    for what in happened:
        assert not HAPPENED[what](message), what
    return message


@pytest.mark.parametrize(
    ("happened", "wrong"),
    [
        (["post"], ""),
        (["perhaps post"], ""),
        (["perhaps post", "post"], ""),
        (["post", "get", "back"], ""),
        (["post", "get", "perhaps remove", "back"], ""),
        ([], "m was received on two, and had never been sent"),
        (["post", "get"], TWICE),
        (["post", "get", "perhaps remove"], TWICE),
        (["post", "get", "remove"], GONE),
        (["post", "get", "perhaps remove", "remove"], GONE),
        (["post", "get", "remove", "back"], GONE),
        (["post", "get", "remove", "post"], GONE),
    ],
)
def test_who_may_get_it(happened: list[str], wrong: str) -> None:
    """Whom nobody contradicts, and afterwards it is that one's."""
    message = after(*happened)
    assert message.received("two") == wrong
    assert message.is_only(Place.HELD) and message.holder == "two"


@pytest.mark.parametrize(
    ("happened", "lost"),
    [
        ([], False),
        (["perhaps post"], False),
        (["post"], True),
        (["perhaps post", "get"], True),
        (["post", "get", "back"], True),
        (["post", "get", "perhaps remove"], False),
        (["post", "get", "perhaps remove", "back"], False),
        (["post", "get", "perhaps remove", "back", "get"], True),
        (["post", "get", "remove"], False),
    ],
)
def test_what_has_to_come(happened: list[str], lost: bool) -> None:
    """What certainly was posted, until an outcome may have removed it; what is received shows what was."""
    assert after(*happened).has_to_come is lost


@pytest.mark.parametrize(
    ("happened", "counts"),
    [([], {0}), (["fail"], {1}), (["perhaps fail"], {0, 1}), (["perhaps fail", "fail"], {1, 2})],
)
def test_delivery_counts(happened: list[str], counts: set[int]) -> None:
    """One where all is known, and no other one than is possible."""
    message = after("post", *happened)
    message.received("two")
    assert {count for count in range(5) if not message.wrong_count(count)} == counts
    words = " or ".join(str(count) for count in sorted(counts))
    assert message.wrong_count(7) == f"m was received on two with delivery-count 7, expected {words}"
