"""What a policy of either wing is before anything else: a named rule with its options."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from .fields import nearest, spelled
from .growing import grow
from .streams import policy_stream


@dataclass(frozen=True)
class Rule:
    """A rule with its options; each wing's ``Policy`` adds its functions.

    Parameters
    ----------
    rule : the rule's name; also the key in results unless `name` is given.
    decide : its one required function.
    options : the factory's arguments, kept for labels, settings on disk and `configure`.
    defaults : the rule's options with their default values; no others are accepted.
    name : key in results; the policy's random stream is keyed by it, so two variants of a rule need two names.
    clairvoyant : whether it is shown the truth.
    explain : optional function that says in a dict what a decision rests on.
    """

    #: The functions that an engine calls, by name.
    CALLED: ClassVar[tuple[str, ...]] = ("decide",)

    rule: str
    decide: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    defaults: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    name: str = field(default="", kw_only=True)
    clairvoyant: bool = field(default=False, kw_only=True)
    explain: Callable[..., Any] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not self.rule or not isinstance(self.rule, str):
            raise ValueError(f"rule: a policy needs a non-empty name, not {self.rule!r}")
        for name, function in self.functions.items():
            if not isinstance(function, types.FunctionType) and not hasattr(function, "py_func"):
                raise ValueError(f"{name}: the policy {self.rule!r} needs a function, not {function!r}")
        unknown = [key for key in self.options if key not in self.defaults]
        if unknown:
            raise ValueError(f"{unknown[0]}: no such parameter of {self.rule!r}{nearest(unknown[0], self.defaults)}")
        object.__setattr__(self, "options", {**self.defaults, **self.options})
        if not self.name:
            object.__setattr__(self, "name", self.rule)
        try:
            self.name.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"name: a policy's name must be text that can be written down, not {self.name!r}"
            ) from None

    def named(self, name: str) -> Self:
        """The same policy under another key of the results (and with that key's random stream)."""
        if not name or not isinstance(name, str):
            raise ValueError(f"name: a policy needs a non-empty name, not {name!r}")
        return replace(self, name=name)

    @property
    def label(self) -> str:
        """The name with the options that differ from the defaults, for legends: ``acqb(samples=3)``."""
        changed = {key: value for key, value in self.options.items() if value is not self.defaults[key]}
        texts = {key: spelled(value) if callable(value) else repr(value) for key, value in changed.items()}
        given = ", ".join(f"{key}={text}" for key, text in texts.items() if text != repr(self.defaults[key]))
        base = self.rule if self.name == self.rule else f"{self.name}: {self.rule}"
        return f"{base}({given})" if given else base

    @property
    def functions(self) -> dict[str, Callable[..., Any]]:
        """The functions that an engine calls, by name."""
        return {name: getattr(self, name) for name in self.CALLED}

    def grow_state(self, state: Any, attempts: int) -> Any:
        """The same state with room for so many attempts assigned since the start, answered or not."""
        return grow(state, attempts)


R = TypeVar("R", bound=Rule)


def from_register(policy: str | R, register: Mapping[str, Callable[..., R]], options: Mapping[str, Any]) -> R:
    """A policy from its registered name and options; a policy passes through.

    Raises ValueError for an unknown name, with the nearest known one.
    """
    if isinstance(policy, Rule):
        return policy
    if policy not in register:
        raise ValueError(f"policy: no rule is called {policy!r}{nearest(str(policy), register)}")
    return register[policy](**options)


def prepare(policy: Any, shape: Any, seed: int = 0, run: int = 0) -> tuple[Any, Any, Any]:
    """(params, state, stream) of a policy of either wing before its first decision. Raises ValueError for options out of
    range."""
    stream = policy_stream(seed, run, policy.name)
    try:
        with np.errstate(over="ignore"):
            params = policy.configure(policy.options, shape)
            state = policy.start(params, shape, stream)
    except ValueError as error:
        raise ValueError(f"{policy.name}: {error}") from error
    return params, state, stream
