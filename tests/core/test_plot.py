"""Data that pictures show, against numbers that are computed here in another way.

They are read back from the Axes. No test says how a picture looks.
"""

import builtins
import subprocess
import sys

import jax
import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy import stats

import filtrax
from filtrax import Gaussian, GaussianMixture, Info, Particles, RecurrentBelief, Space, plot
from filtrax.spaces import AbstractSpace

SPACE = Space(("x", "y", "heading"), angles={"heading": 360.0})
STEPS = 12
RNG = np.random.default_rng(0)


def random_covariances(*shape):
    factors = RNG.normal(size=(*shape, 3, 3))
    return factors @ np.swapaxes(factors, -1, -2) + 0.5 * np.eye(3)


MEANS = RNG.normal(loc=[3.0, -5.0, 20.0], scale=2.0, size=(STEPS, 3))
COVARIANCES = random_covariances(STEPS)
STATES = MEANS + RNG.normal(size=(STEPS, 3))
BELIEFS = Gaussian(MEANS, COVARIANCES)
BY_COMPONENT = RNG.random((STEPS, 3)) < 0.6
HIDDEN = np.where(BY_COMPONENT, STATES, np.nan)


@pytest.fixture(autouse=True)
def no_window():
    mpl.use("agg")
    yield
    plt.close("all")


def lines_of(ax, label):
    return [line for line in ax.lines if line.get_label() == label]


def line_of(ax, label):
    (line,) = lines_of(ax, label)
    return np.stack([np.asarray(part, float) for part in line.get_data()], -1)


def band_of(collection, at):
    """The ends of a filled band at a place, from its outline."""
    points = np.concatenate([path.vertices for path in collection.get_paths()])
    heights = points[np.isclose(points[:, 0], at), 1]
    return heights.min(), heights.max()


def numbers_of(legend):
    return [text.get_text() for text in legend.get_texts()]


