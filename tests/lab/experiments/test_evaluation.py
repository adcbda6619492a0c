"""What is reported of a run, against an independent computation, and that a report reads it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import filtrax
import tiny_run
from filtrax import losses
from filtrax.lab import report
from filtrax.lab.config.filters import Particle
from filtrax.lab.experiments import ensembles, evaluation, run
from filtrax.lab.experiments.evaluation import LEVELS, Evaluation
from filtrax.lab.experiments.sketches import sketches
from filtrax.lab.tasks import Details, Drawing, Sketch
from filtrax.lab.tasks.disc import DiscModel
from filtrax.lab.tasks.disc.images import count_visible

pytestmark = pytest.mark.xdist_group("tiny_run")


@pytest.fixture(autouse=True)
def built_once(monkeypatch):
    monkeypatch.setattr(ensembles, "build_ensemble", tiny_run.build_once)


@pytest.fixture(scope="module")
def arrays():
    with np.load(tiny_run.finished()[0] / "evaluation.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def beliefs():
    """The first member's beliefs on the test split from the first two starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ensembles, "build_ensemble", tiny_run.build_once)
        filt, model = run.open_run(tiny_run.finished()[0]).trained()
    member = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, model)
    data, starts = tiny_run.TASK.data("test"), tiny_run.TASK.perturbations()
    means, covariances = [], []
    for start in starts:
        for n in range(3):
            prior = filtrax.Gaussian(data.initial[n] + start, data.initial_covariance[n])
            context = jax.tree.map(lambda leaf, n=n: leaf[n], data.context)
            filtered = filtrax.run(filt, member, prior, data.readings[n], context=context)
            means.append(filtered.beliefs.mean)
            covariances.append(filtered.beliefs.covariance)
    shape = (len(starts), 3, tiny_run.TASK.num_steps, 4)
    return np.reshape(means, shape), np.reshape(covariances, (*shape, 4))


def test_metrics_are_means_over_all_starts_sequences_and_steps(beliefs):
    means, covariances = beliefs
    states = np.asarray(tiny_run.TASK.data("test").states)[None]
    errors = np.broadcast_to(states, means.shape) - means
    metrics = tiny_run.finished()[1]["members"][0]["metrics"]
    np.testing.assert_allclose(metrics["distance"], np.linalg.norm(errors, axis=-1).mean())
    flat = zip(errors.reshape(-1, 4), covariances.reshape(-1, 4, 4), strict=True)
    densities = [multivariate_normal.logpdf(error, cov=cov) for error, cov in flat]
    np.testing.assert_allclose(metrics["nll"], -np.mean(densities))
    whitened = np.einsum("...i,...ij,...j->...", errors, np.linalg.inv(covariances), errors)
    np.testing.assert_allclose(metrics["nees"], whitened.mean())
    stds = np.sqrt(np.diagonal(covariances, axis1=-2, axis2=-1))
    inside = np.abs(errors) <= 1.6448536269514722 * stds
    np.testing.assert_allclose(metrics["coverage_90"], inside.mean())
    inside = np.abs(errors) <= 0.6744897501960817 * stds
    np.testing.assert_allclose(metrics["coverage_50"], inside.mean())
    assert metrics["moment_nll"] == metrics["nll"]


