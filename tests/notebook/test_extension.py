"""Tests the magics of a notebook without a kernel: options, scripts of cells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tpuctl import job_header, notebook
from tpuctl.client.records import Progress
from tpuctl.errors import StateError, UsageError
from tpuctl.notebook import CellOptions, Magics, read_options, script_text, written

CELL = "print('hello')"


class Client:
    """Stands in for the client, whose own tests have the calls: notes them, and answers at once."""

    target = "sim"

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.warn = warn
        self.calls: list[tuple[str, Any]] = []
        self.error: Exception | None = None

    def submit(self, script: Path, arguments: tuple[str, ...], *, progress: Any, **options: Any) -> Any:
        self.calls.append(("submit", (Path(script).read_text(), arguments, options)))
        progress(Progress("creating the run"))
        progress(Progress("sending", done=0, total=9))
        return SimpleNamespace(name="r1", follow=self.follow)

    def follow(self, *, live: bool) -> Any:
        self.calls.append(("follow", live))
        return SimpleNamespace(error=self.error)

    def nodes(self) -> str:
        return "the nodes"

    def runs(self, *, limit: int) -> str:
        return f"{limit} runs"

    def close(self) -> None:
        self.calls.append(("close", None))


@pytest.fixture
def opened(home: Path, monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """The clients that were opened."""
    clients: list[Client] = []

    def open_client(*, warn: Callable[[str], None]) -> Client:
        clients.append(Client(warn))
        return clients[-1]

    monkeypatch.setattr(notebook, "Client", open_client)
    return clients


def submitted(client: Client) -> tuple[str, tuple[str, ...], dict[str, Any]]:
    ((_, call),) = [call for call in client.calls if call[0] == "submit"]
    return call  # type: ignore[no-any-return]


def test_a_cell_without_options_is_followed(opened: list[Client], capsys: pytest.CaptureFixture[str]) -> None:
    run = Magics().run_cell("", CELL)
    (client,) = opened
    text, arguments, options = submitted(client)
    assert CELL in text
    assert (arguments, options) == ((), {"environment": {}, "secrets": {}, "include": ()})
    assert client.calls[1:] == [("follow", False)]
    assert run is not None
    assert run.name == "r1"
    assert capsys.readouterr().out == (
        "[sim] simulated TPUs and storage on this machine: nothing bills\ncreating the run\n"
    )


def test_each_option_is_one_of_the_submission(opened: list[Client], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret value")
    line = (
        "--node n1 --accelerator v3-8 --dataset digits --name mine --env A=1 --secret TOKEN --include lib "
        "--setup make --dependency numpy --framework jax -- --rate 0.1"
    )
    Magics().run_cell(line, CELL)
    text, arguments, options = submitted(opened[0])
    assert arguments == ("--rate", "0.1")
    assert options == {
        "environment": {"A": "1"}, "secrets": {"TOKEN": "secret value"}, "include": ("lib",),
        "name": "mine", "node": "n1", "accelerator": "v3-8", "dataset": "digits", "setup": "make",
    }  # fmt: skip
    assert "numpy" in text
    assert "jax" in text
    assert "secret value" not in text


def test_a_detached_cell_is_not_followed(opened: list[Client]) -> None:
    assert Magics().run_cell("-d", CELL)
    assert [name for name, _ in opened[0].calls] == ["submit"]


def test_a_run_that_failed_is_its_error(opened: list[Client]) -> None:
    cells = Magics()
    cells.run_cell("", CELL)
    opened[0].error = StateError("Run 'r1' has failed.")
    with pytest.raises(StateError) as failed:
        cells.run_cell("", CELL)
    assert failed.value is opened[0].error
    assert hasattr(failed.value, "_render_traceback_"), "IPython shows it in two lines"
    assert len(opened) == 1, "the cells of a notebook share a client"


def test_an_option_that_is_none_opens_no_client(
    opened: list[Client], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError) as refused:
        Magics().run_cell("--nodes n1", CELL)
    assert hasattr(refused.value, "_render_traceback_")
    assert Magics().run_cell("--help", CELL) is None
    assert "%%tpu [OPTIONS] [-- ARGUMENTS]" in capsys.readouterr().out
    assert opened == []


def test_a_line_shows_nodes_and_the_newest_five_runs(
    opened: list[Client], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("IPython", reason="IPython is not installed here")
    Magics().show_status("  ")
    assert capsys.readouterr().out.splitlines()[1:] == ["the nodes", "5 runs"]


@pytest.mark.parametrize("line", ["-h", " --help "])
def test_the_help_of_a_line(opened: list[Client], capsys: pytest.CaptureFixture[str], line: str) -> None:
    Magics().show_status(line)
    assert capsys.readouterr().out == (
        "%tpu lists TPUs and the newest runs; %%tpu runs a cell: %%tpu --help\n"
    )
    assert opened == []


def test_a_line_takes_no_options(opened: list[Client]) -> None:
    with pytest.raises(UsageError) as refused:
        Magics().show_status(" --node n1 ")
    assert refused.value.message == "%tpu takes no options: --node n1."
    assert refused.value.hint == "A cell is run by %%tpu."
    assert hasattr(refused.value, "_render_traceback_")


def test_warnings_are_lines_and_a_real_tpu_is_no_simulation(
    opened: list[Client], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Client, "target", "gcp")
    Magics().run_cell("-d", CELL)
    opened[0].warn("the quota is nearly used")
    assert capsys.readouterr().out == "creating the run\nWarning: the quota is nearly used\n"


class Shell:
    """As much of an IPython as the extension uses."""

    def __init__(self) -> None:
        self.magics_manager = SimpleNamespace(magics={"cell": {}, "line": {}})

    def register_magic_function(self, function: Callable[..., Any], kind: str, name: str) -> None:
        self.magics_manager.magics[kind][name] = function


def test_the_extension_is_loaded_and_unloaded_with_its_client(
    opened: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_exit: list[Any] = []
    registry = SimpleNamespace(register=at_exit.append, unregister=at_exit.remove)
    monkeypatch.setattr(notebook, "atexit", registry)
    shell = Shell()
    notebook.load(shell)
    registered = shell.magics_manager.magics
    registered["cell"]["tpu"]("-d", CELL)
    assert registered["line"]["tpu"].__name__ == "show_status"
    assert len(at_exit) == 1
    notebook.unload(shell)
    assert registered == {"cell": {}, "line": {}}
    assert at_exit == []
    assert opened[0].calls[-1] == ("close", None)
    notebook.unload(shell)
    assert [name for name, _ in opened[0].calls] == ["submit", "close"]


def test_a_client_is_closed_once_and_another_is_opened_by_the_next_cell(opened: list[Client]) -> None:
    cells = Magics()
    cells.close()
    for _ in range(2):
        cells.run_cell("-d", CELL)
        cells.close()
        cells.close()
    assert [[name for name, _ in client.calls] for client in opened] == [["submit", "close"]] * 2


def test_a_line_without_options_leaves_all_to_the_cell() -> None:
    assert read_options("") == CellOptions()


def test_options_are_those_of_submit_and_arguments_follow_dashes() -> None:
    options = read_options(
        "--node n1 --dataset digits/v2 --name r1 --env A=1 --env B='x y' --dependency numpy "
        "--dependency 'jax>=0.5' --framework jax --include data.txt -d -- --epochs 3 --node"
    )
    assert options == CellOptions(
        node="n1", dataset="digits/v2", name="r1", environment=("A=1", "B=x y"),
        dependencies=("numpy", "jax>=0.5"), framework="jax", include=("data.txt",), is_detached=True,
        arguments=("--epochs", "3", "--node"),
    )  # fmt: skip


def test_a_variable_without_a_value_has_that_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "here")
    assert read_options("--env PLACE --env EMPTY= --env A=b=c").variables() == {
        "PLACE": "here", "EMPTY": "", "A": "b=c",
    }  # fmt: skip
    with pytest.raises(UsageError, match="NOWHERE has no value"):
        read_options("--env NOWHERE").variables()


def test_a_secret_has_its_value_in_the_kernel_and_never_in_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "abc")
    assert read_options("--secret TOKEN").secret_values() == {"TOKEN": "abc"}
    with pytest.raises(UsageError, match="NOWHERE has no value"):
        read_options("--secret NOWHERE").secret_values()
    with pytest.raises(UsageError, match="would keep the value of the secret TOKEN") as raised:
        read_options("--secret TOKEN=abc").secret_values()
    assert "abc" not in raised.value.message + raised.value.hint


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("--nod n1", "unrecognized arguments: --nod n1", "Did you mean --node?"),
        ("n1", "unrecognized arguments: n1", "All options: %%tpu --help"),
        ("--node", "expected one argument", "All options: %%tpu --help"),
        ("--framework mxnet", "invalid choice", "All options: %%tpu --help"),
        ("--name 'r1", "No closing quotation", "All options: %%tpu --help"),
    ],
)
def test_a_wrong_option_is_an_error_and_ends_no_process(line: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_options(line)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_help_lists_every_option_with_an_example() -> None:
    text = read_options("--node n1 --help").help
    assert "%%tpu [OPTIONS] [-- ARGUMENTS]" in text
    assert "--dependency PACKAGE" in text
    assert "Example:\n  %%tpu --node n1" in text


IPYTHON = "The hosts run plain Python: commands of IPython (! and %) are for other cells."


def test_lines_keep_their_numbers_below_the_line_of_the_magic() -> None:
    assert script_text("print(1)\nprint(2)").splitlines() == [
        "# a cell of a notebook",
        "print(1)",
        "print(2)",
    ]


def test_dependencies_and_framework_become_a_header_at_the_end() -> None:
    text = script_text("import numpy\n", ["numpy", "jax[tpu]>=0.5; python_version > '3'"], "jax")
    header = job_header.parse(text, "x")
    assert header.dependencies == ("numpy", "jax[tpu]>=0.5; python_version > '3'")
    assert header.tpuctl.framework == "jax"
    assert text.splitlines()[1] == "import numpy"
    compile(text, "x", "exec")


def test_the_header_of_a_cell_counts_and_no_option_adds_to_it() -> None:
    cell = '# /// script\n# dependencies = ["numpy"]\n# ///\nimport numpy\n'
    assert job_header.parse(script_text(cell), "x").dependencies == ("numpy",)
    with pytest.raises(UsageError, match="The cell has a header, and %%tpu has --dependency"):
        script_text(cell, ["scipy"])
    with pytest.raises(UsageError, match="--framework"):
        script_text(cell, framework="jax")


@pytest.mark.parametrize(
    ("cell", "message", "hint"),
    [
        ("a = 1\nif a\n", "line 3: expected ':': if a", "Nothing was sent."),
        ("!ls\n", "line 2: invalid syntax: !ls", f"Nothing was sent. {IPYTHON}"),
        ("%time f()\n", "line 2: invalid syntax: %time f()", f"Nothing was sent. {IPYTHON}"),
        ("x = (\n", "was never closed", "Nothing was sent."),
        ("x = '\0'\n", "null bytes", "Nothing was sent."),
    ],
)
def test_a_syntax_error_is_said_with_its_line(cell: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        script_text(cell)
    assert message in raised.value.message
    assert raised.value.hint == hint


def test_code_for_another_python_is_left_to_it() -> None:
    cell = '# /// script\n# requires-python = ">=3.99"\n# ///\nnew syntax\n'
    assert "new syntax" in script_text(cell)


def test_warnings_of_the_compiler_are_for_the_run() -> None:
    assert script_text("x = 1 is 1\n")


def test_the_script_is_deleted_and_replaces_no_file(tmp_path: Path) -> None:
    (tmp_path / "tpu_cell.py").write_text("mine")
    with written("a", tmp_path) as first, written("b", tmp_path) as second:
        assert (first.name, second.name) == ("tpu_cell_2.py", "tpu_cell_3.py")
        assert first.read_text() == "a"
    assert [path.name for path in tmp_path.iterdir()] == ["tpu_cell.py"]
    assert (tmp_path / "tpu_cell.py").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"cannot be written to .*missing"),
        written("a", tmp_path / "missing"),
    ):
        pass
