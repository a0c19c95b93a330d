"""A command says on which target it runs, and goes by the clock of its services."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
import requests

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import Client, clock
from tpuctl.cli.session import Session
from tpuctl.config import load
from tpuctl.errors import ConfigError

Tpuctl = Callable[..., CommandResult]
TOKEN = "ghp_" + "aB3" * 12
NOTE = "[sim] simulated TPUs and storage on this machine: nothing bills"


@pytest.fixture
def gcp(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole configuration of the target that bills, and no credentials."""
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # else google-auth looks for a metadata server
    for name, value in (("PROJECT", "p"), ("ZONE", "europe-west4-a"), ("BUCKET", "b")):
        monkeypatch.setenv(f"TPUCTL_{name}", value)


@pytest.mark.parametrize(
    "command", [("ls",), ("data", "ls"), ("up", "v3-8", "--yes"), ("doctor",)], ids=" ".join
)
def test_a_command_on_the_simulator_says_once_that_nothing_bills(
    tpuctl: Tpuctl, simulator: RunningSimulator, command: tuple[str, ...]
) -> None:
    result = tpuctl(*command)
    assert result.err.splitlines().count(NOTE) == 1
    assert result.err.startswith(NOTE), "before anything else"
    assert "[sim]" not in result.out


@pytest.mark.usefixtures("gcp")
@pytest.mark.parametrize(
    "command", [("ls",), ("data", "ls"), ("up", "v3-8", "--yes"), ("doctor",)], ids=" ".join
)
def test_a_command_on_the_target_that_bills_never_says_so(tpuctl: Tpuctl, command: tuple[str, ...]) -> None:
    for result in (tpuctl(*command), tpuctl(*command, "--target", "gcp")):
        assert result.code == 3, result.err
        assert "[sim]" not in result.out + result.err


def test_a_command_that_needs_no_cloud_does_not_say_where_it_runs(tpuctl: Tpuctl) -> None:
    assert "[sim]" not in tpuctl("config", "--target", "sim").err


def machine_is(monkeypatch: pytest.MonkeyPatch, fast: timedelta) -> None:
    """Set this machine's clock, and not that of the services."""
    monkeypatch.setattr(clock, "now", lambda: datetime.now(UTC) + fast)


