"""Wait for a run until somebody presses Enter: the wait ends, and the run goes on."""

import threading

import tpuctl
from tpuctl.errors import InterruptedByUser


def wait_until_enter(run: tpuctl.Run) -> str:
    """Return how the run ended, or its state where the user did not want to wait any longer."""
    stop = tpuctl.Stop()

    def listen() -> None:
        input("Press Enter to stop waiting: ")
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    try:
        return run.wait(stop=stop, progress=lambda step: print(step.text)).outcome
    except InterruptedByUser:
        return run.state
