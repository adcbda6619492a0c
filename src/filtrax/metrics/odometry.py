"""Errors at the end of a path."""

from typing import Any

import numpy as np
from jaxtyping import Float


def end_errors(
    initial: Any, states: Any, differences: Any
) -> tuple[Float[np.ndarray, "*b n"], Float[np.ndarray, "*b n"]]:
    """Errors of position and heading after the last step, divided by the length of the path.

    ‖p_T - p̂_T‖/L and |θ_T - θ̂_T|/L with L = Σ ‖p_t - p_{t-1}‖ from the initial position on, as
    Kloss et al. (2021) report them in m/m and deg/m for KITTI. They have no meaning where nothing
    moves: NaN.

    **Arguments:**

    - `initial`, `states`: the true states of n sequences, before the first step and after each. The
      first two components are the position, the third is the heading.
    - `differences`: of true and estimated states, angles the short way round; any axes may come
      before those of `states`.
    """
    initial, states, ends = (np.asarray(part, float) for part in (initial, states, differences))
    path = np.concatenate([initial[:, None, :2], states[..., :2]], 1)
    length = np.linalg.norm(np.diff(path, axis=1), axis=-1).sum(-1)
    length = np.where(length > 0, length, np.nan)
    ends = ends[..., -1, :]
    return np.linalg.norm(ends[..., :2], axis=-1) / length, np.abs(ends[..., 2]) / length
