"""A lab as a student meets it in a browser, up to the points of the first exercise."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest

from common.paths import ROOT
from common.setup import jupyter
from grading.source import build, holes, labs

playwright = pytest.importorskip(
    "playwright.sync_api", reason="there is no Playwright here: pip install playwright"
)
expect = playwright.expect

CHROMIUM = next(
    filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None
)
pytestmark = [
    pytest.mark.slow("labs/*.ipynb", "common/*.py", "common/setup/**/*"),
    pytest.mark.skipif(
        not CHROMIUM, reason="there is no Chromium here (Debian: apt-get install chromium)"
    ),
]

LAB = labs.read("01")
EXERCISE = LAB.exercises[0]
PATIENCE_S = 120  # for any one step, on a machine that other tests keep busy
WIDGET_S = 10  # for a new picture, on such a machine; benchmarks/page.py measures it on an idle one

# What start files may do: another Python first (pyenv, conda), no PYTHONPATH, no Python at all.
HOSTILE = """
unset PYTHONPATH
export PATH=/usr/bin:/bin
python() { echo "another python"; }
alias make=false python=false
cd /
"""

# In the browser. `make lab` exposes window.jupyterapp.
IS_READY = """() => {  // without a kernel it says idle, too, and Run All would be lost
    const context = window.jupyterapp?.shell.currentWidget?.sessionContext;
    const kernel = context?.isReady && context.session?.kernel;
    return kernel && kernel.connectionStatus === "connected" && kernel.status === "idle";
}"""
HAVE_ALL_RUN = """() => jupyterapp.shell.currentWidget.content.widgets.every(
    ({model}) => model.type !== "code"
        || (model.executionCount && model.executionState === "idle"))"""
SHOW = """async text => {
    const notebook = jupyterapp.shell.currentWidget.content;
    const index = notebook.widgets.findIndex(
        ({model}) => model.sharedModel.getSource().includes(text));
    await notebook.scrollToItem(index, "start");
    return index;
}"""
SOURCE = """index => jupyterapp.shell.currentWidget.content.widgets[index].model
    .sharedModel.getSource()"""
RUN = """index => {
    jupyterapp.shell.currentWidget.content.activeCellIndex = index;
    return jupyterapp.commands.execute("notebook:run-cell");
}"""
STEP = """(slider, key) => new Promise(resolve => {  // the seconds until there is a new picture
    const widget = slider.closest(".widget-vbox"), drawn = widget.querySelector("img").src;
    const began = performance.now();
    const look = () => {
        const picture = widget.querySelector("img");
        const isNew = picture?.src && picture.src !== drawn && picture.complete;
        if (isNew) resolve((performance.now() - began) / 1000); else requestAnimationFrame(look);
    };
    slider.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
    look();
})"""
ACTIVE_CELL_IS = """source => {
    const notebook = jupyterapp.shell.currentWidget.content;
    return notebook.activeCell.model.sharedModel.getSource() === source;
}"""


def fresh_lab(tmp_path, monkeypatch):
    """A built lab in a folder of labs of its own."""
    notebook = tmp_path / "labs" / f"{LAB.name}.ipynb"
    notebook.parent.mkdir()
    build.write(build.lab_notebook(LAB), notebook)
    monkeypatch.setattr(jupyter, "LABS", notebook.parent)
    return notebook


def test_a_student_solves_an_exercise(tmp_path, monkeypatch):
    notebook = fresh_lab(tmp_path, monkeypatch)
    jupyter.keep_workspace()

    with jupyterlab(notebook, tmp_path) as address, browser_page(tmp_path) as page:
        open_lab(page, address)
        run_all(page)
        check = output(page, EXERCISE.checks[0].source)
        expect(check).to_contain_text(
            f"NotImplementedError: Exercise {EXERCISE.number}: put your answer"
        )
        words = check.locator("pre").first.evaluate("pre => getComputedStyle(pre).wordBreak")
        assert words == "normal"  # a message breaks between words
        look_at_the_page(page)
        move_the_widget(page)
        assert step_s(page, "ArrowLeft") < WIDGET_S
        solve(page)
        expect(check).to_contain_text(f"{EXERCISE.name} agrees with PyTorch")
        tick = check.get_by_text(f"✓ {EXERCISE.label} · 1 point")
        green = tick.evaluate("element => getComputedStyle(element).color")
        red, blue = (int(part) for part in re.findall(r"\d+", green)[::2])
        assert red < 128 and blue < 128, green
        grade_in_the_notebook(page)
        grade_in_a_terminal(page, notebook, tmp_path / "results")

    rows = json.loads((tmp_path / "results" / "results.json").read_text(encoding="utf-8"))
    assert [row["points"] for row in rows] == [EXERCISE.points] + [0] * (len(LAB.exercises) - 1)
    assert [row["status"] for row in rows] == ["passed"] + ["not attempted"] * (
        len(LAB.exercises) - 1
    )


GUESS, COUNT = 'ledger.guess("window average', 'ledger.counted("window average'


def test_a_count_asks_for_the_guess_that_is_missing(tmp_path, monkeypatch):
    lab = labs.read("03")
    notebook = tmp_path / "labs" / f"{lab.name}.ipynb"
    notebook.parent.mkdir()
    build.write(build.lab_notebook(lab.filled(lab.solution)), notebook)
    monkeypatch.setattr(jupyter, "LABS", notebook.parent)

    with jupyterlab(notebook, tmp_path) as address, browser_page(tmp_path) as page:
        open_lab(page, address, "03 · ")
        for text in ("# Imports", "def floats", GUESS, COUNT):
            run_cell(page, text)
        asks = output(page, COUNT)
        expect(asks).to_contain_text("Predict first: 'window average")
        assert len(asks.inner_text().strip().splitlines()) == 1
        source = page.evaluate(SOURCE, page.evaluate(SHOW, GUESS))
        write(page, GUESS, source.replace("...", "48"))
        run_cell(page, GUESS)
        run_cell(page, COUNT)
        expect(asks).not_to_contain_text("Predict first")


SAVE_BY_ITSELF = """() => {  // as JupyterLab does every 20 seconds, whatever else is being saved
    jupyterapp.shell.currentWidget.context.save().catch(() => {});
}"""


def test_two_saves_at_once_ask_nothing(tmp_path, monkeypatch):
    """The grade cell saves while the page still waits for the answer to a save of its own."""
    notebook = fresh_lab(tmp_path, monkeypatch)

    with jupyterlab(notebook, tmp_path) as address, browser_page(tmp_path) as page:
        open_lab(page, address)
        run_cell(page, "from common import course")
        held = hold_the_next_write(page)
        page.evaluate(SAVE_BY_ITSELF)
        while not held:  # the file is written, and the page does not know it yet
            page.wait_for_timeout(100)
        cell(page, "course.grade()").locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        page.wait_for_timeout(2_000)
        dialogs = page.get_by_role("dialog")
        expect(dialogs, f"{dialogs.all_inner_texts()}").to_have_count(0, timeout=1_000)
        route, response = held[0]
        route.fulfill(response=response)
        expect(output(page, "course.grade()").get_by_role("table")).to_be_visible()
        expect(dialogs).to_have_count(0, timeout=1_000)


def hold_the_next_write(page):
    """A list, to which the next request that writes a notebook comes with its answer."""
    held = []

    def pass_on(route):
        if route.request.method == "PUT" and not held:
            held.append((route, route.fetch()))
        else:
            route.continue_()

    page.route(re.compile(r"/api/contents/.*\.ipynb"), pass_on)
    return held


# What the student does


def look_at_the_page(page):
    """Contents open, checks and set-up in one line, lines of text that can be read."""
    expect(page.locator(".jp-TableOfContents")).to_contain_text(f"Exercise 1.1 · {EXERCISE.name}")
    collapsed = cell(page, f"# Check of {EXERCISE.label}").locator(".jp-InputPlaceholder")
    expect(collapsed).to_contain_text(f"# Check of {EXERCISE.label} (1 point): run me")
    assert collapsed.bounding_box()["height"] < 40
    em, width = cell(page, "The numbers of a tensor lie").evaluate(
        """element => { const style = element.querySelector(".jp-RenderedMarkdown p");
            return [parseFloat(getComputedStyle(style).fontSize), style.clientWidth]; }"""
    )
    assert width <= 44 * em


def grade_in_the_notebook(page):
    """Run the last cell at once, without saving first: it saves."""
    cell(page, "course.grade()").locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    table = output(page, "course.grade()").get_by_role("table")
    expect(table).to_contain_text(f"✓ {EXERCISE.label}")
    expect(table).to_contain_text("not attempted")
    expect(output(page, "course.grade()")).not_to_contain_text("not saved")


def grade_in_a_terminal(page, notebook, results):
    """Whatever the start files of the student's shell do: see HOSTILE."""
    page.evaluate("() => { jupyterapp.commands.execute('terminal:create-new'); }")
    line = page.get_by_role("textbox", name="Terminal input")
    deadline = time.monotonic() + PATIENCE_S
    while not (results / "results.json").exists() and time.monotonic() < deadline:
        line.focus()
        page.keyboard.type(f"python -m grading {notebook} --out {results}\n")
        page.wait_for_timeout(15_000)


