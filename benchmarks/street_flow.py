"""Do generated images carry the motion? Optical flow on them against the poses they were drawn for.

    python benchmarks/street_flow.py FILE.json --poses DIR [--pairs 300] [--size 50x150]

For each drive in DIR (KITTI's layout: poses/NN.txt, and times/NN.txt or sequences/NN/times.txt),
pairs of consecutive frames are drawn for both colour cameras. `estimate_motion` reads speed and
heading rate off each pair; the mean of the two cameras is correlated with the truth. FILE.json also
has how many images a second were drawn. `--images DIR` adds the recorded gray images of drive 00 in
a folder of KITTI's layout, frames 0 to 2999.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from filtrax.lab.provenance import provenance
from filtrax.lab.tasks.kitti.flow import estimate_motion
from filtrax.lab.tasks.kitti.motion import states, steps
from filtrax.lab.tasks.kitti.recordings.files import pose_names, read_drive, read_path
from filtrax.lab.tasks.kitti.streets import Street
from filtrax.lab.tasks.kitti.streets.generate import GRAY

CAMERAS = ("image_2", "image_3")
RECORDED_FRAMES = 3000


def measured(previous, current, durations):
    """Speeds and heading rates of pairs of gray images, as NumPy arrays."""
    motion = estimate_motion(previous, current, steps=durations.astype(np.float32))
    return np.stack([np.asarray(part) for part in motion])


def compared(estimates, truth):
    """How estimates [2, n] of speed and heading rate go with the truth [n, 2]."""
    row = {}
    for name, estimate, true in zip(("speed", "rate"), estimates, truth.T, strict=True):
        row[f"{name}_correlation"] = round(float(np.corrcoef(estimate, true)[0, 1]), 4)
        row[f"{name}_rmse"] = round(float(np.sqrt(np.mean((estimate - true) ** 2))), 3)
        row[f"{name}_median_error"] = round(float(np.median(np.abs(estimate - true))), 3)
        row[f"{name}_std"] = round(float(true.std()), 3)
    return row


def generated(poses, times, num_pairs, size):
    """The row of a drive with images drawn for its poses."""
    street = Street.along(poses, times)
    last = np.unique(np.linspace(1, len(poses) - 1, num_pairs).astype(int))
    frames = np.stack([last - 1, last], -1).ravel()
    estimates, seconds = [], []
    for camera in CAMERAS:
        began = time.perf_counter()
        images = street.draw(camera, size, frames).astype(np.float32) @ GRAY
        seconds.append(time.perf_counter() - began)
        estimates.append(measured(images[::2], images[1::2], steps(times)[last]))
    truth = states(poses, times, "aligned")[last, 3:]
    both = compared(np.mean(estimates, axis=0), truth)
    one = compared(estimates[0], truth)
    return {
        "pairs": len(last),
        **both,
        "one_camera": one,
        # The first camera includes compilation.
        "images_per_second": round(len(frames) / seconds[-1], 1),
    }


def recorded(folder, num_pairs):
    """The row of the recorded images of drive 00."""
    drive = read_drive(folder, "00", cameras=("image_0",)).frames(0, RECORDED_FRAMES)
    last = np.linspace(1, RECORDED_FRAMES - 1, num_pairs).astype(int)
    images = np.asarray(drive.cameras["image_0"][..., 0], np.float32)
    estimates = measured(images[last - 1], images[last], steps(drive.times)[last])
    truth = states(drive.poses, drive.times, "aligned")[last, 3:]
    return {"pairs": num_pairs, **compared(estimates, truth)}


def main():
    """Measures all drives, prints rows, and writes a record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--poses", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--size", default="50x150")
    parser.add_argument("--drives", nargs="*")
    parser.add_argument("--images", type=Path)
    options = parser.parse_args()
    height, width = (int(number) for number in options.size.split("x"))
    names = options.drives or pose_names(options.poses)
    rows = {}
    for name in names:
        path = read_path(options.poses, name)
        rows[name] = generated(*path, options.pairs, (height, width))
        print(name, json.dumps(rows[name]), flush=True)
    if options.images is not None:
        rows["00, recorded"] = recorded(options.images, options.pairs)
        print("00, recorded", json.dumps(rows["00, recorded"]), flush=True)
    record = {
        "origin": provenance(seed=0),
        "pairs": options.pairs,
        "image_size": [height, width],
        "rows": rows,
    }
    options.file.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
