"""One suite for every driver: what driver.h promises holds in each. Where drivers may differ, the test asks the driver
(capabilities, rules, what found() hands out) instead of knowing its name."""
import concurrent.futures
import re
import time

import covekit
import pytest
from driverkit import EALREADY, EBUSY, ENOENT, EOPNOTSUPP, SLEEP, DockerDriver, DriverError, NativeDriver
from nativekit import covekit_wait

MIB = 1 << 20


@pytest.fixture(scope="module", params=["native", "docker"])
def drv(request):
    if request.param == "native":
        d = NativeDriver({"parked_pool": 2})
    else:
        d = DockerDriver(request.getfixturevalue("docker"))
    try:
        d.prepare()
        yield d
        for i in d.ids():
            d.remove(i)
        d.check_clean()
    finally:
        d.close()


@pytest.fixture
def name(request):
    return re.sub(r"[^a-z0-9]+", "-", request.node.name.split("[")[0].removeprefix("test_"))[:40].strip("-")


@pytest.fixture
def box(drv, name):
    drv.create(name, entrypoint=SLEEP)
    yield name
    assert drv.code("remove", id=name) in (0, ENOENT)


def test_it_says_what_it_is(drv):
    rules, caps = drv.rules(), drv.capabilities()
    assert rules["provider"] == caps["driver"]
    assert caps["pause"] is True and {"cpu", "memory"} <= set(caps["limits"])
    assert caps["snapshot"] == rules["snapshots"]


def test_life_of_a_sandbox(drv, name):
    before = time.time() * 1e6
    made = drv.create(name, entrypoint=["sh", "-c", "echo hello; sleep 1000"], env=["A=b c", "EMPTY="])
    assert made["info"]["state"] == "running" and made["info"]["id"] == name
    assert before - 2e6 < made["info"]["started_us"] < time.time() * 1e6 + 2e6
    assert made["info"]["finished_us"] == 0 and made["steps"]
    assert drv.inspect(name)["state"] == "running"
    assert drv.ids().count(name) == 1
    assert drv.out(name, 'echo "$A|${EMPTY-unset}"') == "b c|\n"
    covekit_wait(lambda: drv.logs(name) == "hello\n", lambda: drv.logs(name), 5)
    drv.remove(name)
    assert name not in drv.ids()
    for op in ("inspect", "pause", "resume", "remove", "logs"):
        assert drv.code(op, id=name) == ENOENT, op


def test_an_id_is_there_once(drv, box):
    with pytest.raises(DriverError):
        drv.create(box, entrypoint=SLEEP)
    assert drv.out(box, "echo still") == "still\n"


def test_pause_and_resume(drv, box):
    drv.call("pause", id=box)
    assert drv.inspect(box)["state"] == "paused"
    assert drv.code("pause", id=box) == EALREADY
    assert next(i for i in drv.call("list")["list"] if i["id"] == box)["state"] == "paused"
    drv.call("resume", id=box)
    assert drv.inspect(box)["state"] == "running"
    assert drv.code("resume", id=box) == EALREADY
    assert drv.out(box, "echo on") == "on\n"


GAPS = """
now() { read t _ < /proc/uptime; t=${t%.*}${t#*.}; }
now; last=$t; max=0; n=0
while :; do
    now; gap=$((t - last)); last=$t; n=$((n + 1))
    [ $gap -gt $max ] && max=$gap
    echo $n $max > /tmp/gaps.new; mv /tmp/gaps.new /tmp/gaps
    sleep 0.02
done
"""


def test_a_paused_sandbox_does_nothing(drv, name):
    """It looks at the clock all the time: a pause is a gap in that."""
    drv.create(name, entrypoint=["sh", "-c", GAPS])
    covekit_wait(lambda: drv.run(name, "cat /tmp/gaps")[2] == 0, lambda: "it does not run", 5)
    drv.call("pause", id=name)
    time.sleep(1.5)
    drv.call("resume", id=name)
    before, gap = map(int, drv.out(name, "sleep 0.3; cat /tmp/gaps").split())
    assert gap >= 140, gap  # hundredths of a second
    covekit_wait(lambda: int(drv.out(name, "cat /tmp/gaps").split()[0]) > before, lambda: "it does not go on", 5)
    drv.remove(name)


