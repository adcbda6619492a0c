"""Tables: every cell of every table is an experiment, and mistakes in a file are named."""

import dataclasses
import math
import re
from pathlib import Path

import pytest
from reproduction.few_folds import few_folds

from filtrax.lab.config import ConfigurationError, read
from filtrax.lab.config.filters import Ekf
from filtrax.lab.config.settings import Experiment
from filtrax.lab.reproduction.claims import judge
from filtrax.lab.reproduction.scales import LIMITS
from filtrax.lab.reproduction.tables import SCALES, read_table, table_names

CONFIGS = Path(__file__).parents[3] / "configs"

FILE = """
title = "Own"
source = "nowhere"
asks = "Which?"
metrics = ["distance", "nll"]
rows = ["filter"]
columns = ["data"]
paper = '''
filter | data | distance   | nll
EKF    | 3    | 6.1 ± 0.54 | –
UKF    | 3    | -0.5       | 9
'''

[base.task]
num_distractors = 7

[[base.stages]]
num_epochs = 4

[[axes]]
name = "column"
values = [{ label = "a" }, { label = "b", set = ["filter.kappa=2.0", "seed=1"] }]

[[axes]]
name = "filter"
values = [{ label = "EKF" }, { label = "UKF", set = ["filter.kind=ukf", "seed=2"] }]

[[axes]]
name = "data"
values = [{ label = "3" }, { label = "9, Q/10", set = ["task.position_std=9.0", "seed=3"] }]

[[adjust]]
when = { column = "b", filter = "EKF" }
skip = true

[[adjust]]
when = { filter = ["EKF", "UKF"], data = "9, Q/10", column = "a" }
set = ["seed=4"]
"""


def own_table(folder, text=FILE):
    path = folder / "own.toml"
    path.write_text(text)
    return read_table(path)


def test_a_cell_is_the_base_with_axes_in_order_then_adjustments(tmp_path):
    cells = {cell.name: cell for cell in own_table(tmp_path).cells("paper")}
    assert list(cells) == [
        *("a_ekf_3", "a_ekf_9-q-over-10", "a_ukf_3", "a_ukf_9-q-over-10"),
        *("b_ukf_3", "b_ukf_9-q-over-10"),
    ]
    # Later axes win over earlier ones, and adjustments over axes; a kind comes before all.
    seeds = {name: cell.experiment.seed for name, cell in cells.items()}
    assert list(seeds.values()) == [0, 4, 2, 4, 2, 3]
    last = cells["b_ukf_9-q-over-10"].experiment
    assert last.filter.kind == "ukf"
    assert last.filter.kappa == 2.0
    assert last.task.position_std == 9.0
    assert last.task.num_distractors == 7
    assert last.stages[0].num_epochs == 4
    assert last.name == "own"
    assert cells["a_ukf_3"].labels == {"column": "a", "filter": "UKF", "data": "3"}
    assert cells["a_ukf_3"].experiment.filter.kappa == 0.5
    assert cells["a_ukf_3"].start is None


def test_printed_numbers_apply_to_all_cells_with_their_labels(tmp_path):
    table = own_table(tmp_path)
    labels = {"column": "a", "filter": "EKF", "data": "3"}
    assert table.paper_value(labels, "distance") == (6.1, 0.54)
    assert table.paper_value(labels | {"column": "b"}, "distance") == (6.1, 0.54)
    assert table.paper_value(labels, "nll") is None
    assert table.paper_value(labels | {"filter": "UKF"}, "distance") == (-0.5, None)
    assert table.paper_value(labels | {"data": "9, Q/10"}, "distance") is None
    assert table.paper_value(labels, "coverage_90") is None


