"""What settings say, in a few lines, for who wrote them to see that they were understood; and what in them is seldom meant."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

from .config import BackendConfig, Config, GroupConfig, ShedConfig, Strict


def summary(config: Config) -> list[str]:
    """The settings in a few lines, for who wrote them to see that they were understood; without secrets."""
    lines = [f"  listens at {config.listen}, {_asks(config.token)}"]
    lines.append(f"  admin at {config.admin}, {_asks(config.admin_token)}" if config.admin else "  no admin port")
    for name, group in config.groups.items():
        models = ", ".join(group.models) if group.models else "all other models"
        lines.append(f"  group {name}: {models}; {_policy_of(group)}; {_shed_of(group.shed)}")
        lines += [f"    {label}: {_summary_of(backend)}" for label, backend in group.backends.items()]
        lines += [f"    {line}" for line in _others(group, "models", "backends", "policy", "shed")]
    for field in ("timeouts", "retries", "limits", "log"):
        lines += [f"  {field}: {line}" for line in _others(getattr(config, field))]
    if config.state is None:
        lines.append("  learned rates are not kept")
    else:
        lines.append(f"  learned rates are kept in {config.state}, saved every {config.save_seconds:g} s")
    if config.record is not None:
        lines.append(f"  decisions are recorded in {config.record.folder}, every {config.record.flush_seconds:g} s")
    return lines


def _asks(token: SecretStr | None) -> str:
    return "asks for no token" if token is None else "asks for a token"


def _policy_of(group: GroupConfig) -> str:
    if isinstance(group.policy, str):
        return group.policy
    options = ", ".join(f"{key} {value}" for key, value in group.policy.items() if key != "name")
    return f"{group.policy['name']}" + (f" ({options})" if options else "")


def _shed_of(shed: ShedConfig) -> str:
    said = [] if shed.in_flight is None else [f"{shed.in_flight} requests in flight"]
    said += [] if shed.wait is None else [f"a wait of {shed.wait:g} s"]
    return f"sheds beyond {' or '.join(said)}" if said else "sheds nothing"


def _summary_of(backend: BackendConfig) -> str:
    said = [backend.url, f"{backend.slots} slot" + ("" if backend.slots == 1 else "s")]
    said += [] if backend.rate is None else [f"rate {backend.rate:g}/s a slot"]
    said += [] if backend.model is None else [f"model {backend.model}"]
    said.append("the client's key" if backend.key is None else "a key of its own")
    return ", ".join(said)


def _as_written(value: Any) -> str:
    """As it may stand in the file. Whole numbers that end in 1024ths are sizes."""
    if value is None or isinstance(value, bool):
        return "off" if value is None else str(value).lower()
    if isinstance(value, int) and value and value % (1 << 10) == 0:
        return f"{value >> 20}MiB" if value % (1 << 20) == 0 else f"{value >> 10}KiB"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _others(settings: Strict, *told: str) -> list[str]:
    """The settings that differ from their defaults and are told of nowhere else, in a line; none, no line."""
    said = []
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if name in told or value == field.default:
            continue
        if isinstance(value, Strict):
            said += [f"{name} {line}" for line in _others(value)]
        elif isinstance(value, tuple):
            said.append(f"{name} [{', '.join(value)}]")
        else:
            said.append(f"{name} {_as_written(value)}")
    return [", ".join(said)] if said else []


def notes(config: Config) -> list[str]:
    """What is no mistake, but seldom meant: a sentence each."""
    found = []
    for name, group in config.groups.items():
        places: dict[tuple[str, str | None, str | None], list[str]] = {}
        for label, backend in group.backends.items():
            key = None if backend.key is None else backend.key.get_secret_value()
            places.setdefault((backend.root, key, backend.model), []).append(label)
        found += [
            f"groups.{name}.backends: {' and '.join(labels)} have the same url; if they are one server, its slots are "
            "counted more than once, and its rate is learned from a part of its requests each"
            for labels in places.values()
            if len(labels) > 1
        ]
    return found
