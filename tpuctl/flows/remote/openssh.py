"""Builds command lines and options of the system's OpenSSH: our key, and published host keys only.

- Writes the host keys that a node has published into a file for OpenSSH, apart from the user's own.
- Writes entries of ssh_config(5), by which programs that use OpenSSH reach the workers of a node.
- Adds entries to the user's ~/.ssh/config and takes them away: all else in it stays byte for byte.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tpuctl.atomic_files import PRIVATE, swap_file
from tpuctl.cloud.provider import Provider
from tpuctl.errors import ConfigError, ConflictError, HostError, StateError
from tpuctl.flows.nodes.lookup import find_decided, take_inventory
from tpuctl.flows.remote.targets import Hosts, no_hosts_yet, no_own_tpu, only_own
from tpuctl.local.private_folder import make_missing_folders, make_private_folder
from tpuctl.nodes import Node, NodeId

KEEP_ALIVE = {"ServerAliveInterval": "30", "ServerAliveCountMax": "4", "ConnectTimeout": "120"}
"""A dead connection ends after two minutes; less than the ten after which Google's firewalls forget one.

So does a host that accepts connections and says nothing: ssh itself would wait for ever."""
LETTERS = "1246ab:c:e:fgi:kl:m:no:p:qstvxAB:CD:E:F:GI:J:KL:MNO:PQ:R:S:TVw:W:XYy"
"""Options of ssh, for getopt: those with a colon take a word (ssh.c of OpenSSH 9.2)."""
FOREIGN = ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG")
"""Variables that say whose credentials a command uses: paths, and no secrets."""


@dataclass(frozen=True)
class Login:
    """How OpenSSH reaches one worker."""

    user: str
    key: Path
    known_hosts: Path
    alias: str
    """The name of its key in `known_hosts`."""
    address: tuple[str, int] | None
    """Host and port; None where only the proxy command reaches it."""
    proxy: str
    """The proxy command: `none`, or empty to use that of the user's configuration, such as a jump host."""


def find_program(name: str = "ssh") -> str:
    """Return the path of a program of OpenSSH; raises ConfigError without it."""
    path = shutil.which(name)
    if path is None:
        raise ConfigError(
            f"There is no '{name}' on this machine's PATH.",
            hint="Install OpenSSH's client (Debian and Ubuntu: 'sudo apt install openssh-client').",
        )
    return path


def options(user: str, key: Path, known_hosts: Path) -> dict[str, str]:
    """Return the options that every login has, as lines of ssh_config(5).

    The user's own known_hosts is neither read nor written; an unknown or another key is refused.
    """
    return {
        "User": user,
        "IdentityFile": _path(key),
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": _path(known_hosts),
        "GlobalKnownHostsFile": os.devnull,
        "StrictHostKeyChecking": "yes",
        "HostKeyAlgorithms": "ssh-ed25519",
        "CheckHostIP": "no",
        "UpdateHostKeys": "no",
        "VerifyHostKeyDNS": "no",
    }


def command(program: str, login: Login, words: Sequence[str]) -> list[str]:
    """Return the command line of ssh; `words` are options of its own, then a command.

    A keep-alive that `words` name is theirs; the user's configuration holds for all that is not set here.
    """
    host, port = login.address or (login.alias, 22)
    given = " ".join(words).lower()
    settings = options(login.user, login.key, login.known_hosts) | {"HostKeyAlias": login.alias}
    settings |= {name: value for name, value in KEEP_ALIVE.items() if name.lower() not in given}
    if login.proxy:
        settings["ProxyCommand"] = login.proxy
    settings.pop("User")
    pairs = [f"-o{name}={value}" for name, value in settings.items()]
    return [program, *pairs, "-p", str(port), f"{login.user}@{host}", *words]


def proxy_command(variables: Mapping[str, str], arguments: Sequence[str]) -> str:
    """Return a command of tpuctl for OpenSSH to run in any folder, with these variables alone.

    With this Python, and never with a module of the folder in which ssh is called (`-P`).
    """
    inherited = {name: os.path.abspath(os.environ[name]) for name in FOREIGN if os.environ.get(name)}
    pairs = {**inherited, **variables, "TPUCTL_CONFIG": os.devnull}
    environment = [f"{name}={value}" for name, value in pairs.items()]
    line = shlex.join(["env", *environment, sys.executable, "-P", "-m", "tpuctl", *arguments])
    return line.replace("%", "%%")


def _path(path: Path) -> str:
    """Return a path as one word of ssh_config(5): a line that ssh cannot read ends it for every host."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


BLOB_START = b"\0\0\0\x0bssh-ed25519\0\0\0\x20"
BLOB_SIZE = len(BLOB_START) + 32
"""Bytes of an ed25519 public key (RFC 8709, section 4)."""


def key_alias(node: Node, worker: int) -> str:
    """Return the name under which a worker's key is known: another one for each node that is made."""
    return f"tpuctl.{_plain(node.id.uid or node.name)}.{worker}"


