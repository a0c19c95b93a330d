"""Rebuild the providers' schemas in `schema/` from public, generated bindings of the providers.

Source: the packages cdktn-provider-google and cdktn-provider-google-beta on PyPI (CDK Terrain, licence
MPL-2.0), which are generated from `terraform providers schema -json`. The files in `schema/` have the names,
types and flags of the resources that terraform/ uses, in the form of that command, without code and
descriptions.

    python -m tests.terraform.extract_schema FOLDER    # downloads four packages, 240 MB, into FOLDER
"""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGES = {"google": "cdktn-provider-google", "google-beta": "cdktn-provider-google-beta"}
RELEASES = {"6.50.0": "16.13.0", "8.7.0": "21.1.0"}
"""Version of the provider -> version of the packages generated from it."""

RESOURCES = {
    "google": (
        "google_artifact_registry_repository",
        "google_artifact_registry_repository_iam_member",
        "google_billing_budget",
        "google_cloud_run_v2_job",
        "google_cloud_run_v2_job_iam_member",
        "google_cloud_scheduler_job",
        "google_compute_firewall",
        "google_compute_network",
        "google_compute_router",
        "google_compute_router_nat",
        "google_compute_subnetwork",
        "google_iap_tunnel_iam_member",
        "google_kms_crypto_key_iam_member",
        "google_project_iam_custom_role",
        "google_project_iam_member",
        "google_project_service",
        "google_service_account",
        "google_service_account_iam_member",
        "google_storage_bucket",
        "google_storage_bucket_iam_member",
    ),
    "google-beta": ("google_tpu_v2_vm",),
}
DATA_SOURCES = {"google": ("google_project", "google_storage_project_service_account"), "google-beta": ()}
PROVIDER_ARGUMENTS = ("billing_project", "credentials", "project", "region", "user_project_override", "zone")
"""The relevant ones of about two hundred; most are endpoints of single services."""

BASES = {"TerraformResource": "resource", "TerraformDataSource": "data", "TerraformProvider": "provider"}
SOURCE_MAP = re.compile(r"sourceMappingURL=data:application/json;base64,(\S+)")
CLASS = re.compile(r"^export class (\w+) extends cdkt[fn]\.(\w+) \{$(.*?)^\}$", re.S | re.M)
HCL_FUNCTION = re.compile(r"^export function (\w+)ToHclTerraform\(.*?\{$(.*?)^\}$", re.S | re.M)
HCL_METHOD = re.compile(r"synthesizeHclAttributes\(\)(.*?)^  \}", re.S | re.M)
HCL_ENTRY = re.compile(
    r'^\s+(\w+): \{\s+value: .*?\n\s+isBlock: (\w+),\s+type: "(\w+)",\s+storageClassType: "(\w+)"', re.M
)
MEMBER = re.compile(
    r"// (\w+) - computed: (\w+), optional: (\w+), required: (\w+)\n(.*?)(?=\n\s*// \w+ - computed:|\Z)", re.S
)
GETTER = re.compile(r"return (cdkt[fn]\.Fn\.tolist\()?this\.get(\w+?)Attribute\(")
NESTED = re.compile(r'_\w+ = new (?:\w+\.)?(\w+)\(this, "(\w+)"(?:, (true|false))?\)')
INTERFACE = re.compile(r"^export interface (\w+) .*?\{$(.*?)^\}$", re.S | re.M)
DOCUMENTED = re.compile(r"/\*\*((?:(?!\*/).)*?)\*/\s+readonly \w+\??:", re.S)
REFERENCE = re.compile(r"#(\w+) \w+#\w+\}")
POSSIBLE = re.compile(r'Possible values: \[((?:"[^"]*"(?:, )?)+)\]')

STORED = {"string": "string", "boolean": "bool", "number": "number"}
ELEMENTS = {"stringList": "string", "numberList": "number", "booleanList": "bool",
            "stringMap": "string", "numberMap": "number", "booleanMap": "bool"}  # fmt: skip
READ = {"String": "string", "Number": "number", "Boolean": "bool", "List": ["list", "string"],
        "NumberList": ["list", "number"], "StringMap": ["map", "string"], "NumberMap": ["map", "number"],
        "BooleanMap": ["map", "bool"], "AnyMap": ["map", "string"]}  # fmt: skip
