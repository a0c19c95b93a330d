"""Time that passes by waiting alone, for limits that nobody wants to wait for."""

from __future__ import annotations


class PassingTime:
    """A clock that each pause moves on, at once."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
