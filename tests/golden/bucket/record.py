"""Records the golden bucket. Run by hand, at 0de294d4 only: it stands for the buckets that users have.

    python -m pytest tests/golden/bucket/record.py --basetemp /tmp/golden

The command line makes runs of every outcome, datasets of several formats and TPUs in several states on a
simulator, whose hours pass at once. Then every object, and the request for each TPU, goes into `bucket.json`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import platform
import re
import struct
import subprocess
import wave
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from google.cloud import storage
from PIL import Image

from tests.golden.bucket.restored import ENVIRONMENT, FILE, LAPTOP, PROGRAM, SPEC, bucket_of
from tests.golden.bucket.shown_time import ShownTime
from tests.paths import ROOT
from tests.running_simulator import CommandResult, command_line
from tpuctl.polling import Backoff, poll
from tpuctl.testing import Simulator

PARENT = "projects/sim-project/locations/-"
BEGIN = datetime(2026, 11, 20, 8, tzinfo=UTC)
MINUTE, HOUR = 60.0, 3600.0
SILENCE = timedelta(seconds=20)
"""Less than the time after which anybody is asked about a worker."""
PLACES = {r"file:///[^\"]*": "file:///home/ada/tpuctl", r"/tmp/golden/[^\"]*/home/": "/home/ada/"}
"""Folders of the machine that made the recording, and what stands for them."""
OUTPUT_ONLY = {
    "name", "state", "id", "createTime", "ipAddress", "port", "networkEndpoints", "health",
    "healthDescription", "apiVersion", "symptoms", "queuedResource", "multisliceNode", "cidrBlock",
    "acceleratorConfig", "upcomingMaintenance", "bootDiskConfig",
}  # fmt: skip
"""Fields of a node that only the API sets, or that say the same as another one."""
HEADER = """\
# /// script
# dependencies = []
# [tool.tpuctl]
# framework = "jax"
# ///
"""
TRAIN = (
    HEADER.replace("# framework", '# dataset = "digits"\n# env = {RATE = "0.1"}\n# framework')
    + """\
import os, sys, time
from pathlib import Path
from google.cloud import storage

def save(folder, name, data):
    bucket, _, place = os.environ[folder].removeprefix("gs://").partition("/")
    storage.Client().bucket(bucket).blob(f"{place.rstrip('/')}/{name}").upload_from_string(data)

print("arguments", *sys.argv[1:], "rate", os.environ["RATE"])
for step in range(1, 4):
    print("step", step, "loss", 1 / step, flush=True)
