"""What one sees of a run: a bar on a terminal, lines elsewhere, and an honest time left."""

import io
import re

import pytest
from rich.console import Console

from filtrax.cli.progress import BarWatch, LineWatch, Stage, counting, duration, watch
from filtrax.cli.tables import number, number_with_error


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def record(epoch, *losses, rollbacks=0):
    members = [
        {
            "seed": seed,
            "loss": loss,
            "validation": {"loss": 8.5, "distance": 6.25},
            "rollbacks": rollbacks,
        }
        for seed, loss in enumerate(losses)
    ]
    return {"stage": "end to end", "epoch": epoch, "step": 375 * epoch, "members": members}


def terminal(width=80):
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)


def plain_file():
    return Console(file=io.StringIO(), force_terminal=False, width=80)


def shown(console):
    """What was written, without the codes that move the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue()).replace("\r", "\n")


def test_elsewhere_than_on_a_terminal_there_is_one_line_per_epoch():
    console, clock = plain_file(), Clock()
    with watch(console, clock) as progress:
        assert isinstance(progress, LineWatch)
        progress.start("end to end", 30, 375)
        for epoch, seconds in ((0, 20), (1, 40), (2, 10), (3, 10)):
            clock.now += seconds
            progress.epoch(record(epoch, None if epoch == 0 else 9.0 + epoch))
        progress.message("Seed 0 diverged and was rolled back.")
    assert console.file.getvalue().splitlines() == [
        "end to end: 30 epochs of 375 steps",
        "end to end: epoch 0 of 30, loss –, validation loss 8.500, validation distance 6.250, "
        "rollbacks 0, 0:20",
        "end to end: epoch 1 of 30, loss 10.000, validation loss 8.500, validation distance 6.250, "
        "rollbacks 0, 1:00, 19:20 left",
        "end to end: epoch 2 of 30, loss 11.000, validation loss 8.500, validation distance 6.250, "
        "rollbacks 0, 1:10, 4:40 left",
        "end to end: epoch 3 of 30, loss 12.000, validation loss 8.500, validation distance 6.250, "
        "rollbacks 0, 1:20, 4:30 left",
        "Seed 0 diverged and was rolled back.",
    ]


@pytest.mark.parametrize("width", [50, 80])
def test_on_a_terminal_there_is_a_bar(width):
    console, clock = terminal(width), Clock()
    with watch(console, clock) as progress:
        assert isinstance(progress, BarWatch)
        progress.start("end to end", 30, 375)
        assert "compiling" in shown(console)
        for epoch in range(4):
            clock.now += 10
            progress.epoch(record(epoch, 9.0, 11.0, rollbacks=1))
        # At this width the numbers may be broken into lines; the bar itself must not be.
        last = shown(console).split("end to end")[-1]
        assert last.startswith(" ━")
        assert "epoch 3 of 30 4:30 left" in last
        words = " ".join(last.split())
        assert "loss 10.000, validation loss 8.500, validation distance 6.250" in words
        assert "rollbacks 2, means of 2 members" in words
        progress.message("Seed 0 diverged.")
        assert "Seed 0 diverged.\n" in shown(console)
        progress.start("finetune", 5, 375)
        assert "end to end: 3 epochs in 0:40, loss 10.000" in " ".join(shown(console).split())


def test_the_terminal_is_left_in_order_after_an_error():
    # Rejects a bar that keeps running and hides the cursor.
    console = terminal()

    def fail():
        with watch(console, Clock()) as progress:
            progress.start("end to end", 30, 375)
            progress.epoch(record(1, 9.0))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    text = console.file.getvalue()
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")  # shown again after it was hidden
    assert "1 epochs in" not in text


def test_the_time_left_does_not_count_compilation():
    stage = Stage("a", 10, 5, now=0.0)
    assert stage.time_left(0.0) is None
    stage.add(record(0, None), now=50.0)
    assert stage.time_left(50.0) is None
    stage.add(record(1, 1.0), now=150.0)
    assert stage.time_left(150.0) == 9 * 100.0
    stage.add(record(2, 1.0), now=152.0)
    stage.add(record(3, 1.0), now=154.0)
    assert stage.time_left(154.0) == 7 * 2.0
    assert stage.time_left(155.0) == 7 * 2.0 - 1.0  # it runs down between epochs
    assert stage.time_left(999.0) == 0.0


def test_a_resumed_stage_counts_from_where_it_goes_on():
    stage = Stage("a", 10, 5, now=0.0)
    for epoch, now in ((6, 100.0), (7, 103.0), (8, 106.0)):
        stage.add(record(epoch, 1.0), now)
    assert stage.time_left(106.0) == 2 * 3.0


def test_diverged_members_do_not_spoil_the_mean():
    stage = Stage("a", 10, 5, now=0.0)
    stage.add(record(1, 2.0, float("nan"), None, 4.0), now=1.0)
    assert stage.numbers()[0] == "loss 3.000"
    stage.add(record(2, float("inf"), None), now=2.0)
    assert stage.numbers()[0] == "loss –"


def test_counting_shows_a_bar_on_a_terminal_only():
    for console, expected in ((terminal(), True), (plain_file(), False)):
        with counting("Sequences", console) as progress:
            progress(1, 4)
            progress(4, 4)
        assert ("Sequences" in console.file.getvalue()) is expected


def test_numbers_and_times_are_short():
    values = (0.0, 6.3149, -0.5, 1e-4, 123456.0, None, float("nan"), float("inf"))
    assert [number(value) for value in values] == [
        *("0.000", "6.315", "-0.500", "0.0001", "1.23e+05", "–", "–", "–")
    ]
    assert number_with_error(15.0824, 0.00181) == "15.082 ± 0.002"
    assert number_with_error(1e-4, 2e-5) == "0.0001 ± 2e-05"
    assert number_with_error(6.0, None) == "6.000"
    assert number_with_error(None, None) == "–"
    assert number_with_error(6.0, float("nan")) == "6.000"
    times = [0.4, 59.6, 245.0, 3845.0]
    assert [duration(time) for time in times] == ["0:00", "1:00", "4:05", "1:04:05"]
