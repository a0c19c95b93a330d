"""The order of a whole run's steps, with every step but the order replaced: what each end leads to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.flows.runs.records import CREATED, TPU
from tpuctl import runs
from tpuctl.cli.runs import run as command
from tpuctl.client.runs import whole
from tpuctl.client.runs.whole import Ending, Steps
from tpuctl.errors import (
    ConfigError,
    DeclinedError,
    InterruptedByUser,
    JobFailedError,
    NotFoundError,
    StateError,
    TpuctlError,
    UsageError,
)
from tpuctl.flows.nodes.lifetime import Lifetime
from tpuctl.flows.nodes.options import UpOptions
from tpuctl.flows.runs.local_copy import Refusal
from tpuctl.flows.runs.pull import PullResult, left_out
from tpuctl.flows.runs.whole import Stage
from tpuctl.runs import Verdict

DONE = Verdict("r1", runs.SUCCEEDED, 1, CREATED, "all workers have finished")
FAILED = Verdict("r1", runs.FAILED, 1, CREATED, "worker 0 exited with 3", exit_code=3)
LOST = Verdict("r1", runs.PREEMPTED, 1, CREATED, "its node was preempted", restarts=True)
LAUNCHED = Stage(tpu=TPU, attempt=1, is_launched=True)


@dataclass
class Site:
    """What the steps find, and what they have done; also the screen."""

    stage: Stage = field(default_factory=Stage)
    verdicts: list[Verdict | BaseException] = field(default_factory=lambda: [DONE])
    """How following the log ends, time by time."""
    node: Any = field(
        default_factory=lambda: SimpleNamespace(name="fits", zone="z", is_kept_by_terraform=False)
    )
    """None for one that is gone."""
    declined: DeclinedError | None = None
    start_error: TpuctlError | None = None
    recorded: Verdict | None = None
    pulled: PullResult = field(default_factory=lambda: PullResult(Path("out"), 3, 2048, 0, ()))
    removed: tuple[str, ...] = ()
    kept: str = ""
    others: tuple[str, ...] = ()
    done: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    listed: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    types: tuple[str, ...] | None = None
    ups: list[Any] = field(default_factory=list)
    """Plans of the node to make; none for those of the header."""
    users: list[str] = field(default_factory=list)

    def made_steps(self) -> Steps:
        context: Any = SimpleNamespace(
            owner="ada", warn=self.warnings.append, config={},
            witnesses=SimpleNamespace(beside=lambda node, own: []),
            cloud=SimpleNamespace(
                bucket=SimpleNamespace(name="b"), provider=SimpleNamespace(get_node=self._get_node),
                ssh="ssh", data_bucket="data", server_time="now",
            ),
        )  # fmt: skip
        asked: Any = SimpleNamespace(
            run="r1", typed=("run", "job.py"), folder=Path("out"), types=self.types, policy="policy",
            is_deleted=True, request=SimpleNamespace(script=Path("job.py"), environment={"A": "1"}),
            is_named=False,
        )  # fmt: skip
        steps = Steps(context, asked, self)
        if self.ups:
            steps._up_plans = lambda: self.ups  # type: ignore[method-assign]
        return steps

    def go(self) -> Ending:
        return self.made_steps().go()

    def note(self, text: str) -> None:
        self.notes.append(text)

    @contextmanager
    def steps(self) -> Iterator[Callable[..., None]]:
        yield lambda *_: None

    count = steps

    def show_node(self, plan: object) -> None:
        self.done.append("show")

    def show_run(self, plan: object) -> None:
        self.done.append("show run")

    def admit_node(self, plan: object) -> None:
        if self.declined:
            raise self.declined
        self.done.append("admit")

    def on_free_node(self, plan: Any) -> Any:
        self.done.append("free node")
        return plan

    def begins(self) -> None:
        """Notes nothing."""

    def made(self, kind: str, name: str) -> None:
        self.listed.append((kind, name))

    def _get_node(self, identity: object) -> object:
        if self.node is None:
            raise NotFoundError("It is gone.")
        return self.node

    def follow(self, run: object) -> Verdict:
        self.done.append("follow")
        verdict = self.verdicts.pop(0)
        if isinstance(verdict, BaseException):
            raise verdict
        return verdict

    def act(self, what: str, result: Any = None) -> Callable[..., Any]:
        """A step that is noted."""

        def noted(*_: object, **__: object) -> Any:
            self.done.append(what)
            return result

        return noted

    def plan_on(self, node: Any) -> Any:
        return SimpleNamespace(node=node, notes=())


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    site = Site()

    def go_on(context: object, plan: object, report: object) -> object:
        site.done.append("start")
        if site.start_error:
            raise site.start_error
        return SimpleNamespace(notes=["It waits in line."])

    def plan_removal(inventory: object, verdict: object, owner: str, users: Any, **_: object) -> object:
        site.users = users(SimpleNamespace(id="id of node"))
        allocations = tuple(SimpleNamespace(name=name) for name in site.removed)
        return SimpleNamespace(kept=site.kept, plan=SimpleNamespace(allocations=allocations))

    def pull(stored: object, folder: Path, report: object) -> PullResult:
        site.done.append(f"pull to {folder}")
        return site.pulled

    class Stored:
        """The run's records."""

        name = "r1"
        bucket = SimpleNamespace(name="b")
        paths = SimpleNamespace(folder="runs/r1/")

        def __init__(self, *_: object) -> None:
            pass

        def verdict(self) -> Verdict | None:
            return site.recorded

        def attempt_numbers(self) -> list[int]:
            return [1, 2]

        def last_readable_attempt(self) -> object:
            return SimpleNamespace(record=SimpleNamespace(tpu=SimpleNamespace(name="run-r1-3", zone="z")))

    def plan(context: object, request: object, report: object, node: object) -> object:
        site.done.append("plan" if node is None else "plan on its node")
        return site.plan_on(node or site.node)

    def acquire(*_: object) -> object:
        site.done.append("make node")
        return SimpleNamespace(
            name="made", zone="z",
            whole=SimpleNamespace(name="made", zone="z", is_kept_by_terraform=False),
        )  # fmt: skip

    occupants = [SimpleNamespace(run="r1"), *(SimpleNamespace(run=name) for name in site.others)]
    for name, value in {
        "StoredRun": Stored,
        "require_same": site.act("compare"),
        "look": lambda stored, witnesses: site.stage,
        "await_restart": site.act("restart"),
        "steps": SimpleNamespace(tools=lambda context, report, values: values),
        "on_node": lambda plan, node, bucket: site.plan_on(node),
        "occupants": lambda *_: [*occupants, *(SimpleNamespace(run=name) for name in site.others)],
        "take_inventory": lambda provider: "inventory",
        "results": SimpleNamespace(check_folder=site.act("check folder"), pull=pull, left_out=left_out),
        "submission": SimpleNamespace(admit=lambda context, plan, say: plan, go_on=go_on, plan=plan),
        "whole": SimpleNamespace(
            plan_removal=plan_removal, acquire=acquire, planned_node=lambda plan: "its node"
        ),
        "changes": SimpleNamespace(down=site.act("delete")),
        "launch_values": SimpleNamespace(forget=site.act("forget")),
    }.items():
        monkeypatch.setattr(whole, name, value)
    return site


