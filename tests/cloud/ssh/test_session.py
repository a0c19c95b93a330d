"""Commands and files over an open connection to a simulated host: quoting, results, and what can go wrong."""

from __future__ import annotations

import threading
from typing import Any

import paramiko
import pytest

from tests.cloud.ssh.scripted_channel import LOST, ScriptedChannel, ScriptedTransport
from tpuctl.cloud.ssh import SshSession
from tpuctl.errors import HostError


class TestCommands:
    @pytest.mark.parametrize(
        "word",
        [
            "a b",
            "",
            "'",
            '"',
            'it\'s "quoted"',
            "line\nline",
            "$(touch evil)",
            "`id`",
            "$HOME",
            "*",
            "~",
            "\\",
            "!",
            "a;b",
            "|",
            "&",
            "ü☃",
            "--",
            "\t",
            "#",
        ],
    )
    def test_an_argument_arrives_as_it_is(self, session: SshSession, word: str) -> None:
        program = "import sys; sys.stdout.write(repr(sys.argv[1:]))"
        result = session.run(["python3", "-c", program, word, "last"])
        assert result.stdout == repr([word, "last"])
        assert session.run(["ls", "evil"]).exit_code != 0

    def test_a_failing_command_has_a_result(self, session: SshSession) -> None:
        result = session.run(["sh", "-c", "echo out; echo err >&2; exit 7"])
        assert (result.exit_code, result.stdout, result.stderr) == (7, "out\n", "err\n")

    def test_a_missing_program_is_a_failing_command(self, session: SshSession) -> None:
        assert session.run(["no-such-program"]).exit_code == 127

    def test_output_that_is_not_text_is_decoded_nevertheless(self, session: SshSession) -> None:
        assert session.run(["printf", r"\377x"]).stdout.endswith("x")

    def test_a_command_that_takes_too_long_is_a_lost_host(self, session: SshSession) -> None:
        with pytest.raises(HostError, match=r"worker 0 of 'n1': a command did not end in time"):
            session.run(["sleep", "60"], timeout=0.2)

    def test_a_timeout_is_reported_also_when_the_connection_ends_meanwhile(
        self, session: SshSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        close = paramiko.Channel.close

        def close_late(channel: paramiko.Channel) -> None:
            close(channel)
            raise EOFError

        monkeypatch.setattr(paramiko.Channel, "close", close_late)
        with pytest.raises(HostError, match=r"worker 0 of 'n1': a command did not end in time"):
            session.run(["sleep", "60"], timeout=0.2)

    def test_the_connection_serves_the_next_command_after_a_timeout(self, session: SshSession) -> None:
        with pytest.raises(HostError, match="did not end in time"):
            session.run(["sleep", "60"], timeout=0.2)
        assert session.run(["echo", "next"]).stdout == "next\n"

    def test_a_lost_connection_is_a_lost_host(self, session: SshSession, simulator) -> None:
        name = "projects/sim-project/locations/europe-west4-a/nodes/n1"
        timer = threading.Timer(0.2, lambda: simulator.call(simulator.world.preempt(name)))
        timer.start()
        try:
            with pytest.raises(HostError, match="worker 0 of 'n1': "):
                session.run(["sleep", "60"], timeout=20)
        finally:
            timer.join()

    def test_a_file_arrives_as_it_is(self, session: SshSession) -> None:
        session.put(b"\x00\xff\r\n" * 100_000, "data.bin")
        assert session.run(["wc", "-c", "data.bin"]).stdout.split()[0] == "400000"
        session.put(b"", "data.bin")
        assert session.run(["wc", "-c", "data.bin"]).stdout.split()[0] == "0"

    def test_a_file_is_private_from_its_first_byte_also_one_that_exists(self, session: SshSession) -> None:
        session.run(["sh", "-c", "umask 0 && touch old && ln old same"])
        for name in ("old", "new"):
            session.put(b"secret", name)
        modes = session.run(["stat", "-c", "%a", "old", "new", "same"]).stdout.split()
        assert modes == ["600", "600", "600"]

    def test_a_missing_folder_is_an_error_of_the_host(self, session: SshSession) -> None:
        with pytest.raises(HostError, match=r"worker 0 of 'n1': .*No such file"):
            session.put(b"", "nowhere/data.bin")


class TestConnectionsThatEnd:
    """At each step of a command: a lost connection is told from a host that refuses."""

    def session(self, channel: ScriptedChannel | Exception, *, is_lost: bool = False) -> SshSession:
        transport: Any = ScriptedTransport(channel, is_lost=is_lost, is_late=True)
        return SshSession(transport, "worker 1 of 'n1'", "ada")

    @pytest.mark.parametrize("code", [0, 1, 255])
    def test_a_command_has_its_code_and_its_output(self, code: int) -> None:
        channel = ScriptedChannel([b"o\xffut"], [b"e\xffrr"], code=code)
        result = self.session(channel, is_lost=True).run(["a b", "$c"], stdin=b"in")
        assert (result.exit_code, result.stdout, result.stderr) == (code, "o\ufffdut", "e\ufffdrr")
        assert (channel.commands, channel.sent) == (["'a b' '$c'"], [b"in"])
        assert channel.closed.is_set()

    @pytest.mark.parametrize(
        ("is_lost", "text"), [(True, "it closed the connection"), (False, r"Channel closed\.")]
    )
    def test_no_channel(self, is_lost: bool, text: str) -> None:
        with pytest.raises(HostError, match=f"^worker 1 of 'n1': {text}"):
            self.session(LOST, is_lost=is_lost).run(["true"])

    @pytest.mark.parametrize(
        ("is_lost", "text"), [(True, "it closed the connection"), (False, "it refused to run a command")]
    )
    def test_no_command(self, is_lost: bool, text: str) -> None:
        channel = ScriptedChannel()
        channel.refusal = LOST
        with pytest.raises(HostError, match=f"^worker 1 of 'n1': {text}"):
            self.session(channel, is_lost=is_lost).run(["true"])
        assert channel.closed.is_set()

    def test_no_exit_code_on_a_lost_connection(self) -> None:
        with pytest.raises(HostError, match=r"^worker 1 of 'n1': it closed the connection"):
            self.session(ScriptedChannel(code=-1), is_lost=True).run(["true"])

    def test_no_exit_code_of_a_command_that_a_signal_ended(self) -> None:
        assert self.session(ScriptedChannel(code=-1)).run(["true"]).exit_code == -1

    def test_a_command_that_goes_on_has_its_own_window(self) -> None:
        channel = ScriptedChannel([b"out"])
        session = self.session(channel)
        process = session.start(["tail", "a b"], window=99)
        assert (process.read(), channel.commands) == (b"out", ["tail 'a b'"])
        transport: Any = session.transport
        assert transport.opened == [{"window_size": 99}]

    def test_whether_it_is_open(self) -> None:
        session = self.session(LOST, is_lost=True)
        assert session.is_open  # as far as is known
        session.transport.join(1)
        assert not session.is_open
