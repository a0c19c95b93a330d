"""Copies of the checkout, each with a Python that imports the package from the copy and nowhere else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.mutants import Mutant
from tests.paths import ROOT


@dataclass(frozen=True)
class Checkout:
    """A copy of a folder of code and tests."""

    folder: Path
    python: Path

    @contextmanager
    def planted(self, *mutants: Mutant) -> Iterator[None]:
        """Have mistakes in the copy while the block runs."""
        sources = {mutant.file: (self.folder / mutant.file).read_text() for mutant in mutants}
        try:
            for mutant in sorted(mutants, reverse=True):  # the end of a line first: columns before it stay
                path = self.folder / mutant.file
                path.write_text(mutant.applied(path.read_text()))
            yield
        finally:
            for name, source in sources.items():
                (self.folder / name).write_text(source)


@contextmanager
def checkouts(number: int) -> Iterator[list[Checkout]]:
    """Copy the files that git knows, as they are now."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        copies = [Path(folder, str(index), "checkout") for index in range(number)]
        for copy in copies:
            for name in filter(None, names):
                if (ROOT / name).is_file():
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / name, copy / name)
        yield [Checkout(copy, environment(copy.parent / "environment", copy)) for copy in copies]


def environment(folder: Path, code: Path) -> Path:
    """Make a virtual environment with this one's packages, but the code of a copy, and return its Python.

    PYTHONPATH would not do: a program on a simulated host does not inherit it.
    """
    packages = sysconfig.get_path("purelib")
    inside = folder / Path(packages).relative_to(sys.prefix)
    inside.mkdir(parents=True)
    # a line in a .pth file adds a folder, but none of its own .pth files, so not this checkout
    (inside / "copy.pth").write_text(f"{code}\n{packages}\n")
    shutil.copy2(Path(sys.prefix, "pyvenv.cfg"), folder)
    (folder / "bin").mkdir()
    for program in Path(sys.prefix, "bin").iterdir():
        _add(program, folder / "bin" / program.name)
    return folder / "bin" / "python"


def _add(program: Path, place: Path) -> None:
    """Add a program to an environment: a script of Python with the environment's own Python."""
    head = f"#!{sys.prefix}/bin/python".encode()
    if program.is_symlink():
        place.symlink_to(os.path.realpath(program))
    elif program.is_file() and (content := program.read_bytes()).startswith(head):
        place.write_bytes(content.replace(head, f"#!{place.parent}/python".encode(), 1))
        place.chmod(0o755)
    elif program.is_file():
        place.symlink_to(program)
