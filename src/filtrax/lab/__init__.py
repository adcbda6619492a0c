"""The laboratory: the tasks and experiments of Kloss et al. (2021), on top of the library.

Nothing of the library imports it.
"""
