"""Bearer tokens as proof of who somebody is: JWTs of the configured issuers (RFC 7519), checked by PyJWT.

    token --> issuer (iss) --> its key (kid) --> signature, exp, aud, iss --> Holder: name, roles, how long

Keys come from a file, which is read again when it has changed, or from a URL: fetched when they are needed
for the first time, when they are JWKS_FRESH_S old, and when a token names a key that is not there, never
again within JWKS_AGAIN_S. Everything here may take time, and runs in a worker thread.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
import urllib.request
from typing import Any, Final

import attrs
import jwt

from amqp_broker.configuration import TokenIssuerConfig, is_user_name

JWKS_BYTES_MAX: Final = 1_048_576  # hundreds of keys; an issuer has a few
JWKS_KEYS_MAX: Final = 256
JWKS_TIMEOUT_S: Final = 5.0  # in all, and for each read: a login has limits.login_timeout_ms
JWKS_FRESH_S: Final = 600.0  # a key that its issuer has taken back is trusted for no longer
JWKS_AGAIN_S: Final = 10.0  # strangers name keys that don't exist: what they cause is bounded
JWKS_STALE_S: Final = 86_400.0  # while its URL does not answer, what was fetched holds for so long
READ_BYTES: Final = 65_536
ROLES_MAX: Final = 256  # of one token


class TokenRefused(Exception):
    """The token proves nothing here. The message is for the log, and shows nothing of the token."""


class KeysUnusable(Exception):
    """An issuer's keys cannot be had; the message names the file or URL, and why."""


@attrs.frozen
class Holder:
    """Whom a token proves: the name, its roles, and for how many seconds from now. `any_user`: its issuer
    proves users whom the broker does not know otherwise.
    """

    name: str
    roles: tuple[str, ...]
    lasts_s: float
    any_user: bool


