"""The list of tasks that come with the laboratory; to import it registers them."""

from filtrax.lab.tasks.disc import DiscTask
from filtrax.lab.tasks.kitti import KittiTask
from filtrax.lab.tasks.pushing import PushingTask

__all__ = ["DiscTask", "KittiTask", "PushingTask"]
