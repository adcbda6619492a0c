"""Comparisons of records with the paper, as pages, as charts and on a terminal."""
