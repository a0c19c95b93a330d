"""run.sh of an archive: what a shell makes of it is what the script had."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.bucket_objects.records import RUN
from tests.hostile.text import ESCAPES, steers
from tpuctl.datasets import PinnedDataset
from tpuctl.flows.runs.record import archive_text
from tpuctl.flows.runs.record.archive_text import missing_arguments, missing_variables, run_script
from tpuctl.host.worker.preparation.steps import FOLDERS
from tpuctl.host.worker.records import COMMAND, MODULE, SCRIPT, SHELL
from tpuctl.job_header import Header, ToolTable
from tpuctl.masking import MASK
from tpuctl.runs import NOT_STORED


def test_folders_are_those_of_hosts() -> None:
    assert archive_text.FOLDERS == FOLDERS


TEXTS = (
    "$(touch owned)", "`touch owned`", "'; touch owned; '", "-x", "", "*", "%s\\033", "a\n\n", "\n", "größer",
    *(text for text in ESCAPES.values() if not set(text) & {"\0", "\udc9b"}),
)  # fmt: skip
"""No program gets a NUL, and no record has half a pair."""


@pytest.mark.parametrize("text", TEXTS)
def test_no_text_of_the_record_is_more_than_a_word(tmp_path: Path, text: str) -> None:
    record = msgspec.structs.replace(
        RUN, arguments=(text, "end"), environment={"GIVEN": text, "OWN": NOT_STORED}, accelerator=text,
        setup=text, seeds={},
    )  # fmt: skip
    header = Header(tpuctl=ToolTable(env={"OWN": text}))
    (tmp_path / "code").mkdir()
    script = run_script(record, header)
    assert not steers(script.replace("\n", ""))
    (tmp_path / "run.sh").write_text(script)
    (tmp_path / "show").write_text('#!/bin/sh\nprintf "%s\\0" "$@" "$GIVEN" "$OWN" "$TPUCTL_ACCELERATOR"\n')
    (tmp_path / "show").chmod(0o700)
    shown = subprocess.run(
        ["sh", "run.sh"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
        env={"PYTHON": str(tmp_path / "show")},
    )
    words = shown.stdout.decode().split("\0")
    assert words == [record.script, text, "end", text, text, text, ""]
    assert not list(tmp_path.rglob("owned"))


@pytest.mark.parametrize(
    ("kind", "script", "directory", "words"),
    [
        (MODULE, "pkg.train", "", ["-m", "pkg.train"]),
        (SCRIPT, "scripts/train.py", "scripts", ["train.py"]),
        (SHELL, "run.sh", "deep", ["../run.sh"]),
        (COMMAND, "show", "", []),
    ],
)
def test_each_kind_of_program_is_started_where_it_was(
    tmp_path: Path, kind: str, script: str, directory: str, words: list[str]
) -> None:
    record = msgspec.structs.replace(
        RUN, kind=kind, script=script, directory=directory, arguments=("--out={TPUCTL_MODEL_DIR}/x", "{HOME}")
    )
    (tmp_path / "code").mkdir()
    (tmp_path / "run.sh").write_text(run_script(record, Header()))
    for name in ("show", "bash"):
        (tmp_path / name).write_text('#!/bin/sh\npwd\nprintf "%s\\n" "$@"\n')
        (tmp_path / name).chmod(0o700)
    shown = subprocess.run(
        ["/bin/sh", "run.sh"], cwd=tmp_path, capture_output=True, check=True, text=True,
        env={
            "PYTHON": str(tmp_path / "show"), "PATH": f"{tmp_path}:/bin:/usr/bin",
            "OWN": "1", "API_KEY": "1", "ARGUMENT_1": "1",
        },
    )  # fmt: skip
    arguments = [*words, f"--out={tmp_path}/results/outputs/x", "{HOME}"]
    assert shown.stdout.splitlines() == [str(tmp_path / "code" / directory), *arguments]


def test_a_name_that_is_none_of_a_variable_is_not_in_it(tmp_path: Path) -> None:
    names = ('A:-$(touch owned)}"; :; : "${B', "a.b", "ÄB", "")
    record = msgspec.structs.replace(
        RUN, environment=dict.fromkeys(names, NOT_STORED), arguments=(), seeds={}
    )
    (tmp_path / "code").mkdir()
    (tmp_path / "run.sh").write_text(run_script(record, Header()))
    subprocess.run(["sh", "run.sh"], cwd=tmp_path, check=True, env={"PYTHON": "/bin/true"})
    assert not list(tmp_path.rglob("owned"))
    assert missing_variables(record, Header()) == sorted(names), "the README names them"


def test_seeds_count_as_stored() -> None:
    record = msgspec.structs.replace(
        RUN, environment={"PYTHONHASHSEED": NOT_STORED}, seeds={"PYTHONHASHSEED": "7"}
    )
    assert "export PYTHONHASHSEED=7\n" in run_script(record, Header())
    assert missing_variables(record, Header()) == []


def test_what_is_not_stored_or_not_run_is_said_beside_it() -> None:
    record = msgspec.structs.replace(
        RUN, arguments=("--lr", f"--key={MASK}"), setup="pip list\n", environment={}
    )
    lines = run_script(record, Header()).splitlines()
    assert "# Argument 2 is not stored, as it looks like a secret." in lines
    assert ': "${ARGUMENT_2:?argument 2 of the script, which was not stored}"' in lines
    assert "# The hosts ran before: pip list\\n" in lines
    assert lines[-1].endswith(' --lr "$ARGUMENT_2"')
    assert missing_arguments(record) == [2]


def test_a_record_without_such_things_says_nothing_of_them() -> None:
    record = msgspec.structs.replace(RUN, arguments=(), setup="", environment={})
    text = run_script(record, Header())
    assert "not stored" not in text
    assert "The hosts ran" not in text


def test_it_sets_what_the_script_had_and_starts_it_among_its_files() -> None:
    record = msgspec.structs.replace(
        RUN, run="r1", script="train/job.py", arguments=("--lr", "0.1"), setup="", framework="tensorflow",
        environment={"B": "2", "A": "a b", "KEY": NOT_STORED, "OWN": NOT_STORED, "M": MASK},
        seeds={}, accelerator="v3-8", dataset=PinnedDataset("pets", "1.0.0", "0" * 64),
    )  # fmt: skip
    header = Header(tpuctl=ToolTable(env={"OWN": "3"}))
    assert (
        run_script(record, header)
        == """\
