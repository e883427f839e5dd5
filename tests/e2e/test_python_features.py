"""The rest of what the Python SDK offers: named volumes, diagnostics, metadata, refusals, and policies and snapshots of engines."""
import asyncio
import contextlib
import functools
import time
import uuid
from datetime import timedelta

import pytest
from opensandbox import Sandbox
from opensandbox.config import ConnectionConfig
from opensandbox.config.connection_sync import ConnectionConfigSync
from opensandbox.exceptions import SandboxApiException, SandboxException
from opensandbox.models.sandboxes import PVC, Host, NetworkPolicy, NetworkRule, PlatformSpec, SandboxFilter, SnapshotFilter, Volume
from opensandbox.sync.manager import SandboxManagerSync
from opensandbox.sync.sandbox import SandboxSync

from covekit import API_KEY, SLOW

POLICY = NetworkPolicy(defaultAction="deny", egress=[NetworkRule(action="allow", target="example.com")])


@pytest.fixture(params=[False, True], ids=["direct", "server-proxy"])
def config(daemon, request):
    return ConnectionConfigSync(domain=f"127.0.0.1:{daemon.port}", api_key=API_KEY, use_server_proxy=request.param)


@pytest.fixture
def sandbox(daemon, config):
    """Makes sandboxes of the small image; each ends with its block."""
    return functools.partial(made, daemon.small, config)


@contextlib.contextmanager
def made(image, config, **kw):
    s = SandboxSync.create(image, connection_config=config, timeout=timedelta(minutes=5), **kw)
    try:
        yield s
    finally:
        with contextlib.suppress(SandboxException):
            s.kill()
        s.close()


@pytest.mark.engine
def test_network_policy(sandbox, config):
    with sandbox(network_policy=POLICY) as s:
        assert s.commands.run("echo inside").text == "inside"
        p = s.get_egress_policy()
        assert [(r.action, r.target) for r in p.egress] == [("allow", "example.com")] and p.default_action == "deny"
        s.patch_egress_rules([NetworkRule(action="deny", target="bad.example.com")])
        assert [r.target for r in s.get_egress_policy().egress] == ["bad.example.com", "example.com"]
        s.delete_egress_rules(["example.com"])
        assert [r.target for r in s.get_egress_policy().egress] == ["bad.example.com"]
        s.pause()
        back = SandboxSync.resume(s.id, connection_config=config)
        assert back.commands.run("echo again").text == "again" and len(back.get_egress_policy().egress) == 1
        back.close()


@pytest.mark.engine
def test_snapshots(sandbox, config):
    with sandbox() as s, SandboxManagerSync.create(connection_config=config) as m:
        s.files.write_file("/root/precious", "kept")
        snap = s.create_snapshot("e2e")
        deadline = time.monotonic() + 20
        while (got := m.get_snapshot(snap.id)).status.state == "Creating" and time.monotonic() < deadline:
            time.sleep(0.1)
        assert got.status.state == "Ready" and got.name == "e2e"
        assert [x.id for x in m.list_snapshots(SnapshotFilter(sandbox_id=s.id)).snapshot_infos] == [snap.id]
        with contextlib.closing(SandboxSync.create(snapshot_id=snap.id, connection_config=config, timeout=timedelta(minutes=5))) as r:
            assert r.files.read_file("/root/precious") == "kept"
            info = r.get_info()
            assert info.snapshot_id == snap.id and info.image is None
            r.kill()
        m.delete_snapshot(snap.id)
        with pytest.raises(SandboxException):
            m.get_snapshot(snap.id)


def test_volumes(sandbox, config, daemon):
    v = Volume(name="data", pvc=PVC(claimName="e2e-data", deleteOnSandboxTermination=True), mountPath="/data")
    with sandbox(volumes=[v]) as a:
        a.commands.run("echo shared > /data/f")
        same = Volume(name="data", pvc=PVC(claimName="e2e-data"), mountPath="/mnt", readOnly=True)
        with sandbox(volumes=[same]) as b:
            assert b.commands.run("cat /mnt/f; echo x > /mnt/g; echo $?").text.split("\n") == ["shared", "1"]
            assert "e2e-data" in daemon.volumes()
    assert "e2e-data" not in daemon.volumes()
    with pytest.raises(SandboxException) as e:
        SandboxSync.create(daemon.small, connection_config=config, volumes=[Volume(name="h", host=Host(path="/etc"), mountPath="/x")])
    assert "VOLUME::HOST_PATH_NOT_ALLOWED" in repr(e.value) + str(e.value.error)


def test_diagnostics(sandbox):
    with sandbox(entrypoint=["sh", "-c", "echo hello from the entrypoint; exec sleep 1000"]) as s:
        logs = s.get_diagnostic_logs("container")
        assert "hello from the entrypoint" in logs.content and logs.delivery == "inline"
        assert s.get_diagnostic_events("runtime").content


