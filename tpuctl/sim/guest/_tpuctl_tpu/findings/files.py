"""Refuses local files, which a TPU worker in another process cannot reach."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ..hooks import TensorFlow
from ..system import SystemState
from .recorder import Findings


def install(tensorflow: TensorFlow, findings: Findings, state: SystemState) -> None:
    """Refuse checkpoints on local paths while the TPU's worker is remote."""
    saver = tensorflow.saver.MultiDeviceSaver
    save, restore = saver.save, saver.restore

    def refuse(prefix: object, options: object, words: str) -> None:
        path = _text(tensorflow.tf, prefix)
        if state.remote and path and is_local(path) and not _written_here(options):
            refuse_path(tensorflow, findings, path, words)

    def save_checked(self: object, file_prefix: object, options: object = None) -> object:
        refuse(file_prefix, options, "a checkpoint is written to")
        return save(self, file_prefix, options)

    def restore_checked(self: object, file_prefix: object, options: object = None) -> object:
        refuse(file_prefix, options, "a checkpoint is read from")
        return restore(self, file_prefix, options)

    saver.save, saver.restore = save_checked, restore_checked


def refuse_local_files(tensorflow: TensorFlow, findings: Findings, dataset: Any) -> None:
    """Refuse a dataset for the replicas that is made from the names of files on this machine."""
    for name in _names(tensorflow, dataset, limit=8):
        if is_local(name) and os.path.isfile(name):
            refuse_path(tensorflow, findings, name, "the workers are to read")


def refuse_path(tensorflow: TensorFlow, findings: Findings, path: str, words: str) -> None:
    """Refuse one path as TensorFlow's worker does."""
    error = tensorflow.tf.errors.UnimplementedError(
        None, None, f"File system scheme '[local]' not implemented (file: '{path}')"
    )
    findings.refuse("LOCAL_PATH", f"{words} '{path}' on this machine, which a remote TPU cannot reach", error)


def is_local(path: str) -> bool:
    """Whether a path has no scheme, such as gs://."""
    return "://" not in path or path.startswith("file://")


def _written_here(options: object) -> bool:
    return "localhost" in (getattr(options, "experimental_io_device", None) or "")


def _text(tf: ModuleType, prefix: object) -> str:
    value = tf.get_static_value(prefix) if tf.is_tensor(prefix) else prefix
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _names(tensorflow: TensorFlow, dataset: Any, limit: int) -> Iterator[str]:
    """The first texts that a dataset's sources are made of."""
    waiting = [dataset]
    while waiting:
        source = waiting.pop()
        waiting += source._inputs()
        for tensor in getattr(source, "_tensors", ()):
            if (
                tensor.dtype == tensorflow.tf.string
                and (value := tensorflow.tf.get_static_value(tensor)) is not None
            ):
                yield from (text.decode("utf-8", "replace") for text in value.ravel()[:limit])
