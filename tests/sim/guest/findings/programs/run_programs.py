"""Runs small programs one after the other in this process; prints as JSON how each ended.

Loading TensorFlow takes longer than all of them. Arguments: the programs' paths, in the order to run them.
"""

from __future__ import annotations

import gc
import json
import runpy
import sys

import tensorflow as tf


def ending(path: str) -> str:
    """Run one program; return the kind and the text of the error that ended it, or nothing."""
    tf.keras.backend.clear_session()
    try:
        runpy.run_path(path, run_name="__main__")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


tf.keras.backend.clear_session()  # loads Keras
gc.freeze()  # each session that is cleared collects garbage: not among all that was loaded
json.dump({path: ending(path) for path in sys.argv[1:]}, sys.stdout)
