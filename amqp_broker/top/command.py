"""The command `amqp-broker top`."""

from __future__ import annotations

import argparse
import os
import sys

from amqp_broker.client.blocking_management import Refused
from amqp_broker.client.errors import ClientError, LinkRefused, LoginRefused, MessageRefused, WrongUse
from amqp_broker.exit_status import BAD_CONFIGURATION, NOT_REACHED, PROGRAM, REFUSED, STOPPED
from amqp_broker.looking.output import printable
from amqp_broker.top.looker import PAUSE_MAX_S, PAUSE_MIN_S, Looker
from amqp_broker.top.snapshot import taken


def run(options: argparse.Namespace) -> int:
    """Show it until `q`, or print it once; the exit status: 0, 1 where the broker says no, 69 where there is
    none. Raises ImportError where there is a terminal, but not the extra `top`.
    """
    if not PAUSE_MIN_S <= options.every <= PAUSE_MAX_S:
        wanted = f"expected {PAUSE_MIN_S:g} to {PAUSE_MAX_S:g} seconds"
        return _said(f"--every: {wanted}, got {options.every:g}", BAD_CONFIGURATION)
    try:
        looker = Looker(options.url, options.every)
    except WrongUse as error:
        return _said(f"--url: {error}", BAD_CONFIGURATION)
    try:
        if options.once or options.json or not _has_screen():
            print(_in_its_letters(taken(looker, as_json_line=options.json)), end="", flush=True)
            return STOPPED
        from amqp_broker.top.screen import Top

        looker.look({})  # where nobody answers, or not to this user, a sentence says more than a screen
        top = Top(looker)
        top.run()
        if top.failed is not None:
            raise top.failed
    except (Refused, LoginRefused, LinkRefused, MessageRefused) as refused:
        return _said(str(refused), REFUSED)
    except ClientError as error:
        return _said(str(error), NOT_REACHED)
    except KeyboardInterrupt:
        return STOPPED
    finally:
        looker.close()
    return STOPPED


def _has_screen() -> bool:
    streams = (sys.stdin, sys.stdout, sys.stderr)  # Textual draws on the last one
    return all(each is not None and each.isatty() for each in streams) and os.environ.get("TERM") != "dumb"


def _in_its_letters(text: str) -> str:
    """With `?` for what the output has no letters for."""
    encoding = sys.stdout.encoding
    return text.encode(encoding, errors="replace").decode(encoding)


def _said(text: str, status: int) -> int:
    print(f"{PROGRAM}: {printable(text)}", file=sys.stderr)
    return status
