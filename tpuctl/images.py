"""Describes the images of TPU VMs: what each runtime version has, and what a framework needs on it.

Names: https://docs.cloud.google.com/tpu/docs/runtimes (read 2026-11); those with a generation since 2.18, and
2.19.0, are from public logs of users, such as tensorflow/tensorflow#82208. Unverified: nobody of this project
has seen an image.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from tpuctl.accelerators import TPU7X, Accelerator
from tpuctl.errors import UsageError
from tpuctl.host.worker import requirements
from tpuctl.host.worker.requirements import Requirement

TENSORFLOW, JAX, PYTORCH = "tensorflow", "jax", "pytorch"
FRAMEWORKS = (TENSORFLOW, JAX, PYTORCH)
NAMES = {TENSORFLOW: "TensorFlow", JAX: "JAX", PYTORCH: "PyTorch"}
TENSORFLOW_GENERATIONS = ("v2", "v3", "v4", "v5e", "v5p", "v6e")
"""v5e, v5p and v6e from 2.15 on, with PJRT: https://cloud.google.com/tpu/docs/supported-versions ; not TPU7x:
https://docs.cloud.google.com/tpu/docs/tpu7x"""
PLAIN = {
    "tpu-ubuntu2204-base": ("v2", "v3", "v4"),
    "v2-alpha-tpuv5-lite": ("v5e",),
    "v2-alpha-tpuv5": ("v5p",),
    "v2-alpha-tpuv6e": ("v6e",),
}
"""Images without a framework, for JAX and PyTorch -> generations."""
HOLDER = "tpu-runtime"
"""The process of a `-pod` image that serves the host's chips to worker 0; its unit and its user are called so
in mlcommons/training_results_v2.0 and sgl-project/sglang-jax#433."""

_TENSORFLOW = re.compile(
    r"tpu-vm-tf-(?P<version>\d+\.\d+\.\d+)(?P<pod>-pod)?(?:-(?P<api>pjrt|se))?"
    r"(?:-(?P<generations>v4|v5p-and-below|v5e-and-v6))?"
)
_OF_NAME = {
    "v4": ("v4",),
    "v5p-and-below": ("v2", "v3", "v4", "v5p"),
    "v5e-and-v6": ("v5e", "v6e"),
}
_FIRST_ON_V6E = (2, 17)
"""2.16.1 does not see the chips of a v6e (log of a user; 2.18.0 and 2.19.0 crash in theirs); unverified."""

_UBUNTU = {
    "attrs": "21.2.0", "certifi": "2020.6.20", "chardet": "4.0.0", "cryptography": "3.4.8", "distro": "1.7.0",
    "idna": "3.3", "importlib-metadata": "4.6.4", "jinja2": "3.0.3", "jsonschema": "3.2.0",
    "markupsafe": "2.0.1", "more-itertools": "8.10.0", "oauthlib": "3.2.0", "pip": "22.0.2",
    "pyjwt": "2.3.0", "pyparsing": "2.4.7", "pyrsistent": "0.18.1", "pytz": "2022.1", "pyyaml": "5.4.1",
    "requests": "2.25.1", "setuptools": "59.6.0", "six": "1.16.0", "urllib3": "1.26.5", "wheel": "0.37.1",
    "zipp": "1.0.0",
}  # fmt: skip
"""python3-* of Ubuntu 22.04 that `pip list` of a TPU VM shows: kingoflolz/mesh-transformer-jax#202; versions
of packages.ubuntu.com/jammy. More may be there; unverified."""
_KERAS = {"2.15": "2.15.0", "2.16": "3.0.0", "2.17": "3.2.0", "2.18": "3.5.0", "2.19": "3.5.0"}
"""At least: requirements of tensorflow-tpu on PyPI."""


