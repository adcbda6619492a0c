"""Pushes of the MIT Push data set as files, and sequences made of them."""
