"""The book in a browser: no error on the console, mathematics drawn, sliders that move, a search
that finds, on a wide screen, on a phone and in the dark."""

import shutil

import pytest

from refnet.book import site

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.needs("mdit_py_plugins", "latex2mathml", "pygments", "playwright", "flint")


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    folder = tmp_path_factory.mktemp("book")
    site.write(folder, site.pages())
    return folder


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


SCREENS = {
    "wide": {"viewport": {"width": 1400, "height": 900}},
    "phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2},
    "dark": {"viewport": {"width": 1000, "height": 900}, "color_scheme": "dark"},
}


@pytest.mark.slow
@pytest.mark.parametrize("screen", SCREENS)
def test_every_page_is_drawn(screen, book, browser):
    context = browser.new_context(offline=True, **SCREENS[screen])
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(request.url))
    formulas = 0
    for path in sorted(book.glob("*.html")):
        page.goto(path.as_uri())
        width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert width <= 0, f"{path.name} is {width} pixels too wide"
        flat = page.evaluate(
            "[...document.querySelectorAll('math')].map((m) => [m.getBoundingClientRect().width, "
            "m.getBoundingClientRect().height]).filter(([w, h]) => !(w > 2 && h > 5)).length"
        )
        assert flat == 0, f"{path.name} has {flat} formulas that are not drawn"
        formulas += page.evaluate("document.querySelectorAll('math').length")
        assert page.evaluate("document.querySelectorAll('merror').length") == 0
    assert formulas > 300 and said == []


@pytest.mark.slow
def test_a_slider_moves_its_lines(book, browser):
    page = browser.new_page()
    for path in sorted(book.glob("*.html")):
        page.goto(path.as_uri())
        for box in page.locator(".frames").all():
            lines = box.locator("path[clip-path]")
            before = [line.get_attribute("d") for line in lines.all()]
            box.locator("input").last.fill("0")
            assert [line.get_attribute("d") for line in lines.all()] != before


@pytest.mark.slow
def test_the_search_finds_a_section(book, browser):
    page = browser.new_page()
    page.goto((book / "index.html").as_uri())
    page.locator("#search").fill("peepholes output gate")
    page.locator("#search").press("Enter")
    page.wait_for_url("**/03-lstm.html#*")
