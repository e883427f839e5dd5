"""opensandbox-server beside coved on one engine, and the engine alone as the reference of the same run. Used by bench.py.

Rounds of the three alternate, so that all see the same machine. Ready is what clients mean by it: the agent answers /ping through
the endpoint of the sandbox.
"""
import http.client
import json
import os
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import dockerkit  # noqa: E402
import peerkit  # noqa: E402
from covekit import API_KEY  # noqa: E402

IMAGE = "cove-test/busybox"
BODY = {"image": {"uri": IMAGE}, "entrypoint": ["tail", "-f", "/dev/null"], "resourceLimits": {"cpu": "1", "memory": "512Mi"}, "timeout": 3600}


class Server:
    def __init__(self, name, daemon):
        self.name, self.d = name, daemon
        self.creates, self.readies, self.deletes = [], [], []
        self.local = threading.local()

    def call(self, method, path, body=None):
        try:
            return self.once(method, path, body)
        except http.client.RemoteDisconnected:  # the connection was idle for too long
            return self.once(method, path, body)

    def once(self, method, path, body):
        c = getattr(self.local, "c", None)
        if not c:
            c = self.local.c = self.d.connection(timeout=300)
        try:
            c.request(method, path, json.dumps(body) if body is not None else None, {"OPEN-SANDBOX-API-KEY": API_KEY, "Content-Type": "application/json"})
            r = c.getresponse()
            return r.status, r.read()
        except (OSError, http.client.HTTPException):
            self.local.c = None
            raise

    def create(self):
        """(id, seconds until answered, seconds until ready)"""
        t = time.perf_counter()
        status, body = self.call("POST", "/v1/sandboxes", BODY)
        t1 = time.perf_counter()
        if status != 202:
            raise RuntimeError(f"{self.name}: {status} {body[:200]}")
        i = json.loads(body)["id"]
        self.wait_ready(i)
        return i, t1 - t, time.perf_counter() - t

    def wait_ready(self, i):
        ep = json.loads(self.call("GET", f"/v1/sandboxes/{i}/endpoints/{dockerkit.AGENT_PORT}")[1])
        host, _, path = ep["endpoint"].partition("/")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            c = http.client.HTTPConnection(host, timeout=5)
            try:
                c.request("GET", f"/{path}/ping", headers=ep.get("headers", {}))
                if c.getresponse().status == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            finally:
                c.close()
            time.sleep(0.002)
        raise RuntimeError(f"{self.name}: {i} never got ready")

    def delete(self, i):
        t = time.perf_counter()
        status, body = self.call("DELETE", f"/v1/sandboxes/{i}")
        if status != 204:
            raise RuntimeError(f"{self.name}: delete {status} {body[:200]}")
        return time.perf_counter() - t

    def exec_true(self, i, proxy):
        ep = json.loads(self.call("GET", f"/v1/sandboxes/{i}/endpoints/{dockerkit.AGENT_PORT}?use_server_proxy={'true' if proxy else 'false'}")[1])
        host, _, path = ep["endpoint"].partition("/")
        c, times = http.client.HTTPConnection(host, timeout=30), []
        for _ in range(50):
            t = time.perf_counter()
            c.request("POST", f"/{path}/command", json.dumps({"command": "true"}), {**ep.get("headers", {}), "Content-Type": "application/json"})
            body = c.getresponse().read()
            times.append(time.perf_counter() - t)
            assert b"execution_complete" in body, body
        return times

    def memory(self):
        """(RSS, PSS) in MiB of the server's process and its children."""
        pids, rss, pss = [self.d.proc.pid], 0, 0
        for p in os.listdir("/proc"):
            try:
                if p.isdigit() and int(pathlib.Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)[1].split()[1]) in pids:
                    pids.append(int(p))
            except OSError:
                pass
        for p in set(pids):
            for l in pathlib.Path(f"/proc/{p}/smaps_rollup").read_text().splitlines():
                if l.startswith("Rss:"):
                    rss += int(l.split()[1])
                elif l.startswith("Pss:"):
                    pss += int(l.split()[1])
        return rss / 1024, pss / 1024


