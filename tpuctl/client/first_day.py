"""Tries on real TPUs what tpuctl takes for granted, stage by stage, and deletes what it has made."""

from __future__ import annotations

import importlib.util
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tpuctl import accelerators, clock, images
from tpuctl.client.context import Call, Context
from tpuctl.client.nodes import changes, creation
from tpuctl.client.nodes.creation import NodeOptions
from tpuctl.client.nodes.node import Node
from tpuctl.client.runs import starting, submission
from tpuctl.client.runs.client import SubmitOptions
from tpuctl.client.runs.requests import submit_request
from tpuctl.client.runs.run import Run
from tpuctl.config import Value
from tpuctl.errors import (
    DeadlineError,
    HostError,
    InterruptedByUser,
    JobFailedError,
    NotFoundError,
    StateError,
    TpuctlError,
    UsageError,
    saying_bill,
)
from tpuctl.flows.hosts import bucket_access, way_in
from tpuctl.flows.nodes.lookup import Allocation
from tpuctl.flows.nodes.plan import UpPlan
from tpuctl.flows.progress import Report
from tpuctl.flows.project import doctor, first_day
from tpuctl.flows.project.doctor import DIFFERENT, FAILED, OK, SKIPPED, WARNING, CheckWarning, Finding
from tpuctl.flows.runs.recovery import drill

JAX = '''\
# /// script
# dependencies = ["jax[tpu]"]
# [tool.tpuctl]
# framework = "jax"
# ///
"""Says which chips JAX sees on all hosts."""

import os

import jax

if int(os.environ["TPUCTL_WORKERS"]) > 1:
    jax.distributed.initialize()
platforms = sorted({device.platform for device in jax.devices()})
print("JAX", jax.__version__, "sees", jax.device_count(), "devices:", *platforms, flush=True)
assert platforms == ["tpu"] or os.environ.get("TPUCTL_SIM_TPU"), "no TPU"
'''
TICKING = '''\
# /// script
# [tool.tpuctl]
# framework = "jax"
# ///
"""Runs until it is told to end."""

import signal
import sys
import time


def end(*_):
    print("SIGTERM", flush=True)
    sys.exit(143)


signal.signal(signal.SIGTERM, end)
print("tick", flush=True)
while True:
    time.sleep(1)
'''
SECOND_USER = "tpuctl-second"
LATE = 60.0
"""Seconds after READY within which hosts publish their keys and let ours in, as tpuctl takes it."""
RUN_TIMEOUT = 900.0
DRILL_TIMEOUT = 120.0
LAST_LINES = 5


class DifferenceError(Exception):
    """What was tried works, but not as tpuctl takes it."""


@dataclass(frozen=True)
class Stage:
    """A TPU that is made to try things on it."""

    title: str
    accelerator: str
    ttl: float
    """Seconds after which it deletes itself, also when this machine is gone."""
    wait: float = 0.0
    """Seconds for which it waits in the queue."""
    options: NodeOptions = field(default_factory=NodeOptions)


STAGES: Mapping[int, Stage] = {
    1: Stage("one host", "v5litepod-1", 35 * 60),
    2: Stage(
        "a spot slice of several hosts, queued",
        "v5litepod-16",
        20 * 60,
        15 * 60,
        {"idle": 10 * 60, "spot": True, "queued": True},
    ),
}
"""Stage 0 makes nothing."""


