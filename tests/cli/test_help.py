"""Help is documentation: every command has a runnable example, and nothing slow is imported to show it."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from tests.paths import ROOT
from tpuctl.cli.groups import CONTEXT
from tpuctl.cli.main import COMMANDS, cli
from tpuctl.data.output.shards import MAX_SIZE, MIN_SIZE, readable_size
from tpuctl.faults import KINDS


def leaves(
    group: click.Group = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    with click.Context(group, **CONTEXT) as ctx:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command
            if isinstance(command, click.Group):
                yield from leaves(command, (*path, name))
            if not isinstance(command, click.Group) or command.invoke_without_command:
                yield (*path, name), command


LEAVES = list(leaves())


def groups() -> list[tuple[str, ...]]:
    """Return the groups that do nothing without a command."""
    found = {path[:depth] for path, _ in LEAVES for depth in range(1, len(path))}
    return sorted(found - {path for path, _ in LEAVES})


@pytest.mark.parametrize("path", groups(), ids=" ".join)
def test_a_group_without_a_command_is_answered_with_its_help(tpuctl, path: tuple[str, ...]) -> None:
    shown = tpuctl(*path)
    assert (shown.code, shown.out) == (2, "")
    assert shown.err == tpuctl(*path, "--help").out


def test_the_help_ends_in_an_example_that_parses() -> None:
    for path, command in LEAVES:
        assert command.help, path
        example = command.help.split("Example:")[1].strip().splitlines()[-1].strip()
        words = shlex.split(re.sub(r'^eval "\$\((.*)\)"$', r"\1", example))
        assert words[: len(path) + 1] == ["tpuctl", *path]
        with click.Context(command, **CONTEXT) as ctx:
            command.make_parser(ctx).parse_args(words[len(path) + 1 :])


def test_an_option_of_the_script_is_not_taken_for_ours(tpuctl) -> None:
    """A mistyped option of tpuctl must not end up with the script, nor the other way round."""
    assert "No such option" in tpuctl("submit", "job.py", "--epochs", "3").err


def test_every_option_has_its_line() -> None:
    options = [
        (path, it) for path, command in LEAVES for it in command.params if isinstance(it, click.Option)
    ]
    assert [(*path, option.name) for path, option in options if not option.help] == []


GROUPS = [(), ("data",), ("config",), ("sim",), ("sim", "fault")]
PAGES = [*GROUPS, *(path for path, _ in LEAVES), *(("sim", "fault", "add", kind) for kind in KINDS)]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_page_is_laid_out_for_the_width_of_its_reader(tpuctl, monkeypatch, columns) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for path in PAGES:
        page = tpuctl(*path, "--help").out
        assert "\b" not in page, path
        assert "\\b" not in page, path
        lines = page.splitlines()
        for number, line in enumerate(lines):
            if re.fullmatch(r"(  )?[A-Z][A-Za-z ]*:", line):
                assert lines[number - 1] == "", f"{path}: no blank line before {line}"
        others = [line for line in lines if not line.lstrip().startswith(("tpuctl ", "eval "))]
        too_long = [line for line in others if len(line) > columns]
        assert too_long == [], f"{path}: only commands to be copied stay in one line"


def test_a_page_has_sizes_in_powers_of_ten_as_the_output_has(tpuctl) -> None:
    assert [path for path in PAGES if re.search(r"\d ?[KMGT]iB", tpuctl(*path, "--help").out)] == []


def test_the_bounds_of_a_shard_are_those_of_the_help(tpuctl) -> None:
    help_text = " ".join(tpuctl("data", "upload", "--help").out.split())
    assert f"Target size of a shard, {readable_size(MIN_SIZE)} to {readable_size(MAX_SIZE)}." in help_text


def test_a_flag_takes_no_value() -> None:
    """Else `tpuctl ls --json` would complain, or take the next argument for its value."""
    flags = {"--json", "--yes", "--dry-run", "--force", "--follow", "--deep"}
    met = []
    for path, command in LEAVES:
        for parameter in command.params:
            for flag in flags.intersection(parameter.opts):
                with click.Context(command, **CONTEXT) as ctx:
                    values, _, _ = command.make_parser(ctx).parse_args([flag, "argument"])
                assert values[str(parameter.name)] is True, (*path, flag)
                met.append(flag)
    assert set(met) == flags


def words(text: str) -> list[str]:
    return [word.strip(".,:()") for word in text.split()]


def test_the_line_in_the_table_shortens_the_first_sentence_of_the_help() -> None:
    """It leaves words out, and has none that the help does not have in this order."""
    with click.Context(cli, **CONTEXT) as ctx:
        for name, (_, line) in COMMANDS.items():
            command = cli.get_command(ctx, name)
            assert command
            assert command.help
            sentence = iter(words(command.help.split("\n\n")[0]))
            assert [word for word in words(line) if word not in sentence] == [], name


def test_the_help_lists_every_command_with_its_line(tpuctl) -> None:
    listing = " ".join(tpuctl("--help").out.partition("Commands:")[2].split())
    assert listing == " ".join(f"{name} {line}" for name, (_, line) in COMMANDS.items())


def test_the_readme_names_every_command() -> None:
    text = (ROOT / "README.md").read_text()
    assert not [path for path, _ in LEAVES if f"tpuctl {' '.join(path)}" not in text]


def modules_after(*arguments: str) -> set[str]:
    """The modules that a process has loaded after running the command line."""
    program = (
        "import sys\nfrom tpuctl.cli.main import run\n"
        f"run({list(arguments)!r})\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return set(result.stderr.splitlines())


def test_help_imports_neither_clients_nor_rich() -> None:
    loaded = modules_after("--help")
    assert not {"google.cloud", "grpc", "paramiko", "rich", "msgspec", "tpuctl.config"} & loaded


def test_to_list_tpus_and_follow_logs_imports_nothing_that_creates_packs_or_draws() -> None:
    program = "import tpuctl.cli.overview, tpuctl.cli.runs.logs, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    unused = (
        "tpuctl.display.markup", "tpuctl.flows.nodes.up",
        "tpuctl.flows.runs.checkpoints", "tpuctl.flows.runs.code.bundles",
        "tpuctl.flows.runs.submission.plan",
    )  # fmt: skip
    assert {*unused} & {*loaded.split()} == set()


@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize(
    "command", [("ls",), ("runs",), ("data", "ls"), ("doctor",), ("up", "v3-8", "--dry-run")], ids=" ".join
)
def test_no_command_imports_tensorflow_and_few_import_much(command: tuple[str, ...]) -> None:
    loaded = modules_after(*command)
    assert not {"tensorflow", "numpy", "keras", "sklearn"} & loaded
    assert ("paramiko" in loaded) == (command[0] == "up")
    if command == ("ls",):
        assert "google.cloud.storage" not in loaded
    if command in (("data", "ls"),):
        assert "google.cloud.tpu_v2" not in loaded
