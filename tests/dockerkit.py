"""What the tests of the Docker driver share: a real engine (dockerd) of their own, its images, a registry, a census.

    with dockerkit.Dockerd() as docker:            # own data, socket, bridge and subnet; all gone at the end
        docker.image("busybox")                    # cove-test/busybox, made and imported on first use
        with dockerkit.DockerDaemon(docker) as d:  # coved on it
            ...

Standard library only. Debian's docker.io, docker-registry, busybox-static and mmdebstrap are used.
"""
import base64
import contextlib
import fcntl
import hashlib
import http.client
import io
import ipaddress
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
import urllib.parse

import covekit

CACHE = covekit.ROOT / "tests/.cache/docker"
STANDINS = covekit.ROOT / "tests/standins"
REGISTRY_USER, REGISTRY_PASSWORD = "cove-user", "cove-pass"
REGISTRY_HTPASSWD = REGISTRY_USER + ":$2y$05$abcdefghijklmnopqrstuu7t1VkwwO8gVNl/6yjH6jx8byzyMf.92\n"
AGENT_PORT, HTTP_PORT, GUARD_PORT = 44772, 8080, 18080


def why_not():
    """Why no engine can run here; None = it can."""
    if os.geteuid() != 0:
        return "cannot: dockerd needs root"
    for p in ("dockerd", "containerd", "runc"):
        if not find_program(p):
            return f"{p} is not installed"
    return None


def find_program(name):
    # Debian's first: a newer one elsewhere may not be on other machines
    return shutil.which(name, path="/usr/bin:/usr/sbin:/bin:/sbin:" + os.environ.get("PATH", ""))


class EngineError(AssertionError):
    def __init__(self, method, path, status, body):
        super().__init__(f"{method} {path}: {status} {body[:500]!r}")
        self.status = status


class Engine:
    """Thin client of an engine's API, for assertions."""

    def __init__(self, sock, timeout=120):
        self.socket, self.timeout = str(sock), timeout

    def raw(self, method, path, body=None, headers=None, timeout=None):
        c = covekit.UnixHTTPConnection(self.socket, timeout or self.timeout)
        h = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
            h.setdefault("Content-Type", "application/json")
        try:
            c.request(method, "/v1.41" + path, body, h)
            r = c.getresponse()
            return covekit.Response(r.status, r.headers, r.read())
        finally:
            c.close()

    def call(self, method, path, body=None, **kw):
        r = self.raw(method, path, body, **kw)
        if r.status >= 300 and r.status != 304:
            raise EngineError(method, path, r.status, r.body)
        with contextlib.suppress(ValueError):
            return r.json()
        return r.body

    def containers(self, label=None):
        f = "&filters=" + urllib.parse.quote(json.dumps({"label": [label]})) if label else ""
        return self.call("GET", "/containers/json?all=true" + f)

    def inspect(self, container):
        return self.call("GET", f"/containers/{container}/json")

    def sandbox(self, sandbox_id):
        return self.inspect("sandbox-" + sandbox_id)

    def sidecar(self, sandbox_id):
        return self.inspect("sandbox-egress-" + sandbox_id)

    def exists(self, container):
        return self.raw("GET", f"/containers/{container}/json").status == 200

    def exec(self, container, *argv):
        """Runs a program in a container; returns (exit code, stdout and stderr)."""
        e = self.call("POST", f"/containers/{container}/exec",
                      {"Cmd": list(argv), "AttachStdout": True, "AttachStderr": True, "Tty": True})["Id"]
        out = self.raw("POST", f"/exec/{e}/start", {"Detach": False, "Tty": True}).body
        return self.call("GET", f"/exec/{e}/json")["ExitCode"], out.decode(errors="replace").replace("\r\n", "\n")

    def run(self, name, image, **config):
        """Creates and starts a container of the test's own."""
        i = self.call("POST", f"/containers/create?name={name}", {"Image": image, **config})["Id"]
        self.call("POST", f"/containers/{i}/start")
        return i

    def remove(self, container):
        self.raw("DELETE", f"/containers/{container}?force=true&v=true")

    def volumes(self):
        return {v["Name"]: v for v in self.call("GET", "/volumes")["Volumes"] or []}

    def networks(self):
        return {n["Name"]: n for n in self.call("GET", "/networks")}

    def image(self, ref):
        return self.call("GET", f"/images/{ref}/json")

    def has_image(self, ref):
        return self.raw("GET", f"/images/{ref}/json").status == 200

    def tags(self):
        return sorted(t for i in self.call("GET", "/images/json?all=true") for t in i.get("RepoTags") or [])

    def tag(self, ref, repo, tag="latest"):
        self.call("POST", f"/images/{ref}/tag?repo={urllib.parse.quote(repo)}&tag={tag}")

    def import_tar(self, path, repo, tag="latest", changes=(), platform=None):
        q = f"/images/create?fromSrc=-&repo={urllib.parse.quote(repo)}&tag={tag}"
        q += "".join("&changes=" + urllib.parse.quote(c) for c in changes)
        if platform:
            q += "&platform=" + urllib.parse.quote(platform)
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            last = self.raw("POST", q, f, {"Content-Length": str(size), "Content-Type": "application/x-tar"})
        if last.status != 200 or b'"error"' in last.body:
            raise EngineError("POST", q, last.status, last.body)

    def push(self, repo, tag="latest", user=None, password=None):
        auth = base64.urlsafe_b64encode(json.dumps({"username": user or "", "password": password or ""}).encode()).decode()
        r = self.raw("POST", f"/images/{repo}/push?tag={tag}", headers={"X-Registry-Auth": auth})
        if r.status != 200 or b'"error"' in r.body:
            raise EngineError("POST", f"push {repo}", r.status, r.body)

    def remove_image(self, ref):
        self.raw("DELETE", f"/images/{ref}?force=true")

    def put(self, container, path, files):
        """Unpacks {name: bytes} at path."""
        b = io.BytesIO()
        with tarfile.open(fileobj=b, mode="w") as t:
            for name, data in files.items():
                i = tarfile.TarInfo(name)
                i.size, i.mode = len(data), 0o755
                t.addfile(i, io.BytesIO(data))
        self.call("PUT", f"/containers/{container}/archive?path={urllib.parse.quote(path)}", b.getvalue())


