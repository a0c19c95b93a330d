"""PEP 723 headers: the specification's own examples, and what can be wrong in one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.paths import ROOT
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
    assert parse(FULL, "job.py") == Header(">=3.10", ("tensorflow", "requests<3"), TABLE)


def test_the_example_of_the_specification_is_read() -> None:
    text = header(
        '# requires-python = ">=3.11"', "# dependencies = [", '#   "requests<3",', '#   "rich",', "# ]"
    )
    assert parse(text, "job.py") == Header(">=3.11", ("requests<3", "rich"))


def test_dos_line_ends_make_no_difference() -> None:
    assert parse(FULL.replace("\n", "\r\n"), "job.py") == parse(FULL, "job.py")


def test_a_byte_order_mark_makes_no_difference(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(FULL.split("\n", 1)[1], encoding="utf-8-sig")
    assert parse(path.read_text(encoding="utf-8"), "job.py") == parse(FULL, "job.py")


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
def test_a_script_without_a_header_says_nothing_of_itself(text: str) -> None:
    assert parse(text, "job.py") == Header()
    assert parse(text, "job.py").tpuctl.framework == "tensorflow"


def test_a_block_of_another_type_is_left_alone() -> None:
    other = "# /// other\n# not toml at all\n# ///\n\n"
    assert parse(other + FULL, "job.py") == parse(FULL, "job.py")


def test_a_line_of_slashes_inside_the_block_does_not_end_it() -> None:
    """The last line of the comment that could close it does."""
    text = '# /// script\n# dependencies = ["""\n# ///\n# """]\n# ///\n'
    assert parse(text, "job.py").dependencies == ("///\n",)


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
        (["# [tool.tpuctl]", '# acelerator = "v3-8"'], "acelerator"),
        (["# [tool.tpuctl]", "# accelerator = 8"], "accelerator"),
        (["# [tool.tpuctl]", '# framework = "mxnet"'], "framework 'mxnet'"),
        (["# [tool]", "# tpuctl = 1"], "tpuctl"),
    ],
)
def test_what_is_wrong_in_a_header_is_named(lines: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=r"job\.py") as refused:
        parse(header(*lines), "job.py")
    assert words in refused.value.message


def test_tables_of_other_tools_are_not_ours_to_judge() -> None:
    text = header("# [tool.ruff]", "# line-length = 100", "# [tool.tpuctl]", '# dataset = "d"')
    assert parse(text, "job.py").tpuctl == ToolTable(dataset="d")


def test_the_jobs_that_come_along_have_headers_that_can_be_read() -> None:
    scripts = sorted((ROOT / "jobs").glob("*.py"))
    assert scripts
    for script in scripts:
        assert parse(script.read_text(), script.name).tpuctl.accelerator
