"""Every state of the API has a meaning."""

from __future__ import annotations

from google.cloud import tpu_v2

from tpuctl.cloud.tpu.messages import read_node
from tpuctl.cloud.tpu.states import STATES, state_name
from tpuctl.nodes import NodeState

NAME = "projects/p/locations/us-east1-d/nodes/n1"


def test_the_table_names_every_state_of_the_api() -> None:
    unspecified = {"STATE_UNSPECIFIED", "UNKNOWN"}
    assert {state.name for state in tpu_v2.Node.State} - unspecified == set(STATES)


def test_a_state_that_this_client_does_not_know_is_unknown_and_shown_by_its_number() -> None:
    assert state_name(99) == "99"
    node = read_node(tpu_v2.Node(name=NAME, state=99))
    assert (node.state, node.provider_state) == (NodeState.UNKNOWN, "99")


def test_the_apis_own_word_is_kept_to_be_shown() -> None:
    node = read_node(tpu_v2.Node(name=NAME, state=tpu_v2.Node.State.TERMINATED))
    assert (node.state, node.provider_state) == (NodeState.PREEMPTED, "TERMINATED")
