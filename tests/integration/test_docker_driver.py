"""The Docker driver by itself on a real engine: other hands at its containers, an engine that stops, whose sandbox is whose,
ports, kill -9 in the middle. A scripted engine stands in front only for faults dockerd cannot be made to give."""
import json
import os
import signal
import threading
import time
import urllib.request

import pytest
from dockerdriverkit import POLICY, drv, engine2, guarded, make_driver, own, scripted, shared  # noqa: F401 (fixtures)
from driverkit import EALREADY, EINVAL, ENOENT, SLEEP, DockerDriver, DriverError
from nativekit import covekit_wait

EHOSTUNREACH, EADDRNOTAVAIL = -113, -99


# ---- start ----

def test_no_engine_is_said_with_its_address(docker, tmp_path):
    d = DockerDriver(docker, {"engine_host": f"unix://{tmp_path}/none.sock"})
    with pytest.raises(DriverError) as e:
        d.start()
    assert e.value.code == EHOSTUNREACH and f"{tmp_path}/none.sock" in e.value.text
    d.close()


def test_an_unknown_runtime_is_refused_with_the_known_ones(docker):
    d = DockerDriver(docker, {"runtime": "no-such-runtime"})
    with pytest.raises(DriverError) as e:
        d.start()
    assert e.value.code == EINVAL and "no-such-runtime" in e.value.text and "runc" in e.value.text
    d.close()


# ---- other hands ----

def test_removed_by_hand(drv):
    drv.create("hand")
    drv.drop_events()
    drv.engine.remove("sandbox-hand")
    assert drv.wait_event("hand", "gone")
    for op in ("inspect", "pause", "resume", "logs", "describe"):
        assert drv.code(op, id="hand") == ENOENT, op
    assert drv.code("address", id="hand", port=80) == ENOENT
    assert "hand" not in drv.ids()
    assert drv.code("remove", id="hand") == ENOENT


def test_paused_and_resumed_by_hand(drv):
    drv.create("hand")
    drv.drop_events()
    drv.engine.call("POST", "/containers/sandbox-hand/pause")
    assert drv.next_event("hand")["state"] == "paused"
    assert drv.code("pause", id="hand") == EALREADY
    drv.engine.call("POST", "/containers/sandbox-hand/unpause")
    assert drv.next_event("hand")["state"] == "running"
    assert drv.out("hand", "echo on") == "on\n"


def test_stopped_and_started_by_hand_at_another_address(drv):
    drv.create("hand")
    before = drv.call("address", id="hand", port=80)["host"]
    drv.drop_events()
    drv.engine.call("POST", "/containers/sandbox-hand/kill")
    e = drv.wait_event("hand", "exited")
    assert e["exit_code"] == 137
    assert drv.code("address", id="hand", port=80) == EADDRNOTAVAIL  # the address may be another's by now
    drv.create("taker")
    assert drv.call("address", id="taker", port=80)["host"] == before
    drv.drop_events()
    drv.engine.call("POST", "/containers/sandbox-hand/start")
    assert drv.wait_event("hand", "running")
    after = drv.call("address", id="hand", port=80)["host"]
    assert after != before
    covekit_wait(lambda: drv.out("hand", "echo on") == "on\n" if pings(drv, "hand") else False, lambda: "no agent", 10)


def pings(drv, name):
    try:
        return drv.http(name, "GET", "/ping")[0] == 200
    except (DriverError, IndexError):
        return False


def test_renamed_by_hand_is_still_found(drv):
    drv.create("hand")
    drv.engine.call("POST", "/containers/sandbox-hand/rename?name=other-name")
    assert drv.inspect("hand")["state"] == "running"
    drv.call("pause", id="hand")
    drv.remove("hand")


def test_a_foreign_container_with_the_name_is_not_taken_for_it(drv):
    drv.engine.run("sandbox-imposter", drv.image, Cmd=list(SLEEP))
    try:
        assert drv.code("inspect", id="imposter") == ENOENT
        assert drv.code("remove", id="imposter") == ENOENT
        assert drv.engine.exists("sandbox-imposter")
    finally:
        drv.engine.remove("sandbox-imposter")


def test_removal_by_two_hands_at_once(drv):
    drv.create("both")
    import concurrent.futures
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        by_hand = pool.submit(drv.engine.remove, "sandbox-both")
        assert drv.code("remove", id="both") in (0, ENOENT)
        by_hand.result()
    assert not drv.engine.exists("sandbox-both")


