"""Keyed work that is the same for everybody: the best rows of a key, and rows without their repetitions."""
