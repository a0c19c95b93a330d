"""The request for one zone that the options of `up` make."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.flows.nodes.memory_provider import ZONE, MemoryProvider
from tpuctl.errors import UsageError
from tpuctl.flows.nodes.lifetime import Lifetime
from tpuctl.flows.nodes.options import UpOptions, creation, is_own
from tpuctl.nodes import (
    CreateNode,
    CreateQueuedResource,
    Creation,
    DataDisk,
    NodeId,
    NodeRequest,
    QueuedResourceRequest,
    SshKey,
    owner_label,
)

KEY = SshKey("ada", "ssh-ed25519 AAAA")
OPTIONS = UpOptions("v3-8", "n1", "ada", framework="jax")
OWN = {"managed-by": "tpuctl", "tpuctl-owner": owner_label("ada")}
SCRIPT = "#!/bin/sh\necho own\n"
DISKS = (DataDisk("photos", read_only=True),)


def made(request_id: str = "", **options: Any) -> Creation:
    return creation(MemoryProvider(), replace(OPTIONS, **options), ZONE, "image-1", KEY, request_id)


def node_of(**options: Any) -> NodeRequest:
    change = made(**options)
    assert isinstance(change, CreateNode)
    return change.request


def queued_of(**options: Any) -> QueuedResourceRequest:
    change = made(**options)
    assert isinstance(change, CreateQueuedResource)
    return change.request


def test_what_nobody_asks_for_is_left_to_the_provider() -> None:
    assert node_of() == NodeRequest(
        id=NodeId("memory", "p", ZONE, "n1"), accelerator="v3-8", runtime="image-1", spot=False,
        network="default", service_account="", labels=OWN, ssh_key=KEY, subnetwork="", external_ips=True,
        reserved=False, topology="", scopes=(), tags=(), data_disks=(), startup_script="",
        metadata={"tpuctl-owner": "ada"}, secure_boot=False,
    )  # fmt: skip


def test_what_somebody_asks_for_is_requested() -> None:
    request = node_of(
        spot=True, network="lab", service_account="own@p", subnetwork="lab-us", external_ips=False,
        reserved=True, topology="2x2", scopes=("a",), tags=("t",), data_disks=DISKS, startup_script=SCRIPT,
        secure_boot=True, labels={"team": "vision"}, metadata={"color": "blue"},
    )  # fmt: skip
    assert request == replace(
        node_of(), spot=True, network="lab", service_account="own@p", subnetwork="lab-us", external_ips=False,
        reserved=True, topology="2x2", scopes=("a",), tags=("t",), data_disks=DISKS, startup_script=SCRIPT,
        secure_boot=True, labels={"team": "vision", **OWN}, metadata={"color": "blue", "tpuctl-owner": "ada"},
    )  # fmt: skip


def test_each_region_may_have_its_own_subnetwork() -> None:
    assert node_of(subnetworks={"us-central1": "of-region", "europe-west4": "x"}).subnetwork == "of-region"


def test_a_node_for_a_run_or_its_restart_says_so() -> None:
    assert node_of(run="r1").labels == {**OWN, "tpuctl-run": "r1"}
    assert node_of(restart="r1").labels == {**OWN, "tpuctl-restart": "r1"}


def test_an_end_by_itself_is_in_labels_metadata_and_script() -> None:
    request = node_of(
        lifetime=Lifetime(ttl=3600, idle=600), bucket="b", startup_script="#!/bin/sh\necho own\n"
    )
    marks = {"tpuctl-ttl": "3600s", "tpuctl-idle": "600s"}
    assert request.labels == {**OWN, **marks}
    assert request.metadata == {"tpuctl-owner": "ada", **marks, "tpuctl-bucket": "b"}
    assert request.startup_script == Lifetime(ttl=3600, idle=600).startup_script(SCRIPT)
    assert "starts the keeper" in request.startup_script


class TestQueue:
    @pytest.mark.parametrize(
        ("options", "needs"),
        [
            ({}, ()), ({"slices": 1}, ()), ({"slices": 2}, ("--slices",)),
            ({"reservation": "r"}, ("--reservation",)),
            ({"valid_until": "V"}, ("--valid-until",)), ({"reserved": True}, ()),
            ({"slices": 2, "valid_until": "V", "reservation": "r"},
             ("--slices", "--reservation", "--valid-until")),
        ],
    )  # fmt: skip
    def test_what_only_a_queue_has_is_queued(self, options: dict[str, Any], needs: tuple[str, ...]) -> None:
        asked = replace(OPTIONS, **options)
        assert (asked.needs_queue, asked.is_queued) == (needs, bool(needs))
        assert replace(asked, queued=True).is_queued
        if needs:
            with pytest.raises(UsageError, match=f"^{' and '.join(needs)} exist only in the queue") as error:
                made(**options, queued=False)
            assert error.value.hint == "Leave out --no-queued."

    def test_its_request_holds_that_of_the_node(self) -> None:
        request = queued_of(queued=True, request_id="7")
        assert request == QueuedResourceRequest(
            MemoryProvider().queued_resource_id(ZONE, "n1"), node_of(), 1, "", "", "7"
        )
        several = queued_of(slices=3, valid_until="V", reservation="r", reserved=True)
        assert (several.slices, several.valid_until, several.reservation) == (3, "V", "r")
        assert queued_of(queued=True, reserved=True).reservation == "-", "any that fits"

    def test_each_request_has_an_id_of_its_own(self) -> None:
        first, second = queued_of(queued=True).request_id, queued_of(queued=True).request_id
        assert len({first, second, ""}) == 3


class TestOwnKeys:
    @pytest.mark.parametrize(
        ("key", "expected"),
        [("managed-by", True), ("tpuctl-x", True), ("tpuctl-", True), ("tpuctl", False), ("team", False)],
    )
    def test_keys_of_tpuctl_are_refused(self, key: str, expected: bool) -> None:
        assert is_own(key) is expected
        for place in ("labels", "metadata"):
            if not expected:
                made(**{place: {key: "1"}})
                continue
            with pytest.raises(UsageError, match=f"^'{key}' is reserved") as error:
                made(**{place: {"a": "1", key: "1"}})
            assert error.value.hint == ("Choose a key that is not managed-by and does not begin with tpuctl-")

    def test_the_provider_has_the_last_word(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(self: MemoryProvider, change: Creation) -> None:
            raise UsageError("No.")

        monkeypatch.setattr(MemoryProvider, "check", refuse)
        with pytest.raises(UsageError, match="No"):
            made()
