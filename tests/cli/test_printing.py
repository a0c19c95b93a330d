"""One module writes to stdout and stderr, and what it writes is printable."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.pseudo_terminal import in_terminal
from tests.hostile.text import ESCAPES, LEGITIMATE, steers
from tests.paths import ROOT
from tpuctl.cli import output, printing
from tpuctl.cli.layout import GAP, fit
from tpuctl.cli.terminal import display_width, fold

PACKAGE = ROOT / "tpuctl"
WRITES = re.compile(
    r"(?<![.\w])print\(|click\.(s?echo|confirm|prompt|style|edit|progressbar)|sys\.(__)?std(out|err)|Console\("
)
READS_ONLY = re.compile(
    r"sys\.std(out|err)(\.(flush|isatty|fileno)\(\)| if err else sys\.std(out|err))"
    r"|print\(\{read\}\.info\)"  # in a command that is shown
    r"|Console\(file=unguarded\(sys\.stderr\)|for stream in \(sys\.stdout, sys\.stderr\):"
)
"""What may be done with a stream beside writing text to it; the bars of rich show no text from elsewhere."""
PROGRAM_OF_AN_EXPORT = PACKAGE / "flows/runs/archive/compare.py"
"""Runs where the archive of a run was unpacked, never here."""
EVERYTHING = "".join(ESCAPES.values())


def test_only_one_module_writes_to_stdout_and_stderr() -> None:
    elsewhere = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for layer in ("cli", "flows", "cloud", "data", "config", "text")
        for path in sorted((PACKAGE / layer).rglob("*.py"))
        if path not in (PACKAGE / "cli" / "printing.py", PROGRAM_OF_AN_EXPORT)
        for line in path.read_text().splitlines()
        if WRITES.search(READS_ONLY.sub("", line))
    ]
    assert elsewhere == []


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_every_form_of_output_is_printable(escape: str, capfd: pytest.CaptureFixture[str]) -> None:
    output.table((escape, "STATE"), [(escape, "READY"), ("a", escape)])
    output.facts({"name": escape})
    output.note(escape)
    output.note(f"Warning: {escape}")
    output.hint(f"tpuctl logs {escape}")
    output.json({escape: [escape]})
    output.json_line({"text": escape})
    printing.write_block(escape)
    printing.write_log_line(escape, f"[{escape}] ")
    captured = capfd.readouterr()
    assert not steers(captured.out.replace("\n", ""))
    assert not steers(captured.err.replace("\n", ""))


@pytest.mark.parametrize("text", LEGITIMATE.values(), ids=LEGITIMATE)
def test_columns_are_as_wide_as_they_look(text: str) -> None:
    lines = [["NAME", "NEXT"], [text, "|"], ["x", "|"]]
    places = [display_width(line[0]) for line in fit(lines, None)]
    assert len(set(places)) == 1
    assert f"{GAP}|" in GAP.join(list(fit(lines, 200))[1])


def test_a_text_of_wide_characters_is_folded_where_the_terminal_ends() -> None:
    assert all(
        display_width(line) <= 30
        for line in fold("猫 と 犬 の 写真 を 集めた 大きな データセット です " * 3, 30)
    )


LIBRARIES = f"""\
import logging, sys, threading, warnings
from tpuctl.cli import printing
printing.guard()
text = {EVERYTHING!r}
print(text)
sys.stderr.writelines([text])
warnings.warn(text)
logging.getLogger("library").warning(text)
thread = threading.Thread(target=lambda: 1 / 0, name=text)
thread.start()
thread.join()
raise ValueError(text)
"""


def test_what_libraries_write_by_themselves_is_printable() -> None:
    process = subprocess.run([sys.executable, "-c", LIBRARIES], capture_output=True, check=False, timeout=60)
    for data in (process.stdout, process.stderr):
        text = data.decode()
        assert text.count("owned") >= 1
        assert not steers(text.replace("\n", "").replace("\t", ""))
    assert b"ZeroDivisionError" in process.stderr


def test_characters_that_an_encoding_lacks_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    program = "from tpuctl.cli import printing; printing.guard(); printing.write('größer')"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=60)
    assert process.stdout == b"gr\\xf6\\xdfer\n"


def test_a_step_on_a_terminal_is_no_markup(home: Path) -> None:
    program = home / "steps.py"
    program.write_text(
        "from tpuctl.cli.progress import show_steps\n"
        "with show_steps() as report:\n"
        f"    report({ESCAPES['markup']!r})\n"
        f"    report({ESCAPES['clipboard']!r})\n"
    )
    shown = in_terminal(columns=120, program=(str(program),))
    assert "\x1b]" not in shown
    assert "[link=https://example.com]click[/link]" in shown
