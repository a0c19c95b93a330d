"""Arrays of NumPy files as sources: their records, their errors, and the field and split that a name says."""

from __future__ import annotations

import gzip
import io
import math
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image as Pillow

from tests.data.source_trees import examples, items, no_progress, only_bad, opened, produce
from tpuctl.data.arrays import Array, NamedArray, pair
from tpuctl.data.images.decoding import RawPng
from tpuctl.data.images.header import inspect_image
from tpuctl.data.options import Options
from tpuctl.data.plan import plan
from tpuctl.data.schema.features import Image, Label, Tensor, Text
from tpuctl.data.source import Source
from tpuctl.data.sources.registry import open_source
from tpuctl.errors import UsageError

PIXELS = np.random.default_rng(0).integers(0, 256, (7, 5, 4), np.uint8)
NUMBERS = np.array([3, 1, 0, 1, 3, 0, 1])


def read(path: Path, options: Options = Options()) -> Source:  # noqa: B008
    return opened(open_source(path, None, options, no_progress))


def npz(tmp_path: Path, *, packed: bool = False, **arrays: Any) -> Path:
    file = tmp_path / "data.npz"
    (np.savez_compressed if packed else np.savez)(file, **arrays)
    return file


def pixels(record: dict[str, Any]) -> NDArray[np.generic]:
    return np.asarray(Pillow.open(io.BytesIO(record["image"][0])))


def idx(array: NDArray[np.generic], code: int) -> bytes:
    head = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


def refused(path: Path, options: Options = Options()) -> str:  # noqa: B008
    with pytest.raises(UsageError) as caught:
        read(path, options)
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "deflated"])
def test_an_npz_as_mnists_has_images_labels_and_splits(tmp_path: Path, packed: bool) -> None:
    arrays = {"x_train": PIXELS[:5], "y_train": NUMBERS[:5], "x_test": PIXELS[5:], "y_test": NUMBERS[5:]}
    source = read(npz(tmp_path, packed=packed, **arrays))
    assert dict(source.features) == {
        "image": Image((5, 4, 1), "uint8", "png"),
        "label": Label(("0", "1", "2", "3")),
    }
    assert source.supervised == ("image", "label")
    assert [(part.split, part.records) for part in source.parts] == [("test", 2), ("train", 5)]
    decoded = examples(source)
    assert [record["label"][0] for record in decoded] == [0, 1, 3, 1, 0, 1, 3] == source.labels.tolist()  # type: ignore[union-attr]
    assert all(
        (pixels(record) == PIXELS[place]).all()
        for record, place in zip(decoded, (5, 6, 0, 1, 2, 3, 4), strict=True)
    )
    assert items(source, 6, 0) == [items(source)[6], items(source)[0]]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files_as_mnists_are_read_by_their_names(tmp_path: Path, suffix: str) -> None:
    pack = gzip.compress if suffix else bytes
    for split, part in {"train": slice(0, 5), "t10k": slice(5, 7)}.items():
        (tmp_path / f"{split}-images-idx3-ubyte{suffix}").write_bytes(pack(idx(PIXELS[part], 8)))
        (tmp_path / f"{split}-labels-idx1-ubyte{suffix}").write_bytes(
            pack(idx(NUMBERS[part].astype(np.uint8), 8))
        )
    source = read(tmp_path)
    assert source.kind == "idx"
    assert [(part.split, part.records) for part in source.parts] == [("test", 2), ("train", 5)]
    assert [record["label"][0] for record in examples(source)] == [0, 1, 3, 1, 0, 1, 3]
    assert (pixels(examples(source)[2]) == PIXELS[0]).all()


@pytest.mark.parametrize(("code", "dtype"), [(9, "i1"), (11, "i2"), (12, "i4"), (13, "f4"), (14, "f8")])
def test_every_type_of_idx_is_read(tmp_path: Path, code: int, dtype: str) -> None:
    array = np.array([[1, -2], [100, 7]], dtype)
    (tmp_path / "points.idx2").write_bytes(idx(array, code))
    source = read(tmp_path / "points.idx2")
    assert examples(source) == [{"points": [1, -2]}, {"points": [100, 7]}]
    name = "float32" if dtype[0] == "f" else np.dtype(dtype).name
    assert source.features["points"] == Tensor(name, (2,))


def test_npy_files_of_a_folder_belong_together(tmp_path: Path) -> None:
    for split, part in {"train": slice(0, 5), "test": slice(5, 7)}.items():
        (tmp_path / split).mkdir()
        np.save(tmp_path / split / "features.npy", PIXELS[part].reshape(-1, 20).astype(np.float64))
        np.save(tmp_path / split / "labels.npy", NUMBERS[part].reshape(-1, 1))
    source = read(tmp_path)
    assert dict(source.features) == {
        "features": Tensor("float32", (20,)),
        "label": Label(("0", "1", "2", "3")),
    }
    assert examples(source)[2] == {"features": PIXELS[0].ravel().tolist(), "label": [3]}


