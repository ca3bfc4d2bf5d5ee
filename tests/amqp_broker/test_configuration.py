"""The configuration: what a file may say, how an error about it reads; limits and their neighbours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker import configuration_limits
from amqp_broker.configuration import (
    AT_START,
    ON_FIRST_USE,
    STRICT,
    AccessRule,
    BrokerConfig,
    BrokerLimits,
    ConfigurationError,
    HalfGroupConfig,
    ListenerConfig,
    LoggingConfig,
    QueuePolicy,
    UserConfig,
    load_configuration,
    parse_configuration,
)
from amqp_broker.configuration_fields import MEANING, Allowed
from amqp_broker.configuration_limits import RELATIONS
from amqp_broker.verifiers import SCRAM_SHA_256, make_verifier

VERIFIER = str(make_verifier(SCRAM_SHA_256, "word", 4_096, bytes(16)))

COMPLETE = f"""
container_id = "broker-1"
data_dir = "data"
allow_unsafe_sqlite = false

[[listener]]
url = "amqp://127.0.0.1:0"
anonymous = false
plain_without_tls = true

[[listener]]
url = "amqps://[::1]:5671"
certificate_file = "server.pem"
key_file = "/keys/server.key"
client_ca_file = "ca.pem"
require_client_certificate = true

[limits]
max_frame_size_bytes = 32768
idle_time_out_ms = 10000

[[queue]]
pattern = "orders"
create = "at-start"
max_messages = 10

[[queue]]
pattern = "jobs.**"
create = "strict"

[[user]]
name = "ada"
scram_sha_256 = "{VERIFIER}"

[[access]]
users = ["ada"]
actions = ["connect", "send"]
nodes = ["jobs.*"]

