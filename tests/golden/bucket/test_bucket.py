"""Tests that each command and call reads what 0de294d4 wrote as it did then, and sends the same requests."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shlex
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

import tpuctl as package
from tests.cli.test_help import LEAVES
from tests.client.public_api import RECORD
from tests.golden.bucket.answers import Answers
from tests.golden.bucket.restored import Restored
from tests.running_simulator import CommandResult

pytestmark = pytest.mark.daily

READING = """\
ls
ls --all-users
ls --all-users --zone us-central1-b
describe timed
describe pod
describe taken
describe waiting
describe good
describe restarted
describe expired
describe queued
describe pod-failed
describe lost
describe abandoned
describe unreachable
why timed
why taken
why first
why short
wait good
wait exit-code
wait preempted
wait cancelled
wait lost
wait timed
zones
zones v3-8
types
runtimes
price v3-8
price v3-32 --spot
cost
cost --by node --since 2d
cost --by label
runs
runs --limit 3
runs --columns state,cost,loss,accuracy,step_time --tag series=a
runs --state failed --state lost
runs --dataset digits --since 7d
logs good
logs restarted --timestamps
logs restarted --attempt 1
logs pod-failed --verbose --tail 3
logs pod-failed --worker 2 --grep hot
logs set-up
logs running --since 1h
diff good again
diff good exit-code
export good --to good.tar.gz
pull good --to pulled ; verify pulled --offline ; verify pulled
pull restarted --to pulled-restarted
pull pod-failed --to pulled-pod --only logs
pull exit-code --to pulled-code
data ls
data describe digits
data describe digits/1.0.0
data describe rows
data describe reviews
data describe tokens
data describe arrays
data describe sounds
data describe pictures
data diff digits/1.0.0 digits/1.1.0
data head digits/1.0.0 -n 2
data head rows -n 2
data head tokens -n 1
data head arrays -n 1
data head sounds -n 1
data head pictures -n 1
data stats digits
data stats rows
data stats reviews
data verify digits/1.0.0 --deep
data verify rows
data pull digits/1.0.0 --to digits
data fetch --list
data plan digits pictures --shards 2
config show
doctor
ssh-config timed
"""
"""One question a line; ` ; ` stands between commands of which one needs the files of the other."""
NOT_READING = {
    "up": "creates; its requests are in DRY_RUNS",
    "down": "deletes; its requests are in DRY_RUNS",
    "stop": "changes a TPU; its requests are in DRY_RUNS",
    "start": "changes a TPU; its requests are in DRY_RUNS",
    "extend": "changes a TPU; its requests are in DRY_RUNS",
    "reap": "deletes; its requests are in DRY_RUNS",
    "drill": "breaks a TPU; its requests are in DRY_RUNS",
    "submit": "starts a run; its requests are in DRY_RUNS",
    "resubmit": "starts a run; its requests are in DRY_RUNS",
    "run": "starts a run; its requests are in DRY_RUNS",
    "watch": "starts runs again; its requests are in DRY_RUNS",
    "cancel": "stops a run; its requests are in DRY_RUNS",
    "tag": "writes; its requests are in DRY_RUNS",
    "note": "writes; its requests are in DRY_RUNS",
    "rm": "deletes; its requests are in DRY_RUNS",
    "runs gc": "deletes; its requests are in DRY_RUNS",
    "data upload": "writes; its requests are in DRY_RUNS",
    "data sample": "writes; its requests are in DRY_RUNS",
    "data split": "writes; its requests are in DRY_RUNS",
    "data rm": "deletes; its requests are in DRY_RUNS",
    "python": "writes; needs the archive of an interpreter",
    "data dataflow": "is about a source that is not in the bucket of runs, and needs Apache Beam",
    "ssh": "shows a command line of the system's OpenSSH",
    "exec": "is about a host",
    "cp": "is about a host",
    "forward": "is about a host",
    "sim start": "is about the simulator",
    "sim status": "is about the simulator: processes and ports",
    "sim env": "is about the simulator: ports and paths",
    "sim events": "is about the simulator: what it was asked in this test",
    "sim fault ls": "is about the simulator; test_interface.py has every fault",
}  # fmt: skip
"""Command with --json -> why it is not asked."""

DRY_RUNS = """\
up v3-8
up v3-8 --spot
up v3-32 --name p2 --framework tensorflow
up v3 --topology 4x4 --spot --framework jax
up v2-8 --zone us-central1-b --zone us-central1-c
up v3-8 --queued --valid-until 2027-01-01T00:00:00Z
up v3-8 --reserved
up v3-8 --reservation r1 --queued
up v3-8 --slices 2 --queued
up v3-8 --label team=vision --tag lab
up v3-8 --network lab --subnetwork lab --internal-ips
up v3-8 --service-account tpu@sim-project.iam.gserviceaccount.com --scopes storage-rw
up v3-8 --data-disk images:ro --secure-boot
up v3-8 --startup-script boot.sh --metadata colour=red
up v3-8 --ttl 8h
up v3-8 --ttl 8h --idle 30m
up v3-8 --runtime tpu-ubuntu2204-base
up v3-8 --framework pytorch
up v3-8 --name timed
down timed
down waiting
down taken of-grace
stop timed
start stopped
extend timed 4h
reap --all-users
reap --without-run 1h
submit job.py --name new --tpu stopped
submit job.py --name new --tpu timed --queue
submit job.py --name new --tpu timed --replace
submit job.py --name new --tpu pod --queue --env RATE=0.2 --store-env RATE --restarts 2 -- --epochs 3
submit job.py --name new --tpu timed --queue --dataset digits/1.0.0 --setup true --queue-timeout 1h
resubmit good --name new --on timed --queue
resubmit good --name new --on timed --queue -- --seed 9
run job.py --name new --up v3-8 --spot --down
run job.py --name new --up v2-8,v3-8 --ttl 2h
watch --all
watch restarted
cancel running
cancel queued --grace 5m
tag good best- series=b
note good "changed"
rm good
runs gc --keep 22 --older-than 1h
data rm digits/1.0.0
data upload more reviews.jsonl --shards 2
data sample digits/1.0.0 --count 3 --as 3.0.0 --seed 1
data split digits/1.1.0 --splits train=0.5,test=0.5 --as 2.0.0 --seed 1
exec timed -- uname -a
cp job.py timed:job.py
drill timed
"""

NO_DRY_RUN = {"data fetch", "python", "ssh"}
"""Not about the bucket; needs the archive of an interpreter; shows a command line of the system's OpenSSH."""

