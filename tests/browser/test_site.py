"""The site: it is built without a warning, needs no network, and reads well in a browser."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup

from book import address, motions, texts
from common.paths import ROOT
from grading.source import labs
from tests.browser.test_lab_in_browser import CHROMIUM

# The site takes a minute to build, from all of these.
pytestmark = pytest.mark.slow("book/**/*", "docs/*.md", "*.md", "labs/*.ipynb", "solutions/*.ipynb")

MOST_BYTES = 1_500_000  # of a page with all that it loads at first
WIDTHS = (1400, 390)  # pixels: a laptop, a phone
LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium here")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("book") / "site"
    result = subprocess.run(
        [sys.executable, "-m", "book", folder],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "COURSE_ADDRESS": "https://github.com/o/course"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return folder


@cache
def parsed(path) -> Any:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def places(path):
    """The ids on a page, to which links can lead."""
    return {tag["id"] for tag in parsed(path).find_all(id=True)}


def pages(site):
    return sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)


def loaded(path):
    """What a page loads: pictures, scripts, styles."""
    for name, attribute in LOADED.items():
        for tag in parsed(path).find_all(name):
            value = tag.get(attribute, "")
            shows = name != "link" or "stylesheet" in tag.get("rel", [])
            if value and shows and not value.startswith("data:"):
                yield value


def target(path, link):
    parts = urlsplit(link)
    return (path.parent / unquote(parts.path)).resolve() if parts.path else path, parts.fragment


def test_there_is_a_page_for_each_lab_and_guide(site):
    names = {str(path.relative_to(site)) for path in pages(site)}
    assert names >= {f"labs/{name}.html" for name in labs.names()}
    assert names >= {f"{guide}.html" for guide in texts.GUIDES} | {"index.html", "moving.html"}
    assert not [name for name in names if "expected" in name or "clinic_" in name]


def test_the_library_s_pages_list_its_functions(site):
    for path in sorted((site / "api").glob("*.html")):
        article = parsed(path).find("article")
        assert ".. py:" not in article.text and ":module:" not in article.text, path.name
    ledger = parsed(site / "api" / "common.ledger.html")
    assert {"common.ledger.predict", "common.ledger.measured"} <= {
        tag["id"] for tag in ledger.find_all("dt", id=True)
    }


def test_every_link_within_the_site_leads_somewhere(site):
    lost = []
    for path in pages(site):
        for tag in parsed(path).find_all("a", href=True):
            if urlsplit(tag["href"]).scheme:
                continue
            file, part = target(path, tag["href"])
            if not file.exists() or (part and unquote(part) not in places(file)):
                lost.append((path.name, tag["href"]))
    assert not lost


def test_nothing_is_fetched_from_the_network(site):
    far = [(p.name, link) for p in pages(site) for link in loaded(p) if urlsplit(link).scheme]
    assert not far


def test_a_page_and_what_it_loads_is_light(site):
    weights = {
        path.name: path.stat().st_size
        + sum(file.stat().st_size for file in {target(path, link)[0] for link in loaded(path)})
        for path in pages(site)
    }
    assert {name: size for name, size in weights.items() if size > MOST_BYTES} == {}


def test_every_picture_says_what_it_shows(site):
    dumb = [
        (path.name, tag.get("src"))
        for path in pages(site)
        for tag in parsed(path).find_all("img")
        if len(tag.get("alt", "")) < 10 or tag["alt"].startswith(("../_images", "_images"))
    ]
    assert not dumb


def test_answers_and_checks_are_folded(site):
    page = parsed(site / "labs" / f"{labs.names()[0]}.html")
    folded = [tag.get_text(" ", strip=True) for tag in page.find_all("details")]
    exercises = labs.read(labs.names()[0]).exercises
    assert sum(text.startswith("Show an answer") for text in folded) == len(exercises)
    assert sum(text.startswith("Show the check") for text in folded) >= len(exercises)


def test_the_front_page_says_how_each_lab_was_tried(site):
    rows = parsed(site / "index.html").find("table").find_all("tr")[1:]
    cells = [[cell.get_text(strip=True) for cell in row.find_all("td")] for row in rows]
    assert len(cells) == len(labs.names())
    for lab, minutes, cpu, _, _, checks, wrong, _, machine in cells:
        assert re.match(r"\d\d · ", lab) and int(minutes) > 0 and cpu == "✓"
        assert int(checks) > 4 and int(wrong) > 10 and machine


def test_each_lab_can_be_opened(site):
    for name in labs.names():
        links = {tag.get("href") for tag in parsed(site / "labs" / f"{name}.html").find_all("a")}
        assert f"https://github.com/o/course/blob/main/labs/{name}.ipynb" in links
        at = "https://colab.research.google.com/github/o/course/blob/main/labs"
        assert f"{at}/{name}.ipynb" in links


def test_moving_figures_have_all_their_pictures_and_a_still(site):
    figures = parsed(site / "moving.html").find_all("figure", class_="motion")
    assert len(figures) == 5
    for figure in figures:
        frames = json.loads(figure["data-frames"])
        assert figure.find("img")["src"] == frames[int(figure["data-first"])][0]
        assert len(frames) >= 5 and all((site / frame[0]).is_file() for frame in frames)
        assert len({frame[2] for frame in frames}) == len(frames)


def test_a_lab_s_page_has_its_moving_figure(site):
    for motion in motions.MOTIONS:
        (figure,) = parsed(site / "labs" / f"{motion.lab}.html").find_all("figure", "motion")
        files = [frame[0] for frame in json.loads(figure["data-frames"])]
        assert len(files) == len(motion.values) and figure.find("img")["src"] in files
        assert all((site / "labs" / file).resolve().is_file() for file in files)


def test_launch_links_follow_the_configured_address(monkeypatch):
    monkeypatch.setenv("COURSE_ADDRESS", "https://github.com/someone/fork.git")
    links = address.launches("labs/01_strides.ipynb")
    assert (
        links["See it on GitHub"]
        == "https://github.com/someone/fork/blob/main/labs/01_strides.ipynb"
    )
    assert "/github/someone/fork/blob/" in links["Open in Colab"]
    monkeypatch.setenv("COURSE_ADDRESS", "https://gitlab.example/someone/fork")
    assert "Open in Colab" not in address.launches("labs/01_strides.ipynb")


@pytest.mark.parametrize(
    "text, folder, linked",
    [
        ("[a](docs/measured.md#x)", "", "[a](measured.md#x)"),
        ("[a](../SECURITY.md)", "docs", "[a](https://github.com/o/c/blob/main/SECURITY.md)"),
        ("[a](../solutions/01_strides.ipynb)", "docs", "[a](labs/01_strides.ipynb)"),
        ("[a](02_x.ipynb) ![b](c.png)", "labs", "[a](../labs/02_x.ipynb) ![b](c.png)"),
        ("[a](https://x.y/z) [b](#c)", "", "[a](https://x.y/z) [b](#c)"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(monkeypatch, text, folder, linked):
    monkeypatch.setenv("COURSE_ADDRESS", "https://github.com/o/c")
    assert texts.linked(text, folder, ["01_strides", "02_x"]) == linked


# In a browser


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="there is no Playwright here")
    with sync_api.sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@needs_chromium
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_open_without_errors_and_fit_the_screen(site, browser, width):
    page = browser.new_page(viewport={"width": width, "height": 900})
    errors: list[str] = []
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    for path in pages(site):
        page.goto(path.as_uri())
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width + 1, f"{path.name} is {wide} pixels wide"
    page.close()
    assert not errors


@needs_chromium
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_are_accessible(site, browser, width):
    from axe_playwright_python.sync_playwright import Axe

    page = browser.new_page(viewport={"width": width, "height": 900})
    for name in ("index", "moving", "students", "measured", "labs/05_triton_matmul"):
        page.goto((site / f"{name}.html").as_uri())
        found = Axe().run(page).response["violations"]
        serious = [
            (rule["id"], rule["nodes"][0]["html"][:200])
            for rule in found
            if rule["impact"] in ("serious", "critical")
        ]
        assert not serious, f"{name}: {serious}"
    page.close()


@needs_chromium
def test_a_figure_moves_by_the_keyboard_and_by_itself(site, browser):
    page = browser.new_page()
    page.goto((site / "moving.html").as_uri())
    figure = page.locator("figure.motion").first
    before = figure.locator("img").get_attribute("src")
    figure.locator("input").focus()
    page.keyboard.press("ArrowRight")
    after = figure.locator("img").get_attribute("src")
    assert after != before and figure.locator("output").inner_text()
    figure.get_by_role("button").click()
    page.wait_for_timeout(2000)
    assert figure.locator("img").get_attribute("src") != after
    page.close()


@needs_chromium
def test_the_search_works_from_a_file(site, browser):
    page = browser.new_page()
    page.goto(f"{(site / 'search.html').as_uri()}?q=softmax")
    page.wait_for_selector("#search-results li a", timeout=20_000)
    assert page.locator("#search-results li").count() > 1
    page.close()