@pytest.mark.parametrize("script,code", [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)])
def test_the_end_of_the_entrypoint(drv, name, script, code):
    name += f"-{code}"
    drv.drop_events()
    drv.create(name, entrypoint=["sh", "-c", f"echo last words; sleep 0.3; {script}"])
    e = drv.wait_event(name, "exited")
    assert (e["exit_code"], e["oom_killed"]) == (code, False)
    assert e["finished_us"] >= e["started_us"] > 0
    i = drv.inspect(name)
    assert (i["state"], i["exit_code"]) == ("exited", code)
    assert drv.logs(name) == "last words\n"
    assert drv.code("pause", id=name) == EALREADY and drv.code("resume", id=name) == EALREADY
    assert name in drv.ids()
    drv.remove(name)
    assert drv.code("inspect", id=name) == ENOENT


def test_an_entrypoint_that_takes_too_much_memory(drv, name):
    drv.drop_events()
    drv.create(name, memoryBytes=64 * MIB, entrypoint=["sh", "-c", "sleep 0.5; exec awk 'BEGIN { s = \"x\"; while (1) s = s s }'"])
    e = drv.wait_event(name, "exited")
    assert (e["exit_code"], e["oom_killed"]) == (137, True)
    assert drv.inspect(name)["oom_killed"] is True
    drv.remove(name)


def test_an_entrypoint_that_ends_at_once_is_no_failed_create(drv, name):
    drv.drop_events()
    drv.create(name, entrypoint=["sh", "-c", "exit 5"])
    assert drv.wait_event(name, "exited")["exit_code"] == 5
    assert drv.inspect(name)["exit_code"] == 5
    drv.remove(name)


def test_logs(drv, name):
    drv.create(name, entrypoint=["sh", "-c", "for i in 1 2 3; do echo out$i; echo err$i >&2; done; echo end; sleep 1000"])
    covekit_wait(lambda: "end" in drv.logs(name), lambda: "no log", 5)
    lines = drv.logs(name, tail=100).splitlines()
    assert sorted(lines) == sorted([f"{w}{i}" for w in ("out", "err") for i in (1, 2, 3)] + ["end"])
    assert len(drv.call("logs", id=name, tail=3)["text"].splitlines()) == 3
    assert drv.call("logs", id=name, tail=0)["text"] == ""
    for line in drv.logs(name, timestamps=True).splitlines():
        assert re.fullmatch(r"(\d{4}-\d\d-\d\dT\S+Z )?(out[123]|err[123]|end)", line), line
    drv.remove(name)


def test_the_address_leads_to_the_agent_and_to_ports(drv, name):
    drv.create(name, entrypoint=["sh", "-c", "mkdir -p /tmp/w; echo hi > /tmp/w/index.html; httpd -f -p 8000 -h /tmp/w"])
    assert drv.http(name, "GET", "/ping")[0] == 200
    assert drv.http(name, "GET", "/command", token="wrong")[0] in (401, 403, 404, 405)

    def answers():
        try:
            return drv.http(name, "GET", "/index.html", port=8000) == (200, "hi\n")
        except DriverError:
            return False
    covekit_wait(answers, lambda: "port 8000 does not answer", 5)
    drv.remove(name)
    with pytest.raises(DriverError):
        drv.http(name, "GET", "/ping")


@pytest.mark.parametrize("state", ["running", "paused", "exited", "busy"])
def test_remove_in_every_state(drv, name, state):
    name += "-" + state
    drv.drop_events()
    entrypoints = {"exited": ["sh", "-c", "exit 1"], "busy": ["sh", "-c", "trap '' TERM INT HUP; (trap '' TERM; yes > /dev/null) & while :; do :; done"]}
    drv.create(name, entrypoint=entrypoints.get(state, SLEEP))
    if state == "paused":
        drv.call("pause", id=name)
    if state == "exited":
        drv.wait_event(name, "exited")
    drv.remove(name)
    assert name not in drv.ids()
    assert drv.code("remove", id=name) == ENOENT


