"""Looks up known vulnerabilities of the pinned packages: `make audit`, and a part of `make check`.

Without a network, or with an index that has no advisories, it says so and does not fail.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

from tests.paths import ROOT

COMMAND = (
    sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps", "--progress-spinner", "off",
    "--timeout", "5", "--format", "json", "--requirement", str(ROOT / "constraints.txt"),
)  # fmt: skip
"""Sends names and versions of constraints.txt to PyPI, and nothing of this machine."""
TIMEOUT = 60.0
"""Seconds for all packages."""
UNREACHABLE = "The advisory database could not be reached: no package was audited"


@dataclass(frozen=True)
class Audit:
    """What to print, and whether it is a failure."""

    text: str
    failed: bool = False


def judge(document: str, reason: str = "") -> Audit:
    """Return the result of pip-audit's JSON; `reason` says why there is none."""
    try:
        packages = json.loads(document)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return Audit(
            f"{UNREACHABLE} ({reason.strip().splitlines()[-1][:200] if reason.strip() else 'no answer'})."
        )
    audited = [package for package in packages if "vulns" in package]
    vulnerable = [
        f"{package['name']} {package['version']}: {vulnerability['id']}, fixed in "
        f"{', '.join(vulnerability['fix_versions']) or 'no version yet'}"
        for package in audited
        for vulnerability in package["vulns"]
    ]
    if vulnerable:
        return Audit("\n".join(["Known vulnerabilities in constraints.txt:", *vulnerable]), failed=True)
    if not audited:
        return Audit(f"{UNREACHABLE} (the index has no advisories for {len(packages)} packages).")
    return Audit(f"No known vulnerabilities in {len(audited)} of {len(packages)} packages.")


def audit() -> Audit:
    """Run pip-audit and judge its result."""
    try:
        process = subprocess.run(COMMAND, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return Audit(f"{UNREACHABLE} (no answer in {TIMEOUT:.0f} s).")
    if "No module named pip_audit" in process.stderr:
        return Audit("pip-audit is not installed: run make again with a new .venv.", failed=True)
    return judge(process.stdout, process.stderr)
