"""Faults and events through the command line, and how tpuctl's own commands handle the faults."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.faults import KINDS
from tpuctl.polling import Backoff, poll

Tpuctl = Callable[..., CommandResult]
ZONE = "projects/sim-project/locations/europe-west4-a"
JOB = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# accelerator = "v3-8"\n# ///\n'


def add(tpuctl: Tpuctl, *words: str) -> str:
    result = tpuctl("sim", "fault", "add", *words, "--json")
    assert result.code == 0, result.err
    return str(result.json["faults"][0]["id"])


def nodes(simulator: RunningSimulator) -> list[str]:
    return [node.name.rpartition("/")[2] for node in simulator.world.nodes.all()]


class TestCommands:
    @pytest.fixture(autouse=True)
    def running(self, simulator: RunningSimulator) -> None:
        """A simulator that the commands find."""

    def test_a_fault_is_added_listed_and_removed(self, tpuctl: Tpuctl) -> None:
        result = tpuctl("sim", "fault", "add", "stockout", "--zone", "us-*", "--count", "2")
        assert result.out.splitlines() == [
            "ID  KIND      OPTIONS            STATE     FIRED  LEFT  FROM",
            "f1  stockout  zone=us-* count=2  in force  0      2     command",
        ]
        assert "Next: tpuctl sim fault rm f1" in result.err
        assert tpuctl("sim", "fault", "ls").out == result.out
        assert tpuctl("sim", "fault", "rm", "f1").err == "Removed f1.\n"
        assert tpuctl("sim", "fault", "ls").err == "There are no faults.\n"
        assert tpuctl("sim", "fault", "ls", "--json").json["faults"] == []

    def test_all_are_removed_at_once(self, tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
        for _ in range(3):
            add(tpuctl, "stockout")
        assert tpuctl("sim", "fault", "rm").code == 2
        assert tpuctl("sim", "fault", "rm", "f1", "--all").code == 2
        assert tpuctl("sim", "fault", "rm", "--all").code == 0
        assert simulator.faults.all() == []

    def test_an_id_that_is_none_is_not_found(self, tpuctl: Tpuctl) -> None:
        add(tpuctl, "stockout")
        result = tpuctl("sim", "fault", "rm", "f11")
        assert (result.code, "Did you mean f1?" in result.err) == (4, True)

    def test_a_scenario_is_loaded_into_the_simulator_that_runs(
        self, tpuctl: Tpuctl, simulator: RunningSimulator
    ) -> None:
        Path("good.toml").write_text('seed = 3\n[[fault]]\nkind = "stockout"\nprobability = 0.5\n')
        Path("bad.toml").write_text('[[fault]]\nkind = "stockout"\nzoen = "x"\n')
        assert tpuctl("sim", "start", "--scenario", "good.toml").code == 0
        (fault,) = simulator.faults.all()
        assert (fault.origin, fault["seed"]) == ("scenario good.toml", 3)
        result = tpuctl("sim", "start", "--scenario", "bad.toml")
        assert result.code == 2
        assert result.err.endswith(
            "bad.toml, line 3: The fault 'stockout' has no zoen.\nHint: Did you mean zone?\n"
        )
        assert simulator.faults.all() == [fault]

    def test_events_are_shown_in_order_and_in_part(self, tpuctl: Tpuctl) -> None:
        add(tpuctl, "unavailable", "--method", "ListNodes", "--count", "1")
        assert tpuctl("ls").code == 0
        words = [line.split()[1:4] for line in tpuctl("sim", "events").out.splitlines()]
        words.remove(["tpu", "request", "ListQueuedResources"])  # at the same time as the others
        assert words == [
            ["tpu", "request", "ListNodes"],
            ["tpu", "fault", "unavailable"],
            ["tpu", "request", "ListNodes"],
        ]
        assert len(tpuctl("sim", "events", "--last", "2").out.splitlines()) == 2
        assert tpuctl("sim", "events", "--last", "0").out == ""
        (line,) = tpuctl("sim", "events", "--kind", "fault", "--json").out.splitlines()
        event = json.loads(line)
        assert (event["schema"], event["detail"]) == (1, "f1 tpu.ListNodes")

    def test_events_are_followed_until_the_simulator_stops(self, tpuctl: Tpuctl, tmp_path: Path) -> None:
        state = tmp_path / "other"
        program = "import sys; from tpuctl.cli.main import run; sys.exit(run(sys.argv[1:]))"
        environment = {"TPUCTL_STATE": str(state), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}

        def call(*words: str) -> None:
            subprocess.run([sys.executable, "-c", program, *words], env=environment, check=True, timeout=60)

        call("sim", "start")
        command = [sys.executable, "-c", program, "sim", "events", "--follow", "--json"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as following:
            assert following.stdout
            call("ls")
            listed = {json.loads(following.stdout.readline())["what"] for _ in range(2)}
            assert listed == {"ListNodes", "ListQueuedResources"}
            call("sim", "stop")
            assert following.stdout.read() == ""
            assert following.wait(60) == 0


class TestHelp:
    """What needs no simulator."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind_has_its_help_with_an_example(self, tpuctl: Tpuctl, kind: str) -> None:
        result = tpuctl("sim", "fault", "add", kind, "--help")
        assert result.code == 0
        assert KINDS[kind].help.split(":")[0].split()[0] in result.out
        for field in KINDS[kind].fields:
            assert f"--{field.name}" in result.out
        assert result.out.rstrip().count(f"tpuctl sim fault add {kind} {KINDS[kind].example}") == 1

    def test_the_help_lists_every_kind(self, tpuctl: Tpuctl) -> None:
        for words in (("add",), ("add", "--help")):
            result = tpuctl("sim", "fault", *words)
            assert result.code == 0
            assert not [kind for kind in KINDS if f"\n  {kind} " not in result.out]

    @pytest.mark.parametrize(
        ("words", "message", "hint"),
        [
            (("stokout",), "There is no kind of fault 'stokout'.", "Did you mean stockout?"),
            (("stockout", "--count", "0"), "--count has to be a whole number of at least 1, not '0'.", ""),
            (("stockout", "--zon", "x"), "No such option", "--zone"),
            (("gcs-cut",), "Missing option '--bytes'", ""),
            (
                ("unavailable", "--method", "GetNod"),
                "--method: the fault 'unavailable' has no method",
                "tpu.GetNode",
            ),
            (("--count", "1", "stockout"), "The kind of fault comes first.", "KIND"),
        ],
    )
    def test_what_cannot_be_meant_is_a_usage_error(
        self, tpuctl: Tpuctl, words: tuple[str, ...], message: str, hint: str
    ) -> None:
        result = tpuctl("sim", "fault", "add", *words)
        assert result.code == 2
        assert message in result.err
        assert hint in result.err
        assert tpuctl("sim", "status", "--json").json["running"] is False


