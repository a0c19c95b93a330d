"""A word of another program, or a misspelt one, is answered with the command or option that does it."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest

from tests.cli.test_help import LEAVES
from tests.running_simulator import CommandResult
from tpuctl.cli.hints import COMMAND_HINTS, OPTION_HINTS, with_known_option
from tpuctl.cli.main import cli

Tpuctl = Callable[..., CommandResult]
MEANINGS = """
: list get nodes tpus instances: ls
: create provision: up
: delete remove destroy del: down, rm
: terminate teardown: down
: label pin: tag
: annotate comment: note
: prune gc cleanup: runs gc
: kill abort interrupt scancel: cancel, down
: pause halt suspend shutdown poweroff: stop
: rehearse preempt maintenance: drill
: resume boot poweron: start
: launch train apply: run, submit
: ps jobs history queue: runs
: status show inspect: describe, runs, ls
: explain operations events: why
: tail follow attach: logs -f
: shell sh connect console: ssh
: download collect results checkpoints: pull
: upload convert push: data upload
: dataset datasets: data ls
: fetch: data fetch
: head: data head
: check diagnose auth login: doctor
: configure setup: init
: settings info env: config show
: simulator simulate emulator: sim status
: fault faults chaos: sim fault
: version: --version
: regions locations: zones
: accelerators accelerator-types show-gpus show-tpus: types
: versions images runtime-versions: runtimes
: prices pricing: price
: costs billing spend bill usage: cost, price
: quota quotas offers: zones
: completions autocomplete: completion bash
data: list datasets: data ls
data: delete remove destroy del: data rm
data: create add put push convert import: data upload
data: download get: data pull, data fetch
data: show info stat status: data describe
data: cat preview view: data head
data: check validate: data verify
runs: list ls show: runs
runs: rm delete remove: rm
runs: prune clean cleanup: runs gc
config: list get view ls: config show
sim: up run launch create: sim start
sim: down kill shutdown: sim stop
sim: delete rm destroy clean clear: sim reset
sim: ps ls list info show: sim status
sim: faults inject chaos: sim fault
sim: log: sim logs
sim fault: list show status: sim fault ls
sim fault: delete remove clear del: sim fault rm
sim fault: create inject new: sim fault add
"""
"""Group: words that users of gcloud, kubectl, Slurm, Docker and SkyPilot type: the commands that do it."""
WORDS = [
    (group, word, tuple(commands.split(", ")))
    for group, words, commands in (line.split(": ") for line in MEANINGS.strip().splitlines())
    for word in words.split()
]
OPTIONS = """
--region --location: --zone
--project-id --project_id: --project
--preemptible --preemptable: --spot
--force --quiet --assume-yes --auto-approve -q -f: --yes
--output --format -o: --json
--version --runtime-version --image: --runtime
--dryrun --what-if --noop: --dry-run
--watch -w: --follow
--lines --last: --tail
--num --limit --number: --count
--dest --out --directory --target-dir: --to
"""
"""Options that they type: the option that does it, where the command has that."""
PATHS = {" ".join(path) for path, _ in LEAVES}
GROUPS = ((), ("data",), ("config",), ("sim",), ("sim", "fault"))


def test_a_word_of_other_programs_names_commands_that_exist(tpuctl: Tpuctl) -> None:
    for group, word, commands in WORDS:
        result = tpuctl(*group.split(), word)
        place = f" in 'tpuctl {group}'" if group else ""
        quoted = " or ".join(f"'tpuctl {command}'" for command in commands)
        assert result.code == 2, word
        assert f"Error: There is no command '{word}'{place}. Did you mean {quoted}?" in result.err
        for command in commands:
            names = command.partition(" -")[0].removesuffix(" bash")
            assert names in {*PATHS, "sim fault", "--version"}, command


def test_each_word_is_known_by_itself() -> None:
    """A word that is missing would be taken for the nearest one."""
    assert {(group, word) for group, word, _ in WORDS} == {
        (group, word) for group, table in COMMAND_HINTS.items() for word in table
    }


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


@pytest.mark.parametrize("line", OPTIONS.strip().splitlines())
def test_an_option_of_other_programs_names_the_one_that_does_it(line: str) -> None:
    typed, own = line.split(": ")
    command = click.Command("x", params=[click.Option([own]), click.Option(["--far-from-all"])])
    for option in typed.split():
        for word in (option, option.upper()):
            error = with_known_option(click.NoSuchOption(word, ctx=click.Context(command)))
            assert error.format_message() == f"No such option '{word}'. Did you mean '{own}'?"


def test_an_option_without_a_command_or_like_no_other_has_no_guess() -> None:
    error = click.NoSuchOption("--force")
    assert with_known_option(error) is error
    error = with_known_option(click.NoSuchOption("--force", ctx=click.Context(click.Command("x"))))
    assert error.format_message() == "No such option '--force'."


def test_every_option_of_the_table_belongs_to_a_command() -> None:
    own = {option for _, command in LEAVES for parameter in command.params for option in parameter.opts}
    assert set(OPTION_HINTS.values()) <= own


def test_the_hint_is_in_the_json_of_the_error(tpuctl: Tpuctl) -> None:
    result = tpuctl("down", "--force", "--json")
    message = "No such option '--force'. Did you mean '--yes'?"
    error = {"kind": "usage", "message": message, "hint": "", "exit_code": 2}
    assert result.json == {"schema": 1, "error": error}
    usage = "Usage: tpuctl down [OPTIONS] [NAMES]...\nTry 'tpuctl down --help' for help.\n\n"
    assert result.err == f"{usage}Error: {message}\n"


def test_help_is_there_under_three_names(tpuctl: Tpuctl) -> None:
    for path in (*GROUPS, *(path for path, _ in LEAVES)):
        page = tpuctl(*path, "--help")
        assert page.code == 0, path
        assert tpuctl(*path, "-h") == page, path
        assert tpuctl("help", *path) == page, path


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
