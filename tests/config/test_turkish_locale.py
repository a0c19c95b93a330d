"""In a Turkish locale the capital of `i` is not `I`: nothing of Google's or ours may depend on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.sim.live_host import wait_until
from tpuctl.cloud import simulator as simulator_process

pytestmark = pytest.mark.slow

TURKISH = "tr_TR.UTF-8"


def run(*arguments: str) -> str:
    """Run Python in a Turkish locale, and return what it prints."""
    environment = {**os.environ, "LC_ALL": TURKISH, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture(autouse=True)
def turkish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the locale: where it is not installed, make it, as its sources are."""
    if shutil.which("localedef"):
        making = ["localedef", "-i", "tr_TR", "-f", "UTF-8", str(tmp_path / TURKISH)]
        if subprocess.run(making, capture_output=True).returncode == 0:
            monkeypatch.setenv("LOCPATH", str(tmp_path))
    if run("-c", "import locale; print(locale.setlocale(locale.LC_CTYPE))") != f"{TURKISH}\n":
        pytest.skip(f"the locale {TURKISH} is not installed")


def test_protobuf_names_json_fields_as_everywhere() -> None:
    names = "print([field.json_name for field in tpu_v2.CreateNodeRequest.pb().DESCRIPTOR.fields])"
    ours = "from tpuctl.config.files import use_plain_letters; use_plain_letters()"
    assert run("-c", f"{ours}; from google.cloud import tpu_v2; {names}") == "['parent', 'nodeId', 'node']\n"


def test_requests_to_the_simulator_and_of_a_dry_run_are_right(home) -> None:
    zone = "projects/sim-project/locations/europe-west4-a"
    try:
        planned = json.loads(run("-m", "tpuctl", "up", "v3-8", "--name", "n1", "--dry-run", "--json"))
        assert planned["requests"][0]["body"]["acceleratorType"] == "v3-8"
        address = json.loads(run("-m", "tpuctl", "sim", "status", "--json"))["tpu_rest"]
        post = (
            "import sys, urllib.request as http\n"
            f'body = b\'{{"accelerator_type": "v3-8", "runtime_version": "tpu-ubuntu2204-base"}}\'\n'
            f"address = f'{{sys.argv[1]}}/v2/{zone}/nodes?nodeId=n2'\n"
            "http.urlopen(http.Request(address, body, {'Content-Type': 'application/json'}))"
        )
        run("-c", post, address)
        assert "n2" in run("-m", "tpuctl", "ls")
    finally:
        run("-m", "tpuctl", "sim", "stop")


def test_a_simulator_that_is_started_alone_takes_the_requests_of_everywhere(tmp_path: Path) -> None:
    """As its docs say: not by `tpuctl`, which starts it in a plain locale."""
    folder = tmp_path / "simulator"
    process = subprocess.Popen(
        [sys.executable, "-m", "tpuctl.sim", "--folder", str(folder), "--idle", "0"],
        env={**os.environ, "LC_ALL": TURKISH, "PYTHONPATH": str(ROOT)},
    )
    try:
        wait_until(lambda: simulator_process.running(folder) or process.poll() is not None, 60)
        endpoints = simulator_process.running(folder)
        assert endpoints
        node = {
            "acceleratorType": "v3-8",
            "runtimeVersion": "tpu-ubuntu2204-base",
            "networkConfig": {"enableExternalIps": True},
        }
        nodes = f"{endpoints.tpu_rest}/v2/projects/sim-project/locations/europe-west4-a/nodes"
        request = urllib.request.Request(
            f"{nodes}?nodeId=n1", json.dumps(node).encode(), {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request).close()
        with urllib.request.urlopen(f"{nodes}/n1") as answer:
            created = json.load(answer)
        assert created["networkConfig"]["enableExternalIps"] is True
        assert created["networkEndpoints"][0]["accessConfig"]["externalIp"]
    finally:
        process.kill()
        process.wait()
        simulator_process.end_orphans(folder)