class Dockerd:
    """A dockerd of its own. start(), stop(), kill() and restart() keep its data; close() removes everything."""

    def __init__(self):
        covekit.STATE_BASE.mkdir(parents=True, exist_ok=True)
        sweep()
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="dockerd-", dir=covekit.STATE_BASE))
        self.dir.chmod(0o711)
        (self.dir / "owner").write_text(str(os.getpid()))
        self.socket = self.dir / "docker.sock"
        self.host = f"unix://{self.socket}"
        self.log = self.dir / "dockerd.log"
        self.engine = Engine(self.socket)
        self.proc, self.registries = None, []
        self.bridge, self.subnet, self.pool = self.make_bridge()

    def make_bridge(self):
        """A bridge with a /24 that nothing on this machine uses; several test runs may do this at once."""
        with open(covekit.STATE_BASE / ".bridges.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            used = [ipaddress.ip_network(r["dst"], strict=False) for r in
                    json.loads(subprocess.run(["ip", "-j", "route"], capture_output=True, text=True, check=True).stdout or "[]")
                    if r["dst"] != "default"]
            for n in range(1, 120):
                name, net, pool = f"cvt{n}", ipaddress.ip_network(f"10.213.{n}.0/24"), ipaddress.ip_network(f"10.{214 + n // 16}.{n % 16 * 16}.0/20")
                if any(net.overlaps(u) or pool.overlaps(u) for u in used):
                    continue
                if subprocess.run(["ip", "link", "add", name, "type", "bridge"], capture_output=True).returncode != 0:
                    continue
                (self.dir / "bridge").write_text(name)
                subprocess.run(["ip", "addr", "add", f"{net[1]}/24", "dev", name], check=True)
                subprocess.run(["ip", "link", "set", name, "up"], check=True)
                return name, net, pool
        raise AssertionError("no free network for a bridge")

    def command(self):
        return [find_program("dockerd"), "--data-root", f"{self.dir}/root", "--exec-root", f"{self.dir}/exec", "-H", self.host,
                "--pidfile", f"{self.dir}/pid", "--iptables=false", "--ip6tables=false", "--bridge", self.bridge,
                "--default-address-pool", f"base={self.pool},size=26", "--userland-proxy=true", "--log-level", "warn",
                "--config-file", f"{self.dir}/daemon.json", "--shutdown-timeout", "3"]

    def start(self, timeout=60):
        (self.dir / "daemon.json").write_text("{}")
        with open(self.log, "ab") as log:
            self.proc = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                         start_new_session=True)
        deadline = time.monotonic() + timeout * covekit.SLOW
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException, EngineError):
                self.engine.call("GET", "/_ping", timeout=5)
                return self
            if self.proc.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("dockerd did not start:\n" + self.log.read_text()[-3000:])
            time.sleep(0.05)

    def stop(self, sig=signal.SIGTERM, timeout=60):
        if self.proc and self.proc.poll() is None:
            self.proc.send_signal(sig)
            self.proc.wait(timeout * covekit.SLOW)

    def kill(self):
        """kill -9; containers live on and are found by the next start()."""
        self.stop(signal.SIGKILL)
        pidfile = self.dir / "exec/containerd/containerd.pid"  # it dies with dockerd; a zombie of it would be waited for
        with contextlib.suppress(OSError, ValueError):
            wait_gone(int(pidfile.read_text()), 10)
        pidfile.unlink(missing_ok=True)
        (self.dir / "pid").unlink(missing_ok=True)

    def restart(self):
        self.stop()
        return self.start()

    def freeze(self, on=True):
        """A dockerd that hangs: connections are taken by the kernel, answers never come."""
        self.proc.send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    def close(self):
        for r in self.registries:
            r.close()
        if self.proc:
            with contextlib.suppress(OSError, EngineError, http.client.HTTPException):
                for c in self.engine.containers():
                    self.engine.remove(c["Id"])
            self.stop()
        clean_dir(self.dir)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *exc):
        self.close()

    # ---- images ----

    def image(self, kind):
        """Reference of cove-test/KIND; made and imported when it is not there."""
        ref = "cove-test/" + kind
        if not self.engine.has_image(ref):
            path, changes = IMAGES[kind]()
            self.engine.import_tar(path, ref, changes=changes)
        return ref

    def registry(self, auth=False):
        r = Registry(self.dir, auth)
        self.registries.append(r)
        return r

    # ---- what is there ----

    def census(self, ignore=()):
        """What a sandbox could leave behind, as sets of names."""
        e = self.engine
        mounts = [l.split()[4] for l in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
        links = json.loads(subprocess.run(["ip", "-j", "link", "show", "master", self.bridge], capture_output=True, text=True, check=True).stdout or "[]")
        return {
            "containers": {c["Names"][0] if c.get("Names") else c["Id"] for c in e.containers()} - set(ignore),
            "volumes": set(e.volumes()), "networks": set(e.networks()),
            "snapshot images": {t for t in e.tags() if t.startswith("opensandbox-snapshots")},
            "mounts": {m for m in mounts if str(self.dir) in m or m.startswith("/mnt/ossfs")},
            "interfaces": {l["ifname"] for l in links},
        }


class Census:
    """`check()` waits a bounded time until the engine holds nothing that it did not hold before."""

    def __init__(self, docker):
        self.docker = docker
        self.before = docker.census()

    def check(self, allow=None, timeout=15):
        deadline = time.monotonic() + timeout * covekit.SLOW
        while True:
            now = self.docker.census()
            more = {k: v - self.before[k] - set((allow or {}).get(k, ())) for k, v in now.items()}
            for k in ("mounts", "interfaces"):  # a container that is started again has others
                if len(now[k]) <= len(self.before[k]):
                    more[k] = set()
            more = {k: v for k, v in more.items() if v}
            if not more:
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"left behind: {more}")
            time.sleep(0.1)  # the engine takes interfaces and mounts away after its answer


