"""Saving and loading: bit for bit, without code, and never half."""

import functools
import io
import os
import pickle
import zipfile

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import filtrax
from filtrax.networks import Perceptron
from filtrax.training import load_parts, save_parts


class Process(eqx.Module):
    """A part with all kinds of leaves."""

    network: Perceptron
    gain: float
    count: int
    fast: bool
    single: jax.Array
    table: np.ndarray

    def __call__(self, state, inputs):
        return state + self.gain * self.network(state)


@functools.cache
def build(seed, *, size=2, hidden=3):
    """A filter and a model whose every number depends on the seed."""
    rng = np.random.default_rng(seed)
    names = [f"c{i}" for i in range(size)]
    process = Process(
        network=Perceptron((size, hidden, size), key=jr.key(seed)),
        gain=float(rng.normal()),
        count=int(rng.integers(100)),
        fast=bool(seed % 2),
        single=jnp.asarray(rng.normal(size=3), jnp.float32),
        table=rng.normal(size=2),
    )
    model = filtrax.StateSpaceModel(
        state_space=filtrax.Space(names, bounds={"c0": (-2.0, 2.0)}),
        observation_space=filtrax.Space(names),
        process=process,
        process_noise=filtrax.constant_noise(rng.uniform(1, 2, size), 0.01),
        observe=lambda state, inputs: state,
        sensor=filtrax.DirectSensor(filtrax.constant_noise(np.diag(rng.uniform(1, 2, size)))),
    )
    kernel = filtrax.constant_noise(rng.uniform(1, 2, size))
    return filtrax.ParticleFilter(7, kernel=kernel), model


def numbers(both):
    return [np.asarray(x) for x in jax.tree.leaves(both) if not callable(x)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "filter.npz"


def test_what_is_loaded_is_what_was_saved_bit_for_bit(path):
    saved, other = build(0), build(1)
    filtrax.save(path, *saved)
    loaded = filtrax.load(path, *other)
    assert jax.tree.structure(loaded) == jax.tree.structure(other)
    before, after, template = numbers(saved), numbers(loaded), numbers(other)
    assert len(before) == len(after) > 10
    for a, b, c in zip(before, after, template, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
        if c.size > 0 and c.dtype != bool and c.shape != ():
            assert (a != c).any() or np.isin(a, (0, 1)).all() or (a == a.flat[0]).all()


def test_plain_numbers_stay_plain_numbers(path):
    # Rejects an array in the place of a Python number: it would be trained and traced.
    saved, other = build(0), build(1)
    filtrax.save(path, *saved)
    _, model = filtrax.load(path, *other)
    for name, kind in (("gain", float), ("count", int), ("fast", bool)):
        assert type(getattr(model.process, name)) is kind
        assert getattr(model.process, name) == getattr(saved[1].process, name)
    assert isinstance(model.process.single, jax.Array)


def test_special_values_survive(path):
    filt, model = build(0)
    values = jnp.asarray([jnp.nan, -0.0, 1e-45], jnp.float32)
    model = eqx.tree_at(lambda m: m.process.single, model, values)
    filtrax.save(path, filt, model)
    _, loaded = filtrax.load(path, *build(1))
    expected = np.asarray(values).view(np.uint32)
    np.testing.assert_array_equal(np.asarray(loaded.process.single).view(np.uint32), expected)


def test_the_file_holds_arrays_and_no_pickle(path):
    filtrax.save(path, *build(0))
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            np.lib.format.read_array(io.BytesIO(archive.read(name)), allow_pickle=False)
        assert "model.process_noise.bias.npy" in archive.namelist()


class _Bomb:
    exploded = False

    def __reduce__(self):
        return _explode, ()


def _explode():
    _Bomb.exploded = True


def _object_array():
    array = np.empty(1, object)
    array[0] = _Bomb()
    return array


def _npy():
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


def _npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a checkpoint",
        pickle.dumps(_Bomb()),
        _npy(),
        _npz(a=np.zeros(3)),
        _npz(**{"filtrax.format": np.asarray(999)}),
        _npz(**{"model.process_noise.bias": _object_array(), "filtrax.format": np.asarray(1)}),
    ],
    ids=["empty", "text", "pickle", "npy", "other npz", "other format", "pickle in npz"],
)
def test_a_file_that_save_did_not_write_is_refused_and_not_executed(content, path):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"filter\.npz"):
        filtrax.load(path, *build(0))
    assert not _Bomb.exploded


def test_a_truncated_or_damaged_file_is_refused(path):
    filtrax.save(path, *build(0))
    whole = path.read_bytes()
    for length in np.linspace(1, len(whole) - 1, 12).astype(int):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="is not a complete file"):
            filtrax.load(path, *build(0))
    refused, places = 0, np.linspace(0, len(whole) - 1, 50).astype(int)
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        refusal, loaded = None, None
        try:
            loaded = filtrax.load(path, *build(1))
        except ValueError as error:
            refusal = str(error)
        if refusal is not None:
            assert "filter.npz" in refusal
            refused += 1
        else:  # a byte that says nothing, like padding and dates
            for a, b in zip(numbers(build(0)), numbers(loaded), strict=True):
                np.testing.assert_array_equal(a, b)
    assert refused > len(places) / 2


