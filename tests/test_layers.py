"""The rules of the architecture: which floor may import which, and where foreign packages may be named."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.paths import ROOT

PACKAGE = ROOT / "tpuctl"

FLOORS = {
    # floor: the floors it may import, besides itself
    "errors": set(),
    "records": set(),
    "facts": {"errors", "records"},
    "data": {"errors", "facts"},
    "worker": {"records"},
    "cloud": {"errors", "facts"},
    "flows": {"errors", "facts", "data", "cloud", "records"},
    "cli": {"errors", "facts", "data", "cloud", "flows"},
    "sim": {"errors", "facts"},
    "testing": {"errors", "facts", "sim"},
    "guest": set(),
}
FACTS = {
    "accelerators", "atomic_files", "bucket_layout", "clock", "datasets", "job_header", "nodes",
    "object_content", "parallel", "polling", "runs", "shells", "simulator_folder", "simulator_packages",
    "__init__",
}  # fmt: skip
ROOMS_OF = {
    # floor, or room with rooms of its own: its rooms, each with the rooms beside it that it may import
    "": {
        "config": set(), "data": set(), "worker": set(), "cloud": set(), "flows": set(), "cli": set(),
        "faults": set(), "sim": set(), "testing": set(),
    },
    "data": {
        "images": set(),
        "schema": set(),
        "order": {"schema"},
        "tfrecord": {"schema"},
        "files": {"schema"},
        "tables": {"files", "schema", "tfrecord"},
        "arrays": {"files", "images", "schema", "tables", "tfrecord"},
        "sources": {"arrays", "files", "images", "schema", "tables", "tfrecord"},
        "tokens": {"files", "order", "schema", "tfrecord"},
        "output": {"order", "schema", "tfrecord", "tokens"},
        "public": {"order"},
    },
    "cloud": {"simulator": set(), "tpu": set()},
    "flows": {
        "hosts": set(),
        "nodes": {"hosts"},
        "datasets": set(),
        "runs": {"datasets", "hosts", "nodes"},
        "project": set(),
    },
    "flows/datasets": {"beam": set()},
    "cli": {"nodes": set(), "datasets": set(), "runs": set(), "project": set(), "simulator": set()},
    "sim": {
        "guest": set(),
        "state": set(),
        "events": set(),
        "network": {"state"},
        "faults": {"events", "state"},
        "hosts": {"events", "network", "state"},
        "compute": {"state"},
        "world": {"events", "faults", "state"},
        "tpu": {"world"},
        "gcs": {"faults", "state"},
    },
    "sim/guest": {"_tpuctl_tpu": set()},
    "sim/guest/_tpuctl_tpu": {"findings": set()},
    "sim/hosts": {"metadata": set(), "programs": set(), "ssh": {"programs"}},
    "sim/tpu": {"methods": set()},
    "sim/world": {"capacity": set(), "nodes": {"capacity"}, "queue": {"capacity", "nodes"}},
    "sim/gcs": {
        "rules": set(),
        "storage": {"rules"},
        "lifecycle": {"rules", "storage"},
        "http": {"rules"},
        "json_api": {"http", "rules", "storage"},
        "uploads": {"http", "json_api", "rules", "storage"},
        "downloads": {"http", "json_api", "rules", "storage"},
        "xml_api": {"downloads", "http", "json_api", "rules", "storage", "uploads"},
    },
}  # fmt: skip
"""A module above rooms (`data/plan.py`) is no room: it may use them, or be used by them, but never both."""
BESIDE_ROOMS = {
    # floor with rooms: the modules that are in none of them
    "data": {"plan", "source", "options", "bad_records"},
    "cloud": {
        "downloads", "endpoints", "error_mapping", "google_clients", "provider", "recording",
        "ssh", "storage", "streams",
    },
    "flows": {"progress"},
    "flows/datasets": {
        "commit", "conversion", "fetch", "head", "local_copy", "lookup", "plan", "request", "rm", "staging",
        "upload", "verify",
    },
    "cli": {"main", "output", "progress", "session"},
    "sim": {
        "__main__", "accounts", "client_environment", "clock", "control", "fault_executor",
        "host_environment", "json_values", "orphan_cleanup", "records", "resource_names", "run_progress",
        "settings", "simulator", "token_server", "tpu_servers",
    },
    "sim/hosts": {"disk", "host", "faults", "isolation", "network", "os_inventory", "pool"},
    "sim/tpu": {
        "api_v1", "api_versions", "grpc_api", "http_rules", "messages", "rest_api", "rpcs", "service",
    },
    "sim/world": {
        "api_errors", "api_json", "change_notifier", "filters", "injected_faults", "names", "operations",
        "pages", "resources", "state", "state_machine", "tasks", "world",
    },
    "sim/gcs": {"checksums", "crc32c_combine", "errors", "server", "timestamps"},
}  # fmt: skip
MOST_FILES = 15
"""In a folder, `__init__` and `__main__` not counted."""

HOMES = {
    # foreign top-level package: the floors that may name it
    "grpc": {"cloud", "sim"},
    "grpc_status": {"sim"},
    "google": {"cloud", "sim"},
    "requests": {"cloud"},
    "urllib3": {"cloud"},
    "fabric": {"cloud"},
    "paramiko": {"cloud"},
    "invoke": {"cloud"},
    "cryptography": {"cloud", "sim"},
    "click": {"cli"},
    "rich": {"cli"},
    "asyncssh": {"sim"},
    "aiohttp": {"sim"},
    "trustme": {"sim"},
    "pytest": {"testing"},
    "PIL": {"data"},
    "packaging": {"facts"},
    "google_crc32c": {"facts", "data", "sim"},
    "msgspec": {"facts", "data", "cloud", "flows", "cli", "sim"},
    "tensorflow": {"guest"},
    "keras": {"guest"},
    "tf_keras": {"guest"},
    "jax": {"guest"},
    "numpy": {"data", "guest"},
    "pyarrow": {"data"},
    "apache_beam": {"flows"},
}
ALLOWED_GOOGLE = {"data": {"google.protobuf"}}
"""protobuf is a wire format, not a client: tf.train.Example is written with it."""


def modules() -> Iterator[Path]:
    return (path for path in sorted(PACKAGE.rglob("*.py")))


def floor(dotted: str) -> str:
    """The floor of a module of the package, by its dotted name."""
    parts = dotted.split(".")[1:]
    if not parts:
        return "facts"
    if parts[:2] == ["sim", "guest"] and len(parts) > 2:
        return "guest"
    if parts[:2] == ["worker", "records"]:
        return "records"  # what the laptop and the host both read: plain, and of the standard library
    if parts[0] in FLOORS:
        return parts[0]
    return "facts"


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] in ("__init__", "__main__") else parts)


def imports(path: Path, *, types_too: bool = False) -> Iterator[str]:
    """Names of the modules a file imports, those only for types left out unless asked for."""
    for statement, for_types in _statements(path):
        if for_types and not types_too:
            continue
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        else:
            yield from (f"{_absolute(path, statement)}.{alias.name}" for alias in statement.names)


@cache
def _statements(path: Path) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """The import statements of a file, each with whether it is for types only; parsed once for all tests."""
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
    """The module that a from-import names; only the guest, which has another name on a host, is relative."""
    if statement.level == 0:
        return str(statement.module)
    assert floor(dotted(path)) == "guest", f"{path}: relative import"
    package = ".".join(path.relative_to(ROOT).parts[: -statement.level])
    return f"{package}.{statement.module}" if statement.module else package


def test_every_module_imports_only_lower_floors() -> None:
    wrong = []
    for path in modules():
        importer = floor(dotted(path)) if path.name != "__main__.py" or path.parent != PACKAGE else "cli"
        for name in imports(path, types_too=True):
            if name.split(".")[0] != "tpuctl":
                continue
            imported = floor(name)
            if imported != importer and imported not in FLOORS[importer] and name != "tpuctl.__version__":
                wrong.append(f"{path.relative_to(ROOT)} ({importer}) imports {name} ({imported})")
    assert wrong == []


def test_foreign_packages_are_named_only_where_they_live() -> None:
    wrong = []
    for path in modules():
        importer = floor(dotted(path))
        for name in imports(path, types_too=True):
            homes = HOMES.get(name.split(".")[0])
            allowed = any(name.startswith(package) for package in ALLOWED_GOOGLE.get(importer, ()))
            if homes is not None and importer not in homes and not allowed:
                wrong.append(f"{path.relative_to(ROOT)} ({importer}) imports {name}")
    assert wrong == []


def test_the_table_of_floor_one_names_every_module_beside_the_rooms() -> None:
    modules_beside = {path.stem for path in PACKAGE.glob("*.py")} - {"errors", "__main__"}
    assert modules_beside == FACTS


def folders(top: Path) -> Iterator[Path]:
    """The folders below `top` that hold modules."""
    return (path for path in sorted({file.parent for file in top.rglob("*.py")}) if path != top)


def test_every_folder_is_a_room_of_the_table() -> None:
    listed = {f"{floor}/{room}".lstrip("/") for floor, rooms in ROOMS_OF.items() for room in rooms}
    assert {path.relative_to(PACKAGE).as_posix() for path in folders(PACKAGE)} == listed


def test_what_stands_beside_rooms_is_in_the_table() -> None:
    beside = {
        place: {path.stem for path in (PACKAGE / place).glob("*.py")} - {"__init__"} for place in BESIDE_ROOMS
    }
    assert beside == BESIDE_ROOMS


@pytest.mark.parametrize("place", ROOMS_OF)
def test_a_room_imports_only_the_rooms_beside_it_that_the_table_names(place: str) -> None:
    wrong = []
    above = ".".join(("tpuctl", *filter(None, place.split("/"))))
    for room, allowed in ROOMS_OF[place].items() if place else ():
        for path in (PACKAGE / place / room).rglob("*.py"):
            for name in imports(path, types_too=True):
                other = name.removeprefix(f"{above}.").split(".")[0]
                if name.startswith(f"{above}.") and other in ROOMS_OF[place].keys() - allowed - {room}:
                    wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


@pytest.mark.parametrize("top", ["tpuctl", "tests", "benchmarks"])
def test_no_folder_is_crowded(top: str) -> None:
    programs = ROOT / "tests/sim/guest/findings/programs"  # a program a finding, and one list of them
    for folder in (ROOT / top, *folders(ROOT / top)):
        files = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__", "conftest"}
        assert len(files) <= MOST_FILES or programs in folder.parents, folder


@pytest.mark.parametrize("top", ["tpuctl", "tests", "benchmarks"])
def test_no_prefix_repeats_a_folder(top: str) -> None:
    """Neither that of the file itself, nor one that should be a folder since many files have it."""
    programs = ROOT / "tests/sim/guest/findings/programs"
    for folder in folders(ROOT / top):
        stems = [path.stem.removeprefix("test_") for path in folder.glob("*.py") if path.stem[0] != "_"]
        first = [stem.split("_")[0] for stem in stems if "_" in stem]
        assert not [stem for stem in stems if stem.startswith(f"{folder.name.rstrip('s')}_")], folder
        assert not [word for word in first if first.count(word) > 2] or programs in folder.parents, folder


def test_tests_are_where_their_source_is() -> None:
    own = {"sim/unmodified", "sim/unmodified/programs", "sim/tpu/clients", "sim/tpu/nodes", "sim/tpu/queue"}
    """Rooms of tests alone: whole programs, and ways through one API."""
    floors = {path.name for path in folders(PACKAGE) if path.parent == PACKAGE}
    rooms = {path.relative_to(ROOT / "tests").as_posix() for path in folders(ROOT / "tests")}
    of_floors = {
        path for path in rooms - own if path.split("/")[0] in floors and not path.startswith("sim/guest/")
    }
    sources = {path.relative_to(PACKAGE).as_posix() for path in folders(PACKAGE)}
    assert of_floors - sources - {"sim/gcs/clients", "testing/examples"} == set()


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
    """So that a second provider is a second room of `cloud/`, and a line in `endpoints.py`."""
    room = PACKAGE / "cloud" / "tpu"
    importers = {
        path.relative_to(PACKAGE).as_posix()
        for path in modules()
        if room not in path.parents
        for name in imports(path, types_too=True)
        if name.startswith("tpuctl.cloud.tpu")
    }
    assert importers == {"cloud/endpoints.py"}


def test_resource_names_of_the_cloud_tpu_api_stay_in_its_room() -> None:
    elsewhere = {
        path.relative_to(PACKAGE).as_posix()
        for path in modules()
        if "/locations/" in path.read_text() and floor(dotted(path)) not in ("sim", "testing")
    }
    assert elsewhere == {"cloud/tpu/names.py", "cloud/tpu/api_requests.py"}


def test_the_worker_uses_the_standard_library_alone() -> None:
    import sys

    allowed = set(sys.stdlib_module_names) | {"tpuctl"}
    wrong = [
        f"{path.name}: {name}"
        for path in (PACKAGE / "worker").glob("*.py")
        for name in imports(path)
        if name.split(".")[0] not in allowed
    ]
    assert wrong == []


def test_the_worker_is_written_in_python_3_8() -> None:
    for path in (PACKAGE / "worker").glob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))


@pytest.mark.parametrize("job", sorted((ROOT / "jobs").glob("*.py")), ids=lambda path: path.name)
def test_jobs_import_nothing_of_tpuctl(job: Path) -> None:
    assert not [name for name in imports(job) if name.split(".")[0] == "tpuctl"]


def test_jobs_know_nothing_of_the_simulator() -> None:
    """But for the one that would take the speed of a CPU for that of a TPU."""
    for job in {*(ROOT / "jobs").rglob("*.py")} - {ROOT / "jobs/tpu_check.py"}:
        text = job.read_text().lower()
        assert "tpuctl_sim" not in text
        assert "simulat" not in text