def test_running_a_filter_imports_nothing_that_draws_or_prints():
    # Rejects an import at the top of a module, which costs every program half a second.
    program = """
import sys
import filtrax
from filtrax import plot, poses

line = filtrax.Space(("x",))
noise = filtrax.constant_noise([1.0])
model = filtrax.StateSpaceModel(
    state_space=line,
    observation_space=line,
    process=lambda state, inputs: state,
    process_noise=noise,
    observe=lambda state, inputs: state,
    sensor=filtrax.DirectSensor(noise),
)
prior = filtrax.Gaussian([0.0], [[1.0]])
result = filtrax.run(filtrax.ExtendedKalmanFilter(), model, prior, [[1.0], [2.0]])
assert result.beliefs.mean.shape == (2, 1) and plot.track and poses.write_tum
heavy = {"matplotlib", "rerun", "typer", "rich", "PIL", "filtrax.lab", "filtrax.cli"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_no_function_shadows_its_module():
    # Rejects `plot/track.py`, which `import filtrax.plot.track` would no longer reach.
    for name in plot.__all__:
        assert f"filtrax.plot.{name}" not in sys.modules
        assert callable(getattr(plot, name))


def test_everything_takes_and_returns_axes():
    # Rejects a function that draws on a figure of its own whatever it is given.
    ax = plt.figure().subplots()
    info = random_info(40)
    belief = Particles.uniform(jnp.asarray(MEANS), jnp.eye(3))
    assert plot.track(BELIEFS, SPACE, ax=ax) is ax
    assert plot.particles(belief, SPACE, ax=ax) is ax
    assert plot.nees(BELIEFS, STATES, SPACE, ax=ax) is ax
    assert plot.nis(info, ax=ax) is ax
    assert plot.coverage(BELIEFS, STATES, SPACE, probabilities=(0.5,), ax=ax) is ax
    assert plot.whiteness(info, ax=ax) is ax
    assert plot.learning_curves([1.0, 2.0], ax=ax) is ax
    rows = plt.figure().subplots(3)
    assert list(plot.states(BELIEFS, SPACE, axes=rows)) == list(rows)
    assert list(plot.errors(BELIEFS, STATES, SPACE, axes=list(rows))) == list(rows)
    assert len(plt.get_fignums()) == 2
    assert plot.track(BELIEFS, SPACE).figure is not ax.figure


def test_what_is_no_axes_is_refused():
    # Rejects an error from deep inside of matplotlib.
    with pytest.raises(TypeError, match=r"`ax` must be matplotlib Axes, .* got a Figure"):
        plot.track(BELIEFS, SPACE, ax=plt.figure())
    with pytest.raises(ValueError, match="one Axes for each of 3 components, got 2"):
        plot.states(BELIEFS, SPACE, axes=plt.figure().subplots(2))


def test_ellipses_have_the_axes_of_the_covariance():
    # Rejects radii for diameters, one dimension's quantile for two dimensions', the smaller axis in
    # the direction of the larger one, and rows of the covariance without its columns.
    ax = plot.track(BELIEFS, SPACE, components=("heading", "x"), every=5, probability=0.8)
    assert len(ax.patches) == 3
    for patch, t in zip(ax.patches, (0, 5, 10), strict=True):
        covariance = COVARIANCES[t][np.ix_([2, 0], [2, 0])]
        np.testing.assert_allclose(patch.center, MEANS[t, [2, 0]])
        # The points of a circle, as the patch is drawn, have one Mahalanobis distance.
        circle = patch.get_patch_transform().transform(
            [(np.cos(a), np.sin(a)) for a in np.linspace(0, 6, 7)]
        )
        offsets = circle - MEANS[t, [2, 0]]
        squares = np.einsum("ni,ij,nj->n", offsets, np.linalg.inv(covariance), offsets)
        np.testing.assert_allclose(squares, stats.chi2.ppf(0.8, 2), rtol=1e-9)
        lengths = np.sort(np.sqrt(np.linalg.eigvalsh(covariance) * stats.chi2.ppf(0.8, 2)))
        np.testing.assert_allclose(np.sort([patch.width, patch.height]), 2 * lengths)


def test_a_track_shows_means_truth_and_readings_without_what_is_missing():
    # Rejects zeros in the place of what is not labelled or not observed.
    readings = RNG.normal(size=(STEPS, 2))
    observed = np.arange(STEPS) % 3 > 0
    readings[~observed] = np.nan
    ax = plot.track(
        BELIEFS, SPACE, states=HIDDEN, labelled=BY_COMPONENT, readings=readings, observed=observed
    )
    np.testing.assert_allclose(line_of(ax, "estimate"), MEANS[:, :2])
    np.testing.assert_array_equal(line_of(ax, "truth"), HIDDEN[:, :2])
    np.testing.assert_array_equal(line_of(ax, "readings"), readings)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y")
    assert ax.get_aspect() == 1


def test_a_track_has_about_twenty_ellipses_by_default():
    # Rejects an ellipse at each step of a long sequence, which hides the track.
    many = jax.tree.map(lambda leaf: jnp.tile(leaf, (20,) + (1,) * (leaf.ndim - 1)), BELIEFS)
    assert len(plot.track(many, SPACE).patches) == 20
    assert len(plot.track(BELIEFS, SPACE).patches) == STEPS


def beliefs_of_all_kinds():
    states = jnp.asarray(MEANS[:, None] + RNG.normal(size=(STEPS, 6, 3)))
    weights = RNG.dirichlet(np.ones(6), STEPS)
    kernel, factors = jnp.broadcast_to(jnp.eye(3), (STEPS, 3, 3)), random_covariances(STEPS, 6)
    log_weights = jnp.asarray(np.log(weights))
    particles = Particles(states, log_weights, jnp.zeros(STEPS, int), kernel)
    mixture = GaussianMixture(Gaussian(states, factors), log_weights)
    recurrent = RecurrentBelief(BELIEFS, ((jnp.zeros((STEPS, 2)),) * 2,), jnp.zeros((STEPS, 4)))
    mean = np.einsum("tn,tnx->tx", weights, states)
    offsets = states - mean[:, None]
    spread = np.einsum("tn,tnx,tny->txy", weights, offsets, offsets)
    within = np.einsum("tn,tnxy->txy", weights, factors)
    return [
        (particles, mean, spread),
        (mixture, mean, spread + within),
        (recurrent, MEANS, COVARIANCES),
    ]


@pytest.mark.parametrize("kind", range(3))
def test_beliefs_of_all_kinds_are_drawn_by_their_moments(kind):
    # Rejects the spread between the parts of a mixture alone, and means without weights.
    beliefs, mean, covariance = beliefs_of_all_kinds()[kind]
    ax = plot.track(beliefs, SPACE, every=1)
    np.testing.assert_allclose(line_of(ax, "estimate"), mean[:, :2], atol=1e-9)
    lengths = np.sqrt(np.linalg.eigvalsh(covariance[4, :2, :2]) * stats.chi2.ppf(0.95, 2))
    patch = ax.patches[4]
    np.testing.assert_allclose(np.sort([patch.width, patch.height]), 2 * lengths, rtol=1e-6)
    axes = plot.states(beliefs, SPACE)
    half = stats.norm.ppf(0.975) * np.sqrt(covariance[4, 1, 1])
    ends = band_of(axes[1].collections[0], 4)
    np.testing.assert_allclose(ends, (mean[4, 1] - half, mean[4, 1] + half), rtol=1e-6)


def test_states_have_bands_of_the_probability_and_names_of_the_space():
    # Rejects a band of one or two standard deviations, whatever the probability.
    times = 0.1 * np.arange(STEPS)
    axes = plot.states(
        BELIEFS,
        SPACE,
        states=HIDDEN,
        labelled=BY_COMPONENT,
        components=("y", "x"),
        times=times,
        probability=0.5,
    )
    assert [ax.get_ylabel() for ax in axes] == ["y", "x"]
    assert axes[-1].get_xlabel() == "time"
    assert "50 % interval" in numbers_of(axes[0].get_legend())
    for ax, j in zip(axes, (1, 0), strict=True):
        np.testing.assert_allclose(line_of(ax, "estimate"), np.stack([times, MEANS[:, j]], -1))
        np.testing.assert_array_equal(line_of(ax, "truth")[:, 1], HIDDEN[:, j])
        for t in range(STEPS):
            band = stats.norm(MEANS[t, j], np.sqrt(COVARIANCES[t, j, j])).interval(0.5)
            np.testing.assert_allclose(band_of(ax.collections[0], times[t]), band)


def going_round(period):
    angles = np.linspace(0.0, 2.6 * period, 60)
    wrapped = (angles + period / 2) % period - period / 2
    space = Space(("angle",), angles={"angle": period})
    std = np.full(60, 0.1 * period)
    return space, Gaussian(wrapped[:, None], std[:, None, None] ** 2), wrapped, std


@pytest.mark.parametrize("period", [360.0, 2 * np.pi])
def test_an_angle_goes_round_without_a_jump(period):
    # Rejects lines across the whole picture where an angle wraps, gaps at the edges, and bands that
    # end at the edge in place of going on at the other one.
    space, beliefs, wrapped, std = going_round(period)
    (ax,) = plot.states(beliefs, space, states=wrapped[:, None])
    np.testing.assert_allclose(ax.get_ylim(), (-period / 2, period / 2))
    inside = np.zeros(60, bool)
    for line in ax.lines:
        heights = np.asarray(line.get_ydata(), float)
        assert np.nanmax(np.abs(np.diff(heights)), initial=0) < period / 20
        if line.get_linestyle() == "-":
            agree = np.isclose(heights, wrapped)
            assert (agree | np.isnan(heights) | (np.abs(heights) > period / 2)).all()
            inside |= agree
            edges = heights[np.isfinite(heights)][[0, -1]]
            assert edges[0] <= -period / 2 or np.isclose(edges[0], 0)
            assert edges[1] >= period / 2 or np.isclose(edges[1], wrapped[-1])
    assert inside.all()
    half = stats.norm.ppf(0.975) * std[0]
    covered = [
        {t for t in range(60) if any(contains(band, t, height) for band in ax.collections)}
        for height in (-0.45 * period, 0.0, 0.45 * period)
    ]
    for height, steps in zip((-0.45 * period, 0.0, 0.45 * period), covered, strict=True):
        distance = np.abs((wrapped - height + period / 2) % period - period / 2)
        assert steps == set(np.flatnonzero(distance < half))


def contains(collection, x, y):
    return any(
        path.contains_point((x + 1e-9, y), radius=0.0)
        or path.contains_point((x - 1e-9, y), radius=0.0)
        for path in collection.get_paths()
    )


def test_an_angle_that_does_not_go_round_is_drawn_at_its_own_scale():
    # Rejects the whole circle for a few degrees.
    axes = plot.states(BELIEFS, SPACE)
    assert np.ptp(axes[2].get_ylim()) < 60
    assert len(axes[2].collections) == 1


def test_a_band_wider_than_half_a_turn_is_the_whole_circle():
    # Rejects a copy of the band for each of its many turns.
    space = Space(("angle",), angles={"angle": 360.0})
    beliefs = Gaussian(np.zeros((3, 1)), np.full((3, 1, 1), 1000.0**2))
    (ax,) = plot.states(beliefs, space)
    assert ax.get_ylim() == (-180, 180)
    assert len(ax.collections) <= 3
    assert min(band_of(part, 1)[0] for part in ax.collections) <= -180


def test_a_known_state_among_unknown_ones_is_seen():
    # Rejects a line alone: a single point of it has no length.
    labelled = np.zeros(STEPS, bool)
    labelled[4] = True
    ax = plot.states(BELIEFS, SPACE, states=STATES, labelled=labelled)[0]
    (line,) = lines_of(ax, "truth")
    assert line.get_marker() == "."
    assert np.flatnonzero(np.isfinite(line.get_ydata())).tolist() == [4]


def test_errors_go_the_short_way_round():
    # Rejects a plain difference, which would be 358 degrees.
    means, states = np.tile([0.0, 1.0, 179.0], (5, 1)), np.tile([2.0, 1.0, -179.0], (5, 1))
    axes = plot.errors(Gaussian(means, np.tile(np.eye(3), (5, 1, 1))), states, SPACE)
    for ax, error in zip(axes, (2.0, 0.0, 2.0), strict=True):
        np.testing.assert_allclose(line_of(ax, "error")[:, 1], error, atol=1e-9)
        ends = band_of(ax.collections[0], 2)
        np.testing.assert_allclose(ends, stats.norm.interval(0.95))


class Elsewhere(AbstractSpace):
    """A space of somebody else, which only it knows how to subtract in."""

    size, tangent_size = 3, 3

    def names_of(self, size):
        return ("a", "b", "c")

    def difference(self, a, b):
        return 10 * (a - b)

    def add(self, point, tangent):
        return point + tangent / 10

    def wrap(self, vector):
        return vector

    def inside(self, vector):
        return vector

    def continued(self, function, vector):
        return function(vector)

    def mean(self, points, weights, reference=None):
        return weights @ points


def test_errors_are_differences_of_the_space():
    # Rejects a subtraction outside of the space, which `Space` alone would not show: what is drawn
    # of its angles is wrapped anyway.
    axes = plot.errors(BELIEFS, STATES, Elsewhere())
    for j, ax in enumerate(axes):
        expected = 10 * (STATES - MEANS)[:, j]
        np.testing.assert_allclose(line_of(ax, "error")[:, 1], expected)
    assert [ax.get_ylabel() for ax in axes] == ["error of a", "error of b", "error of c"]


def square_lengths(errors, covariances, mask):
    values = []
    for error, covariance, seen in zip(errors, covariances, mask, strict=True):
        block = covariance[np.ix_(seen, seen)]
        values.append(error[seen] @ np.linalg.solve(block, error[seen]) if seen.any() else np.nan)
    return np.array(values)


def step_band_of(collection, step):
    points = np.concatenate([path.vertices for path in collection.get_paths()])
    heights = points[np.abs(points[:, 0] - step) < 0.4, 1]
    if not heights.size:  # a column of a band of steps has corners at both ends only
        heights = points[np.abs(points[:, 0] - step) <= 0.5, 1]
    return heights.min(), heights.max()


def average_band(ax):
    (span,) = ax.patches
    return span.get_y(), span.get_y() + span.get_height()


def test_nees_has_the_bands_of_as_many_degrees_as_labels():
    # Rejects the degrees of the whole state, and steps without labels that count as zero.
    labels = np.zeros((STEPS, 3), bool)
    labels[: STEPS // 2] = True
    labels[STEPS // 2 : -2, 0] = True
    ax = plot.nees(BELIEFS, STATES, SPACE, labelled=labels, probability=0.9)
    values = square_lengths(STATES - MEANS, COVARIANCES, labels)
    (line,) = [line for line in ax.lines if line.get_label().startswith("NEES")]
    np.testing.assert_allclose(line.get_ydata(), values, rtol=1e-9)
    band = ax.collections[0]
    for step, degrees in ((2, 3), (STEPS // 2 + 2, 1)):
        np.testing.assert_allclose(step_band_of(band, step), stats.chi2(degrees).interval(0.9))
    total, count = labels.sum(), labels.any(-1).sum()
    ends = np.array(stats.chi2(total).interval(0.9)) / count
    np.testing.assert_allclose(average_band(ax), ends)
    assert f"average {np.nanmean(values):.3g}" in numbers_of(ax.get_legend())
    inside = [
        stats.chi2(n).interval(0.9)[0] <= v <= stats.chi2(n).interval(0.9)[1]
        for v, n in zip(values, labels.sum(-1), strict=True)
        if n
    ]
    assert f"NEES, {100 * np.mean(inside):.0f} % inside" in numbers_of(ax.get_legend())


def test_nees_of_several_sequences_is_their_mean_with_a_narrower_band():
    # Rejects the band of a single sequence, and sequences without a label that count as zero.
    covariances = random_covariances(7, STEPS)
    errors = RNG.normal(size=(7, STEPS, 3))
    labelled = np.ones((7, STEPS), bool)
    labelled[2:, 3] = False
    ax = plot.nees(Gaussian(errors * 0, covariances), errors, SPACE, labelled=labelled)
    values = np.einsum("bti,btij,btj->bt", errors, np.linalg.inv(covariances), errors)
    (line,) = [line for line in ax.lines if line.get_label().startswith("NEES")]
    expected = np.where(labelled, values, 0).sum(0) / labelled.sum(0)
    np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-9)
    band = ax.collections[0]
    np.testing.assert_allclose(step_band_of(band, 6), np.array(stats.chi2(21).interval(0.95)) / 7)
    np.testing.assert_allclose(step_band_of(band, 3), np.array(stats.chi2(6).interval(0.95)) / 2)


def random_info(count, size=2, mask=None):
    factors = RNG.normal(size=(count, size, size)) + 2 * np.eye(size)
    covariances = factors @ np.swapaxes(factors, -1, -2)
    innovations = np.einsum("tij,tj->ti", factors, RNG.normal(size=(count, size)))
    if mask is not None:
        innovations = np.where(mask, innovations, 0.0)
        both = mask[:, :, None] & mask[:, None]
        covariances = np.where(both, covariances, np.eye(size))
    return Info(
        finite=jnp.ones(count, bool),
        innovation=jnp.asarray(innovations),
        innovation_covariance=jnp.asarray(covariances),
    )


@pytest.mark.parametrize("given", [False, True])
def test_nis_has_the_bands_of_as_many_degrees_as_readings(given):
    # Rejects a unit variance that counts as a reading, and steps without readings that count as 0.
    mask = np.ones((40, 2), bool)
    mask[10:20, 1] = False
    mask[30:] = False
    info = random_info(40, mask=mask)
    ax = plot.nis(info, observed=mask if given else None)
    values = square_lengths(info.innovation, info.innovation_covariance, mask)
    (line,) = [line for line in ax.lines if line.get_label().startswith("NIS")]
    np.testing.assert_allclose(line.get_ydata(), values, rtol=1e-9)
    for step, degrees in ((5, 2), (15, 1)):
        found = step_band_of(ax.collections[0], step)
        np.testing.assert_allclose(found, stats.chi2(degrees).interval(0.95))
    ends = np.array(stats.chi2(mask.sum()).interval(0.95)) / 30
    np.testing.assert_allclose(average_band(ax), ends)


def slow(state, inputs):
    return 0.9 * state


def quick(state, inputs):
    return 0.2 * state


CHANCES = filtrax.Transitions([[0.9, 0.1], [0.3, 0.7]])
MODES = (filtrax.Mode(), filtrax.Mode(process=quick))
FILTERS = {
    "EKF": (filtrax.ExtendedKalmanFilter(), slow),
    "UKF": (filtrax.UnscentedKalmanFilter(), slow),
    "MCUKF": (filtrax.MonteCarloUnscentedKalmanFilter(), slow),
    "IMM": (filtrax.IMMFilter(), filtrax.SwitchingProcess(slow, MODES, CHANCES)),
}


@pytest.mark.parametrize("name", FILTERS)
def test_what_was_observed_follows_from_what_filters_say(name, key):
    # Rejects the guess where a filter says something else of components that it did not see.
    filt, process = FILTERS[name]
    model = filtrax.StateSpaceModel(
        process=process,
        process_noise=filtrax.constant_noise([0.3, 0.3]),
        observe=lambda state, inputs: state,
        sensor=filtrax.DirectSensor(filtrax.constant_noise([0.5, 0.5])),
    )
    mask = RNG.random((30, 2)) < 0.6
    readings = np.where(mask, RNG.normal(size=(30, 2)), np.nan)
    prior = Gaussian(jnp.zeros(2), jnp.eye(2))
    result = filtrax.run(
        filt, model, prior, jnp.asarray(readings), observed=mask, key=key, info=True
    )
    info = result.info
    guessed, told = plot.nis(info), plot.nis(info, observed=mask)
    for ours, theirs in zip(guessed.lines, told.lines, strict=True):
        np.testing.assert_array_equal(ours.get_ydata(), theirs.get_ydata())
    assert average_band(guessed) == average_band(told)


def test_nis_without_innovations_says_what_to_do():
    # Rejects an empty picture.
    with pytest.raises(ValueError, match="run with `info=True`"):
        plot.nis(Info(finite=jnp.ones(3, bool)))
    with pytest.raises(ValueError, match="run with `info=True`"):
        plot.whiteness(Info(finite=jnp.ones(3, bool)))
    with pytest.raises(
        ValueError, match=r"`observed` must be boolean, of shape \(5,\) or \(5, 2\)"
    ):
        plot.nis(random_info(5), observed=np.ones(4, bool))
    with pytest.raises(ValueError, match="something labelled or observed, found none"):
        plot.nis(random_info(5), observed=np.zeros(5, bool))


def test_coverage_is_the_share_of_errors_within_quantiles():
    # Rejects states without a label that count as inside, and components in another order.
    means = np.zeros((4000, 3))
    states = RNG.normal(size=means.shape) * [1.0, 2.0, 0.5]
    labelled = np.arange(4000) % 4 > 0
    beliefs = Gaussian(means, np.tile(np.eye(3), (4000, 1, 1)))
    ax = plot.coverage(
        beliefs, states, SPACE, labelled=labelled, probabilities=np.array([0.3, 0.8])
    )
    for j, name in enumerate(SPACE.names):
        sizes = np.abs(states[labelled, j])
        shares = [(sizes < stats.norm.ppf(0.5 + p / 2)).mean() for p in (0.3, 0.8)]
        np.testing.assert_allclose(line_of(ax, name), np.stack([(0.3, 0.8), shares], -1))
    np.testing.assert_array_equal(line_of(ax, "calibrated"), [(0, 0), (1, 1)])


def test_whiteness_is_the_correlation_of_normalized_innovations():
    # Rejects innovations that are not normalized: their variances grow a hundredfold here.
    info = random_info(500, 1)
    scales = jnp.geomspace(1.0, 10.0, 500)
    info = Info(
        finite=info.finite,
        innovation=info.innovation * scales[:, None],
        innovation_covariance=info.innovation_covariance * scales[:, None, None] ** 2,
    )
    ax = plot.whiteness(info, Space(("range",)), max_lag=6)
    values = np.asarray(info.innovation[:, 0] / np.sqrt(info.innovation_covariance[:, 0, 0]))
    expected = [(values[lag:] * values[:-lag]).mean() / (values**2).mean() for lag in range(1, 7)]
    np.testing.assert_allclose(line_of(ax, "range")[:, 1], expected, rtol=1e-9)
    ends = stats.norm.interval(0.95, scale=1 / np.sqrt(500 - 3))
    np.testing.assert_allclose(band_of(ax.collections[0], 3), ends)


def test_whiteness_tells_correlated_innovations_from_white_ones():
    # The correlation of x_t = 0.5 x_{t-1} + e_t is 0.5 to the power of the lag.
    noise = RNG.normal(size=(20, 2000))
    coloured = np.zeros_like(noise)
    for t in range(1, 2000):
        coloured[:, t] = 0.5 * coloured[:, t - 1] + noise[:, t]
    for values, expected in ((noise, [0, 0, 0]), (coloured, [0.5, 0.25, 0.125])):
        shape = (*values.shape, 1, 1)
        info = Info(jnp.ones(values.shape, bool), innovation=jnp.asarray(values[..., None]))
        info = Info(info.finite, innovation=info.innovation, innovation_covariance=jnp.ones(shape))
        ax = plot.whiteness(info, max_lag=3)
        found = line_of(ax, "component 0")[:, 1]
        np.testing.assert_allclose(found, expected, atol=5 / np.sqrt(values.size))


def test_whiteness_counts_pairs_that_were_both_observed():
    # Rejects the zeros of missing innovations, which would pull correlations to zero.
    mask = np.ones((300, 1), bool)
    mask[100:200] = False
    mask[::7] = False
    values = np.where(mask, 1.0 + 0 * mask, 0.0)
    info = Info(
        jnp.ones(300, bool),
        innovation=jnp.asarray(values),
        innovation_covariance=jnp.where(jnp.asarray(mask), 4.0, 1.0)[..., None],
    )
    ax = plot.whiteness(info, max_lag=5)
    np.testing.assert_allclose(line_of(ax, "component 0")[:, 1], 1.0)
    for lag in (1, 5):
        pairs = (mask[lag:] & mask[:-lag]).sum()
        ends = stats.norm.interval(0.95, scale=1 / np.sqrt(pairs))
        np.testing.assert_allclose(band_of(ax.collections[0], lag), ends)
    with pytest.raises(ValueError, match="`max_lag` must be a whole number, between 1 and 299"):
        plot.whiteness(info, max_lag=300)


def test_areas_of_particles_are_proportional_to_weights():
    # Rejects radii that are proportional to weights, and log weights for weights.
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    states = RNG.normal(size=(4, 3))
    belief = Particles(
        jnp.asarray(states), jnp.log(jnp.asarray(weights)), jnp.asarray(0), jnp.eye(3)
    )
    ax = plot.particles(belief, SPACE, components=("y", "x"), state=STATES[0])
    (scatter,) = ax.collections
    np.testing.assert_allclose(scatter.get_offsets(), states[:, [1, 0]])
    areas = scatter.get_sizes()
    np.testing.assert_allclose(areas / areas.sum(), weights)
    np.testing.assert_allclose(line_of(ax, "mean"), [(weights @ states)[[1, 0]]])
    np.testing.assert_allclose(line_of(ax, "truth"), [STATES[0, [1, 0]]])


def test_particles_of_a_whole_sequence_are_refused_with_the_way_to_a_step():
    # Rejects the particles of all steps in one cloud.
    belief, _, _ = beliefs_of_all_kinds()[0]
    with pytest.raises(ValueError, match=r"must be that of one step.*leaf"):
        plot.particles(belief, SPACE)
    with pytest.raises(TypeError, match="`belief` must be `Particles`, got a `Gaussian`"):
        plot.particles(BELIEFS, SPACE)


def test_learning_curves_show_losses_and_the_best_of_validation():
    # Rejects a mean that looks ahead, and a loss that is not a number as the best one.
    training, validation = RNG.normal(size=30), np.array([3.0, np.nan, 1.0, 2.0])
    ax = plot.learning_curves(
        training, validation, validation_steps=[5, 10, 15, 20], window=4, label="epoch"
    )
    mean = np.stack([np.arange(3, 30), np.convolve(training, np.ones(4) / 4, "valid")], -1)
    np.testing.assert_allclose(line_of(ax, "training, mean of 4"), mean)
    np.testing.assert_array_equal(line_of(ax, "validation")[:, 0], [5, 10, 15, 20])
    np.testing.assert_array_equal(line_of(ax, "best: 1"), [(15, 1.0)])
    assert ax.get_xlabel() == "epoch"
    plain = plot.learning_curves(list(training), steps=range(30))
    np.testing.assert_allclose(line_of(plain, "training")[:, 1], training)


def test_learning_curves_ask_where_validation_belongs():
    # Rejects two losses of validation drawn as those of the first two steps.
    with pytest.raises(ValueError, match="`validation_steps` must say where the 2 losses"):
        plot.learning_curves([1.0, 2.0, 3.0], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"`training` must be a sequence of losses, got .*3, 2"):
        plot.learning_curves(np.zeros((3, 2)))


def test_wrong_arguments_are_named():
    # Rejects pictures of something else than was asked for, and errors without a name.
    with pytest.raises(ValueError, match=r"Did you mean 'heading'\?"):
        plot.states(BELIEFS, SPACE, components=("headin",))
    with pytest.raises(ValueError, match="two components of a map, got 3"):
        plot.track(BELIEFS, SPACE, components=SPACE.names)
    with pytest.raises(ValueError, match=r"`states` must have shape \(12, 3\)"):
        plot.track(BELIEFS, SPACE, states=STATES[:-1])
    with pytest.raises(ValueError, match=r"`readings` must be points .* \(12, 2\), got \(12, 1\)"):
        plot.track(BELIEFS, SPACE, readings=STATES[:, :1])
    with pytest.raises(ValueError, match=r"`times` must have shape \(12,\), got \(3,\)"):
        plot.states(BELIEFS, SPACE, times=[1, 2, 3])
    with pytest.raises(ValueError, match="`probability` must lie between 0 and 1"):
        plot.track(BELIEFS, SPACE, probability=95.0)
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), BELIEFS)
    with pytest.raises(ValueError, match="`beliefs` must be those of one sequence"):
        plot.track(batch, SPACE)
    particles = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), beliefs_of_all_kinds()[0][0])
    with pytest.raises(ValueError, match=r"got leading axes \(2, 12\)"):
        plot.states(particles, SPACE)


def test_components_without_names_have_numbers():
    # Rejects axes with a bare "0".
    beliefs = Gaussian(MEANS, COVARIANCES)
    axes = plot.states(beliefs, filtrax.Euclidean())
    assert [ax.get_ylabel() for ax in axes] == ["component 0", "component 1", "component 2"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_filter_that_diverged_is_drawn_as_far_as_it_came(dtype):
    # Rejects an error of the eigenvalues where a covariance is not a number.
    means = np.array(MEANS, dtype)
    means[7:] = np.nan
    covariances = np.array(COVARIANCES, dtype)
    factors = np.linalg.cholesky(covariances)
    factors[7:] = np.nan
    beliefs = Gaussian.of_factor(jnp.asarray(means), jnp.asarray(factors))
    states = STATES.astype(dtype)
    ax = plot.track(beliefs, SPACE, states=states, every=1)
    assert len(ax.patches) == 7
    plot.states(beliefs, SPACE, states=states)
    plot.errors(beliefs, states, SPACE)
    plot.nees(beliefs, states, SPACE).figure.canvas.draw()


def test_a_recording_needs_the_extra(monkeypatch, tmp_path):
    # Rejects "No module named 'rerun'", whose package has another name.
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "rerun":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, "rerun", raising=False)
    with pytest.raises(ImportError, match=r'pip install "filtrax\[rerun\]"'):
        plot.to_rerun(tmp_path / "track.rrd", BELIEFS, SPACE)
    assert not list(tmp_path.iterdir())


def test_outlines_of_recordings_have_one_mahalanobis_distance():
    # Rejects an outline that is turned the other way round, also where rerun is not installed.
    from filtrax.plot._rerun import outline

    covariance = COVARIANCES[0][:2, :2]
    offsets = outline(MEANS[0, :2], covariance, 0.9) - MEANS[0, :2]
    squares = np.einsum("ni,ij,nj->n", offsets, np.linalg.inv(covariance), offsets)
    np.testing.assert_allclose(squares, stats.chi2.ppf(0.9, 2))
    np.testing.assert_allclose(offsets[0], offsets[-1], atol=1e-12)


def recorded(path, entity, component):
    """The values of a component at each step of a recording, in the order of steps."""
    reader = pytest.importorskip("rerun.chunk").RrdReader(path)
    chunks = [chunk for chunk in reader.stream() if chunk.entity_path == entity]
    batches = [chunk.to_record_batch() for chunk in chunks]
    # Without the time of logging, whose nanoseconds Python's clock does not have.
    columns = [[n for n in ("step", "time", component) if n in b.schema.names] for b in batches]
    parts = [batch.select(names) for batch, names in zip(batches, columns, strict=True)]
    rows = [row for part in parts for row in part.to_pylist()]
    rows.sort(key=lambda row: row.get("step", 0))
    return [row[component] for row in rows], [row.get("time") for row in rows]


@pytest.mark.filterwarnings("ignore")
def test_a_recording_holds_what_it_was_given(tmp_path):
    # Rejects degrees for radians, zeros for unknown states, steps that are shifted by one, and
    # images of numbers from 0 to 1 that become black.
    pytest.importorskip("rerun")
    labelled = np.ones(STEPS, bool)
    labelled[3:5] = False
    images, times = RNG.random((STEPS, 4, 6, 3)), 0.5 + 0.1 * np.arange(STEPS)
    path = tmp_path / "track.rrd"
    plot.to_rerun(
        path,
        BELIEFS,
        SPACE,
        heading="heading",
        states=STATES,
        labelled=labelled,
        images=images,
        times=times,
        probability=0.8,
    )
    assert [entry.name for entry in tmp_path.iterdir()] == ["track.rrd"]
    places, found = recorded(path, "/estimate/pose", "Points3D:positions")
    np.testing.assert_allclose(np.array(places)[:, 0, :2], MEANS[:, :2], rtol=1e-6)
    np.testing.assert_allclose([time.total_seconds() for time in found], times)
    places, _ = recorded(path, "/truth/pose", "Points3D:positions")
    assert [len(row) for row in places] == labelled.astype(int).tolist()
    ways = np.array(recorded(path, "/estimate/heading", "Arrows3D:vectors")[0])[:, 0]
    angles = np.degrees(np.arctan2(ways[:, 1], ways[:, 0]))
    np.testing.assert_allclose(angles, MEANS[:, 2], rtol=1e-4)
    strips, _ = recorded(path, "/truth/path", "LineStrips3D:strips")
    assert [len(part) for part in strips[0]] == [3, STEPS - 5]
    corners, _ = recorded(path, "/estimate/ellipse", "LineStrips3D:strips")
    offsets = np.array(corners[7][0])[:, :2] - MEANS[7, :2]
    inverse = np.linalg.inv(COVARIANCES[7, :2, :2])
    squares = np.einsum("ni,ij,nj->n", offsets, inverse, offsets)
    np.testing.assert_allclose(squares, stats.chi2.ppf(0.8, 2), rtol=1e-4)
    bytes_, _ = recorded(path, "/image", "Image:buffer")
    picture = np.array(bytes_[5][0], np.uint8).reshape(4, 6, 3)
    np.testing.assert_allclose(picture / 255, images[5], atol=1 / 255)


def test_images_of_another_shape_or_range_are_refused(tmp_path):
    # Rejects a recording of the first steps alone, and white images.
    pytest.importorskip("rerun")
    path = tmp_path / "track.rrd"
    for images, message in (
        (np.zeros((STEPS, 4)), r"`images` must have shape \[12, H, W\]"),
        (np.zeros((3, 4, 4)), r"`images` must have shape \[12, H, W\]"),
        (np.full((STEPS, 4, 4), 255.0), r"`images` must lie between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=message):
            plot.to_rerun(path, BELIEFS, SPACE, images=images)
    with pytest.raises(ValueError, match=r"Did you mean 'heading'\?"):
        plot.to_rerun(path, BELIEFS, SPACE, heading="headings")
    assert not path.exists()