def test_mounts(drv, name, tmp_path):
    covekit.STATE_BASE.mkdir(exist_ok=True)
    for d in ("rw", "ro"):
        (tmp_path / d).mkdir()
        (tmp_path / d / "file").write_text(d)
        (tmp_path / d).chmod(0o777)
    tmp_path.chmod(0o755)
    for p in tmp_path.parents:
        if p.stat().st_mode & 0o5 != 0o5 and str(p).startswith("/tmp/"):
            p.chmod(0o755)
    drv.create(name, entrypoint=SLEEP, mounts=[{"source": str(tmp_path / "rw"), "target": "/mnt/rw", "readOnly": False},
                                               {"source": str(tmp_path / "ro"), "target": "/mnt/ro", "readOnly": True}])
    assert drv.out(name, "cat /mnt/rw/file /mnt/ro/file") == "rwro"
    drv.out(name, "echo new > /mnt/rw/made")
    assert (tmp_path / "rw/made").read_text() == "new\n"
    assert drv.run(name, "echo no > /mnt/ro/made")[2] != 0
    assert not (tmp_path / "ro/made").exists()
    drv.remove(name)
    assert (tmp_path / "rw/file").exists()


def test_a_memory_limit_holds(drv, name):
    drv.create(name, entrypoint=SLEEP, memoryBytes=64 * MIB)
    _, _, code = drv.run(name, "dd if=/dev/zero of=/dev/null bs=200M count=1")
    assert code not in (0, None)
    assert drv.out(name, "dd if=/dev/zero of=/dev/null bs=8M count=1 2>/dev/null; echo alive") == "alive\n"
    drv.remove(name)


def test_a_cpu_limit_holds(drv, name):
    drv.create(name, entrypoint=SLEEP, cpuMillis=200, cpuNanos=200_000_000)
    out = drv.out(name, "timeout 1.5 sh -c 'while :; do :; done'; awk '{print $14+$15+$16+$17}' /proc/$$/stat")
    assert int(out.split()[-1]) < 90, out  # of 150 ticks
    drv.remove(name)


def test_an_unknown_image_is_refused_before_anything_is_made(drv, name):
    with pytest.raises(DriverError):
        drv.call("ensure_image", image="local/no-such-image-here")
    with pytest.raises(DriverError):
        drv.create(name, image="local/no-such-image-here", entrypoint=SLEEP)
    assert name not in drv.ids()


def test_a_create_that_fails_leaves_nothing(drv, name):
    with pytest.raises(DriverError) as e:
        drv.create(name, entrypoint=SLEEP, mounts=[{"source": "/tmp", "target": "relative", "readOnly": False}])
    assert e.value.text
    assert name not in drv.ids() and drv.code("inspect", id=name) == ENOENT
    drv.create(name, entrypoint=SLEEP)  # the id is free
    drv.remove(name)


def test_twenty_at_once(drv, name):
    ids = [f"{name}-{i}" for i in range(20)]
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        for made in pool.map(lambda i: drv.call("create", timeout=120, spec={
                "id": i, "image": drv.image, "entrypoint": list(SLEEP), "env": [f"ME={i}"], "accessToken": "driver-test-token"}), ids):
            assert made["info"]["state"] == "running"
        assert set(ids) <= set(drv.ids())
        assert list(pool.map(lambda i: drv.out(i, "echo $ME"), ids)) == [i + "\n" for i in ids]
        list(pool.map(drv.remove, ids))
    assert not set(ids) & set(drv.ids())


