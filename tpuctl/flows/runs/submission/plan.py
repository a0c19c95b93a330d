"""Plans a submission, by reads alone: what is started, with which settings, packages and data, and where."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import msgspec

from tpuctl import accelerators, clock, images
from tpuctl.catalogue.recorded_price import RecordedPrice
from tpuctl.config.files import FILE_NAME
from tpuctl.datasets import DatasetRef, PinnedDataset
from tpuctl.errors import NotFoundError, StateError, UsageError
from tpuctl.flows.nodes.lookup import find_ready
from tpuctl.flows.nodes.options import obstacle_to_spanning
from tpuctl.flows.runs.code import bundles, programs, project_imports, project_lists
from tpuctl.flows.runs.code.bundles import check_bundle
from tpuctl.flows.runs.code.programs import Program
from tpuctl.flows.runs.code.project_files import read_source
from tpuctl.flows.runs.code.project_imports import Source
from tpuctl.flows.runs.code.project_lists import ProjectLists
from tpuctl.flows.runs.code.work_tree import git_state
from tpuctl.flows.runs.submission import packages, resumption
from tpuctl.flows.runs.submission.environment import check_values, stored_environment
from tpuctl.flows.runs.submission.restart_policy import RestartRequest, machine_like, moved, policy
from tpuctl.flows.runs.submission.specs import Launch
from tpuctl.host.worker.records import (
    COMMAND,
    MODULE,
    NOTEBOOK,
    PLACEHOLDER,
    PLACEHOLDERS,
    SCRIPT,
    SETUP_TIMEOUT,
)
from tpuctl.images import FRAMEWORKS, JAX, PYTORCH, TENSORFLOW
from tpuctl.job_header import Header, ToolTable
from tpuctl.masking import MaskedArguments, masked, masked_arguments, masked_diff
from tpuctl.nodes import Node
from tpuctl.provenance import seeds_of
from tpuctl.runs import ORDERED_LOGS, Attempt, Git, Run, Tpu, check_name, submitter

if TYPE_CHECKING:
    from tpuctl.cloud.provider import Provider
    from tpuctl.cloud.storage import Bucket


MEGASCALE_PORT = "8081"
NO_VARIABLES: Mapping[str, str] = {}
PriceOf = Callable[[Node], RecordedPrice | None]
"""Returns what a node costs per hour, without asking a service."""


@dataclass(frozen=True)
class SubmitRequest:
    """What the user asks `submit` for; None leaves it to the script's header, its project, or tpuctl."""

    script: str | Path
    """Path of a script or a notebook; name of a module, or of a command."""
    arguments: tuple[str, ...] = ()
    kind: str = ""
    """MODULE or COMMAND; empty for a file."""
    root: Path | None = None
    """The project's folder; None for the nearest one."""
    here: Path = field(default_factory=Path.cwd)
    """The current folder."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the table [run] of tpuctl.toml, for what neither the header nor the project says."""
    framework: str | None = None
    include: tuple[Path, ...] = ()
    name: str | None = None
    tpu: str | None = None
    accelerator: str | None = None
    dataset: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    stored: tuple[str, ...] = ()
    """Variables whose values the run's record gets, too."""
    setup: str | None = None
    """Command for sh that each host runs before the script."""
    setup_timeout: float = SETUP_TIMEOUT
    """Seconds that it may take."""
    python: str = ""
    """Version of Python that runs the script, such as 3.12; empty leaves it to the header."""
    python_archives: Mapping[str, str] = field(default_factory=dict)
    """Interpreters of the bucket: version -> SHA-256 of the archive."""
    extras: tuple[str, ...] = ()
    """Extras of the project's pyproject.toml that hosts install, too."""
    groups: tuple[str, ...] = ()
    """Its dependency groups that hosts install, too."""
    indexes: tuple[str, ...] = ()
    """URLs besides PyPI that packages may come from if the project's files say so."""
    wheelhouse: Path | None = None
    """Folder of wheels in the program's folder: hosts install from nowhere else."""
    code_limit: int = bundles.LIMIT
    """Bytes of all files."""
    restarts: RestartRequest = field(default_factory=RestartRequest)
    secrets: tuple[str, ...] = ()
    """Variables whose values no disk gets."""


