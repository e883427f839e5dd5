"""The native driver without the daemon: a process that speaks JSON lines (drv.c), and small helpers around it."""
import contextlib
import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import tempfile
import threading

import covekit

DRV = pathlib.Path(os.environ.get("COVE_DRV") or pathlib.Path(os.environ.get("COVE_BUILD", covekit.ROOT / "build")) / "tests/drv")
TOKEN = "driver-test-token"


class DriverError(AssertionError):
    def __init__(self, answer):
        super().__init__(f"{answer.get('code')}: {answer.get('error')}")
        self.code, self.text = answer.get("code"), answer.get("error", "")


class Driver:
    """One `drv` process on a state directory of its own. Start again after stop() or kill() to recover."""

    def __init__(self, config=None, env=None, prefix=()):
        covekit.STATE_BASE.mkdir(parents=True, exist_ok=True)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="n-", dir=covekit.STATE_BASE))
        self.config, self.env, self.prefix = dict(config or {}), dict(env or {}), list(prefix)
        self.proc, self.seq, self.lock, self.waiting = None, 0, threading.Lock(), {}
        self.exits = queue.Queue()

    def start(self, known=(), recover=True):
        env = dict(os.environ, COVE_LIBEXEC=str(covekit.LIBEXEC), **self.env)
        self.proc = subprocess.Popen([*self.prefix, str(DRV), "native", str(self.dir / "state"), str(self.dir / "run"), json.dumps(self.config)],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)
        first = json.loads(self.proc.stdout.readline() or '{"code": -1, "error": "drv died"}')
        if first["code"]:
            self.proc.wait()
            raise DriverError(first)
        self.reader = threading.Thread(target=self._read, args=(self.proc,), daemon=True)
        self.reader.start()
        if recover:
            self.call("recover", known=list(known))
        return self

    def _read(self, proc):
        for line in proc.stdout:
            d = json.loads(line)
            if "event" in d:
                self.exits.put(d)
                continue
            with self.lock:
                q = self.waiting.pop(d["seq"], None)
            if q:
                q.put(d)
        with self.lock:
            for q in self.waiting.values():
                q.put({"code": -1, "error": "drv died"})
            self.waiting.clear()

    def call(self, op, timeout=60, **args):
        q = queue.Queue()
        with self.lock:
            self.seq += 1
            seq = self.seq
            self.waiting[seq] = q
        try:
            with self.lock:
                self.proc.stdin.write(json.dumps({"op": op, "seq": seq, **args}) + "\n")
                self.proc.stdin.flush()
        except OSError:
            raise DriverError({"code": -1, "error": "drv died"}) from None
        answer = q.get(timeout=timeout * covekit.SLOW)
        if answer["code"]:
            raise DriverError(answer)
        return answer

    def create(self, sandbox_id, image="local/busybox", entrypoint=(), **fields):
        env = fields.pop("env", [])
        return self.call("create", spec={"id": sandbox_id, "image": image, "entrypoint": list(entrypoint), "env": env,
                                         "accessToken": TOKEN, **fields})

    def remove(self, sandbox_id):
        return self.call("remove", id=sandbox_id)

    def inspect(self, sandbox_id):
        return self.call("inspect", id=sandbox_id)["info"]

    def ids(self):
        return sorted(i["id"] for i in self.call("list")["list"])

    def http(self, sandbox_id, method, path, body=b"", token=TOKEN, port=44772):
        """(status, body) of one request to a port of the sandbox."""
        request = (f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
                   f"Content-Length: {len(body)}\r\nX-EXECD-ACCESS-TOKEN: {token}\r\n\r\n").encode() + body
        text = self.call("http", id=sandbox_id, port=port, request=request.decode())["answer"]
        head, _, rest = text.partition("\r\n\r\n")
        if "chunked" in head.lower():
            out, rest = "", rest.encode()
            while rest:
                size, _, rest = rest.partition(b"\r\n")
                n = int(size, 16)
                out, rest = out + rest[:n].decode(errors="replace"), rest[n + 2:]
            rest = out
        return int(head.split()[1]), rest

    def run(self, sandbox_id, command, **fields):
        """A command through the agent: (stdout, stderr, exit code)."""
        status, body = self.http(sandbox_id, "POST", "/command", json.dumps({"command": command, **fields}).encode())
        assert status == 200, (status, body)
        return covekit.parse_events(body.encode())

    def out(self, sandbox_id, command):
        """Standard output of a command that must succeed."""
        out, err, code = self.run(sandbox_id, command)
        assert code == 0, (out, err, code)
        return out

    def import_busybox(self):
        self.call("import", name="local/busybox", path=str(covekit.busybox_rootfs(self.dir / "busybox.tar")))
        return self

    def stop(self):
        """Ends in order; sandboxes live on."""
        if self.proc and self.proc.poll() is None:
            self.proc.stdin.write('{"op":"quit"}\n')
            self.proc.stdin.flush()
            assert self.proc.wait(30 * covekit.SLOW) == 0, "the driver's process failed (or a sanitizer complained)"

    def kill(self):
        self.proc.send_signal(signal.SIGKILL)
        self.proc.wait()

    def launcher_pid(self):
        for t in os.listdir(f"/proc/{self.proc.pid}/task"):
            with contextlib.suppress(FileNotFoundError):  # a thread that ended meanwhile
                for k in pathlib.Path(f"/proc/{self.proc.pid}/task/{t}/children").read_text().split():
                    if "cove-launch" in os.readlink(f"/proc/{k}/exe"):
                        return int(k)
        raise AssertionError("no cove-launch")

    def record(self, sandbox_id):
        for d in (self.dir / "state/sandboxes").iterdir():
            f = d / "record.json"
            if f.exists():
                r = json.loads(f.read_text())
                if r["id"] == sandbox_id:
                    return {**r, "key": d.name}
        raise KeyError(sandbox_id)

    def instance(self):
        return next(p.name for p in (self.dir / "run").iterdir())

    def close(self):
        if self.proc and self.proc.poll() is not None:
            self.env.pop("COVE_CRASH_AT", None)
            self.start()
        for i in self.ids():
            self.remove(i)
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)