CALLS = """\
client.target
client.datasets()
client.dataset("digits").info
client.dataset("digits/1.0.0").info
client.dataset("rows").info
client.dataset("digits").name
client.dataset("digits").version
client.dataset("digits").uri
client.dataset("rows").head(2)
client.dataset("digits/1.0.0").head(1, split="test")
client.dataset("digits").contact_sheet(2)
client.dataset("digits/1.0.0").verify(deep=True)
client.dataset("digits/1.0.0").pull("digits-of-python")
client.runs()
client.runs(states=["failed"], limit=2)
client.runs(tags=["series=a"])
client.runs(datasets=["digits"], since=timedelta(days=7))
client.run("good").info
client.run("good").name
client.run("good").state
client.run("good").end
client.run("good").cost
client.run("good").attempts
client.run("good").facts
client.run("good").metrics()
client.run("good").logs()
client.run("good").wait()
client.run("good").follow(live=False)
client.run("good").pull("good-of-python")
client.run("restarted").attempts
client.run("restarted").end
client.run("restarted").logs(attempt=1)
client.run("restarted").facts
client.run("exit-code").end
client.run("lost").end
client.run("preempted").end
client.run("maintained").end
client.run("cancelled").end
client.run("pod-failed").end
client.run("pod-failed").logs(workers=[2], tail=2)
client.run("running").end
client.run("running").state
client.nodes()
client.nodes(all_users=True)
client.node("timed").info
client.node("timed").name
client.node("timed").zone
client.node("timed").state
client.node("timed").facts
client.node("timed").wait()
client.cost()
client.plan_up("v3-8", name="new", spot=True)
client.plan_up("v3-8", name="timed")
client.plan_submit("job.py", ["--epochs", "3"], name="new", node="timed", busy="queue")
client.plan_down("timed", "waiting")
"""
ACTING = {
    "Client": {"close", "cp", "down", "exec", "run_script", "submit", "up", "upload", "watch"},
    "Dataset": {"remove"},
    "Node": {"down", "exec", "extend", "start", "stop"},
    "Run": {"cancel", "note", "remove", "resubmit", "tag"},
}
"""Members of the public classes that change something."""

