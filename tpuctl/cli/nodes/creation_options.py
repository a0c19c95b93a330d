"""The options that say which TPU `up` creates, and what they mean together with the configuration.

- Shows in which zones `up` looks for capacity, what that costs, and what else it means.
- The options --ttl, --idle and --max-cost: when a TPU ends by itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

from tpuctl import durations
from tpuctl.catalogue.regions import unread
from tpuctl.cli import output
from tpuctl.cli.session import Session
from tpuctl.cli.value_types import ACCELERATOR_OR_GENERATION, AMOUNT, DURATION, LOCAL_PATH, MOMENT
from tpuctl.client.nodes import creation
from tpuctl.errors import UsageError
from tpuctl.flows.nodes.lifetime import Lifetime, require_budget
from tpuctl.flows.nodes.options import UpOptions
from tpuctl.flows.nodes.plan import UpPlan
from tpuctl.images import FRAMEWORKS
from tpuctl.masking import is_secret, secrets_in

wait_option = click.option(
    "--wait-capacity",
    type=DURATION,
    default=0,
    metavar="DURATION",
    help="Keep trying for so long while there is no capacity, such as 6h.",
)


def zone_facts(plan: UpPlan) -> Mapping[str, str]:
    """Return the zones of a plan in their order, and how long they are tried, for people to read."""
    flaws = plan.search.flaws
    zones = [
        f"{zone} ({flaws[zone]})" if zone in flaws else zone
        for zone in (each.request.id.zone for each in plan.creations)
    ]
    if len(zones) == 1:
        facts = {"zone": zones[0]}
    elif plan.search.race:
        facts = {"zone": f"the first with capacity of {', '.join(zones)}: all queues at once"}
    else:
        facts = {"zone": f"{', else '.join(zones)}"}
    if plan.search.wait:
        facts["wait"] = f"up to {durations.text(plan.search.wait)} for capacity"
    return facts


def note_order(plan: UpPlan) -> None:
    """Say of a dry run which of several creates are sent."""
    if plan.existing is None and len(plan.creations) > 1 and not plan.search.race:
        output.note("Each create is sent only if there is no capacity in the zones before it.")


def note_far_zones(session: Session, plan: UpPlan) -> None:
    """Warn, in one sentence, of the bill for traffic between the bucket and regions that may be used."""
    location, bucket = creation.bucket_location(session), session.config.get("bucket")
    if location is None and bucket:
        output.note(unread(bucket))
    if location and plan.search.left_out:
        output.note(
            f"Not tried, since gs://{bucket} is in another region: {len(plan.search.left_out)} zones "
            f"({', '.join(plan.search.left_out[:3])} ...). --cross-region tries them, too."
        )
    zones = [each.request.id.zone for each in plan.creations]
    if location and (warning := location.warning(*zones)):
        output.note(f"Warning: {warning}")


Command = TypeVar("Command", bound=Callable[..., object])

TTL = click.option(
    "--ttl",
    type=DURATION,
    default=0,
    metavar="DURATION",
    help="Delete it that long after its creation, such as 8h; 'tpuctl extend' moves that.",
)
IDLE = click.option(
    "--idle",
    type=DURATION,
    default=0,
    metavar="DURATION",
    help="Delete it after that long without a run, a login or a program that holds chips, such as 30m.",
)

MAX_COST = click.option(
    "--max-cost",
    type=AMOUNT,
    default="0",
    metavar="AMOUNT",
    help="Delete it when it has cost that much at its price now, such as 20: a --ttl that follows from it.",
)


def lifetime_options(command: Command) -> Command:
    """Give a command --ttl, --idle and --max-cost, and pass it all as one Lifetime, `lifetime`."""

    @functools.wraps(command)
    def wrapper(*arguments: object, ttl: int, idle: int, max_cost: Decimal, **parameters: object) -> object:
        named = click.get_current_context().get_parameter_source
        require_budget(
            ttl if named("ttl") is not ParameterSource.DEFAULT else None,
            max_cost if named("max_cost") is not ParameterSource.DEFAULT else None,
        )
        return command(*arguments, lifetime=Lifetime(ttl, idle, max_cost), **parameters)

    return TTL(IDLE(MAX_COST(wrapper)))  # type: ignore[return-value]  # the wrapper stands for the command


def names_an_end() -> bool:
    """Return whether the command line has one of these options, also `--idle 0s`."""
    source = click.get_current_context().get_parameter_source
    return any(source(name) is not ParameterSource.DEFAULT for name in ("ttl", "idle", "max_cost"))


def lifetime_text(lifetime: Lifetime) -> str:
    """Return when a TPU ends, for the facts that are shown before it is created."""
    parts = [f"{durations.text(lifetime.ttl)} ({lifetime.budget or '--ttl'})"] if lifetime.ttl else []
    parts += [f"{durations.text(lifetime.idle)} without use (--idle)"] if lifetime.idle else []
    return f"{', or '.join(parts)}; then it deletes itself" if parts else "until 'tpuctl down'"


LARGEST_FILE = 1 << 20
"""Bytes that are read of a file whose content becomes metadata; the API allows less."""


def with_up_options(command: Command) -> Command:
    """Pass a command with `creation_options` an UpOptions as second argument, in place of their values."""
    names = _names(OPTIONS)

    @functools.wraps(command)
    def wrapper(session: Session, **values: Any) -> object:
        options = _up_options(session, **{name: values.pop(name) for name in names})
        warn_of_secrets(options)
        return command(session, options, **values)

    return wrapper  # type: ignore[return-value]  # the wrapper stands for the command


def with_machine(command: Command) -> Command:
    """Pass a command with `machine_options` a Machine as second argument, in place of their values."""
    names = _names(MACHINE_OPTIONS)

    @functools.wraps(command)
    def wrapper(session: Session, **values: Any) -> object:
        own = {name: values.pop(name) for name in names}
        return command(session, functools.partial(_up_options, session, **own), **values)

    return wrapper  # type: ignore[return-value]  # the wrapper stands for the command


Machine = Callable[..., UpOptions]
"""Returns the options of the node for an `accelerator`, a `name` and a `framework`; raises UsageError."""


def creation_options(command: Command) -> Command:
    """Give a command the options that say which TPU it creates."""
    return _with(command, OPTIONS)


def machine_options(command: Command) -> Command:
    """Give a command those of them that say what kind of node it is on."""
    return _with(command, MACHINE_OPTIONS)


def _with(command: Command, options: Sequence[Callable[[Any], Any]]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def _names(options: Sequence[Callable[[Any], Any]]) -> list[str]:
    """Return the names of the parameters that these options give a command."""
    return [str(parameter.name) for parameter in click.command(_with(lambda **_: None, options)).params]


OF_UP_ALONE = (
    click.argument("accelerator", type=ACCELERATOR_OR_GENERATION, required=False, metavar="[TYPE]"),
    click.option("--name", help="Name of the node; by default USER-ACCELERATOR."),
    click.option(
        "--framework",
        type=click.Choice(FRAMEWORKS),
        help="Framework to choose the runtime version for; by default the configured one.",
    ),
    click.option(
        "--topology",
        default="",
        metavar="AxB[xC]",
        help="Chips in each direction; says the size if TYPE is a generation (v4).",
    ),
    click.option(
        "--boot-disk", metavar="SIZE", help="Refused: the API's boot disk has 100 GB; see --data-disk."
    ),
    click.option("--flex-start", is_flag=True, help="Refused: says where Google offers flex-start."),
)
TYPE, NAME, FRAMEWORK, TOPOLOGY, BOOT_DISK, FLEX_START = OF_UP_ALONE
OPTIONS = (
    TYPE,
    NAME,
    click.option("--runtime", help="Runtime version; by default what the framework needs."),
    FRAMEWORK,
    click.option(
        "--spot", is_flag=True, help="Create a spot TPU: cheaper, but Google may preempt it at any time."
    ),
    click.option(
        "--queued/--no-queued",
        default=None,
        help="Wait in the queue for capacity, or fail at once if there is none; by default the latter, unless"
        " an option exists only in the queue.",
    ),
    click.option("--reserved", is_flag=True, help="Use capacity that the project has reserved."),
    click.option("--reservation", default="", metavar="NAME", help="Use this reservation, in the queue."),
    click.option(
        "--slices",
        type=click.IntRange(1, 256),
        default=1,
        metavar="N",
        help="Create N slices of the type at once (multislice), in the queue; one run can span them.",
    ),
    click.option(
        "--valid-until",
        type=MOMENT,
        metavar="TIME",
        help="Give up the place in the queue then: a duration (6h), or a time with its zone.",
    ),
    TOPOLOGY,
    click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label; repeatable."),
    click.option("--tag", "tags", multiple=True, metavar="TAG", help="Network tag; repeatable."),
    click.option("--network", metavar="NAME", help="VPC network; by default the configured one."),
    click.option("--subnetwork", metavar="NAME", help="Subnetwork; by default the configured one."),
    click.option("--internal-ips", is_flag=True, help="Give the hosts no external addresses."),
    click.option(
        "--service-account", metavar="EMAIL", help="Account of the hosts; by default the configured one."
    ),
    click.option(
        "--scopes",
        multiple=True,
        metavar="SCOPE",
        help="OAuth scope of the account, a URL or gcloud's name; by default cloud-platform; repeatable.",
    ),
    click.option(
        "--data-disk",
        "data_disks",
        multiple=True,
        metavar="DISK[:ro]",
        help="Attach a persistent disk, several hosts read-only (:ro); repeatable.",
    ),
    BOOT_DISK,
    FLEX_START,
    click.option(
        "--startup-script", type=LOCAL_PATH, metavar="FILE", help="Script that each host runs at each boot."
    ),
    click.option(
        "--metadata",
        multiple=True,
        metavar="KEY=VALUE",
        help="Metadata, for every program on the hosts; KEY=@FILE takes a file's content; repeatable.",
    ),
    click.option("--secure-boot", is_flag=True, help="Boot signed software only (shielded VM)."),
)


MACHINE_OPTIONS = [option for option in OPTIONS if option not in OF_UP_ALONE]


def _up_options(
    session: Session,
    *,
    accelerator: str | None,
    boot_disk: str | None = None,
    flex_start: bool = False,
    **values: Any,
) -> UpOptions:
    """Return the options as the command line and the configuration say; raises UsageError."""
    _refuse_boot_disk(boot_disk)
    _refuse_flex_start(is_asked=flex_start)
    script: Path | None = values["startup_script"]
    read = {
        "labels": _pairs("--label", _parts(values["labels"])),
        "tags": _parts(values["tags"]),
        "scopes": _parts(values["scopes"]),
        "startup_script": _content(script, "--startup-script") if script else None,
        "metadata": _metadata(values["metadata"]),
    }
    options = cast("creation.NodeOptions", {**values, **read})
    return creation.up_options(session, accelerator, options, session.typed)


def _refuse_boot_disk(size: str | None) -> None:
    if size is not None:
        raise UsageError(
            "The Cloud TPU API has no size for the boot disk, neither in v2 nor in v2alpha1: it is 100 GB.",
            hint="Attach another disk: --data-disk NAME",
        )


def _refuse_flex_start(*, is_asked: bool) -> None:
    if is_asked:
        raise UsageError(
            "The messages of Google's Cloud TPU client have no field for flex-start.",
            hint="It exists in 'gcloud alpha compute tpus queued-resources create --provisioning-model="
            "flex-start', and on Compute Engine: docs/capacity.md. tpuctl has --spot, and --queued.",
        )


def warn_of_secrets(options: UpOptions) -> None:
    """Warn of metadata and a startup script that look like secrets: hosts and API show them to many."""
    open_to = "every program on the hosts can read it, and everybody who may list the project's TPUs"
    for key, value in options.metadata.items():
        if is_secret(key, value) or secrets_in(value):
            output.note(f"Warning: --metadata {key} looks like a secret: {open_to}.")
    if secrets_in(options.startup_script, is_code=True):
        output.note(f"Warning: the startup script seems to hold a secret: {open_to}.")


def _parts(values: Iterable[str]) -> list[str]:
    """Return the values of an option that is repeated, or has commas as gcloud's have."""
    return [part for value in values for part in value.split(",")]


def _pairs(option: str, values: Iterable[str]) -> dict[str, str]:
    """Return KEY=VALUE as a dict; raises UsageError for another form, and for a key of two values."""
    pairs: dict[str, str] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise UsageError(f"'{text}' is not KEY=VALUE.", hint=f"Write {option} KEY=VALUE.")
        if pairs.get(key, value) != value:
            raise UsageError(f"{option} {key} has two values.", hint="Leave out one of them.")
        pairs[key] = value
    return pairs


def _metadata(values: Iterable[str]) -> Mapping[str, str]:
    return {
        key: _content(Path(value[1:]), f"--metadata {key}") if value.startswith("@") else value
        for key, value in _pairs("--metadata", values).items()
    }


def _content(path: Path, option: str) -> str:
    """Return the text of a file; raises UsageError for one that is missing, too large or no text."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) <= LARGEST_FILE:
            return content.decode()
        reason = f"it is larger than {LARGEST_FILE >> 20} MiB"
    except OSError as error:
        reason = error.strerror or str(error)
    except UnicodeDecodeError:
        reason = "it is no text in UTF-8"
    raise UsageError(f"{option} cannot be read from '{path}': {reason}.", hint="Name a text file.")