# ---- an engine that stops ----

def test_engine_restarted(engine2):
    with_driver(engine2, check_restart)


def with_driver(engine, check):
    d = make_driver(engine)
    try:
        check(d, engine)
        for i in d.ids():
            d.remove(i)
        d.check_clean()
        d.stop()
    finally:
        d.close()


def check_restart(d, engine):
    d.create("one")
    d.create("two")
    d.call("pause", id="two")
    d.drop_events()
    engine.stop()
    t0 = time.monotonic()
    for op in ("inspect", "pause", "remove"):
        assert d.code(op, id="one") in (EHOSTUNREACH, -104), op
    assert d.call("list")["list"] and time.monotonic() - t0 < 5
    with pytest.raises(DriverError) as e:
        d.create("three")
    assert "three" not in d.ids(), e.value
    engine.start()
    assert d.wait_event("one", "exited", timeout=20)["state"] == "exited"
    assert d.inspect("one")["state"] == "exited" and d.inspect("two")["state"] == "exited"
    assert d.code("address", id="one", port=80) == EADDRNOTAVAIL
    d.create("three")  # no leftovers of the failed one are in the way
    assert d.out("three", "echo on") == "on\n"
    d.remove("one")
    # and events are followed again
    d.drop_events()
    engine.engine.remove("sandbox-three")
    assert d.wait_event("three", "gone")


def test_engine_killed(engine2):
    def check(d, engine):
        d.create("one", entrypoint=["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"])
        d.drop_events()
        engine.kill()
        assert d.code("inspect", id="one") in (EHOSTUNREACH, -104)
        engine.start()
        assert d.wait_event("one", "exited", timeout=30)
        d.create("two")
        assert d.out("two", "echo on") == "on\n"
    with_driver(engine2, check)


def test_what_happened_in_a_gap_is_noticed(engine2):
    def check(d, engine):
        for i in ("stays", "goes", "ends"):
            d.create(i)
        d.drop_events()
        os.kill(d.proc.pid, signal.SIGSTOP)
        try:
            engine.restart()
            for i in ("stays", "ends"):
                engine.engine.call("POST", f"/containers/sandbox-{i}/start")
            engine.engine.remove("sandbox-goes")
            engine.engine.call("POST", "/containers/sandbox-ends/kill")
            engine.engine.call("POST", "/containers/sandbox-ends/wait")
        finally:
            os.kill(d.proc.pid, signal.SIGCONT)
        want, seen = {"stays": "running", "goes": "gone", "ends": "exited"}, {}
        while seen != want:  # whatever is told on the way
            e = d.exits.get(timeout=15)
            seen[e["id"]] = e["state"]
        assert d.inspect("ends")["exit_code"] == 137
        covekit_wait(lambda: pings(d, "stays"), lambda: "no agent", 10)
    with_driver(engine2, check)


def test_an_engine_that_hangs_does_not_hang_lookups(engine2):
    def check(d, engine):
        d.create("one")
        engine.freeze()
        try:
            t0 = time.monotonic()
            assert d.call("address", id="one", port=80)["port"] == 80
            assert d.call("published", id="one", port=80)["via_agent"] is True
            assert d.call("list")["list"][0]["id"] == "one"
            assert time.monotonic() - t0 < 1
        finally:
            engine.freeze(False)
        assert d.inspect("one")["state"] == "running"
    with_driver(engine2, check)


# ---- whose is it ----

def test_two_daemons_on_one_engine_keep_apart(drv, own):
    drv.create("mine")
    guarded(own, "theirs")
    own.call("volume_open", name="cove-test-v", **{"for": "theirs"})
    assert drv.ids() == ["mine"] and own.ids() == ["theirs"]
    for op in ("inspect", "pause", "logs", "remove", "describe"):
        assert drv.code(op, id="theirs") == ENOENT, op
    assert drv.code("address", id="theirs", port=80) == ENOENT
    drv.call("recover", known=["mine"], undone=["theirs"])  # an id of the other's: nothing of ours
    assert drv.call("found")["found"] == []
    drv.call("volume_remove", name="cove-test-v")
    assert own.out("theirs", "echo there") == "there\n"
    assert own.engine.exists("sandbox-egress-theirs") and "cove-test-v" in own.engine.volumes()
    drv.remove("mine")
    own.remove("theirs")
    own.call("volume_remove", name="cove-test-v", **{"for": "theirs"})
    assert "cove-test-v" not in own.engine.volumes()