def open_lab(page, address, title="01 · Strides"):
    page.goto(address)
    expect(page.get_by_role("heading", name=title)).to_be_visible()
    page.wait_for_function(IS_READY)


def run_all(page):
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.wait_for_function(HAVE_ALL_RUN)


def step_s(page, key):
    """Seconds from a key on a slider of the widget to the new picture, by the browser's clock."""
    slider = the_widget(page).locator(".widget-slider", has_text="start").get_by_role("slider")
    return slider.evaluate(STEP, key)


def the_widget(page):
    return output(page, "widget.permuted_and_sliced()").locator(".widget-vbox")


def move_the_widget(page):
    """Chooses another order, then another start; each draws another picture."""
    widget = the_widget(page)
    picture = widget.get_by_role("img")
    drawn = picture.get_attribute("src")
    widget.get_by_label("order").select_option("(0, 1)")
    expect(picture).not_to_have_attribute("src", drawn)
    drawn = picture.get_attribute("src")
    widget.locator(".widget-slider", has_text="start").get_by_role("slider").press("ArrowRight")
    expect(picture).not_to_have_attribute("src", drawn)


def solve(page):
    answer(page, holes.solved(EXERCISE.hole.source))


def answer(page, text):
    """Writes the text in the hole's cell, runs it, and then the next cell, which is its check."""
    write(page, EXERCISE.stub, text)
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Shift+Enter")


