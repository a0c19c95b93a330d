"""Folders of links: they hold what an image or a job names, what that requires, and nothing else.

What a `pip install` on a host gets of this machine, and what it leaves to pip.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tpuctl.sim.hosts import pip_answers
from tpuctl.sim.hosts.packages import Packages
from tpuctl.sim.hosts.pip_answers import OtherError, answer, asked, of_index

Machine = Callable[..., Packages]


def distribution(base: Path, name: str, version: str, files: dict[str, str], *requires: str) -> None:
    """Install a distribution as pip would."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    written = {
        **files,
        f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {text}\n" for text in requires),
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name.replace('-', '_')}:main\n",
    }
    for path, text in written.items():
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_text(text)
    record = [*written, f"../../../bin/{name}", f"{info}/RECORD"]
    (base / info / "RECORD").write_text("".join(f"{path},,\n" for path in record))


@pytest.fixture
def machine(tmp_path: Path) -> Packages:
    """A machine with packages of one namespace, a dependency by an extra, JAX and TensorFlow."""
    base = tmp_path / "site-packages"
    distribution(base, "one", "1.0", {"shared/one/__init__.py": "", "one.py": "main = print"}, "two>=2")
    distribution(base, "two", "2.5", {"shared/two/__init__.py": ""}, 'three; extra == "more"')
    distribution(base, "three", "3.0", {"shared/three/__init__.py": "", "three/__init__.py": ""})
    distribution(base, "plugin", "1.0", {"three/plugin.py": ""})
    distribution(base, "jax", "1.0", {"jax/__init__.py": ""}, 'libtpu==0.0.42.*; extra == "tpu"')
    distribution(base, "tensorflow", "2.21.0", {"tensorflow/__init__.py": "import os"}, "one")
    return Packages(tmp_path / "links", [str(base)])


def answers(folder: Path, program: str) -> str:
    """Return what a program prints that has these packages besides the standard library."""
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(folder)!r}); {program}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_folder_has_what_is_chosen_and_what_that_requires(machine: Packages) -> None:
    folder = machine.links(machine.choose([Requirement("one")]).names)
    modules = "one", "shared.one", "shared.two", "shared.three", "three", "jax"
    program = f"from importlib.util import find_spec as f; print([bool(f(n)) for n in {modules}])"
    assert answers(folder, program) == "[True, True, True, False, False, False]"
    names = "from importlib import metadata as m; print(sorted(d.name for d in m.distributions()))"
    assert answers(folder, names) == "['one', 'two']"
    assert machine.links(["two", "one"]) == folder, "made once for a set"
    assert (folder / "bin" / "one").read_text().startswith("#!/usr/bin/env python3\n")


def test_a_package_in_which_others_have_files_shows_none_of_theirs(machine: Packages) -> None:
    folder = machine.links(["three"])
    assert (
        answers(folder, "import three; from importlib.util import find_spec as f; print(f('three.plugin'))")
        == "None"
    )


@pytest.mark.parametrize(
    ("wanted", "held", "present", "names", "missing"),
    [
        (["two"], {}, {}, {"two"}, ()),
        (["two[more]"], {}, {}, {"two", "three"}, ()),
        (["one", "none>1"], {}, {}, {"one", "two"}, ("none>1",)),
        (["two<2"], {}, {}, set(), ("two<2",)),
        (["one"], {"two": "==2.4"}, {}, {"one"}, ("two>=2",)),
        (["one"], {}, {"two": "2.1"}, {"one"}, ()),
        (["one"], {}, {"two": "1.9"}, {"one"}, ("two>=2",)),
        (["one @ https://example.com/one.whl"], {}, {}, set(), ("one @ https://example.com/one.whl",)),
        (["jax[tpu]"], {}, {}, {"jax", "libtpu"}, ()),
        (["jax"], {}, {}, {"jax"}, ()),
    ],
)
def test_what_is_chosen(
    machine: Packages, wanted: list[str], held: dict[str, str], present: dict[str, str],
    names: set[str], missing: tuple[str, ...],
) -> None:  # fmt: skip
    constraints = {name: SpecifierSet(text) for name, text in held.items()}
    chosen = machine.choose(map(Requirement, wanted), constraints, present)
    assert (set(chosen.names), chosen.missing) == (names, missing)


def test_the_emulated_tpu_stands_for_libtpu_and_for_the_tensorflow_of_tpus(machine: Packages) -> None:
    """In versions that JAX takes and that this machine has: each host would else download hundreds of MB."""
    folder = machine.links(machine.choose([Requirement("jax[tpu]"), Requirement("tensorflow-tpu")]).names)
    program = "import libtpu, tensorflow; from importlib import metadata as m; print(*map(m.version, {}))"
    assert answers(folder, program.format(["libtpu", "tensorflow-tpu", "one"])) == "0.0.42 2.21.0 1.0"
    hidden = "from importlib import metadata as m; print(any(m.distributions(name='tensorflow')))"
    assert answers(folder, hidden) == "False"


def test_an_image_has_what_this_machine_has_of_it_and_pip(machine: Packages) -> None:
    folder = machine.image(["two", "pyyaml"])
    names = "from importlib import metadata as m; print(*sorted(d.name for d in m.distributions()))"
    assert answers(folder, names) == "pip two"
    assert answers(folder, "import pip; print(pip.__file__)").startswith(str(folder))


def test_a_project_in_development_is_not_linked(tmp_path: Path) -> None:
    distribution(tmp_path, "mine", "1.0", {"mine.pth": "/src"})
    assert "mine" in Packages(tmp_path / "links", [str(tmp_path)]).distributions
    (tmp_path / "mine-1.0.dist-info" / "direct_url.json").write_text('{"dir_info": {"editable": true}}')
    (tmp_path / "same").symlink_to(tmp_path)  # another path: folders are read once
    assert "mine" not in Packages(tmp_path / "links", [str(tmp_path / "same")]).distributions


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
