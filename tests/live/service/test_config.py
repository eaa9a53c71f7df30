"""The settings: what is read, and a sentence for every mistake."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from queuewise.dispatch.policies import REGISTER
from queuewise.live.circuit import CircuitSettings
from queuewise.live.service import config as settings
from queuewise.live.service.config import (
    CircuitConfig,
    ConfigError,
    Strict,
    of_options,
    parse,
    read,
    schema,
)

WHOLE = """
listen: 0.0.0.0:8080
admin: "[::1]:8081"
token: ${TOKEN}
state: learned
record: {folder: decisions, flush_seconds: 5}
log: {format: json, requests: true}
limits: {body: 2MiB, head: 8kB}
timeouts: {connect: 1, deadline: 20}
retries: {tries: 2, share: 0.1}
groups:
  chat:
    models: [small, large]
    policy: {name: lased, update: completion}
    half_life: off
    circuit: {failures: 3}
    shed: {in_flight: 100, wait: 10}
    backends:
      a: {url: "https://a.example/v1", slots: 8, key: "${KEY:-none}", model: up}
      b: http://127.0.0.1:9002
  rest:
    circuit: off
    backends: {c: {url: "http://127.0.0.1:9003", rate: "${RATE}"}}
"""
ENVIRONMENT = {"TOKEN": "s3cret", "RATE": "2.5"}


def mistakes(text: str, **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as found:
        parse(text, environment={"EMPTY": "", "SET": "x", **environment})
    return found.value.mistakes


def test_a_whole_file() -> None:
    config = parse(WHOLE, environment=ENVIRONMENT)
    assert str(config.listen) == "0.0.0.0:8080" and str(config.admin) == "[::1]:8081"
    assert config.token is not None and config.token.get_secret_value() == "s3cret"
    assert config.limits.body == 2 << 20 and config.limits.head == 8000
    chat, rest = config.groups["chat"], config.groups["rest"]
    assert chat.half_life is None and chat.circuit is not None and chat.circuit.failures == 3
    assert chat.backends["a"].slots == 8 and chat.backends["b"].url == "http://127.0.0.1:9002"
    assert rest.circuit is None and rest.backends["c"].rate == 2.5
    router = chat.router(compiled=False)
    assert router.policy.name == "lased" and router.policy.options["update"] == "completion"
    assert "s3cret" not in repr(config)


def test_examples_in_sentences_are_good() -> None:
    """What a sentence says that must be written may be written."""
    models = [
        one
        for one in vars(settings).values()
        if isinstance(one, type) and issubclass(one, Strict) and one is not Strict
    ]
    assert len(models) >= 9
    for model in models:
        model.model_validate(yaml.safe_load(model.example))
    policy = yaml.safe_load(settings._WITH_OPTIONS)
    group = {"policy": policy, "backends": {"a": "http://x", "b": "http://y"}}
    assert parse(json.dumps({"groups": {"g": group}})).groups["g"].policy == policy


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "queuewise.yaml"
    file.write_text(WHOLE)
    config = read(file, ENVIRONMENT)
    assert config.state == tmp_path / "learned"
    assert config.record is not None and config.record.folder == tmp_path / "decisions"


def test_json_is_read_too() -> None:
    text = json.dumps({"groups": {"g": {"backends": {"a": "http://x"}}}})
    assert list(parse(text).groups) == ["g"]


def test_off_and_ports() -> None:
    config = parse("{listen: 9000, admin: off, groups: {g: {backends: {a: 'http://x'}}}}")
    assert config.admin is None and str(config.listen) == "127.0.0.1:9000"


def test_variables_are_texts_whatever_is_in_them() -> None:
    text = "{groups: {g: {models: ['${M}', '$${M}'], backends: {a: 'http://x'}}}}"
    config = parse(text, environment={"M": "x, admin: 0.0.0.0:1}"})
    assert config.groups["g"].models == ("x, admin: 0.0.0.0:1}", "${M}")


def test_what_looks_like_a_variable_is_a_text_where_no_secret_is_wanted() -> None:
    text = "{groups: {g: {models: ['$M', '$', '$$x', '{$}'], backends: {a: {url: 'http://x', key: '${K}'}}}}}"
    config = parse(text, environment={"K": "$ecret"})
    assert config.groups["g"].models == ("$M", "$", "$$x", "{$}")
    key = config.groups["g"].backends["a"].key
    assert key is not None and key.get_secret_value() == "$ecret"


ONE = "groups: {g: {backends: {a: 'http://x'}}}"


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("groups: [", ["is no YAML: expected the node content, but found '<stream end>' (line 1, column 10)"]),
        ("3", ["must hold settings by name, as `listen:` and `groups:`"]),
        ("", ["must hold settings by name, as `listen:` and `groups:`"]),
        ("{}", ["groups: is missing"]),
        ("groups: {}", ["groups: must name at least one"]),
        ("groups: {g: {backends: {}}}", ["groups.g.backends: must name at least one backend"]),
        (f"{ONE}\nlisten: 0.0.0.0:80", ["token: is needed where listen is no loopback address, as 0.0.0.0:80 is"]),
        (
            f"{ONE}\nadmin: 10.1.2.3:80",
            ["admin_token: is needed where admin is no loopback address, as 10.1.2.3:80 is"],
        ),
        (f"{ONE}\nadmin: 127.0.0.1:8080", ["admin: must be another address than listen, 127.0.0.1:8080"]),
        (f"{ONE}\nlisten: nowhere", ["listen: must be HOST:PORT, such as 127.0.0.1:8080, not 'nowhere'"]),
        (f"{ONE}\nlisten: h:70000", ["listen: must be HOST:PORT, such as 127.0.0.1:8080, not 'h:70000'"]),
        (f"{ONE}\ntoken: 'a b'", ["token: must be a text of visible ASCII characters"]),
        (f"{ONE}\ntoken: ${{GONE}}", ["token: the environment variable GONE is not set"]),
        (f"{ONE}\nlimits: {{body: lots}}", ["limits.body: must be a size such as 16MiB, not 'lots'"]),
        (
            f"{ONE}\nlimits: {{body: {'9' * 40}MiB}}",
            [f"limits.body: must be a size such as 16MiB, not '{'9' * 40}MiB'"],
        ),
        (f"{ONE}\nretries: {{tires: 1}}", ["retries.tires: there is no such setting; did you mean 'tries'?"]),
        (f"{ONE}\nretrys: {{}}", ["retrys: there is no such setting; did you mean 'retries'?"]),
        (f"{ONE}\ntimeouts: {{connect: 0}}", ["timeouts.connect: must be greater than 0, not 0"]),
        (f"{ONE}\nlog: {{format: xml}}", ["log.format: must be 'text' or 'json', not 'xml'"]),
        (
            "groups: {g: {backends: {a: {url: 'ftp://x', slots: 0, key: 5, slotz: 2}}}}",
            [
                "groups.g.backends.a.slots: must be at least 1, not 0",
                "groups.g.backends.a.key: must be a text",
                "groups.g.backends.a.slotz: there is no such setting; did you mean 'slots'?",
            ],
        ),
        (
            "groups: {g: {backends: {a: 'http://u:p@x'}}}",
            ["groups.g.backends.a: url must be like http://host:port, without user, query or fragment"],
        ),
        (
            "groups: {g: {backends: {a: 'http://x', a: 'http://y'}}}",
            ["is no YAML: 'a' stands twice (line 1, column 40)"],
        ),
        ("groups: {? [a, b] : 1}", ["is no YAML: found unhashable key (line 1, column 12)"]),
        (f"{ONE}\nlog: {{format: ''}}", ["log.format: must be 'text' or 'json', not ''"]),
        (
            "groups: {g: {backends: {a: {url: 'http://x', model: ''}}}}",
            ["groups.g.backends.a.model: must have at least 1 character, not ''"],
        ),
        (
            "groups: {g: {backends: {'a/b': 'http://x'}}}",
            [
                "groups.g.backends.a/b: 'a/b' is no name: up to 64 letters, digits, '.', '_' or '-', the first a letter "
                "or digit"
            ],
        ),
        ("groups: {g: {backends: {a: {}}}}", ["groups.g.backends.a.url: is missing"]),
        (
            "groups: {g: {backends: ['http://x']}}",
            ["groups.g.backends: must be names with URLs, as in {a: http://10.0.0.1:8000}"],
        ),
        ("groups: {g: {models: m, backends: {a: 'http://x'}}}", ["groups.g.models: must be a list, not 'm'"]),
        (
            "groups: {g: {shed: 30, backends: {a: 'http://x'}}}",
            ["groups.g.shed: must be settings by name, as in {in_flight: 200}, not 30"],
        ),
        (
            "groups: {g: {half_life: never, change_threshold: x, circuit: 3, backends: {a: 'http://x'}}}",
            [
                "groups.g.half_life: must be a number of seconds, or off, not 'never'",
                "groups.g.change_threshold: must be a number, or off, not 'x'",
                "groups.g.circuit: must be settings by name, as in {failures: 5}, or off, not 3",
            ],
        ),
        (
            "groups: {g: {circuit: {pause: soon}, shed: {wait: long}, policy: [a], backends: {a: 'http://x'}}}",
            [
                "groups.g.policy: must be a name, or options with a name, as in {name: power_of_d, choices: 2}",
                "groups.g.circuit.pause: must be a number of seconds, not 'soon'",
                "groups.g.shed.wait: must be a number of seconds, not 'long'",
            ],
        ),
        (f"{ONE}\ntimeouts: {{first_byte: 30s}}", ["timeouts.first_byte: must be a number of seconds, not '30s'"]),
        (f"{ONE}\ntimeouts:", ["timeouts: must be settings by name, as in {first_byte: 60}, not nothing"]),
        (f"{ONE}\nlog: {{requests: maybe}}", ["log.requests: must be true or false, not 'maybe'"]),
        (f"{ONE}\nadmin: on", ["admin: must be HOST:PORT, such as 127.0.0.1:8080, not true"]),
        (f"{ONE}\nrecord: 3", ["record: must be a folder, or settings by name, as in {folder: decisions}, not 3"]),
        (
            f"{ONE}\nrecord: {{folder: x, flush_second: 3}}",
            ["record.flush_second: there is no such setting; did you mean 'flush_seconds'?"],
        ),
        (
            "groups: {g: {backends: {a: {url: 3, slots: many, rate: fast}, b: 3}}}",
            [
                "groups.g.backends.a.url: must be a text, not 3",
                "groups.g.backends.a.slots: must be a whole number, not 'many'",
                "groups.g.backends.a.rate: must be a number, not 'fast'",
                'groups.g.backends.b: must be a URL, or settings by name, as in {url: "http://10.0.0.1:8000", slots: 8}, not 3',
            ],
        ),
        (
            "groups: {g: {backends: {a: 'http://h:1/v1/chat/completions'}}}",
            ["groups.g.backends.a: url must be what stands before /v1/chat/completions, without the path of a request"],
        ),
        ("groups: {g: {backends: {a: {url: 'http://x', key: ''}}}}", ["groups.g.backends.a.key: is empty"]),
        (f"{ONE}\ntoken: ${{EMPTY}}", ["token: the environment variable EMPTY is empty"]),
        (f"{ONE}\ntoken: ${{GONE:-}}", ["token: the environment variable GONE is empty"]),
        *(
            (
                f"{ONE}\ntoken: '{text}'",
                ["token: '${' begins a variable, written ${NAME} or ${NAME:-text}; '$${' stands for '${'"],
            )
            for text in ("${B AD}", "${", "${A:-${SET}}", "${3}", "${A")
        ),
        (f"{ONE}\nadmin_token: $TOKEN", ["admin_token: environment variables are written ${NAME}, with braces"]),
        (
            "groups: {g: {policy: fastest, backends: {a: 'http://x'}}}",
            [f"groups.g: policy: no rule is called 'fastest'; known: {', '.join(sorted(REGISTER))}"],
        ),
        (
            "groups: {g: {policy: sedd, backends: {a: 'http://x'}}}",
            ["groups.g: policy: no rule is called 'sedd'; did you mean 'sed'?"],
        ),
        (
            "groups: {g: {policy: {name: lased, updat: x}, backends: {a: 'http://x'}}}",
            ["groups.g: updat: no such parameter of 'lased'; did you mean 'update'?"],
        ),
        (
            "groups: {g: {policy: {update: x}, backends: {a: 'http://x'}}}",
            [
                "groups.g: policy: a policy with options needs its name, as in {name: power_of_d, choices: 2}",
            ],
        ),
        (
            "groups: {g: {policy: sed, backends: {a: 'http://x'}}}",
            ["groups.g: policy: 'sed' goes by typed-in rates, so every server needs one"],
        ),
        (
            "groups: {g: {explore_share: 7, backends: {a: 'http://x'}}}",
            ["groups.g: explore_share must be from 0 to 1, not 7.0"],
        ),
        (
            "groups: {g: {circuit: {panic: 2}, backends: {a: 'http://x'}}}",
            ["groups.g: circuit panic must be above 0 and at most 1, not 2.0"],
        ),
        (
            "groups: {g: {models: [m], backends: {a: 'http://x'}}, h: {models: [m], backends: {a: 'http://x'}}}",
            ["groups.h.models: 'm' is in group 'g' already"],
        ),
        (
            "groups: {g: {backends: {a: 'http://x'}}, h: {backends: {a: 'http://x'}}}",
            ["groups: only one group may be without models, not 'g', 'h'"],
        ),
    ],
)
def test_a_sentence_per_mistake(text: str, sentences: list[str]) -> None:
    assert mistakes(text) == sentences


def test_no_sentence_shows_a_secret() -> None:
    text = "token: [s3cret]\nadmin_token: {a: s3cret}\ngroups: {g: {backends: {a: {url: 'http://x', key: [s3cret]}}}}"
    found = mistakes(text)
    assert len(found) == 3 and "s3cret" not in str(found)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yaml: cannot be read \(No such file or directory\)"):
        read(tmp_path / "nothing.yaml")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    with pytest.raises(ConfigError, match="binary: is no YAML"):
        read(tmp_path / "binary")
    with pytest.raises(ConfigError, match="cannot be read"):
        read(tmp_path)


def test_objects_are_not_made_of_yaml() -> None:
    (found,) = mistakes("groups: !!python/object/apply:os.system ['true']")
    assert found.startswith("is no YAML: could not determine a constructor")


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda x: st.lists(x, max_size=3)))
def test_whatever_stands_at_a_place_is_a_mistake_or_good(value: object) -> None:
    """Never another exception than the one with sentences, and never Python's names for things in these."""
    good = {"backends": {"a": "http://x"}}
    for place in ("listen", "admin", "groups", "limits", "record", "token", "state", "log", "save_seconds"):
        tried = [{"groups": {"g": good}, place: value}]
        if place == "groups":
            fields = ("models", "backends", "policy", "half_life", "circuit", "shed")
            tried += [{"groups": {"g": value}}, *({"groups": {"g": {**good, field: value}}} for field in fields)]
            tried += [
                {"groups": {"g": {"backends": {"a": {"url": "http://x", field: value}}}}} for field in ("url", "slots")
            ]
        for settings_ in tried:
            try:
                parse(yaml.safe_dump(settings_), environment={})
            except ConfigError as error:
                assert error.mistakes and all(len(sentence) > 5 for sentence in error.mistakes)
                assert not re.search(
                    r"Config\b|<class|instance|tuple|dictionary|NoneType|None$", str(error.mistakes)
                ), error


