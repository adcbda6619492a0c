"""Warnings of readings unlike the training data, and filters that heed them."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filtrax
from filtrax import DirectSensor, NetworkSensor, Space, StateSpaceModel, constant_noise
from filtrax.lab.tasks.kitti.corruptions import add_noise, blacken, blur
from filtrax.lab.tasks.kitti.statistics import describe_frames, frame_statistics
from filtrax.lab.tasks.kitti.streets import Street
from filtrax.novelty import GuardedSensor, Novelty, auroc, fit_novelty, novelty_of
from filtrax.sensors import sense
from filtrax.trajectory import Trajectory
from tiny_kitti import tiny_task

DRAW = np.random.default_rng(0)
MIXING = np.asarray([[2.0, 0.3, 0.0], [0.0, 1.0, -0.7], [0.4, 0.0, 0.5]])


def gaussian(count, seed):
    """Correlated features of different scales."""
    return np.random.default_rng(seed).normal(size=(count, 3)) @ MIXING + 5.0


def detector(**options):
    return Novelty.fit(gaussian(400, 1), gaussian(400, 2), **options)


# The detector


def test_the_score_does_not_depend_on_the_units_of_features():
    # Rejects a Euclidean distance, and variances in the place of the covariance.
    matrix, offset = DRAW.normal(size=(3, 3)) * 10.0, np.asarray([1.0, -200.0, 3.0])
    moved = lambda rows: rows @ matrix + offset  # noqa: E731
    plain = detector(shrinkage=1e-12)
    other = Novelty.fit(moved(gaussian(400, 1)), moved(gaussian(400, 2)), shrinkage=1e-12)
    points = gaussian(20, 3) * 1.5
    expected = jax.vmap(plain.score)(jnp.asarray(points))
    found = jax.vmap(other.score)(jnp.asarray(moved(points)))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_the_score_is_the_mahalanobis_distance_over_its_quantile_on_validation():
    train, validation = gaussian(400, 1), gaussian(400, 2)
    inverse = np.linalg.inv(np.cov(train.T, bias=True))

    def distances(rows):
        centred = rows - train.mean(0)
        return ((centred @ inverse) * centred).sum(-1)

    limit = np.sort(distances(validation))[-5]  # 4 of 400 are above it: 1 %
    found = jax.vmap(detector(shrinkage=1e-12).score)(jnp.asarray(validation))
    np.testing.assert_allclose(found, distances(validation) / limit, rtol=1e-4)
    assert (np.asarray(found) > 1.0).sum() == 4


@pytest.mark.parametrize("parts", [1, 3])
def test_one_percent_of_new_ordinary_readings_are_alarms(parts):
    # Rejects limits of single parts that are not raised for all of them together.
    count = 20_000

    def rows(seed):
        return tuple(gaussian(count, 10 * seed + part) for part in range(parts))

    fitted = Novelty.fit(rows(1), rows(2))
    features = jax.tree.map(jnp.asarray, rows(3))
    share = float(jax.vmap(fitted.alarm)(features).mean())
    # Validation and this sample are both drawn, so that their variances add.
    assert abs(share - 0.01) < 4 * np.sqrt(2 * 0.01 * 0.99 / count)


def test_a_part_of_few_numbers_is_not_drowned_by_one_of_many():
    many = lambda seed: np.random.default_rng(seed).normal(size=(3000, 60))  # noqa: E731
    few = lambda seed: np.random.default_rng(seed).normal(size=(3000, 1))  # noqa: E731
    apart = Novelty.fit((many(1), few(2)), (many(3), few(4)))
    joined = Novelty.fit(np.hstack([many(1), few(2)]), np.hstack([many(3), few(4)]))
    far = jnp.full(1, 4.5)
    assert apart.alarm((jnp.zeros(60), far))
    assert not joined.alarm(jnp.concatenate([jnp.zeros(60), far]))


def test_features_that_never_change_do_no_harm():
    dead = lambda seed: np.hstack([gaussian(300, seed), np.zeros((300, 2))])  # noqa: E731
    fitted = Novelty.fit(dead(1), dead(2))
    ordinary = jnp.asarray(dead(3)[0])
    assert fitted.score(ordinary) < 1.0
    assert fitted.alarm(ordinary.at[-1].set(2.0))  # one that comes alive is a sign


def test_a_detector_says_what_is_wrong():
    good = gaussian(200, 1)
    with pytest.raises(ValueError, match="must be finite"):
        Novelty.fit(np.where(good > 5, np.nan, good), good)
    with pytest.raises(ValueError, match="row for each of at least two"):
        Novelty.fit(good[0], good)
    with pytest.raises(ValueError, match=r"equal sizes, got \[3\] and \[2\]"):
        Novelty.fit(good, good[:, :2])
    with pytest.raises(ValueError, match=r"got 0\.001 for 200 readings"):
        Novelty.fit(good, good, 0.001)
    with pytest.raises(ValueError, match="all of them are constant"):
        Novelty.fit(np.ones((200, 3)), good)
    with pytest.raises(ValueError, match="`shrinkage` must be above 0"):
        Novelty.fit(good, good, shrinkage=0.0)
    with pytest.raises(ValueError, match=r"1 parts of \[3\] numbers.*got \[2\]"):
        Novelty.fit(good, good).score(jnp.zeros(2))


def test_auroc_is_the_share_of_pairs_in_order():
    # Ties are many, so that one that counts as in order, or not at all, is rejected.
    ordinary, novel = DRAW.integers(0, 6, 40).astype(float), DRAW.integers(2, 9, 30).astype(float)
    pairs = novel[:, None] - ordinary[None]
    expected = (pairs > 0).mean() + 0.5 * (pairs == 0).mean()
    assert auroc(ordinary, novel) == pytest.approx(expected, abs=1e-12)
    assert auroc(novel, ordinary) == pytest.approx(1 - expected, abs=1e-12)
    with pytest.raises(ValueError, match="none that is NaN"):
        auroc(ordinary, np.asarray([np.nan]))


# The guarded sensor, on a walk in the plane whose places are read directly


def stay(state, inputs):
    del inputs
    return state


def place(state, inputs):
    del inputs
    return state


NOISE = constant_noise([0.5, 0.5])
DIRECT = DirectSensor(NOISE)
PRIOR = filtrax.Gaussian(jnp.zeros(2), jnp.eye(2))


def walk_model(sensor):
    return StateSpaceModel(
        state_space=Space(("x", "y")),
        observation_space=Space(("x", "y")),
        process=stay,
        process_noise=constant_noise([0.1, 0.1]),
        observe=place,
        sensor=sensor,
    )


def walk_detector():
    return Novelty.fit(*(np.random.default_rng(seed).normal(size=(500, 2)) for seed in (1, 2)))


def run(sensor, readings, key, **options):
    filt = filtrax.ExtendedKalmanFilter()
    return filtrax.run(filt, walk_model(sensor), PRIOR, readings, key=key, **options).beliefs


def test_ordinary_readings_are_filtered_as_without_a_guard(key):
    readings = jnp.asarray(0.5 * DRAW.normal(size=(20, 2)))
    guarded = GuardedSensor(DIRECT, walk_detector())
    scores = jax.vmap(lambda r: guarded(r, None, None, key=key).novelty)(readings)
    assert scores.max() < 1.0
    plain, heeded = run(DIRECT, readings, key), run(guarded, readings, key)
    np.testing.assert_array_equal(heeded.mean, plain.mean)
    np.testing.assert_array_equal(heeded.covariance, plain.covariance)


def test_the_farther_out_a_reading_is_the_less_it_moves_the_state(key):
    guarded = GuardedSensor(DIRECT, walk_detector())
    moved = []
    for distance in (3.0, 30.0, 300.0, 3e6):
        reading = jnp.asarray([[distance, 0.0]])
        moved.append(float(run(guarded, reading, key).mean[0, 0]))
    assert moved[0] > 1.0  # no alarm yet
    assert moved[1] > moved[2] > moved[3] >= 0.0
    assert moved[2] < 0.2  # of 300
    assert moved[3] < 1e-3
    assert run(DIRECT, reading, key).mean[0, 0] > 1e6


def test_the_covariance_grows_continuously_from_the_threshold_on(key):
    fitted = walk_detector()
    sensor = GuardedSensor(DIRECT, fitted, power=1.5)
    direction = np.asarray([1.0, 0.5])
    edge = np.sqrt(
        4 / fitted.score(jnp.asarray(2.0 * direction))
    )  # about, as the mean is not quite zero
    readings = np.linspace(0.8, 1.4, 61)[:, None] * edge * direction
    measured = jax.vmap(lambda reading: sensor(reading, None, None, key=key))(readings)
    variances, scores = measured.covariance[:, 0, 0], np.asarray(measured.novelty)
    assert scores.min() < 1 < scores.max()
    np.testing.assert_allclose(variances, 0.25 * np.maximum(1, scores) ** 1.5, rtol=1e-12)
    assert np.abs(np.diff(variances)).max() < 0.02


def test_beyond_the_limit_there_is_no_reading(key):
    sensor = GuardedSensor(DIRECT, walk_detector(), power=0.0, limit=2.0)
    readings = jnp.asarray([[0.3, 0.2], [50.0, 1.0], [0.1, 0.4]])
    seen = jnp.asarray([True, False, True])
    found, expected = run(sensor, readings, key), run(DIRECT, readings, key, observed=seen)
    np.testing.assert_array_equal(found.mean, expected.mean)
    np.testing.assert_array_equal(found.covariance, expected.covariance)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_gradients_are_finite_everywhere(key, dtype):
    sensor = GuardedSensor(DIRECT, walk_detector())
    sensor = jax.tree.map(lambda leaf: leaf.astype(dtype), sensor)
    mean = sensor.detector.parts[0].mean  # where a root of the distance has no derivative

    @jax.jit
    def total(sensor, reading):
        measurement = sensor(reading, None, None, key=key)
        return measurement.covariance.sum() + jnp.minimum(measurement.novelty, 10.0)

    for factor in (0.0, 1.0, 3.5, 1e3, 1e15):
        reading = (mean + factor).astype(dtype)
        value = total(sensor, reading)
        gradients = jax.grad(total, (0, 1))(sensor, reading)
        assert np.isfinite(value)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
        # The detector is given: whoever trains a guarded model does not train it away.
        assert all((leaf == 0).all() for leaf in jax.tree.leaves(gradients[0].detector))


def test_a_guard_in_a_stack_warns_for_all_and_of_nothing_that_was_not_read(key):
    guarded = GuardedSensor(DIRECT, walk_detector())
    stacked = filtrax.stack_sensors(DIRECT, guarded, guarded)
    near, far = jnp.asarray([0.1, 0.2]), jnp.asarray([9.0, 0.0])
    alone = guarded(far, None, None, key=key).novelty
    assert alone > 1
    assert sense(stacked, (near, near, far), None, None, None, key=key).novelty == alone
    masks = (jnp.asarray(True), jnp.asarray(True), jnp.asarray(False))
    assert sense(stacked, (near, near, far), masks, None, None, key=key).novelty < 1
    missing = sense(guarded, jnp.full(2, jnp.nan), jnp.asarray(False), None, None, key=key)
    assert missing.novelty == 0.0


def test_settings_of_a_guard_are_checked():
    for wrong in ({"power": -1.0}, {"limit": 0.5}):
        with pytest.raises(ValueError, match="`power` must not be negative and `limit`"):
            GuardedSensor(DIRECT, walk_detector(), **wrong)


def test_a_guarded_model_is_saved_and_loaded(key, tmp_path):
    model = walk_model(GuardedSensor(DIRECT, walk_detector()))
    blank = walk_model(GuardedSensor(DIRECT, Novelty.blank(2)))
    filt = filtrax.ExtendedKalmanFilter()
    filtrax.save(tmp_path / "model.npz", filt, model)
    _, loaded = filtrax.load(tmp_path / "model.npz", filt, blank)
    far = jnp.asarray([4.0, 4.0])
    assert (
        loaded.sensor(far, None, None, key=key).novelty
        == model.sensor(far, None, None, key=key).novelty
    )


# From a trained model and its data


def walks(count, *, scale=1.0, seed=0, observed=None):
    readings = scale * np.random.default_rng(seed).normal(size=(count, 5, 2))
    return Trajectory(
        initial=np.zeros((count, 2)),
        initial_covariance=np.tile(np.eye(2), (count, 1, 1)),
        readings=jnp.asarray(readings),
        observed=observed,
    )


def square(reading, context):
    """Something that the features do not tell: whether the reading is on the unit circle."""
    del context
    return (reading**2).sum()[None]


class Halved(eqx.Module):
    """An encoder that sees one of two components, with dropout that must be off."""

    dropout: eqx.nn.Dropout

    def __call__(self, reading, inputs, context, *, key):
        del inputs, context
        return self.dropout(reading[:1], key=key)


def test_one_call_guards_a_model(key):
    encoder = Halved(eqx.nn.Dropout(0.9))
    model = walk_model(NetworkSensor(encoder, lambda features: jnp.tile(features, 2), NOISE))
    train, validation = walks(40, seed=1), walks(30, seed=2)
    blind = fit_novelty(model, train, validation, key=key)
    seeing = fit_novelty(model, train, validation, describe=square, power=3.0, key=key)
    assert seeing.sensor.power == 3.0
    assert [part.mean.size for part in seeing.sensor.detector.parts] == [1, 1]
    shares = [(novelty_of(m, validation, key=key) > 1).mean() for m in (blind, seeing)]
    np.testing.assert_allclose(shares, 1 / 150)  # one of 150 is above: less than 1 %, as asked
    outlier = dataclasses.replace(walks(1), readings=jnp.asarray([[[0.1, 0.1], [0.1, 9.0]]]))
    assert (novelty_of(blind, outlier, key=key) < 1).all()
    assert (novelty_of(seeing, outlier, key=key) > 1).tolist() == [[False, True]]
    with pytest.raises(ValueError, match="not guarded, but it is"):
        fit_novelty(seeing, train, validation, key=key)
    with pytest.raises(ValueError, match="but it is a NetworkSensor"):
        novelty_of(model, validation, key=key)


def test_the_series_of_a_data_set_are_those_of_its_trajectories(key):
    # 35 sequences are more than are held at once, and no multiple of that.
    observed = jnp.asarray(DRAW.uniform(size=(35, 5)) < 0.8)
    data = walks(35, scale=3.0, observed=observed)
    data = dataclasses.replace(
        data, readings=jnp.where(observed[..., None], data.readings, jnp.nan)
    )
    model = fit_novelty(walk_model(DIRECT), walks(40, seed=1), walks(30, seed=2), key=key)
    series = novelty_of(model, data, key=key)
    assert series.shape == (35, 5)
    np.testing.assert_array_equal(series[~np.asarray(observed)], 0.0)
    distances = jax.vmap(jax.vmap(model.sensor.detector.score))(data.readings)
    np.testing.assert_allclose(series[observed], distances[observed], rtol=1e-9)
    one = jax.tree.map(lambda leaf: leaf[34], data)
    np.testing.assert_allclose(novelty_of(model, one, key=key), series[34], rtol=1e-12)


def test_readings_that_were_not_observed_fit_nothing(key):
    observed = jnp.asarray(np.arange(5) != 2)[None].repeat(40, 0)
    clean = walks(40, seed=1, observed=observed)
    spoilt = dataclasses.replace(clean, readings=clean.readings.at[:, 2].set(jnp.nan))
    first, second = (
        fit_novelty(walk_model(DIRECT), data, walks(30, seed=2), key=key)
        for data in (clean, spoilt)
    )
    np.testing.assert_array_equal(
        first.sensor.detector.parts[0].mean, second.sensor.detector.parts[0].mean
    )
    expected = np.asarray(clean.readings)[np.asarray(observed)].mean(0)
    np.testing.assert_allclose(first.sensor.detector.parts[0].mean, expected, rtol=1e-9)


# Images of a car's camera


def smooth_frames(count=3, size=(20, 36)):
    """Waves whose edges are what an image of this size can just show."""
    rows, columns = np.indices(size)
    images = [100 + 60 * np.sin(rows / 2 + i) * np.sin(columns / 2.5 + 2 * i) for i in range(count)]
    return np.round(np.stack(images)[..., None].repeat(3, -1)).astype(np.uint8)


def test_corruptions_do_what_they_say():
    frames = smooth_frames()
    noise = add_noise(frames, 10.0).astype(float) - frames
    assert abs(noise.std() - 10.0) < 0.5
    assert abs(noise.mean()) < 0.5
    assert not np.allclose(noise[0], noise[1])
    soft = blur(frames, 1.5)
    assert soft.dtype == np.uint8
    assert soft.std() < 0.7 * frames.std()
    even = np.full_like(frames, 77)
    np.testing.assert_array_equal(blur(even), even)  # also at the edges
    spike = np.zeros((1, 21, 21, 1), np.uint8)
    spike[0, 10, 10] = 255
    weights = np.exp(-0.5 * (np.arange(-3, 4) / 1.0) ** 2)
    weights /= weights.sum()
    expected = np.round(255 * np.outer(weights, weights))
    np.testing.assert_array_equal(blur(spike, 1.0)[0, 7:14, 7:14, 0], expected)
    assert blacken(frames).shape == frames.shape
    assert not blacken(frames).any()


OVERALL = 3 + 2 * 3 * 3
"""So many statistics are of whole images; those of cells follow."""


@jax.jit
def statistics(frames, mirrored=False, reading=0):
    """Of the second frame, and its change from the first one, unless another reading is meant."""
    context = {"frames": frames, "mirrored": mirrored}
    return frame_statistics(jnp.asarray(reading), context)


def test_statistics_tell_blur_noise_and_darkness_but_no_mirror():
    frames = add_noise(smooth_frames(), 5.0)
    found, mirrored = statistics(frames), statistics(frames[:, :, ::-1], mirrored=True)
    np.testing.assert_allclose(found, mirrored, rtol=1e-12)
    assert np.abs(found - statistics(frames[:, :, ::-1]))[OVERALL:].max() > 1e-3
    noisy, soft = (statistics(c) for c in (add_noise(frames, 20.0), blur(frames, 1.0)))
    roughest = 5  # after brightness, contrast, change and two slopes
    assert noisy[roughest] > found[roughest] + 1.0
    assert soft[roughest] < found[roughest] - 1.0
    dark = statistics(blacken(frames))
    assert not dark.any()
    assert dark.size == OVERALL + 2 * 3 * 2 * 15


def test_statistics_are_energies_of_the_present_image_and_of_its_change():
    frames = smooth_frames()
    overall, cells = np.split(statistics(frames), [OVERALL])
    before, present = frames[:2].astype(float)
    change = present - before
    down, across = np.diff(present, axis=0), np.diff(change, axis=1)
    np.testing.assert_allclose(overall[0], np.log1p((present**2).mean()))
    np.testing.assert_allclose(overall[1], np.log1p(((present - present.mean()) ** 2).mean()))
    np.testing.assert_allclose(overall[2], np.log1p((change**2).mean()))
    np.testing.assert_allclose(overall[3], np.log1p((down**2).mean()))
    first = slice(0, 7), slice(0, 8)  # of 19 rows and 36 columns in 3 and 5 parts
    np.testing.assert_allclose(cells[0], np.log1p((down[first] ** 2).mean()))
    first = slice(0, 7), slice(0, 7)  # of 20 rows and 35 columns
    fine_change = 3 * 2 * 15 + 15
    np.testing.assert_allclose(cells[fine_change], np.log1p((across[first] ** 2).mean()))


def test_statistics_are_means_over_the_last_readings_that_there_are():
    # Rejects a look ahead, and readings before the first one.
    frames = add_noise(smooth_frames(8), 5.0)
    each = [statistics(frames[i : i + 2]) for i in range(7)]
    np.testing.assert_allclose(statistics(frames, reading=1), np.mean(each[:2], 0))
    np.testing.assert_allclose(statistics(frames, reading=5), np.mean(each[2:6], 0))


def test_frames_are_described_by_statistics_and_by_how_far_the_car_went():
    poses = np.tile(np.eye(3, 4), (5, 1, 1))
    poses[:, 2, 3] = [0.0, 0.8, 1.6, 4.1, 6.6]  # much faster from the third image on
    frames = Street.along(poses, 0.1 * np.arange(5)).draw("image_2", (50, 150))
    context = {"frames": jnp.asarray(frames), "mirrored": False}
    found = jax.vmap(lambda reading: describe_frames(reading, context))(jnp.arange(4))
    np.testing.assert_allclose(found["distance"][:, 0], [0.8, 0.8, 2.5, 2.5], atol=0.4)
    expected = jax.vmap(lambda reading: frame_statistics(reading, context))(jnp.arange(4))
    np.testing.assert_array_equal(found["statistics"], expected)


def glance(reading, inputs, context, *, key):
    """An encoder of images that is cheaper than the task's: a few pixels of the present one."""
    del inputs, key
    return context["frames"][reading + 1, ::9, ::9].astype(float).ravel() / 64.0


def test_a_camera_that_goes_black_is_noticed(key):
    data = tiny_task(windows_per_variant=2).data("train")
    model = walk_model(NetworkSensor(glance, lambda features: features[:2], NOISE))
    guarded = fit_novelty(model, data, data, describe=frame_statistics, alarms=0.1, key=key)
    frames = np.array(data.context["frames"])
    frames[:, 3:] = 0
    dark = dataclasses.replace(data, context=data.context | {"frames": frames})
    ordinary, alarms = (novelty_of(guarded, d, key=key) > 1 for d in (data, dark))
    assert 0 < ordinary.mean() <= 0.1
    assert alarms[:, 2:].all()  # the third reading is the first one that shows darkness
    np.testing.assert_array_equal(alarms[:, :2], ordinary[:, :2])
