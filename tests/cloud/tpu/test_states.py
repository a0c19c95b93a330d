"""Every state of the API has a meaning."""

from __future__ import annotations

from google.cloud import tpu_v2

from tpuctl.cloud.tpu.messages import STATES, enum_name, read_node
from tpuctl.nodes import NodeState, Symptom

NAME = "projects/p/locations/us-east1-d/nodes/n1"


def test_the_table_names_every_state_of_the_api() -> None:
    unspecified = {"STATE_UNSPECIFIED", "UNKNOWN"}
    assert {state.name for state in tpu_v2.Node.State} - unspecified == set(STATES)


def test_a_state_that_this_client_does_not_know_is_unknown_and_shown_by_its_number() -> None:
    assert enum_name(tpu_v2.Node.State, 99) == "99"
    node = read_node(tpu_v2.Node(name=NAME, state=99))
    assert (node.state, node.provider_state) == (NodeState.UNKNOWN, "99")


def test_the_apis_own_word_is_kept_to_be_shown() -> None:
    node = read_node(tpu_v2.Node(name=NAME, state=tpu_v2.Node.State.TERMINATED))
    assert (node.state, node.provider_state) == (NodeState.PREEMPTED, "TERMINATED")


def test_ill_health_is_kept_with_the_worker_it_was_noticed_on() -> None:
    kinds = tpu_v2.Symptom.SymptomType
    symptom = tpu_v2.Symptom(worker_id="3", symptom_type=kinds.OUT_OF_MEMORY, details="oom-killer")
    timeout = tpu_v2.Node.Health.TIMEOUT
    node = read_node(
        tpu_v2.Node(name=NAME, health=timeout, health_description="no answer", symptoms=[symptom])
    )
    assert (node.health, node.health_description) == ("TIMEOUT", "no answer")
    assert node.symptoms == (Symptom("3", "OUT_OF_MEMORY", "oom-killer", ""),)


def test_health_and_symptoms_that_this_client_does_not_know_are_shown_by_their_numbers() -> None:
    node = read_node(tpu_v2.Node(name=NAME, health=99, symptoms=[tpu_v2.Symptom(symptom_type=98)]))
    assert node.health == "99"
    assert [symptom.kind for symptom in node.symptoms] == ["98"]
