"""Parses programs before they are sent: their syntax, what they import, and which of it nothing provides.

Imports are followed through the project: to send what a script needs, and to see its framework.

It is read, never run. What is imported in a function, a condition or a `try` may be absent.
"""

from __future__ import annotations

import ast
import codecs
import io
import platform
import sys
import threading
import tokenize
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tpuctl.errors import UsageError
from tpuctl.flows.runs.code.project_files import read_source
from tpuctl.host.worker import requirements
from tpuctl.host.worker.requirements import normalized
from tpuctl.images import JAX, PYTORCH, TENSORFLOW
from tpuctl.job_header import Header

LONGEST = 1 << 18
"""Bytes of a source that is parsed: its syntax tree takes some hundred times as many.

Python 3.11 takes a time that grows with the square of the expressions in an f-string.
"""
_FRAMEWORKS = {
    # distribution or module: the framework that has the chips. The first counts where several are there: a
    # program of JAX may read its data with TensorFlow, and one of TensorFlow take a tokenizer of torch.
    **dict.fromkeys(("torch-xla", "torch-tpu"), PYTORCH),
    **dict.fromkeys(("jax", "flax"), JAX),
    "tensorflow": TENSORFLOW,
    "tensorflow-tpu": TENSORFLOW,
    "torch": PYTORCH,
}
_SLOW = frozenset({"punycode", "idna"})
"""Encodings that Python decodes in a time that grows with the square."""
_PARSING = threading.Lock()
"""Held while Python parses: of two threads that do in 3.11, one may get a SystemError."""


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
    "keras", "jax", "jaxlib", "flax", "pydot", "xarray", "zarr", "dm_env", "imageio", "omegaconf", "ruamel",
    "seaborn", "tokenizers", "torchmetrics",
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
}
_SHORTEST = 4
"""Letters of a name that tell something where they are a part of another one."""
_OPTIONAL = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def is_parsed(source: bytes) -> bool:
    """Return whether a source is one that Python parses in a time and a memory that grow with its size."""
    if len(source) > LONGEST:
        return False
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        return codecs.lookup(encoding).name not in _SLOW
    except SyntaxError:
        return True  # Python says what is wrong


def parsed(source: bytes) -> ast.Module | None:
    """Return a source's syntax tree; None where this Python cannot parse it."""
    try:
        with _PARSING, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the script are for its own run
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


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


def imported_names(source: bytes) -> Iterator[str]:
    """Yield each absolute name that a file imports, with its dots; the last part may be no module."""
    return (each.name for each in imports(source) if not each.level)


def _imports(nodes: Iterable[ast.AST], *, is_needed: bool) -> Iterator[Import]:
    """Yield what statements import; expressions, which may be nested deep, are not looked into."""
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
            inner = [each for name in _BODIES for each in getattr(node, name, ())]
            yield from _imports(inner, is_needed=is_needed and is_block)


