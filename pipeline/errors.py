"""What the pipeline tells a person who has to do something about it.

Each text says what was expected, what came, and what to do. All of them can be pickled: Spark sends the
errors of its workers home.
"""

from __future__ import annotations


class PipelineError(Exception):
    """Base of all."""


class OptionError(PipelineError, ValueError):
    """An option is unknown, missing, or wrong; the text names it as it is documented."""


class OffsetError(PipelineError):
    """Offsets are malformed, of another store, beyond the end of a node, or go backwards."""


class DataLoss(PipelineError):
    """Messages between two offsets are gone; the text names the address and the range."""


class CursorInUse(PipelineError):
    """Another link holds the cursor of this subscription; the text names its container."""


class BrokerUnreachable(PipelineError):
    """No URL of the list answered, or the connection ended."""


class BrokerRefused(PipelineError):
    """The broker refused a request; the text has its condition and its words."""


class MissingRight(BrokerRefused):
    """The user lacks a right at the broker; the text names the right and the node."""


class NoJava(PipelineError):
    """There is no Java runtime that Spark can use."""


class SchemaError(PipelineError):
    """A column is unknown or of another type than expected, or a needed one is missing."""


class EpochError(PipelineError):
    """An epoch is decided otherwise, or cannot be decided now."""