MERGED = """
groups:
  g:
    backends:
      a: &a {url: "http://x", slots: 4, rate: 2.0}
      b: &b {<<: *a, slots: 8, url: "http://y"}
      c: {slots: 1, <<: *b, url: "http://z"}
      d: {<<: [*a, *b], model: large}
      e: {<<: *b}
  h: &h {models: [m], backends: &few {a: "http://x", b: "http://x"}}
  i: &i {models: [n], backends: &more {<<: *few, b: "http://y", c: "http://y"}}
  j: {<<: *i, models: [o], backends: {<<: *more}}
"""


def test_merge_keys_are_overruled_by_what_stands_beside_them() -> None:
    """In any order of reading, since the loader changes a mapping that it puts into another; and whether names are long or of
    one letter, which PyYAML keeps in memory once."""
    groups = parse(MERGED, environment={}).groups
    assert [(one.url, one.slots, one.rate, one.model) for one in groups["g"].backends.values()] == [
        *(("http://x", 4, 2.0, None), ("http://y", 8, 2.0, None), ("http://z", 1, 2.0, None)),
        *(("http://x", 4, 2.0, "large"), ("http://y", 8, 2.0, None)),
    ]
    for name in ("i", "j"):
        urls = {label: one.url for label, one in groups[name].backends.items()}
        assert urls == {"a": "http://x", "b": "http://y", "c": "http://y"}
    for line in ("{<<: *a, slots: 8, slots: 9, url: 'http://y'}", "{url: 'http://y', <<: *a, url: 'http://w'}"):
        twice = MERGED.replace('{<<: *a, slots: 8, url: "http://y"}', line)
        assert twice != MERGED
        with pytest.raises(ConfigError, match=r"is no YAML: '(slots|url)' stands twice \(line 6, column"):
            parse(twice, environment={})
    for line in ("{<<: 3}", "{<<: [*a, 3]}"):
        with pytest.raises(ConfigError, match=r"is no YAML: << must name a mapping \(line 9, column"):
            parse(MERGED.replace("{<<: *b}", line), environment={})


