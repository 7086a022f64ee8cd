"""The gate: the training of today is the one that was stored."""

from training import build, step


def test_three_steps(golden_trace):
    net, optimizer = build()
    # Values, not fingerprints alone: another machine rounds otherwise, and that passes.
    with golden_trace(net, keep="tensor") as rec:
        for number in range(3):
            step(net, optimizer, number)
            rec.step()
