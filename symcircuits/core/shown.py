"""How a result is displayed in a terminal and in a notebook."""

from __future__ import annotations

from symcircuits.core.seam import higher

__all__ = ["Shown"]


class Shown:
    """A result displayed as titled tables, which are built by its row ``parts`` in :mod:`symcircuits.core.seam`.

    The same tables are printed as text (``text()``, and ``print``) and as HTML (in a notebook).
    """

    __slots__ = ()

    def text(self, width: int = 100) -> str:
        """The result as tables that fit a terminal of that width."""
        return self._text(width)

    def _text(self, width: int, **chosen: object) -> str:
        return higher(str, "Shown.text")(self, width, **chosen)

    def _repr_html_(self) -> str:
        return higher(str, "Shown.html")(self)

    def __repr__(self) -> str:
        return self.text()
