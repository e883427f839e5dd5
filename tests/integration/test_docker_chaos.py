"""A part of `make chaos` for every run: one kill of each kind, the engine away, the disk full."""
import chaos
import pytest

NAMES = ["kill create-container", "kill guard-started", "kill create-ready", "kill service-create-mounted", "kill service-create-committed",
         "kill remove-container", "kill service-delete-removed", "kill expiry remove-killed", "kill pause-guard", "kill resume-guard",
         "kill snapshot-committed", "kill snapshot-delete-intent", "kill recover-one", "engine is killed", "engine stops and comes back",
         "image and registry", "disk full", "state read only"]


@pytest.fixture(scope="module")
def state(docker):
    """The Chaos that the trials share; a failed one is replaced, so that it spoils no other."""
    holder = {}
    yield holder
    if "c" in holder:
        holder["c"].close()


@pytest.mark.parametrize("name", NAMES)
def test_trial(docker, state, name):
    if "c" not in state:
        chaos.clear(docker)
        state["c"] = chaos.Chaos(docker)
    try:
        chaos.trials()[name](state["c"])
    except BaseException:
        state.pop("c").close()
        chaos.clear(docker)
        raise


def test_the_daemon_names_its_crash_points():
    """What `coved --list-crash-points` says and what is tried are the same."""
    import subprocess

    import covekit
    listed = subprocess.run([str(covekit.BIN / "coved"), "--list-crash-points"], capture_output=True, text=True, check=True).stdout.split()
    assert set(chaos.points()) <= set(listed) | {p for p in chaos.points() if p.startswith(("service-", "snapshot-", "oss-"))}
    assert {"create-started", "guard-created", "remove-container", "pause-sandbox", "recover-one"} <= set(listed)
