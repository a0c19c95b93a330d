"""`python -m tpuctl.sim --folder FOLDER`: the simulator as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import locale
import logging
import os
import resource
import signal
from pathlib import Path

from tpuctl.errors import TpuctlError
from tpuctl.faults import load_scenario
from tpuctl.sim.iam.enforcement import DEFAULT_ACCOUNTS, enforcement
from tpuctl.sim.settings import DELAYS, EGRESS, FIREWALLS, MACHINE, PASS, PYTHONS

UNLIMITED = (resource.RLIMIT_CPU, resource.RLIMIT_FSIZE, resource.RLIMIT_DATA, resource.RLIMIT_AS)
"""What a login on Ubuntu limits by no more than the hard limit."""
STACK = 8 << 20
"""Bytes of the stack of a login's programs."""
ORPHANS_LIVE = 300
"""Seconds in which a killed simulator can be started again before its hosts' programs end."""


def main() -> None:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m tpuctl.sim", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="folder that keeps its state")
    parser.add_argument("--speed", choices=sorted(DELAYS), default="instant", help="how long things take")
    parser.add_argument(
        "--idle", type=float, default=3600, help="seconds without use until it ends; 0: never"
    )
    parser.add_argument("--key-delay", type=float, help="seconds until a host accepts a new SSH key")
    parser.add_argument(
        "--egress",
        choices=EGRESS,
        default=PASS,
        help="pass or refuse traffic from hosts to addresses that are not simulated, such as a package index",
    )
    parser.add_argument(
        "--no-external-ips",
        dest="external_ips",
        action="store_false",
        help="give no node external addresses: hosts are reached through Identity-Aware Proxy alone",
    )
    parser.add_argument(
        "--iam",
        nargs="?",
        const="",
        metavar="FILE",
        help="enforce roles: Google's default ones, and those in the output of 'terraform show -json'",
    )
    parser.add_argument("--iam-user", metavar="MEMBER", help="account of programs that run on no host")
    parser.add_argument(
        "--default-account",
        choices=DEFAULT_ACCOUNTS,
        default="editor",
        help="role of Google's default service account in the project; none: roles are enforced",
    )
    parser.add_argument(
        "--firewall",
        choices=FIREWALLS,
        default="open",
        help="open: as of a new network `default`; closed: without its rule for SSH",
    )
    parser.add_argument(
        "--python",
        choices=PYTHONS,
        default=MACHINE,
        help="run this machine's Python on hosts, with links to its packages, or that of their image",
    )
    parser.add_argument("--scenario", type=Path, help="a TOML file with the faults to start with")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    _use_plain_letters()
    try:
        asyncio.run(serve(**vars(arguments)))
    except TpuctlError as error:
        parser.exit(error.exit_code, f"{error.message} {error.hint}\n")


async def serve(
    folder: Path,
    *,
    speed: str,
    idle: float,
    key_delay: float | None = None,
    scenario: Path | None = None,
    egress: str = PASS,
    external_ips: bool = True,
    iam: str | None = None,
    iam_user: str | None = None,
    default_account: str = "editor",
    firewall: str = "open",
    python: str = MACHINE,
) -> None:
    """Run a simulator until SIGTERM or SIGINT, or until it was idle for `idle` seconds (0: for ever)."""
    from tpuctl.sim.simulator import Simulator  # noqa: PLC0415  # after `_use_plain_letters`

    faults = load_scenario(scenario) if scenario else None
    is_enforced = iam is not None or default_account == "none"
    enforced = enforcement(Path(iam) if iam else None, iam_user, default_account) if is_enforced else None
    os.umask(0o077)  # its files are for its user alone
    _lift_limits()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    simulator = Simulator(
        folder,
        speed=speed,
        key_delay=key_delay,
        egress=egress,
        external_ips=external_ips,
        iam=enforced,
        firewall=firewall,
        python=python,
        orphans_live=ORPHANS_LIVE,
    )
    os.dup(simulator.lock)  # keeps the folder locked until the process has ended
    try:
        if faults:
            simulator.faults.load(faults)
        await simulator.start()
        while not stop.is_set() and not (idle and simulator.idle_for() > idle):
            try:
                await asyncio.wait_for(stop.wait(), timeout=5)
            except TimeoutError:
                pass
    finally:
        await simulator.close()


def _use_plain_letters() -> None:
    """Have the C library treat letters as in English, before protobuf names fields of JSON by its `toupper`.

    In Turkish the capital of `i` has a dot: `enableExternalIps` would be a field that nobody knows.
    """
    try:
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    except locale.Error:
        locale.setlocale(locale.LC_CTYPE, "C")


def _lift_limits() -> None:
    """Set soft limits as a login does: programs on hosts inherit them, and not those of who starts this."""
    for kind in UNLIMITED:
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (hard, hard))
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    soft = STACK if hard == resource.RLIM_INFINITY else min(STACK, hard)
    resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))


if __name__ == "__main__":
    main()
