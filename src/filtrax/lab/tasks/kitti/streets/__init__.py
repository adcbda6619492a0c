"""Generated drives, for use without a download: a driver model, streets and a renderer."""

from filtrax.lab.tasks.kitti.streets.collection import street_drive as street_drive
from filtrax.lab.tasks.kitti.streets.collection import street_names as street_names
from filtrax.lab.tasks.kitti.streets.driver import drive_path as drive_path
from filtrax.lab.tasks.kitti.streets.generate import Street as Street
from filtrax.lab.tasks.kitti.streets.generate import generate_drive as generate_drive
