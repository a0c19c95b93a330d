"""The environment of a job, and which requirements count as present."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.host.worker.host import SPEC
from tpuctl.host.worker.preparation import packages
from tpuctl.host.worker.preparation.steps import Prepared, of_job


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TPU_NAME", "PYTHONPATH", "TF_CPP_MIN_LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OF_THE_HOST", "yes")


def test_the_folders_of_the_run_have_our_names_and_vertex_ais() -> None:
    variables = of_job(replace(SPEC, worker=2, workers=4, attempt=3, run="r7"), Prepared())
    for name, folder in (("MODEL", "outputs"), ("CHECKPOINT", "checkpoints")):
        assert variables[f"TPUCTL_{name}_DIR"] == variables[f"AIP_{name}_DIR"]
        assert variables[f"TPUCTL_{name}_DIR"] == f"gs://sim-project-tpuctl/runs/r7/{folder}"
    assert variables["TPUCTL_TENSORBOARD_DIR"] == variables["AIP_TENSORBOARD_LOG_DIR"]
    names = ("TPUCTL_RUN", "TPUCTL_ATTEMPT", "TPUCTL_WORKER", "TPUCTL_WORKERS")
    assert [variables[name] for name in names] == ["r7", "3", "2", "4"]
    assert variables["OF_THE_HOST"] == "yes"
    assert variables["PYTHONUNBUFFERED"] == "1"


@pytest.mark.parametrize(
    ("framework", "workers", "local"),
    [
        ("tensorflow", 1, True),
        ("tensorflow", 4, False),
        ("jax", 1, False),
        ("pytorch", 1, False),
        ("jax", 4, False),
    ],
)
def test_the_tpu_is_local_only_for_tensorflow_on_one_host(framework: str, workers: int, local: bool) -> None:
    variables = of_job(replace(SPEC, framework=framework, workers=workers), Prepared())
    assert variables.get("TPU_NAME") == ("local" if local else None)


@pytest.mark.parametrize(("framework", "level"), [("tensorflow", "1"), ("jax", None), ("pytorch", None)])
def test_tensorflow_does_not_log_what_is_for_information_only(framework: str, level: str | None) -> None:
    assert of_job(replace(SPEC, framework=framework), Prepared()).get("TF_CPP_MIN_LOG_LEVEL") == level


def test_a_log_level_of_the_user_or_of_the_host_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(SPEC, framework="tensorflow")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    assert of_job(run, Prepared())["TF_CPP_MIN_LOG_LEVEL"] == "3"
    run = replace(run, environment={"TF_CPP_MIN_LOG_LEVEL": "0"})
    assert of_job(run, Prepared())["TF_CPP_MIN_LOG_LEVEL"] == "0"


def test_the_users_variables_win() -> None:
    variables = of_job(replace(SPEC, environment={"TPU_NAME": "other", "RATE": "0.1"}), Prepared())
    assert (variables["TPU_NAME"], variables["RATE"]) == ("other", "0.1")


def test_installed_packages_come_first_on_the_users_own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/host")
    assert of_job(SPEC, Prepared("", "/packages"))["PYTHONPATH"] == f"/packages{os.pathsep}/host"
    mine = replace(SPEC, environment={"PYTHONPATH": "lib"})
    assert of_job(mine, Prepared("", "/packages"))["PYTHONPATH"] == f"/packages{os.pathsep}lib"
    assert of_job(SPEC, Prepared())["PYTHONPATH"] == "/host"


@pytest.mark.parametrize(
    "requirement",
    ["pytest", "PyTest>=1", "pytest ; python_version > '3'", "google-cloud-storage~=3.1", "json", " pytest"],
)
def test_an_installed_distribution_or_a_module_of_the_name_is_present(requirement: str, tmp_path) -> None:
    assert packages.ensure([requirement], "", str(tmp_path / "packages"), str(tmp_path / "log")) == ""
    assert not (tmp_path / "log").exists(), "pip was not called"


@pytest.mark.parametrize(
    "requirement",
    ["no-such-package-of-tpuctl", "msgspec @ https://localhost:9/msgspec-1-py3-none-any.whl", "pytest<1"],
)
def test_pip_decides_about_any_other_requirement(requirement: str, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(packages.PackageError, match=r"pip could not install .*exit code"):
        packages.ensure([requirement], "", str(tmp_path / "packages"), str(tmp_path / "log"))
    assert b"[tpuctl] installing " in (tmp_path / "log").read_bytes()


@pytest.mark.parametrize("requirement", ["./nowhere", "--no-such-option", "-r other.txt"])
def test_what_is_no_requirement_never_reaches_pip(requirement: str, tmp_path) -> None:
    with pytest.raises(packages.PackageError):
        packages.ensure([requirement], "", str(tmp_path / "packages"), str(tmp_path / "log"))
    assert not (tmp_path / "log").exists()
