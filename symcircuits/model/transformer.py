"""A transformer with its weights, and the record of its forward pass on tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from symcircuits.arrays.rings import Array, transpose
from symcircuits.core.architecture import Architecture
from symcircuits.core.attachments import Part
from symcircuits.core.names import fields_html, visible
from symcircuits.core.text import need
from symcircuits.core.words import scalar_argument, scalar_order
from symcircuits.model.attached import arrays_of, attach, check_attached
from symcircuits.model.attending import Attended, check_windows, read_mask, rotations
from symcircuits.model.checks import check_names, check_shapes, check_values, float_type
from symcircuits.model.forward import BY_LABEL, Changes, Record, Settings, forward, softmax
from symcircuits.model.needs import Converted, check_run, embedded
from symcircuits.model.tokens import read_tokens
from symcircuits.model.weights import weight_axes

if TYPE_CHECKING:
    from symcircuits.model.tensors import Tensors

__all__ = ["Arrays", "Model", "Run"]


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Model:
    """A transformer: its architecture and its weights, in the shapes of the paper.

    ``weights``: ``W_E [d_model, d_vocab]``, ``W_pos [n_ctx, d_model]`` (a row per position), ``W_Q_L0H1``,
    ``W_K_L0H1``, ``W_V_L0H1`` ``[d_head, d_model]``, ``W_O_L0H1 [d_model, d_head]``, ``W_U [d_vocab_out, d_model]``
    and the biases ``b_Q_L0H1``, ``b_K_L0H1``, ``b_V_L0H1`` ``[d_head]``, ``b_O_L0 [d_model]``, ``b_U [d_vocab_out]``
    that the architecture has; ``gain_L0``, ``b_N_L0`` ``[d_model]`` of its norms (``M0`` before an MLP, ``final``);
    ``W_in_L0``, ``W_gate_L0`` ``[d_mlp, d_model]``, ``W_out_L0 [d_model, d_mlp]`` of its MLPs, with ``b_in``,
    ``b_gate``, ``b_out``. Keys and values of a group are called ``W_K_L0G1``. ``settings``: other settings of the
    forward pass (see :class:`Settings`). ``attached``: the arrays of attached readouts and sources, by name (see
    :meth:`with_`). ``score_scale``: for every head the number that multiplies its scores (empty
    if the architecture has no scale). ``notes``: what was assumed or dropped, in sentences. ``dtype``: the
    number type in the file, or of the weights given. ``multipliers``: the number of each multiplier of the
    architecture. ``path``: the file that :func:`~symcircuits.load` read, which other processes can read too.
    Raises ValueError if a weight is missing, unknown, of the wrong shape, not of floating-point numbers, or not
    finite. The arrays are not copied, and cannot be written to through the model.

    >>> from symcircuits.model import random_model
    >>> from symcircuits.core.architecture import attention_only
    >>> model = random_model(attention_only((3, 3)), d_vocab=11, d_model=16, d_head=4)
    >>> model.weights["W_O_L0H1"].shape, model.run([1, 2, 3]).logits.shape
    ((16, 4), (3, 11))
    """

    architecture: Architecture
    weights: Mapping[str, Array]
    score_scale: Mapping[str, float] = field(default_factory=dict)
    name: str = "model"
    notes: tuple[str, ...] = ()
    dtype: str = ""
    settings: Settings = field(default_factory=Settings)
    multipliers: Mapping[str, float] = field(default_factory=dict)
    attached: Mapping[str, Array] = field(default_factory=dict)
    path: str = field(default="", init=False)  # of its file, if it equals that; a modified copy has none
    stamp: str = field(default="", init=False, repr=False)  # of that file, when it was read

    def __post_init__(self) -> None:
        need("Model", self.architecture, Architecture)
        axes = weight_axes(self.architecture)
        check_names(axes, self.weights)
        arrays = {name: np.asarray(self.weights[name]).view() for name in axes}
        for name, array in arrays.items():
            check_values(name, array)
            array.flags.writeable = False
        sizes = check_shapes(axes, arrays, {})
        check_windows(self.settings.windows, self.architecture.n_layers)
        if self.settings.score_cap is not None and not self.architecture.softmax:
            raise ValueError("a soft cap on scores needs a softmax, and this model has none")
        capped = self.settings.score_cap is not None
        if self.architecture.capped != capped:
            object.__setattr__(self, "architecture", replace(self.architecture, capped=capped))
        if self.architecture.positions == "rotary":
            for axis in sizes:
                if axis.startswith("d_head of queries"):
                    self.settings.rotary.angles(sizes[axis])  # raises if there are too few entries to rotate
        labels = [str(head) for head in self.architecture.all_heads] if self.architecture.scale else []
        check_names(labels, self.score_scale, "score_scale")
        scales = _numbers(self.score_scale, "the score scale of ")
        check_names(sorted(self.architecture.multipliers, key=scalar_order), self.multipliers, "multipliers")
        multipliers = _numbers(self.multipliers, "the multiplier ")
        types = dict.fromkeys(array.dtype.name for array in arrays.values())
        for name, value in (
            ("weights", MappingProxyType(arrays)),
            ("score_scale", MappingProxyType({label: scales[label] for label in labels})),
            ("multipliers", MappingProxyType(multipliers)),
            ("notes", tuple(self.notes)),
            ("dtype", self.dtype or ", ".join(types)),
            ("attached", check_attached(self.architecture, self.attached, sizes["d_model"])),
        ):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        parts = dict(self.weights), dict(self.score_scale), self.name, self.notes, self.dtype, self.settings
        return Model, (self.architecture, *parts, dict(self.multipliers), dict(self.attached))

    def __repr__(self) -> str:
        sizes = f"d_model {self.d_model}, d_vocab {self.d_vocab}, {self.dtype}"
        return f"<Model {visible(self.name)}: {self.architecture}, {sizes}>"

    def _repr_html_(self) -> str:
        numbers = sum(array.size for array in self.weights.values())
        said = {
            "architecture": self.architecture, "d_model": self.d_model, "d_vocab": self.d_vocab,
            "weights": f"{numbers:,} numbers, {self.dtype}", "file": self.path, "notes": "; ".join(self.notes),
        }  # fmt: skip
        return fields_html(f"Model {self.name}", said)

    @property
    def stored(self) -> str:
        """The type of its numbers, in words: of its file if it has one, else of the weights."""
        return f"the file holds {self.dtype}" if self.path else f"the weights are {self.dtype}"

    @property
    def d_model(self) -> int:
        """Size of the residual stream."""
        return int(self.weights["W_E"].shape[0])

    @property
    def d_vocab(self) -> int:
        """Number of input tokens."""
        return int(self.weights["W_E"].shape[1])

    @property
    def d_vocab_out(self) -> int | None:
        """Number of output tokens; None without unembedding."""
        return self.weights["W_U"].shape[0] if "W_U" in self.weights else None

    @property
    def n_context(self) -> int | None:
        """Length of the position table; None if there is none (any number of tokens works)."""
        return self.weights["W_pos"].shape[0] if "W_pos" in self.weights else None

    def with_(self, *attachments: Any) -> Model:
        """This model with attached readouts and sources, which its expansions, runs and checks then include.

        ``attachments``: results of :func:`~symcircuits.readout` and :func:`~symcircuits.source`. The weights are shared
        with this model. Raises ValueError if one does not fit: a wrong length, layer or MLP, a name already in use, two
        points at which the stream is split.

        >>> from symcircuits.core.architecture import attention_only
        >>> from symcircuits.model import random_model, readout
        >>> model = random_model(attention_only((1,)), d_model=3)
        >>> model.with_(readout([0, 1, 0])).run([1, 2]).readouts["probe"].shape
        (2, 1)
        >>> model.with_(readout([0, 1]))
        Traceback (most recent call last):
        ValueError: 'probe' must have shape [k, 3] in this model, not [1, 2]
        """
        if not attachments:
            return self
        architecture, arrays = attach(self.architecture, self.attached, attachments)
        return replace(self, architecture=architecture, attached=arrays)

    def run(self, tokens: Any, dtype: npt.DTypeLike | None = None, *, mask: Any = None) -> Run:
        """The forward pass, recorded.

        ``tokens``: whole numbers in ``[n]`` or ``[batch, n]``. ``dtype``: float64 (also for None, whatever the type in
        the file) or float32. ``mask``: which keys each query may attend to, ``[n, n]`` (rows are queries) or
        ``[batch, n, n]``, in place of the model's own rule (causal or bidirectional) in every layer; windows stay.
        Booleans: True if it may; floating-point numbers are added to the scores before softmax, -inf masks.
        Positions are counted from the first token of a row, even if it is padding. Raises ValueError on invalid tokens
        (naming the first), on another dtype, on a mask that does not fit or leaves a query no key, and if numbers
        leave the range of ``dtype``.

        >>> from symcircuits.model import random_model
        >>> from symcircuits.core.architecture import attention_only
        >>> random_model(attention_only((1,))).run([[0, 1], [2, 3]]).patterns["L0H0"][:, 0]
        array([[1., 0.],
               [1., 0.]])
        >>> run = random_model(attention_only((1,))).run([0, 1], mask=[[True, True], [False, True]])
        >>> run.patterns["L0H0"][1], bool(0 < run.patterns["L0H0"][0, 1] < 1)
        (array([0., 1.]), True)
        """
        number = float_type(dtype)
        read = read_tokens(tokens, self.d_vocab, self.n_context)
        attended = mask if mask is None or isinstance(mask, Attended) else read_mask(mask, read.shape)
        if attended is not None and attended.added is not None:
            _check_added(attended.added, number, self.architecture.softmax)
        return _run(self, read, number, attended=attended)


def _check_added(added: Array, number: np.dtype[Any], softmax: bool) -> None:
    """Raise ValueError if a mask adds numbers without a softmax, or beyond the range of the run's numbers."""
    if not softmax:
        raise ValueError(
            "a mask can add numbers to scores only before a softmax, and this model has none: give booleans"
        )
    if np.abs(added).max() > np.finfo(number).max / 4:
        raise ValueError(
            f"the mask adds numbers as large as {np.abs(added).max():.3g}, which leave the range of {number} with the "
            "scores; -inf masks, and so do booleans"
        )