def test_a_state_directory_that_was_moved(own):
    guarded(own, "kept")
    own.create("unknown")
    own.stop()
    own.state = own.state.rename(own.dir / "elsewhere")
    own.start(known=["kept"])
    assert own.out("kept", "echo on") == "on\n"
    own.call("pause", id="kept")
    own.call("resume", id="kept")
    assert [f["spec"]["id"] for f in own.call("found")["found"]] == ["unknown"]
    own.create("new")
    own.stop()
    own.start(known=["kept", "new"])  # both marks
    assert own.ids() == ["kept", "new"]
    assert [f["spec"]["id"] for f in own.call("found")["found"]] == ["unknown"]


def peer_box(engine, image, name, labels, **config):
    """A container as an opensandbox-server makes it."""
    return engine.run("sandbox-" + name, image, Cmd=["sleep", "1000"], Env=["A=b", "OPENSANDBOX_ID=" + name],
                      Labels={"opensandbox.io/id": name, "team": "blue", **labels}, **config)


def test_sandboxes_of_another_server_are_taken_over(docker, tmp_path):
    d = make_driver(docker, {"legacy_metadata_dir": str(tmp_path)})
    try:
        d.stop()
        (tmp_path / "_expiration").mkdir()
        (tmp_path / "_expiration/peer-1.json").write_text('{"expires_at": "2030-05-05T00:00:00+00:00"}')
        (tmp_path / "peer-2.json").write_text('{"team": "red", "new": "x"}')
        labels = {"opensandbox.io/expires-at": "2030-01-01T00:00:00+00:00", "opensandbox.io/embedding-proxy-port": "45001",
                  "opensandbox.io/platform-os": "linux", "opensandbox.io/platform-arch": "amd64",
                  "opensandbox.io/extensions.foo": "bar"}
        peer_box(d.engine, d.image, "peer-1", labels, HostConfig={"Memory": 64 << 20})
        peer_box(d.engine, d.image, "peer-2", {"opensandbox.io/manual-cleanup": "true"})
        peer_box(d.engine, d.image, "peer-3", {"opensandbox.io/expires-at": "not a time"})
        d.engine.run("unrelated", d.image, Cmd=["sleep", "1000"])
        d.start(known=["peer-3"])
        found = {f["spec"]["id"]: f for f in d.call("found")["found"]}
        assert set(found) == {"peer-1", "peer-2"}
        one, two = found["peer-1"], found["peer-2"]
        assert one["spec"]["image"] == d.image and one["spec"]["entrypoint"] == ["sleep", "1000"]
        assert one["metadata"] == {"team": "blue"} and one["platform"] == {"os": "linux", "arch": "amd64"}
        assert one["expires_us"] == 1904169600 * 1000000 and one["created_us"] > 1.7e15
        assert one["spec"]["extensions"] == {"opensandbox.extensions.foo": "bar"}
        assert two["metadata"] == {"team": "red", "new": "x"} and two["expires_us"] == 0
        assert d.call("found")["found"] == []  # handed out once
        assert d.ids() == ["peer-1", "peer-2", "peer-3"]
        assert d.call("published", id="peer-1", port=44772) == {"host_port": 45001, "via_agent": True, "code": 0,
                                                               "seq": d.seq}
        with pytest.raises(DriverError) as e:
            d.call("published", id="peer-1", port=8080)
        assert e.value.code == EADDRNOTAVAIL and "opensandbox.io/http-port" in e.value.text
        d.call("note_expiry", id="peer-1", us=1904169600 * 1000000 + 3600 * 10**6)
        assert json.loads((tmp_path / "_expiration/peer-1.json").read_text()) == {"expires_at": "2030-05-05T01:00:00+00:00"}
        for i in d.ids():
            d.remove(i)
        assert not (tmp_path / "_expiration/peer-1.json").exists() and not (tmp_path / "peer-2.json").exists()
        assert d.engine.exists("unrelated")
        d.engine.remove("unrelated")
        d.check_clean()
        d.stop()
    finally:
        d.engine.remove("unrelated")
        d.close()


