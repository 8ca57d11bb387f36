"""Values of terms, and their sums, in arrays of the user's library: PyTorch, JAX, CuPy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, final

from symcircuits.core.expansion import Expansion
from symcircuits.core.walk import Matrices
from symcircuits.core.words import scalar_argument
from symcircuits.model import TensorFactors, Tensors
from symcircuits.values.engine import Ranges, Span
from symcircuits.values.finite import not_finite
from symcircuits.values.sums import Sums
from symcircuits.values.tensor_arithmetic import TensorArithmetic
from symcircuits.values.tensor_tree import TensorTree

__all__ = ["TensorValues"]

_REMEDY = "use a wider type, or scale the weights"


class _Embedded(Mapping[str, Any]):
    """``{"embed": X0}``, looked up anew each time: a gradient passes through a look-up once."""

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> Any:
        if name != "embed":
            raise KeyError(name)
        return self._tensors.embedded

    def __contains__(self, name: object) -> bool:
        return name == "embed"

    def __iter__(self) -> Iterator[str]:
        yield "embed"

    def __len__(self) -> int:
        return 1


@final
class TensorValues(Sums[Any]):
    """The values of an expansion's terms; iteration gives one array per term, in order.

    Arrays are of the library, device and type of ``tensors``, in the shapes of
    :class:`~symcircuits.values.evaluate.Values`; so are its sums. Raises ValueError, naming it, if an array is
    missing, or a value or sum is not finite. ``instead``: matrices that replace others, by argument name.
    """

    def __init__(
        self, expansion: Expansion, tensors: Tensors, instead: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self.expansion, self.tensors, self.ring = expansion, tensors, tensors.ring
        self.batch = tensors.shape[:-1]
        _check_there(expansion, tensors, instead)
        self.matrices = Matrices(TensorFactors(tensors, instead), self.ring, _Embedded(tensors))

    def __len__(self) -> int:
        return len(self.expansion)

    @property
    def run(self) -> Any:
        """Not available: raises TypeError."""
        return self.tensors.model

    def __repr__(self) -> str:
        return f"<Values of {self.expansion!r} in {self.tensors!r}>"

    def __iter__(self) -> Iterator[Any]:
        for block in self.blocks():
            yield from (block.values[i, ...] for i in range(int(block.values.shape[0])))

    # ------------------------------------------------------------------------- an engine (see values.engine)
    def paths(self, side: int, row: int | None = None) -> TensorTree:
        """The paths of a side in pieces; ``row``: only their values at that position."""
        return TensorTree(self.expansion.sides[side], self.matrices, self.ring, self.tensors.shape, row)

    @property
    def arithmetic(self) -> TensorArithmetic:
        """The arithmetic of the array API standard."""
        return TensorArithmetic(self.ring, self.tensors.shape)

    def shorter(self) -> TensorValues:
        """Values of the same norms, without the vocabulary if that is less work."""
        return TensorValues(self.expansion, self.tensors, _without_vocabulary(self))

    def all_terms(self) -> None:
        """Terms are computed in pieces, even if they are few."""

    def contributions(self, position: int, chosen: list[int]) -> Ranges:
        """What each term adds to an output at a position, or to the difference of two: one row reads one row."""
        arrays, instead = self.tensors.arrays, dict[str, Any]()
        biased = self.expansion.target == "logits" and "b_U" in self.expansion.architecture.biases
        for name in (self.reader, "b_U") if biased else (self.reader,):
            rows = [arrays[name][i, ...] for i in chosen]
            row = rows[0] if len(rows) == 1 else rows[0] - rows[1]
            instead[name] = row[None, None] if name == "b_U" else row[None, :]
        paths = TensorValues(self.expansion, self.tensors, instead).paths(0, position)

        def numbers(terms: range, span: Span) -> Iterator[Any]:
            return (piece.values[..., 0, 0] for piece in paths.pieces(self.expansion._weights, span))

        return numbers

    def mask(self) -> Any:
        """One where a query may attend to a key, else zero."""
        head = self.expansion.readout.head
        assert head is not None
        name = f"mask_L{head.layer}"
        if name not in self.tensors.arrays:
            raise ValueError(
                f"a masked norm needs {name} [n, n] among the arrays: 1 where a query may attend to a key, else 0"
            )
        return self.tensors.arrays[name]

    def look(self, what: str, values: Any, first: int) -> None:
        """Raise ValueError, naming the term, if a number of the terms from ``first`` on is not finite."""
        if self.tensors.finite and not self.ring.finite(values):
            raise not_finite(self.expansion, what, first + self.ring.place(values)[0], self.ring, _REMEDY)

    def quiet(self, pieces: Iterator[Any]) -> Iterator[Any]:
        """A context that changes nothing: a library's warnings are left alone."""
        return pieces

    def spread(self, value: Any) -> Any:
        """A value with the batch axes of the tokens."""
        return self.ring.spread(value, self.batch)

    # ------------------------------------------------------------------------------------- for sums
    def seen(self, value: Any, what: Any) -> Any:
        """A sum with finite numbers; otherwise raises ValueError."""
        if self.tensors.finite and not self.ring.finite(value):
            raise ValueError(
                f"the sum of {what} of {self.expansion.target} is not finite at {self.ring.place(value)}: numbers "
                f"leave the range of {self.ring} during the computation; {_REMEDY}"
            )
        return value

    @property
    def reader(self) -> str:
        """The argument name of the matrix that reads the stream, ``W_U`` or that of an attached readout."""
        return self.expansion.readout.sides[0][-1].branches[0].right[-1].symbol.argument

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a term's value: batch axes of the tokens, ``n_context``, width."""
        return (*self.tensors.shape, self._width())

    def _width(self) -> int:
        if self.expansion.readout.bilinear:
            return int(self.tensors.shape[-1])
        if self.expansion.target == "stream":
            return self.tensors.d_model
        rows: int = self.matrices.matrices[self.reader].shape[0]
        return rows

    def _zero(self) -> Any:
        return self.ring.zeros(self.shape)


