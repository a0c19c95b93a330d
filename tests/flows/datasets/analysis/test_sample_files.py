"""A sample in a folder: its own files alone, nothing outside it, and no mixture of two samples."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.data.source_trees import write_image
from tests.flows.datasets.pets import PETS, send
from tpuctl.cloud.endpoints import Cloud
from tpuctl.data.plan import plan
from tpuctl.datasets import DatasetRef
from tpuctl.errors import UsageError
from tpuctl.flows.datasets.analysis import Origin, planned_files, sample_plan, write_files
from tpuctl.local.confined_folder import ConfinedFolder
from tpuctl.local.staged_folder import STAGING

RECORD = ".tpuctl-sample"
EVERY = 99


class Sampler:
    """Writes samples of one dataset."""

    def __init__(self, cloud: Cloud, source: Path) -> None:
        manifest = send(cloud.data_bucket, plan(source, name=PETS.name)).manifest
        self._origin = Origin(cloud.data_bucket, manifest, cloud.source_objects)

    def write(self, folder: Path, count: int, *, seed: int = 0) -> int:
        with sample_plan(
            self._origin, DatasetRef("sample", "1.0.0"), count, lambda *_: None, seed=seed
        ) as drawn:
            return write_files(drawn, folder, lambda text: None)


@pytest.fixture
def sampler(cloud: Cloud, pictures: Path) -> Sampler:
    return Sampler(cloud, pictures)


@pytest.fixture
def look(tmp_path: Path) -> Path:
    return tmp_path / "look"


def below(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def drawn(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in below(folder).items() if name != RECORD}


@pytest.mark.parametrize("planted", ["train", "train/{}", "train/{}/000000.png"])
def test_a_link_in_the_folder_is_not_followed(
    sampler: Sampler, look: Path, tmp_path: Path, planted: str
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "key").write_text("secret")
    sampler.write(look, EVERY)
    shutil.rmtree(look / "train")
    for path in {look / planted.format(kind) for kind in ("cat", "dog")}:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(private / "key" if path.suffix else private)
    with pytest.raises(UsageError, match="has something else in its place: a link") as refused:
        sampler.write(look, EVERY)
    assert "--to" in refused.value.hint
    assert below(private) == {"key": b"secret"}


def test_another_sample_replaces_the_files_of_the_former(sampler: Sampler, look: Path) -> None:
    assert sampler.write(look, EVERY) == 8
    every = below(look)
    assert sampler.write(look, EVERY) == 8
    assert below(look) == every
    (look / "notes.txt").write_text("mine")
    assert sampler.write(look, 4, seed=7) == 4
    files = drawn(look)
    assert files.pop("notes.txt") == b"mine"
    assert len(files) == 4
    assert not (look / STAGING).exists()


def test_a_folder_that_is_no_sample_is_left_alone(sampler: Sampler, look: Path) -> None:
    look.mkdir()
    (look / "photo.jpg").write_bytes(b"mine")
    with pytest.raises(UsageError, match="has files that are not of a sample") as refused:
        sampler.write(look, 4)
    assert "--to" in refused.value.hint
    assert below(look) == {"photo.jpg": b"mine"}


class KilledError(BaseException):
    """A kill: it is caught by nobody."""


def kill_at(patch: pytest.MonkeyPatch, moment: int) -> None:
    """Have what places files end so, once it has placed `moment` of them."""
    place, places = ConfinedFolder.place, iter(range(moment))

    def placing(folder: ConfinedFolder, file: Path, parts: tuple[str, ...]) -> None:
        if next(places, None) is None:
            raise KilledError
        place(folder, file, parts)

    patch.setattr(ConfinedFolder, "place", placing)


@pytest.mark.parametrize("former", [0, EVERY])
def test_a_sample_that_is_killed_at_any_file_is_completed_by_the_next(
    sampler: Sampler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, former: int
) -> None:
    """Six pictures are between the two lists of files."""
    sampler.write(tmp_path / "complete", 6, seed=1)
    for moment in range(8):
        folder = tmp_path / f"{moment}"
        if former:
            sampler.write(folder, former)
        with monkeypatch.context() as patch:
            kill_at(patch, moment)
            with pytest.raises(KilledError):
                sampler.write(folder, 6, seed=1)
        assert sampler.write(folder, 6, seed=1) == 6
        assert below(folder) == below(tmp_path / "complete")


def test_another_sample_after_a_kill_leaves_no_mixture(
    sampler: Sampler, look: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        kill_at(patch, 6)
        with pytest.raises(KilledError):
            sampler.write(look, EVERY)
    assert sampler.write(look, 2, seed=1) == 2
    assert len(drawn(look)) == 2


def test_classes_whose_names_are_alike_have_folders_of_their_own(
    cloud: Cloud, look: Path, tmp_path: Path
) -> None:
    names = ["a b?", "a b!", "A b_", "?x", "_x", "y" * 200, "tpuctl.toml", "z"]
    for number, name in enumerate(names):
        write_image(tmp_path / "in" / name / "0.png", shade=number)
    Sampler(cloud, tmp_path / "in").write(look, EVERY)
    folders = [path.name for path in (look / "train").iterdir()]
    assert len({name.casefold() for name in folders}) == len(names)
    assert {"z", "_x"} <= set(folders)
    assert "tpuctl.toml" not in folders


def test_rows_are_lines_of_json_in_a_file_of_their_split(look: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,x\nhello,1\nworld,2\n")
    rows = plan(tmp_path / "rows.csv", name="rows")
    assert planned_files(rows, look) == [look / "train.jsonl"]
    assert write_files(rows, look, lambda text: None) == 1
    lines = [json.loads(line) for line in (look / "train.jsonl").read_text().splitlines()]
    assert sorted(lines, key=lambda line: line["x"]) == [{"text": "hello", "x": 1}, {"text": "world", "x": 2}]
    assert json.loads((look / RECORD).read_text()) == [["train.jsonl"]]


def test_pictures_have_the_ending_of_their_format_and_their_number(look: Path, tmp_path: Path) -> None:
    for name in ("0.png", "1.jpg"):
        write_image(tmp_path / "in" / "cat" / name)
    pets = plan(tmp_path / "in", name="pets")
    assert planned_files(pets, look) == [look / "train"]
    assert write_files(pets, look, lambda text: None) == 2
    names = sorted(path.name for path in (look / "train" / "cat").iterdir())
    assert {name.partition(".")[0] for name in names} == {"000000", "000001"}
    assert {name.partition(".")[2] for name in names} == {"png", "jpg"}


@pytest.mark.parametrize("listed", ['[["..", "key"]]', '[["/key"]]', "[1]", "no list"])
def test_a_list_that_somebody_has_changed_deletes_nothing_outside(
    look: Path, tmp_path: Path, listed: str
) -> None:
    (tmp_path / "key").write_text("secret")
    (tmp_path / "rows.csv").write_text("x\n1\n2\n")
    rows = plan(tmp_path / "rows.csv", name="rows")
    write_files(rows, look, lambda text: None)
    (look / RECORD).write_text(listed)
    if listed.startswith("[["):
        assert write_files(rows, look, lambda text: None) == 1
    else:
        with pytest.raises(UsageError, match="has files that are not of a sample"):
            write_files(rows, look, lambda text: None)
    assert (tmp_path / "key").read_text() == "secret"
