"""PEP 723 headers: the specification's own examples, and errors in headers."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.paths import ROOT
from tpuctl import job_header
from tpuctl.errors import UsageError
from tpuctl.job_header import Header, ToolTable, parse

FULL = """\
#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = [
#   "tensorflow",
#   "requests<3",
# ]
#
# [tool.tpuctl]
# accelerator = "v3-8"
# dataset = "imagenet"
# framework = "jax"
# ///
\"\"\"A job.\"\"\"
"""
TABLE = ToolTable("v3-8", "imagenet", "jax")


def header(*lines: str) -> str:
    return "\n".join(["# /// script", *lines, "# ///", "print()"])


def test_a_full_header_is_read() -> None:
    assert parse(FULL, "job.py") == Header(
        ">=3.10", ("tensorflow", "requests<3"), TABLE, lists_dependencies=True
    )


def test_the_example_of_the_specification_is_read() -> None:
    text = header(
        '# requires-python = ">=3.11"', "# dependencies = [", '#   "requests<3",', '#   "rich",', "# ]"
    )
    assert parse(text, "job.py") == Header(">=3.11", ("requests<3", "rich"), lists_dependencies=True)


def test_dos_line_ends_make_no_difference() -> None:
    assert parse(FULL.replace("\n", "\r\n"), "job.py") == parse(FULL, "job.py")


def test_a_byte_order_mark_makes_no_difference(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(FULL.split("\n", 1)[1], encoding="utf-8-sig")
    assert parse(path.read_text(encoding="utf-8"), "job.py") == parse(FULL, "job.py")


@pytest.mark.parametrize(
    "dependency",
    ["numpy", "NumPy[extra] >= 1.26, < 3 ; python_version > '3.9'", "own @ https://example.com/own.whl"],
)
def test_every_requirement_of_pep_508_is_read(dependency: str) -> None:
    text = header(f'# dependencies = ["{dependency}"]')
    assert parse(text, "job.py").dependencies == (dependency,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "print('no header')\n",
        "# /// script\n# dependencies = []\n",  # never closed: the specification says to ignore it
        "# /// pyproject\n# dependencies = ['x']\n# ///\n",
        "# /// script\nprint()\n# ///\n",
        " # /// script\n # x = 1\n # ///\n",
    ],
    ids=["empty", "none", "unclosed", "another type", "code inside", "indented"],
)
def test_a_script_without_a_header_has_the_defaults(text: str) -> None:
    assert parse(text, "job.py") == Header()
    assert parse(text, "job.py").tpuctl.framework == ""


def test_a_block_of_another_type_is_left_alone() -> None:
    other = "# /// other\n# not toml at all\n# ///\n\n"
    assert parse(other + FULL, "job.py") == parse(FULL, "job.py")


def test_a_line_of_slashes_inside_the_block_does_not_end_it() -> None:
    """The last line of the comment that could close it does."""
    text = '# /// script\n# dependencies = ["rich"]\n# [tool.other]\n# text = """\n# ///\n# """\n# ///\n'
    assert parse(text, "job.py").dependencies == ("rich",)


