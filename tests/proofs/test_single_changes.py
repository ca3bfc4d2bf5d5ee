"""Every single change of a log is found, or stands in the list of what nobody can see."""

from __future__ import annotations

import random

from tests.pipeline.planter import FOUND, TOLD, plant
from tests.pipeline.real_logs import random_log
from tests.pipeline.truthful_day import clock, truthful_world


def test_each_single_change_is_found_or_invisible_for_a_reason() -> None:
    """2,000 by chance; `python -m tests.pipeline.planter` plants 100,000."""
    logs = [random_log(1), random_log(2), truthful_world("day", clock()).events]
    counted, missed = plant(logs, 2_000, random.Random(4_711))
    assert missed == []
    assert counted[FOUND] > 1_100, counted
    assert counted[FOUND] + counted[TOLD] > 1_200, counted
