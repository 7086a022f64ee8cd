"""Who may ask, for what, and how."""

import gzip
import http.client
import json
import threading
from urllib.parse import urlsplit

import pytest

from twintrace.model.errors import TraceNotFoundError, UsageError
from twintrace.report.server import Server


def find(name):
    def missing(query):
        raise TraceNotFoundError("the trace is not there")

    known = {
        "": ("text/html", lambda query: b"<p>page</p>"),
        "data/echo": ("application/json", lambda query: gzip.compress(json.dumps(query).encode())),
        "data/missing": ("application/json", missing),
    }
    return known.get(name)


@pytest.fixture
def server():
    with Server(find) as made:
        thread = threading.Thread(target=made.serve)
        thread.start()
        yield made
        made.stop()
        thread.join()


def ask(server, path, *, method="GET", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    if host != "":
        connection.putheader("Host", host or f"127.0.0.1:{server.port}")
    connection.endheaders()
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def secret(server):
    return urlsplit(server.url).path


def test_the_page_is_at_its_address(server):
    answer, content = ask(server, secret(server))
    assert (answer.status, content) == (200, b"<p>page</p>")
    assert answer.getheader("Content-Type") == "text/html; charset=utf-8"
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    assert "frame-ancestors 'none'" in answer.getheader("Content-Security-Policy")
    assert answer.getheader("Access-Control-Allow-Origin") is None


def test_a_query_is_passed_on_and_the_answer_is_packed(server):
    answer, content = ask(server, f"{secret(server)}data/echo?a=1&b=%3Cx%3E")
    assert answer.getheader("Content-Encoding") == "gzip"
    assert json.loads(gzip.decompress(content)) == {"a": "1", "b": "<x>"}


def test_it_listens_on_this_machine_only(server):
    assert server._server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1", "localhost", "127.0.0.1:1"])
def test_another_host_is_refused(server, host):
    """A web page that points its own name at 127.0.0.1 says its own name here."""
    answer, content = ask(server, secret(server), host=host)
    assert answer.status == 403
    assert b"page" not in content


def test_localhost_is_this_machine(server):
    assert ask(server, secret(server), host=f"localhost:{server.port}")[0].status == 200


@pytest.mark.parametrize("path", ["/", "/wrong/", "//", "/wrong/data/echo", "/../", "/%2e%2e/"])
def test_without_the_secret_there_is_nothing(server, path):
    assert ask(server, path)[0].status == 404


@pytest.mark.parametrize("name", ["data/other", "../../etc/passwd", "data/", "data/echo/"])
def test_only_what_is_known_is_given(server, name):
    assert ask(server, secret(server) + name)[0].status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_only_get_is_answered(server, method):
    answer, content = ask(server, secret(server), method=method)
    assert answer.status == 405
    assert answer.getheader("Allow") == "GET"
    assert b"<p>" not in content


def test_an_error_is_told(server):
    answer, content = ask(server, f"{secret(server)}data/missing")
    assert (answer.status, content) == (404, b"the trace is not there")


def test_addresses_differ(server):
    with Server(find) as other:
        assert secret(other) != secret(server)
        assert other.port != server.port


def test_a_port_that_is_taken_is_said_to_be(server):
    with pytest.raises(UsageError, match=f"port {server.port}: cannot be used"):
        Server(find, port=server.port)