@dataclass(frozen=True)
class SubmitPlan:
    """A run that is ready to be written and started."""

    run: Run
    attempt: Attempt
    node: Node
    code: bundles.Bundle
    launch: Launch
    secrets: tuple[str, ...] = ()
    """Values that no record gets, wherever a message quotes them."""
    notes: tuple[str, ...] = ()
    """Sentences for the user."""
    is_named: bool = True
    """Whether the user chose the run's name."""
    takes_turn: bool = False
    """Whether its node was free, and of several submissions at once only the first may start."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What is run, from which folder, and each setting with its origin: for --dry-run."""


def plan_submit(
    data_bucket: Bucket, provider: Provider, owner: str, request: SubmitRequest, at: datetime,
    report: bundles.Report | None = None, node: Node | None = None,
) -> SubmitPlan:  # fmt: skip
    """Read the program and its settings, find its dataset and its node; sends reads only.

    `node` is the one to run on, which may not exist yet; None for one that fits the request.
    Raises UsageError for a program or name that is not valid, also for a syntax error, NotFoundError for a
    missing dataset or node, StateError when no node of `owner` is READY.
    """
    program = _program(request)
    header, lists, sources = _settled(program, request)
    framework = header.tpuctl.framework or TENSORFLOW
    wheelhouse = bundles.wheelhouse(program.root, request.wheelhouse)
    code = _packed(program, request, header, lists, report)
    notes = [*_project_note(header, request), *_syntax_notes(program, header, sources)]
    notes += [*bundles.direct_references(header), *code.notes]
    if lists.provenance:
        notes.append(f"Hosts install what {lists.provenance} lists ({len(lists.requirements)}).")
    notes += lists.notes
    settings = _shown(program, request, header)
    request = _with_header(request, header.tpuctl)
    _check_texts(request)
    types = _types(request, header.tpuctl, notes)
    name = check_name(request.name) if request.name else default_name(request, at)
    dataset = _pinned(data_bucket, request.dataset, notes) if request.dataset else None
    node = node or find_ready(provider, request.tpu, types, owner)
    _check_slices(node, framework)
    imported = "" if request.setup else _framework(sources)
    is_imported = imported == header.tpuctl.framework and imported not in lists.own
    locked = bundles.locked(program.root, header)
    notes += packages.check(node, header, locked, imports=is_imported)
    notes += _unknown_framework(program, node, header.tpuctl.framework)
    if not request.setup:
        notes += _missing(program, sources, code, packages.present(node, header, [*locked, *lists.pins]))
    git, git_notes = _git(program.root, code)
    arguments = masked_arguments(request.arguments)
    record = _run(name, request, arguments.arguments, code, header, node, dataset, git, at)
    record = msgspec.structs.replace(_with_lists(record, lists), wheelhouse=wheelhouse)
    record = _with_restarts(record, request, header.tpuctl, node, owner, data_bucket.name)
    notes += [*check_bundle(code, request.include, program.root), *git_notes]
    notes += [*_arguments_note(arguments), *resumption.note(record)]
    return SubmitPlan(
        run=record,
        attempt=attempt_on(node, framework, at),
        node=node,
        code=code,
        launch=Launch(
            arguments=request.arguments,
            dependencies=header.dependencies,
            environment={**own_variables(data_bucket.name, framework, node, dataset), **request.environment},
            setup=request.setup or "",
        ),
        secrets=(*arguments.values, *_setup_values(request), *_unstored_values(request)),
        notes=tuple(notes),
        is_named=bool(request.name),
        settings=settings,
    )


def read_header(request: SubmitRequest) -> Header:
    """Return the settings of what is to run: options before the header before the project's.

    Raises UsageError.
    """
    return _settled(_program(request), request)[0]


def _program(request: SubmitRequest) -> Program:
    return programs.find(request.script, request.kind, request.root, request.here)


