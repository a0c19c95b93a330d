"""A host has a crontab of its own, whose @reboot lines run at each boot."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.sim.hosts.site import Site, hosts_of
from tpuctl.polling import Backoff, poll
from tpuctl.sim.hosts import host
from tpuctl.sim.hosts.network import HostDisk


def call(folder: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run the program on a host."""
    program = host.install(folder) / "crontab"
    return subprocess.run(
        [program, *arguments], input=text, env={**os.environ, "TPUCTL_SIM_DISK": str(folder)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_it_is_written_listed_and_removed_as_by_cron(tmp_path: Path) -> None:
    empty = call(tmp_path, "-l")
    assert (empty.returncode, empty.stderr.startswith("no crontab for ")) == (1, True)
    assert call(tmp_path, "-", text="@reboot true\n").returncode == 0
    assert call(tmp_path, "-l").stdout == "@reboot true\n"
    (tmp_path / "file").write_text("0 1 * * * true\n")
    assert call(tmp_path, str(tmp_path / "file")).returncode == 0
    assert call(tmp_path, "-l").stdout == "0 1 * * * true\n"
    assert call(tmp_path, "-r").returncode == 0
    assert call(tmp_path, "-l").returncode == 1
    assert call(tmp_path, "-e").returncode == 1


@pytest.mark.parametrize("lines", ["@reboot echo booted >>$HOME/boots\n0 1 * * * echo timed >>$HOME/boots\n"])
def test_lines_for_each_boot_run_in_the_home_and_others_do_not(site: Site, lines: str) -> None:
    hosts = site.up(hosts_of())
    disk = HostDisk(site.folder, hosts[0])
    (disk.folder / "crontab").write_text(lines)
    site.stop(hosts, keep_disk=True)
    site.up(hosts)
    file = disk.home / "boots"
    said = poll(
        lambda: file.read_text() if file.exists() and file.read_text() else None,
        awaiting="a boot",
        timeout=60,
        backoff=Backoff(0.02, 0.1),
    )
    assert said == "booted\n"
    site.stop(hosts)
