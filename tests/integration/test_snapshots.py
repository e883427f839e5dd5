"""Snapshots through the HTTP API of a real daemon on a real engine (lifecycle.md §4.13, §6), kill -9 at every step of them, the
record stores, and renewal by use (§7.6). COVE_TEST_SERVER=peer runs what is of the wire against the official server."""
import json
import re
import shutil
import signal
import sqlite3
import subprocess
import time

import pytest

import covekit
import dockerkit

ours = pytest.mark.skipif(dockerkit.IS_PEER, reason="cannot: a rule of ours that the official server does not have")
REPO = "opensandbox-snapshots"
NO_SUCH = "11111111-1111-4111-8111-111111111111"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z$")


@pytest.fixture(scope="module")
def server(docker):
    docker.image("busybox")
    with dockerkit.serve(docker) as s:
        yield s


@pytest.fixture
def clean(server):
    """Nothing of a test may be left: no container, no image."""
    census = dockerkit.Census(server.docker)
    yield
    for s in server.get("/v1/sandboxes?pageSize=200").json()["items"]:
        server.request("DELETE", "/v1/sandboxes/" + s["id"])
    for s in server.get("/v1/snapshots?pageSize=200").json()["items"]:
        wait_state(server, s["id"], "Ready", "Failed", "Deleting", None)
        server.request("DELETE", "/v1/snapshots/" + s["id"])
    until(lambda: not server.get("/v1/snapshots").json()["items"])
    until(lambda: not tags(server))
    census.check()


def until(true, timeout=60):
    deadline = time.monotonic() + timeout * covekit.SLOW
    while not true():
        assert time.monotonic() < deadline, "did not become true in time"
        time.sleep(0.05)


def tags(server):
    return sorted(t for t in server.engine.tags() if t.startswith(REPO + ":"))


def wait_state(server, snapshot, *states):
    """None stands for gone."""
    seen = []

    def look():
        r = server.get("/v1/snapshots/" + snapshot)
        seen.append(None if r.status == 404 else r.json()["status"]["state"])
        return seen[-1] in states
    until(look)
    return seen[-1]


def snap(server, sandbox, body=None, status=202):
    r = server.request("POST", f"/v1/sandboxes/{sandbox}/snapshots", body, {"Content-Type": "application/json"} if body else None)
    assert r.status == status, r
    return r


def made(server, sandbox, body=None):
    s = snap(server, sandbox, body).json()
    assert wait_state(server, s["id"], "Ready", "Failed") == "Ready", server.get("/v1/snapshots/" + s["id"])
    return s["id"]


def ids(server, query):
    r = server.get("/v1/snapshots?" + query)
    assert r.status == 200, r
    return [s["id"] for s in r.json()["items"]], r.json()["pagination"]


# ---- the wire ----

