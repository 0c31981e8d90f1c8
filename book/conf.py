"""Sphinx's settings of the site; python -m book uses them."""

from typing import Any

from latex2mathml.converter import convert
from sphinx.application import Sphinx

from book import address, docstrings
from common.paths import COURSE

project = "ML systems, by hand"
author = "the authors of the course"
copyright = "2026, the authors of the course"
html_title = project
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["book.css"]
html_js_files = [("book.js", {"defer": "defer"})]
html_math_renderer = "mathml"
html_show_sphinx = False
html_domain_indices = False  # the contents list the modules already
html_copy_source = False
html_show_sourcelink = False
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"
html_theme_options: dict[str, Any] = (
    {"source_repository": address.repository()} if address.repository() else {}
)
html_theme_options |= {"source_branch": "main", "top_of_page_buttons": []}

nb_execution_mode = "off"
nb_ipywidgets_js: dict[str, Any] = {}  # would be fetched from the network
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "attrs_block", "colon_fence"]
myst_heading_anchors = 3
myst_dmath_double_inline = True
suppress_warnings = [
    "mystnb.unknown_mime_type",
    "ref.python",  # a type named Report, which two packages have
]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
add_module_names = False


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (_math, None), (_math_block, None))
    app.connect("autodoc-process-docstring", _as_rest)
    app.connect("autodoc-skip-member", _is_not_ours)
    app.connect("html-page-context", _say_levels, priority=900)  # after the theme


def _math(translator: Any, node: Any) -> None:
    """Formulas as MathML, which browsers draw without a script."""
    from docutils.nodes import SkipNode

    translator.body.append(convert(node.astext()))
    raise SkipNode


def _math_block(translator: Any, node: Any) -> None:
    from docutils.nodes import SkipNode

    formula = convert(node.astext(), display="block")
    group = '<div class="formula" tabindex="0" role="group" aria-label="formula">'
    translator.body.append(f"{group}{formula}</div>")
    raise SkipNode


def _as_rest(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    if lines and lines[0].startswith("Alias for field number"):  # of a NamedTuple: says nothing
        lines.clear()
    lines[:] = docstrings.as_rest(lines)


def _is_not_ours(app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool:
    """Leave out what a module imports from a library."""
    home = getattr(thing, "__module__", None)
    return skip or (isinstance(home, str) and not home.startswith(COURSE))


def _say_levels(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Tell a screen reader the level of the captions in the contents."""
    shown = context.get("furo_navigation_tree", "")
    context["furo_navigation_tree"] = shown.replace(
        'role="heading">', 'role="heading" aria-level="2">'
    )
