"""Tables whose cells train in seconds, with the compiled programs of `tiny_run`."""

import tomli_w

import tiny_run
from filtrax.lab import config
from filtrax.lab.reproduction.scheduling import SilentCells
from filtrax.lab.reproduction.tables import Axis, Table, Value

BASE = config.as_dict(tiny_run.EXPERIMENT)

NOISE = Axis(
    "noise",
    (Value("small", ("model.process_std=3.0",)), Value("large", ("model.process_std=9.0",))),
)
DATA = Axis(
    "data", (Value("0.1", ("task.position_std=0.1",)), Value("3", ("task.position_std=3.0",)))
)
ONE = Axis("noise", NOISE.values[:1])


def tiny_table(*axes, name="tiny", **changes):
    return Table(
        name,
        "Tiny",
        "nowhere",
        "Does it train?",
        ("distance", "nll"),
        axes or (ONE,),
        rows=("noise",),
        base=BASE,
        **changes,
    )


def source_of(folder, name):
    """Writes the file of a table whose models are kept."""
    values = [{"label": "3"}, {"label": "9", "set": ["task.position_std=9.0"]}]
    content = {
        "title": "Source",
        "source": "nowhere",
        "asks": "Does it train?",
        "metrics": ["distance"],
        "rows": ["data"],
        "models": True,
        "base": BASE,
        "axes": [{"name": "data", "values": values}],
    }
    (folder / f"{name}.toml").write_text(tomli_w.dumps(content))


class Recorder(tiny_run.Recorder, SilentCells):
    """A watch that writes everything down, also which cells train."""

    def __init__(self):
        super().__init__()
        self.groups = []

    def group(self, group, cells_done, num_cells):
        self.groups.append(([cell.name for cell in group.cells], cells_done, num_cells))


class StoppedClock:
    """In the place of the module `time`: it goes on by one second with every epoch."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


class Ticking(Recorder):
    """Lets a clock go on."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def epoch(self, record):
        super().epoch(record)
        self.clock.now += 1


def timeless(record):
    """A record without what may differ between two runs of the same cell."""
    origin = {key: value for key, value in record["origin"].items() if key != "started"}
    seconds = {key: value for key, value in record["seconds"].items() if key != "training"}
    return record | {"origin": origin, "seconds": seconds}