class Issuer:
    """One `[[token_issuer]]` with its keys."""

    def __init__(self, config: TokenIssuerConfig) -> None:
        self.config = config
        self._lock = threading.Lock()
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._version: object = None  # of the file
        self._fetched_at = self._tried_at = float("-inf")

    def load(self) -> None:
        """Read the keys of a file. Raises KeysUnusable. Those of a URL are fetched with the first token: the
        issuer may start later than the broker.
        """
        if self.config.jwks_file is not None:
            self._read_file(self.config.jwks_file)

    def key(self, key_id: str | None) -> jwt.PyJWK:
        """The key of this name, or the only one. Raises TokenRefused, KeysUnusable."""
        if self.config.jwks_file is not None:
            self._read_file(self.config.jwks_file)
        else:
            self._refresh(key_id)
        found = self._find(key_id)
        if found is None:
            raise TokenRefused(f"a key that {self.config.issuer} does not have, of {len(self._keys)}")
        return found

    def _find(self, key_id: str | None) -> jwt.PyJWK | None:
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    def _read_file(self, path: str) -> None:
        try:
            status = os.stat(path)
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            if version == self._version:
                return
            with open(path, "rb") as stream:
                data = stream.read(JWKS_BYTES_MAX + 1)
            self._keys = self._keys_in(data, path)
        except OSError as error:
            raise KeysUnusable(f"{path}: cannot be read: {error.strerror or error}") from None
        self._version = version

    def _refresh(self, key_id: str | None) -> None:
        """Fetch the keys where that is due. One thread at a time does so; who needs what it fetches waits."""
        if self._find(key_id) is not None and time.monotonic() - self._fetched_at < JWKS_FRESH_S:
            return
        with self._lock:
            now = time.monotonic()
            due = now - self._fetched_at >= JWKS_FRESH_S or self._find(key_id) is None
            if not due or now - self._tried_at < JWKS_AGAIN_S:
                return
            self._tried_at = now
            assert self.config.jwks_url is not None, "there is a file or a URL"
            try:
                self._keys = self._keys_in(fetched(self.config.jwks_url), self.config.jwks_url)
                self._fetched_at = now
            except (OSError, ValueError, http.client.HTTPException, KeysUnusable) as error:
                if now - self._fetched_at >= JWKS_STALE_S:
                    self._keys = {}
                    raise KeysUnusable(f"{self.config.jwks_url}: cannot be fetched: {error}") from None

    def _keys_in(self, data: bytes, where: str) -> dict[str | None, jwt.PyJWK]:
        """By their names; those of algorithms that are not taken are left out. Raises KeysUnusable."""
        if len(data) > JWKS_BYTES_MAX:
            raise KeysUnusable(f"{where}: has more than {JWKS_BYTES_MAX} bytes")
        try:
            keys = jwt.PyJWKSet.from_dict(json.loads(data)).keys
        except (ValueError, AttributeError, TypeError, jwt.PyJWTError) as error:
            raise KeysUnusable(f"{where}: is no JWKS: {error}") from None
        if len(keys) > JWKS_KEYS_MAX:
            raise KeysUnusable(f"{where}: has {len(keys)} keys, more than {JWKS_KEYS_MAX}")
        return {key.key_id: key for key in keys if key.algorithm_name in self.config.algorithms}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The keys come from where the configuration says, and from nowhere else."""

    def redirect_request(self, *args: Any, **named: Any) -> None:
        """Follow none."""


def fetched(url: str) -> bytes:
    """What stands there, JWKS_BYTES_MAX and one more at most, within JWKS_TIMEOUT_S and one read. Raises
    OSError.
    """
    until = time.monotonic() + JWKS_TIMEOUT_S
    data = b""
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(url, timeout=JWKS_TIMEOUT_S) as answer:
        while len(data) <= JWKS_BYTES_MAX:
            part = answer.read1(READ_BYTES)
            if not part:
                return data
            data += part
            if time.monotonic() > until:
                raise TimeoutError(f"no answer within {JWKS_TIMEOUT_S:g} s")
    return data


class Tokens:
    """All issuers: `holder(token)`."""

    def __init__(self, configs: tuple[TokenIssuerConfig, ...]) -> None:
        self._issuers = {config.issuer: Issuer(config) for config in configs}

    def load(self) -> None:
        """Read what is in files. Raises KeysUnusable."""
        for issuer in self._issuers.values():
            issuer.load()

    def holder(self, token: str) -> Holder:
        """Whom it proves. Raises TokenRefused, KeysUnusable."""
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
            claimed = jwt.decode(token, options={"verify_signature": False}).get("iss")
            issuer = self._issuers.get(claimed) if isinstance(claimed, str) else None
            if issuer is None:
                raise TokenRefused("an issuer that is not configured")
            config = issuer.config
            claims = jwt.decode(
                token, issuer.key(key_id), algorithms=list(config.algorithms), audience=config.audience,
                issuer=config.issuer, leeway=config.leeway_s, options={"require": ["exp", "iss", "aud"]},
            )  # fmt: skip
            return _holder(config, claims)
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise TokenRefused(f"{type(error).__name__}: {error}") from None


def _holder(config: TokenIssuerConfig, claims: dict[str, Any]) -> Holder:
    name = claims.get(config.user_claim)
    if not is_user_name(name):
        raise TokenRefused(f"expected a user's name in the claim {config.user_claim}")
    lasts_s = claims["exp"] + config.leeway_s - time.time()
    return Holder(str(name), _roles(config, claims), lasts_s, config.any_user)


def _roles(config: TokenIssuerConfig, claims: dict[str, Any]) -> tuple[str, ...]:
    """A list of strings, or one string of words as in `scope` (RFC 8693, section 4.2)."""
    if config.roles_claim is None:
        return ()
    told = claims.get(config.roles_claim, ())
    roles = told.split() if isinstance(told, str) else told
    if not isinstance(roles, list | tuple) or len(roles) > ROLES_MAX:
        raise TokenRefused(f"expected at most {ROLES_MAX} roles in the claim {config.roles_claim}")
    return tuple(role for role in roles if isinstance(role, str))
