"""Replaces an object of TensorFlow in every module that exports it."""

from __future__ import annotations

import sys
from collections.abc import Mapping


def replace_everywhere(replacements: Mapping[object, object]) -> None:
    """Put new objects in the place of old ones in every loaded module of TensorFlow."""
    by_identity = {id(old): new for old, new in replacements.items()}
    for name, module in list(sys.modules.items()):
        if module is not None and name.partition(".")[0] == "tensorflow":
            for attribute, value in list(vars(module).items()):
                if id(value) in by_identity:
                    setattr(module, attribute, by_identity[id(value)])
