"""The tables of the console, declared: which types there are, their columns, and what can be done with one.

What an operation needs, which right, and what it does is the broker's to say; this is how it is asked for.
"""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen
class Column:
    """One column: an attribute, its title, and its form (`shown.FORMS`). `links_to` is a type whose entity it
    names.
    """

    name: str
    title: str
    form: str = "text"
    links_to: str | None = None
    narrow: bool = True
    """Whether it is there on a phone, too."""


@attrs.frozen
class Argument:
    """What a form asks for: `kind` is text, number, flag or lines."""

    name: str
    label: str
    kind: str = "text"
    required: bool = False
    hint: str = ""
    value: str = ""


@attrs.frozen
class Operation:
    """One thing that can be done with an entity, by its name in `$management`. `asks` is the question before
    it; `destroys` makes the answer red. In `groups` it goes on until the end of the queue. `ends` says that
    the entity is gone after it.
    """

    name: str
    label: str
    asks: str
    arguments: tuple[Argument, ...] = ()
    destroys: bool = False
    groups: bool = False
    ends: bool = False
    changes: tuple[str, ...] = ()


@attrs.frozen
class EntityTable:
    """One type: its title, what it is, its columns, and what can be done."""

    kind: str
    title: str
    meaning: str
    columns: tuple[Column, ...]
    operations: tuple[Operation, ...] = ()
    makes: Operation | None = None
    sort: str = ""
    has_messages: bool = False

    @property
    def attributes(self) -> tuple[str, ...]:
        """What is read of each entity; rates are not read."""
        return tuple(dict.fromkeys(column.name.partition("/")[0] for column in self.columns))


COUNT: Final = Argument("count", "At most so many messages", "number", hint="all")
SELECTOR: Final = Argument("selector", "Only those that pass this selector", hint="color = 'blue'")
TO: Final = Argument("to", "To the queue", required=True)
REASON: Final = Argument("reason", "Reason, which is told and logged")
FORCE: Final = Argument("force", "Also if it is used or has messages, which are gone with it", "flag")
NAME: Final = Argument("name", "Name", required=True)

BOUNDS: Final = ("max_messages", "max_bytes", "max_volatile_bytes", "max_deliveries", "redelivery_delay_ms",
                 "redelivery_factor", "redelivery_delay_max_ms", "undeliverable_wait_ms")  # fmt: skip
PURGE: Final = Operation(
    "PURGE", "Purge", "Delete the messages that nobody holds? They do not come back.", (SELECTOR, COUNT),
    destroys=True, groups=True,
)  # fmt: skip
MOVE: Final = Operation(
    "MOVE", "Move", "Move the messages that nobody holds to another queue.", (TO, SELECTOR, COUNT),
    groups=True,
)  # fmt: skip
COPY: Final = Operation(
    "COPY", "Copy", "Copy the messages that nobody holds to another queue.", (TO, SELECTOR, COUNT),
    groups=True,
)  # fmt: skip
REDRIVE: Final = Operation(
    "REDRIVE", "Re-drive", "Move these dead letters back to where they came from.", (COUNT,), groups=True
)
CHANGE: Final = Operation(
    "UPDATE",
    "Change",
    "Other bounds (0 is none) and tries, kept over restarts until a reset.",
    changes=BOUNDS,
)
RESET: Final = Operation("RESET", "Reset", "All that was changed is as the configuration says again.")
DELETE_QUEUE: Final = Operation(
    "DELETE", "Delete", "Delete it? With messages or links it is deleted only by force.", (FORCE,),
    destroys=True, ends=True,
)  # fmt: skip
DELETE_MESSAGE: Final = Operation(
    "DELETE-MESSAGE", "Delete this message", "Delete this message? It does not come back.",
    (Argument("offset", "Offset", "number", required=True),), destroys=True,
)  # fmt: skip


def decided(name: str, label: str, asks: str, *, destroys: bool = True, ends: bool = True) -> Operation:
    """How something that waits for a decision is decided by hand."""
    return Operation(name, label, asks, (REASON,), destroys=destroys, ends=ends)


def made(asks: str, *arguments: Argument) -> Operation:
    """How one is made."""
    return Operation("CREATE", "New", asks, (NAME, *arguments))


def removed(asks: str, *arguments: Argument) -> Operation:
    """How one goes."""
    return Operation("DELETE", "Delete", asks, arguments, destroys=True, ends=True)


