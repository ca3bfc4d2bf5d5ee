"""Backups as `$management` tells them, and what can be done with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amqp_broker.authorisation import Principal
from amqp_broker.backups.backups import BackupRun, Backups
from amqp_broker.management.entity_types import DELETE, Action, EntityType


def backup_type(backups: Backups) -> EntityType[BackupRun]:
    """The type of one broker."""

    async def make(name: str, told: Mapping[str, Any]) -> bool:
        backups.begin(name)
        return True

    def give_up(run: BackupRun, told: Mapping[str, Any], _: Principal) -> None:
        backups.give_up(run)

    return EntityType(
        "backup", "a backup that was asked for since the start, by its name, a directory below `backup_dir`",
        backups.runs, lambda run: run.name,
        {
            "state": lambda run: run.state,
            "percent": lambda run: run.percent,
            "bytes": lambda run: run.byte_count,
            "begun_at_ms": lambda run: run.begun_at_ms,
            "ended_at_ms": lambda run: run.ended_at_ms,
            "reason": lambda run: run.reason,
        },
        {DELETE: Action(give_up, "it is given up, if it is under way; nothing is left of it")},
        find=lambda name: next((run for run in reversed(backups.runs()) if run.name == name), None),
        make=make,
    )  # fmt: skip
