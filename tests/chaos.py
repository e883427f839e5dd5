#!/usr/bin/env python3
"""What happens when things die: kill -9 of the daemon at every named place, an engine that stops, hangs or forgets, a registry that
is down, a full disk, a state directory that cannot be written. Asserted: right answers, what was acknowledged lives, nothing
half-made is left (containers, sidecars, volumes, networks, mounts, images, rows).

    tests/chaos.py [NAME ...]      a line per trial; NAME: part of a trial's name.  --list names them.

tests/integration/test_docker_chaos.py runs some of it in every `make test`.
"""
import contextlib
import datetime
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import covekit
import dockerkit

SRC = covekit.ROOT / "src/daemon"
POLICY = {"defaultAction": "deny", "egress": [{"action": "allow", "target": "example.com"}]}
LOST = (OSError, http.client.HTTPException)  # what a client sees of a server that dies


def points():
    """Every crash point that the Docker driver and the service can come by."""
    array = re.search(r"docker_crash_points\[\] = \{(.*?)\}", (SRC / "driver/docker/docker.c").read_text(), re.S)[1]
    found = set(re.findall(r'"([a-z-]+)"', array))
    for f in (SRC / "sandbox").glob("*.c"):
        found |= set(re.findall(r'crash_point\("([a-z-]+)"\)', f.read_text()))
    return sorted(found)


def wait_for(what, timeout=20, text="did not happen"):
    deadline = time.monotonic() + timeout * covekit.SLOW
    while not (got := what()):
        if time.monotonic() > deadline:
            raise AssertionError(text)
        time.sleep(0.05)
    return got


def due(seconds):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)).isoformat()


