"""Files larger than memory: what is held is a tensor, not a file."""

import json
import struct

import pytest

TENSORS, EACH = 48, 8 << 20

# Runs a task, prints the most memory that the process held above what it held before, in bytes.
PROBE = """
import json, resource, sys
from twintrace import api
from twintrace.store import digest
digest.warm_up()

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

left, right = sys.argv[2:4]
before = peak()
if sys.argv[1] == "convert":
    api.convert_weights(left, right)
elif sys.argv[1] == "compare":
    assert api.compare_weights(left, right).agree
else:
    assert api.certify_weights(left, right).granted
print(peak() - before)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A checkpoint of 400 MB of zeros that takes no room on the disk."""
    path = tmp_path_factory.mktemp("large") / "net.safetensors"
    header = {
        f"layers.{number}.weight": {
            "dtype": "F32",
            "shape": [EACH // 4096, 1024],
            "data_offsets": [number * EACH, (number + 1) * EACH],
        }
        for number in range(TENSORS)
    }
    names = {
        f"layers.{number}.bias": {"dtype": "F32", "shape": [0], "data_offsets": [TENSORS * EACH] * 2}
        for number in range(TENSORS)
    }
    text = json.dumps({"__metadata__": {"format": "pt"}} | header | names).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + TENSORS * EACH)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("target", ["net.ckpt", "net.pth"])
def test_what_is_held_is_a_tensor_and_not_the_file(large, tmp_path, python, target):
    there = tmp_path / target
    for task in ("convert", "compare", "certify"):
        done = python(PROBE, task, str(large), str(there))
        assert done.returncode == 0, done.stderr
        held = int(done.stdout.split()[-1])
        assert held < (2 * EACH if task == "convert" else 6 * EACH), f"{task}: {held / EACH:.1f} tensors"
