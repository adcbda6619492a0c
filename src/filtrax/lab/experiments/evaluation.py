"""Evaluates trained filters: metrics, and the arrays that a report draws."""

import dataclasses
import functools
from statistics import NormalDist
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, Int

from filtrax import _hooks
from filtrax._given import unwrap
from filtrax._types import Keys
from filtrax.beliefs import Gaussian, GaussianMixture, Particles
from filtrax.filters import filter_trajectory
from filtrax.filters._run import sense_all
from filtrax.lab.config.settings import Experiment
from filtrax.lab.experiments.shown import over_a_sequence, over_the_plane
from filtrax.lab.experiments.sketches import sketches
from filtrax.lab.tasks import Details
from filtrax.linalg import inverse, precise, product
from filtrax.losses import Loss, nll
from filtrax.metrics import bhattacharyya_distance, noise_correlation
from filtrax.spaces import AbstractSpace
from filtrax.training.evaluation import (
    Score,
    encoded,
    evaluate,
    in_chunks,
    members,
    sequences_at_once,
    without_images,
)
from filtrax.trajectory import Trajectory

SHOWN_SEQUENCES = 6
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Nominal coverages at which the empirical one is computed."""

POSITION = (0, 1)
"""The components of an observation that are the target's position, to relate to visibility."""

TEST_SEED = 1
"""Seed of the random numbers of filters in evaluations, the same for all members."""


