"""The commands on the store of a broker that is not running, declared; what does them is loaded then."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from amqp_broker.exit_status import BAD_CONFIGURATION, PROGRAM, STOPPED, tell
from amqp_broker.management.command_table import Told

FOUND_SOMETHING: Final = 1
DIRECTORY: Final = Told("directory", "the data directory", {"metavar": "DIR"})

Run = Callable[[argparse.Namespace], int]


def add_store_commands(commands: Any) -> None:
    """Add them to the commands of a parser."""
    _add(
        commands, "check", "check the store of a broker that is not running", _check,
        DIRECTORY,
        Told(
            "--remove",
            'remove something damaged first: what a finding begins with ("queue 3, offset 17", '
            '"half message 12", "node 5"), or QUEUE/OFFSET; repeatable',
            {"metavar": "WHAT", "action": "append"},
        ),
        Told(
            "--give-up-log",
            "go on without the acknowledged commits behind the damage in the log; it is kept beside it",
            {"action": "store_true"},
        ),
        Told("--repair", "put away what is damaged, as far as nothing is made up", {"action": "store_true"}),
    )  # fmt: skip
    _add(
        commands, "compact",
        "give the room of what was deleted back, in the store of a broker that is not running", _compact,
        DIRECTORY,
    )  # fmt: skip
    _add(
        commands, "restore", "make a data directory out of a backup", _restore,
        Told("backup", "the directory of the backup", {"metavar": "BACKUP"}),
        Told("directory", "the data directory, which holds no store", {"metavar": "DIR"}),
        Told(
            "--keep-id",
            "offsets that clients know go on to count: only where nothing was stored after the backup",
            {"action": "store_true"},
        ),
    )  # fmt: skip
    _add(
        commands, "salvage", "make a new store of what is whole of a damaged one, which is not changed",
        _salvage, DIRECTORY, Told("target", "the data directory that is made", {"metavar": "TO"}),
    )  # fmt: skip


def _add(commands: Any, name: str, does: str, run: Run, *told: Told) -> None:
    parser = commands.add_parser(name, help=does)
    for each in told:
        parser.add_argument(each.name, help=each.help, **each.options)
    parser.set_defaults(run=run)


def _telling(run: Run) -> Run:
    """What goes wrong with a store is one line for a person."""

    @wraps(run)
    def wrapped(options: argparse.Namespace) -> int:
        try:
            return run(options)
        except FileExistsError as error:
            print(f"{PROGRAM}: {error}", file=sys.stderr)
            return BAD_CONFIGURATION
        except BrokenPipeError:  # of who reads what is printed, not of the store
            raise
        except Exception as error:
            return tell(error, directory=options.directory)

    return wrapped


@_telling
def _check(options: argparse.Namespace) -> int:
    from amqp_broker.persistence.sqlite import NothingToRemove, give_up_log, remove, verify_directory
    from amqp_broker.records import message_problem

    directory = options.directory
    if options.give_up_log:
        given_up = give_up_log(directory)
        print(f"given up: {given_up}" if given_up else "the log is not damaged: nothing was given up")
    try:
        for what in options.remove or ():
            print(f"removed: {remove(directory, what)}")
    except NothingToRemove as error:
        print(f"{PROGRAM}: {directory}: {error}", file=sys.stderr)
        return BAD_CONFIGURATION
    if not options.repair:
        return _told(directory, verify_directory(directory, message_problem))
    from amqp_broker.persistence.rescue import repair

    repaired = repair(directory, message_problem)
    for done in repaired.done:
        print(f"repaired: {done}")
    return _told(directory, repaired.left)


def _told(directory: str, findings: list[str]) -> int:
    from amqp_broker.persistence.sqlite import node_names

    names = node_names(directory) if findings else {}
    for finding in findings:
        print(_named(finding, names))
    if not findings:
        print(f"{directory}: no faults found")
    return FOUND_SOMETHING if findings else STOPPED


def _named(finding: str, names: dict[int, str]) -> str:
    """Ids are what the store knows, and names what people know."""
    found = re.match(r"queue (\d+)", finding)
    name = names.get(int(found[1])) if found is not None else None
    return finding if found is None or name is None else f"{found[0]} ({name}){finding[found.end() :]}"


@_telling
def _compact(options: argparse.Namespace) -> int:
    from amqp_broker.persistence.sqlite import compact

    before, after = compact(options.directory)
    print(f"{options.directory}: {before} bytes before, {after} bytes after")
    return STOPPED


def back_up(options: argparse.Namespace) -> int:
    """`amqp-broker backup NAME --data DIR`: of a broker that is not running."""
    return _back_up(argparse.Namespace(directory=options.data, destination=options.name))


@_telling
def _back_up(options: argparse.Namespace) -> int:
    from amqp_broker.clock import wall_clock_ms
    from amqp_broker.persistence.rescue import back_up_closed

    manifest = back_up_closed(options.directory, options.destination, wall_clock_ms())
    print(f"{options.destination}: {manifest.byte_count} bytes")
    return STOPPED


@_telling
def _restore(options: argparse.Namespace) -> int:
    from amqp_broker.persistence.rescue import restore

    new_id = None if options.keep_id else _new_id()
    manifest = restore(options.backup, options.directory, new_id)
    what = f"{manifest.byte_count} bytes, as the store {manifest.store_id} was at {_time(manifest)}"
    print(f"{options.directory}: {what}")
    return STOPPED


def _new_id() -> str:
    import uuid

    return str(uuid.uuid4())


def _time(manifest: Any) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(manifest.made_at_ms / 1_000, UTC).isoformat(timespec="seconds")


@_telling
def _salvage(options: argparse.Namespace) -> int:
    from amqp_broker.persistence.rescue import salvage
    from amqp_broker.records import message_problem

    salvaged = salvage(options.directory, options.target, _new_id(), message_problem)
    for lost in salvaged.lost:
        print(f"lost: {lost}")
    for done in salvaged.repaired.done:
        print(f"repaired: {done}")
    rows = ", ".join(f"{name} {count}" for name, count in salvaged.rows.items() if count)
    print(f"brought out, in rows: {rows or 'none'}")
    status = _told(options.target, salvaged.repaired.left)
    return FOUND_SOMETHING if salvaged.lost or salvaged.repaired.done else status
