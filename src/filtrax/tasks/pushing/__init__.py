"""Planar pushing: the pose of an object that a robot pushes over a table."""
