"""pip on a simulated host: it gets what this machine has, by links that it never writes through."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host.worker.preparation.wheels import wheel
from tpuctl.sim.guest import FOLDER
from tpuctl.sim.hosts.packages import Packages
from tpuctl.sim.hosts.programs.login import make_python, search_path

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
