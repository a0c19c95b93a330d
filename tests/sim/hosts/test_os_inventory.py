"""The facts of a host's system, by the names of Google's OS config agent."""

from __future__ import annotations

import importlib.util
import platform
import re

import pytest

NAME = "tpuctl.sim.hosts.host"

RELEASE = {"PRETTY_NAME": "Ubuntu 22.04.4 LTS", "ID": "ubuntu", "VERSION_ID": "22.04"}


@pytest.mark.parametrize(
    ("release", "long", "short", "version"),
    [
        (RELEASE, "Ubuntu 22.04.4 LTS", "ubuntu", "22.04"),
        (None, platform.system(), platform.system().lower(), platform.release()),
    ],
)
def test_the_facts_are_those_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, release: dict[str, str] | None, long: str, short: str, version: str
) -> None:
    """https://cloud.google.com/compute/docs/instances/view-os-details"""

    def read() -> dict[str, str]:
        if release is None:
            raise OSError("no os-release")
        return release

    monkeypatch.setattr(platform, "freedesktop_os_release", read)
    spec = importlib.util.find_spec(NAME)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)  # a copy of its own: the facts are looked up once
    spec.loader.exec_module(module)
    facts = module.inventory("t1v-n-1-w-0")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", facts.pop("LastUpdated"))
    assert facts == {
        "Hostname": "t1v-n-1-w-0",
        "Architecture": platform.machine(),
        "KernelRelease": platform.release(),
        "KernelVersion": platform.version(),
        "LongName": long,
        "ShortName": short,
        "Version": version,
        "OSConfigAgentVersion": "20240320.00",
    }
