"""Files that are not what they should be: one sentence each, with file, column and row."""

import re
import warnings

import numpy as np
import pytest

from filtrax.logs import Log, LogWarning, read_table

BAD = {
    "no_file": (None, r"bad\.csv"),
    "empty": ("", r"bad\.csv must hold a header and rows, found an empty file"),
    "blank_lines": ("\n\n  \n", r"bad\.csv must hold a header and rows"),
    "header_alone": ("t,x\n", r"bad\.csv must hold rows below its header"),
    "no_header": ("0,1\n1,2\n", r"bad\.csv, row 1: the first row must name the columns"),
    "no_clock": (
        "time,x\n0,1\n",
        r"bad\.csv, the clock, which `time` names, must be a column",
    ),
    "similar_clock": ("T,x\n0,1\n", r"bad\.csv, the clock, .* only \['T', 'x'\]"),
    "text_in_numbers": ("t,x\n0,1\n1,oops\n", r"bad\.csv, column 'x', row 3: .* found 'oops'"),
    "text_first": ("t,x\n0,oops\n1,2\n", r"bad\.csv, column 'x', row 2: .* found 'oops'"),
    "text_in_clock": ("t,x\n0,1\nsoon,2\n", r"bad\.csv, column 't', row 3: a time .* 'soon'"),
    "decimal_comma": ("t;x\n0;1,5\n1;2\n", r"column 'x', row 2: .* comma in the place of the dec"),
    "digits_with_underscores": ("t,x\n0,1\n1,1_000\n", r"column 'x', row 3: .* found '1_000'"),
    "missing_number": ("t,x\n0,1\n1,\n", r"column 'x', row 3: a number is missing; `drop_missing"),
    "nan": ("t,x\n0,1\n1,NaN\n", r"column 'x', row 3: a number is missing"),
    "nan_in_clock": ("t,x\n0,1\nnan,2\n", r"bad\.csv, column 't', row 3: a number is missing"),
    "infinite": ("t,x\n0,1\n1,-inf\n", r"column 'x', row 3: numbers must be finite, found -inf"),
    "infinite_clock": ("t,x\n0,1\ninf,2\n", r"column 't', row 3: a time"),
    "huge_clock": ("t,x\n0,1\n1e300,2\n", r"column 't', row 3: times must be within 292 years"),
    "endless_clock": ("t,x\n0,1\n1e999999999,2\n", r"column 't', row 3: a time"),
    "tiny_clock": ("t,x\n0,1\n1_0,2\n", r"column 't', row 3: a time must stand here"),
    "ragged_short": ("t,x,y\n0,1,2\n1,2\n", r"row 3: .* 3 cells .* found 2; .* column 'y'"),
    "ragged_long": ("t,x\n0,1\n1,2,3\n", r"bad\.csv, row 3: .* 2 cells of the header, found 3"),
    "twice_the_same_name": ("t,x,x\n0,1,2\n", r"bad\.csv, columns must have distinct .* \['x'\]"),
    "not_utf8": (b"t,x\n0,1\n1,\xff\xfe\n", r"bad\.csv, row 3: must be text in UTF-8"),
    "zero_bytes": (b"t,x\n0,1\n1,\0\n", r"bad\.csv, row 3: must be text, found a zero byte"),
    "binary": (bytes(range(128, 256)) * 4, r"bad\.csv, row 1: must be text in UTF-8"),
    "enormous_cell": ("t,x\n0," + "1" * 200_000 + "\n", r"bad\.csv, row 2: no row of a CSV"),
    "nothing_left": ("t,x\n0,\n1,nan\n", r"bad\.csv, column 'x', row 2: a number is missing"),
    "unclosed_quote": (
        't,x\n0,"1\n1,2\n',
        r"bad\.csv, row 3: no row of a CSV file: unexpected end",
    ),
    "only_text": ("t,x\n0,a\n1,b\n", None),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_file_is_one_sentence(name, tmp_path):
    content, message = BAD[name]
    path = tmp_path / "bad.csv"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    if message is None:  # a clock and nothing but text is a stream of times
        assert Log.from_csv(path)["bad"].columns == {}
        return
    with pytest.raises((ValueError, FileNotFoundError), match=message) as caught:
        Log.from_csv(path)
    text = str(caught.value)
    assert len(text) < 600 + len(str(path))
    assert "\n" not in text


def test_clocks_that_never_overlap_are_named_with_their_files(tmp_path):
    for name, start in (("gnss", 0), ("imu", 1_700_000_000)):
        rows = "".join(f"{start + i},{i}\n" for i in range(5))
        (tmp_path / f"{name}.csv").write_text("t,x\n" + rows)
    files = {name: tmp_path / f"{name}.csv" for name in ("gnss", "imu")}
    with pytest.raises(
        ValueError, match=r"gnss\.csv, column 't': the clock runs .* never overlaps"
    ):
        Log.from_csv(files)
    log = Log.from_csv(files, offsets={"imu": -1_700_000_000.0})
    assert log["imu"].times.tolist() == log["gnss"].times.tolist()


@pytest.mark.parametrize(
    ("column", "values", "unit", "reason"),
    [
        ("t", np.arange(50) * 100.0, {}, "100 s apart, as milliseconds"),
        ("t", np.arange(50) * 0.01, {"t": "ms"}, "as seconds that are read as milliseconds"),
        ("heading", np.linspace(-179, 179, 50), {}, "too large for radians; name its unit"),
        ("gps.yaw", np.linspace(0, 359, 50), {}, "too large for radians; name its unit"),
        ("gyro_z", np.linspace(-90, 90, 50), {}, "degrees per second; name its unit"),
        ("speed", np.linspace(500, 3000, 50), {}, "2750 m/s, as mm/s that are read as m/s"),
        ("imu.az", np.full(50, 9810.0), {}, "9810 m/s², as mm/s\\^2 that are read"),
        ("range", np.linspace(500, 30_000, 50), {}, "m, as mm that are read as m are; name"),
        ("tilt_deg", np.linspace(-2, 2, 50), {}, "is named after degrees"),
    ],
)
def test_units_that_look_wrong_raise_a_warning_with_the_reason(column, values, unit, reason):
    clock = values if column == "t" else 0.1 * np.arange(50)
    columns = {"t": clock, **({} if column == "t" else {column: values})}
    with pytest.warns(LogWarning, match=reason):
        log = Log.from_arrays({"a": columns}, units=unit)
    assert re.search(reason, str(log.report))


def test_plausible_units_raise_no_warning():
    rng, t = np.random.default_rng(0), np.arange(200) * 0.01
    columns = {"heading": np.linspace(-3, 3, 200), "gyro_z": rng.normal(size=200), "speed": 30 + t}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Log.from_arrays({"a": {"t": t, **columns}})
        Log.from_arrays(
            {"a": {"t": t, "heading": np.rad2deg(columns["heading"])}}, units={"heading": "deg"}
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"units": {"x": "furlong"}}, r"`units` must be known: got \['furlong'\]"),
        ({"units": {"z": "m"}}, r"`units` must name columns: got \['z'\]"),
        ({"units": {"t": "m"}}, "column 't': a clock must be in a unit of time, got 'm'"),
        ({"columns": {"b": ["x"]}}, r"`columns` must name streams: got \['b'\]"),
        ({"columns": {"a": ["z"]}}, r"columns must be in its header: got \['z'\]"),
        ({"offsets": {"b": 1.0}}, r"`offsets` must name streams"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Log.from_arrays({"a": {"t": [0.0, 1.0], "x": [1.0, 2.0]}}, **arguments)


def test_arrays_that_do_not_fit_are_refused():
    for columns, message in [
        ({"t": [0.0], "x": [1.0, 2.0]}, "vectors of one length"),
        ({"t": [[0.0]], "x": [[1.0]]}, "vectors of one length"),
        ({"t": [], "x": []}, "must hold rows"),
        ({"t": [0, 2**62], "x": [1.0, 2.0]}, "within 292 years"),
        ({"t": [0.0, 1e12], "x": [1.0, 2.0]}, "within 292 years"),
        ({"t": [0.0, 1.0], "x": [1.0, np.nan]}, "stream 'a', column 'x', row 1: a number is mis"),
    ]:
        with pytest.raises(ValueError, match=message):
            Log.from_arrays({"a": columns})


def test_a_file_that_is_no_parquet_and_a_table_with_a_hole(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "bad.parquet"
    path.write_bytes(b"PAR1 and nothing else PAR1")
    with pytest.raises(ValueError, match=r"bad\.parquet must be a Parquet file"):
        Log.from_parquet(path)
    (tmp_path / "map.csv").write_text("id,x\n1,2\n2,\n")
    with pytest.raises(ValueError, match=r"map\.csv, column 'x', row 3: a number is missing"):
        read_table(tmp_path / "map.csv")
