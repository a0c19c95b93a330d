"""A copy of terraform/ where the real terraform runs with the stand-in, and where mistakes are planted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.paths import ROOT

SOURCE = ROOT / "terraform"
EXAMPLES = ("examples/minimal", "examples/complete", "examples/teams")
IMAGE = f"europe-west4-docker.pkg.dev/demo-project-1/tpuctl/tpuctl@sha256:{'0123456789abcdef' * 4}"
"""An image with tpuctl, as the watcher of a test is given one."""
SPARING = {"GOGC": "400"}
"""Terraform collects its garbage less often, which saves a third of its CPU time."""
VARIABLES = {"TF_VAR_project_id": "demo-project-1", "TF_VAR_billing_account": "012345-6789AB-CDEF01"}
OF_EXAMPLES: dict[str, dict[str, object]] = {
    # example: what somebody who applies it passes besides
    "examples/minimal": {"members": ["user:ada@example.com"]},
    "examples/complete": {
        "members": [
            "group:vision@example.com",
            "serviceAccount:trainer@demo-project-1.iam.gserviceaccount.com",
        ],
        "ssh_ranges": ["10.8.0.0/16"],
        "watch": {"owners": ["ada@example.com"], "types": ["v4-8"], "max_price": 20, "image": IMAGE},
    },
    "examples/teams": {
        "teams": {"vision": ["group:vision@example.com"], "speech": ["group:speech@example.com"]}
    },
}
IGNORED = shutil.ignore_patterns(".terraform", ".terraform.lock.hcl", "*.tfstate*", "*.tfvars")


@dataclass(frozen=True)
class Result:
    """The exit code and the output of a terraform command."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All output on one line: terraform breaks lines anywhere, and draws a bar before each."""
        return " ".join((self.out + self.err).replace("│", " ").split())


class Workbench:
    """A copy of terraform/ with its modules installed."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder / "terraform"
        self._environment = environment
        shutil.copytree(SOURCE, self.folder, ignore=IGNORED)

    def run(self, where: str, *arguments: str) -> Result:
        """Run terraform in a folder of the copy, without a terminal."""
        own = {f"TF_VAR_{name}": json.dumps(value) for name, value in OF_EXAMPLES.get(where, {}).items()}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
        process = subprocess.run(
            ["terraform", *arguments],
            cwd=self.folder / where,
            env=inherited | SPARING | VARIABLES | own | self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Result(process.returncode, process.stdout, process.stderr)

    def install(self) -> None:
        """Run terraform init in the root module and the examples."""
        for where in (".", *EXAMPLES):
            result = self.run(where, "init", "-no-color", "-input=false")
            assert result.code == 0, result.text

    @contextmanager
    def changed(self, file: str, old: str, new: str) -> Iterator[None]:
        """Replace the first `old` in a file by `new`, and restore the file at the end."""
        path = self.folder / file
        text = path.read_text()
        assert old in text, f"{file} has no {old!r}"
        path.write_text(text.replace(old, new, 1))
        try:
            yield
        finally:
            path.write_text(text)
