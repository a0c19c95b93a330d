"""Tests which layer may import which, that there is no cycle, and who may import each third-party package."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.paths import ROOT

PACKAGE = ROOT / "tpuctl"

LAYERS = {
    # layer: the layers it may import, besides itself
    "errors": set(),
    "records": set(),
    "facts": {"errors", "records"},
    "data": {"errors", "facts", "records"},
    "host": {"records"},
    "copier": {"records"},
    "cloud": {"errors", "facts"},
    "display": {"errors", "facts", "records"},
    "flows": {"errors", "facts", "data", "display", "cloud", "copier", "records"},
    "client": {"errors", "facts", "data", "cloud", "flows", "display", "records"},
    "notebook": {"errors", "facts", "display", "client"},
    "cli": {"errors", "facts", "data", "display", "cloud", "flows", "client"},
    "public": {"errors", "facts", "flows", "client", "display", "notebook", "testing"},
    "sim": {"errors", "facts"},
    "testing": {"errors", "facts", "sim"},
    "guest": set(),
}
NAMED_FILE = re.compile(r"(?<![\w/.-])(?:[a-z_]+/)*[a-z_]+\.py\b")
TOP = {"__main__.py": "cli", "__init__.py": "public"}
"""Files of the top package that may import what is above the facts; `public` has the names of the API."""
RECORDS = {
    "host.worker.records", "host.worker.requirements", "host.worker.preparation.tar_files",
    "host.keeper.records", "local.confined_folder",
}  # fmt: skip
THIRD_PARTY = {
    # third-party package: the layers that may import it
    "grpc": {"cloud", "sim"},
    "grpc_status": {"sim"},
    "google": {"cloud", "sim"},
    "requests": {"cloud"},
    "websockets": {"cloud"},
    "urllib3": {"cloud"},
    "fabric": {"cloud"},
    "paramiko": {"cloud"},
    "invoke": set(),
    "cryptography": {"cloud", "sim"},
    "click": {"cli"},
    "rich": {"cli"},
    "asyncssh": {"sim"},
    "aiohttp": {"sim"},
    "psutil": {"sim"},
    "pytest": {"testing"},
    "IPython": {"display", "host", "notebook"},
    "PIL": {"data"},
    "packaging": {"facts", "host", "records", "sim"},
    "google_crc32c": {"facts", "data", "sim"},
    "pathspec": {"flows"},
    "msgspec": {"facts", "data", "cloud", "flows", "client", "cli", "sim"},
    "tensorflow": {"guest"},
    "keras": {"guest"},
    "tf_keras": {"guest"},
    "jax": {"guest"},
    "numpy": {"data", "guest"},
    "pyarrow": {"data"},
    "soundfile": {"data"},
    "array_record": {"data"},
    "apache_beam": {"flows"},
}
ALLOWED_GOOGLE = {"data": {"google.protobuf"}}
"""protobuf encodes tf.train.Example; it is no client of a service."""


def modules() -> Iterator[Path]:
    return (path for path in sorted(PACKAGE.rglob("*.py")))


def layer(dotted: str) -> str:
    """The layer of a module, by its dotted name."""
    parts = dotted.split(".")[1:]
    if not parts:
        return "facts"
    if parts[:2] == ["sim", "guest"] and len(parts) > 2:
        return "guest"
    if parts[:3] in (
        ["host", "worker", "records"],
        ["host", "worker", "requirements"],
        ["host", "keeper", "records"],
    ) or parts[:2] == ["local", "confined_folder"]:
        return "records"  # read on the laptop and on the host: standard library only
    if parts[:4] == ["host", "worker", "preparation", "tar_files"]:
        return "records"
    if parts[0] == "printable":
        return "errors"  # errors are shown everywhere, and are text
    if parts[0] in LAYERS:
        return parts[0]
    return "facts"


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] in ("__init__", "__main__") else parts)


def imports(path: Path, *, types_too: bool = False) -> Iterator[str]:
    """Names of the modules that a file imports; imports only for types are skipped unless `types_too`."""
    for statement, for_types in _statements(path):
        if for_types and not types_too:
            continue
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        else:
            yield from (f"{_absolute(path, statement)}.{alias.name}" for alias in statement.names)


@cache
def _statements(path: Path) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """The import statements of a file, each with whether it is for types only."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.If) and ast.unparse(outer.test) == "TYPE_CHECKING"
        for inner in ast.walk(outer)
    }
    statements = (node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)))
    return [(statement, id(statement) in typing_only) for statement in statements]


def _absolute(path: Path, statement: ast.ImportFrom) -> str:
    """The module that a from-import names; only the guest, renamed on a host, imports relatively."""
    if statement.level == 0:
        return str(statement.module)
    assert layer(dotted(path)) == "guest", f"{path}: relative import"
    package = ".".join(path.relative_to(ROOT).parts[: -statement.level])
    return f"{package}.{statement.module}" if statement.module else package