[logging]
level = "debug"
format = "json"
"""


def test_a_complete_file_is_read_into_its_classes() -> None:
    """Every table and every kind of value arrives where it belongs."""
    config = parse_configuration(COMPLETE, "/etc/broker")
    assert config.container_id == "broker-1"
    assert config.data_dir == "/etc/broker/data"
    assert [listener.url for listener in config.listeners] == ["amqp://127.0.0.1:0", "amqps://[::1]:5671"]
    assert config.listeners[1].certificate_file == "/etc/broker/server.pem"
    assert config.listeners[1].key_file == "/keys/server.key"
    assert config.limits.max_frame_size_bytes == 32_768
    assert config.queues_at_start() == ("orders",)
    assert config.users[0].name == "ada"
    assert config.access_rules == (
        AccessRule(users=("ada",), actions=("connect", "send"), nodes=("jobs.*",)),
    )
    assert (config.logging.level, config.logging.format) == ("debug", "json")


def test_an_empty_file_is_a_development_broker() -> None:
    """Loopback, anonymous, on disk, queues on first use."""
    config = parse_configuration("")
    assert config == attrs.evolve(BrokerConfig(), data_dir=config.data_dir)
    assert config.listeners[0].url == "amqp://127.0.0.1:5672"
    assert config.anonymous_allowed(config.listeners[0])
    assert config.policy_of("anything").create == ON_FIRST_USE


WRONG = [
    ("colour = 1", "colour", None),
    ("container_id = 7", "container_id", "7"),
    ('container_id = ""', "container_id", '""'),
    ("memory = 1", "memory", "1"),
    ("listener = 3", "listener", "3"),
    ('[[listener]]\nurl = "http://x"', "listener[0].url", '"http://x"'),
    ('[[listener]]\nurl = "amqp://127.0.0.1:70000"', "listener[0].url", '"amqp://127.0.0.1:70000"'),
    ('[[listener]]\nurl = "amqp://h/path"', "listener[0].url", '"amqp://h/path"'),
    ('[[listener]]\nurl = "amqp://u:p@h"', "listener[0].url", '"amqp://u:p@h"'),
    ('[[listener]]\nurl = "amqp://127.0.0.1:"', "listener[0].url", '"amqp://127.0.0.1:"'),
    ('[[listener]]\nurl = "amqps://h:1"\nkey_file = "k"', "listener[0].certificate_file", None),
    ('[[listener]]\nurl = "amqps://h:1"\ncertificate_file = "c"', "listener[0].key_file", None),
    ('[[listener]]\nkey_file = "k"', "listener[0].certificate_file", None),
    ('[[listener]]\nurl = "wss://h:1"\nkey_file = "k"', "listener[0].certificate_file", None),
    ('[[listener]]\norigins = ["https://a"]', "listener[0].origins", "['https://a']"),
    ('[[listener]]\nurl = "ws://127.0.0.1:0"\norigins = ["https://a/"]', "listener[0].origins[0]", '"https://a/"'),
    ('[[certificate]]\nserver_names = ["a b"]\ncertificate_file = "c"\nkey_file = "k"',
     "certificate[0].server_names[0]", '"a b"'),
    ('[[user]]\nname = "a"\nroles = ["till"]\n[[listener]]\nanonymous = true', "user[0].roles[0]", '"till"'),
    ('[[access]]\nactions = ["send"]', "access[0].users", None),
    ('[[token_issuer]]\nissuer = "i"\naudience = "a"\njwks_file = "f"\nalgorithms = ["HS256"]',
     "token_issuer[0].algorithms[0]", '"HS256"'),
    ('[[token_issuer]]\nissuer = "i"\naudience = "a"', "token_issuer[0].jwks_file", None),
    ('[[token_issuer]]\nissuer = "i"\njwks_file = "f"', "token_issuer[0].audience", None),
    ("[[listener]]\nrequire_client_certificate = true", "listener[0].require_client_certificate", "true"),
    (
        '[[listener]]\nurl = "amqp://192.0.2.1:1"\nplain_without_tls = true',
        "listener[0].plain_without_tls",
        "true",
    ),
    ("[[listener]]\n[[listener]]\nbacklog_sockets = 0", "listener[1].backlog_sockets", "0"),
    ("[limits]\nmax_frame_size_bytes = 511", "limits.max_frame_size_bytes", "511"),
    ('[limits]\nmax_frame_size_bytes = "64K"', "limits.max_frame_size_bytes", '"64K"'),
    ("[limits]\nmax_frame_size_bytes = true", "limits.max_frame_size_bytes", "true"),
    ("[limits]\nmax_sessions = true", "limits.max_sessions", "true"),
    ("[limits]\nmax_frame_size_bytes = 1e5", "limits.max_frame_size_bytes", "100000.0"),
    ("[limits]\nmax_frame_size = 1", "limits.max_frame_size", None),
    ("[limits]\nheader_timeout_ms = 20000", "limits.header_timeout_ms", "20000"),
    ("limits = []", "limits", "[]"),
    ("[[queue]]", "queue[0].pattern", None),
    ('[[queue]]\npattern = "a*"', "queue[0].pattern", '"a*"'),
    ('[[queue]]\npattern = "a"\ncreate = "never"', "queue[0].create", '"never"'),
    ('[[queue]]\npattern = "a.*"\ncreate = "at-start"', "queue[0].create", '"at-start"'),
    ('[[queue]]\npattern = "$a"\ncreate = "at-start"', "queue[0].pattern", '"$a"'),
    ('[[queue]]\npattern = "temporary.a"\ncreate = "at-start"', "queue[0].pattern", '"temporary.a"'),
    ('[[queue]]\npattern = "a"\nmax_messages = -1', "queue[0].max_messages", "-1"),
    ('[[queue]]\npattern = "a"\n[[queue]]\npattern = "a"', "queue[1].pattern", '"a"'),
    ('[[user]]\nname = "anonymous"', "user[0].name", '"anonymous"'),
    ('[[listener]]\nanonymous = true\n' + 2 * '[[user]]\nname = "a"\n', "user[1].name", '"a"'),
    ('[[user]]\nname = "a"\npassword = "geheim"', "user[0].password", None),
    ('[[access]]\nusers = ["x"]\nactions = ["send"]', "access[0].users[0]", '"x"'),
    (
        '[[listener]]\nurl = "amqps://h:1"\ncertificate_file = "c"\nkey_file = "k"\nclient_ca_file = "a"\n'
        'anonymous = true\n[[access]]\nusers = ["x"]\nactions = ["send"]',
        "access[0].users[0]",
        '"x"',
    ),
    (
        '[[listener]]\nurl = "amqps://h:1"\ncertificate_file = "c"\nkey_file = "k"\nclient_ca_file = "a"',
        "listener[0].anonymous",
        None,
    ),
    ('[[access]]\nusers = "x"\nactions = ["send"]', "access[0].users", '"x"'),
    ('[[access]]\nusers = ["*"]\nactions = ["send", "shout"]', "access[0].actions[1]", '"shout"'),
    ('[[access]]\nusers = ["*"]\nactions = []', "access[0].actions", "[]"),
    ('[[access]]\nusers = ["*"]\nactions = ["send"]\nnodes = ["a.*.b"]', "access[0].nodes[0]", '"a.*.b"'),
    ('[[listener]]\nurl = "amqp://0.0.0.0:5672"', "listener[0].anonymous", None),
    ("[[listener]]\nanonymous = false", "listener[0].anonymous", None),
    ('[[user]]\nname = "\ufb01le"', "user[0].name", '"\\ufb01le"'),
    ('[logging]\nlevel = "loud"', "logging.level", '"loud"'),
    ('[[queue]]\npattern = "a"\nsequence = "always"', "queue[0].sequence", '"always"'),
    ('[[queue]]\npattern = "a"\nsequence = true', "queue[0].sequence", "true"),
    ('[[queue]]\npattern = "a"\nack_debounce_ms = -1', "queue[0].ack_debounce_ms", "-1"),
    ('[[queue]]\npattern = "a"\nack_debounce_ms = 60001', "queue[0].ack_debounce_ms", "60001"),
    ('[[queue]]\npattern = "a"\nack_max_delay_ms = 0', "queue[0].ack_max_delay_ms", "0"),
    ('[[queue]]\npattern = "a"\norder_debounce_ms = 5', "queue[0].order_debounce_ms", None),
]


@pytest.mark.parametrize(
    ("source", "field", "value"), WRONG, ids=[case[1] + "-" + str(i) for i, case in enumerate(WRONG)]
)
def test_every_error_names_the_field_the_value_and_what_is_allowed(
    source: str, field: str, value: str | None
) -> None:
    """A wrong file ends in an error with the dotted name of the field."""
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(source)
    (problem,) = caught.value.problems
    assert (problem.field, problem.value) == (field, value)
    assert problem.allowed
    assert str(caught.value).startswith(field)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("field", [field.name for field in attrs.fields(BrokerLimits)])
@pytest.mark.parametrize("value", [-1, 2**70, "many", None])
def test_every_limit_refuses_what_is_no_number_in_its_range(field: str, value: object) -> None:
    """No limit can be switched off by a negative, huge or missing value, and its error names it."""
    with pytest.raises(ConfigurationError) as caught:
        BrokerLimits(**{field: value})  # type: ignore[arg-type]
    assert caught.value.problems[0].field == field


MANY = """
colour = 1
container_id = 7
[limits]
max_sesions = 5
max_frame_size_bytes = 511
stop_grace_ms = "long"
[logging]
format = "xml"
[[listener]]
url = "http://x"
[[listener]]
backlog_sockets = 0
anonymous = "yes"
[[queue]]
create = "never"
[[access]]
users = ["*", 3]
actions = ["send", "shout", "sing"]
"""


def test_all_errors_of_a_file_are_told_at_once() -> None:
    """In every table and of every kind, each with its place; people read them as lines."""
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(MANY)
    found = {problem.field: problem.value for problem in caught.value.problems}
    assert found == {
        "colour": None,
        "container_id": "7",
        "limits.max_sesions": None,
        "limits.max_frame_size_bytes": "511",
        "limits.stop_grace_ms": '"long"',
        "logging.format": '"xml"',
        "listener[0].url": '"http://x"',
        "listener[1].backlog_sockets": "0",
        "listener[1].anonymous": '"yes"',
        "queue[0].pattern": None,
        "queue[0].create": '"never"',
        "access[0].users[1]": "3",
        "access[0].actions[1]": '"shout"',
        "access[0].actions[2]": '"sing"',
    }
    first, *lines = str(caught.value).splitlines()
    assert (first, len(lines)) == ("14 errors", 14)
    assert "  limits.max_sesions: unknown key; did you mean max_sessions?" in lines
    assert "  queue[0].pattern: is missing" in lines


def test_all_contradictions_are_told_at_once() -> None:
    """Of the limits, of two tables of one kind, and of a table with others."""
    relations = {"header_timeout_ms": 20_000, "tls_timeout_ms": 20_000, "memory_bytes": 1}
    with pytest.raises(ConfigurationError) as caught:
        BrokerLimits(**relations)
    assert {problem.field for problem in caught.value.problems} == set(relations)
    twice = 2 * '[[queue]]\npattern = "a"\n' + '[[access]]\nusers = ["x"]\nactions = ["send"]'
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(twice)
    assert [problem.field for problem in caught.value.problems] == ["queue[1].pattern", "access[0].users[0]"]


@pytest.mark.parametrize("source", ['[[listener]]\nurl = "amqp://h:1"', '[logging]\nlevel = "info"'])
def test_a_fault_in_a_check_is_no_error_of_the_file(monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """What a check raises by mistake is not blamed on who wrote the file, be it what a missing key raises."""

    def check(_self: Allowed, name: str, _value: object, _text: str) -> None:
        raise KeyError(name)

    monkeypatch.setattr(Allowed, "check", check)
    with pytest.raises(KeyError):
        parse_configuration(source)


TABLES = (
    AccessRule,
    BrokerConfig,
    BrokerLimits,
    HalfGroupConfig,
    ListenerConfig,
    LoggingConfig,
    QueuePolicy,
    UserConfig,
)


@pytest.mark.parametrize("table", TABLES, ids=lambda cls: cls.__name__)
def test_every_field_says_what_it_means(table: type) -> None:
    """The declaration of a field is all that a reference needs."""
    for field in attrs.fields(table):
        assert len(field.metadata[MEANING]) > 5, field.name
        assert field.validator is not None, field.name


def test_an_unknown_key_close_to_a_known_one_is_guessed() -> None:
    """A typing mistake gets the right word."""
    with pytest.raises(ConfigurationError, match="did you mean max_frame_size_bytes"):
        parse_configuration("[limits]\nmax_frame_size_byte = 4096")


def test_a_verifier_is_never_shown() -> None:
    """An error about a secret and the configuration's own text hide its value."""
    broken = VERIFIER[-8:]
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(f'[[user]]\nname = "a"\nscram_sha_256 = "{broken}"')
    assert caught.value.problems[0].field == "user[0].scram_sha_256"
    assert broken not in str(caught.value)
    assert VERIFIER not in repr(parse_configuration(f'[[user]]\nname = "a"\nscram_sha_256 = "{VERIFIER}"'))


