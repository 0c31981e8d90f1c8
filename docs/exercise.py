"""make picture: docs/exercise.png, the README's picture of an exercise and its message.

A browser opens lab 01 as a student does, writes a wrong answer into the first hole and runs it.
The picture holds a hash of the exercise's text, so that the gate notices when it is out of date.
"""

import hashlib
import tempfile
from pathlib import Path

from PIL import Image, PngImagePlugin
from playwright.sync_api import Page

from common.paths import ROOT
from common.setup import jupyter
from grading.source import build, holes
from tests.browser import test_lab_in_browser as browser

PICTURE = ROOT / "docs" / "exercise.png"
HEADING = f"### Exercise {browser.EXERCISE.number}"
EDITS = {"reversed(shape)": "shape", "reversed(strides)": "strides"}  # column-major
COLOURS = 64  # a page of text needs no more, and the file is a fifth of the size


def text_hash() -> str:
    """A hash of what the picture shows: the exercise's stub and checks."""
    exercise = browser.EXERCISE
    texts = [exercise.stub, *(check.source for check in exercise.checks)]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        jupyter.LABS = scratch / "labs"
        notebook = jupyter.LABS / f"{browser.LAB.name}.ipynb"
        notebook.parent.mkdir()
        build.write(build.lab_notebook(browser.LAB), notebook)
        with (
            browser.jupyterlab(notebook, scratch) as address,
            browser.browser_page(scratch, scale=2) as page,
        ):
            take(page, address, scratch / "page.png")
            shrink(scratch / "page.png")


def take(page: Page, address: str, path: Path) -> None:
    """Solves the exercise wrongly and takes a picture of its three cells."""
    page.set_viewport_size({"width": 1400, "height": 1500})
    browser.open_lab(page, address)
    browser.run_all(page)
    browser.answer(page, wrong_answer())
    message = browser.output(page, browser.EXERCISE.checks[0].source)
    browser.expect(message).to_contain_text("column-major")
    page.keyboard.press("Escape")
    check_text = browser.EXERCISE.checks[0].source
    cells = [browser.cell(page, text) for text in (check_text, wrong_answer(), HEADING)]
    boxes = [box for box in (cell.bounding_box() for cell in cells) if box]
    top = min(box["y"] for box in boxes)
    bottom = max(box["y"] + box["height"] for box in boxes)
    clip = {"x": boxes[0]["x"], "y": top, "width": boxes[0]["width"], "height": bottom - top - 2}
    page.screenshot(path=path, clip=clip)


def wrong_answer() -> str:
    text = holes.solved(browser.EXERCISE.hole.source)
    for right, wrong in EDITS.items():
        text = text.replace(right, wrong)
    return text


def shrink(path: Path) -> None:
    about = PngImagePlugin.PngInfo()
    about.add_text("text_hash", text_hash())
    picture = Image.open(path).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    picture.save(PICTURE, optimize=True, pnginfo=about)


if __name__ == "__main__":
    main()
