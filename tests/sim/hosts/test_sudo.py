"""A host has a sudo that asks for no password, first in PATH."""

from __future__ import annotations

import pytest

from tests.sim.hosts.site import Site, hosts_of


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
