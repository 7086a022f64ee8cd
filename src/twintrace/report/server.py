"""The page, served to this machine's own browser: reports of any size, and tensors on request.

    with Server(pages, port=0) as server:
        server.url                      http://127.0.0.1:43121/Jq0mXf…/
        server.serve()                  until Ctrl-C, or `stop` from another thread

In: the bytes behind each name, made when asked for. Who may ask: only this machine (127.0.0.1), only by this address (the Host
header is checked, so that a web page that points its own name at 127.0.0.1 gets nothing), only with the secret in the path (so that
other users of this machine get nothing), and only with GET.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qsl, urlsplit

from ..model.errors import TwintraceError, UsageError

Give = Callable[[Mapping[str, str]], bytes]
"""Takes the query, gives the answer. A TwintraceError is told to the reader."""

HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",  # a page's own meta element cannot say this
}


class Server:
    """Serves one report on 127.0.0.1. `find(name)` gives the content of a name and its type, None if there is no such name."""

    def __init__(self, find: Callable[[str], tuple[str, Give] | None], *, port: int = 0) -> None:
        self._secret = secrets.token_urlsafe(18)
        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(find, self._secret))
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"port {port}: cannot be used ({error}). Give another, or none: then a free one is found."
            ) from error
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        """Address of the page; nobody else knows it."""
        return f"http://127.0.0.1:{self.port}/{self._secret}/"

    def serve(self) -> None:
        """Answer until `stop` is called, or Ctrl-C is pressed."""
        self._server.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        """End `serve`, from another thread."""
        self._server.shutdown()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.server_close()


def _handler(find: Callable[[str], tuple[str, Give] | None], secret: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60
        server_version = "twintrace"
        sys_version = ""

        def do_GET(self) -> None:
            _, port = self.request.getsockname()
            if self.headers.get("Host") not in (f"127.0.0.1:{port}", f"localhost:{port}"):
                return self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"This address is not served here.")
            parts = urlsplit(self.path)
            key, slash, name = parts.path.removeprefix("/").partition("/")
            if not slash or not secrets.compare_digest(key.encode(), secret.encode()):
                return self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"Use the address that twintrace view printed.")
            answer = find(name)
            if answer is None:
                return self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"There is nothing of this name.")
            kind, give = answer
            try:
                content = give(dict(parse_qsl(parts.query)))
            except TwintraceError as error:
                return self._answer(HTTPStatus.NOT_FOUND, "text/plain", str(error).encode("utf-8", "replace"))
            return self._answer(HTTPStatus.OK, kind, content)

        def _refuse(self) -> None:
            self.close_connection = True  # a body, if there is one, is not read
            self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", b"Only GET is answered.", Allow="GET")

        do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse

        def _answer(self, status: HTTPStatus, kind: str, content: bytes, **more: str) -> None:
            self.send_response(status)
            packed = {"Content-Encoding": "gzip"} if content[:2] == b"\x1f\x8b" else {}
            length = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(content))}
            for name, value in {**length, **packed, **HEADERS, **more}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the address has a secret in it, and the terminal is for the reader."""

    return Handler