@dataclass(frozen=True, slots=True)
class Image:
    """What a runtime version has."""

    name: str
    """As the API has it."""
    system: str
    python: str
    """Version of the system's python3."""
    framework: str
    """The one that it has, or "" for a plain image."""
    framework_version: str
    generations: tuple[str, ...]
    """Those that it serves."""
    several_hosts: bool | None
    """True for slices of several hosts only, False for one host only, None for both."""
    holder: str
    """The process of the image that holds the chips from boot on, or ""."""
    packages: Mapping[str, str]
    """Distributions that its python3 has -> version."""
    libtpu: bool
    """Whether it has a libtpu; that of plain images comes with the framework."""
    sudo: bool = True
    docker: bool = True
    source: str = "https://docs.cloud.google.com/tpu/docs/runtimes"

    def serves(self, hosts: int) -> tuple[str, ...]:
        """Return the frameworks whose programs can use the chips of slices of so many hosts.

        The server of a `-pod` image holds the chips, so only TensorFlow reaches them; and without that server
        TensorFlow reaches those of one host alone: Cloud TPU documentation, TensorFlow on TPU pod slices.
        """
        if self.several_hosts:
            return () if hosts == 1 else (TENSORFLOW,)
        return FRAMEWORKS if hosts <= 1 else (JAX, PYTORCH)


def release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: 2.18.0 is (2, 18, 0)."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


@cache
def image(runtime: str) -> Image | None:
    """Return what a runtime version has, by its name; None for one of an unknown family."""
    if runtime in PLAIN:
        return Image(runtime, "Ubuntu 22.04", "3.10", "", "", PLAIN[runtime], None, "", _UBUNTU, libtpu=False)
    match = _TENSORFLOW.fullmatch(runtime)
    if match is None:
        return None
    version, pod, api, named = match.group("version", "pod", "api", "generations")
    generations = _OF_NAME.get(named or "") or TENSORFLOW_GENERATIONS
    if api != "pjrt":  # the newer generations have PJRT alone
        generations = tuple(each for each in generations if each in ("v2", "v3", "v4"))
    keras = _KERAS.get(version.rpartition(".")[0], version)
    return Image(
        runtime, "Ubuntu 22.04", "3.10", TENSORFLOW, version, generations, bool(pod), HOLDER if pod else "",
        {**_UBUNTU, "tensorflow": version, "keras": keras, "tensorboard": f"{version.rpartition('.')[0]}.0"},
        libtpu=True,
    )  # fmt: skip


def _real_names() -> Iterable[str]:
    """Names that Google's pages or public logs have, and those between them; no 2.16.0."""
    yield from PLAIN
    for version in ("2.15.0", "2.15.1", "2.16.1", "2.16.2", "2.17.0", "2.17.1"):
        yield from (f"tpu-vm-tf-{version}{pod}-{api}" for pod in ("", "-pod") for api in ("pjrt", "se"))
    for pod in ("", "-pod"):
        yield f"tpu-vm-tf-2.18.0{pod}-se"
        yield from (f"tpu-vm-tf-2.18.0{pod}-pjrt-{each}" for each in ("v5p-and-below", "v5e-and-v6"))
        yield f"tpu-vm-tf-2.19.0{pod}-pjrt"


IMAGES: Mapping[str, Image] = {name: found for name in _real_names() if (found := image(name))}
"""The images that the simulator offers in every zone."""


def devices(accelerator: Accelerator) -> tuple[str, ...]:
    """Return the device files of one host's chips.

    `/dev/accelN` up to v4, `/dev/vfio/N` from v5e on: tpu_info/device.py of AI-Hypercomputer's
    cloud-accelerator-diagnostics.
    """
    folder = "/dev/accel" if accelerator.generation in ("v2", "v3", "v4") else "/dev/vfio/"
    return tuple(f"{folder}{chip}" for chip in range(accelerator.chips_per_host))


def default_runtime(accelerator: Accelerator, framework: str, offered: Iterable[str]) -> str:
    """Return the runtime version for a framework: for TensorFlow its newest image, else the plain one.

    Of a generation that the catalogue does not know, the image that is named like it; '' without one. Raises
    UsageError where none of those `offered` has TensorFlow for the type.
    """
    names = tuple(offered)
    if framework == TENSORFLOW and (accelerator.is_known or accelerator.generation == TPU7X):
        if accelerator.generation not in TENSORFLOW_GENERATIONS:
            raise no_tensorflow(accelerator)
        images = tensorflow_images(accelerator, names)
        if not images:
            plain = f" On one host it can be installed: --runtime {accelerator.base_runtime}"
            raise UsageError(
                f"No runtime version here has TensorFlow for {accelerator.type}.",
                hint="Take another zone, or --framework jax or pytorch."
                + (plain if accelerator.hosts == 1 else ""),
                accelerator=accelerator.type,
            )
        return images[0].name
    return accelerator.base_runtime or _named_like(accelerator.generation, names)