class Evaluation:
    """The results of an ensemble on one split of its task, from every perturbed initial state.

    The ensemble has one member per seed. Results are dicts of arrays with leading axes:

    - `steps`: (members, perturbations, sequences, steps), errors and densities of the filters.
    - `sensed`: (members, sequences, steps), outputs of the sensors.
    - `scores`: (members, perturbations, sequences), the metrics of the task.
    """

    def __init__(self, experiment: Experiment, filt: Any, model: Any, split: str):
        task = experiment.task
        self.experiment = experiment
        # Loaded models are in training mode.
        self.filt, self.model = experiment.filter.for_test(filt), eqx.nn.inference_mode(model)
        self.data = task.data(split)
        self.details = task.details(self.data)
        self.perturbations = task.perturbations()
        score = each_step(experiment.filter.density)
        count = jax.tree.leaves(eqx.filter(model, eqx.is_array))[0].shape[0]
        self.keys = _same_keys(count)
        seeing, readings = encoded(self.model, self.data, self.keys)
        data = self.data if readings is None else without_images(self.data, self.model)
        shown = jax.tree.map(lambda leaf: np.asarray(leaf)[:, :SHOWN_SEQUENCES], readings)
        self._shown_inputs = seeing, _shown(data), shown
        parts = (self.filt, seeing, data, self.perturbations, self.keys)
        steps = evaluate(score, *parts, readings=readings)
        self.steps: dict[str, np.ndarray] = jax.tree.map(np.asarray, steps)
        self.scores = task.scores(self.data, self.steps["difference"])
        readings = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), readings)
        size = sequences_at_once(seeing, data, self.keys)
        measured = in_chunks(_measure, (data, readings), seeing, self.keys, size=size, axis=1)
        self.sensed: dict[str, np.ndarray] = jax.tree.map(np.asarray, measured)

    def metrics(self, member: int) -> dict[str, float]:
        """Returns the metrics of one member, means over all steps with known states."""
        steps = {name: values[member] for name, values in self.steps.items()}
        sensed = {name: values[member] for name, values in self.sensed.items()}
        labels = np.broadcast_to(self._labels(), steps["difference"].shape)
        counts = np.asarray(labels.any(-1))
        distance = np.sqrt((np.where(labels, steps["difference"], 0.0) ** 2).sum(-1))
        found = {
            "distance": distance[counts].mean(),
            "nll": steps["nll"][counts].mean(),
            "moment_nll": steps["moment_nll"][counts].mean(),
            "nees": steps["nees"][counts].mean(),
            "coverage_50": self._inside(steps, 0.5)[labels].mean(),
            "coverage_90": self._inside(steps, 0.9)[labels].mean(),
        }
        found |= _sensor_metrics(self.details, sensed, counts[0])
        found |= _process_metrics(self.details, steps)
        found |= {name: np.nanmean(values) for name, values in self.sequence_scores(member).items()}
        return {name: float(value) for name, value in found.items()}

    def sequence_scores(self, member: int) -> dict[str, np.ndarray]:
        """Returns the task's metrics of each sequence, averaged over perturbations."""
        return {name: values[member].mean(0) for name, values in self.scores.items()}

    def shown(self, member: int) -> dict[str, Any]:
        """Returns the process noise of one member for figures, from the first initial state.

        The numbers are in plain lists; see `docs/reference/run_folder.md`.
        """
        predicted = _stds(self.steps["process_covariance"][member, 0])
        true, visible = self.details.process_covariance, self.details.visible
        true = None if true is None else _stds(np.asarray(true))
        visible = None if visible is None else np.asarray(visible)
        found = over_a_sequence(predicted, true)
        if self.experiment.task.drawing.view is None:
            return found
        positions = np.asarray(self.data.states)[..., :2]
        return found | over_the_plane(positions, predicted, visible)

    def arrays(self, member: int) -> dict[str, np.ndarray]:
        """Returns the arrays for the report of one member; see `docs/reference/run_folder.md`."""
        perturbation = min(1, len(self.perturbations) - 1)
        shown = slice(0, SHOWN_SEQUENCES)
        steps = {name: values[member, perturbation] for name, values in self.steps.items()}
        sensed = {name: values[member] for name, values in self.sensed.items()}
        labels = np.broadcast_to(self._labels(), steps["difference"].shape)
        drawn = {
            "names": np.asarray(self.experiment.task.state_space.names),
            "states": np.asarray(self.data.states)[shown],
            "measurements": sensed["value"][shown],
            "measurement_covariances": sensed["covariance"][shown],
            "all_sensor_std": _stds(sensed["covariance"]),
            "process_std": _stds(steps["process_covariance"][shown]),
            "nees": steps["nees"],
            "degrees": np.asarray(labels.sum(-1).max()),
            "coverage_levels": np.asarray(LEVELS),
            "coverage": np.stack([_column_means(self._inside(steps, p), labels) for p in LEVELS]),
        }
        drawn |= self.sequence_scores(member) | self._places() | self._words()
        return drawn | self._shown_beliefs(member, perturbation) | self._known(shown)

    def _words(self) -> dict[str, np.ndarray]:
        """Returns units and meanings of the state's components, as far as the task has them."""
        task = self.experiment.task
        words = {"units": task.units, "meanings": task.drawing.meanings}
        return {name: np.asarray(texts) for name, texts in words.items() if texts}

    def _places(self) -> dict[str, np.ndarray]:
        """Returns the map from states to pixels, and the measured components of the state.

        The latter are missing if they are the first components, as usual.
        """
        task, places = self.experiment.task, {}
        drawing = task.drawing
        if drawing.view is not None:
            places |= {"view_matrix": drawing.view.matrix, "view_offset": drawing.view.offset}
        if drawing.projection is not None:
            places["projection"] = drawing.projection
        names = task.state_space.names
        observed = self.model.observation_space.names_of(self.sensed["value"].shape[-1])
        if set(observed) <= set(names) and observed != names[: len(observed)]:
            measured = [names.index(name) for name in observed]
            places["measured_components"] = np.asarray(measured)
        return places

    def _shown_beliefs(self, member: int, perturbation: int) -> dict[str, np.ndarray]:
        """Returns estimates, particles and images of the shown sequences."""
        seeing, data, features = self._shown_inputs
        filt, model, readings = select((self.filt, seeing, features), member)
        if readings is not None:
            data = dataclasses.replace(data, readings=readings)
        start = np.asarray(self.perturbations[perturbation], data.initial.dtype)
        beliefs, drawn = _believe(filt, model, data, start, _hooks.accelerated())
        drawn = jax.tree.map(np.asarray, drawn)
        drawing, means = self.experiment.task.drawing, drawn["means"]
        pictured = _shown(self.data)
        sequences = [_sequence(pictured, i) for i in range(len(means))]
        if drawing.frames is not None:
            drawn["frames"] = np.stack([drawing.frames(sequence) for sequence in sequences])
        if isinstance(beliefs, Particles):
            drawn["particles"] = np.asarray(beliefs.states)
            drawn["log_weights"] = np.asarray(beliefs.log_weights)
        if isinstance(beliefs, GaussianMixture):
            drawn["mode_chances"] = np.exp(np.asarray(beliefs.log_weights))
        return drawn | sketches(drawing, sequences, means)

    def _known(self, shown: slice) -> dict[str, np.ndarray]:
        """Returns visibility and true process noise, if the task knows them."""
        known = {}
        if self.details.visible is not None:
            known["all_visible"] = np.asarray(self.details.visible)
            known["visible"] = known["all_visible"][shown]
        if self.details.process_covariance is not None:
            known["true_process_std"] = _stds(np.asarray(self.details.process_covariance)[shown])
        return known

    def _labels(self) -> np.ndarray:
        return np.asarray(self.data.known_states()[1])

    @staticmethod
    def _inside(steps: dict[str, np.ndarray], probability: float) -> np.ndarray:
        half_width = NormalDist().inv_cdf(0.5 + probability / 2)
        return np.abs(steps["difference"]) <= half_width * steps["std"]


