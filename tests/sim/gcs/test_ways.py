"""The docstring of the package shows the way of a request by modules that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tpuctl.sim import gcs


def test_every_module_that_the_docstring_names_exists() -> None:
    folder = Path(gcs.__file__).parent
    modules = re.findall(r"[\w/]+\.py", gcs.__doc__ or "")
    assert len(modules) > 10
    assert [module for module in modules if not (folder / module).exists()] == []
