"""What records say: comparisons with the paper, as a page, as pictures and on a terminal."""