def test_the_moment_nll_of_particles_is_that_of_one_gaussian_with_the_kernel(monkeypatch):
    # Rejects the covariance of the particles alone, and the mixture's density a second time.
    rng = np.random.default_rng(0)
    cloud = rng.normal(size=(2, 6, 4))
    weights = rng.dirichlet(np.ones(6), size=2)
    kernel = np.tile(2.0 * np.eye(4), (2, 1, 1))
    beliefs = filtrax.Particles(
        jnp.asarray(cloud), jnp.log(weights), jnp.zeros(2, int), jnp.asarray(kernel)
    )
    filtered = filtrax.Filtered(beliefs, filtrax.Info(jnp.ones(2, bool)), None)
    monkeypatch.setattr(evaluation, "filter_trajectory", lambda *_, key: filtered)
    data = tiny_run.TASK.data("test")
    one = jax.tree.map(lambda leaf: leaf[0], data)
    one = dataclasses.replace(one, readings=one.readings[:2], states=jnp.asarray(cloud[:, 0]))
    model = tiny_run.TASK.build(
        DiscModel(process="analytical", process_noise="true", sensor="reference"),
        key=jax.random.key(0),
    )
    score = eqx.filter_jit(evaluation.each_step(losses.mixture_nll))
    steps = score(filtrax.ParticleFilter(), model, one, jax.random.key(0))
    for t in range(2):
        mean = weights[t] @ cloud[t]
        covariance = np.cov(cloud[t].T, aweights=weights[t], bias=True) + 4 * np.eye(4)
        expected = -multivariate_normal.logpdf(cloud[t, 0] - mean, cov=covariance)
        np.testing.assert_allclose(steps["moment_nll"][t], expected)
        parts = [multivariate_normal.logpdf(cloud[t, 0] - x, cov=4 * np.eye(4)) for x in cloud[t]]
        np.testing.assert_allclose(steps["nll"][t], -np.log(weights[t] @ np.exp(parts)))


def sensed_frames(stds, seen):
    """What sensors say of one sequence, with a diagonal R."""
    stds = np.asarray(stds, float)
    covariance = np.square(stds)[None, :, :, None] * np.eye(2)
    error = np.arange(1.0, len(stds) + 1)[None]
    return {"covariance": covariance, "error": error, "seen": np.asarray([seen])}


def test_sensor_noise_is_told_apart_for_visible_and_hidden_frames():
    stds = [[1, 3], [2, 4], [9, 11], [5, 6], [7, 9]]
    visible = jnp.asarray([[149, 145, 0, 144, 1]])
    counts = np.asarray([[True, True, True, True, False]])
    frames = sensed_frames(stds, [True] * 5)
    found = evaluation._sensor_metrics(Details(visible=visible, full_view=145), frames, counts)
    expected = {"sensor_error": 2.5, "sensor_std_visible": 2.5, "sensor_std_hidden": 10.0}
    correlations = [np.corrcoef(visible[0], column)[0, 1] for column in np.transpose(stds)]
    expected["noise_correlation"] = float(np.mean(correlations))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6)


def test_what_was_not_observed_does_not_count_and_constant_noise_has_no_correlation():
    visible = jnp.asarray([[149, 0, 30]])
    frames = sensed_frames([[0.3, 0.3]] * 3, [True, False, True])
    counts = np.ones((1, 3), bool)
    found = evaluation._sensor_metrics(Details(visible=visible, full_view=145), frames, counts)
    assert found.keys() == {"sensor_error", "sensor_std_visible", "noise_correlation"}
    assert np.isnan(found["noise_correlation"])
    np.testing.assert_allclose(found["sensor_error"], 2.0)
    hidden = sensed_frames([[0.3, 0.3]] * 3, [False] * 3)
    assert evaluation._sensor_metrics(Details(), hidden, counts) == {}


def test_only_the_noise_of_the_position_goes_with_visible_pixels(monkeypatch):
    # Rejects a mean over all components of an observation, which may have other units.
    monkeypatch.setattr(evaluation, "POSITION", (1,))
    visible = jnp.asarray([[40, 30, 0]])
    frames = sensed_frames([[9, 1], [1, 2], [9, 6]], [True] * 3)
    counts = np.ones((1, 3), bool)
    found = evaluation._sensor_metrics(Details(visible=visible), frames, counts)
    assert found.keys() == {"sensor_error", "sensor_std_hidden", "noise_correlation"}
    np.testing.assert_allclose(found["sensor_std_hidden"], 6.0)
    expected = np.corrcoef([40, 30, 0], [1, 2, 6])[0, 1]
    np.testing.assert_allclose(found["noise_correlation"], expected, rtol=1e-6)


