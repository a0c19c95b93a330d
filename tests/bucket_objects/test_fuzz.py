"""Whatever bytes are in the bucket, a reader returns a record or raises its one error.

    TPUCTL_FUZZ_SECONDS=120 python -m pytest tests/bucket_objects/test_fuzz.py -k much_of_anything

tries new bytes of each record for two minutes; `make test-all` does so for one. What fails is printed with a
`@reproduce_failure` for `holds`.
"""

from __future__ import annotations

import ast
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bucket_objects.records import KINDS
from tests.paths import ROOT
from tpuctl import runs
from tpuctl.bucket_objects import BadObjectError

MANY = 300
"""Examples of each kind at a time."""
SECONDS = float(os.environ.get("TPUCTL_FUZZ_SECONDS", "0"))
"""For which so many are tried again and again."""

texts = st.text(max_size=40) | st.sampled_from(
    ["", "\0", "\ud800", "²", "..", "a\nb", "\x1b[2J", "2026-02-31T00:00:00Z", "٢٠٢٦-01-01T00:00:00Z"]
)  # fmt: skip
scalars = (
    st.none() | st.booleans() | st.floats() | st.integers() | texts
    | st.sampled_from([-1, 0, 2**31, 2**53, 2**63, 2**64, 10**400, 1.5, float("nan"), float("inf")])
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in JSON, with each key or index in it."""
    keys: list[Any] = list(content) if isinstance(content, dict) else []
    keys += range(len(content)) if isinstance(content, list) else ()
    for key in keys:
        yield content, key
        yield from places(content[key])


@st.composite
def mutated(draw: st.DrawFn, valid: bytes) -> bytes:
    """A valid record of which up to three places are dropped, replaced, nested, repeated or exchanged."""
    content = json.loads(valid)
    for remaining in reversed(range(draw(st.integers(1, 3)))):
        container, key = draw(st.sampled_from(list(places(content)) or [({"": {}}, "")]))
        act = draw(st.sampled_from(["drop", "replace", "nest", "deep", "repeat", "add", "exchange"]))
        if act == "drop":
            del container[key]
        elif act == "replace":
            container[key] = draw(values)
        elif act == "nest":
            container[key] = draw(st.sampled_from([[container[key]], {"x": container[key]}]))
        elif act == "deep":
            container[key] = json.loads("[" * 100 + "]" * 100)
        elif act == "repeat":
            container[key] = [container[key]] * (2 if remaining else 5000)
        elif act == "add" and isinstance(container, dict):
            container[draw(texts)] = draw(values)
        elif act == "exchange":
            other, another = draw(st.sampled_from(list(places(content)) or [({"": {}}, "")]))
            container[key] = json.loads(json.dumps(other[another]))
    return json.dumps(content, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")


@st.composite
def damaged(draw: st.DrawFn, valid: bytes) -> bytes:
    """A valid record with bytes cut, inserted or changed."""
    start = draw(st.integers(0, len(valid)))
    stop = draw(st.integers(start, min(len(valid), start + 20)))
    return valid[:start] + draw(st.binary(max_size=20)) + valid[stop:]


def candidates(name: str) -> st.SearchStrategy[bytes]:
    valid = KINDS[name].valid
    arbitrary = st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode())
    return arbitrary | damaged(valid) | (mutated(valid) if valid.startswith(b"{") else st.nothing())


def check(name: str, data: bytes) -> None:
    """Read: a record or the error; any other exception fails the test."""
    kind = KINDS[name]
    message = ""
    try:
        kind.read(data)
    except BadObjectError as error:
        message = error.message
        if not issubclass(kind.error, BadObjectError):
            raise
    except kind.error:
        pass  # its caller names the object
    assert message.isprintable()
    assert len(message) < 1000


HOSTILE = [
    b"", b"\0", b"{}", b"[]", b"null", b"\xff\xfe", b"\xef\xbb\xbf{}", b"[" * 200_000,
    b'{"a":' * 200_000, b'{"schema": 1, "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", b"9" * 10_000,
]  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
class TestReaders:
    def test_a_valid_record_is_read(self, name: str) -> None:
        assert KINDS[name].read(KINDS[name].valid) is not None

    def test_well_known_nonsense_is_refused(self, name: str) -> None:
        for data in HOSTILE:
            with pytest.raises(KINDS[name].error):
                KINDS[name].read(data)

    def test_anything_else_is_a_record_or_the_error(self, name: str) -> None:
        @given(candidates(name))
        def holds(data: bytes) -> None:
            check(name, data)

        holds()

    @pytest.mark.slow
    @pytest.mark.spread
    def test_much_of_anything_else_is_a_record_or_the_error(self, name: str) -> None:
        @settings(max_examples=MANY, derandomize=False, print_blob=True)
        @given(candidates(name))
        def holds(data: bytes) -> None:
            check(name, data)

        end = time.monotonic() + SECONDS
        holds()
        while time.monotonic() < end:
            holds()


READERS = {
    # module: its calls that decode JSON, each covered by the kinds above
    "tpuctl/bucket_objects.py": {"decoder_of", "msgspec.json.Decoder"},
    "tpuctl/data/output/manifest.py": {"bucket_objects.decode"},
    "tpuctl/flows/datasets/beam/worker.py": {"decode"},
    "tpuctl/flows/datasets/upload.py": {"decode", "decode_manifest"},
    "tpuctl/flows/datasets/lookup.py": {"decode_manifest"},
    "tpuctl/flows/datasets/pull.py": {"decode_manifest"},
    "tpuctl/flows/overview/story.py": {"bucket_objects.decode"},
    "tpuctl/flows/overview/views.py": {"bucket_objects.decode"},
    "tpuctl/flows/runs/checkpoints.py": {"decode"},
    "tpuctl/flows/runs/evidence/witnesses.py": {"bucket_objects.decode", "decode"},
    "tpuctl/flows/runs/pull.py": {"decode"},
    "tpuctl/flows/runs/stored_attempt.py": {"decode"},
    "tpuctl/flows/runs/stored_run.py": {"decode"},
    "tpuctl/flows/runs/record/verification.py": {"decode"},
    "tpuctl/flows/runs/upkeep/collection.py": {"decode"},
    "tpuctl/runs.py": {"bucket_objects.decode", "msgspec.json.decode"},
    "tpuctl/host/worker/control.py": {"json.loads"},
    "tpuctl/host/worker/main.py": {"json.load"},  # what a run's own files say, on its host
    "tpuctl/host/worker/peers.py": {"json.loads"},
    "tpuctl/host/worker/records.py": {"json.load", "json.loads"},
    "tpuctl/host/worker/resumption.py": {"json.loads"},  # tests/host/worker/resumption/test_next_attempt.py
    "tpuctl/host/worker/reporting.py": {"json.loads"},  # tests/host/worker/reporting/test_status.py
}
NO_RECORDS = {
    # module that decodes something else: what it is
    "tpuctl/flows/datasets/analysis.py": "tf.train.Example, and a list on this machine",
    "tpuctl/flows/datasets/fetch.py": "a mark in a folder of this machine",
    "tpuctl/flows/datasets/head.py": "tf.train.Example, tests/data/tfrecord",
    "tpuctl/flows/project/first_day.py": "facts of a host, over SSH",
    "tpuctl/flows/runs/submission/launch.py": "a line of the worker program, over SSH",
    "tpuctl/flows/runs/submission/launch_values.py": "a private file on this machine",
    "tpuctl/host/keeper/activity.py": "what Docker writes on the host, tests/host/keeper/test_activity.py",
    "tpuctl/host/keeper/keeper.py": "responses of API and metadata server, notes of other workers",
    "tpuctl/flows/runs/code/programs.py": "a notebook of this machine, test_programs.py",
    "tpuctl/host/worker/job/cells.py": "the notebook of the run",
    "tpuctl/host/worker/preparation/inventory.py": "metadata of packages on the host, test_inventory.py",
    "tpuctl/host/gcs.py": "responses of the metadata server and Cloud Storage",
}
DECODERS = {"decode", "decode_manifest", "decoder_of", "bucket_objects.decode", "json.load", "json.loads"}
ROOMS = ("tpuctl/flows", "tpuctl/host", "tpuctl/data/output")


@pytest.mark.daily
def test_a_record_without_fuzz_is_noticed() -> None:
    files = [ROOT / "tpuctl/runs.py", ROOT / "tpuctl/bucket_objects.py"]
    paths = [*files, *(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))]
    calls = {path.relative_to(ROOT).as_posix(): set(_decoding_calls(path)) for path in paths}
    assert {path: names for path, names in calls.items() if names and path not in NO_RECORDS} == READERS
    assert {path for path in NO_RECORDS if not calls[path]} == set()


def test_each_record_is_fuzzed() -> None:
    read = {type(kind.read(kind.valid)) for kind in KINDS.values()}
    assert set(runs.LARGEST) <= read


def _decoding_calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if name in DECODERS or name.endswith(("json.decode", "json.Decoder")):
            yield name
