"""Volumes on the Docker driver (lifecycle.md §4.10, §4.11): host paths, named volumes, object storage with a stand-in that mounts."""
import json
import os
import pathlib
import shutil
import tempfile
import threading
import time

import pytest

import covekit
import dockerkit
from scripted_engine import ScriptedEngine

ours = pytest.mark.skipif(dockerkit.IS_PEER, reason="cannot: a rule of ours that the official server does not have")
SERVER_LABEL = {"opensandbox.io/volume-managed-by": "server"}


@pytest.fixture(scope="module")
def base():
    covekit.STATE_BASE.mkdir(parents=True, exist_ok=True)
    d = pathlib.Path(tempfile.mkdtemp(prefix="vol-", dir=covekit.STATE_BASE))
    d.chmod(0o755)
    for n in ("allowed", "private", "tools", "oss"):
        (d / n).mkdir()
    yield d
    for m in [l.split()[4] for l in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if str(d) in l]:
        os.system(f"umount -l {m}")
    shutil.rmtree(d, ignore_errors=True)


@pytest.fixture(scope="module")
def tools(base):
    """ossfs and ossfs2 first in PATH."""
    for n in ("ossfs", "ossfs2"):
        shutil.copy(dockerkit.STANDINS / n, base / "tools" / n)
    return base / "tools"


def start(docker, base, tools, sections=None, **kw):
    sections = {"storage": {"allowed_host_paths": [str(base / "allowed")], "ossfs_mount_root": str(base / "oss")}, **(sections or {})}
    return dockerkit.serve(docker, sections, env={"PATH": f"{tools}:{os.environ['PATH']}"}, **kw)


@pytest.fixture(scope="module")
def server(docker, base, tools):
    docker.image("busybox")
    with start(docker, base, tools) as s:
        yield s


@pytest.fixture
def made(server, tools):
    for n in ("calls", "credentials", "fail", "slow"):
        (tools / n).unlink(missing_ok=True)
    census, ids = dockerkit.Census(server.docker), []

    def make(*volumes, **fields):
        fields.setdefault("volumes", list(volumes))
        i = server.create(**fields)["id"]
        ids.append(i)
        return i, server.engine.sandbox(i)["HostConfig"]["Binds"] or []
    yield make
    for i in ids:
        server.request("DELETE", "/v1/sandboxes/" + i)
    for v in set(server.engine.volumes()) - census.before["volumes"]:
        if v.startswith("keep-"):
            server.engine.call("DELETE", "/volumes/" + v)
    census.check()
    assert not mounts(server.sections["storage"]["ossfs_mount_root"])


def mounts(root):
    return [l.split()[4] for l in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if l.split()[4].startswith(str(root) + "/")]


def host(path, mount="/data", **kw):
    return {"name": kw.pop("name", "v"), "host": {"path": str(path)}, "mountPath": mount, **kw}


def pvc(claim, mount="/data", name="v", claim_fields=None, **kw):
    return {"name": name, "pvc": {"claimName": claim, **(claim_fields or {})}, "mountPath": mount, **kw}


def oss(bucket="bucket-1", mount="/oss", name="o", version="2.0", key="id-1", secret="secret-1", endpoint="oss.example.com", options=None, **kw):
    o = {"bucket": bucket, "endpoint": endpoint, "version": version, "accessKeyId": key, "accessKeySecret": secret}
    if options:
        o["options"] = options
    return {"name": name, "ossfs": o, "mountPath": mount, **kw}


# ---- host paths ----

@pytest.mark.parametrize("volumes", [None, []])
def test_no_volumes_no_binds(made, volumes):
    i, binds = made(volumes=volumes)
    assert binds == []


def test_host_path_read_write_and_read_only(server, made, base):
    d = base / "allowed/rw"
    d.mkdir(exist_ok=True)
    (d / "f").write_text("from the host\n")
    i, binds = made(host(d, name="a"), host(d, "/ro", name="b", readOnly=True))
    assert binds == [f"{d}:/data:rw", f"{d}:/ro:ro"]
    assert server.run(i, "cat /data/f; echo back > /data/g; echo x > /ro/h")[0] == "from the host\n"
    assert (d / "g").read_text() == "back\n" and not (d / "h").exists()


def test_sub_path_is_joined_normalised_and_made(made, base):
    i, binds = made(host(base / "allowed", subPath="a/./b", readOnly=True))
    assert binds == [f"{base}/allowed/a/b:/data:ro"] and (base / "allowed/a/b").is_dir()


