"""An mkdocs hook: formulas become MathML when the site is built, with no script and no request.

`pymdownx.arithmatex` (generic) marks formulas as `<span|div class="arithmatex">` around TeX. This
hook replaces each by MathML. A formula that cannot be converted stops the build.
"""

import html
import re

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

MARKED = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\s*\\(?P<kind>[(\[])(?P<tex>.*?)\\[)\]]\s*</(?P=tag)>',
    re.DOTALL,
)
#: Commands that the converter lacks, in terms of commands that it has.
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
            raise PluginError(f"{page.file.src_path}: cannot convert {left} in the formula {tex!r}")
        return made

    return MARKED.sub(mathml, text)
