"""Groups: which cells train together, and that nothing else does."""

import dataclasses
import functools

import pytest
from reproduction.few_folds import few_folds

from filtrax.lab.config.settings import Experiment
from filtrax.lab.reproduction import groups
from filtrax.lab.reproduction.tables import Axis, Table, Value, read_table, table_names
from filtrax.lab.tasks.disc import DiscTask

group = functools.partial(groups.group, most_data_sets=100)
FILTERS = Axis(
    "filter",
    (
        Value("EKF"),
        Value("UKF", ("filter.kind=ukf", "filter.kappa=1.0")),
        Value("UKF wide", ("filter.kind=ukf", "filter.kappa=5.0")),
    ),
)
NOISE = Axis("noise", tuple(Value(str(n), (f"model.process_std={n}.0",)) for n in (1, 2, 3)))
DATA = Axis(
    "data",
    (
        Value("0.1", ("task.position_std=0.1",)),
        Value("3", ("task.position_std=3.0",)),
        Value("het", ("task.noise=heteroscedastic",)),
    ),
)


def cells(*axes, **base):
    table = Table("own", "Own", "nowhere", "Which?", ("distance",), axes, base=base)
    return table.cells("paper")


def names(found):
    return [[cell.name for cell in one.cells] for one in found]


def test_cells_that_differ_in_numbers_and_data_are_one_group_task_by_task():
    # Rejects members beside the data of others: those of one task must follow each other.
    (found,) = group(cells(NOISE, DATA), together=True)
    assert found.table == "own"
    tasks = [cell.experiment.task for cell in found.cells]
    assert tasks == [task for task in dict.fromkeys(tasks) for _ in range(3)]
    assert [cell.labels["noise"] for cell in found.cells] == ["1", "2", "3"] * 3
    assert found.num_members == 9


def test_other_programs_are_other_groups_in_the_order_of_the_table():
    found = group(cells(FILTERS, DATA), together=True)
    assert names(found) == [
        ["ekf_0.1", "ekf_3", "ekf_het"],
        ["ukf_0.1", "ukf-wide_0.1", "ukf_3", "ukf-wide_3", "ukf_het", "ukf-wide_het"],
    ]


@pytest.mark.parametrize(
    "change",
    [
        "num_seeds=2",
        "task.image_size=60",
        "task.num_steps=20",
        "model.sensor_noise=constant",
        "stages.0.num_epochs=3",
        "stages.0.length=5",
        "stages.0.objective=sensor",
    ],
)
def test_what_changes_the_program_is_never_joined(change):
    both = cells(Axis("a", (Value("one"), Value("other", (change,)))), stages=[{}])
    assert len(group(both, together=True)) == 2


@pytest.mark.parametrize(
    "change",
    [
        "seed=7",
        "task.seed=7",
        "task.position_std=9.0",
        "model.sensor_std=3.0",
        "stages.0.loss=mse",
        "stages.0.learning_rates=[1e-5]",
        "stages.0.decay=constant",
        "stages.0.perturbed=false",
    ],
)
def test_numbers_are_joined_and_change_the_name(change):
    # Rejects an unfinished state that other settings go on from.
    both = cells(Axis("a", (Value("one"), Value("other", (change,)))), stages=[{}])
    (found,) = group(both, together=True)
    changed = dataclasses.replace(found.cells[0], experiment=found.cells[1].experiment)
    other = groups.Group((changed, found.cells[1]))
    assert found.name.startswith("one-2-")
    assert other.name.startswith("one-2-")
    assert other.name != found.name
    assert groups.Group(found.cells).name == found.name


def test_tasks_with_fewer_cells_are_groups_of_their_own():
    # Rejects ensembles with unequal numbers of members on their data sets.
    found = group(cells(NOISE, DATA)[:-1], together=True)
    counts = [[cell.labels["data"] for cell in one.cells] for one in found]
    assert counts == [["0.1"] * 3 + ["3"] * 3, ["het"] * 2]


