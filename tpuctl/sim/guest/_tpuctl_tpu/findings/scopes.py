"""Checks the use of strategy and scope: a strategy made too early, models and variables outside its scope."""

from __future__ import annotations

from typing import Any

from ..hooks import TensorFlow
from ..system import SystemState
from .recorder import Findings


def install(tensorflow: TensorFlow, findings: Findings, state: SystemState, strategy: type) -> None:
    """Look at strategies that are made, and at what is made or run outside of them."""
    _check_initialized(findings, state, strategy)
    _check_scope(tensorflow, findings, strategy)
    _check_updates(tensorflow, findings, strategy)
    _check_host_training(tensorflow, findings, strategy)


def _check_initialized(findings: Findings, state: SystemState, strategy: Any) -> None:
    """The strategy itself refuses."""
    construct = strategy.__init__

    def construct_checked(self: object, *args: object, **options: object) -> None:
        if not state.initialized:
            findings.record("NOT_INITIALIZED", "a TPUStrategy is made before the TPU system is initialized")
        construct(self, *args, **options)

    strategy.__init__ = construct_checked


def _check_scope(tensorflow: TensorFlow, findings: Findings, strategy: type) -> None:
    """TensorFlow itself refuses."""
    refuse = tensorflow.distribute._wrong_strategy_scope

    def record_and_refuse(expected: object, context: Any) -> object:
        if isinstance(expected, strategy) or isinstance(context.strategy, strategy):
            findings.record("OUTSIDE_SCOPE", "variables of strategy.scope() and from outside are mixed")
        return refuse(expected, context)

    tensorflow.distribute._wrong_strategy_scope = record_and_refuse


def _check_updates(tensorflow: TensorFlow, findings: Findings, strategy: type) -> None:
    """An optimizer of the scope that trains a variable from outside: TPUStrategy asks it for its copies."""
    extended = tensorflow.mirrored.MirroredExtended
    update = extended._update

    def update_checked(self: Any, variable: Any, *args: object, **options: object) -> object:
        if isinstance(self._container_strategy(), strategy) and not hasattr(variable, "values"):
            error = AttributeError(f"'{type(variable).__name__}' object has no attribute '_packed_variable'")
            text = f"the optimizer trains {variable.name}, which was made outside its strategy.scope()"
            findings.refuse("OUTSIDE_SCOPE", text, error)
        return update(self, variable, *args, **options)

    extended._update = update_checked


def _check_host_training(tensorflow: TensorFlow, findings: Findings, strategy: Any) -> None:
    """Keras runs a model by the strategy of the scope that it was made in; outside, by the default one."""
    default = tensorflow.distribute._DefaultDistributionStrategy
    run, construct = default.run, strategy.__init__
    constructed = []

    def construct_noted(self: object, *args: object, **options: object) -> None:
        construct(self, *args, **options)
        constructed.append(True)

    def run_checked(self: object, fn: object, *args: object, **options: object) -> object:
        if constructed and not findings.used:
            findings.slow(
                "HOST_TRAINING", "this model was made outside strategy.scope(): it runs on the host"
            )
        return run(self, fn, *args, **options)

    strategy.__init__ = construct_noted
    default.run = run_checked
