"""The data commands as a user runs them.

`--tokens` as a user types it, and what the other data commands show of token ids.
"""

from __future__ import annotations

import gc
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.source_trees import write_image
from tests.forks import commands
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.storage import Bucket

Tpuctl = Callable[..., CommandResult]
FOLDER = "datasets/pets/1.0.0/"


@pytest.fixture
def pictures(home: Path) -> Path:
    """Two classes of eight pictures each, in the working folder."""
    for number, name in enumerate(("cat", "dog")):
        for index in range(8):
            write_image(Path("pictures") / name / f"{index}.png", shade=10 * number + index)
    return Path("pictures")


def names_sent(requests: list[dict[str, dict[str, str]]]) -> list[str]:
    """Return the names of the objects that some requests of a dry run begin to write, in order."""
    return [request["body"]["name"] for request in requests if request["body"]]


@pytest.fixture
def pets(tpuctl: Tpuctl, simulator: RunningSimulator, pictures: Path) -> CommandResult:
    """The dataset, uploaded."""
    result = tpuctl("data", "upload", "pets", "pictures", "--split", "train=3/4,test=1/4", "--shards", "2")
    assert result.code == 0, result.err
    return result


@pytest.mark.usefixtures("pictures")
class TestPlan:
    def test_it_says_what_an_upload_would_make_and_why_and_starts_nothing(
        self, tpuctl: Tpuctl, home: Path
    ) -> None:
        result = tpuctl("data", "plan", "pets", "pictures", "--for", "v3-32", "--split", "train=3/4,test=1/4")
        assert result.code == 0, result.err
        lines = [line.split(maxsplit=5) for line in result.out.splitlines()[1:]]
        assert [(split, records, shards) for split, records, _, _, shards, _ in lines] == [
            ("train", "12", "4"),
            ("test", "4", "4"),
        ]
        assert "one for each of the 4 hosts" in result.out
        assert "[sim]" not in result.err
        assert not (home.parent / "state").exists()

    def test_it_says_the_same_as_json(self, tpuctl: Tpuctl) -> None:
        plan = tpuctl("data", "plan", "pets", "pictures", "--shards", "3", "--json").json
        assert (plan["records"], plan["exact"], plan["classes"]) == (16, True, ["cat", "dog"])
        assert plan["splits"]["train"]["shards"] == 3

    def test_the_next_command_takes_no_folder_for_an_option(self, tpuctl: Tpuctl) -> None:
        Path("pictures").rename("-my pictures")
        result = tpuctl("data", "plan", "pets", "./-my pictures", "--shards", "3")
        assert "Next: tpuctl data upload pets './-my pictures' --shards 3\n" in result.err

    def test_it_says_what_becomes_of_the_pictures_and_which_are_bad(self, tpuctl: Tpuctl) -> None:
        write_image(Path("pictures/ant/grey.png"), mode="L")
        Path("pictures/ant/page.jpg").write_bytes(b"<html>404</html>")
        summary = (
            "18 pictures: 16 RGB, 1 grey; 1 will be converted to 3 channels; "
            "1 cannot be used: 1 is an HTML page, not an image"
        )
        result = tpuctl("data", "plan", "pets", "pictures")
        assert (result.code, f"{summary}.\n" in result.err) == (0, True)
        assert "bad: 'ant/page.jpg' is an HTML page, not an image" in result.err
        assert "Next: tpuctl data upload pets pictures --skip-bad\n" in result.err
        plan = tpuctl("data", "plan", "pets", "pictures", "--json").json
        assert plan["summary"] == summary
        assert (plan["pictures"]["converted"], plan["pictures"]["channels"], plan["exact"]) == (1, 3, False)
        kept = tpuctl("data", "plan", "pets", "pictures", "--channels", "keep", "--json").json
        assert kept["features"]["image"]["shape"] == [None, None, None]
        assert "converted" not in kept["pictures"]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--shard-size", "1MB"), "A shard of 1 MB is out of bounds"),
            (("--shard-size", "2GiB"), "A shard of 2.15 GB is out of bounds"),
            (("--shard-size", "much"), "Cannot read --shard-size much"),
            (("--resize", "big"), "Cannot read --resize big"),
            (("--resize", "99999"), "makes images of 10000 megapixels"),
            (("--type", "age"), "Cannot read --type age"),
            (("--for", "v3-33"), "v3-33"),
            (("--for", "v3-8", "--hosts", "2"), "--for and --hosts"),
            (("--format", "word"), "There is no kind of source called 'word'"),
        ],
    )
    def test_an_option_that_cannot_be_meant_is_explained(
        self, tpuctl: Tpuctl, options: tuple[str, ...], message: str
    ) -> None:
        result = tpuctl("data", "plan", "pets", "pictures", *options)
        assert result.code == 2
        assert message in result.err
        assert "Hint:" in result.err


