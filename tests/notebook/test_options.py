"""Tests the options of `%%tpu`."""

from __future__ import annotations

import pytest

from tpuctl.errors import UsageError
from tpuctl.notebook.options import CellOptions, read_options


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