def test_sketches_are_of_truth_and_estimates_in_their_own_sequences():
    # Rejects the truth drawn twice, and what belongs to another sequence.
    data = tiny_run.TASK.data("test")
    sequences = [jax.tree.map(lambda leaf, i=i: leaf[i], data) for i in range(2)]
    states = np.asarray(data.states)[:2]
    assert sketches(Drawing(), sequences, states + 1) == {}

    def sketch(trajectory, states):
        outlines = states[:, None, :2] + np.asarray(trajectory.initial)[:2]
        return Sketch(outlines, np.stack([outlines, 2 * outlines], axis=2))

    def companions(trajectory):
        return {"a": np.asarray(trajectory.states)[:, :2], "b": np.zeros(states.shape[1:])[:, :2]}

    drawing = Drawing(sketch=sketch, companions=companions)
    drawn = sketches(drawing, sequences, states + 1)
    starts = np.asarray(data.initial)[:2, None, None, :2]
    true = states[:, :, None, :2] + starts
    np.testing.assert_allclose(drawn["true_outlines"], true)
    np.testing.assert_allclose(drawn["outlines"], true + 1)
    np.testing.assert_allclose(drawn["arrows"][:, :, 0, 1], 2 * (true + 1)[:, :, 0])
    assert drawn["companion_names"].tolist() == ["a", "b"]
    np.testing.assert_allclose(drawn["companions"][:, :, 0], states[..., :2])
    assert not drawn["companions"][:, :, 1].any()


def test_scores_of_a_task_are_means_over_starts_for_each_sequence_of_a_member():
    # Rejects the mean over sequences, and another member.
    made = Evaluation.__new__(Evaluation)
    made.scores = {"end": np.arange(12.0).reshape(2, 3, 2)}
    np.testing.assert_array_equal(made.sequence_scores(1)["end"], [8.0, 9.0])


def test_a_task_whose_images_do_not_show_states_has_no_map_of_them(monkeypatch):
    made = Evaluation.__new__(Evaluation)
    made.experiment, made.data = tiny_run.EXPERIMENT, tiny_run.TASK.data("test")
    made.steps = {"process_covariance": np.tile(np.eye(4), (1, 1, 3, 4, 1, 1))}
    made.details = Details()
    assert set(made.shown(0)) > {"process_std", "counts"}
    monkeypatch.setattr(type(tiny_run.TASK), "drawing", Drawing())
    assert set(made.shown(0)) == {"process_std"}


def test_figures_show_the_process_noise_of_the_first_initial_state():
    # Rejects another member, another start, and variances in place of standard deviations.
    rng = np.random.default_rng(0)
    made = Evaluation.__new__(Evaluation)
    made.experiment = tiny_run.EXPERIMENT
    factors = np.sqrt(rng.uniform(1, 2, (2, 2, 3, 4, 4)))
    made.steps = {"process_covariance": factors[..., None] ** 2 * np.eye(4)}
    made.data = tiny_run.TASK.data("test")
    made.details = tiny_run.TASK.details(made.data)
    found = made.shown(1)
    assert set(found) == {
        "process_std",
        "true_process_std",
        "occlusion",
        "process_std_map",
        "counts",
        "edges",
    }
    np.testing.assert_allclose(found["process_std"], factors[1, 0, 0], atol=1e-4)
    np.testing.assert_allclose(np.asarray(found["true_process_std"])[:, :2], 3.0)


def test_arrays_are_those_of_the_first_perturbed_start(beliefs, arrays):
    means, covariances = beliefs
    np.testing.assert_allclose(arrays["means"], means[1], rtol=1e-9)
    np.testing.assert_allclose(arrays["covariances"], covariances[1], rtol=1e-9)
    data = tiny_run.TASK.data("test")
    np.testing.assert_array_equal(arrays["states"], data.states)
    np.testing.assert_allclose(arrays["errors"], arrays["states"] - means[1], atol=1e-9)
    errors = arrays["errors"]
    whitened = np.einsum("...i,...ij,...j->...", errors, np.linalg.inv(covariances[1]), errors)
    np.testing.assert_allclose(arrays["nees"], whitened)