def test_a_method_of_ones_own_joins_the_table(tmp_path):
    table = own_table(tmp_path)
    table = dataclasses.replace(table, axes=table.axes[1:], adjust=())

    def change(experiment):
        return dataclasses.replace(experiment, filter=Ekf(iterations=3), seed=9)

    for new, seeds in ((change, [9, 9]), (["filter.iterations=3"], [0, 3])):
        cells = table.with_value("filter", "mine", new).cells("smoke")
        mine = [cell.experiment for cell in cells[-2:]]
        assert [cell.name for cell in cells[-2:]] == ["mine_3", "mine_9-q-over-10"]
        assert [experiment.filter for experiment in mine] == [Ekf(iterations=3)] * 2
        assert [experiment.seed for experiment in mine] == seeds
        assert [experiment.task.position_std for experiment in mine] == [3.0, 9.0]
        assert cells[:-2] == table.cells("smoke")
    with pytest.raises(ValueError, match="labels that differ"):
        table.with_value("filter", "ekf", [])
    with pytest.raises(ValueError, match="Did you mean 'filter'"):
        table.with_value("filters", "mine", [])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('rows = ["filter"]', 'rows = ["filtr"]', "no such axis.*Did you mean 'filter'"),
        ('filter = ["EKF", "UKF"]', 'filter = ["EKf"]', "no such label.*Did you mean 'EKF'"),
        ("UKF    | 3    |", "PF     | 3    |", "none is .*PF"),
        ("| distance   |", "| distanc    |", "axes and metrics.*Did you mean 'distance'"),
        ("6.1 ± 0.54 | –", "6.1 ± 0.54", "4 entries of its header"),
        ("6.1 ± 0.54", "6.1 or so", "numbers like 6.1 ± 0.54"),
        ('label = "9, Q/10"', 'label = "3"', "labels that differ"),
        ("asks =", "ask =", "no setting `ask`.*Did you mean 'asks'"),
        ('{ label = "EKF" }', '{ label = "EKF", change = "x" }', "no setting `axes.1.values.0.ch"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path, old, new, message):
    assert old in FILE
    with pytest.raises(ConfigurationError, match=re.compile(message, re.DOTALL)):
        own_table(tmp_path, FILE.replace(old, new))


def test_a_cell_that_is_no_experiment_is_named(tmp_path):
    table = own_table(tmp_path, FILE.replace("num_epochs = 4", "num_epochs = 0"))
    with pytest.raises(ConfigurationError, match=r"Cell 'a_ekf_3' of table 'own'.*num_epochs"):
        table.cells("paper")
    with pytest.raises(ValueError, match="Did you mean 'smoke'"):
        table.cells("smok")
    with pytest.raises(ValueError, match="Did you mean 'disc_benchmark'"):
        read_table("disc_benchmrk")


def test_a_start_must_exist(tmp_path):
    start = '[[start]]\ntable = "disc_sensor"\naxes = ["data"]\nlabels = { distractors = "30" }\n'
    text = FILE.replace("[[adjust]]", start + "\n[[adjust]]", 1)
    table = own_table(tmp_path, text.replace("9, Q/10", "9"))
    assert table.cells("smoke")[-1].start == ("disc_sensor", "30_9", ("model",))
    with pytest.raises(ConfigurationError, match="'disc_sensor', which has no cell"):
        own_table(tmp_path, text).cells("smoke")


