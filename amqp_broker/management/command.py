"""The commands that ask a running broker: list, show, declare, close, rollback.

    amqp-broker list queue          a table where a person looks, JSON where a program does (--json)

They are requests to `$management`, so they need its rights, and any broker that has such a node answers them.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Sequence
from typing import Any, Final

from amqp_broker.client.blocking import connect
from amqp_broker.client.blocking_requests import plain_value
from amqp_broker.client.errors import ClientError
from amqp_broker.client.messages import message
from amqp_broker.exit_status import PROGRAM, STOPPED
from amqp_broker.management.entity_types import CREATE, DELETE, MANAGEMENT, NODE_TYPE, QUERY, READ

REFUSED: Final = 1
NOT_REACHED: Final = 69  # EX_UNAVAILABLE
PAGE: Final = 1_000
WAIT_S: Final = 30.0
COLUMNS: Final = {
    "queue": ("name", "kind", "messages", "bytes", "consumers", "senders"),
    "connection": ("name", "container_id", "user", "peer", "sessions", "links"),
    "link": ("connection", "direction", "address", "link_name", "credit", "unsettled"),
    "transaction": ("name", "container_id", "state", "age_s", "posted", "retired", "acquired"),
}
"""What a table shows; of other types all."""


class Refused(Exception):
    """The broker answered with a status that says no."""


class Asker:
    """One connection to a broker's `$management`. Raises ClientError."""

    def __init__(self, url: str) -> None:
        # A short name, since the queue for the replies, which `list queue` shows, is named after it.
        name = f"{PROGRAM}-{secrets.token_hex(4)}"
        self._connection = connect(url, timeout_s=WAIT_S, container_id=name)
        self._replies = self._connection.open_receiver(None, name="replies")
        self._requests = self._connection.open_sender(MANAGEMENT)

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, operation: str, kind: str = NODE_TYPE, body: Any = None, **told: Any) -> Any:
        """The body of the reply, in plain values. Raises Refused."""
        properties = {"operation": operation, "type": kind, **told}
        request = message(
            {} if body is None else body, application_properties=properties,
            reply_to=self._replies.address, message_id="1",
        )  # fmt: skip
        self._requests.send(request)
        reply = self._replies.receive(WAIT_S)
        if not reply.settled:
            self._replies.accept(reply)
        answer = plain_value(reply.message.application_properties or {})
        status = answer.get("statusCode")
        if not isinstance(status, int) or not 200 <= status < 300:
            raise Refused(f"{status}: {answer.get('statusDescription')}")
        return plain_value(reply.body)

    def all(self, kind: str) -> tuple[list[str], list[list[Any]]]:
        """The names of the attributes of a type, and a row for each of its entities."""
        rows: list[list[Any]] = []
        while True:
            page = self.ask(QUERY, entityType=kind, offset=len(rows), count=PAGE)
            rows.extend(page["results"])
            if len(page["results"]) < PAGE:
                return page["attributeNames"], rows


def run(options: argparse.Namespace) -> int:
    """Ask, and print what the broker says; the exit status: 0, 1 where it says no, 69 where there is none."""
    try:
        with Asker(options.url) as asker:
            print(_DO[options.command](asker, options), end="")
    except Refused as refused:
        print(f"{PROGRAM}: {refused}", file=sys.stderr)
        return REFUSED
    except ClientError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return NOT_REACHED
    return STOPPED


def _list(asker: Asker, options: argparse.Namespace) -> str:
    names, rows = asker.all(options.type)
    if options.json:
        return as_json([dict(zip(names, row, strict=True)) for row in rows])
    wanted = [name for name in COLUMNS.get(options.type, names) if name in names]
    return as_table(wanted, [[row[names.index(name)] for name in wanted] for row in rows])


def _show(asker: Asker, options: argparse.Namespace) -> str:
    return _entity(asker.ask(READ, options.type, identity=options.identity), options)


def _declare(asker: Asker, options: argparse.Namespace) -> str:
    return _entity(asker.ask(CREATE, "queue", name=options.identity), options)


def _entity(found: dict[str, Any], options: argparse.Namespace) -> str:
    return as_json(found) if options.json else as_table(("attribute", "value"), list(found.items()))


def _close(asker: Asker, options: argparse.Namespace) -> str:
    return _act(asker, DELETE, "connection", options)


def _roll_back(asker: Asker, options: argparse.Namespace) -> str:
    return _act(asker, "ROLLBACK", "transaction", options)


def _act(asker: Asker, operation: str, kind: str, options: argparse.Namespace) -> str:
    told = {} if options.reason is None else {"reason": options.reason}
    asker.ask(operation, kind, identity=options.identity, **told)
    return as_json({}) if options.json else ""


_DO: Final = {"list": _list, "show": _show, "declare": _declare, "close": _close, "rollback": _roll_back}


def as_json(value: Any) -> str:
    """One line of JSON."""
    return json.dumps(value, ensure_ascii=False) + "\n"


def as_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns as wide as what is in them, numbers to the right; no octet of a name reaches the terminal that
    could steer it.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[at]) for row in cells)]) for at, name in enumerate(names)]
    columns = [[row[at] for row in rows if row[at] is not None] for at in range(len(names))]
    right = [bool(column) and all(_is_number(value) for value in column) for column in columns]
    lines = []
    for row in [[*names], *cells]:
        padded = [
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines) + "\n"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(value))
