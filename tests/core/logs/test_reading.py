"""Logs that are read as they stand in files, and what is told about them."""

import subprocess
import sys

import numpy as np
import pytest

from filtrax import logs
from filtrax.logs import Log, LogWarning


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_columns_become_si_units_by_their_headers_or_by_name(tmp_path):
    path = write(
        tmp_path / "imu.csv",
        "#stamp [ns],gyro [deg/s],ax (mm/s^2),speed [km/h],course\n"
        "1700000000123456789,90,1000,36,180\n1700000000223456789,-45,0,72,-90\n",
    )
    log = Log.from_csv({"imu": path}, time="stamp", units={"imu.course": "deg"})
    imu = log["imu"]
    assert imu.nanoseconds.tolist() == [1700000000123456789, 1700000000223456789]
    np.testing.assert_allclose(imu["gyro"], [np.pi / 2, -np.pi / 4])
    np.testing.assert_allclose(imu["ax"], [1.0, 0.0])
    np.testing.assert_allclose(imu["speed"], [10.0, 20.0])
    np.testing.assert_allclose(imu["course"], [np.pi, -np.pi / 2])
    assert imu.units == {"gyro": "rad/s", "ax": "m/s²", "speed": "m/s", "course": "rad"}
    assert "converted: gyro from deg/s" in str(log.report)


def test_seconds_since_1970_keep_their_nanoseconds(tmp_path):
    """Rejects clocks in floating point, whose steps near 1.7e9 s are 238 ns."""
    path = write(tmp_path / "a.csv", "t,v\n1700000000.000000001,1\n1700000000.000000100,2\n")
    assert np.diff(Log.from_csv(path)["a"].nanoseconds) == 99


def test_a_byte_order_mark_semicolons_and_trailing_blanks_are_no_error(tmp_path):
    text = "t;x\n0;1.5\n1;2.5\n\n"
    for data in (b"\xef\xbb\xbf" + text.encode(), text.encode("utf-16")):
        log = Log.from_csv(write(tmp_path / "excel.csv", data))
        assert [*log["excel"].columns] == ["x"]
        np.testing.assert_array_equal(log["excel"]["x"], [1.5, 2.5])


def test_columns_are_chosen_and_renamed_and_text_is_left_out(tmp_path):
    path = write(tmp_path / "a.csv", "t,x,frame,y\n0,1,map,3\n1,2,map,4\n")
    log = Log.from_csv({"all": path, "one": path}, columns={"one": {"east": "x"}})
    assert [*log["all"].columns] == ["x", "y"]
    assert log.report.streams["all"].text == ("frame",)
    assert [*log["one"].columns] == ["east"]


def test_rows_without_a_number_are_left_out_if_one_says_so(tmp_path):
    """A wide file, with empty cells where a sensor did not report, is read for each sensor."""
    path = write(tmp_path / "wide.csv", "t,v,e,n\n0,1,,\n0.1,2,5,6\n0.2,3,nan,7\n")
    chosen = {"wheels": ["v"], "gnss": ["e", "n"]}
    log = Log.from_csv({"wheels": path, "gnss": path}, columns=chosen, drop_missing=True)
    assert len(log["wheels"]) == 3
    assert log["gnss"].times.tolist() == [0.1]
    assert log.report.streams["gnss"].missing == 2


def test_rows_are_sorted_and_gaps_repetitions_and_jumps_are_told(tmp_path):
    times = [0.0, 0.1, 0.3, 0.2, 0.4, 0.4, 0.5, 2.5, 2.6, 2.6]
    values = [0, 1, 3, 2, 4, 5, 6, 7, 8, 8]
    rows = "".join(f"{t},{v}\n" for t, v in zip(times, values, strict=True))
    with pytest.warns(LogWarning) as caught:
        log = Log.from_csv(write(tmp_path / "a.csv", "t,v\n" + rows))
    messages = [str(warning.message) for warning in caught]
    assert any("row 5: the clock went back by 0.1 s" in message for message in messages)
    assert any("1 rows are copies" in message for message in messages)
    found = log.report.streams["a"]
    assert (found.unsorted, found.repeated, found.copies) == (1, 2, 1)
    ((begin, length),) = found.gaps
    assert (begin, length) == pytest.approx((0.5, 2.0))
    assert log["a"]["v"].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8]
    assert len(log.without_copies()["a"]) == 9
    for word in ("not in order", "gaps, the longest of 2 s at 0.5 s", "1 are copies"):
        assert word in str(log)