def test_a_verifier_of_another_mechanism_is_refused() -> None:
    """SCRAM-SHA-256's verifier does not fit the field of SCRAM-SHA-512."""
    with pytest.raises(
        ConfigurationError, match=r"user\[0\].scram_sha_512.*must be a verifier of SCRAM-SHA-512"
    ):
        parse_configuration(f'[[user]]\nname = "a"\nscram_sha_512 = "{VERIFIER}"')


def test_broken_toml_says_where() -> None:
    """The line of the mistake is in the error."""
    with pytest.raises(ConfigurationError, match="line 2"):
        parse_configuration("a = 1\nb = = 2")


@given(st.text(max_size=200))
def test_no_text_raises_anything_but_a_configuration_error(source: str) -> None:
    """Whatever stands in the file: it is a configuration, or an error that says what is wrong."""
    try:
        parse_configuration(source)
    except ConfigurationError as error:
        assert str(error)


def test_files_that_cannot_be_read_are_configuration_errors(tmp_path: Path) -> None:
    """No such file, a directory, and bytes that are not UTF-8."""
    (tmp_path / "latin.toml").write_bytes(b'container_id = "\xe4"')
    for path in (tmp_path / "none.toml", tmp_path, tmp_path / "latin.toml"):
        with pytest.raises(ConfigurationError) as caught:
            load_configuration(path)
        assert caught.value.problems[0].field == str(path)


