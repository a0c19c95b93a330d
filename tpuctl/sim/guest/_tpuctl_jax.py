"""Gives JAX the TPU of a host: its chips are CPU devices, its cluster comes from the metadata server.

JAX is unmodified: its own variables configure it, which programs without JAX never see, and its coordinator
listens on the host's address. Standard library only, until the program imports JAX.
"""

from __future__ import annotations

import errno
import socket
import warnings
import zlib
from collections.abc import Callable, MutableMapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Protocol

import _tpuctl_chips  # type: ignore[import-not-found]  # its name on a host
from _tpuctl_tpu.slices import Slice  # type: ignore[import-not-found]  # its name on a host

TESTED = "0.5 to 0.12"
HERE = ("[::]", "0.0.0.0", "localhost", "127.0.0.1", "[::1]")  # noqa: S104  addresses to recognise
"""Names of every interface, or of loopback, on a real host, which is a machine of its own."""
OTHER_PORTS = range(20_000, 30_000)
"""Where coordinators listen on a machine that has no address of its own for each host."""
EXTENSIONS = ("_jax", "xla_extension")
"""JAX's C++ module, by its names since 2022."""
DEVICES = "jax_num_cpu_devices"
PROXY_WARNING = "jax_check_proxy_envs"
SERVICE = "get_distributed_runtime_service"
CLIENT = "get_distributed_runtime_client"
DEVICE_CLIENT = "get_tfrt_cpu_client"

Environ = MutableMapping[str, str]


def prepare(environ: Environ) -> Callable[[], None]:
    """Set what JAX reads while it is imported; the result, called afterwards, finishes the work.

    Ends the program where TPUCTL_SIM_TPU or TPUCTL_SIM_CORES make no sense.
    """
    try:
        devices = devices_of_host(environ)
    except ValueError as error:
        raise SystemExit(f"tpuctl simulator: {error}") from None
    if "TPUCTL_SIM_RUNTIME" in environ and find_spec("libtpu") is None:
        return _say_why_cpu
    wants_tpu = environ.get("JAX_PLATFORMS") != "cpu"  # else it gets the host's CPU, which is one device
    if wants_tpu:
        environ["JAX_PLATFORMS"] = "cpu"
        environ.setdefault("JAX_NUM_CPU_DEVICES", str(devices))
    unset = [name for name in ("JAX_FORCE_TPU_INIT", "TPU_SKIP_MDS_QUERY") if name not in environ]
    environ["JAX_FORCE_TPU_INIT"] = "1"  # without chips on the PCI bus JAX takes no machine for a TPU VM

    def finish() -> None:
        for name in unset:
            environ.pop(name, None)  # JAX has found no chips, and would not ask the metadata server
        _check_and_quieten()
        if wants_tpu:
            _take_chips_with_devices(environ)
            _number_slices(environ)
        _listen_on_own_address(environ.get("TPUCTL_SIM_ADDRESS", ""))

    return finish


def _say_why_cpu() -> None:
    """Warn as JAX does where it sees the chips (xla_bridge.py): it finds none here, and is the host's CPU."""
    warnings.warn(
        "A Google TPU may be present on this machine, but either a TPU-enabled jaxlib or libtpu is not "
        "installed. Falling back to cpu.",
        stacklevel=2,
    )


