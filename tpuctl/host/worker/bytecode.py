"""Keeps this program on the host as bytecode: Python compiles what it imports from a zip at each start."""

from __future__ import annotations

import os
import sys
from importlib.util import MAGIC_NUMBER

FOLDER = "programs"
"""Beside the folder of all runs."""
UNCHECKED = b"\1\0\0\0"
"""Flags of bytecode that is not compared with its source (PEP 552)."""


def keep(folder: str) -> None:
    """Write the program of the attempt in `folder` with the bytecode of what was imported, once for all runs.

    The next launch starts it by the hash of the program as it was sent. Another version of Python passes the
    bytecode over. Nothing is written for a folder that is not an attempt's.
    """
    program = os.path.join(folder, "worker.zip")
    root = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
    if os.path.basename(root) != ".tpuctl" or os.path.abspath(sys.argv[0]) != program:
        return
    import hashlib  # a run that finds the bytecode needs none of these

    with open(program, "rb") as stream:
        name = hashlib.sha256(stream.read()).hexdigest()
    target = os.path.join(root, FOLDER, name + ".zip")
    if os.path.exists(target):
        return
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    part = "%s.%d.part" % (target, os.getpid())
    try:
        _compile(program, part, target)
        with open(part, "rb") as written:
            os.fsync(written.fileno())  # a host that dies must not keep a name without its content
        os.link(part, target)  # replaces none, which a program may be reading
    except FileExistsError:
        pass  # another run was first
    finally:
        if os.path.exists(part):
            os.unlink(part)


def _compile(program: str, part: str, target: str) -> None:
    """Copy a zip, with the bytecode of its modules that are in use."""
    import marshal
    import zipfile

    with zipfile.ZipFile(program) as source, zipfile.ZipFile(part, "w") as copy:
        for name in source.namelist():
            text = source.read(name)
            copy.writestr(name, text)
            stem = name[: -len(".py")]
            module = stem[: -len("/__init__")] if stem.endswith("/__init__") else stem
            if module == "__main__" or module.replace("/", ".") in sys.modules:
                code = compile(text, os.path.join(target, name), "exec", dont_inherit=True)
                copy.writestr(stem + ".pyc", MAGIC_NUMBER + UNCHECKED + bytes(8) + marshal.dumps(code))