def test_every_module_imports_only_lower_layers() -> None:
    wrong = []
    for path in modules():
        importer = TOP.get(path.name, "") if path.parent == PACKAGE else ""
        importer = importer or layer(dotted(path))
        for name in imports(path, types_too=True):
            if name.split(".")[0] != "tpuctl":
                continue
            imported = layer(name)
            if imported != importer and imported not in LAYERS[importer] and name != "tpuctl.__version__":
                wrong.append(f"{path.relative_to(ROOT)} ({importer}) imports {name} ({imported})")
    assert wrong == []


def test_third_party_packages_are_imported_only_by_the_layers_of_the_table() -> None:
    wrong = []
    for path in modules():
        importer = layer(dotted(path))
        for name in imports(path, types_too=True):
            allowed_layers = THIRD_PARTY.get(name.split(".")[0])
            allowed = any(name.startswith(package) for package in ALLOWED_GOOGLE.get(importer, ()))
            if allowed_layers is not None and importer not in allowed_layers and not allowed:
                wrong.append(f"{path.relative_to(ROOT)} ({importer}) imports {name}")
    assert wrong == []


def test_there_is_no_import_cycle() -> None:
    names = {dotted(path) for path in modules()}
    graph = {dotted(path): set(_targets(path, names)) for path in modules()}
    visited: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name not in visited:
            for target in graph[name]:
                visit(target, (*trail, name))
            visited.add(name)

    for name in graph:
        visit(name, ())


def _targets(path: Path, names: set[str]) -> Iterator[str]:
    importer = dotted(path)
    for name in imports(path):
        for candidate in (name, name.rpartition(".")[0]):
            if candidate in names and candidate != importer and not importer.startswith(f"{candidate}."):
                yield candidate
                break


def test_only_the_clients_endpoints_name_a_provider_of_nodes() -> None:
    """So that another provider is another package beside `cloud/tpu/`, and a line in `endpoints.py`."""
    provider = PACKAGE / "cloud" / "tpu"
    importers = {
        path.relative_to(PACKAGE).as_posix()
        for path in modules()
        if provider not in path.parents
        for name in imports(path, types_too=True)
        if name.startswith("tpuctl.cloud.tpu")
    }
    assert importers == {"cloud/endpoints.py"}


def test_resource_names_of_the_cloud_tpu_api_stay_in_its_provider() -> None:
    elsewhere = {
        path.relative_to(PACKAGE).as_posix()
        for path in modules()
        if "/locations/" in path.read_text() and layer(dotted(path)) not in ("sim", "testing")
    }
    assert elsewhere == {"cloud/tpu/rules.py", "cloud/tpu/api_requests.py", "host/keeper/keeper.py"}


def programs_on_hosts() -> Iterator[Path]:
    """The modules of the programs that run on hosts with any Python."""
    programs = (path for name in ("host", "copier") for path in (PACKAGE / name).rglob("*.py"))
    return itertools.chain(programs, [PACKAGE / "local/confined_folder.py"])


def test_programs_on_hosts_use_the_standard_library_and_what_travels_with_them() -> None:
    import sys

    allowed = set(sys.stdlib_module_names) | {"tpuctl", "packaging"}
    of_run = {"cells.py": {"IPython"}}  # which the run's Python starts
    wrong = [
        f"{path.name}: {name}"
        for path in programs_on_hosts()
        for name in imports(path)
        if name.split(".")[0] not in allowed | of_run.get(path.name, set())
    ]
    assert wrong == []


def test_programs_on_hosts_are_written_in_python_3_8() -> None:
    for path in programs_on_hosts():
        ast.parse(path.read_text(), feature_version=(3, 8))


@pytest.mark.parametrize("job", sorted((ROOT / "jobs").glob("*.py")), ids=lambda path: path.name)
def test_jobs_import_nothing_of_tpuctl(job: Path) -> None:
    assert not [name for name in imports(job) if name.split(".")[0] == "tpuctl"]


def test_jobs_know_nothing_of_the_simulator() -> None:
    """Except `tpu_check.py`, which must not report the speed of a CPU as that of a TPU."""
    for job in {*(ROOT / "jobs").rglob("*.py")} - {ROOT / "jobs/tpu_check.py"}:
        text = job.read_text().lower()
        assert "tpuctl_sim" not in text
        assert "simulat" not in text


def test_files_that_docstrings_and_comments_name_exist() -> None:
    """Those of the package: with one of its folders, or in the docstring of a folder."""
    files = {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py")}
    folders = {part for file in files for part in file.split("/")[:-1]}
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text()
        named = NAMED_FILE.findall(text)
        where = ast.get_docstring(ast.parse(text)) or "" if path.name == "__init__.py" else ""
        chosen = [name for name in named if name.partition("/")[0] in folders and "/" in name]
        for name in (*chosen, *NAMED_FILE.findall(where)):
            if not any(f"/{file}".endswith(f"/{name}") for file in files):
                wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert len(files) > 300
    assert wrong == []


def test_every_benchmark_can_be_imported() -> None:
    names = [path.relative_to(ROOT).with_suffix("") for path in (ROOT / "benchmarks").rglob("*.py")]
    wanted = [".".join(name.parts) for name in names if name.name != "__main__"]
    assert len(wanted) > 20
    subprocess.run([sys.executable, "-c", f"import {', '.join(wanted)}"], cwd=ROOT, check=True, timeout=120)