def test_missing_path_is_made_and_a_file_is_taken(server, made, base):
    f = base / "allowed/disk.iso"
    f.write_text("iso\n")
    i, binds = made(host(base / "allowed/new/deep", "/d", name="a"), host(f, "/disk.iso", name="b"))
    assert binds == [f"{base}/allowed/new/deep:/d:rw", f"{f}:/disk.iso:rw"] and (base / "allowed/new/deep").is_dir()
    assert server.run(i, "cat /disk.iso")[0] == "iso\n"


@pytest.mark.parametrize("path", ["private", "", "allowed-not", "allowed/../private"])
def test_paths_outside_of_the_allowlist(server, base, path):
    code = "VOLUME::INVALID_HOST_PATH" if ".." in path else "VOLUME::HOST_PATH_NOT_ALLOWED"
    server.refused(400, code, volumes=[host(f"{base}/{path}".rstrip("/"))])
    assert not (base / "allowed-not").exists()


@pytest.mark.parametrize("path", ["//etc", "/etc/"])
def test_paths_that_are_no_clean_absolute_ones(server, base, path):
    server.refused(400, "VOLUME::INVALID_HOST_PATH", volumes=[host(path)])
    server.refused(422, volumes=[host("relative")])


def test_links_out_of_the_allowlist(server, base):
    (base / "allowed/out").unlink(missing_ok=True)
    (base / "allowed/out").symlink_to(base / "private")
    server.refused(400, "VOLUME::HOST_PATH_NOT_ALLOWED", volumes=[host(base / "allowed/out")])
    server.refused(400, "VOLUME::HOST_PATH_NOT_ALLOWED", volumes=[host(base / "allowed", subPath="out")])
    server.refused(400, "VOLUME::HOST_PATH_NOT_ALLOWED", volumes=[host(base / "allowed", subPath="out/new")])
    assert not (base / "private/new").exists()


@ours
def test_a_link_inside_is_mounted_resolved(made, base):
    (base / "allowed/real").mkdir(exist_ok=True)
    (base / "allowed/alias").unlink(missing_ok=True)
    (base / "allowed/alias").symlink_to(base / "allowed/real")
    assert made(host(base / "allowed/alias"))[1] == [f"{base}/allowed/real:/data:rw"]


def test_empty_allowlist_refuses(docker, base):
    with dockerkit.serve(docker) as s:
        s.refused(400, "VOLUME::HOST_PATH_NOT_ALLOWED", volumes=[host(base / "allowed")])


def test_a_path_that_cannot_be_made(server, base):
    (base / "allowed/file").write_text("")
    server.refused(500, "VOLUME::HOST_PATH_CREATE_FAILED", volumes=[host(base / "allowed/file/below")])


@pytest.mark.parametrize("volume,code", [
    ({"mountPath": "/x", "subPath": "../up"}, "VOLUME::INVALID_SUB_PATH"), ({"mountPath": "/x", "subPath": "/abs"}, "VOLUME::INVALID_SUB_PATH"),
])
def test_sub_paths_that_leave(server, base, volume, code):
    server.refused(400, code, volumes=[{"name": "v", "host": {"path": str(base / "allowed")}, **volume}])


def test_schema_of_volumes(server, base):
    h = {"path": str(base / "allowed")}
    server.refused(422, volumes=[{"name": "v", "mountPath": "/x"}])
    server.refused(422, volumes=[{"name": "v", "mountPath": "/x", "host": h, "pvc": {"claimName": "c"}}])
    server.refused(422, volumes=[{"name": "v", "mountPath": "x", "host": h}])
    server.refused(422, volumes=[{"name": "V_", "mountPath": "/x", "host": h}])
    server.refused(422, volumes=[{"name": "v", "mountPath": "/x", "pvc": {"claimName": "Bad_Name"}}])
    server.refused(400, "VOLUME::DUPLICATE_NAME", volumes=[host(base / "allowed", "/a"), host(base / "allowed", "/b")])


# ---- named volumes ----

