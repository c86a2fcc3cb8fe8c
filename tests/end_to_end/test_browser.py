"""The landing page in a real browser: its looks, its keyboard, its accessibility, and what it refuses to load."""

from __future__ import annotations

import asyncio
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from prometheus_client.parser import text_string_to_metric_families

from aes_exporter import exposition, server
from aes_exporter.cost import number
from aes_exporter.model import Exemption, Mask, NotApplicable, Snapshot
from aes_exporter.notation import Address
from aes_exporter.page import page as landing_page
from tests.daemons import QUICK, daemon
from tests.hostile import hostile
from tests.snapshots import (
    FRESH,
    HARDWARE,
    HOST,
    RUN,
    RUN_FAILED,
    RUN_PARTLY_FAILED,
    SNAPSHOT,
    SOFTWARE,
    measurement,
    run,
)
from tests.tools import require

pytestmark = pytest.mark.timeout(300)

FLAGS = (
    "--no-sandbox",  # which root cannot use
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDTHS = (360, 768, 1280, 2560)
AXE_AT = {"light": 1280, "dark": 360}
TELEMETRY_PATH = "/a/b:c/metrics"
MASK = Mask(place="/etc/environment", variable="OPENSSL_ia32cap", value="~0x200000200000000")
MASKED = replace(FRESH, host=replace(HOST, masks=(MASK,))).begun().ended(RUN)
SLOW_CPU = replace(HOST, flags=frozenset(("ssse3",)), hypervisor="")
NO_AES = run({HARDWARE: NotApplicable(reason=Exemption.NO_HARDWARE), SOFTWARE: measurement(SOFTWARE)})
SNAPSHOTS = {
    "fresh": FRESH.begun(),
    "full": SNAPSHOT,
    "partly": SNAPSHOT.begun().ended(RUN_PARTLY_FAILED),
    "failed": FRESH.begun().ended(RUN_FAILED),
    "absent": replace(FRESH, host=SLOW_CPU).begun().ended(replace(NO_AES, hidden=False)),
    "hostile": hostile(MASKED.begun().ended(RUN_PARTLY_FAILED)),
}
SCHEMES = pytest.mark.parametrize("scheme", ["light", "dark"])
VIEWPORTS = pytest.mark.parametrize(("width", "height"), [(360, 740), (1280, 800)])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium with a profile of its own."""
    chromium = require("chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield launched
        launched.close()


@dataclass
class Site:
    """The web side of a daemon without the daemon: it shows whatever `snapshot` is."""

    snapshot: Snapshot
    url: str = ""

    def page(self) -> str:
        return landing_page(
            self.snapshot, TELEMETRY_PATH, now=RUN.started + RUN.duration_seconds + 75, seconds_to_next=225
        )

    def application(self) -> Any:
        return server.application(
            registry=exposition.registry(lambda: self.snapshot),
            telemetry_path=TELEMETRY_PATH,
            healthy=lambda: True,
            ready=lambda: True,
            page=self.page,
        )


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """The site, served by the server of the daemon in a thread."""
    found = Site(SNAPSHOT)
    sockets = server.listen([Address(host="127.0.0.1", port=0)])
    found.url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}/"
    loop = asyncio.new_event_loop()
    web = server.Server(found.application(), max_connections=32)
    thread = threading.Thread(target=loop.run_until_complete, args=(web.serve(sockets),))
    thread.start()
    yield found
    loop.call_soon_threadsafe(web.stop)
    thread.join()
    loop.close()


@contextmanager
def shown(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """Open a page in a fresh profile; whatever the browser complains about, asks for or pops up fails the test."""
    context = browser.new_context(**options)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.extend(_complaint(message)))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("request", lambda request: complaints.append(request.url) if not request.is_navigation_request() else None)
    try:
        page.goto(url)
        yield page
        assert complaints == []
    finally:
        context.close()


def _complaint(message: ConsoleMessage) -> Iterator[str]:
    if not message.location["url"].endswith("/favicon.ico"):  # which the browser asks for when it shows plain text
        yield message.text


def violations(page: Page) -> list[str]:
    """Return what axe-core finds, but for the reloading of a page that has nothing to read yet."""
    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {node['html']}" for each in found for node in each["nodes"] if each["id"] != "meta-refresh"]


@SCHEMES
@pytest.mark.parametrize("state", SNAPSHOTS)
def test_the_page_is_accessible_and_fits(browser: Browser, site: Site, state: str, scheme: str) -> None:
    """In every state, dark and light, from 360 pixels to a wide screen, axe-core is content and nothing sticks out."""
    site.snapshot = SNAPSHOTS[state]
    with shown(browser, site.url, color_scheme=scheme) as page:
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert width != AXE_AT[scheme] or violations(page) == []


@VIEWPORTS
def test_the_answer_takes_no_scrolling(browser: Browser, site: Site, width: int, height: int) -> None:
    """Whether AES is accelerated, and how fast on both paths, is there without scrolling, on a telephone, too."""
    site.snapshot = SNAPSHOT
    with shown(browser, site.url, viewport={"width": width, "height": height}) as page:
        expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("AES is accelerated here."))
        card = page.get_by_role("article", name="aes-128-cbc encrypt")
        for wanted in (page.get_by_role("heading", level=1), *card.get_by_role("row").nth(1).get_by_role("cell").all()):
            expect(wanted).to_be_in_viewport(ratio=1)


def test_dark_and_light(browser: Browser, site: Site) -> None:
    """The page follows the reader's choice of colours."""
    site.snapshot = SNAPSHOT
    brightness = {}
    for scheme in ("light", "dark"):
        with shown(browser, site.url, color_scheme=scheme) as page:
            colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
            brightness[scheme] = sum(map(int, re.findall(r"\d+", colour)))

    assert brightness["dark"] < 100
    assert brightness["light"] > 600


def test_without_scripts_it_is_the_same(browser: Browser, site: Site) -> None:
    """A browser that runs no scripts shows the same text."""
    site.snapshot = SNAPSHOT
    texts = []
    for enabled in (True, False):
        with shown(browser, site.url, java_script_enabled=enabled) as page:
            texts.append(page.inner_text("body"))

    assert texts[0] == texts[1]
    assert "3.68×" in texts[0]


def test_the_policy_stops_a_script(browser: Browser, site: Site) -> None:
    """Even if markup got into the page, the browser would neither run nor load anything."""
    policy = urllib.request.urlopen(site.url).headers["Content-Security-Policy"]
    attack = '<script>document.title="owned"</script><img src="http://127.0.0.1:9/x" onerror="document.title=1">'
    context = browser.new_context()
    page = context.new_page()
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.route(
        "**/*",
        lambda route: route.fulfill(
            body=f"<title>safe</title>{attack}", content_type="text/html", headers={"Content-Security-Policy": policy}
        ),
    )
    page.goto(site.url)

    assert page.title() == "safe"
    assert len([text for text in refused if "Content Security Policy" in text]) >= 2
    context.close()


def test_hostile_text_stays_text(browser: Browser, site: Site) -> None:
    """With an attack in every text from outside the document has the same elements as without."""
    counts = {}
    for name, snapshot in (("benign", MASKED.begun().ended(RUN_PARTLY_FAILED)), ("hostile", SNAPSHOTS["hostile"])):
        site.snapshot = replace(snapshot, host=replace(snapshot.host, architecture="x86_64"))
        with shown(browser, site.url) as page:
            counts[name] = page.evaluate("[...document.querySelectorAll('*')].map(element => element.tagName)")
            if name == "hostile":
                assert "<script>alert(1)</script>" in page.inner_text("body")

    assert [tag for tag in counts["hostile"] if tag != "CODE"] == [tag for tag in counts["benign"] if tag != "CODE"]


def test_the_keyboard_reaches_everything(browser: Browser, site: Site) -> None:
    """Tab goes to the skip link, the three links and the tables that scroll, each with a visible outline."""
    site.snapshot = SNAPSHOT
    reached = []
    with shown(browser, site.url, viewport={"width": 360, "height": 740}) as page:
        for _ in range(6):
            page.keyboard.press("Tab")
            name, style, left = page.evaluate(
                "(e => [e.ariaLabel || e.textContent, getComputedStyle(e).outline, e.getBoundingClientRect().left])"
                "(document.activeElement)"
            )
            reached.append(name)
            assert "solid 3px" in style
            assert left >= 0
        page.keyboard.press("ArrowRight")
        for _ in range(100):  # the browser's own waiting needs eval, which the policy forbids
            if page.evaluate("document.activeElement.scrollLeft") > 0:
                break
            page.wait_for_timeout(50)
        else:
            pytest.fail("the arrow key does not scroll the table")

    assert reached == [
        "Skip to the figures",
        "Metrics",
        "Health",
        "Readiness",
        "Figures of libcrypto",
        "Figures of cryptography",
    ]


def test_a_screen_reader_hears_the_charts(browser: Browser, site: Site) -> None:
    """Charts are pictures with a name that tells them apart, tables are tables, and parts have names."""
    site.snapshot = SNAPSHOT
    with shown(browser, site.url) as page:
        for heading in ("aes-128-cbc encrypt", "aes-128-cbc decrypt", "aes-128-ecb encrypt", "aes-128-ecb decrypt"):
            for caption in ("Throughput by block size", "Speed-up over software by block size"):
                expect(page.get_by_role("img", name=f"{caption}, {heading}")).to_have_count(1)
        for region in ("How fast", "This host", "Runs", "All figures: libcrypto", "All figures: cryptography"):
            expect(page.get_by_role("region", name=region)).to_have_count(1)
        expect(page.get_by_role("table")).to_have_count(4 + 2)
        expect(page.get_by_role("rowheader", name="speed-up over software")).to_have_count(8)


def test_the_first_page_turns_into_figures(browser: Browser, site: Site) -> None:
    """A reader who came before the first run has the figures as soon as there are any, without doing anything."""
    site.snapshot = FRESH.begun()
    with shown(browser, site.url) as page:
        expect(page.get_by_role("heading", level=1)).to_have_text("The first run is under way.")
        site.snapshot = SNAPSHOT
        expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("AES is accelerated"), timeout=30_000)
        expect(page.locator("meta[http-equiv=refresh]")).to_have_count(0)


