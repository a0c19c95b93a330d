"""The findings: what each code means on a TPU and how to mend it; docs/findings.md is made of this."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One code: whether a TPU refuses it or does it slowly, what happens there, and what to do."""

    code: str
    refused: bool
    meaning: str
    fix: str


KINDS = {
    kind.code: kind
    for kind in (
        Kind(
            "UNSUPPORTED_OP",
            True,
            "An operation of the replica function has no kernel in XLA, the compiler of TPU programs, "
            "so the step does not compile: InvalidArgumentError, Detected unsupported operations. "
            "Strings, tables, tf.print, tf.summary and several image operations are of this kind.",
            "move it to the input pipeline (tf.data runs on the host), or call "
            "tf.config.set_soft_device_placement(True) and pay a trip to the host on each step",
        ),
        Kind(
            "HOST_OP",
            False,
            "Soft device placement is on, so an operation without an XLA kernel is cut out of the TPU "
            "program: every step stops, sends its inputs to the host and waits for the answer.",
            "move it to the input pipeline, or do it once in many steps",
        ),
        Kind(
            "STRING_INPUT",
            True,
            "A string tensor is given to the replicas; a TPU has no strings: InvalidArgumentError, "
            "Unsupported data type for TPU: string.",
            "drop the strings or turn them into numbers in the input pipeline",
        ),
        Kind(
            "RAGGED_INPUT",
            True,
            "A dataset with ragged tensors is distributed; TPUStrategy does not put them on the "
            "device: ValueError.",
            "pad to a fixed length (to_tensor(shape=...), padded_batch), or distribute with "
            "tf.distribute.InputOptions(experimental_fetch_to_device=False)",
        ),
        Kind(
            "SPARSE_INPUT",
            True,
            "A dataset with sparse tensors is distributed; TPUStrategy does not put them on the "
            "device: ValueError.",
            "make them dense (tf.sparse.to_dense), or distribute with "
            "tf.distribute.InputOptions(experimental_fetch_to_device=False)",
        ),
        Kind(
            "UNKNOWN_RANK",
            True,
            "A tensor whose number of dimensions is not known is given to the replicas: ValueError.",
            "state its shape in the input pipeline (tf.ensure_shape, set_shape)",
        ),
        Kind(
            "FLOAT64",
            False,
            "The replica function computes in float64 or complex128, which a TPU has no hardware for: "
            "it emulates each operation, many times slower and with twice the memory.",
            "use float32 or bfloat16; NumPy makes float64 unless asked: astype('float32'), or tf.cast "
            "in the input pipeline",
        ),
        Kind(
            "DYNAMIC_SHAPE",
            False,
            "A replica's input has a length that is not known when the step is traced, in a dimension "
            "other than the batch. XLA compiles for fixed shapes: each new length compiles the step "
            "anew, which takes tens of seconds to minutes.",
            "pad to a fixed length, or to a few (padded_batch with padded_shapes, bucket_by_sequence_length)",
        ),
        Kind(
            "PARTIAL_BATCH",
            False,
            "The dataset's last batch is smaller than the others: the step is compiled a second time "
            "for it, and some cores may have nothing to do.",
            "batch(..., drop_remainder=True) for training; a batch size that divides the examples for "
            "evaluation",
        ),
        Kind(
            "UNEVEN_BATCH",
            False,
            "The global batch is not divisible by the number of replicas, so they get batches of "
            "different sizes: the smaller ones are padded, and all wait for the largest.",
            "make the global batch a multiple of strategy.num_replicas_in_sync",
        ),
        Kind(
            "RECOMPILATION",
            False,
            "A function with a replica function in it was traced for three or more different "
            "signatures; a TPU compiles its program for each, which takes tens of seconds to minutes.",
            "pass tensors in place of Python numbers, and inputs of one shape and type",
        ),
        Kind(
            "OUTSIDE_SCOPE",
            True,
            "Variables made outside strategy.scope() are trained by, or mixed with, the strategy: "
            'RuntimeError, Need to be inside "with strategy.scope()", or an AttributeError where only '
            "the model is outside.",
            "create model, metrics and optimizer inside 'with strategy.scope():'",
        ),
        Kind(
            "HOST_VARIABLE",
            False,
            "The replica function uses a variable that was made outside strategy.scope(): it has one "
            "copy, on the host, which is fetched on every step; replicas that assign it overwrite "
            "each other.",
            "create the variable inside 'with strategy.scope():', or pass its value as an argument",
        ),
        Kind(
            "HOST_TRAINING",
            False,
            "There is a TPUStrategy, but a Keras model that was made outside its scope is run: it "
            "runs on the host's CPU, and the TPU has nothing to do.",
            "create and compile the model inside 'with strategy.scope():'",
        ),
        Kind(
            "LOCAL_PATH",
            True,
            "The TPU was found by the node's name or address, so its worker is another process, which "
            "has no access to this machine's files: UnimplementedError, File system scheme '[local]' "
            "not implemented.",
            "use a gs:// path; for checkpoints also "
            "CheckpointOptions(experimental_io_device='/job:localhost')",
        ),
        Kind(
            "NOT_INITIALIZED",
            True,
            "The TPU is used before tf.tpu.experimental.initialize_tpu_system(resolver): a strategy "
            "cannot be made, and operations placed on '/TPU:0' run on the host.",
            "connect and initialize first, before any other use of TensorFlow",
        ),
        Kind(
            "NO_SUCH_CORE",
            False,
            "An operation is placed on a core that the slice does not have: TensorFlow runs it on the "
            "host's CPU without a word, as long as soft device placement is on.",
            "take names from tf.config.list_logical_devices('TPU')",
        ),
    )
}

