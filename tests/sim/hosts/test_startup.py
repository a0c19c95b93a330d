"""A host runs the startup script of its metadata at each boot.

A host has a crontab of its own, whose @reboot lines run at each boot.
"""

from __future__ import annotations

import os
import subprocess
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.sim.hosts.site import Site, hosts_of
from tpuctl.polling import Backoff, poll
from tpuctl.sim.hosts import host
from tpuctl.sim.hosts.network import HostDisk
from tpuctl.sim.records import Host

FAST = Backoff(0.02, 0.1)
COUNTS = "#!/bin/sh\necho $HOSTNAME >>$HOME/boots\n"


def lines(site: Site, host: Host, count: int) -> list[str]:
    """Return the lines that the script has written, once there are so many."""
    file = HostDisk(site.folder, host).home / "boots"

    def written() -> list[str] | None:
        text = file.read_text().splitlines() if file.exists() else []
        return text if len(text) >= count else None

    return poll(written, awaiting=f"{count} boots", timeout=60, backoff=FAST)


def has_ended(process: Path) -> bool:
    """Whether a process, a folder of /proc, has ended; nobody may have collected its exit status."""
    try:
        return "Z" in (process / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True


def test_each_host_runs_it_at_each_boot(site: Site) -> None:
    hosts = site.up(hosts_of(4, "v3-32"), {"startup-script": COUNTS})
    assert [lines(site, host, 1) for host in hosts] == [[host.hostname] for host in hosts]
    site.stop(hosts, keep_disk=True)
    site.up(hosts, {"startup-script": COUNTS})
    assert all(len(lines(site, host, 2)) == 2 for host in hosts)
    site.stop(hosts)


def test_what_is_in_memory_does_not_outlive_a_boot(site: Site) -> None:
    script = '#!/bin/sh\nmkdir "$TPUCTL_HOST_ROOT/run" && echo empty >>$HOME/boots\n'
    hosts = site.up(hosts_of(), {"startup-script": script})
    lines(site, hosts[0], 1)
    site.stop(hosts, keep_disk=True)
    site.up(hosts, {"startup-script": script})
    assert lines(site, hosts[0], 2) == ["empty", "empty"]
    site.stop(hosts)


def test_a_changed_script_runs_at_the_next_boot_only(site: Site) -> None:
    hosts = site.up(hosts_of(), {"startup-script": COUNTS})
    lines(site, hosts[0], 1)
    changed = "#!/bin/sh\necho changed >>$HOME/boots\n"
    site.up(hosts, {"startup-script": changed})
    site.stop(hosts, keep_disk=True)
    site.up(hosts, {"startup-script": changed})
    assert lines(site, hosts[0], 2) == [hosts[0].hostname, "changed"]
    site.stop(hosts)


def test_the_script_of_the_project_runs_where_the_node_has_none(site: Site) -> None:
    site.projects["demo"] = {"startup-script": "#!/bin/sh\necho of the project >>$HOME/boots\n"}
    bare, own = site.up(hosts_of()), site.up(hosts_of(), {"startup-script": COUNTS})
    assert lines(site, bare[0], 1) == ["of the project"]
    assert lines(site, own[0], 1) == [own[0].hostname]
    site.stop(bare)
    site.stop(own)


def test_a_script_that_cannot_run_stops_nothing_and_leaves_its_reason(site: Site) -> None:
    hosts = site.up(hosts_of(), {"startup-script": "#!/no/such/shell\n"})
    log = HostDisk(site.folder, hosts[0]).folder / "startup-script.log"
    poll(lambda: (log.exists() and log.read_text()) or None, awaiting="its log", timeout=60, backoff=FAST)
    with site.fabric(hosts[0]) as connection:
        assert connection.run("true").ok
    site.stop(hosts)


def test_what_the_script_left_running_ends_with_the_host(site: Site) -> None:
    script = "#!/bin/sh\nsetsid sleep 600 &\necho $! >>$HOME/boots\n"
    hosts = site.up(hosts_of(), {"startup-script": script})
    process = Path("/proc") / lines(site, hosts[0], 1)[0]
    assert not has_ended(process)
    site.stop(hosts)
    assert has_ended(process)


def test_a_simulator_that_was_killed_does_not_run_it_again(site: Site) -> None:
    script = f"{COUNTS}setsid sleep 600 &\n"
    hosts = site.up(hosts_of(), {"startup-script": script})
    lines(site, hosts[0], 1)
    successor = site.another()
    successor.up(hosts, {"startup-script": script})
    assert len(lines(site, hosts[0], 1)) == 1
    successor.stop(hosts, keep_disk=True)
    successor.up(hosts, {"startup-script": script})
    assert len(lines(site, hosts[0], 2)) == 2
    successor.stop(hosts)
    site.stop(hosts)


def test_the_metadata_server_tells_the_time_of_the_simulator(site: Site) -> None:
    site.clock.now = 1_800_000_000.0
    hosts = site.up(hosts_of())
    with site.fabric(hosts[0]) as connection:
        address = connection.run("echo $GCE_METADATA_HOST").stdout.strip()
    url = f"http://{address}/computeMetadata/v1/instance/name"
    with urlopen(Request(url, headers={"Metadata-Flavor": "Google"})) as response:
        assert parsedate_to_datetime(response.headers["Date"]).timestamp() == 1_800_000_000
    site.stop(hosts)


def test_who_is_logged_in_can_be_seen_on_the_host(site: Site) -> None:
    hosts = site.up(hosts_of())
    with site.fabric(hosts[0]) as connection:
        titles = connection.run("cd $TPUCTL_SIM_DISK/root && cat proc/*/cmdline").stdout
        assert titles == "sshd: ada@notty"
    view = HostDisk(site.folder, hosts[0]).view
    poll(lambda: not list((view / "proc").iterdir()) or None, awaiting="the logout", timeout=60, backoff=FAST)
    site.stop(hosts)


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
