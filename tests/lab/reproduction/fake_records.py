"""Records as a run of a table writes them, with numbers that are made up."""

from typing import Any

from filtrax.lab.reproduction.tables import Table, cell_name

ORIGIN = {
    "filtrax": "0.1.0",
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "dirty": False,
    "device": {"platform": "gpu", "kind": "NVIDIA H200", "count": 1},
    "command": "filtrax reproduce",
    "started": "2025-01-01T00:00:00+00:00",
}


def fake_record(
    table: str, labels: dict[str, str], mean: dict[str, float | None], **changes: Any
) -> dict[str, Any]:
    """A record of two seeds whose means have standard errors of 0.05."""
    return {
        "table": table,
        "cell": labels,
        "scale": "paper",
        "epochs": {"done": 30, "planned": 30},
        "seeds": [0, 1],
        "parameters": 14123,
        "seconds": {"training": 60.0, "members": 8},
        "origin": ORIGIN,
        "config": {},
        "members": [{"seed": seed, "metrics": mean} for seed in (0, 1)],
        "mean": mean,
        "standard_error": dict.fromkeys(mean, 0.05),
    } | changes


def fake_records(table: Table, **metrics: float) -> dict[str, dict[str, Any]]:
    """A record for each cell: numbers a bit below the paper's where it has any, or the given."""
    records = {}
    for i, labels in enumerate(table.labels()):
        mean = {}
        for metric in table.metrics:
            paper = table.paper_value(labels, metric)
            if paper is not None:
                mean[metric] = round(0.9 * paper[0], 3)
            elif metric in metrics:
                mean[metric] = metrics[metric] + 0.01 * i
        records[cell_name(labels.values())] = fake_record(table.name, labels, mean)
    return records
