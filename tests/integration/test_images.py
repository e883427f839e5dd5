"""The image store end to end: real tars, real OCI layouts, real overlayfs and crun, crashes, full disks."""
import json
import os
import pathlib
import random
import shutil
import signal
import stat
import subprocess
import tempfile
import time

import pytest

import covekit
import imagekit
from imagekit import CHAR, DIR, FIFO, HARDLINK, SYMLINK, Layout, Store, entry, tar

ENOENT, ENOSPC, EINVAL, E2BIG, EBADMSG, EOPNOTSUPP, ECANCELED = 2, 28, 22, 7, 74, 95, 125


@pytest.fixture
def work():
    covekit.STATE_BASE.mkdir(parents=True, exist_ok=True)
    path = pathlib.Path(tempfile.mkdtemp(prefix="images-", dir=covekit.STATE_BASE))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def store(work):
    return Store(work / "store")


def wait_for(what, timeout=15):
    deadline = time.monotonic() + timeout * covekit.SLOW
    while not what():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


ROOTFS = (
    entry(".", DIR, mode=0o755),
    entry("bin", DIR),
    entry("bin/su", data=b"#!setuid", mode=0o4711),
    entry("bin/hard", HARDLINK, link="bin/su"),
    entry("etc", DIR, mode=0o2750, uid=5, gid=6),
    entry("etc/link", SYMLINK, link="/bin/su", uid=7, gid=8),
    entry("etc/attr", data=b"x" * 100000, mode=0o640, uid=1000, gid=1001, pax={"SCHILY.xattr.user.mine": "value"}),
    entry("etc/pipe", FIFO, mode=0o620),
    entry("etc/ünïcode ☃", data=b"1"),
    entry("dev/null", CHAR),
    entry(".wh.kept", data=b"a plain root file system has no whiteouts"),
)


def test_rootfs_round_trip_in_every_compression(store):
    plain = tar(*ROOTFS)
    ids = set()
    for name, compress in imagekit.COMPRESSIONS.items():
        r = store.load(compress(plain), f"local/{name}")
        ids.add(r.json["id"])
    assert len(ids) == 1 and len(store.layers()) == 1
    got, hard = imagekit.shape(store.tree("local/zstd"))
    assert hard == [["bin/hard", "bin/su"]]
    assert "dev/null" not in got and ".wh.kept" in got
    assert got["bin/su"][0] == oct(stat.S_IFREG | 0o4711)
    assert got["etc"][:4] == (oct(stat.S_IFDIR | 0o2750), 5, 6, imagekit.MTIME)
    assert got["etc/link"][1:6] == (7, 8, imagekit.MTIME, 0, "/bin/su")
    assert got["etc/attr"] == (oct(stat.S_IFREG | 0o640), 1000, 1001, imagekit.MTIME, 0, b"x" * 100000,
                               (("user.mine", b"value"),))
    assert got["etc/pipe"][0] == oct(stat.S_IFIFO | 0o620)
    assert "etc/ünïcode ☃" in got
    meta = json.loads((store.tree("local/zstd").parent / "meta.json").read_text())
    assert meta["skipped"] == {"devices": 1, "sockets": 0, "xattrs": 0}