@pytest.mark.parametrize(
    ("array", "feature", "value"),
    [
        (np.array([True, False]), Tensor("bool"), [1]),
        (np.array([[2**40, -1]] * 2), Tensor("int64", (2,)), [2**40, -1]),
        (np.array([1.5, 2], np.float16), Tensor("float32"), [1.5]),
        (np.array([7, 2], ">u4"), Tensor("uint32"), [7]),
        (np.array(["größe", "b"]), Text(), ["größe".encode()]),
        (np.array([b"ab", b"c"]), Tensor("string"), [b"ab"]),
        (np.array([["a", "b"]] * 2), Tensor("string", (2,)), [b"a", b"b"]),
        (np.zeros((2, 3, 4, 2), np.uint8), Tensor("uint8", (3, 4, 2)), [0] * 24),
        (np.zeros((2, 3, 4, 3), np.uint8), Image((3, 4, 3), "uint8", "png"), None),
    ],
)
def test_an_array_of_any_type_has_its_feature(
    tmp_path: Path, array: Any, feature: object, value: Any
) -> None:
    np.save(tmp_path / "thing.npy", array)
    source = read(tmp_path / "thing.npy")
    assert source.features == {"thing": feature}
    if value is not None:
        assert examples(source)[0] == {"thing": value}


def test_given_types_outrank_those_inferred(tmp_path: Path) -> None:
    file = npz(tmp_path, x=PIXELS, y=NUMBERS.astype(np.float64), z=PIXELS)
    options = Options(types={"image": "bytes", "label": "label", "z": "float"})
    source = read(file, options)
    assert dict(source.features) == {
        "image": Tensor("string"),
        "label": Label(("0", "1", "2", "3")),
        "z": Tensor("float32", (5, 4)),
    }
    assert examples(source)[0]["image"] == [PIXELS[0].tobytes()]
    assert "holds uint8, and cannot be text" in refused(file, Options(types={"z": "text"}))


def test_floats_are_a_target_and_nan_among_them_is_bad(tmp_path: Path) -> None:
    source = read(npz(tmp_path, x=np.ones((3, 2)), y=np.array([0.5, math.nan, 1])))
    assert source.features["label"] == Tensor("float32")
    assert only_bad(source) == "record 2 of 'data.npz: y' has no label, but NaN"