@pytest.mark.parametrize(
    ("most", "sizes"),
    [(9, [9]), (8, [6, 3]), (5, [3, 3, 3]), (3, [3, 3, 3]), (2, [2, 2, 2, 2, 1]), (1, [1] * 9)],
)
def test_no_group_has_too_many_members(most, sizes, monkeypatch):
    monkeypatch.setattr(groups, "MOST_MEMBERS", most)
    wanted = cells(NOISE, DATA)
    found = group(wanted, together=True)
    assert sorted((one.num_members for one in found), reverse=True) == sizes
    assert_is_partition(found, wanted)
    assert_is_rectangular(found)


@pytest.mark.parametrize(("most", "sizes"), [(1, [3, 3, 3]), (2, [6, 3]), (3, [9])])
def test_no_group_has_too_many_data_sets(most, sizes):
    wanted = cells(NOISE, DATA)
    found = group(wanted, together=True, most_data_sets=most)
    assert [one.num_members for one in found] == sizes
    assert_is_partition(found, wanted)
    assert_is_rectangular(found)


@pytest.mark.parametrize(
    ("trained", "sizes"),
    [
        (["model", "filter"], [6, 3]),
        (["model.sensor"], [6, 3]),
        (["model.sensor.encoder.network"], [6, 3]),
        (["model.sensor.noise", "model.process_noise"], [9]),
    ],
)
def test_where_convolutions_train_there_are_few_data_sets_in_a_group(trained, sizes, monkeypatch):
    # Rejects ensembles with too many images in a step, and ensembles that could be larger.
    monkeypatch.setattr(DiscTask, "sets_of_images", 2)
    found = groups.group(cells(NOISE, DATA, stages=[{"train": trained}]), together=True)
    assert [one.num_members for one in found] == sizes


def test_seeds_and_learning_rates_count_as_members(monkeypatch):
    monkeypatch.setattr(groups, "MOST_MEMBERS", 12)
    stages = [{"learning_rates": [1e-3, 1e-4]}]
    found = group(cells(DATA, num_seeds=2, stages=stages), together=True)
    assert [one.num_members for one in found] == [12]
    monkeypatch.setattr(groups, "MOST_MEMBERS", 8)
    found = group(cells(DATA, num_seeds=2, stages=stages), together=True)
    assert [one.num_members for one in found] == [8, 4]


def test_on_a_cpu_each_cell_is_alone():
    wanted = cells(FILTERS, DATA)
    for found in (group(wanted), group(wanted, together=False)):
        assert [one.cells for one in found] == [(cell,) for cell in wanted]


def test_on_a_gpu_cells_are_joined(monkeypatch):
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    assert len(group(cells(NOISE, DATA))) == 1


def test_cells_without_stages_are_alone():
    found = group(cells(NOISE, DATA, stages=[]), together=True)
    assert [len(one.cells) for one in found] == [1] * 9
    assert found[0].num_epochs == 0


def test_epochs_are_those_of_all_stages():
    (found,) = group(cells(DATA, stages=[{"num_epochs": 3}, {"num_epochs": 4}]), together=True)
    assert found.num_epochs == 7


@pytest.mark.long
@pytest.mark.parametrize("name", table_names())
def test_every_table_falls_into_groups_that_can_train(name):
    for scale in ("smoke", "paper"):
        wanted = few_folds(read_table(name)).cells(scale)
        found = group(wanted, together=True)
        assert_is_partition(found, wanted)
        assert_is_rectangular(found)
        assert max(one.num_members for one in found) <= groups.MOST_MEMBERS
        assert len({one.name for one in found}) == len(found)


def assert_is_partition(found, wanted):
    placed = [cell.name for one in found for cell in one.cells]
    assert sorted(placed) == sorted(cell.name for cell in wanted)


def assert_is_rectangular(found):
    for one in found:
        tasks = [cell.experiment.task for cell in one.cells]
        counts = {tasks.count(task) for task in tasks}
        (count,) = counts
        assert tasks == [task for task in dict.fromkeys(tasks) for _ in range(count)]
        programs = {cell.experiment.program for cell in one.cells}
        assert len(programs) == 1
        assert all(isinstance(program, Experiment) for program in programs)