class Traces:
    """What exists on the machine with the name of one driver's instance on it, or in its directories."""

    def __init__(self, driver):
        self.d, self.name = driver, driver.instance()

    def found(self):
        n = []
        for root in covekit.cgroup_roots():
            n += [str(p) for p in root.glob(f"cove-{self.name}/*/")]
        n += [str(p) for p in (self.d.dir / "state/sandboxes").iterdir() if p.name != ".trash"]
        n += [str(p) for p in (self.d.dir / "state/sandboxes/.trash").iterdir()]
        n += [str(p) for p in (self.d.dir / "run" / self.name / "rt").iterdir()]
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True).stdout
        n += [line for line in links.splitlines() if "cv" + self.name in line]
        tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True).stdout
        n += [t for t in tables.splitlines() if self.name in t]
        for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
            if str(self.d.dir) in line:
                n.append(line)
        for p in os.listdir("/proc"):
            if p.isdigit():
                try:
                    text = pathlib.Path(f"/proc/{p}/cgroup").read_text()
                except OSError:
                    continue
                if f"cove-{self.name}/" in text and "pool-" not in text:
                    n.append(f"process {p}")
        return [x for x in n if "/pool-" not in x]

    def wait_none(self, timeout=10):
        covekit_wait(lambda: not self.found(), self.found, timeout)


def covekit_wait(ok, explain, timeout):
    """Waits for clean-up in the background (files, kernel objects), for which there is no event to wait on."""
    import time
    deadline = time.monotonic() + timeout * covekit.SLOW
    while not ok():
        if time.monotonic() > deadline:
            raise AssertionError(explain())
        time.sleep(0.02)
