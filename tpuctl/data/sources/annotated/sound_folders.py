"""Reads folders of sounds, one a class: records with the samples as `audio` and their `label`."""

from __future__ import annotations

import numpy as np

from tpuctl.data.files.listing import list_class_folders
from tpuctl.data.options import Options
from tpuctl.data.schema.features import Label
from tpuctl.data.source import ScanProgress, closed_on_error
from tpuctl.data.sources.annotated.fields import ValueStore, no_options
from tpuctl.data.sources.annotated.records import AnnotatedSource, Table
from tpuctl.data.sources.annotated.sounds import Sounds
from tpuctl.data.trees.tree import Tree
from tpuctl.errors import UsageError


def read_sounds(tree: Tree, options: Options, progress: ScanProgress) -> AnnotatedSource:
    """Return the tree of sounds; raises UsageError where it is none."""
    no_options(options, "A tree of sounds")
    if options.resize or options.channels:
        raise UsageError("Sounds have no pixels.", hint="Run it without --resize or --channels.")
    folders = list_class_folders(tree, progress)
    labels = folders.labels()
    values = ValueStore()
    with closed_on_error(values):
        for label in labels.tolist():
            values.add([label])
        values.finish()
        field = Sounds("audio", folders.files, options, progress)
        parts = folders.parts(np.zeros(len(labels), np.int64))
        table = Table(
            values,
            {"label": Label(folders.classes)},
            [(part.split, part.records) for part in parts],
            labels,
            ("audio", "label"),
        )
        return AnnotatedSource("audio", folders, (field,), table)
