"""How many steps a restart has lost: by what both attempts print, and the checkpoint between them."""

from __future__ import annotations

import msgspec

from tests.flows.runs.records import ATTEMPT, CREATED, TPU
from tests.running_simulator import RunningSimulator
from tpuctl import runs
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.losses import steps_lost, total_lost
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.runs import ORDERED_LOGS, Run, Verdict

TENS = "".join(f"step {step}\n" for step in range(10, 130, 10))
CASES = {
    # name: log of attempt 1, checkpoint, log of attempt 2, steps lost
    "by-tens": (TENS, "ckpt-100", "resuming from ckpt-100\nstep 110\n", 20),
    "at-the-checkpoint": (TENS, "ckpt-120", "step 130\n", 0),
    "from-the-beginning": (TENS, "", "step 10\nstep 20\n", 120),
    "saved-behind-what-was-printed": (TENS, "ckpt-125", "step 130\n", 0),
    "counts-its-saves": (TENS, "ckpt-3", "step 110\n", None),
    "prints-no-steps": ("loss 0.3\n", "ckpt-100", "loss 0.2\n", None),
    "next-has-printed-none-yet": (TENS, "ckpt-100", "resuming\n", None),
    "global-steps": ("global_step=7\nglobal_step=8\n", "ckpt-7", "global_step=8\n", 1),
}


def restarted(bucket: Bucket, name: str, logs: tuple[str, str], checkpoint: str) -> tuple[StoredRun, Verdict]:
    """Write a run of two attempts."""
    run = StoredRun(bucket, name)
    run.create(Run(name, CREATED, "ada@laptop", "job.py", (), "0" * 64, "jax", "v3-32", (), {}))
    for number, log in enumerate(logs, start=1):
        run.create_attempt(msgspec.structs.replace(ATTEMPT, attempt=number, log_layout=ORDERED_LOGS))
        for chunk, part in enumerate((log[: len(log) // 2], log[len(log) // 2 :]), start=1):
            place = f"{run.paths.ordered_logs(number)}20260101T12000{chunk}-0000-{chunk:06}.log"
            bucket.upload(place, [part.encode()], "text/plain")
        other = f"{run.paths.ordered_logs(number)}20260101T120009-0001-000001.log"
        bucket.upload(other, [b"step 999999\n"], "text/plain")
    verdict = Verdict(name, runs.PREEMPTED, 1, CREATED, "why", tpu=TPU, checkpoint=checkpoint, restarts=True)
    run.keep_verdict(verdict)
    return run, verdict


def test_the_number_is_the_distance_from_the_checkpoint_or_unknown(
    simulator: RunningSimulator, bucket: Bucket
) -> None:
    told = {}
    for name, (before, checkpoint, after, _) in CASES.items():
        run, verdict = restarted(bucket, name, (before, after), checkpoint)
        told[name] = steps_lost(run, verdict), total_lost(run, 2)
    assert told == {name: (lost, lost) for name, (_, _, _, lost) in CASES.items()}
