"""KITTI's folders: what is written is read again, and what is wrong is named."""

import re
import shutil

import numpy as np
import pytest

from filtrax.lab.tasks.kitti.recordings.drives import MEAN_STEP
from filtrax.lab.tasks.kitti.recordings.files import (
    drive_names,
    has_times,
    pose_names,
    read_drive,
    read_path,
    write_drive,
)
from kitti_data import save_png, tiny_drive

SIZE = (6, 9)


@pytest.fixture
def root(tmp_path):
    """A folder with one drive of four frames."""
    write_drive(tiny_drive(), tmp_path / "kitti")
    return tmp_path / "kitti"


def read(root, name="00", **options):
    return read_drive(root, name, **{"image_size": SIZE} | options)


def test_what_is_written_is_read_again(tmp_path):
    # Rejects rounded numbers, shifted frames, swapped cameras, and a lossy format.
    drive, calls = tiny_drive("03"), []
    write_drive(drive, tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(count, 8) for count in range(1, 9)]
    assert drive_names(tmp_path) == pose_names(tmp_path) == ["03"]
    assert has_times(tmp_path, "03")
    calls.clear()
    found = read(tmp_path, "03", progress=lambda done, total: calls.append((done, total)))
    assert calls == [(count, 8) for count in range(1, 9)]
    assert found.name == "03"
    np.testing.assert_array_equal(found.poses, drive.poses)
    np.testing.assert_array_equal(found.times, drive.times)
    assert [*found.cameras] == ["image_2", "image_3"]
    for camera, images in drive.cameras.items():
        np.testing.assert_array_equal(found.cameras[camera], images)
        assert isinstance(found.cameras[camera], np.memmap)
    names = sorted(path.name for path in (tmp_path / "sequences/03/image_2").iterdir())
    assert names == [f"{frame:06d}.png" for frame in range(4)]
    path, times = read_path(tmp_path, "03")
    np.testing.assert_array_equal(path, drive.poses)
    np.testing.assert_array_equal(times, drive.times)


def test_gray_drives_have_one_channel(tmp_path):
    drive = tiny_drive(cameras=("image_0",), channels=1)
    write_drive(drive, tmp_path)
    found = read(tmp_path)
    assert (found.num_channels, [*found.cameras]) == (1, ["image_0"])
    np.testing.assert_array_equal(found.cameras["image_0"], drive.cameras["image_0"])


def test_larger_images_become_means_of_areas(tmp_path):
    # Rejects a picked pixel, another filter, and height taken for width.
    drive = tiny_drive(size=(6, 9))
    write_drive(drive, tmp_path)
    found = read(tmp_path, image_size=(3, 3))
    blocks = drive.cameras["image_2"].reshape(4, 3, 2, 3, 3, 3).mean(axis=(2, 4))
    assert found.image_size == (3, 3)
    np.testing.assert_allclose(found.cameras["image_2"], blocks, atol=0.5)


@pytest.mark.parametrize(
    ("there", "chosen"),
    [
        (("image_0", "image_1", "image_2", "image_3"), ["image_2", "image_3"]),
        (("image_0", "image_1", "image_2"), ["image_0", "image_1"]),
        (("image_0", "image_3"), ["image_3"]),
        (("image_1",), ["image_1"]),
    ],
)
def test_cameras_are_chosen_in_pairs_and_in_colour(tmp_path, there, chosen):
    write_drive(tiny_drive(cameras=there), tmp_path)
    assert [*read(tmp_path).cameras] == chosen
    assert [*read(tmp_path, cameras=there[:1]).cameras] == [there[0]]


