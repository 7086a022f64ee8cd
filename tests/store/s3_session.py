"""Run by test_remote_s3.py where s3fs and moto are: a bucket of moto's server, behind a proxy that cuts connections.

python s3_session.py compare A B    prints, as JSON, what comparing the traces A and B in the bucket gives, and what it took
python s3_session.py record A       records a run to the bucket, by way of the folder A, and prints what arrived when
"""

import contextlib
import json
import os
import socket
import sys
import threading
import warnings

CUT_AFTER = 3000
"""Bytes after which every third connection is cut."""


class CuttingProxy:
    """Hands connections on to a server; every third is cut in the middle of the answer, or of the request.

    `down`: none is handed on.
    """

    def __init__(self, port: int, *, requests: bool = False) -> None:
        self._requests, self.down = requests, False
        self._target, self._server = port, socket.create_server(("127.0.0.1", 0))
        self.port, self.connections, self.cuts = self._server.getsockname()[1], 0, 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._server.accept()
            self.connections += 1
            if self.down:
                self.cuts += 1
                client.close()
                continue
            limit = CUT_AFTER if self.connections % 3 == 2 else None
            up, down = (limit, None) if self._requests else (None, limit)
            server = socket.create_connection(("127.0.0.1", self._target))
            threading.Thread(target=self._hand_on, args=(client, server, up), daemon=True).start()
            threading.Thread(target=self._hand_on, args=(server, client, down), daemon=True).start()

    def _hand_on(self, one: socket.socket, two: socket.socket, limit: int | None) -> None:
        sent = 0
        try:
            while data := one.recv(1024):
                if self.down:  # those that are open end as well
                    break
                two.sendall(data)
                sent += len(data)
                if limit is not None and sent > limit:
                    self.cuts += 1
                    break
        except OSError:
            pass
        finally:
            for end in (one, two):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


def served(*, requests: bool = False):
    """A bucket of moto's, reached through the proxy by whoever asks the environment; and directly."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    proxy = CuttingProxy(port, requests=requests)
    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ["AWS_MAX_ATTEMPTS"] = "2"  # botocore's own; more of them hide that we try again
    import s3fs

    direct = s3fs.S3FileSystem(endpoint_url=f"http://127.0.0.1:{port}")
    direct.mkdir("bucket")
    os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{proxy.port}"
    return proxy, direct


def compare(left: str, right: str) -> dict:
    proxy, direct = served()
    for name, path in (("a", left), ("b", right)):
        direct.put(path, f"bucket/runs/{name}", recursive=True)
    import twintrace as tt

    found = tt.compare("s3://bucket/runs/a", "s3://bucket/runs/b", recompute=False)
    same = tt.compare("s3://bucket/runs/a", "s3://bucket/runs/a", recompute=False)
    places = [
        [item.step, item.rank, str(item.match.left[0].site) if item.match.left else "", str(item.verdict.outcome)]
        for item in found.judged
    ]
    return {"code": found.code, "same": same.code, "places": places, "cuts": proxy.cuts}


def record(folder: str) -> dict:
    """Two runs: the connection is down for a while in the first, and from its second step on in the second."""
    proxy, direct = served(requests=True)
    import torch

    import twintrace as tt
    from twintrace.api import upload
    from twintrace.store import uploading

    def run(name: str, at_step) -> list[str]:
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with tt.record(f"s3://bucket/runs/{name}", net, keep="tensor", local=f"{folder}/{name}") as recorder:
                for step in range(4):
                    at_step(step)
                    net(torch.ones(8, 64) + step).sum().backward()
                    recorder.step()
        return [str(item.message) for item in told]

    def for_a_while(step: int) -> None:
        proxy.down = step in (1, 2)

    def for_good(step: int) -> None:
        proxy.down = step > 0

    def files(name: str) -> int:
        direct.invalidate_cache()
        return len(direct.find(f"bucket/runs/{name}"))

    first = run("a", for_a_while)
    facts = {"first": [text for text in first if "could not be uploaded" in text], "files": files("a")}
    uploading.PATIENCE = 2.0
    second = run("b", for_good)
    facts |= {"told": second[-1], "before": files("b"), "cuts": proxy.cuts}
    proxy.down = False
    for thread in threading.enumerate():
        if thread.name == "twintrace-upload":  # s3fs has its own attempts, which nobody can cut short
            thread.join()
    facts["left"] = upload(f"{folder}/b") is not None
    facts |= {"after": files("b"), "cuts_later": proxy.cuts}
    facts["codes"] = [tt.compare(f"s3://bucket/runs/{name}", f"{folder}/{name}").code for name in "ab"]
    return facts


def main(what: str, *paths: str) -> None:
    facts = {"compare": compare, "record": record}[what](*paths)
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