weights = " ".join(sys.argv[1:]).encode()
save("TPUCTL_CHECKPOINT_DIR", "ckpt-3.index", b"index")
save("TPUCTL_CHECKPOINT_DIR", "ckpt-3.data-00000-of-00001", weights)
paths = ("model_checkpoint_path", "all_model_checkpoint_paths")
save("TPUCTL_CHECKPOINT_DIR", "checkpoint", "".join(f'{path}: "ckpt-3"\\n' for path in paths).encode())
save("TPUCTL_CHECKPOINT_DIR", "ckpt-4.index", b"never committed")
save("TPUCTL_MODEL_DIR", "model.keras", weights)
save("TPUCTL_TENSORBOARD_DIR", "train/events.out.tfevents.1770000000.golden", Path("events").read_bytes())
Path(os.environ["TPUCTL_REPORT_DIR"], "report.txt").write_text("slow input\\n")
print("no line end", end="")
"""
)
LINE = HEADER + "print('step 1', flush=True)\n"
WAITING = HEADER + (
    "import os, pathlib, time\n"
    "print('step', os.environ['TPUCTL_ATTEMPT'], flush=True)\n"
    "while not pathlib.Path(os.environ['GO']).exists(): time.sleep(0.05)\n"
    "print('step 2', flush=True)\n"
)
"""Goes on until there is a file."""
PAIR = HEADER + (
    "import os, sys, time\n"
    "worker = int(os.environ['TPUCTL_WORKER'])\n"
    "print('step 1 of', worker, flush=True)\n"
    "time.sleep(1)\n"
    "if worker == 2: raise ValueError('too hot')\n"
    "time.sleep(600)\n"
)


class Story:
    """Tells what happens: commands, and the time that passes."""

    def __init__(self, tpuctl: Callable[..., CommandResult], time: ShownTime, sim: Simulator) -> None:
        self._tpuctl = tpuctl
        self.time = time
        self.sim = sim
        self.go = Path("go").absolute()

    def __call__(self, *words: str, code: int = 0) -> CommandResult:
        result = self._tpuctl(*words)
        assert result.code == code, f"{words}: {result.code}\n{result.out}\n{result.err}"
        return result

    def submit(self, name: str, script: str, *options: str, code: int = 0) -> None:
        """Submit a script, and wait a minute before and after."""
        self.time.pass_by(MINUTE)
        Path("job.py").write_text(script)
        self("submit", "job.py", "--name", name, *options, code=code)

    def until_line(self, run: str, text: str = "step") -> None:
        """Wait until a run's log has a text."""
        self.until(lambda: text in self._tpuctl("logs", run).out, f"'{text}' of {run}")

    def until(self, condition: Callable[[], object], awaiting: str) -> None:
        """Wait for an event."""
        poll(lambda: True if condition() else None, awaiting=awaiting, timeout=180, backoff=Backoff(0.1, 0.5))

    def ended(self, run: str, outcome: str) -> None:
        """Wait for the end of a run, and see that it is the one that is meant."""
        self._tpuctl("wait", run)
        assert self.state(run) == outcome, (run, self.state(run), self._tpuctl("logs", run).out)

    def state(self, run: str) -> str:
        listed = self("runs", "--json", "--limit", "0").json["runs"]
        return str(next(each["state"] for each in listed if each["run"] == run))


def test_record(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(platform, "node", lambda: LAPTOP)
    time = ShownTime(monkeypatch)
    time.run_from(BEGIN)
    with Simulator(tmp_path / "state" / "sim") as sim:
        story = Story(command_line(capsys), time, sim)
        upload_datasets(story)
        end_runs(story)
        leave_runs(story, monkeypatch)
        write(story)


def upload_datasets(story: Story) -> None:
    for number in range(8):
        folder = Path("digits", f"{number % 2}")
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), number * 20).save(folder / f"{number}.png")
    story("data", "upload", "digits", "digits", "--shards", "2", "--split", "train=0.75,test=0.25")
    Image.new("L", (4, 4), 200).save("digits/1/8.png")
    story.time.pass_by(HOUR)
    story("data", "upload", "digits", "digits", "--version", "1.1.0", "--shards", "1")
    rows = [
        f"{number},{number / 4},{'even' if number % 2 == 0 else 'odd'},word {number}" for number in range(8)
    ]
    Path("rows.csv").write_text("\n".join(["number,quarter,kind,text", *rows, "9,not a number,odd,x"]) + "\n")
    story("data", "upload", "rows", "rows.csv", "--label", "kind", "--type", "quarter=float", "--skip-bad")
    lines = [
        json.dumps({"text": f"review {number} is {'good' * (number % 3)}", "stars": number})
        for number in range(6)
    ]
    Path("reviews.jsonl").write_text("\n".join(lines) + "\n")
    story("data", "upload", "reviews", "reviews.jsonl")
    words = ("--tokens", "words", "--vocabulary", "20", "--length", "6")
    story("data", "upload", "tokens", "reviews.jsonl", *words)
    np.savez("arrays.npz", x=np.arange(24, dtype=np.float32).reshape(6, 4), y=np.arange(6))
    story("data", "upload", "arrays", "arrays.npz")
    for number in range(4):
        folder = Path("sounds", "high" if number % 2 else "low")
        folder.mkdir(parents=True, exist_ok=True)
        with wave.open(str(folder / f"{number}.wav"), "wb") as sound:
            sound.setparams((1, 2, 8000, 0, "NONE", ""))
            sound.writeframes(struct.pack("<16h", *range(0, 1600 * (number + 1), 100 * (number + 1))))
    story("data", "upload", "sounds", "sounds")
    story("data", "upload", "pictures", str(ROOT / "tests" / "golden" / "huggingface" / "rows.parquet"))


