"""Says which metric a curve of TensorBoard is: programs and libraries name the same thing differently."""

from __future__ import annotations

import re
from typing import NamedTuple

LOSS, ACCURACY, VAL_LOSS, VAL_ACCURACY, STEP_TIME = (
    "loss",
    "accuracy",
    "val_loss",
    "val_accuracy",
    "step_time",
)
METRICS = (LOSS, ACCURACY, VAL_LOSS, VAL_ACCURACY, STEP_TIME)
"""In the order in which they are shown; `step_time` in milliseconds."""

# names without case, with `_` for whatever is no letter or digit; the first one that a run has counts
_NAMES = {
    LOSS: ("loss", "train_loss", "loss_train", "training_loss", "epoch_loss", "learning_loss", "batch_loss"),
    ACCURACY: (
        "accuracy", "acc", "train_accuracy", "accuracy_train", "training_accuracy", "train_acc", "acc_train",
        "epoch_accuracy", "epoch_sparse_categorical_accuracy", "epoch_categorical_accuracy",
        "epoch_binary_accuracy", "learning_accuracy", "batch_accuracy",
    ),
}  # fmt: skip
_OF_VALIDATION = {LOSS: VAL_LOSS, ACCURACY: VAL_ACCURACY}
_VALIDATION = ("val", "validation", "valid", "eval", "evaluation", "test")
"""Words for validation: of a tag, or of the folder of its writer."""
_MILLISECONDS, _SECONDS, _RATE = 1.0, 1000.0, 0.0
_STEP_TIMES = {
    "step_ms": _MILLISECONDS, "step_time_ms": _MILLISECONDS,
    "step_time": _SECONDS, "step_time_seconds": _SECONDS, "perf_step_time_seconds": _SECONDS,
    "seconds_per_step": _SECONDS, "sec_per_step": _SECONDS,
    "steps_per_second": _RATE, "steps_per_sec": _RATE, "global_step_sec": _RATE,
    "epoch_steps_per_second": _RATE, "train_steps_per_second": _RATE,
}  # fmt: skip
"""Name -> milliseconds of its unit; _RATE for steps per second."""


class Meaning(NamedTuple):
    """What a curve is."""

    metric: str
    rank: int
    """Its place among the names of the metric: the smallest that a run has counts."""
    unit: float = 1.0
    """Milliseconds of a step time's unit."""

    def value(self, number: float) -> float:
        """Return the metric's value for a number of the curve."""
        if self.metric != STEP_TIME:
            return number
        if self.unit != _RATE:
            return number * self.unit
        return 1000 / number if number else float("nan")


def meaning(tag: str, folder: str = "") -> Meaning | None:
    """Return which metric a tag is in the events of a writer's folder; None for another curve."""
    name = re.sub(r"[^a-z0-9]+", "_", tag.lower()).strip("_")
    if name in _STEP_TIMES:
        return Meaning(STEP_TIME, list(_STEP_TIMES).index(name), _STEP_TIMES[name])
    words = [word for word in name.split("_") if word not in _VALIDATION]
    is_validation = len(words) < name.count("_") + 1
    is_validation |= any(word in _VALIDATION for word in re.split(r"[^a-z0-9]+", folder.lower()))
    for metric, names in _NAMES.items():
        if "_".join(words) in names:
            rank = names.index("_".join(words))
            return Meaning(_OF_VALIDATION[metric] if is_validation else metric, rank)
    return None
