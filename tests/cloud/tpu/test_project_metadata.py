"""The metadata of a project, and whether hosts let people in by OS Login."""

from __future__ import annotations

import pytest

from tpuctl.cloud.tpu.project_metadata import OS_LOGIN, uses_os_login


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