MASKS = (
    (re.escape(sys.executable), "/PYTHON", "the Python that runs the tests"),
    (r"Python 3\.[0-9.]+[0-9]", "Python 3", "its version"),
    (r"127\.[0-9.]+:[0-9]+", "127.0.0.1:PORT", "ports are free ones"),
    (r"\b127\.[0-9]+\.[0-9]+\.", "127.0.0.", "each simulator has a network of its own"),
    (r"ssh-ed25519 [A-Za-z0-9+/=]+", "ssh-ed25519 KEY", "each test has a key of its own"),
    (r"requestId=[0-9a-f-]{36}", "requestId=UUID", "each request has one of its own"),
    (r"ifGenerationMatch=[1-9][0-9]+", "ifGenerationMatch=GENERATION", "each upload makes one"),
    (r"staging(/|%2F)[0-9a-f]{64}", r"staging\1SHA256", "it is of times of files and of generations"),
    (r"keeper/preempted-[0-9TZ:-]+", "keeper/preempted-TIME", "it is of now"),
    (r"EID: 0x[0-9a-f]+", "EID: 0x0", "the simulator numbers errors at random"),
    (r"UEsDB([A-Za-z0-9+/=]|\\n){200,}", "KEEPER", "each version ships its own keeper"),
)
"""Pattern, what stands for it, and why it differs from test to test."""
COMPRESSED = (
    (r"bundles/[0-9a-f]{64}", "bundles/SHA256"),
    (r'"bytes": [0-9]+, "sha256": "[0-9a-f]{64}"', '"bytes": 1, "sha256": "SHA256"'),
)
"""Of what a command compresses here: libraries differ in it."""


@pytest.fixture(scope="module")
def commands() -> Answers:
    return Answers("commands.json")


@pytest.fixture(scope="module")
def dry_runs() -> Answers:
    return Answers("dry_runs.json")


@pytest.fixture(scope="module")
def calls() -> Answers:
    return Answers("calls.json")


@pytest.fixture(scope="module")
def client(restored: Restored) -> Iterator[package.Client]:
    with package.Client() as client:
        yield client


@pytest.fixture
def masked(restored: Restored, place: Path) -> Callable[..., object]:
    """Give an answer without what differs from one test to the next."""

    def mask(answer: object, *, compressed: bool = False) -> object:
        text = restored.as_recorded(json.dumps(answer, ensure_ascii=False)).replace(str(place), "/PLACE")
        rules = [rule[:2] for rule in MASKS] + list(COMPRESSED if compressed else ())
        for pattern, replacement in rules:
            text = re.sub(pattern, replacement, text)
        return json.loads(text)

    return mask


@pytest.fixture(autouse=True)
def files(restored: Restored) -> None:
    """What commands name on the laptop."""
    Path("job.py").write_text(
        "# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = 'jax'\n# ///\nprint(1)\n"
    )
    Path("boot.sh").write_text("#!/bin/sh\necho ready\n")
    Path("reviews.jsonl").write_text('{"text": "good", "stars": 1}\n{"text": "bad", "stars": 0}\n')
    for kind in ("a", "b"):
        Path("pictures", kind).mkdir(parents=True, exist_ok=True)
        Path("pictures", kind, "1.txt").write_text(f"a text of {kind}")


def lines(text: str) -> list[str]:
    return text.splitlines()


def shown(result: CommandResult) -> dict[str, object]:
    """Return the exit code and the JSON: one document, or one a line."""
    try:
        documents = [json.loads(result.out)] if result.out else []
    except ValueError:
        documents = [json.loads(line) for line in result.out.splitlines()]
    return {"exit_code": result.code, "json": documents}


def words_of(command: str, option: str) -> list[str]:
    """Return the words of a command, with an option where its own ones end."""
    words = shlex.split(command)
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], *option.split(), *words[end:]]


