"""Each type of field takes what is just within its bounds, and nothing beyond."""

from __future__ import annotations

from typing import Annotated, Any, get_origin

import msgspec
import pytest

from tpuctl import bucket_objects

WITHIN: dict[str, tuple[object, ...]] = {
    "Count": (0, 1, 9_007_199_254_740_991),
    "AttemptNumber": (1, 9999),
    "WorkerNumber": (0, 4095),
    "ExitCode": (-255, 0, 4_294_967_295),
    "Hosts": (0, 4096),
    "Word": ("a", "no-capacity", "a" + 30 * "z"),
    "Label": ("", "x" * 256),
    "Line": ("", "x" * 4096),
    "Text": ("", "x" * 131_072),
    "Metadata": ("", "x" * 262_144),
    "ResourceName": ("a", "9", "my-lab", "example.com:lab", "a" + 98 * "." + "9"),
    "PackageName": ("a", "jax", "tf-nightly", "0x"),
    "PackageVersion": ("1", "2.16.0rc1", "1!2.0+cu12.1", "2024-1"),
    "PythonVersion": ("3", "3.11.7", "3.13.0rc1", "3.12.3+"),
    "Sha256": (32 * "0f",),
    "Crc32c": ("AAAAAA==", "zZ09+/=="),
    "FileName": ("a", "loss .json", "a..b", "x" * 300),
    "ObjectName": ("a", "a/b", "a/.b/..c/d..", "a\tb", "x" * 1000),
}
BEYOND: dict[str, tuple[object, ...]] = {
    "Count": (-1, 9_007_199_254_740_992, 1.5, "1"),
    "AttemptNumber": (0, 10_000),
    "WorkerNumber": (-1, 4096),
    "ExitCode": (-256, 4_294_967_296),
    "Hosts": (-1, 4097),
    "Word": ("", "A", "-a", "a b", "a\n", "a9", "a" + 31 * "z"),
    "Label": ("x" * 257,),
    "Line": ("x" * 4097,),
    "Text": ("x" * 131_073,),
    "Metadata": ("x" * 262_145,),
    "ResourceName": ("", "A", "-a", "a-", "a b", "a\n", "a" + 99 * "." + "9"),
    "PackageName": ("", "-a", "A", "a_b", "a b", "a\n", "a" * 201),
    "PackageVersion": ("", "+1", "1 2", "1\n--pre", "1;x", "1" * 201),
    "PythonVersion": ("", "x", "3 -c 0; touch x", "3.11\n", "3.1.1.1.1 ", "3" * 50),
    "Sha256": (32 * "0F", 31 * "0f", 33 * "0f", 32 * "0f" + "\n"),
    "Crc32c": ("", "AAAAA==", "AAAAAAA==", "AAAAAA=", "AAAA-A==", "AAAAAA==\n"),
    "FileName": ("", ".a", "a/b", "a\\b", "a\x1fb", "a\x7fb", "a\n", "x" * 301),
    "ObjectName": (
        "",
        "/a",
        "..",
        "../a",
        "a/..",
        "a/../b",
        "a\x08b",
        "a\nb",
        "a\x1fb",
        "a\x7fb",
        "x" * 1001,
    ),
}


def pairs(table: dict[str, tuple[object, ...]]) -> list[Any]:
    return [
        pytest.param(name, value, id=f"{name}-{number}")
        for name, values in table.items()
        for number, value in enumerate(values)
    ]


def test_every_type_is_tried() -> None:
    types = {name for name, value in vars(bucket_objects).items() if get_origin(value) is Annotated}
    assert types == set(WITHIN) == set(BEYOND)


@pytest.mark.parametrize(("name", "value"), pairs(WITHIN))
def test_what_is_within_the_bounds_is_read(name: str, value: object) -> None:
    data = msgspec.json.encode(value)
    assert msgspec.json.decode(data, type=getattr(bucket_objects, name)) == value


@pytest.mark.parametrize(("name", "value"), pairs(BEYOND))
def test_what_is_beyond_them_is_refused(name: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(value), type=getattr(bucket_objects, name))
