"""The service's settings: one YAML (or JSON) file, checked before anything starts, with a sentence per mistake.

    listen: 127.0.0.1:8080
    groups:
      default:
        backends:
          a: {url: "http://127.0.0.1:9001", slots: 4}
          b: {url: "http://127.0.0.1:9002", slots: 4}

``${NAME}`` in a text stands for an environment variable, ``${NAME:-text}`` for one that may be missing; ``$${`` is ``${``. They
are put in after the file was read, so what is in a variable is never read as YAML. The sentences about types are made in
:mod:`.words`.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from ...dispatch.policies import make
from ...dispatch.policy import Policy
from ..circuit import CircuitSettings
from ..router import MOST_SLOTS, Router, Server
from . import words
from .words import Means

#: A file of settings is at most this many bytes.
LARGEST_FILE = 4 * 1024 * 1024
#: Work that a client may say a request is, in usual requests.
LEAST_WORK, MOST_WORK = 1e-3, 1e6
#: Settings whose values are shown nowhere.
SECRETS = ("key", "token", "admin_token")
_VARIABLE = re.compile(r"\$(\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-((?:[^}$]|\$(?!\{))*))?\}|(\$\{)")
#: A policy with options, for sentences.
_WITH_OPTIONS = "{name: power_of_d, choices: 2}"
#: What stands for a variable elsewhere; the shells' way.
_LIKE_A_VARIABLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
#: A backend's URL does not end like this: it is what all requests have in common.
_REQUEST = re.compile(
    r"/v1/(?:chat(?:/completions)?|completions|embeddings|responses|models|moderations|rerank|score)/*$"
)
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


class ConfigError(ValueError):
    """mistakes : a sentence each, with the path of the setting."""

    def __init__(self, source: str, mistakes: list[str]) -> None:
        self.source, self.mistakes = source, mistakes
        super().__init__(f"{source}: " + "; ".join(mistakes))


def _size(value: Any) -> Any:
    """Bytes, from a number or a text such as 16MiB."""
    if isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
        if found is None or len(found[1]) > 30 or found[2].lower() not in _UNITS:
            raise ValueError(f"must be a size such as 16MiB, not {value!r}")
        return int(float(found[1]) * _UNITS[found[2].lower()])
    return value


def _off(value: Any) -> Any:
    """YAML reads ``off`` as False."""
    return None if value is False or value == "off" else value


def _name_or_options(value: Any) -> Any:
    if not isinstance(value, str | dict):
        raise ValueError(f"must be a name, or options with a name, as in {_WITH_OPTIONS}{words.given(value)}")
    return value


class Address(BaseModel):
    """Where to listen: host and port."""

    model_config = ConfigDict(frozen=True)
    host: str
    port: int = Field(ge=0, le=65535)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _address(value: Any) -> Any:
    if (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, str) and value.isdecimal()):
        value = f"127.0.0.1:{value}"
    if isinstance(value, Address):
        return value
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    host = host.strip("[]")
    if not colon or not port.isdecimal() or not host or int(port) > 65535:
        raise ValueError(f"must be HOST:PORT, such as 127.0.0.1:8080{words.given(value)}")
    return Address(host=host, port=int(port))


ListenAt = Annotated[
    Address, BeforeValidator(_address), WithJsonSchema({"type": ["string", "integer"], "examples": ["127.0.0.1:8080"]})
]
Size = Annotated[
    int,
    BeforeValidator(_size),
    Field(gt=0),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["16MiB"]}),
]


class _OrElse:
    """In the JSON Schema of a setting: what else may stand there."""

    def __init__(self, other: dict[str, Any]) -> None:
        self.other = other

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Any:
        return {"anyOf": [handler(core), self.other]}


_OR_OFF = _OrElse({"enum": [False, "off"]})
_OR_TEXT = _OrElse({"type": "string"})
_MAY_BE_OFF = Means(off=True)
_SECONDS = Means("a number of seconds")
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), _SECONDS]
Name = Annotated[str, Field(pattern=_NAME)]


class Strict(BaseModel):
    """Settings that there are, and no others. example : of them, for the sentence where something else stands."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    example: ClassVar[str]


