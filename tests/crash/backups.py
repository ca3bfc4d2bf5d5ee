"""`python -m tests.crash.backups --restores 200`: backups of a broker under load that is killed meanwhile.

Four senders post numbered messages to a topic of two queues, a copy to each in one commit; somebody moves
them from the first queue on to a third, some in each commit; backups are made one after the other. The broker
is killed at a random moment, and backups that are there by their names are restored, each with a restore that
may be killed before. Each restored store is one committed moment:

    first queue + third queue = second queue          no commit was torn
    of each sender 0, 1, 2, ... without a hole        no commit is missing among others
    all that was accepted before it was begun         nothing is missing at the end
    nothing that was sent after it was complete
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs

from amqp_broker.client import ClientError, connect
from amqp_broker.client.blocking_management import Refused
from amqp_broker.management.command import Asker
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.testing.store_suite.helpers import read_all
from tests.crash.broker_process import BrokerProcess

SENDERS: Final = 4
_NUMBERED: Final = re.compile(rb"\d+/\d+(?= \.)")
BODY: Final = b"." * 3_000
FIRST, SECOND, THIRD = "first", "second", "third"
CONFIGURATION: Final = """
backup_dir = "backups"
[limits]
backup_share_percent = 60
[[binding]]
topic = "numbers"
queue = "first"
[[binding]]
topic = "numbers"
queue = "second"
[[queue]]
pattern = "third"
create = "at-start"
"""


@attrs.define
class Asked:
    """One backup: how many of each sender's messages had been accepted when it was asked for, and how many
    had been sent when it was complete, if that was heard.
    """

    before: list[int]
    sent: list[int] | None = None


class Life:
    """One broker, from its start to its kill."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self._random = random.Random(seed)
        (directory / "backups").mkdir(parents=True)
        (directory / "broker.toml").write_text(CONFIGURATION)
        self.sent, self.accepted = [0] * SENDERS, [0] * SENDERS
        self.asked: dict[str, Asked] = {}
        self._port = 0

    def run(self) -> None:
        """Until it is killed."""
        broker = BrokerProcess(
            self.directory / "data", self.directory / "log", config=self.directory / "broker.toml"
        )
        self._port = broker.wait_until_listening()
        works = [(self._send, which) for which in range(SENDERS)] + [(self._move, 0), (self._back_up, 0)]
        threads = [threading.Thread(target=self._until_the_end, args=work) for work in works]
        for thread in threads:
            thread.start()
        time.sleep(self._random.uniform(0.3, 2.5))
        broker.process.send_signal(signal.SIGKILL)
        broker.process.wait()
        for thread in threads:
            thread.join()
        assert broker.process.stdout is not None
        broker.process.stdout.close()

    def _until_the_end(self, work: Any, which: int) -> None:
        with suppress(ClientError, OSError):
            work(f"amqp://127.0.0.1:{self._port}", which)

    def _send(self, url: str, which: int) -> None:
        with connect(url) as client:
            sender = client.open_sender("numbers")
            while True:
                self.sent[which] += 1
                sender.send(b"%d/%d " % (which, self.sent[which] - 1) + BODY)
                self.accepted[which] += 1

    def _move(self, url: str, _: int) -> None:
        with Asker(url) as asker:
            while True:
                asker.ask("MOVE", "queue", identity=FIRST, to=THIRD, count=7)
                time.sleep(0.01)

    def _back_up(self, url: str, _: int) -> None:
        with Asker(url) as asker:
            while True:
                name = f"b{len(self.asked)}"
                asked = self.asked[name] = Asked([*self.accepted])
                found = asker.ask("CREATE", "backup", {}, name=name)
                while found["state"] not in ("done", "failed"):
                    time.sleep(0.005)
                    found = asker.ask("READ", "backup", identity=name)
                if found["state"] == "failed":
                    raise Refused(found["reason"])
                asked.sent = [*self.sent]

    # What is left

    def restored(self) -> tuple[int, list[str]]:
        """How many backups were restored, the last two and some others, and what is wrong with the stores."""
        complaints = [f"the store itself: {each}" for each in verify_directory(self.directory / "data")]
        names = [name for name in self.asked if (self.directory / "backups" / name).exists()]
        names = [*names[-2:], *self._random.sample(names[:-2], min(2, len(names[:-2])))]
        for name in names:
            complaints += [f"{name}: {each}" for each in self._restore(self.directory / "backups" / name)]
        return len(names), complaints

    def _restore(self, backup: Path) -> list[str]:
        target = self.directory / f"restored-{backup.name}"
        command = [sys.executable, "-m", "amqp_broker", "restore", str(backup), str(target)]
        killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(self._random.uniform(0.0, 0.4))
        killed.kill()
        killed.wait()
        if not (target / DATABASE_NAME).exists():
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                return [done.stderr]
        findings = verify_directory(target)
        return findings or self._wrong(target, self.asked[backup.name])

    def _wrong(self, target: Path, asked: Asked) -> list[str]:
        store = SqliteStore(target, ballast_bytes=0)
        try:
            ids = {node.name: node.queue_id for node in store.recover().nodes}
            bodies = {
                name: sorted(
                    [_NUMBERED.findall(record.body)[0].decode() for record in read_all(store, ids[name])]
                )
                for name in (FIRST, SECOND, THIRD)
            }
        finally:
            store.close()
        wrong = []
        if sorted(bodies[FIRST] + bodies[THIRD]) != bodies[SECOND]:
            wrong.append(f"a commit is torn: {[(name, len(each)) for name, each in bodies.items()]}")
        for which in range(SENDERS):
            numbers = sorted(
                int(each.split("/")[1]) for each in bodies[SECOND] if each.startswith(f"{which}/")
            )
            count, most = len(numbers), (asked.sent or self.sent)[which]
            if numbers != [*range(count)]:
                wrong.append(f"sender {which}: a hole below {numbers[-1]} in {count} messages")
            if not asked.before[which] <= count <= most:
                wrong.append(f"sender {which}: {count} messages, expected {asked.before[which]} to {most}")
        return wrong


def run(directory: Path, restores: int, seed: int) -> tuple[int, int, list[str]]:
    """Lives until so many backups were restored: how many lives and restores, and what is wrong."""
    lives = done = 0
    while done < restores:
        life = Life(directory / f"life-{lives}", seed + lives)
        life.run()
        count, complaints = life.restored()
        lives, done = lives + 1, done + count
        if complaints:
            return lives, done, complaints
        shutil.rmtree(life.directory)
    return lives, done, []


def main(arguments: Sequence[str]) -> int:
    """The exit status: 1 where a restored store is no committed moment."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.backups", description=__doc__)
    parser.add_argument("--restores", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        begun = time.monotonic()
        lives, done, complaints = run(Path(directory), options.restores, options.seed)
        for complaint in complaints:
            print(complaint)
        seconds = time.monotonic() - begun
        print(
            f"{done} backups of {lives} killed brokers restored in {seconds:.0f} s, {len(complaints)} wrong"
        )
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
