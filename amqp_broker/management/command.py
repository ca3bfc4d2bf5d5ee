"""What the commands of `command_table.py` do: requests to `$management`, messages sent and received.

    amqp-broker list queue          a table where a person looks, JSON where a program does (--json)

They need the rights of what they ask for, and any broker that has such a node answers them.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, BinaryIO, Final

from amqp_broker.client.blocking import connect
from amqp_broker.client.blocking_management import PAGE, ManagementRequests, Refused
from amqp_broker.client.errors import ClientError, LinkRefused, MessageRefused, WaitTimeout
from amqp_broker.client.messages import OutgoingMessage
from amqp_broker.exit_status import NOT_REACHED, PROGRAM, REFUSED, STOPPED
from amqp_broker.frames import Accepted, Source, plain_value
from amqp_broker.looking.output import CLEAR, as_json, as_table, as_text, has_colours
from amqp_broker.looking.rates import PER_SECOND, Row, add_rates
from amqp_broker.management.entity_types import CREATE, DELETE, READ, UPDATE
from amqp_broker.management.transfers import Malformed, exported, imported

WAIT_S: Final = 30.0
BACKUP_POLL_S: Final = 0.2
EXPORT_CREDIT: Final = 200
COLUMNS: Final = {
    "queue": ("name", "kind", "messages", "bytes", "consumers", "senders", "arrived", "sent"),
    "connection": ("name", "container_id", "user", "peer", "sessions", "links", "received", "sent"),
    "link": ("connection", "direction", "address", "link_name", "credit", "unsettled"),
    "transaction": ("name", "container_id", "state", "age_s", "posted", "retired", "acquired"),
    "topic": ("name", "senders", "subscriptions", "posted", "copied", "passed_over", "unrouted"),
    "subscription": ("name", "topic", "durable", "shared", "links", "messages", "arrived", "sent"),
    "half": ("name", "state", "destination", "attempts", "age_ms"),
    "set": ("name", "epoch", "state", "messages", "age_ms"),
    "configuration": ("name", "value", "at_start", "is_default"),
}
"""What a table shows; of other types all."""
MESSAGE_COLUMNS: Final = ("offset", "priority", "delivery_count", "bytes", "message_id", "subject", "body")


class Asker(ManagementRequests):
    """One connection to a broker's `$management`. Raises ClientError."""

    def __init__(self, url: str) -> None:
        # A short name, since the queue for the replies, which `list queue` shows, is named after it.
        name = f"{PROGRAM}-{secrets.token_hex(4)}"
        self.connection = connect(url, timeout_s=WAIT_S, container_id=name)
        super().__init__(self.connection, WAIT_S)

    def __enter__(self) -> Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def run(options: argparse.Namespace) -> int:
    """Do it, and print what comes of it; the exit status: 0, 1 where the broker says no, 69 where there is
    none.
    """
    try:
        with Asker(options.url) as asker:
            for text in DO[options.command](asker, options):
                print(text, end="", flush=True)
    except (Refused, LinkRefused, MessageRefused, WaitTimeout) as refused:
        print(f"{PROGRAM}: {refused}", file=sys.stderr)
        return REFUSED
    except ClientError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return NOT_REACHED
    except BrokenPipeError:
        raise
    except OSError as error:  # a file of the one who asks
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return STOPPED
    return STOPPED


Texts = Iterator[str]


# What there is


def _list(asker: Asker, options: argparse.Namespace) -> Texts:
    yield _listed(*_rows(asker, options), options)


def _rows(asker: Asker, options: argparse.Namespace) -> tuple[list[str], list[Row]]:
    names, rows = asker.all(options.type)
    return names, [dict(zip(names, row, strict=True)) for row in rows]


def _listed(names: list[str], rows: list[Row], options: argparse.Namespace) -> str:
    """With the rates of the counts that are shown, where they are known."""
    if options.json:
        return as_json(rows)
    wanted = [name for name in COLUMNS.get(options.type, names) if name in names]
    wanted += [name + PER_SECOND for name in wanted if rows and name + PER_SECOND in rows[0]]
    return _table(wanted, [[row[name] for name in wanted] for row in rows])


