"""What a `pip install` on a host gets of this machine, and what it leaves to pip."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.sim.hosts.test_packages import distribution
from tpuctl.sim.hosts import pip_answers
from tpuctl.sim.hosts.packages import Packages
from tpuctl.sim.hosts.pip_answers import OtherError, answer, asked, of_index

RUNTIME = "TPUCTL_SIM_RUNTIME"


@pytest.fixture
def bare_machine(tmp_path: Path) -> Packages:
    base = tmp_path / "site-packages"
    distribution(base, "one", "1.0", {"one.py": ""}, "two")
    distribution(base, "two", "2.5", {"two.py": ""})
    return Packages(tmp_path / "links", [str(base)])


def test_arguments_and_files_name_requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("required.txt").write_text(
        "-f https://storage.googleapis.com/jax-releases/libtpu_releases.html\n"
        "two==2.5 \\\n    --hash=sha256:00 --hash=sha256:11  # pinned\n./three.whl\n\n"
    )
    Path("held.txt").write_text("one==1.0\n")
    options = ["install", "-U", "one", 'old; python_version < "3"', "-r", "required.txt", "-c", "held.txt"]
    found = asked([*options, "--no-input", "-q"])
    assert [str(each) for each in found.requirements] == ["one", "two==2.5"]
    assert found.others == ["./three.whl"]
    assert {name: str(specifier) for name, specifier in found.constraints.items()} == {"one": "==1.0"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["uninstall", "one"],
        ["install", "--target", "folder", "one"],
        ["install", "--no-index", "--find-links", "wheels", "one"],
        ["install", "--find-links", "wheels", "one"],
        ["install", "--index-url", "https://example.com/simple", "one"],
        ["install", "-e", "."],
    ],
)
def test_what_pip_alone_does(arguments: list[str]) -> None:
    with pytest.raises(OtherError):
        asked(arguments)


def test_what_this_machine_lacks_remains_for_pip(
    bare_machine: Packages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(RUNTIME, raising=False)
    whole = answer(bare_machine, ["install", "one"], [])
    assert (whole["remains"], whole["lines"]) == (False, ["Linked this machine's packages: one-1.0 two-2.5"])
    assert answer(bare_machine, ["install", "one"], [str(whole["links"])])["links"] == "", "it has it already"
    anew = answer(bare_machine, ["install", "--ignore-installed", "one"], [str(whole["links"])])
    assert anew["links"] == whole["links"]
    part = answer(bare_machine, ["install", "one", "none"], [])
    assert (part["remains"], part["links"]) == (True, whole["links"])
    assert answer(bare_machine, ["install", "none"], []) == {
        "links": "",
        "remains": True,
        "lines": [],
        "wanted": [],
    }


def test_another_python_gets_none_of_this_machines_packages(bare_machine: Packages) -> None:
    with pytest.raises(OtherError):
        answer(bare_machine, ["install", "one"], [], "3.8")


def test_a_host_says_that_its_image_has_another_python(
    bare_machine: Packages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUNTIME, "v2-alpha-tpuv6e")
    said: Any = answer(bare_machine, ["install", "one"], [])
    own = "{}.{}".format(*sys.version_info)
    assert said["lines"][1].startswith(
        f"[tpu-sim] PYTHON: a real host of v2-alpha-tpuv6e has Python 3.10, this one has {own}. "
        "A script that requires another gets it there."
    )
    assert said["wanted"] == ["one"]


@pytest.mark.parametrize(
    ("resolved", "said"),
    [
        ("one==0.6 ; python_version < '3.11'\ntwo==1\n", "one 0.6 (here 1.0)"),
        ("one==1.0\ntwo==1\n", ""),
        ("", ""),
    ],
)
def test_an_index_is_asked_what_a_real_host_would_get(
    bare_machine: Packages, monkeypatch: pytest.MonkeyPatch, resolved: str, said: str
) -> None:
    """uv is replaced: no index may be reached where tests run."""
    monkeypatch.setenv(RUNTIME, "v2-alpha-tpuv6e")
    monkeypatch.setattr(pip_answers, "find_spec", lambda _: ModuleType("uv"))
    calls: list[list[str]] = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        return subprocess.CompletedProcess(command, 0, resolved, "")

    monkeypatch.setattr(subprocess, "run", run)
    text = f"[tpu-sim] PYTHON: with Python 3.10 a real host gets {said}.\n" if said else ""
    assert of_index(bare_machine, ["one[extra]>0"]) == text
    assert calls[0][1:5] == ["-m", "uv", "pip", "compile"]
    assert calls[0][-2:] == ["3.10", "-"]