def test_gnu_names_and_long_names(store):
    import tarfile
    long = "/".join(["d" * 60] * 8) + "/leaf"
    for n, fmt in enumerate((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        store.load(tar(entry(long, data=b"1"), entry("l", SYMLINK, link="x" * 300), fmt=fmt), f"local/{n}").json
        assert (store.tree(f"local/{n}") / long).read_bytes() == b"1"
        assert os.readlink(store.tree(f"local/{n}") / "l") == "x" * 300


def test_names_that_are_not_utf8(store):
    for n, fmt in enumerate((0, 1, 2)):  # ustar, GNU, pax
        data = tar(entry("a\udcff\udcfeb", data=b"1"), fmt=fmt)
        r = store.load(data, f"local/{n}")
        if r.code == 0:
            assert os.listdir(os.fsencode(store.tree(f"local/{n}"))) == [b"a\xff\xfeb"]
        else:
            assert "readable name" in r.err


def test_directory(store, work):
    src = work / "src"
    (src / "sub/mounted").mkdir(parents=True)
    (src / "f").write_text("content")
    os.chmod(src / "f", 0o4755)
    os.link(src / "f", src / "sub/hard")
    os.symlink("/etc/passwd", src / "link")
    os.mknod(src / "dev", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.setxattr(src / "sub", "user.x", b"y")
    os.setxattr(src / "sub", "trusted.overlay.opaque", b"y")
    r = imagekit.in_private_mounts('mount -t tmpfs none "$1/sub/mounted"; touch "$1/sub/mounted/secret"; shift; exec "$@"',
                                   src, *store.command("import", "local/d", src), env=Store.env())
    assert r.returncode == 0, r.stderr
    got, hard = imagekit.shape(store.tree("local/d"))
    assert hard == [["f", "sub/hard"]] and got["f"][0] == oct(stat.S_IFREG | 0o4755)
    assert "dev" not in got and "sub/mounted" in got and "sub/mounted/secret" not in got
    assert got["sub"][6] == (("user.x", b"y"),)
    assert got["link"][5] == "/etc/passwd"
    # the same content again is the same image
    assert store.load_path(src, "local/e").json["id"] == store.load_path(src, "local/f").json["id"]


def test_large_directory(store, work):
    (work / "src").mkdir()
    for n in range(600):  # more than glibc sorts on its stack
        (work / "src" / f"file-{n:05}").touch()
    r = store.load_path(work / "src", "local/d")
    assert r.code == 0, r
    assert len(list(store.tree("local/d").iterdir())) == 600


def test_config(store):
    t = tar(entry("f"))
    conf = {"Env": ["A=b", "C="], "Entrypoint": ["/e"], "Cmd": ["c", ""], "WorkingDir": "/w", "User": "u:g"}
    r = store.load(t, "local/c", config=json.dumps(conf))
    assert (r.json["cwd"], r.json["user"], r.json["env"], r.json["cmd"]) == ("/w", "u:g", "A=b", "c")
    assert store.run("inspect", "local/c").json["config"] == conf
    assert store.load(t, "local/other").json["id"] != r.json["id"]
    assert store.run("resolve", "sha256:" + r.json["id"]).json["id"] == r.json["id"]
    for bad, why in (({"Env": ["A"]}, "NAME=value"), ({"Env": ["=b"]}, "NAME=value"), ({"Cmd": "sh"}, "list of strings"),
                     ({"WorkingDir": "w"}, "absolute"), ({"User": 1}, "string"), ({"Cnd": []}, 'unknown key "Cnd"'),
                     ([], "object")):
        r = store.load(t, "local/bad", config=json.dumps(bad))
        assert r.errno == EINVAL and why in r.err, r
    assert "local/bad" not in store.names()


def test_names(store):
    t = tar(entry("f"))
    for good in ("local/a", "local/a:1.0-RC_2", "local/a/b.c-d_e__f", "local/0"):
        assert store.load(t, good).code == 0
    for bad in ("a", "local/", "local/A", "local/a/", "local//a", "local/../a", "local/a..b", "local/.a", "local/a___b",
                "local/a:", "local/a:-x", "local/a b", "local/a@x", "local/" + "a" * 200, "host", "docker.io/library/a",
                "local/a\n"):
        r = store.load(t, bad)
        assert r.errno == EINVAL, (bad, r)
        assert store.run("remove", bad).errno == EINVAL
    assert len(store.names()) == 4
    assert store.run("resolve", "local/none").errno == ENOENT
    assert store.run("resolve", "docker.io/library/none:1").errno == ENOENT
    assert store.run("resolve", "sha256:xyz").errno == EINVAL
    assert store.run("resolve", "sha256:" + "0" * 64).errno == ENOENT


# ---- image archives ----

BASE = tar(entry("keep", data=b"1"), entry("gone", data=b"2"), entry("dir", DIR), entry("dir/old", data=b"3"),
           entry("swap", DIR), entry("swap/old", data=b"4"), entry("etc/conf", data=b"5"))
TOP = tar(entry(".wh.gone"), entry("dir/.wh..wh..opq"), entry("dir/new", data=b"6"), entry(".wh.swap"),
          entry("swap", DIR), entry("swap/new", data=b"7"), entry("etc/.wh.conf"))


def merged(store, name):
    """The names that overlayfs shows of an image."""
    layers = [x["link"] for x in store.run("resolve", name).json["layers"]]
    mnt = store.path / "mnt"
    mnt.mkdir(exist_ok=True)
    lower = ":".join(layers) if len(layers) > 1 else layers[0] + ":skel"
    r = imagekit.in_private_mounts('cd "$1"; mount -t overlay -o "lowerdir=$2" none "$3"; cd "$3"; find . -mindepth 1 | sort',
                                   store.path, lower, mnt)
    assert r.returncode == 0, r.stderr
    return r.stdout.split()


@pytest.mark.parametrize("form", ["layout", "layout-tar", "docker", "skopeo-docker"])
def test_layers_stack_as_the_image_says(store, work, form):
    conf = {"Env": ["PATH=/bin", "not an assignment"], "Cmd": ["sh"], "Labels": {"run.oci.hooks": "x"}}
    layout = Layout(work / "layout")
    layout.image([BASE, TOP], name="1", config=conf)
    if form == "layout":
        src = layout.write()
    elif form == "layout-tar":
        src = layout.write_tar(work / "layout.tar")
    elif form == "docker":
        src = imagekit.docker_save(work / "save.tar", [BASE, TOP, BASE, TOP], config=conf)
    else:
        if not shutil.which("skopeo"):
            pytest.skip("cannot: skopeo is not installed")
        src = work / "save.tar"
        subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", f"oci:{layout.write()}:1", f"docker-archive:{src}:app:1"],
                       check=True, timeout=60)
    r = store.load_path(src, "local/i")
    assert r.json["cmd"] == "sh" and r.json["env"] == "PATH=/bin"
    assert merged(store, "local/i") == ["./dir", "./dir/new", "./etc", "./keep", "./swap", "./swap/new"]
    assert not any("tmp-" in n for n in store.layers())
    assert len(r.json["layers"]) == 2
    top = store.tree("local/i", 0)
    assert stat.S_ISCHR((top / "gone").lstat().st_mode) and (top / "gone").lstat().st_rdev == 0
    assert os.getxattr(top / "dir", "trusted.overlay.opaque") == b"y"
    assert os.getxattr(top / "swap", "trusted.overlay.opaque") == b"y"
    # configuration given by the caller replaces key by key, and makes another image
    r2 = store.load_path(src, "local/j", config='{"Cmd":["other"]}')
    assert r2.json["id"] != r.json["id"] and r2.json["cmd"] == "other" and r2.json["env"] == r.json["env"]


def test_one_of_several_images(store, work):
    layout = Layout(work / "layout")
    layout.image([BASE], name="one")
    layout.image([TOP], name="two", compress="zstd", layer_type="application/vnd.oci.image.layer.v1.tar+zstd")
    other = layout.image([BASE, BASE], arch="s390x")
    ours = layout.image([BASE, TOP])
    del layout.manifests[2:]
    layout.manifests.append(layout.index([other, ours], name="multi"))
    src = layout.write()
    r = store.load_path(src, "local/x")
    assert r.errno == EINVAL and "3 images" in r.err
    assert len(store.load_path(src, "local/one", ref="one").json["layers"]) == 1
    assert len(store.load_path(src, "local/multi", ref="multi").json["layers"]) == 2
    assert store.load_path(src, "local/two", ref="two").json["layers"][0]["name"] == imagekit.digest(TOP)[7:]
    assert store.load_path(src, "local/x", ref="three").errno == EINVAL


def test_plain_and_layer_of_one_tar_are_kept_apart(store, work):
    layout = Layout(work / "layout")
    layout.image([TOP])
    store.load(TOP, "local/plain").json
    store.load_path(layout.write(), "local/layer").json
    assert (store.tree("local/plain") / ".wh.gone").is_file()
    assert stat.S_ISCHR((store.tree("local/layer") / "gone").lstat().st_mode)


# ---- many at once, crashes, no room ----

def test_concurrent_imports_of_one_tar(store):
    t = tar(*ROOTFS, entry("big", data=os.urandom(4 << 20)))
    procs = [store.start("import", f"local/n{i}", "-", "tar", stdin=subprocess.PIPE) for i in range(6)]
    for p in procs:
        p.stdin.write(t[:1000])
    outs = [p.communicate(t[1000:], timeout=60) for p in procs]
    assert all(p.returncode == 0 for p in procs), outs
    assert len({json.loads(o[0])["id"] for o in outs}) == 1
    assert len(store.layers()) == 1 and len(store.names()) == 6


def test_concurrent_imports_of_one_layout(store, work):
    layout = Layout(work / "layout")
    layout.image([BASE, TOP, tar(entry("big", data=os.urandom(2 << 20)))])
    src = layout.write()
    procs = [store.start("import", f"local/n{i % 3}", src) for i in range(6)]
    outs = [p.communicate(timeout=60) for p in procs]
    assert all(p.returncode == 0 for p in procs), outs
    assert len(store.layers()) == 3 and len(store.names()) == 3


def children(pid):
    return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def start_half_import(store, name="local/half", env=None):
    """An import whose source stops half-way; returns (process, pid of cove-unpack)."""
    t = tar(entry("a", data=b"a" * 200000), entry("b", data=os.urandom(1 << 20)))
    p = store.start("import", name, "-", "tar", stdin=subprocess.PIPE, env=env or {})
    p.stdin.write(t[:len(t) // 2])
    p.stdin.flush()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if any((store.path / "layers").glob("tmp-*/fs/b")):
            return p, children(p.pid)[0], t[len(t) // 2:]
        time.sleep(0.01)
    raise AssertionError("the import does not begin")


def is_gone(pid, timeout=10):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            if pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


def test_killed_importer_leaves_nothing(store):
    p, child, _ = start_half_import(store)
    assert store.run("list").json == [] and len(store.layers()) == 1
    p.kill()
    p.communicate()
    assert is_gone(child), "the unpacker outlives the importer"
    assert store.names() == [] and store.is_empty()


def test_kill_at_any_moment(store, work):
    """Importers killed at many moments: what the store offers is whole, and a new start leaves no rest."""
    rng = random.Random(7)
    layout = Layout(work / "l")
    layout.image([BASE, TOP, tar(*[entry(f"d{n % 9}/f{n}", data=b"x" * 3000) for n in range(150)])])
    src = layout.write_tar(work / "l.tar")
    done = 0
    for n in range(25):
        p = store.start("import", f"local/i{n}", src)
        try:
            p.wait(60 if n % 8 == 7 else rng.uniform(0, 0.25))  # some end by themselves, on any machine
        except subprocess.TimeoutExpired:
            p.kill()
        p.communicate()
        for i in store.run("list").json:
            for layer in i["layers"]:
                assert (pathlib.Path(layer["path"]).parent / "meta.json").is_file()
            assert len(merged(store, i["reference"])) == 165
        wait_for(lambda: store.run("open").code == 0 and not any("tmp-" in x for x in store.layers()))
        if n % 2 and store.names():
            done += len(store.names())
            for name in store.names():
                assert store.run("remove", name).code == 0
            assert store.run("gc").code == 0 and store.is_empty()
    assert done >= 3


def test_killed_unpacker_is_an_error(store):
    p, child, _ = start_half_import(store)
    os.kill(child, signal.SIGKILL)
    err = p.communicate()[1].decode()
    assert p.returncode == 1 and "died of signal 9" in err
    assert store.is_empty()


def test_another_process_leaves_a_running_import_alone(store):
    p, _, rest = start_half_import(store)
    store.load(tar(entry("x")), "local/other").json
    assert store.run("remove", "local/other").code == 0
    assert store.run("gc").json == 0  # put off: an import runs
    out, err = p.communicate(rest)
    assert p.returncode == 0, err
    assert store.names() == ["local/half"] and (store.tree("local/half") / "b").stat().st_size == 1 << 20
    assert store.run("gc").json == 1 and len(store.layers()) == 1


def test_cancel(store):
    r, w = os.pipe()
    t = tar(entry("b", data=os.urandom(1 << 20)))
    p = store.start("import", "local/c", "-", "tar", stdin=subprocess.PIPE, pass_fds=[r], env={"CANCEL": str(r)})
    p.stdin.write(t[:500000])
    p.stdin.flush()
    os.close(w)
    err = p.communicate()[1].decode()
    os.close(r)
    assert p.returncode == 1 and err.startswith(f"{ECANCELED} "), err
    assert store.is_empty()


@pytest.mark.parametrize("where", ["content", "entries"])
def test_full_disk(store, work, where):
    small = work / "small"
    small.mkdir()
    if where == "content":
        (work / "t.tar").write_bytes(tar(entry("a", data=b"1"), entry("b", data=os.urandom(4 << 20))))
    else:
        (work / "t.tar").write_bytes(tar(*[entry(f"d/{n}", data=b"") for n in range(1000)]))
    inner = Store(small / "store")
    r = imagekit.in_private_mounts(
        'mount -t tmpfs -o size=2m,nr_inodes=500 none "$1"; dir=$1; shift; "$@" && exit 9; find "$dir/store/layers" "$dir/store/refs" -mindepth 1; '
        'find "$dir/store/images" -mindepth 1',
        small, *inner.command("import", "local/f", work / "t.tar"), env=Store.env())
    assert r.returncode == 0, r
    assert r.stdout == "", "something is left"
    assert r.stderr.startswith(f"{ENOSPC} ") and "No space left on device" in r.stderr


def test_damaged_record_stops_garbage_collection(store):
    store.load(tar(entry("a")), "local/a").json
    store.load(tar(entry("b")), "local/b").json
    record = store.path / "images" / (store.run("resolve", "local/a").json["id"] + ".json")
    text = record.read_text()
    record.write_text(text[:20])
    r = store.run("remove", "local/b")
    assert r.code == 1 and "damaged" in r.err and len(store.layers()) == 2
    assert store.run("resolve", "local/a").errno == EBADMSG
    record.write_text(text.replace('"layers":["', '"layers":["../../../etc/'))
    assert store.run("resolve", "local/a").errno == EBADMSG
    record.write_text(text)
    assert store.run("gc").json == 1 and store.names() == ["local/a"]


def test_half_written_files_are_swept(store):
    store.run("open")
    for d in ("refs", "images", "blobs/sha256"):
        (store.path / d / ".x.json.0123abcd").write_text("{")
    (store.path / "skel/tmp-x/fs").mkdir(parents=True)
    (store.path / "layers/tmp-y/fs/deep/er").mkdir(parents=True)
    assert store.run("list").json == [] and store.is_empty()
    assert list((store.path / "skel").iterdir()) == []


def test_other_version_is_refused(store):
    store.run("open")
    (store.path / "version").write_text("7\n")
    r = store.run("list")
    assert r.code == 1 and "version" in r.err


# ---- removal ----

def test_remove_and_shared_layers(store, work):
    for n, layers in enumerate(([BASE, TOP], [BASE])):
        layout = Layout(work / f"l{n}")
        layout.image(layers)
        store.load_path(layout.write(), f"local/i{n}").json
    store.load_path(work / "l0", "local/alias").json
    base, top = imagekit.digest(BASE)[7:], imagekit.digest(TOP)[7:]
    assert set(store.layers()) == {base, top}
    assert store.run("remove", "local/i0").code == 0 and set(store.layers()) == {base, top}  # the alias has it
    assert store.run("remove", "local/alias", top).code == 0 and set(store.layers()) == {base, top}  # in use
    assert store.run("gc").json == 1 and store.layers() == [base]
    assert len(list((store.path / "l").iterdir())) == 1
    assert store.run("remove", "local/i1").code == 0 and store.is_empty()
    assert store.run("remove", "local/i1").errno == ENOENT


def test_leases_of_other_daemons(store, work):
    """What one daemon's sandboxes may run on stays, whatever another one removes; leases end by themselves."""
    users = [work / "one", work / "two"]
    for u in users:
        u.mkdir()

    def run(user, *args):
        return store.run(*args, USER_DIR=str(users[user]))
    store.load(tar(entry("a")), "local/a").json
    (layer,) = store.layers()
    assert run(1, "list").json and run(1, "resolve", "local/a").code == 0
    assert run(0, "resolve", "local/a").code == 0
    assert len(list((store.path / "leases").iterdir())) == 2
    assert run(0, "remove", "local/a").code == 0 and store.layers() == [layer]  # the other one's lease
    assert run(1, "gc", layer).json == 0 and run(0, "gc").json == 0 and store.run("gc").json == 0
    assert run(1, "resolve", "local/a").errno == ENOENT
    assert run(1, "gc").json == 1 and store.layers() == []
    # leases of a user whose directory is gone, and of another boot
    for end in ("directory", "boot"):
        store.load(tar(entry("a")), "local/a").json
        assert run(1, "resolve", "local/a").code == 0
        (lease,) = (store.path / "leases").iterdir()
        if end == "directory":
            users[1].rmdir()
        else:
            lease.write_text(json.dumps(dict(json.loads(lease.read_text()), bootId="other")))
        assert run(0, "remove", "local/a").code == 0 and store.layers() == []
        assert not lease.exists()
        users[1].mkdir(exist_ok=True)


def test_what_a_crash_between_steps_leaves(store, work):
    """Published layer without its short link, blobs and records without a reference."""
    layout = Layout(work / "l")
    layout.image([BASE])
    link = store.path / store.load_path(layout.write(), "local/a").json["layers"][0]["link"]
    link.unlink()
    store.load_path(work / "l", "local/b").json
    assert link.is_symlink()
    kept = set(os.listdir(store.path / "blobs/sha256"))
    (store.path / "blobs/sha256" / ("1" * 64)).write_text("x")
    (store.path / "images" / ("2" * 64 + ".json")).write_text('{"layers":[]}')
    assert store.run("gc").json == 0
    assert set(os.listdir(store.path / "blobs/sha256")) == kept and len(os.listdir(store.path / "images")) == 1


def test_a_name_moves(store):
    a = store.load(tar(entry("a")), "local/x").json["id"]
    b = store.load(tar(entry("b")), "local/x").json["id"]
    assert a != b and store.run("resolve", "local/x").json["id"] == b
    assert store.run("gc").json == 1 and store.run("resolve", "sha256:" + a).errno == ENOENT


def test_formats_are_told_apart(store, work):
    layout = Layout(work / "layout")
    layout.image([BASE])
    layout.write()
    rootfs = work / "rootfs"
    (rootfs / "etc").mkdir(parents=True)
    (rootfs / "manifest.json").write_text("[]")
    (rootfs / "oci-layout").write_text("x")
    assert store.load_path(layout.path, "local/a").json["layers"][0]["name"] == imagekit.digest(BASE)[7:]
    assert store.load_path(rootfs, "local/b").json["layers"][0]["name"].endswith(".dir")
    t = tar(entry("manifest.json", data=b"[]"), entry("etc", DIR))
    (work / "t.tar").write_bytes(b"skipped" + t)
    with open(work / "t.tar", "rb") as f:  # from the present position, also after looking at it
        os.lseek(f.fileno(), 7, os.SEEK_SET)
        p = store.start("import", "local/c", "-", "auto", stdin=f)
        out, err = p.communicate()
    assert p.returncode == 0, err
    assert store.tree("local/c").joinpath("manifest.json").read_bytes() == b"[]"
    assert store.load_path(work / "t.tar", "local/d", fmt="dir").errno == EINVAL
    assert store.load_path(rootfs, "local/d", fmt="tar").errno == EINVAL


# ---- skeletons, config.json ----

def test_skeletons(store):
    paths = [pathlib.Path(store.run("skeleton", k).out.strip()) for k in range(4)]
    assert [pathlib.Path(store.run("skeleton", k).out.strip()) for k in range(4)] == paths
    image, host, usr, etc = paths
    assert stat.S_IMODE((image / "tmp").stat().st_mode) == 0o1777 and (image / "opt/cove/execd").stat().st_size == 0
    for p in ("proc", "sys", "dev", "run", "opt/opensandbox"):
        assert (image / p).is_dir() and (host / p).is_dir()
    assert stat.S_IMODE((host / "root").stat().st_mode) == 0o700
    for name in ("bin", "lib", "lib64"):
        if os.path.islink("/" + name):
            assert os.readlink(host / name) == os.readlink("/" + name)
    assert (usr / "local/bin").is_dir() and (etc / "resolv.conf").is_file()
    for p in paths:  # only root mounts them: nobody else may get to what lies there
        assert [stat.S_IMODE(q.stat().st_mode) for q in (p.parent, p.parent.parent)] == [0o700, 0o700]


def test_crun_takes_the_configuration(store, work):
    bundle = work / "bundle"
    rootfs = bundle / "rootfs"
    rootfs.mkdir(parents=True)
    store.load(covekit.busybox_rootfs(work / "b.tar").read_bytes(), "local/b").json
    subprocess.run(["cp", "-a", f"{store.tree('local/b')}/.", rootfs], check=True)
    script = "grep -E '^(Seccomp|NoNewPrivs|CapEff):' /proc/self/status; hostname; mount 2>&1; ulimit -n; ls /dev"
    (bundle / "config.json").write_text(store.run("config", "/bin/sh", "-c", script).out)
    name = f"cove-images-{os.getpid()}"
    r = imagekit.in_private_mounts(
        'mount -t cgroup2 -o nosuid,nodev,noexec none /sys/fs/cgroup; cd "$1"; '
        'crun --cgroup-manager=disabled --root "$1/rt" run --bundle "$1" "$2"', bundle, name, timeout=60)
    assert r.returncode == 0, r.stderr
    lines = r.stdout.splitlines()
    assert lines[0].split() == ["CapEff:", "00000000800405fb"]  # the default profile: no SYS_ADMIN, MKNOD, NET_RAW
    assert lines[1].split() == ["NoNewPrivs:", "1"] and lines[2].split() == ["Seccomp:", "2"]
    assert lines[3] == "cove-test"
    assert "are you root" in r.stdout or "on /proc type proc" in r.stdout
    assert {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "shm", "pts"} <= set(lines)


# ---- behind the daemon ----

def test_daemon_collects_what_crashes_leave(work):
    """A layer that a killed import had published goes at the next start; what a sandbox runs on stays."""
    if "asan" in str(covekit.BUILD):
        pytest.skip("cannot: a sanitized agent is linked dynamically, this image has no libraries")
    with covekit.Daemon() as d:
        covekit.import_image(d, covekit.busybox_rootfs(work / "b.tar"), "bb")
        store = Store(d.dir / "store")
        used = store.layers()
        s = d.create("local/bb")["id"]
        assert d.run(s, "echo alive")[0].strip() == "alive"
        assert d.request("DELETE", "/v1/sandboxes/" + d.create("local/bb")["id"]).status == 204
        d.kill()
        orphan = "f" * 64 + ".plain"
        shutil.copytree(store.path / "layers" / used[0] / "fs/etc", store.path / "layers" / orphan / "fs")
        d.start()
        wait_for(lambda: store.layers() == used)
        assert d.run(s, "/bin/busybox echo alive")[0].strip() == "alive"
        assert store.names() == ["local/bb"]