def test_a_missing_file_is_named(path):
    with pytest.raises(FileNotFoundError, match=r"no saved filter at .*filter\.npz"):
        filtrax.load(path, *build(0))


def test_another_structure_is_refused_and_the_difference_is_named(path):
    filt, model = build(0)
    filtrax.save(path, filt, model)
    with pytest.raises(ValueError, match=r"unknown entries: got \['filter\.kernel\.bias'"):
        filtrax.load(path, filtrax.ExtendedKalmanFilter(), model)
    with pytest.raises(ValueError, match=r"network\.layers.*\(3, 2\).*\(4, 2\)"):
        filtrax.load(path, *build(0, hidden=4))
    single = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if eqx.is_inexact_array(leaf) else leaf, model
    )
    with pytest.raises(ValueError, match=r"float64.*float32"):
        filtrax.load(path, filt, single)
    filtrax.save(path, filtrax.ExtendedKalmanFilter(), model)
    with pytest.raises(ValueError, match=r"it lacks \['filter\.kernel\.bias'"):
        filtrax.load(path, filt, model)


def test_other_constants_than_those_that_were_saved_are_restored_or_refused(path):
    # Rejects parameters that are read under another floor or bounds, which mean another model.
    filt, saved = build(0)
    filtrax.save(path, filt, saved)
    floored = eqx.tree_at(
        lambda m: m.process_noise, saved, filtrax.constant_noise([2.0, 2.0], floor=1.0)
    )
    wider = filtrax.Space(saved.state_space.names, bounds={"c0": (-50.0, 50.0)})
    bounded = eqx.tree_at(lambda m: m.state_space, saved, wider)
    for other in (floored, bounded):
        try:
            _, loaded = filtrax.load(path, filt, other)
        except ValueError:
            continue
        np.testing.assert_array_equal(
            loaded.process_noise.covariance(), saved.process_noise.covariance()
        )
        assert loaded.state_space.bounds == saved.state_space.bounds


@pytest.mark.parametrize("moment", ["while writing", "before the rename", "on a full disk"])
def test_an_interrupted_save_leaves_the_old_file_and_nothing_else(moment, path, monkeypatch):
    # Rejects writing in place, and temporary files that stay behind.
    filtrax.save(path, *build(0))
    old = path.read_bytes()

    def interrupt(*arguments, **others):
        if moment == "while writing":
            arguments[0].write(b"half a file")
        raise OSError("No space left") if moment == "on a full disk" else KeyboardInterrupt

    module, name = {
        "while writing": (np, "savez"),
        "before the rename": (os, "replace"),
        "on a full disk": (os, "fsync"),
    }[moment]
    monkeypatch.setattr(module, name, interrupt)
    with pytest.raises((KeyboardInterrupt, OSError)):
        filtrax.save(path, *build(1))
    monkeypatch.undo()
    assert path.read_bytes() == old
    assert os.listdir(path.parent) == [path.name]
    filtrax.load(path, *build(1))


def test_the_name_is_kept_whatever_its_ending(tmp_path):
    for name in ("filter", "filter.ckpt", "filter.npz"):
        filtrax.save(str(tmp_path / name), *build(0))
    assert sorted(os.listdir(tmp_path)) == ["filter", "filter.ckpt", "filter.npz"]


def test_others_may_read_the_file_as_the_umask_says(path):
    # Rejects the private mode of a temporary file on what it becomes.
    plain = path.with_name("plain")
    plain.touch()
    filtrax.save(path, *build(0))
    assert path.stat().st_mode == plain.stat().st_mode


def test_named_trees_come_back_bit_for_bit_and_each_alone(path):
    (filt, model), other = build(0), build(1)
    save_parts(path, start=(filt, model), ensemble={"epoch": jnp.asarray(3), "rate": 0.5})
    template = {"epoch": jnp.asarray(0), "rate": 1.0}
    start, ensemble = load_parts(path, start=other, ensemble=template)
    for a, b in zip(numbers((filt, model)), numbers(start), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    assert int(ensemble["epoch"]) == 3
    assert ensemble["rate"] == 0.5
    (alone,) = load_parts(path, ensemble=template)
    assert int(alone["epoch"]) == 3
    assert load_parts(path) == ()


def test_named_trees_of_another_structure_are_refused(path):
    save_parts(path, start=build(0))
    with pytest.raises(ValueError, match=r"filter\.npz does not fit .* it lacks \[.ensemble\["):
        load_parts(path, ensemble={"epoch": 0})
    with pytest.raises(ValueError, match=r"network\.layers.*\(3, 2\).*\(4, 2\)"):
        load_parts(path, start=build(0, hidden=4))
    with pytest.raises(ValueError, match="unknown entries"):
        load_parts(path, start=(build(0)[0], None))


def test_a_truncated_file_of_named_trees_is_refused_even_if_nothing_is_wanted_of_it(path):
    save_parts(path, start=build(0))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match="is not a complete file"):
        load_parts(path)