class Chaos:
    """An engine, a daemon, and one acknowledged sandbox with everything a sandbox can have, which must outlive it all."""

    def __init__(self, docker):
        self.docker = docker
        for kind in ("busybox", "egress"):
            docker.image(kind)
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="chaos-", dir=covekit.STATE_BASE))
        tools = self.base / "tools"
        tools.mkdir()
        for n in ("ossfs", "ossfs2"):
            shutil.copy(dockerkit.STANDINS / n, tools / n)
        self.d = dockerkit.DockerDaemon(docker, {"storage": {"ossfs_mount_root": f"{self.base}/oss"}}, env={"PATH": f"{tools}:{os.environ['PATH']}"})
        self.d.start()
        self.kept = self.d.create(**self.everything("kept"))["id"]
        self.d.run(self.kept, "echo before > /mark")
        self.census = dockerkit.Census(docker)

    def close(self):
        with contextlib.suppress(Exception):
            self.d.close()
        for m in self.oss():
            subprocess.run(["umount", "-l", m], capture_output=True)
        shutil.rmtree(self.base, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def everything(self, name):
        return {"networkPolicy": POLICY, "timeout": 3600, "volumes": [
            {"name": "v", "pvc": {"claimName": name + "-data", "deleteOnSandboxTermination": True}, "mountPath": "/data"},
            {"name": "o", "ossfs": {"bucket": "bucket-" + name, "endpoint": "oss.example.com", "accessKeyId": "i", "accessKeySecret": "s"}, "mountPath": "/oss"}]}

    def oss(self):
        return [l.split()[4] for l in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if l.split()[4].startswith(f"{self.base}/oss/")]

    def ids(self):
        return {s["id"] for s in self.d.get("/v1/sandboxes?pageSize=200").json()["items"]}

    def check(self, expect=(), images=()):
        """All that may be there now is the kept sandbox and what is expected."""
        assert self.d.run(self.kept, "cat /mark")[0] == "before\n", "an acknowledged sandbox is gone"
        extra = set(expect)
        wait_for(lambda: self.ids() == {self.kept} | extra, text=f"rows: {self.ids()} instead of {self.kept} and {extra}")
        if not extra:
            self.census.check({"snapshot images": images})
            wait_for(lambda: len(self.oss()) == 1, text=f"mounts: {self.oss()}")
        leftover = [p for p in pathlib.Path(tempfile.gettempdir()).glob("opensandbox-ossfs-inline-*")]
        assert not leftover, leftover

    # ---- kill -9 ----

    @contextlib.contextmanager
    def dying_at(self, point):
        """The daemon runs with the crash point; afterwards it must have died there, and is started again."""
        self.d.stop()
        self.d.env["COVE_CRASH_AT"] = point
        self.d.start()
        try:
            with contextlib.suppress(*LOST):
                yield
            try:
                self.d.proc.wait(20 * covekit.SLOW)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{point} was never reached") from None
            assert self.d.proc.returncode == -signal.SIGKILL, f"ended with {self.d.proc.returncode}:\n{self.d.log.read_text()[-2000:]}"
        finally:
            self.d.env.pop("COVE_CRASH_AT", None)
            self.d.stop()
        self.d.start()

    def crash_create(self, point, **fields):
        acknowledged = []
        with self.dying_at(point):
            acknowledged.append(self.d.create(**(fields or self.everything("victim")))["id"])
        if point == "service-create-committed":  # it is whole and known, only the answer was lost
            acknowledged = list(self.ids() - {self.kept})
            assert len(acknowledged) == 1 and self.d.run(acknowledged[0], "echo whole")[0] == "whole\n"
        self.check(acknowledged)
        for i in acknowledged:
            self.d.delete(i)
        self.check()

    def crash_delete(self, point):
        i = self.d.create(**self.everything("victim"))["id"]
        answers = []
        with self.dying_at(point):
            answers.append(self.d.request("DELETE", "/v1/sandboxes/" + i).status)
        assert answers in ([], [204]), answers
        # it was begun, nobody was told: gone, or whole enough to be deleted again; gone when it was acknowledged
        left = self.d.request("DELETE", "/v1/sandboxes/" + i).status
        assert left == 404 if answers else left in (204, 404), left
        self.check()

    def crash_expiry(self, point):
        i = self.d.create(**self.everything("victim"))["id"]
        with self.dying_at(point):
            assert self.d.request("POST", f"/v1/sandboxes/{i}/renew-expiration", {"expiresAt": due(1)}).status == 200
        wait_for(lambda: self.d.get("/v1/sandboxes/" + i).status == 404, 45, "an expired sandbox stays")
        self.check()

    def crash_pause(self, point):
        i = self.d.create(networkPolicy=POLICY)["id"]
        if point.startswith("resume"):
            self.d.request("POST", f"/v1/sandboxes/{i}/pause")
        with self.dying_at(point):
            self.d.request("POST", f"/v1/sandboxes/{i}/" + ("resume" if point.startswith("resume") else "pause"))
        # not acknowledged: either state will do, if it is true and can be left
        state = self.d.get("/v1/sandboxes/" + i).json()["status"]["state"]
        engine = self.docker.engine.sandbox(i)["State"]["Status"]
        assert (state, engine) in (("Running", "running"), ("Paused", "paused")), (state, engine)
        if state == "Running":
            assert self.d.request("POST", f"/v1/sandboxes/{i}/pause").status == 202
        assert self.d.request("POST", f"/v1/sandboxes/{i}/resume").status == 202
        assert self.docker.engine.sidecar(i)["State"]["Status"] == "running"
        assert self.d.run(i, "echo on")[0] == "on\n"
        self.d.delete(i)
        self.check()

    def crash_snapshot(self, point):
        ids = []
        with self.dying_at(point):
            ids.append(self.d.request("POST", f"/v1/sandboxes/{self.kept}/snapshots", {"name": "victim"}).json()["id"])
        items = lambda: self.d.get("/v1/snapshots?pageSize=200").json()["items"]  # noqa: E731
        wait_for(lambda: all(s["status"]["state"] in ("Ready", "Failed") for s in items()), text="a snapshot stays in between")
        assert set(ids) <= {s["id"] for s in items()}, "an acknowledged snapshot is lost"
        for s in items():
            has = self.docker.engine.has_image("opensandbox-snapshots:" + s["id"])
            assert has == (s["status"]["state"] == "Ready") or s["status"]["state"] == "Failed", s
            assert self.d.request("DELETE", "/v1/snapshots/" + s["id"]).status == 204
        wait_for(lambda: self.docker.engine.sandbox(self.kept)["State"]["Status"] == "running", text="left paused by a commit")
        self.check()

    def crash_snapshot_delete(self, point):
        s = self.d.request("POST", f"/v1/sandboxes/{self.kept}/snapshots").json()["id"]
        wait_for(lambda: self.d.get("/v1/snapshots/" + s).json()["status"]["state"] == "Ready")
        with self.dying_at(point):
            self.d.request("DELETE", "/v1/snapshots/" + s)
        wait_for(lambda: self.d.request("DELETE", "/v1/snapshots/" + s).status in (204, 404))
        wait_for(lambda: self.d.get("/v1/snapshots/" + s).status == 404, text="a deletion that was begun does not end")
        self.check()

    def crash_recover(self, point):
        """Killed during a create, and again while that is being cleared away."""
        self.d.stop()
        self.d.env["COVE_CRASH_AT"] = "create-started"
        self.d.start()
        with contextlib.suppress(*LOST):
            self.d.create(**self.everything("victim"))
        self.d.proc.wait(20)
        self.d.env["COVE_CRASH_AT"] = point
        with contextlib.suppress(AssertionError):
            self.d.start()
        assert self.d.proc.wait(20) == -signal.SIGKILL, f"{point} was never reached"
        del self.d.env["COVE_CRASH_AT"]
        self.d.start()
        self.check()

    def crash_agent_helper(self, point):
        self.d.stop()
        config = self.d.sections["runtime"]
        config["execd_image"] = self.docker.image("execd")
        try:
            with self.dying_at(point):
                self.d.create()
            wait_for(lambda: not [c for c in self.docker.census()["containers"] if "execd" in c], text="a helper container stays")
            self.check()
        finally:
            del config["execd_image"]
            self.d.stop()
            self.d.start()

    def crash(self, point):
        if point == "recover-one":
            return self.crash_recover(point)
        if point == "agent-helper":
            return self.crash_agent_helper(point)
        if point.startswith("snapshot-delete"):
            return self.crash_snapshot_delete(point)
        if point.startswith("snapshot"):
            return self.crash_snapshot(point)
        if point.startswith(("pause", "resume")):
            return self.crash_pause(point)
        if point.startswith(("remove", "service-delete")):
            return self.crash_delete(point)
        if point == "create-ports":  # a guard's are taken elsewhere
            return self.crash_create(point, timeout=600)
        return self.crash_create(point)

    def failed_expiry(self):
        """A removal that fails at the expiry is tried again (after 30 s); what belongs to the sandbox stays as long."""
        from scripted_engine import ScriptedEngine
        with ScriptedEngine(self.docker) as e, dockerkit.DockerDaemon(e) as d:
            i = d.create(networkPolicy=POLICY)["id"]
            e.on("DELETE", "/containers/.*", status=500, message="driver broke", times=1)
            assert d.request("POST", f"/v1/sandboxes/{i}/renew-expiration", {"expiresAt": due(1)}).status == 200
            wait_for(lambda: e.seen("DELETE", "/containers/.*"))
            time.sleep(0.5)
            assert self.docker.engine.exists("sandbox-egress-" + i), "the sidecar went before its sandbox"
            wait_for(lambda: not self.docker.engine.exists("sandbox-" + i) and not self.docker.engine.exists("sandbox-egress-" + i), 45)
        self.check()

    # ---- the engine ----

    def engine_stops_and_comes_back(self):
        """Refused while it is away, with a true status; everything works again without a restart of the daemon."""
        self.docker.stop()
        begin = time.monotonic()
        r = self.d.request("POST", "/v1/sandboxes", {"image": {"uri": "cove-test/busybox"}, "entrypoint": ["x"], "resourceLimits": {}, "timeout": 60})
        assert r.status in (500, 503) and r.json()["code"].startswith("DOCKER::"), r
        assert self.d.get("/health").status == 200
        assert self.d.get("/v1/sandboxes").status in (200, 500)
        r = self.d.request("POST", f"/v1/sandboxes/{self.kept}/pause")
        assert r.status in (409, 500) and r.json()["message"], r
        assert self.d.request("DELETE", f"/v1/sandboxes/{self.kept}").status == 500
        assert time.monotonic() - begin < 20, "answers take too long"
        self.docker.start()
        # without live restore an engine's stop ends its containers; the sandbox is known still
        wait_for(lambda: self.d.get("/v1/sandboxes/" + self.kept).json()["status"]["state"] in ("Terminated", "Failed"), 30, "the end of the containers is not seen")
        self.d.delete(self.d.create()["id"])
        for n in ("sandbox-egress-", "sandbox-"):
            self.docker.engine.call("POST", f"/containers/{n}{self.kept}/start")
        wait_for(lambda: self.d.get("/v1/sandboxes/" + self.kept).json()["status"]["state"] == "Running")
        wait_for(self.answers, text="a restarted sandbox is not reached")
        self.check()

    def answers(self):
        with contextlib.suppress(AssertionError, ValueError, KeyError, *LOST):
            return self.d.run(self.kept, "cat /mark")[0] == "before\n"

    def engine_is_killed(self):
        """dockerd with kill -9: its containers go on, and so does what needs no engine."""
        i = self.d.create()["id"]
        self.docker.kill()
        # (published ports, which guarded ones are reached by, end with dockerd; addresses do not)
        assert self.d.run(i, "echo on")[0] == "on\n", "the way to a running sandbox needs no engine"
        assert self.d.get("/v1/sandboxes/" + i).status in (200, 500)
        self.docker.start()
        wait_for(lambda: self.d.request("DELETE", "/v1/sandboxes/" + i).status in (204, 404), 30)
        if self.docker.engine.sandbox(self.kept)["State"]["Status"] != "running":
            for n in ("sandbox-egress-", "sandbox-"):
                self.docker.engine.call("POST", f"/containers/{n}{self.kept}/start")
        wait_for(self.answers, 30)
        self.check()

    def daemon_starts_before_the_engine(self):
        """Without an engine it does not start, with a sentence; then it starts and nothing is lost."""
        self.d.stop()
        self.docker.stop()
        with contextlib.suppress(AssertionError):
            self.d.start(timeout=15)
            raise RuntimeError("started without an engine")
        assert "docker.sock" in self.d.log.read_text()[-1500:], self.d.log.read_text()[-1500:]
        self.docker.start()
        for n in ("sandbox-egress-", "sandbox-"):
            self.docker.engine.call("POST", f"/containers/{n}{self.kept}/start")
        self.d.start()
        wait_for(self.answers, 30)
        self.check()

    def image_and_registry(self):
        registry = self.docker.registry()
        ref = registry.push(self.docker, "busybox", "chaos")
        self.d.refused(500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED", image=ref + "-missing")
        registry.stop()
        self.d.refused(500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED", image=ref)
        registry.start()
        self.d.delete(self.d.create(ref)["id"])
        self.docker.engine.remove_image(ref)
        self.check()

    # ---- the daemon's own disk ----

    def disk_full(self):
        """The state directory on a small file system without room: creates are refused, reads go on, removals work again."""
        with self.own_state("size=4m") as d:
            first = d.create()["id"]
            filler = pathlib.Path(d.sections["native"]["state_dir"]) / "filler"
            fd = os.open(filler, os.O_WRONLY | os.O_CREAT, 0o600)
            with contextlib.suppress(OSError):
                while os.write(fd, b"x" * 4096):
                    pass
            os.close(fd)
            before = self.docker.census()["containers"]
            statuses = set()
            for n in range(12):  # what is in the database's pages already may still be written
                r = d.request("POST", "/v1/sandboxes", {"image": {"uri": "cove-test/busybox"}, "entrypoint": ["tail", "-f", "/dev/null"], "resourceLimits": {},
                                                        "timeout": 600, "metadata": {f"k{m}": "v" * 60 for m in range(50)}})
                statuses.add(r.status)
                if r.status != 202:
                    assert r.status in (500, 503, 507) and r.json()["code"] and r.json()["message"], r
                    break
            assert statuses - {202}, "a full disk was not noticed"
            listed = {s["id"] for s in d.get("/v1/sandboxes?pageSize=200").json()["items"]}
            made = {c.removeprefix("/sandbox-") for c in self.docker.census()["containers"] - before}
            assert made <= listed, f"made and not listed: {made - listed}"
            assert d.run(first, "echo on")[0] == "on\n"
            assert d.request("DELETE", "/v1/sandboxes/" + first).status in (204, 500)
            assert not self.docker.engine.exists("sandbox-" + first)  # removing is what makes room
            filler.unlink()
            for i in listed - {self.kept}:
                wait_for(lambda: d.request("DELETE", "/v1/sandboxes/" + i).status in (204, 404))
            d.delete(d.create()["id"])
        self.check()

    def state_read_only(self):
        """From then on nothing new can be opened for writing: a create works whole or is refused whole. A start is refused."""
        with self.own_state("size=16m") as d:
            first = d.create()["id"]
            where = d.sections["native"]["state_dir"]
            subprocess.run(["mount", "--bind", where, where], check=True)
            subprocess.run(["mount", "-o", "remount,bind,ro", where], check=True)
            try:
                r = d.request("POST", "/v1/sandboxes", {"image": {"uri": "cove-test/busybox"}, "entrypoint": ["tail", "-f", "/dev/null"], "resourceLimits": {}, "timeout": 600})
                if r.status == 202:
                    assert d.run(r.json()["id"], "echo whole")[0] == "whole\n"
                    d.delete(r.json()["id"])
                else:
                    assert r.status in (500, 503, 507) and r.json()["message"], r
                assert d.get("/v1/sandboxes/" + first).status == 200 and d.run(first, "echo on")[0] == "on\n"
                d.stop()
                try:
                    d.start(timeout=15)
                except AssertionError as e:
                    assert "ead-only" in str(e) and where in str(e), e
                else:
                    raise AssertionError("started on a state directory that it cannot write")
            finally:
                subprocess.run(["umount", where], check=True)
            d.start()
            assert d.run(first, "echo on")[0] == "on\n"
            d.delete(first)
            d.delete(d.create()["id"])
        self.check()

    @contextlib.contextmanager
    def own_state(self, options):
        """A daemon of its own on the same engine, with its state on a tmpfs."""
        where = self.base / "state"
        where.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(where)], check=True)
        d = dockerkit.DockerDaemon(self.docker, {"native": {"state_dir": str(where)}, "store": {"path": f"{where}/snapshots.db"}})
        try:
            d.start()
            yield d
            left = {s["id"] for s in d.get("/v1/sandboxes?pageSize=200").json()["items"]}
            assert not left, left
        finally:
            d.close()
            subprocess.run(["umount", "-l", str(where)], check=True)


def trials():
    """name -> function of a Chaos"""
    t = {}
    for p in points():
        t["kill " + p] = lambda c, p=p: c.crash(p)
        if p.startswith(("remove", "service-delete")):
            t["kill expiry " + p] = lambda c, p=p: c.crash_expiry(p)
    for f in (Chaos.failed_expiry, Chaos.engine_is_killed, Chaos.engine_stops_and_comes_back, Chaos.daemon_starts_before_the_engine, Chaos.image_and_registry,
              Chaos.disk_full, Chaos.state_read_only):
        t[f.__name__.replace("_", " ")] = f
    return t


def clear(docker):
    """After a failed trial: an engine that runs, with nothing of it."""
    if docker.proc.poll() is not None:
        docker.start()
    for c in docker.engine.containers():
        docker.engine.remove(c["Id"])
    for v in docker.engine.volumes():
        docker.engine.raw("DELETE", f"/volumes/{v}?force=true")
    for t in docker.engine.tags():
        if t.startswith("opensandbox-snapshots"):
            docker.engine.remove_image(t)


def main():
    names = [a for a in sys.argv[1:] if a != "--list"]
    chosen = {n: f for n, f in trials().items() if not names or any(x in n for x in names)}
    if "--list" in sys.argv:
        print("\n".join(chosen))
        return 0
    why = dockerkit.why_not()
    if why:
        print("chaos:", why)
        return 1
    failed = []
    with dockerkit.Dockerd() as docker:
        c = None
        for name, f in chosen.items():
            begin = time.monotonic()
            try:
                c = c or Chaos(docker)
                f(c)
                print(f"ok      {name}  ({time.monotonic() - begin:.1f} s)", flush=True)
            except Exception as e:
                failed.append(name)
                print(f"FAILED  {name}: {type(e).__name__}: {e}", flush=True)
                if os.environ.get("CHAOS_KEEP_LOG") and c:
                    print(c.d.log.read_text()[-4000:])
                with contextlib.suppress(Exception):
                    if c:
                        c.close()
                clear(docker)
                c = None
        if c:
            c.close()
    print(json.dumps({"trials": len(chosen), "failed": failed}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