def no_tensorflow(accelerator: Accelerator) -> UsageError:
    """Return the error for TensorFlow on a generation that does not have it."""
    return UsageError(
        f"TensorFlow does not run on {accelerator.generation}: Google has no build for it.",
        hint="Run it on v6e or older: tpuctl types",
        accelerator=accelerator.type,
    )


def _named_like(generation: str, offered: Iterable[str]) -> str:
    """Return the last image with the number of a generation: `v2-alpha-tpu7-ubuntu2404` for tpu7x."""
    number = re.search(r"\d+", generation)
    own = re.compile(rf"tpuv?{number[0]}(?!\d)") if number else None
    return max((name for name in offered if own and own.search(name)), default="")


def tensorflow_images(accelerator: Accelerator, offered: Iterable[str]) -> list[Image]:
    """Return the TensorFlow images among `offered` that serve an accelerator type, the best first.

    That is the newest, with PJRT before those without, and then the one that names its generations.
    """
    fitting = [
        each
        for each in map(image, offered)
        if each
        and each.framework
        and accelerator.generation in each.generations
        and each.several_hosts == (accelerator.hosts > 1)
        and _has_build(accelerator.generation, each.framework_version)
    ]
    return sorted(fitting, key=_rank, reverse=True)


def _rank(each: Image) -> tuple[object, ...]:
    return release(each.framework_version), "-pjrt" in each.name, -len(each.generations), each.name


def obstacle(image: Image, framework: str, accelerator: Accelerator, hosts: int) -> str:
    """Return why a framework's program cannot use the chips of so many hosts with an image; '' if it can."""
    generation = accelerator.generation
    if framework in image.serves(hosts):
        own = image.framework == framework
        has_build = generation in image.generations and _has_build(generation, image.framework_version)
        return "" if has_build or not own else f"its {NAMES[framework]} does not know {generation}"
    if image.several_hosts and hosts == 1:
        return "it is for slices of several hosts"
    if framework == TENSORFLOW:
        return f"TensorFlow on {hosts} hosts needs an image for slices, whose servers have the chips"
    return f"its TensorFlow holds the chips, and {NAMES[framework]} finds none"


def _has_build(generation: str, version: str) -> bool:
    return generation != "v6e" or release(version) >= _FIRST_ON_V6E


LIBTPU = {
    # distribution: Google's page of the libtpu that its older releases require, and that PyPI does not have;
    # the first release whose libtpu is on PyPI (metadata on PyPI, read 2026-11)
    "jax": ("https://storage.googleapis.com/jax-releases/libtpu_releases.html", (0, 5, 1)),
    "tensorflow-tpu": ("https://storage.googleapis.com/libtpu-tf-releases/index.html", (2, 19, 1)),
    "torch-xla": ("https://storage.googleapis.com/libtpu-releases/index.html", (2, 7, 0)),
}
TENSORFLOW_TPU = ("2.16.1", "2.16.2", "2.17.0", "2.17.1", "2.18.0", "2.19.1", "2.20.0")
"""Releases of tensorflow-tpu on PyPI (read 2026-11). `tensorflow` there has no operations of TPUs:
tensorflow/tensorflow#52149."""
_TORCH_XLA = range(9, 0, -1)
"""2.N of torch_xla on PyPI, each for the torch of the same release (read 2026-11)."""
_TORCH_TPU = ((2, 11), "3.11")
"""The first torch and Python that torch_tpu, the successor of torch_xla, takes (PyPI, read 2026-11)."""
_LAST_JAX = {"3.10": (0, 6, 2), "3.11": (0, 10, 2)}
"""The last jax for a Python (PyPI, read 2026-11)."""
_REQUIRE_JAX = (
    "brax", "chex", "distrax", "dm-haiku", "equinox", "flax", "jaxopt", "numpyro", "optax",
    "orbax-checkpoint",
)  # fmt: skip
"""Packages that bring jax without its libtpu."""


