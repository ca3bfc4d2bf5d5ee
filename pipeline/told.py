"""The error of ours inside of what Spark raises, which quotes it in the midst of its own; and which file it
could not read.

try:
    query.awaitTermination()
except Exception as error:
    print(told(error) or error)     # DataLoss: expected offsets 10 to 20 of 'orders', but ...
"""

from __future__ import annotations

import re
import sys
import traceback
from types import TracebackType
from typing import Final

from amqp_broker.pipeline.errors import PipelineError

_OURS: Final = re.compile(r"^amqp_broker\.pipeline\.[a-z_.]+\.([A-Z][A-Za-z]+): (.+)$", re.MULTILINE)
_UNREADABLE: Final = re.compile(
    r"FAILED_READ_FILE|CANNOT_READ_FILE|CANNOT_READ_FOOTER|ChecksumException|ParquetDecodingException"
)
_FILE: Final = re.compile(r"(?:file:)?((?:[a-z][a-z0-9+.-]*://|/)[^\s'\"]+?\.parquet)\b")
_NAMES: Final = {"Dropped": "DataLoss"}
"""Errors that are documented by another name."""
_ROOMS: Final = ("pyspark", "py4j")


def told(error: BaseException) -> str | None:
    """The name and the text of the error of ours that `error` is or quotes; None where there is none."""
    if isinstance(error, PipelineError):
        name = type(error).__name__
        return f"{_NAMES.get(name, name)}: {error}"
    found = _OURS.findall(str(error))
    if not found:
        return _unreadable(str(error))
    name, text = found[-1]
    return f"{_NAMES.get(name, name)}: {text}"


def _unreadable(text: str) -> str | None:
    """What to say where Spark says that it could not read a file: which one."""
    if not _UNREADABLE.search(text):
        return None
    file = _FILE.search(text)
    where = file[1] if file else "a file"
    return f"{where}: expected a Parquet file that can be read, and it is damaged or gone"


def tell_at_the_end() -> None:
    """From now on a program that ends by such an error says where it was itself, and then the error."""
    if sys.excepthook is not _hook:
        global _before
        _before = sys.excepthook
        sys.excepthook = _hook


_before = sys.excepthook


def _hook(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
    text = told(error)
    if text is None:
        _before(kind, error, frames)
        return
    own = []
    for frame in traceback.extract_tb(frames):
        if any(f"/{room}/" in frame.filename.replace("\\", "/") for room in _ROOMS):
            break
        own.append(frame)
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(own)] if own else []
    sys.stderr.write("".join(lines) + f"{text}\n")
