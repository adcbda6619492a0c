"""Training on several devices at once: placement of arrays and computations.

All devices run one program. Where the members of an ensemble can be dealt out evenly, each device
trains its own ones, and none has to wait for another. Otherwise every device has all parameters and
its share of each batch, and the gradients of the shares are added up, which changes nothing but
the order of sums. So it is, too, where devices belong to several processes (`jax.distributed`):
every process then knows everything that comes out.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

Devices = str | Sequence[jax.Device]
"""The first device ("one"), all that are visible, of all processes ("all"), or these."""

AXIS = "devices"


@dataclasses.dataclass(frozen=True)
class Placement:
    """The placement of arrays on one device (`mesh` is None), or on several.

    **Attributes:**

    - `mesh`: the devices in a row.
    - `members_apart`: true if each device has its own members, else it has a share of each batch.
    """

    mesh: Mesh | None = None
    members_apart: bool = False

    def everywhere(self, tree: Any) -> Any:
        """All arrays of a tree, whole on every device."""
        return self._place(tree, PartitionSpec())

    def members(self, tree: Any) -> Any:
        """Arrays with a leading axis of members, each of them where its members are."""
        return self._place(tree, self._of_members)

    def sequences(self, tree: Any) -> Any:
        """Arrays with a leading axis of sequences, dealt out where members are not."""
        if self.mesh is None or self.members_apart:
            return tree
        count = jax.tree.leaves(tree)[0].shape[0]
        if count % self.mesh.size:
            return tree
        return self._place(tree, PartitionSpec(AXIS))

    def batch(self, tree: Any) -> Any:
        """Marks a batch inside of a compiled program as dealt out, where it is."""
        if self.mesh is None or self.members_apart:
            return tree
        return jax.lax.with_sharding_constraint(tree, self._on(PartitionSpec(AXIS)))

    def results(self, tree: Any) -> Any:
        """Marks inside of a compiled program where the results of members have to be."""
        if self.mesh is None:
            return tree
        return jax.lax.with_sharding_constraint(tree, self._on(self._of_members))

    def gathered(self, tree: Any) -> Any:
        """All arrays of a tree on the first device of this process again."""
        if self.mesh is None:
            return tree
        back = lambda leaf: jnp.asarray(np.asarray(leaf)) if eqx.is_array(leaf) else leaf  # noqa: E731
        return jax.tree.map(back, tree)

    @property
    def _of_members(self) -> PartitionSpec:
        return PartitionSpec(AXIS) if self.members_apart else PartitionSpec()

    def _on(self, axes: PartitionSpec) -> NamedSharding:
        assert self.mesh is not None
        return NamedSharding(self.mesh, axes)

    def _place(self, tree: Any, axes: PartitionSpec) -> Any:
        if self.mesh is None:
            return tree
        sharding = self._on(axes)

        def place(leaf: Any) -> Any:
            return _placed(leaf, sharding) if eqx.is_array(leaf) else leaf

        return jax.tree.map(place, tree)


ONE = Placement()
"""Everything on the first device, as without any placement."""


def place(devices: Devices, num_members: int, batch_size: int) -> Placement:
    """The placement of the members and the batches of an ensemble on devices."""
    if isinstance(devices, str) and devices not in ("one", "all"):
        raise ValueError(f'`devices` must be "one", "all" or a list of devices, got {devices!r}.')
    row = jax.devices() if devices == "all" else [] if devices == "one" else list(devices)
    if len(row) < 2:
        return ONE
    mesh = Mesh(np.asarray(row), (AXIS,), axis_types=(AxisType.Auto,))
    if num_members % mesh.size == 0 and not _is_spread(mesh):
        return Placement(mesh, members_apart=True)
    if batch_size % mesh.size:
        raise ValueError(
            f"On {mesh.size} devices, either the members or the sequences of a batch must be a "
            f"multiple of {mesh.size}: got {num_members} members and batches of {batch_size}. "
            "Change one of them, or use fewer devices."
        )
    return Placement(mesh)


def _is_spread(mesh: Mesh) -> bool:
    return len({device.process_index for device in mesh.devices.flat}) > 1


def _placed(leaf: Any, sharding: NamedSharding) -> Any:
    if isinstance(leaf, jax.Array):
        if leaf.sharding == sharding:
            return leaf
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            numbers = _placed(jr.key_data(leaf), sharding)
            return jr.wrap_key_data(numbers, impl=jr.key_impl(leaf))
        if not leaf.is_fully_addressable:  # of several processes already
            return jax.jit(lambda array: array, out_shardings=sharding)(leaf)
    # From the host, because each process puts down what belongs on its devices.
    array = np.asarray(leaf)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
