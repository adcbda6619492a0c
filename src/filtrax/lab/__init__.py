"""The laboratory: the tasks and experiments of Kloss et al. (2021), on top of the library.

The library never imports it.
"""