def _settled(program: Program, request: SubmitRequest) -> tuple[Header, ProjectLists, list[Source]]:
    """Return the settings with what the project lists, the framework as far as it is seen, and imports."""
    header = _header(program, request)
    indexes = None if request.wheelhouse else request.indexes
    start = program.file.parent if program.file else program.here
    lists = project_lists.find(start, program.root, header, request.extras, request.groups, indexes)
    place = "--python" if request.python else f"settings of {program.script}"
    setup = header.tpuctl.setup if request.setup is None else request.setup
    header, lists = lists.overruled(lists.applied(header), programs.installs_of_command(setup or ""))
    header = header.with_python(request.python, place)
    sources = _sources(program, request, lists)
    if header.tpuctl.framework:
        return header, lists, sources
    environment = {**header.tpuctl.env, **request.environment}
    found = _framework(sources, header.dependencies, environment)
    table = msgspec.structs.replace(header.tpuctl, framework=found)
    origins = {**header.origins, "framework": "imports and requirements"}
    return msgspec.structs.replace(header, tpuctl=table, origins=origins), lists, sources


def _sources(program: Program, request: SubmitRequest, lists: ProjectLists) -> list[Source]:
    """Return what a program, or those that its command line starts, and the project's modules import."""
    return [
        source
        for started in programs.started(program, request.arguments, lists.entry_points)
        if started.file
        for source in project_imports.follow([(started.file, started.source())], programs.roots(started))
    ]


_KERAS = re.compile(rb"""KERAS_BACKEND["']\]?\s*[=,]\s*["'](jax|tensorflow|torch)["']""")
_BACKENDS = {"jax": JAX, "tensorflow": TENSORFLOW, "torch": PYTORCH}


def _framework(
    sources: Sequence[Source], dependencies: Sequence[str] = (), environment: Mapping[str, str] = NO_VARIABLES
) -> str:
    """Return the framework that a program needs, else that of its list, else the only one of its modules.

    Keras has the backend that a variable says.
    """
    needed = [
        each.name for source in sources if source.is_needed for each in source.imports if each.is_needed
    ]
    backends = [match[1].decode() for source in sources[:1] for match in _KERAS.finditer(source.data)]
    backend = next(iter(backends), environment.get("KERAS_BACKEND", ""))
    if found := _BACKENDS.get(backend) or project_imports.framework(needed):
        return found
    own = [each.name for source in sources[:1] for each in source.imports]
    if found := project_imports.framework((), dependencies) or project_imports.framework(own):
        return found
    rest = {project_imports.framework([each.name]) for source in sources for each in source.imports} - {""}
    return rest.pop() if len(rest) == 1 else ""


def _unknown_framework(program: Program, node: Node, framework: str) -> list[str]:
    """Return what becomes of a program of no known framework on several hosts.

    Raises UsageError where only frameworks can use the hosts' chips that start on every one.
    """
    machine = Tpu.of(node)
    if framework or machine.hosts == 1:
        return []
    image = images.image(machine.runtime)
    way = "--framework jax or pytorch starts it on every host, --framework tensorflow on worker 0"
    if image and TENSORFLOW not in image.serves(machine.hosts):
        raise UsageError(
            f"Nothing says which framework {program.script} is for, and {machine.name} has {machine.hosts}"
            " hosts: programs of JAX and PyTorch have to run on every one.",
            hint=f"Say it: {way}.",
        )
    return [
        f"Warning: no framework is seen: {program.script} starts on worker 0 of {machine.hosts} alone. {way}."
    ]