def test_the_archive_of_the_particle_filter_authors_is_read(tmp_path):
    """Folders at the root, frames from 1100 on, other images beside them, no times."""
    drive = tiny_drive("08", num_frames=12)
    for camera, images in drive.cameras.items():
        for frame, image in enumerate(images):
            # 1000 comes after 999, but before it in the alphabet.
            save_png(tmp_path / "08" / camera / f"image_{frame + 995}.png", image)
            save_png(tmp_path / "08" / camera / f"diff_{frame}.png", 255 - image)
    lines = [" ".join(map(repr, row)) for row in drive.poses.reshape(-1, 12).tolist()]
    (tmp_path / "08_image1.txt").write_text("\n".join(lines))
    (tmp_path / "08_image2.txt").write_text("other poses")
    (tmp_path / "readme.txt").write_text("about")
    assert drive_names(tmp_path) == ["08"]
    found = read(tmp_path, "08")
    np.testing.assert_array_equal(found.poses, drive.poses)
    np.testing.assert_array_equal(found.cameras["image_3"], drive.cameras["image_3"])
    np.testing.assert_allclose(found.times, MEAN_STEP * np.arange(12))
    assert not has_times(tmp_path, "08")


def test_a_part_of_a_drive_may_have_the_times_of_the_whole(root):
    # Rejects times of the wrong frames: images 2 and 3 belong to the third line and the fourth.
    poses = (root / "poses/00.txt").read_text().splitlines(keepends=True)
    for camera in ("image_2", "image_3"):
        for frame in (0, 1):
            (root / f"sequences/00/{camera}/{frame:06d}.png").unlink()
    (root / "poses/00.txt").write_text("".join(poses[2:]))
    np.testing.assert_array_equal(read(root).times, tiny_drive().times[2:])


def test_poses_without_images_have_a_path_alone(root):
    shutil.copy(root / "poses/00.txt", root / "poses/07.txt")
    (root / "times").mkdir()
    (root / "times/07.txt").write_text("0\n1\n2\n3\n\n")
    assert drive_names(root) == ["00"]
    assert pose_names(root) == ["00", "07"]
    poses, times = read_path(root, "07")
    np.testing.assert_array_equal(poses, tiny_drive().poses)
    assert times.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"got \['7'\], .* Did you mean '07'"):
        read_path(root, "7")


def test_nothing_is_overwritten(root, tmp_path):
    with pytest.raises(ValueError, match="has one named 00: choose another folder, or remove it"):
        write_drive(tiny_drive(), root)
    shutil.rmtree(root / "sequences")
    with pytest.raises(ValueError, match="has one named 00"):
        write_drive(tiny_drive(), root)
    with pytest.raises(ValueError, match=r"that of a folder, got '../up'"):
        write_drive(tiny_drive("../up"), root)
    assert [path.name for path in tmp_path.iterdir()] == ["kitti"]


def lines_changed(path, change):
    path.write_text("\n".join(change(path.read_text().splitlines())))


def shorter_poses(root):
    lines_changed(root / "poses/00.txt", lambda lines: lines[:-1])


def longer_poses(root):
    lines_changed(root / "poses/00.txt", lambda lines: [*lines, lines[0]])


def eleven_numbers(root):
    lines_changed(root / "poses/00.txt", lambda lines: [lines[0], lines[1][:-4], *lines[2:]])


def a_word(root):
    lines_changed(root / "poses/00.txt", lambda lines: ["1 " * 11 + "one", *lines[1:]])


def a_nan(root):
    lines_changed(root / "poses/00.txt", lambda lines: [*lines[:3], "nan " * 12])


def empty_poses(root):
    (root / "poses/00.txt").write_text("\n")


def no_poses(root):
    (root / "poses/00.txt").unlink()


def short_times(root):
    lines_changed(root / "sequences/00/times.txt", lambda lines: lines[:3])


def standing_times(root):
    lines_changed(root / "sequences/00/times.txt", lambda lines: [*lines[:2], *lines[1:3]])


def missing_image(root):
    (root / "sequences/00/image_3/000003.png").unlink()


def gap(root):
    (root / "sequences/00/image_3/000002.png").unlink()


def shifted_images(root):
    folder = root / "sequences/00/image_3"
    (folder / "000000.png").rename(folder / "000004.png")


def no_images(root):
    shutil.rmtree(root / "sequences/00/image_2")
    for path in (root / "sequences/00/image_3").iterdir():
        path.unlink()


def truncated_image(root):
    path = root / "sequences/00/image_3/000001.png"
    path.write_bytes(path.read_bytes()[:60])


def text_image(root):
    (root / "sequences/00/image_2/000001.png").write_text("not an image")


def deep_image(root):
    save_png(root / "sequences/00/image_2/000000.png", np.zeros(SIZE, np.uint16))