def test_arrays_have_the_shapes_that_a_report_reads(arrays):
    n, t, size = 3, tiny_run.TASK.num_steps, tiny_run.TASK.image_size
    expected = {
        "names": (4,),
        "units": (4,),
        "errors": (n, t, 4),
        "states": (n, t, 4),
        "means": (n, t, 4),
        "covariances": (n, t, 4, 4),
        "frames": (n, t, size, size, 3),
        "view_matrix": (2, 4),
        "view_offset": (2,),
        "measurements": (n, t, 2),
        "measurement_covariances": (n, t, 2, 2),
        "visible": (n, t),
        "all_visible": (n, t),
        "all_sensor_std": (n, t, 2),
        "process_std": (n, t, 4),
        "true_process_std": (n, t, 4),
        "nees": (n, t),
        "degrees": (),
        "coverage_levels": (len(LEVELS),),
        "coverage": (len(LEVELS), 4),
    }
    assert {name: array.shape for name, array in arrays.items()} == expected
    assert arrays["frames"].dtype == np.uint8
    assert int(arrays["degrees"]) == 4
    assert (np.diff(arrays["coverage"], axis=0) >= 0).all()
    data = tiny_run.TASK.data("test")
    visible = count_visible(data.readings, data.context["radii"], data.context["colors"])
    np.testing.assert_array_equal(arrays["all_visible"], visible)
    np.testing.assert_allclose(arrays["true_process_std"][..., :2], 3.0)
    diagonal = np.diagonal(arrays["measurement_covariances"], axis1=-2, axis2=-1)
    np.testing.assert_allclose(arrays["all_sensor_std"], np.sqrt(diagonal))


def test_a_report_can_be_written_of_the_run(tmp_path):
    path = report.write([tiny_run.finished()[0]], tmp_path / "report.html")
    text = path.read_text()
    assert text.startswith("<!DOCTYPE html>") or text.lower().startswith("<!doctype html>")
    assert "tiny" in text


def test_another_split_is_evaluated_as_it_is_called():
    found = run.evaluate(tiny_run.finished()[0], "validation")
    assert (found["split"], found["num_sequences"]) == ("validation", 2)
    assert found["mean"]["distance"] != tiny_run.finished()[1]["mean"]["distance"]


def test_particles_are_read_as_a_mixture_and_drawn():
    # Rejects the covariance of the particles alone, and training's number of particles in tests.
    filt = Particle(num_particles=3, num_test_particles=5, kernel_std=2.0)
    experiment = tiny_run.changed(filter=filt)
    both = tiny_run.build_once(experiment, None)
    # What it computes at first takes long to compile, and is not needed here.
    made = Evaluation.__new__(Evaluation)
    made.experiment = experiment
    made.filt, made.model = filt.for_test(both[0]), both[1]
    made.data, made.perturbations = (
        experiment.task.data("validation"),
        experiment.task.perturbations(),
    )
    made._shown_inputs = both[1], made.data, None
    arrays = made._shown_beliefs(member=1, perturbation=1)
    assert arrays["particles"].shape == (2, 4, 5, 4)
    weights = np.exp(arrays["log_weights"])[..., None]
    np.testing.assert_allclose(weights.sum(2), 1)
    mean = (weights * arrays["particles"]).sum(2)
    np.testing.assert_allclose(arrays["means"], mean)
    offsets = arrays["particles"] - mean[:, :, None]
    covariance = np.einsum("ntp,ntpi,ntpj->ntij", weights[..., 0], offsets, offsets)
    np.testing.assert_allclose(arrays["covariances"], covariance + 4 * np.eye(4), atol=1e-8)
