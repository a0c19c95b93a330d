"""TensorFlow's own checkpoints, TensorBoard events and outputs with terraform's roles enforced."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.paths import JOBS
from tests.sim.iam.rehearsal import COMPLETE, MINIMAL, Example, Start, Tpuctl, job

pytestmark = pytest.mark.slow

BODY = """
import os
import tensorflow as tf

for keep in map(int, os.environ["KEEP"].split()):
    folder = os.path.join(os.environ["TPUCTL_CHECKPOINT_DIR"], f"keep-{keep}")
    step = tf.Variable(0)
    weights = tf.Variable(tf.random.normal([1000, 100]))
    checkpoint = tf.train.Checkpoint(step=step, weights=weights)
    manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=keep or None)
    writer = tf.summary.create_file_writer(os.environ["TPUCTL_TENSORBOARD_DIR"])
    for number in range(4):
        step.assign(number)
        with writer.as_default(step=number):
            tf.summary.scalar("loss", 1.0)
        writer.flush()
        try:
            path = manager.save(checkpoint_number=number)
            print("saved", keep, path.rpartition("/")[2], flush=True)
        except tf.errors.PermissionDeniedError as error:
            print("refused", keep, "storage.objects.delete" in str(error), flush=True)
        with tf.io.gfile.GFile(os.path.join(os.environ["TPUCTL_MODEL_DIR"], "result.json"), "w") as stream:
            stream.write(str(number))
"""
"""Keeps so many checkpoints, or with 0 all, and then so many others: one program imports TensorFlow once."""


def test_a_job_of_this_repository_keeps_all_checkpoints_where_they_are_protected(
    rehearse: Start, tpuctl: Tpuctl
) -> None:
    rehearse(COMPLETE)
    for label in ("0", "1"):
        Path("pictures", label).mkdir(parents=True)
        for shade in range(4):
            Image.new("L", (8, 8), shade).save(f"pictures/{label}/{shade}.png")
    shutil.copytree(JOBS, "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    options = ("--epochs", "5", "--batch", "8", "--keep-checkpoints", "0")
    for command in (
        ("data", "upload", "digits", "pictures"),
        ("up", "v3-8", "--framework", "tensorflow", "--yes"),
        ("submit", "jobs/digits.py", "--", *options),
        ("logs", "-f"),
        ("pull", "--to", "out"),
    ):
        result = tpuctl(*command)
        assert result.code == 0, (command, result.out, result.err)
    assert [path.name for path in sorted(Path("out/checkpoints").glob("*.index"))] == [
        f"ckpt-{step}.index" for step in range(1, 6)
    ]


@pytest.mark.parametrize(
    ("example", "keep", "lines"),
    [
        (MINIMAL, "2", [f"saved 2 ckpt-{number}" for number in range(4)]),
        (
            COMPLETE,
            "0 2",
            [
                *(f"saved 0 ckpt-{number}" for number in range(4)),
                *("saved 2 ckpt-0", "saved 2 ckpt-1", "refused 2 True", "refused 2 True"),
            ],
        ),
    ],
    ids=["records", "checkpoints, all kept and then two"],
)
def test_checkpoints(rehearse: Start, tpuctl: Tpuctl, example: Example, keep: str, lines: list[str]) -> None:
    rehearse(example)
    assert tpuctl("up", "v3-8", "--framework", "tensorflow", "--yes").code == 0
    assert tpuctl("submit", job(BODY, "job.py", "tensorflow"), "--env", f"KEEP={keep}").code == 0
    followed = tpuctl("logs", "-f")
    assert followed.code == 0, followed.out + followed.err
    assert [line for line in followed.out.splitlines() if line.startswith(("saved", "refused"))] == lines
