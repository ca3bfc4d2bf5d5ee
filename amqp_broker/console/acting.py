"""The pages that act: a question or form first, then a POST that does it over the user's own connection.

Whether somebody may is the broker's to say: what it refuses is shown in its words.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import attrs
from starlette.responses import Response

from amqp_broker.client.blocking_management import PAGE, Refused
from amqp_broker.client.errors import ClientError
from amqp_broker.client.messages import OutgoingMessage, message
from amqp_broker.console.limits import ACT_S
from amqp_broker.console.visit import NoSuchPage, Visit
from amqp_broker.frames import EncodeError
from amqp_broker.looking.tables import (
    DELETE_MESSAGE,
    Argument,
    Operation,
)

SAID: Final = {"PURGE": "deleted", "MOVE": "moved", "COPY": "copied", "REDRIVE": "moved back"}
TTL_MS_MAX: Final = 2**32 - 1
PRIORITY_MAX: Final = 255
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
DIGITS_MAX: Final = 20
"""Of a number: no more of them are read, whatever they are."""


class WrongInput(Exception):
    """What somebody wrote into a form is not what it asks for."""


def _operation(visit: Visit) -> Operation:
    wanted, table = visit.told("op"), visit.table
    known = [*table.operations, *([table.makes] if table.makes else [])]
    if table.has_messages:
        known.append(DELETE_MESSAGE)
    for one in known:
        if one.name == wanted:
            return one
    raise NoSuchPage(f"nobody does {wanted!r:.40} to a {table.kind}")


def ask(visit: Visit) -> Response:
    """The question before an operation, with what it has to be told."""
    operation, name = _operation(visit), visit.told("name")
    values: Mapping[str, Any] = {}
    arguments, makes = operation.arguments, operation is visit.table.makes
    if not name and not makes:
        raise WrongInput(f"expected a name: which {visit.table.kind}?")
    if name:
        values = visit.login.ask("READ", visit.table.kind, identity=name)
    if operation.changes:
        arguments = tuple(_change(each, values.get(each)) for each in operation.changes)
    given = {each.name: visit.query.get(each.name, each.value) for each in arguments}
    return visit.page(
        "ask.html", table=visit.table, operation=operation, name=name, values=values, arguments=arguments,
        given=given, makes=makes,
    )  # fmt: skip


def _change(name: str, value: Any) -> Argument:
    number = isinstance(value, int) and not isinstance(value, bool)
    return Argument(name, name, "number" if number else "text", value="" if value is None else str(value))


def act(visit: Visit) -> Response:
    """Do it, and go back to where it is seen."""
    operation = _operation(visit)
    told = _arguments(visit, operation, made=operation is visit.table.makes)
    try:
        return _done(visit, operation, told)
    finally:  # not before: who reads meanwhile reads what is no more, and it would count as fresh
        visit.view.changed(visit.table.kind, "queue", "half", "set", "transaction", "connection")


def _done(visit: Visit, operation: Operation, told: dict[str, Any]) -> Response:
    table, name = visit.table, visit.told("name")
    if operation.groups:
        said, bad = _in_groups(visit, operation, name, told)
        return visit.to(visit.link(table.kind, "one", name=name), said, bad=bad)
    if operation is table.makes:
        visit.login.ask("CREATE", table.kind, told, name=name)
    elif operation.changes:
        visit.login.ask("UPDATE", table.kind, told, identity=name)
    else:
        visit.login.ask(operation.name, table.kind, identity=name, **told)
    if operation is DELETE_MESSAGE:
        back = visit.link(table.kind, "messages", name=name)
        return visit.to(back, f"the message at offset {told['offset']} of {name} is deleted")
    back = visit.link(table.kind) if operation.ends else visit.link(table.kind, "one", name=name)
    return visit.to(back, f"done: {operation.label.lower()}, {name}")


def _arguments(visit: Visit, operation: Operation, *, made: bool) -> dict[str, Any]:
    """What the form says, in the types that the broker takes. Raises WrongInput."""
    if operation.changes:
        return {name: _typed(name, visit.form[name]) for name in operation.changes if visit.form.get(name)}
    told: dict[str, Any] = {}
    for each in operation.arguments:
        if made and each.name == "name":
            continue
        value = visit.form.get(each.name, "").strip()
        if each.kind == "flag":
            told[each.name] = True if value else None
        elif not value:
            if each.required:
                raise WrongInput(f"{each.label}: expected something, got nothing")
        elif each.kind == "number":
            told[each.name] = _number(each.label, value)
        else:
            told[each.name] = value
    return told


def _typed(label: str, value: str) -> int | str:
    """A number where it is one. Raises WrongInput for one that AMQP has no type for."""
    digits = value.removeprefix("-")
    if not digits.isdecimal():
        return value
    if len(digits) > DIGITS_MAX or not LONG_MIN <= int(value) <= LONG_MAX:
        raise WrongInput(f"{label}: expected a number from {LONG_MIN} to {LONG_MAX}, got {value!r:.40}")
    return int(value)


def _number(label: str, value: str, most: int = 2**62) -> int:
    if not value.isdecimal() or len(value) > DIGITS_MAX or int(value) > most:
        raise WrongInput(f"{label}: expected a number from 0 to {most}, got {value!r:.40}")
    return int(value)


@attrs.define
class _Progress:
    """How far it is in a queue: the next group begins at `offset`, the last one ends at `end`."""

    messages: int = 0
    offset: int = 0
    end: int | None = None


def _in_groups(visit: Visit, operation: Operation, name: str, told: dict[str, Any]) -> tuple[str, bool]:
    """One request after the other, up to where the queue ended when the first was answered; what is to be
    said of it, and whether it is bad.
    """
    most, done, deadline = told.pop("count", None), _Progress(), time.monotonic() + ACT_S
    what = SAID[operation.name]
    while (done.end is None or done.offset < done.end) and (most is None or done.messages < most):
        if time.monotonic() > deadline:
            return f"{done.messages:,} messages {what}, and more are left: do it again to go on", True
        count = None if most is None else min(most - done.messages, PAGE)
        try:
            reply = visit.login.ask(
                operation.name, visit.table.kind, identity=name, offset=done.offset, count=count, **told
            )
        except (Refused, ClientError) as refused:
            if not done.messages:
                raise
            return f"{refused} ({done.messages:,} messages were {what} before)", True
        done.end = reply["end_offset"] if done.end is None else done.end
        done.offset = reply["next_offset"]
        done.messages += reply["messages"]
    return f"{done.messages:,} messages {what}", False


# Sending


def compose(visit: Visit) -> Response:
    """The form for a message."""
    return visit.page("send.html", given=defaultdict(str, visit.query), fault="")


def send(visit: Visit) -> Response:
    """Send it, and say so when the broker has accepted it."""
    address = visit.told("address").strip()
    try:
        made = _composed(visit.form)
        if not address:
            raise WrongInput("To: expected an address, got nothing")
        sender = visit.login.connection.open_sender(address)
        try:
            sender.send(made)
        finally:
            sender.close()
    except (WrongInput, ClientError) as error:
        return visit.page("send.html", 400, given=defaultdict(str, visit.form), fault=str(error))
    visit.view.changed("queue", "topic")
    return visit.to(visit.link("send", address=address), f"the broker has accepted it for {address}")


def _composed(form: Mapping[str, str]) -> OutgoingMessage:
    """The message of the form. Raises WrongInput."""
    properties: dict[str, Any] = {}
    for line in form.get("application_properties", "").splitlines():
        if line.strip():
            name, sign, value = line.partition("=")
            if not sign or not name.strip():
                raise WrongInput(
                    f"Application properties: expected NAME=VALUE in each line, got {line!r:.60}"
                )
            properties[name.strip()] = _typed(name.strip()[:60], value.strip())
    body = form.get("body", "").replace("\r\n", "\n")
    fields: dict[str, Any] = {name: form[name].strip() for name in _FIELDS if form.get(name, "").strip()}
    priority, ttl = form.get("priority", "").strip(), form.get("ttl_ms", "").strip()
    try:
        return message(
            body if form.get("as_value") else body.encode(), durable=bool(form.get("durable")),
            priority=_number("Priority", priority, PRIORITY_MAX) if priority else None,
            ttl_ms=_number("Time to live", ttl, TTL_MS_MAX) if ttl else None,
            application_properties=properties or None, **fields,
        )  # fmt: skip
    except (EncodeError, UnicodeEncodeError) as error:
        raise WrongInput(f"expected what AMQP can carry: {error}") from None


_FIELDS: Final = ("message_id", "subject", "content_type", "correlation_id", "reply_to", "group_id")
