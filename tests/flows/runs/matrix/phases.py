"""The phases of a run's life, the script that goes through them, and what holds it in each."""

from __future__ import annotations

QUEUED, PREPARING, INSTALLING, BARRIER, RUNNING, SAVING, ENDING = ALL = (
    "queued", "preparing", "installing", "barrier", "running", "saving", "ending",
)  # fmt: skip
"""In the line of its TPU; fetching code; at its set-up command; waiting for other hosts; at its work; asked
to stop; with its script ended and its log on the way."""
HELD_BY = {
    PREPARING: {"method": "storage.objects.get", "object": "bundles/*", "skip": 1},  # `submit` looks once
    ENDING: {"method": "storage.objects.create", "object": "*/log/*"},
}
"""Phase -> requests to the bucket that are not answered meanwhile."""
HEADER = '# /// script\n# dependencies = []\n# [tool.tpuctl]\n# framework = "jax"\n# ///\n'
SCRIPT = (
    HEADER
    + """
import os, pathlib, signal, subprocess, sys, time
phase = sys.argv[1]
here = pathlib.Path("..")
def wait():
    while not (here / "go").exists():
        time.sleep(0.02)
def save(*_):
    print("saving", flush=True)
    (here / "phase").touch()
    wait()
    sys.exit(0)
signal.signal(signal.SIGTERM, save if phase == "saving" else signal.SIG_DFL)
subprocess.Popen(["setsid", "sleep", "600"])
for step in range(200):
    print("step", step, flush=True)
(here / "running").touch()
while phase != "ending" and not (here / "go").exists():
    (here / "work").write_text("work")
    time.sleep(0.02)
(here / "phase").touch()
"""
)
LINES = b"".join(b"step %d\n" % step for step in range(200))
EARLIER = HEADER + "import os, time\nwhile not os.path.exists('../go'):\n  time.sleep(0.05)\n"
"""What a QUEUED run waits for."""
SETUP = {
    INSTALLING: "touch ../phase; while [ ! -e ../go ]; do sleep 0.05; done",
    BARRIER: "[ $TPUCTL_WORKER != 3 ] || while [ ! -e ../go ]; do sleep 0.05; done",
}
"""Phase -> the set-up command that holds the run there."""