def test_lost_database_is_made_good_from_labels(own):
    own.create("lost", labels={"team": "blue"}, expiresUs=1904169600 * 1000000, env=["A=b"],
               extensions={"opensandbox.extensions.foo": "bar"})
    own.stop()
    own.start(known=[])
    f = own.call("found")["found"][0]
    assert f["spec"]["id"] == "lost" and f["metadata"] == {"team": "blue"} and f["expires_us"] == 1904169600 * 1000000
    assert f["spec"]["accessToken"] == "driver-test-token" and "A=b" in f["spec"]["env"]
    assert own.out("lost", "echo $A") == "b\n"


# ---- ports ----

def test_published_ports_lead_to_the_agent(drv):
    drv.create("ports", entrypoint=["sh", "-c", "echo hi > /tmp/index.html; httpd -f -p 8080 -h /tmp"])
    p = drv.call("published", id="ports", port=44772)
    assert p["via_agent"] is True
    with urllib.request.urlopen(f"http://127.0.0.1:{p['host_port']}/ping", timeout=5) as r:
        assert r.status == 200
    direct = drv.call("published", id="ports", port=8080)
    assert direct["via_agent"] is False

    def answers():
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{direct['host_port']}/index.html", timeout=5).read() == b"hi\n"
        except OSError:
            return False
    covekit_wait(answers, lambda: "8080 does not answer", 5)
    assert drv.call("published", id="ports", port=3000)["host_port"] == p["host_port"]
    assert drv.call("guard_token", id="ports")["token"] is None


def test_the_way_through_published_ports_when_told_so(docker):
    d = make_driver(docker, {"resolve_internal": False})
    try:
        d.create("mapped")
        at = d.call("address", id="mapped", port=44772)
        assert at["host"] == "127.0.0.1" and at["prefix"] == "/proxy/44772"
        assert pings(d, "mapped")
        d.remove("mapped")
        d.stop()
    finally:
        d.close()


def test_a_network_of_the_user(docker):
    subnet = next(docker.pool.subnets(new_prefix=26))
    docker.engine.call("POST", "/networks/create", {"Name": "cove-test-net", "IPAM": {"Config": [{"Subnet": str(subnet)}]}})
    try:
        d = make_driver(docker, {"network_mode": "cove-test-net"})
        try:
            d.create("inside")
            assert d.call("address", id="inside", port=80)["host"] == \
                d.container("inside")["NetworkSettings"]["Networks"]["cove-test-net"]["IPAddress"]
            assert pings(d, "inside")
            with pytest.raises(DriverError) as e:
                d.call("check", spec={"id": "x", "image": d.image, "entrypoint": ["a"], "policy": POLICY})
            assert e.value.code == EINVAL and "cove-test-net" in e.value.text
            d.remove("inside")
            d.stop()
        finally:
            d.close()
    finally:
        docker.engine.call("DELETE", "/networks/cove-test-net")


def test_no_network_has_no_address(docker):
    d = make_driver(docker, {"network_mode": "none", "start_timeout_ms": 500})
    try:
        d.create("alone")
        assert d.code("address", id="alone", port=80) == EADDRNOTAVAIL
        assert d.code("published", id="alone", port=80) == EADDRNOTAVAIL
        d.remove("alone")
        d.stop()
    finally:
        d.close()


# ---- looking ----

def test_details_are_the_engine_s(drv):
    drv.create("details", env=["SECRET_KEY=x"], memoryBytes=64 << 20, cpuMillis=500, cpuNanos=500_000_000, labels={"a": "b"})
    d = drv.call("describe", id="details")["details"]
    assert d["name"] == "sandbox-details" and d["running"] is True and d["memoryBytes"] == 64 << 20 and d["nanoCpus"] == 500_000_000
    assert d["labels"]["a"] == "b" and "SECRET_KEY=x" in d["env"]  # the dialect masks
    assert any(v for v in d["ports"].values()) and d["networks"]["bridge"]
    assert len(d["containerId"]) == 64 and d["status"] == "running"


def test_logs_with_times_and_since(drv):
    drv.create("times", entrypoint=["sh", "-c", "echo early; sleep 1; echo late; sleep 1000"])
    covekit_wait(lambda: "late" in drv.logs("times"), lambda: drv.logs("times"), 5)
    stamp, word = drv.logs("times", timestamps=True).splitlines()[-1].split(" ", 1)
    assert word == "late" and stamp.endswith("Z")
    started = drv.inspect("times")["started_us"]
    assert drv.logs("times", since_us=started + 600_000) == "late\n"


