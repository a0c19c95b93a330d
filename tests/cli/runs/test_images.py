"""A job on an image that lacks its framework, as its user sees it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.running_simulator import CommandResult, RunningSimulator

Tpuctl = Callable[..., CommandResult]
JOB = '# /// script\n# dependencies = ["jax"]\n# ///\nimport importlib.metadata\nprint("started")\n'
CHOSEN = "jax[tpu] for jax: tpu-ubuntu2204-base has no JAX, and jax alone has no libtpu"


def test_the_log_says_what_was_chosen_and_the_record_what_was_asked_for(
    simulator: RunningSimulator, node: str, tpuctl: Tpuctl
) -> None:
    Path("job.py").write_text(JOB)
    submitted = tpuctl("submit", "job.py", "--name", "r1")
    assert f"Hosts install {CHOSEN}." in submitted.err
    lines = tpuctl("logs", "-f", "r1").out.splitlines()
    assert f"[tpuctl] chosen: {CHOSEN}" in lines
    described = tpuctl("describe", "r1", "--json").json
    assert "jax[tpu]" not in str(described)
    assert "'jax'" in str(described)


def test_a_slice_of_tensorflow_refuses_jax_with_the_command_that_makes_another(
    simulator: RunningSimulator, tpuctl: Tpuctl
) -> None:
    assert tpuctl("up", "v3-32", "--name", "pod", "--framework", "tensorflow", "--yes").code == 0
    Path("job.py").write_text("import jax\n")
    refused = tpuctl("submit", "job.py", "--tpu", "pod")
    assert refused.code == 4
    assert "JAX cannot use pod, which has the image tpu-vm-tf-2.19.0-pod-pjrt" in refused.err
    assert "tpuctl up v3-32 --framework jax --zone europe-west4-a --name pod-jax" in refused.err
    assert tpuctl("runs", "--json").json["runs"] == []
