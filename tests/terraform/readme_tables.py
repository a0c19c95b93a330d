"""The tables of terraform/README.md, made from the variables and outputs of the module.

    python -m tests.terraform.readme_tables     # writes them anew

The files are in the form that `terraform fmt` gives them, regular enough to be read line by line. The marks
in the README are those of terraform-docs.
"""

from __future__ import annotations

import re
from pathlib import Path

BEGIN, END = "<!-- BEGIN_TF_DOCS -->", "<!-- END_TF_DOCS -->"
BLOCK = re.compile(r'^(variable|output) "(\w+)" \{$(.*?)^\}$', re.S | re.M)
ARGUMENT = re.compile(r"^  (description|type|default) += (.*?)(?=^  [a-z]|^$|\Z)", re.S | re.M)
ROOT = Path(__file__).resolve().parents[2] / "terraform"


def updated(folder: Path) -> str:
    """Return the README of a module with its tables made anew."""
    text = (folder / "README.md").read_text()
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{tables(folder)}\n{END}{rest.split(END)[1]}"


def tables(folder: Path) -> str:
    """Return the tables of inputs, those without a default first, and of outputs."""
    inputs, outputs = [], []
    for path in (folder / "variables.tf", folder / "outputs.tf"):
        for kind, name, body in BLOCK.findall(path.read_text()):
            found = {key: value.rstrip() for key, value in ARGUMENT.findall(body)}
            description = found["description"].strip('"').replace("|", "\\|")
            if kind == "output":
                outputs.append(f"| {name} | {description} |")
            else:
                default = _code(found["default"]) if "default" in found else "required"
                inputs.append((name, f"| {name} | {description} | {_code(found['type'])} | {default} |"))
    rows = [row for _, row in sorted(inputs, key=lambda one: (not one[1].endswith("required |"), one[0]))]
    head = ["## Inputs", "", "| name | what | type | default |", "| --- | --- | --- | --- |"]
    foot = ["", "## Outputs", "", "| name | what |", "| --- | --- |", *outputs]
    return "\n".join([*head, *rows, *foot])


def _code(text: str) -> str:
    """An expression on one line, as code: `object({ a = string, b = bool })`."""
    lines = [re.sub(r"\s+=\s+", " = ", line.strip()) for line in text.splitlines()]
    joined = ", ".join(lines).replace("{,", "{").replace(", }", " }")
    return f"`{joined}`".replace("|", "\\|")


if __name__ == "__main__":
    (ROOT / "README.md").write_text(updated(ROOT))
