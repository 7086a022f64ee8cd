"""`import msprobe` in a spawned process: the embassy takes the place of this module."""

from twintrace.compat import disguises

disguises.settle("msprobe")
