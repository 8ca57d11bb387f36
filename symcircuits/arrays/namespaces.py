"""Arrays of other libraries: PyTorch, JAX, CuPy and any other that follows the array API standard.

No such library is imported here: an array names its own, by ``__array_namespace__`` or through array-api-compat
(extra ``arrays``), which supplies the standard's functions that a library lacks, as PyTorch does. Source: the Python
array API standard, 2023.12.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from symcircuits.arrays.structured import Centring, Diagonal

__all__ = ["Namespace", "kind_of", "namespace_of"]


@dataclass(frozen=True, slots=True)
class Namespace:
    """Matrices as arrays of one library, device and type; as a ring, with the operations that the walk uses.

    ``xp``: the functions of the standard; ``device`` None: unknown, as while JAX compiles.

    >>> ring = namespace_of(np.eye(2, dtype=np.float32))
    >>> ring.matmul(ring.ones((1, 2)), Diagonal(ring.asarray([3, 5]))).tolist(), ring.dtype
    ([[3.0, 5.0]], dtype('float32'))
    """

    xp: Any
    device: Any
    dtype: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return _of, (self.zeros((0,)),)  # a library cannot be pickled, its arrays can

    def __str__(self) -> str:
        at = "" if self.device is None else f" on {self.device}"
        return f"{_library(self.xp)}, {_short(self.dtype)}{at}"

    def asarray(self, x: Any) -> Any:
        """``x`` (NumPy's, or numbers) as an array here; raises ValueError if the library gives it another type."""
        copy = np.array(x)  # a copy: some libraries share memory, and a run's arrays cannot be written to
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX warns that it uses another type; that is an error below
            try:
                found = self.xp.asarray(copy, dtype=self.dtype, device=self.device)
            except (TypeError, RuntimeError) as fault:  # the device lacks the type, or the memory
                raise ValueError(f"{self} takes no array of shape {list(copy.shape)}: {fault!s:.200}") from None
        if found.dtype != self.dtype:
            hint = "; it needs jax_enable_x64 for float64" if "jax" in self.xp.__name__ else ""
            made = _short(found.dtype)
            raise ValueError(f"{_library(self.xp)} made {made} of {_short(self.dtype)}{hint}; ask for dtype={made!r}")
        return found

    def whole(self, x: Any) -> Any:
        """Integers (NumPy's) as an array here."""
        return self.xp.asarray(np.array(x), device=self.device)

    def zeros(self, shape: tuple[int, ...]) -> Any:
        """The zero matrix of that shape."""
        return self.xp.zeros(shape, dtype=self.dtype, device=self.device)

    def ones(self, shape: tuple[int, ...]) -> Any:
        """Ones."""
        return self.xp.ones(shape, dtype=self.dtype, device=self.device)

    def add(self, a: Any, b: Any) -> Any:
        """``a + b``."""
        return a + b

    def times(self, scalar: Any, a: Any) -> Any:
        """``scalar a``."""
        return scalar * a

    def transpose(self, a: Any) -> Any:
        """The last two axes swapped; the matrices of norms are symmetric."""
        return a if isinstance(a, (Diagonal, Centring)) else self.xp.matrix_transpose(a)

    def matmul(self, a: Any, b: Any) -> Any:
        """``a b``; a diagonal scales, and centring subtracts means."""
        if isinstance(a, (Diagonal, Centring)) and isinstance(b, (Diagonal, Centring)):
            a = self.matmul(a, self.xp.eye(a.shape[-1], dtype=self.dtype, device=self.device))
        if isinstance(b, Diagonal):
            return a * b.entries[..., None, :]
        if isinstance(b, Centring):
            return a - self.xp.mean(a, axis=-1, keepdims=True)
        if isinstance(a, Diagonal):
            return a.entries[..., :, None] * b
        if isinstance(a, Centring):
            return b - self.xp.mean(b, axis=-2, keepdims=True)
        return a @ b

    def spread(self, a: Any, batch: tuple[int, ...]) -> Any:
        """A matrix with these batch axes in front."""
        shape = (*batch, *a.shape[-2:])
        return a if tuple(a.shape) == shape else self.xp.broadcast_to(a, shape)

    def finite(self, a: Any) -> bool:
        """Whether all numbers of an array are finite; raises ValueError if that cannot be known yet."""
        try:
            # A finite sum means that all are finite. The sum itself may overflow: then each number is checked.
            return bool(self.xp.isfinite(self.xp.sum(a))) or bool(self.xp.all(self.xp.isfinite(a)))
        except (TypeError, RuntimeError, NotImplementedError) as fault:
            raise ValueError(
                f"cannot tell here whether numbers are finite ({type(fault).__name__}), as while a library compiles "
                "or maps a function, or has no numbers yet; give finite=False to Tensors, and check the result"
            ) from None

    def place(self, a: Any) -> list[int]:
        """The position of the first number that is not finite."""
        bad = ~self.xp.isfinite(self.xp.reshape(a, (-1,)))
        first = int(self.xp.argmax(self.xp.astype(bad, self.xp.int32)))
        return [int(i) for i in np.unravel_index(first, tuple(a.shape))]

    def holds(self, a: Any) -> bool:
        """Whether something is an array of this library on this device, of any type."""
        if not hasattr(a, "dtype") or not hasattr(a, "shape"):
            return False
        try:
            return _standard("it", a) is self.xp and getattr(a, "device", None) in (None, self.device)
        except (TypeError, ValueError):
            return False

    def takes(self, name: str, a: Any) -> Any:
        """An array of this library, device and type; otherwise raises ValueError, which says what it is."""
        seen = kind_of(name, a)
        if seen.xp is not self.xp:
            raise ValueError(f"{name} is an array of {_library(seen.xp)}, but the others are of {_library(self.xp)}")
        if None not in (seen.device, self.device) and seen.device != self.device:
            raise ValueError(f"{name} is on {seen.device}, but the others are on {self.device}: move it there first")
        if seen.dtype != self.dtype:
            raise ValueError(
                f"{name} holds {_short(seen.dtype)}, but the others hold {_short(self.dtype)}: convert one or the other"
            )
        return a


def _of(array: Any) -> Namespace:
    return kind_of("the array", array)


def namespace_of(like: Any, *, device: Any = None, dtype: Any = None) -> Namespace:
    """The library, device and type of an array, or of a library (``torch``, ``jax.numpy``, ``cupy``) itself.

    ``dtype`` (or its name) and ``device`` override the array's. Raises TypeError if it is neither, ValueError if the
    type is not one of real floating-point numbers.

    >>> namespace_of(np, dtype="float32").dtype
    dtype('float32')
    """
    if isinstance(like, ModuleType):
        if not callable(getattr(like, "zeros", None)):
            raise TypeError(f"{like.__name__} is not a library of arrays: give torch, jax.numpy, cupy, or an array")
        like = like.zeros((1,))
    xp, there = _standard("like", like), getattr(like, "device", None)
    number = like.dtype if dtype is None else dtype
    if isinstance(number, str):
        if not hasattr(xp, number):
            raise ValueError(f"{_library(xp)} has no type {number!r}; give a dtype such as float32")
        number = getattr(xp, number)
    number = np.dtype(number) if isinstance(like.dtype, np.dtype) else number  # jax.numpy.float32 is a function
    if not xp.isdtype(number, "real floating"):
        raise ValueError(f"values are floating-point numbers, and {_short(number)} is not such a type: give dtype=")
    if device is not None:
        try:
            there = getattr(xp.zeros((1,), device=device), "device", device)
        except (AssertionError, RuntimeError, TypeError, ValueError) as fault:
            raise ValueError(f"{_library(xp)} has no device {device!r}: {fault!s:.100}") from None
    return Namespace(xp, None if callable(there) else there, number)


def kind_of(name: str, array: Any) -> Namespace:
    """The library, device and type of an array of real floating-point numbers; raises TypeError on anything else."""
    xp, at = _standard(name, array), getattr(array, "device", None)
    if not xp.isdtype(array.dtype, "real floating"):
        raise TypeError(f"{name} must hold floating-point numbers, not {_short(array.dtype)}")
    return Namespace(xp, None if callable(at) else at, array.dtype)


def _standard(name: str, array: Any) -> Any:
    """The functions of the standard for an array."""
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        raise TypeError(f"{name} must be an array of PyTorch, JAX, CuPy or another library, not {type(array).__name__}")
    try:
        from array_api_compat import array_namespace
    except ImportError:
        array_namespace = None
    if array_namespace is None and callable(getattr(array, "__array_namespace__", None)):
        return array.__array_namespace__()
    if array_namespace is None:
        library = type(array).__module__.partition(".")[0]
        raise ValueError(
            f"arrays of {library} are read by array-api-compat, which is not installed: "
            "pip install 'symcircuits[arrays]'"
        )
    try:
        return array_namespace(array)
    except TypeError:
        raise TypeError(
            f"{name} is a {type(array).__name__}, whose library does not follow the array API standard"
        ) from None


def _library(xp: Any) -> str:
    name = xp.__name__.removeprefix("array_api_compat.")
    return {"jax.numpy": "JAX", "torch": "PyTorch", "cupy": "CuPy", "numpy": "NumPy"}.get(name, str(name))


def _short(dtype: Any) -> str:
    """``float32`` for any library's name of it."""
    return str(getattr(dtype, "name", dtype)).rpartition(".")[2]
