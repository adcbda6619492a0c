"""Bags of ROS 1 and 2: written by `rosbags`, read back; and files of strangers."""

import bz2
import struct
import tracemalloc
import zlib

import numpy as np
import pytest

from filtrax.logs import Log, _containers

pytest.importorskip("rosbags")
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin
from rosbags.rosbag2 import Writer as Writer2
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

START = 1_700_000_000_123_456_789
STEP = 10_000_000
COUNT = 40
RANGE = "uint8 anchor\nfloat64[3] place\nfloat32[] spectrum\nstring name\nfloat64 distance\n"
TOPICS = {"imu": "/imu/data", "pose": "/mocap", "uwb": "/uwb"}


def stamp(types, ros1, i):
    sec, nanosec = divmod(START + i * STEP, 10**9)
    time = types["builtin_interfaces/msg/Time"](sec=sec, nanosec=nanosec)
    header = types["std_msgs/msg/Header"]
    frame = "base" * (1 + i % 3)  # of different lengths, so that alignment differs
    return header(seq=i, stamp=time, frame_id=frame) if ros1 else header(stamp=time, frame_id=frame)


def drawn(store, ros1):
    """Messages of an IMU, poses and ranges of a type that ROS does not have."""
    types, zeros = store.types, np.zeros
    vector, quaternion = types["geometry_msgs/msg/Vector3"], types["geometry_msgs/msg/Quaternion"]
    for i in range(COUNT):
        head = stamp(types, ros1, i)
        yaw = 0.1 * i - 2.0
        turn = quaternion(x=0.0, y=0.0, z=np.sin(yaw / 2), w=np.cos(yaw / 2))
        yield (
            "imu",
            types["sensor_msgs/msg/Imu"](
                head,
                turn,
                zeros(9),
                vector(0.0, 0.5, 0.25 * i),
                zeros(9),
                vector(1.0, 2.0, 9.8),
                zeros(9),
            ),
        )
        point = types["geometry_msgs/msg/Point"](x=float(i), y=-float(i), z=0.0)
        pose = types["geometry_msgs/msg/Pose"](position=point, orientation=turn)
        yield "pose", types["geometry_msgs/msg/PoseStamped"](head, pose)
        yield (
            "uwb",
            types["uwb_msgs/msg/Range"](
                i % 4,
                np.array([1.0, 2.0, float(i)]),
                zeros(i % 3, np.float32),
                "a" * (i % 5),
                10.0 + i,
            ),
        )