#!/bin/sh
# Runs the script of run r1 as it was run, with folders beside this file in place of the bucket.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
results=${RESULTS:-"$here/results"}
mkdir -p "$results/outputs"
export TPUCTL_MODEL_DIR="$results/outputs" AIP_MODEL_DIR="$results/outputs"
mkdir -p "$results/checkpoints"
export TPUCTL_CHECKPOINT_DIR="$results/checkpoints" AIP_CHECKPOINT_DIR="$results/checkpoints"
mkdir -p "$results/tensorboard"
export TPUCTL_TENSORBOARD_DIR="$results/tensorboard" AIP_TENSORBOARD_LOG_DIR="$results/tensorboard"
export TPUCTL_RUN=r1 TPUCTL_ATTEMPT=1 TPUCTL_WORKER=0 TPUCTL_WORKERS=1
export PYTHONUNBUFFERED=1
export TPUCTL_ACCELERATOR=v3-8
export TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-1}"
export TPUCTL_DATA_DIR="${TPUCTL_DATA_DIR:-$here/data/pets/1.0.0}"
export A='a b'
export B=2
export OWN=3
: "${KEY:?a variable of the script, whose value was not stored}"
: "${M:?a variable of the script, whose value was not stored}"
export PYTHONPATH="${PYTHONPATH:+$PYTHONPATH:}$here/code:$here/code/src"
cd "$here/code"
exec "${PYTHON:-$here/.venv/bin/python}" train/job.py --lr 0.1
"""
    )
