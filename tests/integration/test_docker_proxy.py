"""The server's proxy to containers (lifecycle.md §7.3 to §7.5): what arrives and what comes back, byte for byte.

COVE_TEST_SERVER=peer runs the file against the official server.
"""
import base64
import hashlib
import json
import os
import socket
import struct
import time

import pytest

import covekit
import dockerkit

# Runs inside: says what it got, and behaves as the path asks.
APP = r'''
import http.server, json, socketserver, time, hashlib, base64
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def body(self):
        if "chunked" in (self.headers.get("Transfer-Encoding") or ""):
            out = b""
            while (n := int(self.rfile.readline(), 16)):
                out += self.rfile.read(n); self.rfile.readline()
            self.rfile.readline(); return out
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))
    def send(self, status, data=b"", *headers):
        self.send_response(status)
        for k, v in headers: self.send_header(k, v)
        self.send_header("Content-Length", str(len(data))); self.end_headers(); self.wfile.write(data)
    def any(self):
        p = self.path.split("?")[0]
        if self.headers.get("Upgrade"): return self.ws()
        body = self.body()
        if p == "/events":
            self.send_response(200); self.send_header("Content-Type", "text/event-stream"); self.end_headers()
            for n in range(3):
                self.wfile.write(b"data: %d\n\n" % n); self.wfile.flush(); time.sleep(0.3)
            self.close_connection = True; return
        if p == "/quiet":
            self.send_response(200); self.end_headers(); self.wfile.write(b"start\n"); self.wfile.flush(); time.sleep(4)
            self.wfile.write(b"end\n"); self.close_connection = True; return
        if p == "/cut":
            self.close_connection = True; return
        if p == "/cookies": return self.send(200, b"", ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("Content-Encoding", "x-odd"), ("Connection", "X-Private"), ("X-Private", "1"))
        if p == "/login": return self.send(302, b"", ("Location", "/home?x=1"))
        if p == "/away": return self.send(302, b"", ("Location", "http://example.com/x"))
        if p.startswith("/status/"): return self.send(int(p[8:]), b"" if p.endswith("204") else b"own words")
        self.send(200, json.dumps({"method": self.command, "path": self.path, "headers": [[k.lower(), v] for k, v in self.headers.items()],
                                   "sha": hashlib.sha256(body).hexdigest(), "n": len(body)}).encode(), ("Content-Type", "application/json"))
    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = any
    def ws(self):
        key = self.headers["Sec-WebSocket-Key"]
        acc = base64.b64encode(hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()
        self.wfile.write(f"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {acc}\r\n".encode())
        if self.headers.get("Sec-WebSocket-Protocol"):
            self.wfile.write(b"Sec-WebSocket-Protocol: " + self.headers["Sec-WebSocket-Protocol"].split(",")[-1].strip().encode() + b"\r\n")
        self.wfile.write(b"\r\n")
        while True:
            h = self.rfile.read(2); n = h[1] & 127
            if n == 126: n = int.from_bytes(self.rfile.read(2), "big")
            elif n == 127: n = int.from_bytes(self.rfile.read(8), "big")
            m = self.rfile.read(4); d = bytes(b ^ m[i % 4] for i, b in enumerate(self.rfile.read(n)))
            if h[0] & 15 == 8:
                self.wfile.write(bytes([0x88, len(d)]) + d); self.close_connection = True; return
            if d == b"bye": d = b"\x0f\xa1reason"; self.wfile.write(bytes([0x88, len(d)]) + d); continue
            if h[0] & 15 in (9, 10): continue
            e = bytes([len(d)]) if len(d) < 126 else b"\x7e" + len(d).to_bytes(2, "big") if len(d) < 65536 else b"\x7f" + len(d).to_bytes(8, "big")
            self.wfile.write(h[:1] + e + d)
class S(socketserver.ThreadingTCPServer): allow_reuse_address = True; daemon_threads = True
S(("0.0.0.0", 9000), H).serve_forever()
'''


@pytest.fixture(scope="module")
def server(docker):
    docker.image("debian")
    with dockerkit.serve(docker) as s:
        yield s


