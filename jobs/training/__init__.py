"""What is the same in every job: the devices, the shards, where a training stands, and how fast it goes.

The jobs beside this folder import it, and it is shipped with them. A job says what is trained, on what, and
how; this reads batches in an order that depends on seed and step alone, goes on at the step where a run was
stopped, and says what a step costs: measured, and by a roofline model of the TPU.
"""

from training.devices import find_devices, parser, say
from training.progress import Progress
from training.shards import Split, find_split, read, read_once, read_text, whole_batch
from training.texts import Texts, describe_texts

__all__ = [
    "Progress",
    "Split",
    "Texts",
    "describe_texts",
    "find_devices",
    "find_split",
    "parser",
    "read",
    "read_once",
    "read_text",
    "say",
    "whole_batch",
]