def _missing(
    program: Program,
    sources: Sequence[Source],
    code: bundles.Bundle,
    present: tuple[Collection[str], Collection[str]] | None,
) -> list[str]:
    """Return a note on imports that nothing provides; raises UsageError for relative ones of a script."""
    first = sources[0] if sources else None
    dotted = [each for each in first.imports if each.level and each.is_needed] if first else []
    if dotted and program.kind == SCRIPT and program.file:
        module = ".".join(PurePosixPath(program.script).with_suffix("").parts)
        module = module.removeprefix("src.").removesuffix(".__init__")
        raise UsageError(
            f"{program.file}, line {dotted[0].line}: a script has no package, so that"
            f" '{'.' * dotted[0].level}{dotted[0].name}' cannot be imported.",
            hint=f"Run it as a module: -m {module}",
        )
    of_frameworks = ("jax", "jaxlib", "tensorflow", "torch", "torch_xla", "torch_tpu", "libtpu")
    found = project_imports.missing(sources, code.names, *present, of_frameworks) if present else {}
    if not found:
        return []
    shown = [
        f"{name} ({file.name if file else program.script}, line {line})"
        for name, (file, line) in found.items()
    ]
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    needed = ", ".join(f'"{project_imports.distribution_of(name)}"' for name in list(found)[:5])
    return [
        f"Warning: nothing provides {', '.join(shown[:5])}{more}. List it where the others are, such as"
        f" dependencies = [{needed}] in a header."
    ]


def _header(program: Program, request: SubmitRequest) -> Header:
    header = programs.header_of(program, request.defaults)
    framework = request.framework or header.tpuctl.framework
    if framework and framework not in FRAMEWORKS:
        raise UsageError(f"'{framework}' is no framework.", hint=f"Known: {', '.join(FRAMEWORKS)}.")
    lock = header.tpuctl.requirements
    if lock and program.file and "requirements" not in header.origins:
        folder = program.file.parent.relative_to(program.root)
        lock = (PurePosixPath(folder.as_posix()) / lock).as_posix()
    table = msgspec.structs.replace(header.tpuctl, framework=framework, requirements=lock)
    return msgspec.structs.replace(header, tpuctl=table)


def _syntax_notes(program: Program, header: Header, sources: Sequence[Source]) -> list[str]:
    if program.kind == NOTEBOOK and program.file:
        texts = programs.cells(read_source(program.file), str(program.file))
        wanted, others = programs.installs(texts)
        first = [f"Installed before the first cell: {', '.join(wanted)}."] if wanted else []
        left = f"The notebook's 'pip install' has words that are left out: {' '.join(others)}."
        return [*first, *([left] if others else [])]
    if program.file is None or program.kind not in (SCRIPT, MODULE):
        return []
    unread = [one.file for one in sources[1:] if one.file and one.is_needed and not one.imports]
    return project_imports.check_syntax([program.file, *unread], header)


def _project_note(header: Header, request: SubmitRequest) -> list[str]:
    """Return what a project's own files say that bills more or runs commands: the user typed none of it."""
    given = {"accelerator": request.accelerator, "setup": request.setup, "python": request.python or None}
    notes = []
    for file in (programs.SETTINGS, FILE_NAME):
        set_there = [
            f"{name} = {masked(repr(getattr(header.tpuctl, name)))}"
            for name in ("accelerator", "setup", "restarts", "restarts_on_failure", "packages", "python")
            if header.origins.get(name) == file and given.get(name) is None
        ]
        notes += [f"{file} sets {', '.join(set_there)}."] if set_there else []
    return notes


def _shown(program: Program, request: SubmitRequest, header: Header) -> dict[str, str]:
    """Return what is run, where, and the settings with their origins."""
    arguments = masked_arguments(request.arguments).arguments
    words = (*(("-m",) if program.kind == MODULE else ()), program.script, *arguments)
    shown = {"runs": f"{shlex.join(words)} ({program.kind})"}
    if program.is_project:
        shown["project"] = str(program.root)
        shown["working folder"] = program.directory or "."
    table, origins = header.tpuctl, header.origins
    variables = {name: origins.get(f"env.{name}", "header") for name in table.env}
    variables |= dict.fromkeys(request.environment, "--env")
    for name in ToolTable.__struct_fields__:
        option, value = getattr(request, name, None), getattr(table, name)
        if name == "env" and variables:
            shown[name] = ", ".join(f"{variable} ({place})" for variable, place in variables.items())
        if name == "env" or name.startswith("restarts"):
            continue  # of the latter the configuration has a say
        origin = f"--{name}" if option else origins.get(name, "header")
        if option or (value != getattr(ToolTable(), name) and value):
            shown[name] = f"{option or value} ({origin})"
    return shown