def test_named_volume_is_made_marked_and_kept(server, made):
    i, binds = made(pvc("keep-1"), pvc("keep-1", "/ro", "w", readOnly=True))
    assert binds == ["keep-1:/data:rw", "keep-1:/ro:ro"]
    labels = server.engine.volumes()["keep-1"]["Labels"]
    assert labels["opensandbox.io/volume-managed-by"] == "server"
    assert "opensandbox.io/volume-managed-by" not in server.engine.sandbox(i)["Config"]["Labels"]
    server.run(i, "echo kept > /data/f")
    server.delete(i)
    assert "keep-1" in server.engine.volumes()
    j, _ = made(pvc("keep-1"))
    assert server.run(j, "cat /data/f")[0] == "kept\n"


def test_volume_that_ends_with_its_sandbox(server, made):
    i, _ = made(pvc("gone-1", claim_fields={"deleteOnSandboxTermination": True}))
    assert json.loads(server.engine.sandbox(i)["Config"]["Labels"]["opensandbox.io/volume-managed-by"]) == ["gone-1"]
    assert " " not in server.engine.sandbox(i)["Config"]["Labels"]["opensandbox.io/volume-managed-by"]
    server.delete(i)
    assert "gone-1" not in server.engine.volumes()


def test_a_users_volume_is_never_removed(server, made):
    server.engine.call("POST", "/volumes/create", {"Name": "keep-mine"})
    i, binds = made(pvc("keep-mine", claim_fields={"deleteOnSandboxTermination": True}))
    assert binds == ["keep-mine:/data:rw"]
    server.delete(i)
    assert "keep-mine" in server.engine.volumes()


def test_missing_volume_that_must_not_be_made(server):
    server.refused(400, "VOLUME::PVC_NOT_FOUND", volumes=[pvc("absent", claim_fields={"createIfNotExists": False})])


def test_sub_path_of_a_named_volume(server, made):
    server.engine.call("POST", "/volumes/create", {"Name": "keep-sub"})
    where = server.engine.volumes()["keep-sub"]["Mountpoint"]
    os.makedirs(where + "/a/b")
    i, binds = made(pvc("keep-sub", subPath="a/b"), pvc("keep-sub", "/ro", "w", subPath="a", readOnly=True))
    assert binds == [f"{where}/a/b:/data:rw", f"{where}/a:/ro:ro"]
    os.symlink("/etc", where + "/out")
    server.refused(400, "VOLUME::INVALID_SUB_PATH", "symlink", volumes=[pvc("keep-sub", subPath="out")])
    server.refused(400, "VOLUME::INVALID_SUB_PATH", volumes=[pvc("keep-sub", subPath="../x")])


def test_host_and_named_together(made, base):
    i, binds = made(host(base / "allowed", "/h", name="h"), pvc("keep-mix", "/p", "p", readOnly=True))
    assert binds == [f"{base}/allowed:/h:rw", "keep-mix:/p:ro"]


def test_volumes_made_for_a_create_that_fails_are_undone(server):
    server.refused(500, image="127.0.0.1:1/missing", volumes=[pvc("undo-1", claim_fields={"deleteOnSandboxTermination": True})])
    server.refused(400, volumes=[pvc("undo-2", claim_fields={"deleteOnSandboxTermination": True}),
                                 pvc("absent", "/b", "w", claim_fields={"createIfNotExists": False})])
    assert not [v for v in server.engine.volumes() if v.startswith("undo-")]


def test_engine_answers_about_volumes(docker, base, tools):
    with ScriptedEngine(docker) as e, start(e, base, tools) as s:
        e.on("GET", "/volumes/broken", status=500, message="volume store broke")
        s.refused(500, "VOLUME::PVC_INSPECT_FAILED", volumes=[pvc("broken")])
        e.on("GET", "/volumes/nfs-1", status=200, body={"Name": "nfs-1", "Driver": "nfs", "Mountpoint": "/x", "Labels": None, "Scope": "local", "Options": None})
        s.refused(400, "VOLUME::PVC_SUBPATH_UNSUPPORTED_DRIVER", volumes=[pvc("nfs-1", subPath="a")])
        e.on("POST", "/volumes/create", status=500, message="no more volumes")
        s.refused(500, "VOLUME::PVC_INSPECT_FAILED", volumes=[pvc("new-one")])
        e.clear()
        # with a sub path the one inspect of the validation is enough
        docker.engine.call("POST", "/volumes/create", {"Name": "once"})
        i = s.create(volumes=[pvc("once", subPath="a")])["id"]
        assert len(e.seen("GET", "/volumes/once")) == 1
        s.delete(i)
        docker.engine.call("DELETE", "/volumes/once")


