"""The simulated Cloud Storage, side by side with gcp-storage-emulator in the same run."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.gcs import clients
from benchmarks.gcs.servers import BUCKET, FOLDERS, LISTED, PEER, Server, ours, peer
from benchmarks.measure import show

GIB = 1 << 30
TURNS = 5
SMALL_PUTS = 100
PEER_SMALL_PUTS = 10


@dataclass(frozen=True)
class Figure:
    """One measurement: the median, the spread, the mark it should keep, and what bounds it."""

    server: str
    name: str
    unit: str
    median: float
    lowest: float
    highest: float
    mark: str = ""
    bound_by: str = ""


def main() -> None:
    """Measure and report."""
    os.environ["DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA"] = "true"
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tpuctl-bench-") as name, ExitStack() as running:
        folder = Path(name)
        source = clients.random_file(folder / "source", GIB)
        servers = [running.enter_context(ours(folder / "ours"))]
        (folder / "peer").mkdir()
        try:
            servers.append(running.enter_context(peer(folder / "peer")))
        except OSError as error:
            notes.append(f"not compared: {error}")
        figures = measure(servers, source, folder / "target")
    report(figures, notes)


def measure(servers: Sequence[Server], source: Path, target: Path) -> list[Figure]:
    """Do everything to each server in turn; what the peer cannot do is done to ours alone."""
    first = servers[0]
    figures = _transfers(servers, source)
    figures += [_memory(server) for server in servers]
    for server in servers:
        up, down = clients.python_client(server, source, target)
        figures.append(_figure(server, "1 GiB up, Python client", "MB/s", [up], "", "the client"))
        figures.append(_figure(server, "1 GiB down, Python client", "MB/s", [down], "", "the client"))
    for server in servers:
        figures += _small_puts(server)
    for delimiter in ("", "/"):
        entries, seconds = clients.list_pages(first, f"{BUCKET}-listed", delimiter)
        if entries != (FOLDERS if delimiter else LISTED):
            raise SystemExit(f"{entries} entries were listed")
        label = "with delimiter" if delimiter else "without"
        figures.append(
            _figure(first, f"a page of 1,000 of {LISTED:,}, {label}", "ms", _ms(seconds), "50 at most",
                    "an index seek a folder" if delimiter else "JSON of 1,000 objects")
        )  # fmt: skip
    seconds = sorted(clients.gets_under_load(first, source, parts=2))
    p99 = seconds[int(len(seconds) * 0.99)]
    figures.append(
        _figure(first, "p99 of a small GET, 2 GiB composed and uploaded", "ms", _ms([p99]), "50 at most",
                "cores: hashing and writing run in threads beside the event loop")
    )  # fmt: skip
    return figures


def _transfers(servers: Sequence[Server], source: Path) -> list[Figure]:
    """Turn about, after one of ours that does not count: memory that a system hands out afresh is slow."""
    up: dict[str, list[float]] = {server.name: [] for server in servers}
    down: dict[str, list[float]] = {server.name: [] for server in servers}
    for turn in range(TURNS + 1):
        for server in servers:
            if server.name == PEER and turn != 1:
                continue  # a minute each
            rates = clients.upload(server, source), clients.download(server, source.stat().st_size)
            if turn:
                up[server.name].append(rates[0])
                down[server.name].append(rates[1])
    figures = []
    for server in servers:
        figures += [
            _figure(server, "1 GiB up, raw HTTP", "MB/s", up[server.name], "400 or more",
                    "MD5 on one core, receiving and writing on the other"),
            _figure(server, "1 GiB down, raw HTTP", "MB/s", down[server.name], "1,500 or more",
                    "sendfile: copies in the kernel"),
        ]  # fmt: skip
    return figures


def _small_puts(server: Server) -> list[Figure]:
    puts = PEER_SMALL_PUTS if server.name == PEER else SMALL_PUTS
    rates, failures = zip(*(clients.small_puts(server, puts) for _ in range(3)), strict=True)
    bound = "one event loop: parsing, a file and a transaction each"
    return [
        _figure(server, "puts of 1 kB, 16 connections", "a second", rates, "1,000 or more", bound),
        _figure(server, "puts of 1 kB that failed", "", [sum(failures)], "none", "nothing"),
    ]


def _memory(server: Server) -> Figure:
    peak = server.peak_memory()
    return _figure(server, "peak memory", "MB", [peak or 0.0], "under 150", "blocks under way")


def _figure(
    server: Server, name: str, unit: str, values: Sequence[float], mark: str, bound_by: str
) -> Figure:
    ours = server.name != PEER
    return Figure(
        server.name, name, unit, statistics.median(values), min(values), max(values),
        mark if ours else "", bound_by if ours else "",
    )  # fmt: skip


def _ms(seconds: Sequence[float]) -> list[float]:
    return [second * 1000 for second in seconds]


def report(figures: Sequence[Figure], notes: Sequence[str]) -> None:
    """Print JSON on stdout and a table on stderr."""
    lines = []
    for figure in sorted(figures, key=lambda figure: figure.name):
        spread = f"({figure.lowest:.1f} to {figure.highest:.1f})" if figure.highest > figure.lowest else ""
        target = f"target: {figure.mark}; bound by {figure.bound_by}" if figure.mark else ""
        lines.append(
            f"  {figure.name:<50} {figure.server:<21} {figure.median:9.1f} {figure.unit:<8} "
            f"{spread:<22} {target}"
        )
    show("cloud storage", {"figures": [asdict(figure) for figure in figures]}, lines, notes)


if __name__ == "__main__":
    main()
