"""Learns that somebody asks to stop the run: by a file on this host, and by an object of the bucket."""

from __future__ import annotations

import os
import time
from typing import Optional

from tpuctl.worker import gcs, timing
from tpuctl.worker.records import LARGEST_STOP, STOP_FILE, Spec, StopRequest, read_stop
from tpuctl.worker.reporting.logs import say


class Stops:
    """Looks for the request to stop one run; `folder` is the attempt's on this host."""

    def __init__(self, bucket: gcs.Bucket, spec: Spec, folder: str) -> None:
        self._bucket = bucket
        self._run = spec.run
        self._name = "runs/%s/%s" % (spec.run, STOP_FILE)
        self._path = os.path.join(folder, STOP_FILE)
        self._refused = 0
        """Generation of an object that is no request: it is said once."""
        self._next = time.monotonic() + timing.HEARTBEAT
        self.request: Optional[StopRequest] = None
        """Who asks, once somebody does; never taken back."""

    def look(self) -> bool:
        """Return whether somebody asks by now: the host's file is looked for each time.

        The bucket is asked with each heartbeat. Raises gcs.GcsError where it does not answer.
        """
        if self.request is None:
            self.request = self._on_disk()
        if self.request is None and time.monotonic() >= self._next:
            self.look_in_bucket()
        return self.request is not None

    def look_in_bucket(self) -> None:
        """Ask the bucket now: a script may have failed because those of other workers were stopped."""
        self._next = time.monotonic() + timing.HEARTBEAT
        self.request = self.request or self._in_bucket()

    def _on_disk(self) -> Optional[StopRequest]:
        try:
            with open(self._path, "rb") as stream:
                data = stream.read(LARGEST_STOP)
        except OSError:
            return None
        try:
            return read_stop(data, self._run)
        except ValueError as error:
            say("%s is no request to stop this run: %s" % (self._path, error))
            os.unlink(self._path)
            return None

    def _in_bucket(self) -> Optional[StopRequest]:
        """Return the request in the bucket; anybody may have written it, and what is none stops nothing."""
        generation, size = self._bucket.stat(self._name)
        if not generation or generation == self._refused:
            return None
        try:
            if size > LARGEST_STOP:
                raise ValueError("it has %d bytes" % size)
            return read_stop(self._bucket.get(self._name, generation), self._run)
        except FileNotFoundError:  # replaced in this moment
            return None
        except ValueError as error:
            say("gs://%s/%s is no request to stop this run: %s" % (self._bucket.name, self._name, error))
            self._refused = generation
            return None
