"""Commands that take turns: at each request a seeded draw decides which of them goes on, or is killed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

STEPS = 5000
"""More turns than any schedule takes: commands that wait for each other for ever fail."""


class Killed(BaseException):
    """The end of a command by kill -9: none of its code runs any more."""


@dataclass
class Command:
    """A command in a thread of its own, which waits for its turn before each request."""

    name: str
    work: Callable[[], object]
    result: object = None
    error: BaseException | None = None
    is_over: bool = False
    is_killed: bool = False
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    pause: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def run(self) -> None:
        self.turn.acquire()
        try:
            if not self.is_killed:
                self.result = self.work()
        except BaseException as error:
            self.error = error
        self.is_over = True
        self.pause.release()

    def wait_for_turn(self) -> None:
        """Called before each request, in the command's thread."""
        if self.is_killed:
            raise Killed
        self.pause.release()
        self.turn.acquire()
        if self.is_killed:
            raise Killed

    def step(self) -> None:
        """Let it run until its next request or its end."""
        self.turn.release()
        self.pause.acquire()


def take_turns(commands: list[Command], seed: int, *, kills: float = 0.0) -> None:
    """Run all commands until each is over; `kills` is the chance that a turn ends its command."""
    draw = random.Random(seed)
    threads = {command.name: threading.Thread(target=command.run, daemon=True) for command in commands}
    by_thread.update(zip(threads.values(), commands, strict=True))
    for thread in threads.values():
        thread.start()
    for _ in range(STEPS):
        running = [command for command in commands if not command.is_over]
        if not running:
            return
        command = draw.choice(running)
        command.is_killed = command.is_killed or draw.random() < kills
        command.step()
    raise AssertionError(f"seed {seed}: the commands wait for each other")


by_thread: dict[threading.Thread, Command] = {}


def next_turn() -> None:
    """Wait for the turn of the command of this thread, if it is one of those that take turns."""
    command = by_thread.get(threading.current_thread())
    if command:
        command.wait_for_turn()
