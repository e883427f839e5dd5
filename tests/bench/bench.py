#!/usr/bin/env python3
"""Measures Cove against references of the same run and prints the table of docs/benchmarks.md.

    make bench                      all rows
    make bench BENCH="create exec"  some: create exec delete get burst files memory docker
    make bench BENCH=servers        opensandbox-server beside coved on one Docker engine: a table of its own
    COVE_BENCH_QUICK=1              fewer rounds (for CI: shows that everything runs)
"""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import covekit  # noqa: E402
from covekit import API_KEY, BUILD, LIBEXEC  # noqa: E402

QUICK = bool(os.environ.get("COVE_BENCH_QUICK"))
ROUNDS = 20 if QUICK else 200
rows = []
problems = []


def row(what, p50, p99="", ref="", budget="", ok=None):
    state = "" if ok is None else "met" if ok else "MISSED"
    rows.append((what, p50, p99, ref, budget, state))
    print(f"  {what}: {p50} {p99} {ref} {state}", file=sys.stderr, flush=True)


def pct(v, q):
    v = sorted(v)
    return v[min(len(v) - 1, int(len(v) * q))]


def ms(us):
    return f"{us / 1000:.2f} ms"


def tool(name, *args):
    out = subprocess.run([str(BUILD / "tests" / f"bench-{name}"), *map(str, args)], stdout=subprocess.PIPE, text=True)
    if out.returncode not in (0, 1) or not out.stdout:
        raise RuntimeError(f"bench-{name} failed")
    return json.loads(out.stdout)