def gray_image(root):
    save_png(root / "sequences/00/image_2/000002.png", np.zeros(SIZE, np.uint8))


def small_image(root):
    save_png(root / "sequences/00/image_2/000002.png", np.zeros((5, 9, 3), np.uint8))


@pytest.mark.parametrize(
    ("damage", "error", "sentence"),
    [
        (shorter_poses, ValueError, "poses/00.txt has 3 and .*image_2 holds 4 images: restore"),
        (longer_poses, ValueError, "poses/00.txt has 5 and .*image_2 holds 4 images"),
        (
            eleven_numbers,
            ValueError,
            "Line 2 of .*00.txt must be 12 finite .*, but it has 11 words",
        ),
        (a_word, ValueError, "Line 1 of .*00.txt must be 12 finite numbers, got 1 .* one"),
        (a_nan, ValueError, "Line 4 of .*00.txt must be 12 finite numbers, got nan nan"),
        (empty_poses, ValueError, "poses/00.txt must hold 12 numbers a line, but it is empty"),
        (no_poses, FileNotFoundError, "images, but no poses: poses/00.txt is missing"),
        (short_times, ValueError, "times.txt has 3 lines for 4 images .* mean step of 0.1037 s"),
        (standing_times, ValueError, "must increase, but line 3 of .*times.txt does not"),
        (missing_image, ValueError, "00.txt has 4 and .*image_3 holds 3 images"),
        (gap, ValueError, "image_3 must be numbered .* 000001.png is followed by 000003.png"),
        (shifted_images, ValueError, "begin with {'image_2': 0, 'image_3': 1}"),
        (
            no_images,
            FileNotFoundError,
            "poses, but no images: .* PNG files in sequences/00/image_2",
        ),
        (truncated_image, ValueError, "image_3/000001.png must be a complete PNG .* truncated"),
        (text_image, ValueError, "image_2/000001.png must be .* no image is found in it. Restore"),
        (deep_image, ValueError, "000000.png must be a PNG file of 8-bit numbers, .* 16 bits"),
        (gray_image, ValueError, "000002.png has 6 x 9 pixels with 1 channels, .* with 3"),
        (small_image, ValueError, "000002.png has 5 x 9 pixels .*000000.png has 6 x 9"),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_damage_is_named_in_one_sentence(root, damage, error, sentence):
    damage(root)
    with pytest.raises(error, match=sentence) as caught:
        read(root)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("0", {}, r"got \['0'\], but there are only \['00'\]. Did you mean '00'"),
        ("00", {"cameras": ("image_4",)}, r"only \['image_2', 'image_3'\]. Did you mean"),
        ("00", {"cameras": ("image_0",)}, "must be those with images: got .'image_0'."),
        ("00", {"cameras": ()}, "must be those with images, .* got none"),
        ("00", {"image_size": (50, 150)}, "smaller alone, to 50 x 150 .* has 6 x 9: ask for that"),
        ("00", {"image_size": (6, 10)}, "smaller alone, to 6 x 10 pixels"),
        ("00", {"image_size": (0, 5)}, "at least 1 pixel each, got .0, 5."),
    ],
)
def test_wrong_wishes_are_named(root, name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        read(root, name, **options)


def test_a_folder_without_drives_is_named(tmp_path, root):
    with pytest.raises(FileNotFoundError, match=r"There is no folder of drives at .*nowhere"):
        drive_names(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"empty has none with both\.$"):
        drive_names(tmp_path / "empty")
    root.rename(tmp_path / "dataset")
    hint = re.escape(f"Did you mean {tmp_path / 'dataset'}?")
    with pytest.raises(FileNotFoundError, match=hint):
        drive_names(tmp_path)


def test_the_real_frames(real_drive):
    assert real_drive.num_frames >= 3500
    assert real_drive.image_size == (50, 150)
    images = next(iter(real_drive.cameras.values()))
    first, second = images[:2].astype(int)
    assert 50 < first.mean() < 150
    # A tenth of a second later the street looks much the same, but not quite.
    assert 1 < np.abs(second - first).mean() < 40
    assert 2700 < real_drive.frames(0, 3500).length < 2720
