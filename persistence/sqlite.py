"""The second door: the store on disk, used where the broker is put together and by the command line."""

from amqp_broker.persistence.body_files import BodyFileSizes
from amqp_broker.persistence.compaction import compact
from amqp_broker.persistence.errors import StoreCorrupt, StoreInUse, StoreTooNew, UnsafeSqlite
from amqp_broker.persistence.removal import NothingToRemove, give_up_log, remove
from amqp_broker.persistence.sqlite_store import SqliteStore
from amqp_broker.persistence.verify import node_names, verify_directory, verify_file

__all__ = [
    "BodyFileSizes",
    "NothingToRemove",
    "SqliteStore",
    "StoreCorrupt",
    "StoreInUse",
    "StoreTooNew",
    "UnsafeSqlite",
    "verify_directory",
    "verify_file",
    "compact",
    "give_up_log",
    "node_names",
    "remove",
]
