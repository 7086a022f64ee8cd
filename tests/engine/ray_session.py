"""Run by test_cluster.py where Ray is: a real cluster of several node processes, one of which is killed while it works.

python ray_session.py SCRATCH LEFT RIGHT      prints facts as JSON
"""

import functools
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path


def slow(scratch: Path, number: int) -> int:
    """Leaves a mark, so that it can be seen where and how often it began."""
    import ray

    (scratch / f"{number}-{ray.get_runtime_context().get_node_id()}-{os.getpid()}").touch()
    time.sleep(3.0)
    return number * number


def fail(number: int) -> int:
    raise ValueError(f"no {number}")


def main(scratch: str, left: str, right: str) -> None:
    from ray.cluster_utils import Cluster as Nodes

    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    worker = nodes.add_node(num_cpus=2)
    nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()

    import twintrace as tt
    from twintrace.api import fleet
    from twintrace.engine.cluster import Cluster

    facts: dict[str, object] = {"nodes": 3}
    engine = Cluster(nodes.address)
    facts["workers"] = engine.workers
    told: list[int] = []
    running = engine.run(functools.partial(slow, Path(scratch)), range(8), progress=told.append)
    values = [next(running).value]
    while not (begun := [mark.name for mark in Path(scratch).iterdir() if f"-{worker.node_id}-" in mark.name]):
        values.append(next(running).value)
    nodes.remove_node(worker, allow_graceful=False)
    values += [done.value for done in running]
    marks = [mark.name.partition("-")[0] for mark in Path(scratch).iterdir()]
    facts |= {"values": values, "told": told, "on_the_lost_node": len(begun), "begun": len(marks)}

    [failed] = Cluster(nodes.address).run(fail, [7])
    facts["error"] = str(failed.error)

    fleet.MANY_CALLS = 30
    found = tt.compare(left, right, engine="ray", address=nodes.address, recompute=False)
    facts |= {"code": found.code, "ranks": [asdict(item) for item in found.ranks]}
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
    nodes.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