def events() -> bytes:
    """Return a file of TensorBoard with a loss and an accuracy of three steps."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    steps = [Event(wall_time=1770000000, file_version="brain.Event:2")]
    for step in range(1, 4):
        values = [
            Summary.Value(tag="loss", simple_value=1 / step),
            Summary.Value(tag="accuracy", simple_value=step / 4),
        ]
        steps.append(Event(wall_time=1770000000 + step, step=step, summary=Summary(value=values)))
    file = BytesIO()
    for step in steps:
        RecordWriter(file).write(step.SerializeToString())
    return file.getvalue()


def end_runs(story: Story) -> None:
    """Runs of every outcome."""
    time = story.time
    time.pass_by(HOUR)
    story("up", "v3-8", "--name", "first", "--framework", "jax", "--label", "team=vision", "--yes")
    Path("events").write_bytes(events())
    for words in (("init", "-q"), ("add", "events"), ("commit", "-q", "-m", "first")):
        author = ("-c", "user.name=ada", "-c", "user.email=ada@example.com")
        subprocess.run(["git", *author, *words], check=True)
    story.submit(
        "good", TRAIN, "--include", "events", "--store-env", "RATE", "--", "--seed", "7", "--epochs", "3"
    )
    story.ended("good", "succeeded")
    time.pass_by(HOUR)
    story("tag", "good", "best", "series=a")
    story("note", "good", "the one of the paper")
    story("resubmit", "good", "--name", "again", "--", "--seed", "8")
    story.ended("again", "succeeded")
    story.submit("exit-code", LINE + "raise SystemExit(7)\n", "--env", "TOKEN=x")
    story.ended("exit-code", "failed")
    story.submit("killed", LINE + "import os\nos.kill(os.getpid(), 9)\n")
    story.ended("killed", "failed")
    story.submit("set-up", LINE, "--setup", "echo preparing; exit 3")
    story.ended("set-up", "failed")
    story.submit("set-up-too-long", LINE, "--setup", "sleep 60", "--setup-timeout", "1s")
    story.ended("set-up-too-long", "failed")
    story.submit("cancelled", WAITING, "--env", f"GO={story.go}")
    story.until_line("cancelled")
    time.pass_by(25 * MINUTE)
    story.submit("left-the-line", LINE, "--queue", "--queue-timeout", "1s")
    story.ended("left-the-line", "failed")
    story("cancel", "cancelled", "--yes")
    story.ended("cancelled", "stopped")
    story.submit("fails-twice", LINE + "raise SystemExit(1)\n", "--restarts-on-failure", "3")
    story.until(lambda: story.state("fails-twice") == "failed", "its end")
    story("watch", "fails-twice", code=100)
    story("tag", "fails-twice", "series=a")
    lose(story)
    story.submit("maintained", WAITING, "--env", f"GO={story.go}")
    story.until_line("maintained")
    story.sim.faults.add("maintenance", node="first", notice=5.0)
    story.ended("maintained", "maintenance")
    story.sim.faults.clear()
    story.sim.world.wait_for("first", "READY")
    refuse(story)
    story.submit("machine-deleted", WAITING, "--env", f"GO={story.go}")
    story.until_line("machine-deleted")
    time.pass_by(10 * MINUTE)
    story("down", "first", "--yes")
    time.pass_by(MINUTE)
    story.ended("machine-deleted", "stopped")
    preempt(story)
    expire(story)
    story("up", "v3-32", "--name", "pod", "--framework", "jax", "--yes")
    story.submit("pod-failed", PAIR)
    story.ended("pod-failed", "failed")
    said = bucket_of(story.sim)
    story.until(
        lambda: len(list(said.list_blobs(match_glob="runs/pod-failed/**/status.json"))) == 4,
        "every last word",
    )
    time.pass_by(3 * HOUR)  # every verdict of a machine is final


KILL = (
    'read -r pid of <".tpuctl/runs/$1/1/started"; set -- $pid $(cut -d" " -f4 /proc/$pid/stat); kill -9 $2 $1'
)
"""For sh: kills the supervisor of a run, and the guard above it."""


def lose(story: Story) -> None:
    """A run of which no program is left, and nobody said why."""
    story.submit("lost", WAITING, "--env", f"GO={story.go}")
    story.until_line("lost")
    story("exec", "first", "--", "sh", "-c", KILL, "kill", "lost")
    story.time.pass_by(2 * MINUTE)
    story.until(lambda: story.state("lost") == "lost", "its verdict")
    story.go.touch()  # its script has outlived them
    story.time.pass_by(MINUTE)
    story.submit("after-lost", LINE)
    story.ended("after-lost", "succeeded")
    story.go.unlink()


def refuse(story: Story) -> None:
    """A run whose submission failed, and one of which it has written no more than the request."""
    story.sim.faults.add("gcs-error", object="runs/refused/attempts/*", status="403")
    story.submit("refused", LINE, code=3)
    story.sim.faults.clear()
    cut_off(story, "abandoned")
    story.time.pass_by(11 * MINUTE)


def cut_off(story: Story, run: str, *options: str) -> None:
    """Submit a run, of which neither attempt nor verdict can be written."""
    fault = story.sim.faults.add("gcs-error", object=f"runs/{run}/[av]*", status="403")
    story.submit(run, LINE, *options, code=3)
    story.sim.faults.remove(fault.id)


def preempt(story: Story) -> None:
    """One run that is restarted after a preemption, and one that is not."""
    story("up", "v3-8", "--name", "spot", "--spot", "--framework", "jax", "--yes")
    story.submit("preempted", WAITING, "--env", f"GO={story.go}", "--restarts", "0")
    story.until_line("preempted")
    story.time.pass_by(40 * MINUTE)
    story.sim.world.preempt("spot", grace=0.0)
    story.ended("preempted", "preempted")
    story("down", "spot", "--yes")
    story("up", "v3-8", "--name", "spot-2", "--spot", "--framework", "jax", "--yes")
    story.submit("restarted", WAITING, "--env", f"GO={story.go}")
    story.until_line("restarted")
    story.time.pass_by(90 * MINUTE)
    story.sim.world.preempt("spot-2", grace=0.0)
    story.until(lambda: story.state("restarted") == "preempted", "its verdict")
    story.time.pass_by(MINUTE)
    story("watch", "restarted", "--once")
    story.until_line("restarted", "step 2")
    story.go.touch()
    story("watch", "restarted")
    story.ended("restarted", "succeeded")
    story.go.unlink()


def expire(story: Story) -> None:
    """A run whose TPU came to the end of its --ttl."""
    story("up", "v3-8", "--name", "short", "--framework", "jax", "--ttl", "1h", "--yes")
    story.submit("expired", WAITING, "--env", f"GO={story.go}")
    story.until_line("expired")
    story.time.pass_by(2 * HOUR)
    story.sim.world.wait_until_gone("short")
    story.time.pass_by(MINUTE)
    story.ended("expired", "stopped")


def leave_runs(story: Story, patch: pytest.MonkeyPatch) -> None:
    """TPUs in several states, and runs that have not ended."""
    time = story.time
    story("up", "v3-8", "--name", "stopped", "--framework", "jax", "--yes")
    story("stop", "stopped", "--yes")
    story("up", "v2-8", "--name", "taken", "--spot", "--framework", "jax", "--zone", "us-central1-b", "--yes")
    story.sim.world.preempt("taken", grace=0.0)
    story.sim.faults.add("stockout", type="v3-64")
    queued = ("--queued", "--detach", "--valid-until", "2026-12-24T12:00:00Z")
    story("up", "v3-64", "--name", "waiting", *queued, "--yes")
    with patch.context() as other:
        other.setenv("TPUCTL_OWNER", "grace@example.com")
        other.setenv("TPUCTL_SSH_USER", "grace")
        story("up", "v2-8", "--name", "of-grace", "--framework", "jax", "--idle", "2h", "--yes")
        story.submit("unreachable", WAITING, "--env", f"GO={story.go}", "--tpu", "of-grace")
        story.until_line("unreachable")
        story("exec", "of-grace", "--", "sh", "-c", KILL, "kill", "unreachable")
    story("up", "v3-8", "--name", "timed", "--framework", "jax", "--ttl", "8h", "--idle", "1h", "--yes")
    story("extend", "timed", "2h")
    time.pass_by(3 * MINUTE)
    story.submit("running", WAITING, "--env", f"GO={story.go}", "--tpu", "timed", "--restarts", "1")
    story.until_line("running")
    story.submit("queued", LINE, "--tpu", "timed", "--queue")
    story.until(lambda: story.state("queued") == "queued", "its place in the line")
    story.submit("preparing", LINE, "--tpu", "pod", "--setup", "sleep 600")
    story.until(lambda: story.state("preparing") == "preparing", "its set-up")
    cut_off(story, "not-started", "--tpu", "pod", "--queue")
    blobs = bucket_of(story.sim)
    alive = ("running", "queued", "preparing")
    story.until(
        lambda: all(beats_at(blobs, run) > time.now() - SILENCE for run in alive), "a word of each worker"
    )


def beats_at(bucket: storage.Bucket, run: str) -> datetime:
    """Return when the most silent worker of a run has said that it lives."""
    statuses = [
        blob
        for blob in bucket.list_blobs(prefix=f"runs/{run}/attempts/")
        if blob.name.endswith("status.json")
    ]
    return min(blob.updated for blob in statuses)


def write(story: Story) -> None:
    """Write the objects, the requests for TPUs, and the time, into the fixture, and what a host got."""
    folder = ".tpuctl/runs/running/1"
    story("cp", f"timed:{folder}/worker.zip", f"timed:{folder}/resume.json", "of-host")
    (program,) = Path("of-host").rglob("worker.zip")
    PROGRAM.write_bytes(program.read_bytes())
    (file,) = Path("of-host").rglob("resume.json")
    spec = json.loads(file.read_text())
    spec["environment"]["GO"] = "go"
    SPEC.write_text(json.dumps(spec, indent=1) + "\n")
    contents: dict[str, dict[str, str]] = {}
    objects = []
    for blob in sorted(bucket_of(story.sim).list_blobs(), key=lambda blob: (blob.updated, blob.generation)):
        data = blob.download_as_bytes(raw_download=True)
        key = hashlib.sha256(data).hexdigest()[:12]
        contents[key] = as_text(data)
        assert not blob.metadata, "no object of tpuctl has metadata of its own"
        fields = {"name": blob.name, "type": blob.content_type, "updated": blob.updated.isoformat()}
        objects.append({**fields, "content": key})
    recorded = {
        "at": story.time.now().isoformat(),
        "tpus": tpus(story.sim.endpoints.tpu_rest),
        "objects": objects,
        "contents": contents,
    }
    FILE.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n")


def as_text(data: bytes) -> dict[str, str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
    for pattern, place in PLACES.items():
        text = re.sub(pattern, place, text)
    return {"text": text}


def tpus(address: str) -> list[dict[str, Any]]:
    """Return how each TPU was asked for, and its state."""
    nodes = requests.get(f"{address}/v2/{PARENT}/nodes", timeout=60).json()["nodes"]
    queued = (
        requests.get(f"{address}/v2/{PARENT}/queuedResources", timeout=60).json().get("queuedResources", [])
    )
    made = []
    for node in (node for node in nodes if not node.get("queuedResource")):
        body = {name: value for name, value in node.items() if name not in OUTPUT_ONLY}
        body["metadata"] = {name: text for name, text in body["metadata"].items() if name != "startup-script"}
        made.append({
            "name": node["name"], "created": node["createTime"], "uid": node["id"], "state": node["state"],
            "node": body,
        })  # fmt: skip
    for each in queued:
        kept = {name: each[name] for name in ("spot", "guaranteed", "queueingPolicy") if name in each}
        specs = [
            {**spec, "node": {key: value for key, value in spec["node"].items() if key not in OUTPUT_ONLY}}
            for spec in each["tpu"]["nodeSpec"]
        ]
        for spec in specs:
            spec["node"].get("metadata", {}).pop("startup-script", None)
        made.append(
            {
                "name": each["name"],
                "created": each["createTime"],
                "queued": {**kept, "tpu": {"nodeSpec": specs}},
            }
        )
    return sorted(made, key=lambda each: str(each["created"]))