def write(page, where, text):
    """Writes the text in place of the cell that has `where` in its source."""
    cell(page, where).locator(".cm-content").click()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text(text)  # as if pasted: typed, each line would be indented twice
    page.wait_for_function(ACTIVE_CELL_IS, arg=text)


def run_cell(page, text):
    """Runs the first cell with this text in its source, and waits for its end."""
    page.evaluate(RUN, page.evaluate(SHOW, text))


# What the student sees


def cell(page, text):
    """The first cell with this text in its source, scrolled into view."""
    return page.locator(f'.jp-Notebook [data-windowed-list-index="{page.evaluate(SHOW, text)}"]')


def output(page, text):
    return cell(page, text).locator(".jp-Cell-outputArea")


# Server and browser


@contextlib.contextmanager
def jupyterlab(notebook, scratch):
    """JupyterLab as `make lab` starts it, for a student without settings: its address."""
    own = {
        f"JUPYTER_{kind.upper()}_DIR": str(scratch / kind) for kind in ("config", "data", "runtime")
    }
    home = scratch / "home"
    home.mkdir(exist_ok=True)
    for name in (".bashrc", ".bash_profile", ".profile", ".zshrc", ".zprofile"):
        (home / name).write_text(HOSTILE)
    own |= {
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "IPYTHONDIR": str(scratch / "ipython"),
        "COURSE_FOLDER": str(notebook.parent),
    }
    command = jupyter.jupyter_command(
        notebook.name, 0, browser=False, root=os.geteuid() == 0
    )  # 0: any free port
    log = scratch / "jupyterlab.log"
    with log.open("w") as stream:
        process = subprocess.Popen(
            [sys.executable, *command],
            stderr=stream,
            env=jupyter.environment() | own,
        )
    try:
        yield address_in(log, process)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def address_in(log, process):
    """The address with its token, as soon as JupyterLab has written it into its log."""
    deadline = time.monotonic() + PATIENCE_S
    while not (address := re.search(r"http://\S+\?token=\S+(?=\n)", log.read_text())):
        assert process.poll() is None and time.monotonic() < deadline, (
            f"JupyterLab did not start:\n{log.read_text()}"
        )
        time.sleep(0.1)
    return address[0]


@contextlib.contextmanager
def browser_page(scratch, scale=1):
    """An empty page in Chromium. If the test fails, its message names a screenshot."""
    expect.set_options(timeout=PATIENCE_S * 1000)
    with (
        playwright.sync_playwright() as driver,
        contextlib.closing(
            driver.chromium.launch(executable_path=CHROMIUM, args=["--disable-gpu"])
        ) as browser,
    ):
        page = browser.new_page(viewport={"width": 1280, "height": 800}, device_scale_factor=scale)
        page.set_default_timeout(PATIENCE_S * 1000)
        try:
            yield page
        except Exception as error:
            with contextlib.suppress(playwright.Error):  # it may be the browser that died
                page.screenshot(path=scratch / "failure.png")
                error.add_note(f"What the student would see: {scratch / 'failure.png'}")
            raise