def _watch(asker: Asker, options: argparse.Namespace) -> Texts:
    left = options.times
    former: list[Row] = []
    read_at = 0.0
    while left is None or left > 0:
        names, rows = _rows(asker, options)
        now = time.monotonic()
        add_rates(rows, former, now - read_at)
        former, read_at = rows, now
        table = _listed(names, rows, options)
        yield CLEAR + table if has_colours(sys.stdout) and not options.json else table
        if left is not None:
            left -= 1
        if left != 0:
            time.sleep(max(0.0, options.every))


def _show(asker: Asker, options: argparse.Namespace) -> Texts:
    if options.offset is None:
        yield _entity(asker.ask(READ, options.type, identity=options.identity), options)
        return
    found = asker.ask("READ-MESSAGE", options.type, identity=options.identity, offset=options.offset)
    yield _entity(found, options)


def _table(names: Any, rows: Any) -> str:
    return as_table(names, rows, colours=has_colours(sys.stdout))


def _entity(found: dict[str, Any], options: argparse.Namespace) -> str:
    return as_json(found) if options.json else _table(("attribute", "value"), list(found.items()))


# What is done with one


def _set(asker: Asker, options: argparse.Namespace) -> Texts:
    told = dict(options.values)
    yield _entity(asker.ask(UPDATE, options.type, told, identity=options.identity), options)


def _reset(asker: Asker, options: argparse.Namespace) -> Texts:
    asker.ask("RESET", options.type, identity=options.identity)
    yield from ()


def _declare(asker: Asker, options: argparse.Namespace) -> Texts:
    told = dict(options.values)
    yield _entity(asker.ask(CREATE, options.type, told, name=options.identity), options)


def _delete(asker: Asker, options: argparse.Namespace) -> Texts:
    if options.offset is None:
        force = True if options.force else None
        asker.ask(DELETE, options.type, identity=options.identity, force=force)
    else:
        asker.ask("DELETE-MESSAGE", options.type, identity=options.identity, offset=options.offset)
    yield _nothing(options)


def _close(asker: Asker, options: argparse.Namespace) -> Texts:
    asker.ask(DELETE, "connection", identity=options.identity, reason=options.reason)
    yield _nothing(options)


def _reload(asker: Asker, options: argparse.Namespace) -> Texts:
    found = asker.ask("RELOAD", "broker", identity="self")
    if options.json:
        yield as_json(found)
        return
    for line in found["changed"]:
        yield f"changed: {line}\n"
    for line in found["at_the_next_start"]:
        yield f"at the next start: {line}\n"
    for line in found["not_made"]:
        yield f"not made: {line}\n"
    yield f"{found['closed_connections']} connections closed\n"


def _decide(asker: Asker, options: argparse.Namespace) -> Texts:
    asker.ask(options.action.upper(), options.command, identity=options.identity, reason=options.reason)
    yield _nothing(options)


def _nothing(options: argparse.Namespace) -> str:
    return as_json({}) if options.json else ""


def _backup(asker: Asker, options: argparse.Namespace) -> Texts:
    found = asker.ask(CREATE, "backup", {}, name=options.name)
    while found["state"] not in ("done", "failed"):
        time.sleep(BACKUP_POLL_S)
        found = asker.ask(READ, "backup", identity=options.name)
    if found["state"] == "failed":
        raise Refused(f"{options.name}: {found['reason']}")
    yield as_json(found) if options.json else f"{options.name}: {found['bytes']} bytes\n"


# Messages


def _purge(asker: Asker, options: argparse.Namespace) -> Texts:
    yield _in_groups(asker, options, "PURGE", options.type, "deleted", selector=options.selector)


def _move(asker: Asker, options: argparse.Namespace) -> Texts:
    operation, done = ("MOVE", "moved") if options.command == "move" else ("COPY", "copied")
    told = {"selector": options.selector, "to": options.to}
    yield _in_groups(asker, options, operation, options.type, done, **told)


def _redrive(asker: Asker, options: argparse.Namespace) -> Texts:
    yield _in_groups(asker, options, "REDRIVE", "queue", "moved back")