def _without_vocabulary(values: TensorValues) -> dict[str, Any]:
    """For logits ``W_U`` and ``b_U`` by the triangle T of ``[W_U, b_U] = Q T``, smaller and with the same norms."""
    arrays, xp = values.tensors.arrays, values.ring.xp
    if values.expansion.target != "logits" or not hasattr(xp, "linalg"):
        return {}
    w_u, d = arrays["W_U"], arrays["W_U"].shape[1]
    biased = "b_U" in values.expansion.architecture.biases
    whole = xp.concat([w_u, arrays["b_U"][:, None]], axis=1) if biased else w_u
    if whole.shape[0] <= whole.shape[1]:
        return {}
    if xp.finfo(values.ring.dtype).bits not in (32, 64):  # no library has it for other types
        return {}
    triangle = xp.linalg.qr(whole)[1]
    if not _leads_back(values, whole, triangle):
        return {}
    return {"W_U": triangle[:, :d]} | ({"b_U": triangle[:, d:]} if biased else {})


def _leads_back(values: TensorValues, whole: Any, triangle: Any) -> bool:
    """Whether gradients, if any, pass through a triangle: they divide by the entries on its diagonal."""
    if getattr(whole, "requires_grad", None) is False:
        return True
    if not values.tensors.finite:  # nothing can be checked
        return False
    xp = values.ring.xp
    sizes = xp.abs(xp.linalg.diagonal(triangle))
    return bool(xp.min(sizes) > float(xp.finfo(values.ring.dtype).eps) ** 0.5 * xp.max(sizes))


def _check_there(expansion: Expansion, tensors: Tensors, instead: Mapping[str, Any]) -> None:
    """Raise ValueError, listing the arrays that the terms need and that are missing."""
    made = {"C", "ones"} | ({"P"} if "W_pos" in tensors.arrays else set())
    if tensors.from_tokens:
        made |= {"t", "W_E"}
    needed: dict[str, None] = {}
    for layer in (layer for side in expansion.readout.sides for layer in side):
        factors = [f for b in layer.branches for f in b.left + b.right] + [f for s in layer.sources for f in s.factors]
        needed |= dict.fromkeys(f.symbol.argument for f in factors)
        scalars = [s for b in layer.branches for s in b.scales] + [s for one in layer.sources for s in one.scales]
        needed |= dict.fromkeys(scalar_argument(s) for s in scalars)
    head = expansion.readout.head
    if expansion.readout.scale:
        needed[f"scale_{expansion.readout.scale}"] = None
    if head is not None and expansion.architecture.positions == "rotary":
        needed[f"R_{head}"] = None
    missing = [n for n in needed if n not in made and n not in instead and n not in tensors.arrays]
    if missing:
        listed = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        what = f"{listed} (W_E needs tokens; X0 replaces both)" if "t" in missing else listed
        raise ValueError(f"terms of {expansion.target} need missing arrays: {what}")
