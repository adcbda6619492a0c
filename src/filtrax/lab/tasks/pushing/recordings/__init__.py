"""Pushes of the MIT Push data set: reading files, and making sequences of them."""
