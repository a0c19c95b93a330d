"""The distribution libtpu that simulated hosts have: in the version that the JAX of this machine asks for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from tpuctl.sim.hosts import tpu_library


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    tpu_library._version.cache_clear()
    yield
    tpu_library._version.cache_clear()


def requires(monkeypatch: pytest.MonkeyPatch, *texts: str) -> None:
    """Let the installed JAX have these requirements."""
    monkeypatch.setattr(metadata, "requires", lambda _: list(texts))


@pytest.mark.parametrize(
    ("texts", "version"),
    [
        (["jaxlib==1.0", 'libtpu==0.0.42.*; extra == "tpu"', 'requests; extra == "tpu"'], "0.0.42"),
        (['libtpu>=0.0.9; extra == "tpu"', 'libtpu<0.1; extra == "tpu"'], "0.0.9"),
        (["jaxlib==1.0"], ""),
        (['libtpu==1.0; extra == "other"'], ""),
    ],
)
def test_the_version_is_the_one_that_jax_takes(
    texts: list[str], version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requires(monkeypatch, *texts)
    names = [item.name for item in tpu_library.install(tmp_path).iterdir()]
    assert names == ([f"libtpu-{version}.dist-info"] if version else [])


def test_without_jax_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", missing)
    assert not list(tpu_library.install(tmp_path).iterdir())


def test_a_program_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requires(monkeypatch, 'libtpu==0.0.42.*; extra == "tpu"')
    program = "from importlib import metadata; print(metadata.version('libtpu'))"
    environment = {"PYTHONPATH": str(tpu_library.install(tmp_path))}
    shown = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "0.0.42\n"