def test_circuits_are_by_default_as_the_router_has_them() -> None:
    assert CircuitConfig().model_dump() == asdict(CircuitSettings())
    assert parse(ONE, environment={}).groups["g"].routing()["circuit"] == CircuitSettings()


def test_options_in_the_place_of_a_file() -> None:
    config = of_options(["http://x:1", "fast=http://y:2/v1"], policy="jsq", listen="9000")
    assert list(config.groups["default"].backends) == ["b1", "fast"]
    assert config.groups["default"].policy == "jsq" and config.listen.port == 9000
    assert of_options(["http://x/a=b"]).groups["default"].backends["b1"].url == "http://x/a=b"
    with pytest.raises(ConfigError, match="--backend: 'a' stands twice"):
        of_options(["a=http://x", "a=http://y"])
    for backends, options, sentence in (
        (
            ["127.0.0.1:9301"],
            {},
            "--backend 127.0.0.1:9301: url must be like http://host:port, without user, query or fragment",
        ),
        (
            ["http://x", "b=http://x/v1/chat/completions"],
            {},
            "--backend b=http://x/v1/chat/completions: url must be what stands before /v1/chat/completions, without the path "
            "of a request",
        ),
        (["http://x"], {"policy": "sedd"}, "--policy: no rule is called 'sedd'; did you mean 'sed'?"),
        (["http://x"], {"listen": "x"}, "--listen: must be HOST:PORT, such as 127.0.0.1:8080, not 'x'"),
        (["http://x"], {"admin": "127.0.0.1:8080"}, "--admin: must be another address than listen, 127.0.0.1:8080"),
        *(
            (
                ["http://x"],
                {option: "0.0.0.0:8080"},
                f"--{option}: on an address that is no loopback one a token is needed, and for that a file of settings",
            )
            for option in ("listen", "admin")
        ),
    ):
        with pytest.raises(ConfigError) as found:
            of_options(backends, **options)
        assert str(found.value) == f"serve: {sentence}"


def test_the_schema_takes_what_is_good() -> None:
    found = schema()
    jsonschema.Draft202012Validator.check_schema(found)
    given = yaml.safe_load(WHOLE.replace("${RATE}", "2.5"))
    given["groups"]["rest"]["backends"]["c"]["rate"] = 2.5
    jsonschema.validate(given, found)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**given, "retrys": {}}, found)
