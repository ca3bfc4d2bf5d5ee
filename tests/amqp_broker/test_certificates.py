"""Whose a client certificate is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.certificates import certificate_name, holds, owners, parse_rule
from amqp_broker.configuration import ConfigurationError, UserConfig

SHOP = {
    "subject": (
        (("countryName", "DE"),),
        (("organizationName", "Example, Inc."),),
        (("commonName", "shop-7"),),
    ),
    "subjectAltName": (("DNS", "shop-7.shops.example.org"), ("URI", "spiffe://example.org/shop")),
}


@pytest.mark.parametrize(
    "rule",
    [
        "CN=shop-7",
        "CN=shop-*",
        "CN=*",
        "O=Example\\, Inc.",
        "CN=shop-7,O=Example\\, Inc.,C=DE",
        "C=DE, CN=shop-7",
        "DNS=*.shops.example.org",
        "DNS=shop-7.*.example.org,CN=shop-*",
        "URI=spiffe://example.org/*",
    ],
)
def test_a_rule_holds_when_all_its_parts_stand_in_the_certificate(rule: str) -> None:
    """Subject and alternative names, in any order; `*` is a run within one label or segment."""
    assert holds(parse_rule(rule), SHOP)


@pytest.mark.parametrize(
    "rule",
    [
        "CN=shop",
        "CN=shop-70",
        "CN=SHOP-7",
        "CN=shop-\\*",
        "CN=shop-7,C=FR",
        "O=Example",
        "DNS=*.example.org",
        "DNS=*",
        "URI=spiffe://*",
        "email=shop-7",
        "OU=shop-7",
        "CN=shop-7.shops.example.org",
        "CN=.*",
    ],
)
def test_anything_else_does_not(rule: str) -> None:
    """No part of a name, no other field, no other case, and nothing of a regular expression."""
    assert not holds(parse_rule(rule), SHOP)


@pytest.mark.parametrize(
    "rule", ["", "shop", "CN", "CN=", "=x", "XX=a", "CN=a,", ",CN=a", "CN=a,,O=b", "CN=a\\"]
)
def test_a_rule_that_is_none_is_told(rule: str) -> None:
    """Also by the configuration, which names the field."""
    with pytest.raises(ValueError):
        parse_rule(rule)
    with pytest.raises(ConfigurationError, match=r"certificates\[0\]"):
        UserConfig(name="shop", certificates=(rule,))


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_rule_that_says_a_name_holds_for_that_name_only(name: str, other: str) -> None:
    """Whatever the name is made of, once it is escaped."""
    escaped = "".join("\\" + letter if letter in ",\\*" else letter for letter in name)
    if not name or name != name.strip():
        return
    rule = parse_rule(f"CN={escaped}")
    assert holds(rule, {"subject": ((("commonName", name),),)})
    assert holds(rule, {"subject": ((("commonName", other),),)}) is (name == other)


def test_each_certificate_has_the_owners_that_its_rules_give() -> None:
    """A user with rules has no certificate by its name alone; two users of one certificate are two."""
    users = [("shop-7", ()), ("till", ("CN=shop-*",)), ("bank", ("O=Bank",)), ("DE", ())]
    assert owners(SHOP, users) == ["shop-7", "till"]
    assert owners(SHOP, [("shop-7", ("CN=shop-8",))]) == []
    assert owners(None, users) == owners({}, users) == []


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        (None, None),
        ({}, None),
        ({"subject": ((("commonName", "ada"),),)}, "ada"),
        ({"subject": ((("commonName", "ada"),), (("commonName", "root"),))}, None),
        ({"subject": ((("organizationName", "ada"),),)}, None),
        ({"subject": ((("commonName", ""),),)}, None),
        ({"subject": ((("commonName", "a\nb"),),)}, None),
    ],
)
def test_only_a_single_common_name_counts(certificate: dict[str, object] | None, name: str | None) -> None:
    """Several prove nothing."""
    assert certificate_name(certificate) == name
