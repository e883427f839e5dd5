"""What the tests of sandboxes on the Docker driver share: a server on a real engine, waiting, containers made by hand."""
import contextlib
import datetime
import time
import uuid

import covekit
import dockerkit
import pytest
from scripted_engine import ScriptedEngine

ours = pytest.mark.skipif(dockerkit.IS_PEER, reason="cannot: a rule of ours that the official server does not have")
BOOT = ["/opt/opensandbox/bootstrap.sh"]


@pytest.fixture(scope="module")
def server(docker):
    docker.image("busybox"), docker.image("egress")
    with dockerkit.serve(docker) as s:
        yield s


@pytest.fixture
def made(server):
    with dockerkit.nothing_left(server) as ids:
        def make(**fields):
            ids.append(server.create(**fields)["id"])
            return ids[-1]
        yield make


@pytest.fixture(scope="module")
def scripted(docker):
    docker.image("busybox"), docker.image("egress")
    with ScriptedEngine(docker) as e, dockerkit.serve(e) as s:
        yield s


def iso(seconds):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def when(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def wait_for(what, timeout=15, text=""):
    deadline = time.monotonic() + timeout * covekit.SLOW
    while not (got := what()):
        assert time.monotonic() < deadline, text or "did not happen"
        time.sleep(0.05)
    return got


def state(server, i):
    r = server.get("/v1/sandboxes/" + i)
    return r.json()["status"]["state"] if r.status == 200 else r.status


def renew(server, i, seconds):
    return server.request("POST", f"/v1/sandboxes/{i}/renew-expiration", {"expiresAt": iso(seconds)})


def by_hand(docker, expires=None, image=None, **labels):
    """A container as an opensandbox-server of the past has left it."""
    i = str(uuid.uuid4())
    l = {"opensandbox.io/id": i, **({"opensandbox.io/manual-cleanup": "true"} if expires is None else {"opensandbox.io/expires-at": expires}), **labels}
    docker.engine.run("sandbox-" + i, docker.image(image or "busybox"), Labels={k: v for k, v in l.items() if v is not None}, Cmd=["tail", "-f", "/dev/null"])
    return i


def iso_label(seconds):
    return iso(seconds).replace("Z", "+00:00")
