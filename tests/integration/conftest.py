import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import covekit  # noqa: E402


@pytest.fixture(scope="module")
def daemon():
    """One coved per test file."""
    with covekit.Daemon() as d:
        yield d


@pytest.fixture(scope="module")
def busybox(daemon, tmp_path_factory):
    tar = covekit.busybox_rootfs(tmp_path_factory.mktemp("img") / "busybox.tar")
    return covekit.import_image(daemon, tar, "busybox")


@pytest.fixture
def engine(scripted):
    """The scripted engine behind the test file's server `scripted`; it forgets what a test told it."""
    scripted.docker.clear()
    yield scripted.docker
    scripted.docker.clear()


@pytest.fixture(scope="session")
def docker():
    """A real engine for the whole run, started when the first test asks for it."""
    import dockerkit
    why = dockerkit.why_not()
    if why:
        pytest.skip(why)
    with dockerkit.Dockerd() as d:
        d.image("busybox")  # the default of creates: a test that runs alone needs it as well
        yield d
