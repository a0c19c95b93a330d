"""The same work on many items: order, width, one result for each, and all errors counted."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tpuctl.errors import DeadlineError, HostError
from tpuctl.parallel import MOST, WIDTH, Result, fanout, values, within
from tpuctl.polling import Stopped, check, sleep, stopped_by


def fail_on(*bad: int) -> Callable[[int], int]:
    def work(item: int) -> int:
        if item in bad:
            raise HostError(f"Worker {item} is gone.", hint="Look.")
        return item * 10

    return work


def test_results_come_in_the_order_of_the_items_whichever_ends_first() -> None:
    later = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            assert later.wait(60)
        if item == 3:
            later.set()
        return item

    assert values(fanout(work, range(4))) == [0, 1, 2, 3]


def test_each_item_has_one_result_also_when_others_fail() -> None:
    results = fanout(fail_on(1, 3), [1, 2, 3])
    assert [result.item for result in results] == [1, 2, 3]
    assert [result.value for result in results] == [None, 20, None]
    assert [str(result.error) for result in results] == ["Worker 1 is gone.", "None", "Worker 3 is gone."]


def test_a_width_of_one_is_a_plain_loop_in_this_thread() -> None:
    this_thread = threading.current_thread()
    assert values(fanout(lambda _: threading.current_thread(), range(3), width=1)) == [this_thread] * 3


def test_a_single_item_needs_no_thread() -> None:
    assert values(fanout(lambda _: threading.current_thread(), [7])) == [threading.current_thread()]


def test_as_many_as_the_width_run_at_once_and_no_more() -> None:
    together = threading.Barrier(3, timeout=60)

    def work(_: int) -> str:
        together.wait()  # breaks, failing the test, unless three are here at once
        return threading.current_thread().name

    assert len(set(values(fanout(work, range(300), width=3)))) == 3


def test_no_items_have_no_results() -> None:
    assert fanout(fail_on(), []) == []
    assert values([]) == []


def test_the_first_error_is_raised_with_a_count_of_all() -> None:
    with pytest.raises(HostError, match=r"Worker 2 is gone\.") as failed:
        values(fanout(fail_on(2, 3), range(5)))
    assert failed.value.hint == "2 of 5 failed. Look."


def test_a_single_error_keeps_its_hint() -> None:
    with pytest.raises(HostError) as failed:
        values(fanout(fail_on(2), range(5)))
    assert failed.value.hint == "Look."


@pytest.mark.parametrize("width", [1, 8])
def test_a_bug_is_raised_and_not_collected(width: int) -> None:
    def work(_: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fanout(work, range(3), width=width)


def test_values_may_be_none() -> None:
    assert values([Result(1), Result(2)]) == [None, None]


def test_an_iterator_is_read_once() -> None:
    assert values(fanout(fail_on(), iter([1, 2]))) == [10, 20]


def test_a_stop_ends_the_work_on_every_item_and_is_raised_once() -> None:
    event, ended = threading.Event(), list[int]()
    begun = threading.Barrier(4)

    def work(item: int) -> None:
        begun.wait(30)
        try:
            sleep(3600)
        finally:
            ended.append(item)

    def stop() -> None:
        begun.wait(30)
        event.set()

    stopper = threading.Thread(target=stop, daemon=True)
    stopper.start()
    with stopped_by(event):
        with pytest.raises(Stopped):
            fanout(work, range(3))
        check()  # a clean-up of the caller is not cut short
    stopper.join()
    assert sorted(ended) == [0, 1, 2]


def test_calls_inside_calls_share_their_threads() -> None:
    """As of the hosts of many slices: each may hold a connection."""
    own, inner = MOST // WIDTH, 2 * MOST

    def threads(_: int) -> int:
        together = threading.Barrier(own, timeout=60)

        def work(_: int) -> int:
            together.wait()
            return threading.get_ident()

        return len(set(values(fanout(work, range(inner)))))

    assert values(fanout(threads, range(WIDTH))) == [own] * WIDTH


class TestWithin:
    """What a command can do without."""

    def test_an_answer_in_time_is_the_value(self) -> None:
        assert within(lambda: 7).value == 7

    def test_what_hangs_is_an_error_and_is_told_to_stop(self) -> None:
        ended = threading.Event()

        def hang() -> None:
            try:
                sleep(600)
            finally:
                ended.set()

        error = within(hang, 0.05).error
        assert isinstance(error, DeadlineError)
        assert ended.wait(60)

    @pytest.mark.parametrize("error", [HostError("It is gone."), ZeroDivisionError("by zero")])
    def test_whatever_fails_is_an_error(self, error: Exception) -> None:
        def fail() -> None:
            raise error

        told = within(fail).error
        assert told
        assert told.message == str(error)
