"""The token of a rewrite in several calls, and how much one call may rewrite."""

from __future__ import annotations

import base64
import json

import pytest

from tpuctl.sim.gcs.errors import GcsError
from tpuctl.sim.gcs.json_api.objects import RewriteToken, bytes_per_call

MIB = 1 << 20
TOKEN = RewriteToken("b", "dir/ü", 5, "to", "there", MIB)


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


def test_a_token_is_read_as_it_was_written() -> None:
    assert RewriteToken.parse(TOKEN.to_text()) == TOKEN
    assert RewriteToken("b", "a", 5, "to", "there").bytes_rewritten == 0


@pytest.mark.parametrize(
    "text",
    ["x", "=", "ü", encoded({}), encoded([]), encoded(5), encoded(["b", "a", 5, "to", "there"]),
     encoded(["b", "a", "x", "to", "there", 0]), encoded(["b", "a", 5, "to", "there", None])],
)  # fmt: skip
def test_another_text_is_no_token(text: str) -> None:
    with pytest.raises(GcsError) as raised:
        RewriteToken.parse(text)
    assert (raised.value.status, raised.value.message) == (400, "Invalid rewrite token.")


@pytest.mark.parametrize(("text", "limit"), [(None, None), (str(MIB), MIB), (str(3 * MIB), 3 * MIB)])
def test_a_call_rewrites_everything_or_whole_mebibytes(text: str | None, limit: int | None) -> None:
    assert bytes_per_call({"maxBytesRewrittenPerCall": text} if text else {}) == limit


@pytest.mark.parametrize("text", ["0", "1", str(MIB - 1), str(MIB + 1), str(MIB // 2)])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(GcsError) as raised:
        bytes_per_call({"maxBytesRewrittenPerCall": text})
    assert (raised.value.status, raised.value.message) == (
        400,
        "maxBytesRewrittenPerCall must be an integral multiple of 1 MiB (1048576).",
    )


def test_a_size_that_is_no_number_is_refused_by_its_name() -> None:
    with pytest.raises(GcsError, match="Invalid value for parameter maxBytesRewrittenPerCall: x"):
        bytes_per_call({"maxBytesRewrittenPerCall": "x"})