def test_a_file_is_relative_to_its_own_directory(tmp_path: Path) -> None:
    """Starting the broker from elsewhere finds the same data."""
    (tmp_path / "broker.toml").write_text('data_dir = "here"')
    assert load_configuration(tmp_path / "broker.toml").data_dir == str(tmp_path / "here")


def test_the_most_specific_policy_wins_whatever_the_order() -> None:
    """Exact before `*` before `**`, longer prefixes before shorter ones."""
    texts = ["**", "a.**", "a.*", "a.b", "a.b.**"]
    for order in (texts, texts[::-1]):
        config = BrokerConfig(
            queue_policies=tuple(QueuePolicy(pattern=text, create=STRICT) for text in order)
        )
        chosen = {name: config.policy_of(name).pattern for name in ("x", "a", "a.b", "a.c", "a.c.d", "a.b.c")}
        assert chosen == {
            "x": "**",
            "a": "**",
            "a.b": "a.b",
            "a.c": "a.*",
            "a.c.d": "a.**",
            "a.b.c": "a.b.**",
        }


@pytest.mark.parametrize(
    ("url", "users", "setting", "allowed"),
    [
        ("amqp://127.0.0.1:0", False, None, True),
        ("amqp://localhost:0", False, None, True),
        ("amqp://[::1]:0", False, None, True),
        ("amqp://127.0.0.1:0", True, None, False),
        ("amqp://0.0.0.0:0", False, None, False),
        ("amqp://broker.example:0", False, None, False),
        ("amqp://0.0.0.0:0", True, True, True),
        ("amqp://127.0.0.1:0", False, False, False),
    ],
)
def test_anonymous_access_is_for_loopback_without_users_unless_a_setting_says_otherwise(
    url: str, users: bool, setting: bool | None, allowed: bool
) -> None:
    """A broker that can be reached from elsewhere is never open by default."""
    listener = ListenerConfig(url=url, anonymous=setting)
    source = f'[[user]]\nname = "a"\nscram_sha_256 = "{VERIFIER}"' if users else ""
    config = parse_configuration(source)
    assert config.anonymous_allowed(listener) is allowed


