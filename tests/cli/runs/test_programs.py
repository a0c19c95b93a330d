"""Programs of a project on a host: each finds its modules and files as where it was submitted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult
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
