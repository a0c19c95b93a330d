"""What commands keep on this machine is for its user alone, also under the umask of a careless login."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from tests.running_simulator import CommandResult, RunningSimulator

COMMANDS = (
    ("up", "v3-8", "--name", "n1", "--spot", "--yes"),
    ("price", "v3-8"),
    ("submit", "job.py", "--name", "r1", "--env", "KEY=hunter2"),
    ("exec", "n1", "--host-keys", "first-contact", "--", "true"),
    ("ssh", "n1", "--dry-run"),
    ("ls",),
)
FOR_ALL = "ssh/id_ed25519.pub"
"""A public key, in a folder that is private."""


def test_only_their_user_reads_what_commands_keep(
    tpuctl: Callable[..., CommandResult], simulator: RunningSimulator, tmp_path: Path
) -> None:
    Path("job.py").write_text("print('hello')\n")
    earlier = os.umask(0)
    try:
        for words in COMMANDS:
            result = tpuctl(*words)
            assert result.code == 0, (words, result.err)
    finally:
        os.umask(earlier)
    state = tmp_path / "state"
    names = [
        path.relative_to(state) for path in state.rglob("*") if path.relative_to(state).parts[0] != "sim"
    ]
    assert {name.parts[0] for name in names} == {"completion", "host-keys", "launches", "prices", "ssh"}
    readable = [str(name) for name in names if stat.S_IMODE((state / name).stat().st_mode) & 0o077]
    assert readable == [FOR_ALL]