class TestLook:
    def test_describe_shows_fields_splits_and_source(self, tpuctl: Tpuctl, pets: CommandResult) -> None:
        result = tpuctl("data", "describe", "pets")
        assert "png image, 6 × 8 × 3, uint8" in result.out
        assert "label, 2 classes: cat, dog" in result.out
        assert "images, seed 0" in result.out
        manifest = tpuctl("data", "describe", "pets/1.0.0", "--json").json["manifest"]
        assert manifest["splits"]["test"]["records"] == 4

    def test_a_dataset_that_is_not_there_names_the_nearest(self, tpuctl: Tpuctl, pets: CommandResult) -> None:
        for command in ("describe", "head", "verify", "rm"):
            result = tpuctl("data", command, "pet")
            assert result.code == 4
            assert "Did you mean pets?" in result.err

    def test_head_shows_examples(self, tpuctl: Tpuctl, pets: CommandResult) -> None:
        lines = tpuctl("data", "head", "pets", "-n", "9").out.splitlines()
        assert lines[0].split() == ["IMAGE", "LABEL"]
        assert len(lines) == 10
        assert all(line.endswith(("0 (cat)", "1 (dog)")) for line in lines[1:])
        examples = tpuctl("data", "head", "pets", "--split", "test", "-n", "400", "--json").json["examples"]
        assert [example["label"] for example in examples].count(0) == 2
        assert "no split 'dev'" in tpuctl("data", "head", "pets", "--split", "dev").err

    def test_a_label_whose_name_is_its_number_is_shown_once(self, tpuctl: Tpuctl, simulator) -> None:
        Path("digits.csv").write_text("number,label\n1.5,0\n2.5,1\n3.5,2\n")
        assert tpuctl("data", "upload", "digits", "digits.csv").code == 0
        lines = tpuctl("data", "head", "digits").out.splitlines()
        assert sorted(line.split() for line in lines[1:]) == [["1.5", "0"], ["2.5", "1"], ["3.5", "2"]]

    def test_head_draws_a_contact_sheet(self, tpuctl: Tpuctl, pets: CommandResult) -> None:
        result = tpuctl("data", "head", "pets", "-n", "5", "--image", "sheet.png")
        assert "5 images in sheet.png" in result.err
        with Image.open("sheet.png") as sheet:
            assert (sheet.format, sheet.size) == ("PNG", (3 * 132 + 4, 2 * 148 + 4))
            assert len(sheet.getcolors(1 << 20) or []) > 10
        assert tpuctl("data", "head", "pets", "--image", "no/such/folder.png").code == 2


class TestVerify:
    def test_a_whole_dataset_passes(self, tpuctl: Tpuctl, pets: CommandResult) -> None:
        assert "16 records in 4 shards" in tpuctl("data", "verify", "pets").out
        assert "every record was read" in tpuctl("data", "verify", "pets", "--deep").out
        assert tpuctl("data", "verify", "pets", "--deep", "--json").json["ok"]

    def test_what_is_missing_or_other_is_named(
        self, tpuctl: Tpuctl, pets: CommandResult, bucket: Bucket
    ) -> None:
        first, second = (f"pets-train.tfrecord-0000{number}-of-00002" for number in (0, 1))
        for name in (first, second):
            shard = bucket.stat(f"{FOLDER}{name}")
            assert shard
            bucket.remove(shard)
        bucket.create(f"{FOLDER}{second}", b"other")
        result = tpuctl("data", "verify", "pets")
        assert result.code == 4
        assert f"{first} is missing. {second} has bytes 5, and its manifest says" in result.err

    def test_a_damaged_record_is_found_by_reading_all(
        self, tpuctl: Tpuctl, pets: CommandResult, simulator: RunningSimulator
    ) -> None:
        simulator.faults.add(
            "gcs-corrupt", method="storage.objects.get", object="*-test.*00001-of-00002", at=30
        )
        assert tpuctl("data", "verify", "pets").code == 0
        result = tpuctl("data", "verify", "pets", "--deep")
        assert result.code in (4, 9)
        assert "pets-test.tfrecord-00001-of-00002" in result.err


