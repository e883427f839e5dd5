"""A real cove-execd on a free port, small HTTP and WebSocket clients, event streams. Standard library only."""
import base64
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import covekit  # noqa: E402

SLOW = covekit.SLOW
SANITIZED = "asan" in os.environ.get("COVE_BUILD", "")


def binary():
    for p in (os.environ.get("COVE_EXECD"), covekit.LIBEXEC / "cove-execd", covekit.BUILD / "src/execd/cove-execd"):
        if p and os.path.exists(p):
            return str(p)
    raise RuntimeError("cove-execd has not been built")


def wait_for(what, cond, timeout=10):
    end = time.monotonic() + timeout * SLOW
    while time.monotonic() < end:
        value = cond()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"timed out waiting for {what}")


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:400]!r}>"


class Agent:
    """argv: what follows the program's name; wrap: command in front of it (unshare, chroot ...)."""

    def __init__(self, argv=(), env=None, wrap=(), port=None, program=None, pass_fds=(), token=None, flags=True, **kw):
        self.port = port or covekit.free_port()
        self.token = token
        self.env = {"PATH": os.environ["PATH"], "HOME": "/root", **(env or {})}
        args = ["--port", str(self.port)] if flags else []
        self.cmd = [*wrap, program or binary(), *args, *argv]
        self.pass_fds, self.kw = pass_fds, kw

    def __enter__(self):
        self.kw.setdefault("stdin", subprocess.DEVNULL)
        self.log = tempfile.TemporaryFile()
        self.proc = subprocess.Popen(self.cmd, env=self.env, pass_fds=self.pass_fds, stderr=self.log,
                                     start_new_session=True, **self.kw)
        try:
            wait_for("the agent", lambda: self.proc.poll() is not None or self.answers())
            assert self.proc.poll() is None, self.stderr()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc):
        if self.proc.poll() is None and SANITIZED and exc and exc[0] is None:  # its leak check runs at a regular end
            with contextlib.suppress(OSError, IndexError, subprocess.TimeoutExpired):
                os.kill(self.pid(), signal.SIGTERM)
                self.proc.wait(15)
        if self.proc.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.proc.pid, signal.SIGKILL)
        self.proc.wait()
        log = self.stderr()
        self.log.close()
        if self.proc.stdout:
            self.proc.stdout.close()
        assert b"Sanitizer" not in log and b"runtime error" not in log, log.decode()

    def stderr(self):
        self.log.seek(0)
        return self.log.read()

    def answers(self):
        try:
            return self.request("GET", "/ping", timeout=1).status == 200
        except OSError:
            return False

    def pid(self):
        """The agent itself, below whatever wraps it."""
        pid = self.proc.pid
        while True:
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith(("cove-execd", "execd", "bootstrap")):
                return pid
            pid = int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def connect(self, timeout=30):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout * SLOW)

    def headers(self, extra):
        return {**({"X-EXECD-ACCESS-TOKEN": self.token} if self.token else {}), **(extra or {})}

    def request(self, method, path, body=None, headers=None, timeout=30):
        c = self.connect(timeout)
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            c.request(method, path, body=body, headers=self.headers(headers))
            r = c.getresponse()
            return Reply(r.status, r.headers, r.read())
        finally:
            c.close()

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body, **kw):
        return self.request("POST", path, body=body, **kw)

    def stream(self, path, body):
        return Stream(self, path, body)

    def run(self, command, **members):
        """All events of a foreground run; `command` a string or a list."""
        body = {"argv" if isinstance(command, list) else "command": command, **members}
        with self.stream("/command", body) as s:
            return Run(list(s))


class Stream:
    def __init__(self, agent, path, body):
        self.c = agent.connect(60)
        self.c.request("POST", path, body=json.dumps(body), headers=agent.headers(None))
        self.r = self.c.getresponse()
        assert self.r.status == 200, (self.r.status, self.r.read())
        assert self.r.headers["Content-Type"].startswith("text/event-stream")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.c.close()

    def __iter__(self):
        buf = b""
        while True:
            chunk = self.r.read1(65536)
            buf += chunk
            *frames, buf = buf.split(b"\n\n")
            for f in frames:
                assert b"\n" not in f and f.startswith(b"{"), f
                e = json.loads(f)
                assert e["timestamp"] > 0
                yield e
            if not chunk:
                assert buf == b"", buf
                return


