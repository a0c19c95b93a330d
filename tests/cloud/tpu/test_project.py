"""Quotas: which limit holds for a type in a zone, read from the simulated Cloud Quotas API.

The metadata of a project, and whether hosts let people in by OS Login.
"""

from __future__ import annotations

import msgspec
import pytest

from tests.running_simulator import RunningSimulator
from tpuctl.accelerators import accelerator
from tpuctl.catalogue.quotas import UNLIMITED, QuotaLimit, QuotaList
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.tpu import quotas
from tpuctl.cloud.tpu.project_metadata import OS_LOGIN, uses_os_login
from tpuctl.cloud.tpu.quotas import GENERATIONS, QUOTA_ID
from tpuctl.errors import ConfigError
from tpuctl.sim.world.capacity.capacity import QUOTAS, SCOPES

ZONE = "europe-west4-a"


def test_every_quota_of_the_simulated_api_is_known() -> None:
    """The simulator has its own table, from logs of the real API."""
    for (generation, has_slices), stems in QUOTAS.items():
        for spot, stem in zip((False, True), stems, strict=True):
            match = QUOTA_ID.fullmatch(stem + SCOPES["zone"])
            assert match, stem
            known, slices = GENERATIONS[match["number"], match["family"], match["kind"]]
            assert (known, bool(match["spot"])) == (generation, spot)
            assert slices in (None, has_slices)


def test_quotas_of_serving_are_others() -> None:
    assert not QUOTA_ID.fullmatch("TPUV5sLitepodServingPerProjectPerZoneForTPUAPI")


def test_limits_are_those_that_creates_meet(cloud: Cloud, simulator: RunningSimulator) -> None:
    limits = simulator.world.capacity.quotas.limits
    limits["sim-project", ZONE, "TPUV3sPerProjectPerZoneForTPUAPI"] = 16
    limits["sim-project", "europe-west4", "TPUV3sPerProjectPerRegionForTPUAPI"] = 8
    limits["sim-project", ZONE, "TPUV3sPreemptiblePodPerProjectPerZoneForTPUAPI"] = 0
    read = cloud.read_quotas()
    v3_8, v3_32 = accelerator("v3-8"), accelerator("v3-32")
    assert str(read.quota(v3_8, ZONE, spot=False)) == "8 cores", "the region's is smaller"
    assert str(read.quota(v3_8, ZONE, spot=True)) == "unlimited"
    assert str(read.quota(v3_32, ZONE, spot=True)) == "0 cores"
    assert read.quota(v3_8, "us-east1-d", spot=False).limit == UNLIMITED
    assert read.quota(v3_32, ZONE, spot=False).value == "unlimited"


def test_an_api_that_is_off_is_an_error_that_names_it(cloud: Cloud, simulator: RunningSimulator) -> None:
    simulator.faults.add("api-off", api="cloudquotas")
    with pytest.raises(ConfigError, match="not enabled") as refused:
        cloud.read_quotas()
    assert "cloudquotas" in refused.value.hint


def test_a_quota_that_nobody_names_is_unknown() -> None:
    v6e = accelerator("v6e-8")
    quota = QuotaList((QuotaLimit("v6e", True, None, ("us-east5",), 8),), "API").quota(
        v6e, "us-east5-b", spot=False
    )
    assert (str(quota), quota.value) == ("unknown", None)
    assert quota.reason == "the API names no quota of v6e-8 in us-east5-b"
    assert QuotaList((), reason="no rights").quota(v6e, "us-east5-b", spot=False).reason == "no rights"


@pytest.mark.parametrize(
    ("info", "limits"),
    [
        (
            {"dimensions": {"zone": "us-east5-b"}, "details": {"value": "8"}},
            [QuotaLimit("v6e", True, None, ("us-east5-b",), 8)],
        ),
        (
            {"applicableLocations": ["us-east5", "us-east1"], "details": {"value": 16}},
            [QuotaLimit("v6e", True, None, ("us-east5", "us-east1"), 16)],
        ),
        (
            {"dimensions": {"zone": "us-east5-b"}, "details": {"value": "-1"}},
            [QuotaLimit("v6e", True, None, ("us-east5-b",), UNLIMITED)],
        ),
        ({"dimensions": {"zone": "us-east5-b"}}, [QuotaLimit("v6e", True, None, ("us-east5-b",), 0)]),
        (
            {"details": {"value": "9" * 15}, "dimensions": {"zone": "z"}},
            [QuotaLimit("v6e", True, None, ("z",), int("9" * 15))],
        ),
        ({"details": {"value": "9" * 16}, "dimensions": {"zone": "z"}}, []),
        ({"details": {"value": "-2"}, "dimensions": {"zone": "z"}}, []),
        ({"details": {"value": "many"}, "dimensions": {"zone": "z"}}, []),
    ],
)
def test_a_limit_is_a_number_of_its_places(info: dict[str, object], limits: list[QuotaLimit]) -> None:
    """A message in JSON leaves out what is 0."""
    quota = {"quotaId": "TPUV6EPreemptiblePerProjectPerZoneForTPUAPI", "dimensionsInfos": [info]}
    assert list(quotas._limits(msgspec.convert(quota, quotas._QuotaInfo))) == limits


@pytest.mark.parametrize("name", ["TPUV9xPerProjectPerZoneForTPUAPI", "CPUsPerProject", ""])
def test_a_quota_of_something_else_limits_no_type(name: str) -> None:
    info = {"dimensions": {"zone": "z"}, "details": {"value": "8"}}
    quota = {"quotaId": name, "dimensionsInfos": [info]}
    assert list(quotas._limits(msgspec.convert(quota, quotas._QuotaInfo))) == []


@pytest.mark.parametrize("text", ["1", "t", "T", "true", "TRUE", "True", " true ", "true\n"])
def test_os_login_is_on_where_googles_agent_takes_the_value_for_true(text: str) -> None:
    assert uses_os_login({}, {OS_LOGIN: text})
    assert uses_os_login({OS_LOGIN: text}, {})


@pytest.mark.parametrize("text", ["", "0", "f", "false", "yes", "on", "2", "truex"])
def test_os_login_is_off_with_any_other_value(text: str) -> None:
    assert not uses_os_login({}, {OS_LOGIN: text})
    assert not uses_os_login({OS_LOGIN: text}, {})


@pytest.mark.parametrize(("own", "is_on"), [("true", True), ("false", False), ("", False)])
def test_the_nodes_own_value_counts_before_the_projects(own: str, is_on: bool) -> None:
    assert uses_os_login({OS_LOGIN: own}, {OS_LOGIN: "false" if is_on else "true"}) is is_on


def test_without_a_value_os_login_is_off() -> None:
    assert OS_LOGIN == "enable-oslogin"
    assert not uses_os_login({"other": "true"}, {"enable-oslogin-2fa": "true"})
