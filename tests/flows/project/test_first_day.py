"""The table beside what hosts say, and the report that a bug report carries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tpuctl import images
from tpuctl.accelerators import accelerator
from tpuctl.config import load
from tpuctl.errors import HostError
from tpuctl.flows.project import first_day
from tpuctl.flows.project.doctor import DIFFERENT, OK, Finding
from tpuctl.flows.project.first_day import Expected, compare, read, report

PLAIN, POD = images.IMAGES["v2-alpha-tpuv5-lite"], images.IMAGES["tpu-vm-tf-2.18.0-pod-pjrt-v5e-and-v6"]
SLICE = accelerator("v5litepod-16")


def facts(worker: int = 0, image: images.Image = PLAIN, **changes: Any) -> dict[str, Any]:
    """What a host says that is as the table has it."""
    return {
        "system": "Ubuntu 22.04.5 LTS", "python": "3.10.12", "pip": "22.0.2", "sudo": "yes", "docker": "yes",
        "libtpu": "yes" if image.libtpu else "no", "devices": [f"/dev/vfio/{chip}" for chip in range(4)],
        "holders": [image.holder] if image.holder else [], "lock file": "none", "worker": str(worker),
        "packages": dict(image.packages), "memory": "47 GiB", **changes,
    }  # fmt: skip


def different(hosts: dict[int, dict[str, Any]], image: images.Image = PLAIN) -> list[str]:
    findings = compare(hosts, Expected(image, SLICE))
    return [f"{each.check}: {each.text}" for each in findings if each.state == DIFFERENT]


@pytest.mark.parametrize("image", [PLAIN, POD], ids=["plain", "pod"])
def test_hosts_that_are_as_the_table_has_them_have_no_difference(image: images.Image) -> None:
    hosts = {worker: facts(worker, image) for worker in range(4)}
    findings = compare(hosts, Expected(image, SLICE))
    assert {each.state for each in findings} == {OK}
    assert {each.check: each.text for each in findings}["worker"] == "0 to 3"
    assert len(findings) == len({each.check for each in findings}), "each is said once for all hosts"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"python": "3.1.0"}, "python: 3.1.0; the table says 3.10"),
        ({"python": "3.12.3"}, "python: 3.12.3; the table says 3.10"),
        ({"system": "Ubuntu 24.04"}, "system: Ubuntu 24.04; the table says Ubuntu 22.04"),
        ({"docker": "no"}, "docker: no; the table says yes"),
        ({"libtpu": "yes"}, "libtpu: yes; the table says no"),
        ({"worker": "none"}, "worker: none; the table says 0"),
        (
            {"packages": {**PLAIN.packages, "requests": "2.31.0", "torch": "2.9"}},
            "packages: torch 2.9 is there, requests 2.31.0 (2.25.1 in the table)",
        ),
    ],
)
def test_what_one_host_has_and_the_table_has_not_is_named(changes: dict[str, Any], said: str) -> None:
    assert different({0: facts(**changes)}) == [said]


def test_a_worker_that_differs_from_the_others_is_named() -> None:
    hosts = {worker: facts(worker, sudo="no" if worker == 2 else "yes") for worker in range(4)}
    assert different(hosts) == ["sudo: worker 2: no; the table says yes"]


def test_a_pod_image_whose_server_does_not_hold_the_chips_differs() -> None:
    assert different({0: facts(0, POD, holders=[])}, POD) == ["holders: none; the table says tpu-runtime"]


@pytest.mark.parametrize("output", ["", "Welcome!", "[1]", "python3: not found"])
def test_a_host_that_says_something_else_is_named(output: str) -> None:
    with pytest.raises(HostError, match="worker 3 did not say what it has"):
        read(3, output)


def test_a_greeting_before_the_facts_is_no_matter() -> None:
    assert read(0, 'Welcome!\n{"sudo": "yes"}\n') == {"sudo": "yes"}


def test_the_report_has_no_secret_no_name_and_no_address(home: Path) -> None:
    config = load(
        {
            "target": "gcp", "project": "acme-vision-7", "bucket": "acme-vision-7-runs",
            "zone": "us-central1-a", "owner": "ada.lovelace@acme.example", "ssh_user": "ada",
            "network": "acme-inner",
        }
    )  # fmt: skip
    said = (
        f"gs://acme-vision-7-runs/ of acme-vision-7 by ada.lovelace@acme.example at 10.128.0.7 and "
        f"2600:1900:4000:1:2:3:4:5, key {home}/.ssh/id, /home/ada/x ada-v3-8 | "
        f"1-compute@developer.gserviceaccount.com token=ghp_{'a1B2' * 9} "
        "of acme-inner: 3.10.12, Canada, 22.0.2"
    )
    text = report(
        config, {"Stage 0: nothing": [Finding("a", DIFFERENT, said), Finding("b", OK, "fine")]}, "now"
    )
    for private in ("acme", "lovelace", "compute@", "10.128", "2600:", str(home), "ada/", "ada-", "ghp_"):
        assert private not in text, private
    for plain in ("gs://BUCKET/ of PROJECT by", "3.10.12, Canada, 22.0.2", "| b | ok | fine |", "\\|"):
        assert plain in text
    assert text.count("- a: ") == 1


def test_the_program_of_a_host_gets_the_names_that_the_table_has() -> None:
    words = first_day.command(PLAIN)
    assert words[:2] == ("python3", "-c")
    assert {"requests", "jax", "libtpu"} <= set(words[3:])
    assert len(words) == len(set(words))