def test_a_snapshot(server, clean):
    box = server.create()["id"]
    r = snap(server, box, {"name": "first", "unknown": 1})
    s = r.json()
    assert r.headers["Location"] == "/v1/snapshots/" + s["id"]
    assert set(s) == {"id", "sandboxId", "name", "status", "createdAt"}, s
    assert s["sandboxId"] == box and s["name"] == "first" and TIME.match(s["createdAt"])
    assert s["status"]["state"] == "Creating" and s["status"]["reason"] == "snapshot_accepted"
    assert re.match(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-", s["id"])
    wait_state(server, s["id"], "Ready")
    s = server.get("/snapshots/" + s["id"]).json()  # bare as well
    assert s["status"]["reason"] == "snapshot_runtime_ready" and TIME.match(s["status"]["lastTransitionAt"])
    assert tags(server) == [f"{REPO}:{s['id']}"]
    assert server.get("/v1/sandboxes/" + box).json()["status"]["state"] == "Running"
    r = server.request("DELETE", "/v1/snapshots/" + s["id"])
    assert r.status == 204 and not r.body
    assert not tags(server)
    r = server.request("DELETE", "/v1/snapshots/" + s["id"])
    assert r.status == 404 and r.json()["code"] == "SNAPSHOT::NOT_FOUND", r
    assert server.get("/v1/snapshots/" + s["id"]).status == 404


def test_refusals(server, clean):
    box = server.create()["id"]
    assert snap(server, NO_SUCH, status=404).json()["code"] == "DOCKER::SANDBOX_NOT_FOUND"
    assert snap(server, box, {"name": ""}, 422).json()["detail"][0]["loc"] == ["body", "name"]
    assert snap(server, box, {"name": 1}, 422).json()["detail"][0]["type"] == "string_type"
    assert snap(server, box, "{", 422)
    assert server.request("POST", f"/v1/sandboxes/{box}/pause").status == 202
    assert snap(server, box, status=409).json()["code"] == "SNAPSHOT::INVALID_SOURCE_STATE"
    assert server.request("POST", f"/v1/sandboxes/{box}/resume").status == 202
    for q in ("page=0", "pageSize=201", "pageSize=x"):
        assert server.get("/v1/snapshots?" + q).status == 422, q
    r = server.request("POST", "/v1/sandboxes", {"snapshotId": NO_SUCH, "resourceLimits": {}, "timeout": 60})
    assert r.status == 404 and r.json()["code"] == "SNAPSHOT::NOT_FOUND", r
    made(server, box, "null")
    made(server, box, {"name": None})


def test_lists(server, clean):
    a, b = server.create()["id"], server.create()["id"]
    first = made(server, a, {"name": "x"})
    second = made(server, b, {"name": "x"})
    third = made(server, b)
    assert ids(server, "")[0] == [third, second, first]
    assert ids(server, "sandboxId=" + b)[0] == [third, second]
    assert ids(server, "sandboxId=")[0] == [third, second, first]
    assert ids(server, "name=x")[0] == [second, first]
    assert ids(server, "name=X")[0] == ids(server, "name=")[0] == []
    assert ids(server, "state=Ready&state=Failed")[0] == [third, second, first]
    assert ids(server, "state=ready")[0] == ids(server, "state=Creating")[0] == ids(server, "state=")[0] == []
    items, p = ids(server, "page=2&pageSize=2")
    assert items == [first]
    assert p == {"page": 2, "pageSize": 2, "totalItems": 3, "totalPages": 2, "hasNextPage": False}
    assert ids(server, "page=9")[0] == []


def test_a_restore(server, clean):
    box = server.create(env={"SECRET": "s3cret"}, metadata={"who": "me"})["id"]
    server.engine.exec("sandbox-" + box, "sh", "-c", "echo kept >/kept; mkdir -p /data; echo 1 >/data/x")
    snapshot = made(server, box)
    image = server.engine.image(f"{REPO}:{snapshot}")["Config"]
    if not dockerkit.IS_PEER:
        assert not [k for k, v in (image["Labels"] or {}).items() if k.startswith("opensandbox.io/") and v], image["Labels"]
        assert not [e for e in image["Env"] if e.startswith(("OPENSANDBOX_ID=", "EXECD_ACCESS_TOKEN=")) and not e.endswith("=")]
    assert server.request("DELETE", "/v1/sandboxes/" + box).status == 204
    r = server.request("POST", "/v1/sandboxes", {"snapshotId": snapshot, "resourceLimits": {}, "timeout": 600})
    assert r.status == 202, r
    new = r.json()
    assert new["entrypoint"] == ["tail", "-f", "/dev/null"]
    assert new["id"] != box and "metadata" not in new
    s = server.get("/v1/sandboxes/" + new["id"]).json()
    assert s["snapshotId"] == snapshot and "image" not in s and s["status"]["state"] == "Running"
    out = server.engine.exec("sandbox-" + new["id"], "cat", "/kept", "/data/x")
    assert "kept" in str(out), out
    r = server.request("DELETE", "/v1/snapshots/" + snapshot)  # in use
    assert r.status == 409 and r.json()["code"] == "SNAPSHOT::DELETE_CONFLICT", r
    assert server.get("/v1/snapshots/" + snapshot).json()["status"]["state"] == "Deleting"
    r = server.request("POST", "/v1/sandboxes", {"snapshotId": snapshot, "resourceLimits": {}, "timeout": 600})
    assert r.status == 409 and r.json()["code"] == "SNAPSHOT::NOT_READY", r
    assert server.request("DELETE", "/v1/sandboxes/" + new["id"]).status == 204
    if dockerkit.IS_PEER:
        assert server.request("DELETE", "/v1/snapshots/" + snapshot).status == 204
    else:
        wait_state(server, snapshot, None)  # by itself


@ours
def test_a_second_one_while_one_is_made(server, clean):
    box = server.create()["id"]
    server.engine.exec("sandbox-" + box, "dd", "if=/dev/urandom", "of=/big", "bs=1M", "count=64")
    first = snap(server, box).json()["id"]
    r = server.request("POST", f"/v1/sandboxes/{box}/snapshots")
    if r.status == 202:  # it was made already
        second = [r.json()["id"]]
    else:
        assert r.status == 409 and r.json()["code"] == "SNAPSHOT::INVALID_SOURCE_STATE", r
        assert server.request("DELETE", "/v1/snapshots/" + first).json()["code"] == "SNAPSHOT::INVALID_STATE"
        second = []
    for s in [first, *second]:
        assert wait_state(server, s, "Ready", "Failed") == "Ready"


@ours
def test_a_sandbox_is_deleted_while_it_is_committed(server, clean):
    box = server.create()["id"]
    server.engine.exec("sandbox-" + box, "dd", "if=/dev/urandom", "of=/big", "bs=1M", "count=64")
    s = snap(server, box).json()["id"]
    assert server.request("DELETE", "/v1/sandboxes/" + box).status == 204  # waits for it
    assert wait_state(server, s, "Ready", "Failed") == "Ready"


# ---- kill -9 ----

MAKING = ["snapshot-row", "snapshot-commit", "snapshot-committed", "snapshot-done"]
REMOVING = ["snapshot-delete-intent", "snapshot-delete-image", "snapshot-delete-row"]


@ours
@pytest.mark.parametrize("point", MAKING + REMOVING)
def test_killed_in_the_middle(docker, point):
    docker.image("busybox")
    census = dockerkit.Census(docker)
    with dockerkit.serve(docker) as d:
        box = d.create()["id"]
        snapshot = made(d, box) if point in REMOVING else None
        d.stop()
        d.env["COVE_CRASH_AT"] = point
        d.start()
        with pytest.raises((OSError, covekit.http.client.HTTPException)):
            if snapshot:
                d.request("DELETE", "/v1/snapshots/" + snapshot)
            else:
                snapshot = snap(d, box).json()["id"]  # may be answered before
            while True:
                d.get("/v1/snapshots")
        d.proc.wait(30)
        assert d.proc.returncode == -signal.SIGKILL
        del d.env["COVE_CRASH_AT"]
        d.start()
        items = d.get("/v1/snapshots").json()["items"]
        if point in REMOVING:
            assert not items and not tags(d)
        else:
            assert len(items) == 1 and (snapshot is None or items[0]["id"] == snapshot)
            want = {"snapshot-row": ["Failed"], "snapshot-commit": ["Failed"], "snapshot-committed": ["Ready"], "snapshot-done": ["Ready"]}[point]
            assert items[0]["status"]["state"] in want, items
            assert tags(d) == ([f"{REPO}:{items[0]['id']}"] if want == ["Ready"] else [])
            until(lambda: d.get("/v1/sandboxes/" + box).json()["status"]["state"] == "Running")
            assert d.request("DELETE", "/v1/snapshots/" + items[0]["id"]).status == 204
            assert not tags(d)
            made(d, box)  # the sandbox is as good as before
            d.request("DELETE", "/v1/snapshots/" + d.get("/v1/snapshots").json()["items"][0]["id"])
        d.delete(box)
    census.check()


# ---- stores ----

PEER_FILE = """
CREATE TABLE snapshots (id TEXT PRIMARY KEY, source_sandbox_id TEXT NOT NULL, name TEXT, description TEXT, restore_config TEXT NOT NULL,
 state TEXT NOT NULL, reason TEXT, message TEXT, last_transition_at TEXT, created_at TEXT NOT NULL, updated_at TEXT NOT NULL);
INSERT INTO snapshots VALUES('old','sb','n',NULL,'{"image": "%s:old"}','Ready','snapshot_runtime_ready','m','2026-06-01T02:03:04+00:00',
 '2026-06-01T02:03:04.120000+00:00','2026-06-01T02:03:04+00:00');
INSERT INTO snapshots VALUES('lost','sb',NULL,NULL,'{"image": null}','Creating','snapshot_accepted',NULL,NULL,
 '2026-06-01T02:03:05+00:00','2026-06-01T02:03:05+00:00');
""" % REPO


@ours
def test_an_existing_database(docker):
    docker.image("busybox")
    docker.engine.tag("cove-test/busybox", REPO, "old")
    d = dockerkit.serve(docker)
    db = sqlite3.connect(d.dir / "opensandbox.db")
    db.executescript(PEER_FILE)
    db.close()
    with d:
        items = d.get("/v1/snapshots").json()["items"]
        assert [(s["id"], s["status"]["state"], s["status"]["reason"]) for s in items] == [
            ("lost", "Failed", "snapshot_recovery_missing_image"), ("old", "Ready", "snapshot_runtime_ready")]
        assert items[1]["createdAt"] == "2026-06-01T02:03:04.120000Z" and items[1]["status"]["lastTransitionAt"] == "2026-06-01T02:03:04Z"
        r = d.request("POST", "/v1/sandboxes", {"snapshotId": "old", "resourceLimits": {}, "timeout": 60})
        assert r.status == 202, r
        d.delete(r.json()["id"])
        for s in items:
            assert d.request("DELETE", "/v1/snapshots/" + s["id"]).status == 204
        assert not tags(d)


class Postgres:
    """A server that lives as long as this object; see tests/with-postgres."""

    def __enter__(self):
        self.proc = subprocess.Popen([covekit.ROOT / "tests/with-postgres", "sh", "-c", 'echo "$COVE_TEST_PG"; read x'],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.dsn = self.proc.stdout.readline().strip()
        if not self.dsn.startswith("host="):
            pytest.skip(self.dsn or "postgresql cannot be started")
        return self

    def __exit__(self, *exc):
        self.proc.communicate("\n", timeout=60)


@ours
def test_postgresql(docker, tmp_path):
    docker.image("busybox")
    with Postgres() as pg, dockerkit.serve(docker, {"store": {"type": "postgresql"}},
                                           env={"OPENSANDBOX_STORE_POSTGRESQL_DSN": pg.dsn + " dbname=postgres"}) as d:
        box = d.create()["id"]
        first = made(d, box, {"name": "in pg"})
        d.stop()
        d.start()
        assert d.get("/v1/snapshots?name=in+pg&state=Ready").json()["items"][0]["id"] == first
        assert d.request("DELETE", "/v1/snapshots/" + first).status == 204
        # from a file into it
        file = tmp_path / "opensandbox.db"
        db = sqlite3.connect(file)
        db.executescript(PEER_FILE)
        db.close()
        for args, want in [(["--dry-run"], "would be migrated: 2\nskipped: 0"), ([], "migrated: 2\nskipped: 0"), ([], "migrated: 0\nskipped: 2")]:
            r = subprocess.run([covekit.BIN / "coved", "migrate-snapshots", "--from", file, "--to", pg.dsn + " dbname=postgres", *args],
                               capture_output=True, text=True)
            assert r.returncode == 0 and want in r.stdout, r
        assert [s["id"] for s in d.get("/v1/snapshots").json()["items"]] == ["lost", "old"]
        d.delete(box)
        assert "dbname=postgres" not in d.log.read_text()


# ---- renewal by use ----

def expiry(server, box):
    return server.get("/v1/sandboxes/" + box).json()["expiresAt"]


def proxied(server, box, **headers):
    return server.request("GET", f"/v1/sandboxes/{box}/proxy/44772/ping", headers=headers, key=None).status


RENEW = {"renew_intent": {"enabled": True, "min_interval_seconds": 1}}


@pytest.fixture(scope="module")
def renewing(docker):
    docker.image("busybox")
    with dockerkit.serve(docker, RENEW) as s:
        yield s


def test_a_proxied_request_renews(renewing):
    box = renewing.create(timeout=60, extensions={"access.renew.extend.seconds": "3600"})["id"]
    plain = renewing.create(timeout=60)["id"]
    before, before_plain = expiry(renewing, box), expiry(renewing, plain)
    proxied(renewing, plain)
    proxied(renewing, box, **{"OpenSandbox-Access-Renew": "skip"})
    assert expiry(renewing, box) == before
    proxied(renewing, box, **{"OpenSandbox-Access-Renew": "yes"})
    until(lambda: expiry(renewing, box) > before)
    assert expiry(renewing, plain) == before_plain
    for b in (box, plain):
        renewing.delete(b)


@ours
def test_an_intent_in_the_queue_renews(docker, tmp_path):
    if not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed")
    docker.image("busybox")
    port = covekit.free_port()
    redis = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", tmp_path,
                              "--requirepass", "hunter2"], stdout=subprocess.DEVNULL)
    settings = {"renew_intent": {"enabled": True, "redis.enabled": True, "redis.dsn": f"redis://:hunter2@127.0.0.1:{port}/2"}}

    def cli(*args):
        return subprocess.run(["redis-cli", "-p", str(port), "-a", "hunter2", "--no-auth-warning", "-n", "2", *args],
                              capture_output=True, text=True).stdout
    try:
        until(lambda: "PONG" in cli("PING"))
        with dockerkit.serve(docker, settings) as d:
            box = d.create(timeout=60, extensions={"access.renew.extend.seconds": "3600"})["id"]
            before = expiry(d, box)
            now = time.strftime("%Y-%m-%dT%H:%M:%S.123456789Z", time.gmtime())
            cli("LPUSH", "opensandbox:renew:intent", json.dumps({"sandbox_id": box, "observed_at": now, "port": 8080, "request_uri": "/"}))
            until(lambda: expiry(d, box) > before)
            d.delete(box)
            assert "hunter2" not in d.log.read_text()
    finally:
        redis.terminate()
        redis.wait()
