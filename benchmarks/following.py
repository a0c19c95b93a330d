"""A minute of `logs -f` on 4, 64 and 256 workers, the tail of 1 GB, a list of 10,000 runs, the first line."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import requests

from benchmarks.measure import show
from benchmarks.own_simulator import own_simulator
from tpuctl import runs
from tpuctl.bucket_layout import RunPaths
from tpuctl.cloud.endpoints import connect
from tpuctl.cloud.storage import Bucket
from tpuctl.config import load
from tpuctl.flows.runs.evidence.witnesses import Witnesses
from tpuctl.flows.runs.logs.following import follow
from tpuctl.flows.runs.logs.reader import Line, LogReader, last
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.summaries import Selection, take_page
from tpuctl.host.worker.records import FINISHED, RUNNING, WorkerStatus, encode, ordered_log_file, status_type
from tpuctl.parallel import fanout
from tpuctl.runs import ORDERED_LOGS, Attempt, Run, Tpu, Verdict

WORKERS = (4, 64, 256)
MINUTE = 60
"""Looks of a minute: one a second."""
HEARTBEAT, CHUNK_EVERY = 10, 15
"""Seconds between two statuses of a worker, and between two pieces of its log after its first minutes."""
LISTED_RUNS = 10_000
TAIL_CHUNKS, CHUNK_SIZE = 256, 4 << 20
NOW = "2026-01-01T12:00:00Z"
JOB = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\nprint("hello")\n'


@dataclass(frozen=True)
class Cost:
    """What some work cost this process: requests to the bucket, the bytes that they brought, and seconds."""

    name: str
    requests: int
    megabytes: float
    cpu: float
    wall: float


class Meter:
    """Counts the answers of one bucket's client."""

    def __init__(self, bucket: Bucket) -> None:
        self._answers = self._bytes = 0
        self._bucket = bucket
        bucket._client._http.hooks["response"].append(self._note)

    def _note(self, answer: requests.Response, **_: object) -> None:
        self._answers += 1
        self._bytes += int(answer.headers.get("Content-Length", 0))

    def measure(self, name: str, work: Callable[[], object]) -> Cost:
        """Do the work once."""
        answers, size, cpu, began = self._answers, self._bytes, time.process_time(), time.perf_counter()
        work()
        wall, used = time.perf_counter() - began, time.process_time() - cpu
        return Cost(name, self._answers - answers, (self._bytes - size) / 1e6, used, wall)


class Workers:
    """Workers that write what the program on their hosts writes, through a client of their own."""

    def __init__(self, bucket: Bucket, run: str, count: int) -> None:
        self._bucket, self._count, self._chunks = bucket, count, [0] * count
        self._paths = RunPaths(run)
        tpu = Tpu("n1", "7", "sim-project", "europe-west4-a", "v3-2048", "base", count, spot=False)
        stored = StoredRun(bucket, run)
        stored.create(Run(run, NOW, "ada", "job.py", (), "0" * 64, "jax", "v3-2048", (), {}))
        stored.create_attempt(Attempt(1, NOW, tpu, tuple(range(count)), log_layout=ORDERED_LOGS))
        self.beat(RUNNING)

    def beat(self, state: str, exit_code: int | None = None) -> None:
        """Write every status."""
        fanout(lambda worker: self._beat(worker, state, exit_code), range(self._count))

    def _beat(self, worker: int, state: str, exit_code: int | None) -> None:
        status = WorkerStatus(
            worker, 1, "7", state, NOW, exit_code=exit_code, log_chunks=self._chunks[worker]
        )
        self._bucket.upload(self._paths.status(1, worker), [encode(status)], status_type(status))

    def print(self, data: bytes = b"step 1: loss 0.5\n") -> None:
        """Ship the next piece of every log."""
        fanout(lambda worker: self._print(worker, data), range(self._count))

    def _print(self, worker: int, data: bytes) -> None:
        self._chunks[worker] += 1
        moment = self._bucket.now().strftime("%Y%m%dT%H%M%S")
        name = ordered_log_file(moment, worker, self._chunks[worker])
        self._bucket.create(f"{self._paths.attempt_folder(1)}{name}", data, "text/plain")


def main() -> None:
    """Measure and report."""
    with own_simulator() as (folder, _):
        costs = [cost for count in WORKERS for cost in minutes(count)]
        costs += [*tails(), listing(), *first_lines(folder)]
    lines = [
        f"  {cost.name:<52} {cost.requests:6d} requests {cost.megabytes:8.2f} MB "
        f"{cost.cpu:7.2f} s CPU {cost.wall:7.2f} s wall"
        for cost in costs
    ]
    notes = [
        f"a minute is {MINUTE} looks; each worker writes a status every {HEARTBEAT} s, and prints every "
        f"{CHUNK_EVERY} s or nothing",
        "peer: each look lists the folder of each worker, and reads its status; three looks, times 20",
    ]
    show("following", {"rows": [asdict(cost) for cost in costs]}, lines, notes)