@dataclass(frozen=True, slots=True)
class Distributions:
    """What hosts install for a program's requirements."""

    requirements: tuple[str, ...]
    find_links: tuple[str, ...] = ()
    """Google's pages that the installer gets besides its index."""
    reason: str = ""
    """What differs from the program's own list, and why: a line for the log; empty where nothing does."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a program runs: what decides which distributions give it the chips."""

    image: Image | None
    """None for one that is not known: what it has is not known then."""
    accelerator: Accelerator
    requires_python: str = ""
    """The program's, as in PEP 440: it runs on the image's Python where that fits."""

    @property
    def python(self) -> str:
        """The image's Python, or '' where the program does not run on it or it is not known."""
        fits = self.image and requirements.accepts(self.requires_python, f"{self.image.python}.12")
        return self.image.python if self.image and fits else ""


def distributions(
    wanted: Sequence[str], framework: str, place: Place, pins: Mapping[str, str] = MappingProxyType({})
) -> Distributions:
    """Return what hosts install for requirements of PEP 508, so that the framework's program has the chips.

    `jax` becomes `jax[tpu]`, `tensorflow` becomes `tensorflow-tpu` where the image has none, and `torch` gets
    `torch_xla[tpu]` or `torch_tpu`: but only the program's own framework, since a second libtpu would be in
    its way. A requirement of an address stays as it is. `pins` hold distributions to versions. Raises
    UsageError for what cannot work.
    """
    read = [requirements.parse(text) for text in wanted]
    names = {each.name: each for each in read}
    lines, reasons = list[Requirement](), list[str]()
    for each in read:
        chosen = _chosen(each, framework, place, names) if not each.url else [each]
        lines += chosen
        if chosen != [each]:
            reasons.append(f"{' and '.join(line.text for line in chosen)} for {each.text}")
    if framework == JAX and "jax" not in names and not names.keys().isdisjoint(_REQUIRE_JAX):
        lines.append(requirements.parse("jax[tpu]"))
        reasons.append("jax[tpu] besides")
    pages = tuple(dict.fromkeys(LIBTPU[line.name][0] for line in lines if _is_old(line, pins)))
    parts = [f"{', '.join(reasons)}: {_why(framework, place)}"] if reasons else []
    parts += [f"libtpu from {page}" for page in pages]
    return Distributions(tuple(line.text for line in lines), pages, "; ".join(parts))


def _why(framework: str, place: Place) -> str:
    if place.image is None:
        return f"the image may have no {NAMES[framework]}, and {_REASONS[framework]}"
    name = place.image.name
    if place.image.framework == framework:
        return f"{name} has TensorFlow {place.image.framework_version}"
    return f"{name} has no {NAMES[framework]}, and {_REASONS[framework]}"


_REASONS = {
    JAX: "jax alone has no libtpu",
    TENSORFLOW: "tensorflow of PyPI has no operations of TPUs",
    PYTORCH: "torch alone does not know TPUs",
}


def _chosen(
    each: Requirement, framework: str, place: Place, named: Mapping[str, Requirement]
) -> list[Requirement]:
    """Return what stands for a requirement among those that are `named`."""
    if framework == JAX and each.name == "jax":
        _require_python(each, place)
        return [_like(each, "jax", "tpu")]
    if framework == TENSORFLOW and each.name in ("tensorflow", "tensorflow-tpu"):
        return [_tensorflow(each, place)]
    if framework == PYTORCH and each.name == "torch-xla":
        return [_like(each, "torch_xla", "tpu")]
    if framework == PYTORCH and each.name == "torch" and "torch-tpu" not in named:
        return _torch(each, place, named.get("torch-xla"))
    return [each]


def _like(each: Requirement, name: str, extra: str = "", specifier: str | None = None) -> Requirement:
    """Return a requirement of another name or with one more extra; the same where it has it.

    Extras such as jax[cuda12] go: they bring gigabytes for another chip.
    """
    own = [one for one in each.extras if not one.startswith("cuda") and one != extra]
    is_there = {*own, extra} - {""} == set(each.extras) if extra else True
    if is_there and each.name == requirements.normalized(name) and specifier in (None, each.specifier):
        return each
    extras = ",".join((*own, extra)) if extra else ""
    marker = f"; {each.marker}" if each.marker else ""
    specifier = each.specifier if specifier is None else specifier
    return requirements.parse(f"{name}{f'[{extras}]' if extras else ''}{specifier}{marker}")


