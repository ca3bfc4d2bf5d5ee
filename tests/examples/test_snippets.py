"""Every snippet of the README and of the site runs as it stands there, each on a fresh broker. Those for
clients in other languages run in the step `clients` of `.ci/run`, those on Spark in the step `pipeline`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

import attrs
import pytest
import trio
import trustme
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_span_id, format_trace_id

import amqp_broker
from amqp_broker import Resolution, connect, message
from amqp_broker.addresses import parse_address
from amqp_broker.authentication import Authenticator
from amqp_broker.authorisation import SEND, Authoriser, Principal
from amqp_broker.broker import Broker
from amqp_broker.certificates import holds, parse_rule
from amqp_broker.client import ReceivedMessage
from amqp_broker.client.blocking_management import Refused
from amqp_broker.command_line import main, make_parser
from amqp_broker.configuration import ListenerConfig, TracingConfig, load_configuration
from amqp_broker.conformance.command_line import make_parser as conformance_parser
from amqp_broker.conformance.description import read_description
from amqp_broker.conformance.gaps import load_gaps
from amqp_broker.embedding import RunningBroker, memory_config, running_broker
from amqp_broker.frames import Described, Header, Message, Source, Symbol, Target, Ulong, encode_message
from amqp_broker.looking.broker_view import Broker as LookedAt
from amqp_broker.looking.broker_view import Login
from amqp_broker.verifiers import make_verifier
from tests.crash.broker_process import BrokerProcess
from tests.examples.client_snippets import LANGUAGES
from tests.examples.snippets import Snippet, snippet, snippets
from tests.support.broker_clients import counts, post_own, receive, send, session_to
from tests.support.collector import collector
from tests.tidy.sources import ROOT

CI: Final = (ROOT / ".ci" / "run").read_text()


def executed(found: Snippet, **names: object) -> dict[str, object]:
    """What a snippet in Python leaves behind, with `names` around it."""
    space: dict[str, object] = {**names}
    exec(compile(found.text, f"{found.document}: {found.title}", "exec"), space)
    return space


def on_a_fresh_broker(found: Snippet, then: Callable[[RunningBroker], None], **names: object) -> None:
    """Run a snippet in Python, and look at the broker."""
    with running_broker(memory_config()) as broker:
        executed(found.at(broker.port), **names)
        then(broker)


# Python

CONNECT, FIXTURE = snippets("README.md", "python")


def test_connect() -> None:
    """One message, which says what the snippet says."""

    def look(broker: RunningBroker) -> None:
        with session_to(broker) as session:
            assert counts(broker, "greetings")[0] == 1
            (got,) = receive(session.attach_receiver("r", "greetings", credit=2), 1)
        assert Message(got.payload).body_sections()[0].value == "hello"

    on_a_fresh_broker(CONNECT, look)


def test_a_client_that_traces() -> None:
    """Its spans and the broker's are one trace: the sender's is the parent of the broker's, and of the
    receiver's.
    """
    own = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(own))
    found = snippet("tracer = trace.get_tracer")
    with collector() as sent, patch.object(trace, "get_tracer", provider.get_tracer):
        tracing = TracingConfig(endpoint=sent.endpoint, interval_ms=10)
        with running_broker(memory_config(tracing=tracing)) as broker:
            executed(found.at(broker.port))
        place, pack = own.get_finished_spans()
        spans = sent.spans
    names = {"publish orders", "deliver orders", "settle orders"}
    assert names == {span.name for span in spans if span.name != "commit"}
    assert place.context is not None and pack.parent is not None
    assert pack.parent.span_id == place.context.span_id
    assert {span.trace_id for span in spans} == {format_trace_id(place.context.trace_id)}
    assert {span.parent for span in spans if span.name in names} == {format_span_id(place.context.span_id)}


def test_the_methods_of_a_transaction_are_those_of_the_example() -> None:
    """Which tests/interop runs: it needs proton."""
    found = textwrap.indent(snippet("def on_transaction_declared").text, "    ")
    assert found in (ROOT / "examples" / "in_transactions.py").read_text()


def test_a_producer_of_half_messages() -> None:
    """The half message is committed, and its destination has it."""
    found = snippet("def place_order")

    def look(broker: RunningBroker) -> None:
        assert counts(broker, "shipments")[0] == 1

    asked: list[str] = []
    on_a_fresh_broker(found, look, order_exists=asked.append)
    assert asked == []
    with running_broker(memory_config()) as broker:
        space = executed(found.at(broker.port), order_exists=lambda half_id: half_id == "order-17")
        check = space["check"]
        assert callable(check)
        assert check(type("Half", (), {"half_id": "order-17"})) is Resolution.COMMIT
        assert check(type("Half", (), {"half_id": "order-18"})) is Resolution.ROLLBACK


def test_the_fixture(tmp_path: Path) -> None:
    """A test module that is the snippet, and the import that it needs."""
    module = tmp_path / "test_readme_snippet.py"
    module.write_text(f"from amqp_broker import connect\n\n\n{FIXTURE.text}")
    plugins = ["-p", "amqp_broker.testing.pytest_plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-c", os.devnull, str(module)]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def test_dead_letters_are_sent_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What says that it came from a queue is there again."""
    monkeypatch.chdir(tmp_path)
    address = {Symbol("x-opt-dead-letter-address"): "orders"}
    letter = encode_message(header=Header(durable=True), body=b"1", message_annotations=address)

    async def bury() -> None:
        async with amqp_broker.open_broker() as broker:
            post_own(broker, await broker.nodes.queues.create("dead.orders"), letter)

    trio.run(bury)
    send_back = executed(snippet("async def send_back"))["send_back"]
    assert callable(send_back) and trio.run(send_back) == 1