def test_a_number_that_32_bits_do_not_hold_is_bad(tmp_path: Path) -> None:
    source = read(npz(tmp_path, x=np.array([[1.0], [1e300]])))
    assert only_bad(source) == "record 2 of 'data.npz: x' holds a number that is too large for 32 bits"


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": PIXELS, "y": NUMBERS[:6]}, "'data.npz: x' has 7 records, and 'data.npz: y' 6"),
        ({"x_train": PIXELS, "y_test": NUMBERS}, "have the fields"),
        ({"x_train": PIXELS, "y": NUMBERS}, "'data.npz: y' says no split, and others do"),
        ({"x": PIXELS, "images": PIXELS}, "would both be the image"),
        ({"x_train": PIXELS, "x_test": PIXELS[:, 1:]}, "of the shape (5, 4)"),
        ({"x": np.float64(3)}, "'data.npz: x' has no records"),
        ({"x": PIXELS[:0]}, "'data.npz: x' has no records"),
        ({"x": np.array([1j])}, "holds complex128, which no record can"),
        ({"x": np.asfortranarray(np.ones((3, 4)))}, "is in Fortran order"),
        ({"x": np.array([{}], object)}, "holds pickled Python objects, which may run any code"),
    ],
)
def test_arrays_that_do_not_agree_are_named(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    assert message in refused(npz(tmp_path, **arrays))


def test_a_packed_array_longer_than_any_header_is_read_whole(tmp_path: Path) -> None:
    numbers = np.random.default_rng(1).integers(0, 1 << 40, (3, 30_000))
    source = read(npz(tmp_path, packed=True, x=numbers))
    assert [record["x"] for record in examples(source)] == numbers.tolist()


@pytest.mark.parametrize(("cut", "hint"), [(-1, "Copy it again."), (1, "Save it again.")])
def test_what_to_do_with_an_array_of_another_length_is_told(tmp_path: Path, cut: int, hint: str) -> None:
    np.save(tmp_path / "x.npy", NUMBERS)
    data = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(data[:cut] if cut < 0 else data + b"x")
    with pytest.raises(UsageError) as caught:
        read(tmp_path / "x.npy")
    assert caught.value.message == f"'x.npy' has {56 + cut} bytes of numbers, and its header says 56."
    assert caught.value.hint == hint


def stored(path: Path, array: NDArray[np.generic], version: tuple[int, int]) -> Path:
    with path.open("wb") as stream:
        np.lib.format.write_array(stream, array, version)
    return path


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_both_versions_of_a_numpy_header_are_read(tmp_path: Path, version: tuple[int, int]) -> None:
    file = stored(tmp_path / "x.npy", np.array([[1, 2], [3, 4]]), version)
    assert examples(read(file)) == [{"x": [1, 2]}, {"x": [3, 4]}]


def test_only_columns_that_lie_one_after_the_other_are_refused(tmp_path: Path) -> None:
    numbers = np.array([[1, 2], [3, 4]])
    assert refused(stored(tmp_path / "x.npy", np.asfortranarray(numbers), (1, 0))) == (
        "'x.npy' is in Fortran order, so that its records are spread over the whole file."
    )
    header = {"descr": "<i8", "fortran_order": True, "shape": (2,)}
    with (tmp_path / "x.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        stream.write(numbers[0].tobytes())
    assert examples(read(tmp_path / "x.npy")) == [{"x": [1]}, {"x": [2]}]


@pytest.mark.parametrize("packed", [False, True], ids=["stored", "deflated"])
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_archive_is_named(tmp_path: Path, packed: bool, damage: str) -> None:
    file = npz(tmp_path, packed=packed, x=PIXELS, y=NUMBERS)
    data = bytearray(file.read_bytes())
    data[200] ^= 64
    file.write_bytes(data if damage == "flipped" else data[:-30])
    assert "'data.npz' is a damaged .npz archive" in refused(file)


@pytest.mark.parametrize("damage", [(b"PK\x05\x06", 16, b"\xff" * 4), (b"PK\x01\x02", 46, b"\xff")])
def test_an_archive_whose_directory_is_damaged_is_named(
    tmp_path: Path, damage: tuple[bytes, int, bytes]
) -> None:
    file = tmp_path / "data.npz"
    np.savez(file, x=np.zeros(3))
    mark, offset, wrong = damage
    data = bytearray(file.read_bytes())
    begin = data.rindex(mark) + offset
    data[begin : begin + len(wrong)] = wrong
    if mark.endswith(b"\2"):
        data[begin - 46 + 9] |= 8  # the name is in UTF-8
    file.write_bytes(data)
    assert "'data.npz' is a damaged .npz archive" in refused(file)


def test_an_archive_without_arrays_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz")
    assert "has no arrays" in refused(tmp_path / "data.npz")


def test_an_archive_of_something_else_is_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("readme.txt", "hello, I am a text")
    assert "'data.npz: readme.txt' is not a NumPy array" in refused(tmp_path / "data.npz")


def test_a_truncated_array_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", PIXELS)
    data = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(data[:-3])
    assert "'x.npy' has 137 bytes of numbers, and its header says 140" in refused(tmp_path / "x.npy")
    (tmp_path / "x.npy").write_bytes(data[:20])
    assert "'x.npy' is not a NumPy array, or a damaged one" in refused(tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (idx(PIXELS, 8)[:-1], "ends in the middle: it has 139 bytes of numbers, and its header says 140"),
        (idx(PIXELS, 8) + b"x", "is longer than it should be"),
        (b"\x89PNG", "is not an IDX file: it begins with 89 50 4e 47"),
        (b"", "is not an IDX file: it begins with nothing"),
        (idx(PIXELS, 8)[:9], "is not an IDX file"),
    ],
)
def test_a_damaged_idx_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(content)
    assert f"'train-images-idx3-ubyte' {message}" in refused(tmp_path)


def test_a_file_that_changes_under_way_is_named(tmp_path: Path) -> None:
    file = npz(tmp_path, x=PIXELS, y=NUMBERS)
    source = read(file)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UsageError, match=r"'data.npz' has become shorter"):
        items(source)
    with pytest.raises(UsageError, match=r"'data.npz' has changed"):
        source.check()


def test_the_same_arrays_give_the_same_bytes_packed_or_not_and_the_size_is_known(tmp_path: Path) -> None:
    outputs = []
    for place, packed in {"one": False, "two": True}.items():
        (tmp_path / place).mkdir()
        outputs.append(produce(plan(npz(tmp_path / place, packed=packed, x=PIXELS, y=NUMBERS), name="tiny")))
    shard = "tiny-train.tfrecord-00000-of-00001"
    assert outputs[0][shard] == outputs[1][shard]
    source = read(tmp_path / "one" / "data.npz")
    assert source.parts[0].size == sum(len(record) for record in items(source) if isinstance(record, bytes))


