"""Reads the paths of a copy: `file`, `NAME:path`, `NAME@3:path`, and `:path` for the only TPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tpuctl.copier.sending import top_name
from tpuctl.errors import UsageError
from tpuctl.flows.remote.workers import HostName, parse_host_name

MAGIC = re.compile(r"[*?[]")
"""What makes a path on hosts stand for several."""


@dataclass(frozen=True)
class RemotePath:
    """A path on workers of a node, relative to the home folder of the login."""

    host: HostName
    path: str


@dataclass(frozen=True)
class CopyRequest:
    """What is copied where: from this machine to hosts, or from hosts to this machine."""

    host: HostName
    is_upload: bool
    sources: tuple[str, ...]
    destination: str

    @property
    def is_folder(self) -> bool:
        """Whether the destination is a folder by what was typed."""
        last = self.destination.rpartition("/")[2]
        contents = any(not top_name(source) for source in self.sources)
        wildcards = not self.is_upload and any(map(MAGIC.search, self.sources))
        return contents or wildcards or len(self.sources) > 1 or last in ("", ".", "..", "~")


def parse_path(text: str) -> RemotePath | str:
    """Return a path on hosts, or one on this machine; raises UsageError for a URI.

    As for scp, a path on this machine whose name has a colon is written `./a:b`.
    """
    name, colon, path = text.partition(":")
    if not colon or "/" in name:
        return text
    if path.startswith("//"):
        raise UsageError(
            f"{text} is a URI, and cp copies between this machine and the hosts of a TPU.",
            hint=f"Copy it there: tpuctl exec -- gcloud storage cp -r {text} .",
        )
    if not name or name.startswith("@"):
        return RemotePath(HostName("", parse_host_name(f"_{name}").workers), path)
    return RemotePath(parse_host_name(name), path)


def parse_copy(sources: Sequence[str], destination: str) -> CopyRequest:
    """Return what is copied where; raises UsageError unless one side is a TPU's, and the other is here."""
    target = parse_path(destination)
    places = [parse_path(source) for source in sources]
    remote = [place for place in places if isinstance(place, RemotePath)]
    if isinstance(target, RemotePath):
        if remote:
            raise UsageError(
                "Both sides are on hosts.", hint="Copy to this machine first, then from here to the hosts."
            )
        return CopyRequest(target.host, True, tuple(map(str, places)), target.path)
    if not remote:
        raise UsageError(
            "No path is on a TPU.", hint="Write NAME:PATH for one on its hosts, or :PATH for your only TPU."
        )
    if len(remote) < len(places) or len({place.host for place in remote}) > 1:
        raise UsageError("The sources are on several machines.", hint="Copy from one at a time.")
    return CopyRequest(remote[0].host, False, tuple(place.path for place in remote), target)