def test_without_a_simulator_there_is_nothing_to_list(home: Path, tpuctl: Tpuctl) -> None:
    for words in (("ls",), ("rm", "f1")):
        result = tpuctl("sim", "fault", *words)
        assert (result.code, "tpuctl sim start" in result.err) == (4, True)
    assert tpuctl("sim", "events").out == ""


class TestVerbs:
    """tpuctl's own commands against the faults that matter most."""

    def test_a_stockout_names_the_next_zone(self, tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
        add(tpuctl, "stockout", "--zone", "us-central1-a", "--count", "1")
        up = ("up", "v3-8", "--name", "n1", "--zone", "us-central1-a", "--yes")
        result = tpuctl(*up)
        assert result.code == 5
        assert "no more capacity" in result.err
        assert "      Try the next zone: tpuctl up v3-8 --name n1 --zone us-" in result.err
        assert nodes(simulator) == []
        assert tpuctl(*up).code == 0

    def test_a_quota_is_told_from_a_stockout(self, tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
        add(tpuctl, "quota", "--zone", "europe-west4-a", "--limit", "8")
        assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
        result = tpuctl("up", "v3-8", "--name", "n2", "--yes")
        assert (result.code, "Delete what you do not need" in result.err) == (6, True)
        tpuctl("sim", "fault", "rm", "--all")
        add(tpuctl, "quota")
        result = tpuctl("up", "v3-8", "--name", "n2", "--yes")
        assert (result.code, "never granted" in result.err) == (6, True)
        assert nodes(simulator) == ["n1"]

    @pytest.mark.parametrize("kind", ["unavailable", "deadline-exceeded"])
    def test_a_create_whose_answer_is_lost_is_neither_repeated_nor_leaked(
        self, tpuctl: Tpuctl, simulator: RunningSimulator, kind: str
    ) -> None:
        add(tpuctl, kind, "--method", "CreateNode", "--when", "after", "--count", "1")
        result = tpuctl("up", "v3-8", "--name", "n1", "--yes")
        assert result.code == 0, result.err
        assert len(simulator.events.find(kind="request", what="CreateNode")) == 1
        assert nodes(simulator) == ["n1"]

    @pytest.mark.parametrize("kind", ["unavailable", "deadline-exceeded"])
    def test_a_delete_whose_answer_is_lost_is_done_all_the_same(
        self, tpuctl: Tpuctl, simulator: RunningSimulator, node: str, kind: str
    ) -> None:
        add(tpuctl, "slow-operation", "--method", "DeleteNode", "--seconds", "1")
        add(tpuctl, kind, "--method", "DeleteNode", "--when", "after", "--count", "1")
        result = tpuctl("down", node, "--yes")
        assert result.code == 0, result.err
        assert nodes(simulator) == []

    def test_a_zone_that_does_not_answer_keeps_no_other_node_from_being_deleted(
        self, tpuctl: Tpuctl, simulator: RunningSimulator, node: str
    ) -> None:
        add(tpuctl, "unreachable", "--zone", "us-central1-b")
        assert "no answer from" in tpuctl("ls").err
        assert tpuctl("down", "another", "--yes").code == 9
        assert tpuctl("down", "--all", "--yes").code == 9, "there may be more in that zone"
        assert nodes(simulator) == []

    def test_hosts_that_refuse_ssh_for_a_while_are_waited_for(
        self, tpuctl: Tpuctl, simulator: RunningSimulator
    ) -> None:
        fault = add(tpuctl, "ssh-refused", "--node", "n1")

        def end_it_soon() -> None:
            poll(
                lambda: simulator.events.find(what="ssh-refused") or None,
                awaiting="it",
                timeout=60,
                backoff=Backoff(0.02),
            )
            threading.Event().wait(1)
            simulator.faults.remove(fault)

        removing = threading.Thread(target=end_it_soon, daemon=True)
        removing.start()
        result = tpuctl("up", "v3-8", "--name", "n1", "--yes")
        removing.join()
        assert result.code == 0, result.err
        refused, over = (simulator.events.find(what=name) for name in ("ssh-refused", "ssh-refused is over"))
        logins = simulator.events.find(service="ssh", what="login")
        assert refused
        assert logins[0].number > over[0].number

    def test_a_wrong_host_key_ends_it_at_once(self, tpuctl: Tpuctl, simulator: RunningSimulator) -> None:
        add(tpuctl, "wrong-host-key")
        result = tpuctl("up", "v3-8", "--name", "n1", "--yes")
        assert result.code == 8
        assert "its host key is not the one it published. Node 'n1' in europe-west4-a bills." in result.err
        assert "Hint: Do not trust this address." in result.err

    def test_a_bucket_that_fails_is_asked_again_by_submit_and_by_the_worker(
        self, tpuctl: Tpuctl, simulator: RunningSimulator, node: str
    ) -> None:
        Path("job.py").write_text(f"{JOB}print('done')\n")
        add(tpuctl, "gcs-error", "--status", "503", "--method", "storage.objects.create", "--count", "1")
        add(tpuctl, "gcs-error", "--status", "429", "--method", "storage.objects.list", "--count", "1")
        add(tpuctl, "gcs-reset", "--method", "storage.objects.create", "--skip", "2", "--count", "1")
        add(
            tpuctl,
            "gcs-error",
            "--status",
            "503",
            "--object",
            "runs/*/status.json",
            "--when",
            "after",
            "--count",
            "2",
        )
        result = tpuctl("submit", "job.py")
        assert result.code == 0, result.err
        followed = tpuctl("logs", "-f")
        assert (followed.code, followed.out) == (0, "done\n"), followed.err
        assert simulator.faults.all() == []

    def test_a_run_that_is_preempted_at_a_step_says_so(
        self, tpuctl: Tpuctl, simulator: RunningSimulator, node: str
    ) -> None:
        counting = "for step in range(1000):\n  print('step', step, flush=True)\n  time.sleep(0.05)\n"
        Path("job.py").write_text(f"{JOB}import time\n{counting}")
        add(tpuctl, "preemption", "--run", "job-*", "--step", "5")
        assert tpuctl("submit", "job.py").code == 0
        result = tpuctl("logs", "-f")
        assert result.code == 7, result.err
        assert "was preempted: the host of worker 0 announced its preemption" in result.err
        assert "step 5\n" in result.out
        poll(
            lambda: [node.state for node in simulator.world.nodes.all()] == ["PREEMPTED"] or None,
            awaiting="the end of the node", timeout=60,
        )  # fmt: skip
