"""What a store raises. Mistakes of the caller are AssertionErrors."""

from __future__ import annotations


class StoreError(Exception):
    """The base of everything that a store raises."""


class NodeExists(StoreError):
    """CreateNode with a name that is taken. The unit did not happen, the others did."""


class NoSuchNode(StoreError):
    """A verb names a node that does not exist. The unit did not happen, the others did."""


class StoreFull(StoreError):
    """No room for new messages. Nothing happened; settling goes on."""


class StoreFailed(StoreError):
    """An I/O error: whether the last units happened is unknown until the next start. The store refuses all
    work.
    """


class StoreCorrupt(StoreFailed):
    """The file is not a store of this broker, or its structure is damaged beyond single messages.

    What was under way was rolled back; the store refuses everything, as after any StoreFailed.
    """


class OutcomesDamaged(StoreError):
    """The stored outcomes cannot be read: whether a transaction committed is unknown. The rest is well."""


class RowDamaged(StoreError):
    """What is stored of a half message or of a stream does not match its checksum, or cannot be read.

    What it said is unknown. The rest is well.
    """


class BodyGone(StoreError):
    """PostLarge with a body whose file is not there any more. The unit did not happen, the others did."""


class StoreInUse(StoreError):
    """Another broker, in this process or another, holds the data directory."""


class StoreTooNew(StoreError):
    """A newer version of the broker wrote the file; opening it could lose what this version does not know."""


class UnsafeSqlite(StoreError):
    """The SQLite library has a known corruption bug, or did not take a setting that durability depends on."""


class BackupFailed(StoreError):
    """A copy could not be made; the store itself is well."""
