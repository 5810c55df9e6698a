"""Formulas as MathML, made when the site is built: no script, no request to another machine.

`pymdownx.arithmatex` (generic) marks formulas as `<span|div class="arithmatex">` around TeX. This
hook replaces each by MathML. A formula that cannot be converted is an error, not an ugly page.
"""

import html
import re

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

MARKED = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\s*\\(?P<kind>[(\[])(?P<tex>.*?)\\[)\]]\s*</(?P=tag)>',
    re.DOTALL,
)
#: What the converter does not know, in terms of what it does.
REPLACE = {r"\arg\min": r"\operatorname{argmin}", r"\arg\max": r"\operatorname{argmax}"}
UNKNOWN = re.compile(r"\\[A-Za-z]+")


def on_page_content(text, page, **_):
    """Convert every formula of a page."""

    def mathml(match):
        tex = html.unescape(match["tex"]).strip()
        for old, new in REPLACE.items():
            tex = tex.replace(old, new)
        made = convert(tex, display="inline" if match["kind"] == "(" else "block")
        left = UNKNOWN.findall(html.unescape(made))
        if left:
            raise PluginError(f"{page.file.src_path}: {left} in the formula {tex!r} is not known")
        return made

    return MARKED.sub(mathml, text)
