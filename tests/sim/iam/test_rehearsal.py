"""A team rehearses with terraform's roles enforced: everything passes, and a missing grant is named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image

from tests.running_simulator import RunningSimulator
from tests.sim.iam.attacks import GOOGLE_CLIENT, STANDARD_LIBRARY
from tests.sim.iam.rehearsal import ADA, COMPLETE, MINIMAL, Example, Start, Tpuctl, grant, job
from tpuctl.cloud.endpoints import connect
from tpuctl.config import load
from tpuctl.polling import Backoff, poll


def pictures() -> str:
    """Make a small dataset and return its folder."""
    for name in ("cat", "dog"):
        Path("pictures", name).mkdir(parents=True)
        for number in range(3):
            Image.new("L", (8, 8), number).save(f"pictures/{name}/{number}.png")
    return "pictures"


@pytest.mark.parametrize("example", [MINIMAL, COMPLETE], ids=lambda example: example.name)
def test_a_member_goes_the_whole_way(rehearse: Start, tpuctl: Tpuctl, example: Example) -> None:
    simulator = rehearse(example)
    for command in (
        ("doctor",),
        ("data", "upload", "pets", pictures()),
        ("up", "v3-8", "--yes"),
        ("submit", job("import os\nprint('data', os.environ['TPUCTL_DATA_DIR'])\n"), "--dataset", "pets"),
        ("logs", "-f"),
        ("runs",),
        ("pull", "--to", "out"),
        ("down", "--yes"),
    ):
        result = tpuctl(*command)
        assert result.code == 0, (command, result.out, result.err)
    assert (
        Path("out/logs/attempt-1-worker-0.log").read_text()
        == f"data gs://{example.data}/datasets/pets/1.0.0\n"
    )
    assert simulator.world.nodes.all() == []


@pytest.mark.parametrize(
    ("missing", "command", "permission", "role"),
    [
        (
            grant("google_project_iam_member", "roles/tpu.admin", member=ADA),
            ("up", "v3-8", "--yes"),
            "the nodes of zone europe-west4-a",
            "roles/tpu.admin",
        ),
        (
            grant("google_service_account_iam_member", "roles/iam.serviceAccountUser"),
            ("up", "v3-8", "--yes"),
            MINIMAL.account,
            "roles/iam.serviceAccountUser",
        ),
        (
            grant("google_storage_bucket_iam_member", "objectUser", bucket=MINIMAL.data, member=ADA),
            ("data", "upload", "pets", "pictures"),
            "storage.objects.get",
            "roles/storage.objectUser",
        ),
        (
            grant("google_storage_bucket_iam_member", "legacyBucketReader", bucket=MINIMAL.runs, member=ADA),
            ("doctor",),
            "cannot be read",
            "roles/storage.legacyBucketReader",
        ),
    ],
)
def test_a_missing_grant_of_a_member_is_named(
    rehearse: Start, tpuctl: Tpuctl, missing: object, command: tuple[str, ...], permission: str, role: str
) -> None:
    rehearse(dropped=missing)
    pictures()
    result = tpuctl(*command)
    text = result.out + result.err
    assert permission in text
    assert role in text


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (
            grant("google_storage_bucket_iam_member", "objectViewer", bucket=MINIMAL.runs),
            "storage.objects.get access to the Google Cloud Storage object",
        ),
        (
            grant("google_storage_bucket_iam_member", "objectCreator", bucket=MINIMAL.runs),
            "storage.objects.create access to the Google Cloud Storage object",
        ),
    ],
    ids=["viewer", "creator"],
)
def test_a_missing_grant_of_the_hosts_is_named(
    rehearse: Start, tpuctl: Tpuctl, missing: object, message: str
) -> None:
    rehearse(dropped=missing)
    assert tpuctl("up", "v3-8", "--yes").code == 0
    submitted = tpuctl("submit", job("print('hello')\n"))
    followed = tpuctl("logs", "-f") if submitted.code == 0 else submitted
    assert f"{MINIMAL.account} does not have {message}" in followed.err


def outcomes(tpuctl: Tpuctl, body: str, *arguments: str, dependencies: Sequence[str] = ()) -> list[str]:
    """Run a job on the node and return the lines of its log."""
    assert tpuctl("submit", job(body, "job.py", *dependencies), *arguments).code == 0
    followed = tpuctl("logs", "-f")
    assert followed.code == 0, followed.err + followed.out
    return str(followed.out).splitlines()


def victim(tpuctl: Tpuctl, simulator: RunningSimulator, example: Example) -> str:
    """Leave a run with a checkpoint and a dataset in the example's buckets; returns the run's folder."""
    assert tpuctl("data", "upload", "pets", pictures()).code == 0
    assert tpuctl("up", "v3-8", "--yes").code == 0
    result = tpuctl("submit", job("print('trained')\n", "victim.py"), "--json")
    folder = f"runs/{result.json['run']}/"
    assert tpuctl("logs", "-f").code == 0
    bucket = connect(load({})).bucket
    for name in ("ckpt-1.index", "ckpt-1.data-00000-of-00001", "checkpoint"):
        bucket.create(f"{folder}checkpoints/{name}", b"weights")
    return folder


ATTACKS = """
RUNS, DATA, VICTIM, BUNDLE, LOG = (os.environ[name] for name in ("RUNS", "DATA", "VICTIM", "BUNDLE", "LOG"))
for name in (VICTIM + "run.json", VICTIM + "verdict.json", BUNDLE, VICTIM + "attempts/1/attempt.json",
             LOG):
    short = name.replace(VICTIM, "").split("/")[-1]
    send("overwrite " + short, "POST", upload(RUNS, name), b"{}")
    send("delete " + short, "DELETE", at(RUNS, name))
    send("hold " + short, "PATCH", at(RUNS, name), b'{"temporaryHold": true}')
    target = at(RUNS, name).replace("/storage/v1", "/rewriteTo")
    send("copy over " + short, "POST", at(RUNS, VICTIM + "checkpoints/checkpoint") + target, b"{}")
    send("compose " + short, "POST", at(RUNS, name) + "/compose",
         json.dumps({"sourceObjects": [{"name": VICTIM + "checkpoints/checkpoint"}]}).encode())
    send("XML put " + short, "PUT", "/" + RUNS + "/" + name, b"{}")
    send("XML delete " + short, "DELETE", "/" + RUNS + "/" + name)
