"""Tests that texts of every source become token ids."""

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

from tests.data.source_trees import examples, items, opened, produce
from tests.paths import ROOT
from tpuctl.data import tokens
from tpuctl.data.options import BadRecord, Options, TokenOptions
from tpuctl.data.output.manifest import FILE, decode_manifest
from tpuctl.data.plan import DatasetPlan, plan
from tpuctl.data.schema.features import Label, Tensor
from tpuctl.data.tfrecord.example_decoding import decode
from tpuctl.data.tfrecord.example_encoding import encode
from tpuctl.data.tfrecord.framing import frame
from tpuctl.data.tokens import Vocabulary
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


def planned(source: Path, tokens: TokenOptions = WORDS, **options: Any) -> DatasetPlan:
    listed = plan(
        source, name="reviews", options=Options(tokens=tokens, label=options.pop("label", "")), **options
    )
    opened(listed.source)
    return listed


@pytest.mark.parametrize("kind", WRITERS)
def test_every_source_with_a_text_gives_the_same_ids(tmp_path: Path, kind: str) -> None:
    WRITERS[kind](tmp_path / "source")
    tokenized = planned(tmp_path / "source", label="label" if kind == "tfrecord" else "")
    assert tokenized.vocabulary == Vocabulary(("[PAD]", "[UNK]", "great", "was", "film", "the", "!"))
    assert tokenized.features["tokens"] == Tensor("int64", (8,))
    assert list(tokenized.features) == (["label", "tokens"] if kind == "tfrecord" else ["tokens", "label"])
    assert tokenized.source.supervised == ("tokens", "label")
    label = tokenized.features["label"]
    assert isinstance(label, Label)
    decoded = sorted((record["label"], record["tokens"]) for record in examples(tokenized.source))
    assert decoded == [
        ([0], [1, 4, 0, 0, 0, 0, 0, 0]),
        ([0], [5, 4, 3, 1, 1, 0, 0, 0]),
        ([1], [1, 2, 1, 1, 1, 3, 2, 0]),
        ([1], [5, 2, 1, 2, 4, 3, 1, 1]),
        ([1], [5, 4, 3, 2, 1, 1, 2, 6]),
    ]


def test_the_vocabulary_is_made_of_the_training_split_alone(reviews: Path) -> None:
    tokenized = planned(reviews, TokenOptions("words", 8, vocabulary_size=1000))
    assert tokenized.vocabulary is not None
    assert {"great", "zoe"} <= set(tokenized.vocabulary.tokens)
    assert "hopeless" not in tokenized.vocabulary.tokens
    assert tokenized.options.tokens == TokenOptions("words", 8, 1000, "text", len(tokenized.vocabulary))


def test_of_drawn_splits_it_is_made_of_what_was_drawn_to_train(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"word{n},{n % 2}\n" for n in range(20)))
    tokenized = planned(
        tmp_path / "a.csv", TokenOptions("words", 2, vocabulary_size=100), splits="test=0.5,train=0.5"
    )
    drawn = {
        split.name: set(split.members.indices(0, len(split.members)).tolist()) for split in tokenized.splits
    }
    assert tokenized.vocabulary is not None
    assert set(tokenized.vocabulary.tokens[2:]) == {f"word{n}" for n in drawn["train"]}
    with pytest.raises(UsageError, match="learnt from the split 'train', which the source does not have"):
        planned(tmp_path / "a.csv", splits="one=0.5,two=0.5")


def test_other_columns_stay_what_they_are(tmp_path: Path) -> None:
    row = {"n": 3, "x": 0.1, "title": "T", "v": [1, 2, 300], "w": ["a", "b"], "body": "one two", "label": "a"}
    rows = [{**row, "pair": [1, 2]}, {**row, "pair": [3, 4], "v": [], "w": [], "label": "b"}]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    plain = plan(tmp_path / "a.jsonl", name="a")
    tokenized = planned(tmp_path / "a.jsonl", TokenOptions("words", 3, vocabulary_size=9, text="body"))
    assert tokenized.source.supervised is None
    for before, after in zip(items(opened(plain.source)), items(tokenized.source), strict=True):
        assert isinstance(before, bytes)
        assert isinstance(after, bytes)
        assert {**decode(before), "body": [2, 3, 0]} == {
            "body" if name == "tokens" else name: values for name, values in decode(after).items()
        }
    assert tokenized.features == {
        "tokens" if name == "body" else name: Tensor("int64", (3,)) if name == "body" else feature
        for name, feature in plain.features.items()
    }
    assert decode_manifest(produce(tokenized)[FILE]).features["pair"] == Tensor("int64", (2,))


class TestRefused:
    def table(self, tmp_path: Path, header: str, row: str) -> Path:
        (tmp_path / "a.csv").write_text(f"{header}\n{row}\n{row}\n")
        return tmp_path / "a.csv"

    @pytest.mark.parametrize(
        ("header", "tokens", "message", "hint"),
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
        self, tmp_path: Path, header: str, tokens: TokenOptions, message: str, hint: str
    ) -> None:
        row = ",".join("1" if name == "n" else "some words" for name in header.split(","))
        with pytest.raises(UsageError, match=message) as caught:
            planned(self.table(tmp_path, header, row), tokens)
        assert hint in caught.value.hint

    @pytest.mark.parametrize(
        ("tokens", "message"),
        [
            (TokenOptions("words", 0, 10), "A record cannot have 0 token ids"),
            (TokenOptions("wordpiece", 2, 10), "A record cannot have 2 token ids"),
            (TokenOptions("words", 8, 2), "A vocabulary cannot have 2 entries"),
            (TokenOptions("words", 8, 1_000_001), "A vocabulary cannot have 1000001 entries"),
        ],
    )
    def test_numbers_that_cannot_be_are_refused_before_the_source_is_read(
        self, tmp_path: Path, tokens: TokenOptions, message: str
    ) -> None:
        with pytest.raises(UsageError, match=message):
            planned(tmp_path / "nowhere", tokens)


