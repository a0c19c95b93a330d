"""How often a decision is tried, how much of it is read, and what it is as an object."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.host.worker.counting_bucket import CountingBucket
from tests.host.worker.host import SPEC
from tpuctl.host import gcs
from tpuctl.host.worker.peers import END, GO, Decision, DecisionObject

NAME = "runs/r1/attempts/1/barrier/decision.json"


class Contended(CountingBucket):
    """Others write the object before each write of ours, so many times."""

    others = 0

    def put(self, name: str, data: bytes, if_generation: int | None = None, content_type: str = "") -> int:
        if self.others:
            self.others -= 1
            self._count("PUT", name)
            raise gcs.PreconditionError(name)
        return super().put(name, data, if_generation, content_type)


def decision_of(bucket: CountingBucket, worker: int = 0, key: str = SPEC.key) -> DecisionObject:
    spec: Any = replace(SPEC, worker=worker, workers=2, participants=(0, 1), key=key)
    return DecisionObject(bucket, spec)  # type: ignore[arg-type]


@pytest.mark.parametrize("others", [1, 9])
def test_a_write_that_another_was_before_is_tried_again(others: int) -> None:
    bucket = Contended()
    bucket.others = others
    assert decision_of(bucket).go() == Decision(GO, 0)
    assert bucket.requests == {f"GET {NAME}": others + 1, f"PUT {NAME}": others + 1}


def test_where_others_keep_writing_it_gives_up_after_ten_tries() -> None:
    bucket = Contended()
    bucket.others = 10
    with pytest.raises(gcs.GcsError, match=f"^other programs keep writing gs://b/{NAME}$"):
        decision_of(bucket).end("worker 0 was killed")
    assert bucket.requests[f"PUT {NAME}"] == 10


def test_an_end_replaces_a_start_and_no_other_end() -> None:
    bucket = CountingBucket()
    first, second = decision_of(bucket), decision_of(bucket, 1)
    assert first.go() == second.go() == Decision(GO, 0)
    assert not first.go().is_end
    end = second.end("worker 0 has died", worker=0)
    assert end == Decision(END, 0, "worker 0 has died")
    assert end.is_end
    assert first.end("worker 0 was stopped") == first.go() == end
    assert second.end("no", worker=1) == end


def test_the_object_is_json_with_a_seal() -> None:
    bucket = CountingBucket()
    decision_of(bucket, 1).end("worker 1 could not start")
    data = bucket.read(NAME, 1 << 20)[1]
    content = json.loads(data)
    assert len(content.pop("seal")) == 64
    assert content == {"state": "end", "worker": 1, "reason": "worker 1 could not start"}
    assert data.endswith(b"}\n")


@pytest.mark.parametrize(("size", "is_read"), [(4_096, True), (4_097, False)])
def test_only_a_small_object_is_a_decision(size: int, is_read: bool) -> None:
    bucket = CountingBucket()
    decision_of(bucket).go()
    content = bucket.read(NAME, 1 << 20)[1].strip()
    bucket.put(NAME, content[:-1] + b" " * (size - len(content)) + b"}")
    assert (decision_of(bucket).read() is not None) == is_read


@pytest.mark.parametrize(("field", "value"), [("state", "end"), ("worker", 1), ("reason", "x")])
def test_each_field_is_sealed(field: str, value: object) -> None:
    bucket = CountingBucket()
    decision_of(bucket).go()
    content = json.loads(bucket.read(NAME, 1 << 20)[1])
    bucket.put(NAME, json.dumps({**content, field: value}).encode())
    assert decision_of(bucket).read() is None
