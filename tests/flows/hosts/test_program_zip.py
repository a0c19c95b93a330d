"""The zip that hosts run: a package with its subpackages and what it imports, the same bytes each time."""

from __future__ import annotations

import importlib.metadata
import io
import zipfile

from packaging.specifiers import SpecifierSet

from tests.paths import ROOT
from tpuctl import __version__
from tpuctl.flows.hosts.program_zip import program


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_program_has_every_module_of_its_package_and_those_that_programs_share() -> None:
    host = ROOT / "tpuctl/host"
    own = sorted(
        path.relative_to(ROOT).as_posix() for path in host.rglob("*.py") if "keeper" not in path.parts
    )
    contents = members(program("worker"))
    assert list(contents) == ["__main__.py", "tpuctl/__init__.py", *own]
    assert contents["tpuctl/host/gcs.py"] == (host / "gcs.py").read_bytes()


def test_a_library_goes_with_its_licences() -> None:
    names = set(members(program("keeper", libraries=["packaging"]))) - set(members(program("keeper")))
    assert {f"packaging/{name}.py" for name in ("__init__", "requirements", "specifiers")} <= names
    assert {f"packaging/LICENSE{kind}" for kind in ("", ".APACHE", ".BSD")} <= names


def test_a_library_runs_on_the_oldest_python_of_a_host() -> None:
    declared = importlib.metadata.metadata("packaging")["Requires-Python"]
    assert SpecifierSet(declared).contains("3.8"), "pyproject.toml limits it"


def test_it_begins_in_the_packages_main_module_and_knows_its_version() -> None:
    contents = members(program("keeper"))
    assert contents["__main__.py"].decode() == (
        "import sys\nfrom tpuctl.host.keeper.main import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    assert contents["tpuctl/__init__.py"].decode() == f'__version__ = "{__version__}"\n'


def test_the_same_source_gives_the_same_bytes_which_are_compressed() -> None:
    data = program("worker")
    assert program("worker") == data
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
    assert {info.date_time for info in infos} == {(1980, 1, 1, 0, 0, 0)}
    assert {info.compress_type for info in infos} == {zipfile.ZIP_DEFLATED}
