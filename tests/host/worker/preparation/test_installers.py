"""What pip and uv are asked to do, word for word, and what is made of their answers."""

from __future__ import annotations

import errno
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tpuctl.host.worker.preparation import installers
from tpuctl.host.worker.preparation.installers import InstallError, Order

JAX = {"jax": "0.4.30"}
ORDER = Order("optax, flax", ["optax>=1", "flax"], {**JAX, "six": "1.16"}, JAX, {"tensorflow": "2.16.1"})
SOURCES = ("INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS", "NO_INDEX", "CONFIG_FILE")
SEE = "(see the log)"
PIP = ("SCRATCH/environment/bin/python", "-m", "pip", "install", "--no-input")


@dataclass
class Tools:
    """Stands in for pip and uv: notes each call, and answers as the test says."""

    folder: Path
    answers: list[Callable[[Sequence[str]], int]] = field(default_factory=list)
    calls: list[list[str]] = field(default_factory=list)
    options: list[dict[str, Any]] = field(default_factory=list)
    output: bytes = b""
    """What each tool prints."""
    older: installers.Older = field(default_factory=dict)
    """What the last installation returned."""

    def call(self, command: Sequence[str], **options: Any) -> int:
        self.calls.append([word.replace(str(self.folder), "SCRATCH") for word in command])
        self.options.append(options)
        if options["stdout"] is not subprocess.DEVNULL:
            options["stdout"].write(self.output)
            options["stdout"].flush()
        return self.answers.pop(0)(command) if self.answers else 0

    def install(self, order: Order) -> str:
        """Install into a folder of the scratch folder, and return its path."""
        folder = self.folder / "packages"
        with (self.folder / "log").open("ab") as log:
            log.write(b"[tpuctl] No space left on device was what another run had met\n")
            self.older = installers.install(order, str(folder), log)
        return str(folder)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    """There is no uv."""
    made = Tools(tmp_path / "scratch")
    made.folder.mkdir()
    monkeypatch.setattr(installers.subprocess, "call", made.call)
    monkeypatch.setattr(installers, "_uv", lambda: ())
    return made


def answering(code: int) -> Callable[[Sequence[str]], int]:
    return lambda command: code


