"""Values that tests draw: angles that sit on seams, spaces, covariances of any rank and scale."""

import math

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

PERIODS = (2 * math.pi, 360.0, 1.0, 24.0, 0.7)


def periods():
    return st.one_of(st.sampled_from(PERIODS), st.floats(0.1, 1e3))


@st.composite
def angles(draw, period, *, turns=100):
    """An angle up to many turns away from zero, often within rounding of a seam."""
    halves = draw(st.integers(-2 * turns, 2 * turns)) * period / 2
    offset = draw(
        st.one_of(
            st.sampled_from([0.0, 1e-15, -1e-15, 1e-7, -1e-7]),
            st.floats(-0.5, 0.5, allow_subnormal=False),
        )
    )
    nudged = halves + offset * period
    return draw(st.sampled_from([nudged, np.nextafter(nudged, np.inf), np.nextafter(nudged, 0.0)]))


@st.composite
def space_arguments(draw, size=3):
    """What a space of `size` components is made from; each is an angle, bounded, or neither.

    The type checker draws random numbers, which hypothesis does not allow while it draws, so the
    space itself is made in the test.
    """
    names = [f"c{i}" for i in range(size)]
    circular, bounds = {}, {}
    for name in names:
        kind = draw(st.sampled_from(["angle", "bounded", "free"]))
        if kind == "angle":
            circular[name] = draw(periods())
        if kind == "bounded":
            lower = draw(st.floats(-10, 10, width=32, allow_subnormal=False))
            bounds[name] = (lower, lower + draw(st.floats(0.1, 10)))
    return {"names": names, "angles": circular, "bounds": bounds}


@st.composite
def vectors_in(draw, space):
    """A vector whose angles may be anywhere and whose other components are moderate."""
    entries = [
        draw(st.floats(-30, 30, allow_subnormal=False)) if period is None else draw(angles(period))
        for period in space.periods
    ]
    return np.asarray(entries)


def arrays(shape, lower=-3.0, upper=3.0):
    return hnp.arrays(np.float64, shape, elements=st.floats(lower, upper, allow_subnormal=False))


@st.composite
def covariances(draw, size, *, singular=True):
    """G Gᵀ between scales of 1e-4 and 1e4; with `singular`, of any rank and with zero rows."""
    factor = draw(arrays((size, size)))
    scale = 10.0 ** draw(arrays(size, -2.0, 2.0))
    if singular:
        rank = draw(st.integers(0, size))
        factor[:, rank:] = 0.0
        factor[draw(hnp.arrays(bool, size)), :] = 0.0
    else:
        factor = factor + 4.0 * size * np.eye(size)
    factor = scale[:, None] * factor
    return factor @ factor.T


def log_weights(count):
    """Normalized log weights; some may be zero, never all."""

    def normalize(weights):
        weights = weights.copy()
        weights[0] += 1e-3
        with np.errstate(divide="ignore"):
            return np.log(weights / weights.sum())

    return arrays(count, 0.0, 1.0).map(normalize)