def write(path, kind):
    """A bag of one kind, and the path to read."""
    ros1 = kind.startswith("bag")
    store = get_typestore(Stores.ROS1_NOETIC if ros1 else Stores.LATEST)
    store.register(get_types_from_msg(RANGE, "uwb_msgs/msg/Range"))
    if ros1:
        writer = Writer1(path / "drive.bag")
        if kind != "bag":
            writer.set_compression(getattr(Writer1.CompressionFormat, kind.split("-")[1].upper()))
        serialize, target = store.serialize_ros1, path / "drive.bag"
    else:
        plugin = StoragePlugin.MCAP if kind.startswith("mcap") else StoragePlugin.SQLITE3
        writer = Writer2(path / "drive", version=9, storage_plugin=plugin)
        if kind in ("mcap-zstd", "db3-zstd"):
            mode = CompressionMode.STORAGE if kind.startswith("mcap") else CompressionMode.MESSAGE
            writer.set_compression(mode, CompressionFormat.ZSTD)
        serialize, target = store.serialize_cdr, path / "drive"
    kinds = {
        "imu": "sensor_msgs/msg/Imu",
        "pose": "geometry_msgs/msg/PoseStamped",
        "uwb": "uwb_msgs/msg/Range",
    }
    with writer:
        made = {
            name: writer.add_connection(TOPICS[name], kind, typestore=store)
            for name, kind in kinds.items()
        }
        for i, (name, message) in enumerate(drawn(store, ros1)):
            received = START + (i // 3) * STEP + 2_000_000
            writer.write(made[name], received, serialize(message, kinds[name]))
    return target


@pytest.mark.parametrize(
    "kind", ["bag", "bag-lz4", "bag-bz2", "mcap", "mcap-zstd", "db3", "db3-zstd"]
)
def test_numbers_of_a_bag_are_those_that_were_written(kind, tmp_path):
    path = write(tmp_path, kind)
    log = Log.from_rosbag(path, TOPICS)
    i = np.arange(COUNT)
    assert log["imu"].nanoseconds.tolist() == [START + n * STEP for n in range(COUNT)]
    np.testing.assert_allclose(log["imu"]["angular_velocity.z"], 0.25 * i)
    np.testing.assert_allclose(log["imu"]["linear_acceleration.z"], 9.8)
    np.testing.assert_allclose(log["pose"]["pose.position.y"], -i)
    np.testing.assert_allclose(log["pose"]["pose.orientation.yaw"], 0.1 * i - 2.0, atol=1e-12)
    np.testing.assert_allclose(log["uwb"]["distance"], 10.0 + i)
    np.testing.assert_allclose(log["uwb"]["place[2]"], i)
    assert log["uwb"]["anchor"].tolist() == (i % 4).tolist()
    # A message without a header has the time at which it was recorded.
    assert log["uwb"].nanoseconds[0] == START + 2_000_000
    recorded = Log.from_rosbag(path, {"imu": TOPICS["imu"]}, received=True)
    assert recorded["imu"].nanoseconds[0] == START + 2_000_000


def test_topics_and_columns_that_are_not_there_are_named(tmp_path):
    path = write(tmp_path, "mcap")
    with pytest.raises(ValueError, match=r"topics must have messages: got \['/gps'\].*'/imu/data'"):
        Log.from_rosbag(path, {"gnss": "/gps"})
    with pytest.raises(ValueError, match=r"columns must be in its header: got \['ax'\]"):
        Log.from_rosbag(path, {"imu": TOPICS["imu"]}, columns={"imu": ["ax"]})
    with pytest.raises(FileNotFoundError, match="There is no bag"):
        Log.from_rosbag(tmp_path / "other.bag", TOPICS)
    (tmp_path / "notes.txt").write_text("no bag")
    with pytest.raises(ValueError, match=r"must be a \.bag, \.mcap or \.db3 file"):
        Log.from_rosbag(tmp_path / "notes.txt", TOPICS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="found none"):
        Log.from_rosbag(tmp_path / "empty", TOPICS)
    (tmp_path / "empty" / "drive.mcap.zstd").write_bytes(b"")
    with pytest.raises(ValueError, match="decompressed by `zstd -d`"):
        Log.from_rosbag(tmp_path / "empty", TOPICS)


@pytest.mark.parametrize("kind", ["bag", "mcap", "db3"])
def test_a_bag_that_is_cut_or_changed_is_one_sentence(kind, tmp_path):
    """Whatever bytes are missing or changed, there is a sentence or the numbers that are left."""
    target = write(tmp_path, kind)
    file = target if target.is_file() else next(target.glob(f"*.{kind}"))
    data, rng = file.read_bytes(), np.random.default_rng(0)
    broken = tmp_path / f"broken.{kind}"
    for trial in range(40):
        changed = bytearray(data[: rng.integers(1, len(data))] if trial % 2 else data)
        for place in rng.integers(0, len(changed), 0 if trial % 2 else 20):
            changed[place] = rng.integers(256)
        broken.write_bytes(bytes(changed))
        sentence = outcome(broken, TOPICS)
        assert sentence is None or "broken" in sentence
        assert "\n" not in (sentence or "")


def mcap(*records):
    def record(code, body):
        return bytes([code]) + struct.pack("<Q", len(body)) + body

    return _containers.MAGIC + b"".join(record(code, body) for code, body in records)


def outcome(path, topics):
    """The sentence that a file leads to, None for a log."""
    try:
        Log.from_rosbag(path, topics)
    except (ValueError, Warning) as error:  # times that were changed are not in order
        return str(error)
    return None


def text(value):
    return struct.pack("<I", len(value)) + value.encode()


def channel(definition, kind="x/msg/X", data=b"\0\1\0\0" + b"\0" * 8):
    """An MCAP file with one message of a type that it defines itself."""
    schema = struct.pack("<H", 1) + text(kind) + text("ros2msg") + text(definition)
    about = struct.pack("<HH", 1, 1) + text("/x") + text("cdr") + struct.pack("<I", 0)
    message = struct.pack("<HIQQ", 1, 0, 5, 5) + data
    return mcap((1, text("ros2") + text("")), (3, schema), (4, about), (5, message))


def test_what_a_bag_says_of_its_types_is_never_executed(tmp_path):
    """`rosbags` makes Python of definitions; here names of fields and types are only names."""
    path, mark = tmp_path / "bad.mcap", tmp_path / "mark"
    path.write_bytes(channel("float64 import_os\n"))
    assert Log.from_rosbag(path, {"x": "/x"})["x"]["import_os"].tolist() == [0.0]
    code = f"open({str(mark)!r}, 'w')"
    for definition, kind in [
        (f"float64 x\n{code}\n", "x/msg/X"),
        (f"float64 a = {code}\n", "x/msg/X"),
        ("float64 x\n", f'x/msg/X"); {code}; ("'),
        (f"float64 __class__\nstring s={code}\n", "x/msg/X"),
        ("x/X self\n", "x/msg/X"),
        ("y/Y gone\n", "x/msg/X"),
        ("float64[4000000000] many\n", "x/msg/X"),
        ("float64 x\n" * 30_000, "x/msg/X"),
    ]:
        path.write_bytes(channel(definition, kind))
        sentence = outcome(path, {"x": "/x"})
        assert sentence is None or "bad.mcap, topic /x" in sentence
    assert not mark.exists()
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_sequence_longer_than_its_message_is_refused(tmp_path):
    path = tmp_path / "long.mcap"
    path.write_bytes(channel("float64[] many\n", data=b"\0\1\0\0" + b"\xff" * 8))
    with pytest.raises(ValueError, match="a sequence of 4294967295 entries, more than fit into it"):
        Log.from_rosbag(path, {"x": "/x"})


def chunk(data, size, kind):
    return struct.pack("<QQQI", 0, 1, size, 0) + text(kind) + struct.pack("<Q", len(data)) + data


def bombs():
    """Chunks of 2 GiB of zeros in a few kilobytes, some of which lie about their size."""
    import lz4.frame

    try:
        from compression import zstd
    except ImportError:
        from backports import zstd
    compressor, zeros = zstd.ZstdCompressor(), b"\0" * 2**20
    by_zstd = b"".join(compressor.compress(zeros) for _ in range(2**11)) + compressor.flush()
    lz = lz4.frame.LZ4FrameCompressor()
    by_lz4 = lz.begin() + b"".join(lz.compress(zeros) for _ in range(2**11)) + lz.flush()
    packer = bz2.BZ2Compressor()
    by_bz2 = b"".join(packer.compress(zeros) for _ in range(2**9)) + packer.flush()
    for name, data in (("zstd", by_zstd), ("lz4", by_lz4)):
        for size in (2**31, 1000, 2**20):
            yield (
                f"{name} {size}.mcap",
                mcap((1, text("ros2") + text("")), (6, chunk(data, size, name))),
            )
    for name, data in (("lz4", by_lz4), ("bz2", by_bz2)):
        fields = [b"op=\x05", b"compression=" + name.encode(), b"size=" + struct.pack("<I", 1000)]
        header = b"".join(struct.pack("<I", len(field)) + field for field in fields)
        record = struct.pack("<I", len(header)) + header + struct.pack("<I", len(data)) + data
        yield f"{name}.bag", b"#ROSBAG V2.0\n" + record


@pytest.mark.long
def test_chunks_that_grow_beyond_their_limit_are_refused_before_they_do(tmp_path):
    for name, data in bombs():
        path = tmp_path / name
        path.write_bytes(data)
        tracemalloc.start()
        with pytest.raises(ValueError, match=r"at most 268,435,456 are read|of more than the"):
            Log.from_rosbag(path, {"x": "/x"})
        assert tracemalloc.get_traced_memory()[1] < 3 * _containers.LARGEST_CHUNK
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["zstd", "lz4", "bz2"])
def test_a_chunk_larger_than_it_may_be_is_refused(kind, monkeypatch):
    import lz4.frame

    try:
        from compression import zstd
    except ImportError:
        from backports import zstd
    monkeypatch.setattr(_containers, "LARGEST_CHUNK", 10_000)
    pack = {"zstd": zstd.compress, "lz4": lz4.frame.compress, "bz2": bz2.compress}[kind]
    for size in (None, 5_000):
        small, large = b"a" * 5_000, b"a" * 20_000
        assert _containers.decompressed(pack(small), kind, size) == small
        with pytest.raises(ValueError, match="more than the"):
            _containers.decompressed(pack(large), kind, size)
    with pytest.raises(ValueError, match="cannot be decompressed"):
        _containers.decompressed(b"no frame at all", kind)


