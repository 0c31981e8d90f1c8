"""Builds the site: python -m book [FOLDER] (default: build/site).

The pages are written beside it, and Sphinx makes HTML from them. Nothing is fetched, neither now
nor when a page is read.
"""

import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from book import labs, modules, motions, reference, texts
from common.paths import ROOT


def main(arguments: list[str]) -> int:
    site = Path(arguments[0] if arguments else ROOT / "build" / "site").resolve()
    pages = site.with_name(f"{site.name}-pages")
    write_pages(pages)
    settings = ["-c", str(Path(__file__).parent), "-D", f"html_extra_path={pages / 'extra'}"]
    return build_main(["-q", "-W", "--keep-going", *settings, str(pages), str(site)])


def write_pages(folder: Path) -> None:
    """Everything that Sphinx reads, in a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    frames = motions.drawn(folder)
    names = labs.write(folder / "labs", lambda name: motions.of_lab(name, frames))
    api = reference.write(folder / "api")
    modules.write(folder)
    motions.write(folder, frames)
    texts.write(folder, names, api)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
