"""Tests the table of kinds: requests are checked, documented, and known to the servers."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.paths import ROOT
from tpuctl.errors import UsageError
from tpuctl.faults import KINDS, LIMITS, request
from tpuctl.faults.document import document
from tpuctl.faults.fields import TYPES
from tpuctl.faults.methods import GCS, TPU
from tpuctl.sim.fault_executor import HOST_KINDS, NODE_KINDS
from tpuctl.sim.faults import FaultRegistry
from tpuctl.sim.gcs import request_faults
from tpuctl.sim.iap import targets as tunnels
from tpuctl.sim.tpu.grpc_api import MIXINS, rpcs
from tpuctl.sim.world import injected_faults


def test_the_document_is_what_the_table_says() -> None:
    assert (ROOT / "docs" / "faults.md").read_text() == document(), "python -m tpuctl.faults.document"


def test_every_kind_is_acted_on_by_somebody() -> None:
    elsewhere = {"quota", "unreachable", "slow-operation", "stuck-operation"}
    acting = {
        *injected_faults.ERRORS,
        *request_faults.FAULTS,
        *NODE_KINDS,
        *HOST_KINDS,
        "iap-refused",
        *tunnels.CARRIED,
        *elsewhere,
    }
    assert acting == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_of_a_kind_is_a_request_for_it(kind: str) -> None:
    words = shlex.split(KINDS[kind].example)
    options = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}
    checked = request(kind, options)
    assert set(options) <= set(checked.options)
    assert FaultRegistry().add(checked).as_json(0)["kind"] == kind


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_has_a_known_type_and_a_default_of_it(kind: str) -> None:
    for field in (*KINDS[kind].fields, *LIMITS):
        assert field.type in TYPES
        if field.default not in (None, ""):
            assert field.read(field.default) == field.default


def test_the_methods_are_those_of_the_api() -> None:
    methods = {rpc.name for version in ("v2", "v2alpha1") for rpc in rpcs(version)} | {
        mixin.name for mixin in MIXINS
    }
    assert set(TPU) == methods


def test_the_methods_of_storage_are_those_that_its_operations_name() -> None:
    sources = (ROOT / "tpuctl" / "sim" / "gcs").rglob("*.py")
    text = "".join(path.read_text() for path in sources if path.name != "authorization.py")  # permissions
    permissions = {"objects.setRetention", "objects.overrideUnlockedRetention", "objects.setIamPolicy"}
    named = set(re.findall(r'"storage\.([a-zA-Z.]+)"', text)) - permissions
    assert named - {"googleapis.com"} == set(GCS)


@pytest.mark.parametrize(
    ("kind", "options", "message", "hint"),
    [
        ("stokout", {}, "There is no kind of fault 'stokout'.", "Did you mean stockout?"),
        ("xyzzy", {}, "There is no kind of fault 'xyzzy'.", "There are stockout, quota,"),
        ("stockout", {"zon": "x"}, "The fault 'stockout' has no zon.", "Did you mean zone?"),
        ("stockout", {"bandwidth": 1}, "The fault 'stockout' has no bandwidth.", "It has zone, type,"),
        ("gcs-cut", {}, "The fault 'gcs-cut' needs bytes", "tpuctl sim fault add gcs-cut --bytes 300kB"),
        ("gcs-cut", {"bytes": "1.5"}, "bytes has to be a number of bytes such as", "Bytes before the"),
        ("gcs-cut", {"bytes": True}, "bytes has to be a number of bytes", ""),
        (
            "stockout",
            {"count": "two"},
            "count has to be a whole number of at least 1, not 'two'.",
            "How often",
        ),
        ("stockout", {"probability": 1.5}, "probability has to be a number from 0 to 1, not 1.5.", ""),
        ("stockout", {"zone": 5}, "zone has to be text, not 5.", ""),
        ("stockout", {"reserved": "perhaps"}, "reserved has to be true or false, not 'perhaps'.", ""),
        ("error", {"method": "GetNode", "metadata": "x"}, "metadata has to be NAME=VALUE,...", ""),
        ("unavailable", {"method": "GetNod"}, "has no method 'GetNod'", "tpu.GetNode"),
        ("slow-operation", {"method": "CreateQueuedResource"}, "has no method", ""),
    ],
)
def test_what_cannot_be_meant_is_said_with_what_may_be(
    kind: str, options: dict[str, object], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as raised:
        request(kind, options)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_quantities_may_have_units() -> None:
    checked = request("gcs-slow", {"latency": "80ms", "bandwidth": "5MiB", "duration": "1.5h"})
    assert checked.options == {"latency": 0.08, "bandwidth": 5 << 20, "duration": 5400.0}


def test_faults_that_fit_work_in_the_order_they_were_asked_for() -> None:
    faults = FaultRegistry(clock=lambda: 0.0)
    for kind in ("error", "unavailable", "error"):
        faults.add(kind, method="GetNode", count=1)
    fired = [faults.fire("error", "unavailable", method="tpu.GetNode") for _ in range(4)]
    assert [fault and fault.id for fault in fired] == ["f1", "f2", "f3", None]


def test_a_seed_decides_the_same_again_and_probability_is_kept() -> None:
    def decisions(seed: int) -> list[bool]:
        faults = FaultRegistry(clock=lambda: 0.0)
        faults.add("unavailable", probability=0.25, seed=seed)
        return [faults.fire("unavailable", method="tpu.GetNode") is not None for _ in range(400)]

    assert decisions(1) == decisions(1) != decisions(2)
    assert 70 <= sum(decisions(1)) <= 130
