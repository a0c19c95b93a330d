"""What a program finds of a host's system: the device files of its chips, facts of the system, and sudo."""

from __future__ import annotations

import importlib.util
import platform
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sim.hosts.site import Site, hosts_of, wait_until
from tpuctl.sim.hosts.network import HostDisk
from tpuctl.sim.hosts.programs.processes import host_mark, of_host
from tpuctl.sim.records import Host


@pytest.mark.parametrize(
    ("accelerator", "files"),
    [
        ("v3-8", [f"accel{chip}" for chip in range(4)]),
        ("v5litepod-8", [*(f"vfio/{chip}" for chip in range(8)), "vfio/vfio"]),
    ],
)
def test_a_host_has_those_of_its_generation(site: Site, accelerator: str, files: list[str]) -> None:
    hosts = site.up(hosts_of(accelerator=accelerator))
    with site.fabric(hosts[0]) as connection:
        listed = connection.run("cd $TPUCTL_HOST_ROOT/dev && find . -type f | sort").stdout.split()
    assert listed == [f"./{name}" for name in files]
    assert not of_host(host_mark(site.folder, hosts[0]), set()), "nobody holds them"
    site.stop(hosts)


def servers(site: Site, host: Host) -> dict[str, set[str]]:
    """Return the devices that processes of a host hold, by their command."""
    view = HostDisk(site.folder, host).view.resolve()
    found = dict[str, set[str]]()
    for pid in of_host(host_mark(site.folder, host), set()):
        with suppress(OSError):  # it is about to become the server
            targets = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
            held = {target.removeprefix(str(view)) for target in targets if target.startswith(str(view))}
            found[Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]] = held
    return found


def test_the_server_of_a_pod_image_holds_the_chips_of_every_host_from_each_boot_on(site: Site) -> None:
    hosts = [replace(host, runtime_version="tpu-vm-tf-2.18.0-pod-se") for host in hosts_of(2, "v3-32")]
    held = {"tpu-runtime": {f"/dev/accel{chip}" for chip in range(4)}}
    for _ in range(2):
        site.up(hosts)
        wait_until(lambda: all(servers(site, host) == held for host in hosts))
        site.stop(hosts, keep_disk=True)
        assert not any(servers(site, host) for host in hosts)


def test_programs_keep_their_tmp_where_the_hosts_root_has_it(site: Site) -> None:
    hosts = site.up(hosts_of())
    with site.fabric(hosts[0]) as connection:
        connection.run("touch $TPUCTL_HOST_ROOT/tmp/libtpu_lockfile && rm $TMPDIR/libtpu_lockfile")
    site.stop(hosts)


NAME = "tpuctl.sim.hosts.host"

RELEASE = {"PRETTY_NAME": "Ubuntu 22.04.4 LTS", "ID": "ubuntu", "VERSION_ID": "22.04"}


@pytest.mark.parametrize(
    ("release", "long", "short", "version"),
    [
        (RELEASE, "Ubuntu 22.04.4 LTS", "ubuntu", "22.04"),
        (None, platform.system(), platform.system().lower(), platform.release()),
    ],
)
def test_the_facts_are_those_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, release: dict[str, str] | None, long: str, short: str, version: str
) -> None:
    """https://cloud.google.com/compute/docs/instances/view-os-details"""

    def read() -> dict[str, str]:
        if release is None:
            raise OSError("no os-release")
        return release

    monkeypatch.setattr(platform, "freedesktop_os_release", read)
    spec = importlib.util.find_spec(NAME)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)  # a copy of its own: the facts are looked up once
    spec.loader.exec_module(module)
    facts = module.inventory("t1v-n-1-w-0")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", facts.pop("LastUpdated"))
    assert facts == {
        "Hostname": "t1v-n-1-w-0",
        "Architecture": platform.machine(),
        "KernelRelease": platform.release(),
        "KernelVersion": platform.version(),
        "LongName": long,
        "ShortName": short,
        "Version": version,
        "OSConfigAgentVersion": "20240320.00",
    }


def test_the_login_user_may_run_everything(site: Site) -> None:
    (host,) = site.up(hosts_of())
    with site.fabric(host) as connection:
        run = lambda command: connection.run(command, warn=True)  # noqa: E731
        assert run("sudo -n true").ok
        assert run("sudo -nv && sudo -n -l").stdout.strip() == "(ALL : ALL) NOPASSWD: ALL"
        assert run("sudo -n -E -u root NAME='a b' sh -c 'echo \"$NAME\"; exit 7'").stdout == "a b\n"
        assert run("sudo -- sh -c 'exit 7'").exited == 7
        assert run("echo echo in a shell | sudo -i").stdout == "in a shell\n"
        assert "as the same user" in run("sudo -V").stdout


@pytest.mark.parametrize(
    ("command", "said"), [("sudo", "usage: sudo"), ("sudo -n no-such", "sudo: no-such: command not found")]
)
def test_what_it_cannot_run_it_says(site: Site, command: str, said: str) -> None:
    (host,) = site.up(hosts_of())
    with site.fabric(host) as connection:
        ended = connection.run(command, warn=True)
        assert (ended.exited, said in ended.stderr) == (1, True)
