"""Training that is preempted at random moments ends with the same weights, bit for bit, as when it is not."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

from tests.paths import JOBS, ROOT
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl.cloud.endpoints import Cloud
from tpuctl.flows.runs.evidence import decision
from tpuctl.flows.runs.recovery import watch
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host.worker.records import RUNNING
from tpuctl.polling import Backoff

pytestmark = pytest.mark.slow

Command = Callable[..., CommandResult]
EVERY = "TPUCTL_EVERY" in os.environ
TRAINING = '''# /// script
# dependencies = []
# [tool.tpuctl]
# framework = "jax"
# ///
"""A random walk whose every step depends on all before it; saves each ten steps."""
import json, os, pathlib, random, signal, sys, time
place, steps = pathlib.Path(os.environ["PLACE"]), int(sys.argv[1])
place.mkdir(exist_ok=True)
chance, weights, done = random.Random(7), [0.0] * 8, 0
if (place / "checkpoint").exists():
    saved = json.loads((place / (place / "checkpoint").read_text()).read_text())
    weights, done = saved["weights"], saved["done"]
    chance.setstate((saved["state"][0], tuple(saved["state"][1]), saved["state"][2]))
    print("resuming at", done, flush=True)
def save():
    name = f"ckpt-{done}"
    (place / name).write_text(json.dumps({"weights": weights, "done": done, "state": chance.getstate()}))
    (place / "part").write_text(name)
    (place / "part").rename(place / "checkpoint")
def end(*_):
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
while done < steps:
    weights = [weight * 0.99 + chance.gauss(0, 1) for weight in weights]
    done += 1
    print("step", done, flush=True)
    if done % 10 == 0 or done == steps:
        save()
    time.sleep(float(sys.argv[2]))
print("weights", [weight.hex() for weight in weights], flush=True)
'''


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and ask about every silence at once."""
    monkeypatch.setattr(watch, "INTERVAL", 0.2)
    monkeypatch.setattr(watch, "PAUSES", Backoff(0.2, 0.5))
    for name in ("CHECK_NODE_AFTER", "ASK_HOST_AFTER"):
        monkeypatch.setattr(decision, name, 2.0)


@contextmanager
def preempting(
    simulator: RunningSimulator,
    cloud: Cloud,
    run: str,
    count: int,
    longest: float,
    saved: Callable[[], object],
) -> Iterator[list[int]]:
    """Preempt the machines of so many attempts, each up to `longest` seconds after its start or a save.

    `saved` returns another value after each save.
    """
    chance, ended, attempts = random.Random(3), threading.Event(), list[int]()

    def await_save(number: int) -> bool:
        """Return whether an attempt has saved, and did not end before."""
        before = saved()
        while not ended.is_set():
            if saved() != before:
                return True
            verdict = StoredRun(cloud.bucket, run).verdict()
            if verdict and verdict.attempt == number:
                return False
            ended.wait(0.1)
        return False

    def preempt_next() -> bool:
        """Return whether an attempt that runs was preempted."""
        attempt = StoredRun(cloud.bucket, run).last_attempt()
        states = [status.state if status else "" for status in attempt.statuses()]
        if attempt.number in attempts or set(states) != {RUNNING}:
            return False
        if not all(await_save(attempt.number) for _ in range(chance.randint(0, 3))):
            return False
        ended.wait(chance.uniform(0, longest))
        notice = chance.choice((0.0, 0.5, 2.0))
        simulator.faults.add("preemption", node=attempt.record.tpu.name, notice=notice)
        attempts.append(attempt.number)
        return True

    def loop() -> None:
        while len(attempts) < count and not ended.is_set():
            if not preempt_next():
                ended.wait(0.1)

    thread = threading.Thread(target=loop, name="preempting", daemon=True)
    thread.start()
    try:
        yield attempts
    finally:
        ended.set()
        thread.join()


def up_and_submit(tpuctl: Command, script: str, name: str, *options: str) -> None:
    framework = "tensorflow" if script.startswith("jobs/") else "jax"
    up = tpuctl("up", "v3-8", "--name", f"tpu-{name}", "--spot", "--yes", "--framework", framework)
    assert up.code == 0, up.err
    submitted = tpuctl("submit", script, "--tpu", f"tpu-{name}", "--name", name, *options)
    assert submitted.code == 0, submitted.err


def billing(simulator: RunningSimulator) -> list[str]:
    """The names of what bills or may come to bill."""
    world = simulator.world
    return [item.name.rpartition("/")[2] for item in (*world.nodes.all(), *world.queued_resources.all())]


def steps_lost(logs: list[str], printed: str, resumed: str, unit: int = 1) -> list[int]:
    """Return the steps that each attempt did again; the lines of each are there once and in order.

    `printed` finds the numbers of a line each `unit` steps, `resumed` the step that an attempt begins after.
    """
    lost, last = list[int](), 0
    for log in logs:
        begins = re.search(resumed, log, re.M)
        done = int(begins[1]) if begins else 0
        numbers = [int(number) for number in re.findall(printed, log, re.M)]
        if not (begins or numbers):
            continue  # it ended before its first step
        first = done // unit + 1
        assert numbers == list(range(first, first + len(numbers))), log
        lost.append(max(0, last * unit - done))
        last = numbers[-1] if numbers else done // unit
    return lost


