"""The page to look at, in a real Chromium: what it shows, what its buttons do, and that it does no harm."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvicorn

from queuewise.live.service import admin, config
from queuewise.live.service.config import BackendConfig
from queuewise.live.service.groups import Group
from queuewise.live.service.history import History
from queuewise.live.service.service import Service

from .chromium import Tab, browsing, found
from .running import serving

pytestmark = pytest.mark.browser

THREE = """
groups:
  chat:
    models: [llama]
    backends:
      fast: {url: "http://10.0.0.1:8000/v1", slots: 2, key: sk-secret}
      slow: {url: "http://10.0.0.2:8000/v1"}
      other: {url: "http://10.0.0.3:8000/v1"}
"""


class Behind:
    """A service with made-up traffic: backends answer in virtual time, so that a test need not wait."""

    def __init__(self, text: str) -> None:
        self.service = Service(config.parse(text))
        self.history = History(self.service)
        self.service.listeners = (self.history.note,)
        self.app = admin.app(self.service, self.history)
        self.random = random.Random(5)
        self.failing: set[str] = set()

    async def traffic(self, group: Group, pace: float = 100.0) -> None:
        """Requests without end, each of which takes some milliseconds of real time at its backend."""
        loop = asyncio.get_running_loop()

        def over(ticket: Any) -> None:
            end = group.router.fail if ticket.server in self.failing else group.router.complete
            end(ticket)

        while True:
            await asyncio.sleep(self.random.expovariate(pace))
            key = self.random.choice(group.classes) if group.classes else None
            with contextlib.suppress(RuntimeError):
                loop.call_later(self.random.expovariate(20.0), over, group.router.route(key))

    async def ticks(self, every: float = 1.0) -> None:
        """As the service's periodic work."""
        while True:
            await asyncio.sleep(every)
            self.history.tick()


def looked_at(
    behind: Behind,
    look: Callable[[Tab, str], Awaitable[None]],
    *,
    width: int = 1280,
    pace: float = 100.0,
    every: float = 1.0,
    errors: bool = False,
) -> None:
    """Serve the page over traffic, and look at it. errors : whether the page may see some, as where it must ask again."""
    program = found()
    if program is None:
        pytest.skip("there is no Chromium here: install Debian's package chromium, or set QUEUEWISE_CHROMIUM")

    async def all_of_it() -> None:
        busy = [asyncio.create_task(behind.traffic(group, pace)) for group in behind.service.groups.values()]
        busy.append(asyncio.create_task(behind.ticks(every)))
        try:
            async with serving(behind.app) as url, browsing(program) as tab:
                await tab.size(width, 800)
                await tab.call("Page.navigate", url=url + "/")
                await tab.until("document.readyState === 'complete'")
                await look(tab, url)
                assert errors or not tab.errors, tab.errors
                outside = [one for one in tab.requests if not one.startswith((url + "/", "data:image/svg+xml,"))]
                assert not outside, outside
        finally:
            for task in busy:
                task.cancel()
            await asyncio.gather(*busy, return_exceptions=True)

    asyncio.run(all_of_it())


def rows(name: str) -> str:
    return f"[...document.querySelectorAll('#{name} tbody tr:not(.detail)')]"


NAMES = f"{rows('backends')}.map(row => row.querySelector('button').textContent)"


def click(label: str) -> str:
    """Press what has this label or text, as a user does who can see it."""
    return (
        "(() => { const found = [...document.querySelectorAll('button')].filter(button => button.offsetParent !== null "
        f"&& (button.getAttribute('aria-label') || button.textContent).trim() === {json.dumps(label)}); "
        "if (found.length !== 1) throw new Error(found.length + ' such buttons'); found[0].click(); return true; })()"
    )