class EngineAlone:
    """Create and start of the same container, without any server."""

    def __init__(self, docker):
        self.e, self.n, self.lock = docker.engine, 0, threading.Lock()

    def create(self):
        with self.lock:
            self.n += 1
            name = f"bench-{self.n}"
        # ports that neither server hands out
        ports = {f"{p}/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}] for p in (dockerkit.AGENT_PORT, dockerkit.HTTP_PORT)}
        t = time.perf_counter()
        i = self.e.run(name, IMAGE, Cmd=["tail", "-f", "/dev/null"], ExposedPorts={p: {} for p in ports},
                       HostConfig={"PortBindings": ports, "Memory": 536870912, "NanoCpus": 10**9, "PidsLimit": 4096})
        return i, time.perf_counter() - t

    def delete(self, i):
        t = time.perf_counter()
        self.e.remove(i)
        return time.perf_counter() - t


def at_once(n, create):
    """(seconds until all were there, ids, failures)"""
    got, failed = [], []

    def one():
        try:
            got.append(create()[0])
        except Exception as e:
            failed.append(str(e)[:200])
    threads = [threading.Thread(target=one) for _ in range(n)]
    t = time.perf_counter()
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    return time.perf_counter() - t, got, failed


def pct(v, q):
    v = sorted(v)
    return v[min(len(v) - 1, int(len(v) * q))]


def both(v):
    return f"{pct(v, .5) * 1000:.1f} / {pct(v, .99) * 1000:.1f} ms"


def bench(quick):
    """Rows: what, the engine alone, ours, the peer, verdict."""
    rounds, rows, problems = (5 if quick else 30), [], []

    def row(what, ref, ours, peer, ok=None):
        rows.append((what, ref, ours, peer, "" if ok is None else "met" if ok else "MISSED"))
        print("  " + " | ".join(map(str, rows[-1])), file=sys.stderr, flush=True)

    with dockerkit.Dockerd() as docker:
        docker.image("busybox"), docker.image("execd")
        ref = EngineAlone(docker)
        with dockerkit.DockerDaemon(docker) as od, peerkit.PeerServer(docker, {"docker": {"port_range_min": 20000, "port_range_max": 30000}}) as pd:
            ours, peer = Server("coved", od), Server("opensandbox-server", pd)
            idle = [s.memory() for s in (ours, peer)]
            for s in (ours, peer):
                s.delete(s.create()[0])
            refs, ref_deletes = [], []
            for _ in range(rounds):
                i, t = ref.create()
                refs.append(t)
                ref_deletes.append(ref.delete(i))
                for s in (ours, peer):
                    i, a, b = s.create()
                    s.creates.append(a), s.readies.append(b)
                    s.deletes.append(s.delete(i))
            ratio = pct(ours.readies, .5) / pct(refs, .5)
            row("create → ready, p50 / p99", both(refs), both(ours.readies), both(peer.readies), ratio <= 1.2 and pct(ours.readies, .5) < pct(peer.readies, .5))
            row("… against the engine's create + start", "1", f"{ratio:.2f} ×", f"{pct(peer.readies, .5) / pct(refs, .5):.2f} ×", ratio <= 1.2)
            row("create answered, p50 / p99", "", both(ours.creates), both(peer.creates))
            row("delete, p50 / p99", both(ref_deletes), both(ours.deletes), both(peer.deletes), pct(ours.deletes, .5) < pct(peer.deletes, .5))
            for n in (20, 50):
                t, ids, _ = at_once(n, ref.create)
                for i in ids:
                    ref.delete(i)
                res = {}
                for s in (ours, peer):
                    res[s.name] = at_once(n, s.create)
                    if n == 50 and res[s.name][1]:
                        measure_many(s, res[s.name][1])
                    for i in res[s.name][1]:
                        s.delete(i)
                o, p = res[ours.name], res[peer.name]
                text = lambda r: f"{r[0]:.2f} s" + (f", {len(r[2])} failed" if r[2] else "")  # noqa: E731
                row(f"{n} at once, all ready", f"{t:.2f} s", text(o), text(p), not o[2] and (o[0] < p[0] or bool(p[2])))
                problems += o[2][:1] + p[2][:1]
            for what in ("list of 50, p50 / p99", "get, p50 / p99", "exec true, direct", "exec true, server proxy"):
                o, p = ours.many.get(what), peer.many.get(what)
                row(what, "", both(o), both(p) if p else "failed", not p or pct(o, .5) < pct(p, .5) or what == "exec true, direct")
            after = [s.memory() for s in (ours, peer)]
            row("server memory idle, RSS / PSS", "", *(f"{m[0]:.1f} / {m[1]:.1f} MiB" for m in idle), idle[0][1] < idle[1][1])
            row("server memory afterwards, RSS / PSS", "", *(f"{m[0]:.1f} / {m[1]:.1f} MiB" for m in after), after[0][1] < after[1][1])
    return rows, problems


def measure_many(s, ids):
    """With many sandboxes there."""
    s.many = {"list of 50, p50 / p99": [], "get, p50 / p99": []}
    for _ in range(50):
        t = time.perf_counter()
        status, body = s.call("GET", "/v1/sandboxes?pageSize=50")
        s.many["list of 50, p50 / p99"].append(time.perf_counter() - t)
        assert status == 200 and len(json.loads(body)["items"]) == min(50, len(ids)), (status, body[:300])
        t = time.perf_counter()
        assert s.call("GET", f"/v1/sandboxes/{ids[0]}")[0] == 200
        s.many["get, p50 / p99"].append(time.perf_counter() - t)
    s.many["exec true, direct"] = s.exec_true(ids[0], False)
    s.many["exec true, server proxy"] = s.exec_true(ids[0], True)


def main(quick):
    rows, problems = bench(quick)
    print("| what | engine alone | coved | opensandbox-server 1.1.1 | |\n|---|---|---|---|---|")
    for r in rows:
        print("| " + " | ".join(map(str, r)) + " |")
    for p in problems:
        print("problem:", p)
    return rows


if __name__ == "__main__":
    main(bool(os.environ.get("COVE_BENCH_QUICK")))
