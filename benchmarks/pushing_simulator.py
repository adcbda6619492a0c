"""Compares the spread of simulated pushes with that of real ones, and searches for its numbers.

    python benchmarks/pushing_simulator.py measure DIR --out pushing_simulator.json
    python benchmarks/pushing_simulator.py fit DIR

DIR has a table of real pushes; `filtrax data pushing --validate DIR` reads the same. `measure`
compares errors of the physics on real pushes with those on the pushes of simulated sequences. For
real ones c, μ and the registration are fitted to all of them.

`fit` finds the numbers of `disturbances.real_friction`: c and μ as above, and spreads by the
cross-entropy method (Rubinstein 1999): draw spreads, simulate the pushes of fixed sequences with
them, keep those whose errors have quantiles most like those of real pushes, and draw about these.
It prints the table.
"""

import argparse
import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from filtrax.lab.files import as_json, write_text
from filtrax.lab.provenance import provenance
from filtrax.lab.tasks.pushing.agreement import (
    NUM_STEPS,
    QUANTILES,
    compare,
    error_quantiles,
    errors,
    pushes_of,
)
from filtrax.lab.tasks.pushing.calibration import (
    LENGTH,
    PUSHER,
    REGISTRATION,
    Calibration,
    Groups,
    even_pressure,
    fit,
    grouped,
    predict,
)
from filtrax.lab.tasks.pushing.disturbances import Spread, simulated_ends
from filtrax.lab.tasks.pushing.recordings.endpoints import (
    Pushes,
    find_endpoints,
    read_endpoints,
    wrapped_difference,
)
from filtrax.lab.tasks.pushing.sequences import make_sequences
from filtrax.lab.tasks.pushing.shapes import NAMES, shape

WEIGHTS = np.asarray([1.0, 0.5, 1.0])
"""Weights of the quantiles in the sum of squared logarithms of ratios."""
TYPICAL = np.log([0.15, 0.2, 1.5, 0.02, 0.04, 0.6])
"""Logarithms of spreads that are drawn towards, where quantiles do not tell."""
ITERATIONS, DRAWS, KEPT = 24, 16, 4
SEQUENCES_PER_OBJECT = 100
"""Whose pushes are simulated again and again."""
FIRST_STD, SMALLEST_STD = 0.45, 0.03
PULL = 0.003
TOLERANCE = 0.2


def by_object(pushes: Pushes) -> Groups:
    """All pushes."""
    return grouped(pushes, {name: shape(name) for name in NAMES}, np.ones(len(pushes), bool))


def fitted(groups: Groups) -> Calibration:
    """c, μ and registration of real pushes."""
    start = jax.vmap(even_pressure)(groups.shapes)
    return fit(groups, fit(groups, start, LENGTH), (*LENGTH, *PUSHER, *REGISTRATION))


def measure(place: str, out: Path | None, seed: int) -> None:
    """Compares, and writes a record."""
    origin = provenance(seed=seed)
    real = by_object(read_endpoints(find_endpoints(place)))
    found = compare(real.names, errors(real, fitted(real)), seed)
    rows = []
    for row in found:
        outer = row.ratios[:, [0, -1]]
        agrees = bool((np.abs(outer - 1) <= TOLERANCE).all())
        numbers = {
            name: np.round(getattr(row, name), 3) for name in ("real", "simulated", "ratios")
        }
        counted = {"name": row.name, "num_pushes": row.num_pushes}
        rows.append(counted | numbers | {"within_20_percent": agrees})
        print(f"{row.name:8s} {np.round(row.ratios, 2).tolist()} {'' if agrees else 'no'}")
    print(sum(row["within_20_percent"] for row in rows), "of", len(rows), "objects within 20 %")
    if out is not None:
        note = "errors of translations in mm, then of rotations in degrees, at these quantiles"
        record = {"origin": origin, "note": note, "quantiles": QUANTILES, "objects": rows}
        write_text(out, as_json(record, indent=1))


def search(place: str, seed: int) -> None:
    """Looks for spreads, and prints them."""
    pushes = by_object(read_endpoints(find_endpoints(place)))
    calibration = fitted(pushes)
    real = np.stack([error_quantiles(error) for error in errors(pushes, calibration)])
    sequences = make_sequences(
        "train",
        num_sequences=SEQUENCES_PER_OBJECT * len(NAMES),
        num_steps=NUM_STEPS,
        seed=seed,
    )
    groups = by_object(pushes_of(sequences))
    # Steps of twice the length are exact enough to compare spreads.
    groups = dataclasses.replace(groups, num_steps=groups.num_steps // 2)
    friction = calibration.friction
    centre = Calibration(friction, jnp.zeros((len(NAMES), 3)))
    plain = predict(groups, centre).astype(np.float64)

    def losses(logarithms: np.ndarray, number: int) -> np.ndarray:
        """The losses of candidates for the spreads of all objects."""
        spreads = Spread(*jnp.asarray(np.exp(logarithms).T, float))
        ends = simulated_ends(groups, centre, spreads, key=jr.key(number)).astype(np.float64)
        differences = wrapped_difference(ends, plain)
        quantiles = [
            error_quantiles(difference[weights > 0])
            for difference, weights in zip(differences, groups.weights, strict=True)
        ]
        ratios = np.log(np.stack(quantiles) / real)
        pull = PULL * ((logarithms - TYPICAL) ** 2).sum(1)
        return (WEIGHTS * ratios**2).sum((1, 2)) + pull

    mean = cross_entropy(losses, np.tile(TYPICAL, (len(NAMES), 1)), np.random.default_rng(seed))
    for name, spreads, c, mu in zip(
        NAMES, np.exp(mean), friction.length, friction.coefficient, strict=True
    ):
        numbers = ", ".join(f"{number:.3f}" for number in (mu, *spreads))
        print(f'"{name}": ({c:.1f}, {numbers}),')


def cross_entropy(losses, mean: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The middle of where losses are small; all objects at once, each for itself."""
    std = np.full(mean.shape, FIRST_STD)
    for iteration in range(ITERATIONS):
        drawn = mean + std * random.standard_normal((DRAWS, *mean.shape))
        # The same random numbers for all of them, so that spreads are compared and not luck.
        found = np.stack([losses(logarithms, iteration) for logarithms in drawn])
        best = np.argsort(found, 0)[:KEPT]
        kept = np.take_along_axis(drawn, best[..., None], 0)
        mean = 0.3 * mean + 0.7 * kept.mean(0)
        std = np.maximum(0.4 * std + 0.7 * kept.std(0), SMALLEST_STD)
        print(f"{iteration:3d} {np.take_along_axis(found, best, 0).mean():.4f}", flush=True)
    return mean


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("measure", "fit"))
    parser.add_argument("place")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "fit":
        search(arguments.place, arguments.seed)
    else:
        measure(arguments.place, arguments.out, arguments.seed)


if __name__ == "__main__":
    main()
