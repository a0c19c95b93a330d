"""The files that are packed with a script."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from tpuctl.flows.runs.code import bundles
from tpuctl.flows.runs.code.programs import lone

FILES = {
    "job.py": "import os, models\nfrom training.steps import run\nimport training.speed as speed\n",
    "models.py": "def build():\n    import layers\n",
    "layers.py": "import job, models\n",
    "training/__init__.py": "",
    "training/steps.py": "from . import speed\nimport shapes\n",
    "training/speed.py": "",
    "training/__pycache__/steps.cpython-311.pyc": "",
    "shapes.py": "",
    "other.py": "import training\n",
    "data/train.py": "",
    "steps.py": "",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def names(bundle: bundles.Bundle) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(bundle.data)) as archive:
        return archive.getnames()


def test_the_modules_in_a_scripts_folder_are_packed_with_all_that_they_import(folder: Path) -> None:
    assert names(bundles.pack(lone(folder / "job.py"))) == [
        "job.py",
        "layers.py",
        "models.py",
        "shapes.py",
        "training/__init__.py",
        "training/speed.py",
        "training/steps.py",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "import data\n",  # a folder without __init__.py is no package
        "import numpy, sys\n",
        "from . import models\n",  # a script has no package
        "# import models\n'import models'\n",
        "import models from\n",  # no Python, or that of another version
    ],
    ids=["a folder", "elsewhere", "relative", "not code", "not parsed"],
)
def test_nothing_else_is_packed(folder: Path, text: str) -> None:
    (folder / "job.py").write_text(text)
    assert names(bundles.pack(lone(folder / "job.py"))) == ["job.py"]


@pytest.mark.parametrize(
    "text", ["import plain.deep.tool\n", "from plain import x\n", "from plain.deep.tool import f\n"]
)
def test_a_package_without_an_init_file_is_packed_where_a_module_of_it_is_imported(
    folder: Path, text: str
) -> None:
    for name in ("plain/x.py", "plain/deep/tool.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("import shapes\n")
    (folder / "job.py").write_text(text)
    assert names(bundles.pack(lone(folder / "job.py"))) == [
        "job.py",
        "plain/deep/tool.py",
        "plain/x.py",
        "shapes.py",
    ]


def test_a_folder_that_an_installed_package_wrote_is_not_packed(folder: Path) -> None:
    (folder / "wandb/run-1").mkdir(parents=True)
    (folder / "wandb/run-1/code.py").write_text("")
    (folder / "job.py").write_text("import wandb\nfrom wandb.sdk import init\nfrom wandb import log\n")
    assert names(bundles.pack(lone(folder / "job.py"))) == ["job.py"]


def test_the_same_files_give_the_same_bundle_and_a_changed_module_another(folder: Path) -> None:
    first, second = (bundles.pack(lone(folder / "job.py")) for _ in range(2))
    assert (first.data, first.sha256) == (second.data, second.sha256)
    (folder / "shapes.py").write_text("SIZE = 3\n")
    assert bundles.pack(lone(folder / "job.py")).sha256 != first.sha256


def test_the_progress_of_much_code_is_reported_also_within_a_file_and_that_of_little_is_not(
    folder: Path,
) -> None:
    reports: list[tuple[str, int, int]] = []
    bundles.pack(lone(folder / "job.py"), report=lambda *report: reports.append(report))
    assert reports == []
    (folder / "large").write_bytes(bytes(12_000_000))
    bundles.pack(lone(folder / "job.py"), [folder / "large"], report=lambda *report: reports.append(report))
    assert reports == [("MB of code packed", number, 12) for number in range(1, 13)]
