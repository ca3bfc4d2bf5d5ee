"""Everything that the broker can do, put together: one line for each kind of node of the core, and for each
feature. The core knows none of the features; each registers its nodes and fills the hooks that it needs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from amqp_broker import consumer_timeouts
from amqp_broker.broker_nodes import BrokerNodes
from amqp_broker.configuration_fields import ConfigurationError, Problem, shown
from amqp_broker.dead_letters import rules
from amqp_broker.dead_letters.dead_letters import DeadLetters
from amqp_broker.delays import room
from amqp_broker.duplicates import duplicates
from amqp_broker.half_sets.administration import SetAdministration
from amqp_broker.half_sets.half_sets import HalfSets
from amqp_broker.half_sets.set_node import register_sets
from amqp_broker.halves.administration import HalfAdministration
from amqp_broker.halves.halves import Halves
from amqp_broker.halves.nodes import HalfNodes
from amqp_broker.nodes.coordinator import CoordinatorNode
from amqp_broker.nodes.outcomes import OUTCOME_ADDRESS, OutcomeNode
from amqp_broker.nodes.queues import QueueNode, QueueNodes, TemporaryNode
from amqp_broker.nodes.registry import COORDINATOR, QUEUES, RELAY, TEMPORARY, Registry
from amqp_broker.nodes.relay import RelayNode
from amqp_broker.rabbitmq import lifetimes
from amqp_broker.replacing.last_values import LastValues
from amqp_broker.resumption.termini import LastingTermini
from amqp_broker.retained.cursors import RETAINED_ADDRESS
from amqp_broker.retained.node import RetainedNode
from amqp_broker.retained.reading import RetainedReading
from amqp_broker.retained.retained_nodes import RetainedNodes
from amqp_broker.sequences.administration import SequenceAdministration
from amqp_broker.sequences.links import SequenceRules
from amqp_broker.sequences.sequences import Sequences
from amqp_broker.sequences.settings import fill
from amqp_broker.topics.bindings import Bindings
from amqp_broker.topics.nodes import register_topics
from amqp_broker.topics.topics import Topics


class Features:
    """Made once for each broker, before its queues are recovered."""

    def __init__(self, nodes: BrokerNodes) -> None:
        self.nodes = nodes
        self.registry = Registry(nodes.names)
        self._core(nodes)
        self._dead_letters(nodes)
        self._delays(nodes)
        self._rules(nodes)
        nodes.queues.fillers.append(lifetimes.fill)
        nodes.queues.leaving.append(lifetimes.leave)
        self.lasting = self.queues.lasting = LastingTermini(nodes)
        self._sequences(nodes)
        self._retained(nodes)
        self._halves(nodes)
        self.topics = Topics(nodes)
        register_topics(self.registry, self.topics)
        self.bindings = Bindings(self.topics)
        self.stop_tracing = self._tracing(nodes)

    def _core(self, nodes: BrokerNodes) -> None:
        registry = self.registry
        self.queues = queues = QueueNodes(nodes)
        nodes.queues.fillers.append(partial(consumer_timeouts.fill, nodes.timers))
        registry.register(QUEUES, partial(QueueNode, queues))
        registry.register(TEMPORARY, lambda _: TemporaryNode(queues))
        registry.register(RELAY, lambda _: RelayNode(registry, queues))
        registry.register(COORDINATOR, lambda _: CoordinatorNode(nodes))
        registry.register(OUTCOME_ADDRESS, partial(OutcomeNode, nodes))

    def _dead_letters(self, nodes: BrokerNodes) -> None:
        self.dead_letters = DeadLetters(nodes)
        nodes.queues.fillers.append(partial(rules.fill, self.dead_letters))
        nodes.queues.changers.append(partial(rules.change, self.dead_letters))
        nodes.queues.needs.append(self.dead_letters.why_needed)

    def _delays(self, nodes: BrokerNodes) -> None:
        self.delays = room.Room(nodes)
        nodes.queues.fillers.append(partial(room.fill, self.delays))

    def _rules(self, nodes: BrokerNodes) -> None:
        """About what comes into queues (`JudgedQueue`), in the order in which they are asked."""
        self.duplicates = duplicates.Duplicates(nodes)
        nodes.queues.fillers.append(partial(duplicates.fill, self.duplicates))
        self.last_values = LastValues(nodes)
        nodes.queues.fillers.append(self.last_values.fill)

    def _sequences(self, nodes: BrokerNodes) -> None:
        self.sequences = Sequences(nodes)
        self.sequence_administration = SequenceAdministration(nodes, self.sequences)
        nodes.queues.fillers.append(fill)
        self.queues.rules = SequenceRules(self.sequences)

    def _retained(self, nodes: BrokerNodes) -> None:
        self.retained = RetainedNodes(nodes)
        reading = RetainedReading(self.retained)
        self.registry.register(RETAINED_ADDRESS, partial(RetainedNode, self.retained))
        self.registry.register_source(reading.node)

    def _halves(self, nodes: BrokerNodes) -> None:
        self.halves = Halves(nodes)
        nodes.queues.outliving.append(self.halves.wait_for)
        self.half_administration = HalfAdministration(nodes, self.halves)
        self.half_sets = HalfSets(nodes, self.halves)
        self.half_set_administration = SetAdministration(self.half_sets)
        half_nodes = HalfNodes(nodes, self.halves, self.half_sets)
        half_nodes.register(self.registry)
        register_sets(self.registry, half_nodes, self.half_sets)

    def _tracing(self, nodes: BrokerNodes) -> Callable[[], None] | None:
        """What ends it, None where nobody traces. Raises ConfigurationError for an extra that is missing."""
        config = nodes.config.tracing
        if config.endpoint is None:
            return None
        try:
            from amqp_broker.tracing.spans import tracing
        except ImportError as error:
            allowed = f"needs the package {error.name}: pip install 'amqp-broker[tracing]'"
            raise ConfigurationError(Problem("tracing.endpoint", shown(config.endpoint), allowed)) from None
        nodes.writer.watcher = made = tracing(config, nodes.clock)
        return made.end