class TestRemove:
    def test_it_asks_first_and_removes_all(self, tpuctl: Tpuctl, pets: CommandResult) -> None:
        result = tpuctl("data", "rm", "pets")
        assert result.code == 10
        assert "16 records" in result.err
        assert len(tpuctl("data", "ls", "--json").json["datasets"]) == 1
        requests = tpuctl("data", "rm", "pets", "--dry-run").out.splitlines()
        assert re.fullmatch(
            r"DELETE http://127.*/datasets%2Fpets%2F1\.0\.0%2Fmanifest\.json\?ifGenerationMatch=\d+.*",
            requests[0],
        )
        assert tpuctl("data", "rm", "pets", "--yes").out == f"Removed pets/1.0.0: {len(requests)} objects.\n"
        assert tpuctl("data", "ls", "--json").json["datasets"] == []

    def test_of_several_versions_one_has_to_be_named(self, tpuctl: Tpuctl, pets: CommandResult) -> None:
        assert tpuctl("data", "upload", "pets", "pictures", "--version", "1.0.1").code == 0
        result = tpuctl("data", "rm", "pets", "--yes")
        assert result.code == 2
        assert "tpuctl data rm pets/1.0.1" in result.err
        assert tpuctl("data", "rm", "pets/1.0.1", "--yes", "--json").json["removed"] == "pets/1.0.1"


