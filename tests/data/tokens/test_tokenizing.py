"""Texts that become token ids on their way into a dataset, whatever the source."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.source_trees import items, opened, produce
from tests.paths import ROOT
from tpuctl.data.bad_records import BadRecord
from tpuctl.data.options import Options, TokenOptions
from tpuctl.data.output.manifest import FILE, decode_manifest
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.data.schema.features import Label, Tensor
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.data.tfrecord.framing import frame
from tpuctl.data.tokens import tokenizing
from tpuctl.data.tokens.vocabulary import Vocabulary
from tpuctl.errors import UsageError

TEXTS = [
    ("train", "pos", "The film was great, really great!"),
    ("train", "neg", "The film was bad."),
    ("train", "pos", "A great cast; Zoë was great"),
    ("test", "neg", "hopeless film"),
    ("test", "pos", "the great, great film was really a great film, and great"),
]
WORDS = TokenOptions("words", 8, vocabulary_size=7)
PIECES = TokenOptions("wordpiece", 8, vocabulary_size=40)


def write_folders(root: Path) -> None:
    for number, (split, label, text) in enumerate(TEXTS):
        (root / split / label).mkdir(parents=True, exist_ok=True)
        (root / split / label / f"{number}.txt").write_text(text)


def write_csv(root: Path) -> None:
    root.mkdir()
    for split in ("train", "test"):
        with (root / f"{split}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            writer.writerows([text, label] for part, label, text in TEXTS if part == split)


def write_json_lines(root: Path) -> None:
    root.mkdir()
    for split in ("train", "test"):
        rows = [{"text": text, "label": label} for part, label, text in TEXTS if part == split]
        (root / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def write_parquet(root: Path) -> None:
    root.mkdir()
    for split in ("train", "test"):
        rows = [{"text": text, "label": label} for part, label, text in TEXTS if part == split]
        pq.write_table(pa.Table.from_pylist(rows), root / f"{split}.parquet")


def write_tfrecords(root: Path) -> None:
    root.mkdir()
    for split in ("train", "test"):
        rows = [
            encode({"text": text, "label": int(label == "pos")})
            for part, label, text in TEXTS
            if part == split
        ]
        (root / f"{split}.tfrecord").write_bytes(b"".join(map(frame, rows)))


WRITERS: dict[str, Callable[[Path], None]] = {
    "folders": write_folders,
    "csv": write_csv,
    "jsonl": write_json_lines,
    "parquet": write_parquet,
    "tfrecord": write_tfrecords,
}


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    write_folders(tmp_path / "reviews")
    return tmp_path / "reviews"


def planned(source: Path, asked: TokenOptions = WORDS, **options: Any) -> DatasetPlan:
    made = plan(
        source, name="reviews", options=Options(tokens=asked, label=options.pop("label", "")), **options
    )
    opened(made.source)
    return made


def records(made: DatasetPlan) -> list[dict[str, Any]]:
    return [decode(one) for one in items(made.source) if isinstance(one, bytes)]


@pytest.mark.parametrize("kind", WRITERS)
def test_every_source_with_a_text_gives_the_same_ids(tmp_path: Path, kind: str) -> None:
    WRITERS[kind](tmp_path / "source")
    made = planned(tmp_path / "source", label="label" if kind == "tfrecord" else "")
    assert made.vocabulary == Vocabulary(("[PAD]", "[UNK]", "great", "was", "film", "the", "!"))
    assert made.features["tokens"] == Tensor("int64", (8,))
    assert list(made.features) == (["label", "tokens"] if kind == "tfrecord" else ["tokens", "label"])
    assert made.source.supervised == ("tokens", "label")
    label = made.features["label"]
    assert isinstance(label, Label)
    found = sorted((one["label"], one["tokens"]) for one in records(made))
    assert found == [
        ([0], [1, 4, 0, 0, 0, 0, 0, 0]),
        ([0], [5, 4, 3, 1, 1, 0, 0, 0]),
        ([1], [1, 2, 1, 1, 1, 3, 2, 0]),
        ([1], [5, 2, 1, 2, 4, 3, 1, 1]),
        ([1], [5, 4, 3, 2, 1, 1, 2, 6]),
    ]


def test_the_vocabulary_is_made_of_the_training_split_alone(reviews: Path) -> None:
    made = planned(reviews, TokenOptions("words", 8, vocabulary_size=1000))
    assert made.vocabulary is not None
    assert {"great", "zoe"} <= set(made.vocabulary.tokens)
    assert "hopeless" not in made.vocabulary.tokens
    assert made.options.tokens == TokenOptions("words", 8, 1000, "text", len(made.vocabulary))


def test_of_drawn_splits_it_is_made_of_what_was_drawn_to_train(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"word{n},{n % 2}\n" for n in range(20)))
    made = planned(
        tmp_path / "a.csv", TokenOptions("words", 2, vocabulary_size=100), splits="test=0.5,train=0.5"
    )
    drawn = {split.name: set(split.members.indices(0, len(split.members)).tolist()) for split in made.splits}
    assert made.vocabulary is not None
    assert set(made.vocabulary.tokens[2:]) == {f"word{n}" for n in drawn["train"]}
    with pytest.raises(UsageError, match="made from the split 'train', and there is none"):
        planned(tmp_path / "a.csv", splits="one=0.5,two=0.5")


def test_other_columns_stay_what_they_are(tmp_path: Path) -> None:
    row = {"n": 3, "x": 0.1, "title": "T", "v": [1, 2, 300], "w": ["a", "b"], "body": "one two", "label": "a"}
    rows = [{**row, "pair": [1, 2]}, {**row, "pair": [3, 4], "v": [], "w": [], "label": "b"}]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    plain = plan(tmp_path / "a.jsonl", name="a")
    made = planned(tmp_path / "a.jsonl", TokenOptions("words", 3, vocabulary_size=9, text="body"))
    assert made.source.supervised is None
    for before, after in zip(items(opened(plain.source)), items(made.source), strict=True):
        assert isinstance(before, bytes)
        assert isinstance(after, bytes)
        assert {**decode(before), "body": [2, 3, 0]} == {
            "body" if name == "tokens" else name: values for name, values in decode(after).items()
        }
    assert made.features == {
        "tokens" if name == "body" else name: Tensor("int64", (3,)) if name == "body" else one
        for name, one in plain.features.items()
    }
    assert decode_manifest(produce(made)[FILE]).features["pair"] == Tensor("int64", (2,))


class TestRefused:
    def table(self, tmp_path: Path, header: str, row: str) -> Path:
        (tmp_path / "a.csv").write_text(f"{header}\n{row}\n{row}\n")
        return tmp_path / "a.csv"

    @pytest.mark.parametrize(
        ("header", "asked", "message", "hint"),
        [
            ("n,label", WORDS, "the source has none: its fields are n, label", "--type COLUMN=text"),
            ("text,title,label", WORDS, "the source has several: text, title", "--text text"),
            (
                "text,n",
                msgspec.structs.replace(WORDS, text="n"),
                "the field 'n' is no text",
                "Its texts: text",
            ),
            ("text,n", msgspec.structs.replace(WORDS, text="tex"), "field 'tex' is not there", "mean text"),
            ("text,tokens,n", msgspec.structs.replace(WORDS, text="text"), "has a field 'tokens'", "another"),
        ],
    )
    def test_a_source_without_one_text_is_refused(
        self, tmp_path: Path, header: str, asked: TokenOptions, message: str, hint: str
    ) -> None:
        row = ",".join("1" if name == "n" else "some words" for name in header.split(","))
        with pytest.raises(UsageError, match=message) as caught:
            planned(self.table(tmp_path, header, row), asked)
        assert hint in caught.value.hint

    @pytest.mark.parametrize(
        ("asked", "message"),
        [
            (TokenOptions("words", 0, 10), "A record cannot have 0 token ids"),
            (TokenOptions("wordpiece", 2, 10), "A record cannot have 2 token ids"),
            (TokenOptions("words", 8, 2), "A vocabulary cannot have 2 entries"),
            (TokenOptions("words", 8, 1_000_001), "A vocabulary cannot have 1000001 entries"),
        ],
    )
    def test_numbers_that_cannot_be_are_refused_before_the_source_is_read(
        self, tmp_path: Path, asked: TokenOptions, message: str
    ) -> None:
        with pytest.raises(UsageError, match=message):
            planned(tmp_path / "nowhere", asked)


class TestDataset:
    def test_the_vocabulary_lies_beside_the_shards_and_is_in_the_manifest(self, reviews: Path) -> None:
        made = planned(reviews)
        files = produce(made)
        assert made.vocabulary is not None
        assert files["vocabulary.txt"] == b"[PAD]\n[UNK]\ngreat\nwas\nfilm\nthe\n!\n"
        assert tuple(files) == made.files
        manifest = decode_manifest(files[FILE])
        assert manifest.files["vocabulary.txt"].bytes == len(files["vocabulary.txt"])
        assert manifest.source.options == Options(tokens=TokenOptions("words", 8, 7, "text", 7))
        assert manifest.features["tokens"] == Tensor("int64", (8,))

    def test_the_size_is_near_what_the_shards_will_have(self, reviews: Path) -> None:
        made = planned(reviews, TokenOptions("words", 300, vocabulary_size=100))
        size = sum(len(data) for name, data in produce(made).items() if "tfrecord" in name)
        assert made.bytes == pytest.approx(size, rel=0.2)
        assert not made.exact

    def test_shards_of_another_vocabulary_are_other_shards(self, reviews: Path) -> None:
        given = [Vocabulary(("[PAD]", "[UNK]", *more)) for more in (("great",), ("film",), ("great",))]
        asked = TokenOptions("words", 8)
        first, second, again = (planned(reviews, asked, vocabulary=one) for one in given)
        identities = [next(one.shards()).identity for one in (first, second, again)]
        assert identities[0] == identities[2] != identities[1]
        assert plan(reviews, name="reviews").identity not in {first.identity, second.identity}

    def test_one_that_is_given_is_taken_and_no_other_is_made(
        self, reviews: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            tokenizing, "learn_vocabulary", None
        )  # as on a worker: the training split is not read again
        given = Vocabulary(("[PAD]", "[UNK]", "great"))
        assert planned(reviews, WORDS, vocabulary=given).vocabulary is given

    def test_bad_records_stay_bad_and_teach_nothing(self, reviews: Path) -> None:
        (reviews / "train" / "pos" / "9.txt").write_bytes(b"great \xff")
        made = planned(reviews)
        assert made.vocabulary == planned(reviews).vocabulary
        assert [str(one) for one in items(made.source) if isinstance(one, BadRecord)] == [
            "line 1 of 'train/pos/9.txt' is not UTF-8 text"
        ]
        assert decode_manifest(produce(made, skip_bad=True)[FILE]).source.skipped == 1

    def test_text_in_records_that_is_not_utf8_is_no_word(self, tmp_path: Path) -> None:
        rows = [encode({"text": b"fine", "label": 0}), encode({"text": b"\xff\xfe", "label": 1})]
        (tmp_path / "a.tfrecord").write_bytes(b"".join(map(frame, [rows[0]] * 99 + rows[1:])))
        made = plan(
            tmp_path / "a.tfrecord",
            name="a",
            options=Options(tokens=TokenOptions("words", 2, 10), types={"text": "text"}),
        )
        opened(made.source)
        found = records(made)
        assert found[0]["tokens"] == [2, 0]
        assert found[99]["tokens"] == [0, 0]

    def test_a_source_that_changes_under_way_is_noticed(self, reviews: Path) -> None:
        made = planned(reviews)
        (reviews / "train" / "pos" / "new.txt").write_text("another")
        with pytest.raises(UsageError, match=r"'train/pos/new.txt' is new"):
            produce(made)
        made = planned(reviews)
        (reviews / "train" / "pos" / "0.txt").write_text("another")
        with pytest.raises(UsageError, match=r"'train/pos/0.txt' has changed"):
            produce(made)

    @pytest.mark.parametrize("asked", [WORDS, PIECES])
    def test_the_bytes_are_the_same_in_every_process(self, reviews: Path, asked: TokenOptions) -> None:
        """Python orders sets of strings by a seed that each process draws: nothing may depend on it."""
        program = (
            "from pathlib import Path; from hashlib import sha256\n"
            "from tests.data.source_trees import produce\n"
            "from tpuctl.data.plan import plan; from tpuctl.data.options import Options, TokenOptions\n"
            f"made = plan(Path({str(reviews)!r}), name='reviews', options=Options(tokens={asked!r}))\n"
            "print(sha256(b''.join(produce(made).values())).hexdigest())"
        )
        found = {
            subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in ("1", "2", "3")
        }
        assert len(found) == 1
