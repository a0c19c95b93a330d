"""Which tests can see a module, nearest first."""

from __future__ import annotations

from pathlib import Path

from tests.paths import ROOT

ABOVE = {
    # package: the tests besides its own that use it, in the order in which they are run
    "cli": ("cli",),
    "flows/datasets": ("cli/datasets", "cli/test_bad_input.py"),
    "flows/runs": ("cli/runs", "cli"),
    "flows/nodes": ("cli/nodes", "cli/overview", "cli"),
    "flows/hosts": ("flows/nodes", "flows/remote", "flows/runs", "cli/remote", "cli/nodes"),
    "flows/remote": ("cli/remote", "cli"),
    "flows/offers": ("cli/offers", "cli"),
    "flows/overview": ("cli/overview", "cli"),
    "flows/project": ("cli/project", "cli"),
    "flows": ("cli",),
    "cloud": ("flows", "cli/nodes", "cli/remote", "cli"),
    "data": ("flows/datasets", "cli/datasets"),
    "keeper": ("keeper", "flows/nodes"),
    "worker": ("cli/test_story.py", "cli/runs"),
    "config": ("cli",),
    "faults": ("sim/faults", "cli/simulator"),
    "sim/gcs": ("sim/faults", "cloud", "flows", "worker"),
    "sim/world": ("sim/tpu", "sim/faults", "cloud", "cli/test_story.py"),
    "sim/tpu": ("sim/faults", "cloud"),
    "sim/hosts": ("sim/compute", "sim/faults", "sim/tpu/nodes", "worker", "cloud", "cli/test_story.py"),
    "sim/guest": (),
    "sim": ("sim", "cloud", "testing", "cli/simulator", "cli/test_story.py"),
    "testing": ("testing",),
    "": ("cloud", "flows", "cli", "config", "data"),
}


def reaching(file: str) -> list[Path]:
    """Return the tests of `tpuctl/PACKAGE/MODULE.py`: its own, its packages' and its callers'.

    A layer's whole folder comes last: it holds most that has nothing to do with the module.
    """
    module = Path(file).relative_to("tpuctl")
    own = [ROOT / "tests" / module.parent / f"test_{module.stem.strip('_')}.py"]
    *packages, layer = [ROOT / "tests" / package for package in [*map(str, module.parents)][:-1]] or [own[0]]
    place = next(place for place in ABOVE if f"{module.as_posix()}/".startswith(place))
    above = [ROOT / "tests" / name for name in ABOVE[place]]
    return [path for path in dict.fromkeys([*own, *packages, *above, layer]) if path.exists()]
