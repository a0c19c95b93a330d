"""Datasets and folders made of records of another: complete or nothing, in folders that a disk can have."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.bucket_objects.records import MANIFEST
from tests.data.source_trees import write_image
from tests.flows.datasets.pets import PETS, plan_pets, send
from tests.running_simulator import RunningSimulator
from tpuctl.cloud.endpoints import Cloud
from tpuctl.cloud.storage import Bucket
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.data.schema.features import Feature, Label, Text
from tpuctl.datasets import DatasetRef
from tpuctl.errors import TpuctlError, UsageError
from tpuctl.flows.datasets.analysis import (
    ClassFolders,
    Origin,
    planned_files,
    sample_plan,
    split_plan,
    write_files,
)
from tpuctl.flows.datasets.lookup import find_manifest
from tpuctl.flows.datasets.rm import plan_removal, remove
from tpuctl.local.confined_folder import ConfinedFolder
from tpuctl.local.staged_folder import STAGING

NEW = DatasetRef("new", "1.0.0")
Derive = Callable[[Origin], AbstractContextManager[DatasetPlan]]


def split(origin: Origin) -> AbstractContextManager[DatasetPlan]:
    return split_plan(origin, NEW, "train=0.5,test=0.5", lambda *_: None)


def sample(origin: Origin) -> AbstractContextManager[DatasetPlan]:
    return sample_plan(origin, NEW, 4, lambda *_: None)


@pytest.fixture
def origin(cloud: Cloud, pictures: Path) -> Origin:
    manifest = send(cloud.data_bucket, plan_pets(pictures, shards=1)).manifest
    return Origin(cloud.data_bucket, manifest, cloud.source_objects)


def derive(origin: Origin, make: Derive) -> None:
    with make(origin) as plan:
        send(origin.bucket, plan)


def stored(bucket: Bucket, ref: DatasetRef) -> dict[str, bytes]:
    return {item.name: bucket.read(item.name) for item in bucket.objects(ref.folder)}


@pytest.mark.parametrize(("make", "when"), [(split, "after"), (sample, "before")])
def test_a_failure_at_a_request_leaves_all_or_nothing_and_the_same_again_completes_it(
    origin: Origin, simulator: RunningSimulator, make: Derive, when: str
) -> None:
    """403 is not tried again: to the command it is the end, as a kill at that moment would be.

    At every third request, as the tests of uploads try each.
    """
    bucket, before = origin.bucket, stored(origin.bucket, PETS)
    derive(origin, make)
    complete = stored(bucket, NEW)
    request, failed = 0, True
    while failed:
        remove(bucket, plan_removal(bucket, NEW))
        fault = simulator.faults.add("gcs-error", status="403", when=when, skip=request, count=1)
        try:
            derive(origin, make)
        except TpuctlError:
            pass
        failed = fault.id not in {fault.id for fault in simulator.faults.all()}
        if not failed:
            simulator.faults.remove(fault.id)
        elif find_manifest(bucket, NEW):
            assert complete.items() <= stored(bucket, NEW).items()
        derive(origin, make)
        assert stored(bucket, NEW) == complete
        request += 3
    assert request > 15
    assert stored(bucket, PETS) == before


def origin_of(features: Mapping[str, Feature], version: str = "1.0.0") -> Origin:
    manifest = msgspec.structs.replace(MANIFEST, features=dict(features), version=version)
    nothing: Any = None
    return Origin(nothing, manifest, nothing)


CATS, DOGS = Label(("cat",)), Label(("dog",))


@pytest.mark.parametrize(
    ("features", "chosen", "label"),
    [
        ({"text": Text(), "label": CATS}, None, "label"), ({"a": CATS, "b": DOGS}, None, ""),
        ({"a": CATS, "b": DOGS}, "b", "b"), ({"text": Text()}, None, ""), ({"label": CATS}, "", ""),
    ],
)  # fmt: skip
def test_shares_are_kept_of_the_only_label_or_of_the_chosen_one(
    features: dict[str, Feature], chosen: str | None, label: str
) -> None:
    assert origin_of(features).label(chosen) == label


@pytest.mark.parametrize(
    ("features", "hint"),
    [({"a": CATS, "b": DOGS}, "One of a, b."), ({"text": Text()}, "Run it without --stratify.")],
)
def test_a_label_that_the_dataset_does_not_have_is_refused(features: dict[str, Feature], hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        origin_of(features).label("text")
    assert refused.value.message == "The dataset has no label 'text'."
    assert (refused.value.hint, refused.value.facts) == (hint, {"field": "text"})


@pytest.mark.parametrize(("version", "following"), [("1.0.0", "1.1.0"), ("2.9.7", "2.10.0")])
def test_the_next_version_has_one_more_in_the_middle(version: str, following: str) -> None:
    assert origin_of({}, version).next_version() == DatasetRef("pets", following)


def test_a_dataset_is_not_made_of_itself(origin: Origin) -> None:
    with pytest.raises(UsageError) as refused, split_plan(origin, PETS, "train=1", lambda *_: None):
        pass
    assert refused.value.message == "pets/1.0.0 is the dataset itself."
    assert refused.value.hint == "Name another version: --as NAME/VERSION."
    assert refused.value.facts == {"dataset": "pets/1.0.0"}


def test_the_classes_keep_their_shares_unless_nobody_wants_that(origin: Origin) -> None:
    with split_plan(origin, NEW, "train=0.5,test=0.5", lambda *_: None, stratify="label", seed=3) as kept:
        assert [split.name for split in kept.splits] == ["train", "test"]
        assert [split.records for split in kept.splits] == [4, 4]
    read: list[tuple[int, int]] = []
    with split_plan(origin, NEW, "train=1", lambda *numbers: read.append(numbers), stratify="") as plan:
        assert sum(split.records for split in plan.splits) == 8
    assert read == [], "without classes and groups no record is read"


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


@pytest.mark.daily
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


def folders(*classes: str) -> list[str]:
    """Return the folder of each class of a label."""
    named = ClassFolders({"text": Text(), "label": Label(classes)})
    return ["/".join(named.parts({"label": [number]})) for number in range(len(classes))]


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("cat", "cat"), ("Katze groß", "Katze groß"), ("a-b_c.d", "a-b_c.d"), ("a/b", "a_b"), ("a:b", "a_b"),
        ("..", "_"), (".hidden", "_hidden"), ("a.", "a_"), ("a. ", "a_"), (" a", " a"), ("", "0"),
        ("tpuctl.toml", "0"), ("y" * 50, "y" * 50), ("y" * 51, "y" * 50),
    ],
)  # fmt: skip
def test_a_class_has_a_folder_of_its_name_as_far_as_a_disk_can(name: str, folder: str) -> None:
    assert folders(name) == [folder]


@pytest.mark.parametrize(
    ("classes", "named"),
    [
        (("a", "A"), ["a", "A-1"]),
        (("a?", "a!", "a_"), ["a_", "a_-1", "a_-2"]),
        (("a?", "a_-1", "a!", "a_"), ["a_", "a_-1", "a_-2", "a_-3"]),
        (("1", ""), ["1", "1-1"]),
        (("ﬁ", "fi"), ["ﬁ", "fi-1"]),
    ],
)
def test_of_names_that_are_alike_the_later_has_its_number(classes: tuple[str, ...], named: list[str]) -> None:
    assert folders(*classes) == named


def test_a_class_without_a_name_has_its_number() -> None:
    named = ClassFolders({"label": Label(("7",))})
    assert named.parts({"label": [9]}) == ("9",)
    assert named.parts({"label": [7]}) == ("7-7",), "class 0 has this name"
    assert named.parts({"label": [9]}) == ("9",)


@pytest.mark.parametrize("values", [{}, {"label": []}, {"label": [b"cat"]}, {"other": [1]}])
def test_a_record_without_a_class_is_in_no_folder(values: dict[str, list[int | bytes]]) -> None:
    named = ClassFolders({"label": Label(("cat",)), "other": Text()})
    assert named.parts(values) == ()


def test_of_several_labels_the_first_that_a_record_has_decides() -> None:
    named = ClassFolders({"kind": Label(("cat", "dog")), "age": Label(("old", "cat"))})
    assert named.parts({"kind": [1], "age": [0]}) == ("dog",)
    assert named.parts({"age": [1]}) == ("cat-1",)
