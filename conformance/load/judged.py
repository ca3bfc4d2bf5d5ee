"""Runs the conformance suite against another broker, and holds what fails against the written judgements.

    python -m amqp_broker.conformance.load.judged artemis

The judgements are the tables of `docs/explanation/other-brokers-judged.md`: a scenario that fails and is not
in the table of its broker is named, and so is one of the table that passes now.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from amqp_broker.conformance import command_line
from amqp_broker.conformance.load.peers import PEERS, NotThereError, running_peer

JUDGEMENTS: Final = Path("docs/explanation/other-brokers-judged.md")
HEADING: Final = re.compile(r"^## .*`(?P<name>[a-z-]+)`", re.MULTILINE)
SCENARIO: Final = re.compile(r"`([0-9][0-9.]*/[a-z0-9-]+)`")
EXIT_USAGE: Final = 2
LIMIT_S: Final = 600


def judgements(text: str) -> dict[str, set[str]]:
    """The scenarios that are judged, by broker: those of the first column below its heading."""
    parts = HEADING.split(text)
    return {
        name: {
            one
            for line in part.split("\n## ")[0].splitlines()
            if line.startswith("| `")
            for one in SCENARIO.findall(line.split("|")[1])
        }
        for name, part in zip(parts[1::2], parts[2::2], strict=True)
    }


def again(pid: int, folder: Path) -> str:
    """The command that starts a peer again as it was started, for a run that finds it dead, hanging or
    spinning: a script in a folder, of what Linux knows of the process, which is ended first.
    """
    process = Path(f"/proc/{pid}")
    words, environment = (
        [each.decode() for each in (process / name).read_bytes().split(b"\0") if each]
        for name in ("cmdline", "environ")
    )
    script = folder / "again.sh"
    where = shlex.quote(str((process / "cwd").readlink()))
    script.touch(mode=0o700)
    script.write_text(
        f"kill -9 {pid}\nsleep 1\ncd {where}\nexec env -i {shlex.join([*environment, *words])}\n"
    )
    return shlex.join(["sh", str(script)])


def told_of(name: str) -> dict[str, tuple[str, str]]:
    """What the suite says of a peer, which is started for it: status and message of each scenario.

    Raises NotThereError.
    """
    with running_peer(PEERS[name]) as peer, tempfile.TemporaryDirectory() as folder:
        login = f"{peer.peer.user}:{peer.peer.password}@" if peer.peer.user else ""
        told = Path(folder) / "report.json"
        command_line.main(
            ["run", f"amqp://{login}{peer.host}:{peer.port}", "--broker", name, "--json", str(told),
             "--profile", "core,transactions,hostile", "--time-limit", f"{LIMIT_S}",
             "--restart", again(peer.pid, Path(folder))]
        )  # fmt: skip
        scenarios = json.loads(told.read_text(encoding="utf-8"))["scenarios"]
        return {one["id"]: (one["status"], one["message"]) for one in scenarios}


def main(argv: Sequence[str] | None = None) -> int:
    """Prints what differs from the judgements: 1 where something does."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("peer", choices=sorted(PEERS))
    name = parser.parse_args(argv).peer
    try:
        judged = judgements(JUDGEMENTS.read_text(encoding="utf-8")).get(name, set())
        told = told_of(name)
    except (OSError, NotThereError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return EXIT_USAGE
    failed = {one for one, (status, _) in told.items() if status == "failed"}
    passed = {one for one, (status, _) in told.items() if status == "passed"}
    for one in sorted(failed - judged):
        print(f"not judged: {one}: {told[one][1]}")
    for one in sorted(passed & judged):
        print(f"judged, and passes: {one}")
    print(f"{name} {PEERS[name].version}: {len(passed)} passed, {len(failed)} failed, {len(judged)} judged")
    return 1 if failed - judged else 0


if __name__ == "__main__":
    sys.exit(main())