def _entry_names(node: NodeId, worker: int) -> list[str]:
    """Return a worker's names in entries of `ssh-config`: the same for its successor."""
    name, zone = _plain(node.name), _plain(node.zone)
    names = [*host_names(name, worker, ""), *host_names(name, worker, zone)]
    return [f"{name}{suffix}{HOST_SUFFIX}" for suffix in ("", SIM_SUFFIX) for name in names]


def known_hosts_file(folder: Path, node: NodeId, zone: str = "") -> Path:
    """Return the path of a node's file; its successor has the same, in any zone or in this one."""
    return folder / ".".join(map(_plain, (node.project, *filter(None, [zone]), node.name)))


def write_known_hosts(folder: Path, hosts: Hosts, zone: str = "") -> Path:
    """Write the published keys of a node and return the file's path; only a node's own keys are in it.

    Without `zone` it is the file of who asks for a node of this name in any zone. Raises HostError for a
    worker of `hosts` without a valid key, and ConfigError when it cannot be written.
    """
    node = hosts.node
    for worker in hosts.workers:
        if not _is_key(hosts.host_key(worker)):
            raise HostError(
                f"worker {worker} of '{node.name}': its published host key is not valid.",
                hint=f"Somebody has changed its guest attributes. Delete the node: {node.deletion}",
                host_key="invalid",
            )
    valid = {worker: key for worker, key in sorted(hosts.host_keys.items()) if _is_key(key)}
    lines = [f"{_names(node, worker)} ssh-ed25519 {key}\n" for worker, key in valid.items()]
    path = known_hosts_file(folder, node.id, zone)
    try:
        _replace_known(path, "".join(lines).encode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.", hint="Is the disk full?") from error
    return path


def _names(node: Node, worker: int) -> str:
    return ",".join([key_alias(node, worker), *_entry_names(node.id, worker)])


def _replace_known(path: Path, content: bytes) -> None:
    """Replace a file as a whole, also while another process does, unless it has the content."""
    make_private_folder(path.parent)
    if path.is_file() and path.read_bytes() == content:
        return
    swap_file(path, content, mode=PRIVATE)


def _is_key(published: str) -> bool:
    """Whether a text is a key and nothing more: a line of it would be trusted."""
    try:
        blob = base64.b64decode(published, validate=True)
    except (binascii.Error, ValueError):
        return False
    return published.isascii() and blob.startswith(BLOB_START) and len(blob) == BLOB_SIZE


def _plain(text: str) -> str:
    """Return a text without what would be a pattern in a known_hosts file or a path."""
    return re.sub(r"[^A-Za-z0-9-]", "-", text)


HOST_SUFFIX = ".tpuctl"
"""Ends the name under which OpenSSH looks up a host key; no network knows it."""
SIM_SUFFIX = ".sim"
"""Ends the names of hosts on the simulator."""
TITLE = "# tpuctl: node {} of {}"


@dataclass(frozen=True)
class Entry:
    """The lines for one node: its own name is worker 0, `NAME.w3` is worker 3."""

    node: str
    zone: str
    """The zone whose node of this name it is; empty for the one in whatever zone."""
    place: str
    """The project, or the simulator, that the node is in; another one may have a node of this name."""
    hosts: tuple[str, ...]
    """The names that `ssh` understands."""
    options: Mapping[str, str]

    @property
    def file_name(self) -> str:
        """The name of its file: no two entries may have the same."""
        return self.hosts[0]

    @property
    def title(self) -> str:
        """The first line, which says whose entry it is."""
        return TITLE.format(_base(self.node, self.zone), self.place)

    @property
    def text(self) -> str:
        """The lines."""
        lines = [self.title, f"Host {' '.join(self.hosts)}"]
        return "".join(
            f"{line}\n" for line in (*lines, *map("    {0[0]} {0[1]}".format, self.options.items()))
        )


def entry(node: Node, place: str, suffix: str, options: Mapping[str, str], zone: str = "") -> Entry:
    """Return the entry of a node; `suffix` ends its names, as `.sim` on the simulator.

    `zone` is the node's where the names say it: another zone has a node of this name.
    """
    names = [name for worker in range(node.hosts) for name in host_names(node.name, worker, zone)]
    fixed = {"HostName": f"%h{HOST_SUFFIX}", "Port": "22"}
    return Entry(node.name, zone, place, tuple(f"{name}{suffix}" for name in names), {**fixed, **options})


def host_names(name: str, worker: int, zone: str) -> list[str]:
    """Return the names of a worker in an entry: no node has one of them, as none has a dot in its name."""
    base = _base(name, zone)
    return [*([base] if worker == 0 else []), f"{base}.w{worker}"]


def _base(name: str, zone: str) -> str:
    return f"{name}.{zone}" if zone else name


def find_nodes(
    provider: Provider, names: Sequence[str], owner: str, zone: str | None, *, everything: bool = False
) -> tuple[list[Node], tuple[str, ...]]:
    """Return the nodes of these names, and the zones that did not answer.

    Without a name those of the owner's only TPU, else Terraform's, with `everything` all of both. The nodes
    are in any state. Raises NotFoundError or StateError where there are none or several TPUs, DeadlineError
    where a silent zone may hold them.
    """
    if not everything:
        allocations = [find_decided(provider, name, zone) for name in names]
        allocations = allocations or [only_own(provider, owner, zone)]
        for item in allocations:
            if not item.nodes and item.queued_resource:
                raise no_hosts_yet(item.queued_resource)
        return [node for item in allocations for node in item.nodes], ()
    inventory = take_inventory(provider, zone)
    own = [item for item in inventory.allocations if item.is_usable_by(owner) and not item.is_over]
    nodes = [node for item in own for node in item.nodes]
    if not nodes:
        raise no_own_tpu(inventory.unreachable, inventory.zone)
    return nodes, inventory.unreachable


FOLDER = "tpuctl.d"
COMMENT = b"# TPUs: 'tpuctl ssh-config --install' wrote these two lines, '--remove' takes them away.\n"
SECTION = re.compile(rb"^[ \t]*(host|match)\b", re.IGNORECASE | re.MULTILINE)


class SshConfig:
    """The user's configuration of OpenSSH, with a file for each of our entries in a folder beside it."""

    def __init__(self, home: Path) -> None:
        self.path = home / ".ssh" / "config"
        self.folder = home / ".ssh" / FOLDER

    def install(self, entries: Iterable[Entry]) -> None:
        """Write entries, and the line that includes them; the same again changes nothing.

        Raises ConflictError for a name that a node of another place has, ConfigError when nothing can be
        written.
        """
        with _written(self.path):
            for entry in entries:
                self._require_free(entry)
                make_missing_folders(self.folder)
                _replace_config(self.folder / entry.file_name, entry.text.encode(), PRIVATE)
            content = self._content()
            if self._include not in content[: _first_section(content)]:
                self._write(COMMENT + self._include + content)

    def remove(self, place: str, names: Sequence[str] = (), *, everything: bool = False) -> list[str]:
        """Delete the entries of these nodes of a place, else of its only one or of all; return their names.

        A node's name is that of its entries in each zone, too. The line that includes them goes with the last
        one. Raises StateError for several nodes where none is named, ConfigError for what cannot be written.
        """
        files = {self._node(path, place): path for path in self._files()}
        nodes = {node: path for node, path in files.items() if node}
        if len(nodes) > 1 and not (names or everything):
            raise StateError(
                f"There are entries of {len(nodes)} TPUs: {', '.join(sorted(nodes))}.",
                hint="Name one of them. All of them: tpuctl ssh-config --remove --all",
            )
        removed = [node for node in sorted(nodes) if not names or {node, node.partition(".")[0]} & set(names)]
        with _written(self.path):
            for node in removed:
                nodes[node].unlink(missing_ok=True)
            if not self._files():
                self._exclude()
        return removed

    def _exclude(self) -> None:
        content = self._content()
        without = content.replace(COMMENT + self._include, b"").replace(self._include, b"")
        if without != content:
            self._write(without)
        if self.folder.is_dir():
            self.folder.rmdir()

    @property
    def _include(self) -> bytes:
        pattern = re.sub(r"([*?\[\]\\])", r"\\\1", os.fspath(self.folder))
        return b'Include "' + os.fsencode(pattern) + b'/*"\n'

    def _files(self) -> list[Path]:
        return [path for path in self.folder.glob("*") if path.is_file()] if self.folder.is_dir() else []

    def _node(self, path: Path, place: str) -> str:
        """Return the node whose entry a file holds; empty where it is of another place."""
        title = _title(path)
        before, after = TITLE.format("\0", place).split("\0")
        is_ours = title.startswith(before) and title.endswith(after)
        return title.removeprefix(before).removesuffix(after) if is_ours else ""

    def _require_free(self, entry: Entry) -> None:
        title = _title(self.folder / entry.file_name)
        if title not in ("", entry.title):
            raise ConflictError(
                f"'{entry.file_name}' is {title.removeprefix('# tpuctl: ')} in {self.folder}.",
                hint=f"Remove that entry first: rm {self.folder / entry.file_name}",
            )

    def _content(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""

    def _write(self, content: bytes) -> None:
        """Replace the file, or the one that a link names, as a whole and with its mode."""
        real = self.path.resolve()
        make_missing_folders(real.parent)
        mode = stat.S_IMODE(real.stat().st_mode) if real.exists() else PRIVATE
        _replace_config(real, content, mode)


def _first_section(content: bytes) -> int:
    """The place of the first line that makes what follows hold for some hosts only."""
    match = SECTION.search(content)
    return match.start() if match else len(content)


def _title(path: Path) -> str:
    """The first line of a file; empty where there is none."""
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            return stream.readline().rstrip("\n")
    except FileNotFoundError:
        return ""


def _replace_config(path: Path, content: bytes, mode: int) -> None:
    """Replace a file unless it has the content, also while another process does."""
    if path.is_file() and path.read_bytes() == content:
        return
    swap_file(path, content, mode=mode)


@contextmanager
def _written(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{error.filename or path} cannot be written: {error.strerror}.",
            hint="'tpuctl ssh-config' without --install prints the entries.",
        ) from error