def test_a_folder_reads_no_file_outside_of_it(tmp_path):
    target = write(tmp_path, "mcap")
    secret = tmp_path / "secret.mcap"
    next(target.glob("*.mcap")).rename(secret)
    (target / "drive.mcap").symlink_to(secret)
    with pytest.raises(ValueError, match="a link that leads out of the bag"):
        Log.from_rosbag(target, TOPICS)
    assert zlib.crc32(secret.read_bytes())  # still there


def test_metadata_of_a_folder_is_not_needed_and_not_read(tmp_path):
    target = write(tmp_path, "db3")
    (target / "metadata.yaml").write_text("!!python/object/apply:os.system ['touch mark']\n")
    before = sorted(path.name for path in target.iterdir())
    assert len(Log.from_rosbag(target, TOPICS)["imu"]) == COUNT
    assert sorted(path.name for path in target.iterdir()) == before


def test_a_database_with_views_in_the_place_of_tables_is_refused(tmp_path):
    import sqlite3

    path = tmp_path / "views.db3"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE topics(id, name, type)")
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
        connection.execute(f"CREATE VIEW messages AS {endless}")
    connection.close()
    with pytest.raises(ValueError, match="must have the tables `topics` and `messages`"):
        Log.from_rosbag(path, TOPICS)
