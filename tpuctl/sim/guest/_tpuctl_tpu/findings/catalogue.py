"""Defines the codes of findings, each with its meaning and fix, and generates docs/findings.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One code: whether a TPU refuses it or does it slowly, what happens there, and the fix."""

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
            "Examples are strings, tables, tf.print, tf.summary and several image operations.",
            "Move it to the input pipeline (tf.data runs on the host), or call "
            "tf.config.set_soft_device_placement(True) and pay a trip to the host on each step.",
        ),
        Kind(
            "HOST_OP",
            False,
            "Soft device placement is on, so an operation without an XLA kernel is cut out of the TPU "
            "program: every step stops, sends its inputs to the host and waits for the answer.",
            "Move it to the input pipeline, or do it once in many steps.",
        ),
        Kind(
            "STRING_INPUT",
            True,
            "A replica gets a string tensor; a TPU has no strings: InvalidArgumentError, "
            "Unsupported data type for TPU: string.",
            "Drop the strings or turn them into numbers in the input pipeline.",
        ),
        Kind(
            "RAGGED_INPUT",
            True,
            "A dataset with ragged tensors is distributed; TPUStrategy does not put them on the "
            "device: ValueError.",
            "Pad to a fixed length (to_tensor(shape=...), padded_batch), or distribute with "
            "tf.distribute.InputOptions(experimental_fetch_to_device=False).",
        ),
        Kind(
            "SPARSE_INPUT",
            True,
            "A dataset with sparse tensors is distributed; TPUStrategy does not put them on the "
            "device: ValueError.",
            "Make them dense (tf.sparse.to_dense), or distribute with "
            "tf.distribute.InputOptions(experimental_fetch_to_device=False).",
        ),
        Kind(
            "UNKNOWN_RANK",
            True,
            "A replica gets a tensor with an unknown number of dimensions: ValueError.",
            "State its shape in the input pipeline (tf.ensure_shape, set_shape).",
        ),
        Kind(
            "FLOAT64",
            False,
            "The replica function computes in float64 or complex128. A TPU has no hardware for them and "
            "emulates each operation, many times slower and with twice the memory.",
            "Use float32 or bfloat16. NumPy makes float64 by default: use astype('float32'), or tf.cast in "
            "the input pipeline.",
        ),
        Kind(
            "DYNAMIC_SHAPE",
            False,
            "When the step is traced, a replica's input has an unknown length in a dimension other than "
            "the batch. XLA compiles for fixed shapes: it compiles the step again for each "
            "new length, which takes tens of seconds to minutes.",
            "Pad to a fixed length, or to a few lengths (padded_batch with padded_shapes, "
            "bucket_by_sequence_length).",
        ),
        Kind(
            "PARTIAL_BATCH",
            False,
            "The dataset's last batch is smaller than the others: the step is compiled a second time "
            "for it, and some cores may be idle.",
            "Call batch(..., drop_remainder=True) for training. For evaluation choose a batch size that "
            "divides the number of examples.",
        ),
        Kind(
            "UNEVEN_BATCH",
            False,
            "The global batch is not divisible by the number of replicas, so they get batches of "
            "different sizes: the smaller ones are padded, and all wait for the largest.",
            "Make the global batch a multiple of strategy.num_replicas_in_sync.",
        ),
        Kind(
            "RECOMPILATION",
            False,
            "A function that runs a replica function was traced for three or more signatures; a TPU "
            "compiles its program for each, which takes tens of seconds to minutes. The message lists the "
            "signatures, with a number for each Python object.",
            "Pass tensors in place of Python numbers, and inputs of one shape and type.",
        ),
        Kind(
            "OUTSIDE_SCOPE",
            True,
            "Variables made outside strategy.scope() are trained by, or mixed with, the strategy: "
            'RuntimeError, Need to be inside "with strategy.scope()", or an AttributeError where only '
            "the model is outside.",
            "Create model, metrics and optimizer inside 'with strategy.scope():'.",
        ),
        Kind(
            "HOST_VARIABLE",
            False,
            "The replica function uses a variable that was made outside strategy.scope(): it has one "
            "copy, on the host, which is fetched on every step; replicas that assign it "
            "overwrite each other.",
            "Create the variable inside 'with strategy.scope():', or pass its value as an argument.",
        ),
        Kind(
            "HOST_TRAINING",
            False,
            "There is a TPUStrategy, but a Keras model is run that was made outside its scope: it runs "
            "on the host's CPU, and the TPU is idle.",
            "Create and compile the model inside 'with strategy.scope():'.",
        ),
        Kind(
            "LOCAL_PATH",
            True,
            "The TPU was found by the node's name or address, so its worker is another process, which "
            "has no access to this machine's files: UnimplementedError, File system scheme '[local]' "
            "not implemented.",
            "Use a gs:// path; for checkpoints also "
            "CheckpointOptions(experimental_io_device='/job:localhost').",
        ),
        Kind(
            "NOT_INITIALIZED",
            True,
            "The TPU is used before tf.tpu.experimental.initialize_tpu_system(resolver): a strategy "
            "cannot be made, and operations placed on '/TPU:0' run on the host.",
            "Connect and initialize first, before any other use of TensorFlow.",
        ),
        Kind(
            "NO_SUCH_CORE",
            False,
            "An operation is placed on a core that the slice does not have: TensorFlow runs it on the "
            "host's CPU without an error, as long as soft device placement is on.",
            "Take names from tf.config.list_logical_devices('TPU').",
        ),
    )
}