class TestPip:
    @pytest.mark.parametrize(
        ("order", "options"),
        [
            (ORDER, ["-r", "requirements.txt", "-c", "constraints.txt"]),
            (ORDER._replace(is_locked=True, image={}),
             ["-r", "requirements.txt", "--require-hashes", "--ignore-installed"]),
            (ORDER._replace(image={}, held={}),
             ["-r", "requirements.txt", "-c", "constraints.txt", "--ignore-installed"]),
            (ORDER._replace(wheelhouse="/w"),
             ["--no-index", "--find-links", "/w", "-r", "requirements.txt", "-c", "constraints.txt"]),
        ],
    )  # fmt: skip
    def test_its_options(self, tools: Tools, order: Order, options: list[str]) -> None:
        assert os.path.isdir(tools.install(order))
        assert tools.calls == [[*PIP, *options]]

    def test_it_reads_requirements_and_constraints_of_files(self, tools: Tools) -> None:
        tools.install(ORDER._replace(pins={"flax": "0.8", "jax": "0.4.1"}))
        assert (tools.folder / "requirements.txt").read_text() == "optax>=1\nflax\n"
        constraints = "flax==0.8\njax==0.4.1\ntensorflow==2.16.1\n"
        assert (tools.folder / "constraints.txt").read_text() == constraints
        (options,) = tools.options
        assert (options["cwd"], options["stdin"]) == (str(tools.folder), subprocess.DEVNULL)
        assert options["stdout"] is options["stderr"]

    def test_places_of_packages_and_what_limits_them_are_in_these_files_too(self, tools: Tools) -> None:
        tools.install(
            ORDER._replace(origins=["--find-links https://h/x"], limits=["numpy<2 ; os_name == 'posix'"])
        )
        assert (tools.folder / "requirements.txt").read_text() == "--find-links https://h/x\noptax>=1\nflax\n"
        assert "\nnumpy<2 ; os_name == 'posix'\n" in (tools.folder / "constraints.txt").read_text()

    def test_variables_of_the_host_that_lead_elsewhere_are_not_passed_on(
        self, tools: Tools, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_INDEX_URL"):
            monkeypatch.setenv(name, "x")
        tools.install(ORDER)
        given = tools.options[0]["env"]
        assert not given.keys() & {"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER"}
        assert given["PIP_INDEX_URL"] == "x"

    def test_it_sees_the_image_and_takes_another_build_for_the_one_that_is_named(self, tools: Tools) -> None:
        seen: dict[str, str] = {}

        def look(command: Sequence[str]) -> int:
            version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
            packages = tools.folder / "environment/lib" / version / "site-packages"
            seen["image"] = (packages / "tpuctl-image.pth").read_text()
            seen["stub"] = (packages / "a_b-2.16.1.dist-info/METADATA").read_text()
            (packages / "installed.py").write_text("")
            return 0

        tools.answers = [look]
        folder = tools.install(ORDER._replace(aliases={"a-b": "2.16.1"}))
        assert seen["stub"] == "Metadata-Version: 2.1\nName: a-b\nVersion: 2.16.1\n"
        own = next(path for path in sys.path if path.endswith("site-packages"))
        assert f"import site; site.addsitedir({own!r})\n" in seen["image"]
        assert os.path.dirname(os.__file__) not in seen["image"].replace("site-packages", "").split("'")
        assert os.listdir(folder) == ["installed.py"], "what only pip needs does not stay"


class TestPipsErrors:
    def refused(self, tools: Tools, text: str, order: Order = ORDER, code: int = 1) -> str:
        tools.answers, tools.output = [answering(code)], text.encode()
        with pytest.raises(InstallError) as error:
            tools.install(order)
        return str(error.value)

    @pytest.mark.parametrize("text", ["[Errno 28] No space left on device", "Disk quota exceeded"])
    def test_a_full_disk(self, tools: Tools, text: str) -> None:
        tools.answers, tools.output = [answering(2)], text.encode()
        with pytest.raises(OSError, match="no space on the disk for optax, flax") as error:
            tools.install(ORDER)
        assert error.value.errno == errno.ENOSPC

    def test_what_nobody_recognizes_has_its_exit_code(self, tools: Tools) -> None:
        assert (
            self.refused(tools, "oh", code=3) == f"pip could not install optax, flax (exit code 3, {SEE[1:]}"
        )

    def test_a_file_of_another_content(self, tools: Tools) -> None:
        text = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE."
        assert self.refused(tools, text) == (
            f"a file for optax, flax does not have the hash that it should have {SEE}"
        )

    CONFLICT = (
        "The conflict is caused by:\n    optax 2.0 depends on numpy>=1\n"
        "    optax 2.0 depends on Jax_Lib>=0.5\n"
        "    The user requested (constraint) jax-lib==0.4.1\n"
    )

    def test_a_requirement_that_the_image_does_not_allow(self, tools: Tools) -> None:
        assert self.refused(tools, self.CONFLICT) == (
            "optax 2.0 requires Jax_Lib>=0.5, and the host's image has jax-lib 0.4.1. Name jax-lib in "
            f'dependencies to hide the image\'s, or set packages = "own" in [tool.tpuctl] {SEE}'
        )

    def test_a_requirement_that_a_repeated_run_does_not_allow(self, tools: Tools) -> None:
        order = ORDER._replace(pins={"jax-lib": "0.4.1"})
        assert "and the run is pinned to jax-lib 0.4.1. " in self.refused(tools, self.CONFLICT, order)

    def test_a_held_version_that_nobody_in_sight_depends_on(self, tools: Tools) -> None:
        text = (
            "The user requested (constraint) jax-lib==0.4.1\nThe user requested (constraint) numpy==1\n"
            "    optax 2.0 depends on flax\n"
        )
        assert self.refused(tools, text) == (
            "the host's image has jax-lib 0.4.1, which other requirements do not allow. Name it in "
            f'dependencies to hide the image\'s, or set packages = "own" in [tool.tpuctl] {SEE}'
        )


class TestUv:
    @pytest.fixture(autouse=True)
    def _has_uv(self, tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(installers, "_uv", lambda: ("uv",))
        monkeypatch.setattr(sys, "executable", "/py")

    def resolving(self, tools: Tools, text: str) -> Callable[[Sequence[str]], int]:
        def write(command: Sequence[str]) -> int:
            Path(command[command.index("-o") + 1]).write_text(text)
            return 0

        return write

    def test_it_resolves_and_gets_what_the_image_lacks(self, tools: Tools) -> None:
        text = (
            "# comment\njax==0.4.30\n    --hash=x\n\nTensorFlow==2.16.1 ; python_version > '3'\noptax==1.0\n"
            "numpy==2 # via x\nown @ https://h/own.whl\nflax==0.4.30\n"
        )
        newer = self.resolving(tools, "optax==2.0\nflax==0.4.30\n")
        tools.answers = [self.resolving(tools, text), answering(0), newer]
        assert os.listdir(tools.install(ORDER)) == []
        assert tools.calls == [
            ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", "/py", "-c",
             "constraints.txt", "-o", "SCRATCH/resolved.txt", "requirements.txt"],
            ["uv", "pip", "install", "--target", "SCRATCH/packages", "--python", "/py", "--no-deps", "-r",
             "missing.txt"],
            ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", "/py",
             "-o", "SCRATCH/free.txt", "requirements.txt"],
        ]  # fmt: skip
        assert tools.older == {"optax": ("1.0", "2.0")}
        assert (tools.folder / "missing.txt").read_text() == (
            "optax==1.0\nnumpy==2 # via x\nown @ https://h/own.whl\nflax==0.4.30\n"
        )
        assert tools.options[0]["stdout"] == subprocess.DEVNULL, "what it cannot resolve, pip explains"

    def test_the_tensorflow_of_tpus_stands_for_the_other(self, tools: Tools) -> None:
        tools.answers = [self.resolving(tools, "tensorflow-tpu==2.19.1\ntensorflow==2.20.0\n"), answering(0)]
        tools.install(ORDER._replace(aliases={}, held={}))
        assert (tools.folder / "missing.txt").read_text() == "tensorflow-tpu==2.19.1\n"

    def test_it_installs_nothing_where_all_is_there(self, tools: Tools) -> None:
        tools.answers = [self.resolving(tools, "jax==0.4.30\n")]
        assert os.listdir(tools.install(ORDER)) == []
        assert len(tools.calls) == 1

    def test_a_wheelhouse_is_its_only_source(self, tools: Tools) -> None:
        tools.answers = [self.resolving(tools, "optax==1.0\n")]
        tools.install(ORDER._replace(wheelhouse="/w", origins=["--find-links https://h/x"]))
        assert (tools.folder / "missing.txt").read_text() == "--find-links https://h/x\noptax==1.0\n"
        assert [call[3:6] for call in tools.calls] == [["--no-index", "--find-links", "/w"]] * 3

    @pytest.mark.parametrize("answers", [[1], [0, 1]], ids=["resolves not", "installs not"])
    def test_what_it_cannot_do_is_pips(self, tools: Tools, answers: list[int]) -> None:
        first = self.resolving(tools, "optax==1.0\n")
        tools.answers = [answering(1)] if answers == [1] else [first, answering(1)]
        tools.install(ORDER)
        assert [call[:4] for call in tools.calls[len(answers) :]] == [
            ["SCRATCH/environment/bin/python", "-m", "pip", "install"]
        ]

    def test_a_lock_file_is_pips(self, tools: Tools) -> None:
        tools.install(ORDER._replace(is_locked=True))
        assert [call[1:4] for call in tools.calls] == [["-m", "pip", "install"]]


