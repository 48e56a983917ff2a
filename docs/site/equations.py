"""Equations as MathML, which browsers draw without scripts, fonts or a network."""

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata
from sphinx.writers.html5 import HTML5Translator


def draw_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write an equation within a line."""
    self.body.append(mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def draw_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write an equation on lines of its own, with its number where it has one."""
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    self.body.append(f'<div class="math">{number}{mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def mathml(latex: str, as_block: bool) -> str:
    """Return LaTeX as MathML; what the converter does not know is an error, not red letters."""
    return str(latex2mathml.tex2mathml(latex, as_block=as_block))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Make it the renderer of equations."""
    app.add_html_math_renderer("mathml", (draw_inline, None), (draw_block, None))
    return {"parallel_read_safe": True}
