"""What is left of a run that complains: a folder with everything that its complaints can be judged by.

    with scratch_folder("kills-") as folder:    which is gone in the end, unless something was kept in it
        with Evidence(folder, facts, records) as evidence:
            ...
            evidence.before_the_drain()
            evidence.complaints += ...

    complaints.txt       them all
    run.json             the seed, and what else makes the run
    history.jsonl        each call of a client and each answer, in order for each kind of clients
    data, broker.log     the store as the run left it, and what its brokers said
    data-before-drain    the store as the last kill left it
"""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Final, Self

Record = Mapping[str, object]

COMPLAINTS: Final = "complaints.txt"
RUN: Final = "run.json"
HISTORY: Final = "history.jsonl"
DATA: Final = "data"
DATA_BEFORE_DRAIN: Final = "data-before-drain"
LOG: Final = "broker.log"
MOST_FAULTS: Final = 5


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A new folder, which is removed unless an Evidence was kept in it."""
    folder = Path(mkdtemp(prefix=prefix))
    try:
        yield folder
    finally:
        if not (folder / COMPLAINTS).exists():
            shutil.rmtree(folder)


class Evidence:
    """The complaints of a run on `folder`; if there are any at its end, they are kept there with its history.

    `facts` are what the run can be started with again; `records` gives its history. An exception that ends
    the run is a complaint, too, and is told where the history is.
    """

    def __init__(self, folder: Path, facts: Record, records: Callable[[], Iterable[Record]]) -> None:
        self.folder = folder
        self.complaints: list[str] = []
        self._facts = facts
        self._records = records

    def before_the_drain(self) -> None:
        """The store, before a last life changes what is in it."""
        if (self.folder / DATA).exists():
            shutil.copytree(self.folder / DATA, self.folder / DATA_BEFORE_DRAIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.complaints.append("".join(traceback.format_exception(kind, error, trace)))
        self.complaints += faults_of(self.folder / LOG)
        if self.complaints:
            self._keep()
            if error is not None:
                error.add_note(f"the history of this run is in {self.folder}")
        else:
            shutil.rmtree(self.folder / DATA_BEFORE_DRAIN, ignore_errors=True)

    def _keep(self) -> None:
        self.folder.joinpath(RUN).write_text(json.dumps(self._facts, indent=1, default=str) + "\n")
        with self.folder.joinpath(HISTORY).open("w") as file:
            for record in self._records():
                file.write(json.dumps(record, default=_shown) + "\n")
        self.folder.joinpath(COMPLAINTS).write_text("\n".join(self.complaints) + "\n")

    def summary(self) -> str:
        """How many complaints there are, and where everything is that they can be judged by."""
        told = ", ".join(f"{name} {value}" for name, value in self._facts.items())
        kept = f"; everything is in {self.folder}" if self.complaints else ""
        return f"{len(self.complaints)} complaints, {told}{kept}"


def faults_of(log: Path) -> list[str]:
    """What a broker logged that no kill explains: errors, and lines that are no log entries."""
    if not log.exists():
        return []
    found = []
    for line in log.read_text(errors="replace").splitlines():
        try:
            entry = json.loads(line)
            level = entry["level"]
        except (ValueError, KeyError, TypeError):
            found.append(f"the broker wrote: {line}")
        else:
            if level in ("error", "critical"):
                found.append(f"the broker logged an error: {line}")
    more = len(found) - MOST_FAULTS
    return found[:MOST_FAULTS] + ([f"and {more} more such lines"] if more > 0 else [])


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
