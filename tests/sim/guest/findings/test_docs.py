"""docs/findings.md is made of the table of findings."""

from __future__ import annotations

import subprocess
import sys

from tests.paths import ROOT
from tpuctl.sim.guest._tpuctl_tpu.findings.catalogue import KINDS, document

DOCUMENT = ROOT / "docs" / "findings.md"


def test_the_document_is_what_the_table_says() -> None:
    command = "python -m tpuctl.sim.guest._tpuctl_tpu.findings > docs/findings.md"
    assert DOCUMENT.read_text() == document(), f"generate it again: {command}"


def test_the_command_that_makes_the_document_prints_it() -> None:
    command = [sys.executable, "-m", "tpuctl.sim.guest._tpuctl_tpu.findings"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == document()


def test_each_code_has_a_meaning_and_a_fix() -> None:
    for code, kind in KINDS.items():
        assert kind.code == code
        assert kind.meaning.endswith(".")
        assert kind.fix.endswith(".")
        assert f"### {code} ({'refused' if kind.refused else 'slow'})" in document()
