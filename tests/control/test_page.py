"""The page in a real browser: what an operator sees and does there, and what the pipeline makes of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect, sync_playwright

from midstream.control.server import ControlServer, ServeOptions
from tests.control.orders import KEYS, Orders
from tests.control.test_rest import ORDERS, ended

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ALL_KEYS = set(range(KEYS))
PATIENCE_MS = 20_000

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.fail("No Chromium is on the PATH, so the page cannot be tested. Debian: sudo apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path)
        yield opened
        opened.close()


@contextmanager
def tab(browser: Browser) -> Iterator[tuple[Page, list[str]]]:
    """A tab with nothing kept from others, and what has failed or was blocked in it."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    wrong: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        # A request that is refused is told there, too, and some here are meant to be.
        if message.type == "error" and "Failed to load resource" not in message.text:
            wrong.append(message.text)

    page.on("console", listen)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page, wrong
    context.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A tab of a test's own."""
    with tab(browser) as (opened, wrong):
        yield opened
        assert not wrong


@pytest.fixture(scope="module")
def desk(browser: Browser, server: ControlServer) -> Iterator[tuple[Page, list[str]]]:
    """The page as the operator has it open all day."""
    with tab(browser) as (opened, wrong):
        opened.goto(server.page_with_token())
        yield opened, wrong


@pytest.fixture
def shown(desk: tuple[Page, list[str]]) -> Iterator[Page]:
    """The operator's page, whatever a test before has left open closed again."""
    page, wrong = desk
    if page.locator("dialog").count():
        page.keyboard.press("Escape")
    at(page, "tab-history").click()
    expect(at(page, "node-totals")).to_be_visible()
    yield page
    assert not wrong


def at(page: Page, test_id: str) -> Locator:
    return page.get_by_test_id(test_id)


def edit(page: Page, sql: str) -> None:
    """Write another SQL for `clean`, and have it checked."""
    at(page, "node-clean").click()
    at(page, "action-sql").click()
    at(page, "edit-sql").fill(sql)
    at(page, "plan-button").click()


def confirm(page: Page) -> None:
    """Apply what was checked, and wait until it is."""
    at(page, "confirm-button").click()
    expect(at(page, "progress-sentence")).to_contain_text("Applied")
    at(page, "close-button").click()


def keys_come(orders: Orders, wanted: set[int]) -> None:
    orders.until(lambda: {row["key"] for row in orders.latest()} == wanted)


def test_a_step_is_edited_and_that_is_undone(shown: Page, orders: Orders) -> None:
    expect(at(shown, "status")).to_contain_text("running")
    keys_come(orders, ALL_KEYS)

    edit(shown, "SELECT 7L AS key, 1 AS v FROM input")
    expect(at(shown, "verdict")).to_contain_text("expected pause", ignore_case=True)
    expect(at(shown, "diff-clean")).to_have_class("changed")
    expect(at(shown, "diff-totals")).to_have_class("same")
    assert orders.run.history() == []
    confirm(shown)

    keys_come(orders, {7})
    expect(at(shown, "panel-sql")).to_have_text("SELECT 7L AS key, 1 AS v FROM input")
    item = at(shown, "history-item-1")
    expect(item).to_contain_text("replace clean")
    expect(item).to_contain_text("applied")
    expect(item).to_contain_text("operator")

    at(shown, "undo-last").click()
    confirm(shown)

    keys_come(orders, ALL_KEYS)
    expect(at(shown, "panel-sql")).to_contain_text("value % 10")
    expect(item).to_contain_text("undone")


def test_a_step_is_inserted_on_an_edge_and_removed(shown: Page, orders: Orders) -> None:
    at(shown, "edge-clean-totals").click()
    at(shown, "insert-id").fill("low")
    at(shown, "insert-sql").fill("SELECT * FROM input WHERE key < 3")
    at(shown, "plan-button").click()
    expect(at(shown, "diff-low")).to_have_class("added")
    expect(at(shown, "diff-edge-low-totals")).to_have_class("added")
    expect(at(shown, "diff-edge-clean-totals")).to_have_class("removed")
    confirm(shown)

    expect(at(shown, "node-low")).to_be_visible()
    expect(at(shown, "edge-low-totals")).to_be_attached()
    expect(at(shown, "edge-clean-totals")).to_have_count(0)
    keys_come(orders, {0, 1, 2})

    at(shown, "node-low").click()
    at(shown, "action-remove").click()
    at(shown, "plan-button").click()
    expect(at(shown, "diff-low")).to_have_class("removed")
    confirm(shown)

    expect(at(shown, "node-low")).to_have_count(0)
    expect(at(shown, "edge-clean-totals")).to_be_attached()
    keys_come(orders, ALL_KEYS)