# ---- faults of the engine ----

def test_pause_that_fails_half_way_is_undone(scripted):
    d, e = scripted
    guarded(d, "g")
    side = d.engine.sidecar("g")["Id"]
    e.on("POST", f"/containers/{side}/pause", status=500, message="cgroup trouble")
    with pytest.raises(DriverError) as x:
        d.call("pause", id="g")
    assert "cgroup trouble" in x.value.text and d.inspect("g")["state"] == "running"
    e.on("POST", "/containers/.*/unpause", status=500, message="worse trouble")
    with pytest.raises(DriverError) as x:
        d.call("pause", id="g")
    assert "cgroup trouble" in x.value.text and "worse trouble" in x.value.text
    e.clear()
    assert d.inspect("g")["state"] == "paused"
    box = d.container("g")["Id"]
    e.on("POST", f"/containers/{box}/unpause", status=500, message="stuck")
    with pytest.raises(DriverError) as x:
        d.call("resume", id="g")
    assert "stuck" in x.value.text
    assert not d.engine.sidecar("g")["State"]["Paused"]  # it was running before, so it is left so
    e.clear()
    d.engine.call("POST", f"/containers/{side}/pause")
    e.on("POST", f"/containers/{box}/unpause", status=500, message="stuck")
    with pytest.raises(DriverError):
        d.call("resume", id="g")
    assert d.engine.sidecar("g")["State"]["Paused"]  # paused again
    e.clear()
    d.call("resume", id="g")


def test_removal_that_fails_keeps_everything_for_the_next_try(scripted):
    d, e = scripted
    guarded(d, "g")
    e.on("DELETE", "/containers/.*", status=500, message="device or resource busy")
    with pytest.raises(DriverError) as x:
        d.remove("g")
    assert "device or resource busy" in x.value.text
    assert d.engine.exists("sandbox-g") and d.engine.exists("sandbox-egress-g")
    assert "g" in d.ids()
    e.clear()
    d.remove("g")


def test_a_container_that_vanishes_between_list_and_look_is_skipped(scripted):
    d, e = scripted
    d.create("one")
    d.create("two")
    gone = d.container("two")["Id"]
    d.stop()
    e.on("GET", f"/containers/{gone}/json", status=404, message="No such container")
    d.start(known=["one", "two"])
    assert d.ids() == ["one"]
    e.clear()
    d.engine.remove(gone)


def test_an_engine_that_hangs_does_not_hold_the_end_up(scripted):
    d, e = scripted
    d.create("one")
    gate = threading.Event()
    e.on("GET", "/containers/.*/json", gate=gate)
    n = len(e.seen("GET", "/containers/.*/json"))
    d.engine.call("POST", "/containers/sandbox-one/kill")
    covekit_wait(lambda: len(e.seen("GET", "/containers/.*/json")) > n, lambda: "nobody looks", 5)
    t0 = time.monotonic()
    d.stop()  # the thread that follows events is in the middle of a look
    assert time.monotonic() - t0 < 5
    gate.set()
    e.clear()
    d.start(known=["one"])


# ---- volumes, snapshots ----

def test_a_volume_that_cannot_be_looked_up(scripted):
    d, e = scripted
    e.on("GET", "/volumes/.*", status=500, message="driver is away")
    with pytest.raises(DriverError) as x:
        d.call("volume_open", name="v", **{"for": "s"})
    assert x.value.code == -19996 and "driver is away" in x.value.text  # DRIVER_VOLUME_INSPECT


def test_a_volume_that_another_made_in_the_meantime_is_not_ours(scripted):
    d, e = scripted
    d.engine.call("POST", "/volumes/create", {"Name": "cove-race-v"})
    try:
        e.on("GET", "/volumes/cove-race-v", status=404, message="no such volume", times=1)
        assert d.call("volume_open", name="cove-race-v", **{"for": "s"})["created"] is False
    finally:
        d.engine.call("DELETE", "/volumes/cove-race-v")


