"""Run by test_remote_s3.py where s3fs and moto are: a bucket of moto's server, behind a proxy that cuts connections.

python s3_session.py A B        prints, as JSON, what comparing the traces A and B in the bucket gives, and what it took
"""

import contextlib
import json
import os
import socket
import sys
import threading

CUT_AFTER = 3000
"""Bytes of an answer after which every third connection is cut."""


class CuttingProxy:
    """Hands connections on to a server; every third is cut in the middle of the answer."""

    def __init__(self, port: int) -> None:
        self._target, self._server = port, socket.create_server(("127.0.0.1", 0))
        self.port, self.connections, self.cuts = self._server.getsockname()[1], 0, 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._server.accept()
            self.connections += 1
            limit = CUT_AFTER if self.connections % 3 == 2 else None
            server = socket.create_connection(("127.0.0.1", self._target))
            threading.Thread(target=self._hand_on, args=(client, server, None), daemon=True).start()
            threading.Thread(target=self._hand_on, args=(server, client, limit), daemon=True).start()

    def _hand_on(self, one: socket.socket, two: socket.socket, limit: int | None) -> None:
        sent = 0
        try:
            while data := one.recv(1024):
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


def main(left: str, right: str) -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    proxy = CuttingProxy(port)
    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    import s3fs

    direct = s3fs.S3FileSystem(endpoint_url=f"http://127.0.0.1:{port}")
    direct.mkdir("bucket")
    for name, path in (("a", left), ("b", right)):
        direct.put(path, f"bucket/runs/{name}", recursive=True)
    os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{proxy.port}"
    import twintrace as tt

    found = tt.compare("s3://bucket/runs/a", "s3://bucket/runs/b", recompute=False)
    same = tt.compare("s3://bucket/runs/a", "s3://bucket/runs/a", recompute=False)
    places = [
        [item.step, item.rank, str(item.match.left[0].site) if item.match.left else "", str(item.verdict.outcome)]
        for item in found.judged
    ]
    facts = {"code": found.code, "same": same.code, "places": places, "cuts": proxy.cuts}
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
