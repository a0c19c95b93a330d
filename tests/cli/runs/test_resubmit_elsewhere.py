"""A run is repeated only with the data that it read, and on a TPU that is free."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.running_simulator import CommandResult
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.stored_run import StoredRun

Tpuctl = Callable[..., CommandResult]
HEADER = "# /// script\n# dependencies = []\n# ///\n"


def upload(tpuctl: Tpuctl, text: str) -> None:
    Path("rows.csv").write_text(text)
    uploaded = tpuctl("data", "upload", "rows", "rows.csv")
    assert uploaded.code == 0, uploaded.err


@pytest.mark.usefixtures("node")
def test_the_data_has_to_be_what_the_run_read(tpuctl: Tpuctl, bucket: Bucket) -> None:
    upload(tpuctl, "a,b\n1,2\n3,4\n")
    Path("job.py").write_text(
        "# /// script\n# dependencies = []\n# ///\nimport os\nprint(os.environ['TPUCTL_DATA_DIR'])\n"
    )
    ran = tpuctl("submit", "job.py", "--name", "r1", "--dataset", "rows", "--attach")
    assert ran.code == 0, ran.err
    assert tpuctl("resubmit", "r1", "--name", "r2").code == 0
    assert tpuctl("wait", "r2").code == 0
    assert tpuctl("logs", "r2").out == tpuctl("logs", "r1").out
    assert tpuctl("data", "rm", "rows/1.0.0", "--yes").code == 0
    gone = tpuctl("resubmit", "r1", "--json")
    assert gone.code == 4
    assert "The dataset of run 'r1' was deleted: there is no rows/1.0.0" in gone.err
    upload(tpuctl, "a,b\n1,2\n3,5\n")
    other = tpuctl("resubmit", "r1")
    assert other.code == 4
    assert "The dataset rows/1.0.0 has other data than run 'r1' read" in other.err
    assert tpuctl("data", "rm", "rows/1.0.0", "--yes").code == 0
    upload(tpuctl, "a,b\n1,2\n3,4\n")
    same = tpuctl("resubmit", "r1", "--name", "r3")
    assert same.code == 0, same.err
    assert StoredRun(bucket, "r3").record.dataset == StoredRun(bucket, "r1").record.dataset


def test_a_busy_tpu_is_told_with_the_command_that_waits(tpuctl: Tpuctl, node: str, bucket: Bucket) -> None:
    Path("job.py").write_text(f"{HEADER}import time\ntime.sleep(600)\n")
    assert tpuctl("submit", "job.py", "--name", "r1").code == 0
    refused = tpuctl("resubmit", "r1", "--name", "r2")
    assert refused.code == 4
    assert ": tpuctl resubmit r1 --name r2 --queue\n" in refused.err
    waits = tpuctl("resubmit", "r1", "--name", "r2", "--queue")
    assert waits.code == 0, waits.err
    taken = tpuctl("resubmit", "r1", "--name", "r2", "--queue", "--", "--other")
    assert taken.code == 4
    assert "There is a run 'r2' already" in taken.err
    for name in ("r1", "r2"):
        assert tpuctl("cancel", name, "--grace", "1s", "--yes").code in (0, 100)