@pytest.mark.parametrize("question", lines(READING))
def test_a_command_reads_what_it_read_before(question: str, tpuctl, commands: Answers, masked) -> None:
    answers = [shown(tpuctl(*words_of(command, "--json"))) for command in question.split(" ; ")]
    commands.check(question, masked(answers, compressed=question.startswith("export ")))


@pytest.mark.parametrize("command", lines(DRY_RUNS))
def test_a_dry_run_shows_the_requests_that_it_showed_before(
    command: str, tpuctl, dry_runs: Answers, masked
) -> None:
    dry_runs.check(command, masked(shown(tpuctl(*words_of(command, "--dry-run --json"))), compressed=True))


@pytest.mark.parametrize("call", lines(CALLS))
def test_a_call_returns_what_it_returned_before(
    call: str, client: package.Client, calls: Answers, masked
) -> None:
    answer = document(eval(call, {"client": client, "timedelta": timedelta}))
    calls.check(call, masked(answer))


def document(value: object) -> object:
    """Return a value of the API as JSON: of a record its fields and its properties."""
    match value:
        case None | str() | int() | float():
            return value
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal() | Path():
            return str(value)
        case bytes() if value.startswith(b"\x89PNG"):  # libraries compress it differently
            return {"png": struct.unpack(">2I", value[16:24])}
        case bytes():
            return {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
        case package.errors.TpuctlError():
            return {
                "error": type(value).__name__,
                "message": value.message,
                "hint": value.hint,
                "facts": document(value.facts),
            }
        case Mapping():
            return {str(key): document(each) for key, each in value.items()}
        case Sequence() | Iterator():
            return [document(each) for each in value]
    names = (
        [field.name for field in dataclasses.fields(value)]
        if dataclasses.is_dataclass(value)
        else list(vars(value))
    )
    properties = [name for name, member in vars(type(value)).items() if isinstance(member, property)]
    return {
        name: document(getattr(value, name)) for name in (*names, *properties) if not name.startswith("_")
    }


def test_each_command_with_json_is_asked_or_says_why_not() -> None:
    with_json = {
        " ".join(path) for path, command in LEAVES if any("--json" in param.opts for param in command.params)
    }
    with_json = {name for name in with_json if not name.startswith("sim fault add ")}
    asked = {command for line in lines(READING) for command in line.split(" ; ")}
    missing = {
        name
        for name in with_json - NOT_READING.keys()
        if not any(f"{each} ".startswith(f"{name} ") for each in asked)
    }
    assert not missing, "a row of READING, or a reason in NOT_READING"
    assert not NOT_READING.keys() - with_json


def test_each_command_with_a_dry_run_is_asked() -> None:
    names = {
        " ".join(path)
        for path, command in LEAVES
        if any("--dry-run" in param.opts for param in command.params)
    }
    assert (
        not {name for name in names if not any(f"{row} ".startswith(f"{name} ") for row in lines(DRY_RUNS))}
        - NO_DRY_RUN
    )


def test_each_member_of_the_api_is_asked_or_changes_something() -> None:
    public = re.findall(r"^tpuctl\.(Client|Dataset|Node|Run)\.([a-z_]+)", RECORD.read_text(), re.MULTILINE)
    assert not [
        f"{kind}.{name}" for kind, name in public if name not in ACTING[kind] and f".{name}" not in CALLS
    ]


def test_the_recording_has_a_run_in_each_state_that_lasts(commands: Answers) -> None:
    """A run is starting, ready or finished for moments only, and unknown if it cannot be read."""
    ((answer,),) = (each["json"] for each in commands["runs"])
    assert {run["state"] for run in answer["runs"]} == {
        "succeeded", "failed", "preempted", "maintenance", "stopped", "lost",
        "abandoned", "not started", "queued", "preparing", "running", "unreachable",
    }  # fmt: skip


def test_no_answer_is_left_of_a_question_that_nobody_asks(
    commands: Answers, dry_runs: Answers, calls: Answers
) -> None:
    commands.check_questions(lines(READING))
    dry_runs.check_questions(lines(DRY_RUNS))
    calls.check_questions(lines(CALLS))


def test_reading_has_written_nothing(restored: Restored) -> None:
    """Runs last: each object is the one that was restored."""
    assert restored.objects() == restored.before
