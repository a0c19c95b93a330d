"""What befalls a run in each phase, how it ends then, and within which time: the rows of docs/runs.md."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from tests.flows.runs.matrix import programs
from tests.flows.runs.matrix.phases import (
    ALL,
    BARRIER,
    ENDING,
    INSTALLING,
    PREPARING,
    QUEUED,
    RUNNING,
    SAVING,
)
from tests.flows.runs.matrix.site import Site
from tpuctl import runs

KILLED = "the program that runs the script was ended by SIGKILL"
ADA = "stopped by ada@example.com"
BEFORE = (QUEUED, PREPARING, INSTALLING, BARRIER)
"""Phases before the script has started."""


@dataclass(frozen=True)
class Ending:
    """How a run ends."""

    outcome: str
    words: str = ""
    """In its evidence."""
    meanwhile: str = ""
    """An outcome that readers may see before, while better evidence cannot be had."""
    once_back: str = ""
    """The outcome after the dead host has booted, where that is another."""


GOES_ON = {**dict.fromkeys(ALL, Ending(runs.SUCCEEDED)), SAVING: Ending(runs.STOPPED, ADA)}


@dataclass(frozen=True)
class Fault:
    """What befalls a run."""

    act: Callable[[Site], object]
    endings: Mapping[str, Ending]
    """By phase, where that is possible."""
    within: float
    """Seconds after which the run has ended, by the bucket's clock, at the product's own times."""
    several: Mapping[str, Ending] = field(default_factory=dict)
    """Phase -> its ending on several hosts, where that is another."""
    begin: Callable[[Site], object] = lambda site: None
    """What is so from the start."""
    goes_on: Collection[str] = ALL
    """Phases in which what stands still goes on then."""
    is_shortened: bool = False
    """Whether the product's times of silence are divided by FACTOR, as are the times here."""
    ends_hosts: bool = False
    """Whether a host goes down, with what of its log was not shipped."""
    loses_log: bool = False
    """Whether the bucket loses the beginning of its log."""
    hides_end: bool = False
    """Whether the bucket never learns of the end: readers learn it of the hosts."""
    lasts: float = 0.0
    """Seconds that it lasts."""
    impossible: Mapping[str, str] = field(default_factory=dict)
    """Phase -> why it cannot befall a run there."""


def _partition(seconds: float, endings: Mapping[str, Ending]) -> Fault:
    return Fault(
        lambda site: site.strike_last("network-loss", duration=seconds / programs.FACTOR),
        endings, 120, begin=Site.shorten, is_shortened=True, lasts=seconds,
    )  # fmt: skip


def _clock_of_laptop(site: Site) -> None:
    site.condition = "ahead" if site.hosts == 1 else "behind"


def _attach(site: Site) -> None:
    site.is_attached = True


def _attach_terminal(site: Site) -> None:
    site.terminal = 0


def _give_up_soon(site: Site) -> None:
    site.ask_early()
    site.change_program({programs.TIMING: "\nREFUSED_TIMEOUT = 5.0\n"})


