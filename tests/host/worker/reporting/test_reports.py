"""Files that a script leaves in its folder for reports are kept with the run, however the script ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.worker.host import Host
from tpuctl.bucket_layout import RunPaths
from tpuctl.cloud.storage import Bucket
from tpuctl.flows.runs.pull import pull
from tpuctl.flows.runs.stored_run import StoredRun
from tpuctl.host import gcs
from tpuctl.host.worker import reporting

FOLDER = RunPaths("r1").worker(1, 0) + "reports/"
SCRIPT = (
    "import os\nfolder = os.environ['TPUCTL_REPORT_DIR']\n"
    "open(os.path.join(folder, 'findings.json'), 'w').write('{}')\n"
)


def names(bucket: Bucket) -> list[str]:
    return [report.name.removeprefix(FOLDER) for report in bucket.objects(FOLDER)]


@pytest.mark.parametrize(
    "end", ["", "raise ValueError\n", "import signal; os.kill(os.getpid(), signal.SIGKILL)\n"]
)
def test_a_report_is_in_the_bucket_when_the_run_has_ended(host: Host, end: str) -> None:
    host.start(SCRIPT + end)
    host.finished()
    assert names(host.bucket) == ["findings.json"]


def test_pull_fetches_it(host: Host, tmp_path: Path) -> None:
    host.start(SCRIPT)
    host.finished()
    pull(StoredRun(host.bucket, "r1"), tmp_path / "home", lambda line: None)
    assert (tmp_path / "home/attempts/1/workers/0/reports/findings.json").read_text() == "{}"


def test_a_script_without_reports_leaves_none(host: Host) -> None:
    host.start("print('done')")
    assert host.finished().error == ""
    assert names(host.bucket) == []


def test_only_finished_plain_files_below_the_limit_are_shipped(
    worker_bucket: gcs.Bucket,
    bucket: Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(reporting, "LARGEST_FILE", 5)
    for name in ("b.txt", "a.json", ".hidden", "draft.json.1.part"):
        (tmp_path / name).write_text("text")
    (tmp_path / "c.txt").write_text("limit")
    (tmp_path / "large").write_text("longer")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/etc/hostname")
    reporting.ship(worker_bucket, FOLDER, str(tmp_path))
    assert names(bucket) == ["a.json", "b.txt", "c.txt"]
    assert bucket.read(FOLDER + "a.json") == b"text"
    assert capsys.readouterr().err == "[tpuctl] the report large has 6 bytes: skipped\n"


def test_a_report_of_another_program_is_left_and_the_rest_is_shipped(
    worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.create(FOLDER + "a.txt", b"theirs")
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("ours")
    reporting.ship(worker_bucket, FOLDER, str(tmp_path))
    assert (bucket.read(FOLDER + "a.txt"), bucket.read(FOLDER + "b.txt")) == (b"theirs", b"ours")
    assert capsys.readouterr().err == "[tpuctl] another program has written the report a.txt\n"


def test_a_report_has_32_mib_at_most() -> None:
    assert reporting.LARGEST_FILE == 32 << 20


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.json", "application/json"),
        ("page.html", "text/html"),
        ("notes", "application/octet-stream"),
        ("a.unknown-suffix", "application/octet-stream"),
    ],
)
def test_a_report_has_the_content_type_of_its_name(
    worker_bucket: gcs.Bucket, bucket: Bucket, tmp_path: Path, name: str, kind: str
) -> None:
    (tmp_path / name).write_text("text")
    reporting.ship(worker_bucket, FOLDER, str(tmp_path))
    (report,) = bucket.objects(FOLDER)
    assert report.content_type == kind


def test_reports_that_cannot_be_read_do_not_keep_the_run_from_its_end(host: Host) -> None:
    host.start(SCRIPT + "import shutil\nshutil.rmtree(folder)\n")
    status = host.finished()
    assert (status.exit_code, status.error) == (0, "")
    assert names(host.bucket) == []
    assert "No such file or directory" in host.supervisor_log()