def test_it_shows_backends_and_numbers_and_goes_on_by_itself() -> None:
    behind = Behind(THREE)
    router = behind.service.groups["chat"].router

    async def look(tab: Tab, url: str) -> None:
        await tab.until(f"{rows('backends')}.length === 3")
        assert await tab.see(NAMES) == ["fast", "slow", "other"]
        text = await tab.see("document.body.innerText")
        assert "http://10.0.0.1:8000/v1" in text and "models llama" in text and "sk-secret" not in text
        assert await tab.see("document.getElementById('pulse').textContent") == "live"
        # The numbers are the router's, and move with it.
        cell = f"Number({rows('backends')}[0].children[7].textContent.replace(',', ''))"
        first = await tab.until(cell)
        await tab.until(f"{cell} > {first}")
        shown, known = await tab.see(cell), router.estimates()["fast"]["outcomes"]["done"]
        assert 0.3 * known <= shown <= known
        rate, low, high = await tab.until(
            f"(m => m && m.slice(1).map(Number))({rows('backends')}[0].children[2].textContent"
            ".match(/^([\\d.]+) \\[([\\d.]+), ([\\d.]+)\\]/))"
        )
        assert low < rate < high
        # The dot stands where the number says, between the ends of its interval.
        dot, left, right = await tab.see(
            f"(svg => [svg.querySelector('.dot').getAttribute('cx'), svg.querySelector('.span').getAttribute('x1'), "
            f"svg.querySelector('.span').getAttribute('x2')].map(parseFloat))({rows('backends')}[0].querySelector('svg'))"
        )
        assert 0.0 <= left < dot < right <= 100.0
        assert dot == pytest.approx(100.0 * rate / await tab.see("scale"), rel=0.25)
        # Three charts with lines in them.
        await tab.until(
            "[...document.querySelectorAll('#charts path.l0')].filter(p => /L/.test(p.getAttribute('d'))).length === 3"
        )
        ended = await tab.see("[...document.querySelectorAll('#tiles div')].map(tile => tile.innerText.split('\\n'))")
        tiles = {label: value for label, value, *_ in ended}
        assert tiles["Usable"] == "3 of 3" and 20 < float(tiles["Requests"].split()[0]) < 300, tiles
        assert tiles["Delay, median"].endswith("ms")

    looked_at(behind, look)


def test_drain_resume_reset_and_the_kill_switch() -> None:
    behind = Behind(THREE)
    router = behind.service.groups["chat"].router

    async def look(tab: Tab, url: str) -> None:
        await tab.until(f"{rows('backends')}.length === 3")
        await tab.see(click("Drain slow"))
        await tab.until(f"{rows('backends')}[1].innerText.includes('draining')")
        assert router.estimates()["slow"]["state"] == "draining"
        await tab.see(click("Resume slow"))
        await tab.until(f"{rows('backends')}[1].children[1].innerText === 'up'")
        assert router.estimates()["slow"]["state"] == "up"

        # What drops something, or changes who decides, is asked about first.
        await tab.until("document.body.innerText.includes('decisions:')")
        before = router.estimates()["fast"]["completions"]
        assert before > 0
        await tab.see(click("Reset fast"))
        assert await tab.see("document.getElementById('ask').open")
        await tab.press("Escape")
        assert not await tab.see("document.getElementById('ask').open")
        assert router.estimates()["fast"]["completions"] >= before
        await tab.see(click("Reset fast"))
        await tab.see(click("Reset"))
        await tab.until(f"Number({rows('backends')}[0].children[7].textContent) > 0")
        assert 0 <= router.estimates()["fast"]["completions"] < before + 60

        await tab.see("document.getElementById('rule').value = 'round_robin'")
        await tab.see(click("Apply"))
        assert router.report()["override"] is None
        await tab.see("document.getElementById('a-yes').click()")
        await tab.until("document.getElementById('said').innerText.includes('round_robin')")
        assert router.report()["override"] == "round_robin"
        await tab.until(f"{rows('decisions')}.some(row => row.innerText.includes('not the policy'))")
        await tab.see("document.getElementById('rule').value = ''")
        await tab.see(click("Apply"))
        await tab.see("document.getElementById('a-yes').click()")
        await tab.until("!document.getElementById('said').innerText.includes('round_robin')")
        assert router.report()["override"] is None

    looked_at(behind, look)


def test_an_explanation_opens_though_its_decision_is_long_forgotten() -> None:
    behind = Behind(THREE)

    async def look(tab: Tab, url: str) -> None:
        await tab.until(f"{rows('decisions')}.length > 3")
        # It has the focus, so the list is held; meanwhile 256 decisions more are made.
        await tab.see(f"{rows('decisions')}[0].querySelector('button').focus()")
        number = await tab.see(f"{rows('decisions')}[0].querySelector('button').textContent")
        router = behind.service.groups["chat"].router
        for _ in range(300):
            router.complete(router.route())
        await tab.until("document.getElementById('held').textContent.includes('newer')")
        assert await tab.see(f"{rows('decisions')}[0].querySelector('button').textContent") == number
        await tab.press("Enter")
        await tab.until("document.getElementById('explained').open")
        text = await tab.see("document.getElementById('explained').innerText")
        assert f"Decision {number}: " in text
        assert await tab.see(f"{rows('x-table')}.length") == 3
        await tab.until("document.getElementById('x-policy').offsetParent !== null")
        said = json.loads(await tab.see("document.querySelector('#x-policy pre').textContent"))
        assert said["servers"] == ["fast", "slow", "other"]
        await tab.press("Escape")
        await tab.until("!document.getElementById('explained').open")

    looked_at(behind, look)