def _numbers(given: Mapping[str, float], what: str) -> dict[str, float]:
    """The values as numbers, each finite; ValueError names one that is not."""
    found = {name: float(value) for name, value in given.items()}
    for name, value in found.items():
        if not math.isfinite(value):
            raise ValueError(f"{what}{name} is {value}; it must be a finite number")
    return found


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Run:
    """A recorded forward pass; made by :meth:`Model.run`. ``...`` is the batch axis, if the tokens have one.

    ``logits [..., n, d_vocab_out]`` (None without unembedding); by head label ``scores [..., n, n]`` (scaled; masked
    entries are -inf), ``patterns [..., n, n]`` (rows are queries; masked entries are exactly 0) and ``results [..., n,
    d_model]``, what the head adds to the stream, with its b_V and multiplier, without b_O; ``products``, the sums of
    score terms, for heads whose scores differ from them; ``masks [n, n]`` (``[batch, n, n]`` if one was given for each
    row), by layer (``L0``) which keys (columns) a query may attend to; ``attended``, the mask that was given (None: the
    model's own); ``streams``, the residual stream ``[..., n, d_model]`` at points 0 to n_layers; ``norms [..., n]``, by
    label of the norm (``L0``, ``M0``, ``final``) the ``1 / sigma`` of every token; ``mlps [..., n, d_model]``, by layer
    (``L0``) the output of its MLP, before its multiplier; ``readouts [..., n, k]``, by name the values of attached
    readouts; ``arrays``, every array that a term of an expansion needs, by argument name. A record: nothing in it can
    be written to (copy an array to change it).

    >>> from symcircuits.model import random_model
    >>> from symcircuits.core.architecture import attention_only
    >>> run = random_model(attention_only((2,))).run([0, 1, 2])
    >>> total = run.streams[0] + run.results["L0H0"] + run.results["L0H1"]
    >>> bool(np.allclose(total, run.streams[1]))
    True
    """

    model: Model
    tokens: npt.NDArray[np.int64]
    dtype: np.dtype[Any]
    logits: Array | None
    scores: Mapping[str, Array]
    patterns: Mapping[str, Array]
    streams: tuple[Array, ...]
    results: Mapping[str, Array]
    arrays: Arrays
    products: Mapping[str, Array]
    masks: Mapping[str, npt.NDArray[np.bool_]]
    norms: Mapping[str, Array]
    mlps: Mapping[str, Array]
    readouts: Mapping[str, Array] = field(default_factory=dict)
    attended: Attended | None = None
    original: bool = field(default=False, init=False)  # as made by model.run; a modified copy is not

    def to(self, like: Any, *, device: Any = None, dtype: Any = None) -> Tensors:
        """The arrays of this run as those of another library, in which terms are then evaluated.

        ``like``: an array whose library, device and type are used, or a library (``torch``, ``jax.numpy``,
        ``cupy``), with the run's type unless ``dtype`` gives another. Each array is moved there when first needed.
        Raises TypeError or ValueError if it is not a library of floating-point arrays.

        >>> import symcircuits as sc
        >>> run = sc.random_model(sc.attention_only((2,))).run([0, 1, 2])
        >>> moved = run.to(np.zeros(1, np.float32))        # or torch.zeros(1, device="cuda")
        >>> sc.evaluate(sc.logits(run.model.architecture), moved).total().dtype
        dtype('float32')
        """
        from symcircuits.model.tensors import of_run

        return of_run(self, like, device, dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return _run, (self.model, self.tokens, self.dtype, None, self.attended)  # recomputed after unpickling

    def __repr__(self) -> str:
        return f"<Run of {visible(self.model.name)} on tokens {list(self.tokens.shape)}, {self.dtype}>"

    def _repr_html_(self) -> str:
        *batch, n = self.tokens.shape
        first = np.ravel(self.tokens)[:n].tolist()
        said = {
            "tokens": " ".join(map(str, first)) + (f" (row 0 of {batch[0]})" if batch else ""),
            "most likely next": self._likely(), "computed in": self.dtype,
        }  # fmt: skip
        return fields_html(f"Run of {self.model.name} on {n} token{'s' * (n != 1)}", said)

    def _likely(self, most: int = 5) -> str:
        """The most likely tokens after the last, with their probabilities; for a batch in its first row."""
        if self.logits is None or not self.logits.size:
            return ""
        last = np.asarray(self.logits.reshape(-1, *self.logits.shape[-2:])[0, -1], np.float64)
        chances = softmax(last)
        return ", ".join(f"{i} ({chances[i]:.3f})" for i in np.argsort(-last, kind="stable")[:most].tolist())


class Arrays(Mapping[str, Array]):
    """The arrays that terms need, by argument name, in one dtype; derived ones are computed on demand.

    The weights and biases, ``A_L0H1 [..., n, n]``, ``mask_L0 [n, n]`` or ``[batch, n, n]`` (1 where a query may attend
    to a key, else 0), ``scale_L1H0 []``, multipliers (``m_E []``), ``ones [n, 1]``, ``P [n, d_model]`` (the rows of
    W_pos in use), ``t [..., n, d_vocab]`` (one-hot), ``X0 = t W_E^T``, ``W_OV_L0H1 = W_O W_V`` and ``W_QK_L1H0 = W_Q^T
    W_K`` ``[d_model, d_model]``. None can be written to. KeyError on another name.
    """

    __slots__ = ("_made", "_makers", "_others")

    def __init__(
        self, known: Mapping[str, Array], makers: Mapping[str, Callable[[], Array]], others: Mapping[str, Array]
    ) -> None:
        self._made = {name: _closed(array) for name, array in known.items()}
        self._makers = dict(makers)
        self._others = others

    def __getitem__(self, name: str) -> Array:
        if name in self._made:
            return self._made[name]
        if name not in self._makers:
            return self._others[name]
        self._made[name] = _closed(self._makers[name]())
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._others, *self._made, *self._makers)))

    def __len__(self) -> int:
        return len(self._made.keys() | self._makers.keys() | self._others.keys())

    def get(self, name: str, default: Any = None) -> Any:
        """The array of that name, or ``default``; avoids a KeyError, which costs more than small products."""
        return self[name] if name in self else default  # noqa: SIM401

    def __contains__(self, name: object) -> bool:
        return name in self._made or name in self._makers or name in self._others

    def __repr__(self) -> str:
        return f"Arrays({', '.join(self)})"


