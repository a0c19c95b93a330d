"""Tests what a record in the bucket may be: everything else is one error, never a crash.

Each type of field takes what is just within its bounds, and nothing beyond.
"""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from typing import Annotated, Any, get_origin

import msgspec
import pytest

from tpuctl import bucket_objects
from tpuctl.bucket_objects import DEEPEST, BadObjectError, DecodeError, decode


class Sheet(msgspec.Struct):
    """A record with a field of any content."""

    rows: int
    content: Any = None


class Rows(msgspec.Struct):
    """A record without what a decoder would hold."""

    rows: int


def nested(levels: int) -> bytes:
    """A record in JSON with this many levels, the record itself counted."""
    return b'{"rows": 1, "content": ' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"null",
        b"[]",
        b"{}",
        b'{"rows": NaN}',
        b'{"rows": Infinity}',
        b'{"rows": 1.0}',
        b'{"rows": true}',
        b'{"rows": 1e999}',
        b'{"rows": ' + b"9" * 5000 + b"}",
        b'\xef\xbb\xbf{"rows": 1}',
        b'{"rows": 1, "content": "\xff"}',
        b'{"rows": 1, "unknown": "\xff"}',
        b'{"rows": 1, "content": "\\ud800"}',
        b'{"rows": 1} {"rows": 1}',
        b"\x1f\x8b\x08\x00",
        nested(DEEPEST + 1),
        nested(DEEPEST + 1).replace(b"content", b"unknown"),
        nested(200_000),
        nested(200_000).replace(b"content", b"unknown"),
        b'{"rows": 1, "content": ' + b'{"a":[' * 40 + b"]}" * 40 + b"}",
        b"[" * 200_000,
    ],
    ids=lambda data: repr(data[:40]),
)
def test_what_is_no_record_is_one_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(data, Sheet)


def test_brackets_in_strings_are_no_levels() -> None:
    text = '\\"[{' * 500
    data = f'{{"rows": 1, "content": ["{text}", {"[],{}," * 500}"{"[" * 300}"]}}'.encode()
    assert decode(data, Sheet).rows == 1
    assert decode(nested(DEEPEST), Sheet).rows == 1


def test_the_last_of_two_values_of_a_key_counts_as_on_the_hosts() -> None:
    assert decode(b'{"rows": 1, "rows": 2}', Sheet).rows == 2


def test_the_error_is_one_printable_line() -> None:
    error = BadObjectError("runs/\x1b]0;\x07\n\u202e\udc80/run.json", "is " + "long " * 1000)
    assert error.message.isprintable()
    assert len(error.message) < 1000
    assert error.message.startswith("runs/\\x1b]0;\\x07\\n\\u202e\\udc80/run.json is long")


FIRST_USE = """
import sys
import threading
import types

from tpuctl.bucket_objects import decode

SOURCE = '''
from __future__ import annotations
import threading
import msgspec
begun, goes_on = threading.Event(), threading.Event()

def number():
    begun.set()
    goes_on.wait(60)
    return int

class Inner(msgspec.Struct):
    value: number()

class Record(msgspec.Struct):
    inner: Inner
    last: int
'''
module = sys.modules["records"] = types.ModuleType("records")
exec(SOURCE, module.__dict__)


def read():
    record = decode(b'{"inner": {"value": 1}, "last": 2}', module.Record)
    assert (record.inner.value, record.last) == (1, 2)


def read_meanwhile():
    module.goes_on.set()
    read()


first, second = threading.Thread(target=read), threading.Thread(target=read_meanwhile)
first.start()
assert module.begun.wait(60)
second.start()
first.join()
second.join()
"""


def test_threads_that_use_a_type_for_the_first_time_at_once_do_not_end_the_process() -> None:
    """While one reads the fields of the inner type, the other decodes the outer one."""
    ended = subprocess.run([sys.executable, "-c", FIRST_USE], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(("length", "shown"), [(299, 299), (300, 300), (301, 281), (601, 281)])
def test_a_line_is_cut_at_300_characters(length: int, shown: int) -> None:
    error = BadObjectError("x" * length, "is broken")
    name = error.facts["object"]
    assert name == ("x" * length if shown == length else "x" * 280 + "…")
    assert error.message == f"{name} is broken."


def test_the_depth_of_a_record_with_very_many_strings_is_measured_in_little_memory() -> None:
    """The manifest of a table with a hundred thousand columns has a million of them."""
    content = {"rows": 1, "more": {f"{number:06}": {"kind": "a", "x": []} for number in range(50_000)}}
    data = msgspec.json.format(msgspec.json.encode(content), indent=2)
    tracemalloc.start()
    try:
        assert decode(data, Rows).rows == 1
        assert tracemalloc.get_traced_memory()[1] < 10 * len(data)
    finally:
        tracemalloc.stop()


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