@contextmanager
def _two_buckets() -> Iterator[tuple[Bucket, Bucket]]:
    """A client that writes and one that is measured."""
    writer, reader = connect(load({})), connect(load({}))
    try:
        yield writer.bucket, reader.bucket
    finally:
        writer.close()
        reader.close()


def minutes(count: int) -> Iterator[Cost]:
    """Yield what a minute of following costs: workers that print nothing, that print, and the peer."""
    with _two_buckets() as (written, measured):
        meter = Meter(measured)
        for prints, words in ((False, "silent"), (True, "printing")):
            name = f"w{count}-{words}"
            workers = Workers(written, name, count)
            yield meter.measure(
                f"logs -f, a minute, {count} workers, {words}",
                lambda workers=workers, name=name, prints=prints: _follow(measured, workers, name, prints),
            )
        peer = meter.measure("", lambda: [_peer_look(measured, f"w{count}-silent", count) for _ in range(3)])
        scale = MINUTE // 3
        yield Cost(
            f"peer, a minute, {count} workers, silent", peer.requests * scale, peer.megabytes * scale,
            peer.cpu * scale, peer.wall * scale,
        )  # fmt: skip


def _follow(bucket: Bucket, workers: Workers, name: str, prints: bool) -> None:
    """Follow a run in whose pauses its workers write; they end after a minute."""
    looks = iter(range(1, MINUTE + 1))

    def sleep(_: float) -> None:
        look = next(looks)
        if prints and look % CHUNK_EVERY == 0:
            workers.print()
        if look == MINUTE:
            workers.beat(FINISHED, 0)
        elif look % HEARTBEAT == 0:
            workers.beat(RUNNING)

    run, lines = StoredRun(bucket, name), list[Line]()
    provider = connect(load({})).provider
    follow(run, Witnesses(provider), LogReader(run.last_attempt()), lines.append, sleep=sleep)
    assert len(lines) == prints * (MINUTE // CHUNK_EVERY) * len(run.last_attempt().record.workers)


def _peer_look(bucket: Bucket, name: str, count: int) -> None:
    paths = RunPaths(name)

    def look(worker: int) -> None:
        bucket.objects(paths.logs(1, worker))
        bucket.find(paths.status(1, worker))

    fanout(look, range(count))


def tails() -> Iterator[Cost]:
    """Yield what the last 20 lines of a log of 1 GB cost, and all of it."""
    with _two_buckets() as (written, measured):
        workers = Workers(written, "long", 1)
        line = b"x" * 99 + b"\n"
        for _ in range(TAIL_CHUNKS):
            workers.print(line * (CHUNK_SIZE // len(line)))
        workers.beat(FINISHED, 0)
        meter = Meter(measured)
        yield meter.measure("logs --tail 20 of 1 GB", lambda: _show(measured, 20))
        yield meter.measure("peer: all of it, for its last 20 lines", lambda: _show(measured, None))


def _show(bucket: Bucket, tail: int | None) -> None:
    reader = LogReader(StoredRun(bucket, "long").last_attempt())
    reader.begin(tail, None)
    for _ in last(reader.present_lines(), tail):
        pass


def listing() -> Cost:
    """Return what the newest 50 of many runs cost."""
    with _two_buckets() as (written, measured):
        record = Run("r", NOW, "ada", "job.py", (), "0" * 64, "jax", "v3-8", (), {})
        verdict = Verdict("r", runs.SUCCEEDED, 1, NOW, "so", 0, runs.BY_WORKERS)

        def write(number: int) -> None:
            name = f"run-{number}"
            for path, content in ((RunPaths(name).record, record), (RunPaths(name).verdict, verdict)):
                data = runs.encode(content).replace(b'"r"', f'"{name}"'.encode())
                written.upload(path, [data], "application/json")

        fanout(write, range(LISTED_RUNS), width=8)
        provider = connect(load({})).provider
        select = Selection(limit=50)
        return Meter(measured).measure(
            f"runs, the newest 50 of {LISTED_RUNS}",
            lambda: take_page(measured, Witnesses(provider), selection=select),
        )


def first_lines(folder: Path) -> Iterator[Cost]:
    """Yield the seconds from `submit` to the first line of `logs -f`, and those of `submit` alone."""
    script = folder / "job.py"
    script.write_text(JOB)
    _tpuctl("up", "v3-8", "--name", "n1", "--yes")
    for number in range(3):
        began = time.perf_counter()
        _tpuctl("submit", str(script), "--name", f"first-{number}", "--tpu", "n1")
        submitted = time.perf_counter()
        command = [sys.executable, "-m", "tpuctl", "logs", "-f", f"first-{number}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout
            assert process.stdout.readline() == b"hello\n"
            line = time.perf_counter()
        yield Cost(f"submit, turn {number + 1}", 0, 0, 0, submitted - began)
        yield Cost(f"submit to the first line, turn {number + 1}", 0, 0, 0, line - began)


def _tpuctl(*arguments: str) -> None:
    command = [sys.executable, "-m", "tpuctl", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stderr}")


if __name__ == "__main__":
    main()