@functools.partial(jax.jit, static_argnums=0)
def _same_keys(count: int) -> Keys:
    return jnp.broadcast_to(jr.key(TEST_SEED), (count,))


@functools.cache
def each_step(density: Loss) -> Score:
    """Makes a score with errors, standard deviations, NLLs, NEES and predicted Q of all steps."""

    def score(filt, model, trajectory, key):
        beliefs = filter_trajectory(filt, model, trajectory, key=key).beliefs
        model = model.bind(trajectory.context)
        space = model.state_space
        states, labels = trajectory.known_states()
        moments = jax.vmap(lambda belief: _moments(belief, space))(beliefs)
        before = jnp.concatenate([trajectory.initial[None], moments.mean[:-1]])

        @precise
        def one(belief, moments, state, labels):
            difference = space.difference(state, moments.mean)
            white = product(inverse(moments.root), jnp.where(labels, difference, 0.0))
            return {
                "difference": difference,
                "std": jnp.sqrt(jnp.diagonal(moments.covariance)),
                "nll": density(belief, state, space, labels),
                "moment_nll": nll(moments, state, space, labels),
                "nees": white @ white,
            }

        steps = jax.vmap(one)(beliefs, moments, states, labels)
        covariances = jax.vmap(model.process_noise.covariance)(before, trajectory.inputs)
        return steps | {"process_covariance": covariances}

    return score


@eqx.filter_jit
def _measure(inputs: tuple[Trajectory, Any], model: Any, keys: Any) -> dict[str, jax.Array]:
    """Computes measurements of all readings by all members, and their errors."""

    def one(trajectory, features):
        def member(model, own, key):
            bound = unwrap(model).bind(trajectory.context)
            readings = trajectory.readings if own is None else own
            known = (trajectory.observed, trajectory.inputs, trajectory.context)
            measured = sense_all(model, readings, *known, key=key)
            states = trajectory.known_states()[0]
            expected = jax.vmap(bound.observe)(states, trajectory.inputs)
            error = jax.vmap(bound.observation_space.difference)(measured.value, expected)
            return {
                "value": measured.value,
                "covariance": measured.covariance,
                "error": jnp.sqrt((error**2).sum(-1)),
                "seen": jax.vmap(lambda measurement: measurement.seen().any())(measured),
            }

        return eqx.filter_vmap(member, in_axes=members)(model, features, keys)

    return jax.vmap(one)(*inputs)


