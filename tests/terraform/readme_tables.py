"""The tables of terraform/README.md, made from the variables and outputs of the module.

    python -m tests.terraform.readme_tables     # updates them

The files are formatted by `terraform fmt`, so they can be read line by line. The markers in the README are
those of terraform-docs.
"""

from __future__ import annotations

import re
from pathlib import Path

BEGIN, END = "<!-- BEGIN_TF_DOCS -->", "<!-- END_TF_DOCS -->"
BLOCK = re.compile(r'^(variable|output) "(\w+)" \{$(.*?)^\}$', re.S | re.M)
ARGUMENT = re.compile(r"^  (description|type|default) += (.*?)(?=^  [a-z]|^$|\Z)", re.S | re.M)
ROOT = Path(__file__).resolve().parents[2] / "terraform"


def updated(folder: Path) -> str:
    """Return the README of a module with updated tables."""
    text = (folder / "README.md").read_text()
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{tables(folder)}\n{END}{rest.split(END)[1]}"


def tables(folder: Path) -> str:
    """Return the tables of inputs, those without a default first, and of outputs."""
    inputs, outputs = [], []
    for path in (folder / "variables.tf", folder / "outputs.tf"):
        for kind, name, body in BLOCK.findall(path.read_text()):
            arguments = {key: value.rstrip() for key, value in ARGUMENT.findall(body)}
            description = arguments["description"].strip('"').replace("|", "\\|")
            if kind == "output":
                outputs.append(f"| {name} | {description} |")
            else:
                default = _code(arguments["default"]) if "default" in arguments else "required"
                inputs.append((name, f"| {name} | {description} | {_code(arguments['type'])} | {default} |"))
    rows = [row for _, row in sorted(inputs, key=lambda row: (not row[1].endswith("required |"), row[0]))]
    head = ["## Inputs", "", "| name | description | type | default |", "| --- | --- | --- | --- |"]
    foot = ["", "## Outputs", "", "| name | description |", "| --- | --- |", *outputs]
    return "\n".join([*head, *rows, *foot])


def _code(text: str) -> str:
    """Return an expression on one line, as code: `object({ a = string, b = bool })`."""
    lines = [re.sub(r"\s+=\s+", " = ", line.strip()) for line in text.splitlines()]
    joined = ", ".join(lines).replace("{,", "{").replace(", }", " }")
    return f"`{joined}`".replace("|", "\\|")


if __name__ == "__main__":
    (ROOT / "README.md").write_text(updated(ROOT))
