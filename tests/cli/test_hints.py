"""A word of another program, or a misspelt one, is answered with the command or option that does it."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest

from tests.cli.test_help import LEAVES
from tests.running_simulator import CommandResult
from tpuctl.cli.hints import COMMAND_HINTS, OPTION_HINTS
from tpuctl.cli.main import cli

Tpuctl = Callable[..., CommandResult]
WORDS = [
    (group, word, commands) for group, table in COMMAND_HINTS.items() for word, commands in table.items()
]
PATHS = {" ".join(path) for path, _ in LEAVES}
GROUPS = ((), ("data",), ("config",), ("sim",), ("sim", "fault"))


@pytest.mark.parametrize(("group", "word", "commands"), WORDS, ids=[f"{g} {w}" for g, w, _ in WORDS])
def test_a_word_of_other_programs_names_commands_that_exist(
    tpuctl: Tpuctl, group: str, word: str, commands: tuple[str, ...]
) -> None:
    result = tpuctl(*group.split(), word)
    place = f" in 'tpuctl {group}'" if group else ""
    quoted = " or ".join(f"'tpuctl {command}'" for command in commands)
    assert result.code == 2
    assert f"Error: There is no command '{word}'{place}. Did you mean {quoted}?" in result.err
    for command in commands:
        names = command.partition(" -")[0].removesuffix(" bash")
        assert names in {*PATHS, "sim fault", "--version"}, command


@pytest.mark.parametrize(
    ("typed", "commands"),
    [
        ("sumbit", "'tpuctl submit'"),
        ("LIST", "'tpuctl ls'"),
        ("cancle", "'tpuctl cancel'"),
        ("kill", "'tpuctl cancel' or 'tpuctl down'"),
        ("data uplaod", "'tpuctl data upload'"),
        ("sim fautl", "'tpuctl sim fault'"),
    ],
)
def test_a_misspelt_word_names_the_nearest(tpuctl: Tpuctl, typed: str, commands: str) -> None:
    assert f"Did you mean {commands}?" in tpuctl(*typed.split()).err


def test_a_word_like_no_other_has_no_guess(tpuctl: Tpuctl) -> None:
    assert "Error: There is no command 'xyzzy'.\n" in tpuctl("xyzzy").err


def test_a_word_for_which_there_is_a_command_needs_no_hint() -> None:
    for group, table in COMMAND_HINTS.items():
        words = tuple(group.split())
        paths = {path[len(words)] for path, _ in LEAVES if path[: len(words)] == words != path}
        assert not paths & set(table), group


@pytest.mark.parametrize(
    ("typed", "option"),
    [
        ("ls --region us-central1", "--zone"),
        ("up v3-8 --preemptible", "--spot"),
        ("down --force", "--yes"),
        ("ls -o json", "--json"),
        ("logs --watch", "--follow"),
        ("ls --zoen x", "--zone"),
        ("data head digits --cuont 3", "--count"),
    ],
)
def test_an_option_is_answered_with_the_right_one(tpuctl: Tpuctl, typed: str, option: str) -> None:
    result = tpuctl(*typed.split())
    assert result.code == 2
    assert f"Did you mean '{option}'?" in result.err


def test_an_option_of_the_table_is_named_only_where_the_command_has_it(tpuctl: Tpuctl) -> None:
    assert "--spot" not in tpuctl("ls", "--preemptible").err


def test_every_option_of_the_table_belongs_to_a_command() -> None:
    own = {option for _, command in LEAVES for parameter in command.params for option in parameter.opts}
    assert set(OPTION_HINTS.values()) <= own


def test_the_hint_is_in_the_json_of_the_error(tpuctl: Tpuctl) -> None:
    result = tpuctl("down", "--force", "--json")
    assert "Did you mean '--yes'?" in result.out


@pytest.mark.parametrize("path", [*GROUPS, *(path for path, _ in LEAVES)], ids=" ".join)
def test_help_is_there_under_three_names(tpuctl: Tpuctl, path: tuple[str, ...]) -> None:
    page = tpuctl(*path, "--help")
    assert page.code == 0
    assert tpuctl(*path, "-h") == page
    assert tpuctl("help", *path) == page


def test_a_kind_of_fault_has_its_help_too(tpuctl: Tpuctl) -> None:
    page = tpuctl("sim", "fault", "add", "stockout", "--help")
    assert "--zone" in page.out
    assert tpuctl("sim", "fault", "add", "stockout", "-h") == page
    assert tpuctl("help", "sim", "fault", "add", "stockout") == page


def test_the_help_of_a_word_that_is_no_command_has_the_hint(tpuctl: Tpuctl) -> None:
    result = tpuctl("help", "list")
    assert (result.code, "Did you mean 'tpuctl ls'?" in result.err) == (2, True)


def test_no_command_uses_h_for_something_else() -> None:
    every = [command for _, command in LEAVES]
    assert not [command.name for command in every for parameter in command.params if "-h" in parameter.opts]
    assert isinstance(cli, click.Group)