def test_volumes_of_others_are_never_removed(drv):
    drv.engine.call("POST", "/volumes/create", {"Name": "cove-user-v"})
    try:
        v = drv.call("volume_open", name="cove-user-v", **{"for": "x"})
        assert v["created"] is False and v["driver"] == "local" and v["mountpoint"].endswith("/_data")
        drv.call("volume_remove", name="cove-user-v")
        assert "cove-user-v" in drv.engine.volumes()
    finally:
        drv.engine.call("DELETE", "/volumes/cove-user-v")


def test_snapshots_carry_neither_labels_nor_tokens(drv):
    drv.create("snap", labels={"team": "blue"}, env=["KEEP=1"])
    image = drv.call("snapshot_create", id="snap", snapshot="s-1")["image"]
    assert image == "opensandbox-snapshots:s-1"
    config = drv.engine.image(image)["Config"]
    assert not [k for k, v in config["Labels"].items() if v and k.startswith(("opensandbox.io/", "cove."))]
    env = dict(e.split("=", 1) for e in config["Env"])
    assert env["KEEP"] == "1" and not env.get("EXECD_ACCESS_TOKEN") and not env.get("OPENSANDBOX_ID")
    assert "driver-test-token" not in json.dumps(drv.engine.image(image)["Config"])
    assert drv.inspect("snap")["state"] == "running"
    drv.remove("snap")
    drv.call("snapshot_remove", image=image)


# ---- kill -9 in the middle ----

CRASHES = ["create-image", "create-ports", "create-guard", "create-container", "create-entered", "create-injected", "create-started",
           "create-inspected", "create-ready", "guard-volume", "guard-created", "guard-started"]


@pytest.mark.parametrize("point", CRASHES)
def test_kill_9_in_a_create(own, point):
    own.stop()
    own.env["COVE_CRASH_AT"] = point
    own.start()
    with pytest.raises(DriverError) as e:
        own.create("half", **({} if point == "create-ports" else {"policy": POLICY}))
    assert "drv died" in e.value.text, "the crash point was not reached"
    own.proc.wait()
    del own.env["COVE_CRASH_AT"]
    own.start(undone=["half"])
    assert own.ids() == [] and own.call("found")["found"] == []
    own.census.check()


@pytest.mark.parametrize("point", ["remove-killed", "remove-container", "remove-guard"])
def test_kill_9_in_a_removal(own, point):
    guarded(own, "half")
    own.stop()
    own.env["COVE_CRASH_AT"] = point
    own.start(known=["half"])
    with pytest.raises(DriverError) as e:
        own.remove("half")
    assert "drv died" in e.value.text, "the crash point was not reached"
    own.proc.wait()
    del own.env["COVE_CRASH_AT"]
    own.start(undone=["half"])
    assert own.ids() == []
    own.census.check()


@pytest.mark.parametrize("point,op", [("pause-sandbox", "pause"), ("pause-guard", "pause"), ("resume-guard", "resume"),
                                      ("snapshot-commit", "snapshot_create"), ("snapshot-committed", "snapshot_create")])
def test_kill_9_in_a_change(own, point, op):
    guarded(own, "half")
    if op == "resume":
        own.call("pause", id="half")
    own.stop()
    own.env["COVE_CRASH_AT"] = point
    own.start(known=["half"])
    with pytest.raises(DriverError) as e:
        own.call(op, id="half", snapshot="s-crash")
    assert "drv died" in e.value.text, "the crash point was not reached"
    own.proc.wait()
    del own.env["COVE_CRASH_AT"]
    own.start(known=["half"])
    # whatever it was doing: the sandbox is there, and both states can be reached from here
    if own.inspect("half")["state"] == "paused":
        own.call("resume", id="half")
    assert own.out("half", "echo on") == "on\n"
    own.call("pause", id="half")
    own.call("resume", id="half")
    own.remove("half")
    own.engine.remove_image("opensandbox-snapshots:s-crash")


def test_kill_9_in_a_recovery(own):
    for i in ("a", "b", "kept"):
        guarded(own, i)
    own.kill()
    own.env["COVE_CRASH_AT"] = "recover-one"
    with pytest.raises(DriverError):
        own.start(known=["kept"], undone=["a", "b"])
    own.proc.wait()
    del own.env["COVE_CRASH_AT"]
    own.start(known=["kept"], undone=["a", "b"])
    assert own.ids() == ["kept"] and own.out("kept", "echo on") == "on\n"
