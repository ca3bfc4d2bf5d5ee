"""`python -m tests.conformance.mortal_starter FILE COMMAND...`: starts a broker in a group of its own, as a
service manager does; ends the one before; returns when it listens. FILE has the groups, for the test that
ends them.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path


def main() -> None:
    """Start it."""
    groups = Path(sys.argv[1])
    for line in groups.read_text().split() if groups.exists() else []:
        with suppress(ProcessLookupError):
            os.killpg(int(line), signal.SIGKILL)
    process = subprocess.Popen(
        sys.argv[2:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with groups.open("a") as file:
        file.write(f"{process.pid}\n")
    assert process.stdout is not None and process.stdout.readline() == "listening\n"


if __name__ == "__main__":
    main()
