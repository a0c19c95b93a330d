"""A project's own package: what its metadata says without a run of it, and what hosts have of it.

What a program imports through its project, and which imports nothing on a host provides.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.host.worker.host import SPEC
from tpuctl.errors import UsageError
from tpuctl.flows.runs.code.project_imports import distribution_of, follow, imports, missing
from tpuctl.flows.runs.code.project_lists import find, read
from tpuctl.flows.runs.code.project_package import of_setup
from tpuctl.host.worker.preparation.steps import Prepared, of_job, write_commands
from tpuctl.host.worker.records import COMMAND
from tpuctl.job_header import Header

POETRY = """
[tool.poetry]
name = "mine"
version = "1.2"
packages = [{ include = "mine", from = "lib" }]
[tool.poetry.dependencies]
python = "^3.10"
jax = "^0.4.1"
flax = "~1.2"
numpy = "*"
optax = ">=0.1,<0.3"
clu = { git = "https://github.com/google/CommonLoopUtils.git", rev = "v1" }
tqdm = { version = "4.*", extras = ["x"], markers = "sys_platform == 'linux'" }
rich = { version = "^13", optional = true }
[tool.poetry.extras]
show = ["rich"]
[tool.poetry.group.dev.dependencies]
pytest = "8.0"
"""
SETUP_PY = """
import setuptools
with open("README") as f: text = f.read()
needed = ["clu", unknown(), "jax" ">=0.4"]
base = ["tqdm"]
setuptools.setup(name="mine", version=__version__, long_description=text, package_dir={"": "lib"},
    install_requires=base + needed, extras_require={"train": [f"optax"]},
    entry_points={"console_scripts": ["mine-train = mine.train:main"]})
"""
SETUP_CFG = """
[metadata]
name = mine
version = attr: mine.__version__
[options]
package_dir =
    = lib
install_requires =
    jax==0.3.25
    einops  # shapes
[options.entry_points]
console_scripts =
    mine-train = mine.train:main
"""
PROJECT = """
[build-system]
requires = ["hatchling"]
[project]
name = "Mine"
dynamic = ["version"]
dependencies = ["jax"]
[project.scripts]
mine-train = "mine.train:main"
"""


def write(folder: Path, **files: str) -> Path:
    """Write files; `__` in a name is a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


class TestRequirements:
    def test_of_poetry_are_as_pip_knows_them(self, tmp_path: Path) -> None:
        write(tmp_path, pyproject__toml=POETRY)
        lists = read(tmp_path)
        assert lists.requirements == (
            "jax>=0.4.1,<0.5", "flax>=1.2,<1.3", "numpy", "optax>=0.1,<0.3",
            "clu @ git+https://github.com/google/CommonLoopUtils.git@v1",
            "tqdm[x]==4.* ; sys_platform == 'linux'",
        )  # fmt: skip
        assert (lists.provenance, lists.requires_python) == ("pyproject.toml, [tool.poetry]", ">=3.10,<4")
        more = read(tmp_path, ["show"], ["dev"]).requirements
        assert more[-2:] == ("rich>=13,<14", "pytest==8.0")

    @pytest.mark.parametrize("value", ['"^1 || ^2"', "{ version = 1, extras = 2 }"])
    def test_of_poetry_that_pip_does_not_know_are_refused(self, tmp_path: Path, value: str) -> None:
        write(tmp_path, pyproject__toml=f"[tool.poetry.dependencies]\njax = {value}\n")
        with pytest.raises(UsageError, match=r"pyproject\.toml"):
            read(tmp_path)

    @pytest.mark.parametrize(
        ("files", "wanted", "place"),
        [
            ({"setup__py": SETUP_PY}, ("tqdm", "clu", "jax>=0.4"), "setup.py"),
            ({"setup__cfg": SETUP_CFG, "setup__py": "setup()"}, ("jax==0.3.25", "einops"), "setup.cfg"),
            (
                {"pyproject__toml": '[project]\ndynamic = ["dependencies"]\n', "setup__py": SETUP_PY},
                ("tqdm", "clu", "jax>=0.4"), "setup.py",
            ),
            (
                {
                    "pyproject__toml": '[project]\nname = "mine"\ndynamic = ["dependencies"]\n'
                    '[tool.setuptools.dynamic]\ndependencies = { file = ["needs.txt"] }\n',
                    "needs__txt": "jax\n",
                },
                ("jax",), "pyproject.toml",
            ),
            ({"setup__py": SETUP_PY, "requirements__txt": "flax"}, ("flax",), "requirements.txt"),
        ],
    )  # fmt: skip
    def test_of_setuptools_are_those_that_stand_there(
        self, tmp_path: Path, files: dict[str, str], wanted: tuple[str, ...], place: str
    ) -> None:
        lists = read(write(tmp_path, **files))
        assert (lists.requirements, lists.provenance) == (wanted, place)

    @pytest.mark.parametrize(
        "hook",
        [
            '[tool.hatch.metadata.hooks.requirements_txt.optional-dependencies]\ntpu = ["tpu.txt"]\n',
            '[tool.setuptools.dynamic]\noptional-dependencies.tpu = { file = "tpu.txt" }\n',
        ],
    )
    def test_in_extras_alone_are_told(self, tmp_path: Path, hook: str) -> None:
        text = '[project]\nname = "mine"\ndependencies = []\n'
        write(tmp_path, pyproject__toml=text + hook, tpu__txt="jax\n")
        assert read(tmp_path).notes == ("pyproject.toml lists packages in extras only: --extra tpu",)
        assert read(tmp_path, ["tpu"]).requirements == ("jax",)