@pytest.mark.parametrize("name", table_names())
def test_every_cell_of_every_table_is_an_experiment_at_every_scale(name):
    table = few_folds(read_table(name))
    for scale in SCALES:
        cells = table.cells(scale)
        names = {cell.name for cell in cells}
        assert len(names) == len(cells) == len(table.labels())
        assert all(re.fullmatch(r"[a-z0-9._-]+", cell) for cell in names)
        if scale == "paper":
            continue
        limits = LIMITS[scale]
        for cell in cells:
            experiment, task = cell.experiment, cell.experiment.task
            for setting, limit in task.limits(scale).items():
                found = getattr(task, setting)
                assert (found == limit) if isinstance(limit, tuple) else (0 < found <= limit)
            # Streets have eleven drives, two cameras and mirrored images; a seventh validates.
            windows = 6 * 4 * 10 * getattr(task, "windows_per_variant", 0) // 7
            num_train = windows if task.kind == "kitti" else task.num_train
            for stage in experiment.stages:
                count = num_train * (task.num_steps // stage.length)
                assert stage.num_epochs <= limits.stage["num_epochs"]
                assert count // stage.batch_size >= 2


@pytest.mark.parametrize("name", table_names())
def test_every_table_can_be_printed_and_every_rule_finds_cells(name):
    table = few_folds(read_table(name))
    assert set(table.blocks) <= {"column", "distractors", "fold"}
    for row in table._printed.labels(table.metrics):
        values = [table.paper_value(row, metric) for metric in table.metrics]
        assert any(value is not None and math.isfinite(value[0]) for value in values)
    assert all(claim.section for claim in table.claims)
    for claim in (*table.claims, *table.goals):
        assert claim.says.endswith((".", ")"))
        for rule in claim.rules:
            alone = dataclasses.replace(claim, rules=(rule,))
            columns = {"column"} & {axis.name for axis in table.axes}
            findings = judge(alone, table, {}, dict.fromkeys(columns, "filtrax")).findings
            assert findings
            assert all(finding.outcome == "missing" for finding in findings)


def test_the_columns_are_our_recipe_and_the_protocol_of_the_paper():
    cells = {cell.name: cell.experiment for cell in read_table("disc_benchmark").cells("paper")}
    names = {"name": "", "num_seeds": 1}
    for name, config in (("filtrax_dekf_3", "disc_ekf"), ("paper_dekf_3", "disc_paper")):
        expected = read(Experiment, CONFIGS / f"{config}.toml")
        assert cells[name].num_seeds == 2
        assert dataclasses.replace(cells[name], **names) == dataclasses.replace(expected, **names)
    assert not cells["filtrax_reference_9"].stages
    kernels = {name for name, cell in cells.items() if getattr(cell.filter, "learned_kernel", 0)}
    data = ("0.1", "0.1-het", "3", "9")
    assert kernels == {f"filtrax_{row}_{x}" for row in ("dpf-m", "dpf-m-lrn") for x in data}
    assert "paper_reference_9" not in cells


def test_the_noise_tables_train_nothing_but_noise_on_fixed_sensors():
    sensors = {cell.name: cell.experiment for cell in read_table("disc_sensor").cells("small")}
    for name in ("disc_observation_noise", "disc_process_noise", "disc_correlated_noise"):
        for cell in read_table(name).cells("small"):
            assert cell.start is not None
            table, source, parts = cell.start
            assert table == "disc_sensor"
            assert "noise" not in " ".join(parts)
            assert sensors[source].task == cell.experiment.task
            model, (stage,) = cell.experiment.model, cell.experiment.stages
            assert model.process == "analytical"
            assert (model.process_std, model.sensor_std) == (1.0, 10.0)
            assert stage.train == ("model.sensor.noise", "model.process_noise")


def test_initial_covariances_differ_by_the_factor_that_the_label_says():
    for cell in read_table("disc_initial_noise").cells("paper"):
        found = re.fullmatch(r"([QR])([/*])(\d+)", cell.labels["start"])
        part, sign, factor = found.groups() if found else ("Q", "*", "1")
        expected = float(factor) if sign == "*" else 1 / float(factor)
        model = cell.experiment.model
        ratios = {"Q": (model.process_std / 10.0) ** 2, "R": (model.sensor_std / 30.0) ** 2}
        assert ratios.pop(part) == pytest.approx(expected, rel=1e-4)
        assert [*ratios.values()] == [1.0]


def test_all_lengths_have_as_many_frames_in_a_batch():
    for cell in read_table("disc_length").cells("paper"):
        (stage,) = cell.experiment.stages
        assert stage.length == int(cell.labels["length"])
        frames = {"filtrax": 300, "paper": 150}[cell.labels["column"]]
        assert stage.batch_size * stage.length == frames
