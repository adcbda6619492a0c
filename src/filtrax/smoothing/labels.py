"""Labels for recordings without ground truth: what the smoother says of them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from filtrax._given import unwrap
from filtrax._types import Key
from filtrax.filters.base import AbstractFilter
from filtrax.smoothing._smooth import smooth_trajectory
from filtrax.smoothing.base import AbstractSmoother
from filtrax.state_space import StateSpaceModel
from filtrax.trajectory import Trajectory


@eqx.filter_jit
def self_label(
    filt: AbstractFilter,
    model: StateSpaceModel,
    data: Trajectory,
    *,
    smoother: AbstractSmoother | None = None,
    largest_std: float | jax.Array | None = None,
    key: Key | None = None,
) -> Trajectory:
    """Labels recordings with the means of smoothed beliefs, for an online filter to train on.

    A smoother knows what came later, and so more than a filter ever does; a filter trained on its
    labels learns some of that. True states that are known stay as they are.

    **Arguments:**

    - `data`: a trajectory, or several with a leading axis.
    - `largest_std`: components with a larger smoothed standard deviation are not labelled: one
      number, or one for each component. None: all are.
    - `key`: for filters and smoothers that draw.

    **Returns:** the data with `states` and `labelled`.
    """

    def of_sequence(trajectory: Trajectory, key: Key | None) -> Trajectory:
        found = smooth_trajectory(filt, model, trajectory, smoother=smoother, key=key)
        space = unwrap(model).bind(trajectory.context).state_space
        moments = jax.vmap(lambda belief: belief.moments(space))(found.beliefs)
        states, labels = moments.mean, jnp.ones(moments.mean.shape, bool)
        if largest_std is not None:
            std = jnp.sqrt(jnp.diagonal(moments.covariance, axis1=-2, axis2=-1))
            labels = std <= jnp.broadcast_to(jnp.asarray(largest_std, std.dtype), std.shape)
        labels &= found.info.finite[:, None]
        if trajectory.states is not None:
            known, mask = trajectory.known_states()
            states, labels = jnp.where(mask, known, states), labels | mask
        return dataclasses.replace(trajectory, states=states, labelled=labels)

    if data.initial.ndim == 1:
        return of_sequence(data, key)
    keys = None if key is None else jr.split(key, len(data.initial))
    return jax.vmap(of_sequence)(data, keys)
