"""Records, and the tables that the documentation shows of them.

    python benchmarks/records.py add runs/ekf_3 ...
    python benchmarks/records.py tables
    python benchmarks/records.py page

The first keeps what matters of run folders in `benchmarks/results/training`, the second prints the
tables, the third puts them into the pages.
"""

import itertools
import json
import re
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
# Mean distance and NLL of Kloss et al. (2021), 30 distractors, by filter and position std.
PAPER = {
    ("EKF", 0.1): (6.1, 9.1),
    ("EKF", 3.0): (6.31, 9.24),
    ("EKF", 9.0): (11.83, 11.10),
    ("UKF", 3.0): (6.46, 9.26),
    ("UKF", 9.0): (11.49, 10.75),
    ("MCUKF", 3.0): (6.53, 9.23),
    ("PF-M", 3.0): (6.75, 12.33),
    ("PF-M", 9.0): (11.52, 20.50),
    ("PF-G", 3.0): (13.3, 12.4),
    ("PF-M-lrn", 3.0): (5.89, 11.43),
    ("PF-G-lrn", 3.0): (5.7, 9.8),
    ("LSTM-1", 3.0): (9.44, 10.64),
    ("LSTM-2", 3.0): (7.13, 9.76),
}


def method(config: dict) -> str:
    """The name of a filter in the paper's tables."""
    filt = config["filter"]
    if filt["kind"] == "lstm":
        return f"LSTM-{filt['num_layers']}"
    if filt["kind"] != "particle":
        return filt["kind"].upper()
    learned = "-lrn" if config["model"]["likelihood"] == "learned" else ""
    return ("PF-M" if filt["belief"] == "mixture" else "PF-G") + learned


def add(folders: list[str]) -> None:
    """Keeps what matters of run folders: configuration, origin, result, and time of an epoch."""
    import tomllib

    for folder in map(Path, folders):
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        # The first epochs compile.
        seconds = np.diff([line["seconds"] for line in lines])[2:]
        record = {
            "origin": json.loads((folder / "run.json").read_text()),
            "config": tomllib.loads((folder / "config.toml").read_text()),
            "result": json.loads((folder / "result.json").read_text()),
            "seconds_per_epoch": round(float(np.median(seconds)), 3),
        }
        target = RESULTS / "training" / f"{folder.name}.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(record, indent=1) + "\n")