class TestWhichUv:
    """uv reads no settings of pip: where pip has other sources, it would ask the wrong ones."""

    @pytest.fixture(autouse=True)
    def _bare(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in SOURCES:
            monkeypatch.delenv(f"PIP_{name}", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        monkeypatch.setattr(
            installers, "_PIP_FILES", installers._PIP_FILES[1:]
        )  # the machine may have the first

    def program(self, path: Path) -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return str(path)

    def test_that_of_this_python_comes_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.program(tmp_path / ".local/bin/uv")
        specs = {"uv": importlib.machinery.ModuleSpec("uv", None)}
        monkeypatch.setattr(importlib.util, "find_spec", specs.get)
        assert installers._uv() == (sys.executable, "-m", "uv")

    def test_then_that_of_the_user_then_that_of_the_path(self, tmp_path: Path) -> None:
        assert installers._uv() == ()
        path = self.program(tmp_path / "bin/uv")
        assert installers._uv() == (path,)
        own = self.program(tmp_path / ".local/bin/uv")
        assert installers._uv() == (own,)
        Path(own).chmod(0o644)
        assert installers._uv() == (path,)

    @pytest.mark.parametrize("name", SOURCES)
    def test_none_where_a_variable_is_pips(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        path = self.program(tmp_path / "bin/uv")
        monkeypatch.setenv(f"PIP_{name}", "")
        assert installers._uv() == (path,)
        monkeypatch.setenv(f"PIP_{name}", "x")
        assert installers._uv() == ()

    @pytest.mark.parametrize("name", [".pip/pip.conf", ".config/pip/pip.conf"])
    def test_none_where_pip_has_a_file(self, tmp_path: Path, name: str) -> None:
        path = self.program(tmp_path / "bin/uv")
        assert installers._uv() == (path,)
        self.program(tmp_path / name)
        assert installers._uv() == ()
