"""The folder of a download: new, empty, or with the same content; one command at a time writes there.

The bytes of downloads in several threads, which end with the command.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tpuctl.errors import UsageError
from tpuctl.flows.download_folder import check_folder, filling
from tpuctl.flows.progress import ByteCount, EndedError
from tpuctl.local.staged_folder import STAGING

HINT = "Name another folder with --to."


@pytest.mark.parametrize("content", [(), (STAGING,)])
def test_a_new_folder_and_one_whose_download_has_placed_nothing_are_filled(
    tmp_path: Path, content: tuple[str, ...]
) -> None:
    for name in content:
        (tmp_path / name).mkdir()
    check_folder(tmp_path, "run 'r1'", lambda: False)
    check_folder(tmp_path / "new", "run 'r1'", lambda: False)


def test_one_with_files_is_filled_if_it_holds_the_content(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check_folder(tmp_path, "run 'r1'", lambda: True)
    with pytest.raises(UsageError) as refused:
        check_folder(tmp_path, "run 'r1'", lambda: False)
    assert refused.value.message == f"{tmp_path} has files that are not of run 'r1'."
    assert refused.value.hint == HINT


def test_one_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    def fail() -> bool:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as refused:
        check_folder(tmp_path, "run 'r1'", fail)
    assert refused.value.message == f"{tmp_path} cannot be read: Permission denied."
    assert refused.value.hint == HINT


@pytest.mark.parametrize(
    ("error", "reason"),
    [(OSError(28, "No space left on device"), "No space left on device"), (OSError("x"), "x")],
)
def test_one_that_cannot_be_written_says_why(tmp_path: Path, error: OSError, reason: str) -> None:
    with pytest.raises(UsageError) as refused, filling(tmp_path / "a", lambda text: None, lambda: None):
        raise error
    assert refused.value.message == f"{tmp_path / 'a'} cannot be written: {reason}."
    assert refused.value.hint == HINT


def test_a_second_command_says_that_it_waits_and_looks_at_the_folder_then(tmp_path: Path) -> None:
    reports: list[str] = []
    waits, checked = threading.Event(), list[bool]()

    def say(text: str) -> None:
        reports.append(text)
        waits.set()

    def fill() -> None:
        with filling(tmp_path / "a", say, lambda: checked.append(is_over)):
            pass

    is_over = False
    with filling(tmp_path / "a", reports.append, lambda: None):
        second = threading.Thread(target=fill, daemon=True)
        second.start()
        assert waits.wait(60)
        is_over = True
    second.join()
    assert reports == [f"waiting for another command that writes to {tmp_path / 'a'}"]
    assert checked == [True]


def test_what_has_arrived_is_told_with_what_is_expected_at_least() -> None:
    told: list[tuple[int, int]] = []
    with ByteCount(lambda here, size: told.append((here, size))) as count:
        count.add(2)
        count.expect(10)
        count.expect(5)
        count.add(3)
        count.add(7)
        count.expect(20)
        count.add(0)
    assert told == [(2, 2), (5, 10), (12, 12), (12, 20)]


def test_downloads_in_other_threads_end_with_an_error_of_the_command_and_not_without() -> None:
    count = ByteCount(lambda here, size: None)
    with count:
        pass
    count.add(1)
    with pytest.raises(KeyboardInterrupt), count:
        raise KeyboardInterrupt
    with pytest.raises(EndedError):
        count.add(1)


def test_bytes_of_several_threads_are_all_counted() -> None:
    told: list[tuple[int, int]] = []
    count = ByteCount(lambda here, size: told.append((here, size)))
    threads = [
        threading.Thread(target=lambda: [count.add(1) for _ in range(100)], daemon=True) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [(number, number) for number in range(1, 401)]
