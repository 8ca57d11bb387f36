"""The arrays from which the terms of a model are computed, in PyTorch, JAX, CuPy or another array API library.

Either a run's arrays, moved there once (:meth:`Run.to`), or the user's own arrays: weights in training, patterns
recorded by a hook. They keep their type and device, and gradients pass through them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

import numpy as np

from symcircuits.arrays.namespaces import Namespace, kind_of, namespace_of
from symcircuits.arrays.structured import Centring, Diagonal
from symcircuits.core.architecture import Architecture, scalar_names
from symcircuits.core.text import need
from symcircuits.core.words import scalar_argument
from symcircuits.model.checks import check_shapes
from symcircuits.model.tokens import read_tokens
from symcircuits.model.weights import matrix_names, weight_axes

if TYPE_CHECKING:
    from symcircuits.model.transformer import Run

__all__ = ["TensorFactors", "Tensors"]

# Attributes of a run that arrays alone lack: code that uses one needs a run.
_OF_RUNS = (
    "model", "tokens", "dtype", "logits", "scores", "patterns", "streams", "results", "products", "masks", "norms",
    "mlps", "readouts",
)  # fmt: skip


class _NeedsRun(AttributeError, TypeError):
    """Arrays were given, but a run is needed."""


@final
class Tensors:
    """The arrays of a forward pass held fixed, of any library that follows the array API standard.

    ``arrays``: by argument name, in the shapes of :class:`Model` and :class:`Arrays`: weights ``W_E``,
    ``W_V_L0H1``, ...; patterns ``A_L0H1 [..., n, n]``; ``mlp_L0 [..., n, d_model]``; norms ``D_L0``, one over sigma of
    every token, ``[..., n]`` (or the diagonal matrix); positions ``P [..., n, d_model]`` (or ``W_pos``, whose first
    rows they are); for rotary positions ``R_L0H1``; ``scale_L1H0`` and multipliers, also plain numbers. ``W_E`` and
    ``tokens`` (whole numbers, ``[n]`` or ``[batch, n]``) may be replaced by ``X0 [..., n, d_model]``, the
    embedded tokens, or by ``t``. Only the arrays of the terms used are needed. All are of one library, device and
    floating-point type. ``finite``: whether they, and the results, are checked for finite numbers (inside ``jax.jit``
    this is impossible). Patterns and norms are not compared with those that the weights would give.

    Raises ValueError if an array is of another library, device or type than the first, of the wrong shape, not
    finite, or has an unknown name.

    >>> import numpy as np
    >>> from symcircuits.core.architecture import attention_only
    >>> arrays = {"W_E": np.ones((2, 5)), "W_V_L0H0": np.ones((1, 2)), "W_O_L0H0": np.ones((2, 1))}
    >>> Tensors(attention_only((1,)), {**arrays, "A_L0H0": np.eye(3)}, tokens=[4, 0, 2])
    <Tensors of attention-only, heads 1, on tokens [3]: NumPy, float64 on cpu>
    >>> Tensors(attention_only((1,)), {**arrays, "A_L0H0": np.eye(3, dtype="float32")}, tokens=[4, 0, 2])
    Traceback (most recent call last):
    ValueError: A_L0H0 holds float32, but the others hold float64: convert one or the other
    """

    def __init__(
        self, architecture: Architecture, arrays: Mapping[str, Any], tokens: Any = None, *, finite: bool = True
    ) -> None:
        self.architecture, self.finite, self._tokens = architecture, finite, None
        self.arrays: Mapping[str, Any]
        if isinstance(arrays, _OfRun):
            self.arrays, self.ring, self.shape, self.d_model = (
                arrays,
                arrays.ring,
                arrays.shape,
                arrays.run.model.d_model,
            )
            return
        need("Tensors", architecture, Architecture)
        if not isinstance(arrays, Mapping):
            raise TypeError(f"arrays come by name, such as W_E and A_L0H0, not as {type(arrays).__name__}")
        self.arrays = MappingProxyType(dict(arrays))
        self.ring = self._checked()
        if tokens is not None:
            self._tokens = self._whole(tokens)
        self.shape = self._rows()
        self.d_model = self._shapes()

    def __getstate__(self) -> dict[str, Any]:
        arrays = self.arrays if isinstance(self.arrays, _OfRun) else dict(self.arrays)
        return self.__dict__ | {"arrays": arrays}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        arrays = state["arrays"]
        self.__dict__.update(state, arrays=arrays if isinstance(arrays, _OfRun) else MappingProxyType(arrays))

    def __repr__(self) -> str:
        return f"<Tensors of {self.architecture}, on tokens {list(self.shape)}: {self.ring}>"

    def __getattr__(self, name: str) -> Any:
        if name in _OF_RUNS:
            raise _NeedsRun(
                f"this needs {name} of a run (see model.run); Tensors have arrays only, which are enough for "
                "evaluate, and measure and blocks of its values"
            )
        raise AttributeError(f"Tensors have no attribute {name!r}")

    @property
    def from_tokens(self) -> bool:
        """Whether ``X0`` is given, or computed from tokens and ``W_E``."""
        return "X0" in self.arrays or self._tokens is not None

    @property
    def embedded(self) -> Any:
        """``X0 = t W_E^T``, computed from ``W_E`` if it is not given."""
        if "X0" in self.arrays:
            return self.arrays["X0"]
        if self._tokens is None:
            return self.arrays["t"] @ self.ring.transpose(self._named("W_E"))
        xp, table = self.ring.xp, self.ring.transpose(self._named("W_E"))
        rows = xp.take(table, xp.reshape(self._tokens, (-1,)), axis=0)
        return xp.reshape(rows, (*self.shape, table.shape[-1]))

    def _named(self, name: str) -> Any:
        if name not in self.arrays:
            raise ValueError(f"{name} is needed, and is not among the arrays")
        return self.arrays[name]

    # ---------------------------------------------------------------------------------------------- checks
    def _checked(self) -> Namespace:
        arch = self.architecture
        scalars = {scalar_argument(name) for name in scalar_names(arch)}
        known = {*weight_axes(arch), *matrix_names(arch), *matrix_names(arch, True), "t", "X0", "P", "ones", *scalars}
        known |= {f"{glyph}_{h}" for h in arch.all_heads for glyph in ("W_OV", "W_QK")}
        known |= {f"{glyph}{layer}" for layer in range(arch.n_layers) for glyph in ("mask_L", "mlp_L")}
        known |= {f"D_{label}" for label in arch.scale_labels}
        odd = [name for name in self.arrays if name not in known]
        if odd:
            more = f" (and {len(odd) - 1} more)" if len(odd) > 1 else ""
            raise ValueError(f"[{arch}] does not use {odd[0]!r}{more}; names are those of run.arrays, such as W_V_L0H1")
        given = {n: a for n, a in self.arrays.items() if not (n in scalars and isinstance(a, (int, float)))}
        if not given:
            raise ValueError("there are no arrays")
        first = next(iter(given))
        ring = kind_of(first, given[first])
        for name, array in given.items():
            ring.takes(name, array)
            if self.finite and not ring.finite(array):
                raise ValueError(f"{name} holds a number that is not finite, at {ring.place(array)}")
        return ring

    def _whole(self, tokens: Any) -> Any:
        """Tokens as integers of this library; integers already there stay there."""
        if self.ring.holds(tokens):
            if not self.ring.xp.isdtype(tokens.dtype, "integral"):
                raise ValueError(f"tokens must be whole numbers, not {tokens.dtype}")
            if not self.finite:
                return tokens
        tables = {n: a for n, a in weight_axes(self.architecture).items() if n in ("W_E", "W_pos") and n in self.arrays}
        check_shapes(tables, self.arrays, {})  # the arrays that tokens are checked against have axes
        read = read_tokens(tokens, self._named("W_E").shape[1], getattr(self.arrays.get("W_pos"), "shape", [None])[0])
        return self.ring.whole(read)

    def _rows(self) -> tuple[int, ...]:
        """The shape of the tokens, ``(..., n)``, from the arrays given."""
        if self._tokens is not None:
            return tuple(self._tokens.shape)
        for name in ("X0", "t", *(n for n in self.arrays if n.startswith(("rest_", "mlp_", "A_")))):
            if name in self.arrays:
                return tuple(self.arrays[name].shape[:-1])
        raise ValueError("the arrays do not determine the number of tokens: give tokens (with W_E), X0, or patterns")

    def _shapes(self) -> int:
        """Compare every shape with the others; returns the size of the stream."""
        axes = {name: a for name, a in weight_axes(self.architecture).items() if name in self.arrays}
        sizes = check_shapes(axes, self.arrays, {})
        *batch, n = self.shape
        d = sizes.get("d_model") or (self.arrays["X0"].shape[-1] if "X0" in self.arrays else 0)
        for name, array in self.arrays.items():
            tail = self._tail(name, n, d)
            if tail is None or not hasattr(array, "shape"):
                continue
            shape, wide = tuple(array.shape), len(tail) > 1 and name[:2] != "R_"
            full = [(*batch, *tail), *([tail] if wide else []), *([(*batch, n, n)] if name[:2] == "D_" else [])]
            full = [tail] if name[:2] == "R_" or not tail else full
            full = list(dict.fromkeys(full))
            if not any(len(f) == len(shape) and all(a in (0, b) for a, b in zip(f, shape, strict=True)) for f in full):
                raise ValueError(f"{name} has shape {list(shape)}; expected {' or '.join(str(list(f)) for f in full)}")
            if name[:2] == "D_" and self.finite and len(shape) > len(self.shape):
                self._check_diagonal(name, array)
        return int(d)

    def _check_diagonal(self, name: str, array: Any) -> None:
        eye = self.ring.xp.eye(array.shape[-1], dtype=self.ring.dtype, device=self.ring.device)
        if bool(self.ring.xp.any(array * (1 - eye) != 0)):
            raise ValueError(f"{name}, a matrix, must be diagonal: one over sigma of every token, and zeros elsewhere")

    def _tail(self, name: str, n: int, d: int) -> tuple[int, ...] | None:
        """The last axes of an array that is not a weight; 0: any size. None: not checked."""
        glyph = name.partition("_")[0]
        found = {"A": (n, n), "mask": (n, n), "D": (n,), "mlp": (n, d), "rest": (n, d), "part": (n, d), "X0": (n, d)}
        found |= {"P": (n, d), "R": (n, 0, 0), "t": (n, 0), "scale": (), "m": (), "r": (), "read": (0, d)}
        return None if glyph == "read" else found.get(glyph)


class _OfRun(Mapping[str, Any]):
    """A run's arrays as those of another library, each moved there on first use."""

    def __init__(self, run: Run, ring: Namespace) -> None:
        self.run, self.ring, self._made = run, ring, dict[str, Any]()
        self.shape = tuple(run.tokens.shape)

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            norm = self.run.norms.get(name.removeprefix("D_")) if name[:2] == "D_" else None
            array = self.ring.asarray(self.run.arrays[name] if norm is None else norm)
            if not self.ring.finite(array):
                raise ValueError(f"{name} leaves the range of {self.ring}: ask for a wider type")
            if isinstance(array, np.ndarray):
                array.flags.writeable = False  # a record, like the run; arrays of other libraries have no such flag
            self._made[name] = array
        return self._made[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return _OfRun, (self.run, self.ring)

    def __contains__(self, name: object) -> bool:
        return name in self.run.arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self.run.arrays)

    def __len__(self) -> int:
        return len(self.run.arrays)