def bundle(dir):
    """A bundle for bare crun: the namespaces and limits of ours, no seccomp profile."""
    tar = covekit.busybox_rootfs(dir / "bb.tar")
    root = dir / "rootfs"
    root.mkdir()
    subprocess.run(["tar", "xf", tar, "-C", root], check=True)
    for d in ("proc", "dev", "sys"):
        (root / d).mkdir(exist_ok=True)
    subprocess.run(["chown", "-R", "1000000:1000000", str(root)], check=True)
    caps = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETFCAP",
            "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT"]
    ids = [{"containerID": 0, "hostID": 1000000, "size": 65536}]
    mount = [("/proc", "proc", ["nosuid", "noexec", "nodev"]), ("/dev", "tmpfs", ["nosuid", "mode=755", "size=65536k"]),
             ("/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
             ("/dev/shm", "tmpfs", ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
             ("/dev/mqueue", "mqueue", ["nosuid", "noexec", "nodev"]), ("/sys", "sysfs", ["nosuid", "noexec", "nodev", "ro"])]
    config = {"ociVersion": "1.0.0", "hostname": "bench", "root": {"path": "rootfs"},
              "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "args": ["/bin/true"], "cwd": "/", "noNewPrivileges": True,
                          "env": ["PATH=/usr/bin:/bin"], "capabilities": {k: caps for k in ("bounding", "effective", "permitted")}},
              "mounts": [{"destination": d, "type": t, "source": t, "options": o} for d, t, o in mount],
              "linux": {"namespaces": [{"type": t} for t in ("pid", "ipc", "uts", "mount", "cgroup", "network", "user")],
                        "uidMappings": ids, "gidMappings": ids,
                        "resources": {"memory": {"limit": 536870912}, "cpu": {"quota": 100000, "period": 100000}, "pids": {"limit": 1024}},
                        "maskedPaths": ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi", "/sys/firmware"],
                        "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]}}
    (dir / "config.json").write_text(json.dumps(config))
    return dir


BODY = {"entrypoint": ["tail", "-f", "/dev/null"], "resourceLimits": {"cpu": "1", "memory": "512Mi"}, "timeout": 600,
        "extensions": {"cove.network": "none"}}


class Client:
    """One keep-alive connection to the daemon."""

    def __init__(self, d):
        self.c = d.connection()

    def call(self, method, path, body=None, headers=None):
        h = {"OPEN-SANDBOX-API-KEY": API_KEY, "Content-Type": "application/json", **(headers or {})}
        self.c.request(method, path, json.dumps(body) if isinstance(body, dict) else body, h)
        r = self.c.getresponse()
        return r.status, r.headers, r.read()


def bench_create(d, image, tmp):
    ref = tool("reference", "crun", ROUNDS, bundle(tmp))
    c, times, first, deletes, steps = Client(d), [], [], [], {}
    for i in range(ROUNDS + 5):
        t0 = time.perf_counter()
        status, headers, body = c.call("POST", "/v1/sandboxes", {"image": {"uri": image}, **BODY})
        t1 = time.perf_counter()
        assert status == 202, body
        sid = json.loads(body)["id"]
        ep = json.loads(c.call("GET", f"/v1/sandboxes/{sid}/endpoints/44772?use_server_proxy=true")[2])
        t2 = time.perf_counter()
        prefix = "/" + ep["endpoint"].split("/", 1)[1]
        status, _, out = c.call("POST", prefix + "/command", {"command": "echo hi"}, ep["headers"])
        t3 = time.perf_counter()
        assert b"execution_complete" in out, out
        status, _, body = c.call("DELETE", f"/v1/sandboxes/{sid}")
        t4 = time.perf_counter()
        assert status == 204, body
        if i < 5:
            continue
        times.append((t1 - t0) * 1e6)
        first.append((t1 - t0 + t3 - t2) * 1e6)
        deletes.append((t4 - t3) * 1e6)
        for name, dur in re.findall(r"([\w-]+);dur=([\d.]+)", headers.get("Server-Timing", "")):
            steps.setdefault(name, []).append(float(dur) * 1000)
    row("reference: bare `crun run` of true, same namespaces and limits, no seccomp", ms(ref["p50"]), ms(ref["p99"]))
    p50, p90 = pct(times, .5), pct(times, .9)
    row("create (request → agent answered)", ms(p50), f"{ms(pct(times, .99))} (p90 {ms(p90)})", f"{p50 / ref['p50']:.2f} × crun run",
        "p50 ≤ 1.0 × crun run; p90 ≤ 2 × p50", p50 <= ref["p50"] and p90 <= 2 * p50)
    f50 = pct(first, .5)
    row("create → first exec result", ms(f50), ms(pct(first, .99)), f"{f50 / ref['p50']:.2f} × crun run", "≤ 1.3 × crun run", f50 <= 1.3 * ref["p50"])
    for name, v in steps.items():
        row(f"· create step: {name}", ms(pct(v, .5)), ms(pct(v, .99)))
    row("delete (until nothing runs)", ms(pct(deletes, .5)), ms(pct(deletes, .99)), "", "p50 ≤ 5 ms", pct(deletes, .5) <= 5000)
    return f50


def with_sandbox(d, image):
    s = d.create(image, extensions={"cove.network": "none"}, resourceLimits={"cpu": "2", "memory": "2Gi"})["id"]
    ep = d.get(f"/v1/sandboxes/{s}/endpoints/44772?use_server_proxy=true").json()
    return s, "/" + ep["endpoint"].split("/", 1)[1], ep["headers"]


def bench_exec(d, image):
    spawn = tool("reference", "spawn", 500 if not QUICK else 50, "--", "true")
    s, prefix, headers = with_sandbox(d, image)
    h = [x for k, v in headers.items() for x in ("-H", f"{k}: {v}")]
    body = json.dumps({"argv": ["true"]})
    n = 100 if QUICK else 1000
    serial = tool("loadgen", "-n", n, "-X", "POST", "-d", body, *h, "127.0.0.1", d.port, prefix + "/command")
    many = tool("loadgen", "-n", 3 * n, "-c", 32, "-X", "POST", "-d", body, *h, "127.0.0.1", d.port, prefix + "/command")
    shell = tool("loadgen", "-n", n, "-X", "POST", "-d", json.dumps({"command": "true"}), *h, "127.0.0.1", d.port, prefix + "/command")
    row("reference: bare spawn + wait of true", ms(spawn["p50"]), ms(spawn["p99"]))
    row("exec of true through the API (to the end of the stream)", ms(serial["p50"]), ms(serial["p99"]), f"{serial['p50'] / spawn['p50']:.2f} × bare spawn",
        "p50 ≤ 3 ms, ≤ 4 × bare spawn", serial["p50"] <= 3000 and serial["p50"] <= 4 * spawn["p50"])
    row("exec of `true` by the shell", ms(shell["p50"]), ms(shell["p99"]), f"{shell['p50'] / spawn['p50']:.2f} × bare spawn")
    row("32 execs at once", f"{many['rate']:.0f}/s", ms(many["p99"]), f"p99 {many['p99'] / serial['p50']:.1f} × serial p50", "≥ 700/s; p99 ≤ 5 × serial",
        many["rate"] >= 700 and many["failed"] == 0 and many["p99"] <= 5 * serial["p50"])
    d.request("DELETE", f"/v1/sandboxes/{s}")


def bench_get(d, image):
    ids = [d.create(image, extensions={"cove.network": "none"})["id"] for _ in range(5 if QUICK else 50)]
    key = ["-H", f"OPEN-SANDBOX-API-KEY: {API_KEY}"]
    cpu0, t0 = cpu_seconds(d.proc.pid), time.perf_counter()
    r = tool("loadgen", "-n", 5000 if QUICK else 200000, "-c", 16, *key, "127.0.0.1", d.port, f"/v1/sandboxes/{ids[0]}")
    cpu = cpu_seconds(d.proc.pid) - cpu0
    row("GET /v1/sandboxes/{id}", f"{r['rate']:.0f}/s", ms(r["p99"]), f"{r['n'] / max(cpu, .001):.0f}/s per core of the daemon", "≥ 20,000/s on one core",
        r["n"] / max(cpu, .001) >= 20000)
    cpu0 = cpu_seconds(d.proc.pid)
    r = tool("loadgen", "-n", 1000 if QUICK else 20000, "-c", 8, *key, "127.0.0.1", d.port, "/v1/sandboxes?pageSize=50")
    cpu = cpu_seconds(d.proc.pid) - cpu0
    row(f"list of {len(ids)}", f"{r['rate']:.0f}/s", ms(r["p99"]), f"{r['n'] / max(cpu, .001):.0f}/s per core", "≥ 5,000/s", r["n"] / max(cpu, .001) >= 5000)
    for i in ids:
        d.request("DELETE", f"/v1/sandboxes/{i}")


def cpu_seconds(pid):
    f = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")


def bench_burst(d, image):
    n, results, lock = (20 if QUICK else 100), [], threading.Lock()

    def one():
        r = d.request("POST", "/v1/sandboxes", {"image": {"uri": image}, **BODY})
        with lock:
            results.append((r.status, r.json().get("id")))

    t = time.perf_counter()
    threads = [threading.Thread(target=one) for _ in range(n)]
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    took = time.perf_counter() - t
    ok = sum(s == 202 for s, _ in results)
    t = time.perf_counter()
    for _, i in results:
        d.request("DELETE", f"/v1/sandboxes/{i}")
    row(f"burst: {n} parallel creates", f"{ok} of {n} succeeded", f"{n / took:.0f} creates/s", f"all deleted in {time.perf_counter() - t:.2f} s",
        "all succeed; ≥ 100/s on 2 cores", ok == n and n / took >= 100)


def socket_copy(size):
    """Rate of a plain socket copy on loopback, bytes/s."""
    srv = socket.create_server(("127.0.0.1", 0))
    data = b"x" * (1 << 20)

    def send():
        with socket.create_connection(srv.getsockname()) as s:
            for _ in range(size >> 20):
                s.sendall(data)

    th = threading.Thread(target=send)
    t = time.perf_counter()
    th.start()
    c, _ = srv.accept()
    buf, got = bytearray(1 << 20), 0
    while n := c.recv_into(buf):
        got += n
    th.join()
    c.close()
    srv.close()
    return got / (time.perf_counter() - t)


def bench_files(d, image):
    size = (64 if QUICK else 1024) << 20
    ref = socket_copy(size)
    s, prefix, headers = with_sandbox(d, image)
    boundary = "b0undary"
    head = (f"--{boundary}\r\nContent-Disposition: form-data; name=\"metadata\"; filename=\"m\"\r\nContent-Type: application/json\r\n\r\n"
            f"{json.dumps({'path': '/tmp/big'})}\r\n--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n").encode()
    tail = f"\r\n--{boundary}--\r\n".encode()
    chunk = os.urandom(1 << 20)

    def body():
        yield head
        for _ in range(size >> 20):
            yield chunk
        yield tail

    c = d.connection(timeout=300)
    t = time.perf_counter()
    c.request("POST", prefix + "/files/upload", body(), {**headers, "Content-Type": f"multipart/form-data; boundary={boundary}",
                                                         "Content-Length": str(len(head) + size + len(tail))})
    r = c.getresponse()
    assert r.status == 200, r.read()
    r.read()
    up = size / (time.perf_counter() - t)
    row("reference: plain socket copy on loopback", f"{ref / 2**20:.0f} MiB/s")
    row(f"upload of {size >> 20} MiB (through the server proxy)", f"{up / 2**20:.0f} MiB/s", "", f"{up / ref:.2f} × socket copy", "≥ 0.6 × (disk permitting)", up >= .6 * ref)
    t = time.perf_counter()
    c.request("GET", prefix + "/files/download?path=/tmp/big", headers=headers)
    r = c.getresponse()
    buf, got = bytearray(1 << 20), 0
    while n := r.readinto(buf):
        got += n
    down = got / (time.perf_counter() - t)
    assert got == size
    row(f"download of {size >> 20} MiB (through the server proxy)", f"{down / 2**20:.0f} MiB/s", "", f"{down / ref:.2f} × socket copy", "≥ 0.6 ×", down >= .6 * ref)
    row("daemon's peak memory after it", f"{status_kb(d.proc.pid, 'VmHWM') / 1024:.1f} MiB")
    d.request("DELETE", f"/v1/sandboxes/{s}")


def status_kb(pid, field):
    m = re.search(rf"^{field}:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(m.group(1))


def smaps(pid):
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    get = lambda k: int(re.search(rf"^{k}:\s+(\d+) kB", text, re.M).group(1))
    return get("Rss"), get("Private_Dirty") + get("Private_Clean")


def agent_pid(d, sid):
    """The newest agent below the daemon's launcher (only one sandbox runs when this is asked)."""
    found = []
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            f = pathlib.Path(f"/proc/{p}/stat").read_text().rsplit(")", 1)
            if f[0].endswith("(execd"):
                launcher = f[1].split()[1]
                parent = pathlib.Path(f"/proc/{launcher}/stat").read_text().rsplit(")", 1)[1].split()[1]
                if int(parent) == d.proc.pid:
                    found.append((int(f[1].split()[19]), int(p)))
        except OSError:
            pass
    return max(found)[1] if found else None


def bench_memory(image):
    with covekit.Daemon() as d:
        d.get("/health")
        rss, private = smaps(d.proc.pid)
        row("daemon, idle: RSS / private", f"{rss / 1024:.1f} MiB", f"{private / 1024:.1f} MiB", "", "RSS ≤ 12 MiB", rss <= 12 * 1024)
        s = d.create("host", extensions={"cove.network": "none"})["id"]
        d.run(s, "true")
        other = d.create("host", extensions={"cove.network": "none"})["id"]  # a second one, so that shared pages count as shared
        d.run(other, "true")
        pid = agent_pid(d, s)
        if pid:
            rss, private = smaps(pid)
            row("agent, after one command: RSS / private", f"{rss / 1024:.2f} MiB", f"{private} KiB", "", "≤ 2 MiB / ≤ 300 KiB", rss <= 2048 and private <= 300)
    size = (LIBEXEC / "cove-execd").stat().st_size
    stripped = pathlib.Path(tempfile.mkdtemp()) / "x"
    subprocess.run(["strip", "-o", stripped, LIBEXEC / "cove-execd"], check=True)
    row("agent binary (stripped)", f"{stripped.stat().st_size / 2**20:.2f} MiB", "", f"{size / 2**20:.2f} MiB with symbols", "≤ 2 MiB", stripped.stat().st_size <= 2 << 20)
    shutil.rmtree(stripped.parent)


def bench_docker(first_us, tmp):
    if not shutil.which("dockerd") or not shutil.which("docker"):
        row("reference: docker run", "no dockerd here")
        return
    work = pathlib.Path(tempfile.mkdtemp(prefix="dk-", dir=covekit.STATE_BASE))
    sock = work / "d.sock"
    with open(work / "log", "wb") as log:
        p = subprocess.Popen(["dockerd", "--data-root", work / "data", "--exec-root", work / "exec", "-H", f"unix://{sock}", "--pidfile", work / "pid",
                              "--iptables=false", "--bridge=none"], stdout=log, stderr=log)
    try:
        docker = ["docker", "-H", f"unix://{sock}"]
        for _ in range(200):
            if subprocess.run([*docker, "info"], capture_output=True).returncode == 0:
                break
            time.sleep(.1)
        else:
            row("reference: docker run", "dockerd did not start")
            return
        subprocess.run([*docker, "import", covekit.busybox_rootfs(tmp / "dk.tar"), "bb"], check=True, capture_output=True)
        times = []
        for _ in range(5 if QUICK else 20):
            t = time.perf_counter()
            subprocess.run([*docker, "run", "--rm", "--network", "none", "bb", "true"], check=True, capture_output=True)
            times.append((time.perf_counter() - t) * 1e6)
        p50 = pct(times, .5)
        row("reference: `docker run --rm --network none` of true", ms(p50), ms(pct(times, .99)),
            f"ours to the first result: 1/{p50 / first_us:.0f}" if first_us else "", "ours ≤ 1/10", not first_us or first_us <= p50 / 10)
    finally:
        p.terminate()
        p.wait()
        subprocess.run(f"umount -R {work}/* 2>/dev/null; rm -rf {work}", shell=True)


def main():
    want = set(sys.argv[1:]) or {"create", "exec", "get", "burst", "files", "memory", "docker", "servers"}
    if "servers" in want:
        import servers
        servers.main(QUICK)
        want.discard("servers")
        if not want:
            return
    tmp = pathlib.Path(tempfile.mkdtemp(prefix="bench-", dir="/var/tmp"))
    tmp.chmod(0o711)
    first = None
    try:
        with covekit.Daemon() as d:
            image = os.environ.get("COVE_BENCH_IMAGE") or covekit.import_image(d, covekit.busybox_rootfs(tmp / "image.tar"), "busybox")
            if "create" in want:
                first = bench_create(d, image, tmp)
            if "exec" in want:
                bench_exec(d, image)
            if "get" in want:
                bench_get(d, image)
            if "burst" in want:
                bench_burst(d, image)
            if "files" in want:
                bench_files(d, image)
        if "memory" in want:
            bench_memory(image)
        if "docker" in want:
            bench_docker(first, tmp)
    finally:
        shutil.rmtree(tmp, ignore_errors=True)
    print("| what | p50 | p99 | against the reference | budget | |\n|---|---|---|---|---|---|")
    for r in rows:
        print("| " + " | ".join(map(str, r)) + " |")


if __name__ == "__main__":
    main()
