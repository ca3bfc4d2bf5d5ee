"""Histories: what a client did and was told, as JSON lines, for the audit of a broker from the outside.

    {"order": 17, "kind": "sent", "life": 0, "container": "shop", "link": "shop/out", "address": "orders",
     "message_id": "till-4", "producer": "till", "number": 4}

`order` is the place in the history: one recorder for all clients of a program, or nanoseconds of one
machine's clock. `life` counts the runs of the broker that the clients know of: all links of a life end with
it. A message is known by its address and message-id; `producer` and `number` say which of a sending link's
messages it is. A line is written when the client knows it: *sent* before the bytes leave, *accepted* after
the settled outcome came, *received* when the delivery is complete, *accept_sent* before an outcome leaves
that ends the message (accepted or rejected), *settled* after the broker confirmed it. A half-id that is no
string stands as the log shows it: `ulong:17`, `uuid:...`, `binary:6f72`.

| kinds | of |
|---|---|
| sent, accepted, refused | a message that a client sends; refused is any other outcome |
| received, browsed, accept_sent, settled, released, modified | a delivery; browsed is seen without being acquired |
| retired, retired_settled | an outcome that takes a message away with the discharge of `txn` |
| credit | `count` more deliveries were allowed on `link` |
| declared, commit_sent, rollback_sent, left, discharge_accepted, discharge_rejected | the transaction `txn`; left: its link or connection ended |
| told | the answer `word` to the question how `txn` ended: committed, not-committed, live or pending |
| half_sent, half_accepted, half_refused | the half message `half_id` of `group` |
| resolve_sent, resolve_accepted, resolve_refused | its resolution, `word` commit or rollback |
"""  # noqa: E501

from __future__ import annotations

import itertools
import json
import threading
from types import TracebackType
from typing import IO, Final, Self

HISTORY_COLUMNS: Final[tuple[tuple[str, str], ...]] = (
    ("order", "bigint"),
    ("kind", "string"),
    ("life", "int"),
    ("container", "string"),
    ("link", "string"),
    ("address", "string"),
    ("message_id", "string"),
    ("producer", "string"),
    ("number", "bigint"),
    ("txn", "string"),
    ("group", "string"),
    ("half_id", "string"),
    ("word", "string"),
    ("count", "bigint"),
)
"""Name and Spark type of each field; all but the first two may be left out."""

HISTORY_DDL: Final = ", ".join(f"`{name}` {kind}" for name, kind in HISTORY_COLUMNS)

DELIVERED: Final = (
    "received", "browsed", "accept_sent", "settled", "released", "modified", "retired", "retired_settled",
)  # fmt: skip
STEPS: Final = (
    "declared", "commit_sent", "rollback_sent", "left", "discharge_accepted", "discharge_rejected", "told",
)  # fmt: skip
HALVES: Final = (
    "half_sent", "half_accepted", "half_refused", "resolve_sent", "resolve_accepted", "resolve_refused",
)  # fmt: skip
KINDS: Final = ("sent", "accepted", "refused", *DELIVERED, "credit", *STEPS, *HALVES)
_NAMES: Final = {name for name, _ in HISTORY_COLUMNS}


class HistoryWriter:
    """Writes one history; any thread of the program may record."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._numbers = itertools.count()
        self._turn = threading.Lock()

    def record(self, kind: str, **fields: str | int) -> None:
        """One thing that a client did or was told. ValueError for a kind or a field that nobody knows."""
        if kind not in KINDS:
            raise ValueError(f"kind {kind!r} of a history: expected one of {', '.join(KINDS)}")
        strange = fields.keys() - _NAMES
        if strange:
            raise ValueError(f"{kind}: fields {sorted(strange)} of a history: expected {sorted(_NAMES)}")
        with self._turn:
            line = {"order": next(self._numbers), "kind": kind, **fields}
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.flush()
