"""Configuration files of the official server (which writes them itself here) work in coved as they are."""
import os
import subprocess

import pytest

import covekit
import dockerkit
import peerkit

COVED = str(covekit.BIN / "coved")


@pytest.fixture(scope="module")
def peer():
    peerkit.install()
    return str(peerkit.VENV / "bin/opensandbox-server")


def example(peer, path, name):
    subprocess.run([peer, "init-config", str(path), "--example", name, "--force"], check=True, capture_output=True, timeout=120)
    return path


@pytest.mark.parametrize("name", ["docker", "docker-zh"])
def test_the_examples_are_good(peer, tmp_path, name):
    f = example(peer, tmp_path / "sandbox.toml", name)
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENSANDBOX_")}
    r = subprocess.run([COVED, "--check-config", "--config", str(f)], capture_output=True, text=True, env=env)
    assert r.returncode == 0, r
    warnings = [w for w in r.stdout.splitlines() if w.startswith("warning")]
    assert warnings == ["warning: no API key: the daemon will not start without OPENSANDBOX_INSECURE_SERVER=YES (set server.api_key)"], r


@pytest.mark.parametrize("name", ["k8s", "k8s-zh"])
def test_a_cluster_is_refused_with_the_line(peer, tmp_path, name):
    f = example(peer, tmp_path / "sandbox.toml", name)
    r = subprocess.run([COVED, "--check-config", "--config", str(f)], capture_output=True, text=True)
    assert r.returncode == 1 and "runtime.type: expected \"native\" or \"docker\"" in r.stderr, r


def test_the_example_serves_sandboxes(peer, docker, tmp_path):
    """Nothing of the file is changed but the port; the images it names are ours under their names."""
    docker.engine.tag(docker.image("execd"), "opensandbox/execd", "v1.1.0")
    docker.image("busybox")

    class AsItIs(dockerkit.DockerDaemon):
        def write_config(self):
            text = example(peer, self.dir / "example.toml", "docker").read_text()
            assert text.count("port = 8080\n") == 1
            self.config.write_text(text.replace("port = 8080\n", f'port = {self.port}\nsocket = "{self.socket}"\n'
                                                f'state_dir = "{self.dir}/state"\nrun_dir = "{self.dir}/run"\n'))

    with AsItIs(docker, env={"OPENSANDBOX_SERVER_API_KEY": covekit.API_KEY}) as d:
        s = d.create()
        assert d.get("/v1/sandboxes/" + s["id"]).json()["status"]["state"] == "Running"
        d.delete(s["id"])
        metrics = d.get("/metrics").body.decode()
        assert 'cove_engine_calls_total{call="containers create"} ' in metrics
        assert 'cove_sandbox_create_seconds_count{driver="docker",success="true"} 1\n' in metrics