@contextlib.contextmanager
def nothing_left(server):
    """Yields a list for sandbox ids; these are deleted at the end, and nothing may be left of them."""
    census, ids = Census(server.docker), []
    yield ids
    for i in ids:
        server.request("DELETE", "/v1/sandboxes/" + i)
    census.check()


def clean_dir(path):
    """Ends what a dockerd of this directory left running, then removes its mounts, bridge and files."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((path / "pid").read_text())
        if str(path) in pathlib.Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGTERM)
            wait_gone(pid, 15)
    for _ in range(3):
        left = [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid() and belongs(p, path)]
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            wait_gone(pid, 5)
        if not left:
            break
    mounts = [l.split()[4] for l in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    for m in reversed([m for m in mounts if m.startswith(str(path) + "/")]):
        subprocess.run(["umount", "-l", m], capture_output=True)
    if (path / "bridge").exists():
        subprocess.run(["ip", "link", "del", (path / "bridge").read_text()], capture_output=True)
    shutil.rmtree(path, ignore_errors=True)


def belongs(pid, path):
    """containerd and the shims of an engine have its directory on their command line."""
    with contextlib.suppress(OSError):
        line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        return str(path).encode() + b"/" in line and line.split(b"/")[-1] != b"" and b"container" in line.split(b"\0")[0]
    return False


def wait_gone(pid, timeout):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as f:
                if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return
        except OSError:
            return
        time.sleep(0.05)


def sweep():
    """Removes engines whose test run was killed."""
    for d in covekit.STATE_BASE.glob("dockerd-*"):
        with contextlib.suppress(OSError, ValueError):
            if not pathlib.Path(f"/proc/{int((d / 'owner').read_text())}").exists():
                clean_dir(d)


# ---- images ----

class Tree:
    """A tar that is made entry by entry."""

    def __init__(self, path, mode="w"):
        self.tar = tarfile.open(path, mode)

    def dir(self, name, mode=0o755):
        i = tarfile.TarInfo(name)
        i.type, i.mode, i.mtime = tarfile.DIRTYPE, mode, 1700000000
        self.tar.addfile(i)

    def file(self, name, data, mode=0o755):
        i = tarfile.TarInfo(name)
        i.size, i.mode, i.mtime = len(data), mode, 1700000000
        self.tar.addfile(i, io.BytesIO(data))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.tar.close()


def cached(name, sources, make):
    """A file of the cache that is made again when one of its sources is another one."""
    CACHE.mkdir(parents=True, exist_ok=True)
    h = hashlib.sha256(b"2")
    for s in sources:
        h.update(pathlib.Path(s).read_bytes() if isinstance(s, (str, pathlib.Path)) and os.path.exists(s) else str(s).encode())
    path = CACHE / f"{name}-{h.hexdigest()[:16]}.tar"
    with open(CACHE / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            for old in CACHE.glob(name + "-*.tar"):
                old.unlink()
            tmp = path.with_suffix(".new")
            make(tmp)
            tmp.rename(path)
    return path


def busybox_image():
    return cached("busybox", [shutil.which("busybox") or "/bin/busybox"], covekit.busybox_rootfs), ['CMD ["/bin/sh"]', "ENV PATH=/usr/bin:/bin"]


def scratch_image():
    """Nothing but one static program: no shell, no /etc, no /tmp."""
    exe = covekit.BUILD / "tests/standin-pause"

    def make(path):
        with Tree(path) as t:
            t.file("app", exe.read_bytes())
    return cached("scratch", [exe], make), ['CMD ["/app"]']


def debian_image():
    packages = ("python3,bash,coreutils,dash,procps,grep,sed,tar,gzip,libc-bin,hostname,findutils,base-files,base-passwd,"
                "util-linux,libgcc-s1")

    def make(path):
        subprocess.run(["mmdebstrap", "--quiet", "--format=tar", "--variant=extract", "--include=" + packages,
                        *[f"--dpkgopt=path-exclude=/usr/share/{d}/*" for d in ("doc", "man", "locale", "info", "zoneinfo", "perl")],
                        "bookworm", str(path)], check=True, stdin=subprocess.DEVNULL)
        with Tree(path, "a") as t:  # extract runs no maintainer scripts
            t.file("./etc/passwd", b"root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:u:/tmp:/bin/bash\n", 0o644)
            t.file("./etc/group", b"root:x:0:\nuser:x:1000:\n", 0o644)
    return cached("debian", [packages], make), ['CMD ["bash"]', "ENV PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"]


def trust_image():
    """A Debian with the tools that change certificate stores, and no store yet (extract runs no maintainer scripts)."""
    packages = "bash,coreutils,dash,sed,findutils,debianutils,mawk,libc-bin,base-files,base-passwd,openssl,ca-certificates,libnss3-tools"

    def make(path):
        subprocess.run(["mmdebstrap", "--quiet", "--format=tar", "--variant=extract", "--include=" + packages,
                        *[f"--dpkgopt=path-exclude=/usr/share/{d}/*" for d in ("doc", "man", "locale", "info", "zoneinfo", "perl")],
                        "bookworm", str(path)], check=True, stdin=subprocess.DEVNULL)
        with Tree(path, "a") as t:
            t.file("./etc/passwd", b"root:x:0:0:root:/root:/bin/bash\n", 0o644)
            t.file("./etc/group", b"root:x:0:\n", 0o644)
            t.file("./etc/ca-certificates.conf", b"mozilla/ISRG_Root_X1.crt\n", 0o644)
    return cached("trust", [packages], make), ['CMD ["bash"]', "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]


def execd_image():
    """What an operator names in runtime.execd_image: agent and launcher at their places, a tail to be kept alive with."""
    agent, boot, bb = covekit.LIBEXEC / "cove-execd", STANDINS / "bootstrap.sh", shutil.which("busybox") or "/bin/busybox"
    if covekit.BUILD.name != "build" and (covekit.ROOT / "build/root/usr/local/lib/cove/cove-execd").exists():
        agent = covekit.ROOT / "build/root/usr/local/lib/cove/cove-execd"  # a sanitized one may be dynamic

    def make(path):
        with Tree(path) as t:
            t.file("execd", agent.read_bytes())
            t.file("bootstrap.sh", boot.read_bytes())
            t.file("execd.exe", b"MZ stand-in")
            t.file("install.bat", b"@echo stand-in\r\n")
            t.dir("bin")
            t.file("bin/tail", pathlib.Path(bb).read_bytes())
            t.dir("tmp", 0o1777)
    return cached("execd", [agent, boot, bb], make), ["ENV PATH=/bin"]


def egress_image():
    exe = covekit.BUILD / "tests/standin-guard"

    def make(path):
        pem = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "/dev/null",
                              "-subj", "/CN=cove-test", "-days", "3650"], check=True, capture_output=True, stdin=subprocess.DEVNULL).stdout
        with Tree(path) as t:
            t.file("guard", exe.read_bytes())
            t.file("ca.pem", pem, 0o644)
            t.dir("opt")
            t.dir("opt/opensandbox")
    return cached("egress", [exe], make), ['ENTRYPOINT ["/guard"]']


IMAGES = {"busybox": busybox_image, "scratch": scratch_image, "debian": debian_image, "trust": trust_image,
          "execd": execd_image, "egress": egress_image}


class Registry:
    """Debian's docker-registry on a free loopback port, which engines take without TLS."""

    def __init__(self, base, auth=False):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="registry-", dir=base))
        self.port, self.auth, self.proc = covekit.free_port(), auth, None
        self.name = f"127.0.0.1:{self.port}"
        text = f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {self.dir}/data}}, delete: {{enabled: true}}}}\nhttp: {{addr: '{self.name}'}}\n"
        if auth:
            (self.dir / "htpasswd").write_text(REGISTRY_HTPASSWD)
            text += f"auth: {{htpasswd: {{realm: cove, path: {self.dir}/htpasswd}}}}\n"
        (self.dir / "config.yml").write_text(text)
        self.start()

    def start(self):
        with open(self.dir / "log", "ab") as log:
            self.proc = subprocess.Popen([find_program("docker-registry"), "serve", str(self.dir / "config.yml")], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 20 * covekit.SLOW
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            if self.proc.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("docker-registry did not start: " + (self.dir / "log").read_text()[-2000:])
            time.sleep(0.05)

    def push(self, docker, kind, name=None):
        """Pushes cove-test/KIND; its reference here. The engine's own tag of it is removed again."""
        repo = f"{self.name}/{name or kind}"
        docker.engine.tag(docker.image(kind), repo)
        docker.engine.push(repo, user=REGISTRY_USER if self.auth else None, password=REGISTRY_PASSWORD if self.auth else None)
        docker.engine.remove_image(repo)
        return repo

    def stop(self):
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()

    def close(self):
        self.stop()


# ---- coved on an engine ----

IS_PEER = os.environ.get("COVE_TEST_SERVER") == "peer"  # the tests of the wire, run against the official server


def serve(docker, sections=None, **kw):
    """The server under test, with an agent image that an operator has configured (its files are copied into containers)."""
    sections = {k: dict(v) for k, v in (sections or {}).items()}
    sections.setdefault("runtime", {}).setdefault("execd_image", docker.image("execd"))
    if IS_PEER:
        import peerkit
        return peerkit.PeerServer(docker, sections, **kw)
    return DockerDaemon(docker, sections, **kw)


def toml_value(v):
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {toml_value(x)}" for k, x in v.items()) + " }"
    if isinstance(v, (list, tuple)):
        return "[" + ", ".join(toml_value(x) for x in v) + "]"
    return json.dumps(v) if isinstance(v, str) else str(v)


