"""`import msprobe` in a spawned process: the embassy takes the place of this module."""

from twintrace.compat import run_as

run_as.settle("msprobe")