def devices_of_host(environ: Environ) -> int:
    """Return how many devices JAX shows on this host; raises ValueError.

    They are cores of v2 and v3 and chips of later versions, as on a TPU VM. TPUCTL_SIM_CORES is shared out
    evenly, and each host keeps one at least: how many hosts there are is for the metadata server to say.
    """
    hosts: int = Slice.named(environ["TPUCTL_SIM_TPU"]).hosts
    return max(1, int(Slice.from_environment(environ).cores) // hosts)


def _check_and_quieten() -> None:
    """End the program if this JAX would show one device; keep it from warning of a hang over proxies."""
    jax = import_module("jax")
    if not hasattr(jax.config, DEVICES):
        raise _refusal(DEVICES)
    try:
        jax.config.update(PROXY_WARNING, False)  # no_proxy has the hosts' addresses
    except AttributeError:  # older versions do not warn
        pass


def _take_chips_with_devices(environ: Environ) -> None:
    """Have JAX take the host's chips when it opens its devices; a second program fails as on a TPU VM."""
    extension = _extension()
    open_devices = getattr(extension, DEVICE_CLIENT)

    def take_and_open(*args: object, **options: object) -> object:
        refusal = _tpuctl_chips.take(environ)
        if refusal:
            raise RuntimeError(f"ABORTED: {refusal}")
        return open_devices(*args, **options)

    setattr(extension, DEVICE_CLIENT, take_and_open)


def _number_slices(environ: Environ) -> None:
    """Have devices tell their slice, as those of a TPU do: slices have as many processes each, in order.

    The program's own variable goes first, as where JAX looks for its cluster.
    """
    slices = int(environ.get("MEGASCALE_NUM_SLICES") or environ.get("TPUCTL_SIM_SLICES") or 1)

    def slice_index(device: Device) -> int:
        processes: int = import_module("jax").process_count()
        return device.process_index * slices // processes

    _extension().Device.slice_index = property(slice_index)


class Device(Protocol):
    """A device of JAX."""

    process_index: int


def _listen_on_own_address(address: str) -> None:
    """Have the coordinator listen on this host's address alone, and look for it there.

    All hosts are on one machine, where gRPC would share the port with coordinators of other slices.
    """
    if not address:
        return
    extension = _extension()
    start, connect = getattr(extension, SERVICE), getattr(extension, CLIENT)

    def start_here(bind: str, *args: object, **options: object) -> object:
        endpoint = _reachable(bind, address)
        _require_free(endpoint)
        return start(endpoint, *args, **options)

    def connect_there(coordinator: str, *args: object, **options: object) -> object:
        return connect(_reachable(coordinator, address), *args, **options)

    setattr(extension, SERVICE, start_here)
    setattr(extension, CLIENT, connect_there)


def _extension() -> ModuleType:
    lib = import_module("jax._src.lib")
    for module in (getattr(lib, name, None) for name in EXTENSIONS):
        if isinstance(module, ModuleType) and hasattr(module, SERVICE) and hasattr(module, CLIENT):
            return module
    raise _refusal(SERVICE)


def _refusal(missing: str) -> SystemExit:
    jax = import_module("jax")
    return SystemExit(
        f"tpuctl simulator: JAX {jax.__version__} has no {missing}, which the emulated TPU needs; "
        f"install JAX {TESTED} (tested), or unset TPUCTL_SIM_TPU to run without a TPU."
    )


def _reachable(endpoint: str, own: str) -> str:
    """Return where the coordinator at `endpoint` really is; for every interface that is the host's own.

    A system with no loopback address but 127.0.0.1 has no address for a host; there it has a port instead.
    """
    host, _, port = endpoint.rpartition(":")
    host = own if host in HERE else host
    if _bind_error(host, 0) != errno.EADDRNOTAVAIL:
        return f"{host}:{port}"
    offset = zlib.crc32(f"{host}:{port}".encode()) % len(OTHER_PORTS)
    return f"127.0.0.1:{OTHER_PORTS[offset]}"


def _require_free(endpoint: str) -> None:
    """Raise RuntimeError while another program listens there: gRPC would give each half of the workers."""
    host, _, port = endpoint.rpartition(":")
    if _bind_error(host, int(port)) == errno.EADDRINUSE:
        raise RuntimeError(
            f"{endpoint} is in use: another JAX program on this host is the coordinator of its slice. "
            "A TPU serves one program at a time; end that one first, on every worker."
        )


def _bind_error(host: str, port: int) -> int:
    """Return the error of listening there, or 0; for a name instead of an address 0, too."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except socket.gaierror:
            return 0
        except OSError as error:
            return error.errno or 0
    return 0
