"""Prints what a host has, as a line of JSON: `python3 -c SOURCE DISTRIBUTION...`, for `tpuctl doctor --live`.

Standard library only. Names no account, no address and no value of metadata: a bug report carries it.
"""

import glob
import importlib
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import urllib.request
from importlib import metadata
from typing import Dict, List, Sequence

LOCK = "/tmp/libtpu_lockfile"  # noqa: S108  libtpu's own
DEVICES = ("/dev/accel[0-9]*", "/dev/vfio/[0-9]*")
LIBRARIES = ("/lib/libtpu.so", "/usr/lib/libtpu.so", "/usr/local/lib/libtpu.so")
ROOT = os.path.realpath(os.environ.get("TPUCTL_HOST_ROOT") or "/").rstrip("/")
"""Before the paths of what a host has of its own: a simulated one has them in a folder."""
SUDO = ("sudo", "-n")
TIMEOUT = 60.0
NONE = "none"


def facts(distributions: Sequence[str]) -> Dict[str, object]:
    """Return what the host has, and the versions of those of `distributions` that its python3 has."""
    devices = sorted(path for pattern in DEVICES for path in glob.glob(ROOT + pattern))
    is_root = _runs(*SUDO, "true")
    return {
        "system": _system(),
        "python": _last_word(_output("python3", "-V")),
        "pip": _pip(),
        "sudo": _answer(is_root),
        "docker": _answer(shutil.which("docker")),
        "crontab": _answer(shutil.which("crontab")),
        "venv": _answer(importlib.util.find_spec("ensurepip")),
        "libtpu": _answer(importlib.util.find_spec("libtpu") or any(map(os.path.exists, LIBRARIES))),
        "devices": [path[len(ROOT) :] for path in devices],
        "access": _answer(devices and all(os.access(path, os.R_OK | os.W_OK) for path in devices)),
        "holders": _holders(devices, is_root),
        "lock file": _owner(ROOT + LOCK),
        "packages": {name: version for name in distributions for version in _versions(name)},
        "worker": _instance("attributes/agent-worker-number") or NONE,
        "attributes": "enable-guest-attributes: %s"
        % (_instance("attributes/enable-guest-attributes") or NONE),
        "scopes": [text.rpartition("/")[2] for text in _instance("service-accounts/default/scopes").split()],
        "processors": os.cpu_count(),
        "memory": "%d GiB" % (os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30),
        "disk": "%d GB free" % (shutil.disk_usage("/").free // 10**9),
        "open files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "user": "root" if os.geteuid() == 0 else "an ordinary one",
    }


def _system() -> str:
    try:
        with open("/etc/os-release", encoding="utf-8") as stream:
            pairs = dict(line.rstrip("\n").split("=", 1) for line in stream if "=" in line)
    except OSError:
        return NONE
    return pairs.get("PRETTY_NAME", NONE).strip("\"'")


def _pip() -> str:
    try:
        return str(importlib.import_module("pip").__version__)
    except ImportError:
        return NONE


def _answer(value: object) -> str:
    return "yes" if value else "no"


def _last_word(text: str) -> str:
    return (text.split() or [NONE])[-1]


def _output(*command: str) -> str:
    """Return what a command prints; nothing where it fails or is not there."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace").strip()


def _runs(*command: str) -> bool:
    return _output("sh", "-c", '"$@" >/dev/null && echo yes', "sh", *command) == "yes"


def _versions(name: str) -> List[str]:
    try:
        return [metadata.version(name)]
    except metadata.PackageNotFoundError:
        return []


def _holders(devices: Sequence[str], is_root: bool) -> List[str]:
    """Return the programs of the processes that have chips open, with sudo if this user `is_root` by it."""
    sudo = SUDO if is_root else ()
    links = [word for path in devices for word in ("-o", "-lname", path)][1:]
    if not links:
        return []
    find = ("find", "/proc", "-mindepth", "3", "-maxdepth", "3", "-path", "/proc/[0-9]*/fd/*")
    tests = ("(", *links, ")", "-printf", "%h\n")
    found = _output(*sudo, *find, *tests)
    return sorted({_program(int(line.split("/")[2])) for line in found.splitlines()})


def _program(pid: int) -> str:
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as stream:
            return os.path.basename(stream.read().split(b"\0")[0]).decode("utf-8", "replace")
    except OSError:
        return "a program that has ended"


def _owner(path: str) -> str:
    """Return whose a file is, without a name: this user's, root's, another user's; or that there is none."""
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return NONE
    if owner == os.geteuid():
        return "of this user"
    return "of root" if owner == 0 else "of another user"


def _instance(path: str) -> str:
    """Return what the metadata server says of the instance; nothing where it does not."""
    server = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    url = "http://%s/computeMetadata/v1/instance/%s" % (server, path)
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})  # noqa: S310  http alone
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as response:
            return str(response.read().decode("utf-8", "replace").strip())
    except (OSError, ValueError):
        return ""


if __name__ == "__main__":
    print(json.dumps(facts(sys.argv[1:])))
