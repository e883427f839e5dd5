"""What docs/security.md promises, attacked from where each party stands: other users of the host, code inside, clients without a key."""
import os
import subprocess
import tarfile
import time

import covekit
import imagekit
import pytest

NOBODY = 65534


def as_nobody(*argv):
    return subprocess.run(argv, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True)


def files_named(daemon, name):
    return [os.path.join(top, name) for top, _, names in os.walk(daemon.dir) if name in names]


def test_a_program_made_inside_cannot_be_run_by_other_users_of_the_host(daemon):
    """Files of a sandbox's root belong to the host's root on the disk: a set-user-id program among them must stay out of reach."""
    s = daemon.create("host")["id"]
    out, err, code = daemon.run(s, "cp /usr/bin/id /made-inside && chmod 4755 /made-inside && /made-inside -u")
    assert (out.strip(), code) == ("0", 0), err
    made = files_named(daemon, "made-inside")
    assert made
    for path in made:
        with pytest.raises(PermissionError):
            as_nobody(path)


def test_a_program_of_an_image_cannot_be_run_by_other_users_of_the_host(daemon, tmp_path):
    exe = open("/bin/true", "rb").read()
    tar = tmp_path / "image.tar"
    tar.write_bytes(imagekit.tar(imagekit.entry("su-of-an-image", data=exe, mode=0o4755)))
    name = covekit.import_image(daemon, tar, "setuid")
    found = files_named(daemon, "su-of-an-image")
    assert found, name
    for path in found:
        with pytest.raises(PermissionError):
            as_nobody(path)


def test_directories_of_an_earlier_version_are_closed_at_the_start():
    with covekit.Daemon() as d:
        d.stop()
        closed = [d.dir / p for p in ("state/sandboxes", "store/layers", "store/skel", "store/l")]
        for p in closed:
            p.chmod(0o711)
        d.start()
        assert [oct(p.stat().st_mode & 0o777) for p in closed] == ["0o700"] * len(closed)


DEEP = """
import os
fd = os.open("/deep-tree", os.O_RDONLY)
for level in range(5000):
    os.mkdir("d", dir_fd=fd)
    below = os.open("d", os.O_RDONLY, dir_fd=fd)
    os.close(fd)
    fd = below
"""


def test_a_tree_without_end_goes_with_its_sandbox(daemon):
    s = daemon.create("host")["id"]
    out, err, code = daemon.run(s, f"mkdir /deep-tree && python3 -c '{DEEP}'")
    assert code == 0, err
    assert daemon.request("DELETE", "/v1/sandboxes/" + s).status == 204
    trash = daemon.dir / "state/sandboxes/.trash"
    fds, deadline = 0, time.monotonic() + 60 * covekit.SLOW
    while os.listdir(trash):
        fds = max(fds, len(os.listdir(f"/proc/{daemon.proc.pid}/fd")))
        assert time.monotonic() < deadline, "it is never gone"
        time.sleep(0.02)  # deletion has no event
    assert fds < 500, "the deletion held a descriptor for each level"


@pytest.mark.parametrize("target", ["/opt", "/link", "/filelink", "/deep/link/cove"])
def test_no_volume_takes_the_place_of_the_agent(daemon, busybox, tmp_path, target):
    """What runs as the agent holds descriptors and lacks the filter of commands: it must be ours, whatever links an image brings."""
    evil = tmp_path / "v"
    (evil / "cove").mkdir(parents=True)
    for name in ("execd", "cove/execd"):
        (evil / name).write_bytes(open("/bin/true", "rb").read())
        (evil / name).chmod(0o755)
    tar = tmp_path / "image.tar"
    covekit.busybox_rootfs(tar)
    links = {"link": "/opt", "filelink": "opt/cove/execd", "deep/link": "../opt"}
    with tarfile.open(tar, "a") as t:
        for name, to in links.items():
            i = tarfile.TarInfo(name)
            i.type, i.linkname = tarfile.SYMTYPE, to
            t.addfile(i)
    image = covekit.import_image(daemon, tar, f"links-{os.path.basename(target)}")
    source = evil / "execd" if target == "/filelink" else evil / "cove" if target.endswith("/cove") else evil
    body = {"image": {"uri": image}, "entrypoint": ["sleep", "100"], "resourceLimits": {}, "timeout": 60,
            "volumes": [{"name": "v", "mountPath": target, "host": {"path": str(source)}}]}
    r = daemon.request("POST", "/v1/sandboxes", body, unix=True)
    assert r.status == 400 and "/opt/cove" in r.json()["message"], r
