"""The simulated host's sitecustomize leaves every program alone until it imports TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tpuctl.sim.guest import FOLDER, environment

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
