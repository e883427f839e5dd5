"""HTTP manners of the server that need real sockets: the limit of connections, headers of proxied answers, how WebSockets end."""
import base64
import os
import socket
import struct
import time

import pytest

from covekit import API_KEY, SLOW, Daemon

# Plays an application inside a sandbox: HTTP with a Date of its own, and WebSockets that end as their path says.
APP = r'''
import base64, hashlib, socketserver, struct
class H(socketserver.StreamRequestHandler):
    def handle(self):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = self.rfile.readline()
            if not line:
                return
            head += line
        path = head.split()[1].decode()
        if b"sec-websocket-key" not in head.lower():
            body = head
            self.wfile.write(b"HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nServer: app\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            return
        if path.endswith("refuse"):
            self.wfile.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
            return
        key = [l.split(b":", 1)[1].strip() for l in head.split(b"\r\n") if l.lower().startswith(b"sec-websocket-key")][0]
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        self.wfile.write(b"\x81\x02hi")
        if path.endswith("die"):
            return
        if path.endswith("illegal"):
            self.wfile.write(b"\x88\x04" + struct.pack(">H", 1006) + b"no")
        elif path.endswith("empty"):
            self.wfile.write(b"\x88\x00")
        elif path.endswith("torn"):
            self.wfile.write(b"\x82\x7dabc")
        else:
            self.wfile.write(b"\x88\x05" + struct.pack(">H", 4001) + b"bye")
        self.wfile.flush()
        if not path.endswith("torn"):
            self.rfile.read(6)
class S(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
S(("127.0.0.1", 3000), H).serve_forever()
'''


@pytest.fixture(scope="module")
def trusting():
    """A daemon that believes a proxy on 127.0.0.1."""
    d = Daemon()
    write = d.write_config

    def with_list():
        write()
        d.config.write_text(d.config.read_text().replace("[runtime]", 'trusted_proxies = ["127.0.0.0/8"]\n\n[runtime]'))
    d.write_config = with_list
    with d:
        yield d


def serve_app(d):
    s = d.create(entrypoint=["python3", "-c", APP])["id"]
    deadline = time.monotonic() + 20 * SLOW
    while d.get(f"/v1/sandboxes/{s}/proxy/3000/").status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return s


@pytest.fixture(scope="module")
def app(daemon):
    s = serve_app(daemon)
    yield s
    daemon.request("DELETE", "/v1/sandboxes/" + s)