def _in_groups(
    asker: Asker, options: argparse.Namespace, operation: str, kind: str, said: str, **told: Any
) -> str:  # fmt: skip
    """One request after the other, up to where the queue ended when the first was answered."""
    messages, offset, end, most = 0, 0, None, options.count
    while (end is None or offset < end) and (most is None or messages < most):
        count = None if most is None else min(most - messages, PAGE)
        try:
            reply = asker.ask(operation, kind, identity=options.identity, offset=offset, count=count, **told)
        except Refused as refused:
            if not messages:
                raise
            raise Refused(f"{refused} ({messages} messages were {said} before)") from None
        end = reply["end_offset"] if end is None else end
        offset = reply["next_offset"]
        messages += reply["messages"]
    return as_json({"messages": messages}) if options.json else f"{messages} messages {said}\n"


def _browse(asker: Asker, options: argparse.Namespace) -> Texts:
    most = 100 if options.count is None else options.count
    found: list[dict[str, Any]] = []
    offset, end = 0, None
    while (end is None or offset < end) and len(found) < most:
        reply = asker.ask(
            "BROWSE", options.type, identity=options.identity, offset=offset, count=most - len(found),
            selector=options.selector,
        )  # fmt: skip
        end = reply["end_offset"] if end is None else end
        offset = reply["next_offset"]
        found += reply["messages"]
    if options.json:
        yield as_json(found)
        return
    flat = [{**each.get("properties", {}), **each} for each in found]
    yield _table(MESSAGE_COLUMNS, [[each.get(name) for name in MESSAGE_COLUMNS] for each in flat])


def _send(asker: Asker, options: argparse.Namespace) -> Texts:
    bodies = options.bodies or (line.rstrip("\n") for line in sys.stdin)
    count = asker.connection.open_sender(options.address).send_many([body.encode() for body in bodies])
    yield as_json({"messages": count}) if options.json else f"{count} messages sent\n"


def _receive(asker: Asker, options: argparse.Namespace) -> Texts:
    receiver = asker.connection.open_receiver(options.address, credit=1 if options.count else 10)
    count = 0
    while not options.count or count < options.count:
        received = receiver.receive(options.wait)
        body = plain_value(received.body)
        if options.json:
            named = plain_value(received.message.application_properties or {})
            yield as_json({"body": body, "application_properties": named})
        else:
            yield as_text(body)
        if not received.settled:  # it was printed
            receiver.settle(received, Accepted())
        count += 1


def _export(asker: Asker, options: argparse.Namespace) -> Texts:
    """As many at most as there are when it begins: others may come faster than they are written."""
    found = asker.ask(READ, "queue", identity=options.address)
    most = found["messages"] if options.count is None else min(options.count, found["messages"])
    source = Source(address=options.address, distribution_mode="copy")
    receiver = asker.connection.open_receiver(options.address, credit=EXPORT_CREDIT, source=source)
    count = 0
    with ExitStack() as opened:
        target = sys.stdout.buffer
        if options.output is not None:
            target = opened.enter_context(open(options.output, "xb"))
        while count < most and (received := receiver.receive_now()) is not None:
            target.write(exported(received, options.format))
            if not received.settled:
                receiver.settle(received, Accepted())  # of a copy: the message stays
            count += 1
        target.flush()
    if options.output is not None:
        yield as_json({"messages": count}) if options.json else f"{count} messages exported\n"


def _import(asker: Asker, options: argparse.Namespace) -> Texts:
    count = 0

    def messages(source: BinaryIO) -> Iterator[OutgoingMessage]:
        nonlocal count
        for each in imported(source, options.format):
            yield each
            count += 1

    try:
        with ExitStack() as opened:
            source = sys.stdin.buffer
            if options.input is not None:
                source = opened.enter_context(open(options.input, "rb"))
            asker.connection.open_sender(options.address).send_many(messages(source))
    except Malformed as error:
        raise Refused(f"{error} ({count} messages before it were sent)") from None
    yield as_json({"messages": count}) if options.json else f"{count} messages imported\n"


DO: Final[dict[str, Callable[[Asker, argparse.Namespace], Texts]]] = {
    "list": _list, "show": _show, "watch": _watch, "set": _set, "reset": _reset, "declare": _declare,
    "delete": _delete, "purge": _purge, "move": _move, "copy": _move, "redrive": _redrive,
    "browse": _browse, "send": _send, "receive": _receive, "close": _close, "transaction": _decide,
    "half": _decide, "backup": _backup, "reload": _reload,
    "export": _export, "import": _import,
}  # fmt: skip
"""What each command does; it prints each text before it goes on."""
