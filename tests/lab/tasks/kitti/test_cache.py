"""Smaller images are made once, and anew when they must be."""

import json
import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from filtrax.lab.tasks.kitti.recordings import cache
from filtrax.lab.tasks.kitti.recordings.cache import cache_folders, cached_images
from filtrax.lab.tasks.kitti.recordings.images import read_image, shrunk
from kitti_data import save_png

SIZE = (2, 3)


@pytest.fixture
def files(tmp_path):
    """Images of 4 x 6 pixels, each of one colour."""
    paths = [tmp_path / "pictures" / f"{number:06d}.png" for number in range(3)]
    for number, path in enumerate(paths):
        save_png(path, np.full((4, 6, 3), 10 * number + 5, np.uint8))
    return paths


@pytest.fixture
def reads(monkeypatch):
    """The names of the images that are read."""
    names = []

    def read(path):
        names.append(path.name)
        return read_image(path)

    monkeypatch.setattr(cache, "read_image", read)
    return names


def stack(files, folder, size=SIZE, progress=None):
    return cached_images(files, size, "00_image_2", [folder], progress)


def colours(images):
    assert images.shape == (len(images), *SIZE, 3)
    assert (images == images[:, :1, :1, :1]).all()
    return images[:, 0, 0, 0].tolist()


def test_images_are_made_once(files, tmp_path, reads):
    done = []
    assert colours(stack(files, tmp_path, progress=done.append)) == [5, 15, 25]
    assert done == [1, 2, 3]
    assert sorted(set(reads)) == [path.name for path in files]
    reads.clear()
    again = stack(files, tmp_path, progress=done.append)
    assert isinstance(again, np.memmap)
    assert not again.flags.writeable
    assert colours(again) == [5, 15, 25]
    assert (reads, done) == ([], [1, 2, 3])
    kept = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert kept == {"00_image_2_2x3.npy", "00_image_2_2x3.json"}
    origin = json.loads((tmp_path / "00_image_2_2x3.json").read_text())
    assert (origin["number"], origin["image_size"]) == (3, [2, 3])
    assert origin["bytes"] == sum(path.stat().st_size for path in files)


def test_sizes_are_kept_side_by_side(files, tmp_path, reads):
    stack(files, tmp_path)
    assert stack(files, tmp_path, size=(4, 6)).shape == (3, 4, 6, 3)
    reads.clear()
    assert colours(stack(files, tmp_path)) == [5, 15, 25]
    assert reads == []


def test_changed_images_are_read_again(files, tmp_path, reads):
    # Rejects a cache that counts the images and nothing else.
    stack(files, tmp_path)
    before = files[1].stat()
    save_png(files[1], np.full((4, 6, 3), 99, np.uint8))
    os.utime(files[1], ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))
    assert colours(stack(files, tmp_path)) == [5, 99, 25]
    assert colours(stack(files[:2], tmp_path)) == [5, 99]


def cut(folder):
    path = folder / "00_image_2_2x3.npy"
    path.write_bytes(path.read_bytes()[:-1])


def emptied(folder):
    (folder / "00_image_2_2x3.npy").write_bytes(b"")


def of_another_type(folder):
    np.save(folder / "00_image_2_2x3.npy", np.zeros((3, 2, 3, 3)))


def of_another_shape(folder):
    np.save(folder / "00_image_2_2x3.npy", np.zeros((2, 2, 3, 3), np.uint8))


def removed(folder):
    (folder / "00_image_2_2x3.npy").unlink()


def without_origin(folder):
    (folder / "00_image_2_2x3.json").unlink()


def broken_origin(folder):
    (folder / "00_image_2_2x3.json").write_text('{"number": 3')


@pytest.mark.parametrize(
    "damage",
    [cut, emptied, of_another_type, of_another_shape, removed, without_origin, broken_origin],
    ids=lambda damage: damage.__name__,
)
def test_a_damaged_cache_is_made_anew(files, tmp_path, reads, damage):
    stack(files, tmp_path)
    damage(tmp_path)
    reads.clear()
    assert colours(stack(files, tmp_path)) == [5, 15, 25]
    assert reads
    reads.clear()
    stack(files, tmp_path)
    assert reads == []