def test_steps_that_stay_keep_their_rows(shown: Page, operator: httpx.Client) -> None:
    before = {id_: place(shown, id_) for id_ in ("numbers", "clean", "totals", "out")}
    insert = {"kind": "insert", "step": "mid", "between": ["clean", "totals"], "sql": "SELECT * FROM input"}
    ended(operator, operator.post(f"{ORDERS}/changes", json={"changes": [insert]}))
    expect(at(shown, "node-mid")).to_be_visible()
    after = {id_: place(shown, id_) for id_ in before}

    assert [after[id_] for id_ in ("numbers", "clean")] == [before[id_] for id_ in ("numbers", "clean")]
    assert [y for _, y in after.values()] == [y for _, y in before.values()]
    assert before["totals"][0] < after["totals"][0] < after["out"][0]
    ended(operator, operator.post(f"{ORDERS}/undo", json={}))
    expect(at(shown, "node-mid")).to_have_count(0)
    assert {id_: place(shown, id_) for id_ in before} == before


def place(page: Page, step: str) -> tuple[float, float]:
    found = re.findall(r"[-\d.]+", at(page, f"node-{step}").get_attribute("transform") or "")
    return float(found[0]), float(found[1])


def test_a_step_is_rescaled(shown: Page, orders: Orders) -> None:
    at(shown, "node-totals").click()
    at(shown, "action-rescale").click()
    slider = at(shown, "rescale-slider")
    slider.focus()
    slider.press("ArrowRight")
    at(shown, "plan-button").click()
    expect(at(shown, "verdict-totals")).to_contain_text("2 → 3 partitions")
    confirm(shown)

    expect(at(shown, "node-totals")).to_contain_text("× 3")
    assert orders.run.graph().step("totals").partitions == 3
    made = orders.run.history()[-1].modification.id
    at(shown, f"undo-{made}").click()
    confirm(shown)
    expect(at(shown, "node-totals")).to_contain_text("× 2")


def test_a_step_is_rescaled_by_load(shown: Page, orders: Orders) -> None:
    at(shown, "node-totals").click()
    at(shown, "action-rescale").click()
    at(shown, "rescale-number").fill("3")
    at(shown, "rescale-cut").select_option("parts")
    at(shown, "plan-button").click()
    expect(at(shown, "verdict-totals")).to_contain_text("2 → 3 partitions")
    confirm(shown)
    expect(at(shown, "node-totals")).to_contain_text("× 3")
    made = orders.run.history()[-1]
    assert "rebalance totals to 3, hot keys in parts" in str(made)
    at(shown, f"undo-{made.modification.id}").click()
    confirm(shown)
    expect(at(shown, "node-totals")).to_contain_text("× 2")


def test_a_bad_change_is_told_and_not_made(shown: Page, orders: Orders) -> None:
    before = len(orders.run.history())
    edit(shown, "SELECT nonsense AS key, 1 AS v FROM input")
    expect(at(shown, "change-error")).to_contain_text("nonsense")
    expect(at(shown, "error-code")).to_have_text(re.compile("^[A-Z_]+$"))
    expect(at(shown, "confirm-button")).to_have_count(0)

    at(shown, "edit-sql").fill("SELECT 'a' AS other FROM input")
    at(shown, "plan-button").click()
    expect(at(shown, "change-error")).to_contain_text("key")
    assert len(orders.run.history()) == before


def test_what_was_shown_must_be_what_is_applied(shown: Page) -> None:
    edit(shown, "SELECT 1L AS key, 1 AS v FROM input")
    expect(at(shown, "confirm-button")).to_be_enabled()
    at(shown, "edit-sql").fill("SELECT 2L AS key, 1 AS v FROM input")
    expect(at(shown, "confirm-button")).to_be_disabled()
    shown.keyboard.press("Escape")
    expect(at(shown, "change-dialog")).to_have_count(0)


def test_losing_state_needs_leave(shown: Page, orders: Orders) -> None:
    at(shown, "edge-totals-out").click()
    at(shown, "insert-id").fill("most")
    shown.get_by_role("radio", name="Aggregates").click()
    for name, expression in (("n", "max(n)"), ("total", "max(total)")):
        shown.get_by_label("Name", exact=True).last.fill(name)
        shown.get_by_label("SQL expression").last.fill(expression)
        shown.get_by_role("button", name="Add a line").click()
    at(shown, "key-by").fill("key")
    at(shown, "plan-button").click()
    confirm(shown)
    orders.until(lambda: orders.run.graph().step("most").state_rows == KEYS)

    at(shown, "node-most").click()
    at(shown, "action-remove").click()
    at(shown, "plan-button").click()
    expect(at(shown, "verdict-most")).to_contain_text("lost")
    expect(at(shown, "confirm-button")).to_be_disabled()
    at(shown, "allow-loss").check()
    confirm(shown)
    expect(at(shown, "node-most")).to_have_count(0)


def test_a_reader_sees_everything_and_can_change_nothing(page: Page, server: ControlServer) -> None:
    page.goto(server.page_with_token(server.tokens.reader))
    at(page, "node-clean").click()
    expect(at(page, "panel-sql")).to_contain_text("SELECT")
    expect(at(page, "history-item-1")).to_be_visible()
    at(page, "tab-state").click()
    expect(at(page, "state-rows").locator("tbody tr")).to_have_count(KEYS)
    for test_id in ("action-sql", "action-remove", "insert-clean-totals", "plan-button"):
        expect(at(page, test_id)).to_have_count(0)
    expect(at(page, "undo-last")).to_be_hidden()
    expect(page.locator(".edge .plus:visible")).to_have_count(0)