def test_two_blocks_are_refused() -> None:
    with pytest.raises(UsageError, match=r"job.py has 2 '# /// script' blocks"):
        parse(FULL + "\n" + FULL, "job.py")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["# dependencies = ["], "header of job.py is wrong"),
        (['# dependencies = "numpy"'], "dependencies"),
        (["# dependencies = [1]"], "dependencies"),
        (["# requires-python = 3.11"], "requires-python"),
        (['# requires-python = "3.x"'], "requires-python is '3.x'"),
        (['# dependencies = ["numpy", "tensorflow 2"]'], "'tensorflow 2' is not a requirement"),
        (['# dependencies = ["./wheels/mine.whl"]'], "'./wheels/mine.whl' is not a requirement"),
        (['# dependencies = ["--pre"]'], "'--pre' is not a requirement"),
        (['# dependencies = ["numpy --find-links=https://evil"]'], "is not a requirement"),
        (['# dependencies = ["numpy\\n--find-links=https://evil"]'], "is not a requirement"),
        (['# dependencies = ["numpy>=1.*"]'], "'numpy>=1.*' is not a requirement"),
        (['# dependencies = ["x @ file:///etc/passwd"]'], "is not a requirement"),
        (['# dependencies = ["x @ git+https://h/x@--upload-pack=y"]'], "its URL holds an option of git"),
        (
            ["# [tool.tpuctl]", '# requirements = "../requirements.lock"'],
            "is not a file in the script's folder",
        ),
        (["# [tool.tpuctl]", '# requirements = "/etc/passwd"'], "is not a file in the script's folder"),
        (["# [tool.tpuctl]", '# acelerator = "v3-8"'], "acelerator"),
        (["# [tool.tpuctl]", "# accelerator = 8"], "accelerator"),
        (["# [tool.tpuctl]", '# framework = "mxnet"'], "framework 'mxnet'"),
        (["# [tool]", "# tpuctl = 1"], "tpuctl"),
    ],
)
def test_an_error_in_a_header_is_named(lines: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=r"job\.py") as refused:
        parse(header(*lines), "job.py")
    assert words in refused.value.message


def test_tables_of_other_tools_are_not_checked() -> None:
    text = header("# [tool.ruff]", "# line-length = 100", "# [tool.tpuctl]", '# dataset = "d"')
    assert parse(text, "job.py").tpuctl == ToolTable(dataset="d")


def test_the_headers_of_our_own_jobs_are_valid() -> None:
    scripts = sorted((ROOT / "jobs").glob("*.py"))
    assert scripts
    for script in scripts:
        assert parse(script.read_text(), script.name).tpuctl.accelerator


def test_variables_of_the_environment_are_texts_with_the_names_of_variables() -> None:
    def parsed(table: str) -> Header:
        return parse(f"# /// script\n# [tool.tpuctl.env]\n# {table}\n# ///\n", "job.py")

    assert parsed('RATE = "0.1"').tpuctl.env == {"RATE": "0.1"}
    with pytest.raises(UsageError, match="is wrong: Expected `str`"):
        parsed("RATE = 0.1")
    with pytest.raises(UsageError, match="'A-B' is not the name of a variable"):
        parsed('"A-B" = "1"')


REFERENCE = re.compile(r"(?m)^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
"""That of PEP 723, which takes a time that grows with the square of a hostile script's length."""


def test_blocks_are_those_of_the_reference_expression() -> None:
    kinds = ("# /// script", "# ///", "#", "# a", "", "x = 1", "## b", "# /// script ", "# ////")
    generator = random.Random(3)
    for _ in range(3000):
        text = "\n".join(
            generator.choices(kinds, weights=(3, 4, 2, 3, 1, 1, 1, 1, 1), k=generator.randint(0, 9))
        )
        expected = [match["content"].removesuffix("\n").split("\n") for match in REFERENCE.finditer(text)]
        assert list(job_header._blocks(text, "job.py")) == expected, text


def test_a_header_without_an_end_in_sight_is_refused() -> None:
    with pytest.raises(UsageError, match=r"The header of job.py is longer than 32768 characters\."):
        parse("# /// script\n" + "# x\n" * 20_000, "job.py")


@pytest.mark.parametrize("line", ["# a = [" + "[" * 9000, "# a = {" + "b = {" * 5000])
def test_a_header_that_is_nested_too_deep_is_wrong(line: str) -> None:
    with pytest.raises(UsageError, match=r"The header of job\.py is wrong: "):
        parse(header(line), "job.py")


@pytest.mark.parametrize(
    "line",
    [
        f"""# dependencies = ["a; {"(" * 900}os_name == 'x'{")" * 900}"]""",
        f'# requires-python = ">={"1" * 5000}"',
        f"# [tool.tpuctl]\n# restarts = 0x{'f' * 5000}",
    ],
    ids=["brackets", "digits", "restarts"],
)
def test_what_packaging_itself_cannot_read_is_wrong(line: str) -> None:
    with pytest.raises(UsageError, match=r"The header of job\.py is wrong: ") as refused:
        parse(header(line), "job.py")
    assert len(refused.value.message) < 3000
