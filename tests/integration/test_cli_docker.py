"""The cove program against a daemon on a Docker Engine: what a person types on both drivers."""
import json
import time

import dockerkit
import pytest

from clikit import cove

IMAGE = "cove-test/busybox"


@pytest.fixture(scope="module")
def daemon(docker):
    docker.image("busybox")
    with dockerkit.DockerDaemon(docker) as d:
        yield d


@pytest.fixture
def box(daemon):
    r = cove("create", "--image", IMAGE, daemon=daemon)
    assert r.returncode == 0, r
    yield r.stdout.decode().strip()
    cove("rm", "-f", r.stdout.decode().strip(), daemon=daemon)


def test_run(daemon, tmp_path):
    r = cove("run", "--image", IMAGE, "--", "sh", "-c", "cat; echo err >&2; exit 3", daemon=daemon, stdin=b"in\n")
    assert (r.returncode, r.stdout, r.stderr) == (3, b"in\n", b"err\n"), r
    (tmp_path / "f").write_text("mine")
    r = cove("run", "--image", IMAGE, "--mount", f"{tmp_path}:/w", "--memory", "64m", "--cpu", "1", "--", "sh", "-c",
             "pwd; cat f; echo new > g", daemon=daemon)
    assert (r.returncode, r.stdout) == (0, b"/w\nmine"), r
    assert (tmp_path / "g").read_text() == "new\n"
    assert daemon.get("/v1/sandboxes").json()["items"] == []


def test_create_exec_cp_logs_rm(daemon, box, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_text("text")
    assert cove("cp", tmp_path / "d", f"{box}:/tmp", daemon=daemon).returncode == 0
    r = cove("exec", box[:8], "--", "cat", "/tmp/d/f", daemon=daemon)
    assert (r.returncode, r.stdout) == (0, b"text"), r
    assert cove("cp", f"{box}:/tmp/d/f", "-", daemon=daemon).stdout == b"text"
    r = cove("create", "--image", IMAGE, "--cwd", "/usr", "--", "sh", "-c", "echo here $(pwd); exit 3", daemon=daemon)
    other = r.stdout.decode().strip()
    wait_failed(daemon, other)
    assert "here /usr" in cove("logs", other, daemon=daemon).stdout.decode()
    r = cove("exec", other, "--", "true", daemon=daemon)
    assert r.returncode == 125 and "has ended" in r.stderr.decode(), r
    assert {b["id"] for b in json.loads(cove("ps", "--json", daemon=daemon).stdout)} == {box, other}
    assert cove("rm", "--all", daemon=daemon).returncode == 0
    assert cove("ps", "-q", daemon=daemon).stdout == b""


def wait_failed(daemon, sandbox_id):
    for _ in range(100):
        if daemon.get("/v1/sandboxes/" + sandbox_id).json()["status"]["state"] == "Failed":
            return
        time.sleep(0.1)
    raise AssertionError("still running")


def test_a_paused_sandbox_does_not_hang_the_caller(daemon, box):
    assert daemon.request("POST", f"/v1/sandboxes/{box}/pause").status == 202
    for args in (("exec", box, "--", "true"), ("cp", f"{box}:/etc/passwd", "-")):
        r = cove(*args, daemon=daemon, timeout=10)
        assert r.returncode != 0 and "is paused" in r.stderr.decode(), r


@pytest.mark.parametrize("args,text", [
    (("run", "--", "true"), "name an image"),
    (("run", "--image", IMAGE, "--network", "none", "--", "true"), "--network is not for this daemon"),
    (("run", "--image", IMAGE, "--pids", "9", "--", "true"), "--pids is not for this daemon"),
    (("run", "--image", IMAGE, "--disk", "1g", "--", "true"), "--disk is not for this daemon"),
    (("create",), "name an image"),
    (("image", "ls"), "docker images"),
    (("image", "import", "/dev/null", "x"), "docker load"),
    (("image", "rm", "x"), "docker rmi"),
])
def test_what_this_driver_has_not_says_what_to_do(daemon, args, text):
    r = cove(*args, daemon=daemon)
    assert r.returncode != 0 and text in r.stderr.decode(), r


def test_doctor_names_the_driver(daemon):
    checks = {c["name"]: c for c in json.loads(cove("doctor", "--json", daemon=daemon).stdout)["checks"]}
    assert "docker" in checks["daemon"]["detail"], checks["daemon"]