MODES = {"list": "list", "set": "set", "struct": "single", "map": "map"}


class Binding:
    """The generated TypeScript of one resource, data source or provider."""

    def __init__(self, source: str) -> None:
        classes = {match[1]: (match[2], match[3]) for match in CLASS.finditer(source)}
        self._classes = {name: body for name, (_, body) in classes.items()}
        self._hcl = {match[1]: _entries(match[2]) for match in HCL_FUNCTION.finditer(source)}
        self._documented = {match[1]: _documented(match[2]) for match in INTERFACE.finditer(source)}
        self.allowed_values: dict[str, list[str]] = {}
        """Dotted name of an attribute -> the values that it is documented to take; filled by `block`."""
        self.name, base = next((name, base) for name, (base, _) in classes.items() if base in BASES)
        self.kind = BASES[base]
        resource_type = re.search(r'tfResourceType = "([\w-]+)"', source)
        self.terraform_name = resource_type[1] if resource_type else ""

    def block(self) -> dict[str, Any]:
        """Return the schema of the resource, data source or provider."""
        method = HCL_METHOD.search(self._classes[self.name])
        entries = _entries(method[1]) if method else {}
        if self.kind == "provider":
            plain = {
                name: {"type": _stored(*entries[name][1:]), "optional": True} for name in PROVIDER_ARGUMENTS
            }
            return {"attributes": plain}
        return self._block(self.name, f"{self.name}Config", entries)

    def _block(
        self, name: str, interface: str, entries: dict[str, tuple[str, str, str]], path: str = ""
    ) -> dict[str, Any]:
        attributes, nested = {}, {}
        for member, flags, code in _members(self._classes[name]):
            inner = next(
                (match for match in NESTED.finditer(code.split("// ")[0]) if match[2] == member), None
            )
            is_block, mode, stored = entries.get(member, ("false", "", ""))
            if inner and is_block == "true":
                nested[member] = self._nested_block(inner[1], MODES[mode], f"{path}{member}.")
                if "required" in flags:
                    nested[member]["min_items"] = 1
            else:
                kind = self._type(inner, mode, stored, code)
                attributes[member] = {"type": kind, **dict.fromkeys(flags, True)}
                if member in self._documented.get(interface, {}):
                    self.allowed_values[path + member] = self._documented[interface][member]
        block = {"attributes": dict(sorted(attributes.items())), "block_types": dict(sorted(nested.items()))}
        return {key: entries for key, entries in block.items() if entries}

    def _nested_block(self, name: str, mode: str, path: str) -> dict[str, Any]:
        single = name.endswith("OutputReference")
        struct = name.removesuffix("OutputReference") if single else name.removesuffix("List")
        entries = self._hcl[struct[0].lower() + struct[1:]]
        block = self._block(f"{struct}OutputReference", struct, entries, path)
        limit = {"max_items": 1} if single and mode != "single" else {}
        return {"nesting_mode": mode, "block": block, **limit}

    def _type(self, inner: re.Match[str] | None, mode: str, stored: str, code: str) -> Any:
        if inner:
            return self._computed_type(inner)
        if stored:
            return _stored(mode, stored)
        getter = GETTER.search(code)
        assert getter, f"{self.terraform_name}: {code}"
        kind = READ[getter[2]]
        return ["set", kind[1]] if getter[1] else kind

    def _computed_type(self, inner: re.Match[str]) -> Any:
        """Return the type of a computed attribute: a collection of objects or a map."""
        name, constructor = inner[1], "set" if inner[3] == "true" else "list"
        for prefix, element in (("StringMap", "string"), ("NumberMap", "number"), ("BooleanMap", "bool")):
            if name.startswith(prefix):
                return ["list", ["map", element]] if name.endswith("List") else ["map", element]
        struct = name if name.endswith("OutputReference") else f"{name.removesuffix('List')}OutputReference"
        attributes = self._block(struct, "", {}).get("attributes", {})
        return [constructor, ["object", {key: attribute["type"] for key, attribute in attributes.items()}]]


def _documented(code: str) -> dict[str, list[str]]:
    """Return the values that the comments of an interface list, by attribute."""
    values = {}
    for comment in DOCUMENTED.finditer(code):
        reference, possible = REFERENCE.search(comment[1]), POSSIBLE.search(comment[1])
        if reference and possible:
            values[reference[1]] = json.loads(f"[{possible[1]}]")
    return values


