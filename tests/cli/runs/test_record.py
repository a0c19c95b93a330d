"""export, verify and diff: a run is made again from its archive, and a copy is told from a changed one."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.data.archives.tar_files import unpack
from tests.running_simulator import CommandResult
from tpuctl.cli.runs import record as module
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.record.verification import (
    BUCKET,
    CHANGED,
    FOLDER,
    MISSING,
    Check,
    Difference,
    Verification,
)

Command = Callable[..., CommandResult]

SECRET = "hf_Qm3vT7xYpL2kWz9cR4nB8sD1"
TRAINING = """
# /// script
# dependencies = ["gcsfs", "numpy>=1"]
# [tool.tpuctl]
# framework = "jax"
# env = {RATE = "0.1"}
# ///
import os, sys
import fsspec
import numpy as np
from model import gradient

random = np.random.default_rng(int(sys.argv[sys.argv.index("--seed") + 1]))
x = random.normal(size=(64, 4))
if "--data" in sys.argv:
    with fsspec.open(os.environ["TPUCTL_DATA_DIR"] + "/features.json", "rb") as stream:
        x[0] = len(stream.read())
y, weights = x.sum(axis=1) + random.normal(size=64), np.zeros(4)
for _ in range(20):
    weights -= float(os.environ["RATE"]) * gradient(x, y, weights)
assert os.environ["TOKEN"]
assert sys.argv[-1] == "it's $HOME `fine`"
for folder, name in (("TPUCTL_MODEL_DIR", "deep/weights.npy"), ("AIP_CHECKPOINT_DIR", "last.bin")):
    with fsspec.open(f"{os.environ[folder]}/{name}", "wb", auto_mkdir=True) as stream:
        stream.write(weights.tobytes())
"""
MODEL = "def gradient(x, y, w):\n    return x.T @ (x @ w - y) / len(y)\n"
ARGUMENTS = ("--seed", "7", "--label", "it's $HOME `fine`")


@pytest.fixture
def run(tpuctl: Command, node: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A training that has ended, which had a secret."""
    Path("train.py").write_text(TRAINING.lstrip())
    Path("model.py").write_text(MODEL)
    monkeypatch.setenv("TOKEN", SECRET)
    return submit(tpuctl, "r1", ARGUMENTS)


def submit(tpuctl: Command, name: str, arguments: tuple[str, ...], *options: str) -> str:
    submitted = tpuctl("submit", "train.py", "--name", name, "--secret", "TOKEN", *options, "--", *arguments)
    assert submitted.code == 0, submitted.err
    assert tpuctl("wait", name).code == 0, tpuctl("logs", name).out
    return name


def unpacked(archive: Path, folder: Path) -> Path:
    unpack(archive, folder)
    (top,) = folder.iterdir()
    return top


def commands_of(readme: str) -> list[str]:
    return re.findall(r"^    (.+)$", readme.partition("## Run it again")[2], re.MULTILINE)