class Proxy(BaseHTTPRequestHandler):
    """A reverse proxy that serves a site below /hosts/one/ and nothing else."""

    prefix = "/hosts/one/"

    def __init__(self, target: str, *arguments: Any) -> None:
        self.target = target
        super().__init__(*arguments)

    def do_GET(self) -> None:
        if not self.path.startswith(self.prefix):
            self.send_error(404)
            return
        with urllib.request.urlopen(self.target + self.path.removeprefix(self.prefix)) as reply:
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.headers["Content-Type"])
            self.end_headers()
            self.wfile.write(reply.read())

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def proxied(site: Site) -> Iterator[str]:
    """The address of the site below a prefix."""
    handler: Callable[..., BaseHTTPRequestHandler] = partial(Proxy, site.url)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{proxy.server_address[1]}{Proxy.prefix}"
        proxy.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("link", "words"),
    [("Metrics", "aes_cpu_info"), ("Health", "aes-exporter is healthy."), ("Readiness", "aes-exporter is ready.")],
)
def test_links_work_behind_a_prefix(browser: Browser, site: Site, proxied: str, link: str, words: str) -> None:
    """Below a proxy's prefix every link leads to what it names, with a telemetry path of several parts, too."""
    site.snapshot = SNAPSHOT
    with shown(browser, proxied) as page:
        page.get_by_role("link", name=link).click()
        page.wait_for_url(f"{proxied}**")
        assert words in page.inner_text("body")


def test_a_real_daemon_shows_what_it_exports(browser: Browser, tmp_path: Path) -> None:
    """The page of a real daemon has the throughputs that its metrics have."""
    with daemon(tmp_path, *QUICK, "--benchmark.interval=1h") as running:
        running.wait_until_ready()
        families = {family.name: family for family in text_string_to_metric_families(running.metrics())}
        with shown(browser, f"{running.url}/") as page:
            table = page.get_by_role("region", name="All figures: libcrypto")
            cells = table.locator("tr:not(.speedup) td").all_inner_texts()

    exported = [number(sample.value / 1e9) for sample in families["aes_throughput_bytes_per_second"].samples]
    assert sorted(cell.split()[0] for cell in cells) == sorted(exported)
