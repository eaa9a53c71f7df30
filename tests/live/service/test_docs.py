"""The page about the service: its settings are settings, all of them are told of, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from queuewise.live.service import config as settings
from queuewise.live.service.metrics import Metrics
from queuewise.live.service.service import Service
from tests.pages import DOCS

PAGE = (DOCS / "live-service.md").read_text(encoding="utf-8")
SOURCE = Path(settings.__file__).parent


def test_the_file_on_the_page_is_good() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    config = settings.parse(text, environment={"EXAMPLE_KEY": "k"})
    assert list(config.groups) == ["small", "large"]


@pytest.mark.parametrize(
    "model",
    [
        settings.Config,
        settings.GroupConfig,
        settings.BackendConfig,
        settings.ShedConfig,
        settings.RetriesConfig,
        settings.TimeoutsConfig,
        settings.LimitsConfig,
        settings.LogConfig,
        settings.RecordConfig,
    ],
)
def test_every_setting_is_told_of(model: type[BaseModel]) -> None:
    missing = [name for name in model.model_fields if not re.search(rf"\b{name}\b", PAGE)]
    assert not missing


def test_defaults_are_as_the_page_says() -> None:
    def units(size: int) -> str:
        return f"{size >> 20}MiB" if size >= 1 << 20 else f"{size >> 10}KiB"

    for model in (settings.TimeoutsConfig(), settings.LimitsConfig(), settings.RetriesConfig()):
        for name, value in model:
            if isinstance(value, tuple):
                continue
            text = units(value) if name in ("body", "head") else f"{value:g}"
            assert re.search(rf"`[^`]*\b{name}: {text}\b", PAGE), (name, text)


def test_every_metric_on_the_page_is_there() -> None:
    service = Service(settings.parse("groups: {g: {models: [m], backends: {a: 'http://a'}}}"))
    metrics = Metrics(service)
    metrics.retry_budget, metrics.recorded_lost = (lambda: 1.0), (lambda: 0)
    there = {family.name for family in metrics.collect()} | {one.name for f in metrics.collect() for one in f.samples}
    families = {name.removesuffix("_total") for name in there}
    named = {name.split("{")[0].removesuffix("_total") for name in re.findall(r"`(queuewise_\w+(?:{[^}]*})?)`", PAGE)}
    assert len(named) >= 10 and named <= families, named - families


def test_every_code_on_the_page_is_one() -> None:
    (table,) = re.findall(r"\| status \| `code` .*?\n\n", PAGE, re.DOTALL)
    source = "".join(file.read_text(encoding="utf-8") for file in SOURCE.glob("*.py"))
    codes = re.findall(r"`([a-z_]+)`", table.split("\n", 2)[2])
    assert len(codes) > 8
    for code in codes:
        assert f'"{code}"' in source or (
            code.startswith("backend_") and f'"{code.removeprefix("backend_")}"' in source
        ), code
