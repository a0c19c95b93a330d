"""Gives TensorFlow and JAX their emulated TPU, at the start of every Python program of a simulated host.

Inert without TPUCTL_SIM_TPU=<accelerator type>. With it, nothing is loaded until the program imports
one of them (nor is `__future__`). A sitecustomize that this one hides from the program is run first.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


class _TensorFlowHook:
    """A finder that finds TensorFlow as usual, and adds the TPU once it is loaded."""

    package = "tensorflow"
    searching = False

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != self.package or self.searching:
            return None
        self.searching = True
        try:
            spec = _find_spec(name, path, target)
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            self._extend(spec.loader)
        return spec

    def _extend(self, loader):  # type: ignore[no-untyped-def]
        load = loader.exec_module

        def load_with_tpu(module):  # type: ignore[no-untyped-def]
            finish = self.prepare()
            load(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            finish()

        loader.exec_module = load_with_tpu

    def prepare(self):  # type: ignore[no-untyped-def]
        return _emulate_tpu if _is_built_for_tpu() else lambda: None


class _JaxHook(_TensorFlowHook):
    """The same for JAX, whose variables are set before it is loaded."""

    package = "jax"

    def prepare(self):  # type: ignore[no-untyped-def]
        _reach_guest()
        from _tpuctl_jax import prepare  # type: ignore[import-not-found]  # noqa: PLC0415  only in programs that use JAX

        return prepare(os.environ)


class _TorchHook(_TensorFlowHook):
    """The same for torch_xla, which runs on the CPU here, and holds the chips as if it used them."""

    package = "torch_xla"

    def prepare(self):  # type: ignore[no-untyped-def]
        _reach_guest()
        from _tpuctl_chips import take  # type: ignore[import-not-found]  # noqa: PLC0415  only in programs that use it

        return lambda: take(os.environ)


class _PipHook(_TensorFlowHook):
    """The same for pip, which takes packages from this machine."""

    package = "pip"

    def prepare(self):  # type: ignore[no-untyped-def]
        _reach_guest()
        from _tpuctl_pip import offer  # type: ignore[import-not-found]  # noqa: PLC0415  only in pip

        return offer


def _find_spec(name, path, target):  # type: ignore[no-untyped-def]
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path, target)
        if spec is not None:
            return spec
    return None


def _is_built_for_tpu() -> bool:
    """Whether this host's TensorFlow drives chips: that of an image, or the distribution for TPUs."""
    runtime = os.environ.get("TPUCTL_SIM_RUNTIME")
    if not runtime or "-tf-" in runtime:
        return True
    from importlib import metadata  # noqa: PLC0415  only in programs that use TensorFlow

    return any(metadata.distributions(name="tensorflow-tpu"))


def _emulate_tpu() -> None:
    _reach_guest()
    from _tpuctl_tpu import install  # type: ignore[import-not-found]  # noqa: PLC0415  only in programs that use TensorFlow

    install(os.environ)


def _reach_guest() -> None:
    if _HERE not in sys.path:
        sys.path.append(_HERE)


def _run_hidden_sitecustomize() -> None:
    """Import the sitecustomize next on the path, as if this folder were not there."""
    mine = sys.modules.pop("sitecustomize", None)
    path = sys.path[:]
    sys.path[:] = [entry for entry in path if os.path.abspath(entry) != _HERE]
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401, PLC0415
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.path[:] = path
        if mine is not None:
            sys.modules.setdefault("sitecustomize", mine)


try:
    _run_hidden_sitecustomize()
finally:
    if os.environ.get("TPUCTL_SIM_DISK"):
        from _tpuctl_disk import install as _watch_disk  # type: ignore[import-not-found]

        _watch_disk(os.environ["TPUCTL_SIM_DISK"])
    if os.environ.get("TPUCTL_SIM_PACKAGES"):
        sys.meta_path.insert(0, _PipHook())
    if os.environ.get("TPUCTL_SIM_TPU"):
        sys.meta_path[:0] = [_TensorFlowHook(), _JaxHook(), _TorchHook()]
