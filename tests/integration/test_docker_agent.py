"""How the agent gets into containers, and what creates do at once and under faults, on a real engine: `drv docker`."""
import concurrent.futures
import pathlib
import shutil
import signal
import time

import pytest

import covekit
import dockerkit
from driverkit import DockerDriver, DriverError
from scripted_engine import ScriptedEngine

POLICY = {"defaultAction": "deny", "egress": []}


@pytest.fixture(scope="module")
def docker():
    why = dockerkit.why_not()
    if why:
        pytest.skip(why)
    with dockerkit.Dockerd() as d:
        d.image("busybox"), d.image("egress"), d.image("execd")
        yield d


@pytest.fixture
def start(docker):
    """Makes drivers that end with the test; nothing may be left of it."""
    census, drivers = dockerkit.Census(docker), []

    def make(engine=docker, **config):
        config.setdefault("egress_image", "cove-test/egress")
        d = DockerDriver(engine, config).prepare()
        drivers.append(d)
        return d
    yield make
    for d in drivers:
        if d.proc and d.proc.poll() is None:
            for i in d.ids():
                d.remove(i)
        d.close()
    census.check()


def mounts(docker, sandbox_id):
    return {m["Destination"]: m for m in docker.engine.sandbox(sandbox_id)["Mounts"]}


def blind(docker):
    """An engine that does not see our files: on another machine, say."""
    e = ScriptedEngine(docker)
    e.on("GET", "/containers/[^/]*/archive", status=404, message="not seen", match=lambda r: "cove-probe" in r.target)
    return e


@pytest.mark.parametrize("image", [None, "cove-test/execd"])
def test_bound_where_the_engine_sees_our_files(docker, start, image):
    d = start(execd_image=image) if image else start()
    d.create("a")
    m = mounts(docker, "a")
    for name in ("execd", "bootstrap.sh"):
        f = m["/opt/opensandbox/" + name]
        assert not f["RW"] and f["Source"].startswith(f"{d.state}/agent/")
    assert docker.engine.sandbox("a")["HostConfig"]["Binds"] is None
    assert d.out("a", "echo here") == "here\n"
    assert d.out("a", "echo x > /opt/opensandbox/execd || echo refused").endswith("refused\n")
    assert d.out("a", "touch /opt/opensandbox/mine && ls /opt/opensandbox/mine") == "/opt/opensandbox/mine\n"


@pytest.mark.parametrize("image", [None, "cove-test/execd"])
def test_copied_where_it_does_not(docker, start, image):
    with blind(docker) as e:
        d = start(e, **({"execd_image": image} if image else {}))
        d.create("a"), d.create("b")
        assert not [x for x in mounts(docker, "a") if "execd" in x]
        assert d.out("b", "echo here") == "here\n"
        assert len([r for r in e.seen("POST", "/containers/create") if "probe" in r.target]) == 1
        d.remove("a"), d.remove("b")
        d.stop()


def answers(d, sandbox_id, timeout=20):
    end = time.monotonic() + timeout * covekit.SLOW
    while time.monotonic() < end:
        try:
            return d.out(sandbox_id, "echo again") == "again\n"
        except DriverError:  # not up yet
            time.sleep(0.1)


def test_a_restored_snapshot_starts_either_way(docker, start):
    with blind(docker) as e:
        seeing, copying = start(), start(e)
        for n, (a, b) in enumerate(((seeing, copying), (copying, seeing), (seeing, seeing))):
            a.create(f"from{n}")
            a.out(f"from{n}", "echo kept > /kept")
            image = a.call("snapshot_create", id=f"from{n}", snapshot=f"s{n}")["image"]
            b.create(f"to{n}", image=image, snapshotId=f"s{n}")
            assert b.out(f"to{n}", "cat /kept") == "kept\n"
            a.remove(f"from{n}"), b.remove(f"to{n}")
            a.call("snapshot_remove", image=image)
        copying.stop()


