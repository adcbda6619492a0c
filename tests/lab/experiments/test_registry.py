"""Classes of one's own: known by their names, in files and in models, and never two by one name."""

import abc
import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import filtrax
import tiny_run
from filtrax.lab import register
from filtrax.lab.config import ConfigurationError, as_dict, build, parse
from filtrax.lab.config.filters import AbstractFilterSettings, Ekf
from filtrax.lab.config.settings import Experiment, StageSettings, TermSettings
from filtrax.lab.experiments.building import build_stage
from filtrax.lab.registry import registered
from filtrax.lab.reproduction.scales import scaled
from filtrax.lab.tasks import SPLITS, AbstractModelSettings, AbstractTask, Drawing
from filtrax.lab.tasks.base import NoSettings
from filtrax.lab.tasks.disc import DiscModel, DiscTask
from filtrax.lab.tasks.parts import AbstractNoiseSettings, AbstractSensorSettings, build_model
from filtrax.noise import constant_noise

LINE = filtrax.Space(("x",))


def line_model():
    return filtrax.StateSpaceModel(
        state_space=LINE,
        observation_space=LINE,
        process=lambda state, inputs: state,
        process_noise=constant_noise([1.0]),
        observe=lambda state, inputs: state,
        sensor=filtrax.DirectSensor(constant_noise([1.0])),
    )


@dataclasses.dataclass(frozen=True)
class LineTask(AbstractTask):
    """The fewest members that a task can have."""

    kind: ClassVar[str] = "line"
    num_steps: int = 20
    num_test: int = 100

    @property
    def state_space(self):
        return LINE

    def data(self, split):
        states = jnp.full((2, self.num_steps, 1), float(SPLITS.index(split)))
        first = states[:, 0]
        return filtrax.Trajectory(first, jnp.ones((2, 1, 1)), states, states=states)

    def build(self, settings, *, key):
        return line_model()


def test_a_task_needs_five_members_and_has_defaults_for_the_others(own_registry):
    register(LineTask)
    experiment = parse(Experiment, {"task": {"kind": "line", "num_steps": 12}})
    assert (experiment.name, experiment.task) == ("line", LineTask(num_steps=12))
    assert experiment.model == NoSettings()
    assert parse(Experiment, as_dict(experiment)) == experiment
    task = experiment.task
    np.testing.assert_array_equal(task.perturbations(), [[0.0]])
    assert task.drawing == Drawing()
    assert task.details(task.data("test")).visible is None
    assert task.scores(task.data("test"), np.zeros((2, 12, 1))) == {}
    # The number of sequences is not said, so that no batch is refused before the data are read.
    stage = StageSettings(frames_per_batch=10_000)
    assert dataclasses.replace(experiment, stages=(stage,)).stages == (stage,)
    small = scaled(experiment, "smoke")
    assert (small.task.num_steps, small.task.num_test, small.stages[0].length) == (4, 2, 4)


def test_a_likelihood_is_pretrained_only_where_the_task_says_how(own_registry):
    register(LineTask)
    stage = {"terms": [{"name": "likelihood"}]}
    with pytest.raises(ConfigurationError, match=r"terms of stage .* task 'line': .*likelihood"):
        parse(Experiment, {"task": {"kind": "line"}, "stages": [stage]})
    stage = StageSettings(objective="likelihood")
    experiment = Experiment(task=LineTask(), stages=(stage,))
    with pytest.raises(ValueError, match="task 'line' must have a `contrast`"):
        build_stage(experiment, stage)
    assert Experiment(stages=(StageSettings(terms=(TermSettings("likelihood"),)),))


def test_a_name_stands_for_one_class(own_registry):
    register(LineTask)
    assert register(LineTask) is LineTask  # a module may be imported again

    @dataclasses.dataclass(frozen=True)
    class Other(LineTask):
        kind: ClassVar[str] = "line"

    @dataclasses.dataclass(frozen=True)
    class Second(LineTask):
        kind: ClassVar[str] = "disc"

    with pytest.raises(ValueError, match=r"'line' is taken by .*LineTask, so that .*Other cannot"):
        register(Other)
    with pytest.raises(ValueError, match=r"'disc' is taken by filtrax\..*DiscTask"):
        register(Second)
    assert registered(AbstractTask)["disc"] is DiscTask

    @register
    @dataclasses.dataclass(frozen=True)
    class Filter(AbstractFilterSettings):
        kind: ClassVar[str] = "line"  # of another sort

        def build(self, task, model, example, *, key):
            return filtrax.ExtendedKalmanFilter()

    chosen = build(Experiment, {}, ["filter.kind=line", "task.kind=line"])
    assert (chosen.filter, chosen.task) == (Filter(), LineTask())