def test_a_wrong_token_is_asked_for(page: Page, server: ControlServer) -> None:
    page.goto(server.page_with_token("wrong"))
    expect(at(page, "token-form")).to_be_visible()
    expect(at(page, "token-form")).to_contain_text("not accepted")
    at(page, "token-input").fill(server.tokens.operator)
    at(page, "token-input").press("Enter")
    expect(at(page, "node-clean")).to_be_visible()
    assert server.tokens.operator not in page.url
    page.reload()
    expect(at(page, "node-clean")).to_be_visible()


def test_a_change_by_keyboard_alone(shown: Page, orders: Orders, operator: httpx.Client) -> None:
    press = shown.keyboard.press
    tab_to(shown, "node-")
    press("Home")
    press("ArrowRight")
    press("Enter")
    tab_to(shown, "action-sql")
    press("Enter")
    expect(at(shown, "edit-sql")).to_be_focused()
    press("Control+a")
    shown.keyboard.type("SELECT 5L AS key, 1 AS v FROM input")
    tab_to(shown, "plan-button")
    press("Enter")
    expect(at(shown, "confirm-button")).to_be_focused()
    press("Enter")
    expect(at(shown, "progress-sentence")).to_contain_text("Applied")
    expect(at(shown, "close-button")).to_be_focused()
    press("Enter")
    expect(at(shown, "change-dialog")).to_have_count(0)
    keys_come(orders, {5})
    ended(operator, operator.post(f"{ORDERS}/undo", json={}))


def tab_to(page: Page, test_id: str) -> None:
    for _ in range(60):
        if str(page.evaluate("document.activeElement?.dataset?.testid")).startswith(test_id):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"Tab does not lead to {test_id}")


def test_state_is_browsed_and_exported(shown: Page) -> None:
    at(shown, "tab-state").click()
    rows = at(shown, "state-rows").locator("tbody tr")
    expect(rows).to_have_count(KEYS)
    at(shown, "state-where").fill("key=3")
    at(shown, "state-where").press("Enter")
    expect(rows).to_have_count(1)
    expect(at(shown, "state-count")).to_contain_text("1 row that matches")
    with shown.expect_download() as download:
        at(shown, "state-export").click()
    assert pq.read_table(download.value.path())["key"].to_pylist() == [3]


def test_a_shadow_is_compared_discarded_and_promoted(shown: Page, orders: Orders, operator: httpx.Client) -> None:
    for button in ("discard-button", "promote-button"):
        edit(shown, "SELECT value % 10 AS key, 3 AS v FROM input")
        at(shown, "shadow-button").click()
        expect(at(shown, "shadow-panel")).to_be_visible()
        expect(at(shown, "difference-out")).to_contain_text("different")
        expect(at(shown, "difference-totals")).to_contain_text(f"{KEYS}")
        before = len(orders.run.history())
        at(shown, button).click()
        if button == "promote-button":
            expect(at(shown, "progress-sentence")).to_contain_text("Applied")
            at(shown, "close-button").click()
        expect(at(shown, "shadow-panel")).to_contain_text("No shadow runs")
        assert len(orders.run.history()) - before == (button == "promote-button")
    ended(operator, operator.post(f"{ORDERS}/undo", json={"allow_state_loss": True}))


def test_changes_are_marked_on_the_charts(shown: Page, operator: httpx.Client) -> None:
    change = {"kind": "tune", "arrow_batch_rows": 5000}
    made = ended(operator, operator.post(f"{ORDERS}/changes", json={"changes": [change]}))
    for chart in ("chart-latency", "chart-throughput"):
        marker = at(shown, chart).get_by_test_id(f"marker-{made['id']}")
        expect(marker).to_be_visible()
        expect(marker).to_have_class(re.compile("good"))
        marker.focus()
        expect(at(shown, chart).get_by_role("tooltip")).to_contain_text("tune arrow_batch_rows 5000")


def test_a_lost_connection_is_told_and_found_again(page: Page, orders: Orders, server: ControlServer) -> None:
    # On the same run, under a name of its own; the address and the tokens are the same when it comes back.
    first = ControlServer(orders.run, "again", ServeOptions())
    again = ServeOptions(port=int(first.url.rsplit(":", 1)[1]), tokens=first.tokens)
    page.goto(first.page_with_token())
    expect(at(page, "node-clean")).to_be_visible()
    first.stop()
    expect(at(page, "banner")).to_contain_text("connection is lost")
    page.mouse.wheel(0, 1000)
    expect(at(page, "banner")).to_be_in_viewport()
    second = ControlServer(orders.run, "again", again)
    expect(at(page, "banner")).to_be_hidden()
    second.stop()


def test_light_and_dark(shown: Page) -> None:
    body = shown.locator("body")
    light = str(body.evaluate("body => getComputedStyle(body).backgroundColor"))
    at(shown, "theme-toggle").click()
    expect(body).not_to_have_css("background-color", light)
    dark = str(body.evaluate("body => getComputedStyle(body).backgroundColor"))
    shown.reload()
    expect(body).to_have_css("background-color", dark)
