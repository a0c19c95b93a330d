"""`make audit` fails on a known vulnerability, and says so plainly if nothing could be asked."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tests.audit.advisories import UNREACHABLE, judge
from tests.paths import ROOT

SOUND = {"name": "click", "version": "8.1", "vulns": []}
VULNERABLE = {
    "name": "jinja2", "version": "2.4.1", "vulns": [{"id": "PYSEC-2019-217", "fix_versions": ["2.10.1"]}],
}  # fmt: skip
SKIPPED = {"name": "yarl", "skip_reason": "Dependency not found on PyPI"}


def document(*packages: object) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


def test_a_known_vulnerability_fails_and_is_named_with_its_fix() -> None:
    result = judge(document(SOUND, VULNERABLE, SKIPPED))
    assert result.failed
    assert "jinja2 2.4.1: PYSEC-2019-217, fixed in 2.10.1" in result.text


def test_packages_without_one_pass_and_are_counted() -> None:
    assert judge(document(SOUND, SKIPPED)).text == "No known vulnerabilities in 1 of 2 packages."
    assert not judge(document(SOUND, SKIPPED)).failed


@pytest.mark.parametrize("output", ["", "{}", "[]", document(SKIPPED)])
def test_what_could_not_be_asked_is_said_and_does_not_fail(output: str) -> None:
    result = judge(output, "Traceback\nConnectionError: refused\n")
    assert result.text.startswith(UNREACHABLE)
    assert not result.failed


@pytest.mark.skipif(not importlib.util.find_spec("pip_audit"), reason="pip-audit is not installed")
def test_without_a_network_the_command_succeeds_and_says_so() -> None:
    environment = {**os.environ, "https_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    command = [sys.executable, "-m", "tests.audit"]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(UNREACHABLE)