def shell(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as somebody else: nothing of tpuctl, the simulator or this user is in the environment."""
    programs = folder.parent / "bin"
    if not programs.exists():
        programs.mkdir()
        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        (programs / name).symlink_to(sys._base_executable)  # type: ignore[attr-defined]
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder), "PIP_NO_INDEX": "1", **variables}
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def repeat(top: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Type the commands of the README, in order, and return the last one's result."""
    for number, command in enumerate(commands_of((top / "README.md").read_text())):
        result = shell(command, top, **variables)
        assert result.returncode == 0, (command, result.stdout, result.stderr)
        if number == 0:  # what PyPI has, this environment has: pip checks the versions, and fetches nothing
            (packages,) = (top / ".venv/lib").glob("python*/site-packages")
            (packages / "here.pth").write_text(str(distribution("numpy").locate_file("")))
    return result


@pytest.mark.slow
def test_the_archive_makes_the_same_weights_on_a_machine_without_the_bucket(
    tpuctl: Command, run: str, bucket: Bucket, tmp_path: Path
) -> None:
    exported = tpuctl("export", run, "--json")
    assert exported.code == 0, exported.err
    assert exported.json["missing"] == ["TOKEN"]
    top = unpacked(Path("r1.tar.gz"), tmp_path / "elsewhere")
    assert commands_of((top / "README.md").read_text())[1:] == [
        ".venv/bin/pip install -r requirements.txt -c constraints.txt", "sh run.sh",
        "(cd results && md5sum -c ../record/results.md5)",
    ]  # fmt: skip
    required = {line.partition("==")[0] for line in (top / "requirements.txt").read_text().splitlines()}
    assert {"fsspec", "gcsfs", "numpy"} <= required, "all that the host installed"
    modes = {name: (top / name).stat().st_mode & 0o777 for name in ("README.md", "record/run.json", "run.sh")}
    assert modes == {"README.md": 0o644, "record/run.json": 0o644, "run.sh": 0o755}
    compared = repeat(top, TOKEN="another")
    assert compared.stdout.splitlines() == [
        "checkpoints/last.bin: OK", "outputs/deep/weights.npy: OK",
    ]  # fmt: skip
    weights = (top / "results/outputs/deep/weights.npy").read_bytes()
    assert weights == bucket.read("runs/r1/outputs/deep/weights.npy")
    (top / "code/model.py").write_text(MODEL.replace("len(y)", "(1 + len(y))"))
    assert shell("sh run.sh", top, TOKEN="x").returncode == 0
    *_, compare = commands_of((top / "README.md").read_text())
    assert shell(compare, top).returncode == 1, "another training is told"


def test_no_secret_is_in_the_archive_and_each_has_to_be_given(
    tpuctl: Command, node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("train.py").write_text("# /// script\n# dependencies = []\n# ///\nimport sys\n")
    Path(".env").write_text(f"TOKEN={SECRET}\n")
    monkeypatch.setenv("TOKEN", SECRET)
    monkeypatch.setenv("PLAIN", f"{SECRET}-2")
    submit(tpuctl, "r1", ("--api-key", f"{SECRET}-3", "--x", "1"), "--env", "PLAIN", "--env", "KEPT=1",
           "--store-env", "KEPT")  # fmt: skip
    exported = tpuctl("export", "r1", "--to", "out.tar.gz", "--json")
    assert exported.json["missing"] == ["PLAIN", "TOKEN", "argument 2"]
    top = unpacked(Path("out.tar.gz"), tmp_path / "elsewhere")
    everything = b"".join(path.read_bytes() for path in top.rglob("*") if path.is_file())
    assert SECRET.encode() not in everything
    assert b"export KEPT=1" in everything
    refused = shell("sh run.sh", top, PYTHON="/bin/true")
    assert refused.returncode != 0
    assert "PLAIN" in refused.stderr
    given = {"PLAIN": "1", "TOKEN": "2", "ARGUMENT_2": "3", "PYTHON": "/bin/echo"}
    assert shell("sh run.sh", top, **given).stdout == "train.py --api-key 3 --x 1\n"


@pytest.mark.slow
def test_the_dataset_is_in_it_if_asked_for(tpuctl: Command, run: str, tmp_path: Path) -> None:
    Path("rows.csv").write_text("a,label\n1,x\n2,y\n3,x\n4,y\n")
    assert tpuctl("data", "upload", "rows", "rows.csv", "--label", "label").code == 0
    submit(tpuctl, "r2", ("--data", *ARGUMENTS), "--dataset", "rows")
    refused = tpuctl("export", "r1", "--with-data")
    assert (refused.code, "Run 'r1' has no dataset." in refused.err) == (2, True)
    without = tpuctl("export", "r2", "--to", "without.tar.gz", "--json")
    assert without.json["missing"] == ["TOKEN", "dataset rows/1.0.0"]
    readme = (unpacked(Path("without.tar.gz"), tmp_path / "without") / "README.md").read_text()
    assert "tpuctl data pull rows/1.0.0 --to data/rows/1.0.0" in readme
    assert tpuctl("export", "r2", "--with-data", "--to", "data.tar.gz").code == 0
    top = unpacked(Path("data.tar.gz"), tmp_path / "with")
    assert (top / "data/rows/1.0.0/manifest.json").is_file()
    assert repeat(top, TOKEN="x").stdout.count(": OK\n") == 2
    assert tpuctl("pull", "r2", "--to", "copy").code == 0
    checks = tpuctl("verify", "copy", "--json").json["checks"]
    assert {"subject": "dataset rows/1.0.0", "by": "bucket", "detail": "by its manifest's digest"} in checks
    assert tpuctl("data", "rm", "rows", "--yes").code == 0
    (difference,) = tpuctl("verify", "copy", "--json").json["differences"]
    assert (difference["name"], difference["kind"]) == ("dataset", "missing")
    gone = tpuctl("export", "r2", "--with-data", "--to", "gone.tar.gz")
    assert (gone.code, "is not in the bucket any more" in gone.err) == (4, True)
    assert not list(Path().glob("gone*"))


def test_an_archive_is_the_same_each_time_and_replaces_no_file(
    tpuctl: Command, run: str, bucket: Bucket
) -> None:
    first, second = (tpuctl("export", run, "--to", f"{number}.tar.gz", "--json").json for number in (1, 2))
    assert first["sha256"] == second["sha256"]
    assert Path("1.tar.gz").read_bytes() == Path("2.tar.gz").read_bytes()
    again = tpuctl("export", run, "--to", "1.tar.gz")
    assert (again.code, "There is a file 1.tar.gz already" in again.err) == (2, True)
    shown = tpuctl("export", run)
    assert shown.err.splitlines()[-1] == "Next: tar -xzf r1.tar.gz && less r1/README.md"
    odd = tpuctl("export", run, "--to=-my results.tar.gz").err.splitlines()[-1]
    unpacking = odd.removeprefix("Next: ").replace("less", "cat")
    assert subprocess.run(["sh", "-c", unpacking], check=False).returncode == 0, unpacking
    (code,) = bucket.objects("bundles/")
    bucket.upload(code.name, [b"other"], "application/gzip")
    damaged = tpuctl("export", run, "--to", "3.tar.gz")
    assert (damaged.code, "does not hold the code that it is named by" in damaged.err) == (4, True)
    assert not list(Path().glob("3*"))


def test_a_run_that_goes_on_has_no_archive(tpuctl: Command, node: str) -> None:
    Path("job.py").write_text("# /// script\n# dependencies = []\n# ///\nimport time\ntime.sleep(600)\n")
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    refused = tpuctl("export", "r1")
    assert (refused.code, "Run 'r1' has not ended." in refused.err) == (4, True)
    assert tpuctl("cancel", "r1", "--yes").code == 0


def test_a_copy_is_verified_by_the_folder_and_by_the_bucket(tpuctl: Command, run: str) -> None:
    assert tpuctl("pull", run, "--to", "copy").code == 0
    same = tpuctl("verify", "copy")
    assert same.code == 0, same.out
    assert {"results", "files", "code"} <= {line.split()[0] for line in same.out.splitlines()}
    assert "copy is run 'r1'" in same.err
    with Path("copy/outputs/deep/weights.npy").open("r+b") as stream:
        stream.write(b"\xff")
    changed = tpuctl("verify", "copy", "--offline", "--json")
    assert changed.code == 4
    assert changed.json["differences"][0]["name"] == "outputs/deep/weights.npy"
    assert changed.json["error"]["exit_code"] == 4
    assert tpuctl("pull", run, "--to", "copy").code == 0, "it is fetched again"
    Path("copy/checkpoints/last.bin").unlink()
    assert "missing" in tpuctl("verify", "copy").out
    assert tpuctl("verify", "copy", "--partial").code == 0
    assert tpuctl("verify", "nothing").code == 2


CHECKS = (Check("results", FOLDER, "3 files"), Check("objects", "", "--offline"))


@pytest.fixture
def verify(tpuctl: Command, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CommandResult]:
    """The command where the flow answers with so many differences: real ones are tested beside the flow."""

    def call(*options: str, changed: int = 0, missing: int = 0, outcome: str = "failed") -> CommandResult:
        differences = (
            *(
                Difference(f"outputs/{number}", CHANGED, "has other bytes", FOLDER)
                for number in range(changed)
            ),
            *(Difference(f"gone/{number}", MISSING, "is not here", BUCKET) for number in range(missing)),
        )
        result = Verification("r1", outcome, 3, CHECKS, differences)
        monkeypatch.setattr(module, "check_folder", lambda *arguments: result)
        return tpuctl("verify", "copy", "--offline", *options)

    return call


@pytest.mark.parametrize(
    ("changed", "shown", "more"), [(1, 1, ""), (50, 50, ""), (51, 50, "1"), (60, 50, "10")]
)
def test_fifty_differences_are_shown_and_others_counted(
    verify: Callable[..., CommandResult], changed: int, shown: int, more: str
) -> None:
    result = verify(changed=changed)
    assert result.code == 4
    rows = [line.split() for line in result.out.splitlines()]
    assert rows[0] == ["CHECK", "BY", "DETAIL"]
    assert rows[1:3] == [["results", "folder", "3", "files"], ["objects", "not", "checked", "--offline"]]
    assert rows[3] == ["DIFFERENCE", "FILE", "DETAIL"]
    assert rows[4] == ["changed", "outputs/0", "has", "other", "bytes"]
    assert len(rows[4:]) == shown
    said = f"{more} more differences: 'tpuctl verify copy --json' lists all of them."
    assert (said in result.err.splitlines()) == bool(more)
    count = "1 difference." if changed == 1 else f"{changed} differences."
    assert f"says: {count}" in result.err


def test_a_part_may_lack_files(verify: Callable[..., CommandResult]) -> None:
    result = verify("--partial", missing=3)
    assert (result.code, "DIFFERENCE" in result.out) == (0, False)
    assert verify(missing=3).code == 4
    both = verify("--partial", "--json", missing=3, changed=2)
    assert both.code == 4
    assert [difference["name"] for difference in both.json["differences"]] == ["outputs/0", "outputs/1"]
    assert both.json["same"] is False


def test_the_json_of_a_folder_that_is_the_run(verify: Callable[..., CommandResult]) -> None:
    content = verify("--json", outcome="").json
    assert content == {
        "schema": 1, "run": "r1", "folder": "copy", "outcome": None, "files": 3, "same": True,
        "checks": [
            {"subject": "results", "by": "folder", "detail": "3 files"},
            {"subject": "objects", "by": "", "detail": "--offline"},
        ],
        "differences": [],
    }  # fmt: skip
    assert verify("--json").json["outcome"] == "failed"


Tpuctl = Callable[..., CommandResult]
JOB = """\
# /// script
# dependencies = ["google-cloud-storage"]
# ///
import os, sys
from google.cloud import storage
place = os.environ["TPUCTL_CHECKPOINT_DIR"].removeprefix("gs://")
bucket, _, folder = place.partition("/")
weights = " ".join(sys.argv[1:]).encode()
storage.Client().bucket(bucket).blob(f"{folder}/weights.npy").upload_from_string(weights)
"""


@pytest.fixture
def pair(tpuctl: Tpuctl, node: str) -> None:
    """A run, one like it, and one with another seed."""
    Path("job.py").write_text(JOB)
    ran = tpuctl("submit", "job.py", "--name", "r1", "--attach", "--", "--seed", "7")
    assert ran.code == 0, ran.err
    for name, changes in (("r2", ()), ("r3", ("--", "--seed", "8"))):
        again = tpuctl("resubmit", "r1", "--name", name, *changes)
        assert again.code == 0, again.err
        assert tpuctl("wait", name).code == 0


@pytest.mark.usefixtures("pair")
def test_a_run_and_its_repetition(tpuctl: Tpuctl, bucket: Bucket) -> None:
    before = bucket.objects("")
    same = tpuctl("diff", "r1", "r2")
    assert same.code == 0, same.err
    assert same.out == "r1 and r2 do not differ in anything that is recorded.\n"
    content = tpuctl("diff", "r1", "r2", "--json").json
    assert (content["runs"], content["equal"], content["differences"], content["unknown"]) == (
        ["r1", "r2"], True, [], [],
    )  # fmt: skip

    other = tpuctl("diff", "r1", "r3")
    assert other.code == 0
    lines = [line.split() for line in other.out.splitlines()]
    assert lines[0] == ["PART", "NAME", "r1", "r3"]
    assert ["arguments", "--seed", "7", "8"] in lines
    assert ["seeds", "--seed", "7", "8"] in lines
    assert lines[3][:2] == ["results", "checkpoints/weights.npy"]
    assert len(lines) == 4
    assert "The same: code, packages, data, machine, job, variables." in other.err
    content = tpuctl("diff", "r1", "r3", "--json").json
    assert content["equal"] is False
    facts = {fact["name"]: fact["value"] for fact in tpuctl("describe", "r3", "--json").json["run"]["facts"]}
    assert (facts["repeats"], facts["seeds"]) == ("r1", "--seed 8")
    assert content["differences"][0] == {"part": "arguments", "name": "--seed", "first": "7", "second": "8"}
    assert bucket.objects("") == before


def test_a_run_that_does_not_exist_is_told(tpuctl: Tpuctl, bucket: Bucket) -> None:
    refused = tpuctl("diff", "r1", "r2")
    assert refused.code == 4
    assert "There is no run 'r1'." in refused.err