_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields of statements that have statements."""


def _catches_imports(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or getattr(kind, "id", "") in _OPTIONAL for kind in kinds)


def local_modules(script: Path, root: Path | None = None, names: Iterable[str] = ()) -> list[Path]:
    """Return the modules and packages in the script's folder that it imports, directly or through another.

    `root` is another folder to import from, and `names` are imported in place of what the script imports.

    A module is a file `name.py`, a package a folder with an `__init__.py`, or without one a folder in which a
    module is that is imported by name: all files of it count. A script that this Python cannot parse imports
    nothing: the host's Python may be newer.
    """
    root = (root or script.parent).resolve()
    own = script.parent.resolve() / script.name
    modules, pending = {own}, list(names) or list(imported_names(read_source(own)))
    while pending:
        module = _module(root, pending.pop())
        if module is None or module in modules:
            continue
        modules.add(module)
        if module.resolve().is_relative_to(root):  # else a link, which is refused when the files are listed
            files = filter(Path.is_file, module.rglob("*.py")) if module.is_dir() else [module]
            pending += (name for file in files for name in imported_names(read_source(file)))
    return sorted(modules - {own})


def _module(root: Path, name: str) -> Path | None:
    try:
        return _named(root, name)
    except (OSError, ValueError):  # a name that no file can have
        return None


def _named(root: Path, name: str) -> Path | None:
    first, *inner = name.split(".")
    folder, module = root / first, root / f"{first}.py"
    if (folder / "__init__.py").is_file():
        return folder
    if module.is_file():
        return module
    # A folder of an installed package's name, such as `wandb`, often holds what that package wrote.
    return folder if inner and first not in sys.stdlib_module_names and _holds(folder, inner[0]) else None


def _holds(folder: Path, name: str) -> bool:
    """Return whether a module or a package, with an `__init__.py` or without, is in a folder."""
    return (folder / f"{name}.py").is_file() or any(path.is_file() for path in (folder / name).glob("*.py"))


def framework(imported: Iterable[str], dependencies: Iterable[str] = ()) -> str:
    """Return the framework of imported names or of requirements; '' where they name none."""
    named = {requirements.parse(text).name for text in dependencies}
    named |= {requirements.normalized(name.partition(".")[0]) for name in imported}
    return next((found for name, found in _FRAMEWORKS.items() if name in named), "")


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
    files_of = lru_cache(None)(_files)
    while pending and len(found) < MOST_FILES and size < MOST_BYTES:
        file, data, is_needed = pending.pop(0)
        size += len(data)
        source = Source(file, data, imports(data), is_needed)
        found.append(source)
        for each in source.imports:
            starts = tuple(file.parents[each.level - 1 : each.level]) if each.level and file else tuple(roots)
            for module in files_of(each.name, starts):
                if module not in seen:
                    seen.add(module)
                    pending.append((module, read_source(module), is_needed and each.is_needed))
    return found


def _files(name: str, starts: Sequence[Path]) -> Sequence[Path]:
    """Return the files that Python reads for an import, in the first folder that has its package."""
    for start in starts:
        try:
            modules = list(_below(start, name.split(".")))
        except (OSError, ValueError):  # a name that no file can have
            continue
        if modules:
            return modules
    return ()


def _below(top: Path, parts: Sequence[str]) -> Iterator[Path]:
    folder = top
    for part in parts:
        module, package = folder / f"{part}.py", folder / part / "__init__.py"
        for path in (package, module):
            if path.is_file() and path.resolve().is_relative_to(top.resolve()):
                yield path
                break
        folder = folder / part
        if not folder.is_dir():
            return


def missing(
    sources: Sequence[Source],
    shipped: Collection[str],
    distributions: Collection[str],
    image: Collection[str],
    ignored: Collection[str],
) -> dict[str, tuple[Path | None, int]]:
    """Return modules that are surely needed and that nothing provides, with the place of the first import.

    `shipped` are names of files that travel, `distributions` what hosts install, and `image` what they have.
    What distributions that are not known here bring along counts as provided if it is usual, and so does
    `_name`: an extension that a build makes. `ignored` are modules that other notes are about.
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
            is_sure = each.is_needed and not each.level and not top.startswith("_")
            if is_sure and top.lower() not in lower and not _is_part(top, names):
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


def check_syntax(files: Sequence[Path], header: Header) -> list[str]:
    """Compile Python files and return notes on those that only another Python could compile, if any can.

    Raises UsageError with the line of an error, unless the header excludes this Python.
    """
    notes, version = [], platform.python_version()
    for file in files:
        source = read_source(file)
        if not is_parsed(source):
            notes.append(
                f"{file} is too long, or in an encoding that takes too long, to be checked for syntax errors."
                " What it imports is not looked for: pass it with --include."
            )
            continue
        try:
            error = _syntax_error(source, file)
        except (RecursionError, MemoryError):  # the compiler's own limits
            notes.append(f"{file} is nested too deep to be checked for syntax errors.")
            continue
        if error and header.accepts_python(version):
            raise UsageError(f"{_sentence(file, error)}.", hint=_HINT, file=str(file), line=error.lineno)
        if error:
            pythons = f"it asks for Python {header.asked_python}, and this is {version}"
            notes.append(f"{_sentence(file, error)}. The run is submitted anyway: {pythons}.")
    return notes


_HINT = (
    f"Nothing was sent. This is Python {platform.python_version()}; a script for a newer one says so in its "
    'header, such as requires-python = ">=3.13".'
)


def _syntax_error(source: bytes, file: Path) -> SyntaxError | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the script are for its own run
        try:
            compile(source, str(file), "exec", dont_inherit=True)
        except SyntaxError as error:
            return error
        except ValueError as error:  # a null byte, before Python 3.12
            return SyntaxError(str(error))
    return None


def _sentence(file: Path, error: SyntaxError) -> str:
    line = f"line {error.lineno}: " if error.lineno else ""
    text = f": {error.text.strip()}" if error.text and error.text.strip() else ""
    return f"{file} has a syntax error, {line}{error.msg}{text}"
