"""The code that a shell evaluates: it takes every value literally, and restores the earlier values."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess

import pytest

from tpuctl.shells import SAVED, SHELLS, again, changes_to_restore, changes_to_set, login_shell, quoted_path

AWKWARD = "a b'c\"d $HOME `x` \\ \n*;#é"


@pytest.mark.parametrize("program", ["sh", "bash", "dash", "zsh"])
@pytest.mark.parametrize("quotes", ['"', ""])
def test_a_posix_shell_takes_any_value(program: str, quotes: str) -> None:
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed here")
    value = AWKWARD if quotes else "no-spaces=$;'"  # unquoted, the shell itself splits at spaces
    line = SHELLS["posix"].assignment("NAME", value)
    script = f'eval {quotes}$(cat){quotes}; printf %s "$NAME"'
    shell = subprocess.run([program, "-c", script], input=line, capture_output=True, text=True, check=True)
    assert shell.stdout == (value if quotes else "no-spaces=$;'")


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("pets", "pets"),
        ("my pets", "'my pets'"),
        ("a/-b", "a/-b"),
        ("-pets", "./-pets"),
        ("-my pets", "'./-my pets'"),
    ],
)
def test_a_path_in_a_command_is_no_option(path: str, word: str) -> None:
    assert quoted_path(path) == word


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
    assert login_shell({"SHELL": shell}) == kind


def test_restoring_gives_the_values_of_before_the_first_change() -> None:
    original = {"PROXY": "old", "OTHER": "kept"}
    once = {**original, **changes_to_set({"PROXY": "new", "ADDED": "1"}, original)}
    assert (once["PROXY"], once["ADDED"], once["OTHER"]) == ("new", "1", "kept")
    twice = {**once, **changes_to_set({"PROXY": "newer", "ADDED": "2", "MORE": "3"}, once)}
    assert changes_to_restore(twice) == {"PROXY": "old", "ADDED": None, "MORE": None, SAVED: None}


@pytest.mark.parametrize("environ", [{}, {SAVED: "{"}, {SAVED: "[1]"}, {SAVED: json.dumps({})}])
def test_without_saved_values_nothing_is_restored(environ: dict[str, str]) -> None:
    assert changes_to_restore(environ) == {}


@pytest.mark.parametrize(
    ("typed", "options", "command"),
    [
        ("up v3-8 --spot", {}, "up v3-8 --spot"),
        ("up v3-8 --zone a --spot", {"--zone": "b"}, "up v3-8 --zone b --spot"),
        ("up v3-8 --zone=a --spot --zone c", {"--zone": "b"}, "up v3-8 --zone b --spot"),
        ("up v3-8 --zone=a --zone=b", {"--zone": "a"}, "up v3-8 --zone=a"),
        ("up v3-8 --label 'x=a b'", {"--name": "n1"}, "up v3-8 --label 'x=a b' --name n1"),
        ("run job.py --queue", {"--queue": ""}, "run job.py --queue"),
        ("run job.py -- --zone a", {"--zone": "b", "--queue": ""}, "run job.py --zone b --queue -- --zone a"),
    ],
)
def test_a_command_is_the_one_that_was_typed_with_what_has_to_change(
    typed: str, options: dict[str, str], command: str
) -> None:
    assert again(shlex.split(typed), options) == f"tpuctl {command}"
