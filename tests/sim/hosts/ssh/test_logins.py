"""Who is logged in on a host, as a program finds it in /proc."""

from __future__ import annotations

import stat
from pathlib import Path

from tpuctl.sim.hosts.ssh import Logins


def shown(view: Path) -> dict[str, str]:
    return {entry.parent.name: entry.read_text() for entry in (view / "proc").glob("*/cmdline")}


def test_each_login_is_a_process_of_sshd_until_it_ends(tmp_path: Path) -> None:
    logins = Logins(tmp_path)
    ada, bob = logins.add("ada"), logins.add("bob")
    assert shown(tmp_path) == {"1": "sshd: ada@notty", "2": "sshd: bob@notty"}
    logins.remove(ada)
    logins.remove(ada)
    logins.add("ada")
    assert shown(tmp_path) == {"2": "sshd: bob@notty", "3": "sshd: ada@notty"}
    for folder in (tmp_path / "proc", bob):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_nobody_is_logged_in_after_a_restart(tmp_path: Path) -> None:
    Logins(tmp_path).add("ada")
    again = Logins(tmp_path)
    assert shown(tmp_path) == {}
    again.add("bob")
    assert shown(tmp_path) == {"1": "sshd: bob@notty"}
