"""The life of sandboxes on the Docker driver: look-ups, lists, metadata, pause, renewal, expiry, snapshots, endpoints, the
proxy and diagnostics (lifecycle.md §5 to §7)."""
import contextlib
import datetime
import json
import shutil
import threading
import time
import urllib.request
import uuid

import dockerkit
import pytest
from scripted_engine import ScriptedEngine
from lifekit import by_hand, iso, made, ours, renew, scripted, server, state, wait_for, when  # noqa: F401 (fixtures)


# ---- get, list ----

def test_states_follow_the_container(server, made):
    ok, bad, killed = made(entrypoint=["sh", "-c", "sleep 1"]), made(entrypoint=["sh", "-c", "sleep 1; exit 7"]), made()
    server.engine.call("POST", f"/containers/sandbox-{killed}/kill")
    want = {ok: ("Terminated", "CONTAINER_EXITED"), bad: ("Failed", "CONTAINER_EXITED_ERROR"), killed: ("Failed", "CONTAINER_EXITED_ERROR")}
    for i, (st, reason) in want.items():
        s = wait_for(lambda: (s := server.get("/v1/sandboxes/" + i).json())["status"]["state"] != "Running" and s)
        assert (s["status"]["state"], s["status"]["reason"]) == (st, reason)
        assert when(s["status"]["lastTransitionAt"]) > when(s["createdAt"])
    assert "7" in server.get("/v1/sandboxes/" + bad).json()["status"]["message"]
    # the container stays until it is deleted, its endpoint too
    assert server.engine.exists("sandbox-" + bad) and server.get(f"/v1/sandboxes/{bad}/endpoints/44772").status == 200


def test_a_container_that_other_tools_paused_or_removed(server, made):
    i, j = made(), made()
    server.engine.call("POST", f"/containers/sandbox-{i}/pause")
    wait_for(lambda: state(server, i) == "Paused")
    server.engine.call("POST", f"/containers/sandbox-{i}/unpause")
    wait_for(lambda: state(server, i) == "Running")
    server.engine.remove("sandbox-" + j)
    wait_for(lambda: state(server, j) in (404, "Terminated", "Failed"))
    if dockerkit.IS_PEER:
        assert state(server, j) == 404


def test_unknown_ids(server):
    for i in (str(uuid.uuid4()), "x", "sandbox-x", "a%20b"):
        r = server.get("/v1/sandboxes/" + i)
        assert r.status == 404 and r.json()["code"] == "DOCKER::SANDBOX_NOT_FOUND", r
    for m, p in (("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"), ("GET", "/endpoints/80"), ("POST", "/snapshots"), ("GET", "/diagnostics/logs")):
        assert server.request(m, "/v1/sandboxes/" + str(uuid.uuid4()) + p).status == 404, (m, p)


def test_list_filters_sorts_and_pages(server, made):
    tag = uuid.uuid4().hex
    ids = [made(metadata={"tag": tag, "n": str(n), "example.com/x": tag}) for n in range(3)]
    server.request("POST", f"/v1/sandboxes/{ids[1]}/pause")
    q = f"/v1/sandboxes?metadata=tag%3D{tag}"
    got = server.get(q).json()
    assert [s["id"] for s in got["items"]] == ids[::-1]
    assert got["pagination"] == {"page": 1, "pageSize": 20, "totalItems": 3, "totalPages": 1, "hasNextPage": False}
    assert [s["id"] for s in server.get(q + "&state=paused&state=Failed").json()["items"]] == [ids[1]]
    assert [s["id"] for s in server.get(q + "%26n%3D2").json()["items"]] == [ids[2]]
    for key in ("example.com%2Fx", "example.com%252Fx"):  # clients encode once or twice
        assert [s["id"] for s in server.get(f"/v1/sandboxes?metadata={key}%3D{tag}").json()["items"]] == ids[::-1]
    page = server.get(q + "&page=2&pageSize=2").json()
    assert [s["id"] for s in page["items"]] == [ids[0]] and page["pagination"]["totalPages"] == 2 and not page["pagination"]["hasNextPage"]
    assert server.get(q + "&page=9").json()["items"] == []
    assert server.get("/v1/sandboxes?metadata=nonsense").json()["code"] == "INVALID_METADATA_FORMAT"
    assert server.get("/v1/sandboxes?pageSize=201").status == 422 and server.get("/v1/sandboxes?page=0").status == 422