LAST = ["pull to out", "delete", "forget"]


def test_a_run_that_has_ended_is_fetched_and_cleaned_up(site: Site) -> None:
    site.stage = Stage(DONE, TPU, 1, is_launched=True)
    assert site.go().verdict == DONE
    assert site.done == ["check folder", "compare", *LAST]
    assert site.notes == ["Run 'r1' has ended: all workers have finished."]


def test_a_run_that_goes_on_is_followed(site: Site) -> None:
    site.stage = LAUNCHED
    site.go()
    assert site.done == ["check folder", "compare", "follow", *LAST]
    assert site.notes == []


def test_a_run_that_failed_is_fetched_too(site: Site) -> None:
    site.stage, site.verdicts = LAUNCHED, [FAILED]
    assert site.go().verdict == FAILED
    assert site.done[-3:] == LAST


def test_a_run_that_was_preempted_is_started_again_until_it_ends(site: Site) -> None:
    site.stage, site.verdicts = LAUNCHED, [LOST, LOST, DONE]
    site.go()
    assert site.done[2:] == ["follow", "restart", "follow", "restart", "follow", *LAST]
    assert site.notes == ["Run 'r1' was preempted: its node was preempted. It is started again."] * 2


@pytest.mark.parametrize("stage", [Stage(LOST, TPU, 1, is_launched=True), Stage(None, TPU, 2)])
def test_a_run_that_is_to_be_started_again_is_not_submitted(site: Site, stage: Stage) -> None:
    site.stage = stage
    site.go()
    assert site.done[2:] == ["restart", "follow", *LAST]