def _closed(array: Array) -> Array:
    """A read-only array, or view of it; the caller's own array stays writable."""
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def _run(
    model: Model,
    tokens: npt.NDArray[np.int64],
    dtype: np.dtype[Any],
    changes: Changes | None = None,
    attended: Attended | None = None,
) -> Run:
    """The forward pass; with changes, if any (see ``edits``). ``attended``: a mask that replaces the model's own."""
    check_run(model, tokens, dtype)
    tokens = tokens.view()
    tokens.flags.writeable = False
    w = Converted(model.weights, dtype)
    scalars = {**model.score_scale, **model.multipliers}
    own = arrays_of(model.architecture, model.attached, tokens.shape, dtype)
    record = forward(model.architecture, w, scalars, model.settings, tokens, changes, own, attended)
    arrays = _arrays(model, w, own, tokens, record)
    by_label: dict[str, Any] = {kind: MappingProxyType(getattr(record, kind)) for kind in BY_LABEL}
    streams = tuple(record.streams)
    run = Run(model, tokens, dtype, record.logits, streams=streams, arrays=arrays, attended=attended, **by_label)
    object.__setattr__(run, "original", changes is None)
    return run


def _rotations(model: Model, d_head: int, n: int, dtype: np.dtype[Any]) -> Callable[[], Array]:
    return lambda: rotations(n, d_head, model.settings.rotary, dtype)