_HEAD = """\
# Findings: what a real TPU would say

On a simulated host, TensorFlow's TPU is emulated by the CPU, which accepts more than a TPU does. So that
the first run on a real TPU brings no surprise, the emulation looks for what a TPU refuses or does
slowly:

- what a TPU **refuses** is refused, with the error that a TPU gives;
- what it does **slowly** is done, and reported once, with the line of your program:

      [tpu-sim] FLOAT64 train.py:31: Mul (mul) computes in float64, which a TPU emulates, slowly; use ...

`TPUCTL_SIM_CHECKS` says how strict it is:

| value | what is refused on a TPU | what is slow on a TPU |
|---|---|---|
| `off` | accepted, where TensorFlow on a CPU accepts it; not reported | not reported |
| `warn` (default) | reported and refused | reported |
| `error` | reported and refused | reported and refused (`SlowOnTPUError`) |

Set it for one job (`tpuctl submit --env TPUCTL_SIM_CHECKS=error train.py`), or for the simulator when it
starts: then all its hosts have it.

The findings are also written as JSON. A job finds a folder for such reports in `TPUCTL_REPORT_DIR`; the
files in it when the script ends, also by an error, are kept with the run. So a submitted run leaves its
findings in `attempts/ATTEMPT/workers/WORKER/reports/findings.json` beside its log, and `tpuctl pull`
brings them home. A program that is started by hand writes no file, unless `TPUCTL_SIM_FINDINGS` names
one. The file says what slice it was and for how many signatures each function was traced, and of each
finding: code, whether refused, file, line, how often it was met, text and fix. It is written when a
finding is met for the first time, and when the program ends.

A finding in code that has no line of yours, such as a layer of Keras, has the line that led there, such
as that of `model.fit(...)`.

What is not looked for: the memory that a step takes on a TPU, numbers that differ between CPU and TPU
(products in bfloat16), shapes that depend on data inside the replica function, and, where the worker is
remote, files that are read in other ways than by checkpoints and distributed datasets.

## The codes
"""


def document() -> str:
    """Return docs/findings.md."""
    parts = [_HEAD]
    for kind in KINDS.values():
        fix = kind.fix[0].upper() + kind.fix[1:]
        how = "refused" if kind.refused else "slow"
        parts.append(f"\n### {kind.code} ({how})\n\n{kind.meaning}\n\nFix: {_sentence(fix)}\n")
    return "".join(parts)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
