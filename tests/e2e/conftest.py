"""The servers that the official clients are run against.

Each test runs on every driver: native and docker (an engine of dockerkit). COVE_E2E_SERVERS (words) chooses; "peer" is the
official server on the same engine: what clients see there. Tests of what only an engine can do are marked `engine` and are
made for those drivers alone; test_python_features.py::test_what_the_driver_says_is_true holds that to be so of the native one.
"""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import covekit  # noqa: E402

THE_PEER = {"networkPolicy": "honoured", "snapshotId": "honoured", "secureAccess": "refused", "platform.os=windows": "honoured"}  # it has no such route
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


def pytest_configure(config):
    config.addinivalue_line("markers", "engine: of what only the Docker driver (or the official server) can do")


def pytest_generate_tests(metafunc):
    if "daemon" in metafunc.fixturenames:
        engine_only = metafunc.definition.get_closest_marker("engine")
        metafunc.parametrize("daemon", [s for s in SERVERS if s != "native" or not engine_only], indirect=True)


class NativeDaemon(covekit.Daemon):
    driver, image = "native", "host"

    def volumes(self):
        return {p.name for p in (self.dir / "state/volumes").iterdir()}


@pytest.fixture(scope="session")
def daemon(request):
    """A server. `driver` is its kind, `image` where sandboxes come from by default, `small` another one; volumes() are the
    named volumes there are, `says` what its capabilities say of the members of a create."""
    if request.param == "native":
        with NativeDaemon() as d:
            tar = covekit.busybox_rootfs(d.dir / "busybox.tar")
            d.small = covekit.import_image(d, tar, "busybox")
            d.says = d.get("/v1/capabilities").json()["create"]
            yield d
        return
    import dockerkit
    import peerkit
    docker = request.getfixturevalue("docker")
    images = docker.image("debian"), docker.image("busybox"), docker.image("egress")
    kind = peerkit.PeerServer if request.param == "peer" else dockerkit.DockerDaemon
    with kind(docker) as d:
        d.image, d.small = images[:2]
        d.volumes = lambda: set(docker.engine.volumes())
        d.says = d.get("/v1/capabilities").json()["create"] if kind is not peerkit.PeerServer else THE_PEER
        yield d