LOG = '[[queue]]\npattern = "log.**"\nkind = "log"\n'


@pytest.mark.parametrize(
    ("more", "field", "words"),
    [
        ("", "queue[0].retention_ms", "or else retention_bytes"),
        ("retention_ms = 0\nretention_bytes = 0", "queue[0].retention_ms", "3153600000000 is a century"),
        ("retention_ms = 1\nmax_messages = 5", "queue[0].max_messages", 'for kind "queue" only'),
        ("retention_ms = 1\nmax_bytes = 5", "queue[0].max_bytes", "drops the oldest"),
        (
            "retention_ms = 1\nmax_volatile_bytes = 70000",
            "queue[0].max_volatile_bytes",
            "takes every message",
        ),
    ],
)
def test_what_does_not_go_with_a_log_is_refused_by_name(more: str, field: str, words: str) -> None:
    """A log has to be bounded by what it keeps, and by nothing else."""
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(LOG + more)
    assert caught.value.problems[0].field == field and words in str(caught.value)


def test_a_log_is_a_kind_of_queue() -> None:
    """Everything about those who send goes with it; other kinds there are none."""
    more = 'retention_bytes = 9\nsequence = "required"\nmessage_type = "transaction"\nevents = true'
    (policy,) = parse_configuration(LOG + more).queue_policies
    assert policy.archives and policy.retains
    assert not QueuePolicy(pattern="a", retention_ms=1).archives
    with pytest.raises(ConfigurationError, match=r'"queue".*"log".*"topic"'):
        QueuePolicy(pattern="a", kind="ring")


@pytest.mark.parametrize(
    "more",
    [{"create": AT_START}, {"retention_ms": 1}, {"events": True}, {"sequence": "required"},
     {"message_type": "transaction"}],
)  # fmt: skip
def test_a_topic_keeps_nothing(more: dict[str, Any]) -> None:
    """The bounds are those of each subscription; what says how messages are kept is not for it."""
    assert QueuePolicy(pattern="a", kind="topic", max_messages=3).copies
    with pytest.raises(ConfigurationError, match=next(iter(more))):
        QueuePolicy(pattern="a", kind="topic", **more)


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ('topic = "a.#"\nqueue = "q"\nselector = "a ="', "selector"),
        ('topic = "a*"\nqueue = "q"', "topic"),
        ('topic = "a"\nqueue = "$q"', "queue"),
        ('topic = "a"\nqueue = "t"\n[[queue]]\npattern = "t"\nkind = "topic"', "queue"),
        ('topic = "a"\nqueue = "t"\n[[queue]]\npattern = "t"\nevents = true', "queue"),
    ],
)
def test_a_binding_names_a_topic_and_a_queue(lines: str, named: str) -> None:
    """What can't be is told by its key."""
    good = parse_configuration('[[binding]]\ntopic = "a.*"\nqueue = "q"\nselector = "a = 1"')
    assert good.queues_at_start() == ("q",)
    with pytest.raises(ConfigurationError, match=rf"binding\[0\]\.{named}"):
        parse_configuration("[[binding]]\n" + lines)


def test_python_callers_are_checked_as_well() -> None:
    """A list instead of a tuple, or a queue policy of the wrong type, is an error with a name."""
    with pytest.raises(ConfigurationError, match="listener"):
        BrokerConfig(listeners=[ListenerConfig()])  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="at-start"):
        QueuePolicy(pattern="a.**", create=AT_START)
    with pytest.raises(ConfigurationError):
        QueuePolicy(pattern="q", order_max_delay_ms=0)


