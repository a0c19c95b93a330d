"""Where the output of workers goes: files of their own, or the end of it in memory."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tpuctl.errors import StateError
from tpuctl.flows.remote import execution
from tpuctl.flows.remote.execution import Output, OutputEnds, OutputFiles


class TestFiles:
    def test_each_stream_of_each_worker_has_one_that_its_user_alone_reads(self, tmp_path: Path) -> None:
        folder = tmp_path / "new/output"
        with OutputFiles(folder, [0, 2]) as files:
            for output in (Output(0, "stdout", b"a"), Output(2, "stderr", b"b"), Output(0, "stdout", b"c")):
                files.take(output)
            assert files.path(2, "stderr").read_bytes() == b"b", "at once"
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
            "worker-0.out": b"ac", "worker-0.err": b"", "worker-2.out": b"", "worker-2.err": b"b"
        }  # fmt: skip
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}

    def test_those_of_an_earlier_command_are_replaced_and_a_link_is_not_followed(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "precious").write_text("kept")
        (tmp_path / "output").mkdir()
        (tmp_path / "output/worker-0.out").symlink_to(tmp_path / "precious")
        (tmp_path / "output/worker-0.err").write_text("an earlier, longer text")
        with OutputFiles(tmp_path / "output", [0]) as files:
            files.take(Output(0, "stderr", b"new"))
        assert (tmp_path / "output/worker-0.err").read_text() == "new"
        assert not (tmp_path / "output/worker-0.out").is_symlink()
        assert (tmp_path / "precious").read_text() == "kept"

    def test_that_cannot_be_made_are_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "output/worker-0.err").mkdir(parents=True)
        with pytest.raises(StateError) as caught, OutputFiles(tmp_path / "output", [0]):
            pass
        assert caught.value.message.startswith(
            f"The output cannot be written to {tmp_path}/output/worker-0.err: "
        )
        assert caught.value.hint == (
            "Choose another --output-dir; the command was ended on the hosts if it had begun."
        )

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
    def test_on_a_full_disk_are_an_error(self, tmp_path: Path) -> None:
        with OutputFiles(tmp_path, [0]) as files, open("/dev/full", "wb", buffering=0) as full:
            files._files[0, "stdout"] = full
            with pytest.raises(StateError) as caught:
                files.take(Output(0, "stdout", b"a"))
        assert caught.value.message == (
            f"The output cannot be written to {tmp_path}: No space left on device."
        )


class TestEnds:
    @pytest.mark.parametrize(
        ("pieces", "text", "dropped"),
        [
            ([b"12345678"], "12345678", 0),
            ([b"1234", b"5678"], "12345678", 0),
            ([b"123456789"], "23456789", 1),
            ([b"1234567812345678"], "12345678", 8),
            ([b"12345678", b"12345678", b"9"], "23456789", 9),
            ([b"123456781234567", b"8", b"90", b"ab"], "567890ab", 12),
            ([], "", 0),
            ([b"a\xffb"], "a\ufffdb", 0),
        ],
    )
    def test_keep_the_last_bytes_of_a_stream_and_count_the_others(
        self, monkeypatch: pytest.MonkeyPatch, pieces: list[bytes], text: str, dropped: int
    ) -> None:
        monkeypatch.setattr(execution, "MOST_KEPT", 8)
        ends = OutputEnds()
        for piece in pieces:
            ends.take(Output(1, "stdout", piece))
            assert len(ends.stream(1, "stdout").data) <= 16, "twice as much is in memory at the most"
        kept = ends.stream(1, "stdout")
        assert (kept.text(), kept.dropped) == (text, dropped)

    def test_are_apart_for_each_stream_of_each_worker(self) -> None:
        ends = OutputEnds()
        ends.take(Output(0, "stdout", b"a"))
        ends.take(Output(0, "stderr", b"b"))
        ends.take(Output(1, "stdout", b"c"))
        streams = ((0, "stdout"), (0, "stderr"), (1, "stdout"), (1, "stderr"))
        assert [ends.stream(*stream).text() for stream in streams] == ["a", "b", "c", ""]  # type: ignore[arg-type]
