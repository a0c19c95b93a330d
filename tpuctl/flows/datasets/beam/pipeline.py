"""Builds the Apache Beam pipeline that stages one shard per element. The only module that imports Beam."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Thread
from typing import NoReturn

import apache_beam as beam
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, StandardOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState, create_runner
from apache_beam.utils.shared import Shared

from tpuctl.errors import HostError, UsageError, nearest
from tpuctl.flows.datasets.beam.worker import Task, Worker

_RUNNERS = {
    # Beam's DirectRunner without its first attempt, which downloads another program to run the pipeline in
    "direct": "FnApiRunner",
    # one that Beam has, and does not know by its short name
    "dask": "apache_beam.runners.dask.dask_runner.DaskRunner",
}
"""Short name of a runner -> the name by which Beam creates it."""
_ASK_THEIR_SERVER = {"portable", "flink", "spark", "prism", "samza", "kafkastreams"}
"""Runners with options that only their job server knows."""


_PARTITIONS = ("--dask_npartitions", "--dask_partition_size")
_MOST_PARTITIONS = 1000
"""Parts of the work that Dask deals out: by itself it makes one of 128 shards, for one worker."""


class Options:
    """The options of Beam that a user typed after `--`."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """Raise UsageError for an option or a runner that Beam does not know, and for a wrong value."""
        _import_options_of_dask()
        name: str = _parsed(arguments).runner or "DirectRunner"
        self.in_google_cloud = _short(name) == "dataflow"
        """Whether the workers are there, and not on this machine or around it."""
        self._runner = _runner(name)
        self._is_dask = _short(name) == "dask"
        self._arguments = list(arguments)

    def check(self) -> None:
        """Raise UsageError for what the runner refuses before it asks a service."""
        options = PipelineOptions([*self._arguments, "--dry_run=True"])  # else it asks for the bucket
        validator = PipelineOptionsValidator(options, self._runner)
        errors = _errors_of_locations(validator, options) if self.in_google_cloud else []
        if errors := errors or validator.validate():
            raise _wrong(" ".join(map(str, errors)), "Give what is missing after --.")

    def with_partitions(self, elements: int) -> Options:
        """Return the options with which a runner deals so many elements to all workers."""
        if not self._is_dask or any(argument.startswith(_PARTITIONS) for argument in self._arguments):
            return self
        return Options([*self._arguments, f"--dask_npartitions={min(elements, _MOST_PARTITIONS)}"])

    def pipeline(self) -> beam.Pipeline:
        """Return an empty pipeline; raises UsageError when its runner lacks an option, HostError."""
        try:
            return beam.Pipeline(runner=self._runner, options=PipelineOptions(self._arguments))
        except ValueError as error:
            why = " ".join(str(error).split()).removeprefix("Pipeline has validations errors: ")
            raise _wrong(why, "Give what is missing after --.") from error
        except Exception as error:  # that of Dataflow asks Google Cloud for credentials and a bucket
            raise _failed(_last_line(error)) from error


def run(options: Options, task: Task, shards: Sequence[tuple[int, str]]) -> None:
    """Have all shards (number in the plan, identity) staged.

    Raises UsageError for missing options, HostError when the pipeline fails. Ctrl-C cancels it.
    """
    state = _state(staging_pipeline(options, task, shards))
    if state not in (None, PipelineState.DONE):
        raise _failed(f"it ended as {state}")


def staging_pipeline(options: Options, task: Task, shards: Sequence[tuple[int, str]]) -> beam.Pipeline:
    """Return the pipeline that stages shards; raises as `Options.pipeline` does."""
    pipeline = options.with_partitions(len(shards)).pipeline()
    pipeline | beam.Create(shards) | beam.Reshuffle() | "Stage shards" >> beam.ParDo(_Stage(task))
    return pipeline


def _state(pipeline: beam.Pipeline) -> str | None:
    """Run a pipeline, and return the state it ends in.

    In a thread: in this one a runner would take Ctrl-C for a failure of the work it interrupts.
    """
    running: list[PipelineResult] = []
    ended: Future[str | None] = Future()

    def work() -> None:
        try:
            running.append(pipeline.run())
            ended.set_result(running[0].wait_until_finish())
        except BaseException as error:
            ended.set_exception(error)
        finally:
            for result in running:
                if close := getattr(getattr(result, "client", None), "close", None):
                    close()  # Dask's client, and the cluster if it was made for it

    Thread(target=work, name="pipeline", daemon=True).start()
    try:
        return ended.result()
    except KeyboardInterrupt:
        if running:
            running[0].cancel()
        raise
    except Exception as error:  # runners raise what they like: a RuntimeError around a worker's traceback
        raise _failed(_last_line(error)) from error


class _Stage(beam.DoFn):  # type: ignore[misc]  # Beam is not always there when types are checked
    """Stages shards with one Worker for all copies in its process: each would list the source again."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._shared = Shared()

    def setup(self) -> None:
        self._worker = self._shared.acquire(lambda: Worker(self._task), tag=self._task.run)

    def process(self, element: tuple[int, str]) -> None:
        self._worker.stage(*element)

    def teardown(self) -> None:
        del self._worker


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _wrong(message, "It is an option of Beam, after --.")

    def add_value_provider_argument(self, *names: str, **settings: object) -> None:
        """Templates alone set such an option later; a value given now is like any other."""
        self.add_argument(*names, **settings)  # type: ignore[arg-type]  # the settings are of argparse


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(add_help=False, allow_abbrev=False, conflict_handler="resolve")
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)
    parsed, unknown = parser.parse_known_args(list(arguments))
    if unknown and _short(parsed.runner or "") not in _ASK_THEIR_SERVER:
        flags = [flag for action in parser._actions for flag in action.option_strings]
        close = nearest(unknown[0].partition("=")[0], flags)
        raise _wrong(
            f"there is no option {unknown[0]}",
            f"Did you mean {' or '.join(close)}?" if close else "After -- are options of Beam alone.",
        )
    return parsed


def _errors_of_locations(validator: PipelineOptionsValidator, options: PipelineOptions) -> list[str]:
    """Return what is wrong with the folders of Dataflow: the validator makes a bucket where both are."""
    view = options.view_as(GoogleCloudOptions)
    names = [name for name in ("temp_location", "staging_location") if getattr(view, name)]
    return [error for name in names or ["temp_location"] for error in validator.validate_gcs_path(view, name)]


def _import_options_of_dask() -> None:
    """Have Beam know the options of its Dask runner, where that is installed."""
    try:
        import apache_beam.runners.dask.dask_runner  # noqa: F401, PLC0415
    except ImportError:
        pass


def _runner(name: str) -> PipelineRunner:
    try:
        return create_runner(_RUNNERS.get(_short(name), name))
    except ValueError as error:
        names = ", ".join(StandardOptions.KNOWN_RUNNER_NAMES)
        raise _wrong(f"there is no runner {name}", f"One of {names}.") from error
    except (ImportError, AttributeError) as error:
        raise _wrong(
            f"the runner {name} cannot be imported: {error}",
            "Those of Google Cloud need more of it: pip install 'apache-beam[gcp]'",
        ) from error


def _short(name: str) -> str:
    return name.lower().removesuffix("runner")


def _wrong(why: str, hint: str) -> UsageError:
    return UsageError(f"Beam cannot take these options: {why.rstrip('.')}.", hint=hint)


def _failed(why: str) -> HostError:
    return HostError(
        f"The Beam pipeline failed: {why.rstrip('.')}.",
        hint="Nothing was published. See its log, and run the same command again: complete shards are kept.",
    )


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