def test_restart_keeps_what_is_known(drv, name):
    drv.create(name, entrypoint=SLEEP)
    drv.create(name + "-exits", entrypoint=["sh", "-c", "sleep 2; exit 9"])
    drv.create(name + "-paused", entrypoint=SLEEP)
    drv.call("pause", id=name + "-paused")
    known = [name, name + "-exits", name + "-paused", "never-was"]
    drv.stop()
    time.sleep(2.5)  # one ends while nobody looks
    drv.start(known=known)
    states = {i["id"]: i["state"] for i in drv.call("list")["list"]}
    assert states == {name: "running", name + "-exits": "exited", name + "-paused": "paused"}
    assert drv.code("inspect", id="never-was") == ENOENT
    assert drv.inspect(name + "-exits")["exit_code"] in (9, 255)  # who was not there may not know the code
    assert drv.out(name, "echo there") == "there\n"
    drv.call("resume", id=name + "-paused")
    assert drv.out(name + "-paused", "echo too") == "too\n"
    drv.drop_events()
    drv.run(name, "kill -9 $(pidof sleep)")  # its end is still seen
    assert drv.wait_event(name, "exited")["exit_code"] in (137, 255)
    for i in states:
        drv.remove(i)


def test_kill_9_and_what_nobody_knows(drv, name):
    drv.create(name, entrypoint=SLEEP)
    drv.create(name + "-undone", entrypoint=SLEEP)
    drv.create(name + "-stray", entrypoint=SLEEP)
    drv.kill()
    drv.start(recover=False)
    drv.call("recover", known=[name], undone=[name + "-undone"])
    found = [f["spec"]["id"] for f in drv.call("found")["found"]]
    assert name + "-undone" not in found and drv.code("inspect", id=name + "-undone") == ENOENT
    assert drv.out(name, "echo there") == "there\n"
    # either the driver hands it out, or it has ended it
    assert set(drv.ids()) == {name, *found} and found in ([], [name + "-stray"])
    if found:
        assert drv.out(name + "-stray", "echo there") == "there\n"
    for i in drv.ids():
        drv.remove(i)


def test_named_volumes(drv, name):
    if not drv.rules()["named_volumes"]:
        assert drv.code("volume_open", name="v") == EOPNOTSUPP
        return
    v = name + "-vol"
    assert drv.code("volume_open", name=v) == ENOENT
    made = drv.call("volume_open", name=v, **{"for": name})
    assert made["created"] is True and made["mountpoint"]
    again = drv.call("volume_open", name=v, **{"for": name + "-other"})
    assert again["created"] is False and again["mountpoint"] == made["mountpoint"]
    drv.create(name, entrypoint=SLEEP, mounts=[{"source": made["mountpoint"], "target": "/v", "volume": v, "readOnly": False}])
    drv.out(name, "echo kept > /v/f")
    assert drv.code("volume_remove", name=v, **{"for": name}) == EBUSY
    drv.remove(name)
    drv.create(name, entrypoint=SLEEP, mounts=[{"source": made["mountpoint"], "target": "/v", "volume": v, "readOnly": True}])
    assert drv.out(name, "cat /v/f") == "kept\n"
    assert drv.run(name, "echo x > /v/f")[2] != 0
    drv.remove(name)
    drv.call("volume_remove", name=v, **{"for": name + "-other"})  # not made for that one: stays
    assert drv.call("volume_open", name=v)["created"] is False
    drv.call("volume_remove", name=v, **{"for": name})
    assert drv.code("volume_open", name=v) == ENOENT
    drv.call("volume_remove", name=v)  # missing: fine


def test_snapshots(drv, name):
    if not drv.rules()["snapshots"]:
        assert drv.code("snapshot_create", id=name, snapshot="s") == EOPNOTSUPP
        return
    drv.create(name, entrypoint=SLEEP, env=["KEEP=1"])
    drv.out(name, "echo content > /root-file")
    image = drv.call("snapshot_create", id=name, snapshot=name + "-snap")["image"]
    assert drv.out(name, "echo goes on") == "goes on\n"
    drv.remove(name)
    drv.call("snapshot_exists", image=image)
    drv.create(name + "-2", image=image, entrypoint=SLEEP, snapshotId=name + "-snap")
    assert drv.out(name + "-2", "cat /root-file; echo $KEEP") == "content\n1\n"
    assert drv.code("snapshot_remove", image=image) == EBUSY
    drv.remove(name + "-2")
    drv.call("snapshot_remove", image=image)
    assert drv.code("snapshot_exists", image=image) == ENOENT
    drv.call("snapshot_remove", image=image)  # missing: fine
    assert drv.code("snapshot_create", id=name, snapshot="x") == ENOENT
