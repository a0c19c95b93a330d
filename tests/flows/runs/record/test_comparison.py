"""In what two runs differ, by records that tests write.

Their code file by file, and what changes of arguments mean.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.flows.runs.records import ATTEMPT, CREATED
from tpuctl import runs
from tpuctl.bucket_layout import bundle
from tpuctl.cloud.storage import Bucket
from tpuctl.datasets import PinnedDataset
from tpuctl.errors import UsageError
from tpuctl.flows.runs import results
from tpuctl.flows.runs.code import bundles
from tpuctl.flows.runs.code.bundles import Bundle
from tpuctl.flows.runs.code.programs import lone
from tpuctl.flows.runs.record import comparison as module
from tpuctl.flows.runs.record.comparison import (
    Comparison,
    FileDifference,
    Side,
    changed,
    compare,
    differences,
    named_words,
)
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.provenance import HostEnvironment
from tpuctl.runs import BY_WORKERS, NOT_STORED, Git, Run, Verdict, encode

RUN = Run(
    "r1", CREATED, "ada@laptop", "job.py", ("--lr", "0.1", "--fast", "data"), "0" * 64, "jax", "v3-32",
    ("numpy",), {"RATE": "0.1", "HIDDEN": NOT_STORED},
    PinnedDataset("pets", "1.0.0", "0" * 64), Git("0" * 40, ""),
    seeds={"--seed": "7"},
)  # fmt: skip
ENVIRONMENT = HostEnvironment("3.10.12", "cpython", installed={"numpy": "1.26.4"}, image={"jax": "0.4.30"})
WEIGHTS = "checkpoints/weights.npy"


def store_code(bucket: Bucket, files: dict[str, bytes]) -> str:
    """Write a bundle of these files, and return its hash."""
    folder = Path("project")
    for path in folder.glob("**/*"):
        path.unlink()
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    code = bundles.pack(lone(folder / "job.py"), [folder])
    if not bucket.stat(bundle(code.sha256)):
        bucket.create(bundle(code.sha256), code.data, "application/gzip")
    return code.sha256


CODE = {"job.py": b"import helper\nprint(helper.RATE)\n", "helper.py": b"RATE = 1\n", "logo.png": b"\0\1"}


@pytest.fixture
def side(bucket: Bucket) -> Callable[..., Side]:
    """Write a run that has ended, with changes, and return it."""

    def write(
        name: str, packages: HostEnvironment | None = ENVIRONMENT, files: dict[str, bytes] | None = None,
        weights: bytes = b"0123", code: dict[str, bytes] = CODE, **changes: object,
    ) -> Side:  # fmt: skip
        run = StoredRun(bucket, name)
        sha256 = changes.pop("bundle_sha256", "") or store_code(bucket, code)
        run.create(msgspec.structs.replace(RUN, run=name, bundle_sha256=sha256, **changes))
        run.create_attempt(ATTEMPT)
        if packages:
            bucket.create(run.paths.environment(1, 0), encode(packages))
        for path, data in {WEIGHTS: weights, "tensorboard/" + name: name.encode(), **(files or {})}.items():
            bucket.create(run.paths.folder + path, data, "text/plain")
        return Side(run, run.end(Verdict(name, runs.SUCCEEDED, 1, CREATED, "because", basis=BY_WORKERS)))

    return write


def test_an_attempt_that_was_added_after_the_end_is_no_difference(side: Callable[..., Side]) -> None:
    first, second = side("r1"), side("r2")
    second.run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=2))
    other = HostEnvironment("3.9.1", installed={"numpy": "0.1"})
    second.run.bucket.create(second.run.paths.environment(2, 0), encode(other))
    assert not compare(first, second).differences


def rows(comparison: Comparison) -> dict[str, tuple[str | None, str | None]]:
    return {f"{each.part} {each.name}": (each.first, each.second) for each in comparison.differences}


HIDDEN = "The values of HIDDEN are not stored, and not compared."


def test_runs_that_differ_in_nothing_say_so(side: Callable[..., Side]) -> None:
    """But for TensorBoard's files, and the names of runs."""
    comparison = compare(side("r1"), side("r2", arguments=("--lr=0.1", "--fast", "data")))
    assert comparison.differences == []
    assert comparison.unknown == [HIDDEN]
    assert set(comparison.same) == {
        "arguments", "code", "packages", "data", "machine", "seeds", "job", "variables", "results",
    }  # fmt: skip
    first = side("r3")
    assert compare(first, first).differences == []


