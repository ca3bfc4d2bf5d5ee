"""Which outcomes are kept, and until when, without a disk."""

from __future__ import annotations

from amqp_broker.persistence import Discharged
from amqp_broker.persistence.generations import (
    GENERATION_OUTCOMES,
    KEEP_COUNT,
    KEEP_MS,
    PARTS,
    STEP_OUTCOMES,
    Generations,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def kept(*times: int, keep_ms: int = KEEP_MS, keep_count: int = KEEP_COUNT) -> Generations:
    """Generations of outcomes with these times, one group each."""
    generations = Generations(keep_ms, keep_count)
    for at_ms in times:
        generations.keep(generations.place([Discharged(b"", at_ms)]))
    return generations


def left(opened: list[int], now: float, newest_count: int = 1) -> int:
    """How many generations, of one outcome at each time, are left at `now` of a start at 0."""
    generations = Generations(KEEP_MS, KEEP_COUNT)
    generations.load(list(enumerate(opened)), newest_count)
    assert generations.count == len(opened) - 1 + newest_count
    generations.forgettable(0.0)
    return len(opened) - generations.forgettable(now)


def test_limits_are_seven_days_and_a_million() -> None:
    """The default limits, in their units."""
    assert (KEEP_MS, KEEP_COUNT) == (7 * DAY_MS, 1_000_000)


def test_full_generations_and_their_neighbours() -> None:
    """A group that fills a generation goes on in the next one, named by its first outcome's number."""
    generations = Generations(KEEP_MS, KEEP_COUNT)
    placed = generations.place([Discharged(b"", 5)] * (2 * GENERATION_OUTCOMES + 3))
    assert [(number, len(members)) for number, members in placed.members.items()] == [
        (0, GENERATION_OUTCOMES),
        (GENERATION_OUTCOMES, GENERATION_OUTCOMES),
        (2 * GENERATION_OUTCOMES, 3),
    ]
    assert placed.opened == [(0, 5), (GENERATION_OUTCOMES, 5), (2 * GENERATION_OUTCOMES, 5)]
    assert generations.count == 0, "nothing changed yet"
    generations.keep(placed)
    again = generations.place([Discharged(b"", 5)])
    assert (again.opened, [*again.members]) == ([], [2 * GENERATION_OUTCOMES])
    generations.keep(again)
    assert generations.count == 2 * GENERATION_OUTCOMES + 4


def test_time_closes_a_generation_in_either_direction() -> None:
    """A time later or earlier by a sixteenth of the keeping time begins a new generation."""
    generations = kept(10 * DAY_MS)
    part_ms = KEEP_MS // PARTS
    for at_ms, opens in ((part_ms, False), (part_ms + 1, True), (-part_ms, False), (-part_ms - 1, True)):
        placed = generations.place([Discharged(b"", 10 * DAY_MS + at_ms)])
        assert bool(placed.opened) == opens, at_ms


def test_small_limits_have_small_generations() -> None:
    """No more than a sixteenth is forgotten too early. A limit of one keeps the newest."""
    for keep_count in (1, 2, 15, 16, 17, 100, 5000):
        generations = kept(*[5] * 300, keep_count=keep_count)
        while (number := generations.forgettable(0.0)) > 0:
            generations.forget(number)
        wanted = min(300, keep_count)
        assert wanted - keep_count // PARTS <= generations.count <= wanted
        assert generations.count > 0


def test_steps_are_bounded() -> None:
    """One step forgets about STEP_OUTCOMES, whether generations are large or small."""
    for keep_count in (100, 1_000_000):
        generations = Generations(1000, keep_count)
        generations.keep(generations.place([Discharged(b"", 5)] * 100_000))
        steps = 0
        generations.forgettable(0.0)
        while number := generations.forgettable(2.0):
            before = generations.count
            generations.forget(number)
            assert before - generations.count < STEP_OUTCOMES + GENERATION_OUTCOMES
            steps += 1
        assert (generations.count, steps) == (0, 7)


def test_numbering_goes_on_when_all_are_forgotten() -> None:
    """After all generations are forgotten, the next one has a new number."""
    generations = kept(5, 5, 5, keep_ms=1000)
    generations.forgettable(0.0)
    number = generations.forgettable(1.0)
    assert generations.number_after(number) == 3
    generations.forget(number)
    assert generations.place([Discharged(b"", 5)]).opened == [(3, 5)]


def test_age_runs_by_the_callers_clock() -> None:
    """A generation ages from the call that first saw its youngest outcome, by no other clock."""
    generations = kept(0, keep_ms=1000)
    assert generations.forgettable(50.0) == 0
    assert generations.forgettable(50.9) == 0
    generations.keep(generations.place([Discharged(b"", 10)]))
    assert generations.forgettable(51.0) == 0, "the same generation has a younger outcome"
    assert generations.forgettable(51.9) == 0
    assert generations.forgettable(52.0) == 1


def test_callers_clock_that_starts_anew_keeps() -> None:
    """A store that is handed to another loop, whose clock is behind, forgets nothing early."""
    generations = kept(0, keep_ms=1000)
    assert generations.forgettable(1_000_000.0) == 0
    assert generations.forgettable(3.0) == 0


def test_what_an_earlier_process_left_is_as_old_as_its_times_say() -> None:
    """All outcomes that are seven days older than the newest one go at once."""
    opened = [number * 12 * HOUR_MS for number in range(17)]
    assert left(opened, 0.0) == 15
    assert left(opened, 12 * 3600.0) == 14
    assert left(opened, 7 * 86_400.0 - 1) == 2
    assert left(opened, 7 * 86_400.0) == 0


def test_clock_that_was_set_back_or_forth_in_an_earlier_process() -> None:
    """A set clock makes no fresh outcome old. Older ones go when their time in this process is over."""
    day = [number * HOUR_MS for number in range(0, 24, 11)]
    year = 365 * DAY_MS
    back = [year + at_ms for at_ms in day] + day
    forth = day + [year + at_ms for at_ms in day]
    there_and_back = [*day, *(year + at_ms for at_ms in day), *day]
    battery_empty = [*(year + at_ms for at_ms in day), *day, *(year + at_ms for at_ms in day)]
    for opened in (back, forth, there_and_back, battery_empty):
        assert left(opened, 0.0) == len(opened), opened
        assert left(opened, 3 * 86_400.0) == len(opened), opened
        assert left(opened, 7 * 86_400.0) == 0, opened


def test_limit_lowered_below_a_generation() -> None:
    """The newest outcomes are not forgotten because they share a generation with too many."""
    generations = Generations(KEEP_MS, 100)
    generations.load([(0, 5), (2048, 5)], 2048)
    assert generations.forgettable(0.0) == 1
    generations.forget(1)
    assert generations.forgettable(0.0) == 0
    generations.keep(generations.place([Discharged(b"", 5)]))
    assert generations.forgettable(0.0) == 1
    generations.forget(1)
    assert generations.count == 1


def test_too_many_right_after_a_start() -> None:
    """The number of outcomes is known from the first numbers of the generations alone."""
    generations = Generations(KEEP_MS, 2000)
    generations.load([(7000, 5), (8000, 5), (8125, 5), (9000, 5)], 130)
    assert generations.count == 2130
    number = generations.forgettable(0.0)
    assert (number, generations.number_after(number)) == (1, 8000)
    generations.forget(number)
    assert (generations.count, generations.forgettable(0.0)) == (1130, 0)
    assert generations.place([Discharged(b"", 5)]).opened == [(9130, 5)], "the last one is full by this limit"
