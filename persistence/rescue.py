"""The third door: backups of closed stores, stores out of backups, and what can be done for a damaged one."""

from amqp_broker.persistence.backup import Backup, Manifest, back_up_closed, read_manifest
from amqp_broker.persistence.repairing import Repaired, repair
from amqp_broker.persistence.restoring import restore
from amqp_broker.persistence.salvage import Salvaged, salvage

__all__ = [
    "Backup",
    "Manifest",
    "Repaired",
    "Salvaged",
    "back_up_closed",
    "read_manifest",
    "repair",
    "restore",
    "salvage",
]