class NoDataclass(LineTask):
    kind: ClassVar[str] = "new"


@dataclasses.dataclass
class Thawed:
    kind: ClassVar[str] = "new"


@dataclasses.dataclass(frozen=True)
class Nameless(AbstractFilterSettings):
    def build(self, task, model, example, *, key):
        return None


@dataclasses.dataclass(frozen=True)
class Unfinished(AbstractTask, abc.ABC):
    kind: ClassVar[str] = "new"


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (NoDataclass, "NoDataclass must be a frozen dataclass.* below @register"),
        (Thawed, "must be a subclass of AbstractTask.*: got .*Thawed"),
        (AbstractTask, "must be a subclass of AbstractTask"),
        (Nameless, "Nameless must say the name that configuration files use"),
        (Unfinished, "Unfinished must define build, data, state_space"),
    ],
)
def test_what_cannot_be_registered_is_named(cls, message, own_registry):
    before = dict(registered(AbstractTask))
    with pytest.raises(TypeError, match=message):
        register(cls)
    assert registered(AbstractTask) == before


def test_an_unknown_kind_leads_to_the_option(own_registry):
    for mapping, place in (
        ({"task": {"kind": "blob"}}, "`task.kind`"),
        ({"filter": {"kind": "blob"}}, "`filter.kind`"),
        ({"model": {"sensor": {"kind": "blob"}}}, "`model.sensor.kind`"),
    ):
        with pytest.raises(ConfigurationError, match=rf"^{place} .*'blob'.* --plugin MODULE\.$"):
            parse(Experiment, mapping)
    # Rejects a name that is close by chance, as "swing" is to "pushing", as the only advice.
    with pytest.raises(ConfigurationError, match=r"Did you mean 'pushing'\? .* --plugin MODULE\.$"):
        parse(Experiment, {"task": {"kind": "swing"}})
    with pytest.raises(ConfigurationError, match="Did you mean 'ekf'") as caught:
        parse(Experiment, {"filter": {"kind": "imm", "inner": {"kind": "ekff"}}})
    assert "--plugin" not in str(caught.value)  # only these three can be inner filters


@dataclasses.dataclass(frozen=True)
class Corner(AbstractSensorSettings):
    """A sensor that knows nothing."""

    kind: ClassVar[str] = "corner"
    std: float = 2.0

    def build(self, task, *, key):
        sensor = filtrax.DirectSensor(constant_noise(jnp.full(2, self.std)))
        return lambda reading, inputs, context, *, key=None: sensor(
            jnp.zeros(2), inputs, context, key=key
        )


@dataclasses.dataclass(frozen=True)
class Wide(AbstractNoiseSettings):
    """Constant noise."""

    kind: ClassVar[str] = "wide"
    std: float = 7.0

    def build(self, task, size, *, key):
        return constant_noise(jnp.full(size, self.std))


def test_parts_of_ones_own_take_the_place_of_the_tasks(own_registry):
    # Rejects another place, a wrong size, and other networks beside the part.
    register(Corner)
    register(Wide)
    task = tiny_run.TASK
    mapping = {"model": {"process_noise": {"kind": "wide", "std": 3.0}, "sensor_noise": "constant"}}
    settings = parse(Experiment, mapping).model
    assert settings == DiscModel(process_noise=Wide(3.0), sensor_noise="constant")
    assert as_dict(settings)["process_noise"] == {"kind": "wide", "std": 3.0}
    key = jax.random.key(3)
    model = build_model(task, settings, key=key)
    np.testing.assert_allclose(model.process_noise.std, jnp.full(4, 3.0))
    usual = task.build(DiscModel(sensor_noise="constant"), key=key)
    for mine, theirs in ((model.sensor, usual.sensor), (model.process, usual.process)):
        jax.tree.map(np.testing.assert_array_equal, mine, theirs)
    both = DiscModel(sensor=Corner(), sensor_noise=Wide())
    with pytest.raises(ValueError, match="only if the sensor has a `noise`"):
        build_model(task, both, key=key)
    model = build_model(task, DiscModel(sensor_noise=Wide()), key=key)
    np.testing.assert_allclose(model.sensor.noise.std, jnp.full(2, 7.0))
    model = build_model(task, DiscModel(sensor=Corner()), key=key)
    assert model.sensor(None, None, None).value.shape == (2,)


def test_the_tasks_of_the_paper_go_the_same_road():
    assert {*registered(AbstractTask)} >= {"disc", "kitti", "pushing"}
    kinds = {*registered(AbstractFilterSettings)}
    assert kinds >= {"ekf", "ukf", "mcukf", "imm", "particle", "lstm"}
    assert registered(AbstractFilterSettings)["ekf"] is Ekf
    assert registered(AbstractModelSettings) is None
