"""What the reader of a batch and that of a stream decide: which addresses, from where, up to where."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from amqp_broker.pipeline.errors import DataLoss, MissingRight, OffsetError, OptionError
from amqp_broker.pipeline.offsets import EARLIEST, LATEST, Offsets, Range, positions_at
from amqp_broker.pipeline.options import EVENTS, Options, addresses_at
from amqp_broker.pipeline.retained_client import Node, Retained, RetainedClient

MEAN_BYTES_UNKNOWN: Final = 256
"""Of a message in a node that does not say how many octets it has; the log of events is one."""

log: Final = logging.getLogger("amqp_broker.pipeline.source")


def nodes_at_all(options: Options, found: Sequence[Retained]) -> list[dict[str, Node]]:
    """The nodes that the options name, at each broker. Raises OptionError for one that does not retain, and
    for a pattern that nothing matches.
    """
    nodes = [nodes_to_read(options, each, partition) for partition, each in enumerate(found)]
    if not any(nodes):
        raise _nothing_matches(options, {address for each in found for address in each.nodes})
    return nodes


def nodes_to_read(options: Options, found: Retained, partition: int = 0) -> dict[str, Node]:
    """Those of one broker; of several brokers one may have none that matches."""
    if options.given("subscribePattern"):
        pattern = re.compile(options["subscribePattern"])
        nodes = {
            address: node
            for address, node in found.nodes.items()
            if address != EVENTS and pattern.fullmatch(address)
        }
        if not nodes and len(options.brokers) == 1:
            raise _nothing_matches(options, found.nodes)
        return nodes
    for address in addresses_at(options, partition):
        if address not in found.nodes:
            check_right(options, address, found, partition)
            raise OptionError(
                f"option {'assign' if options.given('assign') else 'subscribe'}: {address!r} is not a "
                f"node that retains messages{where(options, partition)}; there are {_listed(found.nodes)}. "
                "Set retention_ms or retention_bytes of the queue in the broker's configuration; if they "
                'are set, nobody has used the queue yet: have it made by create = "at-start", or send to '
                "it first"
            )
    return {address: found.nodes[address] for address in addresses_at(options, partition)}


def check_right(options: Options, address: str, found: Retained, partition: int = 0) -> None:
    """Raises MissingRight where the broker said that the user may not read the address."""
    if address in found.denied:
        right = "manage-read" if address == EVENTS else "browse"
        raise MissingRight(
            f"the right {right} on {address!r}{where(options, partition)} is missing "
            f"({found.denied[address]}): give it to the user of the option amqp.credentials by an [[access]] "
            "rule of the broker"
        )


def where(options: Options, partition: int) -> str:
    """Which broker, if there are several."""
    return f" at {options.brokers[partition]}" if len(options.brokers) > 1 else ""


def _nothing_matches(options: Options, addresses: Iterable[str]) -> OptionError:
    return OptionError(
        f"option subscribePattern: no retaining node matches {options['subscribePattern']!r}; "
        f"there are {_listed(addresses)}"
    )


def _listed(addresses: Iterable[str]) -> str:
    names = sorted(addresses)
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return (", ".join(map(repr, names[:10])) + more) if names else "none"


def starting(
    options: Options, client: RetainedClient, nodes: Mapping[str, Node], partition: int = 0
) -> dict[str, int]:
    """Where a query begins in each address of a broker, at the earliest where nothing else is given."""
    missing = LATEST if options["startingOffsets"] == "latest" else EARLIEST
    return _bound(options, client, nodes, partition, "starting", missing)


def ending(
    options: Options, client: RetainedClient, nodes: Mapping[str, Node], partition: int = 0
) -> dict[str, int]:
    """Where a batch ends in each address of a broker."""
    return _bound(options, client, nodes, partition, "ending", LATEST)


def _bound(
    options: Options,
    client: RetainedClient,
    nodes: Mapping[str, Node],
    partition: int,
    side: str,
    missing: int,
) -> dict[str, int]:
    """The offsets that the options of one side say; `missing` where they say nothing of an address."""
    if options.given(f"{side}Timestamp"):
        said = options[f"{side}Timestamp"]
        times = positions_at(said, partition) if isinstance(said, dict) else dict.fromkeys(nodes, said)
        unnamed = {address: node.next if side == "ending" else node.first for address, node in nodes.items()}
        return unnamed | {
            address: client.find(address, at) for address, at in times.items() if address in nodes
        }
    name = f"{side}Offsets"
    said = options[name]
    given = positions_at(said, partition) if isinstance(said, dict) else {}
    positions = {}
    for address, node in nodes.items():
        offset = given.get(address, missing)
        if offset == EARLIEST:
            offset = node.first
        elif offset == LATEST:
            offset = node.next
        if offset > node.next:
            raise OptionError(
                f"option {name}: expected at most {node.next} for {address!r}, which is its next "
                f"offset, found {offset}"
            )
        if offset < node.first and options["failOnDataLoss"]:
            raise DataLoss(
                f"option {name}: offset {offset} of {address!r} is not retained any more, the first "
                f"is {node.first}; "
                f"say that one or {EARLIEST} (earliest), or set the option failOnDataLoss to false"
            )
        positions[address] = offset
    return positions


def check_reachable(options: Options, end: Offsets, found: Retained, partition: int = 0) -> None:
    """Raises OffsetError where the offsets lie behind the end of their node, or the node is gone."""
    for address, offset in end.positions.items():
        node = found.nodes.get(address)
        if node is None:
            check_right(options, address, found, partition)
            gone = (
                f"{address!r}, up to offset {offset}, is no retaining node any "
                f"more{where(options, partition)}: deleted or renamed"
            )
            if options["failOnDataLoss"]:
                raise DataLoss(
                    f"{gone}, and what the query has not read of it is lost. To go on without it, set the "
                    "option failOnDataLoss to false"
                )
            log.warning("data loss: %s", gone)
        elif offset > node.next:
            raise OffsetError(
                f"the checkpoint is at offset {offset} of {address!r}, but the broker's next offset there is "
                f"{node.next}{where(options, partition)}: it was restored from an older copy, or the "
                "checkpoint is of another broker. Restore a newer copy of the broker, or begin anew with "
                "another checkpoint folder and another option subscription"
            )


def overtaken(
    options: Options, start: Offsets, end: Offsets, frozen: Mapping[str, int], found: Retained
) -> Offsets:
    """The end without the addresses of which retention has dropped all that the batch had, and where the
    beginning is only known as the first message that is left: that one lies behind the end. Raises DataLoss
    unless the query goes on without.
    """
    kept = dict(end.positions)
    for address, high in end.positions.items():
        low = start.positions.get(address, frozen.get(address, high))
        node = found.nodes.get(address)
        if node is None or low <= high or node.first < low:
            continue
        gone = (
            f"the messages of {address!r} before offset {high}, which a batch of the checkpoint has, are not "
            f"retained any more: the first is {node.first}"
        )
        if options["failOnDataLoss"]:
            raise DataLoss(
                f"{gone}. Retention was shorter than the query was behind. To go on without them (they are "
                "lost), set the option failOnDataLoss to false"
            )
        log.warning("data loss: %s; going on without them (failOnDataLoss=false)", gone)
        del kept[address]
    return attrs.evolve(end, positions=kept)


def missing_in(parts: Iterable[Range], found: Retained) -> list[Range]:
    """What of the ranges the broker has dropped already."""
    lost = []
    for part in parts:
        node = found.nodes.get(part.address)
        if node is None:
            lost.append(part)
        elif part.low < node.first:
            lost.append(attrs.evolve(part, high=min(part.high, node.first)))
    return lost


def check_loss(options: Options, parts: list[Range], found: Retained) -> list[Range]:
    """The ranges of one broker as far as they are there. Raises DataLoss for the rest, or says in the log
    what is missing."""
    lost = {part.address: part for part in missing_in(parts, found)}
    if lost and options["failOnDataLoss"]:
        raise DataLoss(
            f"expected {'; '.join(map(str, parts))}, but the broker has dropped "
            f"{'; '.join(map(str, lost.values()))}: retention was shorter than the query was behind. To go "
            "on without them (they are lost), set the option failOnDataLoss to false; to have more time the "
            "next time, raise retention_ms and retention_bytes of the queue"
        )
    for part in lost.values():
        tell_loss(part)
    kept = [attrs.evolve(part, low=max(part.low, _end_of(lost, part))) for part in parts]
    return [part for part in kept if len(part)]


def _end_of(lost: Mapping[str, Range], part: Range) -> int:
    return lost[part.address].high if part.address in lost else part.low


def tell_loss(part: Range) -> None:
    """Says in the log what is missing."""
    log.warning(
        "data loss: %d messages, %s, are gone; going on without them (failOnDataLoss=false)", len(part), part
    )


def rows_of_bytes(nodes: Iterable[Node], bytes_max: int) -> int:
    """About how many messages have so many octets: by their mean size in all the nodes."""
    every = list(nodes)
    messages = sum(node.next - node.first for node in every)
    octets = sum(node.bytes for node in every)
    mean_bytes = octets / messages if messages and octets else MEAN_BYTES_UNKNOWN
    return max(1, int(bytes_max / mean_bytes))
