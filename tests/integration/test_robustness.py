"""Bursts, long runs and crashes of the whole thing: real coved, launcher, crun, agent."""
import concurrent.futures
import fcntl
import http.client
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest

import covekit
from covekit import API_KEY, SLOW, Daemon, Leftovers

NONE = {"extensions": {"cove.network": "none"}}


def test_hundred_parallel_creates_all_succeed(daemon, busybox):
    daemon.request("DELETE", "/v1/sandboxes/" + daemon.create(busybox, **NONE)["id"])  # warm
    before = Leftovers(daemon)
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        made = list(pool.map(lambda i: daemon.request("POST", "/v1/sandboxes", {
            "image": {"uri": busybox}, "entrypoint": ["tail", "-f", "/dev/null"], "resourceLimits": {"memory": "64Mi"}, "timeout": 600,
            "metadata": {"n": str(i)}, **NONE}), range(100)))
        assert [r.status for r in made] == [202] * 100, [r for r in made if r.status != 202][:3]
        ids = [r.json()["id"] for r in made]
        assert len(set(ids)) == 100
        outs = list(pool.map(lambda i: daemon.run(i, "echo $((6*7))"), ids))
        assert outs == [("42\n", "", 0)] * 100
        gone = list(pool.map(lambda i: daemon.request("DELETE", "/v1/sandboxes/" + i).status, ids))
        assert gone == [204] * 100
    before.check(slack={"daemon fds": 120})  # keep-alive connections and pools


def test_two_hundred_cycles_leave_nothing(daemon, busybox):
    for image in (busybox, "host"):
        daemon.request("DELETE", "/v1/sandboxes/" + daemon.create(image, **NONE)["id"])
    before = Leftovers(daemon)
    for i in range(200):
        image = "host" if i % 10 == 9 else busybox
        s = daemon.create(image, **NONE)["id"]
        # processes that try to stay: own session, double fork, ignoring TERM
        out, _, code = daemon.run(s, "(trap '' TERM; setsid sleep 1000 &) ; echo alive")
        assert (out, code) == ("alive\n", 0)
        assert daemon.request("DELETE", "/v1/sandboxes/" + s).status == 204
        assert daemon.get("/v1/sandboxes/" + s).status == 404
    before.check(slack={"daemon fds": 8})


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 24 MiB for the state, on a device of 64 MiB or what `room` leaves of it."""
    under, top = tmp_path / "under", Path(tempfile.mkdtemp(prefix="full-", dir=covekit.STATE_BASE))
    under.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "disk", str(under)], check=True)
    try:
        (under / "image").touch()
        os.truncate(under / "image", 24 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", str(under / "image")], check=True)
        subprocess.run(["mount", "-o", "loop", str(under / "image"), str(top)], check=True)
        yield top, lambda size: subprocess.run(["mount", "-o", f"remount,size={size}", str(under)], check=True)
    finally:
        subprocess.run(["umount", "-l", str(top)])
        subprocess.run(["umount", "-l", str(under)], check=True)
        top.rmdir()


def test_a_start_waits_for_the_end_of_a_killed_daemon():
    """Its lock goes when the kernel has taken the process apart, a little after the kill."""
    d = Daemon()
    (d.dir / "state").mkdir(mode=0o711)
    lock = os.open(d.dir / "state", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    timer = threading.Timer(0.7, os.close, [lock])
    timer.start()
    with d:
        assert not timer.is_alive()
        assert d.get("/health").status == 200


HOST = {"image": {"uri": "host"}, "entrypoint": ["sleep", "1000"], "resourceLimits": {}, "timeout": 600, **NONE}


def can_be_used(d):
    s = d.create("host", **NONE)["id"]
    assert d.run(s, "echo fits > /file; cat /file") == ("fits\n", "", 0)
    assert d.request("DELETE", "/v1/sandboxes/" + s).status == 204


def test_a_full_disk_is_told(small_disk):
    """No sandbox with a root that cannot be written, nothing half-made; room given back can be used."""
    top, _ = small_disk
    with Daemon(state=top) as d:
        s = d.create("host", **NONE)["id"]
        out, err, _ = d.run(s, "dd if=/dev/zero of=/big bs=1M; dd if=/dev/zero of=/rest bs=512; for i in $(seq 2000); do echo > /tmp/$i || break; done")
        assert "No space left on device" in err
        r = d.request("POST", "/v1/sandboxes", HOST)
        assert r.status in (500, 503) and re.search("No space left on device|disk is full", r.json()["message"]), r
        assert d.agent(s, "GET", "/ping").status == 200
        assert d.request("DELETE", "/v1/sandboxes/" + s).status == 204
        trash, deadline = top / "state/sandboxes/.trash", time.monotonic() + 20 * SLOW
        while trash.exists() and any(trash.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)  # a delete answers when nothing runs; the files go in the background
        can_be_used(d)
        assert [p for p in (top / "state/sandboxes").iterdir() if not p.name.startswith(".")] == []


def test_write_errors_of_the_past_do_not_stop_creates(small_disk):
    """The kernel refuses overlays like ours on a file system with a write error that nobody was told of."""
    top, room = small_disk
    with Daemon(state=top) as d:
        s = d.create("host", **NONE)["id"]
        d.run(s, "true")
        room("2m")  # less than it holds: every new page of the device is refused
        d.run(s, "head -c 8000000 /dev/urandom > /big; sync")
        room("64m")
        assert d.request("DELETE", "/v1/sandboxes/" + s).status == 204
        for _ in range(3):
            can_be_used(d)


def crash_points():
    """Every place of the daemon's own code with a crash point (base/crash.h), read from the sources."""
    src = covekit.ROOT / "src/daemon"
    docker_only = ("launch_", "snapshot")  # or reached in a helper of its own
    names = {m for f in src.rglob("*.c") if not f.name.startswith(docker_only) and f.parent.name != "docker"
             for m in re.findall(r'crash_point\("([a-z-]+)"\)', f.read_text())}
    names -= {"service-create-mounted", "oss-file"}  # object storage is not offered by the native driver
    names |= {"create-" + m for m in re.findall(r'\{"([a-z-]+)", step_', (src / "driver/native/create.c").read_text())}
    return sorted(n for n in names if not n.startswith("recover"))


