"""What examples/teams keeps apart and what it does not, and what a project for each team does.

Each test is a sentence of SECURITY.md.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.running_simulator import RunningSimulator
from tests.sim.iam.attacks import STANDARD_LIBRARY
from tests.sim.iam.rehearsal import MINIMAL, PROJECT, RECORDED, Example, Tpuctl, job, start

VISION, SPEECH = (
    Example(
        "teams",
        f"group:{team}@example.com",
        f"{PROJECT}-{team}-data",
        f"{PROJECT}-{team}-runs",
        f"{team}-tpu@{PROJECT}.iam.gserviceaccount.com",
    )
    for team in ("vision", "speech")
)
OTHER = Example(
    "minimal",
    "user:bob@example.com",
    *(text.replace(PROJECT, "demo-project-2") for text in (MINIMAL.data, MINIMAL.runs, MINIMAL.account)),
    project="demo-project-2",
)
"""The base of a second team, in a project of its own."""
NODE = "https://tpu.googleapis.com/v2/projects/%s/locations/europe-west4-a/nodes"
QUESTIONS = """
def ask(what, url):
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + TOKEN})
    try:
        with urllib.request.urlopen(request) as reply:
            print(what, reply.status, " ".join(reply.read().decode().split()), flush=True)
    except urllib.error.HTTPError as error:
        print(what, error.code, flush=True)

ask("bucket", "https://storage.googleapis.com/storage/v1/b/BUCKET/o?prefix=runs/")
ask("object", "https://storage.googleapis.com/storage/v1/b/BUCKET/o/runs%2Fr1%2Frun.json?alt=media")
ask("nodes", "NODES")
send("write", "POST", upload("BUCKET", "runs/r1/outputs/mine"), b"{}")
ask("node", "NODES/theirs")
"""
Switch = Callable[[Example, str], RunningSimulator]


def questions(example: Example) -> str:
    """Return a program that asks for what another team has, with the account of the host that it runs on."""
    text = QUESTIONS.replace("BUCKET", example.runs).replace("NODES", NODE % example.project)
    return STANDARD_LIBRARY + text


@pytest.fixture
def as_member(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Switch]:
    """A function by which a member of an example's base sits down at a machine of their own."""
    running: list[RunningSimulator] = []
    both = json.loads((RECORDED / "minimal-rights.json").read_text())
    second = json.loads(
        json.dumps(both).replace(PROJECT, OTHER.project).replace(MINIMAL.member, OTHER.member)
    )
    both["values"]["root_module"]["child_modules"] += second["values"]["root_module"]["child_modules"]
    projects = tmp_path / "projects.json"
    projects.write_text(json.dumps(both))

    def call(example: Example, network: str) -> RunningSimulator:
        while running:
            running.pop().close()
        name = example.member.partition(":")[2]
        for setting, value in (
            ("OWNER", name), ("SSH_USER", name.partition("@")[0]), ("SSH_KEY", str(tmp_path / f"{name}.key")),
            ("NETWORK", network), ("SUBNETWORK", f"{network}-europe-west4"), ("EXTERNAL_IPS", "no"),
        ):  # fmt: skip
            monkeypatch.setenv(f"TPUCTL_{setting}", value)
        state = None if example.name == "teams" else projects
        running.append(start(monkeypatch, tmp_path, example, state=state))
        return running[-1]

    yield call
    for simulator in running:
        simulator.close()


def make_theirs(tpuctl: Tpuctl) -> None:
    """Make the TPU `theirs`, with something in its metadata, and a run on it."""
    up = tpuctl("up", "v3-8", "--name", "theirs", "--metadata", "token=not-so-secret", "--yes")
    assert up.code == 0, up.err
    submitted = tpuctl("submit", job("print('trained')\n"), "--name", "r1")
    assert submitted.code == 0, submitted.err
    assert tpuctl("wait", "r1").code == 0


def answers(text: str) -> dict[str, str]:
    """Return what each question was answered, by its name; of two ways to write, the second."""
    asked = ("bucket", "object", "node", "write")
    return dict(line.split(" ", 1) for line in text.splitlines() if line.startswith(asked))


def ask_by_a_job(tpuctl: Tpuctl, example: Example) -> dict[str, str]:
    """Return what a job on a TPU of one's own is answered that asks for what another team has."""
    assert tpuctl("up", "v3-8", "--name", "mine", "--yes").code == 0
    assert tpuctl("submit", job(questions(example), "ask.py"), "--name", "r2", "--tpu", "mine").code == 0
    followed = tpuctl("logs", "r2", "-f")
    assert followed.code == 0, followed.err
    return answers(followed.out)


def test_jobs_of_two_teams_in_a_project_reach_nothing_of_each_others_buckets_and_see_each_others_tpus(
    as_member: Switch, tpuctl: Tpuctl
) -> None:
    as_member(VISION, "vision")
    make_theirs(tpuctl)
    as_member(SPEECH, "speech")
    answered = ask_by_a_job(tpuctl, VISION)
    assert [answered[what][:3] for what in ("bucket", "object", "nodes", "write")] == ["403"] * 4
    assert answered["node"].startswith("200 ")
    assert "not-so-secret" in answered["node"], "every job reads the metadata of every TPU that it can name"


def test_members_of_two_teams_in_a_project_reach_each_others_tpus_and_so_their_buckets(
    as_member: Switch, tpuctl: Tpuctl
) -> None:
    as_member(VISION, "vision")
    make_theirs(tpuctl)
    simulator = as_member(SPEECH, "speech")
    directly = tpuctl("logs", "r1", "--bucket", VISION.runs)
    assert directly.code != 0
    assert "does not have storage.objects" in directly.err
    reached = tpuctl("exec", "theirs", "--raw", "--", f"python3 -c {shlex.quote(questions(VISION))}")
    assert reached.code == 0, reached.err
    assert list(simulator.events.find(service="iap", what="connect"))
    answered = answers(reached.out)
    assert answered["object"].startswith('200 { "')
    assert "r1/run.json" in answered["bucket"]
    assert answered["write"] == "200"
    deleted = tpuctl("down", "theirs", "--yes")
    assert deleted.code == 0, deleted.err


def test_members_and_jobs_of_teams_with_a_project_each_reach_nothing_of_each_other(
    as_member: Switch, tpuctl: Tpuctl
) -> None:
    as_member(MINIMAL, "tpuctl")
    make_theirs(tpuctl)
    as_member(OTHER, "tpuctl")
    for command in (
        ("logs", "r1", "--bucket", MINIMAL.runs),
        ("exec", "theirs", "--project", PROJECT, "--", "true"),
        ("down", "theirs", "--project", PROJECT, "--yes"),
    ):
        refused = tpuctl(*command)
        assert refused.code != 0, (command, refused.out)
        assert "does not have storage.objects" in refused.err or "tpu.nodes" in refused.err, refused.err
    answered = ask_by_a_job(tpuctl, MINIMAL)
    assert {what: text[:3] for what, text in answered.items()} == dict.fromkeys(
        ("bucket", "object", "nodes", "node", "write"), "403"
    )


def test_the_documents_say_so() -> None:
    texts = {
        name: " ".join((ROOT / name).read_text().replace("\n#", "\n").split())
        for name in ("SECURITY.md", "terraform/README.md", "terraform/examples/teams/main.tf")
    }
    assert "keeps the jobs of two teams apart, and not their members" in texts["SECURITY.md"]
    for name, text in texts.items():
        assert "a project for each team" in text.lower(), name
        assert "keeps teams apart" not in text, name
        assert "keeps two teams apart" not in text, name
