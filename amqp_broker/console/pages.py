"""The pages that look: overview, tables, one entity, messages, the journal, users."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
from markupsafe import Markup
from starlette.responses import Response

from amqp_broker.client.errors import ClientError
from amqp_broker.client.messages import ReceivedMessage
from amqp_broker.console.by_offset import JOURNAL, read_page
from amqp_broker.console.limits import (
    BODY_PREVIEW_BYTES,
    BODY_SHOWN_BYTES,
    EVENTS_COUNTED,
    EVENTS_SHOWN,
    MESSAGES_SHOWN,
    MESSAGES_SHOWN_MAX,
)
from amqp_broker.console.message_view import MessageView, as_told, message_view, preview
from amqp_broker.console.visit import NoSuchPage, Visit
from amqp_broker.frames import DecodeError, plain_value
from amqp_broker.looking.broker_view import History, Table
from amqp_broker.looking.figures import Numbers, figures
from amqp_broker.looking.listing import Listing, Wanted, listed, whole
from amqp_broker.looking.rates import Row
from amqp_broker.looking.tables import REDRIVE, TABLES, Operation
from amqp_broker.plots import Plot, lines

PARTS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "connection": (("session", "connection"), ("link", "connection")),
    "queue": (("link", "address"), ("binding", "queue"), ("stream", "queue")),
    "topic": (("subscription", "topic"), ("binding", "topic"), ("link", "address")),
    "subscription": (("link", "address"),),
}
"""Which other tables tell more of an entity: those rows whose attribute names it."""
PARTS_SHOWN: Final = 100


# Overview


def overview(visit: Visit) -> Response:
    """Rates, depth, memory, disk and latency as plots, and the queues that have most."""
    newest = visit.view.newest(visit.login)
    queues = _rows(visit, "queue")
    deepest = listed(queues.rows, Wanted("messages>0", "-messages", size=8), TABLES["queue"].attributes)
    history = visit.view.history.copy()
    times = history.times()
    plots = [Markup(lines(Plot(each.title, each.unit), times, each.series)) for each in figures(history)]
    return visit.page("overview.html", now=newest, plots=plots, deepest=deepest.rows)


# Tables


def _rows(visit: Visit, kind: str) -> Table:
    table = visit.view.table(visit.login, kind, TABLES[kind].attributes)
    if kind == "cursor":
        for row in table.rows:
            row["lag"] = max((row["lags"] or {}).values(), default=0)
    return table


def table(visit: Visit) -> Response:
    """All entities of a type."""
    wanted = Wanted.of(visit.query, visit.table.sort)
    rows = _rows(visit, visit.table.kind)
    columns = [column.name for column in visit.table.columns]
    return visit.page(
        "table.html", table=visit.table, listing=listed(rows.rows, wanted, columns), wanted=wanted,
        all=len(rows.rows), pause_s=rows.pause_s(),
        age_s=visit.view.age_s(rows), halves=_half_counts(visit, rows),
    )  # fmt: skip


def _half_counts(visit: Visit, rows: Table) -> Mapping[str, int] | None:
    """How many halves are in each state now, and what the journal told of halves lately."""
    if visit.table.kind != "half":
        return None
    found = Counter(f"is {row['state']}" for row in rows.rows)
    try:
        events = _events(visit, EVENTS_COUNTED)
    except ClientError:  # who may not read the journal sees what is now
        return found
    for event in events:
        if event.get("half_id"):
            found[f"{event['type']} {event.get('outcome', '')}".strip()] += 1
    found["counted"] = len(events)
    return found


def entity(visit: Visit) -> Response:
    """All of one entity: its attributes, plots of what is counted, and the tables that tell more of it."""
    kind, name = visit.table.kind, visit.told("name")
    values, history = visit.view.entity(visit.login, kind, name)
    parts: list[tuple[Any, Listing]] = []
    for other, attribute in PARTS.get(kind, ()):
        rows = [row for row in _rows(visit, other).rows if row[attribute] == name]
        if rows:
            wanted = Wanted(sort=TABLES[other].sort, size=PARTS_SHOWN)
            parts.append((TABLES[other], listed(rows, wanted, ())))
    return visit.page(
        "entity.html", table=visit.table, name=name, values=values, parts=parts,
        plots=_entity_plots(history), operations=_operations(visit, values),
    )  # fmt: skip


def _operations(visit: Visit, values: Row) -> list[Operation]:
    """What can be done; not what this one never takes."""
    found = list(visit.table.operations)
    if values.get("kind") == "log":
        found = [one for one in found if not one.groups]
    elif values["type"] == "queue" and not values["name"].startswith("dead-letters"):
        found.remove(REDRIVE)
        found.append(REDRIVE)  # at the end: dead letters may have another address
    if not values.get("changed", True):
        found = [one for one in found if one.name != "RESET"]
    return found


def _entity_plots(history: History) -> list[Markup]:
    newest = history.samples[-1].values
    found: list[Markup] = []
    if len(history.samples) < 2:  # a line needs two; the page looks again in a moment
        return found
    counted = [
        name for name in ("arrived", "sent", "accepted", "received", "posted", "copied") if name in newest
    ]
    if counted:
        series: dict[str, Numbers] = {name: history.rate(name) for name in counted}
        found.append(Markup(lines(Plot("Messages", "a second"), history.times(), series)))
    if "messages" in newest:
        depth = {"waiting": history.values("messages")}
        found.append(Markup(lines(Plot("Depth", "messages"), history.times(), depth)))
    return found


# Messages


@attrs.frozen
class Shown:
    """One message in a list, as a row. `view` has LISTED of it, and nothing that can be large."""

    view: Mapping[str, Any]
    subject: str
    message_id: str
    preview: str


LISTED: Final = ("offset", "priority", "delivery_count", "bytes")


def messages(visit: Visit) -> Response:
    """A page of messages: what nobody holds, or of a log, what is kept."""
    kind, name, selector = visit.table.kind, visit.told("name"), visit.told("selector")
    if not visit.table.has_messages:
        raise NoSuchPage(f"a {kind} has no messages")
    count = whole(visit.query.get("size"), MESSAGES_SHOWN, 1, MESSAGES_SHOWN_MAX)
    offset = whole(visit.query.get("offset"), 0, 0, 2**62)
    values = visit.login.ask("READ", kind, identity=name)
    by_offset = bool(visit.told("retained")) or values.get("kind") == "log"
    if by_offset:
        page = read_page(
            visit.login, name, count, offset if "offset" in visit.query else None,
            lambda each: _shown(as_told(each, BODY_PREVIEW_BYTES)),
        )  # fmt: skip
        rows = page.messages
        low = rows[0].view["offset"] if rows else page.next
        following, end = (rows[-1].view["offset"] + 1 if rows else page.next), page.next
        former = max(page.first, low - count) if low > page.first else None
    else:
        told = visit.login.ask(
            "BROWSE",
            kind,
            identity=name,
            offset=offset,
            count=count,
            selector=selector or None,
            body_bytes=BODY_PREVIEW_BYTES,
        )
        rows = [_shown(each) for each in told["messages"]]
        following, end = told["next_offset"], told["end_offset"]
        former = 0 if offset else None
    return visit.page(
        "messages.html", table=visit.table, name=name, values=values, selector=selector,
        rows=rows, following=following if following < end else None,
        former=former, by_offset=by_offset, operations=_operations(visit, values),
    )  # fmt: skip


def _shown(found: Mapping[str, Any]) -> Shown:
    properties = found.get("properties") or {}
    identity = properties.get("message_id")
    return Shown(
        {name: found.get(name) for name in LISTED},
        str(properties.get("subject") or "")[:BODY_PREVIEW_BYTES],
        "" if identity is None else str(identity)[:BODY_PREVIEW_BYTES],
        preview(found),
    )


def _one_message(visit: Visit, body_bytes: int | None) -> tuple[MessageView, Mapping[str, Any]]:
    name, offset = visit.told("name"), whole(visit.query.get("offset"), 0, 0, 2**62)
    if visit.told("retained"):
        page = read_page(visit.login, name, 1, offset, lambda each: as_told(each, body_bytes))
        found = page.messages
        if not found or found[0]["offset"] != offset:
            raise NoSuchPage(f"{name} keeps the offsets from {page.first} on, before {page.next}")
        return message_view(found[0]), found[0]
    told = visit.login.ask("READ-MESSAGE", visit.table.kind, identity=name, offset=offset)
    return message_view(told), told


def message(visit: Visit) -> Response:
    """One message with all its sections."""
    view, told = _one_message(visit, BODY_SHOWN_BYTES)
    return visit.page(
        "message.html", table=visit.table, name=visit.told("name"), message=view, told=told,
        retained=visit.told("retained"),
    )  # fmt: skip


def octets(visit: Visit) -> Response:
    """The body of one message as it is, to be saved: a browser never shows it."""
    view, _ = _one_message(visit, None)
    return Response(
        view.octets, media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="message-{view.offset}.bin"'},
    )  # fmt: skip


# The journal


def _events(visit: Visit, count: int, offset: int | None = None) -> list[dict[str, Any]]:
    found = read_page(visit.login, JOURNAL, count, offset, _event).messages
    return [event for event in found if event is not None]


def _event(received: ReceivedMessage) -> dict[str, Any] | None:
    """None where it is no event of this version."""
    try:
        body = plain_value(received.body)
    except DecodeError:
        return None
    return body if isinstance(body, dict) else None


FIRST: Final = ("lsn", "time", "type")
NAMING: Final = ("address", "half_id", "set_id", "offset", "outcome", "container")


def journal(visit: Visit) -> Response:
    """The newest events of the journal, as it grows; `type` and `q` say which of them."""
    words, kind = visit.told("q").lower(), visit.told("type")
    offset = visit.query.get("offset")
    found = _events(visit, EVENTS_COUNTED, None if offset is None else whole(offset, 0, 0, 2**62))
    types = sorted({event["type"] for event in found})
    passing = [
        event for event in found
        if (not kind or event["type"] == kind)
        and all(any(word in str(value).lower() for value in event.values()) for word in words.split())
    ]  # fmt: skip
    rows = [_event_row(event) for event in reversed(passing[-EVENTS_SHOWN:])]
    return visit.page(
        "journal.html", rows=rows, types=types, type=kind, words=visit.told("q"), looked=len(found),
        passing=len(passing),
    )  # fmt: skip


def _event_row(event: dict[str, Any]) -> dict[str, Any]:
    rest = {name: event[name] for name in event if name not in (*FIRST, *NAMING)}
    return {
        "event": defaultdict(str, event),
        "rest": ", ".join(f"{name} {value}" for name, value in rest.items()),
    }


# Users


_USER_KEY: Final = re.compile(r"(user|access|token_issuer)\[(\d+)\]\.(.+)")


def users(visit: Visit) -> Response:
    """Who may log in and do what, by the configuration; and who is here."""
    tables: dict[str, dict[int, Row]] = {"user": {}, "access": {}, "token_issuer": {}}
    for row in _rows(visit, "configuration").rows:
        match = _USER_KEY.fullmatch(row["name"])
        if match:
            tables[match[1]].setdefault(int(match[2]), {})[match[3]] = row["value"]
    here = Counter(str(row["user"]) for row in _rows(visit, "connection").rows)
    return visit.page(
        "users.html", users=[*tables["user"].values()], rules=[*tables["access"].values()],
        issuers=[*tables["token_issuer"].values()], here=here,
    )  # fmt: skip


Handler = Callable[[Visit], Response]
