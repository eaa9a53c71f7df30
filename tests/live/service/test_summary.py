"""What check-config says of settings that are good."""

from __future__ import annotations

from queuewise.live.service.config import parse
from queuewise.live.service.summary import notes, summary

from .test_config import ENVIRONMENT, ONE, WHOLE


def test_the_summary_confirms_what_was_set() -> None:
    found = summary(parse(WHOLE.replace(":-none", ":-an0ther"), environment=ENVIRONMENT))
    assert "s3cret" not in str(found) and "an0ther" not in str(found)
    assert found == [
        "  listens at 0.0.0.0:8080, asks for a token",
        "  admin at [::1]:8081, asks for no token",
        "  group chat: small, large; lased (update completion); sheds beyond 100 requests in flight or a wait of 10 s",
        "    a: https://a.example/v1, 8 slots, model up, a key of its own",
        "    b: http://127.0.0.1:9002, 1 slot, the client's key",
        "    half_life off, circuit failures 3",
        "  group rest: all other models; optimistic_sed; sheds nothing",
        "    c: http://127.0.0.1:9003, 1 slot, rate 2.5/s a slot, the client's key",
        "    circuit off",
        "  timeouts: connect 1, deadline 20",
        "  retries: tries 2, share 0.1",
        "  limits: body 2MiB, head 8000",
        "  log: format json, requests true",
        "  learned rates are kept in learned, saved every 10 s",
        "  decisions are recorded in decisions, every 5 s",
    ]
    assert summary(parse(f"{ONE}\nadmin: off", environment={})) == [
        "  listens at 127.0.0.1:8080, asks for no token",
        "  no admin port",
        "  group g: all other models; optimistic_sed; sheds nothing",
        "    a: http://x, 1 slot, the client's key",
        "  learned rates are not kept",
    ]


def test_one_url_twice_is_worth_a_note() -> None:
    backends = "a: 'http://x', b: 'http://x/v1/', c: {url: 'http://x', key: k}, d: {url: 'http://x', model: m}"
    (note,) = notes(parse(f"groups: {{g: {{backends: {{{backends}}}}}}}", environment={}))
    assert note.startswith("groups.g.backends: a and b have the same url; if they are one server,")
    two = "groups: {g: {backends: {a: 'http://x'}}, h: {models: [m], backends: {a: 'http://x', b: 'http://y'}}}"
    assert notes(parse(two, environment={})) == []
