"""What the image tests share: a store driven through store-tool, makers of tars and of image archives.

Standard library only. store-tool and cove-unpack come from COVE_BUILD/src/oci.
"""
import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import pathlib
import subprocess
import tarfile

import covekit

TOOL = covekit.BUILD / "src/oci/store-tool"
HELPERS = covekit.BUILD / "src/oci"
MTIME = 1_600_000_000
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]

FILE, DIR, SYMLINK, HARDLINK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
CHAR, BLOCK, FIFO = tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE


class Result:
    def __init__(self, proc):
        self.code, self.err = proc.returncode, proc.stderr
        self.out = proc.stdout
        self.errno = int(proc.stderr.split()[0]) if proc.returncode == 1 and proc.stderr[:1].isdigit() else 0

    @property
    def json(self):
        assert self.code == 0, self.err
        return json.loads(self.out)

    def __repr__(self):
        return f"<{self.code} {self.out[:300]!r} {self.err[:600]!r}>"


class Store:
    def __init__(self, path):
        self.path = pathlib.Path(path)

    def command(self, *args):
        return [str(TOOL), str(self.path), *map(str, args)]

    @staticmethod
    def env(**extra):
        return dict(os.environ, COVE_LIBEXEC=str(HELPERS), **extra)

    def run(self, *args, stdin=None, timeout=60, **env):
        p = subprocess.run(self.command(*args), input=stdin, capture_output=True, timeout=timeout,
                           env=self.env(**env))
        return Result(subprocess.CompletedProcess(p.args, p.returncode, p.stdout.decode(),
                                                  p.stderr.decode(errors="replace")))

    def start(self, *args, **kw):
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen(self.command(*args), env=self.env(**kw.pop("env", {})), **kw)

    def load(self, data, name="local/t", fmt="tar", config="-", ref="", **env):
        """Imports bytes."""
        args = ["import", name, "-", fmt, config] + ([ref] if ref else [])
        return self.run(*args, stdin=data, **env)

    def load_path(self, path, name="local/t", fmt="auto", config="-", ref="", **env):
        args = ["import", name, path, fmt, config] + ([ref] if ref else [])
        return self.run(*args, **env)

    def names(self):
        return [i["reference"] for i in self.run("list").json]

    def layers(self):
        return sorted(p.name for p in (self.path / "layers").iterdir())

    def tree(self, name="local/t", layer=0):
        return pathlib.Path(self.run("resolve", name).json["layers"][layer]["path"])

    def is_empty(self):
        """Nothing usable and nothing left over."""
        return not any(any((self.path / d).iterdir()) for d in ("layers", "l", "images", "refs", "blobs/sha256"))


def entry(name, kind=FILE, data=b"", link="", mode=0o755, uid=0, gid=0, pax=None, size=None):
    i = tarfile.TarInfo(name)
    i.type, i.linkname, i.mode, i.uid, i.gid, i.mtime = kind, link, mode, uid, gid, MTIME
    i.pax_headers = pax or {}
    i.size = len(data) if kind == FILE else 0
    if size is not None:
        i.size = size
    return i, data


def tar(*entries, fmt=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=fmt) as t:
        for i, data in entries:
            t.addfile(i, io.BytesIO(data) if i.type == FILE else None)
    return out.getvalue()


COMPRESSIONS = {
    "none": lambda b: b,
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
    "zstd": lambda b: subprocess.run(["zstd", "-qc"], input=b, stdout=subprocess.PIPE, check=True).stdout,
}


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Layout:
    """An OCI layout in the making; every part can be falsified."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        (self.path / "blobs/sha256").mkdir(parents=True)
        (self.path / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        self.manifests = []

    def blob(self, data, media_type, **extra):
        d = digest(data)
        (self.path / "blobs/sha256" / d[7:]).write_bytes(data)
        return {"mediaType": media_type, "digest": d, "size": len(data), **extra}

    def image(self, layers, name=None, config=None, compress="gzip", arch=ARCH, layer_type=None, diff_ids=None):
        """layers: plain tars. Returns the manifest's descriptor."""
        blobs = [self.blob(COMPRESSIONS[compress](b), layer_type or "application/vnd.oci.image.layer.v1.tar+gzip")
                 for b in layers]
        conf = {"os": "linux", "architecture": arch, "config": config or {},
                "rootfs": {"type": "layers", "diff_ids": diff_ids or [digest(b) for b in layers]}}
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                    "config": self.blob(json.dumps(conf).encode(), "application/vnd.oci.image.config.v1+json"),
                    "layers": blobs}
        d = self.blob(json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json",
                      platform={"os": "linux", "architecture": arch})
        if name:
            d["annotations"] = {"org.opencontainers.image.ref.name": name}
        self.manifests.append(d)
        return d

    def index(self, manifests, name=None):
        d = self.blob(json.dumps({"schemaVersion": 2, "manifests": manifests}).encode(),
                      "application/vnd.oci.image.index.v1+json")
        if name:
            d["annotations"] = {"org.opencontainers.image.ref.name": name}
        return d

    def write(self, manifests=None):
        (self.path / "index.json").write_text(
            json.dumps({"schemaVersion": 2, "manifests": self.manifests if manifests is None else manifests}))
        return self.path

    def write_tar(self, path):
        self.write()
        with tarfile.open(path, "w") as t:
            for p in ("blobs", "index.json", "oci-layout"):
                t.add(self.path / p, p)
        return path


def docker_save(path, layers, tags=("app:1",), config=None):
    """The old form: <id>/layer.tar entries, one of them a symlink when a layer comes twice."""
    conf = json.dumps({"os": "linux", "architecture": ARCH, "config": config or {},
                       "rootfs": {"type": "layers", "diff_ids": [digest(b) for b in layers]}}).encode()
    conf_name = digest(conf)[7:] + ".json"
    names, files, seen = [], [], {}
    for n, b in enumerate(layers):
        folder = hashlib.sha256(f"layer {n}".encode()).hexdigest()
        names.append(f"{folder}/layer.tar")
        files.append(entry(folder, DIR))
        if digest(b) in seen:
            files.append(entry(names[-1], SYMLINK, link=f"../{seen[digest(b)]}"))
        else:
            files.append(entry(names[-1], data=b))
            seen[digest(b)] = names[-1]
    manifest = json.dumps([{"Config": conf_name, "RepoTags": list(tags), "Layers": names}]).encode()
    pathlib.Path(path).write_bytes(tar(*files, entry(conf_name, data=conf), entry("manifest.json", data=manifest)))
    return path


def in_private_mounts(script, *args, **kw):
    """Runs a shell script in a mount namespace of its own."""
    return subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-ec", script, "sh", *map(str, args)],
                          capture_output=True, text=True, **kw)


def shape(root):
    """{path: (type, mode, uid, gid, mtime, content or target, xattrs)} of a tree; inode groups of hard links as well."""
    root, out, inodes = pathlib.Path(root), {}, {}
    for p in [root, *sorted(root.rglob("*"))]:
        st, rel = p.lstat(), str(p.relative_to(root))
        if p.is_symlink():
            content = os.readlink(p)
        elif p.is_file():
            content = p.read_bytes()
        else:
            content = None
        attrs = {n: os.getxattr(p, n, follow_symlinks=False) for n in os.listxattr(p, follow_symlinks=False)}
        out[rel] = (oct(st.st_mode), st.st_uid, st.st_gid, st.st_mtime, st.st_rdev, content, tuple(sorted(attrs.items())))
        if st.st_nlink > 1 and not p.is_dir():
            inodes.setdefault(st.st_ino, []).append(rel)
    return out, sorted(inodes.values())