def test_the_tutorial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From its top to its end: the broker is killed, and checked, where it says so."""
    sent, received, after_the_kill = snippets(TUTORIAL, "python")
    data, space = tmp_path / "data", dict[str, object]()
    for life in ((sent, received), (after_the_kill,)):
        with BrokerProcess(data, tmp_path / "log") as broker:
            port = broker.wait_until_listening()
            for found in life:
                space.update(executed(found.at(port), **space))
            # Nobody waits for the outcome of a consumer that settles: it is stored with the next commit.
            with connect(f"amqp://127.0.0.1:{port}") as connection:
                connection.open_sender("elsewhere").send("a commit")
    shown = re.findall(r"print\(.*# (.+)", "".join(found.text for found in (received, after_the_kill)))
    assert capsys.readouterr().out.splitlines() == shown
    assert main(["check", str(data)]) == 0
    (_, told) = re.findall(r"^\$ .*check (.+)\n(.+)$", (ROOT / TUTORIAL).read_text(), re.MULTILINE)[0]
    assert capsys.readouterr().out == told.replace("amqp-broker-data", str(data)) + "\n"


def test_a_durable_subscription() -> None:
    """It is there when its client is gone."""

    def look(broker: RunningBroker) -> None:
        with session_to(broker) as session:
            send(session.attach_sender("s", "prices.eu", target=PRICES), b"1")
        with session_to(broker, "my-shop") as session:
            (got,) = receive(session.attach_receiver("my-prices", "prices.#", source=SUBSCRIBED, credit=2), 1)
        assert Message(got.payload).body_sections()[0].value == b"1"

    on_a_fresh_broker(snippet("prices = Source("), look)


PRICES: Final = Target(address="prices.eu", capabilities=("topic",))
SUBSCRIBED: Final = Source(
    address="prices.#", durable=2, expiry_policy="never", capabilities=("topic",)
)  # fmt: skip


def test_a_temporary_queue_that_outlives_its_link() -> None:
    """Its message is there when the client is gone."""

    def look(broker: RunningBroker) -> None:
        def messages(running: Broker) -> list[int]:
            return [queue.message_count for queue in running.nodes.queues.queues()]

        assert broker.call(messages) == [1]

    on_a_fresh_broker(snippet("policy = {"), look)


def test_a_selector_of_our_client() -> None:
    """What it does not pass stays."""
    with running_broker() as broker:
        with connect(broker.url) as client:
            client.open_sender("paint").send_many(
                message(colour, application_properties={"colour": colour}) for colour in ("blue", "red")
            )
        first = executed(snippet("SELECTOR =").at(broker.port))["first"]
        assert isinstance(first, ReceivedMessage) and first.body == "red"
        assert broker.peek("paint")[0].body == "blue"


def test_a_source_that_begins_at_an_offset() -> None:
    """The filter is on the wire what the protocol says."""
    source = executed(snippet("def offset_filter"))["source"]
    assert isinstance(source, Source) and source.filter is not None
    ((name, value),) = source.filter.items()
    assert (name, value) == ("rabbitmq:stream-offset-spec", Described(Symbol(name), Ulong(500_000)))


# TOML


@contextmanager
def served(folder: Path, toml: str) -> Iterator[str]:
    """A broker process with this configuration; the URL that it listens on."""
    (folder / "readme.toml").write_text(toml)
    command = [sys.executable, "-W", "error", "-m", "amqp_broker", "serve", "--config", "readme.toml"]
    with subprocess.Popen(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        try:
            assert line.startswith("listening on "), line + process.stderr.read()
            yield line.split()[-1]
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()
        assert process.returncode == 0


LOGINS: Final = ("listener", "[[user]]", "[[access]]", "[[token_issuer]]")
TESTING_A_BROKER: Final = "docs/how-to/test-a-broker.md"
TABLES: Final = [
    each
    for each in snippets(language="toml")
    if not any(word in each.text for word in LOGINS) and each.document != TESTING_A_BROKER
]


@pytest.mark.parametrize("found", TABLES, ids=lambda found: f"{found.document} {found.title}")
def test_a_table_of_the_configuration(found: Snippet, tmp_path: Path) -> None:
    """A broker serves with it, and the queue or group that it names does what any other does."""
    listeners = (ListenerConfig(url="amqp://127.0.0.1:0"),)
    config = load_configuration(_written(tmp_path, found.text))
    config = attrs.evolve(config, memory=True, listeners=listeners)
    name = re.search(r'^(?:pattern|name) = "(\w+)"$', found.text, re.MULTILINE)
    with running_broker(config) as broker, connect(broker.url) as connection:
        connection.open_sender("any" if name is None else name[1]).send("hello")


def test_whose_a_certificate_is(tmp_path: Path) -> None:
    """The rules hold, and the role has what it says."""
    found = snippet("[[user]]")
    config = load_configuration(_written(tmp_path, f"{found.text}\n[[listener]]\nanonymous = true\n"))
    (user,) = config.users
    certificate = {
        "subject": ((("organizationName", "Example"),), (("commonName", "till-7"),)),
        "subjectAltName": (("DNS", "a.tills.example.org"), ("URI", "spiffe://example.org/till")),
    }
    for rule in user.certificates:
        assert holds(parse_rule(rule), certificate)
    authoriser = Authoriser(config.access_rules, users_configured=True)
    till = Principal(user.name, "EXTERNAL", user.roles)
    assert authoriser.authorise(till, SEND, parse_address("sales.one"))


def test_whose_tokens_are_taken(tmp_path: Path) -> None:
    """Inside TLS both mechanisms are offered."""
    found = snippet("[[token_issuer]]")
    config = load_configuration(_written(tmp_path, found.text))
    listener = ListenerConfig(url="amqps://127.0.0.1:0", certificate_file="c", key_file="k")
    assert Authenticator(config).mechanisms_for(listener) == ("OAUTHBEARER", "XOAUTH2")


def test_the_file(tmp_path: Path) -> None:
    """With certificates where it wants them: it serves TLS, and the policy is that of the file."""
    found = snippet("data_dir =")
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "clients.pem")
    toml = found.text.replace("/etc/amqp-broker", str(tmp_path)).replace("/var/lib/amqp-broker", "data")
    assert load_configuration(_written(tmp_path, toml)).policy_of("orders.new").create == "strict"
    with served(tmp_path, toml.replace("0.0.0.0:5671", "127.0.0.1:0")) as url:
        assert url.startswith("amqps://127.0.0.1:")


def _written(folder: Path, toml: str) -> Path:
    path = folder / "whole.toml"
    path.write_text(toml)
    return path


def test_who_may_look_by_the_console(tmp_path: Path) -> None:
    """These rights are enough to look, and no more."""
    verifier = make_verifier("SCRAM-SHA-256", "secret", 4096, b"salt" * 4)
    ada = f'[[user]]\nname = "ada"\nroles = ["operator"]\nscram_sha_256 = "{verifier}"\n'
    found = snippet("[[access]]")
    listener = '[[listener]]\nurl = "amqp://127.0.0.1:0"\n'
    with served(tmp_path, f'data_dir = "data"\n{found.text}\n{ada}{listener}') as url:
        login = Login(LookedAt("main", url), "ada", "secret")
        assert len(login.all("queue", "messages")) == 1  # that of its replies
        with pytest.raises(Refused, match="may not manage-write"):
            login.ask("CREATE", "queue", {}, name="orders")
        login.close()


def test_the_description_of_a_broker(tmp_path: Path) -> None:
    """It is one, with every key that it shows; and the gaps are some that a run takes."""
    described, gaps = snippets(TESTING_A_BROKER, "toml")
    found = read_description(described.text, "the page")
    assert (found.title, found.profiles) == ("Example 1.2", ("core", "transactions"))
    assert set(load_gaps(_written(tmp_path, gaps.text))) == {"3.2.10/unknown-annotation"}


# Shell

NAMED: Final = (
    TESTING_A_BROKER, "docs/explanation/other-brokers-judged.md", "docs/how-to/monitoring.md",
    "docs/how-to/console.md", "docs/how-to/tracing.md",
)  # fmt: skip
COMMANDS: Final = [each for each in snippets(language="sh") if each.document in NAMED]
EXTRAS: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("found", COMMANDS, ids=lambda found: f"{found.document} {found.title}")
def test_commands_are_understood(found: Snippet) -> None:
    """What is installed is there to be installed, and programs know their options."""
    for line in found.text.splitlines():
        match shlex.split(line, comments=True):
            case ["pip", "install", *options]:
                named = re.search(r"\[(\w+)\]", " ".join(options))
                assert named is None or named[1] in EXTRAS, line
            case ["amqp-conformance", *options]:
                assert conformance_parser().parse_args(options), line
            case ["amqp-broker", *options]:
                assert make_parser().parse_args(options), line
            case ["python", "-m", module, *_]:
                assert importlib.util.find_spec(module) is not None, line
            case _:
                raise AssertionError(f"{line} is a command of nobody's")


def test_backups_and_messages_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the page has them, from a running broker to a store that is whole."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "backups").mkdir()
    config = attrs.evolve(
        memory_config(), memory=False, data_dir=str(tmp_path / "data"), backup_dir=str(tmp_path / "backups")
    )

    def run(found: Snippet, *options: str) -> None:
        text = found.text.replace("/var/backups/amqp-broker", "backups")
        for line in text.replace("/var/lib/amqp-broker", "new").splitlines():
            command = shlex.split(line)[1:]
            if "--url" in command:
                del command[command.index("--url") :]
            assert main([*command, *options]) == 0, (line, capsys.readouterr())

    with running_broker(config) as broker:
        with connect(broker.url) as connection:
            connection.open_sender("orders").send_many(["one", "two"])
        run(snippet("amqp-broker backup monday"), "--url", broker.url)
        run(snippet("amqp-broker export orders"), "--url", broker.url)
        assert broker.depth("orders-again") == broker.depth("orders") == 2
    run(snippet("amqp-broker restore"))
    with running_broker(attrs.evolve(config, data_dir=str(tmp_path / "new"))) as broker:
        assert broker.depth("orders") == 2


# All of them

TUTORIAL: Final = "docs/tutorial.md"
WHOLE: Final = {TUTORIAL, "docs/how-to/embedding.md", "docs/how-to/audit.md", "docs/how-to/spark.md"}
"""Pages that run from their top to their end: here, in `tests/proofs`, in the step `pipeline`."""

ELSEWHERE: Final = {
    "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/amqp-broker serve": "step_readme_run",
    "python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/python -m pytest": (
        "step_readme_test"
    ),
    "python3 -m venv .venv && .venv/bin/pip install '.[pipeline]' && .venv/bin/python -m "
    "amqp_broker.pipeline.demo": "step_pipeline",
}
"""Commands that install the package, and the steps of `.ci/run` that take them from the README."""


def test_no_snippet_is_left_out() -> None:
    """A new one needs a test here, or a language in the step `clients`. What a terminal shows is `text`."""
    here = Path(__file__).read_text()
    left = [
        found.title
        for found in snippets()
        if found not in (CONNECT, FIXTURE, *TABLES, *COMMANDS)
        and (found.document, found.language) != (TESTING_A_BROKER, "toml")
        and found.language != "text"
        and found.document not in WHOLE
        and found.title not in ELSEWHERE
        and not any(found.title.startswith(language.title) for language in LANGUAGES)
        and not any(found.title.startswith(title) for title in re.findall(r'snippet\("([^"]+)"\)', here))
    ]
    assert left == []


def test_the_other_languages_run_in_the_step_of_the_clients() -> None:
    """Five of them, each with a program whose library is the snippet's."""
    step = CI.split("step_clients()")[1].split("\n}\n")[0]
    assert "tests.examples.client_snippets" in step
    assert len({language.name for language in LANGUAGES}) == 5
    for language in LANGUAGES:
        assert snippet(language.title).language in (language.name.lower(), "javascript")


@pytest.mark.parametrize(("command", "step"), ELSEWHERE.items(), ids=lambda each: each[-20:])
def test_commands_that_install_are_taken_from_the_readme(command: str, step: str) -> None:
    """`.ci/run` finds each by its end, and finds one."""
    body = CI.split(f"{step}()")[1].split("\n}\n")[0]
    pattern = re.search(r"grep -m1 -E '([^']+)' README.md", body)
    assert pattern is not None, f"{step} takes nothing from the README"
    lines = (ROOT / "README.md").read_text().splitlines()
    assert [line for line in lines if re.search(pattern[1], line)] == [command]


def test_a_snippet_in_another_language_is_inserted_as_it_stands(tmp_path: Path) -> None:
    """What is built is the text of the page with another port."""
    (language,) = [each for each in LANGUAGES if each.name == "JavaScript"]
    text = snippet(language.title).at(1).text
    language.commands(tmp_path, text)
    assert (tmp_path / "snippet.js").read_text() == text
    assert text.replace("1", "") == snippet(language.title).text.replace("5672", "").replace("1", "")
