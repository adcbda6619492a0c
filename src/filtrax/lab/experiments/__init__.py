"""Experiments: a configuration in, a folder with everything that came of it out."""
