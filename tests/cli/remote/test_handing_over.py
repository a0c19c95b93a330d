"""Another program gets the terminal with what was printed before, and with all signals."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tpuctl.cli.remote.ssh import hand_over
from tpuctl.errors import ConfigError


def test_the_program_comes_after_what_was_printed_and_hears_every_signal() -> None:
    code = (
        "import sys\nfrom tpuctl.cli.remote.ssh import hand_over\n"
        "sys.stdout.write('first\\n'); sys.stderr.write('said ')\n"
        "hand_over(['/bin/sh', '-c', 'echo second; echo more >&2; kill -PIPE $$; echo alive'])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout == "first\nsecond\n"
    assert result.stderr == "said more\n"
    assert result.returncode == -signal.SIGPIPE


@pytest.fixture
def _signals() -> Iterator[None]:
    names = (signal.SIGPIPE, signal.SIGXFSZ)
    before = [signal.getsignal(number) for number in names]
    yield
    for number, handler in zip(names, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
def test_a_program_that_cannot_be_run_is_named() -> None:
    with pytest.raises(ConfigError) as refused:
        hand_over(["/nowhere/ssh", "n1"])
    assert refused.value.message == "/nowhere/ssh cannot be run: No such file or directory."
