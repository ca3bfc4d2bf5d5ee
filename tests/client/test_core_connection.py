"""How a connection, its sessions and their links end: alone, or with what they are part of."""

from __future__ import annotations

from amqp_broker.client.core_connection import Ending
from amqp_broker.client.errors import ConnectionGone, LinkGone, SessionGone
from amqp_broker.frames import Error


def chain() -> tuple[Ending, Ending, Ending]:
    """A connection, a session of it, and a link of that."""
    connection = Ending(ConnectionGone, "the connection ended")
    session = Ending(SessionGone, "the session ended", connection)
    return connection, session, Ending(LinkGone, "the link was detached", session)


def test_nothing_is_over_before_something_ended() -> None:
    """Neither alone nor with the whole."""
    assert [part.over for part in chain()] == [None, None, None]


def test_a_part_is_over_with_the_whole_and_not_the_other_way_round() -> None:
    """The reason is that of what ended; `gone` says it there only."""
    connection, session, link = chain()
    session.note_gone("the peer ended it")
    assert (connection.over, session.over, link.over) == (None, "the peer ended it", "the peer ended it")
    assert (connection.gone, session.gone, link.gone) == (None, "the peer ended it", None)


def test_the_error_is_that_of_the_outermost_that_ended() -> None:
    """A link whose connection is gone tells of the connection, with the peer's error, whatever else is."""
    connection, session, link = chain()
    link.note_gone("we detached it")
    assert str(link.gone_error("it")) == "expected it, but the link was detached: we detached it"
    assert isinstance(link.gone_error("it"), LinkGone)
    session.note_gone("we ended it")
    assert isinstance(link.gone_error("it"), SessionGone)
    connection.note_gone("the peer closed it", Error(condition="amqp:connection:forced"))
    found = link.gone_error("it")
    assert isinstance(found, ConnectionGone) and found.condition == "amqp:connection:forced"
    assert str(found) == "expected it, but the connection ended: the peer closed it"


def test_a_link_tells_of_its_connection_where_its_session_has_heard_nothing_yet() -> None:
    """The connection's end is noted before that of its sessions."""
    connection, _, link = chain()
    connection.note_gone("we closed it")
    assert isinstance(link.gone_error("it"), ConnectionGone)


def test_the_first_reason_stays() -> None:
    """What comes later is what follows from it."""
    connection, _, _ = chain()
    connection.note_gone("we closed it", Error(condition="amqp:internal-error"))
    connection.note_gone("the peer closed it")
    assert connection.gone == "we closed it"
    assert connection.gone_error("it").condition == "amqp:internal-error"
