"""Track a vehicle that drives straight or turns, without being told which.

The filter of interacting models (IMM) runs an extended Kalman filter for each mode. How often modes
change is learned, too.
"""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import optax

import filtrax

pose = filtrax.Space(("x", "y", "heading"), angles=("heading",))
prior = filtrax.Gaussian(jnp.zeros(3), 0.1 * jnp.eye(3))


def straight(state, inputs):
    return state + jnp.stack([jnp.cos(state[2]), jnp.sin(state[2]), 0.0])


def turn(state, inputs):
    return straight(state, inputs).at[2].add(0.4)


def build_model(process):
    return filtrax.StateSpaceModel(
        state_space=pose, process=process, observe=lambda state, inputs: state[:2],
        process_noise=filtrax.constant_noise([0.1, 0.1, 0.02]),
        sensor=filtrax.DirectSensor(filtrax.constant_noise([0.5, 0.5])),
    )  # fmt: skip


def record(key):  # the mode is an input of the simulation, and nothing that a filter knows
    def change(mode, key):
        return (after := jr.bernoulli(key, jnp.where(mode, 0.85, 0.05))), after

    _, modes = jax.lax.scan(change, jnp.asarray(False), jr.split(key, 40))
    truth = build_model(lambda x, mode: jnp.where(mode, turn(x, None), straight(x, None)))
    return dataclasses.replace(filtrax.simulate(truth, prior, inputs=modes, key=key), inputs=None)


drives = jax.vmap(record)(jr.split(jr.key(0), 30))
chances = filtrax.LearnedTransitions([[0.5, 0.5], [0.5, 0.5]])  # at first
modes = (filtrax.Mode(), filtrax.Mode(process=turn))
imm, model, _ = filtrax.fit(
    filtrax.IMMFilter(), build_model(filtrax.SwitchingProcess(straight, modes, chances)),
    drives, objective=filtrax.training.measurement_nll, train=("model.process.transitions",),
    optimizer=optax.adam(0.2), num_steps=40, key=jr.key(1),
)  # fmt: skip
learned = jnp.exp(model.process.transitions(prior.mean, None))
print(f"learned chances to stay: straight {learned[0, 0]:.2f}, turn {learned[1, 1]:.2f}")
test, ekf = jax.tree.map(lambda leaf: leaf[0], drives), filtrax.ExtendedKalmanFilter()
for filt, process in ((imm, model.process), (ekf, straight), (ekf, turn)):
    beliefs = filtrax.run(filt, build_model(process), prior, test.readings).beliefs
    distance = filtrax.metrics.mean_distance(beliefs, test.states, pose)
    print(f"{getattr(process, '__name__', 'both modes')}: distance {distance:.2f}")