@pytest.mark.parametrize(
    ("stage", "types", "begin", "node"),
    [
        (Stage(), None, ["plan", "free node", "start"], "fits"),
        (Stage(), (), ["plan on its node", "admit", "make node", "free node", "start"], "made"),
        (Stage(None, TPU, 1), (), ["plan on its node", "start"], "fits"),
    ],
)
def test_a_run_is_started_where_it_fits(
    site: Site, stage: Stage, types: tuple[str, ...] | None, begin: list[str], node: str
) -> None:
    site.ups = [up_of("v3-8")]
    site.stage, site.types = stage, types
    site.verdicts = [KeyboardInterrupt()]
    with pytest.raises(InterruptedByUser, match=f"run 'r1' goes on, and node '{node}' in z bills") as raised:
        site.go()
    assert site.done == ["check folder", "compare", *begin, "follow"]
    assert raised.value.hint == (
        f"Continue: tpuctl run job.py\nStop the run: tpuctl cancel r1\nDelete the node: tpuctl down {node}"
    )
    assert site.listed == [*([("nodes", "made")] if node == "made" else []), ("runs", "r1")]
    assert site.notes[-1] == "It waits in line."


def test_a_node_that_terraform_keeps_is_not_offered_for_deletion(site: Site) -> None:
    site.node.is_kept_by_terraform = True
    site.verdicts = [InterruptedByUser("Interrupted.")]
    with pytest.raises(InterruptedByUser) as raised:
        site.go()
    assert "tpuctl down" not in raised.value.hint


def test_a_node_that_is_gone_settles_the_run_as_any_end(site: Site) -> None:
    site.stage, site.node = Stage(None, TPU, 1), None
    site.go()
    assert site.done[2:] == ["follow", *LAST]


def test_a_run_that_could_not_be_started_and_says_so_is_cleaned_up(site: Site) -> None:
    site.start_error, site.recorded = ConfigError("No pip there."), FAILED
    assert site.go().verdict == FAILED
    assert site.done[2:] == ["plan", "free node", "start", *LAST]
    assert site.notes == ["No pip there."]
    assert site.listed == []


def test_a_start_that_is_left_open_says_what_bills(site: Site) -> None:
    site.start_error = ConfigError("No answer.")
    with pytest.raises(ConfigError) as raised:
        site.go()
    standing = "Run 'r1' may have started, and goes on then, and node 'fits' in z bills."
    assert raised.value.message == f"No answer. {standing}"
    assert site.done[-1] == "start"


def test_a_no_is_passed_on_as_it_is(site: Site) -> None:
    declined = DeclinedError("Declined: nothing was started.", hint="mine")
    site.ups = [up_of("v3-8")]
    site.types, site.declined = ("v3-8",), declined
    with pytest.raises(DeclinedError) as raised:
        site.go()
    assert raised.value is declined
    assert (raised.value.message, raised.value.hint) == ("Declined: nothing was started.", "mine")


