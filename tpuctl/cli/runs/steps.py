"""Does the steps of a whole run, each unless it is whole already: up, submit, logs, pull, down."""

from __future__ import annotations

from tpuctl.cli import output
from tpuctl.cli.nodes.up import show_plan
from tpuctl.cli.progress import show_late_count, show_steps
from tpuctl.cli.runs.busy import on_free_node
from tpuctl.cli.runs.logs import follow_to_end
from tpuctl.cli.runs.outset import Outset, WholeRun
from tpuctl.cli.runs.pull import left_out
from tpuctl.cli.runs.watch import tools
from tpuctl.cli.session import Session
from tpuctl.client.nodes import changes, creation
from tpuctl.client.runs import submission
from tpuctl.errors import InterruptedByUser, NotFoundError, TpuctlError
from tpuctl.flows.nodes import down
from tpuctl.flows.nodes.inventory import take_inventory
from tpuctl.flows.progress import Report
from tpuctl.flows.runs import consequences
from tpuctl.flows.runs import pull as results
from tpuctl.flows.runs.control.occupants import occupants
from tpuctl.flows.runs.recovery import rehearsal
from tpuctl.flows.runs.recovery.machine import machine_name
from tpuctl.flows.runs.recovery.tools import Tools
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.flows.runs.submission import launch_values, submit
from tpuctl.flows.runs.whole import machine
from tpuctl.flows.runs.whole.endings import Phase, Position, failed, interrupted
from tpuctl.flows.runs.whole.restart import await_restart
from tpuctl.flows.runs.whole.stage import Stage, look, require_same
from tpuctl.nodes import HttpRequest, Node
from tpuctl.runs import Tpu, Verdict