@pytest.fixture(scope="module")
def box(server):
    i = server.create("cove-test/debian", entrypoint=["python3", "-c", APP], env={"PYTHONUNBUFFERED": "1"})["id"]
    deadline = time.monotonic() + 20
    while server.get(f"/v1/sandboxes/{i}/proxy/9000/", key=None).status != 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    yield i
    server.delete(i)


@pytest.fixture
def ask(server, box):
    def ask(method, path, body=None, headers=None, prefix="/v1"):
        return server.request(method, f"{prefix}/sandboxes/{box}/proxy/9000{path}", body, headers, key=None)
    return ask


def got(r):
    j = r.json()
    j["headers"] = dict(j["headers"])
    return j


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH"])
def test_path_query_and_body_arrive_as_sent(ask, method):
    body = os.urandom(200_000) if method != "GET" else None
    query = "?a=1&a=2&flag&b=%20x%2B&c="
    j = got(ask(method, "/x/y%20z" + query, body))
    assert j["method"] == method and j["path"] == "/x/y%20z" + query
    assert j["sha"] == hashlib.sha256(body or b"").hexdigest()
    if not dockerkit.IS_PEER:  # it decodes and encodes again
        assert got(ask(method, "/a%2Fb/%41", body))["path"] == "/a%2Fb/%41"


def test_both_prefixes_and_the_bare_port(ask):
    for prefix in ("", "/v1"):
        assert got(ask("GET", "", prefix=prefix))["path"] == "/"
        assert got(ask("GET", "/", prefix=prefix))["path"] == "/"


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
def test_other_methods(ask, method):
    assert ask(method, "/").status == 405


def test_headers_both_ways(server, ask):
    sent = {"Authorization": "Bearer x", "Cookie": "c=1", "OPEN-SANDBOX-API-KEY": "k", "X-Mine": "1", "X-Forwarded-For": "1.2.3.4", "X-Real-IP": "1.2.3.4", "Forwarded": "for=1",
            "TE": "trailers", "Connection": "X-Hop", "X-Hop": "1", "OpenSandbox-Access-Renew": "skip", "OpenSandbox-Secure-Access": "t", "OPENSANDBOX-EGRESS-AUTH": "mine",
            "User-Agent": "test/1"}
    h = got(ask("GET", "/", headers=sent))["headers"]
    for gone in ("authorization", "cookie", "open-sandbox-api-key", "te", "x-hop", "x-real-ip", "forwarded", "opensandbox-access-renew", "opensandbox-secure-access"):
        assert gone not in h, gone
    assert h["x-mine"] == "1" and h["user-agent"] == "test/1" and h["opensandbox-egress-auth"] == "mine"
    assert h["x-forwarded-proto"] == "http" and h["x-forwarded-host"] == f"127.0.0.1:{server.port}"
    assert h["host"].endswith(":9000")
    if not dockerkit.IS_PEER:  # its library believes callers on loopback
        assert h["x-forwarded-for"] == "127.0.0.1"
    r = ask("GET", "/cookies")
    assert r.headers.get_all("Set-Cookie") == ["a=1", "b=2"] and r.headers["Content-Encoding"] == "x-odd" and "X-Private" not in r.headers
    assert len(r.headers.get_all("Date")) == 1 and not [s for s in r.headers.get_all("Server") or [] if "BaseHTTP" in s]


def test_redirects_are_passed_on_with_the_proxys_path(ask, box):
    r = ask("GET", "/login")
    assert r.status == 302 and r.headers["Location"] == f"/v1/sandboxes/{box}/proxy/9000/home?x=1"
    assert ask("GET", "/login", prefix="").headers["Location"] == f"/sandboxes/{box}/proxy/9000/home?x=1"
    assert ask("GET", "/away").headers["Location"] == "http://example.com/x"


@pytest.mark.parametrize("status", [201, 204, 401, 403, 404, 500, 503])
def test_statuses_are_the_services(ask, status):
    r = ask("GET", f"/status/{status}")
    assert r.status == status and (status == 204 or r.body == b"own words")