def _tensorflow(each: Requirement, place: Place) -> Requirement:
    image, generation = place.image, place.accelerator.generation
    if generation == TPU7X:
        raise no_tensorflow(place.accelerator)
    if image and image.framework == TENSORFLOW:
        if requirements.accepts(each.specifier, image.framework_version):
            return each
        if image.several_hosts:
            raise UsageError(
                f"{each.text} is not the TensorFlow {image.framework_version} of {image.name}, whose servers "
                "have the chips.",
                hint="Make a TPU whose image has it, by --runtime: tpuctl runtimes",
            )
    builds = [version for version in TENSORFLOW_TPU if _has_build(generation, version)]
    if not any(requirements.accepts(each.specifier, version) for version in builds):
        raise UsageError(
            f"There is no {each.text} for {generation}: tensorflow-tpu has {', '.join(builds)}.",
            hint="Ask for one of these in the header's dependencies, or for 'tensorflow'.",
        )
    return _like(each, "tensorflow-tpu")


def _torch(each: Requirement, place: Place, xla: Requirement | None) -> list[Requirement]:
    """Return torch with what brings it to TPUs, unless that is named, in the release that fits."""
    specifiers = [each.specifier, *([xla.specifier] if xla else [])]
    for minor in _TORCH_XLA:
        patches = [f"2.{minor}.{patch}" for patch in range(3)]
        if all(any(requirements.accepts(specifier, patch) for patch in patches) for specifier in specifiers):
            own = each if each.specifier else _like(each, "torch", specifier=f"==2.{minor}.*")
            return [own, *([] if xla else [_like(each, "torch_xla", "tpu", f"==2.{minor}.*")])]
    if xla:
        return [each]
    first, python = _TORCH_TPU
    if place.python and release(place.python) < release(python):
        raise UsageError(
            f"{each.text} reaches TPUs by torch_tpu, which needs Python {python}: {place.python} is what "
            f"{place.image.name if place.image else 'the image'} has.",
            hint=f'Write requires-python = ">={python}" into the header, or ask for torch 2.9.',
        )
    if not any(requirements.accepts(each.specifier, f"2.{first[1] + step}.0") for step in range(20)):
        raise UsageError(
            f"Neither torch_xla nor torch_tpu fits {each.text}.", hint="Ask for torch 2.9, or 2.11 and later."
        )
    return [each, _like(each, "torch_tpu", specifier="")]


def _require_python(each: Requirement, place: Place) -> None:
    """Raise UsageError for a jax that the image's Python is too old for."""
    last = _LAST_JAX.get(place.python)
    lower = [number for operator, number in _clauses(each.specifier) if operator in (">=", ">", "==", "~=")]
    if last and any(number > last for number in lower):
        raise UsageError(
            f"{each.text} needs a newer Python than {place.python}, which "
            f"{place.image.name if place.image else 'the image'} has: its last jax is "
            f"{'.'.join(map(str, last))}.",
            hint='Write requires-python = ">=3.12" into the header.',
        )


_CLAUSE = re.compile(r"(<=|>=|~=|={2,3}|<|>)\s*v?(\d+(?:\.\d+)*)")


def _clauses(specifier: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return the operators and numbers of a specifier."""
    return [(match[1], release(match[2])) for match in _CLAUSE.finditer(specifier)]


def _is_old(each: Requirement, pins: Mapping[str, str]) -> bool:
    """Whether the newest release that a requirement and the pins accept has its libtpu on Google's page."""
    if each.url or each.name not in LIBTPU or not (each.name == "tensorflow-tpu" or "tpu" in each.extras):
        return False
    first = LIBTPU[each.name][1]
    specifier = f"=={pins[each.name]}" if each.name in pins else each.specifier
    for operator, number in _clauses(specifier):
        if operator == "~=":
            number = number[:-1]
        bound = first[: len(number)]
        if operator[0] in "<=~" and (number < bound or (operator == "<" and number <= first)):
            return True
    return False
