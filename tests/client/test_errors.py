"""Tests what a client says that is closed, not configured, or asked for what does not exist.

Each class of errors has the exit code that docs/errors.md promises.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import tpuctl
from tests.hostile.site import TEXT, WORD, HostileSite
from tests.hostile.text import steers
from tests.running_simulator import RunningSimulator
from tpuctl import Client, errors
from tpuctl.errors import ConfigError, NotFoundError, StateError, TpuctlError, UsageError, nearest


def test_a_client_that_is_closed_says_so(simulator: RunningSimulator) -> None:
    with Client() as client:
        assert client.nodes() == ()
        run = tpuctl.Run(client._context, "r1")
    calls: list[Callable[[], object]] = [
        client.nodes, client.runs, client.datasets, client.watch, lambda: client.up("v3-8"),
        lambda: run.state, lambda: next(run.logs()),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(StateError, match=r"^This client is closed\.$"):
            call()
    client.close()  # once more does nothing


def test_without_a_project_the_hint_says_how_to_configure_one(home: Path) -> None:
    with Client(target="gcp", zone="europe-west4-a") as client:
        with pytest.raises(ConfigError, match="No project is configured") as caught:
            client.up("v3-8")
        assert "tpuctl init" in caught.value.hint
        with pytest.raises(ConfigError, match=r"^No (project|bucket) is configured"):
            client.runs()


def test_arguments_are_the_options_of_the_command_line(home: Path) -> None:
    Path("tpuctl.toml").write_text('target = "gcp"\nproject = "from-the-file"\nzone = "us-central1-a"\n')
    client = Client(project="from-python")
    config = client._context.config
    assert (client.target, config.require("project")) == ("gcp", "from-python")
    assert config.require("zone") == "us-central1-a"
    assert client._context.from_flag("project") == "from-python"
    assert client._context.from_flag("zone") is None


def test_a_file_that_cannot_be_read_is_an_error_of_the_configuration(home: Path) -> None:
    Path("tpuctl.toml").write_text("target = ")
    with pytest.raises(ConfigError, match=r"tpuctl\.toml"):
        Client()


def test_an_unknown_target_is_refused(home: Path) -> None:
    with pytest.raises(ConfigError, match="'aws'"):
        Client(target="aws")


def test_unknown_names_are_not_found(client: Client) -> None:
    client.up("v3-8", name="n1")
    with pytest.raises(NotFoundError, match="There is no node 'n2'") as caught:
        client.node("n2")
    assert caught.value.hint == "Did you mean n1?"
    with pytest.raises(NotFoundError, match="There is no run"):
        client.run("r1")
    with pytest.raises(NotFoundError, match="There is no run yet"):
        client.run()
    with pytest.raises(NotFoundError, match="There is no dataset 'digits'"):
        client.dataset("digits")


def test_names_that_none_can_have_are_refused(client: Client) -> None:
    with pytest.raises(UsageError):
        client.run("No Run")
    with pytest.raises(UsageError, match="cannot name a node"):
        client.up("v3-8", name="No Node")
    with pytest.raises(UsageError, match="accelerator"):
        client.up("v99-8")


def test_a_node_that_is_gone_is_not_found_any_more(client: Client) -> None:
    node = client.up("v3-8", name="n1")
    assert client.down("n1") == ("n1",)
    with pytest.raises(NotFoundError):
        node.state  # noqa: B018  read for its error


def test_a_failed_run_is_a_result_and_with_check_an_error(client: Client, script: Path) -> None:
    client.up("v3-8", name="n1")
    run = client.submit(script, environment={"CODE": "3"})
    end = run.wait()
    assert (end.outcome, end.exit_code, end.succeeded) == ("failed", 3, False)
    with pytest.raises(tpuctl.errors.JobFailedError) as caught:
        run.wait(check=True)
    assert caught.value.exit_code == 100
    assert type(end.error) is tpuctl.errors.JobFailedError


def test_a_busy_node_is_an_error_unless_the_run_waits_in_line(client: Client, script: Path) -> None:
    client.up("v3-8", name="n1")
    first = client.submit(script, ["--wait"], name="first")
    with pytest.raises(StateError, match="n1 is busy with run 'first'"):
        client.submit(script, name="second")
    second = client.submit(script, name="second", busy="queue")
    first.cancel(grace=1)
    assert second.wait().succeeded


def test_nothing_is_printed_and_warnings_are_logged(
    client: Client, simulator: RunningSimulator, capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    client._context.cloud.bucket.create("runs/r1/run.json", b"{}")
    with caplog.at_level(logging.WARNING, "tpuctl"):
        assert client.runs() == ()
    assert [record.name for record in caplog.records] == ["tpuctl"]
    assert "runs/r1/run.json" in caplog.text
    warnings = list[str]()
    with Client(warn=warnings.append) as other:
        other.runs()
    assert "runs/r1/run.json" in warnings[0]
    assert capfd.readouterr() == ("", "")


def test_no_traceback_of_a_call_steers_a_terminal(
    client: Client, simulator: RunningSimulator, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    HostileSite(simulator, home)
    Path("field.py").write_text(f"# /// script\n# [tool.tpuctl]\n# {json.dumps(WORD)} = 1\n# ///\n")
    runs, nameless = [client.run(name) for name in ("r1", "r2", "r3")], tpuctl.Run(client._context, "r4")
    calls: list[Callable[[], object]] = [
        nameless.resubmit, lambda: nameless.info, lambda: nameless.wait(check=True), lambda: client.run(WORD),
        lambda: client.node(WORD), lambda: client.dataset("bad").head(), lambda: client.dataset(WORD).head(),
        lambda: client.upload("images", "images"), lambda: client.upload("rows", "rows.jsonl"),
        lambda: client.upload(WORD, "images"), lambda: client.up(WORD), lambda: client.submit(f"{WORD}.py"),
        lambda: client.submit("header.py"), lambda: client.submit("field.py"),
        lambda: client.submit("job.py", name=WORD), lambda: client.exec([WORD], WORD),
        lambda: client.cp([WORD], WORD), client.datasets, client.runs,
    ]  # fmt: skip
    for run in runs:
        calls += [
            partial(run.wait, check=True), partial(run.resubmit, name="again"), partial(run.pull, "copy"),
            partial(list, run.logs()), run.remove, partial(run.tag, WORD), partial(run.note, TEXT),
            lambda run=run: (run.facts, run.info, run.attempts, run.metrics),
        ]  # fmt: skip
    raised = set()
    with caplog.at_level(logging.WARNING, "tpuctl"):
        for call in calls:
            try:
                call()
            except TpuctlError as error:
                raised.add(type(error).__name__)
                text = "".join(traceback.format_exception(error)).replace("\n", "")
                assert not steers(text), ascii(text)[-1500:]
    assert not steers(caplog.text.replace("\n", "")), ascii(caplog.text)
    assert raised >= {"JobFailedError", "NotFoundError", "UsageError"}


CODES = {
    "TpuctlError": 1, "UsageError": 2, "ConfigError": 3, "StateError": 4, "NotFoundError": 4,
    "ConflictError": 4, "StockoutError": 5, "QuotaError": 6, "PreemptedError": 7, "HostError": 8,
    "DeadlineError": 9, "DeclinedError": 10, "JobFailedError": 100, "InterruptedByUser": 130,
}  # fmt: skip


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_each_error_has_its_exit_code(name: str, code: int) -> None:
    error = getattr(errors, name)("It failed.", hint="Try it.", node="n1")
    assert (error.exit_code, str(error), error.message) == (code, "It failed.", "It failed.")
    assert (error.hint, error.facts, error.result) == ("Try it.", {"node": "n1"}, {})


def test_the_python_api_has_each_of_them() -> None:
    assert sorted(errors.__all__) == sorted(CODES)


def test_a_hint_may_be_missing() -> None:
    assert (TpuctlError("x").hint, TpuctlError("x").facts) == ("", {})


def test_success_is_no_error() -> None:
    assert errors.EXIT_CODES["ok"] == 0


def test_the_nearest_names_are_three_at_most_and_the_best_comes_first() -> None:
    names = ["submit", "ab", "run13", "run123", "run12", "run1"]
    assert nearest("submt", names) == ["submit"]
    assert nearest("xyzzy", names) == []
    assert (nearest("run1", names)[0], len(nearest("run1", names))) == ("run1", 3)
    assert nearest("run1", names, most=1) == ["run1"]


@pytest.mark.parametrize(("typed", "is_near"), [("abxy", True), ("abxyz", False)])
def test_half_of_the_letters_make_a_name_near(typed: str, is_near: bool) -> None:
    assert nearest(typed, ["abcd"]) == (["abcd"] if is_near else [])