def exchange(port, text, timeout=20):
    """Raw bytes of an answer, up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=timeout * SLOW) as s:
        s.sendall(text.encode())
        out = b""
        while chunk := s.recv(65536):
            out += chunk
        return out.decode()


def header_lines(answer):
    return [line.split(":", 1)[0].lower() for line in answer.split("\r\n\r\n", 1)[0].split("\r\n")[1:]]


def test_one_date_and_no_foreign_server(daemon, app):
    for path in (f"/v1/sandboxes/{app}/proxy/3000/x", "/health", "/nothing", f"/v1/sandboxes/{app}/proxy/1/x"):
        names = header_lines(exchange(daemon.port, f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"))
        assert names.count("date") == 1 and names.count("x-request-id") == 1 and "server" not in names, (path, names)
    # the application's own one was kept
    assert "2026" in daemon.get(f"/v1/sandboxes/{app}/proxy/3000/x").headers["Date"]


def test_one_connection_too_many():
    d = Daemon()
    write = d.write_config

    def limited():
        write()
        d.config.write_text(d.config.read_text().replace("[runtime]", "limit_concurrency = 2\n\n[runtime]"))
    d.write_config = limited
    with d:
        held = [socket.create_connection(("127.0.0.1", d.port)) for _ in range(2)]
        answer = exchange(d.port, "GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
        head, body = answer.split("\r\n\r\n", 1)
        assert head.startswith("HTTP/1.1 503 ") and "content-type: text/plain" in head.lower() and body.strip()
        for s in held:
            s.close()
        deadline = time.monotonic() + 10 * SLOW
        while True:  # the closed ones are noticed
            r = d.get("/health")
            if r.status == 200:
                break
            assert r.status == 503 and time.monotonic() < deadline
            time.sleep(0.05)


def test_forwarding_headers(daemon, app, trusting):
    told = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "front.example", "Forwarded": "for=1.2.3.4"}
    seen = daemon.get(f"/v1/sandboxes/{app}/proxy/3000/", headers=told).body.decode().lower()
    assert "203.0.113.9" not in seen and "front.example" not in seen and "https" not in seen and "1.2.3.4" not in seen
    assert "x-forwarded-for: 127.0.0.1\r\n" in seen and "x-forwarded-proto: http\r\n" in seen
    mine = serve_app(trusting)
    seen = trusting.get(f"/v1/sandboxes/{mine}/proxy/3000/", headers=told).body.decode().lower()
    assert "x-forwarded-for: 203.0.113.9, 127.0.0.1\r\n" in seen and "x-forwarded-proto: https\r\n" in seen
    assert "x-forwarded-host: front.example\r\n" in seen and "1.2.3.4" not in seen
    assert API_KEY.lower() not in seen


def websocket(port, path):
    """Everything the server sends on a WebSocket until the connection ends: (text frames, close code or None, reason)."""
    key = base64.b64encode(os.urandom(16)).decode()
    with socket.create_connection(("127.0.0.1", port), timeout=20 * SLOW) as s:
        s.sendall((f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                   f"Sec-WebSocket-Key: {key}\r\n\r\n").encode())
        buf, texts, answered = b"", [], False
        while True:
            chunk = s.recv(65536)
            buf += chunk
            if not answered and b"\r\n\r\n" in buf:
                head, buf = buf.split(b"\r\n\r\n", 1)
                assert b" 101 " in head.split(b"\r\n")[0], head
                answered = True
            while answered and len(buf) >= 2 and len(buf) >= 2 + (buf[1] & 0x7f):
                op, data, buf = buf[0] & 15, buf[2:2 + (buf[1] & 0x7f)], buf[2 + (buf[1] & 0x7f):]
                if op == 8:
                    s.sendall(b"\x88\x82\0\0\0\0" + data[:2])
                    return texts, struct.unpack(">H", data[:2])[0] if len(data) > 1 else 1005, data[2:].decode()
                texts.append(data)
            if not chunk:
                return texts, None, ""


@pytest.mark.parametrize("how, code, reason", [("4001", 4001, "bye"), ("illegal", 1011, "no"), ("empty", 1000, ""), ("die", 1011, ""),
                                               ("torn", None, "")])
def test_how_websockets_end(daemon, app, how, code, reason):
    texts, got, why = websocket(daemon.port, f"/v1/sandboxes/{app}/proxy/3000/{how}")
    assert texts[:1] == [b"hi"] and (got, why) == (code, reason)


def test_websockets_that_do_not_begin(daemon, app):
    texts, code, why = websocket(daemon.port, f"/v1/sandboxes/{app}/proxy/3000/refuse")
    assert (texts, code) == ([], 1008) and "403" in why
    assert websocket(daemon.port, f"/v1/sandboxes/{app}/proxy/1/x")[1] == 1011
    texts, code, why = websocket(daemon.port, "/sandboxes/none/proxy/3000/x")
    assert code == 1011 and "not found" in why
    r = daemon.get(f"/v1/sandboxes/{app}/proxy/3000/x", headers={"Upgrade": "websocket"})
    assert r.status == 400 and r.json()["code"] == "GENERAL::UNKNOWN_ERROR"


def test_a_streamed_body_that_is_too_large(daemon):
    def pieces():
        for _ in range(40):
            yield b" " * 65536
    c = daemon.connection()
    try:
        c.request("POST", "/v1/sandboxes", pieces(), {"OPEN-SANDBOX-API-KEY": API_KEY, "X-Request-ID": "mine"}, encode_chunked=True)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it had answered already
    r = c.getresponse()
    assert r.status == 413 and r.headers["X-Request-ID"] == "mine" and b"GENERAL::BODY_TOO_LARGE" in r.read()
    c.close()