@pytest.mark.parametrize(
    ("url", "host", "port", "tls"),
    [
        ("amqp://127.0.0.1:0", "127.0.0.1", 0, False),
        ("amqp://localhost", "localhost", 5672, False),
        ("amqp://[::1]:99", "::1", 99, False),
        ("amqp://h:5/", "h", 5, False),
    ],
)
def test_listen_urls_are_taken_apart(url: str, host: str, port: int, tls: bool) -> None:
    """Host, port with its default, and scheme."""
    listener = ListenerConfig(url=url)
    assert (listener.host, listener.port, listener.tls) == (host, port, tls)


# Sequences


def test_the_keys_of_a_queue() -> None:
    """In TOML the timer has MSMQ's words; by default sequences are optional and told at once."""
    config = parse_configuration(
        '[[queue]]\npattern = "orders"\nsequence = "required"\nack_debounce_ms = 20\nack_max_delay_ms = 50\n'
    )
    policy = config.policy_of("orders")
    assert (policy.sequence, policy.order_debounce_ms, policy.order_max_delay_ms) == ("required", 20, 50)
    default = config.policy_of("others")
    assert (default.sequence, default.order_debounce_ms, default.order_max_delay_ms) == ("optional", 0, 100)


# The limits: their defaults are those of the design


DESIGN = {
    "login_timeout_ms": 10_000,
    "header_timeout_ms": 2_000,
    "tls_timeout_ms": 5_000,
    "login_buffer_bytes": 16 * 1_024,
    "login_frames": 8,
    "login_sockets": 512,
    "login_sockets_per_address": 32,
    "open_frame_size_bytes": 8_192,
    "max_frame_size_bytes": 65_536,
    "max_message_size_bytes": 16 * 1_024 * 1_024,
    "partial_deliveries_bytes": 256 * 1_024 * 1_024,
    "stream_body_bytes": 1_024 * 1_024,
    "spool_bytes": 1_024 * 1_024 * 1_024,
    "partial_idle_ms": 60_000,
    "partial_total_ms": 600_000,
    "memory_bytes": 0,
    "memory_wait_ms": 2_000,
    "max_sessions": 1_024,
    "max_links_per_session": 4_096,
    "max_links_per_connection": 16_384,
    "control_operations_per_s": 2_000,
    "control_operations_burst": 8_000,
    "address_operations_per_s": 4_000,
    "address_operations_burst": 32_000,
    "outcome_wait_ms": 2_000,
    "output_buffer_bytes": 256 * 1_024,
    "write_stall_timeout_ms": 60_000,
    "idle_time_out_ms": 30_000,
    "min_peer_idle_time_out_ms": 1_000,
    "max_unsettled_per_link": 2_048,
    "max_unsettled_per_session": 5_000,
    "address_bytes": 255,
    "log_field_characters": 256,
    "log_lines_per_minute": 60,
}


def test_the_defaults_are_those_of_the_design() -> None:
    """A default changes by decision, not by accident."""
    limits = attrs.asdict(BrokerLimits())
    assert {name: limits[name] for name in DESIGN} == DESIGN


@pytest.mark.parametrize(("lower", "higher"), RELATIONS)
def test_a_limit_above_its_neighbour_is_refused(lower: str, higher: str) -> None:
    """Of two limits where one contains the other, both can be reached."""
    defaults = attrs.asdict(BrokerLimits())
    field = attrs.fields_dict(BrokerLimits)[lower]
    with pytest.raises(ConfigurationError) as caught:
        BrokerLimits(**{lower: defaults[higher] + 1})
    assert caught.value.problems[0].field == field.name


def test_the_memory_has_room_for_messages_of_the_largest_size() -> None:
    """What could not hold four of them is refused, and says what would do; 0 is decided at the start."""
    with pytest.raises(ConfigurationError, match="at least 67108864") as caught:
        BrokerLimits(memory_bytes=64 * 1_024 * 1_024 - 1)
    assert caught.value.problems[0].field == "memory_bytes"
    with pytest.raises(ConfigurationError, match="at least 1048576"):
        BrokerLimits(memory_bytes=1, max_message_size_bytes=1_024)
    assert BrokerLimits(memory_bytes=64 * 1_024 * 1_024).memory_bytes == 64 * 1_024 * 1_024


def test_every_limit_is_read_somewhere() -> None:
    """A setting that does nothing is a lie: each one is asked for by the code that keeps it."""
    room = Path(configuration_limits.__file__).parent
    modules = [path for path in room.rglob("*.py") if path.name != "configuration_limits.py"]
    text = "\n".join(path.read_text() for path in modules)
    unread = [name for name in attrs.fields_dict(BrokerLimits) if f".{name}" not in text]
    assert unread == []
