"""Figures and self-contained HTML pages."""

from pipla.report.page import Cell, Figure, Section, Table, Text, fixed, write_page
from pipla.report.plots import new_figure

__all__ = ["Cell", "Figure", "Section", "Table", "Text", "fixed", "new_figure", "write_page"]
