"""The service account that `up` gives to a node, or the default one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator

ACCOUNT = "tpu@sim-project.iam.gserviceaccount.com"
SENTENCE = "Google's default Compute Engine service account applies, usually an Editor of the project."


def test_without_a_service_account_up_says_which_applies(
    simulator: RunningSimulator, tpuctl: Callable[..., CommandResult]
) -> None:
    created = tpuctl("up", "v3-8", "--yes")
    assert created.code == 0
    assert created.err.count(SENTENCE) == 1
    assert "tpuctl init --service-account EMAIL" in created.err
    assert SENTENCE not in tpuctl("up", "v3-8").err, "the node exists"


def test_a_configured_service_account_is_that_of_the_hosts(
    simulator: RunningSimulator, tpuctl: Callable[..., CommandResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_SERVICE_ACCOUNT", ACCOUNT)
    created = tpuctl("up", "v3-8", "--yes")
    assert created.code == 0
    assert SENTENCE not in created.err
    body = """import os, urllib.request
path = "/computeMetadata/v1/instance/service-accounts/default/email"
address = "http://" + os.environ["GCE_METADATA_HOST"] + path
request = urllib.request.Request(address, headers={"Metadata-Flavor": "Google"})
print(urllib.request.urlopen(request).read().decode())
"""
    Path("job.py").write_text(body)
    assert tpuctl("submit", "job.py").code == 0
    assert tpuctl("logs", "-f").out.strip() == ACCOUNT
