"""`amqp-broker user`: verifiers for the configuration, made of a password that only standard input gives."""

from __future__ import annotations

import json
import secrets
import sys
from typing import TextIO

from amqp_broker.configuration import BrokerConfig, ConfigurationError, Problem, UserConfig, shown
from amqp_broker.verifiers import (
    ITERATIONS,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
    SCRAM_SHA_1,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    PasswordError,
    make_verifier,
)

PASSWORD_CHARACTERS_MAX = 1_024


def add_user(
    name: str, iterations: int | None = None, *, scram_sha_1: bool = False
) -> str:
    """The `[[user]]` table of a new user, with a verifier of SCRAM-SHA-1 only where that is asked for.
    Raises ConfigurationError for the name, PasswordError for the password.
    """
    try:
        UserConfig(name=name)
    except ConfigurationError as error:
        raise error.named("NAME") from None
    count = ITERATIONS if iterations is None else iterations
    if not ITERATIONS_MIN <= count <= ITERATIONS_MAX:
        allowed = f"must be a whole number from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        raise ConfigurationError(Problem("--iterations", shown(count), allowed))
    if count > ITERATIONS:
        note = f"note: clients that are built on Cyrus SASL refuse more than {ITERATIONS} iterations"
        print(note, file=sys.stderr)
    password = read_password(sys.stdin)
    lines = ["[[user]]", f"name = {json.dumps(name, ensure_ascii=False)}"]
    for mechanism in (*((SCRAM_SHA_1,) if scram_sha_1 else ()), SCRAM_SHA_256, SCRAM_SHA_512):
        key = mechanism.lower().replace("-", "_")
        verifier = make_verifier(mechanism, password, count, secrets.token_bytes(SALT_BYTES))
        lines.append(f'{key} = "{verifier}"')
    return "\n".join(lines) + "\n"


def read_password(source: TextIO) -> str:
    """The password: asked for twice on a terminal, otherwise the first line.  Raises PasswordError."""
    if source.isatty():
        import getpass

        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise PasswordError("the passwords differ")
    else:
        password = source.readline(PASSWORD_CHARACTERS_MAX + 2).rstrip("\r\n")
    if not password:
        raise PasswordError("the password is empty")
    if len(password) > PASSWORD_CHARACTERS_MAX:
        raise PasswordError(f"the password has more than {PASSWORD_CHARACTERS_MAX} characters")
    return password


def list_users(config: BrokerConfig) -> str:
    """One line for each user: its name and the mechanisms it can log in with."""
    lines = []
    for user in config.users:
        mechanisms = [verifier.partition("$")[0] for verifier in reversed(user.verifiers)]
        lines.append(f"{user.name}\t{' '.join(mechanisms) or 'EXTERNAL'}\n")
    return "".join(lines)
