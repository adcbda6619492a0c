"""Recorded drives: files in KITTI's layout, and a cache of resized images."""
