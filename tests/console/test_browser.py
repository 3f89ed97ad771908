"""The console in a real browser: each page's main task by clicking, without a CSP violation.

`KORVET_SCREENSHOTS=1` writes the screenshots of the documentation to docs/images.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from playwright.sync_api import Browser, Page, expect, sync_playwright

from korvet import Record
from tests.support.lag_samples import plant
from tests.support.redis_servers import TestServer
from tests.support.running_console import RunningConsole, running_console

pytestmark = pytest.mark.browser

expect.set_options(timeout=15_000)
IMAGES = Path(__file__).parents[2] / "docs" / "images"
PAGES = (
    "/",
    "/topics",
    "/create-topic",
    "/topics/orders",
    "/topics/orders/records",
    "/topics/payments/records/0/0",
    "/topics/orders/produce",
    "/topics/orders/configs",
    "/topics/orders/producers",
    "/groups",
    "/group?id=billing",
    "/group/reset?id=billing&topic=orders&to=latest",
    "/transactions",
    "/scripts",
    "/users",
    "/acls",
    "/quotas",
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium. In CI its absence is a failure: .ci/run installs it."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "these tests need Chromium: install the Debian package chromium"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shop(valkey_server: TestServer) -> Iterator[RunningConsole]:
    """A console with the topics and groups of a shop."""
    with running_console(valkey_server) as made:
        made.log.create_topic("orders", 3)
        made.log.create_topic("payments", 2, {"storage.format": "batch", "offset.mode": "dense"})
        made.log.create_topic("customers", 1, {"cleanup.policy": "compact"})
        names = ("ann", "bo", "cy", "dee", "eli")
        rows = [
            Record(
                json.dumps(
                    {"id": 1000 + at, "customer": names[at % 5], "cups": at % 4 + 1}
                ).encode(),
                key=names[at % 5].encode(),
                headers=[("trace", b"%08x" % (at * 7919))],
            )
            for at in range(60)
        ]
        made.log.produce("orders", rows)
        made.log.produce("payments", rows[:40])
        made.log.produce("customers", [Record(b"bronze", key=name.encode()) for name in names])
        made.log.reset("billing", "orders", "earliest")
        made.log.reset("shipping", "orders", "latest")
        made.log.reset("ledger", "payments", "earliest")
        yield made


class Screen:
    """A browser's window on the console, which fails on errors of the page."""

    def __init__(self, page: Page, url: str, folder: Path) -> None:
        self.page = page
        self.errors: list[str] = []
        self._url = url
        self._folder = folder
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note)

    def _note(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def open(self, path: str) -> Page:
        self.page.goto(self._url + path)
        return self.page

    def shot(self, name: str) -> None:
        """Take a screenshot of the documentation."""
        self.page.evaluate("document.activeElement && document.activeElement.blur()")
        self.page.screenshot(path=self._folder / f"console-{name}.png", animations="disabled")


@pytest.fixture
def screen(chromium: Browser, shop: RunningConsole, tmp_path: Path) -> Iterator[Screen]:
    folder = IMAGES if os.environ.get("KORVET_SCREENSHOTS") else tmp_path
    context = chromium.new_context(
        viewport={"width": 1280, "height": 720}, color_scheme="light", locale="en-GB"
    )
    context.set_default_timeout(15_000)
    made = Screen(context.new_page(), shop.url, folder)
    yield made
    context.close()
    assert made.errors == []


def test_a_newcomer_does_everything_from_the_console(screen: Screen, shop: RunningConsole) -> None:
    page = screen.open("/")
    page.get_by_role("link", name="Topics", exact=True).click()
    page.get_by_role("link", name="Create topic").click()
    page.get_by_label("Name", exact=True).fill("tea")
    page.get_by_label("Partitions", exact=True).fill("2")
    page.get_by_label("Offsets").select_option("dense")
    page.evaluate("window.isLoadedOnce = true")
    page.get_by_role("button", name="Create topic").click()
    expect(page.get_by_role("status")).to_have_text("Topic tea was created.")
    assert page.evaluate("window.isLoadedOnce"), "a change loads no page"

    for at in range(3):
        page.get_by_role("link", name="Produce", exact=True).click()
        page.get_by_label("Key", exact=True).fill(f"cup-{at}")
        page.get_by_label("Value", exact=True).fill(f'{{"sort": "mint", "cups": {at}}}')
        page.get_by_label("Headers").fill("from: console")
        page.get_by_role("button", name="Produce record").click()
        expect(page.get_by_role("status")).to_contain_text("was appended to partition")
        page.get_by_role("link", name="tea", exact=True).click()

    page.get_by_label("Of the topic").get_by_role("link", name="Records").click()
    expect(page.locator("#records tr")).to_have_count(3)
    page.get_by_label("Key is").fill("cup-1")
    page.get_by_role("button", name="Find").click()
    expect(page.locator("#records tr")).to_have_count(1)
    expect(page.locator("#records")).to_contain_text('"cups": 1')
    page.get_by_role("link", name=re.compile(r"^\d+$")).first.click()
    expect(page.locator("#redis-cli")).to_contain_text("XRANGE")

    shop.log.reset("kitchen", "tea", "earliest")
    page.get_by_role("link", name="Groups", exact=True).click()
    row = page.get_by_role("row", name="kitchen")
    expect(row).to_contain_text("3")
    row.get_by_role("link", name="kitchen").click()
    expect(page.get_by_role("heading", name="Why is this group stuck?")).to_be_visible()
    expect(page.locator(".findings")).to_contain_text("The group has no members")
    page.get_by_role("link", name="Reset offsets").click()
    page.get_by_label("To", exact=True).fill("latest")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("main")).to_contain_text("3 records will not be read.")
    page.get_by_role("button", name="Reset 2 partitions").click()
    expect(page.get_by_role("status")).to_have_text("Group kitchen was reset in tea.")
    expect(page.locator(".findings")).to_contain_text("It has committed every record")

    page.get_by_role("link", name="tea", exact=True).first.click()
    page.get_by_text("Delete the topic").click()
    page.get_by_label("to confirm").fill("tea")
    page.get_by_role("button", name="Delete topic").click()
    expect(page.get_by_role("status")).to_have_text("Topic tea was deleted.")
    assert "tea" not in [row["name"] for row in shop.api("/topics")["topics"]]


