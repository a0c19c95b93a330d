"""Train the Reuters job on a small dataset, uninterrupted and resumed; print a report as JSON.

PYTHONPATH=.:jobs python -m tests.jobs.programs.reuters FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import reuters
import tensorflow as tf
import training

from tests.jobs import figures, runs, token_shards

WORDS, LENGTH, CLASSES, TEST = 40, 20, 8, 45


def main() -> None:
    folder = Path(sys.argv[1])
    data = folder / "data"
    token_shards.write(data, words=WORDS, length=LENGTH, classes=CLASSES, train=96, test=TEST)
    common = (
        "--data",
        data,
        "--batch",
        "16",
        "--epochs",
        "25",
        "--steps-per-call",
        "3",
        "--checkpoint-every",
        "15",
    )
    printed = runs.run(reuters.main, *common, "--out", folder / "full")
    weights = runs.weights(folder / "full")
    stopped = runs.at_step(135, folder / "full", folder / "stopped")
    resumed = runs.run(reuters.main, *common, "--out", stopped)

    model = reuters.build_model(training.describe_texts(str(data)))
    model.load_weights(folder / "full" / "outputs" / "reuters.weights.h5")
    tokens, labels = token_shards.texts(TEST, words=WORDS, length=LENGTH, classes=CLASSES, seed=2)
    logits = model(tf.constant(tokens, tf.int32)).numpy()
    better = (logits > logits[np.arange(TEST), labels][:, None]).sum(axis=1)
    report = {
        "figures": figures.of(printed),
        "resumed": resumed,
        "different_after_resume": runs.differing(weights, runs.weights(stopped)),
        "variables": len(weights),
        "accuracy": float((better == 0).mean()),
        "top_5": float((better < 5).mean()),
        "embedding": [int(side) for side in model.weights[0].shape],
        "outputs": list(logits.shape),
        "sums_of_outputs": [float(logits.sum(axis=1).min()), float(logits.sum(axis=1).max())],
        "dtype": model(tf.constant(tokens, tf.int32)).dtype.name,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