def test_a_vanished_container_does_not_spoil_the_list(scripted, engine):
    a, b = scripted.create()["id"], scripted.create()["id"]
    gone = engine.engine.sandbox(b)["Id"]
    engine.on("GET", f"/containers/({gone}|sandbox-{b})/json", status=404, message="No such container")
    r = scripted.get("/v1/sandboxes?pageSize=200")
    assert r.status == 200 and a in {s["id"] for s in r.json()["items"]}
    engine.clear()
    scripted.delete(a), scripted.delete(b)


@ours
def test_a_list_asks_the_engine_for_no_single_container(scripted, engine):
    ids = [scripted.create()["id"] for _ in range(3)]
    engine.clear()
    for _ in range(3):
        assert len(scripted.get("/v1/sandboxes?pageSize=200").json()["items"]) >= 3
        scripted.get("/v1/sandboxes/" + ids[0])
    assert not engine.seen("GET", "/containers/[^/]+/json")[3:]
    for i in ids:
        scripted.delete(i)


def test_created_at_of_a_container_without_a_time(docker):
    with ScriptedEngine(docker) as e:
        i = by_hand(docker)
        try:
            e.on("GET", "/containers/[^/]+/json", edit=lambda j: {**j, "Created": "0001-01-01T00:00:00Z"})
            with dockerkit.serve(e) as s:
                got = s.get("/v1/sandboxes/" + i).json()
                assert abs((when(got["createdAt"]) - datetime.datetime.now(datetime.timezone.utc)).total_seconds()) < 60
                assert got["createdAt"].endswith("Z")
        finally:
            docker.engine.remove("sandbox-" + i)


# ---- metadata ----

def test_metadata_patch(server, made):
    i = made(metadata={"a": "1", "b": "2"})
    path = f"/v1/sandboxes/{i}/metadata"
    got = server.request("PATCH", path, {"a": None, "b": "3", "c": "4", "absent": None})
    assert got.status == 200 and got.json()["metadata"] == {"b": "3", "c": "4"} and got.json()["id"] == i
    assert server.request("PATCH", path, {"d": "5"}).json()["metadata"] == {"b": "3", "c": "4", "d": "5"}
    assert server.request("PATCH", path, {}).json()["metadata"] == {"b": "3", "c": "4", "d": "5"}
    r = server.request("PATCH", path, {"opensandbox.io/id": None})
    assert r.status == 400 and r.json()["code"] == "INVALID_METADATA_LABEL"
    r = server.request("PATCH", path, {"bad key": "x"})
    assert r.status == 400 and r.json()["code"] == "SANDBOX::INVALID_METADATA_LABEL"
    assert server.request("PATCH", path, {"bad key": None}).status == 200
    assert [s["id"] for s in server.get("/v1/sandboxes?metadata=d%3D5").json()["items"]] == [i]
    assert "metadata" not in server.request("PATCH", path, {"b": None, "c": None, "d": None}).json()
    assert "metadata" not in server.get("/v1/sandboxes/" + i).json()