def test_arrays_and_parquet_and_csv_are_the_same_log(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    stamps = np.array([0, 100_000_000, 250_000_000])
    arrays = {"t": stamps, "range [mm]": np.array([1500.0, 1600.0, 1700.0])}
    units = {"t": "ns"}
    parquet.write_table(pyarrow.table(arrays), tmp_path / "uwb.parquet")
    times = {"t": stamps.astype("datetime64[ns]"), "range [mm]": arrays["range [mm]"]}
    parquet.write_table(pyarrow.table(times), tmp_path / "stamped.parquet")
    write(tmp_path / "uwb.csv", "t,range [mm]\n0,1500\n100000000,1600\n250000000,1700\n")
    made = [
        Log.from_arrays({"uwb": arrays}, units=units),
        Log.from_arrays({"uwb": times}),
        Log.from_parquet({"uwb": tmp_path / "uwb.parquet"}, units=units),
        Log.from_parquet({"uwb": tmp_path / "stamped.parquet"}),
        Log.from_csv({"uwb": tmp_path / "uwb.csv"}, units=units),
    ]
    for log in made:
        assert log["uwb"].nanoseconds.tolist() == stamps.tolist()
        np.testing.assert_allclose(log["uwb"]["range"], [1.5, 1.6, 1.7])


def test_parts_of_a_log_follow_each_other_and_lose_no_row():
    times = np.arange(100) * 0.1 + 50
    log = Log.from_arrays({"a": {"t": times, "v": times}, "b": {"t": times + 0.05, "v": times}})
    first, second, third = log.split(0.5, 0.8)
    for name in "ab":
        parts = np.concatenate([part[name].times for part in (first, second, third)])
        np.testing.assert_allclose(parts, log[name].times)
    assert first.end < second.start < second.end < third.start
    assert second.start == pytest.approx(50 + 0.5 * 9.95, abs=0.06)
    before, after = log.split_at(53.0)
    assert (before.end, after.start) == pytest.approx((52.95, 53.0))
    assert log.from_zero().start == 0.0
    assert (
        np.diff(log.from_zero()["b"].nanoseconds).tolist() == np.diff(log["b"].nanoseconds).tolist()
    )
    assert log.between(51.0, 52.0)["a"].times.tolist() == pytest.approx(list(times[10:20]))
    assert log.shifted(b=-0.05)["b"].times == pytest.approx(log["a"].times)
    assert len(log.where("a", lambda a: a["v"] > 55)["a"]) == int((times > 55).sum())
    with pytest.raises(ValueError, match="Cuts must increase"):
        log.split(0.8, 0.5)


def test_truth_is_interpolated_the_short_way_round_and_never_extrapolated():
    log = Log.from_arrays(
        {"truth": {"t": [0.0, 1.0, 2.0, 9.0], "h": [3.0, -3.0, -3.0, -1.0], "x": [0.0, 2, 2, 9]}}
    )
    found = log["truth"].at(np.array([-0.1, 0.25, 1.0, 5.5, 9.1]), angles=["h"])
    step = 2 * np.pi - 6.0
    np.testing.assert_allclose(found["h"], [np.nan, 3.0 + step / 4, -3.0, -2.0, np.nan])
    np.testing.assert_allclose(found["x"], [np.nan, 0.5, 2.0, 5.5, np.nan])
    halfway = log["truth"].at(np.array([0.75]), angles=["h"])["h"]
    np.testing.assert_allclose(halfway, [3.0 + 0.75 * step - 2 * np.pi])
    short = log["truth"].at(np.array([0.5, 2.0, 5.5, 9.0]), largest_gap=2.0)["x"]
    np.testing.assert_allclose(short, [1.0, 2.0, np.nan, 9.0])


def test_tables_without_a_clock(tmp_path):
    path = write(tmp_path / "map.csv", "id,name,x [mm]\n1,oak,1000\n7,gate,-500\n")
    table = logs.read_table(path)
    assert table["id"].tolist() == [1, 7]
    assert table["x"].tolist() == [1.0, -0.5]
    assert "name" not in table


def test_the_library_imports_no_reader_of_files():
    program = (
        "import sys, filtrax\nfrom filtrax import logs, models\nfiltrax.run\n"
        "assert not {'pyarrow', 'rosbags', 'pandas', 'lz4'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