class TestDataset:
    def test_the_vocabulary_lies_beside_the_shards_and_is_in_the_manifest(self, reviews: Path) -> None:
        tokenized = planned(reviews)
        files = produce(tokenized)
        assert tokenized.vocabulary is not None
        assert files["vocabulary.txt"] == b"[PAD]\n[UNK]\ngreat\nwas\nfilm\nthe\n!\n"
        assert tuple(files) == tokenized.files
        manifest = decode_manifest(files[FILE])
        assert manifest.files["vocabulary.txt"].bytes == len(files["vocabulary.txt"])
        assert manifest.source.options == Options(tokens=TokenOptions("words", 8, 7, "text", 7))
        assert manifest.features["tokens"] == Tensor("int64", (8,))

    def test_the_size_is_near_what_the_shards_will_have(self, reviews: Path) -> None:
        tokenized = planned(reviews, TokenOptions("words", 300, vocabulary_size=100))
        size = sum(len(data) for name, data in produce(tokenized).items() if "tfrecord" in name)
        assert tokenized.bytes == pytest.approx(size, rel=0.2)
        assert not tokenized.exact

    def test_shards_of_another_vocabulary_are_other_shards(self, reviews: Path) -> None:
        vocabularies = [Vocabulary(("[PAD]", "[UNK]", *more)) for more in (("great",), ("film",), ("great",))]
        tokens = TokenOptions("words", 8)
        first, second, again = (
            planned(reviews, tokens, vocabulary=vocabulary) for vocabulary in vocabularies
        )
        identities = [next(tokenized.shards()).identity for tokenized in (first, second, again)]
        assert identities[0] == identities[2] != identities[1]
        assert plan(reviews, name="reviews").identity not in {first.identity, second.identity}

    def test_one_that_is_given_is_taken_and_no_other_is_made(
        self, reviews: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            tokens, "learn_vocabulary", None
        )  # as on a worker: the training split is not read again
        vocabulary = Vocabulary(("[PAD]", "[UNK]", "great"))
        assert planned(reviews, WORDS, vocabulary=vocabulary).vocabulary is vocabulary

    def test_bad_records_stay_bad_and_teach_nothing(self, reviews: Path) -> None:
        (reviews / "train" / "pos" / "9.txt").write_bytes(b"great \xff")
        tokenized = planned(reviews)
        assert tokenized.vocabulary == planned(reviews).vocabulary
        assert [str(record) for record in items(tokenized.source) if isinstance(record, BadRecord)] == [
            "line 1 of 'train/pos/9.txt' is not UTF-8 text"
        ]
        assert decode_manifest(produce(tokenized, skip_bad=True)[FILE]).source.skipped == 1

    def test_text_in_records_that_is_not_utf8_is_no_word(self, tmp_path: Path) -> None:
        rows = [encode({"text": b"fine", "label": 0}), encode({"text": b"\xff\xfe", "label": 1})]
        (tmp_path / "a.tfrecord").write_bytes(b"".join(map(frame, [rows[0]] * 99 + rows[1:])))
        tokenized = plan(
            tmp_path / "a.tfrecord",
            name="a",
            options=Options(tokens=TokenOptions("words", 2, 10), types={"text": "text"}),
        )
        opened(tokenized.source)
        decoded = examples(tokenized.source)
        assert decoded[0]["tokens"] == [2, 0]
        assert decoded[99]["tokens"] == [0, 0]

    def test_a_source_that_changes_under_way_is_noticed(self, reviews: Path) -> None:
        tokenized = planned(reviews)
        (reviews / "train" / "pos" / "new.txt").write_text("another")
        with pytest.raises(UsageError, match=r"'train/pos/new.txt' is new"):
            produce(tokenized)
        tokenized = planned(reviews)
        (reviews / "train" / "pos" / "0.txt").write_text("another")
        with pytest.raises(UsageError, match=r"'train/pos/0.txt' has changed"):
            produce(tokenized)

    @pytest.mark.parametrize("tokens", [WORDS, PIECES])
    def test_the_bytes_are_the_same_in_every_process(self, reviews: Path, tokens: TokenOptions) -> None:
        """Python orders sets of strings by a seed that each process draws: nothing may depend on it."""
        program = (
            "from pathlib import Path; from hashlib import sha256\n"
            "from tests.data.source_trees import produce\n"
            "from tpuctl.data.plan import plan; from tpuctl.data.options import Options, TokenOptions\n"
            f"planned = plan(Path({str(reviews)!r}), name='reviews', options=Options(tokens={tokens!r}))\n"
            "print(sha256(b''.join(produce(planned).values())).hexdigest())"
        )
        digests = {
            subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in ("1", "2", "3")
        }
        assert len(digests) == 1
