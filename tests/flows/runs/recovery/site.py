"""A preempted run in a world where waiting takes no time: API, bucket and hosts are called in one thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import msgspec

from tests.crashes.faults import ZONE, nothing
from tests.crashes.world import CrashWorld, Killed
from tests.flows.runs.evidence.memory_bucket import MemoryBucket
from tpuctl import clock
from tpuctl.bucket_layout import NodePaths
from tpuctl.catalogue.prices import unknown
from tpuctl.cloud.ssh import CommandResult, SshSession
from tpuctl.cloud.ssh.session import Out, Pool
from tpuctl.cloud.storage import Object
from tpuctl.config import load
from tpuctl.flows.runs.evidence.witnesses import AT_WORK, QUESTION, Witnesses
from tpuctl.flows.runs.outcome import with_restart
from tpuctl.flows.runs.recovery.lease import ENDED_FOR_GOOD, GOES_ON, RESTARTED, WatchEvent
from tpuctl.flows.runs.recovery.step import step
from tpuctl.flows.runs.recovery.tools import Tools
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch_values
from tpuctl.flows.runs.submission.launch import START
from tpuctl.flows.runs.submission.plan import SubmitPlan, attempt_on
from tpuctl.flows.runs.submission.restart_policy import RestartRequest, machine_like
from tpuctl.flows.runs.submission.specs import Launch
from tpuctl.host.worker.main import STARTED_BEFORE
from tpuctl.host.worker.records import FINISHED, RUNNING, StopRequest, WorkerStatus, encode
from tpuctl.nodes import RUN_LABEL, Node, SshKey, UpdateNode
from tpuctl.parallel import Result, fanout
from tpuctl.recovery import Restarts
from tpuctl.runs import BY_MACHINE, LOST, Attempt, Run, Verdict

MOST_STEPS = 40
HASH = "0" * 64


class WorldBucket(MemoryBucket):
    """A bucket whose requests are those of the world's commands, and whose time is the world's."""

    name = "sim-project-tpuctl"
    """That of the configuration of its commands."""

    def __init__(self, world: CrashWorld) -> None:
        self.world = world
        super().__init__()

    @property
    def time(self) -> datetime:  # type: ignore[override]  # the world's
        return self.world.time

    @time.setter
    def time(self, _: datetime) -> None: ...

    def find(self, name: str, most: int = 0) -> bytes | None:
        return self.world.send("bucket.get", lambda: MemoryBucket.find(self, name))

    def stat(self, name: str) -> Object | None:
        return self.world.send("bucket.stat", lambda: MemoryBucket.stat(self, name))

    def objects(
        self, prefix: str, *, most: int | None = None, start: str = "", glob: str = "", more: str = ""
    ) -> list[Object]:
        def answer() -> list[Object]:
            return MemoryBucket.objects(self, prefix, most=most, start=start, glob=glob, more=more)

        return self.world.send("bucket.list", answer)

    def create(self, name: str, data: bytes, content_type: str = "", metadata: object = None) -> None:
        self.world.send("bucket.create", lambda: MemoryBucket.create(self, name, data))

    def replace(self, item: Object, data: bytes, content_type: str = "", metadata: object = None) -> None:
        self.world.send("bucket.replace", lambda: MemoryBucket.replace(self, item, data))


class Hosts:
    """What was started on hosts: a host starts an attempt once, and its worker then writes to the bucket."""

    user = "ada"

    def __init__(self, world: CrashWorld, bucket: WorldBucket) -> None:
        self.world = world
        self.bucket = bucket
        self.started: list[tuple[str, int, int]] = []
        """The uid of the node, the worker, the attempt."""
        self.ended: list[tuple[str, int, int]] = []
        self.others = ""
        """What they say of other runs at work there, whatever bucket has these."""

    def login_key(self) -> SshKey:
        return SshKey("ada", "ssh-ed25519 AAAA")

    @contextmanager
    def connect(self, node: Node, worker: int, host_key: str) -> Iterator[_Session]:
        self.world.send("ssh", lambda: None)
        yield _Session(self, node.id.uid, worker)

    def pool(self, node: Node, host_key: Callable[[int], str]) -> Pool:
        return _SerialPool(lambda worker: self.connect(node, worker, host_key(worker)))  # type: ignore[arg-type]

    def write(self, attempt: int, worker: int, state: str, **fields: object) -> None:
        """Write a worker's status."""
        status = WorkerStatus(worker, attempt, "7", state, clock.iso(self.world.time), **fields)  # type: ignore[arg-type]
        paths = StoredRun(self.bucket, "r1").paths  # type: ignore[arg-type]
        self.bucket.put(paths.status(attempt, worker), encode(status))