def _rests(architecture: Architecture, own: Mapping[str, Array], record: Record) -> Iterator[tuple[str, Any]]:
    """The rest of the stream, and of MLP outputs, where sources are set apart."""

    def left(whole: Array, parts: Sequence[Part]) -> Array:
        for part in parts:
            whole = whole - own[part.argument]
        return whole

    split = architecture.split
    if split is not None:
        added = architecture.parts_of("added", split)
        yield f"rest_L{split}", lambda: left(record.streams[split], (*added, *architecture.parts_of("stream", split)))
    for layer in sorted({p.layer for p in architecture.parts if p.of == "mlp"}):
        parts = architecture.parts_of("mlp", layer)
        yield f"rest_M{layer}", partial(left, record.mlps[f"L{layer}"], parts)


def _arrays(
    model: Model, w: Converted, own: Mapping[str, Array], tokens: npt.NDArray[np.int64], record: Record
) -> Arrays:
    dtype, architecture = w.dtype, model.architecture
    known: dict[str, Array] = {"ones": np.ones((tokens.shape[-1], 1), dtype), **own}
    known |= {f"A_{label}": pattern for label, pattern in record.patterns.items()}
    known |= {f"mlp_{label}": output for label, output in record.mlps.items()}
    scalars = {**model.score_scale, **model.multipliers}
    known |= {scalar_argument(name): np.asarray(value, dtype) for name, value in scalars.items()}
    if "W_pos" in w:
        known["P"] = w["W_pos"][: tokens.shape[-1]]

    def one_hot() -> Array:
        t = np.zeros((*tokens.shape, model.d_vocab), dtype)
        np.put_along_axis(t, tokens[..., None], 1, axis=-1)
        return t

    def product(left: str, right: str, turned: bool = False) -> Callable[[], Array]:
        return lambda: (transpose(w[left]) if turned else w[left]) @ w[right]

    def diagonal(scales: Array) -> Callable[[], Array]:
        return lambda: scales[..., None] * np.eye(scales.shape[-1], dtype=dtype)

    makers: dict[str, Callable[[], Array]] = {"t": one_hot, "X0": lambda: embedded(w, tokens)}
    makers |= dict(_rests(architecture, own, record))
    makers |= {f"D_{label}": diagonal(scales) for label, scales in record.norms.items()}
    makers |= {f"mask_{label}": partial(allowed.astype, dtype) for label, allowed in record.masks.items()}
    if architecture.norm == "LN":
        makers["C"] = lambda: np.eye(model.d_model, dtype=dtype) - dtype.type(1 / model.d_model)
    if architecture.positions == "rotary":
        n, queries = tokens.shape[-1], {str(head): model.weights[f"W_Q_{head}"] for head in architecture.all_heads}
        makers |= {f"R_{head}": _rotations(model, len(w_q), n, dtype) for head, w_q in queries.items()}
    for head in architecture.all_heads:
        shared = architecture.key_value(head)
        makers[f"W_OV_{head}"] = product(f"W_O_{head}", f"W_V_{shared}")
        makers[f"W_QK_{head}"] = product(f"W_Q_{head}", f"W_K_{shared}", turned=True)
    return Arrays(known, makers, w)