def _packed(
    program: Program,
    request: SubmitRequest,
    header: Header,
    lists: ProjectLists,
    report: bundles.Report | None,
) -> bundles.Bundle:
    wheels = (request.wheelhouse,) if request.wheelhouse else ()
    include = (*request.include, *wheels, *bundles.files(program.root, header))
    words = (program.script, *request.arguments) if program.kind == COMMAND else request.arguments
    return bundles.pack(program, include, request.code_limit, report, words, lists.editables)


def _check_texts(request: SubmitRequest) -> None:
    """Raise UsageError for a placeholder that no host can fill in, and for values that none takes."""
    for name in PLACEHOLDER.findall(" ".join(request.arguments)):
        if name == "TPUCTL_DATA_DIR" and not request.dataset:
            text = f"The arguments have {{{name}}}, and the run has no dataset."
            raise UsageError(text, hint="Name it: --dataset NAME")
        if name not in PLACEHOLDERS:
            raise UsageError(
                f"The arguments have {{{name}}}, which is nothing that hosts know.",
                hint=f"Known: {', '.join(PLACEHOLDERS)}.",
            )
    check_values(request.environment)
    if "\0" in (request.setup or ""):
        raise UsageError("The setup command holds a NUL character.", hint="No shell reads that.")


def on_node(plan: SubmitPlan, node: Node, data_bucket: Bucket) -> SubmitPlan:
    """Return the same plan for another node, such as the one that was created for it."""
    framework, dataset, before = plan.run.framework, plan.run.dataset, plan.node
    former = own_variables(data_bucket.name, framework, before, dataset)
    own = {name: value for name, value in plan.launch.environment.items() if former.get(name) != value}
    return replace(
        plan,
        run=msgspec.structs.replace(
            plan.run, accelerator=node.accelerator, machine=moved(plan.run.machine, node)
        ),
        attempt=attempt_on(node, framework, clock.parse(plan.attempt.created)),
        node=node,
        launch=replace(
            plan.launch, environment={**own_variables(data_bucket.name, framework, node, dataset), **own}
        ),
    )


def default_name(program: SubmitRequest | Run, at: datetime) -> str:
    """Return the name of a run for which the user chose none."""
    name = str(program.script)
    if program.kind == COMMAND:
        name = _named_program((name, *program.arguments))
    stem = name if program.kind == MODULE else PurePosixPath(name).stem
    stem = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:40] or "run"
    return f"{stem}-{at.strftime('%Y%m%d-%H%M%S')}"


def _named_program(words: Sequence[str]) -> str:
    """Return the word of a command line that says best what runs: a module, a script, or its first."""
    modules = (after.replace(".", "-") for word, after in itertools.pairwise(words) if word == "-m")
    scripts = (word for word in words if word.endswith((".py", ".sh")))
    return next(modules, None) or next(scripts, words[0])


def require_dataset(bucket: Bucket, record: Run) -> None:
    """Raise NotFoundError or StateError unless the bucket has the dataset with what the run read."""
    if record.dataset is None:
        return
    from tpuctl.flows.datasets.lookup import find_manifest  # noqa: PLC0415  slow, and not always needed

    if record.data_bucket and record.data_bucket != bucket.name:
        raise UsageError(
            f"Run '{record.run}' read its dataset from gs://{record.data_bucket}, and this configuration has"
            f" gs://{bucket.name}.",
            hint=f"Set data_bucket: TPUCTL_DATA_BUCKET={shlex.quote(record.data_bucket)}",
        )
    manifest = find_manifest(bucket, DatasetRef(record.dataset.name, record.dataset.version))
    facts = {"dataset": str(record.dataset), "manifest_sha256": record.dataset.manifest_sha256}
    if manifest is None:
        raise NotFoundError(
            f"The dataset of run '{record.run}' was deleted: there is no {record.dataset} in gs://{bucket.name}.",
            hint="Upload it again from the same files: with the same digest it is the same dataset.",
            **facts,
        )
    if manifest.digest != record.dataset.manifest_sha256:
        raise StateError(
            f"The dataset {record.dataset} has other data than run '{record.run}' read: it was removed and"
            " uploaded again.",
            hint=f"Submit the script with the data of today: tpuctl submit --dataset {record.dataset}",
            **facts,
        )


