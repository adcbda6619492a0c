"""What is reported of a run, against an independent computation, and that a report reads it."""

import equinox as eqx
import jax
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import filtrax
import tiny_run
from filtrax import report
from filtrax.experiments import run
from filtrax.experiments.evaluation import LEVELS, Evaluation
from filtrax.experiments.filters import Particle
from filtrax.tasks.disc.images import count_visible

pytestmark = pytest.mark.xdist_group("tiny_run")


@pytest.fixture(autouse=True)
def built_once(monkeypatch):
    monkeypatch.setattr(run, "build_ensemble", tiny_run.build_once)


@pytest.fixture(scope="module")
def arrays():
    with np.load(tiny_run.finished()[0] / "evaluation.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def beliefs():
    """The first member's beliefs on the test split from the first two starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "build_ensemble", tiny_run.build_once)
        filt, model = run.open_run(tiny_run.finished()[0]).trained()
    member = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, model)
    data, starts = tiny_run.TASK.data("test"), tiny_run.TASK.perturbations()
    means, covariances = [], []
    for start in starts:
        for n in range(3):
            prior = filtrax.Gaussian(data.initial[n] + start, data.initial_covariance[n])
            context = jax.tree.map(lambda leaf, n=n: leaf[n], data.context)
            belief = filtrax.run(
                filt, member, prior, None, data.readings[n], context=context, key=jax.random.key(0)
            )
            means.append(belief.mean)
            covariances.append(belief.covariance)
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
    evaluation = Evaluation.__new__(Evaluation)
    evaluation.experiment = experiment
    evaluation.filt, evaluation.model = filt.for_test(both[0]), both[1]
    evaluation.data, evaluation.perturbations = (
        experiment.task.data("validation"),
        experiment.task.perturbations(),
    )
    arrays = evaluation._shown_beliefs(member=1, perturbation=1)
    assert arrays["particles"].shape == (2, 4, 5, 4)
    weights = np.exp(arrays["log_weights"])[..., None]
    np.testing.assert_allclose(weights.sum(2), 1)
    mean = (weights * arrays["particles"]).sum(2)
    np.testing.assert_allclose(arrays["means"], mean)
    offsets = arrays["particles"] - mean[:, :, None]
    covariance = np.einsum("ntp,ntpi,ntpj->ntij", weights[..., 0], offsets, offsets)
    np.testing.assert_allclose(arrays["covariances"], covariance + 4 * np.eye(4), atol=1e-8)
