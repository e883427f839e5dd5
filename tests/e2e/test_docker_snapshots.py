"""Snapshots across servers and clients: a database that the official server and coved use in turn, and the official Python SDK."""
import contextlib
import time
from datetime import timedelta

import dockerkit
import pytest
from opensandbox.config.connection_sync import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException
from opensandbox.models.sandboxes import SnapshotFilter
from opensandbox.sync.manager import SandboxManagerSync
from opensandbox.sync.sandbox import SandboxSync

import covekit
from test_docker_takeover import home, official, ours, running  # noqa: F401


def made(server, box, name=None):
    r = server.request("POST", f"/v1/sandboxes/{box}/snapshots", {"name": name} if name else None)
    assert r.status == 202, r
    return ready(lambda: server.get("/v1/snapshots/" + r.json()["id"]).json()["status"]["state"], r.json()["id"])


def ready(state, snapshot):
    deadline = time.monotonic() + 60 * covekit.SLOW
    while (now := state()) == "Creating":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert now == "Ready", now
    return snapshot


def listed(server):
    return server.get("/v1/snapshots?pageSize=200").json()["items"]


def test_a_database_is_used_in_turn(docker, home):  # noqa: F811
    with running(official(docker, home)) as peer:
        box = peer.create()["id"]
        docker.engine.exec("sandbox-" + box, "sh", "-c", "echo theirs >/mark")
        theirs = made(peer, box, "theirs")
        before = listed(peer)
    with running(ours(docker, home)) as d:
        assert listed(d) == before
        r = d.request("POST", "/v1/sandboxes", {"snapshotId": theirs, "resourceLimits": {}, "timeout": 600})
        assert r.status == 202, r
        restored = r.json()["id"]
        assert "theirs" in str(docker.engine.exec("sandbox-" + restored, "cat", "/mark"))
        docker.engine.exec("sandbox-" + restored, "sh", "-c", "echo ours >/mark")
        mine = made(d, restored, "ours")
        now = listed(d)
        assert [s["id"] for s in now] == [mine, theirs]
        d.delete(restored)
    with running(official(docker, home)) as peer:
        assert listed(peer) == now
        r = peer.request("POST", "/v1/sandboxes", {"snapshotId": mine, "resourceLimits": {}, "timeout": 600})
        assert r.status == 202, r
        assert "ours" in str(docker.engine.exec("sandbox-" + r.json()["id"], "cat", "/mark"))
        peer.delete(r.json()["id"])
        peer.delete(box)
        for s in (mine, theirs):
            assert peer.request("DELETE", "/v1/snapshots/" + s).status == 204
    with running(ours(docker, home)) as d:
        assert listed(d) == []


@pytest.fixture
def sdk(docker):
    docker.image("busybox")
    with dockerkit.serve(docker) as d:
        yield d, ConnectionConfigSync(domain=f"127.0.0.1:{d.port}", api_key=covekit.API_KEY)


def test_the_python_sdk(sdk):
    server, config = sdk
    manager = SandboxManagerSync.create(connection_config=config)
    with contextlib.ExitStack() as stack:
        stack.callback(manager.close)

        def sandbox(**kw):
            s = SandboxSync.create(connection_config=config, timeout=timedelta(minutes=5), **kw)
            stack.callback(s.close)
            return s
        s = sandbox(image="cove-test/busybox")
        assert s.commands.run("echo kept >/kept").exit_code == 0
        info = s.create_snapshot("first")
        assert info.name == "first" and info.sandbox_id == s.id and info.status.state == "Creating"
        ready(lambda: manager.get_snapshot(info.id).status.state, info.id)
        found = manager.list_snapshots(SnapshotFilter(name="first", sandbox_id=s.id, states=["Ready"]))
        assert [x.id for x in found.snapshot_infos] == [info.id] and found.pagination.total_items == 1
        s.kill()
        again = sandbox(snapshot_id=info.id)
        assert "".join(m.text for m in again.commands.run("cat /kept").logs.stdout) == "kept\n"
        assert again.get_info().snapshot_id == info.id and again.get_info().image is None
        with pytest.raises(SandboxApiException) as e:
            manager.delete_snapshot(info.id)
        assert e.value.status_code == 409 and "SNAPSHOT::DELETE_CONFLICT" in str(vars(e.value)) + repr(e.value.error)
        again.kill()
        deadline = time.monotonic() + 60 * covekit.SLOW
        while manager.list_snapshots(SnapshotFilter()).snapshot_infos:  # goes by itself
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with pytest.raises(SandboxApiException) as e:
            manager.get_snapshot(info.id)
        assert e.value.status_code == 404
