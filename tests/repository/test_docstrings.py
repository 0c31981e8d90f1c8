"""book/docstrings.py: Markdown in, reStructuredText out."""

import pytest

docutils = pytest.importorskip("docutils.core", reason="docutils comes with the site's packages")

from book import docstrings  # noqa: E402


def html(*lines):
    """The body of the HTML that docutils makes of it; a warning is an error."""
    text = "\n".join(docstrings.as_rest(lines))
    return docutils.publish_parts(
        text,
        writer="html5",
        settings_overrides={"halt_level": 2, "report_level": 2, "embed_stylesheet": False},
    )["body"]


@pytest.mark.parametrize(
    "line",
    [
        "A * B, *args, **options and | are letters.",
        "names_ and __init__ stand as they are; `x_` and `*y` are code.",
        "`kernel[grid](arguments)` is no link, nor is kernel[grid](arguments).",
        r"A backslash \ too.",
    ],
)
def test_what_means_something_to_sphinx_alone_is_shown(line):
    words = html(line)
    shown = words.replace('<span class="docutils literal">', "").replace("</span>", "")
    for word in line.replace("`", "").split():
        assert word in shown


def test_code_lists_links_and_blocks():
    words = html(
        "Takes `a`s, as in [the paper](https://a.org/b):",
        "- one,",
        "  still one;",
        "- two `x`",
        "and after.",
        "",
        "    make lab *",
        "",
        "The end.",
    )
    assert "literal" in words and words.count("<li>") == 2 and 'href="https://a.org/b"' in words
    assert "<pre" in words and "make lab *" in words and "still one" in words
    assert "<p>and after.</p>" in words and "<p>The end.</p>" in words
