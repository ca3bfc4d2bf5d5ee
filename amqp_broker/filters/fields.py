"""The fields of a stored message as filters ask for them, each decoded once however many filters ask."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

from amqp_broker.frames import DecodeError, Message, Properties, Ulong
from amqp_broker.persistence import Record

NO_PROPERTIES: Final = Properties()


class MessageFields:
    """What filters see of one message.

    `jms(name)` is a header or property by the name that JMS has for it, as `javax.jms.Message` would show
    it (the AMQP mapping of JMS); `properties` and `application_properties` are the sections. What cannot be
    decoded (a store of an older version may have it) is as if it were not there.
    """

    __slots__ = ("_application", "_message", "_properties", "_record")

    def __init__(self, record: Record) -> None:
        self._record = record
        self._message = Message(record.body)
        self._properties: Properties | None = None
        self._application: dict[str, Any] | None = None

    @property
    def properties(self) -> Properties:
        """The properties; without any field where the section is omitted."""
        if self._properties is None:
            try:
                self._properties = self._message.properties or NO_PROPERTIES
            except DecodeError:
                self._properties = NO_PROPERTIES
        return self._properties

    @property
    def application_properties(self) -> dict[str, Any]:
        """The application-properties as plain values of Python; empty where the section is omitted."""
        if self._application is None:
            try:
                found = self._message.application_properties or {}
            except DecodeError:
                found = {}
            self._application = {key: plain(value) for key, value in found.items()}
        return self._application

    def jms(self, name: str) -> Any:
        """A string, a number, a boolean, or None where there is no such field."""
        known = JMS_FIELDS.get(name)
        return self.application_properties.get(name) if known is None else known(self)

    @property
    def record(self) -> Record:
        """The message, for its header."""
        return self._record


def plain(value: Any) -> Any:
    """The number or text of a value of AMQP's own types."""
    return getattr(value, "value", value)


def _message_id(value: Any) -> str | None:
    """JMSMessageID: a string that begins with `ID:` is itself, all others say what they are."""
    if isinstance(value, str):
        return value if value.startswith("ID:") else f"ID:AMQP_NO_PREFIX:{value}"
    return _other_id(value)


def _correlation_id(value: Any) -> str | None:
    return value if isinstance(value, str) else _other_id(value)


def _other_id(value: Any) -> str | None:
    if isinstance(value, uuid.UUID):
        return f"ID:AMQP_UUID:{value}"
    if isinstance(value, Ulong):
        return f"ID:AMQP_ULONG:{value.value}"
    return f"ID:AMQP_BINARY:{value.hex().upper()}" if isinstance(value, bytes) else None


def _user_id(fields: MessageFields) -> str | None:
    user_id = fields.properties.user_id
    return None if user_id is None else user_id.decode("utf-8", "replace")


JMS_FIELDS: Final[dict[str, Callable[[MessageFields], Any]]] = {
    "JMSDeliveryMode": lambda fields: "PERSISTENT" if fields.record.durable else "NON_PERSISTENT",
    "JMSPriority": lambda fields: fields.record.priority,
    "JMSMessageID": lambda fields: _message_id(fields.properties.message_id),
    "JMSTimestamp": lambda fields: fields.properties.creation_time,
    "JMSCorrelationID": lambda fields: _correlation_id(fields.properties.correlation_id),
    "JMSType": lambda fields: fields.properties.subject,
    "JMSXGroupID": lambda fields: fields.properties.group_id,
    "JMSXGroupSeq": lambda fields: fields.properties.group_sequence,
    "JMSXUserID": _user_id,
    "JMSXDeliveryCount": lambda fields: fields.record.delivery_count + 1,
}
"""By the names of Jakarta Messaging 3.1 (3.4, 3.5.11); every other name is an application-property."""
