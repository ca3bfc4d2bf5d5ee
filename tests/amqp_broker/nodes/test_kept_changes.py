"""What UPDATE changed of a queue is kept with it: over restarts, a `kill -9` and another file."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.command_line import main
from amqp_broker.configuration import LoggingConfig, QueuePolicy
from amqp_broker.log_setup import configure_logging
from amqp_broker.management.changing import BOUNDS, TRIES
from amqp_broker.testing import ScriptedFaults, memory_config
from tests.crash.broker_process import BrokerProcess
from tests.support.by_hand import by_hand, commits_held, text
from tests.support.managing import Asking, asking, asks
from tests.support.topics import durable, subscribe

SMALL = QueuePolicy(pattern="small", max_messages=2, max_deliveries=3)
here = asks(memory_config(queue_policies=(SMALL,)))

Life = Callable[[Asking], Any]


def lives(tmp_path: Path, *mains: Life | tuple[Life, QueuePolicy]) -> None:
    """Run each with the same store, one broker after the other, each with its policy."""
    for each in mains:
        run, policy = each if isinstance(each, tuple) else (each, SMALL)
        config = attrs.evolve(
            memory_config(queue_policies=(policy,)), memory=False, data_dir=str(tmp_path / "data")
        )

        async def served(at: Any, run: Life = run) -> None:
            await run(await asking(at))

        by_hand(served, config)


async def of(one: Asking, name: str, *attributes: str) -> tuple[Any, ...]:
    """Attributes of a queue, as READ tells them."""
    found = await one.body("READ", "queue", name=name)
    return tuple(found[each] for each in attributes)


def test_a_start_has_what_was_changed_and_only_that(tmp_path: Path) -> None:
    """Bounds and tries; what was not changed is as the file says by then, and what was is so whatever it
    says. It holds: a third message has no room in a queue whose file allows ten.
    """

    async def before(one: Asking) -> None:
        await one.ask("CREATE", "queue", name="small")
        found = await one.body("UPDATE", "queue", {"max_messages": 1, "max_deliveries": 7}, name="small")
        assert found["changed"] == ["max_messages", "max_deliveries"]
        await one.body("UPDATE", "queue", {"redelivery_delay_ms": 50}, name="small")

    async def after(one: Asking) -> None:
        told = await of(one, "small", "max_messages", "max_deliveries", "redelivery_delay_ms", "changed")
        assert told == (1, 7, 50, ["max_messages", "max_deliveries", "redelivery_delay_ms"])
        link = await one.at.sender("small")
        assert (link.credit, link.send([text(b"1")])) == (1, 1)
        await one.at.settle()
        assert link.credit == 0

    async def with_another_file(one: Asking) -> None:
        names = ("max_messages", "max_bytes", "max_deliveries")
        assert await of(one, "small", *names) == (1, 5_000, 7)

    other = QueuePolicy(pattern="small", max_messages=10, max_bytes=5_000)
    lives(tmp_path, before, after, (with_another_file, other))


def test_everything_that_can_be_changed_is_kept(tmp_path: Path) -> None:
    """Each of its own value."""
    values = {name: 100_000 + at for at, name in enumerate((*BOUNDS, *TRIES))} | {"redelivery_factor": 3}

    async def before(one: Asking) -> None:
        await one.ask("CREATE", "queue", name="q")
        await one.body("UPDATE", "queue", values, name="q")

    async def after(one: Asking) -> None:
        assert await of(one, "q", *values) == tuple(values.values())

    lives(tmp_path, before, after)


def test_reset_is_kept_too(tmp_path: Path) -> None:
    """The configuration holds at once and after a start; who waited for room hears of it."""

    async def before(one: Asking) -> None:
        await one.at.post("small", b"1")
        await one.body("UPDATE", "queue", {"max_messages": 1}, name="small")
        link = await one.at.sender("small")
        assert link.credit == 0
        assert await one.body("RESET", "queue", name="small") == {}
        assert (link.credit, await of(one, "small", "max_messages", "changed")) == (1, (2, []))
        await one.body("RESET", "queue", name="small")

    async def after(one: Asking) -> None:
        assert await of(one, "small", "max_messages", "changed") == (2, [])

    lives(tmp_path, before, after)


def test_what_the_file_says_is_no_change(tmp_path: Path) -> None:
    """To say the value of the file is to take the change back: another file holds then."""

    async def before(one: Asking) -> None:
        await one.ask("CREATE", "queue", name="small")
        await one.body("UPDATE", "queue", {"max_messages": 1, "max_deliveries": 9}, name="small")
        found = await one.body("UPDATE", "queue", {"max_messages": 2}, name="small")
        assert (found["max_messages"], found["changed"]) == (2, ["max_deliveries"])

    async def after(one: Asking) -> None:
        assert await of(one, "small", "max_messages", "max_deliveries") == (10, 9)

    lives(tmp_path, before, (after, QueuePolicy(pattern="small", max_messages=10)))


def test_what_the_file_does_not_allow_any_more_is_given_up(tmp_path: Path) -> None:
    """The broker starts, and the log says what is in force no more."""

    async def before(one: Asking) -> None:
        await one.ask("CREATE", "queue", name="small")
        await one.body("UPDATE", "queue", {"redelivery_delay_ms": 5_000}, name="small")

    async def after(one: Asking) -> None:
        assert await of(one, "small", "redelivery_delay_ms", "changed") == (0, [])

    written = io.StringIO()
    configure_logging(memory_config(logging=LoggingConfig(level="warning", format="json")), written)
    lives(tmp_path, before, (after, QueuePolicy(pattern="small", redelivery_delay_max_ms=1_000)))
    (line,) = [json.loads(line) for line in written.getvalue().splitlines() if "change_given_up" in line]
    assert (line["queue"], line["changed"]) == ("small", ["redelivery_delay_ms"])


def test_a_queue_that_is_made_anew_is_as_the_file_says(tmp_path: Path) -> None:
    """What was changed was of the one that is gone."""

    async def before(one: Asking) -> None:
        await one.ask("CREATE", "queue", name="small")
        await one.body("UPDATE", "queue", {"max_messages": 1}, name="small")
        await one.ask("DELETE", "queue", name="small")
        await one.ask("CREATE", "queue", name="small")
        assert await of(one, "small", "max_messages", "changed") == (2, [])

    async def after(one: Asking) -> None:
        assert await of(one, "small", "max_messages", "changed") == (2, [])

    lives(tmp_path, before, after)


def test_a_durable_subscription_keeps_its_own(tmp_path: Path) -> None:
    """Also beside what else its node keeps; that of another one is its own."""

    async def before(one: Asking) -> None:
        await subscribe(one.at, durable("news"), "one", credit=0)
        await subscribe(one.at.another(), durable("news"), "two", credit=0)
        rows = (await one.body("QUERY", entityType="subscription"))["results"]
        await one.body("UPDATE", "subscription", {"max_messages": 1}, identity=rows[0][0])

    async def after(one: Asking) -> None:
        names = ["max_messages", "changed", "durable"]
        found = await one.body("QUERY", body={"attributeNames": names}, entityType="subscription")
        assert found["results"] == [[1, ["max_messages"], True], [0, [], True]]

    lives(tmp_path, before, after)


@here
async def test_a_temporary_queue_has_it_as_long_as_it_is_there(one: Asking) -> None:
    """Nothing of it is stored: a start finds nothing of it."""
    queue = one.at.broker.nodes.queues.create_temporary("temp-x")
    found = await one.body("UPDATE", "queue", {"max_messages": 4}, name=queue.name)
    assert (found["changed"], found["temporary"]) == (["max_messages"], True)


def test_it_holds_with_its_commit(tmp_path: Path) -> None:
    """Not before: until then the reply waits, and what holds is as it was. What expires, and is noted with
    the same node meanwhile, takes nothing of it away.
    """
    config = attrs.evolve(memory_config(queue_policies=(SMALL,)), memory=False, data_dir=str(tmp_path))
    faults = ScriptedFaults()

    async def before(at: Any) -> None:
        one = await asking(at)
        await one.ask("CREATE", "queue", name="small")
        up = await at.sender("small")
        with commits_held(at, faults):
            one.asked += 1
            one.send({"operation": "UPDATE", "type": "queue", "name": "small"}, {"max_messages": 77})
            await at.settle()
            assert at.queue("small").limits.max_messages == 2 and not at.received
            up.send([text(b"x", ttl=60_000)])
            await at.settle()
        await at.rest()
        assert at.queue("small").limits.max_messages == 77
        assert set(at.queue("small").settings) == {"changed", "expires"}

    async def after(at: Any) -> None:
        assert at.queue("small").limits.max_messages == 77
        assert set(at.queue("small").settings) == {"changed", "expires"}

    by_hand(before, config, faults)
    by_hand(after, config)


@pytest.mark.parametrize("reset", [False, True])
def test_what_could_not_be_stored_does_not_hold(reset: bool) -> None:
    """Who asked is told, and what was changed before holds."""
    faults = ScriptedFaults()

    async def run(at: Any) -> None:
        one = await asking(at)
        await one.ask("CREATE", "queue", name="small")
        await one.body("UPDATE", "queue", {"max_messages": 5}, name="small")
        faults.refuse_commit()
        told = ("RESET", "queue", None) if reset else ("UPDATE", "queue", {"max_messages": 9})
        status, why = await one.refused(*told, name="small")
        assert status == 503 and "disk is full" in why
        assert await of(one, "small", "max_messages", "changed") == (5, ["max_messages"])
        assert at.queue("small").settings == {"changed": {"max_messages": 5}}

    by_hand(run, memory_config(queue_policies=(SMALL,)), faults)


def test_an_operator_finds_it_after_kill_9(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the commands, on a broker of its own process: the command returned, so it holds after the kill."""
    file = tmp_path / "broker.toml"
    file.write_text('[[queue]]\npattern = "orders"\ncreate = "at-start"\nmax_messages = 1000\n')

    def run(*arguments: str) -> Any:
        capsys.readouterr()
        assert main([*arguments, "--json", "--url", f"amqp://127.0.0.1:{broker.port}"]) == 0
        out = capsys.readouterr().out
        return json.loads(out) if out else None

    def told() -> tuple[Any, ...]:
        found = run("show", "queue", "orders")
        return found["max_messages"], found["max_deliveries"], found["changed"]

    for steps in range(3):
        broker = BrokerProcess(tmp_path / "data", tmp_path / "log", config=file)
        try:
            broker.wait_until_listening()
            if steps == 0:
                run("set", "queue", "orders", "max_messages=50000", "max_deliveries=3")
                run("declare", "eu", "--type", "binding", "--with", "topic=news.eu.*", "queue=orders")
            elif steps == 1:
                assert told() == (50_000, 3, ["max_messages", "max_deliveries"])
                run("set", "configuration", "limits.max_cursors", "value=7")
                found = run("show", "configuration", "limits.max_cursors")
                assert (found["value"], found["at_start"]) == (7, 10_000)
                run("reset", "orders")
                (found,) = run("list", "binding")
                assert (found["name"], found["topic"], found["queue"]) == ("eu", "news.eu.*", "orders")
                run("delete", "eu", "--type", "binding")
            else:
                assert told() == (1_000, 10, [])
                assert run("list", "binding") == []
                assert run("show", "configuration", "limits.max_cursors")["value"] == 10_000
        finally:
            broker.kill()
