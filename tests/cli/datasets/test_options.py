"""The request that the options of `data upload` make, or what is wrong with one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.completion.interface import interface, recorded
from tpuctl.cli.datasets.options import describe_tokens, upload_request
from tpuctl.data.options import Options, TokenOptions
from tpuctl.datasets import DatasetRef
from tpuctl.errors import UsageError
from tpuctl.flows.datasets.request import UploadRequest

UNSAID: dict[str, Any] = {
    "version": "1.0.0", "splits": None, "accelerator": None, "hosts": None, "shards": None,
    "shard_size": "100MB", "seed": 0, "resize": None, "channels": None, "label": "", "types": (),
    "tokens": None, "vocabulary": None, "length": None, "text": None, "kind": None, "skip_bad": False,
    "file_format": "tfrecord",
}  # fmt: skip
"""The values of options that nobody types."""


def request(**typed: Any) -> UploadRequest:
    return upload_request(name="pets", source="a/pets", **UNSAID | typed)


def refused(**typed: Any) -> tuple[str, str]:
    with pytest.raises(UsageError) as error:
        request(**typed)
    return error.value.message, error.value.hint


def test_without_options_a_request_is_plain() -> None:
    plain = UploadRequest(source="a/pets", ref=DatasetRef("pets", "1.0.0"), shard_size=100_000_000)
    assert request() == plain


def test_the_commands_that_read_a_source_take_what_is_recorded() -> None:
    paths = ("data plan", "data upload", "data describe")
    assert interface(*paths) == recorded(*paths) != ""


def test_each_option_has_its_place_in_the_request() -> None:
    assert request(
        version="2.0.0", splits="train=0.8,test=0.2", hosts=4, shards=8, shard_size="1GB", seed=7,
        resize="32", channels="1", label="y", types=("a=int", "b=c=text"), kind="csv", skip_bad=True,
        file_format="arrayrecord",
    ) == UploadRequest(
        source="a/pets", ref=DatasetRef("pets", "2.0.0"), splits="train=0.8,test=0.2", hosts=4, shards=8,
        shard_size=1_000_000_000, seed=7, kind="csv", skip_bad=True, file_format="arrayrecord",
        options=Options({"a": "int", "b=c": "text"}, "y", (32, 32), None, 1),
    )  # fmt: skip


def test_the_hosts_are_those_of_an_accelerator() -> None:
    assert [request(accelerator=name).hosts for name in ("v3-8", "v3-32")] == [1, 4]
    assert refused(accelerator="v3-32", hosts=4)[0] == "--for and --hosts both set the number of hosts."


@pytest.mark.parametrize(
    ("typed", "size"),
    [
        ("100MB", 100_000_000), ("1", 1), ("7b", 7), ("2k", 2_000), ("2 kB", 2_000), ("2KiB", 2_048),
        ("1.5m", 1_500_000), ("3MiB", 3 << 20), ("3mi", 3 << 20), ("2G", 2_000_000_000), ("1GiB", 1 << 30),
        (" 256 MB ", 256_000_000), ("0.5gb", 500_000_000),
    ],
)  # fmt: skip
def test_a_size_has_a_unit_of_1000_or_1024(typed: str, size: int) -> None:
    assert request(shard_size=typed).shard_size == size


@pytest.mark.parametrize("typed", ["", "MB", "1TB", "-1MB", "1,5MB", "1e9", ".5MB", "1 M B", "1mbb", "1ib"])
def test_another_size_is_refused(typed: str) -> None:
    assert refused(shard_size=typed) == (
        f"Cannot read --shard-size {typed}.",
        "For instance --shard-size 256MB",
    )


@pytest.mark.parametrize(
    ("typed", "size"),
    [
        ("224x160", (224, 160)), ("224×160", (224, 160)), ("32", (32, 32)), (" 1x2 ", (1, 2)),
        ("8192x8192", (8192, 8192)), ("99999x9", (99999, 9)),
    ],
)  # fmt: skip
def test_pictures_are_resized_to_height_and_width(typed: str, size: tuple[int, int]) -> None:
    assert request(resize=typed).options.resize == size


@pytest.mark.parametrize("typed", ["", "0", "0x9", "9x0", "x9", "9x", "9x9x9", "9*9", "100000", "1.5", "-1"])
def test_another_resize_is_refused(typed: str) -> None:
    assert refused(resize=typed) == (f"Cannot read --resize {typed}.", "Height and width: --resize 224x224")


def test_pictures_have_up_to_67_megapixels() -> None:
    message, hint = refused(resize="8192x8193")
    assert message == "--resize 8192x8193 makes images of 67 megapixels."
    assert hint == "At most 67 megapixels; networks take less than one."
    assert refused(resize="99999")[0] == "--resize 99999 makes images of 10000 megapixels."


@pytest.mark.parametrize(
    ("typed", "channels"), [("1", 1), ("3", 3), ("4", 4), ("keep", "keep"), (None, None)]
)
def test_channels_are_a_number_or_those_of_each(typed: str | None, channels: object) -> None:
    assert request(channels=typed).options.channels == channels


@pytest.mark.parametrize("typed", [("age",), ("=int",), ("age=int", "age=float")])
def test_another_type_is_refused(typed: tuple[str, ...]) -> None:
    expected = f"Cannot read --type {typed[-1]}.", "Once for each column: --type age=float"
    assert refused(types=typed) == expected


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ({"tokens": "words"}, TokenOptions("words", 128, 10_000, "")),
        ({"tokens": "wordpiece", "vocabulary": "500", "length": 9}, TokenOptions("wordpiece", 9, 500, "")),
        ({"tokens": "words", "length": 0, "text": "body"}, TokenOptions("words", 0, 10_000, "body")),
        ({"tokens": "words", "vocabulary": "0"}, TokenOptions("words", 128, 0, "")),
    ],
)
def test_text_becomes_ids(typed: dict[str, Any], expected: TokenOptions) -> None:
    made = request(**typed)
    assert (made.options.tokens, made.vocabulary) == (expected, None)


def test_a_vocabulary_that_is_no_number_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "vocab.txt"
    file.write_text("[PAD]\n[UNK]\ncat\n")
    made = request(tokens="words", vocabulary=str(file))
    assert made.vocabulary == ("[PAD]", "[UNK]", "cat")
    assert made.options.tokens == TokenOptions("words", 128, text="")
    for name in ("٣", "-5", "5x"):
        with pytest.raises(UsageError, match=name):
            request(tokens="words", vocabulary=name)


@pytest.mark.parametrize("name", ["vocabulary", "length", "text"])
def test_options_of_tokens_need_tokens(name: str) -> None:
    message, hint = refused(**{name: 5 if name == "length" else "5"})
    assert message == f"--{name} needs --tokens, which selects words or word pieces."
    assert hint == "Add --tokens words or --tokens wordpiece."


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            TokenOptions("words", 128, 10_000, "body", entries=10_000),
            "128 ids a record, words of 'body'; vocabulary: 10,000 entries from train",
        ),
        (
            TokenOptions("wordpiece", 9, 10_000, "t", entries=9_999),
            "9 ids a record, word pieces of 't'; vocabulary: 9,999 entries from train (10,000 requested)",
        ),
        (
            TokenOptions("words", 9, None, "t", entries=3),
            "9 ids a record, words of 't'; vocabulary: 3 entries from a file",
        ),
    ],
)
def test_tokens_are_described_in_a_line(options: TokenOptions, text: str) -> None:
    assert describe_tokens(options) == text
