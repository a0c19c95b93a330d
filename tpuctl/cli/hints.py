"""Hints for words of other programs, and for misspelt ones: which command or option of tpuctl does that."""

from __future__ import annotations

from collections.abc import Iterable

import click

from tpuctl.errors import nearest

COMMAND_HINTS: dict[str, dict[str, tuple[str, ...]]] = {
    # path of a group: {word that people type: the commands below `tpuctl` that do it}
    "": {
        **dict.fromkeys(("list", "get", "nodes", "tpus", "instances"), ("ls",)),
        **dict.fromkeys(("create", "provision"), ("up",)),
        **dict.fromkeys(("delete", "remove", "destroy", "del"), ("down", "rm")),
        **dict.fromkeys(("terminate", "teardown"), ("down",)),
        **dict.fromkeys(("label", "pin"), ("tag",)),
        **dict.fromkeys(("annotate", "comment"), ("note",)),
        **dict.fromkeys(("prune", "gc", "cleanup"), ("runs gc",)),
        **dict.fromkeys(("kill", "abort", "interrupt", "scancel"), ("cancel", "down")),
        **dict.fromkeys(("pause", "halt", "suspend", "shutdown", "poweroff"), ("stop",)),
        **dict.fromkeys(("rehearse", "preempt", "maintenance"), ("drill",)),
        **dict.fromkeys(("resume", "boot", "poweron"), ("start",)),
        **dict.fromkeys(("launch", "train", "apply"), ("run", "submit")),
        **dict.fromkeys(("ps", "jobs", "history", "queue"), ("runs",)),
        **dict.fromkeys(("status", "show", "inspect"), ("describe", "runs", "ls")),
        **dict.fromkeys(("explain", "operations", "events"), ("why",)),
        **dict.fromkeys(("tail", "follow", "attach"), ("logs -f",)),
        **dict.fromkeys(("shell", "sh", "connect", "console"), ("ssh",)),
        **dict.fromkeys(("download", "collect", "results", "checkpoints"), ("pull",)),
        **dict.fromkeys(("upload", "convert", "push"), ("data upload",)),
        **dict.fromkeys(("dataset", "datasets"), ("data ls",)),
        "fetch": ("data fetch",),
        "head": ("data head",),
        **dict.fromkeys(("check", "diagnose", "auth", "login"), ("doctor",)),
        **dict.fromkeys(("configure", "setup"), ("init",)),
        **dict.fromkeys(("settings", "info", "env"), ("config show",)),
        **dict.fromkeys(("simulator", "simulate", "emulator"), ("sim status",)),
        **dict.fromkeys(("fault", "faults", "chaos"), ("sim fault",)),
        "version": ("--version",),
        **dict.fromkeys(("regions", "locations"), ("zones",)),
        **dict.fromkeys(("accelerators", "accelerator-types", "show-gpus", "show-tpus"), ("types",)),
        **dict.fromkeys(("versions", "images", "runtime-versions"), ("runtimes",)),
        **dict.fromkeys(("prices", "pricing"), ("price",)),
        **dict.fromkeys(("costs", "billing", "spend", "bill", "usage"), ("cost", "price")),
        **dict.fromkeys(("quota", "quotas", "offers"), ("zones",)),
        **dict.fromkeys(("completions", "autocomplete"), ("completion bash",)),
    },
    "data": {
        **dict.fromkeys(("list", "datasets"), ("data ls",)),
        **dict.fromkeys(("delete", "remove", "destroy", "del"), ("data rm",)),
        **dict.fromkeys(("create", "add", "put", "push", "convert", "import"), ("data upload",)),
        **dict.fromkeys(("download", "get"), ("data pull", "data fetch")),
        **dict.fromkeys(("show", "info", "stat", "status"), ("data describe",)),
        **dict.fromkeys(("cat", "preview", "view"), ("data head",)),
        **dict.fromkeys(("check", "validate"), ("data verify",)),
    },
    "runs": {
        **dict.fromkeys(("list", "ls", "show"), ("runs",)),
        **dict.fromkeys(("rm", "delete", "remove"), ("rm",)),
        **dict.fromkeys(("prune", "clean", "cleanup"), ("runs gc",)),
    },
    "config": dict.fromkeys(("list", "get", "view", "ls"), ("config show",)),
    "sim": {
        **dict.fromkeys(("up", "run", "launch", "create"), ("sim start",)),
        **dict.fromkeys(("down", "kill", "shutdown"), ("sim stop",)),
        **dict.fromkeys(("delete", "rm", "destroy", "clean", "clear"), ("sim reset",)),
        **dict.fromkeys(("ps", "ls", "list", "info", "show"), ("sim status",)),
        **dict.fromkeys(("faults", "inject", "chaos"), ("sim fault",)),
        "log": ("sim logs",),
    },
    "sim fault": {
        **dict.fromkeys(("list", "show", "status"), ("sim fault ls",)),
        **dict.fromkeys(("delete", "remove", "clear", "del"), ("sim fault rm",)),
        **dict.fromkeys(("create", "inject", "new"), ("sim fault add",)),
    },
}
OPTION_HINTS = {
    # option that people type: the option of tpuctl that does it, where the command has that
    **dict.fromkeys(("--region", "--location"), "--zone"),
    **dict.fromkeys(("--project-id", "--project_id"), "--project"),
    **dict.fromkeys(("--preemptible", "--preemptable"), "--spot"),
    **dict.fromkeys(("--force", "--quiet", "--assume-yes", "--auto-approve", "-q", "-f"), "--yes"),
    **dict.fromkeys(("--output", "--format", "-o"), "--json"),
    **dict.fromkeys(("--version", "--runtime-version", "--image"), "--runtime"),
    **dict.fromkeys(("--dryrun", "--what-if", "--noop"), "--dry-run"),
    **dict.fromkeys(("--watch", "-w"), "--follow"),
    **dict.fromkeys(("--lines", "--last"), "--tail"),
    **dict.fromkeys(("--num", "--limit", "--number"), "--count"),
    **dict.fromkeys(("--dest", "--out", "--directory", "--target-dir"), "--to"),
}


def unknown_command(word: str, names: Iterable[str], ctx: click.Context) -> click.UsageError:
    """Return the error for a word that is no command of the group that `ctx` is of."""
    group = " ".join(ctx.command_path.split()[1:])
    meanings = {name: (f"{group} {name}".strip(),) for name in names} | COMMAND_HINTS.get(group, {})
    close = [word.lower()] if word.lower() in meanings else nearest(word.lower(), meanings, most=1)
    commands = dict.fromkeys(command for known in close for command in meanings[known])
    quoted = " or ".join(f"'tpuctl {command}'" for command in commands)
    place = f" in 'tpuctl {group}'" if group else ""
    hint = f" Did you mean {quoted}?" if quoted else ""
    return click.UsageError(f"There is no command '{word}'{place}.{hint}", ctx)


def with_known_option(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error with the option that the user most likely meant, if the command has such a one."""
    if error.ctx is None:
        return error
    own = {option for parameter in error.ctx.command.params for option in parameter.opts}
    known = OPTION_HINTS.get(error.option_name.lower())
    close = [known] if known in own else nearest(error.option_name, error.possibilities or (), most=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    return click.NoSuchOption(
        error.option_name, f"No such option '{error.option_name}'.{hint}", ctx=error.ctx
    )
