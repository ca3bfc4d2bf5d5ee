"""Logs in with python-qpid-proton as each line of standard input says; README.md has lines and answers."""

from __future__ import annotations

import os
import sys

from proton import Message, SSLDomain
from proton.utils import BlockingConnection

PATIENCE_S = 60


def log_in(url: str, mechanism: str, user: str, proof: str) -> BlockingConnection:
    """A connection that has sent its message. Raises what the library has for refusals."""
    domain = None
    told: dict[str, object] = {}
    if url.startswith("amqps:"):
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(os.environ["SSL_CERT_FILE"])
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
        if mechanism == "EXTERNAL":
            domain.set_credentials(proof, proof, None)
    if mechanism not in ("ANONYMOUS", "EXTERNAL"):
        told = {"user": user, "password": proof}
    told |= {"timeout": PATIENCE_S, "ssl_domain": domain, "allowed_mechs": mechanism}
    connection = BlockingConnection(url.replace("127.0.0.1", "localhost"), **told)
    connection.create_sender("greetings").send(Message("hello"))
    return connection


def main() -> None:
    """Until the input ends."""
    for line in iter(sys.stdin.readline, ""):
        try:
            connection = log_in(*line.rstrip("\n").split("\t"))
            print("in", flush=True)
            sys.stdin.readline()
            connection.close()
            print("out", flush=True)
        except Exception as error:
            print("refused", type(error).__name__, str(error).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
