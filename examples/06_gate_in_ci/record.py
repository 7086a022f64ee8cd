"""The same training, recorded to the folder that is given: for a gate that compares with another branch."""

import sys

from training import build, step

import twintrace as tt

net, optimizer = build()
with tt.record(sys.argv[1], net, keep="tensor") as rec:
    for number in range(3):
        step(net, optimizer, number)
        rec.step()
