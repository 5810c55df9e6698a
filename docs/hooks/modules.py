"""A griffe extension for the API pages: constructors of Equinox modules, and docstrings.

An Equinox module gets its constructor from its fields, which static analysis does not see.
In docstrings, griffe would read a doctest outside of a section as a quotation, "Example" as an
admonition, and the second of two arguments on one line as a type.
"""

import ast
import re

import griffe

FENCE = "```"
#: Several names with one description, which may continue on more deeply indented lines.
SHARED = re.compile(r"^( +)(\w+(?:, \w+)+)(:.*\n?(?:\1 +.*\n?)*)", re.MULTILINE)


class Modules(griffe.Extension):
    """Adds a constructor to classes with fields, and rewrites docstrings."""

    def on_class(self, *, cls, **_):
        """Give the class an `__init__` with one parameter per field."""
        attributes = [each for each in cls.members.values() if each.is_attribute]
        fields = [a for a in attributes if a.annotation and "instance-attribute" in a.labels]
        if "__init__" in cls.members or not fields:
            return
        kind = griffe.ParameterKind.positional_or_keyword
        parameters = [griffe.Parameter(f.name, kind=kind, default=default(f)) for f in fields]
        init = griffe.Function("__init__", parameters=griffe.Parameters(*parameters))
        cls.set_member("__init__", init)

    def on_object(self, *, obj, **_):
        """Rewrite the parts that the docstring parser would misread."""
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
    """Repeat the description for each of its names."""
    indent, names, description = match.groups()
    return "".join(f"{indent}{name}{description.rstrip()}\n" for name in names.split(", "))


def default(field):
    """Return the default of a field: its value, or the `default=` of `eqx.field` and the like."""
    if field.value is None:
        return None
    value = ast.parse(str(field.value), mode="eval").body
    if isinstance(value, ast.Call):
        given = [word.value for word in value.keywords if word.arg == "default"]
        return ast.unparse(given[0]) if given else None
    return ast.unparse(value)