def test_a_variable_whose_value_is_a_recorded_seed_is_compared(side: Callable[..., Side]) -> None:
    environment = {"HIDDEN": NOT_STORED, "SEED": NOT_STORED}
    sides = (side(f"r{seed}", environment=environment, seeds={"SEED": seed}) for seed in ("1", "2"))
    comparison = compare(*sides)
    assert rows(comparison) == {"seeds SEED": ("1", "2")}
    assert comparison.unknown == [HIDDEN]


def test_each_part_is_compared(side: Callable[..., Side], bucket: Bucket) -> None:
    other = msgspec.structs.replace(
        ENVIRONMENT, python="3.11.2", installed={}, image={"jax": "0.4.30", "numpy": "2.0", "extra": "1"}
    )
    second = side(
        "r2", other, {"outputs/more": b""}, b"9", arguments=("--lr", "0.2", "more", "--slow"), seeds={},
        dataset=None, accelerator="v3-8", framework="tensorflow", environment={"RATE": "0.2"},
    )  # fmt: skip
    shown = rows(compare(side("r1"), second))
    assert shown["arguments --lr"] == ("0.1", "0.2 more")
    assert shown["arguments --slow"] == (None, "")
    assert shown["packages Python"] == ("3.10.12 (cpython)", "3.11.2 (cpython)")
    assert shown["packages numpy"] == ("1.26.4", "2.0")
    assert shown["packages extra"] == (None, "1")
    assert shown["data dataset"] == ("pets/1.0.0", None)
    assert shown["machine accelerator"] == ("v3-32", "v3-8")
    assert shown["seeds --seed"] == ("7", None)
    assert shown["job framework"] == ("jax", "tensorflow")
    assert shown["variables RATE"] == ("0.1", "0.2")
    assert shown["variables HIDDEN"] == (NOT_STORED, None)
    assert shown["results outputs/more"] == (None, "0 bytes, CRC-32C AAAAAA==")
    before, after = shown[f"results {WEIGHTS}"]
    assert before
    assert after
    assert before.startswith("4 bytes, CRC-32C ")
    assert after.startswith("1 bytes, CRC-32C ")
    assert not [name for name in shown if "tensorboard" in name or name.startswith("code")]


def test_code_is_compared_line_by_line(side: Callable[..., Side]) -> None:
    changed = {
        "job.py": CODE["job.py"],
        "helper.py": b"RATE = 2\n",
        "logo.png": b"\0\2\3",
        "new.py": b"x = 1\n",
    }
    comparison = compare(side("r1"), side("r2", code=changed, git=Git("1" * 40, "")))
    assert rows(comparison) == {
        "code commit": ("0" * 40, "1" * 40),
        "code helper.py": ("9 bytes", "9 bytes"),
        "code logo.png": ("2 bytes", "3 bytes"),
        "code new.py": (None, "6 bytes"),
    }
    lines = [line for file in comparison.code for line in file.lines]
    assert lines == [
        "--- r1/helper.py", "+++ r2/helper.py", "@@ -1 +1 @@", "-RATE = 1", "+RATE = 2",
        "--- /dev/null", "+++ r2/new.py", "@@ -0,0 +1 @@", "+x = 1",
    ]  # fmt: skip


