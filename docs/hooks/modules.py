"""How the API pages read the source: constructors of Equinox modules, and docstrings.

An Equinox module gets its constructor from its fields, which a static reader does not know.
Doctests outside of a section would be taken for quotations, "Example" for a note, and of two
arguments on one line the second for a type.
"""

import ast
import re

import griffe

FENCE = "```"
#: Several names with one description, which may go on in further, deeper indented lines.
SHARED = re.compile(r"^( +)(\w+(?:, \w+)+)(:.*\n?(?:\1 +.*\n?)*)", re.MULTILINE)


class Modules(griffe.Extension):
    """Adds a constructor to classes with fields, and tidies docstrings."""

    def on_class(self, *, cls, **_):
        """Give the class an `__init__` with one parameter for each field."""
        attributes = [each for each in cls.members.values() if each.is_attribute]
        fields = [a for a in attributes if a.annotation and "instance-attribute" in a.labels]
        if "__init__" in cls.members or not fields:
            return
        kind = griffe.ParameterKind.positional_or_keyword
        parameters = [griffe.Parameter(f.name, kind=kind, default=default(f)) for f in fields]
        init = griffe.Function("__init__", parameters=griffe.Parameters(*parameters))
        cls.set_member("__init__", init)

    def on_object(self, *, obj, **_):
        """Rewrite what the parser of docstrings would misread."""
        if obj.docstring is None:
            return
        text = obj.docstring.value.replace("\nExample:\n", "\nExamples:\n")
        text = SHARED.sub(repeated, text)
        paragraphs = [
            f"{FENCE}pycon\n{each}\n{FENCE}" if each.startswith(">>> ") else each
            for each in text.split("\n\n")
        ]
        obj.docstring.value = "\n\n".join(paragraphs)


def repeated(match):
    """The description once for each of its names."""
    indent, names, description = match.groups()
    return "".join(f"{indent}{name}{description.rstrip()}\n" for name in names.split(", "))


def default(field):
    """The default of a field: the value itself, or the `default=` of `eqx.field` and the like."""
    if field.value is None:
        return None
    value = ast.parse(str(field.value), mode="eval").body
    if isinstance(value, ast.Call):
        given = [word.value for word in value.keywords if word.arg == "default"]
        return ast.unparse(given[0]) if given else None
    return ast.unparse(value)
