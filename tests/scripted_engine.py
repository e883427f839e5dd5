"""A small HTTP server on a Unix socket in front of a real engine (or alone): records every request and makes go wrong what
dockerd cannot be made to do.

    with ScriptedEngine(docker) as e:                       # everything else goes to the real engine
        e.on("POST", "/containers/create", status=500, message="no space left on device", times=1)
        e.on("GET", "/images/.*/json", edit=lambda j: {**j, "Architecture": "arm64"})
        with dockerkit.DockerDaemon(e) as d: ...
        assert e.seen("POST", "/images/create")[0].query["platform"] == "linux/arm64"

Rules are tried in order, the last added first; the first that matches and is not used up answers.
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import tempfile
import threading
import time
import urllib.parse

import covekit

REASONS = {200: "OK", 201: "Created", 204: "No Content", 304: "Not Modified", 400: "Bad Request", 404: "Not Found", 409: "Conflict",
           500: "Internal Server Error", 503: "Service Unavailable"}


class Request:
    def __init__(self, method, target, headers, body):
        self.method, self.target, self.headers, self.body = method, target, headers, body
        path, _, query = target.partition("?")
        self.path = urllib.parse.unquote(re.sub(r"^/v1\.\d+(?=/)", "", path))
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.method} {self.target}>"


class Rule:
    def __init__(self, method, path, times=None, skip=0, status=None, message=None, body=None, reply=None, edit=None, delay=0,
                 drop=False, lose=False, truncate=False, raw=None, gate=None, match=None, target=None):
        self.method, self.path = method, re.compile(path)
        self.times, self.skip = times, skip  # answered so often (None: always), after so many passed by
        self.status, self.message, self.body, self.reply, self.edit = status, message, body, reply, edit
        self.delay = delay        # seconds before anything happens
        self.drop = drop          # the connection is closed without an answer; the engine never saw it
        self.lose = lose          # the engine does it, the answer is lost
        self.truncate = truncate  # half of the engine's answer, then the connection is closed
        self.raw = raw            # bytes sent instead of an HTTP answer
        self.gate = gate          # a threading.Event that is waited for first
        self.match = match        # further condition on the request
        self.target = target      # changes the target before the engine gets it
        self.used = 0

    def takes(self, r):
        if r.method != self.method or not self.path.fullmatch(r.path) or (self.match and not self.match(r)):
            return False
        if self.times is not None and self.used >= self.skip + self.times:
            return False
        self.used += 1
        return self.used > self.skip


class ScriptedEngine:
    def __init__(self, upstream=None):
        covekit.STATE_BASE.mkdir(parents=True, exist_ok=True)
        self.upstream = str(upstream.socket) if upstream else None
        self.engine = getattr(upstream, "engine", None)
        self.real = upstream
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="engine-", dir=covekit.STATE_BASE))
        self.socket = self.dir / "docker.sock"
        self.host = f"unix://{self.socket}"
        self.requests, self.rules, self.lock = [], [], threading.Lock()
        self.open = set()
        self.api_version = "1.41"  # what is told; lower: an engine of the past

    def image(self, kind):
        return self.real.image(kind)

    def census(self):
        return self.real.census()

    def on(self, method, path, **kw):
        r = Rule(method, path, **kw)
        with self.lock:
            self.rules.insert(0, r)
        return r

    def clear(self):
        with self.lock:
            self.rules, self.requests = [], []

    def seen(self, method, path):
        p = re.compile(path)
        with self.lock:
            return [r for r in self.requests if r.method == method and p.fullmatch(r.path)]

    def start(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.socket.unlink(missing_ok=True)
        self.listener.bind(str(self.socket))
        self.listener.listen(128)
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()
        return self

    def stop(self):
        """Gone as a stopped engine is: no listener, open connections are cut."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.socket.unlink(missing_ok=True)
        with self.lock:
            conns = list(self.open)
        for c in conns:
            try:
                c.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        self.stop()
        for f in self.dir.iterdir():
            f.unlink()
        self.dir.rmdir()

    # ---- one connection ----

    def accept(self, listener):
        while True:
            try:
                c, _ = listener.accept()
            except OSError:
                return
            with self.lock:
                self.open.add(c)
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        try:
            f = c.makefile("rb")
            while (r := read_request(f)) and self.answer(c, r):
                pass
        except (OSError, ValueError, http.client.HTTPException):
            pass
        finally:
            with self.lock:
                self.open.discard(c)
            c.close()

    def answer(self, c, r):
        with self.lock:
            self.requests.append(r)
            rule = next((x for x in self.rules if x.takes(r)), None)
        if self.api_version != "1.41" and r.path in ("/_ping", "/version"):
            return send(c, 200, b"OK" if r.path == "/_ping" else json.dumps({"ApiVersion": self.api_version, "MinAPIVersion": "1.12"}).encode(), self.api_version)
        if not rule:
            return self.relay(c, r)
        if rule.gate:
            rule.gate.wait(60)
        time.sleep(rule.delay)
        if rule.drop:
            return False
        if rule.raw is not None:
            c.sendall(rule.raw)
            return False
        if rule.lose or rule.truncate or rule.edit:
            status, body = self.ask(r)
            if rule.lose:
                return False
            if rule.truncate:
                c.sendall(head(status, len(body)) + body[:len(body) // 2])
                return False
            if status < 300:
                body = json.dumps(rule.edit(json.loads(body))).encode()
            return send(c, status, body)
        if rule.reply:
            status, body = rule.reply(r)
            return send(c, status, body if isinstance(body, bytes) else json.dumps(body).encode())
        if rule.target:
            r = Request(r.method, rule.target(r.target), r.headers, r.body)
        if rule.status is None:
            return self.relay(c, r)  # only the delay or the gate was wanted
        body = {"message": rule.message} if rule.message is not None else rule.body
        return send(c, rule.status, b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode())

    def ask(self, r):
        up = covekit.UnixHTTPConnection(self.upstream, 120)
        try:
            h = {k: v for k, v in r.headers.items() if k.lower() not in ("host", "content-length", "transfer-encoding", "connection")}
            up.request(r.method, r.target, r.body or None, h)
            a = up.getresponse()
            return a.status, a.read()
        finally:
            up.close()

    def relay(self, c, r):
        """As it comes, so that streams (events, pulls, logs) stay streams; one request per connection."""
        if not self.upstream:
            return send(c, 404, json.dumps({"message": f"scripted engine: no rule for {r.method} {r.path}"}).encode())
        up = socket.socket(socket.AF_UNIX)
        with self.lock:
            self.open.add(up)
        try:
            up.connect(self.upstream)
            h = {k: v for k, v in r.headers.items() if k.lower() not in ("content-length", "transfer-encoding", "connection")}
            lines = [f"{r.method} {r.target} HTTP/1.1", *[f"{k}: {v}" for k, v in h.items()], f"Content-Length: {len(r.body)}", "Connection: close"]
            # an answer may come before everything is read: a 404, or the padding at the end of an archive
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                up.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + r.body)
            threading.Thread(target=end_with, args=(c, up), daemon=True).start()
            while data := up.recv(65536):
                c.sendall(data)
        except OSError:
            pass
        finally:
            with self.lock:
                self.open.discard(up)
            up.close()
        return False


def end_with(client, upstream):
    """A client that goes away ends the engine's stream too."""
    try:
        while not client.recv(1, socket.MSG_PEEK):
            break
        else:
            return
        upstream.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def head(status, length, api="1.41"):
    return f"HTTP/1.1 {status} {REASONS.get(status, 'X')}\r\nContent-Type: application/json\r\nApi-Version: {api}\r\nContent-Length: {length}\r\n\r\n".encode()


def send(c, status, body, api="1.41"):
    if status in (204, 304):
        body = b""
    c.sendall(head(status, len(body), api) + body)
    return True


def read_request(f):
    line = f.readline(65536)
    if not line.strip():
        return None
    method, target, _ = line.decode().split(" ", 2)
    headers = {}
    while (h := f.readline(65536).decode().strip()):
        k, _, v = h.partition(":")
        headers[k.strip()] = v.strip()
    low = {k.lower(): v for k, v in headers.items()}
    body = b""
    if "chunked" in low.get("transfer-encoding", ""):
        while (n := int(f.readline().split(b";")[0], 16)):
            body += f.read(n)
            f.readline()
        while f.readline().strip():
            pass
    elif "content-length" in low:
        body = f.read(int(low["content-length"]))
    return Request(method, target, headers, body)