def test_an_interrupted_conversion_leaves_nothing_that_counts(files, tmp_path, monkeypatch):
    # Rejects an array that is there before it is complete, and an old one that is still trusted.
    stack(files, tmp_path)
    save_png(files[2], np.full((4, 6, 3), 77, np.uint8))
    os.utime(files[2], ns=(0, 2 * 10**18))

    def interrupted(count):
        if count == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stack(files, tmp_path, progress=interrupted)
    assert [path.name for path in tmp_path.glob("*.json")] == []
    assert [path.name for path in tmp_path.glob(".*")] == []
    assert colours(stack(files, tmp_path)) == [5, 15, 77]


def test_the_cache_is_with_the_user_or_in_the_data(tmp_path, monkeypatch, files):
    root, other = tmp_path / "a" / "kitti", tmp_path / "b" / "kitti"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    users, inside = cache_folders(root)
    assert inside == root / ".filtrax"
    assert users.parent == tmp_path / "users" / "filtrax" / "kitti"
    # Rejects data sets of one name that overwrite each other's images.
    assert cache_folders(other)[0] != users
    (wished,) = cache_folders(root, tmp_path / "wish")
    assert wished.parent == tmp_path / "wish"
    # A file where the folder should be cannot be written to, even by an administrator.
    root.mkdir(parents=True)
    inside.write_text("")
    assert colours(cached_images(files, SIZE, "x", [inside, users])) == [5, 15, 25]
    assert (users / "x_2x3.npy").is_file()
    with pytest.raises(
        OSError, match=r"nothing can be written to .*\.filtrax: name another folder"
    ):
        cached_images(files, SIZE, "x", [inside])


def test_a_full_disk_is_named(files, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "write_whole", full)
    with pytest.raises(OSError, match=r"cannot be written to .*x_2x3.npy: No space left on device"):
        cached_images(files, SIZE, "x", [tmp_path])


def test_areas_are_weighed_by_what_they_cover():
    # Three pixels in two: the middle one belongs to both by half.
    row = np.array([[[10], [40], [100]]], np.uint8)
    np.testing.assert_array_equal(shrunk(row, (1, 2))[0, :, 0], [20, 80])
    np.testing.assert_array_equal(shrunk(row.transpose(1, 0, 2), (2, 1))[:, 0, 0], [20, 80])
    np.testing.assert_array_equal(shrunk(row, (1, 1)), [[[50]]])
    assert shrunk(row, (1, 3)) is row


def test_areas_keep_the_mean_of_kittis_images():
    image = np.random.default_rng(0).integers(0, 256, (376, 1241, 3), np.uint8)
    image[:, :600] //= 2
    small = shrunk(image, (50, 150))
    assert small.shape == (50, 150, 3)
    np.testing.assert_allclose(small.mean((0, 1)), image.mean((0, 1)), atol=0.1)
    # Each column covers 8.27 old ones, and the step is where it was.
    profile = small.mean((0, 2))
    assert abs(profile[:72].mean() - 63.6) < 1
    assert abs(profile[73:].mean() - 127.5) < 1


@pytest.mark.parametrize(
    ("mode", "channels"), [("L", 1), ("1", 1), ("LA", 1), ("RGB", 3), ("RGBA", 3), ("P", 3)]
)
def test_images_are_gray_or_in_colour(tmp_path, mode, channels):
    Image.new("RGB", (4, 3), "white").convert(mode).save(tmp_path / "a.png")
    image = read_image(tmp_path / "a.png")
    assert image.shape == (3, 4, channels)
    assert (image == 255).all()


def png_chunk(kind, content):
    checked = kind + content
    return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))


def test_deep_colour_is_refused_too(tmp_path):
    # Pillow cannot write sixteen bits a colour, and reads them as eight without a word.
    header = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(bytes(7))), (b"IEND", b"")]
    content = b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(*part) for part in parts)
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.png must be a PNG file of 8-bit .* has 16 bits"):
        read_image(tmp_path / "a.png")
