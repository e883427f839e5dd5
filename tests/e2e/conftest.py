"""The servers that the official clients are run against.

Each test runs on every driver: native and docker (an engine of dockerkit). COVE_E2E_SERVERS (words) chooses; "peer" is the
official server on the same engine: what clients see there.
"""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import covekit  # noqa: E402

SERVERS = os.environ.get("COVE_E2E_SERVERS", "native docker").split()


@pytest.fixture(scope="session")
def docker():
    """A real engine for the whole run, started when the first test asks for it."""
    import dockerkit
    why = dockerkit.why_not()
    if why:
        pytest.skip(why)
    with dockerkit.Dockerd() as d:
        yield d


@pytest.fixture(scope="session", params=SERVERS)
def daemon(request):
    """A server; `image` is where sandboxes come from by default, `small` another one, `driver` its kind."""
    if request.param == "native":
        with covekit.Daemon() as d:
            d.driver, d.image = "native", "host"
            tar = covekit.busybox_rootfs(d.dir / "busybox.tar")
            d.small = covekit.import_image(d, tar, "busybox")
            yield d
        return
    import dockerkit
    import peerkit
    docker = request.getfixturevalue("docker")
    images = docker.image("debian"), docker.image("busybox"), docker.image("egress")
    kind = peerkit.PeerServer if request.param == "peer" else dockerkit.DockerDaemon
    with kind(docker) as d:
        d.image, d.small = images[:2]
        yield d


@pytest.fixture
def on_engine(daemon):
    """The test needs the Docker driver (or the official server)."""
    if daemon.driver == "native":
        pytest.skip("cannot: a feature of the Docker driver")
    return daemon