shard = "datasets/pets/1.0.0/manifest.json"
send("overwrite shard", "POST", upload(DATA, shard), b"{}")
send("add shard", "POST", upload(DATA, "datasets/pets/1.0.0/more"), b"{}")
send("delete shard", "DELETE", at(DATA, shard))
send("delete bucket", "DELETE", "/storage/v1/b/" + RUNS)
send("make public", "PUT", "/storage/v1/b/" + RUNS + "/iam",
     b'{"bindings": [{"role": "roles/storage.admin", "members": ["allUsers"]}]}')
send("lifecycle", "PATCH", "/storage/v1/b/" + RUNS, b'{"lifecycle": {"rule": []}}')
"""


@pytest.mark.parametrize("example", [MINIMAL, COMPLETE], ids=lambda example: example.name)
def test_a_hostile_job_changes_no_record_of_another_run_and_no_dataset(
    rehearse: Start, tpuctl: Tpuctl, example: Example
) -> None:
    simulator = rehearse(example)
    folder = victim(tpuctl, simulator, example)
    before = contents(simulator, example, but="checkpoints")
    bundle = next(name for name in before if "bundles/" in name).partition("/")[2]
    log = next(name for name in before if name.endswith(".log")).partition("/")[2]
    variables = {"RUNS": example.runs, "DATA": example.data, "VICTIM": folder, "BUNDLE": bundle, "LOG": log}
    settings = [text for name, value in variables.items() for text in ("--env", f"{name}={value}")]
    lines = outcomes(tpuctl, STANDARD_LIBRARY + ATTACKS, *settings)
    assert len(lines) >= 2 * 41, lines
    accepted = [line for line in lines if " 403 " not in line]
    assert accepted == []
    after = contents(simulator, example, but="checkpoints")
    assert {name: after.get(name) for name in before} == before


FORGERIES = """
RUNS, OWN = os.environ["RUNS"], "runs/" + os.environ["TPUCTL_RUN"] + "/"
SOURCE = at(RUNS, OWN + "outputs/source")
send("source", "POST", upload(RUNS, OWN + "outputs/source"), b"{}")
for name in ("runs/forged/run.json", "runs/forged/verdict.json", OWN + "verdict.json"):
    target, named = at(RUNS, name), json.dumps({"name": name}).encode()
    start = "/upload/storage/v1/b/%s/o?uploadType=" % RUNS
    related = b"--x\\r\\nContent-Type: application/json\\r\\n\\r\\n" + named
    related += b"\\r\\n--x\\r\\nContent-Type: text/plain\\r\\n\\r\\n{}\\r\\n--x--\\r\\n"
    send("forged media", "POST", upload(RUNS, name), b"{}")
    send("forged multipart", "POST", start + "multipart", related, "multipart/related; boundary=x")
    send("forged resumable", "POST", start + "resumable", named)
    send("forged rewrite", "POST", SOURCE + target.replace("/storage/v1", "/rewriteTo"), b"{}")
    send("forged copy", "POST", SOURCE + target.replace("/storage/v1", "/copyTo"), b"{}")
    send("forged move", "POST", SOURCE + "/moveTo/o/" + quoted(name), b"")
    send("forged compose", "POST", target + "/compose",
         json.dumps({"sourceObjects": [{"name": OWN + "outputs/source"}]}).encode())
    send("forged XML put", "PUT", "/" + RUNS + "/" + name, b"{}")
    send("forged XML parts", "POST", "/" + RUNS + "/" + name + "?uploads", b"")
