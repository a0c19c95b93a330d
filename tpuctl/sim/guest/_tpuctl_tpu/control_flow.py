"""Synchronizes replicas: in their common graph, or, inside a branch or a loop, at run time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .hooks import TensorFlow


class Meetings(threading.local):
    """Knows, in the thread that traces a replica, whether the other replicas are in reach.

    TensorFlow traces a branch or a loop into a graph apart. There replicas meet by collective operations.
    """

    graph: object = None
    """The one that this thread's replica is traced into."""

    def __init__(self, tensorflow: TensorFlow) -> None:
        """Give each thread its own knowledge."""
        self._tensorflow = tensorflow
        self._holders: set[object] = set()

    def traced(self, fn: Callable[..., object]) -> Callable[..., object]:
        """Return a replica's `fn` so that it notes the graph it is traced into."""

        def noting_its_graph(*args: object, **kwargs: object) -> object:
            self.graph = self._tensorflow.ops.get_default_graph()
            return fn(*args, **kwargs)

        unconverted: Callable[..., object] = self._tensorflow.tf.autograph.experimental.do_not_convert(
            noting_its_graph
        )
        return unconverted

    def apart(self) -> bool:
        """Whether a branch or a loop of the replica is being traced."""
        if self.graph is None or self._tensorflow.context.executing_eagerly():
            return False
        return self._tensorflow.ops.get_default_graph() is not self.graph

    def hold(self) -> None:
        """Note a meeting in all the graphs that the one being traced is part of."""
        graph = self._tensorflow.ops.get_default_graph()
        while graph is not self.graph and graph is not None:
            graph = graph.outer_graph
            self._holders.add(graph)

    def were_held_in(self, graph: object) -> bool:
        """Whether replicas meet in what was just traced for an operation of `graph`; asking forgets it."""
        if graph not in self._holders:
            return False
        self._holders.discard(graph)
        return True


def install(tensorflow: TensorFlow, meetings: Meetings) -> None:
    """Let replicas meet in branches and loops."""
    _keep_loops_whole(tensorflow, meetings)
    _copy_from_first_replica(tensorflow, meetings)


def _keep_loops_whole(tensorflow: TensorFlow, meetings: Meetings) -> None:
    """Have a loop run as one operation: iterations taken apart never find those of another replica."""
    control_flow = tensorflow.control_flow
    take_apart = control_flow.maybe_set_lowering_attr

    def take_apart_unless_replicas_meet(op: Any, lower_using_switch_merge: bool | None = None) -> None:
        whole = meetings.were_held_in(op.graph)
        take_apart(op, False if whole else lower_using_switch_merge)

    control_flow.maybe_set_lowering_attr = take_apart_unless_replicas_meet


def _copy_from_first_replica(tensorflow: TensorFlow, meetings: Meetings) -> None:
    """Assign the first replica's value to every copy of a variable, where TensorFlow needs a common graph."""
    tf, values = tensorflow.tf, tensorflow.values
    aggregate = values.apply_aggregation_replica_context

    def aggregate_anywhere(value: object, aggregation: object, destinations: object) -> object:
        first_only = aggregation == tf.VariableAggregation.ONLY_FIRST_REPLICA
        if not (first_only and meetings.apart() and tf.is_tensor(value)):
            return aggregate(value, aggregation, destinations)
        replica = tf.distribute.get_replica_context()
        is_first = tf.equal(replica.replica_id_in_sync_group, 0)
        return replica.all_reduce("SUM", tf.where(is_first, value, tf.zeros_like(value)))

    values.apply_aggregation_replica_context = aggregate_anywhere
