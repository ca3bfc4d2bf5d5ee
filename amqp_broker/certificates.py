"""Whose a client certificate is: rules on its subject and its subject alternative names.

    CN=shop,O=Example              both stand in the subject
    DNS=*.shops.example.org        an alternative name; `*` is a run without `.`, `/` and `@`
    URI=spiffe://example.org/shop

All parts of a rule have to hold, in any order. A comma, backslash or `*` that is meant as such has a
backslash before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

Certificate = Mapping[str, Any]
"""What `ssl.SSLSocket.getpeercert()` gives of a certificate that TLS has verified."""

SUBJECT: Final = {
    "CN": "commonName", "O": "organizationName", "OU": "organizationalUnitName", "C": "countryName",
    "ST": "stateOrProvinceName", "L": "localityName", "DC": "domainComponent", "UID": "userId",
    "serialNumber": "serialNumber",
}  # fmt: skip
"""The attributes of a subject by their short names (RFC 4514)."""
ALTERNATIVES: Final = {"DNS": "DNS", "URI": "URI", "email": "email", "IP": "IP Address"}
RULE_BYTES_MAX: Final = 1_024
_PART: Final = re.compile(r"((?:[^,\\]|\\.)*)(?:,|\Z)", re.DOTALL)
_RUN: Final = "[^./@]+"

Rule = tuple[tuple[str, re.Pattern[str]], ...]


@cache
def parse_rule(text: str) -> Rule:
    """What has to stand in a certificate: names as `ssl` calls them, and what matches there. Raises
    ValueError.
    """
    parts = []
    end = 0
    more = True
    while more:
        found = _PART.match(text, end)
        if found is None:
            raise ValueError("expected something behind the backslash, found the end")
        kind, equals, value = found[1].strip().partition("=")
        name = SUBJECT.get(kind) or ALTERNATIVES.get(kind)
        if not equals or name is None or not value:
            known = ", ".join([*SUBJECT, *ALTERNATIVES])
            raise ValueError(f"expected NAME=VALUE with a NAME of {known}, found {found[1]!r:.80}")
        parts.append((name, re.compile(_pattern(value))))
        end = found.end()
        more = end > found.end(1)  # there is a comma
    return tuple(parts)


def _pattern(value: str) -> str:
    pieces = re.findall(r"\\.|.", value, re.DOTALL)
    return "".join(_RUN if piece == "*" else re.escape(piece[-1]) for piece in pieces)


def holds(rule: Rule, certificate: Certificate) -> bool:
    """Whether all parts of the rule stand in the certificate."""
    names = [*_subject(certificate), *certificate.get("subjectAltName", ())]
    return all(
        any(name == wanted and pattern.fullmatch(value) for name, value in names) for wanted, pattern in rule
    )


def _subject(certificate: Certificate) -> list[tuple[str, str]]:
    return [pair for part in certificate.get("subject", ()) for pair in part]


def certificate_name(certificate: Certificate | None) -> str | None:
    """The common name of a certificate, or None. More than one proves nothing, and is None."""
    names = [value for key, value in _subject(certificate or {}) if key == "commonName"]
    return names[0] if len(names) == 1 and names[0] and names[0].isprintable() else None


def owners(certificate: Certificate | None, users: Iterable[tuple[str, tuple[str, ...]]]) -> list[str]:
    """The names of the users, given with their rules, whose certificate this is. A user without rules has the
    certificate whose single common name is the user's. One certificate of several is nobody's: ask for one.
    """
    if not certificate:
        return []
    single = certificate_name(certificate)
    return [
        name
        for name, rules in users
        if (any(holds(parse_rule(rule), certificate) for rule in rules) if rules else name == single)
    ]
