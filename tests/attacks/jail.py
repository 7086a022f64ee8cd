"""The process in which hostile traces are read. One request on a line of stdin, one answer on a line of stdout.

    {"path": …, "ways": ["strict", …], "seconds": 20, "megabytes": 512}
    {"strict": {"error": "TraceFormatError: …", "hash": null, "damage": 0}, …}      or      {"crash": "strict: KeyError: …"}

Every way of reading ends in a result or in an error of ours; anything else is a crash. Address space and time are limited.
"""

import contextlib
import hashlib
import json
import os
import resource
import signal
import sys
import tempfile
import traceback
from functools import partial
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "store"))

import numpy as np
import specimens

from twintrace import api
from twintrace.measure.values import measure
from twintrace.model.errors import TraceError, TwintraceError
from twintrace.model.values import TensorRef, leaves, tensor_slots
from twintrace.store import digest, native
from twintrace.store.registry import open_trace
from twintrace.store.writer import TraceWriter

opened: list[str] = []


class Hang(BaseException):
    """The time is over."""


def look(path: Path, *, tolerant: bool) -> tuple[object, str | None, int]:
    """Ask a trace for everything. Returns what was read, the first error, and how much damage it lists."""
    found: list[object] = []
    damage, first = 0, None
    try:
        trace = open_trace(path, tolerant=tolerant)
        repr(trace)
        found.append((trace.framework, trace.places, repr(trace.manifest.get("settings"))))
    except TraceError as error:
        return found, say(error), 0
    for place in trace.places:
        try:
            journal = trace.journal(*place)
        except TraceError as error:
            first = first or say(error)
            continue
        for name, read in readers(journal):
            try:
                found.append((place, name, read()))
            except TraceError as error:
                first = first or say(error)
                found.append((place, name, "error"))
        for tensor in tensors(journal):
            try:
                found.append((place, "array", hashlib.sha256(journal.array(tensor).tobytes()).hexdigest()))
            except TraceError as error:
                first = first or (say(error) if tensor.payload else None)
        damage += len(journal.damage)
        found.append((place, list(map(str, journal.damage))))
    return found, first, damage


def tensors(journal):
    with contextlib.suppress(TraceError):
        yield from list(journal.tensors())


def readers(journal):
    def by_number():
        numbers = set()
        for call in journal.calls():
            numbers |= {number for _, number in tensor_slots(call.args, call.kwargs)} | {
                g.tensor for g in call.gradients
            }
            numbers |= {leaf.id for _, leaf in leaves(call.output) if isinstance(leaf, TensorRef)}
            numbers |= {*call.parameters.values(), *call.buffers.values(), *call.after.values()}
        return [repr(journal.tensor(number)) for number in sorted(numbers)]

    yield "header", lambda: repr((journal.header, journal.complete, len(journal)))
    yield "calls", lambda: repr(list(journal.calls()))
    yield "gradients", lambda: repr(list(journal.parameter_gradients()))
    yield "notes", lambda: repr(list(journal.notes()))
    yield "tensors", lambda: repr(list(journal.tensors()))
    yield "by number", by_number
    yield "unknown numbers", lambda: [repr(journal.tensor(number)) for number in (-1, 10**30)]


def say(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def ways(request):
    path = Path(request["path"])

    def copy():
        with tempfile.TemporaryDirectory() as folder:
            native.write(open_trace(path, tolerant=True), Path(folder) / "copy")
            return look(Path(folder) / "copy", tolerant=False)

    return {
        "strict": lambda: look(path, tolerant=False),
        "tolerant": lambda: look(path, tolerant=True),
        "copy": copy,
        "listing": lambda: (repr(api.listing(path)), None, 0),
        "compare": lambda: (repr(api.compare(path, path)), None, 0),
        "compare with good": lambda: (repr(api.compare(request["good"], path)), None, 0),
    }


def serve(request):
    answer = {}
    all_ways = ways(request)
    if request.get("before"):  # the tests of this jail break something in here
        exec(request["before"], {"specimens": specimens, "sys": sys})
    opened.clear()
    for name in request.get("ways") or all_ways:
        try:
            found, error, damage = all_ways[name]()
        except TwintraceError as error_of_ours:
            found, error, damage = None, say(error_of_ours), 0
        text = repr(found).replace(request["path"], "PATH")
        answer[name] = {
            "error": error,
            "damage": damage,
            "hash": hashlib.sha256(text.encode(errors="replace")).hexdigest(),
        }
    answer["opened"] = sorted({name for name in opened if name.startswith(request.get("watch") or "\0")})
    return answer


def guarded(request):
    def too_late(*_):
        raise Hang(f"still busy after {request['seconds']} s")

    signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, request["seconds"])
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if request["megabytes"]:
        present = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (present + (request["megabytes"] << 20), hard))
    try:
        return serve(request)
    except BaseException as error:  # noqa: BLE001 - to find these is what the jail is for
        place = "".join(traceback.format_exception(error)[-6:])
        return {"crash": f"{say(error)}\n{place}"}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def in_a_child(request):
    """For the tests of the jail itself, which break things for good."""
    child = os.fork()
    if not child:
        print(json.dumps(guarded(request)), flush=True)  # noqa: T201
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        print(json.dumps({"crash": f"the process ended with status {status}"}), flush=True)  # noqa: T201


def main() -> None:
    digest.warm_up()
    measure(np.ones(2, np.float32), np.zeros(2, np.float32), "f32", "f32", rtol=0, atol=0, heat=True)  # compiles, once
    # A copy is made for every request: not with 64 MB for the ring each time.
    native.TraceWriter = SimpleNamespace(create=partial(TraceWriter.create, buffer=specimens.SMALL_RING))
    with tempfile.TemporaryDirectory() as folder:  # a first comparison imports torch, which is no part of what is timed
        path = specimens.write_small(Path(folder) / "trace")
        api.compare(path, path)
    sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
    print("ready", flush=True)  # noqa: T201 - how this process answers
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("before"):
            in_a_child(request)
        else:
            print(json.dumps(guarded(request)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
