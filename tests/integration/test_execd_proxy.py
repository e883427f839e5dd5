"""The port proxy of cove-execd: plain requests, streams, uploads, WebSocket upgrades."""
import http.server
import json
import socket
import threading

import pytest
from execdkit import Agent, WebSocket, pty


class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def answer(self):
        n = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(n)
        out = json.dumps({"method": self.command, "path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()},
                          "body": body.decode("latin-1")}).encode()
        self.send_response(403 if "forbidden" in self.path else 200)
        self.send_header("Content-Length", str(len(out)))
        self.send_header("X-Upstream", "yes")
        self.end_headers()
        self.wfile.write(out)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = answer


@pytest.fixture(scope="module")
def upstream():
    s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=s.serve_forever, daemon=True).start()
    yield s.server_address[1]
    s.shutdown()
    s.server_close()


@pytest.fixture(scope="module")
def agent():
    with Agent(env={"EXECD_ACCESS_TOKEN": "tok-en"}, token="tok-en") as a:
        yield a


def test_request_goes_through(agent, upstream):
    r = agent.request("POST", f"/proxy/{upstream}/a%2Fb/c%20d?x=1&y=%2B", body=b"payload",
                      headers={"X-Mine": "1", "X-Forwarded-Host": "evil", "Host": "given.example"})
    got = r.json()
    assert r.headers["X-Upstream"] == "yes"
    assert (got["method"], got["path"], got["body"]) == ("POST", "/a%2Fb/c%20d?x=1&y=%2B", "payload")
    h = got["headers"]
    assert h["x-mine"] == "1" and h["host"] == "given.example" and h["x-forwarded-proto"] == "http"
    assert "127.0.0.1" in h["x-forwarded-for"] and "x-execd-access-token" not in h and "x-forwarded-host" not in h


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_methods_and_status(agent, upstream, method):
    assert agent.request(method, f"/proxy/{upstream}").json()["path"] == "/"
    assert agent.request(method, f"/proxy/{upstream}/forbidden").status == 403


def test_errors(agent, upstream):
    for path in ("/proxy/", "/proxy/x/", "/proxy/0/", "/proxy/70000/"):
        r = agent.get(path)
        assert r.status == 400 and r.body
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        r = agent.get(f"/proxy/{s.getsockname()[1]}/")
        assert r.status == 502 and r.body
    agent.token, saved = None, agent.token
    try:
        assert agent.get(f"/proxy/{upstream}/").status == 401
    finally:
        agent.token = saved


def test_own_port(agent):
    """The agent through its own proxy, as published endpoints have it: the token is needed and goes all the way."""
    assert agent.get(f"/proxy/{agent.port}/metrics").status == 200
    agent.token, saved = None, agent.token
    try:
        assert agent.get(f"/proxy/{agent.port}/metrics").status == 401
    finally:
        agent.token = saved


def test_websocket_through_two_agents(agent):
    """The second agent's terminal, reached through the first one's proxy."""
    with Agent() as inner:
        r = agent.post(f"/proxy/{inner.port}/pty", {"argv": ["sh", "-c", "read a; echo got-$a; exit 4"]})
        assert r.status == 201
        sid = r.json()["session_id"]
        with WebSocket(agent, f"/proxy/{inner.port}/pty/{sid}/ws?pty=0") as ws:
            assert ws.status == 101 and ws.frame()[1]["type"] == "connected"
            ws.stdin(b"word\n")
            out, _, done, code = ws.finish()
        assert out == b"got-word\n" and done["exit_code"] == 4 and code == 1000


def test_stream_arrives_as_it_is_made(agent):
    with Agent() as inner:
        with agent.stream(f"/proxy/{inner.port}/command", {"command": "echo now; sleep 30"}) as s:
            for e in s:
                if e["type"] == "stdout":
                    assert e["text"] == "now\n"
                    break


def test_many_requests_leak_no_descriptors(agent, upstream):
    import os
    for _ in range(100):
        agent.get(f"/proxy/{upstream}/x")
    assert len(os.listdir(f"/proxy/{agent.pid()}/fd".replace("/proxy/", "/proc/"))) < 50