def test_details_of_a_backend_by_keyboard() -> None:
    behind = Behind(THREE)

    async def look(tab: Tab, url: str) -> None:
        await tab.until(f"{rows('backends')}.length === 3")
        await tab.see(f"{rows('backends')}[1].querySelector('button').focus()")
        await tab.press("Enter")
        await tab.until("document.getElementById('detail') !== null")
        assert await tab.see(f"{rows('backends')}[1].querySelector('button').getAttribute('aria-expanded')") == "true"
        assert await tab.see(f"{rows('backends')}[1].nextElementSibling.id") == "detail"
        await tab.until("/Completions/.test(document.getElementById('detail').innerText)")
        # The trace of its rate comes with its interval, and updates leave the focus where it was.
        await tab.until("document.querySelector('#detail path.area') !== null")
        assert await tab.see(f"document.activeElement === {rows('backends')}[1].querySelector('button')")
        await tab.press("Enter")
        await tab.until("document.getElementById('detail') === null")

    looked_at(behind, look, every=0.1)


HARM = "<img src=x onerror='window.harm=1'>"
MARKUP = f"""
groups:
  chat:
    models: ["<script>window.harm=2</script>"]
    classes: ["<b onmouseover=window.harm=3>short</b>", "\\"><svg onload=window.harm=4>"]
    backends:
      plain: {{url: "http://10.0.0.1/\\"><img/src=x/onerror=window.harm=5>", model: "{HARM}"}}
      rest: "http://10.0.0.2"
"""


def test_markup_in_names_addresses_and_classes_does_no_harm() -> None:
    behind = Behind(MARKUP)
    behind.service.groups["chat"].add(HARM, BackendConfig(url="http://10.0.0.3"))

    async def look(tab: Tab, url: str) -> None:
        await tab.until(f"{rows('backends')}.length === 3 && {rows('decisions')}.length > 3")
        assert (await tab.see(NAMES))[2] == HARM
        await tab.see(f"{rows('backends')}[2].querySelector('button').click()")
        await tab.until("document.getElementById('detail') !== null")
        await tab.see(f"{rows('backends')}[0].querySelector('button').click()")
        await tab.until("document.getElementById('detail').innerText.includes('onerror')")
        await tab.see(f"{rows('decisions')}[0].querySelector('button').click()")
        await tab.until("document.getElementById('explained').open")
        await asyncio.sleep(1.2)
        assert await tab.see("window.harm === undefined")
        assert await tab.see("document.querySelectorAll('img, #all script, #all b[onmouseover]').length") == 0
        assert await tab.see("document.body.innerText.includes('<script>window.harm=2</script>')")
        assert await tab.see(f"{rows('backends')}[0].children[2].innerText.includes('<b onmouseover')")

    looked_at(behind, look)


def many(number: int = 64) -> str:
    backends = "".join(
        f"      gpu-{k:02d}: {{url: 'http://a-rather-long-name-of-a-host-{k}.internal.example:8000/v1', slots: {1 + k % 4}}}\n"
        for k in range(number)
    )
    return f"groups:\n  a-group-with-a-name:\n    backends:\n{backends}"


def beyond(width: int) -> str:
    """How wide the page is, and what in it is wider than it should be: a phone's window grows with what is in it."""
    return (
        "[document.documentElement.scrollWidth, innerWidth, ...[...document.querySelectorAll('body *')]"
        f".filter(e => e.getBoundingClientRect().right > {width + 1} && getComputedStyle(e).position !== 'absolute')"
        ".map(e => e.tagName + '#' + e.id + '.' + (e.getAttribute('class') || ''))]"
    )


#: Type into a field, or choose in it.
SET = (
    "(() => {{ const field = document.getElementById('{}'); field.value = '{}'; "
    "for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind)); }})()"
)


