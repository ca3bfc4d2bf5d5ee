"""Who may do what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.addresses import NodePattern, parse_address, parse_pattern
from amqp_broker.authorisation import (
    ACTIONS,
    ACTIONS_WITHOUT_NODE,
    ANONYMOUS,
    CONNECT,
    OWNER,
    PURGE,
    RECEIVE,
    SEND,
    Authoriser,
    Principal,
)
from amqp_broker.configuration import AccessRule

ADA = Principal("ada", "PLAIN")
ORDERS = parse_address("orders.new")
NODES = ["a", "a.b", "a.b.c", "b", "$management"]
PARSED = [parse_address(name) for name in NODES]
PATTERNS = ["a", "a.b", "a.*", "a.**", "*", "**", "$management"]

rules = st.lists(
    st.builds(
        AccessRule,
        users=st.lists(st.sampled_from(["ada", "bob", "*", "anonymous"]), min_size=1, max_size=2).map(tuple),
        actions=st.lists(st.sampled_from([SEND, RECEIVE, CONNECT]), min_size=1, max_size=2).map(tuple),
        nodes=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2).map(tuple),
    ),
    max_size=4,
)


def test_without_users_and_rules_everything_is_allowed() -> None:
    """A development broker is open to whom its listeners let in."""
    authoriser = Authoriser()
    for action in ACTIONS:
        assert authoriser.authorise(ANONYMOUS, action, ORDERS)


def test_with_users_everything_is_denied_by_default() -> None:
    """No rule, no right; not even to connect."""
    authoriser = Authoriser(users_configured=True)
    for action in ACTIONS:
        assert not authoriser.authorise(ADA, action, ORDERS)
        assert not authoriser.authorise(ANONYMOUS, action, ORDERS)


def test_rules_without_users_close_the_broker_as_well() -> None:
    """A rule for the anonymous allows what it says and nothing else."""
    authoriser = Authoriser([AccessRule(users=("anonymous",), actions=(SEND,), nodes=("orders.*",))])
    assert authoriser.authorise(ANONYMOUS, SEND, ORDERS)
    assert not authoriser.authorise(ANONYMOUS, RECEIVE, ORDERS)
    assert not authoriser.authorise(ADA, SEND, ORDERS)


def test_a_user_who_calls_himself_anonymous_is_not() -> None:
    """The anonymous rules are for connections that proved nothing, whatever a certificate says."""
    authoriser = Authoriser([AccessRule(users=("ada",), actions=(SEND,))])
    assert authoriser.authorise(Principal("ada", "EXTERNAL"), SEND, ORDERS)
    assert not authoriser.authorise(Principal("ada", "ANONYMOUS"), SEND, ORDERS)


def test_the_brokers_own_nodes_need_to_be_named() -> None:
    """`**` does not open `$management`."""
    authoriser = Authoriser([AccessRule(users=("ada",), actions=(SEND,), nodes=("**",))])
    assert not authoriser.authorise(ADA, SEND, parse_address("$management"))


def test_an_unknown_action_is_a_bug() -> None:
    """A mistyped action never silently denies or allows."""
    with pytest.raises(AssertionError):
        Authoriser().authorise(ADA, "sned", ORDERS)


@given(
    rules,
    st.sampled_from(["ada", "bob", "carl"]),
    st.sampled_from([SEND, RECEIVE, CONNECT]),
    st.sampled_from(NODES),
)
def test_a_right_is_there_exactly_when_a_rule_gives_it(
    rules: list[AccessRule], user: str, action: str, node: str
) -> None:
    """Prepared rules answer as reading them one by one does."""
    authoriser = Authoriser(rules, users_configured=True)
    whole = action in ACTIONS_WITHOUT_NODE
    expected = any(
        (user in rule.users or "*" in rule.users)
        and action in rule.actions
        and (whole or any(parse_pattern(pattern).matches(node) for pattern in rule.nodes))
        for rule in rules
    )
    address = None if whole else parse_address(node)
    assert authoriser.authorise(Principal(user, "PLAIN"), action, address) is expected


def test_only_the_owner_itself_may_do_everything() -> None:
    """Nobody becomes the owner by a name, also not by that of its mechanism."""
    authoriser = Authoriser(users_configured=True)
    assert authoriser.authorise(OWNER, PURGE, parse_address("orders"))
    for other in (Principal("owner", "PLAIN"), Principal(OWNER.name, OWNER.mechanism)):
        assert not authoriser.authorise(other, PURGE, parse_address("orders"))


@given(rules, rules, st.sampled_from([ADA, ANONYMOUS]))
def test_what_takes_nothing_takes_nothing(
    before: list[AccessRule], after: list[AccessRule], who: Principal
) -> None:
    """Where it says so, all that was allowed still is; the same rules take nothing."""
    one, other = (Authoriser(each, users_configured=True) for each in (before, after))
    assert not one.takes_from(one, who, who)
    if not other.takes_from(one, who, who):
        asked = [(CONNECT, None), *((action, node) for action in (SEND, RECEIVE) for node in PARSED)]
        assert [each for each in asked if one.authorise(who, *each) and not other.authorise(who, *each)] == []


def test_the_same_patterns_are_not_compared_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user may have hundreds of them, and a reload asks for each user; nor are those that stay."""
    compared: list[NodePattern] = []

    def includes(pattern: NodePattern, other: NodePattern) -> bool:
        compared.append(other)
        return False

    monkeypatch.setattr(NodePattern, "includes", includes)
    nodes = tuple(f"orders.{at}" for at in range(200))

    def of(*nodes: str) -> Authoriser:
        rule = AccessRule(users=("ada",), actions=(SEND, CONNECT), nodes=nodes)
        return Authoriser([rule], users_configured=True)

    assert not of(*nodes, "more").takes_from(of(*nodes), ADA, ADA) and compared == []
    assert of(*nodes[1:]).takes_from(of(*nodes), ADA, ADA)
    assert {pattern.text for pattern in compared} == {"orders.0"}


def test_what_is_taken_is_found() -> None:
    """An action, a node, a role, and that everything was allowed; more of anything takes nothing."""

    def of(*nodes: str, actions: tuple[str, ...] = (SEND, CONNECT), **who: tuple[str, ...]) -> Authoriser:
        rule = AccessRule(actions=actions, nodes=nodes, **(who or {"users": ("ada",)}))
        return Authoriser([rule], users_configured=True)

    before = of("orders.*")
    assert before.takes_from(of("orders.**"), ADA, ADA)
    assert not of("orders.**").takes_from(before, ADA, ADA)
    assert of("orders.*", actions=(SEND,)).takes_from(before, ADA, ADA)
    assert not of("orders.*", actions=(SEND, CONNECT, PURGE)).takes_from(before, ADA, ADA)
    assert before.takes_from(Authoriser(), ADA, ADA)
    assert not Authoriser().takes_from(before, ADA, ADA)
    with_role = Principal("ada", "PLAIN", ("writer",))
    by_role = of("orders.*", roles=("writer",))
    assert not by_role.takes_from(before, ADA, with_role)
    assert by_role.takes_from(by_role, with_role, ADA)