class TestUpload:
    def test_bad_pictures_are_all_named_or_skipped(
        self, tpuctl: Tpuctl, simulator: RunningSimulator, pictures: Path
    ) -> None:
        (pictures / "cat" / "1.png").write_bytes(b"")
        (pictures / "dog" / "2.png").write_bytes(b"hello")
        result = tpuctl("data", "upload", "pets", "pictures")
        assert result.code == 2
        assert "'cat/1.png' is empty; 'dog/2.png' is a text, not an image" in result.err
        assert "--skip-bad" in result.err
        result = tpuctl("data", "upload", "pets", "pictures", "--skip-bad")
        assert (result.code, "skipped: 'cat/1.png' is empty" in result.err) == (0, True)
        source = tpuctl("data", "describe", "pets", "--json").json["manifest"]["source"]
        assert source["skipped"] == 2
        assert [record["file"] for record in source["bad"]] == ["cat/1.png", "dog/2.png"]

    def test_a_copy_is_kept_where_asked_for(
        self, tpuctl: Tpuctl, simulator: RunningSimulator, pictures: Path
    ) -> None:
        result = tpuctl("data", "upload", "pets", "pictures", "--shards", "2", "--keep", "copy", "--json")
        assert result.json["shards_kept"] == 0
        assert sorted(file.name for file in Path("copy").iterdir()) == [
            "dataset_info.json", "features.json", "label.labels.txt", "manifest.json",
            "pets-train.tfrecord-00000-of-00002", "pets-train.tfrecord-00001-of-00002",
        ]  # fmt: skip
        assert (
            "cannot"
            in tpuctl("data", "upload", "pots", "pictures", "--keep", "copy/manifest.json/x").err.lower()
        )

    def test_images_are_resized(self, tpuctl: Tpuctl, simulator: RunningSimulator, pictures: Path) -> None:
        assert tpuctl("data", "upload", "pets", "pictures", "--resize", "4x5").code == 0
        assert "png image, 4 × 5 × 3" in tpuctl("data", "describe", "pets").out
        assert tpuctl("data", "upload", "icons", "pictures", "--resize", "4").code == 0
        assert "png image, 4 × 4 × 3" in tpuctl("data", "describe", "icons").out

    def test_progress_is_a_line_an_interval_without_a_terminal(
        self, tpuctl: Tpuctl, simulator: RunningSimulator, pictures: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tpuctl.cli.progress.INTERVAL", 0)
        lines = tpuctl("data", "upload", "pets", "pictures", "--shards", "2").err.splitlines()
        reports = [
            line for line in lines if re.fullmatch(r"\d+ of 16 records, .*B at .*B/s, \d+s left", line)
        ]
        assert reports[-1].startswith("16 of 16 records")

    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
    def test_a_broken_off_upload_is_taken_up_again(
        self, tpuctl: Tpuctl, simulator: RunningSimulator, bucket: Bucket, pictures: Path, how: signal.Signals
    ) -> None:
        command = ("data", "upload", "pets", "pictures", "--shards", "4")
        requests = tpuctl(*command, "--dry-run", "--json").json["requests"]
        shards = [name for name in names_sent(requests) if name.endswith(".tfrecord")]
        last = shards[3].rpartition("/")[2]
        stall = simulator.faults.add("gcs-stall", method="storage.objects.create", object=f"*{last}")
        process = commands.start(*command, stderr=subprocess.PIPE, text=True)
        while len(bucket.objects(f"{FOLDER}staging/", glob="**/staging/*.json")) < 3:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(how)
        _, messages = process.communicate(timeout=60)
        if how == signal.SIGINT:
            assert process.returncode == 130
            assert "nothing was published" in messages
            assert "Run the same command again" in messages
        simulator.faults.remove(stall.id)
        assert tpuctl("data", "ls", "--json").json["datasets"] == []
        assert tpuctl("data", "rm", "pets", "--dry-run").code == 0
        result = tpuctl(*command)
        assert "3 kept from an earlier upload" in result.out
        assert tpuctl("data", "verify", "pets", "--deep").code == 0


@pytest.mark.parametrize(
    ("command", "options", "code"),
    [("plan", (), 0), ("upload", (), 0), ("upload", ("--split", "train=0.99999,test=0.00001"), 2)],
)
def test_what_was_unpacked_is_given_back_before_the_command_ends(
    simulator: RunningSimulator, tpuctl: Tpuctl, command: str, options: tuple[str, ...], code: int
) -> None:
    np.savez_compressed("digits.npz", image=np.zeros((40, 8, 8), np.uint8), label=np.arange(40) % 10)
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", r"unclosed <(socket\.socket|ssl\.SSLSocket) \[closed\]")  # as ever
        result = tpuctl("data", command, "digits", "digits.npz", *options)
        gc.collect()
    assert result.code == code, result.err
    assert [str(warning.message) for warning in caught if warning.category is ResourceWarning] == []


def test_the_runs_that_read_a_version_are_named_before_it_is_removed(tpuctl: Tpuctl, node: str) -> None:
    Path("rows.csv").write_text("a,b\n1,2\n")
    assert tpuctl("data", "upload", "rows", "rows.csv", "--format", "csv").code == 0
    header = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
    Path("train.py").write_text(f"{header}import time\ntime.sleep(600)\n")
    for run, options in (("r1", ("--dataset", "rows")), ("r2", ("--queue",))):
        submitted = tpuctl("submit", "train.py", "--tpu", node, "--name", run, *options)
        assert submitted.code == 0, submitted.err
    removed = tpuctl("data", "rm", "rows", "--yes")
    assert removed.code == 0, removed.err
    assert "Warning: run 'r1' has not ended for good, and reads rows/1.0.0.\n" in removed.err
    assert "r2" not in removed.err


ROWS = """text,stars,label
great film,5,good
bad film,1,bad
"great, great cast",4,good
Zo\u00eb was bad,2,bad
"""
OPTIONS = ("--tokens", "words", "--vocabulary", "6", "--length", "4")


@pytest.fixture
def reviews(home: Path) -> str:
    Path("reviews.csv").write_text(ROWS)
    return "reviews.csv"


@pytest.fixture
def uploaded(tpuctl: Tpuctl, simulator: RunningSimulator, reviews: str) -> CommandResult:
    result = tpuctl("data", "upload", "reviews", reviews, *OPTIONS)
    assert result.code == 0, result.err
    return result


def test_another_format_beside_the_chosen_one_is_told(tpuctl: Tpuctl, home: Path) -> None:
    Path("rows").mkdir()
    Path("rows/a.csv").write_text(ROWS)
    Path("rows/b.jsonl").write_text('{"text": "x"}\n')
    for options in ((), OPTIONS):
        told = tpuctl("data", "plan", "rows", "rows", *options).err
        line = "The source is read as jsonl; files of csv are left out: --format csv reads those.\n"
        assert line in told
    assert tpuctl("data", "plan", "rows", "rows", "--json").json["also"] == ["csv"]


def test_a_plan_says_what_the_ids_are_made_of(tpuctl: Tpuctl, reviews: str) -> None:
    result = tpuctl("data", "plan", "reviews", reviews, *OPTIONS)
    assert "tokens: 4 ids a record, words of 'text'; vocabulary: 6 entries from train" in result.err
    result = tpuctl("data", "plan", "reviews", reviews, "--tokens", "wordpiece")
    assert "128 ids a record, word pieces of 'text'; vocabulary: " in result.err
    assert "entries from train (10,000 requested)" in result.err
    plan = tpuctl("data", "plan", "reviews", reviews, *OPTIONS, "--json").json
    assert plan["tokens"] == {"kind": "words", "length": 4, "wanted": 6, "text": "text", "entries": 6}


@pytest.mark.daily
def test_the_dataset_is_described_and_its_ids_are_shown_as_words(
    tpuctl: Tpuctl, uploaded: CommandResult
) -> None:
    result = tpuctl("data", "describe", "reviews")
    assert "tokens     4 ids a record, words of 'text'; vocabulary: 6 entries from train" in result.out
    assert "tokens  int64, 4" in result.out
    lines = tpuctl("data", "head", "reviews").out.splitlines()
    assert lines[0].split() == ["TOKENS", "STARS", "LABEL"]
    assert sorted(" ".join(line.split()) for line in lines[1:]) == [
        "[UNK] [UNK] bad 2 0 (bad)",
        "bad film 1 0 (bad)",
        "great , great [UNK] 4 1 (good)",
        "great film 5 1 (good)",
    ]
    head = tpuctl("data", "head", "reviews", "-n", "1", "--json").json
    assert len(head["examples"][0]["tokens"]) == 4
    assert head["texts"][0]
    assert tpuctl("data", "verify", "reviews", "--deep").code == 0


def test_run_again_it_is_there_and_with_another_vocabulary_it_is_another(
    tpuctl: Tpuctl, uploaded: CommandResult, reviews: str
) -> None:
    assert "was there already" in tpuctl("data", "upload", "reviews", reviews, *OPTIONS).out
    Path("vocab.txt").write_text("[PAD]\n[UNK]\nfilm\n")
    from_file = ("--tokens", "words", "--vocabulary", "vocab.txt", "--length", "4")
    result = tpuctl("data", "upload", "reviews", reviews, *from_file)
    assert (result.code, "exists with other content" in result.err) == (4, True)
    assert tpuctl("data", "upload", "reviews", reviews, *from_file, "--version", "1.0.1").code == 0
    assert "vocabulary: 3 entries from a file" in tpuctl("data", "describe", "reviews").out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--length", "3"), "--length needs --tokens"),
        (("--vocabulary", "3"), "--vocabulary needs --tokens"),
        (("--text", "text"), "--text needs --tokens"),
        (("--tokens", "letters"), "'letters' is not one of 'words', 'wordpiece'"),
        (("--tokens", "words", "--vocabulary", "no.txt"), "Cannot read 'no.txt'"),
        (("--tokens", "words", "--vocabulary", "reviews.csv"), "The vocabulary 'reviews.csv' lacks"),
        (("--tokens", "words", "--vocabulary", "0"), "A vocabulary cannot have 0 entries"),
        (("--tokens", "words", "--text", "stars"), "the field 'stars' is no text"),
        (("--tokens", "wordpiece", "--vocabulary", "9"), "The characters of the texts alone are"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tpuctl: Tpuctl, reviews: str, options: tuple[str, ...], message: str
) -> None:
    result = tpuctl("data", "plan", "reviews", reviews, *options)
    assert (result.code, message in result.err) == (2, True), result.err
    assert "tensorflow" not in sys.modules
