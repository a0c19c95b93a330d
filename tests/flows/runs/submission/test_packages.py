"""Whether a run can use the image of its node, and what its hosts install there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.flows.nodes.memory_provider import node
from tests.flows.runs.submission.test_plan import planned, write
from tpuctl.cloud.storage import Bucket
from tpuctl.errors import StateError, UsageError
from tpuctl.flows.runs.submission.packages import chosen
from tpuctl.flows.runs.submission.plan import on_node
from tpuctl.flows.runs.submission.specs import specs
from tpuctl.nodes import Node

FOUR = tuple(f"10.0.0.{number}" for number in range(1, 5))
PLAIN, ONE = "tpu-ubuntu2204-base", "tpu-vm-tf-2.18.0-pjrt-v5p-and-below"
POD = "tpu-vm-tf-2.18.0-pod-pjrt-v5p-and-below"
HASH = "--hash=sha256:" + "0" * 64


@pytest.fixture
def script(home: Path, tmp_path: Path) -> Path:
    return tmp_path / "code/job.py"


def of(runtime: str, accelerator: str = "v3-8", addresses: tuple[str, ...] = FOUR[:1]) -> Node:
    return node(runtime=runtime, accelerator=accelerator, addresses=addresses)


def slice_of(runtime: str) -> Node:
    return of(runtime, "v3-32", FOUR)


@pytest.mark.parametrize(
    ("said", "where", "words"),
    [
        ("jax", slice_of(POD), "JAX cannot use n1, which has the image tpu-vm-tf-2.18.0-pod"),
        ("pytorch", slice_of(POD), "PyTorch cannot use n1"),
        ("tensorflow", slice_of(PLAIN), "TensorFlow on 4 hosts needs an image for slices"),
    ],
)
def test_an_image_that_the_framework_cannot_use_is_refused_with_the_command(
    said: str, where: Node, words: str, script: Path
) -> None:
    write(script, framework=said)
    with pytest.raises(StateError, match=words) as error:
        planned(script, where)
    assert error.value.hint == (
        f"Make a TPU for it: tpuctl up v3-32 --framework {said} --zone {where.zone} --name n1-{said}"
    )


def test_of_a_node_that_run_would_make_the_hint_leaves_out_the_runtime(script: Path) -> None:
    write(script, framework="jax")
    with pytest.raises(StateError, match="JAX cannot use n1") as error:
        planned(script, replace(slice_of(POD), created=""))
    assert error.value.hint == "Leave out --runtime: what the framework needs is chosen then."


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (of(POD), "it is for slices of several hosts"),
        (of("tpu-vm-tf-2.16.1-pjrt", "v6e-8"), "its TensorFlow does not know v6e"),
        (of("tpu-vm-tf-2.18.0-pjrt-v5e-and-v6"), "its TensorFlow does not know v3"),
        (of("tpu-vm-tf-2.18.0-se", "v5litepod-8"), "its TensorFlow does not know v5e"),
    ],
)
def test_an_image_of_tensorflow_for_other_tpus_is_refused(where: Node, words: str, script: Path) -> None:
    write(script, framework="tensorflow")
    with pytest.raises(StateError, match=words):
        planned(script, where)
    if "pod" not in where.runtime:
        assert planned(script, where, framework="jax").run.framework == "jax"


@pytest.mark.parametrize(
    ("text", "framework", "workers"),
    [
        ("import jax.numpy as jnp\nimport tensorflow as tf", "jax", 4),
        ("from flax import nnx", "jax", 4),
        ("def main():\n    import torch_xla", "pytorch", 4),
        ('# /// script\n# dependencies = ["torch"]\n# ///', "pytorch", 4),
        ('# /// script\n# dependencies = ["tensorflow"]\n# ///\nimport jax', "jax", 4),
        ('# /// script\n# dependencies = ["jax"]\n# ///\nimport tensorflow', "tensorflow", 1),
        ("import helper", "jax", 4),
        ("import os", "tensorflow", 1),
        ("import tensorflow as tf, torch", "tensorflow", 1),
    ],
)
def test_without_a_word_in_the_header_requirements_and_imports_say_the_framework(
    text: str, framework: str, workers: int, script: Path
) -> None:
    script.parent.mkdir()
    script.write_text(f"{text}\n")
    script.with_name("helper.py").write_text("import jax\n")
    plan = planned(script, slice_of(PLAIN if workers > 1 else POD))
    assert (plan.run.framework, len(plan.attempt.workers)) == (framework, workers)
    if framework != "tensorflow":
        with pytest.raises(StateError, match="cannot use n1"):
            planned(script, slice_of(POD))
    assert planned(script, slice_of(POD), framework="tensorflow").run.framework == "tensorflow"


def test_a_script_that_names_no_framework_runs_on_any_image_of_one_host(script: Path) -> None:
    write(script)
    for where in (of(ONE), of(PLAIN), of("v2-alpha-tpu7", "tpu7x-8")):
        assert planned(script, where).notes == ()
    assert "starts on worker 0 of 4 alone" in planned(script, slice_of(POD)).notes[0]
    with pytest.raises(UsageError, match="Nothing says which framework"):
        planned(script, slice_of(PLAIN))


def test_what_hosts_install_is_said_and_decided_anew_for_another_image(script: Path) -> None:
    write(script, '"tensorflow==2.18.0", "numpy"')
    plan = planned(script, of(PLAIN))
    assert plan.notes == (
        "Hosts install tensorflow-tpu==2.18.0 for tensorflow==2.18.0: tpu-ubuntu2204-base has no TensorFlow, "
        "and tensorflow of PyPI has no operations of TPUs; libtpu from "
        "https://storage.googleapis.com/libtpu-tf-releases/index.html.",
    )
    assert plan.run.dependencies == plan.launch.dependencies == ("tensorflow==2.18.0", "numpy")
    launch = plan.launch
    (spec,) = specs("b", plan.run, plan.attempt, launch, 1, "k")
    assert list(spec.dependencies) == ["tensorflow-tpu==2.18.0", "numpy"]
    assert list(spec.sources) == ["--find-links https://storage.googleapis.com/libtpu-tf-releases/index.html"]
    assert spec.choice in plan.notes[0]
    moved = on_node(plan, of(ONE), cast("Bucket", SimpleNamespace(name="b")))
    (spec,) = specs("b", moved.run, moved.attempt, launch, 1, "k")
    assert (list(spec.dependencies), list(spec.sources), spec.choice) == (
        list(plan.launch.dependencies),
        [],
        "",
    )


def test_packages_of_its_own_leave_out_those_of_the_image(script: Path) -> None:
    write(script, '"tensorflow"', packages="own")
    plan = planned(script, of(ONE))
    assert chosen(plan.run, plan.attempt.tpu, plan.launch.dependencies).requirements == ("tensorflow-tpu",)
    write(script, '"tensorflow"')
    plan = planned(script, of(ONE))
    assert chosen(plan.run, plan.attempt.tpu, plan.launch.dependencies).requirements == ("tensorflow",)


def test_requirements_that_cannot_work_are_refused_before_anything_is_sent(script: Path) -> None:
    write(script, '"tensorflow==2.16.1"')
    with pytest.raises(UsageError, match=r"no tensorflow==2.16.1 for v6e"):
        planned(script, of("v2-alpha-tpuv6e", "v6e-8"))
    with pytest.raises(UsageError, match="does not run on tpu7x"):
        planned(script, of("v2-alpha-tpu7", "tpu7x-8"))


def test_a_lock_file_with_jax_alone_is_refused(script: Path) -> None:
    write(script, framework="jax", requirements="lock.txt")
    lock = script.with_name("lock.txt")
    lock.write_text(f"jax==0.6.2 {HASH}\n")
    with pytest.raises(UsageError, match="jax without libtpu"):
        planned(script, of(PLAIN))
    lock.write_text(f"jax==0.6.2 {HASH}\nlibtpu==0.0.17 {HASH}\n")
    assert planned(script, of(PLAIN)).notes == ()


def test_a_project_that_is_the_framework_lacks_none(script: Path, home: Path) -> None:
    write(script)
    script.write_text("import jax\n")
    (script.parent / "pyproject.toml").write_text('[project]\nname = "jax"\ndependencies = []\n')
    assert not any("has no JAX" in note for note in planned(script, of(PLAIN)).notes)


def test_an_import_that_nothing_installs_is_said(script: Path) -> None:
    write(script)
    script.write_text("import jax\n")
    assert planned(script, of(PLAIN)).notes == (
        "Warning: tpu-ubuntu2204-base has no JAX, and the header requires none. Write dependencies = "
        '["jax"] into it.',
    )
    assert planned(script, of(PLAIN), setup="pip install jax[tpu]").notes == ()
