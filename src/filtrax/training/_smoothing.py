"""The objective that smooths."""

import equinox as eqx
import jax
import jax.numpy as jnp

from filtrax._types import Scalar
from filtrax.losses import Loss, nll
from filtrax.smoothing import AbstractSmoother, smooth_trajectory
from filtrax.training.objectives import Objective, mean_loss


class Smoothing(eqx.Module):
    """Smooths, and averages a loss over labelled steps, as `smoothing` makes it."""

    loss: Loss
    smoother: AbstractSmoother | None = None
    endpoint: bool = eqx.field(default=False, static=True)

    def __call__(self, filt, model, trajectory, progress, key) -> Scalar:
        """The objective of one trajectory."""
        del progress
        found = smooth_trajectory(filt, model, trajectory, key=key, smoother=self.smoother)
        space = model.bind(trajectory.context).state_space
        if not self.endpoint:
            return mean_loss(self.loss, found.beliefs, trajectory, space)
        states, labels = trajectory.known_states()
        known = labels.any(-1)
        last = known.size - 1 - jnp.argmax(known[::-1])
        end = jax.tree.map(lambda leaf: leaf[last], (found.beliefs, states, labels))
        belief, state, labelled = end
        return jnp.where(known.any(), self.loss(belief, state, space, labelled), 0.0)


def smoothing(
    loss: Loss = nll, *, smoother: AbstractSmoother | None = None, endpoint: bool = False
) -> Objective:
    """The objective that smooths, and averages a loss of smoothed beliefs over labelled steps.

    **Arguments:**

    - `loss`: a loss of `filtrax.losses`.
    - `smoother`: in the place of the filter's own.
    - `endpoint`: whether only the last labelled step counts, and not the whole path.
    """
    return Smoothing(loss, smoother, endpoint)
