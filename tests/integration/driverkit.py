"""Both drivers behind one class, for the suite that runs against each: what differs is asked of the driver, or kept here."""
import json
import os
import queue
import shutil
import subprocess
import threading

import covekit
import nativekit
from nativekit import DRV, DriverError  # noqa: F401

ENOENT, EALREADY, EBUSY, EINVAL, EOPNOTSUPP = -2, -114, -16, -22, -95
SLEEP = ("sleep", "1000")


class Common:
    """What both have beyond nativekit.Driver."""

    def rules(self):
        return self.call("rules")["rules"]

    def capabilities(self):
        return self.call("capabilities")["capabilities"]

    def logs(self, sandbox_id, **args):
        """What the entrypoint wrote. Where the agent shares its output, the agent's own lines are left out."""
        text = self.call("logs", id=sandbox_id, **args)["text"]
        return "".join(line for line in text.splitlines(True) if "cove-execd: " not in line)

    def next_event(self, sandbox_id, timeout=15):
        """The next change that is reported for that sandbox; others are dropped."""
        while True:
            e = self.exits.get(timeout=timeout * covekit.SLOW)
            if e["id"] == sandbox_id:
                return e

    def wait_event(self, sandbox_id, state, timeout=15):
        while True:
            e = self.next_event(sandbox_id, timeout)
            if e["state"] == state:
                return e

    def drop_events(self):
        while not self.exits.empty():
            self.exits.get()

    def code(self, op, **args):
        """0, or the error's code."""
        try:
            self.call(op, **args)
            return 0
        except DriverError as e:
            return e.code


class NativeDriver(Common, nativekit.Driver):
    name, image = "native", "local/busybox"

    def prepare(self):
        self.start().import_busybox()
        self.traces = nativekit.Traces(self)
        return self

    def check_clean(self):
        self.traces.wait_none(15)


class DockerDriver(Common, nativekit.Driver):
    """`drv docker` on a real engine (dockerkit.Dockerd)."""
    name = "docker"

    def __init__(self, docker, config=None, env=None):
        super().__init__(config, env)
        self.docker, self.engine = docker, docker.engine
        self.state = self.dir / "state"
        self.state.mkdir()
        self.config.setdefault("engine_host", docker.host)

    def prepare(self):
        import dockerkit
        self.image = self.docker.image("busybox")
        self.census = dockerkit.Census(self.docker)
        return self.start()

    def check_clean(self):
        self.census.check()

    def start(self, known=(), recover=True, undone=()):
        env = dict(os.environ, COVE_LIBEXEC=str(covekit.LIBEXEC), **self.env)
        self.proc = subprocess.Popen([str(DRV), "docker", str(self.state), json.dumps(self.config)], stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, env=env, text=True)
        first = json.loads(self.proc.stdout.readline() or '{"code": -1, "error": "drv died"}')
        if first["code"]:
            self.proc.wait()
            raise DriverError(first)
        self.exits = queue.Queue()
        self.reader = threading.Thread(target=self._read, args=(self.proc,), daemon=True)
        self.reader.start()
        if recover:
            self.call("recover", known=list(known), undone=list(undone))
        return self

    def create(self, sandbox_id, image=None, entrypoint=SLEEP, **fields):
        return super().create(sandbox_id, image or self.image, entrypoint, **fields)

    def container(self, sandbox_id):
        return self.engine.sandbox(sandbox_id)

    def close(self):
        """Everything of this daemon goes, also what it has lost sight of."""
        if self.proc and self.proc.poll() is None:
            self.stop()
        for c in self.engine.containers("opensandbox.io/id") + self.engine.containers("opensandbox.io/egress-sidecar-for"):
            self.engine.remove(c["Id"])
        for name, v in self.engine.volumes().items():
            if (v.get("Labels") or {}).get("opensandbox.io/cove.instance"):
                self.engine.raw("DELETE", f"/volumes/{name}?force=true")
        for t in self.engine.tags():
            if t.startswith("opensandbox-snapshots"):
                self.engine.remove_image(t)
        shutil.rmtree(self.dir, ignore_errors=True)
