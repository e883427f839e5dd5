"""An opensandbox-server is replaced on a running machine: sandboxes that the official server (unmodified) has made are there
afterwards with everything a client knows of them, and can be used and deleted to the last volume. And the way back."""
import contextlib
import datetime
import os
import tempfile

import dockerkit
import peerkit
import pytest

import covekit

FIELDS = ("id", "image", "entrypoint", "metadata", "platform", "extensions", "createdAt", "expiresAt", "snapshotId")
POLICY = {"defaultAction": "deny", "egress": [{"action": "allow", "target": "example.org"}]}


def view(server, sandbox_id):
    r = server.get("/v1/sandboxes/" + sandbox_id)
    assert r.status == 200, r
    j = r.json()
    if "image" in j:  # the official server tells the first tag of the image, we the reference of the request
        j["image"]["uri"] = j["image"]["uri"].removesuffix(":latest")
    return {**{k: times(k, j.get(k)) for k in FIELDS}, "state": j["status"]["state"], "reason": j["status"].get("reason")}


def times(key, value):
    return datetime.datetime.fromisoformat(value) if key.endswith("At") and value else value


def renew(server, sandbox_id, hours):
    t = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0) + datetime.timedelta(hours=hours)
    r = server.request("POST", f"/v1/sandboxes/{sandbox_id}/renew-expiration", {"expiresAt": t.isoformat()})
    assert r.status == 200, r
    return t


@pytest.fixture
def home(docker):
    """What both servers share: directory, configuration, engine."""
    docker.image("busybox"), docker.image("egress"), docker.image("execd")
    census = dockerkit.Census(docker)
    covekit.STATE_BASE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="takeover-", dir=covekit.STATE_BASE) as d:
        os.chmod(d, 0o711)
        yield d
    for c in docker.engine.containers("opensandbox.io/id") + docker.engine.containers("opensandbox.io/egress-sidecar-for"):
        docker.engine.remove(c["Id"])
    census.check()


@contextlib.contextmanager
def running(server):
    """Started and stopped; its sandboxes live on."""
    server.start()
    try:
        yield server
    finally:
        server.stop()


def official(docker, home):
    return peerkit.PeerServer(docker, state=home, env={"OPENSANDBOX_INSECURE_SERVER": "YES"})


def ours(docker, home):
    return dockerkit.DockerDaemon(docker, {"runtime": {"execd_image": docker.image("execd")}}, state=home)


def test_sandboxes_of_the_official_server_go_on(docker, home):
    with running(official(docker, home)) as peer:
        ids = {
            "plain": peer.create(metadata={"team": "blue"}, env={"A": "b"}),
            "manual": peer.create(timeout=None),
            "renewed": peer.create(timeout=600),
            "patched": peer.create(metadata={"team": "blue", "old": "x"}),
            "extended": peer.create(extensions={"access.renew.extend.seconds": "600", "opensandbox.extensions.k": "v"}, platform={"os": "linux", "arch": "amd64"}),
            "guarded": peer.create(networkPolicy=POLICY),
            "paused": peer.create(),
            "ended": peer.create(entrypoint=["sh", "-c", "exit 4"]),
            "volume": peer.create(volumes=[{"name": "v", "mountPath": "/v", "pvc": {"claimName": "takeover-v", "deleteOnSandboxTermination": True}}]),
        }
        ids = {k: v["id"] for k, v in ids.items()}
        renew(peer, ids["renewed"], 5)
        assert peer.request("PATCH", f"/v1/sandboxes/{ids['patched']}/metadata", {"team": "red", "old": None}).status == 200
        assert peer.request("POST", f"/v1/sandboxes/{ids['paused']}/pause").status == 202
        dockerkit_wait(lambda: view(peer, ids["ended"])["state"] == "Failed")
        before = {k: view(peer, i) for k, i in ids.items()}
        endpoints = {k: peer.get(f"/v1/sandboxes/{i}/endpoints/44772").json()["endpoint"].split(":")[-1] for k, i in ids.items()}
        guard = peer.get(f"/v1/sandboxes/{ids['guarded']}/endpoints/18080").json()["headers"]
    with running(ours(docker, home)) as d:
        after = {k: view(d, i) for k, i in ids.items()}
        assert after == before
        assert {s["id"] for s in d.get("/v1/sandboxes?pageSize=100").json()["items"]} == set(ids.values())
        for k, i in ids.items():
            assert d.get(f"/v1/sandboxes/{i}/endpoints/44772").json()["endpoint"].split(":")[-1] == endpoints[k], k
        assert d.get(f"/v1/sandboxes/{ids['guarded']}/endpoints/18080").json()["headers"] == guard
        assert d.get(f"/v1/sandboxes/{ids['guarded']}/networkpolicy").status == 200
        assert d.get(f"/v1/sandboxes/{ids['plain']}/proxy/44772/ping").status == 200
        assert d.request("POST", f"/v1/sandboxes/{ids['paused']}/resume").status == 202
        assert d.request("POST", f"/v1/sandboxes/{ids['guarded']}/pause").status == 202
        assert d.request("POST", f"/v1/sandboxes/{ids['guarded']}/resume").status == 202
        assert d.get(f"/v1/sandboxes/{ids['paused']}/proxy/44772/ping").status == 200
        r = d.request("POST", f"/v1/sandboxes/{ids['manual']}/renew-expiration", {"expiresAt": "2040-01-01T00:00:00Z"})
        assert r.status == 409, r
        d.kill()  # what was taken over is our own from now on
        d.start()
        assert view(d, ids["patched"]) == before["patched"]
        assert "takeover-v" in docker.engine.volumes()
        for i in ids.values():
            d.delete(i)
        assert "takeover-v" not in docker.engine.volumes()


def test_the_way_back(docker, home):
    with running(ours(docker, home)) as d:
        i = d.create(metadata={"team": "blue"}, timeout=600)["id"]
        os.makedirs(home + "/.opensandbox/metadata", exist_ok=True)  # as an official server has left it
        until = renew(d, i, 7)
        mine = view(d, i)
    with running(official(docker, home)) as peer:
        theirs = view(peer, i)
        assert theirs == {**mine, "expiresAt": until, "createdAt": theirs["createdAt"]}  # the container's, a moment later
        assert peer.get(f"/v1/sandboxes/{i}/proxy/44772/ping").status == 200
        assert peer.request("DELETE", f"/v1/sandboxes/{i}").status == 204


def dockerkit_wait(ok, timeout=10):
    import time
    deadline = time.monotonic() + timeout * covekit.SLOW
    while not ok():
        assert time.monotonic() < deadline
        time.sleep(0.05)
