"""Matrix products of filters are computed in full precision, whatever a device does by default."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from jax.extend.core import jaxprs_in_params

import filtrax
from systems import all_filters, as_float32, beacon_model, beacon_trajectory

FILTERS = {name: filt for name, filt in all_filters().items() if name != "lstm"}


def products(jaxpr):
    """All matrix products in a program, the ones inside of loops and branches included."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from products(inner)


@pytest.mark.parametrize("name", FILTERS)
def test_every_product_of_a_filter_and_its_loss_asks_for_full_precision(name):
    """Rejects products with the ten-bit mantissa that GPUs take for float32 by default."""
    filt, model, trajectory = as_float32((FILTERS[name], beacon_model(), beacon_trajectory(3)))
    loss = filtrax.losses.mixture_nll if name.startswith("pf") else filtrax.losses.mixed
    objective = filtrax.training.filtering(loss)
    parameters, rest = eqx.partition(model, eqx.is_inexact_array)

    def value(parameters):
        model = eqx.combine(parameters, rest)
        return objective(filt, model, trajectory, jnp.asarray(0.0, jnp.float32), jr.key(0))

    program = jax.make_jaxpr(jax.value_and_grad(value))(parameters)
    found = list(products(program.jaxpr))
    assert len(found) > 5
    for equation in found:
        assert equation.params["precision"] is not None, equation
        assert all(p == jax.lax.Precision.HIGHEST for p in equation.params["precision"])