@dataclass
class FirstDay:
    """The stages that were run, and what they have found."""

    context: Context
    say: Report
    """Takes a line of progress."""
    show: Callable[[Finding], None]
    """Takes each finding as it is made."""
    stages: dict[str, list[Finding]] = field(default_factory=dict)
    """Title -> findings."""

    @property
    def findings(self) -> list[Finding]:
        """Those of all stages."""
        return [finding for findings in self.stages.values() for finding in findings]

    def look(self) -> None:
        """Run stage 0, which sends reads only."""
        self._begin(0, "nothing is created")
        for finding in doctor.examine(self.context.config, lambda: self.context.cloud):
            self._note(finding)
        if any(finding.state == FAILED for finding in self.findings):
            return
        self._step("lists", self._lists)
        self._step("types", self._types)
        self._step("runtimes", self._runtimes)
        self._step("firewall", self._firewall)
        self._step("account", self._account)

    def plan(self, number: int) -> UpPlan:
        """Return what a stage creates; sends reads only."""
        stage = STAGES[number]
        name = f"doctor-{number}-{secrets.token_hex(3)}"
        asked: NodeOptions = {"name": name, "framework": "jax", "ttl": stage.ttl, **stage.options}
        options = creation.up_options(self.context, stage.accelerator, asked)
        search = creation.search_of(self.context, options, (), race=False, wait=stage.wait, detach=False)
        return creation.plan(self.context, options, creation.lifetime_of(asked), search)

    def most(self, number: int, plan: UpPlan) -> str:
        """Return what a stage costs if its TPU is there for the whole of its --ttl."""
        price = self.context.prices.of_creation(plan.creation)
        if price.amount is None:
            return "unknown"
        return f"{float(price.amount) * STAGES[number].ttl / 3600:.2f} {price.currency} at most, by --ttl"

    def run(self, number: int, plan: UpPlan) -> None:
        """Run a stage as planned; what it has made is deleted, however it ends."""
        self._begin(number, f"{STAGES[number].title}: {plan.request.accelerator}, {plan.request.runtime}")
        visit = Visit(self, plan)
        try:
            if self._step("up", visit.up):
                visit.look_at_hosts()
                for check, work in (visit.on_one_host if number == 1 else visit.on_several).items():
                    self._step(check, work)
        except BaseException as error:
            self.stages[self._title].append(Finding("stage", FAILED, f"ended by {type(error).__name__}"))
            raise
        finally:
            self._step("down", visit.delete)

    def skip(self, number: int, why: str) -> None:
        """Say that a stage was not run."""
        self._begin(number, STAGES[number].title)
        self._note(Finding("stage", SKIPPED, why))

    def report(self) -> str:
        """Return the report for a bug report, in Markdown."""
        return first_day.report(self.context.config, self.stages, clock.iso(clock.now())[:10])

    def _begin(self, number: int, title: str) -> None:
        self._title = f"Stage {number}: {title}"
        self.stages[self._title] = []
        self.say(self._title)

    def _note(self, finding: Finding) -> None:
        self.stages[self._title].append(finding)
        self.show(finding)

    def _step(self, check: str, work: Callable[[], str]) -> bool:
        """Try one thing, and note how that ended and how long it took; return whether it worked."""
        began = time.monotonic()
        try:
            finding = Finding(check, OK, work())
        except InterruptedByUser:
            raise
        except CheckWarning as warning:
            finding = Finding(check, WARNING, warning.text, warning.fix)
        except DifferenceError as error:
            finding = Finding(check, DIFFERENT, str(error))
        except TpuctlError as error:
            finding = Finding(check, FAILED, error.message, error.hint)
        took = time.monotonic() - began
        self._note(replace(finding, text=f"{finding.text} ({took:.0f} s)") if took >= 1 else finding)
        return finding.state != FAILED

    def _lists(self) -> str:
        provider = self.context.cloud.provider
        nodes, queue = provider.list_nodes(), provider.list_queued_resources()
        return f"{len(nodes.nodes)} nodes and {len(queue.queued_resources)} queued resources of all zones"

    def _types(self) -> str:
        zone = self.context.config.require("zone")
        offered = self.context.cloud.provider.list_accelerator_types(zone)
        missing = [stage.accelerator for stage in STAGES.values() if stage.accelerator not in offered]
        if missing:
            kind = accelerators.accelerator(missing[0])
            raise UsageError(f"{zone} does not offer {' and '.join(missing)}.", hint=kind.places)
        return f"{zone} offers those of all stages"

    def _runtimes(self) -> str:
        offered = self.context.cloud.provider.list_runtimes(self.context.config.require("zone"))
        kinds = [accelerators.accelerator(stage.accelerator) for stage in STAGES.values()]
        missing = sorted({kind.base_runtime for kind in kinds} - set(offered))
        if missing:
            raise DifferenceError(f"the zone does not offer {', '.join(missing)}, which the table has")
        absent = sorted(images.IMAGES.keys() - set(offered))
        unknown = [name for name in offered if images.image(name) is None]
        return (
            f"{len(offered)} offered; unknown to the table: {', '.join(unknown) or 'none'}; in the table and "
            f"not offered: {', '.join(absent) or 'none'}"
        )

    def _firewall(self) -> str:
        request = self.plan(1).request
        if not request.external_ips or self.context.config.get("iap") == "yes":
            return "hosts are reached through IAP, or from inside of the network"
        if warning := way_in.outside_warning(self.context.cloud, request):
            raise DifferenceError(warning)
        return "a rule lets machines outside of the network reach port 22, or nobody may read the rules"

    def _account(self) -> str:
        named = self.context.config.get("service_account") or ""
        if warning := bucket_access.warning(self.context.cloud, named, deletes=True):
            whose = "the service account of TPUs" if named else "the default service account"
            raise CheckWarning(f"whether {whose} may write to the bucket is not known", warning)
        return "it may use the bucket, or nobody may read who may"


