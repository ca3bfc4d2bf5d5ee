"""Everything that can be managed of a broker, put together: one line for the core, and one for each feature,
whose own module `managed` says what there is of it. These are loaded with the first link that asks: many
brokers see none.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from amqp_broker.addresses import MANAGEMENT
from amqp_broker.configuration import RABBITMQ_FORM
from amqp_broker.features import Features
from amqp_broker.names import RABBITMQ_NODE

if TYPE_CHECKING:
    from amqp_broker.backups.backups import Start
    from amqp_broker.connection_task import Connections
    from amqp_broker.management.node import Management
    from amqp_broker.nodes.node import Node
    from amqp_broker.rabbitmq.node import PairedManagement
    from amqp_broker.reloading.managed import Reload


class Managed:
    """Made once for each broker; its nodes are registered with those of the features."""

    def __init__(self, features: Features, connections: Connections, start: Start, reload: Reload) -> None:
        """`start` runs a task of the broker, and `reload` has it read its configuration again."""
        self._features = features
        self._reload = reload
        self._start = start
        self._connections = connections
        features.registry.register(MANAGEMENT, self._node)
        if RABBITMQ_FORM in features.nodes.config.address_forms:
            features.registry.register(RABBITMQ_NODE, lambda name: self._paired.node(name))

    @cached_property
    def management(self) -> Management:
        """All types of entities."""
        from amqp_broker.backups.backups import Backups
        from amqp_broker.backups.managed import backup_type
        from amqp_broker.dead_letters.managed import redrive_actions
        from amqp_broker.half_sets.managed import set_type
        from amqp_broker.halves.managed import half_type
        from amqp_broker.management.core_types import core_types
        from amqp_broker.management.node import Management
        from amqp_broker.reloading.managed import reload_action
        from amqp_broker.retained.managed import cursor_type
        from amqp_broker.sequences.managed import stream_type
        from amqp_broker.topics.managed import topic_types

        features, nodes = self._features, self._features.nodes
        management = Management(nodes)
        management.add(*core_types(nodes, self._connections))
        management.extend("broker", reload_action(self._reload))
        management.extend("queue", redrive_actions(nodes))
        management.add(
            stream_type(nodes, features.sequence_administration),
            cursor_type(features.retained),
            half_type(features.halves, features.half_administration),
            set_type(features.half_set_administration),
            *topic_types(features.topics, features.bindings),
            backup_type(Backups(nodes, self._start)),
        )
        return management

    def _node(self, name: str) -> Node:
        from amqp_broker.management.node import ManagementNode

        return ManagementNode(self.management, name)

    @cached_property
    def _paired(self) -> PairedManagement:
        from amqp_broker.rabbitmq.node import PairedManagement

        return PairedManagement(self.management)
