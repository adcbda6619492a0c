"""KITTI visual odometry: the pose of a car from the images of its cameras."""

from filtrax.lab.tasks.kitti.augment import Augmentation
from filtrax.lab.tasks.kitti.model import KittiModel
from filtrax.lab.tasks.kitti.task import KittiTask
from filtrax.lab.tasks.kitti.windows import Fold, Frames, Part

__all__ = ["Augmentation", "Fold", "Frames", "KittiModel", "KittiTask", "Part"]
