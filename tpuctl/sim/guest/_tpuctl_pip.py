"""Has pip on a simulated host take packages from this machine where it has them: by links, without a network.

The machine's own Python is asked which (`tpuctl.sim.hosts.pip_answers`). pip itself is unmodified: it sees
them as installed outside of its environment, so that it never writes through a link. Standard library only.
"""

import json
import os
import re
import stat
import subprocess
import sys
import sysconfig

LINKS = "tpuctl-sim-links.pth"
"""In an environment: where its linked packages are."""
OF_WORKER = "tpuctl-image.pth"
"""In the environment whose packages folder tpuctl takes away when pip has ended: no .pth counts there."""
PROGRAM = re.compile(r"pip[0-9.]*")


def offer():  # type: ignore[no-untyped-def]
    """Link what the running `pip install` asks for, and end it where nothing remains."""
    arguments = _arguments()
    if arguments is None:
        return
    paths = [path for path in sys.path if path]
    answer = _answer(
        {"arguments": arguments, "paths": paths, "python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
    )
    if not answer:
        return
    if answer["links"]:
        _add(answer["links"])
    for line in answer["lines"]:
        sys.stdout.write(line + "\n")
    sys.stdout.flush()
    if answer["wanted"] and stat.S_ISREG(os.fstat(1).st_mode):  # a log; a terminal would be kept open
        _ask_index(answer["wanted"])
    if not answer["remains"]:
        _finish()
        raise SystemExit(0)
    if answer["links"]:
        import atexit  # noqa: PLC0415

        atexit.register(_finish)


def _arguments():  # type: ignore[no-untyped-def]
    """What this process asks pip for; None where it only imports it."""
    given = getattr(sys, "orig_argv", sys.argv)
    module = sys.argv[0] == "-m" and "pip" in given
    if module or PROGRAM.fullmatch(os.path.basename(sys.argv[0])):
        return sys.argv[1:]
    return None


def _answer(question):  # type: ignore[no-untyped-def]
    folder, python = os.environ["TPUCTL_SIM_PACKAGES"], os.environ["TPUCTL_SIM_PYTHON"]
    command = [python, "-I", "-m", "tpuctl.sim.hosts.pip_answers", folder]
    completed = subprocess.run(command, input=json.dumps(question).encode(), stdout=subprocess.PIPE)
    return json.loads(completed.stdout) if completed.returncode == 0 else None


def _ask_index(requirements):  # type: ignore[no-untyped-def]
    """Have what a real host would get written to this program's output once an index says so."""
    python, folder = os.environ["TPUCTL_SIM_PYTHON"], os.environ["TPUCTL_SIM_PACKAGES"]
    command = [python, "-I", "-m", "tpuctl.sim.hosts.pip_answers", folder, *requirements]
    subprocess.Popen(  # in a folder that stays: that of the worker's pip is deleted
        command, cwd="/", stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def _add(links):  # type: ignore[no-untyped-def]
    """Show the packages of a folder of links to this environment, and give it their programs."""
    with open(os.path.join(_packages(), LINKS), "a", encoding="utf-8") as stream:
        stream.write(f"import site; site.addsitedir({links!r})\n")
    sys.path.append(links)
    programs, place = os.path.join(links, "bin"), sysconfig.get_path("scripts")
    for name in os.listdir(programs):
        with open(os.path.join(programs, name), encoding="utf-8") as stream:
            text = stream.read()
        path = os.path.join(place, name)
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text.replace("#!/usr/bin/env python3", "#!" + sys.executable, 1))
            os.chmod(path, 0o755)  # noqa: S103  as pip does


def _finish():  # type: ignore[no-untyped-def]
    """Have the linked packages in the environment's own folder, where only that one counts."""
    packages = _packages()
    listed = os.path.join(packages, LINKS)
    if not os.path.exists(os.path.join(packages, OF_WORKER)) or not os.path.exists(listed):
        return
    own = {_name(entry) for entry in os.listdir(packages) if entry.endswith(".dist-info")}
    with open(listed, encoding="utf-8") as stream:
        folders = re.findall(r"addsitedir\('(.*)'\)", stream.read())
    for folder in folders:
        _merge(folder, packages, {entry for entry in os.listdir(folder) if _name(entry) in own} | {"bin"})
    os.remove(listed)


def _merge(source, target, left_out):  # type: ignore[no-untyped-def]
    """Link what `target` does not have; a folder that both have of their own is merged."""
    for entry in os.listdir(source):
        origin, place = os.path.join(source, entry), os.path.join(target, entry)
        if entry in left_out:
            continue
        if not os.path.lexists(place):
            os.symlink(os.path.realpath(origin) if os.path.islink(origin) else origin, place)
        elif not any(os.path.islink(path) or os.path.isfile(path) for path in (origin, place)):
            _merge(origin, place, ())


def _name(entry):  # type: ignore[no-untyped-def]
    return entry.rpartition("-")[0].lower() if entry.endswith(".dist-info") else ""


def _packages():  # type: ignore[no-untyped-def]
    return sysconfig.get_path("purelib")