@ours
def test_metadata_patches_at_once_all_count(server, made):
    i = made()
    threads = [threading.Thread(target=server.request, args=("PATCH", f"/v1/sandboxes/{i}/metadata", {f"k{n}": "v"})) for n in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert server.get("/v1/sandboxes/" + i).json()["metadata"] == {f"k{n}": "v" for n in range(12)}


# ---- pause, resume, delete ----

def test_pause_and_resume(server, made):
    i = made()
    server.run(i, "(n=0; while :; do n=$((n+1)); echo $n > /tmp/beat; sleep 0.05; done) >/dev/null 2>&1 &")
    before = server.get(f"/v1/sandboxes/{i}/endpoints/44772").json()
    r = server.request("POST", f"/v1/sandboxes/{i}/pause")
    assert r.status == 202 and r.body == b"" and server.engine.sandbox(i)["State"]["Paused"]
    got = server.get("/v1/sandboxes/" + i).json()["status"]
    assert (got["state"], got["reason"]) == ("Paused", "CONTAINER_PAUSED")
    r = server.request("POST", f"/v1/sandboxes/{i}/pause")
    assert r.status == 409 and r.json()["code"] == "DOCKER::SANDBOX_NOT_RUNNING" and r.json()["message"] == "Sandbox is not in a running state."
    r = server.request("POST", f"/v1/sandboxes/{i}/resume")
    assert r.status == 202 and r.body == b"" and state(server, i) == "Running"
    r = server.request("POST", f"/v1/sandboxes/{i}/resume")
    assert r.status == 409 and r.json()["code"] == "DOCKER::SANDBOX_NOT_PAUSED" and r.json()["message"] == "Sandbox is not in a paused state."
    assert server.get(f"/v1/sandboxes/{i}/endpoints/44772").json() == before
    a = server.run(i, "cat /tmp/beat; sleep 0.3; cat /tmp/beat")[0].split()
    assert a[0] != a[1], "processes go on after a pause"


def test_pause_of_an_ended_sandbox(server, made):
    i = made(entrypoint=["true"])
    wait_for(lambda: state(server, i) == "Terminated")
    assert server.request("POST", f"/v1/sandboxes/{i}/pause").status == 409
    server.delete(i)


def test_engine_refuses_pause_and_resume(scripted, engine):
    i = scripted.create()["id"]
    engine.on("POST", "/containers/[^/]*/pause", status=500, message="freezer broke")
    r = scripted.request("POST", f"/v1/sandboxes/{i}/pause")
    assert r.status == 500 and r.json()["code"] == "DOCKER::SANDBOX_PAUSE_FAILED" and "freezer broke" in r.json()["message"]
    assert state(scripted, i) == "Running"
    scripted.request("POST", f"/v1/sandboxes/{i}/pause") and engine.clear()
    assert scripted.request("POST", f"/v1/sandboxes/{i}/pause").status == 202
    engine.on("POST", "/containers/[^/]*/unpause", status=500, message="thaw broke")
    r = scripted.request("POST", f"/v1/sandboxes/{i}/resume")
    assert r.status == 500 and r.json()["code"] == "DOCKER::SANDBOX_RESUME_FAILED"
    assert state(scripted, i) == "Paused"
    scripted.delete(i)  # a paused one too


def test_delete_in_every_state(server, made):
    a, b, c = made(), made(), made(entrypoint=["true"])
    server.request("POST", f"/v1/sandboxes/{a}/pause")
    wait_for(lambda: state(server, c) == "Terminated")
    for i in (a, b, c):
        r = server.request("DELETE", "/v1/sandboxes/" + i)
        assert r.status == 204 and r.body == b""
        assert not server.engine.exists("sandbox-" + i)
        assert server.request("DELETE", "/v1/sandboxes/" + i).status == 404


def test_delete_that_fails_leaves_everything_for_the_retry(scripted, engine):
    i = scripted.create(networkPolicy={})["id"]
    engine.on("DELETE", "/containers/[^/]*", status=500, message="driver broke")
    r = scripted.request("DELETE", "/v1/sandboxes/" + i)
    assert r.status == 500 and r.json()["code"] == "DOCKER::SANDBOX_DELETE_FAILED", r
    assert engine.engine.exists("sandbox-egress-" + i) and f"opensandbox-runtime-{i}" in engine.engine.volumes()
    engine.clear()
    scripted.delete(i)
    assert not engine.engine.exists("sandbox-egress-" + i) and f"opensandbox-runtime-{i}" not in engine.engine.volumes()


@ours
def test_a_removal_in_progress_counts_as_removed(scripted, engine):
    i = scripted.create()["id"]

    def in_progress(r):
        engine.engine.remove("sandbox-" + i)
        return 409, {"message": f"removal of container sandbox-{i} is already in progress"}
    engine.on("DELETE", "/containers/[^/]*", reply=in_progress, times=1)
    scripted.delete(i)


def test_deletes_at_once(server, made):
    i = made()
    got, threads = [], [threading.Thread(target=lambda: got.append(server.request("DELETE", "/v1/sandboxes/" + i).status)) for _ in range(5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if not dockerkit.IS_PEER:  # a 500 for who comes while it is removed
        assert set(got) <= {204, 404}, got
    assert 204 in got and not server.engine.exists("sandbox-" + i)


# ---- renewal, expiry ----

def test_renew(server, made):
    i = made(timeout=600)
    at = iso(3600)
    r = server.request("POST", f"/v1/sandboxes/{i}/renew-expiration", {"expiresAt": at})
    assert r.status == 200 and when(r.json()["expiresAt"]) == when(at)
    assert when(server.get("/v1/sandboxes/" + i).json()["expiresAt"]) == when(at)
    assert renew(server, i, 60).status == 200, "a renewal may shorten"
    assert renew(server, i, 10**6).status == 200, "and is not bounded by the maximum of creates"
    r = renew(server, i, -5)
    assert r.status == 400 and r.json()["code"] == "DOCKER::INVALID_EXPIRATION"
    local = "2099-01-01T02:00:00+02:00"
    assert server.request("POST", f"/v1/sandboxes/{i}/renew-expiration", {"expiresAt": local}).json()["expiresAt"] == "2099-01-01T00:00:00Z"
    assert server.request("POST", f"/v1/sandboxes/{i}/renew-expiration", {}).status == 422


def test_renew_of_a_manual_one(server, made):
    i = made(timeout=None)
    r = renew(server, i, 600)
    assert r.status == 409 and r.json()["code"] == "DOCKER::INVALID_EXPIRATION"
    assert r.json()["message"] == f"Sandbox {i} does not have automatic expiration enabled."


def test_expiry_removes_all_of_it(server, docker):
    census = dockerkit.Census(docker)
    i = server.create(networkPolicy={}, volumes=[{"name": "v", "pvc": {"claimName": "exp-1", "deleteOnSandboxTermination": True}, "mountPath": "/v"}])["id"]
    assert renew(server, i, 1.5).status == 200
    wait_for(lambda: state(server, i) == 404)
    census.check()


def test_expiry_of_a_stopped_and_of_a_paused_one(server, docker):
    census = dockerkit.Census(docker)
    a, b = server.create(entrypoint=["true"], networkPolicy={})["id"], server.create()["id"]
    wait_for(lambda: state(server, a) == "Terminated")
    server.request("POST", f"/v1/sandboxes/{b}/pause")
    for i in (a, b):
        assert renew(server, i, 1).status == 200
    wait_for(lambda: state(server, a) == 404 and state(server, b) == 404)
    census.check()


def test_expiry_of_a_vanished_one_drops_what_belonged_to_it(server, docker):
    census = dockerkit.Census(docker)
    i = server.create(networkPolicy={})["id"]
    assert renew(server, i, 2.5).status == 200
    docker.engine.remove("sandbox-" + i)
    wait_for(lambda: not docker.engine.exists("sandbox-egress-" + i))
    census.check()


def test_renewed_just_before_it_ends(server, made):
    i = made()
    assert renew(server, i, 1).status == 200
    assert renew(server, i, 300).status == 200
    time.sleep(1.5)
    assert state(server, i) == "Running" and server.run(i, "echo on")[0] == "on\n"


@ours
def test_renewals_and_expiry_exclude_each_other(server, docker):
    """Whoever gets 200 for a renewal has a sandbox that lives until then; else it is gone (404)."""
    ids = [server.create()["id"] for _ in range(4)]
    due = time.time() + 2
    for i in ids:
        assert renew(server, i, due - time.time()).status == 200
    answers = {}
    for n, i in enumerate(ids):
        time.sleep(max(0, due - 0.03 + n * 0.02 - time.time()))
        answers[i] = renew(server, i, 120).status
    time.sleep(1.5)
    for i, status in answers.items():
        assert status in (200, 404), answers
        if status == 200:
            assert state(server, i) == "Running", "a renewal was acknowledged and the sandbox is gone"
            server.delete(i)
        else:
            assert state(server, i) == 404


# ---- snapshots ----

def snapshot(server, i, **body):
    r = server.request("POST", f"/v1/sandboxes/{i}/snapshots", body or None)
    assert r.status == 202, r
    s = r.json()
    assert r.headers["Location"] == "/v1/snapshots/" + s["id"] and s["status"]["state"] == "Creating" and s["sandboxId"] == i
    return wait_for(lambda: (x := server.get("/v1/snapshots/" + s["id"]).json())["status"]["state"] != "Creating" and x)


def test_snapshot_and_restore(server, made, docker):
    i = made(env={"SECRET_OF_MINE": "s3cr3t"}, metadata={"k": "v"})
    server.run(i, "echo precious > /root/file")
    s = snapshot(server, i, name="first")
    assert s["status"]["state"] == "Ready" and s["status"]["reason"] == "snapshot_runtime_ready" and s["name"] == "first"
    assert state(server, i) == "Running"
    r = server.request("POST", "/v1/sandboxes", {"snapshotId": s["id"], "resourceLimits": {}, "timeout": 600})
    assert r.status == 202, r
    j = r.json()["id"]
    assert r.json()["entrypoint"] == ["tail", "-f", "/dev/null"]
    got = server.get("/v1/sandboxes/" + j).json()
    assert got["snapshotId"] == s["id"] and "image" not in got and got["expiresAt"]
    assert dockerkit.IS_PEER or "metadata" not in got  # it shows the labels of the committed image
    assert server.engine.sandbox(j)["Config"]["Labels"]["opensandbox.io/snapshot-id"] == s["id"]
    assert server.run(j, "cat /root/file")[0] == "precious\n"
    assert server.get("/v1/snapshots?name=first").json()["items"][0]["id"] == s["id"]
    assert server.get("/v1/snapshots?name=First").json()["items"] == []
    assert [x["id"] for x in server.get(f"/v1/snapshots?sandboxId={i}&state=Ready").json()["items"]] == [s["id"]]
    assert server.get(f"/v1/snapshots?sandboxId={i}&state=ready").json()["items"] == []
    r = server.request("DELETE", "/v1/snapshots/" + s["id"])
    assert r.status == 409 and r.json()["code"] == "SNAPSHOT::DELETE_CONFLICT", r
    server.delete(j)
    wait_for(lambda: server.request("DELETE", "/v1/snapshots/" + s["id"]).status in (204, 404))
    assert server.get("/v1/snapshots/" + s["id"]).status == 404
    wait_for(lambda: not docker.engine.has_image("opensandbox-snapshots:" + s["id"]))


@ours
def test_snapshots_carry_no_labels_and_secrets_of_ours(server, made, docker):
    i = made(env={"SECRET_OF_MINE": "s3cr3t"}, metadata={"k": "v"}, networkPolicy={})
    s = snapshot(server, i)
    config = docker.engine.image("opensandbox-snapshots:" + s["id"])["Config"]
    assert not [k for k, v in (config["Labels"] or {}).items() if v and k.startswith(("opensandbox.io/", "cove."))]
    tokens = [v for p in (44772, 18080) for v in server.get(f"/v1/sandboxes/{i}/endpoints/{p}").json().get("headers", {}).values()]
    assert tokens and not [t for t in tokens if t in json.dumps(config)]
    assert "OPENSANDBOX_ID=" + i not in config["Env"]
    assert server.request("DELETE", "/v1/snapshots/" + s["id"]).status == 204


def test_snapshot_needs_a_running_sandbox(server, made):
    i = made()
    server.request("POST", f"/v1/sandboxes/{i}/pause")
    r = server.request("POST", f"/v1/sandboxes/{i}/snapshots")
    assert r.status == 409 and r.json()["code"] == "SNAPSHOT::INVALID_SOURCE_STATE"
    assert server.request("POST", f"/v1/sandboxes/{i}/snapshots", {"name": ""}).status == 422


def test_failing_snapshot(scripted, engine):
    i = scripted.create()["id"]
    engine.on("POST", "/commit", status=500, message="no space left on device")
    s = snapshot(scripted, i)
    assert (s["status"]["state"], s["status"]["reason"]) == ("Failed", "snapshot_runtime_failed") and "no space left" in s["status"]["message"]
    r = scripted.request("POST", "/v1/sandboxes", {"snapshotId": s["id"], "resourceLimits": {}, "timeout": 600})
    assert r.status == 409 and r.json()["code"] == "SNAPSHOT::NOT_READY"
    assert scripted.request("DELETE", "/v1/snapshots/" + s["id"]).status == 204
    scripted.delete(i)


def test_snapshot_whose_image_is_gone(server, made, docker):
    i = made()
    s = snapshot(server, i)
    docker.engine.remove_image("opensandbox-snapshots:" + s["id"])
    r = server.request("POST", "/v1/sandboxes", {"snapshotId": s["id"], "resourceLimits": {}, "timeout": 600})
    assert r.status == 500 and r.json()["code"] == "DOCKER::SANDBOX_IMAGE_PULL_FAILED", r
    assert server.request("DELETE", "/v1/snapshots/" + s["id"]).status == 204


def test_snapshot_under_way_at_a_kill(docker):
    with ScriptedEngine(docker) as e:
        s = dockerkit.serve(e).start()
        try:
            i = s.create()["id"]
            gate = threading.Event()
            e.on("POST", "/commit", gate=gate)
            r = s.request("POST", f"/v1/sandboxes/{i}/snapshots").json()
            wait_for(lambda: e.seen("POST", "/commit"))
            assert s.request("DELETE", "/v1/snapshots/" + r["id"]).json()["code"] == "SNAPSHOT::INVALID_STATE"
            s.kill()
            gate.set()
            e.clear()
            s.start()
            got = wait_for(lambda: (x := s.get("/v1/snapshots/" + r["id"]).json())["status"]["state"] != "Creating" and x)
            assert got["status"]["state"] in ("Ready", "Failed") and got["status"]["reason"].startswith("snapshot_recovery"), got
            assert s.request("DELETE", "/v1/snapshots/" + r["id"]).status == 204
            s.delete(i)
        finally:
            s.close()
        for t in docker.engine.tags():
            if t.startswith("opensandbox-snapshots"):
                docker.engine.remove_image(t)


# ---- endpoints, proxy ----

def test_endpoint_forms(server, made):
    i = made()
    labels = server.engine.sandbox(i)["Config"]["Labels"]
    agent, http = labels["opensandbox.io/embedding-proxy-port"], labels["opensandbox.io/http-port"]
    get = lambda p, q="": server.get(f"/v1/sandboxes/{i}/endpoints/{p}{q}")  # noqa: E731
    assert get(44772).json()["endpoint"] == f"127.0.0.1:{agent}/proxy/44772"
    assert get(8080).json()["endpoint"] == f"127.0.0.1:{http}"
    assert get(5000).json()["endpoint"] == f"127.0.0.1:{agent}/proxy/5000"
    assert get(5000, "?use_server_proxy=true").json()["endpoint"] == f"127.0.0.1:{server.port}/v1/sandboxes/{i}/proxy/5000"
    assert server.get(f"/sandboxes/{i}/endpoints/5000?use_server_proxy=yes").json()["endpoint"] == f"127.0.0.1:{server.port}/sandboxes/{i}/proxy/5000"
    r = get(5000, "?expires=99999999999")
    assert r.status == 400 and r.json()["code"] == "SANDBOX::API_NOT_SUPPORTED" and "not supported" in r.json()["message"]
    r = get(5000, "?expires=99999999999&use_server_proxy=true")
    assert r.status == 400 and r.json()["code"] == "SANDBOX::INVALID_PARAMETER"
    for p in (0, 65536):
        r = get(p)
        assert r.status == 400 and r.json()["code"] == "DOCKER::INVALID_PORT"
    assert get("x").status == 422
    assert "OPEN-SANDBOX-ORIGIN" not in get(80).headers


def test_eip_is_the_public_host(docker):
    with dockerkit.serve(docker, {"server": {"eip": "sandbox.example.com"}}) as s:
        i = s.create()["id"]
        port = docker.engine.sandbox(i)["Config"]["Labels"]["opensandbox.io/http-port"]
        assert s.get(f"/v1/sandboxes/{i}/endpoints/8080").json()["endpoint"] == f"sandbox.example.com:{port}"
        e = s.get(f"/v1/sandboxes/{i}/endpoints/8080?use_server_proxy=true").json()["endpoint"]
        assert e.startswith("sandbox.example.com") and e.endswith(f"/sandboxes/{i}/proxy/8080")
        if not dockerkit.IS_PEER:
            assert e.startswith(f"sandbox.example.com:{s.port}/")


def test_broken_port_label(docker):
    i = by_hand(docker, **{"opensandbox.io/embedding-proxy-port": "99999", "opensandbox.io/http-port": "x"})
    try:
        with dockerkit.serve(docker) as s:
            for p in (8080, 44772):
                r = s.get(f"/v1/sandboxes/{i}/endpoints/{p}")
                assert r.status == 500 and r.json()["code"] == "DOCKER::NETWORK_MODE_ENDPOINT_UNAVAILABLE", r
    finally:
        docker.engine.remove("sandbox-" + i)


def test_services_through_both_ways(server, made):
    i = made()
    server.run(i, "mkdir /w; echo page > /w/index.html; busybox httpd -p 8080 -h /w; busybox httpd -p 9000 -h /w")
    for port in (8080, 9000):
        for q in ("", "?use_server_proxy=true"):
            ep = server.get(f"/v1/sandboxes/{i}/endpoints/{port}{q}").json()
            r = urllib.request.urlopen(urllib.request.Request(f"http://{ep['endpoint']}/index.html", headers=ep.get("headers", {})), timeout=10)
            assert r.read() == b"page\n", (port, q)
    r = server.get(f"/v1/sandboxes/{i}/proxy/9999/", key=None)
    assert r.status == 502 and r.json()["code"] == "BACKEND_CONNECTION_FAILED"
    assert server.get(f"/v1/sandboxes/{uuid.uuid4()}/proxy/80/", key=None).status == 404


def test_proxy_by_published_ports(docker):
    with dockerkit.serve(docker, {"proxy": {"resolve_internal": False}}) as s:
        i = s.create()["id"]
        s.run(i, "mkdir /w; echo page > /w/index.html; busybox httpd -p 8080 -h /w; busybox httpd -p 9000 -h /w")
        for port in (8080, 9000):
            assert s.get(f"/v1/sandboxes/{i}/proxy/{port}/index.html").body == b"page\n"


def test_a_restarted_container_is_found_again(server, made):
    i = made(image=server.docker.image("busybox"))
    server.engine.call("POST", f"/containers/sandbox-{i}/restart?t=0")
    wait_for(lambda: state(server, i) == "Running")

    def answers():
        with contextlib.suppress(AssertionError, ValueError, KeyError):
            return server.run(i, "echo up")[0] == "up\n"
    wait_for(answers)


# ---- diagnostics ----

def test_diagnostics_text(server, made):
    i = made(entrypoint=["sh", "-c", "echo out; echo err >&2; exec sleep 1000"], env={"API_TOKEN": "hide-me", "PLAIN": "show-me"}, networkPolicy={})
    base = f"/v1/sandboxes/{i}/diagnostics/"
    logs = wait_for(lambda: (r := server.get(base + "logs")) and b"err" in r.body and r)
    assert logs.headers["Deprecation"] == "true" and logs.headers["Content-Type"] == "text/plain; charset=utf-8"
    lines = [l.split(" ", 1)[1] for l in logs.body.decode().splitlines() if "execd" not in l]  # the agent's own lines are in between
    assert sorted(lines) == ["err", "out"]
    assert len(server.get(base + "logs?tail=1").body.splitlines()) == 1
    look = server.get(base + "inspect").body.decode()
    assert server.engine.sandbox(i)["Id"][:12] in look and "sandbox-" + i in look and "hide-me" not in look and "show-me" in look
    if not dockerkit.IS_PEER:
        assert server.engine.sandbox(i)["Config"]["Labels"]["opensandbox.io/egress-auth-token"] not in look
    assert "running" in server.get(base + "events").body.decode().lower()
    s = server.get(base + "summary").body.decode()
    assert "INSPECT" in s and "EVENTS" in s and "LOGS" in s and i in s and "=" * 72 in s
    assert server.get(base + "logs?tail=0").status == 422


def test_diagnostics_with_a_scope(scripted, engine):
    server, i = scripted, scripted.create()["id"]
    engine.on("GET", "/containers/[^/]*/logs", status=200, body=b"")
    base = f"/v1/sandboxes/{i}/diagnostics/"
    got = server.get(base + "logs?scope=%20Container").json()
    assert got["sandboxId"] == i and got["kind"] == "logs" and got["scope"] == "container" and got["delivery"] == "inline"
    assert got["content"] == "(no logs)" and got["contentLength"] == 9 and got["truncated"] is False and "warnings" not in got
    got = server.get(base + "events?scope=all").json()
    assert got["kind"] == "events" and got["warnings"] and "Deprecation" not in server.get(base + "events?scope=all").headers
    r = server.get(base + "logs?scope=")
    assert r.status == 400 and r.json()["code"] == "DIAGNOSTICS_SCOPE_UNSUPPORTED" and "container, all" in r.json()["message"]
    engine.clear()
    engine.on("GET", "/containers/[^/]*/logs", status=500, message="log driver broke")
    r = server.get(base + "logs?scope=container")
    assert r.status == 500 and r.json()["code"] == "DOCKER::SANDBOX_QUERY_FAILED"
    server.delete(i)


# ---- what a Docker server answers to the rest ----

def test_pools_and_templates(server):
    pool = {"name": "p", "template": {}, "capacitySpec": {"bufferMax": 1, "bufferMin": 0, "poolMax": 1, "poolMin": 0}}
    for m, p, b in (("POST", "/v1/pools", pool), ("GET", "/v1/pools", None), ("GET", "/v1/pools/p", None),
                    ("PUT", "/pools/p", {"capacitySpec": pool["capacitySpec"]}), ("DELETE", "/v1/pools/p", None)):
        r = server.request(m, p, b)
        assert r.status == 501 and r.json()["code"] == "KUBERNETES::POOL_NOT_SUPPORTED", (m, p, r)
    assert server.request("POST", "/v1/pools", {}).status == 422
    for m, p, b in (("POST", "/v1/templates", {"image": "a", "publish": "b"}), ("GET", "/v1/templates", None), ("GET", "/v1/templates/t", None), ("DELETE", "/v1/templates/t", None)):
        r = server.request(m, p, b)
        assert r.status == 501 and r.json()["code"] == "FSB::API_NOT_SUPPORTED", (m, p, r)


def test_metrics_events_and_version(server):
    e = {"eventType": "sandbox.create", "createDurationMs": 5, "success": True}
    assert server.request("POST", "/v1/metrics/events", e).status == 204
    assert server.request("POST", "/v1/metrics/events", {}).status == 422
    assert server.request("POST", "/v1/metrics/events", e, key=None).status == 401
    assert "version" in server.get("/version", key=None).json() and server.get("/health", key=None).json() == {"status": "healthy"}


def left(server, i):
    return (when(server.get("/v1/sandboxes/" + i).json()["expiresAt"]) - datetime.datetime.now(datetime.timezone.utc)).total_seconds()


def test_renew_on_access(docker):
    with dockerkit.serve(docker, {"renew_intent": {"enabled": True, "min_interval_seconds": 1}}) as s:
        i = s.create(timeout=60, extensions={"access.renew.extend.seconds": "3600"}, entrypoint=["busybox", "httpd", "-f", "-p", "8080"])["id"]
        plain = s.create(timeout=60, entrypoint=["busybox", "httpd", "-f", "-p", "8080"])["id"]
        ask = lambda x, **h: s.get(f"/v1/sandboxes/{x}/proxy/8080/", key=None, headers=h).status  # noqa: E731
        wait_for(lambda: ask(plain) == 404 and ask(i, **{"OpenSandbox-Access-Renew": "skip"}) == 404)
        time.sleep(0.3)
        assert left(s, i) < 61 and left(s, plain) < 61, "nobody asked for a renewal"
        ask(i)
        wait_for(lambda: left(s, i) > 3000)
        s.get("/v1/sandboxes/" + i)
        assert left(s, plain) < 61


def test_start_without_an_engine(tmp_path):
    class Nothing:
        host, engine = f"unix://{tmp_path}/none.sock", None
        @staticmethod
        def image(kind):
            return "cove-test/" + kind
    s = dockerkit.serve(Nothing())
    try:
        with pytest.raises(AssertionError) as e:
            s.start(timeout=20)
        assert "none.sock" in str(e.value) or "Docker" in str(e.value)
    finally:
        s.stop()
        shutil.rmtree(s.dir)