def test_copies_of_older_programs_stay_while_they_are_needed(docker, start):
    d = start()
    libexec = d.dir / "libexec"
    libexec.mkdir()
    program = libexec / "cove-execd"
    shutil.copy(covekit.LIBEXEC / "cove-execd", program)
    d.stop()
    d.config["libexec_dir"] = str(libexec)
    d.start()
    d.create("old")
    with program.open("ab") as f:
        f.write(b"\0")  # another release
    d.stop()
    d.start(known=["old"])
    d.create("new")
    copies = lambda: sorted(p.name for p in pathlib.Path(d.state, "agent").iterdir())  # noqa: E731
    assert len(copies()) == 2
    docker.engine.call("POST", "/containers/sandbox-old/restart?t=1")
    assert answers(d, "old")
    d.remove("old")
    d.stop()
    d.start(known=["new"])
    assert len(copies()) == 1
    d.remove("new")
    d.stop()
    d.start()
    assert copies() == []


def test_a_helper_that_was_left_is_collected(docker, start):
    d = start(execd_image="cove-test/execd")
    d.stop()
    d.env["COVE_CRASH_AT"] = "agent-helper"
    d.start()
    with pytest.raises(DriverError) as e:
        d.create("half")
    assert "drv died" in e.value.text
    assert d.proc.wait() == -signal.SIGKILL
    left = [c for c in docker.engine.containers("opensandbox.io/cove.helper") if c["Names"][0].startswith("/sandbox-execd-")]
    assert len(left) == 1 and left[0]["State"] == "created"
    del d.env["COVE_CRASH_AT"]
    d.start(undone=["half"])
    assert docker.engine.containers("opensandbox.io/cove.helper") == []


def test_many_at_once(docker, start):
    d = start(port_min=21000, port_max=21200)
    names = [f"m{i}" for i in range(24)]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        list(pool.map(d.create, names))
    labels = [docker.engine.sandbox(n)["Config"]["Labels"] for n in names]
    ports = [int(x[k]) for x in labels for k in ("opensandbox.io/embedding-proxy-port", "opensandbox.io/http-port")]
    assert len(set(ports)) == 48 and all(21000 <= p <= 21200 for p in ports)
    for n in names[::6]:
        assert d.out(n, "echo $OPENSANDBOX_ID") == n + "\n"


def test_a_sidecars_port_that_was_taken_is_replaced(docker, start):
    with ScriptedEngine(docker) as e:
        d = start(e)
        failed = e.on("POST", "/containers/[^/]*/start", status=500, message="driver failed: port is already allocated", times=2)
        d.create("g", policy=POLICY)
        assert failed.used == 2
        bound = docker.engine.sidecar("g")["HostConfig"]["PortBindings"]
        labels = docker.engine.sandbox("g")["Config"]["Labels"]
        assert bound["44772/tcp"][0]["HostPort"] == labels["opensandbox.io/embedding-proxy-port"]
        assert bound["8080/tcp"][0]["HostPort"] == labels["opensandbox.io/http-port"]
        tried = [r.json()["HostConfig"]["PortBindings"]["44772/tcp"][0]["HostPort"] for r in e.seen("POST", "/containers/create")
                 if "sandbox-egress-" in r.target]
        assert len(set(tried)) == 3
        d.remove("g")
        d.stop()


def test_an_image_that_changes_under_the_create(docker, start):
    """Its labels were looked at; those of the one that came instead were not."""
    with ScriptedEngine(docker) as e:
        d = start(e)
        e.on("GET", "/containers/[^/]*/json", edit=lambda j: {**j, "Config": {**j["Config"], "Labels": {
            **j["Config"]["Labels"], "opensandbox.io/volume-managed-by": '["of-another"]'}}})
        with pytest.raises(DriverError) as x:
            d.create("swapped")
        assert "replaced" in x.value.text
        assert not docker.engine.exists("sandbox-swapped")
        d.stop()
