"""Transfers that are cut in two by the discharge of their transaction (4.4.1, 4.4.3)."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from amqp_broker.frames import (
    Accepted,
)
from tests.model.books import (
    ROLLBACK,
    UNKNOWN,
    Hold,
    ModelTransaction,
)
from tests.model.clients import Receiver
from tests.model.queues import ModelMessage
from tests.model.stage import SIZES, index, queues
from tests.model.work import Work
from tests.support.broker_clients import round_trip


class Partial(Work):
    """A part of a message is on its way at the discharge, in either direction."""

    @rule(who=index, number=index, queue=queues, then=st.sampled_from(["commit", "fail", "wait"]),
          aborted=st.booleans())  # fmt: skip
    def post_in_two(self, who: int, number: int, queue: str, then: str, aborted: bool) -> None:
        """A discharge while a post in the transaction is incomplete terminates the control link (4.4.1)."""
        client = self._client(who)
        sender = self._sender(client, queue, who)
        transaction, txn_id = self._pick(client, number)
        if transaction is None or self.books.why_not(transaction, client) or not sender.link.may_send:
            return
        message, payload = self._message(0, [True], 1)
        delivery_id = sender.link.send(payload[:-2], txn_id=txn_id, more=True)
        self._rest()
        if then != "wait":
            control = transaction.control
            request = self._ask_discharge(control, txn_id, fail=then == "fail")
            if then == "commit":
                self._terminate(control, ROLLBACK)
            else:
                self.books.clear_acquiring(transaction)
                self.books.roll_back(transaction)
            self._rest()
            if then == "fail":
                assert isinstance(control.controller.answer(request), Accepted)
                self._outcomes(client, control.link)
        sender.link.send_more(b"" if aborted else payload[-2:], aborted=aborted)
        if then != "wait" and not aborted:
            self._end_sender(client, sender, UNKNOWN)
        elif not aborted:
            client.connection.pump_until(lambda: delivery_id in sender.link.outcomes)
            self._post_unsettled(transaction, queue, [message], [sender.link.outcomes[delivery_id]])
        self._rest()
        self._outcomes(client, sender.link)
        sender.link.outcomes.clear()

    @rule(who=index, number=index, queue=queues, settled=st.booleans(), fail=st.booleans())
    def send_a_part(self, who: int, number: int, queue: str, settled: bool, fail: bool) -> None:
        """4.4.3: "If the discharge indicates the failure of the transaction the resource MUST abort or
        complete the sending the remainder of the message before completing the discharge"; otherwise "the
        fate of the acquisition is fully decided by the discharge".
        """
        client = self._client(who)
        transaction, txn_id = self._pick(client, 6 * number)
        receiver = self._supplied(client, queue, settled, number)
        if not self.books.queues[queue].free():
            self.send(who, queue, 1, False, [True], len(SIZES) - 1)
        wanted = self.books.queues[queue].wanted_by(receiver)
        if not wanted or wanted[0].size < SIZES[-1] or receiver not in client.receivers:
            return
        message = wanted[0]
        if transaction is None or transaction.end != "" or not transaction.fits([message.size]):
            return
        session = receiver.link.session
        receiver.link.flow(1, txn_id=txn_id, incoming_window=1)
        receiver.acquiring = transaction
        client.connection.pump_until(lambda: receiver.link.partial)
        self.books.queues[queue].deliver(message.body, receiver, False)
        assert receiver.link.partial is not None
        delivery_id = receiver.link.partial.delivery_id
        if not settled:
            receiver.held[delivery_id] = message
        transaction.holds[message] = Hold(message, receiver, None if settled else delivery_id, acquired=True)
        transaction.take(message.size)
        control = transaction.control
        request = self._ask_discharge(control, txn_id, fail=fail)
        round_trip(*[each for each in client.sessions if each is not session])
        self._end_part(transaction, receiver, message, request, fail=fail)
        session.flow()
        if not fail:
            client.connection.pump_until(lambda: receiver.link.deliveries)
            arrived = receiver.link.deliveries.popleft()
            self._check_header(message, arrived.payload)
        self._rest()
        assert receiver.link.partial is None, "a delivery that ended was not aborted"
        assert isinstance(control.controller.answer(request), Accepted)
        self._outcomes(client, control.link)

    def _end_part(
        self, transaction: ModelTransaction, receiver: Receiver, message: ModelMessage, request: int, *,
        fail: bool,
    ) -> None:  # fmt: skip
        """The discharge in the model, while the rest of a delivery waits for the session's window."""
        books = self.books
        books.clear_acquiring(transaction)
        if not fail:
            self._commit(transaction)
            return
        assert request not in transaction.control.link.outcomes, "an answer before the delivery was aborted"
        assert receiver.link.partial is not None
        receiver.held.pop(receiver.link.partial.delivery_id, None)  # the abort settles it
        books.roll_back(transaction)
