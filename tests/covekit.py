"""What the Python suites share: a private coved, small HTTP, root file systems, counting of what is left behind.

Standard library only. Programs come from COVE_BUILD/root (what `make` lays out there).
"""
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / os.environ.get("COVE_BUILD", "build")  # relative to the repository, wherever pytest runs
BIN = BUILD / "root/usr/local/bin"
LIBEXEC = BUILD / "root/usr/local/lib/cove"
# state must lie on a real file system: overlay upper layers do not work on overlayfs
STATE_BASE = pathlib.Path(os.environ.get("COVE_TEST_STATE", "/var/tmp/cove-test"))
API_KEY = "test-key-1f6c"
# emulated machines (tests/vm) are slower: time limits are multiplied
SLOW = float(os.environ.get("COVE_TEST_SLOW", "1"))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class UnixHTTPConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=30):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:500]!r}>"


class Daemon:
    """A coved of its own: Unix socket, TCP on a free loopback port with an API key, own state and store."""

    def __init__(self, config="", env=None, state=None, args=(), prefix=()):
        STATE_BASE.mkdir(parents=True, exist_ok=True)
        self.dir = pathlib.Path(state or tempfile.mkdtemp(prefix="d-", dir=STATE_BASE))
        self.dir.chmod(0o711)  # sandbox ids must be able to pass through
        self.owns_dir = state is None
        self.port = free_port()
        self.socket = self.dir / "api.sock"
        self.config = self.dir / "cove.toml"
        self.log = self.dir / "coved.log"
        self.extra, self.env, self.args, self.prefix = config, dict(env or {}), list(args), list(prefix)
        self.proc = None

    def write_config(self):
        self.config.write_text(f"""
[server]
host = "127.0.0.1"
port = {self.port}
api_key = "{API_KEY}"
socket = "{self.socket}"

[runtime]
type = "native"

[native]
state_dir = "{self.dir}/state"
store_dir = "{self.dir}/store"
run_dir = "{self.dir}/run"
{self.extra}
""")

    def start(self, timeout=30):
        self.write_config()
        note = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = self.dir / "notify.sock"
        path.unlink(missing_ok=True)
        note.bind(str(path))
        env = dict(os.environ, NOTIFY_SOCKET=str(path), COVE_LIBEXEC=str(LIBEXEC), **self.env)
        with open(self.log, "ab") as log:
            self.proc = subprocess.Popen([*self.prefix, str(BIN / "coved"), "--config", str(self.config), *self.args], stdin=subprocess.DEVNULL,
                                         stdout=log, stderr=log, env=env)
        try:
            note.settimeout(0.2)
            deadline = time.monotonic() + timeout * SLOW
            while True:
                try:
                    if b"READY=1" in note.recv(4096):
                        break
                except TimeoutError:
                    if self.proc.poll() is not None or time.monotonic() > deadline:
                        raise
        except TimeoutError:
            self.proc.kill()
            self.proc.wait()
            raise AssertionError("coved did not become ready:\n" + self.log.read_text()[-3000:]) from None
        finally:
            note.close()
        return self

    def stop(self, sig=signal.SIGTERM, timeout=30):
        if self.proc and self.proc.poll() is None:
            self.proc.send_signal(sig)
            self.proc.wait(timeout * SLOW)
        return self.proc.returncode if self.proc else None

    def kill(self):
        self.stop(signal.SIGKILL)

    def close(self):
        """Deletes every sandbox (of a killed daemon too: it is started once more), stops, removes the files."""
        if self.proc and self.proc.poll() is not None:
            self.env.pop("COVE_CRASH_AT", None)
            with contextlib.suppress(AssertionError, OSError):
                self.start()
        if self.proc and self.proc.poll() is None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                for s in self.get("/v1/sandboxes?pageSize=200").json()["items"]:
                    self.request("DELETE", "/v1/sandboxes/" + s["id"])
        self.stop()
        if self.owns_dir:
            shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        self.close()

    def connection(self, unix=False, timeout=60):
        if unix:
            return UnixHTTPConnection(self.socket, timeout * SLOW)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout * SLOW)

    def request(self, method, path, body=None, headers=None, unix=False, key=API_KEY, timeout=60):
        c = self.connection(unix, timeout)
        h = dict(headers or {})
        if key:
            h.setdefault("OPEN-SANDBOX-API-KEY", key)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            h.setdefault("Content-Type", "application/json")
        try:
            c.request(method, path, body, h)
            r = c.getresponse()
            return Response(r.status, r.headers, r.read())
        finally:
            c.close()

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def create(self, image="host", **fields):
        body = {"image": {"uri": image}, "entrypoint": ["tail", "-f", "/dev/null"],
                "resourceLimits": {"cpu": "1", "memory": "512Mi"}, "timeout": 600, **fields}
        r = self.request("POST", "/v1/sandboxes", body)
        assert r.status == 202, r
        return r.json()

    def agent(self, sandbox_id, method, path, body=None, headers=None, timeout=60):
        """A request to the sandbox's agent through the server proxy, with the token of its endpoint."""
        ep = self.get(f"/v1/sandboxes/{sandbox_id}/endpoints/44772?use_server_proxy=true").json()
        prefix = "/" + ep["endpoint"].split("/", 1)[1]
        return self.request(method, prefix + path, body, {**ep.get("headers", {}), **(headers or {})}, timeout=timeout)

    def run(self, sandbox_id, command, **fields):
        """Runs a command; returns (stdout, stderr, exit code or None)."""
        r = self.agent(sandbox_id, "POST", "/command", {"command": command, **fields}, timeout=120)
        assert r.status == 200, r
        return parse_events(r.body)


