"""How many steps a restart has lost: by what both attempts print, and the checkpoint between them."""

from __future__ import annotations

import msgspec
import pytest

from tests.flows.runs.records import ATTEMPT, CREATED, TPU
from tests.running_simulator import RunningSimulator
from tpuctl import runs
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.state import steps_lost, total_lost
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


LAST = b"step 120\n"
SILENT = b"loss 0.5\n"


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ([LAST, SILENT, SILENT], [b"step 101\n"], 20),
        ([LAST, SILENT, SILENT, SILENT], [b"step 101\n"], None),
        ([LAST], [SILENT, b"step 101\n"], None),
        ([LAST + b"x" * (65536 - len(LAST))], [b"step 101\n"], 20),
        ([LAST + b"x" * (65537 - len(LAST))], [b"step 101\n"], None),
        ([LAST], [b" " * (65536 - 9) + b"step 101\n"], 20),
        ([LAST], [b" " * (65537 - 6) + b"step 101\n"], None),
    ],
)
def test_steps_are_looked_for_in_three_pieces_of_a_log_and_in_64_kib_of_each(
    bucket: Bucket, before: list[bytes], after: list[bytes], lost: int | None
) -> None:
    """Two empty pieces come before these."""
    run, verdict = restarted(bucket, "r1", ("", ""), "ckpt-100")
    for number, texts in ((1, before), (2, after)):
        for chunk, text in enumerate(texts, start=3):
            name = f"{run.paths.ordered_logs(number)}20260101T1300{chunk:02}-0000-{chunk:06}.log"
            bucket.upload(name, [text], "text/plain")
    assert steps_lost(run, verdict) == lost


def test_the_number_is_the_distance_from_the_checkpoint_or_unknown(
    simulator: RunningSimulator, bucket: Bucket
) -> None:
    told = {}
    for name, (before, checkpoint, after, _) in CASES.items():
        run, verdict = restarted(bucket, name, (before, after), checkpoint)
        told[name] = steps_lost(run, verdict), total_lost(run, 2)
    assert told == {name: (lost, lost) for name, (_, _, _, lost) in CASES.items()}