def logs_of(tpuctl: Command, cloud: Cloud, name: str) -> list[str]:
    """The log of each attempt."""
    numbers = StoredRun(cloud.bucket, name).attempt_numbers()
    return [tpuctl("logs", name, "--attempt", str(number)).out for number in numbers]


@pytest.mark.parametrize("count", [2, 30 if EVERY else 12])
def test_a_random_walk_that_is_preempted_ends_where_it_ends_undisturbed(
    tpuctl: Command, simulator: RunningSimulator, cloud: Cloud, tmp_path: Path, quick: None, count: int
) -> None:
    Path("walk.py").write_text(TRAINING)
    steps = str(300 * count + 100)  # more than it takes until the last preemption
    calm = subprocess.run(
        [sys.executable, "walk.py", steps, "0"], env=os.environ | {"PLACE": str(tmp_path / "calm")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    up_and_submit(tpuctl, "walk.py", "stormy", "--env", f"PLACE={tmp_path / 'stormy'}", "--", steps, "0.02")
    state = tmp_path / "stormy/checkpoint"
    with preempting(
        simulator, cloud, "stormy", count, 1.0, lambda: state.exists() and state.read_text()
    ) as attempts:
        watched = tpuctl("watch", "stormy")
    assert watched.code == 0, watched.err
    assert len(attempts) == count
    logs = logs_of(tpuctl, cloud, "stormy")
    lost = steps_lost(logs, r"^step (\d+)", r"^resuming at (\d+)")
    assert max(lost) <= 10, lost
    weights = re.findall("weights.*", "".join(logs))
    assert weights == re.findall("weights.*", calm.stdout)
    assert len(weights) == 1
    assert billing(simulator) == []
    assert StoredRun(cloud.bucket, "stormy").attempt_numbers() == list(range(1, count + 2))


@pytest.fixture
def digits(tpuctl: Command) -> None:
    """The digits as a dataset in the bucket, and the jobs in the working folder."""
    subprocess.run([sys.executable, ROOT / "demo/write_digits.py", "png"], check=True)
    shutil.copytree(JOBS, "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    uploaded = tpuctl("data", "upload", "digits", "png")
    assert uploaded.code == 0, uploaded.err


@pytest.fixture
def pictures(tpuctl: Command, digits: None) -> None:
    """The digits at the size of MNIST as a dataset in the bucket."""
    for path in Path("png").rglob("*.png"):
        large = Path("large", path.relative_to("png"))
        large.parent.mkdir(parents=True, exist_ok=True)
        Image.open(path).resize((28, 28)).save(large)
    uploaded = tpuctl("data", "upload", "mnist", "large")
    assert uploaded.code == 0, uploaded.err


@pytest.mark.timeout(3600)  # TensorFlow is imported three times
@pytest.mark.parametrize(
    ("job", "steps", "options", "count"),
    [
        ("digits", 11, ("--epochs", "30"), 3),
        pytest.param(
            "mnist",
            14,
            ("--epochs", "30", "--batch", "100", "--filters", "8"),
            3,
            marks=pytest.mark.skipif(not EVERY, reason="takes minutes: with TPUCTL_EVERY set"),
        ),
    ],
    ids=["digits three times", "mnist three times"],
)
def test_a_job_that_is_preempted_has_the_weights_of_one_that_is_not(
    tpuctl: Command,
    simulator: RunningSimulator,
    cloud: Cloud,
    quick: None,
    pictures: None,
    job: str, steps: int, options: tuple[str, ...], count: int,
) -> None:  # fmt: skip
    pytest.importorskip("tensorflow")
    from tests.jobs.runs import differing, weights

    variables = [
        option for text in ("TPUCTL_SIM_CORES=2", "TF_CPP_MIN_LOG_LEVEL=3") for option in ("--env", text)
    ]
    for name, preemptions in (("calm", 0), ("stormy", count)):
        up_and_submit(tpuctl, f"jobs/{job}.py", name, *variables, "--", *options)
        state = f"{StoredRun(cloud.bucket, name).paths.checkpoints}checkpoint"
        saved = partial(cloud.bucket.stat, state)
        with preempting(simulator, cloud, name, preemptions, 0.5, saved) as attempts:
            watched = tpuctl("watch", name)
        assert watched.code == 0, watched.err
        print(f"{name}: {len(attempts)} preemptions")
        pulled = tpuctl("pull", name, "--to", name)
        assert pulled.code == 0, pulled.err
        tpuctl("down", f"tpu-{name}", "--yes")
    assert len(attempts) == count
    logs = logs_of(tpuctl, cloud, "stormy")
    lost = steps_lost(logs, r"^epoch +(\d+) ", r"^resuming from \S+ckpt-(\d+)", steps)
    print("steps lost:", lost)
    assert max(lost) <= steps, lost
    assert differing(weights(Path("calm")), weights(Path("stormy"))) == []
    assert billing(simulator) == []