def runs_table() -> str:
    """All recorded runs beside the paper's figures."""
    rows = [
        "| Filter | σ_qp | seeds | epochs | device | distance, each seed | mean | NLL, each seed "
        "| mean | paper | rollbacks | lost |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for path in sorted((RESULTS / "training").glob("*.json")):
        record = _read(path)
        config, members = record["config"], record["result"]["members"]
        name, std = method(config), config["task"]["position_std"]
        distance = [member["metrics"]["distance"] for member in members]
        nll = [member["metrics"]["nll"] for member in members]
        rollbacks = [member["rollbacks"] for member in members]
        paper = PAPER[(name, std)]
        lost = sum(
            not (d <= 1.5 * np.median(distance) and n <= paper[1] and r <= 3)
            for d, n, r in zip(distance, nll, rollbacks, strict=True)
        )
        device = record["origin"]["device"]
        cells = [
            name,
            f"{std:g}",
            len(members),
            config["stages"][0]["num_epochs"],
            "CPU" if device["platform"] == "cpu" else device["kind"].removeprefix("NVIDIA "),
            " ".join(f"{d:.2f}" for d in distance),
            f"**{np.mean(distance):.2f}**",
            " ".join(f"{n:.2f}" for n in nll),
            f"**{np.mean(nll):.2f}**",
            f"{paper[0]:g} / {paper[1]:g}",
            sum(rollbacks),
            lost,
        ]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def recipe_table() -> str:
    """The ablation of the recipe."""
    rows = [
        "| Variant | distance, each seed | NLL, each seed | rollbacks | lost |",
        "|---|---|---|---|---|",
    ]
    for part in ("numbers", "floors"):
        record = _read(RESULTS / f"recipe_{part}_h200.json")
        for result in record["results"]:
            cells = [
                result["variant"],
                " ".join(f"{d:.2f}" for d in result["distance"]),
                " ".join(f"{n:.2f}" for n in result["nll"]),
                sum(result["rollbacks"]),
                f"{result['lost']} of {len(result['nll'])}",
            ]
            rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def ekf_table() -> str:
    """The means of the extended Kalman filter, in short."""
    rows = ["| σ_qp | distance | paper | NLL | paper |", "|---|---|---|---|---|"]
    for path in sorted((RESULTS / "training").glob("ekf_*.json")):
        record = _read(path)
        std, mean = record["config"]["task"]["position_std"], record["result"]["mean"]
        paper = PAPER[("EKF", std)]
        distance = f"{mean['distance']:.2f} | {paper[0]:g}"
        rows.append(f"| {std:g} | {distance} | {mean['nll']:.2f} | {paper[1]:g} |")
    return "\n".join(rows)


def real_table() -> str:
    """Filters on KITTI's real images, and what learns nothing, on the test frames."""
    names = {"ekf": "dEKF", "ukf": "dUKF", "pf_m_lrn": "dPF-M-lrn", "lstm": "LSTM"}
    sensors = {"flow_": "flow", "": "matching"}
    rows = [
        "| | sensor | m/m | deg/m | NLL | in the 50 % region | in the 90 % region |",
        "|---|---|---|---|---|---|---|",
    ]
    for (prefix, sensor), (name, label) in itertools.product(sensors.items(), names.items()):
        found = _read(ROOT / "studies" / "kloss2021" / "real" / f"{prefix}{name}.json")["scores"][
            "test"
        ]
        windows, mean = found["windows"], found["mean"]
        shares = [f"{100 * mean[share]:.0f} %" for share in ("coverage_50", "coverage_90")]
        cells = [label, sensor, *_errors(windows), _with_error(windows["nll"], 1), *shares]
        rows.append(f"| {' | '.join(cells)} |")
    others = _read(ROOT / "studies" / "kloss2021" / "real" / "baselines.json")["scores"]["test"]
    for name, windows in others.items():
        rows.append(f"| {' | '.join([name, '–', *_errors(windows), *['–'] * 3])} |")
    return "\n".join(rows)


def velocities_table() -> str:
    """A filter that is trained with each kind of velocities, on the validation frames."""
    rows = [
        "| `task.velocities` | sensor, m/s | sensor, °/s | distance | m/m | deg/m | NLL |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in _read(RESULTS / "velocities.json")["results"]:
        windows = result["windows"]
        sensor = np.sqrt(np.mean(np.square(result["sensor_rmse"]), 0))
        cells = [
            f'"{result["velocities"]}"',
            *(f"{error:.2f}" for error in sensor),
            _with_error(windows["distance"], 2),
            *_errors(windows),
            _with_error(windows["nll"], 1),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _errors(windows: dict) -> list[str]:
    return [_with_error(windows[f"{kind}_error"], 3) for kind in ("translation", "rotation")]


def _with_error(number: dict[str, float], digits: int) -> str:
    return f"{number['mean']:.{digits}f} ± {number['standard_error']:.{digits}f}"


def streets_table() -> str:
    """How well optical flow on generated images goes with the motion they were drawn for."""
    rows = [
        "| Drive | Speed, r | Rate, r | Speed, RMSE | Rate, RMSE | Pairs |",
        "|---|---|---|---|---|---|",
    ]
    for path in sorted(RESULTS.glob("street_flow*.json")):
        record = _read(path)
        height, width = record["image_size"]
        size = "" if (height, width) == (50, 150) else f", images of {height} × {width}"
        for name, row in record["rows"].items():
            cells = [
                name + size,
                *(f"{row[f'{part}_correlation']:.3f}" for part in ("speed", "rate")),
                f"{row['speed_rmse']:.2f} m/s",
                f"{row['rate_rmse']:.2f} °/s",
                str(row["pairs"]),
            ]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _read(path: Path) -> dict:
    return json.loads(path.read_text())


TABLES = {
    "runs": runs_table,
    "recipe": recipe_table,
    "ekf": ekf_table,
    "real": real_table,
    "streets": streets_table,
    "velocities": velocities_table,
}
PAGES = {
    ROOT / "docs" / "training.md": ("runs", "recipe"),
    ROOT / "README.md": ("ekf",),
    ROOT / "docs" / "how_to" / "real_kitti.md": ("velocities", "real"),
    ROOT / "docs" / "reference" / "streets.md": ("streets",),
}


def with_tables(page: Path) -> str:
    """The text of a page with the tables of the records between their markers."""
    text = page.read_text()
    for name in PAGES[page]:
        place = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", re.DOTALL)
        content = f"\n{TABLES[name]()}\n\n"
        text, count = place.subn(lambda _, content=content: content, text)
        if count != 1:
            raise ValueError(f"{page} must have the marker <!-- {name} --> once, got {count}.")
    return text


def main() -> None:
    """Adds records, prints their tables, or puts them into the pages."""
    command, *folders = sys.argv[1:] or ["tables"]
    if command == "add":
        add(folders)
    elif command == "page":
        for page in PAGES:
            page.write_text(with_tables(page))
    elif command != "tables":
        sys.exit(f"The command must be add, tables or page, got {command!r}.")
    if command != "page":
        for name, table in TABLES.items():
            print(f"{name}:\n\n{table()}\n")


if __name__ == "__main__":
    main()