def test_no_answer_depends_on_the_clock_of_this_machine(
    tpuctl: Tpuctl, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tpuctl("up", "v3-8", "--name", "n1", "--ttl", "8h", "--yes").code == 0
    waiting = ("up", "v3-8", "--name", "q1", "--queued", "--valid-until", "6h", "--dry-run", "--json")
    for hours, side in ((10, "ahead of"), (-10, "behind")):
        machine_is(monkeypatch, timedelta(hours=hours))
        listed = tpuctl("ls")
        header, row = (line.split() for line in listed.out.splitlines())
        assert row[header.index("ENDS")] in ("7h", "8h"), listed.out
        assert "its time to live is over" not in listed.out
        cost = tpuctl("describe", "n1", "--json").json["nodes"][0]["cost_so_far"]
        assert float(cost["amount"]) < 9.77, "of an hour"
        with Client() as client:
            (node,) = client.nodes()
            assert node.cost_so_far
            assert node.cost_so_far.amount < 9.77
            assert not node.notes
        (request,) = tpuctl(*waiting).json["requests"]
        until = datetime.fromisoformat(request["body"]["queueingPolicy"]["validUntilTime"])
        assert timedelta(hours=5) < until - datetime.now(UTC) < timedelta(hours=7)
        said = rf"^Warning: This machine's clock is (10h|9h5.m) {side} the service's, which tpuctl goes by\.$"
        assert len(re.findall(said, listed.err, re.M)) == 1, listed.err


def test_a_clock_that_is_off_by_less_than_a_minute_is_not_spoken_of(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds in (-30, 30):  # and a busy machine may take some until it compares
        machine_is(monkeypatch, timedelta(seconds=seconds))
        assert "clock" not in tpuctl("runs").err


def test_where_no_server_tells_the_time_tpus_are_listed_and_the_queue_is_not_limited(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise requests.ConnectionError("no route")

    monkeypatch.setattr(requests.Session, "head", unreachable)
    listed = tpuctl("ls")
    assert listed.code == 0
    assert "READY" in listed.out
    assert (
        "No server tells the time: no route. Ages, ends and costs are by this machine's clock." in listed.err
    )
    refused = tpuctl("up", "v3-8", "--name", "q1", "--queued", "--valid-until", "6h", "--dry-run")
    assert (refused.code, refused.out) == (9, ""), refused.err


@pytest.mark.usefixtures("gcp")
def test_what_changes_something_says_in_which_project_it_bills(
    tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUCTL_PROJECT", "my-grant-project")
    monkeypatch.setenv("TPUCTL_BUCKET", "my-bucket")
    note = "[gcp] my-grant-project: this bills"
    for command, is_said in (
        (("up", "v3-8", "--yes"), 1), (("down", "--yes"), 1), (("ls",), 0), (("down", "--dry-run"), 0),
    ):  # fmt: skip
        result = tpuctl(*command)
        assert (result.code, result.err.splitlines().count(note)) == (3, is_said), result.err


@pytest.mark.parametrize("word", ["--yes", "-y", "--json", "--dry-run"])
def test_the_words_to_type_again_are_those_that_say_what_is_done(home: Path, word: str) -> None:
    """Behind `--` each word is the script's."""
    with click.Context(click.Command("run"), obj=("run", word, "job.py", "--", word, TOKEN)):
        typed = Session(load({}), as_json=False).typed
    assert typed[:4] == ("run", "job.py", "--", word)
    assert TOKEN not in typed


class TestProjectOfGcloudAlone:
    """A researcher with a grant has a default project in gcloud, and types what the README shows."""

    @pytest.fixture(autouse=True)
    def configuration(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        monkeypatch.delenv("TPUCTL_TARGET", raising=False)
        folder = home / "sdk/configurations"
        folder.mkdir(parents=True)
        (folder / "config_default").write_text(
            "[core]\nproject = my-grant-project\n[compute]\nzone = us-central1-b\n"
        )
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(folder.parent))

    @pytest.fixture
    def answer(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
        def answer(*answers: bool) -> list[str]:
            """Answer questions at a terminal; returns them as they come."""
            asked, left = list[str](), list(answers)

            def confirm(question: str) -> bool:
                asked.append(question)
                return left.pop(0)

            monkeypatch.setattr("sys.stdin.isatty", lambda: True)
            monkeypatch.setattr("tpuctl.cli.printing.confirm", confirm)
            return asked

        return answer

    def test_without_a_terminal_the_command_is_shown_with_the_project(self, tpuctl: Tpuctl) -> None:
        result = tpuctl("up", "v3-8", "--yes")
        assert result.code == 3
        assert result.err == (
            "Error: Only gcloud's configuration names project 'my-grant-project', and this may bill there.\n"
            "Hint: Name it: tpuctl up v3-8 --yes --project my-grant-project\n"
            "      Name it for this shell: export TPUCTL_PROJECT=my-grant-project\n"
        )
        with Client() as client:
            calls = {
                "up": lambda: client.up("v3-8"),
                "down": client.down,
                "submit": lambda: client.submit("train.py"),
                "watch": client.watch,
                "upload": lambda: client.upload("digits", "digits.csv"),
            }
            for name, call in calls.items():
                with pytest.raises(ConfigError) as refused:
                    call()
                assert refused.value.message.startswith("Only gcloud's configuration"), name

    def test_what_changes_nothing_does_not_ask(self, tpuctl: Tpuctl) -> None:
        for command in (("ls",), ("up", "v3-8", "--dry-run")):
            assert "There are no Google Cloud credentials" in tpuctl(*command).err

    @pytest.mark.parametrize("variable", ["TPUCTL_PROJECT", "GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT"])
    def test_a_project_that_the_shell_names_is_meant(
        self, tpuctl: Tpuctl, monkeypatch: pytest.MonkeyPatch, variable: str
    ) -> None:
        monkeypatch.setenv(variable, "my-grant-project")
        assert "[gcp] my-grant-project: this bills" in tpuctl("down", "--yes").err

    def test_a_no_does_nothing(self, tpuctl: Tpuctl, answer: Callable[..., list[str]]) -> None:
        asked = answer(False)
        result = tpuctl("up", "v3-8", "--yes")
        assert result.code == 10
        assert asked == ["gcloud's configuration names project 'my-grant-project'. Use it? It bills."]
        assert not Path("tpuctl.toml").exists()

    def test_a_yes_is_asked_for_once_and_written_before_what_the_file_has(
        self, tpuctl: Tpuctl, answer: Callable[..., list[str]]
    ) -> None:
        asked = answer(True, False)
        assert "[gcp] my-grant-project: this bills" in tpuctl("down", "--yes").err
        assert (len(asked), Path("tpuctl.toml").exists()) == (2, False), "the second no writes nothing"
        Path("tpuctl.toml").write_text('zone = "us-central1-a"\n[prices]\nv3-8 = 7.5\n')
        asked = answer(True, True)
        tpuctl("down", "--yes")
        assert asked[1] == f"Write it to {Path('tpuctl.toml').resolve()}, and not ask again?"
        assert Path("tpuctl.toml").read_text() == (
            'project = "my-grant-project"\nzone = "us-central1-a"\n[prices]\nv3-8 = 7.5\n'
        )
        asked = answer()
        assert "[gcp] my-grant-project: this bills" in tpuctl("down", "--yes").err
        assert asked == []