class Run:
    def __init__(self, events):
        self.events = events
        self.types = [e["type"] for e in events]
        self.stdout = [e["text"] for e in events if e["type"] == "stdout"]
        self.stderr = [e["text"] for e in events if e["type"] == "stderr"]
        self.out, self.err = "".join(self.stdout), "".join(self.stderr)
        self.id = next((e["text"] for e in events if e["type"] == "init"), None)
        self.error = next((e["error"] for e in events if e["type"] == "error"), None)
        self.complete = next((e for e in events if e["type"] == "execution_complete"), None)
        terminal = [t for t in self.types if t in ("error", "execution_complete")]
        assert len(terminal) == 1 and self.types[-1] == terminal[0], self.types
        assert self.types[0] == "init", self.types

    @property
    def code(self):
        return 0 if self.complete else int(self.error["evalue"])


class WebSocket:
    """Client side of RFC 6455, enough for tests: unfragmented frames, masked."""

    def __init__(self, agent, path, headers=None):
        self.s = socket.create_connection(("127.0.0.1", agent.port), timeout=20 * SLOW)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: websocket",
                 "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}"]
        lines += [f"{k}: {v}" for k, v in agent.headers(headers).items()]
        self.s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self.buf = b""
        while b"\r\n\r\n" not in self.buf:
            self._more()
        head, self.buf = self.buf.split(b"\r\n\r\n", 1)
        self.status = int(head.split()[1])
        self.head = head
        if self.status == 101:
            want = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
            assert want in head
        self.code = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.s.close()

    def _more(self):
        b = self.s.recv(65536)
        if not b:
            raise EOFError(self.buf)
        self.buf += b

    def _take(self, n):
        while len(self.buf) < n:
            self._more()
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def send(self, opcode, data):
        mask = os.urandom(4)
        n = len(data)
        head = bytes([0x80 | opcode])
        head += bytes([0x80 | n]) if n < 126 else (
            bytes([0x80 | 126]) + struct.pack(">H", n) if n < 65536 else bytes([0x80 | 127]) + struct.pack(">Q", n))
        key = int.from_bytes(mask * (n // 4 + 1), "big") if n else 0
        body = (int.from_bytes(data + b"\0" * (-n % 4 + (4 if n % 4 == 0 else 0)), "big") ^ key).to_bytes(
            4 * (n // 4 + 1), "big")[:n] if n else b""
        self.s.sendall(head + mask + body)

    def text(self, obj):
        self.send(1, json.dumps(obj).encode())

    def stdin(self, data):
        self.send(2, b"\0" + data)

    def frame(self):
        """(kind, payload): 'text' with the object, 'out'/'err'/'replay' with bytes, 'close' with (code, reason)."""
        while True:
            b0, b1 = self._take(2)
            n = b1 & 0x7f
            assert not b1 & 0x80, "a server's frame must not be masked"
            if n == 126:
                n, = struct.unpack(">H", self._take(2))
            elif n == 127:
                n, = struct.unpack(">Q", self._take(8))
            data = self._take(n)
            op = b0 & 15
            if op == 9:
                self.send(10, data)
            elif op == 1:
                return "text", json.loads(data)
            elif op == 2:
                return {1: "out", 2: "err", 3: "replay"}[data[0]], data[1:]
            elif op == 8:
                self.code = struct.unpack(">H", data[:2])[0] if n >= 2 else 1005
                with contextlib.suppress(OSError):
                    self.send(8, data[:2])
                return "close", (self.code, data[2:].decode())

    def frames(self):
        while True:
            f = self.frame()
            yield f
            if f[0] == "close":
                return

    def until(self, text, kind="out"):
        """Reads until the output of this kind contains `text` (bytes); returns it."""
        got = b""
        while text not in got:
            k, v = self.frame()
            assert k != "close", (got, v)
            if k == kind:
                got += v
        return got

    def finish(self):
        """(stdout, stderr, exit frame, close code)"""
        out, err, done = b"", b"", None
        for k, v in self.frames():
            if k == "out":
                out += v
            elif k == "err":
                err += v
            elif k == "text" and v["type"] in ("exit", "error"):
                done = v
        return out, err, done, self.code


@contextlib.contextmanager
def pty(agent, query="", **members):
    """A session and its first attachment, after `connected`."""
    r = agent.post("/pty", members)
    assert r.status == 201, r
    sid = r.json()["session_id"]
    with WebSocket(agent, f"/pty/{sid}/ws{query}") as ws:
        assert ws.status == 101, ws.head
        ws.sid = sid
        kind, v = ws.frame()
        ws.first = v
        yield ws