def test_the_overview_shows_rates(screen: Screen, shop: RunningConsole) -> None:
    page = screen.open("/")
    expect(page.locator("[data-unit]").first).to_contain_text("per second")
    producer = Producer({"bootstrap.servers": shop.bootstrap})
    for at in range(200):
        producer.produce("payments", b"x" * 100, key=b"%d" % at)
    producer.flush(30)
    expect(page.locator("[data-spark='traffic.produced_records'] polyline")).to_be_attached()
    expect(page.locator("[data-rate='traffic.produced_records']")).not_to_have_text("0")
    screen.shot("overview")


def test_the_topics_and_a_topic(screen: Screen) -> None:
    page = screen.open("/topics")
    page.get_by_role("searchbox").fill("cust")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("link", name="customers").click()
    expect(page.locator("svg.bar rect.local")).to_have_count(1)
    screen.open("/topics/orders")
    screen.shot("topic")
    page.set_viewport_size({"width": 390, "height": 720})
    page.emulate_media(color_scheme="dark")
    screen.open("/groups")
    expect(page.get_by_role("columnheader", name="Lag")).to_be_visible()
    screen.shot("phone")


def test_a_list_is_sorted_by_its_headers_and_has_a_page_size(screen: Screen) -> None:
    page = screen.open("/topics")
    header = page.get_by_role("columnheader", name="Partitions")
    for order, first in (("descending", "orders"), ("ascending", "customers")):
        header.get_by_role("link").click()
        expect(header).to_have_attribute("aria-sort", order)
        expect(page.get_by_role("row").nth(1)).to_contain_text(first)
    screen.open("/topics?size=2")
    page.get_by_role("link", name="Next").click()
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("link", name="50", exact=True).click()
    expect(page.get_by_role("row")).to_have_count(4)


