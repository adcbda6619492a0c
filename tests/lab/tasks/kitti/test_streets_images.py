import jax
import numpy as np
import pytest

from filtrax.lab.tasks.kitti.camera import CAMERA_HEIGHT, Intrinsics, View, views
from filtrax.lab.tasks.kitti.streets import Street, drive_path, generate_drive
from filtrax.lab.tasks.kitti.streets.light import lights
from filtrax.lab.tasks.kitti.streets.renderer import render_frames
from filtrax.lab.tasks.kitti.streets.roads import first_visits, follow
from filtrax.lab.tasks.kitti.streets.scene import BUILDING, CROWN, build_scene

SIZE = (16, 60)
FRAMES, STANDS = 8, 5


@pytest.fixture(scope="module")
def path():
    """A car that drives on for some frames and then stands."""
    poses, times = drive_path(5, FRAMES)
    poses[STANDS:] = poses[STANDS]
    return poses, times


@pytest.fixture(scope="module")
def drive(path):
    return generate_drive("00", *path, image_size=SIZE)


def drawn(path, places, headings):
    """Images from other places and headings of the same street, all in one light."""
    poses, times = path
    count = len(headings)
    scene = build_scene(follow(poses, times), 0)
    view = View(
        np.asarray(places, np.float32),
        np.asarray(headings, np.float32),
        np.zeros(count, np.float32),
        np.zeros(count, np.float32),
    )
    light = jax.tree.map(lambda part: np.repeat(part[:1], count, axis=0), lights(poses, 0))
    images = render_frames(scene, view, light, SIZE)
    return np.asarray(images).astype(np.float64).mean(-1)


@pytest.fixture(scope="module")
def looks(path):
    """From the start: straight on, turned to the right, moved to the right, a second time, ..."""
    turn = np.arctan(4 / Intrinsics.resized(SIZE).focal_x)
    places = np.zeros((FRAMES, 2))
    places[2] = [0.54, 0.0]
    headings = np.zeros(FRAMES)
    headings[1] = turn
    return drawn(path, places, headings)


def test_a_drive_has_images_of_both_cameras_and_is_the_same_again(drive, path):
    assert set(drive.cameras) == {"image_2", "image_3"}
    assert drive.cameras["image_2"].shape == (FRAMES, *SIZE, 3)
    again = generate_drive("00", *path, image_size=SIZE, cameras=("image_3",))
    np.testing.assert_array_equal(again.cameras["image_3"], drive.cameras["image_3"])
    other = generate_drive("00", *path, image_size=SIZE, cameras=("image_3",), seed=1)
    difference = other.cameras["image_3"].astype(int) - drive.cameras["image_3"]
    assert np.abs(difference).mean() > 5


def test_images_are_neither_dark_nor_flat(drive):
    for images in drive.cameras.values():
        assert 50 < images.mean() < 150
        assert images.std(axis=(1, 2, 3)).min() > 20


def test_a_standing_car_sees_the_same_image_and_a_moving_one_does_not(drive):
    images = drive.cameras["image_2"].astype(int)
    np.testing.assert_array_equal(
        images[STANDS:], np.broadcast_to(images[STANDS], images[STANDS:].shape)
    )
    moving = np.abs(np.diff(images[: STANDS + 1], axis=0)).mean((1, 2, 3))
    assert moving.min() > 1


def test_gray_cameras_see_the_gray_of_what_colour_cameras_see(path):
    street = Street.along(*path)
    gray = street.draw("image_0", SIZE)
    assert gray.shape == (FRAMES, *SIZE, 1)
    # The colour camera is six centimetres to the left of the gray one.
    color = street.draw("image_2", SIZE).mean(-1, keepdims=True)
    assert np.abs(gray - color).mean() < 12


def best_shift(one, other, shifts):
    """By how many columns the content of one image is to the right of that of the other."""
    margin = max(abs(shift) for shift in shifts)
    middle = one[:, margin:-margin]
    errors = [
        np.abs(middle - other[:, margin - shift : other.shape[1] - margin - shift]).mean()
        for shift in shifts
    ]
    return shifts[int(np.argmin(errors))], min(errors) / np.mean(errors)


def test_a_turn_to_the_right_moves_everything_to_the_left_by_its_angle(looks):
    columns = slice(12, -12)
    shift, quality = best_shift(looks[1][:, columns], looks[0][:, columns], range(-8, 9))
    assert shift == -4
    assert quality < 0.5


def test_from_farther_right_the_road_is_farther_left_the_more_the_nearer_it_is(looks):
    lens = Intrinsics.resized(SIZE)
    for row in (SIZE[0] - 1, SIZE[0] - 5):
        depth = CAMERA_HEIGHT * lens.focal_y / (row - lens.centre_y)
        road, _ = best_shift(looks[2][row : row + 1], looks[0][row : row + 1], range(-8, 9))
        assert abs(road + lens.focal_x * 0.54 / depth) < 1


def test_the_same_place_looks_the_same_again(looks):
    np.testing.assert_array_equal(looks[0], looks[-1])


def test_a_road_is_made_once_and_nothing_stands_on_any_part_of_the_path():
    """Out and back on the other side of the same street."""
    poses, times = drive_path(11, 300)
    back = poses[::-1].copy()
    # Four metres to the left of the way out, in the opposite direction.
    back[:, :, 3] -= 3.5 * back[:, :, 0]
    back[:, :, [0, 2]] *= -1
    both = np.concatenate([poses, back])
    twice = np.concatenate([times, times + times[-1] + 0.1])
    path = follow(both, twice)
    once = first_visits(path).sum() / first_visits(follow(poses, times)).sum()
    assert once < 1.2
    objects = build_scene(path, 0).objects
    there = objects.places[:, 0] < 1e5
    assert there.sum() > 30
    gaps = objects.places[there, None] - both[None, :, (0, 2), 3]
    distances = np.hypot(gaps[..., 0], gaps[..., 1]).min(1)
    kinds = objects.kinds[there]
    assert distances[kinds == BUILDING].min() > 4
    assert distances[kinds != CROWN].min() > 1.4


def test_slopes_are_left_out_and_rocking_is_kept():
    poses, _ = drive_path(0, 40)
    steep = poses.copy()
    steep[:, 1, 2] = 0.05
    steep[:, 1, 3] = -0.05 * np.arange(40)
    np.testing.assert_array_equal(views(steep).pitch, 0)
    steep[20, 1, 2] = 0.06
    assert 0.009 < views(steep).pitch[20] < 0.011
    np.testing.assert_array_equal(views(steep).roll, 0)


def test_unknown_cameras_and_missing_times_are_named(path):
    poses, times = path
    with pytest.raises(ValueError, match="image_2"):
        generate_drive("00", poses, times, cameras=("image2",))
    with pytest.raises(ValueError, match="8 poses and 7 times"):
        generate_drive("00", poses, times[1:])
