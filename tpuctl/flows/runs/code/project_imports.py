"""Follows what a program imports through its project, and tells which imports nothing on a host provides.

It is read, never run. What is imported in a function, a condition or a `try` may be absent.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tpuctl.flows.runs.code.project_files import is_parsed, parsed, read_source
from tpuctl.host.worker.requirements import normalized

MOST_FILES, MOST_BYTES = 150, 400_000
"""Files of a project that are read for their imports, the nearest first, and their bytes."""
_GONE = frozenset({
    "asynchat", "asyncore", "distutils", "imp", "smtpd", "tomllib", "pkg_resources", "setuptools",
})  # fmt: skip
"""Modules that a host's Python may have, and this one has not."""
_MODULES = {
    # distribution -> modules whose names differ from its own
    "absl-py": "absl", "attrs": "attr attrs", "beautifulsoup4": "bs4", "biopython": "Bio",
    "commonlooputils": "clu", "dm-haiku": "haiku", "dm-reverb": "reverb", "dm-sonnet": "sonnet",
    "dm-tree": "tree", "faiss-cpu": "faiss", "ffmpeg-python": "ffmpeg", "gin-config": "gin",
    "google-api-python-client": "googleapiclient apiclient", "google-cloud-storage": "google",
    "grain-nightly": "grain", "hydra-core": "hydra", "ipython": "IPython", "keras-nightly": "keras",
    "levenshtein": "Levenshtein", "opencv-python": "cv2", "opencv-contrib-python": "cv2",
    "opencv-python-headless": "cv2", "orbax-checkpoint": "orbax", "orbax-export": "orbax",
    "pillow": "PIL", "protobuf": "google", "pyserial": "serial", "pytest-xdist": "xdist",
    "python-dateutil": "dateutil", "python-dotenv": "dotenv", "pyyaml": "yaml",
    "scikit-image": "skimage", "scikit-learn": "sklearn", "setuptools": "setuptools pkg_resources",
    "tensorflow-cpu": "tensorflow", "tensorflow-gpu": "tensorflow", "tensorflow-tpu": "tensorflow",
    "tf-models-nightly": "official", "tf-models-official": "official", "tf-nightly": "tensorflow",
    "tf-nightly-cpu": "tensorflow", "tfds-nightly": "tensorflow_datasets",
    "tfp-nightly": "tensorflow_probability", "umap-learn": "umap",
}  # fmt: skip
_USUAL = frozenset({
    "absl", "attr", "attrs", "certifi", "chardet", "charset_normalizer", "click", "cloudpickle",
    "cryptography", "dateutil", "decorator", "dill", "einops", "etils", "filelock", "fsspec",
    "google", "grpc", "h5py", "httpx", "huggingface_hub", "idna", "immutabledict", "jinja2",
    "joblib", "jsonschema", "markdown", "matplotlib", "ml_dtypes", "msgpack", "multiprocess",
    "nest_asyncio", "networkx", "numpy", "opt_einsum", "packaging", "pandas", "PIL", "pip",
    "platformdirs", "promise", "psutil", "pyarrow", "pydantic", "pygments", "pyparsing", "pytz",
    "regex", "requests", "rich", "safetensors", "scipy", "setuptools", "six", "sympy", "tabulate",
    "tensorboard", "tensorstore", "termcolor", "toolz", "toml", "tqdm", "tree", "treescope",
    "typeguard", "typing_extensions", "urllib3", "wheel", "wrapt", "yaml", "zstandard", "dm_tree",
    "jaxtyping", "equinox", "chex", "optax", "orbax", "ml_collections", "docker", "pkg_resources",
    "keras", "jax", "jaxlib", "flax", "pydot", "xarray", "zarr",
})  # fmt: skip
"""Modules that other distributions often bring along."""
_BRINGS = {
    # distribution -> what it surely brings, and nothing else of _USUAL
    "absl-py": "",
    "certifi": "",
    "einops": "",
    "equinox": "jax jaxlib jaxtyping ml_dtypes numpy opt_einsum scipy typing_extensions wadler_lindig",
    "ipython": "pygments decorator typing_extensions",
    "jax": "jaxlib ml_dtypes numpy opt_einsum scipy",
    "jaxlib": "ml_dtypes numpy scipy",
    "jaxtyping": "typing_extensions wadler_lindig",
    "libtpu": "",
    "matplotlib": "PIL dateutil numpy packaging pyparsing six",
    "numpy": "",
    "optax": "absl jax jaxlib ml_dtypes numpy opt_einsum scipy",
    "pandas": "dateutil numpy pytz six",
    "pyyaml": "",
    "requests": "certifi idna urllib3",
    "scipy": "numpy",
    "six": "",
    "tensorflow": "absl google grpc h5py keras ml_dtypes numpy opt_einsum packaging requests rich"
    " setuptools six tensorboard termcolor typing_extensions wrapt",
    "tqdm": "",
    "typing-extensions": "",
    "wadler-lindig": "",
}  # fmt: skip
_SHORTEST = 4
"""Letters of a name that tell something where they are a part of another one."""
_OPTIONAL = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


