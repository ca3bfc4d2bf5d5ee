"""`python -m tests.interop.crashing_consumer URL QUEUE DEADLY`: accepts by python-qpid-proton what the queue
has, and writes each body; the one called DEADLY kills the process. Status 0 when nothing comes any more.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from proton import Timeout
from proton.utils import BlockingConnection

CREDIT: Final = 1
"""So that each outcome has left before the next message comes: proton keeps it until it reads again."""
QUIET_S: Final = 2.0


def main(url: str, queue: str, deadly: str) -> int:
    """Until it dies, or nothing is left."""
    receiver = BlockingConnection(url).create_receiver(queue, credit=CREDIT)
    while True:
        try:
            body = receiver.receive(timeout=QUIET_S).body
        except Timeout:
            return 0
        if body == deadly:
            os._exit(1)
        receiver.accept()
        sys.stdout.write(f"{body}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