class _SerialPool(Pool):
    """Asks one worker after the other, so that requests come in one order."""

    def run_all(
        self, work: Callable[[SshSession, int], Out], workers: Iterable[int]
    ) -> list[Result[int, Out]]:
        return fanout(lambda worker: work(self.session(worker), worker), workers, 1)


class _Session:
    is_open = True

    def __init__(self, hosts: Hosts, uid: str, worker: int) -> None:
        self._hosts = hosts
        self._uid = uid
        self._worker = worker

    def run(self, argv: Sequence[str], timeout: float = 0, data: bytes = b"") -> CommandResult:
        return self._hosts.world.send("ssh.run", lambda: self._answer(argv))

    def _answer(self, argv: Sequence[str]) -> CommandResult:
        if argv == ["true"]:
            return CommandResult(0, "", "")
        if argv[2:3] == [AT_WORK]:
            return CommandResult(0, self._hosts.others, "")
        folder = argv[4] if argv[4:] else ""
        own = (self._uid, self._worker, int(folder.rpartition("/")[2] or 0))
        if argv[2:3] == [QUESTION]:
            if own in self._hosts.started:
                return CommandResult(0, json.dumps({"state": "alive"}), "")
            return CommandResult(2, "", "python3: can't open file 'worker.zip'")
        if argv[2:3] == [START]:
            if own in self._hosts.started:
                return CommandResult(1, json.dumps({"error": STARTED_BEFORE}), "")
            self._hosts.started.append(own)
            self._hosts.write(own[2], self._worker, RUNNING)
            return CommandResult(0, json.dumps({"pid": 42}), "")
        self._hosts.ended.append(own)
        return CommandResult(0, "", "")