def _pinned(bucket: Bucket, name: str, notes: list[str]) -> PinnedDataset:
    from tpuctl.flows.datasets.lookup import pin  # noqa: PLC0415  slow, and not every job reads a dataset

    return pin(bucket, DatasetRef.parse(name), lambda line: notes.append(f"Warning: {line}"))


def _types(request: SubmitRequest, table: ToolTable, notes: list[str]) -> list[str]:
    """Return the accelerator types to run on as the API names them; none for any. Raises UsageError."""
    types = []
    for name in (request.accelerator,) if request.accelerator else table.accelerators:
        types.append((accelerators.accelerator if request.accelerator else accelerators.known)(name).type)
        if name != types[-1]:
            notes.append(f"{name} is {types[-1]} in the Cloud TPU API.")
    return types


def _with_header(request: SubmitRequest, table: ToolTable) -> SubmitRequest:
    """Return a request that has the header's values where the user gave none."""
    return replace(
        request,
        dataset=request.dataset or table.dataset,
        environment={**table.env, **request.environment},
        setup=table.setup if request.setup is None else request.setup,
    )


def _run(
    name: str, request: SubmitRequest, arguments: tuple[str, ...], code: bundles.Bundle, header: Header,
    node: Node, dataset: PinnedDataset | None, git: Git | None, at: datetime,
) -> Run:  # fmt: skip
    return Run(
        run=name,
        created=clock.iso(at),
        submitter=submitter(),
        script=code.script,
        arguments=arguments,
        bundle_sha256=code.sha256,
        framework=header.tpuctl.framework or TENSORFLOW,
        accelerator=node.accelerator,
        dependencies=tuple(masked(dependency) for dependency in header.dependencies),
        environment=stored_environment(request.environment, request.stored),
        dataset=dataset,
        requires_python=header.requires_python,
        requirements=header.tpuctl.requirements,
        packages=header.tpuctl.packages,
        python=header.tpuctl.python,
        python_archives={
            version: sha256
            for version, sha256 in request.python_archives.items()
            if header.asked_python and header.accepts_python(version)
        },
        setup=masked(request.setup or "", (*_setup_values(request), *_unstored_values(request))),
        git=git,
        unpacked_size=code.unpacked_size,
        setup_timeout=request.setup_timeout,
        not_kept=resumption.not_kept(request.environment, request.secrets),
        seeds=seeds_of(arguments, request.environment, request.secrets),
        of_header=of_header(request.environment, header.tpuctl),
        kind=code.kind,
        directory=code.directory,
    )


def of_header(environment: Mapping[str, str], table: ToolTable) -> tuple[str, ...]:
    """Return the variables that have the header's value."""
    return tuple(name for name, value in environment.items() if table.env.get(name) == value)


def _with_restarts(
    record: Run, request: SubmitRequest, table: ToolTable, node: Node, owner: str, data_bucket: str
) -> Run:
    """Return the record with how often it is started again, and on what machine."""
    return msgspec.structs.replace(
        record,
        restarts=policy(request.restarts, table, node),
        machine=machine_like(node, request.restarts, record.framework, owner),
        data_bucket=data_bucket,
    )


def _with_lists(record: Run, lists: project_lists.ProjectLists) -> Run:
    """Return the record with what the project's files say of its packages."""
    return msgspec.structs.replace(
        record,
        listed_in=lists.provenance,
        pins=lists.pins,
        constraints=lists.constraints,
        sources=lists.sources,
    )


