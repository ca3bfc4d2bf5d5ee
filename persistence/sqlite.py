"""The second door: the store on disk, used where the broker is put together and by the command line."""

from amqp_broker.persistence.compaction import compact
from amqp_broker.persistence.removal import NothingToRemove, give_up_log, remove
from amqp_broker.persistence.sqlite_store import SqliteStore
from amqp_broker.persistence.verify import check_directory, check_store_file, node_names

__all__ = [
    "NothingToRemove",
    "SqliteStore",
    "check_directory",
    "check_store_file",
    "compact",
    "give_up_log",
    "node_names",
    "remove",
]