@pytest.mark.parametrize("text", [THREE, MARKUP, many()], ids=["three", "markup", "many"])
def test_a_phone_scrolls_down_only(text: str) -> None:
    async def look(tab: Tab, url: str) -> None:
        await tab.until(f"{rows('backends')}.length > 1 && {rows('decisions')}.length > 3")
        await tab.see(f"{rows('backends')}[0].querySelector('button').click()")
        await tab.until("document.getElementById('detail') !== null")
        await tab.see(f"tell('act', {json.dumps('x' * 300)}, 'bad')")
        assert await tab.see(beyond(360)) == [360, 360]
        await tab.see(f"{rows('decisions')}[0].querySelector('button').click()")
        await tab.until("document.getElementById('explained').open")
        assert await tab.see(beyond(360)) == [360, 360]
        box = "document.getElementById('explained')"
        assert await tab.see(f"{box}.scrollWidth <= {box}.clientWidth")

    looked_at(Behind(text), look, width=360)


@pytest.mark.parametrize("width", [480, 768, 1024, 1600])
def test_no_width_scrolls_sideways(width: int) -> None:
    async def look(tab: Tab, url: str) -> None:
        await tab.until(f"{rows('backends')}.length === 12 && {rows('decisions')}.length > 3")
        assert await tab.see(beyond(width)) == [width, width]

    looked_at(Behind(many(12)), look, width=width)


def test_64_backends_can_be_found_and_ordered_and_are_drawn_quickly() -> None:
    behind = Behind(many())

    async def look(tab: Tab, url: str) -> None:
        await tab.until(f"{rows('backends')}.length === 64")
        await tab.see(SET.format("filter", "gpu-1"))
        assert await tab.see(NAMES) == [f"gpu-{k}" for k in range(10, 20)]
        await tab.see(SET.format("filter", ""))
        assert await tab.see(f"{rows('backends')}.length") == 64
        behind.service.groups["a-group-with-a-name"].router.drain("gpu-40")
        await tab.until(f"{rows('backends')}.some(row => row.innerText.includes('draining'))")
        await tab.see(SET.format("order", "state"))
        assert (await tab.see(NAMES))[0] == "gpu-40"
        await tab.see(SET.format("order", ""))
        assert await tab.see(NAMES) == [f"gpu-{k:02d}" for k in range(64)]
        times = await tab.see(
            "[...Array(9)].map(() => { const began = performance.now(); render(); return performance.now() - began; })"
        )
        assert sorted(times)[4] < 100.0, times

    looked_at(behind, look, pace=300.0)


def test_groups_have_tabs() -> None:
    text = THREE + "  embed:\n    classes: [short, long]\n    backends: {one: 'http://10.0.1.1'}\n"

    async def look(tab: Tab, url: str) -> None:
        await tab.until(f"{rows('backends')}.length === 3 && {rows('decisions')}.length > 3")
        tabs = "[...document.querySelectorAll('#groups button')]"
        assert await tab.see(f"{tabs}.map(button => button.firstChild.textContent)") == ["chat", "embed"]
        await tab.see(f"{tabs}[1].click()")
        await tab.until(f"{rows('backends')}.length === 1")
        await tab.until(f"{rows('backends')}[0].children[2].innerText.includes('short')")
        assert await tab.see(f"{tabs}[1].getAttribute('aria-current')") == "true"
        await tab.until(
            f"{rows('decisions')}.length > 0 && {rows('decisions')}.every(row => row.innerText.includes('one'))"
        )
        await tab.call("Page.reload")
        await tab.until(f"document.readyState === 'complete' && {rows('backends')}.length === 1")

    looked_at(Behind(text), look)


def test_the_token_is_asked_for_and_kept_in_the_tab() -> None:
    behind = Behind("admin_token: letmein\n" + THREE)
    submit = "document.getElementById('t-form').requestSubmit()"

    async def look(tab: Tab, url: str) -> None:
        await tab.until("document.getElementById('token').open")
        assert await tab.see(f"{rows('backends')}.length") == 0
        await tab.see(SET.format("t-field", "wrong"))
        await tab.see(submit)
        await tab.until("document.getElementById('token').open && !document.getElementById('t-wrong').hidden")
        await tab.see(SET.format("t-field", "letmein"))
        await tab.see(submit)
        await tab.until(f"{rows('backends')}.length === 3")
        assert "letmein" not in await tab.see("location.href + document.cookie + document.documentElement.outerHTML")
        await tab.see(click("Drain slow"))
        await tab.until(f"{rows('backends')}[1].innerText.includes('draining')")
        await tab.call("Page.reload")
        await tab.until(f"document.readyState === 'complete' && {rows('backends')}.length === 3")
        assert all("401" in error for error in tab.errors), tab.errors

    looked_at(behind, look, errors=True)


