"""What a shell evaluates: quoted so that it takes every value as it is, and puts back what was there."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tpuctl.shells import BEFORE, SHELLS, entering, leaving, own_shell

AWKWARD = "a b'c\"d $HOME `x` \\ \n*;#é"


@pytest.mark.parametrize("program", ["sh", "bash", "dash", "zsh"])
@pytest.mark.parametrize("quotes", ['"', ""])
def test_a_posix_shell_takes_any_value(program: str, quotes: str) -> None:
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed here")
    value = AWKWARD if quotes else "no-spaces=$;'"  # unquoted, the shell itself splits at spaces
    line = SHELLS["posix"].assignment("NAME", value)
    script = f'eval {quotes}$(cat){quotes}; printf %s "$NAME"'
    done = subprocess.run([program, "-c", script], input=line, capture_output=True, text=True, check=True)
    assert done.stdout == (value if quotes else "no-spaces=$;'")


def test_fish_takes_any_value() -> None:
    line = SHELLS["fish"].assignment("NAME", "a'b\\c $d")
    assert line == r"set -gx NAME 'a\'b\\c $d';"
    assert SHELLS["fish"].assignment("NAME", None) == "set -e NAME;"
    if shutil.which("fish"):
        script = SHELLS["fish"].assignment("NAME", AWKWARD) + '\nprintf %s "$NAME"'
        assert subprocess.run(["fish", "-c", script], capture_output=True, text=True).stdout == AWKWARD


@pytest.mark.parametrize(
    ("shell", "kind"),
    [("/usr/bin/fish", "fish"), ("/bin/bash", "posix"), ("/bin/zsh", "posix"), ("", "posix")],
)
def test_the_kind_is_that_of_the_login_shell(shell: str, kind: str) -> None:
    assert own_shell({"SHELL": shell}) == kind


def test_leaving_puts_back_what_was_there_before_the_first_entering() -> None:
    original = {"PROXY": "old", "OTHER": "kept"}
    once = {**original, **entering({"PROXY": "new", "ADDED": "1"}, original)}
    assert (once["PROXY"], once["ADDED"], once["OTHER"]) == ("new", "1", "kept")
    twice = {**once, **entering({"PROXY": "newer", "ADDED": "2", "MORE": "3"}, once)}
    assert leaving(twice) == {"PROXY": "old", "ADDED": None, "MORE": None, BEFORE: None}


@pytest.mark.parametrize("environ", [{}, {BEFORE: "{"}, {BEFORE: "[1]"}, {BEFORE: json.dumps({})}])
def test_there_is_nothing_to_leave(environ: dict[str, str]) -> None:
    assert leaving(environ) == {}
