"""Code that is too large for memory: sent in parts, replaced where the bucket has other bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult
from tpuctl.cloud.storage import Bucket


def test_it_arrives_whole_and_is_sent_once(
    tpuctl: Callable[..., CommandResult], node: str, bucket: Bucket
) -> None:
    Path("big.bin").write_bytes(content := os.urandom(6_000_000))
    text = "import hashlib\nprint(hashlib.sha256(open('big.bin', 'rb').read()).hexdigest())\n"
    Path("job.py").write_text(text)
    words = ("submit", "job.py", "--include", "big.bin", "--name", "r1")
    planned = tpuctl(*words, "--dry-run", "--json")
    assert planned.code == 0, planned.err
    sent = [each["method"] for each in planned.json["requests"] if "upload" in each["url"]]
    assert sent[:2] == ["POST", "PUT"], "a session, and a part"
    result = tpuctl(*words)
    assert result.code == 0, result.err
    assert "(2 files, 6.0 MB)" in result.out
    assert tpuctl("logs", "r1", "-f").out == f"{hashlib.sha256(content).hexdigest()}\n"
    (stored,) = bucket.objects("bundles/")
    again = tpuctl("submit", "job.py", "--include", "big.bin", "--name", "r2", "--dry-run")
    assert again.code == 0, again.err
    assert "bundles/" not in again.out
    bucket.replace(stored, b"other bytes")
    replaced = tpuctl("submit", "job.py", "--include", "big.bin", "--name", "r3", "--queue")
    assert "did not hold the code that it is named by" in replaced.err
    assert [item.content for item in bucket.objects("bundles/")] == [stored.content]


@pytest.mark.parametrize("option", ["--dry-run", "--name=r1"])
def test_more_than_the_limit_is_refused_before_anything_is_sent(
    tpuctl: Callable[..., CommandResult], node: str, bucket: Bucket, option: str
) -> None:
    Path("big.bin").write_bytes(bytes(3_000_000))
    Path("job.py").write_text("")
    result = tpuctl("submit", "job.py", "--include", "big.bin", "--code-limit", "2", option)
    assert result.code == 2
    assert "The largest: big.bin (3 MB)." in result.err
    assert "--code-limit 3" in result.err
    assert bucket.objects("bundles/") == []