POINTS = crash_points()


def test_there_are_at_least_ten_crash_points():
    assert len(POINTS) >= 10, POINTS


@pytest.mark.parametrize("point", POINTS)
def test_kill_at_every_point_of_create_and_delete(point):
    """A daemon that dies there (SIGKILL to itself) leaves nothing half-made, and keeps what it acknowledged."""
    net = {"extensions": {"cove.network": "nat" if point.startswith("nat") else "none"}}
    with Daemon() as d:
        kept = d.create("host", metadata={"keep": "yes"}, **NONE)["id"]
        assert d.run(kept, "echo before > /tmp/mark; cat /tmp/mark")[0] == "before\n"
        d.kill()
        before = Leftovers()
        d.env["COVE_CRASH_AT"] = point
        created = None
        try:
            d.start()  # the start itself may come by, when it clears away what the killed daemon kept ready
            r = d.request("POST", "/v1/sandboxes", {"image": {"uri": "host"}, "entrypoint": ["sleep", "1000"], "resourceLimits": {}, "timeout": 600, **net})
            created = r.json()["id"] if r.status == 202 else None
            if created:
                d.request("DELETE", "/v1/sandboxes/" + created)
        except (OSError, http.client.HTTPException, AssertionError):
            pass
        assert d.proc.wait(10 * SLOW) == -signal.SIGKILL, f"{point} was never reached"
        del d.env["COVE_CRASH_AT"]
        d.start()
        items = d.get("/v1/sandboxes?pageSize=200").json()["items"]
        assert kept in [i["id"] for i in items]
        for i in items:  # whatever is listed works; one whose answer was lost in the crash is listed, so it is no orphan
            assert d.run(i["id"], "echo works")[0] == "works\n", i
            if i["id"] != kept:
                assert created in (None, i["id"])
                assert d.request("DELETE", "/v1/sandboxes/" + i["id"]).status == 204
        assert d.run(kept, "cat /tmp/mark")[0] == "before\n"
        assert d.get("/v1/sandboxes/" + kept).json()["metadata"] == {"keep": "yes"}
        d.stop()  # like before: no daemon, so nothing that it keeps ready
        before.check()


def test_kill_during_recovery():
    with Daemon() as d:
        kept = d.create("host", **NONE)["id"]
        d.kill()
        d.env["COVE_CRASH_AT"] = "recover-one"
        with pytest.raises(AssertionError):
            d.start()
        del d.env["COVE_CRASH_AT"]
        d.start()
        assert d.run(kept, "echo works")[0] == "works\n"


def load(d, image, n, acked, deleted):
    """Creates, and every other one deletes, until the daemon is gone."""
    try:
        while True:
            r = d.request("POST", "/v1/sandboxes", {"image": {"uri": image}, "entrypoint": ["sleep", "1000"], "resourceLimits": {},
                                                    "timeout": 600, **NONE}, timeout=20)
            if r.status != 202:
                return
            i = r.json()["id"]
            acked.add(i)
            if n % 2:
                deleted.add(i)
                d.request("DELETE", "/v1/sandboxes/" + i, timeout=20)
    except (OSError, http.client.HTTPException):
        return