def test_the_palette_finds_a_group_and_a_slash_the_search(screen: Screen) -> None:
    page = screen.open("/topics")
    page.evaluate("window.isLoadedOnce = true")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Control+k")
    page.keyboard.type("ledg")
    expect(page.locator("dialog li")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("ledger")
    assert page.evaluate("window.isLoadedOnce")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Topics")


def test_a_lag_is_red_if_it_grows_only(screen: Screen, shop: RunningConsole) -> None:
    shop.log.reset("falling", "orders", "earliest")
    plant(shop, "falling", {5: {"orders": [0, 1]}})
    page = screen.open("/groups")
    screen.shot("groups")
    lag = "getComputedStyle(each.querySelector('td.num span')).color"
    colours = page.locator("tbody tr").evaluate_all(
        f"rows => rows.map(each => [each.querySelector('a').textContent, {lag}])"
    )
    red = [name for name, colour in colours if colour == "rgb(179, 38, 30)"]
    assert red == ["falling"]
    expect(page.get_by_role("row", name="falling").locator(".lag")).to_be_visible()
    screen.open("/group?id=falling")
    expect(page.locator("#offsets-rows .lag").first).to_be_visible()
    shop.log.reset("falling", "orders", "latest")


def test_the_rate_of_a_topic_and_the_lag_over_time_are_live(
    screen: Screen, shop: RunningConsole
) -> None:
    page = screen.open("/topics")
    cell = page.locator("[data-topic='payments']")
    expect(cell).to_have_text("0", timeout=20_000)
    shop.log.produce("payments", [Record(b"x") for _ in range(500)])
    expect(cell).not_to_have_text("0", timeout=20_000)
    page = screen.open("/group?id=ledger")
    expect(page.locator("[data-level='lag'] polyline")).to_be_attached(timeout=20_000)
    before = page.locator("[data-value='lag']").inner_text()
    shop.log.produce("payments", [Record(b"x") for _ in range(10)])
    expect(page.locator("[data-value='lag']")).not_to_have_text(before, timeout=20_000)


def test_a_config_is_set_and_reset(screen: Screen) -> None:
    page = screen.open("/topics/customers/configs")
    row = page.get_by_role("row", name=re.compile("^retention.ms"))
    row.get_by_role("textbox").fill("86400000")
    row.get_by_role("button", name="Set").click()
    expect(page.get_by_role("status")).to_have_text("retention.ms is 86400000 now.")
    row.get_by_role("button", name="Reset").click()
    expect(page.get_by_role("status")).to_have_text("retention.ms has its default again.")
    row.get_by_role("textbox").fill("soon")
    row.get_by_role("button", name="Set").click()
    expect(page.get_by_role("alert")).to_contain_text("retention.ms")
    screen.errors.clear()  # the refused form is a response with status 400


def test_records_are_filtered_and_followed(screen: Screen, shop: RunningConsole) -> None:
    page = screen.open("/topics/orders/records")
    page.get_by_role("button", name="Show record").first.click()
    expect(page.locator("td.opened")).to_contain_text("kcat -C -b")
    expect(page.locator("td.opened .j-key").first).to_be_visible()
    screen.shot("records")
    page.get_by_role("button", name="Show record").first.click()
    expect(page.locator("td.opened")).to_have_count(0)
    page.get_by_label("Field of JSON or Avro").fill("customer")
    page.get_by_label("equals").fill("ann")
    page.get_by_role("button", name="Find").click()
    expect(page.locator("#records tr")).to_have_count(12)
    screen.open("/topics/orders/records")
    page.get_by_role("button", name="Follow").click()
    shop.log.produce("orders", [Record(b'{"id": 9999}', key=b"new")])
    expect(page.locator("#records tr").first).to_contain_text("9999")
    page.get_by_role("button", name="Following").click()
    page.locator("#records tr").first.get_by_role("link").click()
    expect(page.locator("main")).to_contain_text("The same entry elsewhere")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download value").click()
    assert Path(download.value.path()).read_bytes() == b'{"id": 9999}'


def test_a_stuck_group_has_its_evidence(screen: Screen, shop: RunningConsole) -> None:
    options = {"bootstrap.servers": shop.bootstrap, "group.id": "billing", "client.id": "billing-1"}
    consumer = Consumer(options)
    consumer.subscribe(["orders"])
    while not consumer.assignment():
        consumer.poll(0.1)
    key = f"{shop.namespace}:group:billing:offsets"
    with shop.server.client() as client:
        for field, raw in client.hgetall(key).items():
            parts = raw.split(b" ")
            parts[2] = b"%d" % (int(parts[2]) - 240_000)
            client.hset(key, field, b" ".join(parts))
    # A sample each minute of the last hour, then one each quarter: it stopped half an hour ago.
    ages = [*range(1, 60), *range(60, 1440, 15)]
    lags = {age: max(0, 30 - age) * 2 + age * 7 % 5 for age in ages}
    plant(shop, "billing", {age: {"orders": [1, lag, 2, lag // 4]} for age, lag in lags.items()})
    page = screen.open("/group?id=billing")
    expect(page.locator(".findings .bad").first).to_contain_text("The next record is at offset")
    page.get_by_text("By partition, the last hour").click()
    expect(page.get_by_role("figure")).to_have_count(2)
    expect(page.locator("details .line")).to_have_count(2)
    page.get_by_text("By partition, the last hour").click()
    page.set_viewport_size({"width": 1280, "height": 900})
    screen.shot("group")
    page.locator(".findings").get_by_role("link", name="Show").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Offset")
    consumer.close()
    page = screen.open("/group/reset?id=billing&topic=orders&to=latest")
    page.set_viewport_size({"width": 1280, "height": 520})
    screen.shot("reset")


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_page_fits_a_phone_and_has_names_for_its_fields(
    chromium: Browser, shop: RunningConsole, path: str, scheme: Any
) -> None:
    context = chromium.new_context(viewport={"width": 375, "height": 700}, color_scheme=scheme)
    screen = Screen(context.new_page(), shop.url, Path())
    page = screen.open(path)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 375
    assert page.evaluate(_NAMELESS) == []
    assert page.evaluate(_PALE) == []
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 18, 22)"
    assert dark is (scheme == "dark")
    context.close()
    assert screen.errors == []


@pytest.mark.parametrize("path", [*PAGES, "/topics/orders/records?from=soon", "/nowhere"])
def test_the_style_sheet_has_each_class_of_a_page_and_colours_its_bars(
    chromium: Browser, shop: RunningConsole, path: str
) -> None:
    context = chromium.new_context(color_scheme="light")
    page = context.new_page()
    page.goto(shop.url + path)
    assert page.evaluate(_UNSTYLED) == []
    fills = page.evaluate(_FILLS)
    assert set(fills) <= {"rgb(148, 163, 184)", "rgb(91, 127, 224)", "rgb(217, 164, 0)"}
    assert bool(fills) is (path in ("/topics/orders", "/group?id=billing"))
    context.close()


_UNSTYLED = """
(() => {
  const rules = list => [...list]
    .map(each => (each.selectorText || "") + rules(each.cssRules || [])).join();
  const known = new Set(rules(document.styleSheets[0].cssRules).match(/\\.[A-Za-z][\\w-]*/g));
  const used = [...document.querySelectorAll("[class]")].flatMap(each => [...each.classList]);
  return [...new Set(used)].filter(name => !known.has("." + name));
})()
"""
"""Classes of the page that no selector of the style sheet names."""

_FILLS = """
[...document.querySelectorAll("svg rect")].map(each => getComputedStyle(each).fill)
"""
"""The colours of the parts of all bars."""

_NAMELESS = """
[...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a")]
  .filter(each => !(each.labels && each.labels.length) && !each.getAttribute("aria-label")
    && !each.textContent.trim() && !each.closest("label"))
  .map(each => each.outerHTML)
"""
"""Fields and links without a name for a screen reader."""

_PALE = """
(() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const back = each => {
    for (let at = each; at; at = at.parentElement) {
      const found = parse(getComputedStyle(at).backgroundColor);
      if (found.length < 4 || found[3] > 0.99) return found;
    }
    return [255, 255, 255];
  };
  const found = new Set();
  for (const each of document.querySelectorAll("main *, header *, footer *")) {
    const own = [...each.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !each.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(each).color)), light(back(each))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.add(`${each.tagName}.${each.className} ${ratio.toFixed(2)}`);
  }
  return [...found];
})()
"""
"""Texts whose contrast is below 4.5 (WCAG AA)."""


def test_a_user_a_quota_and_a_search_of_scripts(screen: Screen) -> None:
    page = screen.open("/users")
    page.get_by_label("User", exact=True).fill("dee")
    page.get_by_label("Password", exact=True).fill("secret")
    page.get_by_role("button", name="Set password").click()
    expect(page.get_by_role("status")).to_have_text("The password of dee was set.")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("row", name="dee").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("status")).to_have_text("User dee was deleted.")
    page.get_by_role("link", name="Quotas").click()
    page.get_by_label("Client id").fill("shop")
    page.get_by_label("Value").fill("1000")
    page.get_by_role("button", name="Set quota").click()
    expect(page.get_by_role("status")).to_have_text("producer_byte_rate is 1000 now.")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("row", name="shop").get_by_role("button", name="Remove").click()
    expect(page.get_by_role("status")).to_have_text("producer_byte_rate was removed.")
    page.get_by_role("link", name="Scripts").click()
    page.get_by_role("searchbox").fill("log.append")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("row")).to_have_count(3)
    page.get_by_role("link", name="Transactions").click()
    expect(page.locator("main")).to_contain_text("No producer uses transactions.")


def test_the_keyboard_reaches_the_content_and_the_menu(screen: Screen) -> None:
    page = screen.open("/topics")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("pay")
    page.keyboard.press("Enter")
    expect(page.get_by_role("row")).to_have_count(2)


def test_the_theme_is_switched_and_kept(screen: Screen) -> None:
    page = screen.open("/")
    page.get_by_role("button", name="Switch between light and dark").click()
    screen.open("/topics")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Switch between light and dark").click()


def test_without_scripts_the_pages_work(chromium: Browser, shop: RunningConsole) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{shop.url}/topics")
    page.get_by_role("link", name="payments").click()
    page.get_by_label("Of the topic").get_by_role("link", name="Records").click()
    expect(page.locator("#records tr")).to_have_count(25)
    expect(page.get_by_role("button", name="Follow")).to_be_hidden()
    context.close()


def test_a_user_signs_in_and_out(
    chromium: Browser, valkey_server: TestServer, tmp_path: Path
) -> None:
    sets = ("sasl.enabled.mechanisms=SCRAM-SHA-256",)
    with running_console(valkey_server, *sets, listen="SASL_PLAINTEXT://127.0.0.1:0") as made:
        made.add_user("ann", "correct")
        made.log.create_topic("orders", 1)
        context = chromium.new_context()
        page = Screen(context.new_page(), made.url, tmp_path).open("/topics")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.get_by_label("User").fill("ann")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_have_text("The name or the password is wrong.")
        page.get_by_label("User").fill("ann")
        page.get_by_label("Password").fill("correct")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("link", name="orders")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        context.close()
