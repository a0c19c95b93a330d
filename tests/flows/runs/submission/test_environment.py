"""The variables of a script, from options, files and the shell; no refusal quotes a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuctl.errors import UsageError
from tpuctl.flows.runs.submission import environment
from tpuctl.flows.runs.submission.environment import (
    check_values,
    parse_environment,
    parse_secrets,
    read_environment_file,
    stored_environment,
    variables_of,
)
from tpuctl.runs import NOT_STORED

SHELL = {"API_KEY": "of the shell", "EMPTY": ""}
VALUE = "s3cr3t-value"


def refused(error: pytest.ExceptionInfo[UsageError]) -> str:
    """Return message and hint, which quote no value."""
    text = f"{error.value.message} {error.value.hint}"
    assert VALUE not in text
    return text


class TestOptions:
    @pytest.mark.parametrize(
        ("pair", "variables"),
        [
            ("A=b", {"A": "b"}), ("A=", {"A": ""}), ("A=b=c", {"A": "b=c"}), ("_a1=b", {"_a1": "b"}),
            ("API_KEY", {"API_KEY": "of the shell"}), ("EMPTY", {"EMPTY": ""}), ("A=@file", {"A": "@file"}),
            ("A" * 255 + "=b", {"A" * 255: "b"}), ("Ä=b", {"Ä": "b"}),
        ],
    )  # fmt: skip
    def test_a_variable_has_the_value_that_is_given_or_that_of_the_shell(
        self, pair: str, variables: dict[str, str]
    ) -> None:
        assert parse_environment([pair], SHELL) == variables

    @pytest.mark.parametrize(
        "pair", [f"={VALUE}", f"1A={VALUE}", f"A B={VALUE}", f"A-B={VALUE}", "", "A" * 256]
    )
    def test_what_begins_with_no_name_is_refused(self, pair: str) -> None:
        with pytest.raises(UsageError) as error:
            parse_environment([pair], {pair: VALUE})
        assert refused(error).startswith(
            "The value of --env does not begin with the name of a variable. Write --env "
        )

    def test_a_variable_that_the_shell_does_not_have_is_named(self) -> None:
        with pytest.raises(UsageError) as error:
            parse_environment(["A=b", "OTHER"], SHELL)
        assert refused(error) == (
            "This shell has no variable OTHER, which --env OTHER passes on. "
            "Export it first, or write --env OTHER=VALUE"
        )

    def test_the_later_of_two_counts_and_options_before_files(self, tmp_path: Path) -> None:
        first, second = tmp_path / "first", tmp_path / "second"
        first.write_text("A=1\nB=1\nC=1\n")
        second.write_text("B=2\nC=2\n")
        variables = variables_of(["C=3", "D=3", "D=4"], [first, second], ["API_KEY"], [], SHELL)
        assert variables == {"A": "1", "B": "2", "C": "3", "D": "4", "API_KEY": "of the shell"}


class TestSecrets:
    @pytest.mark.parametrize(
        ("content", "value"), [("x", "x"), ("x\n", "x"), ("x\n\n", "x\n"), (" x ", " x "), ("", "")]
    )
    def test_the_value_is_what_a_file_has_without_its_last_newline(
        self, tmp_path: Path, content: str, value: str
    ) -> None:
        (tmp_path / "file").write_text(content)
        assert parse_secrets([f"A=@{tmp_path / 'file'}", "API_KEY"], SHELL) == {
            "A": value, "API_KEY": "of the shell",
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("pair", "text"),
        [
            (f"A={VALUE}", "--secret A has its value on the command line. Write --secret API_KEY for"),
            ("A=", "--secret A has its value on the command line."),
            (f"1={VALUE}", "The value of --secret does not begin with the name of a variable. Write "),
            ("OTHER", "This shell has no variable OTHER, which --secret OTHER passes on. "
                      "Export it first, or write --secret OTHER=@FILE"),
        ],
    )  # fmt: skip
    def test_a_value_on_the_command_line_is_refused(self, pair: str, text: str) -> None:
        with pytest.raises(UsageError) as error:
            parse_secrets([pair], SHELL)
        assert refused(error).startswith(text)

    def test_one_name_is_given_once(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_text(f"A={VALUE}\n")
        for pairs, files in ((["API_KEY"], []), ([], [file])):
            name = "API_KEY" if pairs else "A"
            with pytest.raises(UsageError) as error:
                variables_of(pairs, files, [name], [], {**SHELL, "A": VALUE})
            assert refused(error) == f"{name} is given by --secret and by --env or --env-file. Give it once."

    def test_none_is_stored(self) -> None:
        with pytest.raises(UsageError, match=r"^--store-env API_KEY would store a secret"):
            variables_of(["A=b"], [], ["API_KEY"], ["A", "API_KEY"], SHELL)


class TestFile:
    @pytest.mark.parametrize(
        ("line", "variables"),
        [
            ("A=b", {"A": "b"}), (" export A=b", {"A": "b"}), ("export  A = b ", {"A": "b"}), ("", {}),
            ("# A=b", {}), ("  #A=b", {}), ("A=b # c", {"A": "b # c"}), ("EMPTY", {"EMPTY": ""}),
            ("API_KEY", {"API_KEY": "of the shell"}),
            ("A='b c'", {"A": "b c"}), ('A="b"', {"A": "b"}), ("A='b\"", {"A": "'b\""}), ("A='", {"A": "'"}),
            ("A=''", {"A": ""}), ("A='b'c", {"A": "'b'c"}), ("A=bb", {"A": "bb"}), ("A=$B", {"A": "$B"}),
            ("A=", {"A": ""}), ("A=b=c", {"A": "b=c"}),
        ],
    )  # fmt: skip
    def test_a_line_is_a_variable_a_comment_or_empty(
        self, tmp_path: Path, line: str, variables: dict[str, str]
    ) -> None:
        (tmp_path / "file").write_text(f"{line}\n")
        assert read_environment_file(tmp_path / "file", SHELL) == variables

    @pytest.mark.parametrize(
        "line", ["OTHER", f"1={VALUE}", f"={VALUE}", f"export={VALUE} A", f"A B={VALUE}"]
    )
    def test_any_other_line_is_named_by_its_number(self, tmp_path: Path, line: str) -> None:
        file = tmp_path / "file"
        file.write_text(f"# first\n\nexport A=b\n{line}\n")
        if line.startswith("export"):
            assert read_environment_file(file, SHELL)["export"] == f"{VALUE} A"
            return
        with pytest.raises(UsageError) as error:
            read_environment_file(file, SHELL)
        assert refused(error) == (
            f"Line 4 of {file} is neither KEY=VALUE nor the name of a variable of this shell. "
            "Write lines such as LEARNING_RATE=0.1"
        )

    def test_a_file_has_128_kib_at_most(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_text("A=" + "x" * (128 * 1024 - 2))
        assert len(read_environment_file(file, SHELL)["A"]) == 128 * 1024 - 2
        file.write_text("A=" + "x" * (128 * 1024 - 1))
        with pytest.raises(UsageError, match="is larger than 128 KiB"):
            read_environment_file(file, SHELL)

    def test_what_cannot_be_read_is_named(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        with pytest.raises(UsageError, match=f"^{file} cannot be read: No such file or directory"):
            read_environment_file(file, SHELL)
        file.write_bytes(b"A=\xff\n")
        with pytest.raises(UsageError, match=f"^{file} is not a text file"):
            read_environment_file(file, SHELL)


def test_a_value_that_no_process_can_have_is_refused() -> None:
    check_values({"A": "b", "B": "", "C": "\n\x01"})
    with pytest.raises(UsageError, match=r"^The value of B holds a NUL character"):
        check_values({"A": "b", "B": f"{VALUE}\0"})


def test_the_bucket_gets_the_values_that_are_to_be_stored_and_the_names_of_the_others() -> None:
    variables = {"A": "1", "B": "2", "C": "3"}
    assert stored_environment(variables, ["C", "A"]) == {"A": "1", "B": NOT_STORED, "C": "3"}
    assert stored_environment(variables, []) == dict.fromkeys(variables, NOT_STORED)
    with pytest.raises(UsageError) as error:
        environment.stored_environment(variables, ["A", "D"])
    assert refused(error) == (
        "--store-env D stores the value of a variable that the script does not get. Add --env D=VALUE"
    )
