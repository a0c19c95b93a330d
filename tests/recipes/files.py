"""The recipes of docs/python.md as modules."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from tests.recipes.document import RECIPES


def recipe(name: str) -> ModuleType:
    """Return the module of a recipe, which may import others, as where it is run."""
    spec = importlib.util.spec_from_file_location(name, RECIPES / f"{name}.py")
    assert spec
    assert spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(RECIPES))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(RECIPES))
    return module
