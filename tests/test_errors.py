"""What an error says of a host or an object in the bucket steers no terminal, wherever Python shows it."""

from __future__ import annotations

import traceback

import pytest

from tests.hostile.text import ESCAPES, LEGITIMATE, steers
from tpuctl.errors import JobFailedError, TpuctlError, add_note, cause, say_bill


def shown(error: BaseException) -> str:
    """Return all that Python's own traceback writes, in one line."""
    return "".join(traceback.format_exception(error)).replace("\n", "")


@pytest.mark.parametrize("case", ESCAPES)
def test_no_text_of_an_error_steers_a_terminal(case: str) -> None:
    text = ESCAPES[case]
    error = JobFailedError(f"Run 'r1' failed: {text}", hint=text)
    error.add_note(text)
    say_bill(error, text, text, [])
    assert not steers(str(error).replace("\n", "")), ascii(str(error))
    assert not steers(shown(error)), ascii(shown(error))
    assert text in error.message, "for a program"
    bug = ValueError("x")
    add_note(bug, text)
    say_bill(bug, text, text, [])
    assert not steers(shown(bug)), ascii(shown(bug))


@pytest.mark.parametrize("case", LEGITIMATE)
def test_what_people_write_stays(case: str) -> None:
    assert str(TpuctlError(f"a\n\t{LEGITIMATE[case]}")) == f"a\n\t{LEGITIMATE[case]}"


def failing(text: str) -> None:
    """Fail as a library does, for a reason that its own error does not say."""
    try:
        try:
            raise OSError(text)
        except OSError:
            raise KeyError("x")  # noqa: B904  the first is its context
    except KeyError as error:
        raise ValueError("it failed") from error


def call(text: str) -> None:
    try:
        failing(text)
    except ValueError as error:
        raise TpuctlError("A sentence.") from cause(error)


@pytest.mark.parametrize("case", ESCAPES)
def test_no_cause_steers_a_terminal_however_deep_it_is(case: str) -> None:
    with pytest.raises(TpuctlError) as caught:
        call(ESCAPES[case])
    assert not steers(shown(caught.value)), ascii(shown(caught.value))


def test_a_cause_in_plain_words_stays() -> None:
    error = ValueError(LEGITIMATE["Japanese"])
    error.__cause__ = OSError("two\nlines")
    assert cause(error) is error
    error.add_note("\x1b[31m")
    assert cause(error) is None


def test_a_ring_of_causes_has_an_end() -> None:
    """A client that raises the cause of an error from that error has made one."""
    first, second = ValueError("one"), ValueError("two")
    first.__cause__, second.__cause__ = second, first
    assert cause(first) is first
    second.args = ("\x1b]0;owned\x07",)
    assert cause(first) is None
