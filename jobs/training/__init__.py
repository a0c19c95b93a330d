"""The code that all jobs share: devices, input pipeline, checkpoints and speed.

The jobs beside this folder import it, and `tpuctl submit` ships it with them. A job defines its model, its
data and its training step. This package reads batches in an order that depends only on the seed and the step,
resumes a stopped run at the step it reached, measures the time of a step, and estimates its least time on a
TPU.
"""

from training.devices import choose_strategy, parser, say
from training.progress import Progress
from training.shards import Split, find_split, global_batch, read, read_once, read_text
from training.speed import TimedBatches
from training.texts import Texts, describe_texts

__all__ = [
    "Progress",
    "Split",
    "Texts",
    "TimedBatches",
    "choose_strategy",
    "describe_texts",
    "find_split",
    "global_batch",
    "parser",
    "read",
    "read_once",
    "read_text",
    "say",
]
