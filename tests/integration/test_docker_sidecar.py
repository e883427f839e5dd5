"""The guard beside a sandbox, by the Docker driver alone: start, readiness, pause and resume, removal, orphans."""
import json
import time

import pytest
from dockerdriverkit import drv, guarded, make_driver, own, scripted, shared  # noqa: F401 (fixtures)
from driverkit import ENOENT, DriverError
from nativekit import covekit_wait

EIO = -5


def test_a_guarded_sandbox(drv):
    guarded(drv, "g", guardEnv=["OPENSANDBOX_EGRESS_LOG_LEVEL=debug"])
    token = drv.call("guard_token", id="g")["token"]
    assert len(token) == 32
    side, box = drv.engine.sidecar("g"), drv.container("g")
    assert box["HostConfig"]["NetworkMode"] == "container:" + side["Id"]
    assert f"OPENSANDBOX_EGRESS_TOKEN={token}" in side["Config"]["Env"]
    assert side["Config"]["Labels"]["opensandbox.io/egress-sidecar-for"] == "g" and "opensandbox.io/id" not in side["Config"]["Labels"]
    host = side["HostConfig"]
    assert host["Memory"] and host["PidsLimit"] == 256 and host["CapDrop"] == ["ALL"] and "NET_ADMIN" in host["CapAdd"]
    assert drv.engine.volumes()["opensandbox-runtime-g"]["Labels"]["opensandbox.io/volume-managed-by"] == "server"
    at = drv.call("address", id="g", port=44772)
    assert at["host"] == "127.0.0.1" and at["prefix"] == "/proxy/44772"
    assert drv.out("g", "echo through") == "through\n"
    drv.remove("g")
    assert not drv.engine.exists("sandbox-egress-g") and "opensandbox-runtime-g" not in drv.engine.volumes()


def test_the_sidecar_follows_pause_and_resume(drv):
    guarded(drv, "g")
    drv.call("pause", id="g")
    assert drv.engine.sidecar("g")["State"]["Paused"] and drv.container("g")["State"]["Paused"]
    drv.call("resume", id="g")
    assert not drv.engine.sidecar("g")["State"]["Paused"] and drv.out("g", "echo on") == "on\n"
    # one that is paused already is left alone
    drv.engine.call("POST", "/containers/sandbox-egress-g/pause")
    drv.call("pause", id="g")
    drv.remove("g")  # both paused


def test_a_stopped_sidecar_fails_the_pause_and_everything_goes_on(drv):
    guarded(drv, "g")
    drv.engine.call("POST", "/containers/sandbox-egress-g/kill")
    covekit_wait(lambda: not drv.engine.sidecar("g")["State"]["Running"], lambda: "sidecar lives", 5)
    with pytest.raises(DriverError) as e:
        drv.call("pause", id="g")
    assert e.value.code == EIO and "sidecar is exited" in e.value.text
    assert drv.inspect("g")["state"] == "running"
    drv.remove("g")


def test_a_missing_sidecar_leaves_the_sandbox_paused(drv):
    guarded(drv, "g")
    drv.engine.remove("sandbox-egress-g")
    with pytest.raises(DriverError) as e:
        drv.call("pause", id="g")
    assert e.value.code == EIO and "missing" in e.value.text
    assert drv.inspect("g")["state"] == "paused"
    with pytest.raises(DriverError) as e:
        drv.call("resume", id="g")
    assert e.value.code == EIO and drv.inspect("g")["state"] == "paused"
    drv.remove("g")


def test_a_sandbox_removed_by_hand_takes_its_sidecar_along_at_the_next_removal(drv):
    guarded(drv, "g")
    drv.engine.remove("sandbox-g")
    assert drv.code("remove", id="g") == ENOENT
    assert not drv.engine.exists("sandbox-egress-g") and "opensandbox-runtime-g" not in drv.engine.volumes()


def test_sidecars_without_sandbox_go_at_the_start(own):
    guarded(own, "orphan")
    guarded(own, "kept")
    own.stop()
    own.engine.remove("sandbox-orphan")
    own.engine.run("sandbox-egress-unmarked", own.config["egress_image"],
                   Labels={"opensandbox.io/egress-sidecar-for": "unmarked"})
    own.engine.run("sandbox-egress-other", own.config["egress_image"],
                   Labels={"opensandbox.io/egress-sidecar-for": "other", "opensandbox.io/cove.instance": "another"})
    own.start(known=["kept"])
    try:
        assert not own.engine.exists("sandbox-egress-orphan") and not own.engine.exists("sandbox-egress-unmarked")
        assert "opensandbox-runtime-orphan" not in own.engine.volumes()
        assert own.engine.exists("sandbox-egress-kept") and own.engine.exists("sandbox-egress-other")
        assert own.out("kept", "echo on") == "on\n"
    finally:
        own.engine.remove("sandbox-egress-other")


def test_a_sidecar_stays_when_it_cannot_be_told_whether_its_sandbox_lives(scripted):
    d, e = scripted
    guarded(d, "g")
    d.stop()
    d.engine.remove("sandbox-g")
    e.on("GET", "/containers/sandbox-g/json", status=500, message="not now")
    d.start()
    assert d.engine.exists("sandbox-egress-g")
    d.stop()
    e.clear()
    d.start()
    assert not d.engine.exists("sandbox-egress-g") and "opensandbox-runtime-g" not in d.engine.volumes()


@pytest.mark.parametrize("how,words", [("test-exit", "ended with code"), ("test-unready", "not ready within 2 seconds")])
def test_a_sidecar_that_does_not_come_up(docker, how, words):
    d = make_driver(docker, {"readiness_timeout_s": 2})
    try:
        t0 = time.monotonic()
        with pytest.raises(DriverError) as e:
            guarded(d, "g", guardEnv=["OPENSANDBOX_EGRESS_LOG_LEVEL=" + how])
        assert words in e.value.text and time.monotonic() - t0 < 8
        d.check_clean()
        d.stop()
    finally:
        d.close()


def sidecars(r):
    return "egress" in r.query.get("name", "")


def test_sidecar_without_id_in_the_answer(scripted):
    d, e = scripted
    e.on("POST", "/containers/create", match=sidecars, status=201, body={"Warnings": []})
    with pytest.raises(DriverError) as x:
        guarded(d, "g")
    assert x.value.text == "Docker did not return an egress sidecar container ID."
    assert not e.seen("DELETE", "/containers/.*") and not e.seen("POST", "/containers/.*/start")


def test_sidecar_that_cannot_be_started(scripted):
    d, e = scripted
    e.on("POST", "/containers/.*/start", status=500, message="no such device", times=1)
    with pytest.raises(DriverError) as x:
        guarded(d, "g")
    assert x.value.text == "Egress sidecar container failed to start."
    removed = e.seen("DELETE", "/containers/.*")
    assert len(removed) == 1 and removed[0].query["force"] == "1"


@pytest.mark.parametrize("where", ["create", "start"])
def test_sidecar_without_ipv6_knobs(scripted, where):
    d, e = scripted
    text = "open /proc/sys/net/ipv6/conf/all/disable_ipv6: no such file or directory"
    if where == "create":
        e.on("POST", "/containers/create", match=sidecars, status=500, message=text, times=1)
    else:
        e.on("POST", "/containers/.*/start", status=500, message=text, times=1)
    guarded(d, "g")
    first, second = [r.json()["HostConfig"] for r in e.seen("POST", "/containers/create") if sidecars(r)]
    assert first["Sysctls"]["net.ipv6.conf.all.disable_ipv6"] == "1" and "Sysctls" not in second
    assert d.out("g", "echo on") == "on\n"