class Steps:
    """One command on its way."""

    def __init__(self, session: Session, whole: WholeRun) -> None:
        self._session = session
        self._whole = whole
        self._context = session.context
        self._cloud = session.cloud
        self._outset = Outset(session, whole)
        self._stored = StoredRun(self._cloud.bucket, whole.run, session.warn)
        self._position = Position(whole.run, whole.typed, is_named=whole.is_named)
        self._deleted: list[str] = []
        self._kept = ""
        """Why the node stays, as a sentence."""

    def show_plan(self) -> None:
        """Show what the steps that are not whole would change, and what it costs; sends reads only."""
        stage = self._look()
        requests = list[HttpRequest]()
        if stage.tpu is None and not stage.verdict:
            requests = self._first_requests()
        elif stage.verdict and not stage.is_over:
            with show_steps() as report:
                requests = rehearsal.requests(self._stored, self._watch_tools(report))
        elif self._whole.is_deleted:
            requests = self._removal_requests()
        output.requests(requests, as_json=self._session.as_json)

    def _first_requests(self) -> list[HttpRequest]:
        provider = self._cloud.provider
        if self._whole.types is None:
            return submission.requests(self._context, self._outset.planned())
        first = self._outset.up_plans()[0]
        plan = self._outset.planned(machine.node_of(first))
        if first.existing is None:
            show_plan(self._session, first, self._outset.facts)
        requests = [
            *creation.requests(self._context, first), *submit.requests(self._cloud.bucket, plan),
        ]  # fmt: skip
        if self._whole.is_deleted and first.existing is None:
            requests += machine.deletion_requests(provider, first)
        elif self._whole.is_deleted:
            requests += self._removal_requests()
        return requests

    def _removal_requests(self) -> list[HttpRequest]:
        inventory = take_inventory(self._cloud.provider)
        own = machine.own_nodes(inventory, self._whole.run, self._session.owner, self._cloud.bucket.name)
        return changes.down_requests(self._context, down.DownPlan(own))

    def go(self) -> None:
        """Do what is left to do; the error that is raised at the end is that of the run's outcome."""
        try:
            verdict = self._verdict()
            pulled = self._pull()
            self._remove(verdict)
        except (KeyboardInterrupt, InterruptedByUser) as interrupt:
            raise interrupted(self._position, interrupt) from interrupt
        except Exception as error:
            raise failed(self._position, error) from error
        self._show_end(verdict, pulled)

    def _look(self) -> Stage:
        require_same(self._stored, self._whole.request)
        return look(self._stored, self._session.witnesses)

    def _verdict(self) -> Verdict:
        """Return how the run ended: at once where it has, else after all that is missing."""
        results.check_folder(self._whole.folder, self._whole.run)
        stage = self._look()
        if stage.tpu:
            self._at(Phase.STARTING, stage.tpu.name, stage.tpu.zone, exists=True)
        if stage.verdict and stage.is_over:
            output.note(f"Run '{self._whole.run}' has ended: {stage.verdict.evidence}.")
            return stage.verdict
        if stage.is_restarted:
            self._restart()
        elif not stage.is_launched:
            failure = self._start(stage.tpu)
            if failure and not failure.restarts:
                return failure
        return self._followed()

    def _followed(self) -> Verdict:
        """Return how the run ended once no other attempt is to follow; starts it again where one is."""
        while True:
            self._at(Phase.RUNNING)
            verdict = follow_to_end(self._session, self._stored)
            if not verdict.restarts:
                return verdict
            output.note(
                f"Run '{verdict.run}' was {verdict.outcome}: {verdict.evidence}. It is started again."
            )
            self._restart()

    def _restart(self) -> None:
        """Start the run again, as 'tpuctl watch' does; returns at once where it goes on."""
        run = self._whole.run
        self._at(Phase.RESTARTING, machine_name(run, max(self._stored.attempt_numbers()) + 1))
        with show_steps() as report:
            await_restart(self._stored, self._watch_tools(report))
        tpu = self._stored.last_readable_attempt().record.tpu
        self._at(Phase.RUNNING, tpu.name, tpu.zone, exists=True)

    def _watch_tools(self, report: Report) -> Tools:
        return tools(self._session, report, dict(self._whole.request.environment))

    def _start(self, tpu: Tpu | None) -> Verdict | None:
        """Start the run on the node of its attempt, on one that is made for it, or on one that fits.

        Returns the verdict of a run that could not be started.
        """
        if tpu:
            try:
                node = self._cloud.provider.get_node(tpu.id)
            except NotFoundError:
                return None  # how that ends is settled like any end
            plan = self._outset.planned(node)
        elif self._whole.types is not None:
            plan = self._outset.make_node(
                lambda name, zone: self._at(Phase.CREATING, name, zone, exists=bool(zone))
            )
        else:
            plan = self._outset.planned()
        if not tpu:
            plan = on_free_node(self._session, plan, self._whole.policy, self._whole.typed)
        self._at(Phase.STARTING, plan.node.name, plan.node.zone, exists=True)
        self._position.is_kept = plan.node.is_kept_by_terraform
        plan = submission.admit(self._context, plan, output.note)
        try:
            with show_late_count() as report:
                started = submission.go_on(self._context, plan, report)
        except TpuctlError as error:
            verdict = self._stored.verdict()
            if verdict is None:
                raise
            if not verdict.restarts:
                output.note(error.message)
            return verdict
        self._session.listed.add("runs", self._whole.run)
        for text in started.notes:
            output.note(text)
        return None

    def _pull(self) -> results.PullResult:
        """Fetch the run's files; raises StateError if some cannot be written to this disk."""
        self._at(Phase.FETCHING)
        with show_steps() as report:
            pulled = results.pull(self._stored, self._whole.folder, report)
        for refusal in pulled.refused:
            self._session.warn(f"{refusal.name} {refusal.reason}: it is left out.")
        if pulled.refused:
            raise left_out(self._stored, pulled.refused, {})
        return pulled

    def _remove(self, verdict: Verdict) -> None:
        """Delete the run's own node, or find out what stays."""
        cloud, session = self._cloud, self._session
        self._at(Phase.DELETING)
        inventory = take_inventory(cloud.provider)
        removal = machine.plan_removal(
            inventory, verdict, session.owner, self._users,
            bucket=cloud.bucket.name, is_deleted=self._whole.is_deleted,
        )  # fmt: skip
        self._kept = removal.kept
        with show_steps() as report:
            changes.down(self._context, removal.plan, report)
        self._deleted = [item.name for item in removal.plan.allocations]
        launch_values.forget(cloud.bucket.name, self._whole.run)
        session.listed.remove("nodes", self._deleted)

    def _users(self, node: Node) -> list[str]:
        """Return the other runs on a node, also those that only its hosts know."""
        session, own = self._session, self._whole.run
        busy = occupants(self._cloud.bucket, session.witnesses, node, session.warn)
        others = [occupant.run for occupant in busy if occupant.run != own]
        return others or session.witnesses.beside(node.id, own)

    def _at(self, phase: Phase, node: str = "", zone: str = "", *, exists: bool = False) -> None:
        position = self._position
        position.phase = phase
        if node:
            position.node, position.zone, position.has_node, position.is_kept = node, zone, exists, False

    def _show_end(self, verdict: Verdict, pulled: results.PullResult) -> None:
        """Say how it ended, what is here, and what bills; raises the error of a run that did not succeed."""
        if self._session.as_json:
            output.json_line({
                "run": verdict.run, "outcome": verdict.outcome, "evidence": verdict.evidence,
                "exit_code": verdict.exit_code, "folder": str(pulled.folder), "files": pulled.files,
                "bytes": pulled.size, "uncommitted": list(pulled.uncommitted), "deleted": self._deleted,
                "kept": self._kept,
            })  # fmt: skip
        else:
            self._show_files(pulled)
        error = consequences.error_of(verdict)
        if error:
            raise error
        output.note(consequences.success_of(verdict))

    def _show_files(self, pulled: results.PullResult) -> None:
        content: dict[str, object] = {
            "files": f"{pulled.files} ({output.format_bytes(pulled.size)}), verified",
            "where": pulled.folder,
        }
        if pulled.uncommitted:
            content["skipped"] = f"{len(pulled.uncommitted)} files of unfinished checkpoints"
        output.facts(content, err=True)
        if self._deleted:
            output.note(f"Deleted {', '.join(self._deleted)}.")
        if self._kept:
            output.note(self._kept)