def test_kill_at_random_moments_under_load(busybox_tar):
    """Twelve rounds of creates and deletes in flight, SIGKILL, restart: acknowledged ones work, nothing else is left."""
    rng = random.Random(7)
    with Daemon() as d:
        image = covekit.import_image(d, busybox_tar, "bb")
        d.kill()
        before = Leftovers()
        for _ in range(12):
            d.start()
            acked, deleted = set(), set()
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                jobs = [pool.submit(load, d, image, n, acked, deleted) for n in range(6)]
                time.sleep(rng.uniform(0.02, 0.35) * SLOW)
                d.kill()
                concurrent.futures.wait(jobs)
            d.start()
            listed = {i["id"] for i in d.get("/v1/sandboxes?pageSize=200").json()["items"]}
            assert acked - deleted <= listed, "acknowledged but lost"
            assert len(listed - acked) <= 6, "more than the requests in flight"
            for i in sorted(listed)[:8]:
                assert d.run(i, "echo ok")[0] == "ok\n"
            for i in listed:
                assert d.request("DELETE", "/v1/sandboxes/" + i).status == 204
            d.kill()
        before.check(slack={"namespaces": 3}, timeout=30)


@pytest.fixture(scope="module")
def busybox_tar(tmp_path_factory):
    return covekit.busybox_rootfs(tmp_path_factory.mktemp("img") / "bb.tar")


def test_expiry_fires_also_for_what_expired_while_the_daemon_was_dead(daemon):
    with Daemon() as d:
        s = d.create("host", **NONE)["id"]
        soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
        assert d.request("POST", f"/v1/sandboxes/{s}/renew-expiration", {"expiresAt": soon}).status == 200
        d.kill()
        time.sleep(2.2)
        d.start()
        deadline = time.monotonic() + 10
        while d.get("/v1/sandboxes/" + s).status != 404:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_sigterm_drains_and_sandboxes_live_on():
    with Daemon() as d:
        s = d.create("host", **NONE)["id"]
        ep = d.get(f"/v1/sandboxes/{s}/endpoints/44772?use_server_proxy=true").json()
        c = d.connection()
        c.request("POST", "/" + ep["endpoint"].split("/", 1)[1] + "/command", '{"command": "echo one; sleep 1; echo two"}', ep["headers"])
        r = c.getresponse()
        first = r.read1(4096)
        assert b"init" in first
        d.proc.send_signal(signal.SIGTERM)
        body = first + r.read()
        assert "two" in covekit.parse_events(body)[0], "the request in flight was cut"
        assert d.proc.wait(15) == 0
        d.start()
        assert d.run(s, "echo still here")[0] == "still here\n"


def test_sigterm_cuts_upgraded_connections():
    """A client that keeps its end of a WebSocket open must not keep the daemon."""
    with Daemon() as d:
        s = d.create("host", **NONE)["id"]
        ep = d.get(f"/v1/sandboxes/{s}/endpoints/44772?use_server_proxy=true").json()
        pty = d.agent(s, "POST", "/pty", {"argv": ["cat"]}).json()["session_id"]
        with socket.create_connection(("127.0.0.1", d.port), timeout=15 * covekit.SLOW) as c:
            head = {"Host": "x", "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", **ep["headers"]}
            target = f"/v1/sandboxes/{s}/proxy/44772/pty/{pty}/ws?pty=0"
            c.sendall((f"GET {target} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in head.items()) + "\r\n").encode())
            assert b" 101 " in c.recv(4096)
            d.proc.send_signal(signal.SIGTERM)
            assert d.proc.wait(15 * covekit.SLOW) == 0
        d.start()
        assert d.run(s, "echo still here")[0] == "still here\n"


def test_the_launcher_may_die(daemon):
    s = daemon.create("host", **NONE)["id"]
    pids = [p for p in filter(str.isdigit, os.listdir("/proc")) if launcher_of(p, daemon.proc.pid)]
    assert pids, "no launcher process"
    for p in pids:
        os.kill(int(p), signal.SIGKILL)
    deadline = time.monotonic() + 10 * SLOW
    while any(map(is_running, pids)):  # a create under way when it dies fails
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert daemon.run(s, "echo ok")[0] == "ok\n"
    t = daemon.create("host", **NONE)["id"]
    assert daemon.run(t, "echo ok")[0] == "ok\n"
    for i in (s, t):
        assert daemon.request("DELETE", "/v1/sandboxes/" + i).status == 204


def is_running(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def launcher_of(pid, parent):
    try:
        stat = open(f"/proc/{pid}/stat").read()
    except OSError:
        return False
    return "(cove-launch)" in stat and int(stat.rsplit(")", 1)[1].split()[1]) == parent


def test_requests_without_a_key_are_refused(daemon):
    assert daemon.request("GET", "/v1/sandboxes", key=None).status == 401
    assert daemon.request("GET", "/v1/sandboxes", key=API_KEY + "x").status == 401
    assert daemon.request("GET", "/v1/sandboxes", key=None, unix=True).status == 200
