"""The names of nodes that are made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp_broker.addresses import TEMPORARY_PREFIX, Address, AddressError, parse_address
from amqp_broker.management.errors import Unmanageable
from amqp_broker.nodes.refusals import NodeRefused

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes


def lasting_address(nodes: BrokerNodes, name: str, kind: str) -> Address:
    """The address of a node of this name, if one of this kind can have it and links would find it there.
    Raises Unmanageable.
    """
    try:
        address = parse_address(name, nodes.config.limits.address_bytes)
    except AddressError as error:
        raise Unmanageable(400, str(error)) from None
    if address.reserved or name.startswith(TEMPORARY_PREFIX):
        raise Unmanageable(403, f"{name!r} is no name for a {kind} that lasts")
    try:
        found, _ = nodes.names.of(name)
    except NodeRefused as refused:
        raise Unmanageable(409, str(refused)) from None
    if found != name:
        raise Unmanageable(409, f"expected a name that leads to itself, and {name!r} leads to {found!r}")
    return address
