"""Code that uses private names of other modules breaks with their next release: the list may only shrink."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent / "tpuctl"
DOCUMENTED = {
    "_asdict", "_exit", "_fields", "_getframe", "_make", "_render_traceback_", "_replace", "_typeshed",
}  # fmt: skip
"""Public in spite of their underscore: of named tuples, `os` and `sys`, IPython's protocol, type stubs."""
OWN = ("__", "_tpuctl")
GUEST = "sim/guest/_tpuctl_tpu"
KNOWN = {
    # one part of tpuctl's own Python API from another
    "client/datasets/client.py": {"_of"},
    "client/datasets/dataset.py": {"_of"},
    "client/nodes/client.py": {"_delete", "_plan"},
    "client/runs/client.py": {"_of", "_plan", "_policy", "_typed"},
    "client/runs/run.py": {"_of"},
    # a parameter of google-cloud-storage: its only way to take a session, by which tpuctl downloads, too
    "cloud/storage.py": {"_http"},
    # Apache Beam has no public way to the options that its runners take
    "flows/datasets/beam/pipeline.py": {"_actions", "_add_argparse_args"},
    # aiohttp and asyncssh, whose bytes and sockets a fault takes hold of
    "sim/gcs/uploads.py": {"_buffer_offset"},
    "sim/hosts/ssh.py": {"_transport"},
    # the HTTP rules of the Cloud TPU API, as Google generates them
    "sim/tpu/http_rules.py": {"_BaseTpuRestTransport", "_get_http_options"},
    # TensorFlow, which is made to take a CPU for a TPU
    f"{GUEST}/compilation.py": {"_jit_compile"},
    f"{GUEST}/devices.py": {"_EagerDeviceContext", "_add_device_to_stack"},
    f"{GUEST}/findings/host.py": {
        "_BatchDataset", "_DefaultDistributionStrategy", "_MapDataset", "_OptionsDataset",
        "_ParallelBatchDataset", "_ParallelMapDataset", "_PrefetchDataset", "_RepeatDataset",
        "_ShuffleDataset", "_check_spec", "_inputs", "_strategy", "_update", "_wrong_strategy_scope",
    },
    f"{GUEST}/findings/replicas.py": {
        "_call", "_call_for_each_replica", "_get_function", "_value_specs",
    },
    f"{GUEST}/pipelines.py": {"_apply_debug_options"},
    f"{GUEST}/replica.py": {"_autograph"},
    f"{GUEST}/resolver.py": {"_LOCAL_MASTERS"},
    f"{GUEST}/system.py": {"_INITIALIZED_TPU_SYSTEMS", "_LOCAL_MASTERS"},
}  # fmt: skip
"""Module -> private names of other modules that it uses."""


def of_others(tree: ast.Module) -> Iterator[str]:
    """Yield the private names that a module uses and does not define."""
    nodes = list(ast.walk(tree))
    own = DOCUMENTED | set(_defined(nodes))
    for node in nodes:
        if isinstance(node, ast.Attribute) and not _is_own(node.value):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [name for alias in node.names for name in alias.name.split(".")]
        elif isinstance(node, ast.keyword):
            names = [node.arg or ""]
        else:
            continue
        yield from (
            name for name in names if name[:1] == "_" and not name.startswith(OWN) and name not in own
        )


def _is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def _defined(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Attribute(ctx=ast.Store(), attr=name, value=value) if _is_own(value):
                yield name
            case ast.Name(ctx=ast.Store(), id=name) | ast.arg(arg=name):
                yield name


def test_private_names_of_others_are_found_in_each_way_to_use_them() -> None:
    found = of_others(
        ast.parse(
            "from a._b import _c\nimport d._e\n"
            "class F:\n  def __init__(self): self._g = self._g.h._i(_j=1)\n"
            "  def _k(self, o): o._k, o._g, o.__class__"
        )
    )
    assert sorted(found) == ["_b", "_c", "_e", "_i", "_j"]


def test_the_private_names_of_others_that_are_used_are_known() -> None:
    used: dict[str, set[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        if names := set(of_others(ast.parse(path.read_text(encoding="utf-8")))):
            used[path.relative_to(ROOT).as_posix()] = names
    assert used == KNOWN
