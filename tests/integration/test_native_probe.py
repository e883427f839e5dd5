"""Break-out attempts as user code (probe.c), in every mode of the native driver (native-runtime.md 13.1)."""
import os
import pathlib
import shutil

import covekit
import pytest
from nativekit import Driver

PROBE = pathlib.Path(os.environ.get("COVE_BUILD", covekit.ROOT / "build")) / "tests/native-probe"
OPEN_IN_ALL = {"socket inet", "socket unix"}
# what a closed attempt may answer, where "some error" would hide that something else went wrong
EXACT = {
    "socket vsock": {"EAFNOSUPPORT"}, "socket alg": {"EAFNOSUPPORT"}, "socket nfnetlink": {"EAFNOSUPPORT"},
    "socket packet": {"EPERM", "EAFNOSUPPORT"}, "clone3 user": {"ENOSYS"}, "clone user": {"EPERM"},
    "unshare user": {"EPERM", "ENOSYS"}, "unshare mount": {"EPERM", "ENOSYS"}, "unshare all": {"EPERM", "ENOSYS"},
    "mount tmpfs": {"EPERM", "ENOSYS"}, "bind /": {"EPERM", "ENOSYS"}, "bpf": {"EPERM", "ENOSYS"},
    "io_uring": {"EPERM", "ENOSYS"}, "keyctl": {"EPERM", "ENOSYS"}, "add_key": {"EPERM", "ENOSYS"},
    "mknod disk": {"EPERM"}, "mknod mem": {"EPERM"}, "ptrace the agent": {"EPERM", "EACCES"},
    "write the agent's file": {"EROFS", "EACCES", "ETXTBSY"},
}
# an attempt that may be open in some mode, and why
TOLERATED = {
    "mknod whiteout": "a whiteout in the sandbox's own upper layer hides its own files only",
    "list the agent's fds": "their numbers only: what they are needs ptrace rights, which are denied",
    "raise the agent's oom_score_adj": "the sandbox harms nobody but itself",
    "list /sys/fs/cgroup": "an empty or read-only view of its own cgroup",
}


@pytest.mark.parametrize("userns", [True, False], ids=["userns", "plain"])
@pytest.mark.parametrize("image", ["local/busybox", "host"])
def test_every_way_out_is_closed(image, userns):
    if image == "host" and not userns:
        return  # refused: test_native.py
    d = Driver({"userns": userns}).start().import_busybox()
    try:
        src = d.dir / "probe-dir"
        src.mkdir()
        shutil.copy(PROBE, src / "probe")
        d.create("probe", image=image, mounts=[{"source": str(src), "target": "/probe", "readOnly": True}])
        out = d.out("probe", "/probe/probe")
        results = dict(line.split("\t", 1) for line in out.splitlines())
        assert len(results) >= 70, out
        assert "inherited descriptor" not in results, out
        wrong = {}
        for name, result in results.items():
            if name in OPEN_IN_ALL:
                if result != "open":
                    wrong[name] = result
            elif result == "open" and name not in TOLERATED:
                wrong[name] = result
            elif name in EXACT and result not in EXACT[name]:
                wrong[name] = result
        assert not wrong, wrong
        assert d.http("probe", "GET", "/ping")[0] == 200, "the agent died"
    finally:
        d.close()


def test_the_host_is_not_in_the_mount_table():
    d = Driver().start().import_busybox()
    try:
        d.create("mi")
        info = d.out("mi", "cat /proc/self/mountinfo")
        root = next(line for line in info.splitlines() if line.split()[4] == "/")
        assert "/var" not in root and "upperdir=" in root, root
        assert " /sys/fs/cgroup" not in info
        assert pathlib.Path("/proc/self/mountinfo").read_text().count(str(d.dir)) == 0
    finally:
        d.close()


def test_the_access_token_is_nowhere_inside():
    d = Driver().start().import_busybox()
    try:
        d.create("tok", entrypoint=["sleep", "1000"])
        out = d.out("tok", "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'")
        assert "driver-test-token" not in out and "COVE_" not in out
        for f in (d.dir / "state/sandboxes").rglob("*.json"):
            assert "driver-test-token" not in f.read_text(errors="replace"), f
    finally:
        d.close()