def test_faults(server, ask, box):
    r = server.get(f"/v1/sandboxes/{box}/proxy/9001/", key=None)
    assert r.status == 502 and r.json()["code"] == "BACKEND_CONNECTION_FAILED" and ":9001" in r.json()["message"]
    r = ask("GET", "/cut")
    assert r.status == 502 and r.json()["code"] == "BACKEND_RESPONSE_FAILED"
    assert server.get(f"/v1/sandboxes/{box}/proxy/0/", key=None).status == 400
    assert server.get(f"/v1/sandboxes/{box}/proxy/x/", key=None).status == 401


def test_events_come_as_they_happen(server, box):
    c = server.connection()
    c.request("GET", f"/v1/sandboxes/{box}/proxy/9000/events")
    r, times, text = c.getresponse(), [], b""
    while data := r.read1(1000):
        times.append(time.monotonic())
        text += data
    assert text == b"data: 0\n\ndata: 1\n\ndata: 2\n\n" and times[-1] - times[0] > 0.4


def test_a_quiet_stream_stays_open(ask):
    t = time.monotonic()
    assert ask("GET", "/quiet").body == b"start\nend\n" and time.monotonic() - t > 3.5


def test_a_large_body_does_not_stay_in_the_server(server, ask):
    big = os.urandom(1 << 20) * 48
    assert got(ask("POST", "/", big))["sha"] == hashlib.sha256(big).hexdigest()
    if not dockerkit.IS_PEER:
        peak = int(next(l for l in open(f"/proc/{server.proc.pid}/status") if l.startswith("VmHWM")).split()[1])
        assert peak < 40_000 or "asan" in covekit.BUILD.name, f"{peak} kB"


# ---- WebSockets ----

def websocket(server, path, headers=()):
    s = socket.create_connection(("127.0.0.1", server.port), 20)
    key = base64.b64encode(os.urandom(16)).decode()
    s.sendall("\r\n".join([f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", "Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Key: {key}",
                           "Sec-WebSocket-Version: 13", *headers, "", ""]).encode())
    f = s.makefile("rb")
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = f.readline()
        assert line, head
        head += line
    return s, f, head.decode()


def send(s, op, data):
    mask = os.urandom(4)
    n = bytes([0x80 | len(data)]) if len(data) < 126 else bytes([0xfe]) + struct.pack(">H", len(data)) if len(data) < 65536 else bytes([0xff]) + struct.pack(">Q", len(data))
    s.sendall(bytes([0x80 | op]) + n + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))


def receive(f):
    """One message without pings; (opcode, data)."""
    while True:
        h = f.read(2)
        if len(h) < 2:
            return None
        n = h[1] & 127
        n = struct.unpack(">H", f.read(2))[0] if n == 126 else struct.unpack(">Q", f.read(8))[0] if n == 127 else n
        data = f.read(n)
        if h[0] & 15 not in (9, 10):
            return h[0] & 15, data


def test_websockets(server, box):
    s, f, head = websocket(server, f"/v1/sandboxes/{box}/proxy/9000/ws?x=1", ["Sec-WebSocket-Protocol: one, two", "Origin: http://here"])
    assert head.startswith("HTTP/1.1 101") and "sec-websocket-protocol: two" in head.lower()
    send(s, 1, "text ✓".encode())
    assert receive(f) == (1, "text ✓".encode())
    blob = os.urandom(100_000)
    send(s, 2, blob)
    op, data = receive(f)
    assert op == 2 and data == blob
    send(s, 1, b"bye")  # the service closes with a code of its own
    op, data = receive(f)
    assert op == 8 and data == b"\x0f\xa1reason"
    s.close()


def test_websocket_that_leads_nowhere(server, box):
    for path, code in ((f"/v1/sandboxes/{box}/proxy/9001/", 1011), ("/v1/sandboxes/no-such/proxy/9000/", 1011)):
        s, f, head = websocket(server, path)
        assert head.startswith("HTTP/1.1 101"), head
        op, data = receive(f)
        assert op == 8 and struct.unpack(">H", data[:2])[0] == code and len(data) <= 125, json.dumps(data.decode(errors="replace"))
        s.close()
