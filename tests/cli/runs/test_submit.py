"""What is submitted runs on its host as here: its modules, large code, its framework, the type of its TPU."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.pseudo_terminal import in_terminal
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.storage import Bucket

TRAIN = """\
import os, sys, pkg
print(pkg.__name__, open("conf/a.yaml").read(), os.path.basename(os.getcwd()), *sys.argv[1:])
"""
PROJECT = {
    "pyproject.toml": '[tool.tpuctl]\nenv = { RATE = "0.5" }\n',
    "src/pkg/__init__.py": "",
    "src/pkg/train.py": TRAIN,
    "scripts/train.py": TRAIN,
    "conf/a.yaml": "size",
    "run.sh": 'export SIZE=7\npython -m pkg.train "$RATE" $SIZE "$@"\n',
}


@pytest.fixture
def project(home: Path) -> Path:
    for name, text in PROJECT.items():
        (Path("project") / name).parent.mkdir(parents=True, exist_ok=True)
        (Path("project") / name).write_text(text)
    return Path("project").resolve()


@pytest.mark.slow
def test_a_module_a_script_a_shell_script_and_a_command_run_unmodified(
    tpuctl: Callable[..., CommandResult], node: str, bucket: Bucket, project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(project)
    place = f"gs://{bucket.name}/runs/r{{}}/outputs"
    lines = {
        ("-m", "pkg.train", "--", "--workdir={TPUCTL_MODEL_DIR}"): f"--workdir={place.format(1)}",
        ("scripts/train.py", "--", "x"): "x",
        ("run.sh", "--", "a b"): "0.5 7 a b",
        ("--", "python3", "scripts/train.py", "{TPUCTL_RUN}"): "r4",
    }
    for number, (words, line) in enumerate(lines.items(), start=1):
        result = tpuctl("submit", "--name", f"r{number}", "--attach", *words)
        assert result.code == 0, result.err + result.out
        assert f"pkg size code {line}\n" in result.out
    again = tpuctl("submit", "-m", "pkg.train", "--dry-run")
    assert "bundles/" not in again.out, "an unchanged project is sent once"
    for shown in ("-m pkg.train (module)", str(project), "env             RATE (pyproject.toml)", "6 files"):
        assert shown in again.err
    described = tpuctl("describe", "r4")
    assert "python3 scripts/train.py '{TPUCTL_RUN}'" in described.out
    repeated = tpuctl("resubmit", "r3", "--name", "r5", "--", "--c=1")
    assert repeated.code == 0, repeated.err
    assert tpuctl("logs", "r5", "-f").out == "pkg size code 0.5 7 a b --c=1\n"


def test_a_placeholder_that_no_host_knows_and_nothing_to_run_are_refused(
    tpuctl: Callable[..., CommandResult], node: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    wrong = tpuctl("submit", "scripts/train.py", "--", "{TPUCTL_MODELDIR}")
    assert (wrong.code, "TPUCTL_MODEL_DIR" in wrong.err) == (2, True)
    without = tpuctl("submit", "scripts/train.py", "--", "{TPUCTL_DATA_DIR}")
    assert (without.code, "--dataset" in without.err) == (2, True)
    nothing = tpuctl("submit")
    assert (nothing.code, "-- COMMAND" in nothing.err) == (2, True)


@pytest.mark.slow
def test_a_notebook_comes_back_with_its_outputs(
    tpuctl: Callable[..., CommandResult],
    node: str,
    bucket: Bucket,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(project)
    cells = [
        "# /// script\n# [tool.tpuctl]\n# env = { A = '7' }\n# ///\nimport os, pkg",
        "%pip install -q six",
        "os.environ['A']",
    ]
    code = [
        {"cell_type": "code", "metadata": {}, "source": [cell], "outputs": [], "execution_count": None}
        for cell in cells
    ]
    Path("scripts/a.ipynb").write_text(
        json.dumps({"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    result = tpuctl("submit", "scripts/a.ipynb", "--name", "r1", "--attach")
    assert result.code == 0, result.err + result.out
    assert "Installed before the first cell: six." in result.err
    assert tpuctl("logs", "r1").out.endswith("'7'\n")
    (written,) = bucket.objects("runs/r1/outputs/")
    last = json.loads(bucket.read(written.name))["cells"][-1]
    assert last["outputs"][0]["data"] == {"text/plain": "'7'"}


@pytest.mark.daily
def test_it_arrives_whole_and_is_sent_once(
    tpuctl: Callable[..., CommandResult], node: str, bucket: Bucket
) -> None:
    Path("big.bin").write_bytes(content := os.urandom(6_000_000))
    text = "import hashlib\nprint(hashlib.sha256(open('big.bin', 'rb').read()).hexdigest())\n"
    Path("job.py").write_text(text)
    words = ("submit", "job.py", "--include", "big.bin", "--name", "r1")
    planned = tpuctl(*words, "--dry-run", "--json")
    assert planned.code == 0, planned.err
    sent = [each["method"] for each in planned.json["requests"] if "upload" in each["url"]]
    assert sent[:2] == ["POST", "PUT"], "a session, and a part"
    result = tpuctl(*words)
    assert result.code == 0, result.err
    assert "(2 files, 6.0 MB)" in result.out
    assert tpuctl("logs", "r1", "-f").out == f"{hashlib.sha256(content).hexdigest()}\n"
    (stored,) = bucket.objects("bundles/")
    again = tpuctl("submit", "job.py", "--include", "big.bin", "--name", "r2", "--dry-run")
    assert again.code == 0, again.err
    assert "bundles/" not in again.out
    bucket.replace(stored, b"other bytes")
    replaced = tpuctl("submit", "job.py", "--include", "big.bin", "--name", "r3", "--queue")
    assert "did not hold the code that it is named by" in replaced.err
    assert [item.content for item in bucket.objects("bundles/")] == [stored.content]


@pytest.mark.daily
@pytest.mark.parametrize("option", ["--dry-run", "--name=r1"])
def test_more_than_the_limit_is_refused_before_anything_is_sent(
    tpuctl: Callable[..., CommandResult], node: str, bucket: Bucket, option: str
) -> None:
    Path("big.bin").write_bytes(bytes(3_000_000))
    Path("job.py").write_text("")
    result = tpuctl("submit", "job.py", "--include", "big.bin", "--code-limit", "2", option)
    assert result.code == 2
    assert "The largest: big.bin (3 MB)." in result.err
    assert "--code-limit 3" in result.err
    assert bucket.objects("bundles/") == []


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


def script(accelerator: str) -> str:
    Path("job.py").write_text(
        f"# /// script\n# [tool.tpuctl]\n# accelerator = {accelerator}\n# ///\nprint('ran')\n"
    )
    return "job.py"


@pytest.mark.parametrize("accelerator", ['"v2-8, v3-8"', '["v2-8", "v3-8"]', '"v4-8,tpu-v3-8,"'])
def test_a_list_takes_the_node_that_fits(tpuctl: Tpuctl, node: str, accelerator: str) -> None:
    result = tpuctl("submit", script(accelerator), "--name", "r1", "--dry-run")
    assert result.code == 0, result.err
    assert "n1 worker 0" in result.out


def test_the_option_overrides_the_list(tpuctl: Tpuctl, node: str) -> None:
    result = tpuctl("submit", script('"v2-8, v3-8"'), "--accelerator", "v2-8")
    assert (result.code, "There is no v2-8 to run on." in result.err) == (4, True)


def test_without_a_terminal_the_command_is_named(tpuctl: Tpuctl, node: str) -> None:
    result = tpuctl("submit", script('"v4-8, v2-8"'))
    assert result.code == 4
    assert "There is no v4-8 or v2-8 to run on." in result.err
    assert "tpuctl up v4-8" in result.err


def test_a_type_that_does_not_exist_is_named(tpuctl: Tpuctl, node: str) -> None:
    result = tpuctl("submit", script('"v3-8, v99-8"'))
    assert (result.code, "v99-8" in result.err) == (2, True)


def test_on_a_terminal_up_is_offered_and_the_run_starts_then(
    tpuctl: Tpuctl, simulator: RunningSimulator
) -> None:
    shown = in_terminal("submit", script('"v3-8"'), "--name", "r1", columns=200, typed="y\n")
    assert "There is no v3-8 to run on." in shown
    assert "[y/N]" in shown
    assert tpuctl("logs", "-f", "r1").out.endswith("ran\n")


def test_a_run_that_fails_after_up_says_what_bills_and_both_commands(simulator: RunningSimulator) -> None:
    simulator.faults.add("permission", method="storage.objects.create")
    shown = in_terminal("submit", script('"v3-8"'), "--name", "r1", columns=200, typed="y\n")
    (node,) = simulator.world.nodes.all()
    name = node.name.rpartition("/")[2]
    assert f"Node '{name}' in europe-west4-a bills." in shown
    assert "Use it: tpuctl submit job.py --name r1" in shown
    assert f"Delete it: tpuctl down {name}" in shown


def test_on_a_terminal_a_no_creates_and_starts_nothing(tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
    shown = in_terminal("submit", script('"v3-8"'), "--name", "r1", columns=200, typed="n\n")
    assert "Declined: nothing was done." in shown
    assert "There are no TPUs" in tpuctl("ls").err + tpuctl("ls").out


@pytest.mark.parametrize("option", ["--json", "--dry-run"])
def test_a_program_and_a_rehearsal_are_not_asked(
    tpuctl: Tpuctl, simulator: RunningSimulator, option: str
) -> None:
    shown = in_terminal("submit", script('"v3-8"'), option, columns=200)
    assert "[y/N]" not in shown
    assert "tpuctl up v3-8" in shown
