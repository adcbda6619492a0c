"""Smoothing with readings of a few later steps only."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from filtrax._checks import check_whole
from filtrax._types import Key, State
from filtrax.beliefs import Gaussian
from filtrax.filters.links import Link
from filtrax.smoothing.base import AbstractSmoother, Sequence, Smoothed
from filtrax.smoothing.gaussian import Linked, RauchTungStriebel, smoothed_of
from filtrax.state_space import StateSpaceModel


class FixedLag(AbstractSmoother[Gaussian]):
    """The belief about each state given the readings up to a number of steps later.

    That is what `online` with the same `lag` returns, for a recording: it tells which lag is worth
    waiting for. A lag as long as the sequence makes it the Rauch-Tung-Striebel smoother.

    **Attributes:**

    - `lag`: the number of later steps.
    """

    lag: int = eqx.field(static=True)

    def __check_init__(self):
        check_whole("lag", self.lag, 0)

    def forward(
        self,
        filt: Any,
        model: StateSpaceModel,
        prior: Gaussian,
        sequence: Sequence,
        *,
        key: Key | None,
        recompute: bool | None,
    ) -> Linked:
        steps = len(sequence.measurements.value)
        if self.lag > steps:
            raise ValueError(
                f"`lag` must be at most the {steps} steps of the sequence, got {self.lag}: use "
                "`RauchTungStriebel()` to smooth with all readings."
            )
        smoother = RauchTungStriebel()
        return smoother.forward(filt, model, prior, sequence, key=key, recompute=recompute)

    def smooth(
        self, filt: Any, model: StateSpaceModel, sequence: Sequence, passed: Any, *, key: Key | None
    ) -> Smoothed[Gaussian]:
        del filt, sequence, key
        count, size = passed.links.shift.shape
        dtype = passed.links.shift.dtype
        nothing = Link(
            jnp.zeros((self.lag + 1, size), dtype),
            jnp.broadcast_to(jnp.eye(size, dtype=dtype), (self.lag + 1, size, size)),
            jnp.zeros((self.lag + 1, size, size), dtype),
        )
        # Behind the last step, nothing happens: links that leave coordinates as they are.
        links = jax.tree.map(lambda *parts: jnp.concatenate(parts), passed.links, nothing)
        last = Gaussian.of_factor(
            jnp.zeros((count + 1, size), dtype),
            jnp.broadcast_to(jnp.eye(size, dtype=dtype), (count + 1, size, size)),
        )

        def step(later, offset):
            slices = jax.tree.map(
                lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, offset, count + 1), links
            )
            return jax.vmap(Link.back)(slices, later), None

        white, _ = jax.lax.scan(step, last, jnp.arange(self.lag), reverse=True)
        first, later = (jax.tree.map(lambda leaf, s=s: leaf[s], white) for s in (0, slice(1, None)))
        return smoothed_of(passed, first, later, model.state_space)

    def draw(
        self, filt: Any, model: StateSpaceModel, sequence: Sequence, passed: Any, *, key: Key
    ) -> tuple[State, Float[Array, "t x"]]:
        del filt, model, sequence, passed, key
        raise TypeError(
            "`FixedLag` has no trajectories: its beliefs about two states come from different "
            "readings. Draw them with `RauchTungStriebel()`."
        )