# ---- object storage ----

def calls(tools):
    return (tools / "calls").read_text().splitlines() if (tools / "calls").exists() else []


def test_object_storage_is_mounted_bound_and_released(server, made, base, tools):
    i, binds = made(oss(subPath="pre/fix", readOnly=False))
    path = base / "oss/bucket-1/pre/fix"
    assert binds == [f"{path}:/oss:rw"] and str(path) in mounts(base / "oss")
    labels = server.engine.sandbox(i)["Config"]["Labels"]
    assert labels["opensandbox.io/ossfs-mounts"] == json.dumps([str(path)], separators=(",", ":"))
    assert server.run(i, "echo stored > /oss/object; cat /oss/object")[0] == "stored\n"
    assert (tools / "store/bucket-1/pre/fix/object").read_text() == "stored\n"
    server.delete(i)
    assert not mounts(base / "oss")


def test_version_2_command_and_file(made, base, tools):
    made(oss(bucket="bucket-2", key="id-2", secret="secret-2", endpoint="oss.example.com", options=["uid=1000", "ro"], subPath="p"))
    [c] = calls(tools)
    words = c.split()
    assert words[:2] == ["ossfs2", "mount"] and words[2] == str(base / "oss/bucket-2/p") and words[3] == "-c" and words[4].endswith(".conf") and len(words) == 5
    lines = (tools / "credentials").read_text().splitlines()
    assert lines[0].split()[0] == "600"
    assert {"--oss_endpoint=https://oss.example.com", "--oss_bucket=bucket-2", "--oss_access_key_id=id-2", "--oss_access_key_secret=secret-2",
            "--oss_bucket_prefix=p/", "--uid=1000", "--ro"} <= set(lines)
    assert not os.path.exists(words[4]) and "secret-2" not in c


def test_version_1_command_and_file(server, made, base, tools):
    made(oss(bucket="bucket-3", version="1.0", endpoint="http://oss.example.com", options=["allow_other", "umask=0022"], subPath="pre"))
    [c] = calls(tools)
    words = c.split()
    assert words[:3] == ["ossfs", "bucket-3:/pre", str(base / "oss/bucket-3/pre")]
    assert "-o url=http://oss.example.com" in c and "-o allow_other -o umask=0022" in c
    assert "--" not in c and "sigv4" not in c and "region=" not in c
    f = next(w for w in words if w.startswith("passwd_file=")).removeprefix("passwd_file=")
    assert pathlib.Path(f).name.startswith("opensandbox-ossfs-inline-") and not os.path.exists(f)
    lines = (tools / "credentials").read_text().splitlines()
    assert lines[0].split()[0] == "600" and lines[1] == "bucket-3:id-1:secret-1"
    assert "secret-1" not in c and "secret-1" not in server.log.read_text()


def test_one_key_is_mounted_once_and_counted_per_sandbox(server, made, base, tools):
    a, binds = made(oss("bucket-5", name="a", mount="/a"), oss("bucket-5", name="b", mount="/b", readOnly=True))
    path = str(base / "oss/bucket-5")
    assert binds == [f"{path}:/a:rw", f"{path}:/b:ro"] and len(calls(tools)) == 1
    b, _ = made(oss("bucket-5"))
    assert len(calls(tools)) == 1
    server.delete(a)
    assert mounts(base / "oss") == [path]
    server.delete(b)
    assert not mounts(base / "oss")


def test_failing_mount(server, base, tools):
    (tools / "fail").touch()
    r = server.refused(500, "VOLUME::OSSFS_MOUNT_FAILED", volumes=[oss()])
    assert "bucket not reachable" in r.json()["message"] and "secret-1" not in r.json()["message"]
    (tools / "fail").unlink()


def test_partial_failure_releases_what_was_mounted(server, base, tools):
    (base / "oss").mkdir(exist_ok=True)
    (tools / "ossfs").rename(tools / "ossfs.away")
    try:
        server.refused(500, "VOLUME::OSSFS_MOUNT_FAILED", volumes=[oss("bucket-8", name="a", mount="/a"), oss(bucket="bucket-9", name="b", mount="/b", version="1.0")])
    finally:
        (tools / "ossfs.away").rename(tools / "ossfs")
    assert not mounts(base / "oss")