for name in ("attempts/2/attempt.json", "attempts/1/verdict.json", "outputs/run.json", "checkpoints/run.json",
             "checkpoints/1/verdict.json", "tensorboard/verdict.json"):
    send("honest " + name, "POST", upload(RUNS, "runs/other/" + name), b"{}")
send("honest file elsewhere", "POST", upload(RUNS, "notes/run.json"), b"{}")
"""


@pytest.mark.parametrize("example", [MINIMAL, COMPLETE], ids=lambda example: example.name)
def test_a_hostile_job_creates_no_run_and_no_verdict_that_a_watcher_would_obey(
    rehearse: Start, tpuctl: Tpuctl, example: Example
) -> None:
    simulator = rehearse(example)
    assert tpuctl("up", "v3-8", "--yes").code == 0
    lines = outcomes(tpuctl, STANDARD_LIBRARY + FORGERIES, "--env", f"RUNS={example.runs}")
    forged = [line for line in lines if line.startswith("forged ")]
    assert len(forged) == 2 * 3 * 9, lines
    assert [line for line in forged if " 403 " not in line or ".create' denied" not in line] == []
    assert not [name for name in contents(simulator, example) if "/forged/" in name]
    honest = [line for line in lines if line.startswith("honest ")]
    assert [line.endswith(" 200") for line in honest[::2]] == [True] * 7, honest


def test_with_their_own_rights_hosts_resume_their_run_after_a_reboot(rehearse: Start, tpuctl: Tpuctl) -> None:
    """They create the verdict of the attempt before, and the record of the next one."""
    rehearse()
    assert tpuctl("up", "v3-8", "--name", "n1", "--yes").code == 0
    script = job(
        "import os, time\nattempt = os.environ['TPUCTL_ATTEMPT']\nprint('step', attempt, flush=True)\n"
        "while attempt == '1': time.sleep(0.05)\n"
    )
    assert tpuctl("submit", script, "--name", "r1", "--restarts", "2").code == 0
    poll(
        lambda: True if "step 1\n" in tpuctl("logs", "r1").out else None, awaiting="step 1", timeout=120,
        backoff=Backoff(0.2, 1.0),
    )  # fmt: skip
    for command in (("drill", "r1", "--reboot", "--notice", "0.5", "--yes"), ("wait", "r1"), ("pull", "r1")):
        result = tpuctl(*command)
        assert result.code == 0, (command, result.out, result.err)
    assert "step 2\n" in tpuctl("logs", "r1").out


CHECKPOINTS = """
RUNS, VICTIM = os.environ["RUNS"], os.environ["VICTIM"]
send("delete", "DELETE", at(RUNS, VICTIM + "checkpoints/ckpt-1.index"))
send("overwrite", "POST", upload(RUNS, VICTIM + "checkpoints/ckpt-1.index"), b"{}")
send("move", "POST", at(RUNS, VICTIM + "checkpoints/ckpt-1.index") + "/moveTo/o/elsewhere", b"{}")
"""


def test_a_hostile_job_deletes_no_complete_checkpoint_where_checkpoints_are_protected(
    rehearse: Start, tpuctl: Tpuctl
) -> None:
    simulator = rehearse(COMPLETE)
    folder = victim(tpuctl, simulator, COMPLETE)
    before = contents(simulator, COMPLETE)
    settings = ("--env", f"RUNS={COMPLETE.runs}", "--env", f"VICTIM={folder}")
    lines = outcomes(tpuctl, STANDARD_LIBRARY + CHECKPOINTS, *settings)
    assert lines == [f"{verb} 403 delete" for verb in ("delete", "overwrite", "move") for _ in range(2)]
    after = contents(simulator, COMPLETE)
    assert {name: after.get(name) for name in before} == before


def test_googles_client_on_a_host_gets_googles_403(rehearse: Start, tpuctl: Tpuctl) -> None:
    simulator = rehearse()
    folder = victim(tpuctl, simulator, MINIMAL)
    settings = ("--env", f"RUNS={MINIMAL.runs}", "--env", f"VICTIM={folder}")
    lines = outcomes(tpuctl, GOOGLE_CLIENT, *settings, dependencies=["google-cloud-storage"])
    for line, permission in zip(
        lines[-2:], ("storage.objects.create", "storage.objects.delete"), strict=True
    ):
        assert line.startswith("403 ")
        assert (
            f"{MINIMAL.account} does not have {permission} access to the Google Cloud Storage "
            f"object. Permission '{permission}' denied on resource (or it may not exist)."
        ) in line


def contents(simulator: RunningSimulator, example: Example, but: str = "//") -> dict[str, str]:
    """Return checksums of the objects in the example's buckets, by name, but of those with `but` in it."""
    query = "select bucket, name, crc32c from objects where live = 1"
    rows = simulator.gcs.store.database.rows(lambda *columns: columns, query)
    return {
        f"{bucket}/{name}": checksum
        for bucket, name, checksum in rows
        if but not in name and bucket in (example.data, example.runs)
    }


def test_a_member_sees_the_quotas(rehearse: Start, tpuctl: Tpuctl) -> None:
    rehearse()
    result = tpuctl("zones", "v3-8")
    assert result.code == 0, result.err
    assert "unlimited" in result.out
    assert "quota is unknown" not in result.err


def test_without_the_grant_the_quota_is_unknown_and_the_role_is_named(
    rehearse: Start, tpuctl: Tpuctl
) -> None:
    rehearse(dropped=grant("google_project_iam_member", "roles/cloudquotas.viewer", member=ADA))
    result = tpuctl("zones", "v3-8")
    assert result.code == 0, result.err
    assert "unlimited" not in result.out
    assert "The quota is unknown: No permission" in result.err
    assert "cloudquotas.quotas.get" in result.err
    assert "roles/cloudquotas.viewer" in result.err
