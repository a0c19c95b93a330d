"""What a program imports through its project, and which imports nothing on a host provides."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuctl.flows.runs.code.project_imports import distribution_of, follow, imports, missing

TRAIN = """
import os, jax, PIL.Image, wandb
from sklearn import svm
from pkg.model import net
try:
    import tensorboardX
except ImportError:
    pass
if os.name == "nt":
    import winning
def main():
    import lazy
"""
FILES = {
    "train.py": TRAIN, "pkg/__init__.py": "from .layers import x", "pkg/layers.py": "import haiku, beside",
    "pkg/model.py": "from .layers import x\nif TYPE_CHECKING:\n    import typed\n",
    "tools/beside.py": "",
}  # fmt: skip


def found(folder: Path, *distributions: str, image: tuple[str, ...] = ()) -> set[str]:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    sources = follow([(folder / "train.py", TRAIN.encode())], [folder])
    assert {source.file for source in sources} >= {folder / "pkg/layers.py", folder / "pkg/model.py"}
    return set(missing(sources, list(FILES), distributions, image, ["jax"]))


def test_what_is_surely_needed_and_nowhere_is_named(tmp_path: Path) -> None:
    assert found(tmp_path) == {"PIL", "sklearn", "wandb", "haiku"}


@pytest.mark.parametrize(
    ("distributions", "image", "left"),
    [
        (("scikit-learn", "dm-haiku", "WandB", "jax"), ("pillow",), set()),
        (("scikit-learn", "some-toolbox"), (), {"wandb", "haiku"}),  # which may bring Pillow
        (("jax", "numpy"), ("pyyaml",), {"PIL", "sklearn", "wandb", "haiku"}),
    ],
)
def test_distributions_have_modules_of_other_names(
    tmp_path: Path, distributions: tuple[str, ...], image: tuple[str, ...], left: set[str]
) -> None:
    assert found(tmp_path, *distributions, image=image) == left


def test_what_packages_of_public_repositories_bring_along_is_not_missed(tmp_path: Path) -> None:
    text = b"import dm_env, omegaconf, ruamel.yaml, seaborn, _XLAC"
    sources = follow([(tmp_path / "a.py", text)], [tmp_path])
    brought = ["dm-control", "hydra-core", "elements", "mine[notebooks]"]
    assert missing(sources, ["a.py"], brought, (), ()) == {}
    assert len(missing(sources, ["a.py"], ["numpy"], (), ())) == 4


def test_the_place_of_the_first_import_and_what_has_it_are_known(tmp_path: Path) -> None:
    source = b"\nimport cv2\nimport yaml\n"
    places = missing(follow([(tmp_path / "a.py", source)], [tmp_path]), ["a.py"], (), (), ())
    assert places == {"cv2": (tmp_path / "a.py", 2), "yaml": (tmp_path / "a.py", 3)}
    assert [distribution_of(name) for name in ("cv2", "yaml", "google", "my_own")] == [
        "opencv-python", "pyyaml", "protobuf", "my-own",
    ]  # fmt: skip


def test_an_expression_of_two_thousand_terms_is_no_obstacle() -> None:
    source = b"x = " + b"+".join([b"1"] * 2000) + b"\ndef f():\n  match x:\n    case 1:\n      import jax\n"
    assert [(each.name, each.is_needed) for each in imports(source)] == [("jax", False)]
