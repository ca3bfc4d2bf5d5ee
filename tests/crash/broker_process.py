"""The broker as a process: start it, wait for its line, kill it."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from amqp_broker.testing.blocking_peer import PATIENCE_S

CHECKOUT: Final = Path(__file__).resolve().parents[2]
COMMAND: Final = (sys.executable, "-c", "from amqp_broker.command_line import main; raise SystemExit(main())")


class NotListening(Exception):
    """The broker ended, or said nothing, before it listened."""


class BrokerProcess:
    """One run of `amqp-broker serve` on a data directory and an ephemeral port; it logs to `log`."""

    def __init__(
        self,
        data: Path,
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = COMMAND,
        config: Path | None = None,
    ) -> None:
        arguments = [*command, "serve", "--data", str(data), "--listen", "amqp://127.0.0.1:0"]
        if config is not None:
            arguments += ["--config", str(config)]
        self.log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                arguments,
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                env=dict(os.environ) | dict(environment or {}),
                cwd=CHECKOUT,
            )
        self.port = 0

    def wait_until_listening(self, timeout: float = PATIENCE_S) -> int:
        """The port it listens on; raises NotListening, with the end of its log."""
        output = self.process.stdout
        assert output is not None
        text = b""
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while not (found := re.search(rb"^listening on (amqp://\S+)$", text, re.MULTILINE)):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise NotListening(f"nothing after {timeout} s; {self.log_tail()}")
                data = os.read(output.fileno(), 4096)
                if not data:
                    raise NotListening(f"ended with {self.process.wait()}; {self.log_tail()}")
                text += data
        self.port = urlsplit(found[1].decode()).port or 0
        return self.port

    def kill(self) -> None:
        """`kill -9`, and wait until it is gone."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._close()

    def stop(self, timeout: float = PATIENCE_S) -> int:
        """SIGTERM; the exit status."""
        self.process.terminate()
        try:
            return self.process.wait(timeout)
        finally:
            self.kill()

    def _close(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()

    def log_tail(self) -> str:
        """The end of what it logged."""
        return f"log: ...{self.log.read_text(errors='replace')[-2_000:]}" if self.log.exists() else "no log"

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
