"""Operating coved on a real engine: without root, and what a start without a key leaves alone."""
import json
import os
import pathlib
import shutil
import subprocess

import covekit
import dockerkit

USER = 65534


class Unprivileged(dockerkit.DockerDaemon):
    """Runs as a user who may do nothing but talk to the engine's socket."""

    def __init__(self, docker, **kw):
        super().__init__(docker, prefix=["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs",
                                         "--inh-caps=-all", "--bounding-set=-all"], **kw)
        self.sections.pop("native")  # its own defaults, below HOME

    def start(self, timeout=30):
        # the checkout may lie where only its owner may look
        self.sections["server"]["libexec_dir"] = str(shutil.copytree(covekit.LIBEXEC, self.dir / "libexec", dirs_exist_ok=True))
        for p in (self.dir, self.log):
            if p == self.log:
                p.touch()
            os.chown(p, USER, USER)
        mask = os.umask(0)  # of the socket that is told when it serves
        try:
            return super().start(timeout)
        finally:
            os.umask(mask)


def opened(docker):
    """The engine's socket, and the way to it, for everyone."""
    path = pathlib.Path(docker.host.removeprefix("unix://"))
    path.chmod(0o666)
    for p in path.parents:
        if p.stat().st_mode & 0o001 == 0:
            p.chmod(p.stat().st_mode | 0o011)
    return docker


def test_no_root_is_needed(docker):
    docker.image("busybox")
    # an agent of ours cannot be bound from a folder that the user may not read: it is copied or bound by the engine
    with Unprivileged(opened(docker), sections={"server": {"host": "127.0.0.1"}}) as d:
        assert int(pathlib.Path(f"/proc/{d.proc.pid}/status").read_text().split("Uid:")[1].split()[0]) == USER
        s = d.create()
        assert d.get("/v1/sandboxes/" + s["id"]).json()["status"]["state"] == "Running"
        assert d.run(s["id"], "echo hello")[0].strip() == "hello"
        assert (d.dir / ".local/state/cove/state.db").exists()
        d.delete(s["id"])


def test_a_part_of_a_volume_that_cannot_be_seen_is_refused(docker):
    """The engine follows links as root: one inside a volume, made by code in a sandbox, would have the host's root mounted."""
    v = docker.engine.call("POST", "/volumes/create", {"Name": "linked"})
    os.symlink("/", pathlib.Path(v["Mountpoint"]) / "x")
    docker.image("busybox")
    try:
        with Unprivileged(opened(docker), sections={"server": {"host": "127.0.0.1"}}) as d:
            volume = {"name": "v", "pvc": {"claimName": "linked"}, "mountPath": "/v"}
            r = d.request("POST", "/v1/sandboxes", {"image": {"uri": "cove-test/busybox"}, "entrypoint": ["tail", "-f", "/dev/null"],
                                                    "resourceLimits": {}, "timeout": 60, "volumes": [{**volume, "subPath": "x"}]})
            assert r.status == 400 and "cannot be checked" in r.json()["message"], r
            d.delete(d.create(volumes=[volume])["id"])
    finally:
        docker.engine.call("DELETE", "/volumes/linked")


def test_a_service_manager_names_the_folders(docker):
    d = Unprivileged(opened(docker))
    for name in ("STATE", "RUNTIME"):
        path = d.dir / name.lower()
        path.mkdir()
        os.chown(path, USER, USER)
        d.env[name + "_DIRECTORY"] = str(path)
    d.sections["server"].pop("socket")
    d.socket = d.dir / "runtime/api.sock"
    with d:
        assert (d.dir / "state/state.db").exists() and not (d.dir / ".local").exists()
        assert d.get("/v1/sandboxes", unix=True, key=None).status == 200


def test_a_start_without_a_key_touches_no_container(docker, tmp_path):
    """Guard first: a sandbox that has expired meanwhile still lives after a start that was refused."""
    with dockerkit.DockerDaemon(docker) as d:
        s = d.create(timeout=60)
        container = docker.engine.sandbox(s["id"])["Id"]
        d.kill()
        d.sections["server"]["api_key"] = ""
        d.write_config()
        env = {k: v for k, v in os.environ.items() if not k.startswith("OPENSANDBOX_")}
        r = subprocess.run([str(covekit.BIN / "coved"), "--config", str(d.config)], capture_output=True, text=True, timeout=20,
                           stdin=subprocess.DEVNULL, env={**env, **d.env, "COVE_LIBEXEC": str(covekit.LIBEXEC)})
        assert r.returncode == 1 and "no API key" in r.stderr
        assert docker.engine.exists(container)
        d.sections["server"]["api_key"] = covekit.API_KEY
        d.start()
        assert d.get("/v1/sandboxes/" + s["id"]).status == 200
        d.delete(s["id"])


def test_two_daemons_of_one_state_directory(docker):
    with dockerkit.DockerDaemon(docker) as d:
        r = subprocess.run([str(covekit.BIN / "coved"), "--config", str(d.config)], capture_output=True, text=True, timeout=20,
                           stdin=subprocess.DEVNULL, env={**os.environ, **d.env, "COVE_LIBEXEC": str(covekit.LIBEXEC)})
        assert r.returncode == 1 and "another daemon uses the state directory" in r.stderr, r
        assert d.get("/health").status == 200


def test_the_probe_looks_at_the_engine(docker, tmp_path):
    def probe(text, host=docker.host):
        f = tmp_path / "c.toml"
        f.write_text('[runtime]\ntype = "docker"\n' + text)
        r = subprocess.run([str(covekit.BIN / "coved"), "--config", str(f), "--probe", "--json"], capture_output=True, text=True,
                           timeout=30, env={**os.environ, "DOCKER_HOST": host})
        return r.returncode, {p["name"]: p for p in json.loads(r.stdout)}

    code, found = probe('[docker]\nnetwork_mode = "bridge"\n')
    assert code == 0 and set(found) == {"engine"} and "API 1." in found["engine"]["detail"], found
    code, found = probe('[docker]\nnetwork_mode = "no-such-net"\n[egress]\nimage = "no/such-image"\n'
                        '[secure_runtime]\ntype = "kata"\ndocker_runtime = "no-such-runtime"\n')
    assert code == 1 and not found["network"]["ok"] and not found["secure-runtime"]["ok"]
    assert found["network"]["fix"] == "docker network create no-such-net"
    assert not found["guard-image"]["ok"] and not found["guard-image"]["required"]
    code, found = probe("", "unix:///nonexistent/docker.sock")
    assert code == 1 and not found["engine"]["ok"] and "DOCKER_HOST" in found["engine"]["fix"]
