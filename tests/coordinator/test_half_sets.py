"""What the commit of an epoch means for all sets of a producer, against all small cases."""

from __future__ import annotations

from itertools import product

from amqp_broker.coordinator.half_set_table import SetAnswer, SetState
from amqp_broker.coordinator.half_sets import (
    CHECKSUM_MODULUS,
    ProducerSets,
    SetPart,
    StagedSet,
    Winner,
    judge_winners,
)

KINDS = ("absent", "open", "sealed", "earlier", "later")


def producer_with(*kinds: str) -> ProducerSets:
    """Sets a, b, ... of epoch 5, one of each kind; `earlier` and `later` are sealed, of epochs 4 and 6."""
    producer = ProducerSets("g", "p")
    for name, kind in zip("abc", kinds, strict=False):
        if kind == "absent":
            continue
        epoch = {"earlier": 4, "later": 6}.get(kind, 5)
        staged = StagedSet(producer, name, epoch, 0, 1_000, "c")
        producer.add(staged)
        part = staged.parts["q"] = SetPart(staged, "q", 1)
        part.add(2, 20, 7)
        if kind != "open":
            staged.state = SetState.SEALED
            staged.sealed = Winner(name, 2, 7)
    return producer


def test_all_or_nothing_in_every_case() -> None:
    """Done exactly where all named ones are sealed sets of the epoch; else the first that is not says why."""
    why = {
        "absent": SetAnswer.UNKNOWN,
        "earlier": SetAnswer.UNKNOWN,
        "later": SetAnswer.UNKNOWN,
        "open": SetAnswer.UNSEALED,
        "sealed": SetAnswer.DONE,
    }
    for kinds in product(KINDS, repeat=3):
        producer = producer_with(*kinds)
        for named in ("", "a", "ab", "ba", "abc"):
            verdict = judge_winners(producer, 5, [Winner(name, 2, 7) for name in named])
            answers = {name: why[kinds["abc".index(name)]] for name in named}
            bad = next((name for name in named if answers[name] is not SetAnswer.DONE), None)
            if bad is not None:
                assert verdict.answer is answers[bad] and verdict.reason == Winner(bad, 2, 7)
                assert not verdict.winners and not verdict.losers
                continue
            assert verdict.answer is SetAnswer.DONE and [w.set_id for w in verdict.winners] == [*named]
            lost = {n for n, kind in zip("abc", kinds, strict=True) if kind in ("open", "sealed", "earlier")}
            assert {loser.set_id for loser in verdict.losers} == lost - {*named}


def test_a_winner_is_named_with_what_it_was_sealed_with() -> None:
    """Another count or checksum is a mismatch, and so is a sealed set of which messages are missing."""
    producer = producer_with("sealed")
    for count, checksum in ((3, 7), (2, 8), (0, 0)):
        verdict = judge_winners(producer, 5, [Winner("a", count, checksum)])
        assert verdict.answer is SetAnswer.MISMATCH
    producer.sets["a"].parts["q"].count = 1
    assert judge_winners(producer, 5, [Winner("a", 2, 7)]).answer is SetAnswer.MISMATCH
    assert judge_winners(producer, 5, [Winner("a", 1, 7)]).answer is SetAnswer.MISMATCH


def test_a_set_is_the_sum_of_its_parts() -> None:
    """Counts, bytes, checksums modulo 2^64, and what is on its way; what was not stored is taken away."""
    producer = ProducerSets("g", "p")
    staged = StagedSet(producer, "a", 5, 0, 1_000, "c")
    for number, name in enumerate("qr"):
        part = staged.parts[name] = SetPart(staged, name, number)
        part.add(1, 10, CHECKSUM_MODULUS - 1)
    assert (staged.count, staged.byte_count, staged.checksum) == (2, 20, CHECKSUM_MODULUS - 2)
    staged.parts["q"].add(-1, -10, -(CHECKSUM_MODULUS - 1))
    assert staged.is_as(1, CHECKSUM_MODULUS - 1) and not staged.is_as(1, 0)
    assert not staged.unread and not staged.under_way
    staged.parts["r"].unread_to = 3
    staged.parts["r"].under_way = 1
    assert staged.unread and staged.under_way