def test_no_setup_takes_a_time_that_explodes(tmp_path: Path) -> None:
    names = "".join(f"a{i} = [{f'a{i + 1}, ' * 50}]\nb{i} = f'{f'{{b{i + 1}}}' * 50}'\n" for i in range(40))
    text = f"{names}b40 = 'x'\nc = c + c\nsetup(name='mine', install_requires=a0, x=b0, y=c)\n"
    assert of_setup(write(tmp_path, setup__py=text)).name == "mine"


class TestEditable:
    @pytest.fixture(params=[
        {"pyproject__toml": PROJECT}, {"setup__py": SETUP_PY}, {"setup__cfg": SETUP_CFG},
        {"pyproject__toml": POETRY + '[tool.poetry.scripts]\nmine-train = "mine.train:main"\n'},
    ])  # fmt: skip
    def code(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        """The code of a project on a host."""
        code = write(tmp_path / "attempt/code", **request.param)
        folder = code / (
            "src" if "pyproject__toml" in request.param and "poetry" not in str(request.param) else "lib"
        )
        write(
            folder / "mine", __init____py='__version__ = "1.2"\n', train__py="def main(): print('trains')\n"
        )
        for name, content in find(code, code, Header(lists_dependencies=True)).editables.items():
            (code / name).parent.mkdir(parents=True, exist_ok=True)
            (code / name).write_bytes(content)
        return code

    def test_has_modules_metadata_and_commands_on_a_host(self, code: Path) -> None:
        write_commands(str(code), sys.executable)
        spec = replace(SPEC, kind=COMMAND, script="mine-train")
        environment = of_job(spec, Prepared(), code=str(code))
        lines = "import importlib.metadata as m; print(m.metadata('mine')['Name'].lower())"
        for command, said in ((["python", "-c", lines], "mine\n"), (["mine-train"], "trains\n")):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
            assert done.stdout == said, done.stderr

    def test_of_a_hostile_name_writes_nothing_else(self, tmp_path: Path) -> None:
        write(tmp_path, setup__py='setup(name="../x", entry_points={"console_scripts": ["a/b=c:d"]})')
        assert read(tmp_path).editables == {}
        write(
            tmp_path,
            setup__py='setup(name="x", version="../1", entry_points={"console_scripts": ["../b=c:d"]})',
        )
        assert set(read(tmp_path).editables) == {
            ".tpuctl/x.pth", ".tpuctl/x-0.dist-info/INSTALLER", ".tpuctl/x-0.dist-info/METADATA",
            ".tpuctl/x-0.dist-info/entry_points.txt",
        }  # fmt: skip
        assert read(tmp_path).editables[".tpuctl/x-0.dist-info/entry_points.txt"] == b"[console_scripts]\n"


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