_HEAD = """\
# Warnings and errors of the simulated TPU

Find code that a real TPU refuses or runs slowly, before you pay for one. On a simulated host the CPU emulates
TensorFlow's TPU; it accepts more than a TPU does, so the emulation checks for what a TPU

- **refuses**: it raises the error that a TPU gives;
- does **slowly**: it reports the code once, with the line of your program:

      [tpu-sim] FLOAT64 train.py:31: Mul (mul) computes in float64, which a TPU emulates, slowly. Use ...

`TPUCTL_SIM_CHECKS` says how strict it is:

| value | what is refused on a TPU | what is slow on a TPU |
|---|---|---|
| `off` | accepted, where TensorFlow on a CPU accepts it; not reported | not reported |
| `warn` (default) | reported and refused | reported |
| `error` | reported and refused | reported and refused (`SlowOnTPUError`) |

Set it for one job (`tpuctl submit --env TPUCTL_SIM_CHECKS=error train.py`), or for the simulator when it
starts: it then applies to all hosts.

The findings are also written as JSON. `TPUCTL_REPORT_DIR` names a job's folder for reports; its files are
kept with the run when the script ends, also after an error. A submitted run leaves its findings in
`attempts/ATTEMPT/workers/WORKER/reports/findings.json` beside its log, and `tpuctl pull` downloads them. A
program that is started by hand writes no file, unless `TPUCTL_SIM_FINDINGS` names one. The file names the
slice and the number of signatures of each traced function; each finding has its code, whether it is
refused, file, line, count, text and fix. It is written at the first finding of each kind and line, and when
the program ends.

A finding in code without a line of yours, such as a layer of Keras, has the line that called it, such as
that of `model.fit(...)`.

Not checked: the memory of a step on a TPU, numbers that differ between CPU and TPU (products in bfloat16),
shapes that depend on data inside the replica function, and, if the worker is remote, files that are read
other than by checkpoints and distributed datasets.

## All codes, with the fix for each
"""


def document() -> str:
    """Return docs/findings.md."""
    parts = [_HEAD]
    for kind in KINDS.values():
        how = "refused" if kind.refused else "slow"
        parts.append(f"\n### {kind.code} ({how})\n\n{kind.meaning}\n\nFix: {kind.fix}\n")
    return "".join(parts)
