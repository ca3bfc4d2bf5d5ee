"""SASL mechanisms that carry a bearer token: OAUTHBEARER (RFC 7628) and XOAUTH2 (Google's, which was there
before).

    n,a=user,^Ahost=...^Aport=...^Aauth=Bearer TOKEN^A^A        OAUTHBEARER; ^A is the octet 1
    user=NAME^Aauth=Bearer TOKEN^A^A                            XOAUTH2

A token that proves nothing is answered by a challenge that says so, and after the peer's response by the
failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from amqp_broker.authorisation import Principal
from amqp_broker.sasl_mechanisms import Challenge, Failure, Step, Success, split_identity
from amqp_broker.tokens import Holder, KeysUnusable, TokenRefused

OAUTHBEARER: Final = "OAUTHBEARER"
XOAUTH2: Final = "XOAUTH2"
INVALID: Final = b'{"status":"invalid_token"}'
UserOf = Callable[[Holder], Principal | None]
"""Whom the holder of a token is here, or None."""


class Bearer:
    """Both mechanisms: they differ in what stands before the token."""

    slow = True

    def __init__(self, mechanism: str, holder_of: Callable[[str], Holder], user_of: UserOf) -> None:
        self._mechanism = mechanism
        self._holder_of = holder_of
        self._user_of = user_of
        self._challenged = False
        self._failure: Failure | None = None

    def step(self, response: bytes | None) -> Step:
        """Look at the token, or end what failed."""
        if self._failure is not None:
            return self._failure
        if response is None and not self._challenged:
            self._challenged = True
            return Challenge(b"")
        try:
            return self._judged((response or b"").decode("utf-8"))
        except UnicodeDecodeError:
            return Failure(f"{self._mechanism} response is not UTF-8")

    def _judged(self, text: str) -> Step:
        head, *pairs = text.split("\1")
        if pairs[-2:] != ["", ""]:
            return Failure(f"{self._mechanism} response does not end with two octets 1")
        if self._mechanism == XOAUTH2:
            if not head.startswith("user="):
                return Failure("XOAUTH2 response does not begin with user=")
            identity: str | None = head.removeprefix("user=")
        else:
            flag, identity, _ = split_identity(head)
            if flag[:1] not in ("n", "y"):
                return Failure("OAUTHBEARER response has no gs2-header without channel binding")
        values = [pair.partition("=")[2] for pair in pairs if pair.startswith("auth=")]
        kind, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
        if kind.lower() != "bearer" or not token:
            return Failure(f"{self._mechanism} response has no bearer token", identity)
        return self._of(identity, token.strip())

    def _of(self, identity: str | None, token: str) -> Step:
        try:
            holder = self._holder_of(token)
        except (TokenRefused, KeysUnusable) as error:
            return self._refused(str(error), identity)
        principal = self._user_of(holder)
        if principal is None:
            return self._refused("the token is of no configured user", holder.name)
        if identity not in (None, "", holder.name):
            return self._refused("authorisation identity differs from the token's user", holder.name)
        return Success(principal, lasts_s=holder.lasts_s)

    def _refused(self, reason: str, name: str | None) -> Step:
        self._failure = Failure(f"token: {reason}", name)
        return Challenge(INVALID)