def of_run(run: Run, like: Any, device: Any, dtype: Any) -> Tensors:
    """The result of :meth:`Run.to`."""
    if dtype is None and not hasattr(like, "shape"):
        dtype = run.dtype.name
    return Tensors(run.model.architecture, _OfRun(run, namespace_of(like, device=device, dtype=dtype)))


class TensorFactors(Mapping[str, Any]):
    """Arrays in the form that products need: biases as columns, structured matrices for norms.

    No derived array is cached: its gradient graph, once used, could not be used again.
    """

    def __init__(self, tensors: Tensors, instead: Mapping[str, Any]) -> None:
        self._tensors, self._instead = tensors, dict(instead)

    def __getitem__(self, name: str) -> Any:
        if name in self._instead:
            return self._instead[name]
        given, glyph = self._tensors.arrays, name.partition("_")[0]
        if glyph == "C":
            return Centring(self._tensors.d_model)
        if glyph == "ones":
            return self._tensors.ring.ones((self._tensors.shape[-1], 1))
        if name == "P" and "P" not in given:
            return given["W_pos"][: self._tensors.shape[-1], :]
        array = given[name]
        if glyph == "D" and len(array.shape) > len(self._tensors.shape):  # a full matrix, one nonzero number per row
            return Diagonal(self._tensors.ring.xp.sum(array, axis=-1))
        if glyph in ("D", "gain"):
            return Diagonal(array)
        return array[:, None] if glyph[:1] == "b" and len(array.shape) == 1 else array

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors.arrays)

    def __len__(self) -> int:
        return len(self._tensors.arrays)
