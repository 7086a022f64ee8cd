"""Side-by-side measurements against the peers; not timed tests.

    python -m benchmarks.record          what recording costs, ours and theirs, in one run

Nothing here is imported by the package, and nothing is shipped. README.md says how to read the tables.
"""