def parse_events(body):
    out, err, code = "", "", None
    for frame in body.decode().split("\n\n"):
        if not frame.strip():
            continue
        e = json.loads(frame)
        if e["type"] == "stdout":
            out += e["text"]
        elif e["type"] == "stderr":
            err += e["text"]
        elif e["type"] == "execution_complete":
            code = 0
        elif e["type"] == "error":
            v = e["error"]["evalue"]
            code = int(v) if v.lstrip("-").isdigit() else v
    return out, err, code


def busybox_rootfs(path):
    """A tar of a small root: static busybox with its applets, /etc/passwd, /tmp."""
    exe = shutil.which("busybox") or "/bin/busybox"
    applets = subprocess.run([exe, "--list"], capture_output=True, text=True, check=True).stdout.split()
    with tarfile.open(path, "w") as t:
        def add(name, kind=tarfile.DIRTYPE, mode=0o755, link="", data=b""):
            i = tarfile.TarInfo(name)
            i.type, i.mode, i.linkname, i.size, i.mtime = kind, mode, link, len(data), 1700000000
            import io
            t.addfile(i, io.BytesIO(data) if data else None)
        for d in ("bin", "etc", "root", "usr", "usr/bin", "var"):
            add(d)
        add("tmp", mode=0o1777)
        add("bin/busybox", tarfile.REGTYPE, 0o755, data=pathlib.Path(exe).read_bytes())
        for a in applets:
            if a != "busybox":
                add("bin/" + a, tarfile.SYMTYPE, link="busybox")
        add("etc/passwd", tarfile.REGTYPE, 0o644, data=b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:u:/tmp:/bin/sh\n")
        add("etc/group", tarfile.REGTYPE, 0o644, data=b"root:x:0:\nuser:x:1000:\n")
    return path


def import_image(daemon, tar, name):
    """Imports a tar as local/NAME with the command line tool."""
    subprocess.run([str(BIN / "cove"), "image", "import", str(tar), name], check=True, capture_output=True, text=True,
                   env=dict(os.environ, COVE_HOST=f"unix:{daemon.socket}", COVE_LIBEXEC=str(LIBEXEC)))
    return "local/" + name.removeprefix("local/")


def mount_count():
    """Mounts of this namespace, without those of Docker engines, whose containers are not ours to count."""
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    return sum("dockerd" not in l and "/docker/" not in l and "overlay2" not in l for l in lines)


class Leftovers:
    """What a machine holds now; `check()` waits a bounded time until everything of before is all there is."""

    def __init__(self, daemon=None):
        self.daemon = daemon
        self.before = self.snapshot()

    def snapshot(self):
        s = {}
        pids = [p for p in os.listdir("/proc") if p.isdigit()]
        procs, ns = [], set()
        for p in pids:
            with contextlib.suppress(OSError):
                exe = os.readlink(f"/proc/{p}/exe")
                if any(w in exe for w in ("cove-execd", "crun", "busybox")) or "memfd:" in exe:
                    procs.append(exe)
            for kind in ("net", "mnt", "pid", "user"):
                with contextlib.suppress(OSError):
                    ns.add(os.readlink(f"/proc/{p}/ns/{kind}"))
        s["processes"] = len(procs)
        s["namespaces"] = len(ns)
        s["mounts"] = mount_count()
        s["cgroups"] = sum(count_dirs(c) for base in cgroup_roots() for c in base.glob("cove*"))
        if self.daemon and self.daemon.proc:
            s["daemon fds"] = len(os.listdir(f"/proc/{self.daemon.proc.pid}/fd"))
            s["daemon mounts"] = len(pathlib.Path(f"/proc/{self.daemon.proc.pid}/mountinfo").read_text().splitlines())
            box = self.daemon.dir / "state" / "sandboxes"
            s["sandbox dirs"] = sum(len(d) + len(f) for _, d, f in os.walk(box))  # tolerates what vanishes meanwhile
            run = self.daemon.dir / "run"
            s["run files"] = sum(len(d) + len(f) for _, d, f in os.walk(run))
        return s

    def check(self, slack=None, timeout=15):
        slack = slack or {}
        deadline = time.monotonic() + timeout * SLOW
        while True:
            now = self.snapshot()
            worse = {k: (self.before.get(k, 0), v) for k, v in now.items() if v > self.before.get(k, 0) + slack.get(k, 0)}
            if not worse:
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"left behind (before, now): {worse}")
            time.sleep(0.1)  # kernel clean-up of namespaces is asynchronous and has no event


def count_dirs(top):
    return sum(1 for _ in os.walk(top))  # what vanishes meanwhile is passed over


def cgroup_roots():
    base = pathlib.Path("/sys/fs/cgroup")
    if (base / "cgroup.controllers").exists():
        return [base]
    return [d for d in base.iterdir() if d.is_dir() and not d.is_symlink()]