def toml(sections):
    return "\n".join(f"[{name}]\n" + "".join(f"{k} = {toml_value(v)}\n" for k, v in keys.items()) for name, keys in sections.items())


class DockerDaemon(covekit.Daemon):
    """coved with runtime.type = docker. sections: {"docker": {key: value}, …} over the defaults; None removes a key."""

    driver = "docker"

    def __init__(self, docker, sections=None, env=None, state=None, args=(), key=covekit.API_KEY, prefix=()):
        super().__init__("", env, state, args, prefix)
        self.docker, self.engine = docker, getattr(docker, "engine", None)
        self.env.setdefault("DOCKER_HOST", docker.host)
        self.env.setdefault("HOME", str(self.dir))
        self.sections = {
            "server": {"host": "127.0.0.1", "port": self.port, "api_key": key, "socket": str(self.socket)},
            "runtime": {"type": "docker"},
            "native": {"state_dir": f"{self.dir}/state", "run_dir": f"{self.dir}/run"},
            "docker": {"network_mode": "bridge", "publish_host": "127.0.0.1"},
            "egress": {"image": "cove-test/egress"},
            "store": {"path": f"{self.dir}/opensandbox.db"},
        }
        for name, keys in (sections or {}).items():
            self.sections.setdefault(name, {}).update(keys)
        for name in list(self.sections):
            self.sections[name] = {k: v for k, v in self.sections[name].items() if v is not None}

    def write_config(self):
        self.config.write_text(toml(self.sections))

    def create(self, image="cove-test/busybox", **fields):
        return super().create(image, **fields)

    def refused(self, status, code=None, text=None, image="cove-test/busybox", **fields):
        """A create that must be refused, with nothing made of it."""
        before = self.docker.census() if isinstance(self.docker, Dockerd) else None
        body = {"image": {"uri": image}, "entrypoint": ["tail", "-f", "/dev/null"],
                "resourceLimits": {"cpu": "1", "memory": "512Mi"}, "timeout": 600, **fields}
        r = self.request("POST", "/v1/sandboxes", {k: v for k, v in body.items() if v is not ...})
        assert r.status == status, r
        if code:
            assert r.json()["code"] == code, r
        if text:
            assert text in r.json()["message"], r
        if before:
            now = self.docker.census()
            assert not now["containers"] - before["containers"] and not now["volumes"] - before["volumes"], (before, now)
        return r

    def delete(self, sandbox_id):
        r = self.request("DELETE", "/v1/sandboxes/" + sandbox_id)
        assert r.status == 204, r
