"""Attached readouts and sources, with their numbers: arguments, checks and attachment.

Their meaning for the algebra is described in :mod:`symcircuits.core.attachments`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from symcircuits.arrays.rings import Array
from symcircuits.core.architecture import FINAL, Architecture
from symcircuits.core.attachments import AT, OF, Part, Reading, check_name, label_at
from symcircuits.core.text import as_whole, setting, shown

__all__ = ["Attachment", "arrays_of", "attach", "check_attached", "readout", "source"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Attachment:
    """A readout or a source that :meth:`Model.with_` attaches; made by :func:`readout` and :func:`source`.

    ``kind`` is ``"readout"`` or ``"source"``; ``layer`` None: after the last layer; ``of``: what is read, or what the
    source is a part of; ``normed``: whether a readout reads the output of the norm there, or (``"final"``) of the final
    norm applied there (None: the model must have no norms).
    """

    kind: str
    name: str
    layer: int | None
    of: str
    array: Array
    normed: bool | str | None = None

    def __repr__(self) -> str:
        where = "after the last layer" if self.layer is None else f"layer {self.layer}"
        return f"<{self.kind} {self.name!r}: {self.of}, {where}, {list(self.array.shape)}>"

    def described(self, architecture: Architecture) -> Reading | Part:
        """Its description for an architecture; raises ValueError if norms make it unclear what is read."""
        at = architecture.n_layers if self.layer is None and self.kind == "readout" else self.layer
        layer: Any = at if as_whole(at) is None else as_whole(at)  # a value that is not a number raises later
        if self.kind == "source":
            return Part(self.name, layer, self.of)
        label = label_at(layer, self.of, architecture.n_layers, final=self.normed == FINAL)
        if not architecture.norm and self.normed:
            given = setting("normed", self.normed)
            raise ValueError(f"{self.name!r}: {given}, but the model has no norms; leave it out")
        if architecture.norm and self.normed is None:
            out, stands, final = (setting("normed", value) for value in (True, False, FINAL))
            raise ValueError(
                f"{self.name!r}: the model has norms, so say what is read: {out} (the output of the norm {label}) "
                f"or {stands} (the stream as it stands), or {final} (the final norm applied to it, as a logit lens "
                "does)"
            )
        return Reading(self.name, layer, self.of, label if self.normed else "")


def readout(
    vectors: Any,
    name: str = "probe",
    layer: int | None = None,
    *,
    normed: bool | Literal["final"] | None = None,
    at: str = "stream",
) -> Attachment:
    """A direction, or several, that read the stream in place of the unembedding: a probe, a feature, a neuron.

    ``Y probe^T`` with ``Y`` the stream at point ``layer``, before the blocks of that layer (None: after the last):
    without a norm (``normed=False``), after the norm there (``normed=True``: that of the layer's attention, at
    the end the final norm), or after the final norm applied there (``normed="final"``). A model with norms needs one of
    the three. ``at="mlp"``: Y is the input of the MLP of that layer, so a row of ``W_in`` (of an encoder) gives a
    neuron's (a feature's) pre-activation without its bias. ``vectors``: ``[d_model]`` or ``[k, d_model]``, of any
    length. The target is called ``readout:probe``.

    ``normed="final"`` with the rows of ``W_U`` is the logit lens:
    ``D X_l C diag(gain) W_U^T + 1 b_N^T W_U^T``, ``[n, d_vocab_out]``, with centring C (LN only), gain and b_N of
    the norm ``final``, and ``D[finalL1] = diag(1 / sigma)``, ``[n, n]``, held fixed, for the rows of ``X_1`` itself
    (sigma with the eps of the final norm). After the last layer it equals ``normed=True``. Directions are used as
    given: b_U, ``m_U`` and a soft cap of the logits are not part of a readout.

    Raises ValueError on an invalid name, array or layer; :meth:`Model.with_` checks whether it fits a model. Source:
    own derivation (a readout is linear, as the unembedding is); nostalgebraist 2020, "interpreting GPT: the logit
    lens".

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.values.evaluate import evaluate
    >>> from symcircuits.core.expansion import expand
    >>> from symcircuits.model import random_model
    >>> model = random_model(attention_only((1, 1)), d_model=4, seed=1).with_(readout([1.0, 0, 0, -1]))
    >>> run, terms = model.run([1, 2, 3]), expand(model, "readout:probe")
    >>> print(terms[1].text, run.readouts["probe"].shape)
    A[L0H0] @ X0 @ W_OV[L0H0].T @ probe.T (3, 1)
    >>> bool(np.allclose(evaluate(terms, run).total(), run.streams[2] @ [[1], [0], [0], [-1]]))
    True
    >>> model = random_model(attention_only((1, 1), norm="RMS"), d_model=4)
    >>> lens = readout(model.weights["W_U"], "lens", layer=1, normed="final")
    >>> print(expand(model.with_(lens).architecture, "readout:lens")[1].text)
    D[finalL1] @ A[L0H0] @ D[L0] @ X0 @ gain[L0] @ W_OV[L0H0].T @ gain[final] @ lens.T
    """
    check_name(name)
    if at not in AT:
        raise ValueError(f'{name!r}: a readout reads at "stream" or "mlp", not {shown(at)}')
    if normed is not None and not isinstance(normed, bool) and not (isinstance(normed, str) and normed == FINAL):
        raise ValueError(f'{name!r}: normed must be True or False, or "final", not {shown(normed)}')
    if at == "mlp" and layer is None:
        raise ValueError(f"{name!r}: give the layer of the MLP: layer=0, ...")
    array = _numbers(name, vectors)
    if array.ndim not in (1, 2):
        raise ValueError(f"{name!r}: directions have shape [d_model] or [k, d_model], not {list(array.shape)}")
    return Attachment("readout", name, layer, at, np.atleast_2d(array), normed=normed)


def source(name: str, array: Any, layer: int, *, of: str = "stream", activations: Any = None) -> Attachment:
    """A part of a model set apart as a source of its own, where paths begin: an SAE feature, a steering vector.

    ``array``: a row for each token, ``[n, d_model]`` or ``[batch, n, d_model]``; or one direction ``[d_model]``
    (``[1, d_model]``), the same for every token, or times ``activations`` ``[n]`` or ``[batch, n]``. ``of`` says what
    it is a part of:

    - ``of="stream"``: the stream at point ``layer``, before the blocks of that layer. There
      ``X_l = sum of the sources + rest``, and everything before is cut off: paths begin at the sources and at
      ``rest[L1]``.
    - ``of="mlp"``: the output of the MLP of that layer, ``mlp = sum of the sources + rest``; ``rest[M1]`` replaces
      ``mlp[L1]``.
    - ``of="added"``: nothing: it is added to the stream at point ``layer``, and the model is run with it. At a point
      where the stream is also split, it is added after the split, as one more source.

    Raises ValueError on an invalid name, array, layer or ``of``; :meth:`Model.with_` and :meth:`Model.run` check
    whether it fits a model and tokens. Source: own derivation; for ``"stream"`` features and error as in attribution
    graphs (Ameisen et al. 2025, "Circuit Tracing").

    >>> from symcircuits.core.architecture import attention_only
    >>> from symcircuits.core.expansion import logits
    >>> from symcircuits.model import random_model
    >>> row = source("feature 12", [1.0, 0, 2, 0], 1, activations=[0.0, 3.0, 0.5])
    >>> model = random_model(attention_only((1, 2)), d_model=4).with_(row)
    >>> for term in logits(model).head(3):
    ...     print(term.label, "|", term.text)
    feature 12 | "feature 12" @ W_U.T
    rest[L1] | rest[L1] @ W_U.T
    feature 12 -> L1H0 | A[L1H0] @ "feature 12" @ W_OV[L1H0].T @ W_U.T
    """
    check_name(name)
    if of not in OF:
        raise ValueError(f'{name!r}: of must be "stream", "mlp" or "added", not {shown(of)}')
    rows = _numbers(name, array)
    if activations is not None:
        times = _numbers(name, activations, "activations")
        if rows.ndim != 1 or times.ndim not in (1, 2):
            raise ValueError(
                f"{name!r}: activations [n] or [batch, n] go with one direction [d_model], not {list(times.shape)} "
                f"with {list(rows.shape)}"
            )
        with np.errstate(over="ignore"):  # raises below
            rows = times[..., None] * rows
        if not np.isfinite(rows).all():
            raise ValueError(f"{name!r}: activations times the direction leave the range of float64")
    if rows.ndim not in (1, 2, 3):
        raise ValueError(
            f"{name!r}: a source is [d_model], [n, d_model] or [batch, n, d_model], not {list(rows.shape)}"
        )
    return Attachment("source", name, layer, of, np.atleast_2d(rows))


def _numbers(name: str, given: Any, what: str = "the array") -> Array:
    """An array of finite real numbers, copied, in float64."""
    try:
        array = np.asarray(given)
    except ValueError as fault:
        raise ValueError(f"{name!r}: {what} is not an array: {fault}") from None
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name!r}: {what} must hold real numbers, not {array.dtype}")
    if not array.size:
        raise ValueError(f"{name!r}: {what} is empty: its shape is {list(array.shape)}")
    array = np.array(array, dtype=np.float64)
    bad = ~np.isfinite(array)
    if bad.any():
        place = [int(i) for i in np.argwhere(bad)[0]]
        raise ValueError(f"{name!r}: {what} holds {array[tuple(place)]} at {place}; it must be finite")
    return array


def attach(
    architecture: Architecture, arrays: Mapping[str, Array], found: Iterable[Any]
) -> tuple[Architecture, dict[str, Array]]:
    """The architecture with the attachments, and the arrays by name."""
    listed = list(found)
    for one in listed:
        if not isinstance(one, Attachment):
            raise TypeError(f"with_ takes readouts and sources (see symcircuits.readout and source), not {shown(one)}")
    described = architecture.attached(*(one.described(architecture) for one in listed))
    return described, {**arrays, **{one.name: one.array for one in listed}}


def check_attached(architecture: Architecture, arrays: Mapping[str, Any], d_model: int) -> Mapping[str, Array]:
    """The arrays of the readouts and sources of an architecture, checked; ValueError names the faulty one."""
    wanted = [one.name for one in architecture.attachments]
    if set(wanted) != set(arrays):
        odd = sorted(set(wanted) ^ set(arrays))
        raise ValueError(f"the readouts and sources of the architecture and their arrays differ: {', '.join(odd)}")
    readings, found = {r.name for r in architecture.readings}, {}
    for name in wanted:
        array = _numbers(name, arrays[name])
        axes = (2,) if name in readings else (2, 3)
        if array.ndim not in axes or array.shape[-1] != d_model:
            shown = f"[k, {d_model}]" if name in readings else f"[n, {d_model}] or [batch, n, {d_model}]"
            raise ValueError(f"{name!r} must have shape {shown} in this model, not {list(array.shape)}")
        array.flags.writeable = False
        found[name] = array
    return MappingProxyType(found)


def arrays_of(
    architecture: Architecture, arrays: Mapping[str, Array], shape: tuple[int, ...], dtype: Any
) -> dict[str, Array]:
    """All arrays by argument name: readouts ``[k, d_model]``, sources ``[*shape, d_model]`` for tokens of that shape.

    Raises ValueError if a source is not for such tokens.
    """
    found = {r.argument: arrays[r.name].astype(dtype) for r in architecture.readings}
    for part in architecture.parts:
        array = arrays[part.name].astype(dtype)
        rows = array.shape[:-1]
        if rows != (1,) and rows != shape[-len(rows) :]:
            raise ValueError(
                f"the source {part.name!r} has rows for tokens {list(rows)}, but the tokens are {list(shape)}: it "
                "belongs to the tokens of one run"
            )
        found[part.argument] = np.broadcast_to(array, (*shape, array.shape[-1]))
    return found