def test_metadata_and_platform(sandbox):
    with sandbox(metadata={"a": "1"}, platform=PlatformSpec(os="linux", arch="amd64"), extensions={"opensandbox.extensions.x": "y"}) as s:
        info = s.get_info()
        assert info.metadata == {"a": "1"} and (info.platform.os, info.platform.arch) == ("linux", "amd64")
        assert s.patch_metadata({"a": None, "b": "2"}).metadata == {"b": "2"}


def test_refusals(sandbox, config, daemon):
    with pytest.raises(SandboxException) as e:
        SandboxSync.create(daemon.small, connection_config=config, secure_access=True)
    assert "secureAccess" in str(e.value)
    with sandbox() as s, pytest.raises(SandboxException):
        s.get_signed_endpoint(8080, expires=4102444800)
    with SandboxManagerSync.create(connection_config=config) as m, pytest.raises(SandboxException):
        m.get_template("tpl-1")


# what a create is refused with when the capabilities say so, with the words that must be in the error
ASKED = {
    "networkPolicy": (dict(network_policy=POLICY), "networkPolicy"),
    "snapshotId": (dict(snapshot_id="no-such-snapshot"), "SNAPSHOT::NOT_IMPLEMENTED"),
    "secureAccess": (dict(secure_access=True), "secureAccess"),
    "platform.os=windows": (dict(platform=PlatformSpec(os="windows", arch="amd64")), "Platform windows/amd64"),
}


def test_what_the_driver_says_is_true(sandbox, config, daemon):
    """Members that its capabilities call refused are, by name, and nothing is made; those of the tests marked `engine` are so
    on the native driver only."""
    engine = "refused" if daemon.driver == "native" else "honoured"
    assert (daemon.says["networkPolicy"], daemon.says["snapshotId"]) == (engine, engine)
    tag = {"case": uuid.uuid4().hex}
    refused = [k for k in ASKED if daemon.says[k] == "refused"]
    assert "secureAccess" in refused
    for k in refused:
        args, word = ASKED[k]
        with pytest.raises(SandboxApiException) as e:
            SandboxSync.create(None if "snapshot_id" in args else daemon.small, connection_config=config, metadata=tag, **args)
        assert 400 <= e.value.status_code < 600 and word in str(e.value), (k, e.value)
    with SandboxManagerSync.create(connection_config=config) as m:
        assert not m.list_sandbox_infos(SandboxFilter(metadata=tag)).sandbox_infos
    if daemon.says["snapshotId"] == "refused":
        with sandbox() as s:
            with pytest.raises(SandboxApiException) as e:
                s.create_snapshot("none")
            assert e.value.status_code == 501, e.value


def test_policy_of_a_sandbox_without_a_guard_is_told_at_once(sandbox, daemon):
    """By the server's own route. The SDK asks port 18080 of the sandbox, where nobody listens, and repeats what it gets (502)."""
    with sandbox() as s:
        t = time.monotonic()
        with pytest.raises(SandboxException):
            s.get_egress_policy()
        assert daemon.driver == "peer" or time.monotonic() - t < 12
        t = time.monotonic()
        r = daemon.get(f"/v1/sandboxes/{s.id}/networkpolicy")
        if daemon.driver == "peer":
            assert r.status == 502, r
        else:
            assert r.status == 409 and r.json()["code"] == "SANDBOX::NETWORK_POLICY_NOT_ENABLED", r
            assert time.monotonic() - t < 2 * SLOW


@pytest.mark.parametrize("proxy", [False, True], ids=["direct", "server-proxy"])
def test_async_lifecycle(daemon, proxy):
    config = ConnectionConfig(domain=f"127.0.0.1:{daemon.port}", api_key=API_KEY, use_server_proxy=proxy)
    guarded = 0 if daemon.says["networkPolicy"] == "honoured" else None  # one of the three, where there are guards

    async def one(n):
        s = await Sandbox.create(daemon.small, connection_config=config, timeout=timedelta(minutes=5), network_policy=POLICY if n == guarded else None)
        try:
            assert (await s.commands.run(f"echo {n}")).text == str(n)
            await s.files.write_file("/tmp/f", "x" * 1000)
            assert await s.files.read_file("/tmp/f") == "x" * 1000
            await s.renew(timedelta(hours=1))
            await s.pause()
            assert (await s.get_info()).status.state == "Paused"
            r = await Sandbox.resume(s.id, connection_config=config)
            assert (await r.commands.run("echo on")).text == "on"
            await r.close()
            if n == guarded:
                assert [x.target for x in (await s.get_egress_policy()).egress] == ["example.com"]
        finally:
            await s.kill()
            await s.close()

    async def everything():
        await asyncio.gather(*(one(n) for n in range(3)))
    asyncio.run(everything())
