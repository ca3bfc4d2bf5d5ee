"""SCRAM verifiers: what the configuration keeps instead of a password (RFC 5802, RFC 7677).

    SCRAM-SHA-256$65536:<salt>$<StoredKey>:<ServerKey>         the last three in base64

A verifier proves a password, and a stolen one does not let the thief log in, but guesses can be tried against
it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

import attrs

SCRAM_SHA_1: Final = "SCRAM-SHA-1"  # for old clients; a user has it only where that is asked for
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
HASHES: Final = {SCRAM_SHA_512: "sha512", SCRAM_SHA_256: "sha256", SCRAM_SHA_1: "sha1"}
"""The hash of each mechanism, the strongest first."""
SALT_BYTES: Final = 16
SALT_BYTES_MIN: Final = 12  # scramp refuses shorter ones
SALT_BYTES_MAX: Final = 128  # server-first has to fit a SASL frame of 512 bytes
ITERATIONS: Final = 65_536  # Cyrus clients (proton) refuse to compute more; RFC 7677 asks for at least 4,096
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 10_000_000  # PLAIN pays these at each login


class VerifierError(ValueError):
    """A verifier cannot be read.  The message never shows it."""


class PasswordError(ValueError):
    """A password cannot be used (empty, or with characters that SASLprep forbids)."""


@attrs.frozen(repr=False)
class Verifier:
    """One verifier.  `mechanism` is the SCRAM mechanism it belongs to."""

    mechanism: str
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"<Verifier {self.mechanism} {self.iterations} iterations>"

    def __str__(self) -> str:
        salt, stored, server = (
            base64.b64encode(part).decode("ascii") for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"{self.mechanism}${self.iterations}:{salt}${stored}:{server}"


def prepared_name(name: str) -> str | None:
    """A user's name as SASLprep (RFC 4013) makes it: equal names are equal bytes. None if it is forbidden."""
    from scramp import ScramException
    from scramp.utils import saslprep

    try:
        prepared: str = saslprep(name)
    except ScramException:
        return None
    return prepared or None


def make_verifier(mechanism: str, password: str, iterations: int, salt: bytes) -> Verifier:
    """The verifier of a password; takes as long as `iterations` say.  Raises PasswordError."""
    key = salted_password(mechanism, password, salt, iterations)
    digest = HASHES[mechanism]
    client_key = hmac.digest(key, b"Client Key", digest)
    stored_key = hashlib.new(digest, client_key).digest()
    return Verifier(mechanism, iterations, salt, stored_key, hmac.digest(key, b"Server Key", digest))


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """SaltedPassword of RFC 5802, of the prepared password.  Raises PasswordError."""
    from scramp import ScramException
    from scramp.utils import saslprep

    try:
        prepared = saslprep(password)
    except ScramException as error:
        raise PasswordError(f"the password cannot be used: {error.args[0]}") from None
    if not prepared:
        raise PasswordError("the password is empty")
    return hashlib.pbkdf2_hmac(HASHES[mechanism], prepared.encode("utf-8"), salt, iterations)


def password_matches(verifier: Verifier, password: str) -> bool:
    """Whether this password made the verifier; takes as long for a wrong one."""
    try:
        made = make_verifier(verifier.mechanism, password, verifier.iterations, verifier.salt)
    except PasswordError:
        return False
    return hmac.compare_digest(made.stored_key, verifier.stored_key)


def parse_verifier(text: object) -> Verifier:
    """Read a verifier.  Raises VerifierError."""
    if not isinstance(text, str):
        raise VerifierError(f"a verifier must be a string, but is {type(text).__name__}")
    parts = text.split("$")
    if len(parts) != 3 or parts[1].count(":") != 1 or parts[2].count(":") != 1:
        raise VerifierError("a verifier must read MECHANISM$ITERATIONS:SALT$STOREDKEY:SERVERKEY")
    mechanism = parts[0]
    if mechanism not in HASHES:
        raise VerifierError("a verifier must begin with " + " or ".join(HASHES))
    count, salt_text = parts[1].split(":")
    stored_text, server_text = parts[2].split(":")
    if (
        not (count.isascii() and count.isdigit())
        or len(count) > 8
        or not ITERATIONS_MIN <= int(count) <= ITERATIONS_MAX
    ):
        raise VerifierError(
            f"the iterations of a verifier must be a number from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    salt, stored_key, server_key = (_base64(part) for part in (salt_text, stored_text, server_text))
    if not SALT_BYTES_MIN <= len(salt) <= SALT_BYTES_MAX:
        raise VerifierError(f"the salt of a verifier must have {SALT_BYTES_MIN} to {SALT_BYTES_MAX} bytes")
    size = hashlib.new(HASHES[mechanism]).digest_size
    if len(stored_key) != size or len(server_key) != size:
        raise VerifierError(f"the keys of a verifier of {mechanism} must have {size} bytes")
    return Verifier(mechanism, int(count), salt, stored_key, server_key)


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise VerifierError("salt and keys of a verifier must be base64") from None
