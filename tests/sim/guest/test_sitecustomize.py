"""The sitecustomize of a simulated host: programs are left alone, pip gets what is here, a disk is full."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host.worker.preparation.wheels import wheel
from tpuctl.sim.guest import FOLDER, environment
from tpuctl.sim.hosts.packages import Packages
from tpuctl.sim.hosts.programs.login import make_python, search_path

LOADED = "import sys; print(*sorted(sys.modules))"
STAND_IN = '__version__ = "9.9.0"\n'
"""A TensorFlow that has nothing of what the emulation needs."""


def run(program: str, *path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("TPU", "PYTHON"))}
    environ["PYTHONPATH"] = os.pathsep.join(map(str, path))
    environ["PYTHONDONTWRITEBYTECODE"] = "1"
    return subprocess.run(
        [sys.executable, "-c", program], env=environ | variables, capture_output=True, text=True, check=False
    )


@pytest.fixture
def tensorflow(tmp_path: Path) -> Path:
    """A folder with the stand-in."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text(STAND_IN)
    return tmp_path


@pytest.mark.parametrize("variables", [{}, {"TPUCTL_SIM_TPU": "v3-8"}])
def test_a_program_without_tensorflow_starts_with_the_same_modules(variables: dict[str, str]) -> None:
    plain = run(LOADED).stdout.split()
    with_guest = run(LOADED, FOLDER, **variables)
    assert with_guest.stderr == ""
    assert set(with_guest.stdout.split()) - set(plain) <= {"sitecustomize"}


def test_without_its_variable_it_does_nothing_to_tensorflow(tensorflow: Path) -> None:
    program = "import sys, tensorflow; print(tensorflow.__version__, len(sys.meta_path))"
    plain, with_guest = run(program, tensorflow), run(program, FOLDER, tensorflow)
    assert with_guest.stdout == plain.stdout
    assert with_guest.stdout.startswith("9.9.0 ")


