"""The stage of the machine: the broker, its clients and their links, which come and go, and
what every rule asks for.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

import trio
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from amqp_broker.broker import Broker
from amqp_broker.configuration import YEAR_MS, BrokerConfig, BrokerLimits, QueuePolicy
from amqp_broker.frames import (
    Accepted,
    Declare,
    Declared,
    Discharge,
    Header,
    Modified,
    Rejected,
    Released,
    encode_message,
)
from amqp_broker.testing import memory_config
from tests.model.at_rest import QUEUES, AtRest, condition_of
from tests.model.books import (
    LIVE,
    MAX_DELIVERIES,
    MAX_MESSAGES,
    OPERATIONS,
    ROLLBACK,
    SIZE_BYTES,
    TIMEOUT,
    TIMEOUT_S,
    TOO_MUCH,
    UNKNOWN,
    ModelTransaction,
)
from tests.model.clients import Client, Control, Receiver, Sender
from tests.model.queues import ModelMessage
from tests.support.jumping_broker import JumpingBroker

CLIENTS: Final = 3
LINK_CREDIT: Final = 12
SIZES: Final = (1, 1, 1, 200, 30_000, 90_000)
HOUR_MS: Final = 3_600_000
LIMITS: Final = BrokerLimits(
    queue_window_messages=16,
    queue_window_bytes=65_536,
    link_credit=LINK_CREDIT,
    stop_grace_ms=0,
    max_transactions=LIVE,
    transaction_operations=OPERATIONS,
    transaction_bytes=SIZE_BYTES,
    transaction_timeout_ms=TIMEOUT_S * 1_000,
    max_message_size_bytes=SIZE_BYTES,
    # Time jumps, and nobody is to be thrown out for a silence that nobody heard.
    idle_time_out_ms=1_000 * HOUR_MS,
    partial_idle_ms=HOUR_MS,
    partial_total_ms=HOUR_MS,
    write_stall_timeout_ms=HOUR_MS,
)
SLOW_DISK_S: Final = 1e9  # for the writer's average: no commit is made in the loop any more
index = st.integers(0, 99)
queues = st.sampled_from(QUEUES)
JUNK: Final = b"nobody's"


def outcome_of(kind: int) -> Any:
    """One of the outcomes, small numbers first."""
    kinds = [
        Accepted(),
        Rejected(),
        Released(),
        Modified(delivery_failed=True),
        Modified(undeliverable_here=True),
        Modified(message_annotations={"x-opt-n": str(kind)}),
        Modified(delivery_failed=True, undeliverable_here=True, message_annotations={"x-opt-m": "m" * 20}),
    ]
    return kinds[kind % 7]


def default_of(kind: int) -> Any:
    """What an attach says of its default outcome: mostly nothing, or what Qpid JMS says."""
    return [None, Modified(delivery_failed=True), Accepted(), Rejected(), None][kind % 5]


class Stage(AtRest):
    """Clients come and go; no rule here ends a transaction but by the end of its link."""

    # The broker

    @initialize(on_disk=st.booleans(), slow=st.booleans())
    def start(self, on_disk: bool, slow: bool) -> None:
        """A broker in memory, or on a real store in a directory of its own; with commits in the loop, or in
        the writer's thread.
        """
        if on_disk:
            self.directory = tempfile.TemporaryDirectory(prefix="amqp-broker-model-")
        self._start_broker()
        if slow:
            self._slow_disk()
        self._connect()

    def _start_broker(self) -> None:
        policies = (
            QueuePolicy(
                pattern="**", max_messages=MAX_MESSAGES, max_deliveries=MAX_DELIVERIES,
                undeliverable_wait_ms=YEAR_MS,
            ),
            QueuePolicy(pattern="dead-letters", create="at-start"),
        )  # fmt: skip
        if self.directory is None:
            config = memory_config(limits=LIMITS, queue_policies=policies)
        else:
            config = BrokerConfig(
                data_dir=str(Path(self.directory.name) / "data"),
                listeners=memory_config().listeners,
                limits=LIMITS,
                queue_policies=policies,
            )
        self.broker = JumpingBroker(config, faults=self.faults)

    def _slow_disk(self) -> None:
        def there(broker: Broker) -> None:
            broker.writer._pace.commit_s = SLOW_DISK_S

        self.running.call(there)

    # Connections

    @rule(
        who=index, which=index, queue=queues, kind=index, credit=st.sampled_from([0, 1, 7, 30]),
        what=st.sampled_from(["client", "control", "consumer", "browser"]),
    )  # fmt: skip
    def arrive(self, who: int, which: int, queue: str, kind: int, credit: int, what: str) -> None:
        """One more client, or one more link of one."""
        client = self._client(who)
        if what == "client" and len(self.clients) < CLIENTS:
            self._connect()
        elif what == "control" and len(client.controls) < 3:
            client.attach_control(which, rejects=kind % 3 > 0)
        elif len(client.receivers) < 5:
            receiver = self._attach_receiver(client, which, queue, kind, browser=what == "browser")
            if credit:
                receiver.link.flow(credit)
        self._rest()

    def _connect(self) -> Client:
        self.clients_made += 1
        client = Client(self.running, self.clients_made)
        self.clients.append(client)
        client.attach_control(0, rejects=True)
        for queue in QUEUES:
            client.attach_sender(0, queue)
        self._attach_receiver(client, 1, QUEUES[self.clients_made % len(QUEUES)], 0).link.flow(6)
        return client

    @rule(
        who=index, which=index,
        what=st.sampled_from(["receiver", "control", "sender", "session", "close", "cut", "broker"]),
    )  # fmt: skip
    def tear_down(self, who: int, which: int, what: str) -> None:
        """A link is detached, a session ends, a client closes or its transport breaks, the broker stops and
        starts.
        """
        if what in ("receiver", "control", "sender"):
            if self.rare(3):
                self._detach(self._client(who), which, what)
        elif self.rare():
            client = self._client(who)
            if what == "broker":
                self._restart()
                self._client(0)
            elif what == "session":
                self._end_session(client, which % len(client.sessions))
            else:
                if what == "close":
                    client.connection.close()
                self._cut(client, broken=what == "cut")
                self._wait_for_connections(len(self.clients))
            self._rest()

    def _restart(self) -> None:
        """A clean stop: links end first, transactions with them."""
        if self.directory is not None:
            self._take_credit()
            self.running.stop()
            self._all_cut(broken=False)
            self.books.restart()
            self._start_broker()

    def _end_session(self, client: Client, which: int) -> None:
        session = client.sessions[which]
        session.end()
        for control in [each for each in client.controls if each.link.session is session]:
            self._control_gone(control)
        for receiver in [each for each in client.receivers if each.link.session is session]:
            self._receiver_gone(receiver)
        client.senders = [each for each in client.senders if each.link.session is not session]
        client.sessions[which] = client.connection.begin()
        self.calm = 0

    def _detach(self, client: Client, which: int, what: str) -> None:
        every: dict[str, list[Any]] = {
            "control": client.controls, "sender": client.senders, "receiver": client.receivers
        }  # fmt: skip
        links = every[what]
        if not links:
            return
        link = links[which % len(links)]
        link.link.detach(closed=which % 3 > 0)
        if isinstance(link, Control):
            self._control_gone(link)
        elif isinstance(link, Receiver):
            self._receiver_gone(link)
        else:
            links.remove(link)
        self._rest()

    def _cut(self, client: Client, *, broken: bool = True) -> None:
        """The transport is gone, and everything with it; unless it is `broken`, there was a close before."""
        self.calm = 0
        client.connection.abort()
        self.clients.remove(client)
        if broken:
            for receiver in list(client.receivers):
                self._receiver_gone(receiver, broken=True)
        for control in list(client.controls):
            self._control_gone(control)
        for receiver in list(client.receivers):
            self._receiver_gone(receiver)
        sessions = client.sessions
        self.ends = {link: each for link, each in self.ends.items() if link.session not in sessions}

    def _take_credit(self) -> None:
        """Before several connections end: what one gives back is not sent to another that is ending, where
        nobody could say whether it arrived.
        """
        for client in self.clients:
            for receiver in client.receivers:
                if receiver.link.credit:
                    receiver.link.flow(0)
        self._rest()

    def _all_cut(self, *, broken: bool = True) -> None:
        for client in list(self.clients):
            self._cut(client, broken=broken)

    def _wait_for_connections(self, expected: int) -> None:
        """Until the broker has seen that the others are gone."""

        async def gone(broker: Broker) -> None:
            while len(broker._connections) > expected:
                await trio.sleep(0)

        self.running.call(gone)

    # Who

    def _client(self, who: int) -> Client:
        """One of the clients; there is always one."""
        if not self.clients:
            self._connect()
            self._rest()
        return self.clients[who % len(self.clients)]

    def _control(self, client: Client, which: int) -> Control:
        """One of a client's control links, which is attached if there is none."""
        if not client.controls:
            return client.attach_control(which, rejects=True)
        return client.controls[which % len(client.controls)]

    def _sender(self, client: Client, queue: str, which: int) -> Sender:
        found = [each for each in client.senders if each.queue == queue]
        return found[which % len(found)] if found else client.attach_sender(which, queue)

    def _pick(self, client: Client, number: int) -> tuple[ModelTransaction | None, bytes]:
        """Mostly a live transaction of this client, which is declared if there is none; now and then another
        client's, one that is over, or none at all.
        """
        mine = [each for each in self.books.transactions if each.control.client is client and each.open]
        if number % 6 == 5:
            others = [each for each in self.books.transactions if each not in mine][-6:]
            found = [*others, None][number // 6 % (len(others) + 1)]
            return found, JUNK if found is None else found.txn_id
        if not mine:
            declared = self._declare(self._control(client, number))
            assert declared is not None, "there was room for one more"
            mine = [declared]
        found = mine[number % len(mine)]
        return found, found.txn_id

    # Links

    def _attach_receiver(
        self, client: Client, which: int, queue: str, kind: int, *, browser: bool = False
    ) -> Receiver:
        """Every third consumer is sent settled, and some may not give every outcome."""
        narrow = kind % 7 == 6
        default = None if narrow else default_of(kind // 3)
        receiver = client.attach_receiver(
            which, queue, settled=kind % 3 == 1, browser=browser, default=default, narrow=narrow
        )
        if browser:
            messages = self.books.queues[queue].messages.values()
            receiver.owed = {each.body: each for each in messages if self.books.visible(each)}
        return receiver

    # Declaring and discharging

    def _declare(self, control: Control) -> ModelTransaction | None:
        client = control.client
        number = control.controller.ask(Declare())
        mine = [each for each in self.books.live() if each.control.client is client]
        if len(mine) >= LIVE:
            self._refused(control, number, TOO_MUCH)
            return None
        state = control.controller.answer(number)
        assert isinstance(state, Declared), f"expected declared, got {state!r}"
        self._outcomes(client, control.link)
        transaction = ModelTransaction(state.txn_id, control, self.now)
        assert self._transaction(state.txn_id) is None, "a txn-id that was used before"
        self.books.transactions.append(transaction)
        return transaction

    def _refused(self, control: Control, number: int, condition: str) -> None:
        """A declare or discharge that failed: the answer says so if it may, else the control link ends
        (4.2, 4.3).
        """
        if control.rejects:
            state = control.controller.answer(number)
            assert condition_of(state) == condition, f"expected {condition}, got {state!r}"
            self._outcomes(control.client, control.link)
        else:
            self._terminate(control, condition)

    def _ask_discharge(self, control: Control, txn_id: bytes, *, fail: bool) -> int:
        self.settled_at = 0
        return control.controller.ask(Discharge(txn_id=txn_id, fail=fail))

    def _discharge_in_model(
        self, control: Control, transaction: ModelTransaction | None, *, fail: bool, stored: bool = True
    ) -> str | None:
        """What a discharge does; returns the error that it is answered with."""
        books = self.books
        if transaction is None or transaction.control is not control:
            return UNKNOWN
        if transaction.end in ("timeout", "forced"):
            condition = TIMEOUT if transaction.end == "timeout" else ROLLBACK
            transaction.end = "over"
            books.clear_acquiring(transaction)
            return None if fail else condition
        if not transaction.open:
            return UNKNOWN
        books.clear_acquiring(transaction)
        if fail:
            books.roll_back(transaction)
            return None
        if transaction.end == "failed" or not stored:
            books.roll_back(transaction)
            return ROLLBACK
        self._commit(transaction)
        return None

    def _commit(self, transaction: ModelTransaction) -> None:
        late = self.books.commit(transaction)
        for name in QUEUES:
            self._posted(name, [message for queue, message in transaction.posts if queue == name])
        self._late(late)

    # Posting

    def _message(self, number: int, durable: list[bool], size: int) -> tuple[ModelMessage, bytes]:
        self.bodies_made += 1
        body = b"%d " % self.bodies_made + b"x" * SIZES[size]
        persistent = durable[number % len(durable)]
        message = ModelMessage(body, persistent, len(encode_message(body=body)))
        return message, encode_message(header=Header(durable=persistent), body=body)

    def _put(
        self, sender: Sender, count: int, durable: list[bool], size: int, *, settled: bool
    ) -> list[ModelMessage]:
        """Write at most so many messages, as credit allows; the model does not know them yet."""
        messages = []
        for number in range(count):
            if sender.link.may_send:
                message, payload = self._message(number, durable, size)
                sender.link.send(payload, settled=settled)
                messages.append(message)
        return messages

    def _post(self, name: str, messages: list[ModelMessage]) -> None:
        """They came to the queue outside of any transaction."""
        for message in messages:
            self.books.queues[name].post(message)
        self._posted(name, messages)

    def _posted(self, name: str, messages: list[ModelMessage]) -> None:
        """They are in the queue now, and browsers are to be shown them."""
        for message in messages:
            for client in self.clients:
                for receiver in client.receivers:
                    if receiver.browser and receiver.queue == name:
                        receiver.owed[message.body] = message
