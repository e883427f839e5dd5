"""Named volumes of the native driver over the API: made, shared, parts of them, ended with their sandbox or kept."""
import os

import pytest

import covekit
from covekit import Daemon

NONE = {"extensions": {"cove.network": "none"}}


@pytest.fixture
def own():
    with Daemon() as d:
        yield d


def claim(name, mount="/mnt/v", volume="v", read_only=False, sub=None, **pvc):
    v = {"name": volume, "mountPath": mount, "readOnly": read_only, "pvc": {"claimName": name, **pvc}}
    return v if sub is None else {**v, "subPath": sub}


def store(daemon, name):
    return daemon.dir / "state" / "volumes" / name


def body(*volumes):
    return {"image": {"uri": "host"}, "entrypoint": ["sleep", "100"], "resourceLimits": {}, "timeout": 600, **NONE,
            "volumes": list(volumes)}


def refused(daemon, *volumes):
    r = daemon.request("POST", "/v1/sandboxes", body(*volumes))
    assert r.status >= 400, r
    return r.status, r.json()["code"]


def gone(daemon, sandbox):
    assert daemon.request("DELETE", "/v1/sandboxes/" + sandbox["id"]).status == 204


def test_a_volume_is_made_once_and_outlives_sandboxes(own):
    a = own.create(**NONE, volumes=[claim("data")])
    b = own.create(**NONE, volumes=[claim("data"), claim("data", "/mnt/ro", "w", read_only=True)])
    out, err, code = own.run(a["id"], "echo from-a > /mnt/v/x && stat -c %u:%a /mnt/v")
    assert (out, code) == ("0:755\n", 0), err
    assert own.run(b["id"], "cat /mnt/v/x /mnt/ro/x && ! touch /mnt/ro/y")[0] == "from-a\nfrom-a\n"
    assert (store(own, "data") / "data" / "x").read_text() == "from-a\n"
    assert os.stat(store(own, "data").parent).st_mode & 0o777 == 0o700  # nobody else on the host gets there
    gone(own, a)
    gone(own, b)
    c = own.create(**NONE, volumes=[claim("data", createIfNotExists=False)])
    assert own.run(c["id"], "cat /mnt/v/x")[0] == "from-a\n"
    gone(own, c)
    assert store(own, "data").is_dir()


def test_a_volume_ends_with_the_sandbox_it_was_made_for(own):
    a = own.create(**NONE, volumes=[claim("temp", deleteOnSandboxTermination=True)])
    own.run(a["id"], "echo 1 > /mnt/v/x")
    own.stop()
    own.start()
    assert store(own, "temp").is_dir()
    gone(own, a)
    assert not store(own, "temp").exists()
    # there before: not ours to end
    gone(own, own.create(**NONE, volumes=[claim("kept")]))
    gone(own, own.create(**NONE, volumes=[claim("kept", deleteOnSandboxTermination=True)]))
    assert store(own, "kept").is_dir()


def test_a_volume_in_use_is_not_removed(own):
    a = own.create(**NONE, volumes=[claim("shared", deleteOnSandboxTermination=True)])
    b = own.create(**NONE, volumes=[claim("shared", sub="part")])
    own.run(b["id"], "echo 1 > /mnt/v/x")
    own.stop()
    own.start()  # who uses it is known after a restart as well
    gone(own, a)
    assert (store(own, "shared") / "data" / "part" / "x").is_file()
    assert own.run(b["id"], "cat /mnt/v/x")[0] == "1\n"
    gone(own, b)
    assert "stays" in own.log.read_text()


def test_parts_of_a_volume(own):
    a = own.create(**NONE, volumes=[claim("data")])
    own.run(a["id"], "mkdir -p /mnt/v/d/e; echo 1 > /mnt/v/d/e/x; ln -s /etc /mnt/v/out; ln -s d /mnt/v/in; ln -s ../../.. /mnt/v/up")
    b = own.create(**NONE, volumes=[claim("data", sub="d/e", read_only=True), claim("data", "/mnt/new", "w", sub="new/dir")])
    assert own.run(b["id"], "cat /mnt/v/x && ! touch /mnt/v/y && touch /mnt/new/z && ls /mnt/new")[0] == "1\nz\n"
    assert (store(own, "data") / "data" / "new" / "dir" / "z").exists()
    c = own.create(**NONE, volumes=[claim("data", sub="in/e")])
    assert own.run(c["id"], "cat /mnt/v/x")[0] == "1\n"
    for sub in ("out", "up", "out/cove-new", "../../other"):
        assert refused(own, claim("data", sub=sub)) == (400, "VOLUME::INVALID_SUB_PATH"), sub
    r = own.request("POST", "/v1/sandboxes", body(claim("data", sub="out")))
    assert "symlink" in r.json()["message"]
    assert not os.path.exists("/etc/cove-new")
    for s in (a, b, c):
        gone(own, s)


@pytest.mark.parametrize("volume,code", [
    (claim("none", createIfNotExists=False), "VOLUME::PVC_NOT_FOUND"),
    (claim("data", sub="/abs"), "VOLUME::INVALID_SUB_PATH"),
])
def test_refusals(daemon, volume, code):
    assert refused(daemon, volume) == (400, code)
    assert not store(daemon, "none").exists()


def test_object_storage_is_refused_here(daemon):
    v = {"name": "v", "mountPath": "/v", "ossfs": {"bucket": "bucket", "endpoint": "e", "accessKeyId": "i", "accessKeySecret": "s"}}
    assert refused(daemon, v)[0] == 400


def test_a_failed_create_takes_its_volumes_along(own):
    new = claim("mine", deleteOnSandboxTermination=True)
    r = own.request("POST", "/v1/sandboxes", {**body(new, claim("plain", "/w", "w")), "image": {"uri": "local/missing"}})
    assert r.status >= 400, r
    assert not store(own, "mine").exists()
    assert store(own, "plain").is_dir()  # it was asked for to stay
    assert refused(own, new, claim("none", "/w", "w", createIfNotExists=False)) == (400, "VOLUME::PVC_NOT_FOUND")
    assert not store(own, "mine").exists()


@pytest.mark.parametrize("point", ["service-create-intent", "service-create-volumes", "service-create-made", "service-delete-removed"])
def test_a_killed_daemon_leaves_no_volume_behind(point):
    left = covekit.Leftovers()
    with Daemon(env={"COVE_CRASH_AT": point}) as d:
        try:
            s = d.create(**NONE, volumes=[claim("mine", deleteOnSandboxTermination=True)])
            d.request("DELETE", "/v1/sandboxes/" + s["id"])
        except OSError:
            pass
        except covekit.http.client.HTTPException:
            pass
        d.proc.wait(30)
        d.env.pop("COVE_CRASH_AT")
        d.start()
        assert d.get("/v1/sandboxes").json()["items"] == []
        assert not store(d, "mine").exists()
        assert not [p for p in (d.dir / "state" / "volumes").iterdir()]
    left.check()
