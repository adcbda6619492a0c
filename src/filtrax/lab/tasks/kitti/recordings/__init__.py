"""Drives as files: KITTI's folders, and what is kept of them."""