_TABLES: Final = (
    EntityTable(
        "queue", "Queues", "queues and logs, by their addresses",
        (
            Column("name", "Name", links_to="queue"), Column("kind", "Kind", narrow=False),
            Column("messages", "Messages", "number"), Column("bytes", "Size", "bytes", narrow=False),
            Column("oldest_age_ms", "Oldest", "ms", narrow=False),
            Column("consumers", "Consumers", "number", narrow=False),
            Column("arrived/s", "In/s", "rate"), Column("sent/s", "Out/s", "rate"),
            Column("dead_letters", "Dead", "number", narrow=False),
            Column("full", "Full", narrow=False),
        ),
        (REDRIVE, MOVE, COPY, CHANGE, RESET, PURGE, DELETE_QUEUE),
        made("A queue, as the policy for its address says."), "-messages", has_messages=True,
    ),
    EntityTable(
        "topic", "Topics", "topics that were used or declared",
        (
            Column("name", "Name", links_to="topic"), Column("senders", "Senders", "number"),
            Column("subscriptions", "Subscriptions", "number"),
            Column("receivers", "Receivers", "number", narrow=False),
            Column("posted", "Posted", "number"), Column("posted/s", "In/s", "rate", narrow=False),
            Column("copied", "Copied", "number", narrow=False),
            Column("passed_over", "Passed over", "number", narrow=False),
            Column("unrouted", "Unrouted", "number", narrow=False),
        ),
        (removed("Delete it? One that is used stays."),), made("A topic."), "name",
    ),
    EntityTable(
        "subscription", "Subscriptions", "subscriptions to topics, each with a queue of its own",
        (
            Column("name", "Name", links_to="subscription"),
            Column("topic", "Topic"), Column("durable", "Durable", narrow=False),
            Column("shared", "Shared", narrow=False), Column("links", "Links", "number"),
            Column("messages", "Messages", "number"), Column("arrived/s", "In/s", "rate", narrow=False),
            Column("sent/s", "Out/s", "rate", narrow=False),
            Column("user", "User", narrow=False),
        ),
        (MOVE, COPY, CHANGE, RESET, PURGE, DELETE_QUEUE), None, "-messages", has_messages=True,
    ),
    EntityTable(
        "binding", "Bindings", "queues that get what is sent to topics",
        (
            Column("name", "Name", links_to="binding"), Column("topic", "Topic"),
            Column("queue", "Queue", links_to="queue"), Column("selector", "Selector", narrow=False),
            Column("configured", "Configured", narrow=False),
            Column("copied", "Copied", "number", narrow=False),
            Column("passed_over", "Passed over", "number", narrow=False),
        ),
        (removed("Delete it? Its queue gets nothing by it any more."),),
        made("A queue gets what is sent to a topic.",
             Argument("topic", "Topic or pattern", required=True, hint="orders.*"),
             Argument("queue", "Queue", required=True), SELECTOR),
        "name",
    ),
    EntityTable(
        "connection", "Connections", "open connections",
        (
            Column("name", "No.", "text", links_to="connection"), Column("container_id", "Container"),
            Column("user", "User"), Column("peer", "From", narrow=False), Column("tls", "TLS", narrow=False),
            Column("mechanism", "Login", narrow=False),
            Column("sessions", "Sessions", "number", narrow=False), Column("links", "Links", "number"),
            Column("received/s", "In/s", "rate", narrow=False),
            Column("sent/s", "Out/s", "rate", narrow=False),
            Column("memory_bytes", "Memory", "bytes", narrow=False),
        ),
        (Operation("DELETE", "Close", "Close this connection? Its client is told the reason.", (REASON,),
                   destroys=True, ends=True),), None, "name",
    ),
    EntityTable(
        "session", "Sessions", "sessions of connections",
        (
            Column("name", "Session", links_to="session"),
            Column("connection", "Connection", links_to="connection"),
            Column("container_id", "Container"), Column("state", "State", narrow=False),
            Column("links", "Links", "number"),
            Column("unsettled_out", "Unsettled out", "number", narrow=False),
        ), (), None, "name",
    ),
    EntityTable(
        "link", "Links", "attached links; `in` is what the broker receives",
        (
            Column("name", "Link", links_to="link", narrow=False),
            Column("connection", "Connection", links_to="connection"),
            Column("container_id", "Container", narrow=False), Column("direction", "Direction"),
            Column("address", "Address"), Column("credit", "Credit", "number"),
            Column("unsettled", "Unsettled", "number"),
        ), (), None, "-unsettled",
    ),
    EntityTable(
        "transaction", "Transactions", "transactions that are not over",
        (
            Column("name", "Txn-id", links_to="transaction"), Column("container_id", "Container"),
            Column("user", "User", narrow=False), Column("state", "State"), Column("age_s", "Age", "s"),
            Column("posted", "Posted", "number"), Column("retired", "Retired", "number", narrow=False),
            Column("acquired", "Acquired", "number", narrow=False),
            Column("bytes", "Size", "bytes", narrow=False),
        ),
        (
            decided("COMMIT", "Commit", "Commit what is in it so far? Its controller knows it no more."),
            decided("ROLLBACK", "Roll back", "Roll it back? Its controller is told when it uses it next."),
        ), None, "-age_s",
    ),
    EntityTable(
        "half", "Half messages", "half messages that are not decided",
        (
            Column("name", "Half", links_to="half"), Column("group", "Group", narrow=False),
            Column("state", "State"), Column("destination", "Destination", narrow=False),
            Column("attempts", "Asked", "number", narrow=False), Column("age_ms", "Age", "ms"),
            Column("bytes", "Size", "bytes", narrow=False), Column("container_id", "Container", narrow=False),
        ),
        (
            decided("COMMIT", "Commit", "Commit it? Its message becomes available, and that is final."),
            decided("ROLLBACK", "Roll back", "Roll it back? Its message never comes, and that is final."),
            decided("RESUME", "Ask again", "Have a parked one asked about again.", destroys=False,
                    ends=False),
        ), None, "-age_ms",
    ),
    EntityTable(
        "set", "Sets", "sets of half messages that are not decided",
        (
            Column("name", "Set", links_to="set"), Column("group", "Group", narrow=False),
            Column("producer", "Producer"), Column("epoch", "Epoch", "number"), Column("state", "State"),
            Column("messages", "Messages", "number"), Column("bytes", "Size", "bytes", narrow=False),
            Column("age_ms", "Age", "ms"),
        ),
        (Operation("VOID", "Void", "Void it? It never wins.", (
            REASON, Argument("force", "Also if it is prepared, which may lose messages", "flag"),
        ), destroys=True, ends=True),), None, "-age_ms",
    ),
    EntityTable(
        "stream", "Streams", "numbered messages: where each stream stands in its queue",
        (
            Column("name", "Stream", links_to="stream"), Column("queue", "Queue", links_to="queue"),
            Column("owner", "Owner", narrow=False), Column("seq_id", "Id", "number", narrow=False),
            Column("seq_no", "Number", "number"), Column("reject_count", "Refused", "number"),
            Column("last_access_ms", "Last used", "time", narrow=False),
        ),
        (Operation("RESET", "Reset", "Have it begin anew, owned by nobody?", destroys=True),), None, "name",
    ),
    EntityTable(
        "cursor", "Cursors", "durable cursors of readers by offset",
        (
            Column("name", "Cursor", links_to="cursor"), Column("lag", "Lag", "number"),
            Column("lags", "Behind in each"), Column("positions", "Stands at", narrow=False),
            Column("held_by", "Held by", narrow=False), Column("owner", "Owner", narrow=False),
        ),
        (removed("Forget where it stands?"),), None, "-lag",
    ),
    EntityTable(
        "configuration", "Configuration", "every key, as this broker runs",
        (
            Column("name", "Key", links_to="configuration"), Column("value", "Value"),
            Column("at_start", "At start", narrow=False), Column("is_default", "Default", narrow=False),
        ),
        (Operation("UPDATE", "Change", "Another value until the next start.", changes=("value",)),),
        None, "name",
    ),
    EntityTable(
        "backup", "Backups", "backups that were asked for since the start",
        (
            Column("name", "Name", links_to="backup"), Column("state", "State"),
            Column("percent", "Percent", "number"), Column("bytes", "Size", "bytes", narrow=False),
            Column("begun_at_ms", "Begun", "time", narrow=False),
            Column("ended_at_ms", "Ended", "time"), Column("reason", "Reason", narrow=False),
        ),
        (removed("Give it up? One that is done stays."),),
        made("A backup, into a directory of this name below backup_dir."), "-begun_at_ms",
    ),
)  # fmt: skip
TABLES: Final = {table.kind: table for table in _TABLES}

MENU: Final = (
    ("Messages", ("queue", "topic", "subscription", "binding")),
    ("Clients", ("connection", "session", "link")),
    ("In flight", ("transaction", "half", "set")),
    ("Positions", ("stream", "cursor")),
    ("Broker", ("configuration", "backup")),
)
"""What stands in the menu beside the pages that are no tables, with a headline."""