class BackendConfig(Strict):
    """A server. url : up to and with ``/v1``, or without it, which is the same · slots : requests that it serves at a time ·
    rate : requests per second of a slot, where it is known · key : its API key; without one the client's own is passed on ·
    model : what it calls the model, where that is another name."""

    example = '{url: "http://10.0.0.1:8000", slots: 8}'
    url: str
    slots: int = Field(default=1, ge=1, le=MOST_SLOTS)
    rate: float | None = Field(default=None, gt=0)
    key: SecretStr | None = None
    model: str | None = Field(default=None, min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {"url": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check(self) -> BackendConfig:
        try:
            parts = urlsplit(self.url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            good = False
        if not good or parts.query or parts.fragment or "@" in parts.netloc:
            raise ValueError("url must be like http://host:port, without user, query or fragment")
        request = _REQUEST.search(parts.path)
        if request is not None:
            raise ValueError(f"url must be what stands before {request[0]}, without the path of a request")
        return self

    @property
    def root(self) -> str:
        """What stands before /v1/ in the URLs of its requests."""
        return self.url.rstrip("/").removesuffix("/v1")

    def server(self) -> Server:
        """What the router knows of it."""
        return Server(self.slots, self.rate)


class CircuitConfig(Strict):
    """See :class:`..circuit.CircuitSettings`."""

    example = "{failures: 5}"
    failures: int = CircuitSettings.failures
    window: int = CircuitSettings.window
    share: float = CircuitSettings.share
    pause: Annotated[float, _SECONDS] = CircuitSettings.pause
    longest_pause: Annotated[float, _SECONDS] = CircuitSettings.longest_pause
    trials: int = CircuitSettings.trials
    panic: float = CircuitSettings.panic


class ShedConfig(Strict):
    """When a group takes no more, and says so with 429. in_flight : requests at its backends, queued ones included · wait :
    seconds that a request would be expected to wait, before it is served, at the best of them."""

    example = "{in_flight: 200}"
    in_flight: int | None = Field(default=None, ge=1)
    wait: Seconds | None = None


class GroupConfig(Strict):
    """Backends that serve the same models. models : the names that clients ask for; a group without takes what no other does.
    The rest: see :class:`..router.Router`."""

    example = "{backends: {a: http://10.0.0.1:8000}}"
    models: tuple[str, ...] = ()
    backends: Annotated[
        dict[
            Name,
            Annotated[BackendConfig, _OR_TEXT, Means(f"a URL, or settings by name, as in {BackendConfig.example}")],
        ],
        Means("names with URLs, as in {a: http://10.0.0.1:8000}"),
    ]
    policy: Annotated[str | dict[str, Any], BeforeValidator(_name_or_options)] = "optimistic_sed"
    classes: tuple[str, ...] = ()
    explore_share: float = 0.05
    explore_burst: float | None = None
    half_life: Annotated[float | None, BeforeValidator(_off), _OR_OFF, _MAY_BE_OFF, _SECONDS] = 600.0
    change_threshold: Annotated[float | None, BeforeValidator(_off), _OR_OFF, _MAY_BE_OFF] = 10.0
    failure_penalty: float = 1.0
    expire_after: Seconds = 3600.0
    prior: float = 4.0
    discipline: str = "fifo"
    circuit: Annotated[CircuitConfig | None, BeforeValidator(_off), _OR_OFF, _MAY_BE_OFF] = CircuitConfig()
    shed: ShedConfig = ShedConfig()

    def router(self, **others: Any) -> Router:
        """The router that these settings describe. Raises ValueError as it does."""
        return Router({name: backend.server() for name, backend in self.backends.items()}, **self.routing(), **others)

    def routing(self) -> dict[str, Any]:
        """What the router is made of, but for its servers."""
        return {
            "policy": self._policy(),
            "classes": list(self.classes),
            "explore_share": self.explore_share,
            "explore_burst": self.explore_burst,
            "half_life": self.half_life,
            "change_threshold": self.change_threshold,
            "failure_penalty": self.failure_penalty,
            "circuit": None if self.circuit is None else CircuitSettings(**self.circuit.model_dump()),
            "expire_after": self.expire_after,
            "prior": self.prior,
            "discipline": self.discipline,
        }

    def _policy(self) -> str | Policy:
        if isinstance(self.policy, str):
            return self.policy
        options = dict(self.policy)
        name = options.pop("name", None)
        if not isinstance(name, str):
            raise ValueError(f"policy: a policy with options needs its name, as in {_WITH_OPTIONS}")
        rule = make(name)
        if "ties" in rule.defaults:  # as for a policy by its name alone: routers that break ties alike herd
            options = {"ties": "random", **options}
        return make(name, **options)


class RetriesConfig(Strict):
    """tries : of a request, the first one included · share, per_second : retries allowed per request, and at any rate ·
    repeat : paths whose requests may be sent again even if a backend may have served them; a request that no backend has
    taken may always be sent to another."""

    example = "{tries: 2}"
    tries: int = Field(default=3, ge=1, le=16)
    share: float = Field(default=0.2, ge=0, le=1)
    per_second: float = Field(default=10.0, ge=0)
    repeat: tuple[str, ...] = (
        *("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"),
        *("/v1/moderations", "/v1/rerank", "/v1/score"),
    )


class TimeoutsConfig(Strict):
    """Seconds. connect : to a backend · first_byte : until a try answers, after which another backend may be tried · deadline :
    until a request is answered at all; a client may ask for less with ``x-queuewise-timeout`` · idle : between two pieces of
    an answer · longest_rest : that a backend's Retry-After is heeded · notice : between not being ready any more and taking no
    new connections, for a balancer in front to notice · grace : to finish what runs, after that."""

    example = "{first_byte: 60}"
    connect: Seconds = 5.0
    first_byte: Seconds = 300.0
    deadline: Seconds = 600.0
    idle: Seconds = 120.0
    longest_rest: Seconds = 60.0
    notice: Annotated[float, _SECONDS] = Field(default=0.0, ge=0)
    grace: Seconds = 30.0


class LimitsConfig(Strict):
    """body, head : bytes of a request · head_seconds, body_seconds : until they have come, and the latter for how long a client
    may take nothing of its answer · connections : at a time · keep_alive : seconds that an idle connection stays open."""

    example = "{body: 32MiB}"
    body: Size = 16 << 20
    head: Size = 64 << 10
    head_seconds: Seconds = 10.0
    body_seconds: Seconds = 60.0
    connections: int = Field(default=4096, ge=1)
    keep_alive: Seconds = 65.0


class LogConfig(Strict):
    """format : for people or for programs · requests : a line per request."""

    example = "{format: json}"
    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"
    requests: bool = False


class RecordConfig(Strict):
    """folder : where decisions are recorded to as Parquet · flush_seconds, part_rows : after which a part is written."""

    example = "{folder: decisions}"
    folder: Path
    flush_seconds: Seconds = 30.0
    part_rows: int = Field(default=50_000, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {"folder": value} if isinstance(value, str) else value


class Config(Strict):
    """All settings. state : file that what was learned is saved to, every `save_seconds`. Paths are relative to the file."""

    example = "{groups: {default: {backends: {a: http://10.0.0.1:8000}}}}"
    listen: ListenAt = Address(host="127.0.0.1", port=8080)
    admin: Annotated[ListenAt | None, BeforeValidator(_off), _OR_OFF] = Address(host="127.0.0.1", port=8081)
    token: SecretStr | None = None
    admin_token: SecretStr | None = None
    state: Path | None = None
    save_seconds: Seconds = 10.0
    record: Annotated[
        RecordConfig | None, _OR_TEXT, Means(f"a folder, or settings by name, as in {RecordConfig.example}")
    ] = None
    log: LogConfig = LogConfig()
    limits: LimitsConfig = LimitsConfig()
    timeouts: TimeoutsConfig = TimeoutsConfig()
    retries: RetriesConfig = RetriesConfig()
    groups: Annotated[
        dict[Name, GroupConfig],
        Field(min_length=1),
        Means("names with their settings, as in {small: {backends: {a: http://10.0.0.1:8000}}}"),
    ]

    def mistakes(self) -> list[str]:
        """What a single field cannot show, a sentence each."""
        found = []
        for field, address, token in (
            ("token", self.listen, self.token),
            ("admin_token", self.admin, self.admin_token),
        ):
            if token is not None:
                found += [f"{field}: {one}" for one in _unfit_for_header(token.get_secret_value())]
            if address is not None and not address.loopback and token is None:
                what = "listen" if field == "token" else "admin"
                found.append(f"{field}: is needed where {what} is no loopback address, as {address} is")
        if self.admin is not None and self.admin.port and self.admin == self.listen:
            found.append(f"admin: must be another address than listen, {self.listen}")
        owners: dict[str, str] = {}
        for name, group in self.groups.items():
            for model in group.models:
                if model in owners:
                    found.append(f"groups.{name}.models: {model!r} is in group {owners[model]!r} already")
                owners.setdefault(model, name)
        rest = [name for name, group in self.groups.items() if not group.models]
        if len(rest) > 1:
            found.append(f"groups: only one group may be without models, not {', '.join(map(repr, rest))}")
        for name, group in self.groups.items():
            found += _mistakes_of_group(name, group)
        return found


def _mistakes_of_group(name: str, group: GroupConfig) -> list[str]:
    if not group.backends:
        return [f"groups.{name}.backends: must name at least one backend"]
    found = [
        f"groups.{name}.backends.{label}.key: {one}"
        for label, backend in group.backends.items()
        if backend.key is not None
        for one in _unfit_for_header(backend.key.get_secret_value())
    ]
    try:
        group.router(compiled=False, seed=0)  # the router checks its own settings
    except (ValueError, OverflowError) as error:
        found.append(f"groups.{name}: {error}")
    return found


def _unfit_for_header(text: str) -> list[str]:
    """What is wrong with a key or token, if anything."""
    if not text:
        return ["is empty"]
    return [] if all("!" <= letter <= "~" for letter in text) else ["must be a text of visible ASCII characters"]


class _Loader(yaml.SafeLoader):
    """YAML in which no key stands twice: the second backend of a name would silently replace the first."""

    def compose_mapping_node(self, anchor: Any) -> Any:
        """Keys are looked at before merge keys are put in: those are there to be overruled."""
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:str":
                if key.value in seen:
                    raise yaml.composer.ComposerError(None, None, f"{key.value!r} stands twice", key.start_mark)
                seen.add(key.value)
        return node

    def flatten_mapping(self, node: Any) -> None:
        """Put in what is merged (``<<``). What stands beside it goes before it, and the first of several mappings before the
        others, whatever the names are: PyYAML 6.0.4 knows them by their place in memory."""
        own, merged = [], []
        for key, value in node.value:
            if key.tag != "tag:yaml.org,2002:merge":
                own.append((key, value))
                continue
            for one in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(one, yaml.MappingNode):
                    raise yaml.constructor.ConstructorError(None, None, "<< must name a mapping", one.start_mark)
                self.flatten_mapping(one)
                merged += one.value
        found: dict[Any, Any] = {}
        for key, value in merged:
            found.setdefault(_identity(key), (key, value))
        node.value = list((found | {_identity(key): (key, value) for key, value in own}).values())


def _identity(key: Any) -> Any:
    return (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else id(key)


def read(path: Path, environment: Mapping[str, str] | None = None) -> Config:
    """The settings in a file; paths in them are relative to its folder.

    Raises ConfigError (a ValueError) with a sentence per mistake.
    """
    try:
        with path.open("rb") as handle:
            text = handle.read(LARGEST_FILE + 1)
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read ({error.strerror or error})"]) from None
    if len(text) > LARGEST_FILE:
        raise ConfigError(str(path), [f"is larger than {LARGEST_FILE >> 20} MiB"])
    return parse(text, str(path), path.resolve().parent, environment)


def parse(
    text: str | bytes, source: str = "config", folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> Config:
    """The settings in a text. See :func:`read`."""
    try:
        given = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ConfigError(source, [_of_yaml(error)]) from None
    if not isinstance(given, dict):
        raise ConfigError(source, ["must hold settings by name, as `listen:` and `groups:`"])
    mistakes: list[str] = []
    given = _fill_in(given, os.environ if environment is None else environment, "", mistakes)
    if mistakes:
        raise ConfigError(source, mistakes)
    config = _checked(given, source)
    return config if folder is None else _from(folder, config)


def _checked(given: dict[str, Any], source: str) -> Config:
    try:
        config = Config.model_validate(given)
    except ValidationError as error:
        raise ConfigError(source, sentences(error)) from None
    mistakes = config.mistakes()
    if mistakes:
        raise ConfigError(source, mistakes)
    return config


def of_options(
    backends: Sequence[str], *, policy: str | None = None, listen: str | None = None, admin: str | None = None
) -> Config:
    """The settings of a service without a file. backends : URL, or NAME=URL. Raises ConfigError."""
    named: dict[str, Any] = {}
    typed: dict[str, str] = {}
    for number, text in enumerate(backends, start=1):
        name, equals, url = text.partition("=")
        if not equals or "/" in name:
            name, url = f"b{number}", text
        if name in named:
            raise ConfigError("--backend", [f"{name!r} stands twice"])
        named[name], typed[name] = url, text
    group: dict[str, Any] = {"backends": named}
    if policy is not None:
        group["policy"] = policy
    given: dict[str, Any] = {"groups": {"default": group}}
    given |= {key: value for key, value in (("listen", listen), ("admin", admin)) if value is not None}
    try:
        return _checked(given, "serve")
    except ConfigError as error:
        raise ConfigError("serve", [_of_option(mistake, typed) for mistake in error.mistakes]) from None


def _of_option(mistake: str, typed: Mapping[str, str]) -> str:
    """The sentence about a setting as one about the option that it came from. typed : backends' names, and their options."""
    found = re.match(r"(admin_)?token: is needed where \w+ is no loopback address", mistake)
    if found is not None:
        which = "admin" if found[1] else "listen"
        return f"--{which}: on an address that is no loopback one a token is needed, and for that a file of settings"
    options = {f"groups.default.backends.{name}: ": f"--backend {text}: " for name, text in typed.items()}
    for path, option in (options | {"groups.default: policy: ": "--policy: "}).items():
        if mistake.startswith(path):
            return option + mistake.removeprefix(path)
    return f"--{mistake}" if mistake.startswith(("listen: ", "admin: ")) else mistake


def schema() -> dict[str, Any]:
    """JSON Schema of the file, for editors."""
    return Config.model_json_schema()


def _from(folder: Path, config: Config) -> Config:
    record = config.record
    return config.model_copy(
        update={
            "state": None if config.state is None else folder / config.state,
            "record": None if record is None else record.model_copy(update={"folder": folder / record.folder}),
        }
    )


def _of_yaml(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or (str(error).splitlines() or [type(error).__name__])[0]
    return f"is no YAML: {problem}" + (f" (line {mark.line + 1}, column {mark.column + 1})" if mark else "")


def _fill_in(value: Any, environment: Mapping[str, str], path: str, mistakes: list[str]) -> Any:
    """The value with environment variables put in."""
    if isinstance(value, dict):
        return {
            key: _fill_in(one, environment, f"{path}.{key}" if path else str(key), mistakes)
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [_fill_in(one, environment, f"{path}[{k}]", mistakes) for k, one in enumerate(value)]
    if not isinstance(value, str):
        return value
    secret = path.rpartition(".")[2] in SECRETS
    if secret and _LIKE_A_VARIABLE.fullmatch(value):
        mistakes.append(f"{path}: environment variables are written ${{NAME}}, with braces")
        return value

    def one(found: re.Match[str]) -> str:
        if found[1]:
            return "${"
        if found[4]:
            mistakes.append(
                f"{path}: '${{' begins a variable, written ${{NAME}} or ${{NAME:-text}}; '$${{' stands for '${{'"
            )
            return ""
        text = environment[found[2]] if found[2] in environment else found[3]
        if text is None:
            mistakes.append(f"{path}: the environment variable {found[2]} is not set")
            return ""
        if secret and not text and found[0] == value:
            mistakes.append(f"{path}: the environment variable {found[2]} is empty")
        return text

    return _VARIABLE.sub(one, value)


def sentences(error: ValidationError) -> list[str]:
    """pydantic's findings, a sentence each. Never with the value of a secret."""
    return words.sentences(error, Config, SECRETS)