def _entries(code: str) -> dict[str, tuple[str, str, str]]:
    return {match[1]: (match[2], match[3], match[4]) for match in HCL_ENTRY.finditer(code)}


def _members(body: str) -> Iterator[tuple[str, list[str], str]]:
    for match in MEMBER.finditer(body):
        flags = zip(("computed", "optional", "required"), match.groups()[1:4], strict=True)
        yield match[1], [flag for flag, value in flags if value == "true"], match[5]


def _stored(mode: str, stored: str) -> Any:
    return STORED.get(stored) or [mode, ELEMENTS[stored]]


def extract(wheel: Path, provider: str, version: str) -> dict[str, Any]:
    """Return the schema of one provider from the wheel of its bindings."""
    schemas: dict[str, dict[str, Any]] = {"resource": {}, "data": {}, "provider": {}}
    allowed = {}
    for source in _sources(wheel, provider):
        binding = Binding(source)
        schemas[binding.kind][binding.terraform_name] = {"version": 0, "block": binding.block()}
        if binding.allowed_values:
            allowed[f"{binding.kind}.{binding.terraform_name}"] = dict(sorted(binding.allowed_values.items()))
    (own,) = schemas["provider"].values()
    return {
        "format_version": "1.0",
        "derived_from": f"{PACKAGES[provider]} {RELEASES[version]} on PyPI (CDK Terrain, MPL-2.0)",
        "provider_schemas": {
            f"registry.terraform.io/hashicorp/{provider}": {
                "provider": own,
                "resource_schemas": dict(sorted(schemas["resource"].items())),
                "data_source_schemas": dict(sorted(schemas["data"].items())),
            }
        },
        "allowed_values": dict(sorted(allowed.items())),
    }


def _sources(wheel: Path, provider: str) -> Iterator[str]:
    """Yield the TypeScript of the required bindings, from the source maps of the scripts.

    The scripts themselves are not sufficient: those of older releases lack the flags of plain attributes.
    """
    prefix = "google-" if provider == "google-beta" else ""
    missing = {prefix + _dashed(name) for name in RESOURCES[provider]} | {
        f"data-google-{_dashed(name)}" for name in DATA_SOURCES[provider]
    } | {"provider"}  # fmt: skip
    with zipfile.ZipFile(wheel) as archive:
        (inner,) = [name for name in archive.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(archive.read(inner))) as package:
            for member in package:
                _, *parts = member.name.split("/")
                if parts[0] == "lib" and parts[1] in missing and parts[2:] == ["index.js"]:
                    missing.remove(parts[1])
                    content = package.extractfile(member)
                    assert content
                    source_map = SOURCE_MAP.search(content.read().decode())
                    assert source_map, member.name
                    yield json.loads(base64.b64decode(source_map[1]))["sourcesContent"][0]
    assert not missing, f"{wheel.name} lacks {missing}"


def _dashed(name: str) -> str:
    return name.removeprefix("google_").replace("_", "-")


def rendered(schema: dict[str, Any]) -> str:
    """Return a schema as JSON with one attribute per line."""
    text = re.sub(r"\[[^][{}]*\]", _one_line, json.dumps(schema, indent=1))
    return re.sub(r"\{\n\s+\"type\": (.*?)\n\s+\}(?=,?\n)", _one_line, text, flags=re.S) + "\n"


def _one_line(match: re.Match[str]) -> str:
    return re.sub(r"\s*\n\s*", " ", match[0])


def download(folder: Path) -> dict[tuple[str, str], Path]:
    """Download the packages and return their wheels by provider and its version."""
    wheels = {}
    for version, release in RELEASES.items():
        for provider, package in PACKAGES.items():
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
            subprocess.run([*command, f"{package}=={release}"], check=True)
            (wheels[provider, version],) = folder.glob(f"{package.replace('-', '_')}-{release}-*.whl")
    return wheels


def main(folder: Path) -> None:
    """Write every file of `schema/`."""
    for (provider, version), wheel in download(folder).items():
        path = Path(__file__).parent / "schema" / f"{provider}-{version}.json"
        path.write_text(rendered(extract(wheel, provider, version)))
        print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
