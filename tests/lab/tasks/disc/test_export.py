"""Exported files are read again and compared with the data they come from."""

import csv
import json
import os

import jax
import numpy as np
import pytest
from PIL import Image

from filtrax.lab.tasks.disc import DiscTask
from filtrax.lab.tasks.disc.export import animation, contact_sheet, export

TASK = DiscTask(
    num_distractors=3, noise="heteroscedastic", num_steps=3, num_test=2, image_size=40, seed=4
)


def read(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder, calls = tmp_path_factory.mktemp("exported") / "new", []
    export(TASK, "test", folder, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1, 2), (2, 2)]
    return folder


def test_the_files_that_are_written(exported):
    names = {str(path.relative_to(exported)) for path in exported.rglob("*") if path.is_file()}
    inside = {f"frame_{step:02}.png" for step in range(4)} | {"states.csv"}
    sequences = {f"sequence_{index:04}/{name}" for index in range(2) for name in inside}
    assert names == sequences | {"dataset.json"}


def test_exported_images_are_those_of_the_readings(exported):
    # Rejects images of another time or sequence, and a lossy or resized format.
    data = TASK.data("test")
    for index in range(2):
        frames = TASK.frames(jax.tree.map(lambda leaf, index=index: leaf[index], data))
        for step in range(3):
            image = read(exported / f"sequence_{index:04}" / f"frame_{step + 1:02}.png")
            np.testing.assert_array_equal(image, frames[step])
    start = read(exported / "sequence_0000" / "frame_00.png")
    assert start.shape == (40, 40, 3)
    assert not np.array_equal(start, read(exported / "sequence_0000" / "frame_01.png"))


def test_exported_states_are_those_of_the_data(exported):
    # Rejects rounded numbers, shifted times, and the noise of the new state.
    data = TASK.data("test")
    details = TASK.details(data)
    stds = np.sqrt(np.diagonal(details.process_covariance, axis1=-2, axis2=-1))
    for index in range(2):
        with (exported / f"sequence_{index:04}" / "states.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [row["step"] for row in rows] == ["0", "1", "2", "3"]
        states = np.asarray([[float(row[name]) for name in ("x", "y", "vx", "vy")] for row in rows])
        np.testing.assert_array_equal(states[0], data.initial[index])
        np.testing.assert_array_equal(states[1:], data.states[index])
        assert [int(row["visible"]) for row in rows[1:]] == details.visible[index].tolist()
        names = ("std_x", "std_y", "std_vx", "std_vy")
        assert {rows[0][name] for name in names} == {""}
        read_stds = [[float(row[name]) for name in names] for row in rows[1:]]
        np.testing.assert_array_equal(read_stds, stds[index])


def test_the_description_makes_the_task_again(exported):
    # Rejects a description that leaves out what the data depend on.
    description = json.loads((exported / "dataset.json").read_text())
    assert DiscTask(**description["parameters"]) == TASK
    assert (description["task"], description["split"]) == ("disc", "test")
    assert description["num_sequences"] == 2


def test_nothing_is_overwritten(exported):
    before = sorted(exported.rglob("*"))
    with pytest.raises(ValueError, match=r"must be new or empty, but .* holds files"):
        export(TASK, "test", exported)
    assert sorted(exported.rglob("*")) == before


def test_what_cannot_be_written_is_said_in_one_sentence(tmp_path, monkeypatch):
    # Rejects errors without the place or the reason.
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ValueError, match=r"must be new or empty, but .*file is a file: choose"):
        export(TASK, "test", file)
    with pytest.raises(
        OSError, match=r"^The data set cannot be written to .*new: Not a directory\.$"
    ):
        export(TASK, "test", file / "new")
    with pytest.raises(OSError, match=r"^The preview cannot be written to .*: .*, .*file\.$"):
        contact_sheet(TASK, file / "sheet.png", num_sequences=1)

    def full(*args, **kwargs):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Image.Image, "save", full)
    with pytest.raises(OSError, match=r"cannot be written to .*new: No space left on device\.$"):
        export(TASK, "test", tmp_path / "new")
    assert not (tmp_path / "new" / "dataset.json").exists()


def test_the_contact_sheet_shows_sequences_over_time(tmp_path, exported):
    # Rejects rows for columns, other sequences or times than said, and blurred images.
    contact_sheet(TASK, tmp_path / "folder" / "sheet.png", num_sequences=2, num_images=3)
    sheet = read(tmp_path / "folder" / "sheet.png")
    assert sheet.shape == (2 * 40 + 2, 3 * 40 + 2 * 2, 3)
    for row in range(2):
        for column, time in enumerate((0, 2, 3)):
            image = sheet[42 * row : 42 * row + 40, 42 * column : 42 * column + 40]
            frame = read(exported / f"sequence_{row:04}" / f"frame_{time:02}.png")
            np.testing.assert_array_equal(image, frame)
    assert (sheet[40:42] == sheet[40, 0]).all()


def test_the_animation_shows_all_times_and_marks_the_truth(tmp_path, exported):
    # Rejects a still picture, and a mark that is not where the disc is.
    animation(TASK, tmp_path / "discs.gif", num_sequences=2, zoom=3, milliseconds=50)
    states, view = np.asarray(TASK.scenes("test").states), TASK.view()
    marked = 0
    with Image.open(tmp_path / "discs.gif") as gif:
        assert (gif.n_frames, gif.size, gif.info["duration"]) == (4, (2 * 120 + 2, 120), 50)
        for step in range(4):
            gif.seek(step)
            shown = np.asarray(gif.convert("RGB"))
            for index in range(2):
                panel = shown[:, 122 * index : 122 * index + 120]
                frame = read(exported / f"sequence_{index:04}" / f"frame_{step:02}.png")
                column, row = view.matrix @ states[index, step] + view.offset
                far = np.ones(frame.shape[:2], bool)
                far[max(round(row) - 5, 0) : round(row) + 6] = False
                np.testing.assert_array_equal(panel[1::3, 1::3][far], frame[far])
                if 0 < row < 39 and 0 < column < 39:
                    row, column = (round(3 * place + 1) for place in (row, column))
                    assert (panel[row, column] == 255).all()
                    marked += 1
    assert marked > 2


@pytest.mark.parametrize(
    "options", [{"num_sequences": 3}, {"zoom": 0}, {"milliseconds": 0}, {"split": "tests"}]
)
def test_wrong_options_of_previews_are_named(tmp_path, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        animation(TASK, tmp_path / "discs.gif", **options)
    assert not list(tmp_path.iterdir())


def test_a_sheet_has_at_least_one_image(tmp_path):
    with pytest.raises(ValueError, match="`num_images` must be a whole number, at least 1"):
        contact_sheet(TASK, tmp_path / "sheet.png", num_images=0)
