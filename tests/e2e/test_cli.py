"""The official command line (osb), unmodified, on every driver. Each call starts a Python of half a second: few calls."""
import json
import pathlib
import subprocess
import sys
import time

import pytest

from covekit import API_KEY

both_ways = pytest.mark.parametrize("osb", [False, True], ids=["direct", "server-proxy"], indirect=True)
OSB = str(pathlib.Path(sys.executable).with_name("osb"))


@pytest.fixture
def osb(daemon, request, tmp_path):
    proxy = getattr(request, "param", False)

    def run(*args, code=0, stdin=None, as_json=False):
        cmd = [OSB, "--domain", f"127.0.0.1:{daemon.port}", "--api-key", API_KEY, "--config", str(tmp_path / "none.toml"), "--no-color",
               "--use-server-proxy" if proxy else "--no-use-server-proxy", *args]
        r = subprocess.run(cmd, capture_output=True, text=True, timeout=120, input=stdin, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "COLUMNS": "300"})
        assert code is None or r.returncode == code, (args, r)
        return json.loads(r.stdout) if as_json else r.stdout
    return run


@pytest.fixture
def box(osb, daemon):
    s = osb("sandbox", "create", "--image", daemon.small, "-t", "5m", "-e", "GREETING=hello you", "-m", "team=cli", "-o", "json", as_json=True)
    yield s["id"]
    osb("sandbox", "kill", s["id"], code=None)


def test_life(osb, box):
    got = osb("sandbox", "get", box, "-o", "json", as_json=True)
    assert got["id"] == box and got["status"]["state"] == "Running" and got["metadata"] == {"team": "cli"}
    listed = osb("sandbox", "list", "-m", "team=cli", "-s", "Running", "-o", "json", as_json=True)
    assert box in json.dumps(listed)
    assert osb("sandbox", "health", box)
    osb("sandbox", "renew", box, "-t", "1h")
    osb("sandbox", "pause", box)
    assert osb("sandbox", "get", box, "-o", "json", as_json=True)["status"]["state"] == "Paused"
    osb("sandbox", "resume", box)
    assert osb("sandbox", "endpoint", box, "-p", "8080", "-o", "json", as_json=True)["endpoint"]
    assert osb("sandbox", "metrics", box, "-o", "json", as_json=True)
    osb("sandbox", "kill", box)
    osb("sandbox", "get", box, code=1)


@both_ways
def test_commands(osb, box):
    assert osb("command", "run", box, "--", "sh", "-c", "echo $GREETING; printf 'a\\nb'") == "hello you\na\nb\n"
    osb("command", "run", box, "--", "sh", "-c", "exit 3", code=1)
    assert osb("command", "run", box, "--argv", "--", "printf", "%s|", "$HOME", "a b") == "$HOME|a b|\n"
    r = osb("command", "run", box, "-d", "-o", "json", "--", "sh", "-c", "echo started; sleep 0.2; echo done", as_json=True)
    cid = r.get("id") or r.get("command_id") or r["execution_id"]
    deadline = time.monotonic() + 15
    while "done" not in osb("command", "logs", box, cid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "done" in osb("command", "logs", box, cid) and osb("command", "status", box, cid)


@both_ways
def test_files(osb, box, tmp_path):
    osb("file", "write", box, "/tmp/t", "-c", "some text")
    assert "some text" in osb("file", "cat", box, "/tmp/t")
    blob = bytes(range(256)) * 1000
    (tmp_path / "blob").write_bytes(blob)
    osb("file", "upload", box, str(tmp_path / "blob"), "/tmp/blob")
    osb("file", "download", box, "/tmp/blob", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == blob
    osb("file", "mkdir", box, "/tmp/d")
    osb("file", "mv", box, "/tmp/t", "/tmp/d/t")
    assert "/tmp/d/t" in osb("file", "search", box, "/tmp/d", "-p", "*", "-o", "json")
    osb("file", "rm", box, "/tmp/d/t")
    osb("file", "cat", box, "/tmp/d/t", code=1)


@pytest.mark.engine
def test_egress_and_snapshots(osb, daemon, tmp_path):
    (tmp_path / "policy.json").write_text(json.dumps({"defaultAction": "deny", "egress": [{"action": "allow", "target": "example.com"}]}))
    i = osb("sandbox", "create", "--image", daemon.small, "--network-policy-file", str(tmp_path / "policy.json"), "-o", "json", as_json=True)["id"]
    try:
        assert "example.com" in osb("egress", "get", i, "-o", "json")
        osb("egress", "patch", i, "--rule", "deny=bad.example.com")
        assert "bad.example.com" in osb("egress", "get", i, "-o", "json")
        osb("command", "run", i, "--", "sh", "-c", "echo kept > /root/f")
        snap = osb("snapshot", "create", i, "--name", "cli", "-o", "json", as_json=True)["id"]
        deadline = time.monotonic() + 20
        while osb("snapshot", "get", snap, "-o", "json", as_json=True)["status"]["state"] == "Creating" and time.monotonic() < deadline:
            time.sleep(0.1)
        assert snap in osb("snapshot", "list", "--name", "cli", "-o", "json")
        j = osb("sandbox", "create", "--snapshot-id", snap, "-o", "json", as_json=True)["id"]
        assert osb("command", "run", j, "--", "cat", "/root/f") == "kept\n"
        osb("sandbox", "kill", j)
        osb("snapshot", "delete", snap)
    finally:
        osb("sandbox", "kill", i)


def test_volumes_and_diagnostics(osb, daemon, tmp_path):
    (tmp_path / "volumes.json").write_text(json.dumps([{"name": "v", "pvc": {"claimName": "osb-1", "deleteOnSandboxTermination": True}, "mountPath": "/v"}]))
    i = osb("sandbox", "create", "--image", daemon.small, "--volumes-file", str(tmp_path / "volumes.json"), "-o", "json", as_json=True)["id"]
    try:
        assert "osb-1" in daemon.volumes()
        assert osb("command", "run", i, "--", "sh", "-c", "echo in > /v/f; cat /v/f") == "in\n"
        assert osb("diagnostics", "logs", i, "-s", "container", "-o", "raw")
        assert osb("diagnostics", "events", i, "-s", "all", "-o", "raw")
        assert i in osb("devops", "summary", i)
    finally:
        osb("sandbox", "kill", i)
    assert "osb-1" not in daemon.volumes()


def test_a_request_file_and_refusals(osb, daemon, tmp_path):
    (tmp_path / "rq.json").write_text(json.dumps({"image": {"uri": daemon.small}, "entrypoint": ["tail", "-f", "/dev/null"], "timeout": 300,
                                                  "resourceLimits": {"cpu": "1", "memory": "256Mi"}, "metadata": {"from": "file"}}))
    i = osb("sandbox", "create", "-f", str(tmp_path / "rq.json"), "-o", "json", as_json=True)["id"]
    assert osb("sandbox", "get", i, "-o", "json", as_json=True)["metadata"] == {"from": "file"}
    if daemon.says["snapshotId"] == "refused":
        osb("snapshot", "create", i, code=1)
    osb("sandbox", "kill", i)
    osb("template", "list", code=1)
    osb("sandbox", "get", "no-such-sandbox", code=1)