def test_mounts_of_a_create_that_fails_later_are_released(server, base, tools):
    server.refused(500, volumes=[oss("bucket-7")], entrypoint=["/no/such/program"], image="127.0.0.1:1/missing")
    assert not mounts(base / "oss")


@pytest.mark.parametrize("change,status", [
    ({"key": None}, 422), ({"secret": None}, 422), ({"bucket": "ab"}, 422), ({"version": "3.0"}, 422), ({"endpoint": ""}, 422),
    ({"bucket": "Bad_Bucket"}, 400), ({"endpoint": "a b"}, 400), ({"endpoint": "a;b"}, 400), ({"options": ["-o x"]}, 400), ({"options": ["a`b"]}, 400),
    ({"subPath": "../x"}, 400),
])
def test_what_object_storage_refuses(server, tools, change, status):
    v = oss(**change)
    v["ossfs"] = {k: x for k, x in v["ossfs"].items() if x is not None}
    server.refused(status, volumes=[v])
    assert not (tools / "credentials").exists() or "Bad_Bucket" not in (tools / "credentials").read_text()


def test_counts_are_rebuilt_at_start(docker, base, tools):
    s = start(docker, base, tools).start()
    try:
        path = str(base / "oss/bucket-r")
        a, b = (s.create(volumes=[oss(bucket="bucket-r")])["id"] for _ in range(2))
        c = s.create(timeout=None, volumes=[oss(bucket="bucket-r")])["id"]  # a manual one counts as well
        s.stop()
        assert mounts(base / "oss") == [path]
        s.start()
        s.delete(a), s.delete(c)
        assert mounts(base / "oss") == [path]
        assert s.run(b, "ls -d /oss")[0] == "/oss\n"
        s.delete(b)
        assert not mounts(base / "oss")
    finally:
        s.close()


@ours
def test_other_credentials_are_another_mount(server, made, base, tools):
    a, binds_a = made(oss(bucket="bucket-c"))
    b, binds_b = made(oss(bucket="bucket-c", key="id-2", secret="other"))
    assert len(calls(tools)) == 2 and binds_a != binds_b


@ours
def test_a_slow_mount_blocks_nobody_else(server, made, tools):
    made(oss(bucket="bucket-s"))
    (tools / "slow").write_text("3")
    t = threading.Thread(target=lambda: made(oss(bucket="bucket-t")))
    t.start()
    deadline = time.monotonic() + 10
    while len(calls(tools)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    begin = time.monotonic()
    made(oss(bucket="bucket-s"))  # mounted already
    took = time.monotonic() - begin
    t.join()
    assert took < 2.5


def test_root_must_be_absolute(docker, base, tools):
    try:
        s = start(docker, base, tools, {"storage": {"ossfs_mount_root": "relative"}})
        s.start(timeout=10)
    except AssertionError as e:
        assert "ossfs_mount_root" in str(e)
        return
    try:
        s.refused(500, "VOLUME::INVALID_OSSFS_MOUNT_ROOT", volumes=[oss()])
    finally:
        s.close()


@ours
@pytest.mark.parametrize("point", ["service-create-intent", "service-create-volumes", "oss-file", "service-create-mounted", "service-create-made",
                                   "service-delete-intent", "service-delete-removed", "service-delete-released"])
def test_a_killed_server_leaves_no_volume_mount_or_credential_file(docker, base, tools, point):
    (tools / "calls").unlink(missing_ok=True)
    temp = base / "temp"
    temp.mkdir(exist_ok=True)
    docker.image("busybox")
    census = dockerkit.Census(docker)
    s = start(docker, base, tools)
    s.env.update(COVE_CRASH_AT=point, TMPDIR=str(temp))
    s.start()
    try:
        try:
            i = s.create(volumes=[pvc("mine", claim_fields={"deleteOnSandboxTermination": True}), oss("bucket-k")])["id"]
            s.request("DELETE", "/v1/sandboxes/" + i)
        except (OSError, covekit.http.client.HTTPException):
            pass
        s.proc.wait(30)
        del s.env["COVE_CRASH_AT"]
        s.start()
        assert s.get("/v1/sandboxes").json()["items"] == []
        assert not mounts(base / "oss") and not list(temp.iterdir())
        census.check()
        i = s.create(volumes=[oss("bucket-k")])["id"]  # the plain path is free again
        assert mounts(base / "oss") == [str(base / "oss/bucket-k")]
        s.delete(i)
    finally:
        s.close()
