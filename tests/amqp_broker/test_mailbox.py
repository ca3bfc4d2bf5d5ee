"""The calls that wait for one owner: a fault in one of them is not the end of the others."""

from __future__ import annotations

import pytest

from amqp_broker.mailbox import Mailbox


def with_a_fault() -> tuple[Mailbox, list[str]]:
    """A mailbox in which the second of three calls raises, and which of them were made."""
    called: list[str] = []

    def call(name: str, _: None) -> None:
        called.append(name)
        if name == "second":
            mail.post(call, "led to")
            raise LookupError("planted")

    mail = Mailbox(lambda: None)
    for name in ("first", "second", "third"):
        mail.post(call, name)
    return mail, called


def test_what_stands_behind_a_fault_stays() -> None:
    """In its order, before what came since then."""
    mail, called = with_a_fault()
    with pytest.raises(LookupError):
        mail.read()
    assert called == ["first", "second"] and mail
    mail.read()
    assert called == ["first", "second", "third", "led to"] and not mail


def test_at_its_end_everything_is_called() -> None:
    """And then the fault is raised. What comes is called at once by then."""
    mail, called = with_a_fault()
    with pytest.raises(LookupError):
        mail.close()
    assert called == ["first", "second", "led to", "third"] and not mail
    mail.post(lambda name, _: called.append(name), "late")
    assert called[-1] == "late"