def test_an_interrupted_restart_names_the_next_machine(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(whole, "await_restart", interrupt)
    site.stage = Stage(None, TPU, 2)
    with pytest.raises(InterruptedByUser, match=r"is to be started again, and node 'r1-3' may bill"):
        site.go()


def test_after_a_restart_it_is_the_new_node_that_bills(site: Site) -> None:
    site.stage, site.verdicts = LAUNCHED, [LOST, KeyboardInterrupt()]
    with pytest.raises(InterruptedByUser, match="run 'r1' goes on, and node 'run-r1-3' in z bills"):
        site.go()


def test_a_run_that_goes_on_is_interrupted_on_the_node_of_its_attempt(site: Site) -> None:
    site.stage, site.verdicts = LAUNCHED, [KeyboardInterrupt()]
    with pytest.raises(InterruptedByUser, match="run 'r1' goes on, and node 'n1' in europe-west4-a bills"):
        site.go()


def test_a_node_of_tpuctl_after_one_of_terraform_is_offered_for_deletion(site: Site) -> None:
    site.node.is_kept_by_terraform = True
    site.verdicts = [LOST, KeyboardInterrupt()]
    with pytest.raises(InterruptedByUser) as raised:
        site.go()
    assert raised.value.hint.endswith("Delete the node: tpuctl down run-r1-3")


def test_a_node_that_cannot_be_deleted_is_told_with_the_files(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StateError("It is locked.")

    monkeypatch.setattr(whole.changes, "down", refuse)
    site.stage = LAUNCHED
    with pytest.raises(StateError) as raised:
        site.go()
    standing = "Run 'r1' has ended, and its files are here, and node 'n1' in europe-west4-a bills."
    assert raised.value.message == f"It is locked. {standing}"


def test_files_that_this_disk_cannot_hold_keep_the_node(site: Site) -> None:
    site.stage = LAUNCHED
    site.pulled = PullResult(Path("out"), 3, 2048, 0, (), (Refusal("../x", "leads out of the folder"),))
    with pytest.raises(StateError, match="1 object of run 'r1' cannot be written to this disk") as raised:
        site.go()
    assert site.warnings == ["../x leads out of the folder: it is left out."]
    assert site.done[-1] == "pull to out"
    assert "Run 'r1' has ended, and its files are not all here" in raised.value.message


def shown(site: Site, *, as_json: bool = False) -> None:
    """Show the end as the command does."""
    command._show_end(SimpleNamespace(as_json=as_json), site.go())  # type: ignore[arg-type]


def test_what_was_fetched_and_deleted_is_told(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.stage, site.removed = LAUNCHED, ("r1", "r1-2")
    site.pulled = PullResult(Path("out"), 3, 2048, 0, ("a", "b"))
    shown(site)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "files    3 (2.0 kB), verified\n" in printed.err
    assert "where    out\nskipped  2 files of unfinished checkpoints\n" in printed.err
    assert "Deleted r1, r1-2.\n" in printed.err
    assert printed.err.endswith("Run 'r1' succeeded.\n")


def test_what_stays_is_told(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.stage, site.kept = LAUNCHED, "n1 was not made for this run."
    shown(site)
    said = capsys.readouterr().err
    assert "n1 was not made for this run.\n" in said
    assert "skipped" not in said
    assert "Deleted" not in said


def test_the_other_runs_on_its_node_are_its_users(site: Site) -> None:
    site.stage, site.others = LAUNCHED, ("r2", "r3")
    site.go()
    assert site.users == ["r2", "r3"]


def test_programs_read_the_end_as_a_line_of_json(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.stage, site.verdicts = LAUNCHED, [FAILED]
    site.removed, site.kept = ("r1",), "It stays."
    site.pulled = PullResult(Path("out"), 3, 2048, 0, ("a",))
    with pytest.raises(JobFailedError, match="Run 'r1' failed: worker 0 exited with 3"):
        shown(site, as_json=True)
    line = json.loads(capsys.readouterr().out)
    del line["schema"]
    assert line == {
        "run": "r1", "outcome": "failed", "evidence": "worker 0 exited with 3", "exit_code": 3,
        "folder": "out", "files": 3, "bytes": 2048, "uncommitted": ["a"], "deleted": ["r1"],
        "kept": "It stays.",
    }  # fmt: skip


class TestPlan:
    """What a dry run shows, by what is done already."""

    @pytest.fixture(autouse=True)
    def services(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(whole.submission, "requests", lambda *_: ["submit"], raising=False)
        monkeypatch.setattr(whole, "drill", SimpleNamespace(requests=lambda *_: ["restart"]))
        monkeypatch.setattr(whole.whole, "own_nodes", lambda *_: (), raising=False)
        monkeypatch.setattr(whole.changes, "down_requests", lambda *_: ["delete"], raising=False)

    @pytest.mark.parametrize(
        ("stage", "requests"),
        [
            (Stage(), ["submit"]),
            (LAUNCHED, ["delete"]),
            (Stage(DONE, TPU, 1, is_launched=True), ["delete"]),
            (Stage(DONE), ["delete"]),
            (Stage(LOST, TPU, 1, is_launched=True), ["restart"]),
        ],
    )
    def test_the_rest_of_the_way(self, site: Site, stage: Stage, requests: list[str]) -> None:
        site.stage = stage
        assert site.made_steps().requests() == requests
        assert site.done[0] == "compare"
        assert ("show run" in site.done) == (requests == ["submit"])

    @pytest.mark.parametrize(
        ("existing", "requests"),
        [(None, ["create", "write run", "delete new"]), ("n1", ["create", "write run", "delete"])],
    )
    def test_a_node_to_make(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, existing: str | None, requests: list[str]
    ) -> None:
        site.types = ()
        plans = [SimpleNamespace(existing=existing), SimpleNamespace(existing="another")]
        monkeypatch.setattr(Steps, "_up_plans", lambda self: plans)
        monkeypatch.setattr(whole.whole, "node_of", lambda plan: plan, raising=False)
        monkeypatch.setattr(whole.whole, "deletion_requests", lambda *_: ["delete new"], raising=False)
        monkeypatch.setattr(whole, "creation", SimpleNamespace(requests=lambda *_: ["create"]))
        monkeypatch.setattr(whole, "submit", SimpleNamespace(requests=lambda *_: ["write run"]))
        assert site.made_steps().requests() == requests
        assert ("show" in site.done) == (existing is None)
        assert {"plan on its node", "show run"} <= {*site.done}


def options_of(*, accelerator: str, name: str, framework: str) -> UpOptions:
    return UpOptions(accelerator, name, "ada", framework=framework, network="net")


def outset_of(site: Site, *types: str, config: str | None = None) -> Steps:
    steps: Any = site.made_steps()
    steps._context.config = {"accelerator": config, "bucket": "b"}
    steps._whole = SimpleNamespace(
        run="r1", request=SimpleNamespace(script=Path("job.py"), framework=None), types=types,
        typed=("run", "job.py", "--up", "v3-8"), zones=("z",), wait=7, lifetime=Lifetime(idle=3600),
        machine=options_of,
    )  # fmt: skip
    return steps


def up_of(accelerator: str) -> Any:
    return SimpleNamespace(
        stopped=None, existing=None, options=SimpleNamespace(name="r1"),
        request=SimpleNamespace(accelerator=accelerator),
    )  # fmt: skip


class TestOutset:
    """Which types the node may have, and what is asked before anything bills."""

    @pytest.mark.parametrize(
        ("types", "header", "config", "found"),
        [
            (["v2-8"], ["v3-8"], "v3-32", ["v2-8"]),
            ([], ["v3-8", "v2-8"], "v3-32", ["v3-8", "v2-8"]),
            ([], [], "v3-32", ["v3-32"]),
            (["v5e-4"], [], None, ["v5litepod-4"]),
        ],
    )
    def test_the_types_are_those_of_the_option_or_the_header_or_the_configuration(
        self, site: Site, types: list[str], header: list[str], config: str | None, found: list[str]
    ) -> None:
        assert outset_of(site, *types, config=config)._types(header) == found

    def test_without_any_type_there_is_no_node_to_make(self, site: Site) -> None:
        with pytest.raises(UsageError, match="There is no TPU type") as raised:
            outset_of(site)._types(())
        assert raised.value.hint == "Name one: --up v3-8, or accelerator in the header."

    @pytest.mark.parametrize(
        ("types", "found"), [(["v3-8"], []), (["v3-8", "v2-8"], ["v2-8"]), (["v3-8", "v3-32"], [])]
    )
    def test_the_node_that_an_earlier_command_has_made_decides_between_types(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, types: list[str], found: list[str]
    ) -> None:
        listed = [
            SimpleNamespace(name="other", accelerator="v3-8", queued_resource=""),
            SimpleNamespace(name="r1", accelerator="v2-8", queued_resource=""),
            SimpleNamespace(name="r1-0", accelerator="v2-8", queued_resource="r1"),
        ]
        monkeypatch.setattr(whole, "take_inventory", lambda provider: SimpleNamespace(nodes=listed))
        assert outset_of(site)._existing("r1", types) == found

    def test_the_node_of_another_type_is_named_before_the_first_is_made(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        site.types, site.ups = (), [up_of("v3-8"), up_of("v2-8")]
        monkeypatch.setattr(whole, "creation", SimpleNamespace(price_text=lambda context, plan: "5 EUR"))
        plan: Any = site.made_steps()._made_node()
        assert plan.node.name == "made"
        assert site.done == ["plan on its node", "admit", "make node"]
        assert site.notes == ["Without capacity: v2-8 instead, 5 EUR per hour."]
        assert site.listed == [("nodes", "made")]

    @pytest.mark.parametrize(
        ("is_deleted", "afterwards", "question"),
        [
            (True, "the TPU is deleted", "Create r1, run job.py there, and delete it afterwards?"),
            (False, "the TPU stays, and bills, until 'tpuctl down'", "Create r1, run job.py there?"),
        ],
    )
    def test_what_becomes_of_the_node_is_said_before_it_is_made(
        self, monkeypatch: pytest.MonkeyPatch, is_deleted: bool, afterwards: str, question: str
    ) -> None:
        asked: list[object] = []

        def ask(session: object, plan: object, *, yes: bool, more: dict[str, str], question: str) -> None:
            asked.extend((dict(more), question, yes))

        monkeypatch.setattr(command, "ask", ask)
        monkeypatch.setattr(command, "warn_of_secrets", asked.append)
        run: Any = SimpleNamespace(
            run="r1",
            request=SimpleNamespace(script=Path("job.py"), framework=None),
            folder=Path("out"),
            is_deleted=is_deleted,
        )
        plan = up_of("v3-8")
        command.Screen("session", run, yes=False).admit_node(plan)  # type: ignore[arg-type]
        facts = {"run": "r1: job.py", "results": "out", "afterwards": afterwards}
        assert asked == [plan.options, facts, question, False]

    def test_a_plan_is_made_for_each_type(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        searches: list[tuple[object, ...]] = []

        def search_of(context: str, made: UpOptions, zones: tuple[str, ...], **options: object) -> str:
            searches.append((zones, options))
            return f"search for {made.type}"

        header = SimpleNamespace(tpuctl=SimpleNamespace(accelerators=("v3-8", "v2-8"), framework="jax"))
        creation = SimpleNamespace(
            search_of=search_of,
            limited=lambda context, options, lifetime, search: lifetime,
            plan_of=lambda _, *plan: SimpleNamespace(options=plan[0]),
        )
        existing: list[Any] = []
        monkeypatch.setattr(whole, "read_header", lambda *_: header)
        monkeypatch.setattr(whole, "creation", creation)
        monkeypatch.setattr(whole, "take_inventory", lambda provider: SimpleNamespace(nodes=existing))
        options = [plan.options for plan in outset_of(site)._up_plans()]
        assert [(each.accelerator, each.name, each.framework) for each in options] == [
            ("v3-8", "r1", "jax"),
            ("v2-8", "r1", "jax"),
        ]
        first = options[0]
        assert (first.run, first.bucket, first.lifetime.idle) == ("r1", "b", 3600)
        assert first.typed == ("run", "job.py", "--up", "v3-8")
        assert searches == [(("z",), {"race": False, "wait": 7, "detach": False})] * 2
        existing.append(SimpleNamespace(name="r1", accelerator="v2-8", queued_resource=""))
        assert [plan.options.accelerator for plan in outset_of(site)._up_plans()] == ["v2-8"]

    def test_a_lifetime_that_cannot_be_is_refused(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        header = SimpleNamespace(tpuctl=SimpleNamespace(accelerators=("v3-8",), framework="jax"))
        begin = outset_of(site)
        begin._whole.__dict__["lifetime"] = Lifetime(ttl=1)
        monkeypatch.setattr(whole, "read_header", lambda *_: header)
        with pytest.raises(UsageError, match="--ttl is from"):
            begin._up_plans()

    def test_what_a_plan_has_to_say_is_said(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        plan = SimpleNamespace(notes=("one", "two"))
        monkeypatch.setattr(whole, "submission", SimpleNamespace(plan=lambda *_: plan))
        planned: Any = site.made_steps()._planned()
        assert (planned, site.notes) == (plan, ["one", "two"])

    def test_a_stopped_node_needs_time_before_anything_is_asked(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(node: object, time: object) -> None:
            raise StateError(f"{node} ends soon.")

        site.ups = [SimpleNamespace(stopped="r1")]
        monkeypatch.setattr(whole, "require_time_left", refuse)
        with pytest.raises(StateError, match="r1 ends soon"):
            site.made_steps()._made_node()
        assert site.done == []