UNHEARD = "no word of worker "
REFUSED = " could not be written: 403 "
DELETED = " could not be written: 404 The specified bucket does not exist"
NO_CODE = "could not start: FileNotFoundError: "
FAULTS: dict[str, Fault] = {
    "kill -9 of the script": Fault(
        Site.kill_script,
        {RUNNING: Ending(runs.FAILED, "script was ended by SIGKILL"), SAVING: Ending(runs.STOPPED, ADA)},
        30, goes_on=(SAVING,),
        impossible={**dict.fromkeys(BEFORE, "it has not started"), ENDING: "it has ended"},
    ),
    "kill -9 of the supervisor": Fault(
        Site.kill_supervisor,
        {
            **dict.fromkeys(BEFORE, Ending(runs.FAILED, f"could not start: {KILLED}")),
            RUNNING: Ending(runs.FAILED, KILLED),
            SAVING: Ending(runs.STOPPED, ADA),
            ENDING: Ending(runs.SUCCEEDED),
        },
        30, goes_on=(SAVING, ENDING),
    ),
    "kill -9 of the client": Fault(Site.kill_client, GOES_ON, 60, begin=_attach),
    "closed terminal": Fault(Site.close_terminal, GOES_ON, 60, begin=_attach_terminal),
    "stopped supervisor, --force": Fault(
        Site.stop_supervisor,
        {**dict.fromkeys(ALL, Ending(runs.STOPPED, "stopped by ")), ENDING: Ending(runs.SUCCEEDED)},
        60, goes_on=(SAVING, ENDING),
    ),
    "retention": Fault(
        Site.retain,
        {**dict.fromkeys(ALL, Ending(runs.SUCCEEDED, REFUSED)), SAVING: Ending(runs.STOPPED, REFUSED)},
        60, begin=_give_up_soon, hides_end=True,
    ),
    "rights withdrawn": Fault(
        Site.withdraw_rights,
        {**dict.fromkeys(ALL, Ending(runs.SUCCEEDED, REFUSED)), SAVING: Ending(runs.STOPPED, REFUSED)},
        60, begin=_give_up_soon, hides_end=True, several=dict.fromkeys(BEFORE, Ending(runs.FAILED, REFUSED)),
    ),
    "default hold": Fault(
        Site.hold,
        {**dict.fromkeys(ALL, Ending(runs.SUCCEEDED, REFUSED)), SAVING: Ending(runs.STOPPED, REFUSED)},
        60, begin=_give_up_soon, hides_end=True,
    ),
    "records deleted": Fault(Site.forget_records, GOES_ON, 60),
    "bucket emptied": Fault(
        Site.empty_bucket,
        {**GOES_ON, **dict.fromkeys((QUEUED, PREPARING), Ending(runs.FAILED, NO_CODE))},
        90, loses_log=True,
    ),
    "bucket deleted": Fault(
        Site.delete_bucket,
        {
            **dict.fromkeys((QUEUED, PREPARING), Ending(runs.FAILED, DELETED)),
            **dict.fromkeys((INSTALLING, BARRIER, RUNNING, ENDING), Ending(runs.SUCCEEDED, DELETED)),
            SAVING: Ending(runs.STOPPED, DELETED),
        },
        90, begin=_give_up_soon, loses_log=True, hides_end=True,
        several=dict.fromkeys((INSTALLING, BARRIER), Ending(runs.FAILED, DELETED)),
    ),
    "another bucket configured": Fault(Site.configure_another_bucket, GOES_ON, 60),
    "preemption": Fault(
        lambda site: site.add("preemption", notice=0.5),
        {**dict.fromkeys(ALL, Ending(runs.PREEMPTED)), SAVING: Ending(runs.STOPPED, ADA)},
        60, goes_on=(), ends_hosts=True, begin=Site.ask_early,
    ),
    "reboot": Fault(
        lambda site: site.add("maintenance", notice=0.5),
        {
            **dict.fromkeys(ALL, Ending(runs.MAINTENANCE)),
            SAVING: Ending(runs.STOPPED, ADA),
            ENDING: Ending(runs.SUCCEEDED, meanwhile=runs.MAINTENANCE),
        },
        60, goes_on=(), ends_hosts=True, begin=Site.ask_early,
    ),
    "maintenance without notice": Fault(
        Site.maintain,
        {
            **dict.fromkeys(ALL, Ending(runs.MAINTENANCE)),
            SAVING: Ending(runs.STOPPED, ADA),
            ENDING: Ending(runs.SUCCEEDED, meanwhile=runs.MAINTENANCE),
        },
        90, goes_on=(), ends_hosts=True, begin=Site.ask_early,
    ),
    "host death": Fault(
        Site.kill_host,
        {
            **dict.fromkeys(ALL, Ending(runs.LOST, UNHEARD)),
            SAVING: Ending(runs.STOPPED, ADA),
            ENDING: Ending(runs.LOST, UNHEARD, once_back=runs.SUCCEEDED),
        },
        17 * 60, begin=Site.shorten, goes_on=(PREPARING, SAVING, ENDING), is_shortened=True, ends_hosts=True,
    ),
    "partition of 30 s": _partition(30, GOES_ON),
    "partition of 150 s": _partition(150, GOES_ON),
    "partition of 10 min": _partition(600, GOES_ON),
    "storm of 503": Fault(Site.storm, GOES_ON, 90),
    "full disk": Fault(
        lambda site: site.add("disk-full"),
        {
            **dict.fromkeys((QUEUED, PREPARING), Ending(runs.FAILED, "could not start")),
            **dict.fromkeys((INSTALLING, BARRIER, RUNNING), Ending(runs.FAILED, "disk full")),
            SAVING: Ending(runs.STOPPED, ADA),
            ENDING: Ending(runs.SUCCEEDED),
        },
        30, goes_on=[phase for phase in ALL if phase != RUNNING],
    ),
    "laptop's clock an hour wrong": Fault(Site.look, GOES_ON, 60, begin=_clock_of_laptop),
    "hosts' clocks an hour wrong": Fault(
        Site.look, GOES_ON, 60, begin=lambda site: site.change_program(programs.WRONG_CLOCKS)
    ),
}  # fmt: skip
ALONE = {BARRIER: "a run on one host waits for no other"}


def reason_against(fault: str, phase: str, hosts: int) -> str:
    """Return why there is no such cell; empty for one that there is."""
    return FAULTS[fault].impossible.get(phase, "") or (ALONE.get(phase, "") if hosts == 1 else "")
