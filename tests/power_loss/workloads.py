"""The workloads that can be recorded, by name."""

from __future__ import annotations

from typing import Final

from tests.power_loss.plan import Workload
from tests.power_loss.plan_messages import Messages
from tests.power_loss.plan_replacing import Replacing
from tests.power_loss.plan_resumption import Resumption
from tests.power_loss.plan_sets import SetsOfHalves
from tests.power_loss.plan_topics import Topics

MESSAGES: Final = "messages"
SETS: Final = "sets"
TOPICS: Final = "topics"
RESUMPTION: Final = "resumption"
REPLACING: Final = "replacing"
WORKLOADS: Final[dict[str, type[Workload]]] = {
    MESSAGES: Messages, SETS: SetsOfHalves, TOPICS: Topics, RESUMPTION: Resumption, REPLACING: Replacing,
}  # fmt: skip
