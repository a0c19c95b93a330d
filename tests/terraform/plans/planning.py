"""Plans of the variations, made by the real terraform with the stand-in, side by side."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.terraform.plans import plan
from tests.terraform.plans.stanzas import Stanzas
from tests.terraform.plans.variations import Variation
from tests.terraform.workbench import Workbench

SIDE_BY_SIDE = 2


class Refused(Exception):
    """Terraform made no plan; the text is what it said."""


def planned(bench: Workbench, variation: Variation) -> Stanzas:
    """Plan one variation."""
    return plan.stanzas(shown(bench, variation))


def shown(bench: Workbench, variation: Variation) -> dict[str, Any]:
    """Plan one variation; return the output of `terraform show -json`."""
    with TemporaryDirectory() as folder:
        settings, file = Path(folder, "settings.tfvars.json"), Path(folder, "plan")
        settings.write_text(json.dumps(variation.settings))
        result = bench.run(
            variation.where, "plan", "-no-color", "-input=false", "-lock=false", "-refresh=false",
            f"-var-file={settings}", f"-out={file}",
        )  # fmt: skip
        if result.code:
            raise Refused(result.text)
        return json.loads(bench.run(variation.where, "show", "-json", str(file)).out)


def all_planned(bench: Workbench, variations: Iterable[Variation]) -> dict[str, Stanzas]:
    """Plan several variations; return the plans by their names."""
    every = list(variations)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        plans = threads.map(lambda variation: planned(bench, variation), every)
        return dict(zip([variation.name for variation in every], plans, strict=True))
