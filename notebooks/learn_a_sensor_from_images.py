# %% [markdown]
# # Learn a sensor from images
#
# A lamp wanders through a dark room, and a bad camera looks at it: 24 by 24 noisy pixels. In some
# frames somebody stands before the lamp. A network learns to say where the lamp is *and how sure
# it is*, by gradients through the filter.

# %%
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import optax

import filtrax
from filtrax import plot

SIZE = 24
room = filtrax.Space(("x", "y", "vx", "vy"))

# %% [markdown]
# ## The lamp and the camera
#
# The lamp is drawn towards the middle of the room, which is two units wide, and pushed at random.


# %%
def wander(state, inputs):
    position, velocity = state[:2], state[2:]
    return jnp.concatenate([position + 0.1 * velocity, 0.95 * velocity - 0.1 * position])


def photograph(state, hidden, key):
    row, column = jnp.meshgrid(jnp.linspace(1, -1, SIZE), jnp.linspace(-1, 1, SIZE), indexing="ij")
    light = jnp.exp(-((column - state[0]) ** 2 + (row - state[1]) ** 2) / 0.02)
    return jnp.where(hidden, 0.0, light) + 0.15 * jr.normal(key, light.shape)


def record(key):
    walk_key, hide_key, pixel_key = jr.split(key, 3)
    walk = filtrax.simulate(walker, prior, num_steps=30, key=walk_key)
    first = jr.randint(hide_key, (), 8, 20)
    hidden = (jnp.arange(30) >= first) & (jnp.arange(30) < first + 6)
    images = jax.vmap(photograph)(walk.states, hidden, jr.split(pixel_key, 30))
    initial = walk.initial
    return filtrax.Trajectory(initial, prior.covariance, images, states=walk.states)


walker = filtrax.StateSpaceModel(
    process=wander,
    process_noise=filtrax.constant_noise([1e-3, 1e-3, 0.1, 0.1]),
    observe=lambda state, inputs: state[:2],
    sensor=filtrax.DirectSensor(filtrax.constant_noise([0.1, 0.1])),
    state_space=room,
)
prior = filtrax.Gaussian(jnp.zeros(4), 0.04 * jnp.eye(4))
train = jax.vmap(record)(jr.split(jr.key(0), 256))
test = jax.vmap(record)(jr.split(jr.key(1), 64))

fig, axes = plt.subplots(1, 3, figsize=(7, 2.4))
for ax, step in zip(axes, (2, 7, 15), strict=True):
    ax.imshow(test.readings[0, step], cmap="gray")
    ax.set_title(f"step {step}")
    ax.set_axis_off()

# %% [markdown]
# ## A sensor that is a network
#
# An encoder makes features of an image. One head makes a position of them, another one the noise
# of that position. The noise is *heteroscedastic*: a frame without the lamp should count for
# nothing. A part with parameters is an `eqx.Module`, because what a plain function closes over is
# not trained; `fit` warns of it.


# %%
class Encoder(eqx.Module):
    network: filtrax.networks.ConvolutionalNetwork

    def __call__(self, image, inputs, context, *, key=None):
        return self.network(image[:, :, None])


def build(key):
    encoder_key, position_key, noise_key = jr.split(key, 3)
    network = filtrax.networks.ConvolutionalNetwork(
        (SIZE, SIZE, 1), channels=(4, 8), kernel_size=5, stride=1, sizes=(32,), key=encoder_key
    )
    sensor = filtrax.NetworkSensor(
        encoder=Encoder(network),
        head=filtrax.networks.Perceptron((32, 2), key=position_key),
        noise=filtrax.heteroscedastic_noise(
            filtrax.networks.Perceptron((32, 32, 2), final_std=0.0, key=noise_key), [0.3, 0.3], 0.01
        ),
    )
    return dataclasses.replace(walker, sensor=sensor)


# %% [markdown]
# ## Learn
#
# `losses.nll` is the negative log density of the true state under the belief, so the filter is
# paid for being right and for knowing how right it is. The lamp's process and its noise are known
# here, and only the sensor is trained.

# %%
ekf, model, history = filtrax.fit(
    filtrax.ExtendedKalmanFilter(),
    build(jr.key(2)),
    train,
    loss=filtrax.losses.nll,
    train=["model.sensor"],
    optimizer=optax.adam(2e-3),
    num_steps=500,
    batch_size=16,
    clip_norm=10.0,
    key=jr.key(3),
)
ax = plot.learning_curves(history.loss, window=20)

# %% [markdown]
# ## What it learned
#
# On drives that it was not trained on, the noise grows by itself where somebody stands before the
# lamp, and the filter then trusts its process.

# %%
run = lambda walk: filtrax.run(ekf, model, prior, walk.readings)
results = jax.vmap(run)(test)
distance = filtrax.metrics.mean_distance(results.beliefs, test.states, room, components=("x", "y"))
print(f"mean distance {distance:.3f}, in a room of 2 by 2")
first = jax.tree.map(lambda leaf: leaf[0], (results.beliefs, test))
ax = plot.track(first[0], room, states=first[1].states)

# %%
sensed = jax.vmap(lambda image: model.sensor(image, None, None, key=None))(first[1].readings)
fig, ax = plt.subplots(figsize=(6, 2.5))
ax.plot(jnp.sqrt(jax.vmap(jnp.diag)(sensed.covariance)[:, 0]))
ax.set_xlabel("step")
ax.set_ylabel("standard deviation of x")

# %% [markdown]
# ## Does it know how wrong it is?
#
# Of all true states, about as many should lie in an interval as the filter says.

# %%
ax = plot.coverage(results.beliefs, test.states, room)