def test_a_sitecustomize_that_it_hides_is_run_first(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; os.environ['TPUCTL_SIM_TPU'] = 'v9-1'; seen = 1")
    program = "import sys, sitecustomize; print(sitecustomize.seen, type(sys.meta_path[0]).__name__)"
    assert run(program, FOLDER, tmp_path).stdout == "1 _TensorFlowHook\n"


def test_a_broken_sitecustomize_that_it_hides_does_not_cost_the_tpu(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import not_installed")
    completed = run(
        "import sys; print(type(sys.meta_path[0]).__name__)", FOLDER, tmp_path, TPUCTL_SIM_TPU="v3-8"
    )
    assert "not_installed" in completed.stderr
    assert completed.stdout == "_TensorFlowHook\n"


def test_asking_whether_tensorflow_is_there_neither_loads_nor_loses_the_hook(tensorflow: Path) -> None:
    program = (
        "import sys; from importlib.util import find_spec\n"
        "print(find_spec('tensorflow').name, 'tensorflow' in sys.modules)\n"
        "import tensorflow"
    )
    completed = run(program, FOLDER, tensorflow, TPUCTL_SIM_TPU="v3-8")
    assert completed.stdout == "tensorflow False\n"
    assert "TensorFlow 9.9.0" in completed.stderr


def test_a_tensorflow_without_what_is_needed_ends_the_program_with_one_sentence(tensorflow: Path) -> None:
    program = "try:\n    import tensorflow\nexcept Exception:\n    pass\nprint('went on')"
    completed = run(program, FOLDER, tensorflow, TPUCTL_SIM_TPU="v3-8")
    assert completed.returncode == 1
    assert completed.stdout == ""
    assert completed.stderr.startswith(
        "tpuctl simulator: TensorFlow 9.9.0 has no tensorflow.python.eager.context, "
    )
    assert "unset TPUCTL_SIM_TPU" in completed.stderr
    assert len(completed.stderr.splitlines()) == 1


@pytest.mark.parametrize("package", ["tensorflow", "jax"])
def test_a_program_that_has_made_its_own_path_has_the_tpu_too(tensorflow: Path, package: str) -> None:
    (tensorflow / "jax.py").write_text(STAND_IN)
    program = f"import sys; sys.path.remove({str(FOLDER)!r}); import {package}"
    completed = run(program, FOLDER, tensorflow, TPUCTL_SIM_TPU="v9-8")
    assert completed.stderr.startswith("tpuctl simulator: TPUCTL_SIM_TPU=v9-8 is not an accelerator type")


def test_an_unknown_accelerator_ends_the_program_with_one_sentence(tensorflow: Path) -> None:
    completed = run("import tensorflow", FOLDER, tensorflow, TPUCTL_SIM_TPU="v9-8")
    assert completed.returncode == 1
    assert completed.stderr.startswith("tpuctl simulator: TPUCTL_SIM_TPU=v9-8 is not an accelerator type")
    assert len(completed.stderr.splitlines()) == 1


def test_the_environment_of_a_host_names_the_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert environment("v3-32", node="big", cores=4) == {
        "PYTHONPATH": str(FOLDER),
        "TPUCTL_SIM_TPU": "v3-32",
        "TPUCTL_SIM_NODE": "big",
        "TPUCTL_SIM_CORES": "4",
    }


WHERE = "import mdurl, markdown_it; from importlib import metadata as m; print(m.version('mdurl'))"


class Host:
    """A Python with pip alone, in the environment of a host."""

    def __init__(self, folder: Path) -> None:
        self.python, self.packages = folder / "python", folder / "packages"
        make_python(self.python, Packages(self.packages).image(["pip"]))
        self.site = next(self.python.glob("lib/python*/site-packages"))
        self._variables = {
            "PATH": search_path(self.python),
            "PYTHONPATH": str(FOLDER),
            "TPUCTL_SIM_PACKAGES": str(self.packages),
            "TPUCTL_SIM_PYTHON": sys.executable,
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self._variables, capture_output=True, text=True, check=False)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize(
    "pip", [["pip"], pytest.param(["python3", "-m", "pip"], marks=pytest.mark.slow)], ids=" ".join
)
def test_a_package_of_this_machine_is_there_with_what_it_requires(host: Host, pip: list[str]) -> None:
    assert "No module named 'mdurl'" in host.run("python3", "-c", WHERE).stderr
    installed = host.run(*pip, "install", "markdown-it-py")
    assert installed.stdout.startswith("Linked this machine's packages: markdown-it-py-"), installed.stderr
    assert host.run("python3", "-c", WHERE).returncode == 0
    assert host.run("markdown-it", "--version").returncode == 0
    assert "markdown-it-py" in host.run("pip", "list").stdout


@pytest.mark.slow
def test_what_this_machine_lacks_is_for_pip_which_sees_the_rest(host: Host, tmp_path: Path) -> None:
    other = wheel(tmp_path, "other", requires="Requires-Dist: mdurl\n")
    installed = host.run("pip", "install", "mdurl", str(other))
    assert "Linked this machine's packages: mdurl-" in installed.stdout
    assert "Successfully installed other-1.0" in installed.stdout, installed.stderr
    refused = host.run("pip", "install", "not-there")
    assert "No matching distribution found for not-there" in refused.stderr


def test_another_version_goes_beside_the_links_and_changes_nothing_here(host: Host, tmp_path: Path) -> None:
    assert host.run("pip", "install", "markdown-it-py").returncode == 0
    place = Path(Packages(host.packages).distributions["mdurl"].base) / "mdurl"
    before = {path: path.read_bytes() for path in place.iterdir() if path.is_file()}
    other = host.run("pip", "install", str(wheel(tmp_path, "mdurl", "9.0")))
    assert "Successfully installed mdurl-9.0" in other.stdout, other.stderr
    assert host.run("python3", "-c", "import mdurl; print(mdurl.WORD)").stdout == "hello from the wheel\n"
    assert host.run("pip", "uninstall", "--yes", "mdurl").returncode == 0
    assert host.run("python3", "-c", WHERE).returncode == 0
    assert {path: path.read_bytes() for path in place.iterdir() if path.is_file()} == before


def test_a_folder_that_the_worker_takes_away_has_the_links_itself(host: Host) -> None:
    (host.site / "tpuctl-image.pth").touch()
    assert host.run("pip", "install", "markdown-it-py").returncode == 0
    assert {"mdurl", "markdown_it"} <= {path.name for path in host.site.iterdir() if path.is_symlink()}
    assert not list(host.site.glob("tpuctl-sim*"))
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(host.site)!r}); {WHERE}"]
    assert subprocess.run(command, env={"PATH": os.environ["PATH"]}).returncode == 0


PROGRAM = """
import os, pathlib, sys
from tpuctl.sim.guest import _tpuctl_disk
folder = pathlib.Path(sys.argv[1])
_tpuctl_disk.install(str(folder))
mark = folder / "disk_full"
def refused(act):
    try:
        act()
    except OSError as error:
        return error.strerror == os.strerror(28)
    return False
def state(name):
    home = folder / "home"
    return [refused(act) for act in (
        (home / name).touch, (home / "old").read_bytes, lambda: (home / "old").write_bytes(b""),
        lambda: (home / "old").open("ab").close(), lambda: (home / (name + "s")).mkdir(),
        (folder / "elsewhere").touch, lambda: open(1, "wb", closefd=False).close(),
    )]
print(state("free"))
(folder / "disk_full").touch()
print(state("full"))
mark.unlink()
print(state("again"))
"""


def test_what_grows_a_file_is_refused_while_the_disk_is_full(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/old").write_text("old")
    words = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    free, full, again = lines
    assert "True" not in free + again, lines
    assert full == "[True, False, True, True, True, False, False]"