@dataclass(frozen=True)
class Import:
    """One imported name of a file."""

    name: str
    """With dots; the last part may be no module."""
    line: int
    level: int = 0
    """Dots before a relative one."""
    is_needed: bool = True
    """Whether the file surely cannot be imported without it."""


@lru_cache(MOST_FILES * 2)
def imports(source: bytes) -> tuple[Import, ...]:
    """Return what a file imports; nothing of one that this Python cannot or should not parse.

    A plan asks twice: for the framework before the project is packed, and for what is missing after it.
    """
    tree = parsed(source) if is_parsed(source) else None
    return tuple(_imports(tree.body, is_needed=True)) if tree else ()


def _imports(nodes: Iterable[ast.AST], *, is_needed: bool) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, is_needed=is_needed) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = f"{node.module}." if node.module else ""
            names = [f"{start}{alias.name}" for alias in node.names]
            yield from (Import(name, node.lineno, node.level, is_needed) for name in names)
        elif isinstance(node, ast.Try):
            caught = not node.handlers or any(map(_catches_imports, node.handlers))
            yield from _imports(node.body, is_needed=is_needed and not caught)
            yield from _imports([*node.handlers, *node.orelse, *node.finalbody], is_needed=False)
        else:
            is_block = isinstance(node, (ast.With, ast.ClassDef))
            yield from _imports(ast.iter_child_nodes(node), is_needed=is_needed and is_block)


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or getattr(kind, "id", "") in _OPTIONAL for kind in kinds)


@dataclass(frozen=True)
class Source:
    """A file of the project that is imported, or the program itself."""

    file: Path | None
    data: bytes
    imports: Sequence[Import]
    is_needed: bool = True


def follow(first: Sequence[tuple[Path | None, bytes]], roots: Sequence[Path]) -> list[Source]:
    """Return programs, and the files below `roots` that they import, directly or through others."""
    pending = [(file, data, True) for file, data in first]
    found, seen, size = list[Source](), {file for file, _ in first}, 0
    while pending and len(found) < MOST_FILES and size < MOST_BYTES:
        file, data, is_needed = pending.pop(0)
        size += len(data)
        source = Source(file, data, imports(data), is_needed)
        found.append(source)
        for each in source.imports:
            for module in _files(each, file, roots):
                if module not in seen:
                    seen.add(module)
                    pending.append((module, read_source(module), is_needed and each.is_needed))
    return found


def _files(each: Import, file: Path | None, roots: Sequence[Path]) -> Iterator[Path]:
    """Yield the files that Python reads for an import, in the first of the roots that has its package."""
    if each.level and file:
        starts: Sequence[Path] = [file.parents[each.level - 1]] if each.level <= len(file.parents) else []
    else:
        starts = roots
    parts = each.name.split(".")
    for start in starts:
        try:
            modules = list(_below(start, parts))
        except (OSError, ValueError):  # a name that no file can have
            continue
        if modules:
            yield from modules
            return


def _below(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    top = folder.resolve()
    for part in parts:
        module, package = folder / f"{part}.py", folder / part / "__init__.py"
        for path in (package, module):
            if path.is_file() and path.resolve().is_relative_to(top):
                yield path
                break
        folder = folder / part


def missing(
    sources: Sequence[Source], shipped: Collection[str], distributions: Collection[str],
    image: Collection[str], ignored: Collection[str],
) -> dict[str, tuple[Path | None, int]]:  # fmt: skip
    """Return modules that are surely needed and that nothing provides, with the place of the first import.

    `shipped` are names of files that travel, `distributions` what hosts install, and `image` what they have.
    What distributions that are not known here bring along counts as provided if it is usual. `ignored` are
    modules that other notes are about.
    """
    parts = {part for name in shipped for part in name.removesuffix(".py").split("/")}
    names = {normalized(name) for name in distributions}
    provided = {*sys.stdlib_module_names, *_GONE, *parts, *ignored}
    for name in names.union(image):
        provided.update(_MODULES.get(name, "").split(), _BRINGS.get(name, "").split())
    if not names <= _BRINGS.keys():
        provided |= _USUAL
    names.update(image)
    lower = {name.lower() for name in provided}
    found: dict[str, tuple[Path | None, int]] = {}
    for source in sources:
        for each in source.imports if source.is_needed else ():
            top = each.name.partition(".")[0]
            if each.is_needed and not each.level and top.lower() not in lower and not _is_part(top, names):
                found.setdefault(top, (source.file, each.line))
    return found


def _is_part(module: str, distributions: Collection[str]) -> bool:
    """Return whether a distribution may have a module by its name, such as `tfds-nightly`."""
    own = normalized(module.lower())
    return any(own in name or (len(name) >= _SHORTEST and name in own) for name in distributions)


def distribution_of(module: str) -> str:
    """Return the name of the distribution that most likely has a module."""
    names: Mapping[str, str] = {
        part: name for name, parts in reversed(_MODULES.items()) for part in parts.split()
    }
    return "protobuf" if module == "google" else names.get(module, module.replace("_", "-"))
