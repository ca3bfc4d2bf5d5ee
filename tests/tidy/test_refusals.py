"""What is refused for a limit says by which setting, so that who runs the broker can raise it."""

from __future__ import annotations

import ast
import re

import attrs

from amqp_broker.configuration import BrokerLimits, HalfGroupConfig, QueuePolicy
from tests.tidy.sources import python_files, tree

SETTINGS = {field.name for cls in (BrokerLimits, HalfGroupConfig, QueuePolicy) for field in attrs.fields(cls)}
CONDITIONS = {"RESOURCE_LIMIT_EXCEEDED", "NO_ROOM", "'amqp:resource-limit-exceeded'"}
MAKERS = {"TransactionLimitExceeded", "_no_room"}
TEXT = re.compile(r"[a-z] [a-z]")
NO_SETTING = "MAX_DESCRIBED"  # a bound of one answer
# What speaks of another broker's limits, or plays them.
ELSEWHERE = ("amqp_broker/client/", "amqp_broker/bench/", "amqp_broker/testing/")


def test_a_refusal_by_a_limit_names_its_setting() -> None:
    """Each call that gives the condition and a text of its own."""
    seen = 0
    unnamed: list[str] = []
    for name in python_files("amqp_broker", "links", "coordinator"):
        for call in ast.walk(tree(name)):
            if not isinstance(call, ast.Call) or name.startswith(ELSEWHERE):
                continue
            given = [ast.unparse(part) for part in (*call.args, *[each.value for each in call.keywords])]
            if ast.unparse(call.func) not in MAKERS and not CONDITIONS & set(given):
                continue
            texts = [part for part in given if TEXT.search(part)]
            seen += bool(texts)
            if texts and NO_SETTING not in texts[0] and not any(each in texts[0] for each in SETTINGS):
                unnamed.append(f"{name}:{call.lineno}: {texts[0][:100]}")
    assert unnamed == []
    assert seen > 10
