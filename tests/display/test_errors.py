"""Tests errors that IPython shows without a traceback."""

from __future__ import annotations

import pytest

from tpuctl.display.errors import concise
from tpuctl.errors import JobFailedError


def test_it_is_the_same_error_with_a_short_form_for_ipython() -> None:
    error = JobFailedError("Run 'r1' failed: exit code 3.", hint="See the end of its log: tpuctl logs r1")
    assert concise(error) is error
    with pytest.raises(JobFailedError, match="exit code 3"):
        raise error
    text = "\n".join(error._render_traceback_())  # type: ignore[attr-defined]
    assert text == (
        "\x1b[1;31mJobFailedError:\x1b[0m Run 'r1' failed: exit code 3.\n"
        "\x1b[36mHint:\x1b[0m See the end of its log: tpuctl logs r1"
    )


def test_what_steers_a_terminal_is_escaped() -> None:
    error = concise(JobFailedError("it printed \x1b]0;title\x07 and \u202e"))
    (text,) = error._render_traceback_()  # type: ignore[attr-defined]
    assert text.endswith(r"it printed \x1b]0;title\x07 and \u202e")
