"""kill -9 of the driver's process and of cove-launch, at every named place: a whole sandbox or nothing."""
import os
import pathlib
import re
import shutil
import signal
import subprocess

import covekit
import pytest
from nativekit import Driver, DriverError, Traces, covekit_wait

SOURCES = covekit.ROOT / "src/daemon/driver/native"
POINTS = re.findall(r'"((?:create|remove)-[a-z]+)"', (SOURCES / "native.c").read_text())
LAUNCH_POINTS = sorted({m for f in SOURCES.glob("launch_*.c") for m in re.findall(r'crash_point\("([a-z-]+)"\)', f.read_text())})


def alive(pid):
    """False also for a process that only waits to be reaped."""
    try:
        return "State:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.fixture(scope="module")
def base():
    """A driver with one kept sandbox; each test kills and restarts its process."""
    d = Driver().start().import_busybox()
    d.create("kept", entrypoint=["sleep", "1000"])
    d.out("kept", "echo before > /mark")
    yield d
    d.close()


def crash(d, point, net="none"):
    """Runs create and remove in a driver that dies at the point. True when the create was acknowledged."""
    d.stop()
    d.env["COVE_CRASH_AT"] = point
    d.start(known=["kept"])
    created = False
    with pytest.raises(DriverError):
        d.create("victim", net=net, entrypoint=["sleep", "1000"])
        created = True
        d.remove("victim")
    assert d.proc.wait(10) == -signal.SIGKILL, f"{point} was never reached"
    del d.env["COVE_CRASH_AT"]
    return created


@pytest.mark.parametrize("point", POINTS)
def test_an_unacknowledged_sandbox_is_gone(base, point):
    created = crash(base, point)
    assert created == point.startswith("remove")
    base.start(known=["kept"])
    assert base.ids() == ["kept"]
    assert base.out("kept", "cat /mark") == "before\n"
    left = Traces(base)
    kept = base.record("kept")
    covekit_wait(lambda: all(kept["key"] in x or f"process {kept['pid']}" == x or "process" in x for x in left.found()),
                 left.found, 10)
    base.create("victim")  # nothing stands in the way of the same name
    base.remove("victim")


@pytest.mark.parametrize("point", ["remove-recorded", "remove-killed", "remove-runtime", "remove-cgroup", "remove-trash"])
def test_a_removal_that_began_is_finished_even_when_the_service_still_knows_it(base, point):
    assert crash(base, point)
    base.start(known=["kept", "victim"])
    assert base.ids() == ["kept"]


@pytest.mark.parametrize("point", ["nat-rules", "nat-pinned"])
def test_half_made_outbound_network_is_taken_down(point):
    d = Driver().start().import_busybox()
    traces = Traces(d)
    d.stop()
    d.env["COVE_CRASH_AT"] = point
    d.start()
    with pytest.raises(DriverError):
        d.create("victim", net="nat")
    assert d.proc.wait(10) == -signal.SIGKILL
    del d.env["COVE_CRASH_AT"]
    d.start()
    traces.wait_none()
    d.create("after", net="nat")
    d.close()


@pytest.mark.parametrize("point", LAUNCH_POINTS)
def test_the_launcher_or_its_child_dies(point):
    """The create fails with a reason, nothing is left, and the next create starts a new launcher."""
    d = Driver({"parked_pool": 0}, {"COVE_CRASH_AT": point}).start().import_busybox()
    traces = Traces(d)
    with pytest.raises(DriverError) as e:
        d.create("victim")
    assert e.value.code == -5 and len(e.value.text) > 20
    assert d.ids() == []
    traces.wait_none()
    assert d.proc.poll() is None
    d.stop()
    del d.env["COVE_CRASH_AT"]
    d.start()
    d.create("after")
    d.close()


def test_a_killed_launcher_is_replaced(base):
    base.stop()
    base.start(known=["kept"])
    launcher = base.launcher_pid()
    os.kill(launcher, signal.SIGKILL)
    covekit_wait(lambda: not alive(launcher), lambda: "it lives", 5)
    for i in range(6):  # more than are parked
        base.create(f"again-{i}")
    for i in range(6):
        assert base.out(f"again-{i}", "echo ok") == "ok\n"
        base.remove(f"again-{i}")
    assert base.out("kept", "cat /mark") == "before\n"


def test_exits_while_the_driver_is_down_are_found(base):
    flags = base.dir / "flags"
    flags.mkdir()
    base.create("ends", entrypoint=["sh", "-c", "while [ ! -e /flags/go ]; do sleep 0.05; done; exit 7"],
                mounts=[{"source": str(flags), "target": "/flags", "readOnly": True}])
    pid = base.record("ends")["pid"]
    base.kill()
    (flags / "go").touch()
    covekit_wait(lambda: not alive(pid), lambda: "still there", 10)
    base.start(known=["kept", "ends"])
    i = base.inspect("ends")
    assert (i["state"], i["exit_code"]) == ("exited", 7)
    base.remove("ends")


def test_paused_sandboxes_stay_paused(base):
    base.create("cold")
    base.call("pause", id="cold")
    base.kill()
    base.start(known=["kept", "cold"])
    assert base.inspect("cold")["state"] == "paused"
    base.call("resume", id="cold")
    assert base.out("cold", "echo warm") == "warm\n"
    base.remove("cold")


def test_unknown_sandboxes_are_removed(base):
    base.create("unknown")
    pid = base.record("unknown")["pid"]
    base.kill()
    base.start(known=["kept"])
    assert base.ids() == ["kept"]
    assert not alive(pid)


def test_a_damaged_record_does_not_stop_recovery(base):
    base.create("damaged")
    key, pid = base.record("damaged")["key"], base.record("damaged")["pid"]
    base.kill()
    (base.dir / "state/sandboxes" / key / "record.json").write_text("{not json")
    (base.dir / "state/sandboxes/stray").mkdir()
    base.start(known=["kept", "damaged"])
    assert base.ids() == ["kept"]
    assert not alive(pid)
    assert not (base.dir / "state/sandboxes/stray").exists()


def test_orphans_of_a_daemon_whose_state_is_gone_are_ended():
    d = Driver().start().import_busybox()
    d.create("orphan", net="nat")
    pid, traces = d.record("orphan")["pid"], Traces(d)
    d.kill()
    pin = d.dir / "run" / d.instance() / "hub.ns"
    subprocess.run(["umount", pin], check=True)
    shutil.rmtree(d.dir)
    assert alive(pid)
    other = Driver().start()
    covekit_wait(lambda: not alive(pid), lambda: "it lives", 10)
    for root in covekit.cgroup_roots():
        assert not (root / f"cove-{traces.name}").exists()
    other.close()
