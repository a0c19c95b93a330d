"""A run is repeated from the bucket alone: what is gone is told, and what differs is said.

A run is repeated only with the data that it read, and on a TPU that is free.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.host.worker.preparation.wheels import wheel
from tests.running_simulator import CommandResult, RunningSimulator
from tpuctl import runs
from tpuctl.bucket_layout import bundle
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.masking import MASK
from tpuctl.provenance import HostEnvironment
from tpuctl.runs import NOT_STORED, Run, encode

Tpuctl = Callable[..., CommandResult]
JOB = """\
# /// script
# dependencies = ["tpuctl-wheel-of-a-test"]
# [tool.tpuctl]
# env = { MODE = "fast", RATE = "0.1" }
# ///
import os, sys
from importlib.metadata import version
import helper
names = ("MODE", "RATE", "EXTRA", "TOKEN_OF_TEST")
values = [os.environ.get(name) for name in names]
print("got", sys.argv[1:], values, version("tpuctl_wheel_of_a_test"), helper.WORD)
assert os.environ["PYTHONHASHSEED"] == "11"
"""


@pytest.fixture
def submitted(
    tpuctl: Tpuctl, simulator: RunningSimulator, node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The name of a run that has ended; nothing of it is left on this machine."""
    index = tmp_path / "index"
    wheel(index, "tpuctl_wheel_of_a_test", "1.2")
    monkeypatch.setenv("TOKEN_OF_TEST", "secret-of-the-test")
    Path("job.py").write_text(JOB)
    Path("helper.py").write_text("WORD = 'of the helper'\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    options = ("--name", "r1", "--env", "RATE=0.2", "--env", "EXTRA=more", "--store-env", "EXTRA", "--attach")
    options += ("--env", "PYTHONHASHSEED=11")
    words = ("--secret", "TOKEN_OF_TEST", "--", "--lr", "0.01", "--seed", "7")
    ran = tpuctl("submit", "job.py", *options, *words)
    assert ran.code == 0, ran.err + tpuctl("logs", "r1").out
    wheel(index, "tpuctl_wheel_of_a_test", "2.0")
    for path in ("job.py", "helper.py"):
        Path(path).unlink()
    shutil.rmtree(os.environ["TPUCTL_STATE"] + "/launches", ignore_errors=True)
    return "r1"


def log_of(tpuctl: Tpuctl, run: str) -> str:
    waited = tpuctl("wait", run)
    shown = tpuctl("logs", run).out
    assert waited.code == 0, waited.err + shown
    return shown


SECRETS = ("--secret", "TOKEN_OF_TEST", "--env", "RATE=0.2")


def test_it_is_the_same_but_for_the_changes(tpuctl: Tpuctl, submitted: str, bucket: Bucket) -> None:
    again = tpuctl("resubmit", submitted, "--name", "r2", *SECRETS, "--", "--lr", "0.1", "--fast")
    assert again.code == 0, again.err
    assert "repeats  r1" in again.out
    arguments = "['--lr', '0.1', '--seed', '7', '--fast']"
    values = "['fast', '0.2', 'more', 'secret-of-the-test']"
    assert f"got {arguments} {values} 1.2 of the helper" in log_of(tpuctl, "r2")
    first, second = (StoredRun(bucket, name).record for name in ("r1", "r2"))
    assert second.origin == "r1"
    assert second.pins == {"tpuctl-wheel-of-a-test": "1.2"}
    assert second.seeds == first.seeds == {"--seed": "7", "PYTHONHASHSEED": "11"}
    assert second.environment == first.environment
    assert second.environment["EXTRA"] == "more"
    assert second.environment["TOKEN_OF_TEST"] == NOT_STORED
    differing = {"run", "created", "token", "arguments", "origin", "pins"}
    assert {
        field for field in Run.__struct_fields__ if getattr(first, field) != getattr(second, field)
    } <= differing | {"seeds"}
    third = tpuctl("resubmit", "r2", "--name", "r3", *SECRETS, "--all-arguments", "--", "x")
    assert third.code == 0, third.err
    assert "got ['x'] " in log_of(tpuctl, "r3")
    assert StoredRun(bucket, "r3").record.pins == second.pins


def test_values_that_nobody_knows_are_asked_for_by_name(
    tpuctl: Tpuctl, submitted: str, bucket: Bucket
) -> None:
    before = bucket.objects("runs/")
    refused = tpuctl("resubmit", submitted, "--name", "r2")
    assert refused.code == 2
    assert (
        "had values of RATE, TOKEN_OF_TEST, which are neither in the bucket nor on this machine"
        in refused.err
    )
    assert "tpuctl resubmit r1 --secret RATE --secret TOKEN_OF_TEST" in refused.err
    assert bucket.objects("runs/") == before


def test_a_dry_run_changes_nothing(tpuctl: Tpuctl, submitted: str, bucket: Bucket) -> None:
    before = bucket.objects("")
    shown = tpuctl("resubmit", submitted, *SECRETS, "--dry-run", "--json")
    assert shown.code == 0, shown.err
    names = [
        request["body"]["name"] for request in shown.json["requests"] if isinstance(request.get("body"), dict)
    ]
    assert [name.rpartition("/")[2] for name in names] == ["run.json", "1.json", "attempt.json"]
    assert bucket.objects("") == before


def test_code_that_is_gone_or_damaged_is_told(tpuctl: Tpuctl, submitted: str, bucket: Bucket) -> None:
    record = StoredRun(bucket, submitted).record
    item = bucket.stat(bundle(record.bundle_sha256))
    assert item
    bucket.replace(item, b"other bytes", "application/gzip")
    damaged = tpuctl("resubmit", submitted, *SECRETS)
    assert damaged.code == 4
    assert "does not hold the code that it is named by" in damaged.err
    item = bucket.stat(bundle(record.bundle_sha256))
    assert item
    bucket.remove(item)
    gone = tpuctl("resubmit", submitted, *SECRETS)
    assert gone.code == 4
    assert "The code of run 'r1' was deleted" in gone.err
    assert tpuctl("resubmit", "never-was").code == 4


def rewritten(bucket: Bucket, name: str, **changes: object) -> None:
    """Write a run as another version of tpuctl, or another machine, would have recorded it."""
    record = msgspec.structs.replace(StoredRun(bucket, "r1").record, run=name, **changes)
    StoredRun(bucket, name).create(record)


def test_a_secret_among_the_arguments_has_to_be_given_again(
    tpuctl: Tpuctl, submitted: str, bucket: Bucket
) -> None:
    rewritten(bucket, "masked", arguments=("--api-key", MASK, "--lr", "1"))
    refused = tpuctl("resubmit", "masked", *SECRETS)
    assert refused.code == 2
    assert "held a secret, which is not stored" in refused.err
    shown = tpuctl("resubmit", "masked", *SECRETS, "--name", "r2", "--", "--api-key=now-a-new-key-4711")
    assert shown.code == 0, shown.err
    assert "'--api-key=now-a-new-key-4711', '--lr', '1'" in log_of(tpuctl, "r2")
    assert StoredRun(bucket, "r2").record.arguments == (f"--api-key={MASK}", "--lr", "1")


def test_a_run_of_an_earlier_version_is_repeated_as_far_as_its_record_goes(
    tpuctl: Tpuctl, submitted: str, bucket: Bucket
) -> None:
    rewritten(bucket, "old", seeds={}, of_header=(), machine=None, not_kept=None, unpacked_size=0)
    item = bucket.stat(StoredRun(bucket, "old").paths.record)
    assert item
    fields = msgspec.json.decode(bucket.read(item.name))
    for name in ("seeds", "of_header", "pins", "origin", "machine", "not_kept", "unpacked_size"):
        del fields[name]
    bucket.replace(item, encode(fields))
    refused = tpuctl("resubmit", "old", *SECRETS)
    assert "had values of MODE, PYTHONHASHSEED, which" in refused.err, "--env may have given the first"
    given = ("--env", "MODE=fast", "--env", "PYTHONHASHSEED=11")
    again = tpuctl("resubmit", "old", "--name", "r2", *SECRETS, *given)
    assert again.code == 0, again.err
    assert "no record of its packages: they are resolved anew" in again.err
    assert " of the helper" in log_of(tpuctl, "r2")


def test_another_type_and_another_runtime_are_said(tpuctl: Tpuctl, submitted: str, bucket: Bucket) -> None:
    assert tpuctl("up", "v2-8", "--name", "other", "--runtime", "tpu-vm-tf-2.17.0-pjrt", "--yes").code == 0
    shown = tpuctl("resubmit", submitted, "--on", "other", *SECRETS, "--dry-run")
    assert shown.code == 0, shown.err
    assert "run 'r1' was on v3-8, and this is v2-8" in shown.err
    assert "had the runtime" in shown.err


def test_packages_of_the_host_are_recorded_of_the_repetition_too(
    tpuctl: Tpuctl, submitted: str, bucket: Bucket
) -> None:
    assert tpuctl("resubmit", submitted, "--name", "r2", *SECRETS).code == 0
    log_of(tpuctl, "r2")
    name = StoredRun(bucket, "r2").paths.environment(1, 0)
    record = runs.decode(bucket.read(name), HostEnvironment, name)
    assert record.installed == {"tpuctl-wheel-of-a-test": "1.2"}


HEADER = "# /// script\n# dependencies = []\n# ///\n"


def upload(tpuctl: Tpuctl, text: str) -> None:
    Path("rows.csv").write_text(text)
    uploaded = tpuctl("data", "upload", "rows", "rows.csv")
    assert uploaded.code == 0, uploaded.err


@pytest.mark.daily
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


@pytest.mark.slow
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
