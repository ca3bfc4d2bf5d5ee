"""What a configuration that was read again changes, and what waits for a start: values, without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from amqp_broker.configuration import (
    AccessRule,
    BindingConfig,
    BrokerConfig,
    BrokerLimits,
    ConfigurationError,
    ListenerConfig,
    LoggingConfig,
    QueuePolicy,
    UserConfig,
)
from amqp_broker.reloading.plan import (
    AT_START,
    LIMITS_AT_START,
    LIVE_OF_A_QUEUE,
    Standing,
    planned,
)
from amqp_broker.verifiers import SCRAM_SHA_256, make_verifier

VERIFIER = str(make_verifier(SCRAM_SHA_256, "word", 4_096, bytes(16)))
LIVE = (
    "backup_dir", "listeners", "certificates", "limits", "queue_policies", "users", "access_rules",
    "token_issuers", "logging",
)  # fmt: skip


def standing(name: str, configured: QueuePolicy, copies: bool = False) -> Standing:
    """A queue that is there."""
    return Standing(name, name, copies, configured)


def test_every_key_of_the_file_is_taken_or_waits() -> None:
    """A new one has to say which."""
    assert {field.name for field in attrs.fields(BrokerConfig)} == {*LIVE, *AT_START}
    assert not {*LIVE} & {*AT_START}


def test_what_only_a_start_can_is_said_and_stays() -> None:
    """The rest of the file holds."""
    now = BrokerConfig(data_dir="a", limits=BrokerLimits(max_streams=7, max_connections=8))
    wanted = BrokerConfig(
        data_dir="b", limits=BrokerLimits(max_streams=70, max_connections=80),
        logging=LoggingConfig(level="debug"), container_id="other",
        queue_policies=(QueuePolicy(pattern="q"),), bindings=(BindingConfig(topic="t", queue="q"),),
    )  # fmt: skip
    plan = planned(now, wanted)
    assert plan.waits == (
        "limits.max_streams = 70, was 7",
        'container_id = "other", was "amqp-broker"',
        'data_dir = "b", was "a"',
        "binding: other tables",
    )
    assert plan.changed == (
        "limits.max_connections = 80, was 8", 'queue "q": new', 'logging.level = "debug", was "info"',
    )  # fmt: skip
    limits = attrs.evolve(wanted.limits, max_streams=7)
    assert plan.config == attrs.evolve(
        now, limits=limits, logging=wanted.logging, queue_policies=wanted.queue_policies
    )


def test_the_same_file_changes_nothing() -> None:
    """Also where tables stand in another order."""
    rules = (AccessRule(users=("*",), actions=("connect",)), AccessRule(users=("*",), actions=("send",)))
    policies = (QueuePolicy(pattern="a"), QueuePolicy(pattern="b"))
    now = BrokerConfig(access_rules=rules, queue_policies=policies)
    plan = planned(now, BrokerConfig(access_rules=rules[::-1], queue_policies=policies[::-1]))
    assert (plan.changed, plan.waits, plan.policies) == ((), (), {})


def each_limit() -> Iterator[tuple[str, int]]:
    """Each limit with a value that its neighbours allow, if one can be found by trying."""
    usual = BrokerLimits()
    for field in attrs.fields(BrokerLimits):
        value = getattr(usual, field.name)
        for other in (value + 1, value - 1, value * 2 + 2**30):
            try:
                attrs.evolve(usual, **{field.name: other})
            except ConfigurationError:
                continue
            yield field.name, other
            break
        else:
            raise AssertionError(f"no other value for {field.name}")


@pytest.mark.parametrize(("name", "value"), [*each_limit()])
def test_each_limit_holds_or_waits(name: str, value: int) -> None:
    """And is told, as the one or the other."""
    now = BrokerConfig()
    plan = planned(now, BrokerConfig(limits=BrokerLimits(**{name: value})))
    told = (f"limits.{name} = {value}, was {getattr(now.limits, name)}",)
    if name in LIMITS_AT_START:
        assert (plan.changed, plan.waits, plan.config) == ((), told, now)
    else:
        assert (plan.changed, plan.waits, getattr(plan.config.limits, name)) == (told, (), value)


def test_what_contradicts_what_has_to_stay_is_refused_as_a_whole() -> None:
    """Users for a listener that stays open, to which nobody could log in."""
    now = BrokerConfig(listeners=(ListenerConfig(url="amqp://127.0.0.1:1"),))
    token = ListenerConfig(url="amqp://127.0.0.1:2", anonymous=True)
    user = UserConfig(name="ada")
    with pytest.raises(ConfigurationError, match="what only a start can change is as it was"):
        planned(now, BrokerConfig(listeners=(token,), users=(user,)))


def test_a_reload_never_opens_the_broker() -> None:
    """A file that is empty or cut off has no users any more; only who writes `anonymous` means it."""
    rules = (AccessRule(users=("*",), actions=("connect",)),)
    here = ListenerConfig(url="amqp://127.0.0.1:1")
    now = BrokerConfig(users=(UserConfig(name="ada", scram_sha_256=VERIFIER),), listeners=(here,))
    with pytest.raises(ConfigurationError, match="only a start can open the broker to everybody"):
        planned(now, BrokerConfig())
    with pytest.raises(ConfigurationError, match="must say anonymous = true"):
        planned(now, BrokerConfig(access_rules=rules, listeners=(here,)))
    meant = BrokerConfig(access_rules=rules, listeners=(attrs.evolve(here, anonymous=True),))
    assert planned(now, meant).config.users == ()
    assert planned(BrokerConfig(), BrokerConfig()).config.open_access


def test_doubled_rules_that_go_are_told() -> None:
    """As many as there were."""
    one, other = (AccessRule(users=("*",), actions=(action,)) for action in ("connect", "transact"))
    now, wanted = (BrokerConfig(access_rules=rules) for rules in ((one, one, other), (one, other, other)))
    assert planned(now, wanted).changed == ("access: 1 new, 1 gone",)


def test_listeners_are_known_by_their_urls() -> None:
    """What is said of one that is open holds; new ones, and those that are gone, wait."""
    one, two = (ListenerConfig(url=f"amqp://127.0.0.1:{port}") for port in (1, 2))
    now = BrokerConfig(listeners=(one, two))
    told = ListenerConfig(url=two.url, anonymous=True, backlog_sockets=7)
    plan = planned(now, BrokerConfig(listeners=(ListenerConfig(url="amqp://127.0.0.1:3"), told)))
    assert plan.config.listeners == (one, ListenerConfig(url=two.url, anonymous=True))
    assert plan.changed == ("listener[1].anonymous = true, was None",)
    assert plan.waits == (
        "listener amqp://127.0.0.1:1: gone",
        "listener[1].backlog_sockets = 7, was 1024",
        "listener amqp://127.0.0.1:3: new",
    )


def test_a_secret_is_never_told() -> None:
    """Of a verifier only that it is another one."""
    one, other = (str(make_verifier(SCRAM_SHA_256, word, 4_096, bytes(16))) for word in ("one", "other"))
    plan = planned(
        BrokerConfig(users=(UserConfig(name="ada", scram_sha_256=one), UserConfig(name="bob"))),
        BrokerConfig(users=(UserConfig(name="ada", scram_sha_256=other), UserConfig(name="eve"))),
    )
    assert plan.changed == (
        'user "ada": scram_sha_256 is another one', 'user "eve": new', 'user "bob": gone'
    )  # fmt: skip


def test_what_a_queue_is_waits_and_what_bounds_it_holds() -> None:
    """For the queues that are there; new ones are as the file says."""
    before = QueuePolicy(pattern="q.*")
    after = QueuePolicy(pattern="q.*", max_messages=5, exclusive=True)
    now, wanted = (BrokerConfig(queue_policies=(each,)) for each in (before, after))
    there = [standing("q.a", before), standing("q.b", before), standing("other", QueuePolicy(pattern="**"))]
    plan = planned(now, wanted, there)
    assert plan.policies == {name: attrs.evolve(before, max_messages=5) for name in ("q.a", "q.b")}
    assert plan.waits == ('queue "q.*": exclusive = true, of queues that are there (2)',)
    assert plan.config.queue_policies == (after,)


@pytest.mark.parametrize("field", [field.name for field in attrs.fields(QueuePolicy)])
def test_each_key_of_a_queue_is_live_or_decides_what_it_is(field: str) -> None:
    """What is compared is every key but the two that say which queues are meant."""
    others: dict[str, Any] = {
        "pattern": "q", "create": "strict", "kind": "topic", "message_type": "normal", "sequence": "off",
        "dead_letter_address": "dead-letters", "expiry_address": "dead-letters", "last_value_key": "k",
        "max_messages": 10, "ring_messages": 5,
    }  # fmt: skip
    usual = QueuePolicy(pattern="q")
    value = getattr(usual, field)
    if field in others:
        value = others[field]
    else:
        value = not value if isinstance(value, bool) else value + 1
    more: dict[str, Any] = {}
    if field in ("last_value_key", "ring_messages", "ring_bytes"):
        more = {"message_type": "normal"} | ({"max_messages": 10} if field == "last_value_key" else {})
    policy = attrs.evolve(usual, **{**more, field: value})
    plan = planned(BrokerConfig(), BrokerConfig(queue_policies=(policy,)), [standing("q", usual)])
    live = {name: getattr(policy, name) for name in LIVE_OF_A_QUEUE}
    wanted = attrs.evolve(usual, **live)
    assert plan.policies == ({} if wanted == usual else {"q": wanted})
    key = {"order_debounce_ms": "ack_debounce_ms", "order_max_delay_ms": "ack_max_delay_ms"}.get(field, field)
    told = any(f": {key} = " in line for line in plan.waits)
    assert told == (field not in (*LIVE_OF_A_QUEUE, "pattern", "create"))


def test_dead_letters_go_to_queues_that_were_made_for_them() -> None:
    """A policy with another address waits as a whole; what ran for its pattern goes on."""
    before = QueuePolicy(pattern="q", max_messages=1)
    now = BrokerConfig(queue_policies=(before,))
    after = QueuePolicy(pattern="q", max_messages=2, dead_letter_address="elsewhere")
    plan = planned(now, BrokerConfig(queue_policies=(after,)), [standing("q", before)])
    assert (plan.config, plan.policies, plan.changed) == (now, {}, ())
    assert plan.waits == ('queue "q": its dead letters go to a queue that gets none yet: elsewhere',)


def test_what_a_queue_cannot_have_is_said() -> None:
    """A log has no bounds, and stays one until the next start."""
    before = QueuePolicy(pattern="q", kind="log", retention_ms=1_000)
    after = QueuePolicy(pattern="q", max_messages=5)
    now, wanted = (BrokerConfig(queue_policies=(each,)) for each in (before, after))
    plan = planned(now, wanted, [standing("q", before)])
    assert plan.policies == {}
    assert any("max_messages = 5" in line and "a log takes every message" in line for line in plan.waits)


def test_a_subscription_has_the_policy_of_its_topic() -> None:
    """Of a name that is no topic any more it has none."""
    topic = QueuePolicy(pattern="news", kind="topic", max_messages=3)
    now = BrokerConfig(queue_policies=(topic,))
    there = [Standing("$subscription/1", "news", True, topic)]
    more = attrs.evolve(topic, max_messages=4)
    assert planned(now, BrokerConfig(queue_policies=(more,)), there).policies == {there[0].name: more}
    assert planned(now, BrokerConfig(), there).policies == {
        there[0].name: attrs.evolve(topic, max_messages=0)
    }
