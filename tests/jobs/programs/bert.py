"""Train the BERT job with both loops on a small dataset, and examine its model; print a report as JSON.

PYTHONPATH=.:jobs python -m tests.jobs.programs.bert FOLDER
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import bert
import numpy as np
import tensorflow as tf
import training

from tests.jobs import figures, runs, token_shards

WORDS, LENGTH, CLASSES, TEST = 40, 12, 4, 21
TEXTS = training.Texts(WORDS, LENGTH, CLASSES)
SIZE = bert.Size(WORDS, 2, 16, 2, 32, LENGTH)
PRESET = bert.Size(WORDS, 2, 16, 2, 24, LENGTH + 8)


def main() -> None:
    folder = Path(sys.argv[1])
    report = train(folder) | compare_outputs() | load_checkpoints(folder) | step_optimizer()
    print(json.dumps(report))


def train(folder: Path) -> dict[str, Any]:
    """Train with both loops, uninterrupted and resumed from a checkpoint."""
    data = folder / "data"
    token_shards.write(data, words=WORDS, length=LENGTH, classes=CLASSES, train=64, test=TEST)
    common = ("--data", data, "--batch", "8", "--epochs", "3", "--steps-per-call", "2", "--layers", "1")
    common += ("--hidden", "16", "--learning-rate", "0.01", "--checkpoint-every", "6")

    report: dict[str, Any] = {}
    weights = {}
    for loop in ("fit", "custom"):
        full, stopped = folder / f"{loop}-full", folder / f"{loop}-stopped"
        arguments = (*common, "--loop", loop, "--out")
        report[loop] = {
            "figures": figures.of(runs.run(bert.main, *arguments, full)),
            "resumed": runs.run(bert.main, *arguments, runs.at_step(18, full, stopped)),
        }
        weights[loop] = runs.weights(full)
        report[loop]["different_after_resume"] = runs.differing(weights[loop], runs.weights(stopped))
    names = sorted({*weights["fit"]} & {*weights["custom"]})
    differences = [np.abs(weights["fit"][name] - weights["custom"][name]).max() for name in names]
    report["largest_difference"] = float(max(differences))
    report["compared"] = len(names)

    model = bert.build_model(bert.Size(WORDS, 1, 16, 2, 64, LENGTH), TEXTS)
    tf.train.Checkpoint(model=model).restore(
        tf.train.latest_checkpoint(str(folder / "fit-full" / "checkpoints"))
    ).expect_partial()
    tokens, labels = token_shards.texts(TEST, words=WORDS, length=LENGTH, classes=CLASSES, seed=2)
    logits = model(tf.constant(tokens, tf.int32)).numpy()
    report["accuracy"] = float((logits.argmax(axis=1) == labels).mean())
    return report


def compare_outputs() -> dict[str, Any]:
    """Compare outputs for texts with and without padding, and for several seeds of dropout."""
    tf.keras.utils.set_random_seed(3)
    model = bert.build_model(SIZE, TEXTS, dropout=0.3)
    for variable in model.variables:
        variable.assign(tf.random.normal(variable.shape))
    tokens = tf.random.uniform([3, 7], token_shards.FIRST, WORDS, tf.int32)
    padded = tf.pad(tokens, [[0, 0], [0, LENGTH - 7]])

    def trained(seed: list[int]) -> tf.Tensor:
        return model({"tokens": padded, "seed": tf.constant([seed] * 3, tf.int32)}, training=True)

    def difference(first: tf.Tensor, second: tf.Tensor) -> float:
        return float(tf.reduce_max(tf.abs(first - second)))

    return {
        "padding_changes": difference(model(tokens), model(padded)),
        "visible_changes": difference(model(padded), model(tf.where(padded == 0, 1, padded))),
        "same_seed": difference(trained([7, 1]), trained([7, 1])),
        "next_seed": difference(trained([7, 1]), trained([7, 2])),
        "dropout": difference(trained([7, 1]), model(padded)),
    }


def load_checkpoints(folder: Path) -> dict[str, Any]:
    """Write a checkpoint as Google did, and load it; then load ones that do not fit."""
    rng = np.random.default_rng(4)
    values = {name: rng.normal(0, 0.5, shape).astype("float32") for name, shape in google_shapes().items()}
    preset = write_preset(folder / "preset", values)
    model = bert.build_model(bert.preset_size(preset), TEXTS)
    before = {id(variable): variable.numpy() for variable in model.variables}
    printed = runs.run(lambda: bert.load_preset(model, preset))
    unchanged = [
        str(variable.shape)
        for variable in model.variables
        if np.array_equal(before[id(variable)], variable.numpy())
    ]
    total = sum(value.size for name, value in values.items() if name.startswith("bert/"))
    tokens, _ = token_shards.texts(6, words=WORDS, length=LENGTH, classes=CLASSES, seed=5)
    encoded = model.encode(tf.constant(tokens, tf.int32), bert.Dropout(0.0, tf.zeros(2, tf.int32)))
    pooled = model.pooler(encoded[:, 0]).numpy()
    expected = outputs_by_the_paper(values, tokens)

    kernel = "bert/encoder/layer_1/output/dense/kernel"
    missing = {name: value for name, value in values.items() if name != kernel}
    extra = values | {"bert/encoder/layer_2/output/dense/kernel": values[kernel]}
    transposed = values | {kernel: values[kernel].T}
    refused = {
        name: runs.refusal(
            lambda name=name, changed=changed: bert.load_preset(model, write_preset(folder / name, changed))
        )
        for name, changed in (("missing", missing), ("extra", extra), ("transposed", transposed))
    }
    options = argparse.Namespace(preset=preset)
    refused["vocabulary"] = runs.refusal(lambda: bert.choose_size(options, TEXTS._replace(vocabulary=41)))
    refused["length"] = runs.refusal(lambda: bert.choose_size(options, TEXTS._replace(length=64)))
    return {
        "loaded": printed,
        "unchanged": unchanged,
        "published_numbers": sum(int(np.prod(variable.shape)) for variable in model.published().values())
        - total,
        "encoded_difference": float(np.abs(encoded.numpy() - expected)[tokens != token_shards.PADDING].max()),
        "pooled_difference": float(
            np.abs(pooled - np.tanh(affine(values, "pooler/dense", expected[:, 0]))).max()
        ),
        "pooled_range": float(np.ptp(pooled)),
        "refused": refused,
    }


def outputs_by_the_paper(values: dict[str, np.ndarray], tokens: np.ndarray) -> np.ndarray:
    """Return the outputs of the last layer of a BERT with these published values, by NumPy in float64."""
    heads, wide = PRESET.num_attention_heads, PRESET.hidden_size

    def normal(x: np.ndarray, name: str) -> np.ndarray:
        scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return scaled * values[f"bert/{name}/LayerNorm/gamma"] + values[f"bert/{name}/LayerNorm/beta"]

    def split(x: np.ndarray) -> np.ndarray:
        return x.reshape(*tokens.shape, heads, wide // heads).transpose(0, 2, 1, 3)

    tables = {
        name: values[f"bert/embeddings/{name}_embeddings"] for name in ("word", "position", "token_type")
    }
    x = tables["word"][tokens] + tables["position"][: tokens.shape[1]] + tables["token_type"][0]
    x = normal(x.astype(np.float64), "embeddings")
    for number in range(PRESET.num_hidden_layers):
        layer = f"encoder/layer_{number}"
        query, key, value = (
            split(affine(values, f"{layer}/attention/self/{name}", x)) for name in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(wide // heads)
        scores = np.exp(scores - scores.max(-1, keepdims=True)) * (tokens != 0)[:, None, None, :]
        mixed = (scores / scores.sum(-1, keepdims=True) @ value).transpose(0, 2, 1, 3).reshape(x.shape)
        x = normal(x + affine(values, f"{layer}/attention/output/dense", mixed), f"{layer}/attention/output")
        inner = affine(values, f"{layer}/intermediate/dense", x)
        inner *= 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
        x = normal(x + affine(values, f"{layer}/output/dense", inner), f"{layer}/output")
    return x


def affine(values: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    """Return the output of the published dense layer for x."""
    return x @ values[f"bert/{name}/kernel"] + values[f"bert/{name}/bias"]


def google_shapes() -> dict[str, tuple[int, ...]]:
    """Return names and shapes as in the checkpoints of github.com/google-research/bert, heads included."""
    wide, inner = PRESET.hidden_size, PRESET.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "bert/embeddings/word_embeddings": (WORDS, wide),
        "bert/embeddings/position_embeddings": (PRESET.max_position_embeddings, wide),
        "bert/embeddings/token_type_embeddings": (2, wide),
        "bert/embeddings/LayerNorm/gamma": (wide,),
        "bert/embeddings/LayerNorm/beta": (wide,),
        "bert/pooler/dense/kernel": (wide, wide),
        "bert/pooler/dense/bias": (wide,),
        "cls/predictions/output_bias": (WORDS,),
        "cls/seq_relationship/output_weights": (2, wide),
    }
    for number in range(PRESET.num_hidden_layers):
        layer = f"bert/encoder/layer_{number}"
        dense = {f"attention/self/{name}": (wide, wide) for name in ("query", "key", "value")}
        dense |= {
            "attention/output/dense": (wide, wide),
            "intermediate/dense": (wide, inner),
            "output/dense": (inner, wide),
        }
        for name, shape in dense.items():
            shapes |= {f"{layer}/{name}/kernel": shape, f"{layer}/{name}/bias": shape[1:]}
        for name in ("attention/output/LayerNorm", "output/LayerNorm"):
            shapes |= {f"{layer}/{name}/gamma": (wide,), f"{layer}/{name}/beta": (wide,)}
    return shapes


def write_preset(folder: Path, values: dict[str, np.ndarray]) -> str:
    """Write a checkpoint with TensorFlow 1's Saver, and its bert_config.json."""
    folder.mkdir()
    (folder / "bert_config.json").write_text(json.dumps({**PRESET._asdict(), "hidden_act": "gelu"}))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {
            name: tf.compat.v1.get_variable(name, initializer=value, use_resource=False)
            for name, value in values.items()
        }
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(variables)
        saver.save(session, str(folder / "bert_model.ckpt"), write_meta_graph=False)
    return str(folder)


def step_optimizer() -> dict[str, Any]:
    """Return the variables that decay in a step without gradients, and the learning rate of each step."""
    model = bert.build_model(SIZE, TEXTS)
    for variable in model.variables:
        variable.assign(tf.ones(variable.shape))
    options = argparse.Namespace(learning_rate=0.5, preset=None, warm_up=0.2, weight_decay=0.1)
    optimizer = bert.build_optimizer(options, model, steps=10)
    weights = model.trainable_variables
    optimizer.apply_gradients([(tf.zeros(weight.shape), weight) for weight in weights])
    decayed = {name: float(tf.reduce_max(weight)) < 1 for name, weight in model.published().items()}
    schedule = bert.WarmUpThenDecay(0.5, 2, 10)
    return {
        "decayed": sorted({name.rpartition("/")[2] for name, shrunk in decayed.items() if shrunk}),
        "not_decayed": sorted({name.rpartition("/")[2] for name, shrunk in decayed.items() if not shrunk}),
        "rates": [float(schedule(step)) for step in range(11)],
    }


if __name__ == "__main__":
    main()