@contextlib.asynccontextmanager
async def serving_at(app: Any, port: int) -> AsyncIterator[int]:
    """As `serving`, on a port that may have been used before; 0 for any."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    server = uvicorn.Server(uvicorn.Config(app, ws="none", lifespan="off", log_config=None, access_log=False))
    task = asyncio.create_task(server._serve([listener]))
    try:
        while not server.started:
            await asyncio.sleep(0.005)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await task
        listener.close()


def test_it_survives_a_restart_of_the_service() -> None:
    program = found()
    if program is None:
        pytest.skip("there is no Chromium here: install Debian's package chromium, or set QUEUEWISE_CHROMIUM")

    async def all_of_it() -> None:
        first, second = Behind(THREE), Behind(THREE.replace("other:", "newer:"))
        for behind, number in ((first, 40), (second, 7)):
            router = behind.service.groups["chat"].router
            for _ in range(number):
                router.complete(router.route())
            behind.history.tick(behind.history._last + 1.0)
        async with browsing(program) as tab:
            async with serving_at(first.app, 0) as port:
                await tab.call("Page.navigate", url=f"http://127.0.0.1:{port}/")
                await tab.until(f"{rows('backends')}.length === 3")
                await tab.until("state.decided === 40")
            await tab.until("document.getElementById('pulse').textContent.startsWith('no answer since ')")
            assert await tab.see(NAMES) == ["fast", "slow", "other"]
            async with serving_at(second.app, port):
                await tab.until("document.getElementById('pulse').textContent === 'live'")
                await tab.until("document.getElementById('said').innerText.includes('started anew')")
                assert await tab.see(NAMES) == ["fast", "slow", "newer"]
                assert await tab.see("state.decided") == 7
                assert await tab.see("state.samples.done") == [7]
            assert all("ERR_CONNECTION" in error for error in tab.errors), tab.errors

    asyncio.run(all_of_it())


def test_troubles_are_said_in_words() -> None:
    behind = Behind(THREE)
    behind.failing = {"slow"}

    async def look(tab: Tab, url: str) -> None:
        await tab.until(f"{rows('backends')}.length === 3")
        await tab.until(f"/circuit open|on trial/.test({rows('backends')}[1].innerText)")
        group = behind.service.groups["chat"]
        for name in group.router.servers:
            group.router.drain(name)
        await tab.until("document.getElementById('said').innerText.includes('No backend can be used.')")
        for name in list(group.backends):
            group.remove(name)
        await tab.until("document.getElementById('empty').offsetParent !== null")
        behind.service.stopping = True
        await tab.until("document.getElementById('said').innerText.includes('about to end')")
        del behind.service.groups["chat"]
        await tab.until("document.getElementById('all').hidden")

    looked_at(behind, look)


def test_everything_that_can_be_pressed_has_a_name() -> None:
    async def look(tab: Tab, url: str) -> None:
        await tab.until(f"{rows('backends')}.length === 12 && {rows('decisions')}.length > 3")
        await tab.see(f"{rows('backends')}[0].querySelector('button').click()")
        await tab.call("Accessibility.enable")
        tree = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
        pressed = ("button", "link", "textbox", "searchbox", "combobox", "image", "table", "columnheader", "rowheader")
        asked = [node for node in tree if not node["ignored"] and node.get("role", {}).get("value") in pressed]
        names = [(node["role"]["value"], node.get("name", {}).get("value", "").strip()) for node in asked]
        assert len(names) > 60
        assert not [one for one in names if not one[1] and one[0] != "columnheader"], names
        labels = [name for role, name in names if role == "button"]
        assert len(set(labels)) == len(labels)

    looked_at(Behind(many(12)), look)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_can_be_told_from_its_ground(dark: bool) -> None:
    """WCAG's contrast of at least 4.5 for text, of every colour that texts have on both grounds."""

    async def look(tab: Tab, url: str) -> None:
        await tab.size(1280, 800, dark=dark)
        colours = await tab.see(
            "Object.fromEntries(['ink', 'soft', 'accent', 'good', 'bad', 'open', 'paper', 'faint'].map(name => "
            "[name, getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim()]))"
        )
        lights = {name: _light(colour) for name, colour in colours.items()}
        assert (lights["paper"] < 0.2) == dark
        for ground in ("paper", "faint"):
            for name in ("ink", "soft", "accent", "good", "bad", "open"):
                high, low = sorted((lights[name], lights[ground]), reverse=True)
                assert (high + 0.05) / (low + 0.05) >= 4.5, (name, ground)

    looked_at(Behind(THREE), look)


def _light(colour: str) -> float:
    """Relative luminance, as WCAG 2 defines it, of a colour such as #1c2126 or #fff."""
    digits = colour.removeprefix("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