def test_the_lines_are_bounded(side: Callable[..., Side], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SHOWN", 7)
    changed = {name: data + b"1\n2\n" for name, data in CODE.items()}
    comparison = compare(side("r1"), side("r2", code={**changed, "long.txt": b"x\n" * 9000}))
    assert [file.name for file in comparison.code] == ["helper.py", "job.py", "logo.png", "long.txt"]
    assert sum(len(file.lines) for file in comparison.code) == 7
    assert comparison.code[3].lines == ()


@pytest.mark.parametrize("data", [None, b"other bytes", "link"])
def test_code_that_is_gone_or_no_code_is_told(
    side: Callable[..., Side], bucket: Bucket, data: object
) -> None:
    first, second = side("r1"), side("r2", code={"job.py": b"1\n"})
    item = bucket.stat(bundle(second.record.bundle_sha256))
    assert item
    if data is None:
        bucket.remove(item)
    elif data == "link":
        hostile = io.BytesIO()
        with tarfile.open(fileobj=hostile, mode="w:gz") as archive:
            member = tarfile.TarInfo("job.py")
            member.type = tarfile.SYMTYPE
            archive.addfile(member)
        sha256 = hashlib.sha256(hostile.getvalue()).hexdigest()
        bucket.create(bundle(sha256), hostile.getvalue(), "application/gzip")
        second = side("r3", bundle_sha256=sha256)
    else:
        bucket.replace(item, b"other bytes", "application/gzip")
    comparison = compare(first, second)
    assert "code files" in rows(comparison)
    assert any(text.startswith("The files of the code are not compared.") for text in comparison.unknown)


def test_what_records_do_not_have_is_not_taken_for_equal(side: Callable[..., Side], bucket: Bucket) -> None:
    running = StoredRun(bucket, "r2")
    running.create(msgspec.structs.replace(side("r1").record, run="r2"))
    comparison = compare(
        Side(StoredRun(bucket, "r1"), StoredRun(bucket, "r1").verdict()), Side(running, None)
    )
    assert rows(comparison)["machine attempts"] == ("1", "0")
    assert rows(comparison)["results outcome"] == (runs.SUCCEEDED, None)
    assert set(comparison.unknown) == {
        HIDDEN,
        "The packages of run 'r2' are not recorded.",
        "Results are not compared: run 'r2' has not ended.",
    }


def test_values_of_the_header_are_compared_with_the_code(side: Callable[..., Side]) -> None:
    comparison = compare(side("r1", of_header=("HIDDEN",)), side("r2", of_header=("HIDDEN",)))
    assert comparison.unknown == []


def test_machines_are_compared_by_what_a_result_may_depend_on(side: Callable[..., Side]) -> None:
    first, second = side("r1"), side("r2")
    second.run.create_attempt(
        msgspec.structs.replace(
            ATTEMPT, attempt=2, workers=(0,),
            tpu=msgspec.structs.replace(ATTEMPT.tpu, name="n2", zone="z", runtime="new", spot=True, hosts=1),
        )
    )  # fmt: skip
    assert second.verdict
    again = Side(StoredRun(second.run.bucket, "r2"), msgspec.structs.replace(second.verdict, attempt=2))
    assert rows(compare(first, again)) == {
        "machine attempts": ("1", "2"), "machine runtime": ("base", "new"), "machine hosts": ("4", "1"),
        "machine spot": ("no", "yes"),
    }  # fmt: skip


def test_how_the_script_is_run_is_compared_field_by_field(side: Callable[..., Side]) -> None:
    second = side(
        "r2", dependencies=("numpy", "flax"), requires_python=">=3.11", setup="make", setup_timeout=60.0
    )
    assert rows(compare(side("r1"), second)) == {
        "job dependencies": ("numpy", "numpy, flax"), "job requires python": (None, ">=3.11"),
        "job setup": (None, "make"), "job setup timeout": (str(RUN.setup_timeout), "60.0"),
    }  # fmt: skip


def test_how_they_ended_is_compared(side: Callable[..., Side]) -> None:
    first, second = side("r1"), side("r2")
    assert second.verdict
    failed = msgspec.structs.replace(second.verdict, outcome=runs.FAILED, exit_code=3)
    assert rows(compare(first, Side(second.run, failed))) == {
        "results outcome": (runs.SUCCEEDED, runs.FAILED), "results exit code": (None, "3"),
    }  # fmt: skip


def test_files_that_records_leave_out_are_counted(side: Callable[..., Side], bucket: Bucket) -> None:
    first, second = side("r1"), side("r2")
    record = results.read(bucket, second.run.paths)
    assert record
    part = msgspec.structs.replace(record, files=1234 + len(record.listed_files), left_out=1234)
    bucket.upload(second.run.paths.results, [encode(part)], "application/json")
    assert "1,234 files of run 'r2' are not compared." in compare(first, second).unknown


def test_a_run_without_a_record_of_its_results_is_named(
    side: Callable[..., Side], bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = side("r1"), side("r2")
    monkeypatch.setattr(results, "ensured", lambda bucket, paths, verdict: None)
    assert [text for text in compare(first, second).unknown if text != HIDDEN] == [
        "Results are not compared: run 'r1' has no record of its results.",
        "Results are not compared: run 'r2' has no record of its results.",
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where code is packed."""
    (tmp_path / "code").mkdir()
    return tmp_path / "code"


def packed(folder: Path, **files: bytes) -> Bundle:
    """Return a bundle of these files, `.py` where a name has no dot."""
    for path in folder.iterdir():
        path.unlink()
    (folder / "job.py").write_text("print(1)\n")
    for name, data in files.items():
        (folder / name.replace("__", ".")).write_bytes(data)
    return bundles.pack(lone(folder / "job.py"), tuple(folder / name.replace("__", ".") for name in files))


def compared(folder: Path, first: dict[str, bytes], second: dict[str, bytes]) -> list[FileDifference]:
    return differences(packed(folder, **first), packed(folder, **second), ("r1", "r2"))


def test_equal_code_has_none(folder: Path) -> None:
    assert compared(folder, {"a__txt": b"x"}, {"a__txt": b"x"}) == []


def test_a_changed_an_added_and_a_missing_file(folder: Path) -> None:
    first, second = {"a__txt": b"x\ny\n", "b__txt": b"old\n"}, {"a__txt": b"x\nz\n", "c__txt": b"new\n"}
    assert compared(folder, first, second) == [
        FileDifference(
            "a.txt", (4, 4), ("--- r1/a.txt", "+++ r2/a.txt", "@@ -1,2 +1,2 @@", " x", "-y", "+z")
        ),
        FileDifference("b.txt", (4, None), ("--- r1/b.txt", "+++ /dev/null", "@@ -1 +0,0 @@", "-old")),
        FileDifference("c.txt", (None, 4), ("--- /dev/null", "+++ r2/c.txt", "@@ -0,0 +1 @@", "+new")),
    ]


@pytest.mark.parametrize(
    ("data", "has_lines"),
    [
        (b"\0", False),
        (b"\xff\n", True),
        (b"x" * 9_999 + b"\n", True),
        (b"x" * 10_001, False),
        (b"x\n" + b"y" * 9_998 + b"\n" + (b"z" * 9_999 + b"\n") * 103, True),
        (b"x\n" + (b"z" * 9_999 + b"\n") * 105, False),
        (b"x\n" * 5000, True),
        (b"x\n" * 5001, False),
    ],
    ids=["binary", "latin", "a long line", "a longer line", "1 MiB", "more", "5000 lines", "5001 lines"],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_no_text_or_long_has_no_lines(
    folder: Path, data: bytes, has_lines: bool, is_first: bool
) -> None:
    files = [{"a__bin": data}, {"a__bin": b"y\n"}]
    (difference,) = compared(folder, *(files if is_first else files[::-1]))
    assert bool(difference.lines) is has_lines
    assert sorted(difference.sizes) == sorted((len(data), 2))


def test_all_differences_together_have_2000_lines(folder: Path) -> None:
    """The other files are named without lines."""
    many = b"".join(b"%d\n" % number for number in range(1990))
    second = {"a__txt": many, "b__txt": b"1\n2\n3\n4\n5\n6\n7\n8\n9\n", "c__txt": b"x\n"}
    counts = [len(difference.lines) for difference in compared(folder, {}, second)]
    assert counts == [3 + 1990, 7, 0]


def test_a_single_file_has_2000_lines_at_most(folder: Path) -> None:
    many = b"".join(b"%d\n" % number for number in range(3000))
    (difference,) = compared(folder, {}, {"a__txt": many})
    assert len(difference.lines) == 2000
    assert difference.lines[-1] == "+1996"


ARGUMENTS = ["--lr", "0.01", "--epochs=3", "--verbose", "--layers", "64", "32", "optimizer=sgd", "-j", "-2"]


@pytest.mark.parametrize(
    ("arguments", "changes", "result"),
    [
        (ARGUMENTS, [], ARGUMENTS),
        (["--lr", "0.01"], ["--lr", "0.1"], ["--lr", "0.1"]),
        (["--lr=0.01", "x"], ["--lr", "0.1"], ["--lr", "0.1", "x"]),
        (["--lr", "0.01", "x"], ["--lr=0.1"], ["--lr=0.1", "x"]),
        (["--lr=0.01"], ["--lr=0.1"], ["--lr=0.1"]),
        (["--layers", "64", "32"], ["--layers", "8", "4"], ["--layers", "8", "4"]),
        (["--lr", "0.01"], ["--verbose"], ["--lr", "0.01", "--verbose"]),
        (["--verbose", "--lr", "1"], ["--verbose"], ["--verbose", "--lr", "1"]),
        (["lr=1", "+a.b=2"], ["a.b=3", "c=4"], ["lr=1", "a.b=3", "c=4"]),
        (["-j", "-2"], ["-j", "-3"], ["-j", "-3"]),
        (["train", "--lr", "1"], ["--lr", "2"], ["train", "--lr", "2"]),
        ([], ["--lr", "0.1"], ["--lr", "0.1"]),
        (["--text", ""], ["--text", "a b"], ["--text", "a b"]),
        (["--x=a=b"], ["--x", "c"], ["--x", "c"]),
        (["--lr", "1"], ["--lr", "2", "--lr", "3"], ["--lr", "3"]),
    ],
)
def test_an_option_replaces_the_same_option_or_is_added(
    arguments: list[str], changes: list[str], result: list[str]
) -> None:
    assert changed(arguments, changes) == tuple(result)


@pytest.mark.parametrize(
    ("arguments", "changes", "reason"),
    [
        (["--lr", "1", "data.csv"], ["--lr", "2"], "--lr has 1 after it here, and 2 words in the run"),
        (["--lr=1"], ["--lr", "2", "3"], "--lr has 2 after it here, and 1 word in the run"),
        (["--fast"], ["--fast", "2"], "--fast has 1 after it here, and no word in the run"),
        (["--tag", "a", "--tag", "b"], ["--tag", "c"], "the run has --tag 2 times"),
        (["--lr", "1"], ["data.csv"], "'data.csv' has no option before it"),
    ],
)
def test_what_could_mean_several_things_is_refused(
    arguments: list[str], changes: list[str], reason: str
) -> None:
    with pytest.raises(UsageError, match="not clear") as refused:
        changed(arguments, changes)
    assert reason in refused.value.message
    assert "--all-arguments" in refused.value.hint


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], {}),
        (["--lr", "0.1"], {"--lr": "0.1"}),
        (["--lr=0.1"], {"--lr": "0.1"}),
        (["lr=0.1"], {"lr": "0.1"}),
        (["--x=a=b"], {"--x": "a=b"}),
        (["--fast"], {"--fast": ""}),
        (["--layers", "64", "32"], {"--layers": "64 32"}),
        (["--text", "a b"], {"--text": "'a b'"}),
        (["train", "data", "--lr", "1"], {"word 1": "train", "word 2": "data", "--lr": "1"}),
        (["lr=1", "train"], {"lr": "1", "word 1": "train"}),
        (["--t", "a", "--t", "b", "--t", "c"], {"--t": "a", "--t (2)": "b", "--t (3)": "c"}),
        (["--lr=0.1", "x"], {"--lr": "0.1 x"}),
    ],
)
def test_options_are_named_with_their_values_and_words_with_their_places(
    arguments: list[str], named: dict[str, str]
) -> None:
    assert named_words(arguments) == named
