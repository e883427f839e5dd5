"""What the tests of the Docker driver by itself share: drivers on a real engine, restartable, or behind a scripted one."""
import dockerkit
import pytest
from driverkit import DockerDriver
from scripted_engine import ScriptedEngine

POLICY = {"defaultAction": "deny", "egress": []}


def make_driver(docker, config=None, **kw):
    d = DockerDriver(docker, {"egress_image": docker.image("egress"), "readiness_timeout_s": 10, **(config or {})}, **kw)
    try:
        return d.prepare()
    except BaseException:
        d.close()
        raise


@pytest.fixture(scope="module")
def shared(docker):
    d = make_driver(docker)
    yield d
    d.close()


@pytest.fixture
def drv(shared):
    """The module's driver; nothing may be left of a test."""
    shared.drop_events()
    census = dockerkit.Census(shared.docker)
    yield shared
    for i in shared.ids():
        shared.remove(i)
    census.check()


@pytest.fixture
def own(docker):
    """A driver that the test may restart."""
    d = make_driver(docker)
    yield d
    if d.proc.poll() is not None:
        d.env.pop("COVE_CRASH_AT", None)
        d.start()
    for i in d.ids():
        d.remove(i)
    d.stop()
    census = d.census
    d.close()
    census.check()


@pytest.fixture
def engine2():
    """An engine that the test may stop."""
    why = dockerkit.why_not()
    if why:
        pytest.skip(why)
    with dockerkit.Dockerd() as d:
        yield d


def guarded(drv, name, **fields):
    return drv.create(name, policy=POLICY, **fields)


@pytest.fixture
def scripted(docker):
    docker.image("busybox"), docker.image("egress")
    with ScriptedEngine(docker) as e:
        d = make_driver(e)
        d.create("first")  # what the driver does once per engine
        d.remove("first")
        e.clear()
        yield d, e
        e.clear()
        for i in d.ids():
            d.remove(i)
        d.stop()
        census = d.census
        d.close()
        census.check()
