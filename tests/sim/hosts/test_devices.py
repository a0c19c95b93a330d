"""Each host has the device files of its chips, and the image's server may hold them from boot on."""

from __future__ import annotations

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
