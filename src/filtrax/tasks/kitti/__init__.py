"""KITTI visual odometry: the pose of a car from the images of its cameras."""

from filtrax.tasks.kitti.augment import Augmentation
from filtrax.tasks.kitti.model import KittiModel
from filtrax.tasks.kitti.task import KittiTask
from filtrax.tasks.kitti.windows import Fold, Frames, Part

__all__ = ["Augmentation", "Fold", "Frames", "KittiModel", "KittiTask", "Part"]
