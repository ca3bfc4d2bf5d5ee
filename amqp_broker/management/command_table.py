"""The commands that ask a running broker, declared: what each is called, told and for. What it does is in
`command.py`, which is loaded only then.
"""

from __future__ import annotations

import argparse
from typing import Any, Final, NamedTuple

URL: Final = "amqp://127.0.0.1:5672"


class Told(NamedTuple):
    """One thing that a command is told: `options` are those of argparse."""

    name: str
    help: str
    options: dict[str, Any] = {}


class Command(NamedTuple):
    """One command. `does` begins its help."""

    name: str
    does: str
    told: tuple[Told, ...]


def assignment(text: str) -> tuple[str, int | str]:
    """An attribute and its new value: a number where it looks like one."""
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise argparse.ArgumentTypeError(f"expected ATTRIBUTE=VALUE, got {text!r:.80}")
    return name, int(value) if value.removeprefix("-").isdigit() else value


def _option(name: str, metavar: str, help: str, **options: Any) -> Told:
    return Told(name, help, {"metavar": metavar, **options})


TYPE: Final = _option("type", "TYPE", "queue, connection, ...; another word is answered with all types")
NAME: Final = _option("identity", "NAME", "as `list` shows it")
QUEUE: Final = _option("identity", "QUEUE", "its address")
OF_TYPE: Final = _option("--type", "TYPE", "of what type it is (default queue)", default="queue")
REASON: Final = _option("--reason", "TEXT", "what is told and logged", default=None)
SELECTOR: Final = _option(
    "--selector", "WORDS", "only messages that pass it, as JMS writes it: \"color = 'blue'\"", default=None
)
COUNT: Final = _option("--count", "N", "so many messages at most", type=int, default=None)
FORM: Final = _option(
    "--format", "FORMAT", "json: lines that can be read (default); raw: octets", choices=("json", "raw"),
    default="json")
FORCE: Final = Told("--force", "also what is used or has messages, which are gone", {"action": "store_true"})

COMMANDS: Final = (
    Command("list", "what there is of one type", (TYPE,)),
    Command("show", "everything that the broker says of one entity, or one message of a queue", (
        TYPE, NAME, _option("--offset", "N", "the message with this offset", type=int, default=None))),
    Command("watch", "what there is of one type, again and again until it is interrupted", (
        TYPE, _option("--every", "SECONDS", "how often (default 1)", type=float, default=1.0),
        _option("--times", "N", "so often (default for ever)", type=int, default=None))),
    Command("set", "change what can be while the broker runs: of a queue until reset, else until it stops", (
        TYPE, NAME,
        _option("values", "ATTRIBUTE=VALUE", "max_messages=1000, ...", nargs="+", type=assignment))),
    Command("reset", "have all that `set` changed be as the configuration says again", (QUEUE, OF_TYPE)),
    Command("declare", "make a queue or a topic, if it is not there, as its policy says, or a binding", (
        QUEUE, OF_TYPE,
        _option("--with", "ATTRIBUTE=VALUE", "of a binding: topic=orders.* queue=archive selector=...",
                nargs="+", type=assignment, dest="values", default=[]))),
    Command("delete", "delete a queue, a subscription, a cursor, or one message of a queue", (
        NAME, OF_TYPE, FORCE,
        _option("--offset", "N", "only the message with this offset", type=int, default=None))),
    Command("purge", "delete the messages of a queue that nobody holds", (QUEUE, OF_TYPE, SELECTOR, COUNT)),
    Command("move", "move the messages of a queue that nobody holds to another", (
        QUEUE, _option("to", "TO", "the address of a queue that is there"), OF_TYPE, SELECTOR, COUNT)),
    Command("copy", "copy the messages of a queue that nobody holds to another", (
        QUEUE, _option("to", "TO", "the address of a queue that is there"), OF_TYPE, SELECTOR, COUNT)),
    Command("redrive", "move dead letters back to where they came from", (
        _option("identity", "QUEUE", "where they are (default dead-letters)", nargs="?",
                default="dead-letters"), COUNT)),
    Command("browse", "look at the messages of a queue that nobody holds", (
        QUEUE, OF_TYPE, SELECTOR, COUNT)),
    Command("send", "send messages to an address", (
        _option("address", "ADDRESS", "a queue or a topic"),
        _option("bodies", "BODY", "each is a message; without, each line of the standard input is one",
                nargs="*"))),
    Command("receive", "receive messages, and accept each when it is printed", (
        _option("address", "ADDRESS", "a queue or a topic"),
        _option("--count", "N", "so many messages (default 1; 0 is any number)", type=int, default=1),
        _option("--wait", "SECONDS", "for each message (default 10)", type=float, default=10.0))),
    Command("export", "write the messages of a queue that nobody holds to a file; they stay where they are", (
        _option("address", "QUEUE", "its address"), COUNT, FORM,
        _option("--output", "FILE", "which is not there yet (default: the standard output)", default=None))),
    Command("import", "send the messages of a file that `export` wrote, or of a like one", (
        _option("address", "ADDRESS", "a queue or a topic"), FORM,
        _option("--input", "FILE", "to be read (default: the standard input)", default=None))),
    Command("backup", "have the broker copy its store while it works, and wait for the end of it", (
        _option("name", "NAME", "a directory that is made below `backup_dir` of the broker's configuration"),
        _option("--data", "DIR", "of the store in DIR, of a broker that is not running: then NAME is a path",
                default=None))),
    Command("reload", "have the broker read its configuration file again, and say what that changed", ()),
    Command("close", "close a connection", (
        _option("identity", "NUMBER", "as `list connection` shows it"), REASON)),
    Command("transaction", "commit a transaction by hand, or roll it back", (
        _option("action", "ACTION", "", choices=("commit", "rollback")),
        _option("identity", "TXN_ID", "as `list transaction` shows it"), REASON)),
    Command("half", "decide a half message by hand, or have a parked one asked about again", (
        _option("action", "ACTION", "", choices=("commit", "rollback", "resume")),
        _option("identity", "HALF", "as `list half` shows it"), REASON)),
)  # fmt: skip


def add_commands(commands: Any) -> list[argparse.ArgumentParser]:
    """Add them all to the commands of a parser."""
    return [_added(commands, command) for command in COMMANDS]


def _added(commands: Any, command: Command) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(command.name, help=command.does)
    for told in command.told:
        parser.add_argument(told.name, help=told.help, **told.options)
    add_url(parser)
    return parser


def add_url(parser: argparse.ArgumentParser) -> None:
    """Which broker is asked, and for whom."""
    parser.add_argument(
        "--url", default=URL, help=f"the broker: amqp[s]://[USER:PASSWORD@]HOST[:PORT] (default {URL})"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