def _git(root: Path, code: bundles.Bundle) -> tuple[Git | None, list[str]]:
    """Return commit and diff of the script's folder `root` without secrets, and sentences for the user."""
    state = git_state(root, code)
    notes = [state.note] if state.note else []
    if not state.git:
        return None, notes
    diff, places = masked_diff(state.git.diff)
    if places:
        first, more = places[0], f" and {len(places) - 1} more lines" if places[1:] else ""
        notes.append(
            f"Warning: the recorded diff leaves out {first.file}, line {first.line}{more}:"
            f" it looks like {first.kind}."
        )
    return Git(state.git.commit, diff), notes


def _arguments_note(arguments: MaskedArguments) -> list[str]:
    if not arguments.labels:
        return []
    return [
        f"Warning: {', '.join(arguments.labels)} looks like a secret. The run's record has *** instead, but"
        " every user of the hosts sees it. Pass it in a variable: --secret NAME."
    ]


def _setup_values(request: SubmitRequest) -> tuple[str, ...]:
    """Return what looks like a secret among the words of the setup command."""
    return tuple(masked_arguments(tuple((request.setup or "").split())).values)


def _unstored_values(request: SubmitRequest) -> list[str]:
    return [value for name, value in request.environment.items() if name not in request.stored]


def priced(plan: SubmitPlan, price_of: PriceOf) -> SubmitPlan:
    """Return the same plan, whose attempt says what its node costs now."""
    attempt = msgspec.structs.replace(plan.attempt, price=price_of(plan.node))
    return replace(plan, attempt=attempt)


def attempt_on(
    node: Node, framework: str, at: datetime, number: int = 1, price: RecordedPrice | None = None
) -> Attempt:
    """Return the record of an attempt on a node, which costs `price` per hour; it is not signed yet.

    Raises UsageError for several slices that no program of the framework can span.
    """
    _check_slices(node, framework)
    machine = Tpu.of(node)
    # A TensorFlow slice is driven from worker 0; JAX and PyTorch wait for the same program on every host.
    workers = (0,) if framework == "tensorflow" else tuple(range(machine.hosts))
    return Attempt(
        attempt=number,
        created=clock.iso(at),
        tpu=machine,
        workers=workers,
        log_layout=ORDERED_LOGS,
        price=price,
    )


def _check_slices(node: Node, framework: str) -> None:
    obstacle = node.slices and obstacle_to_spanning(accelerators.accelerator(node.accelerator), framework)
    if obstacle:
        of = f", of {framework}," if framework else ""
        raise UsageError(
            f"This script{of} cannot span the {len(node.slices)} slices of '{node.name}': {obstacle}.",
            hint=f"Run it on one slice: --tpu {node.slices[0].name}",
        )


def own_variables(
    data_bucket: str, framework: str, node: Node, dataset: PinnedDataset | None
) -> dict[str, str]:
    """Return the variables that tpuctl sets for every worker of the run."""
    variables = {"TPUCTL_ACCELERATOR": node.accelerator}
    if framework == "tensorflow" and len(node.addresses) > 1:
        # Worker 0 drives all hosts. Their own servers hold the chips, so the script must not load the library
        # that takes them: Cloud TPU documentation, running TensorFlow on TPU pod slices.
        variables.update(TPU_NAME=node.name, TPU_LOAD_LIBRARY="0")
    if dataset:
        variables["TPUCTL_DATA_DIR"] = dataset.uri(data_bucket).rstrip("/")
    if node.multislice and framework != "tensorflow":
        # Slices find each other by these variables. JAX reads them from `tpu-env` in the metadata where they
        # are not set (jax/_src/clusters/cloud_tpu_cluster.py): there they are those of all slices of the
        # request, and a run on one slice alone would wait for the others. The port is Ray's: its
        # python/ray/util/tpu.py sets all four. That libtpu lets variables go first is unverified.
        variables.update(
            MEGASCALE_COORDINATOR_ADDRESS=node.internal[0],
            MEGASCALE_NUM_SLICES=str(len(node.parts)),
            MEGASCALE_PORT=MEGASCALE_PORT,
        )
    return variables