@given(st.integers(1, 300), st.integers(1, 300), st.sampled_from([1, 3, 4]))
def test_pixels_as_png_are_those_pixels(height: int, width: int, channels: int) -> None:
    """Also where they take several stored blocks of 64 KiB."""
    array = np.random.default_rng(height).integers(0, 256, (height, width, channels), np.uint8)
    data = RawPng(height, width, channels).encode(array.tobytes())
    assert inspect_image(data)[:4] == (height, width, channels, "uint8")
    assert (np.asarray(Pillow.open(io.BytesIO(data))).reshape(array.shape) == array).all()


def array(name: str, dtype: str = "int64", *shape: int) -> Array:
    return Array(name, 0, np.dtype(dtype), (5, *shape), lambda start, size: b"")


def blocks(*names: str, group: str = "", split: str = "") -> list[tuple[str, list[str]]]:
    """Return the splits and the fields of arrays of these names."""
    found = pair(NamedArray(group, split, name, array(name)) for name in names)
    return [(block.split, list(block.arrays)) for block in found]


@pytest.mark.parametrize(
    ("name", "split", "field"),
    [
        ("x", "", "x"), ("y", "", "label"), ("x_train", "train", "x"), ("y_train", "train", "label"),
        ("train_x", "train", "x"), ("test_labels", "test", "label"),
        ("val_targets", "validation", "label"), ("target", "", "label"), ("class", "", "label"),
        ("classes", "", "label"), ("labels", "", "label"), ("label", "", "label"), ("targets", "", "label"),
        ("data", "", "data"), ("img", "", "img"), ("imgs", "", "imgs"), ("image", "", "image"),
        ("images", "", "images"), ("input", "", "input"), ("inputs", "", "inputs"),
        ("image_size", "", "image_size"), ("size_image", "", "image"), ("weights", "", "weights"),
        ("sample_weights", "", "sample_weights"), ("train", "train", "value"), ("", "", "value"),
        ("points-idx2-short", "", "points"), ("train-images-idx3-ubyte", "train", "images"),
        ("train_test_x", "", "x"), ("a.npy", "", "a"), ("a-ubyte", "", "a"), ("a.idx", "", "a"),
        ("a.npz", "", "a"), ("a.gz", "", "a"),
    ],
)  # fmt: skip
def test_a_name_says_split_and_field(name: str, split: str, field: str) -> None:
    assert blocks(name) == [(split, [field])]


@pytest.mark.parametrize(
    ("dtype", "shape", "name", "field"),
    [
        ("uint8", (2, 3), "x", "image"), ("uint8", (2, 3), "train", "image"), ("uint8", (2, 3), "a", "a"),
        ("uint8", (2, 3, 3), "images", "image"), ("uint8", (2, 3, 1), "x", "image"),
        ("uint8", (2, 3, 4), "x", "image"), ("uint8", (2, 3, 2), "x", "x"), ("uint8", (2,), "x", "x"),
        ("uint8", (1, 2, 3, 3), "x", "x"), ("int8", (2, 3), "x", "x"), ("uint16", (2, 3), "train", "value"),
        ("uint8", (2, 3), "image_mask", "image"), ("uint8", (2, 3), "y", "label"),
    ],
)  # fmt: skip
def test_bytes_of_pictures_are_images(dtype: str, shape: tuple[int, ...], name: str, field: str) -> None:
    (block,) = pair([NamedArray("", "", name, array(name, dtype, *shape))])
    assert list(block.arrays) == [field]


def test_arrays_of_one_split_and_group_belong_together() -> None:
    assert blocks("y_test", "x_train", "x_test", "y_train") == [
        ("test", ["label", "x"]),
        ("train", ["x", "label"]),
    ]
    found = pair(NamedArray(group, "", "x", array("x")) for group in ("b", "a"))
    assert [(block.split, list(block.arrays)) for block in found] == [("", ["x"]), ("", ["x"])]


def test_the_split_of_a_folder_counts_more_than_a_name() -> None:
    assert blocks("x_test", "y", split="train") == [("train", ["x", "label"])]


def test_two_arrays_of_one_field_are_named() -> None:
    with pytest.raises(UsageError) as refused:
        blocks("x_train", "y_train", "targets_train")
    assert refused.value.message == (
        "'y_train' and 'targets_train' would both be the label of the same records."
    )


def test_a_name_without_a_split_among_others_is_named() -> None:
    with pytest.raises(UsageError) as refused:
        blocks("x_train", "x", "x_test")
    assert refused.value.message == "The name of 'x' says no split, and others do."
    assert blocks("x", "y") == [("", ["x", "label"])]