def _shown(data: Trajectory) -> Trajectory:
    """Returns the first sequences as NumPy arrays."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:SHOWN_SEQUENCES], data)


def _sequence(data: Trajectory, number: int) -> Trajectory:
    return jax.tree.map(lambda leaf: leaf[number], data)


@eqx.filter_jit
def _believe(
    filt: Any, model: Any, data: Trajectory, start: Float[Any, " x"], accelerate: bool
) -> tuple[Any, dict[str, jax.Array]]:
    """Filters several sequences with one member; returns beliefs, and their moments and errors."""
    key = jr.key(TEST_SEED)

    def one(trajectory):
        moved = eqx.tree_at(lambda t: t.initial, trajectory, trajectory.initial + start)
        beliefs = filter_trajectory(filt, model, moved, key=key).beliefs
        space = model.bind(trajectory.context).state_space
        moments = jax.vmap(lambda belief: _moments(belief, space))(beliefs)
        errors = jax.vmap(space.difference)(trajectory.known_states()[0], moments.mean)
        drawn = {"means": moments.mean, "errors": errors, "covariances": moments.covariance}
        return beliefs, drawn

    with _hooks.acceleration(accelerate):
        return jax.vmap(one)(data)


def _moments(belief: Any, space: AbstractSpace) -> Gaussian:
    """Returns the moments of a belief; for particles, those of their kernel density."""
    has_kernel = isinstance(belief, Particles)
    return belief.kernel_moments(space) if has_kernel else belief.moments(space)


def _sensor_metrics(
    details: Details, sensed: dict[str, np.ndarray], counts: np.ndarray
) -> dict[str, Any]:
    """Computes the error of measurements, and how their predicted noise depends on visibility.

    Metrics without any frames are omitted. The correlation of constant noise is NaN.
    """
    found = {}
    seen = sensed["seen"]
    if (counts & seen).any():
        found["sensor_error"] = sensed["error"][counts & seen].mean()
    if details.visible is None:
        return found
    visible, stds = np.asarray(details.visible), _stds(sensed["covariance"])
    stds = stds[..., POSITION]
    full = np.inf if details.full_view is None else details.full_view
    frames = {"visible": visible >= full, "hidden": visible == 0}
    for name, chosen in frames.items():
        if (chosen & seen).any():
            found[f"sensor_std_{name}"] = stds[chosen & seen].mean()
    varies = np.ptp(stds, axis=(0, 1)).all()
    position = np.ix_(POSITION, POSITION)
    covariances = jax.device_put(sensed["covariance"][(..., *position)])
    correlation = noise_correlation(covariances, details.visible)
    found["noise_correlation"] = correlation if varies else np.nan
    return found


def _process_metrics(details: Details, steps: dict[str, np.ndarray]) -> dict[str, Any]:
    """Compares the predicted process noise with the true one, if it is known."""
    if details.process_covariance is None:
        return {}
    predicted = steps["process_covariance"]
    true = np.broadcast_to(details.process_covariance, predicted.shape)
    distance = bhattacharyya_distance(jax.device_put(predicted), jax.device_put(true))
    return {"process_noise_distance": distance}


def select(ensemble: Any, chosen: Any) -> Any:
    """Indexes the leading axis of all arrays of an ensemble by one member or several."""
    return _select(ensemble, np.asarray(chosen))


@eqx.filter_jit  # one program instead of one per array
def _select(ensemble: Any, chosen: Int[Any, "*n"]) -> Any:
    return jax.tree.map(lambda leaf: leaf[chosen] if eqx.is_array(leaf) else leaf, ensemble)


def _stds(covariances: np.ndarray) -> np.ndarray:
    return np.sqrt(np.diagonal(covariances, axis1=-2, axis2=-1))


def _column_means(inside: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Averages each component over its labelled entries."""
    axes = tuple(range(inside.ndim - 1))
    return np.where(labels, inside, 0).sum(axes) / np.maximum(labels.sum(axes), 1)