class Site:
    """The run `r1` on `n1`, which was preempted."""

    def __init__(
        self,
        world: CrashWorld,
        accelerator: str = "v3-8",
        *,
        queued: bool = False,
        max_price: str = "",
        options: Sequence[str] = (),
    ) -> None:
        self.world = world
        self.max_price = max_price
        self.owner = load({}).require("owner")
        self.bucket = WorldBucket(world)
        self.hosts = Hosts(world, self.bucket)
        self.run = StoredRun(self.bucket, "r1")  # type: ignore[arg-type]
        self.price = unknown("nobody asked")
        self.reports: list[str] = []
        options = [*options, *(["--queued"] if queued else [])]
        options += [] if "--reserved" in options else ["--spot"]
        up = world.tpuctl(
            "up",
            accelerator,
            "--name",
            "n1",
            "--zone",
            ZONE,
            "--framework",
            "jax",
            "--yes",
            *options,
        )
        assert up.code == 0, up.err
        self.submit(world.provider.list_nodes(ZONE).nodes[0])

    def submit(self, node: Node) -> None:
        """Write the run and its first attempt, whose workers run."""
        machine = machine_like(node, RestartRequest(max_price=self.max_price), "jax", self.owner)
        policy = Restarts(after_loss=None)
        at = self.world.time
        record = Run(
            "r1", clock.iso(at), "ada@laptop", "job.py", (), HASH, "jax", node.accelerator, (), {},
            restarts=policy, machine=machine,
        )  # fmt: skip
        self.bucket.put(f"bundles/{HASH}.tar.gz", b"code")
        self.run.create(record)
        attempt = attempt_on(node, "jax", at)
        self._keep(record, attempt, node)
        self.run.create_attempt(attempt)
        for worker in attempt.workers:
            self.hosts.started.append((node.id.uid, worker, 1))
            self.hosts.write(1, worker, RUNNING)

    def _keep(self, record: Run, attempt: Attempt, node: Node) -> None:
        """Keep here what a submission keeps."""
        plan = SubmitPlan(record, attempt, node, None, Launch((), (), {}))  # type: ignore[arg-type]  # no code
        launch_values.keep(self.bucket.name, record, plan)

    def label_for_run(self) -> None:
        """Let everything be labelled as `tpuctl run` does with what it makes for the run."""
        provider = self.world.provider
        for node in provider.list_nodes(ZONE).nodes:
            change = UpdateNode(node, labels={**node.labels, RUN_LABEL: "r1"})
            provider.begin(change).wait("to be labelled", 60)
        for queued in self.world.world.queued_resources.all():
            for spec in queued.spec["tpu"]["nodeSpec"]:
                spec["node"]["labels"][RUN_LABEL] = "r1"

    def forget_values(self) -> None:
        """Forget what only the machine that submitted the run knows."""
        launch_values.forget(self.bucket.name, "r1")

    def neighbour(self, name: str, node_name: str) -> None:
        """Write another run that goes on, on another node."""
        (node,) = (item for item in self.world.provider.list_nodes(ZONE).nodes if item.name == node_name)
        other = StoredRun(self.bucket, name)  # type: ignore[arg-type]
        record = msgspec.structs.replace(self.run.record, run=name)
        other.create(record)
        self.bucket.put(NodePaths.of(node.id).run(name, 1), b"{}")
        attempt = attempt_on(node, "jax", self.world.time)
        self._keep(record, attempt, node)
        other.create_attempt(attempt)
        self.hosts.started.append((node.id.uid, 0, 1))
        status = WorkerStatus(0, 1, "7", RUNNING, clock.iso(self.world.time))
        self.bucket.put(other.paths.status(1, 0), encode(status))

    def preempt(self, name: str = "") -> None:
        """Preempt every node, or one, and let half a minute of silence pass."""
        for node in self.world.world.nodes.all():
            if name in ("", node.name.rpartition("/")[2]):
                self.world.do(self.world.world.preempt(node.name))
        self.world.pass_time(60)

    def tools(self, holder: str = "a") -> Tools:
        """Return what a watcher has: each asks hosts anew."""
        witnesses = Witnesses(self.world.provider, lambda: self.hosts)  # type: ignore[arg-type,return-value]
        return Tools(
            self.bucket, "b", self.world.provider, self.hosts, witnesses,  # type: ignore[arg-type]
            lambda creation: self.price, holder, self.reports.append,
        )  # fmt: skip

    def step(self, holder: str = "a") -> WatchEvent | None:
        """Take a step as a process of its own does; None for one that was killed."""
        self.world.requests = []
        try:
            return step(StoredRun(self.bucket, "r1"), self.tools(holder))  # type: ignore[arg-type]
        except Killed:
            return None

    def steps(self, holder: str = "b") -> WatchEvent:
        """Take steps until the run goes on or has ended, with time between them."""
        self.world.interfere = nothing
        for _ in range(MOST_STEPS):
            event = self.step(holder)
            assert event
            if event.action in (GOES_ON, RESTARTED, ENDED_FOR_GOOD):
                return event
            self.world.pass_time(30)
        raise AssertionError(event)

    def finish(self) -> WatchEvent:
        """Let the script end on every worker, and take a step."""
        attempt = self.run.last_attempt()
        for worker in attempt.record.workers:
            self.hosts.write(attempt.number, worker, FINISHED, exit_code=0)
        return self.steps()

    def lose(self, worker: int = 0) -> None:
        """Let the last attempt be lost, as a verdict of its machine says, soon after its start."""
        attempt = self.run.last_attempt()
        now = clock.iso(self.world.time)
        verdict = Verdict(
            "r1", LOST, attempt.number, now, "its host has no program of it", basis=BY_MACHINE, ended=now,
            tpu=attempt.record.tpu, worker=worker, started=now,
        )  # fmt: skip
        self.run.end(with_restart(self.run, verdict))

    def ask_to_stop(self) -> None:
        """Write the request to stop the run, as `cancel` does."""
        request = StopRequest("r1", "ada@example.com", clock.iso(self.world.time), 30)
        self.bucket.put(self.run.paths.stop, encode(request))