class Visit:
    """The TPU of a stage: what is tried on it."""

    def __init__(self, day: FirstDay, plan: UpPlan) -> None:
        self._day, self._plan, self._context = day, plan, day.context
        self._runs: list[Run] = []
        self._allocation: Allocation | None = None

    @property
    def on_one_host(self) -> Mapping[str, Callable[[], str]]:
        """What is tried on one host, in this order."""
        return {
            "jax": self._jax, "lock left": self._lock_left, "second user": self._second_user,
            "cancel": self._cancel, "keeper": self._keeper, "extend": self._extend, "restart": self._restart,
        }  # fmt: skip

    @property
    def on_several(self) -> Mapping[str, Callable[[], str]]:
        """What is tried on several hosts, in this order."""
        return {"jax": self._jax, "keeper": self._keeper, "drill": self._drill}

    @property
    def _node(self) -> Node:
        assert self._allocation is not None, "it is up"
        return Node(self._context, self._allocation)

    def up(self) -> str:
        """Create the TPU."""
        steps = [(time.monotonic(), "")]

        def note(step: str) -> None:
            steps.append((time.monotonic(), step))
            self._day.say(step)

        self._allocation = creation.create(self._context, self._plan, note)
        (last, what), end = steps[-1], time.monotonic()
        text = f"READY and reached; {what} took {end - last:.0f} s"
        if end - last > LATE:
            raise DifferenceError(f"{text}: guest attributes or SSH are late, after more than {LATE:.0f} s")
        return text

    def look_at_hosts(self) -> None:
        """Note what each host has, beside the table of images."""
        image = images.image(self._plan.request.runtime)
        if image is None:
            self._day._note(Finding("image", DIFFERENT, f"the table has no {self._plan.request.runtime}"))
            return
        hosts: Mapping[int, first_day.Facts] = {}

        def read() -> str:
            nonlocal hosts
            hosts = self._facts(image)
            return f"{len(hosts)} have said what they have"

        if self._day._step("hosts", read):
            config, endpoints = self._context.config, self._context.cloud.endpoints
            expected = first_day.Expected(
                image, self._plan.options.type, endpoints.python, is_simulated=config.target == "sim"
            )
            for finding in first_day.compare(hosts, expected):
                self._day._note(finding)

    def delete(self) -> str:
        """Delete the TPU and the runs."""
        name, (zone, *_) = self._plan.options.name, self._plan.search.zones
        with saying_bill(name, zone, f"Delete it: tpuctl down {name}"):
            try:
                plan = changes.plan_down(self._context, [name], zone)
            except NotFoundError:
                return "there is nothing to delete"
            changes.down(self._context, plan, self._day.say)
        for run in self._runs:
            _remove(run)
        return f"deleted, with {len(self._runs)} runs"

    def _facts(self, image: images.Image) -> Mapping[int, first_day.Facts]:
        ended = self._node.exec(first_day.command(image), timeout=300)
        for worker in ended.workers:
            if worker.error or worker.exit_code:
                why = worker.error.message if worker.error else worker.stderr.strip()[-300:]
                raise HostError(f"worker {worker.worker} did not say what it has: {why}")
        return {worker.worker: first_day.read(worker.worker, worker.stdout) for worker in ended.workers}

    def _jax(self) -> str:
        return self._run_jax(self._context)

    def _run_jax(self, context: Context) -> str:
        if self._context.cloud.endpoints.python and importlib.util.find_spec("jax") is None:
            raise CheckWarning("not tried: simulated hosts have the JAX of this machine, which has none", "")
        run = self._submit("devices", JAX, context)
        if not run.wait(timeout=RUN_TIMEOUT).succeeded:
            raise self._failure(run)
        seen = next((each.text for each in run.logs(text="JAX ") if each.text.startswith("JAX ")), "")
        count = self._plan.chips
        if f" sees {count} devices" not in seen and self._context.config.target == "gcp":
            raise DifferenceError(f"{seen or 'JAX said nothing'}; the TPU has {count} chips")
        return seen

    def _lock_left(self) -> str:
        image = images.image(self._plan.request.runtime)
        assert image is not None, "without one there are no facts"
        return ", ".join(str(facts.get("lock file")) for facts in self._facts(image).values())

    def _second_user(self) -> str:
        config = self._context.config
        values = {**config.values, "ssh_user": Value(SECOND_USER, "doctor")}
        other = Context(replace(config, values=values), self._context.warn)
        try:
            return self._run_jax(other)
        finally:
            other.close()

    def _cancel(self) -> str:
        run = self._submit("cancelled", TICKING, self._context)
        self._await_tick(run)
        end = run.cancel()
        if not any(each.text == "SIGTERM" for each in run.logs()):
            raise DifferenceError(f"the script heard no SIGTERM; its end: {end.outcome}")
        return f"the script heard SIGTERM; its end: {end.outcome}"

    def _await_tick(self, run: Run) -> None:
        if not any(each.text == "tick" for each in run.logs(follow=True)):
            raise self._failure(run)

    def _failure(self, run: Run) -> JobFailedError:
        """Return the error of a run that has ended, with the end of its log, which is deleted with it."""
        log = " | ".join(each.text for each in run.logs(tail=LAST_LINES))
        return JobFailedError(f"{run.state}; its log ends with: {log or 'nothing'}")

    def _keeper(self) -> str:
        said = [fact.value for fact in self._node.facts if fact.name == "keeper"]
        if not said:
            raise DifferenceError("nothing was heard of the keeper: perhaps --ttl and --idle delete nothing")
        return "; ".join(said)

    def _extend(self) -> str:
        return f"ends at {clock.iso(self._node.extend(60))}"

    def _restart(self) -> str:
        self._node.stop(progress=self._progress)
        self._node.start(progress=self._progress)
        code = self._node.exec(["true"]).exit_code
        if code:
            raise StateError(f"A command after stop and start ended with {code}.")
        return "stopped, started, and reached"

    def _drill(self) -> str:
        run = self._submit("drilled", TICKING, self._context)
        self._await_tick(run)
        cloud, node = self._context.cloud, self._node
        plan = drill.plan_maintenance(
            cloud.provider, cloud.bucket, node.name, self._context.owner, zone=node.zone
        )
        drill.simulate_maintenance(cloud.provider, plan, self._day.say)
        try:
            outcome = run.wait(timeout=DRILL_TIMEOUT).outcome
        except DeadlineError:
            outcome = "none, it keeps running"
        heard = any(each.text == "SIGTERM" for each in run.logs())
        return f"the run's end: {outcome}; the script heard {'SIGTERM' if heard else 'no SIGTERM'}"

    def _submit(self, name: str, script: str, context: Context) -> Run:
        """Start a script as `submit` does; its file has no name of a module that it imports."""
        with tempfile.TemporaryDirectory() as folder, Call(self._progress).running() as call:
            path = Path(folder, f"{name}.py")
            path.write_text(script)
            made = f"{self._plan.options.name}-{name}-{len(self._runs)}"
            asked: SubmitOptions = {"node": self._plan.options.name, "name": made}
            request, policy = submit_request(context, path, (), asked)
            plan = submission.plan(context, request, starting.counted(call))
            self._runs.append(Run(self._context, made))
            starting.start(context, plan, policy, ("submit", path.name), call)
        return self._runs[-1]

    def _progress(self, progress: object) -> None:
        self._day.say(getattr(progress, "text", ""))


def _remove(run: Run) -> None:
    """Remove a run that may never have started, or may be about to be started again."""
    with suppress(NotFoundError):
        try:
            run.remove()
        except StateError:
            run.cancel(force=True)
            run.remove()
