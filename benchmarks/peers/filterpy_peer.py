"""filterpy: the extended Kalman filter in NumPy, one sequence at a time, without gradients."""

# The library is there only where it is compared with.
# pyright: reportMissingImports=false

import numpy as np
from filterpy.kalman import ExtendedKalmanFilter

from filtrax.lab.bench.calls import Call
from filtrax.lab.bench.problems import SWING, Problem

NAME = "filterpy"


def make_call(name: str, problem: Problem) -> Call | None:
    """The value of a single sequence; None for batches and for other filters."""
    if name != "ekf" or problem.sizes.batch > 1:
        return None

    def run():
        filt = Bent(problem)
        total = 0.0
        for reading in problem.readings[0]:
            filt.move()
            filt.see(reading)
            total += filt.log_likelihood
        return -total / len(problem.readings[0])

    return Call(run)


def make_online(name: str, problem: Problem) -> Call | None:
    """One step for one reading after another; returns the mean."""
    if name != "ekf":
        return None
    filt, readings = Bent(problem), problem.readings[0]
    count = 0

    def run():
        nonlocal count
        filt.move()
        filt.see(readings[count % len(readings)])
        count += 1
        return filt.x

    return Call(run)


class Bent(ExtendedKalmanFilter):
    """The filter of the problem."""

    def __init__(self, problem: Problem):
        self.matrices = {
            name: value.astype(np.float64) for name, value in problem.parameters.items()
        }
        super().__init__(dim_x=problem.sizes.state, dim_z=problem.sizes.observation)
        self.x = np.zeros(problem.sizes.state)
        self.Q = np.diag(self.matrices["process_std"] ** 2)
        self.R = np.diag(self.matrices["observation_std"] ** 2)

    def predict_x(self, u=0):
        """Moves the mean."""
        del u
        self.x = self.matrices["dynamics"] @ (self.x + SWING * np.sin(self.x))

    def move(self):
        """The step of the process."""
        self.F = self.matrices["dynamics"] * (1 + SWING * np.cos(self.x))
        self.predict()

    def see(self, reading):
        """The step of an observation."""
        self.update(reading, self._slope, self._observe)

    def _observe(self, state):
        return self.matrices["matrix"] @ (state + SWING * np.sin(state))

    def _slope(self, state):
        return self.matrices["matrix"] * (1 + SWING * np.cos(state))
