"""python-qpid-proton against any AMQP 1.0 broker: ``python interop.py amqp://host:port``.

Prints one line for each check and exits 0 if none failed. Each check has its own queue and its own
connection: one that fails cannot spoil the next.
"""

from __future__ import annotations

import sys

import behaviour  # noqa: F401 - importing the checks registers them
import exactly_once  # noqa: F401 - likewise
import half_checks  # noqa: F401 - likewise
import half_transactions  # noqa: F401 - likewise
import halves  # noqa: F401 - likewise
import messages  # noqa: F401 - likewise
import transaction_errors
import transactions  # noqa: F401 - likewise
from client import CHECKS, Check, CheckFailed, Client


def run_check(url: str, name: str, function: Check) -> bool:
    """Runs one check and prints its line; any error of the library counts as a failure of the check."""
    try:
        client = Client(url)
        try:
            function(client)
        finally:
            client.close()
    except Exception as error:
        message = str(error) or type(error).__name__
        if not isinstance(error, CheckFailed):
            message = f"expected no error, got {type(error).__name__}: {message}"
        print(f"FAIL {name}: {' '.join(message.split())}", flush=True)
        return False
    print(f"ok {name}", flush=True)
    return True


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print("usage: interop.py amqp://host:port [part of a check's name]", file=sys.stderr)
        return 2
    wanted = sys.argv[2] if len(sys.argv) == 3 else ""
    results = [run_check(sys.argv[1], name, function) for name, function in CHECKS if wanted in name]
    print("skip several data or amqp-sequence sections: proton's Message has one body", flush=True)
    if not transaction_errors.LIMIT_S:
        print("skip transaction older than the broker's limit: AMQP_TXN_TIMEOUT_S is not set", flush=True)
    print("skip transactional acquisition: proton's flow carries no properties", flush=True)
    print("skip SCRAM: logins.py shows it", flush=True)
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
