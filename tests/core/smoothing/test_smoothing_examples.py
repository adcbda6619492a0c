"""The examples of smoothing, one of them against statsmodels."""

import runpy
from pathlib import Path

import jax
import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(autouse=True)
def promotion_as_users_have_it():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.long
def test_the_nile_with_gaps_is_that_of_statsmodels(capsys):
    """Rejects a likelihood or beliefs that a missing year changes, and an EM that stops early."""
    example = runpy.run_path(str(EXAMPLES / "em_missing_values.py"))
    statsmodels = pytest.importorskip("statsmodels.api")
    seen, readings = np.asarray(example["observed"]), np.asarray(example["readings"])[:, 0]
    known = statsmodels.datasets.nile.load_pandas().data["volume"].to_numpy()
    np.testing.assert_array_equal(readings, known)

    def theirs(process, sensor):
        model = statsmodels.tsa.UnobservedComponents(
            np.where(seen, readings, np.nan), "local level"
        )
        # Its first state is the one of the first reading.
        model.ssm.initialize_known(np.array([1000.0]), np.array([[300.0**2 + process]]))
        model.ssm.loglikelihood_burn = 0
        return model, np.array([sensor, process])

    process, sensor = (std**2 for std in example["stds"])
    model, parameters = theirs(process, sensor)
    np.testing.assert_allclose(model.loglike(parameters), float(example["last"]), atol=1e-8)
    start, at = theirs(50.0**2, 100.0**2)
    np.testing.assert_allclose(start.loglike(at), float(example["first"]), atol=1e-8)
    beliefs = example["smoothed"].beliefs
    result = model.smooth(parameters)
    np.testing.assert_allclose(beliefs.mean[:, 0], result.smoothed_state[0], rtol=1e-8)
    variances = result.smoothed_state_cov[0, 0]
    np.testing.assert_allclose(beliefs.covariance[:, 0, 0], variances, rtol=1e-8)
    for factors in ((0.95, 1.0), (1.05, 1.0), (1.0, 0.98), (1.0, 1.02)):
        model, moved = theirs(process * factors[0], sensor * factors[1])
        assert model.loglike(moved) < float(example["last"])
    assert "1900: level" in capsys.readouterr().out


@pytest.mark.long
def test_the_smoother_is_far_closer_than_the_filter_in_tunnels(capsys):
    example = runpy.run_path(str(EXAMPLES / "smooth_gps_gaps.py"))
    errors = {}
    for name in ("filtered", "smoothed"):
        offset = np.asarray(example[name].mean - example["track"].states)[:, :2]
        error = np.sqrt((offset**2).sum(1))
        errors[name] = [
            np.sqrt((error[m] ** 2).mean()) for m in (example["tunnel"], ~example["tunnel"])
        ]
    assert (np.array(errors["smoothed"]) < 0.6 * np.array(errors["filtered"])).all()
    assert "NEES" in capsys.readouterr().out
