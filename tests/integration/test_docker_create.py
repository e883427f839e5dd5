"""Creates on the Docker driver, as lifecycle.md §4 has them: what is refused and in which order, what the container looks like.

Everything goes through the HTTP API of a real daemon on a real engine; the containers are looked at through the engine. Where
dockerd cannot be made to behave as needed (foreign platforms, failing copies) a scripted engine stands in front of it.
COVE_TEST_SERVER=peer runs the file against the official server.
"""
import contextlib
import http.client
import json
import re
import shutil
import threading
import time

import pytest

import dockerkit
from scripted_engine import ScriptedEngine

DROPPED = {"AUDIT_WRITE", "MKNOD", "NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_MODULE", "SYS_PTRACE", "SYS_TIME", "SYS_TTY_CONFIG"}
ours = pytest.mark.skipif(dockerkit.IS_PEER, reason="cannot: a rule of ours that the official server does not have")


@pytest.fixture(scope="module")
def server(docker):
    docker.image("busybox"), docker.image("egress")
    with dockerkit.serve(docker, {"server": {"max_sandbox_timeout_seconds": 3600}}) as s:
        yield s


@pytest.fixture
def made(server):
    with dockerkit.nothing_left(server) as ids:
        def make(**fields):
            s = server.create(**fields)
            ids.append(s["id"])
            return s, server.engine.sandbox(s["id"])
        yield make


@pytest.fixture(scope="module")
def scripted(docker):
    docker.image("busybox"), docker.image("egress")
    with ScriptedEngine(docker) as e:
        with dockerkit.serve(e) as s:
            yield s


def env_of(box):
    return [e for e in box["Config"]["Env"] if not e.startswith("PATH=")]


# ---- what a plain create makes ----

def test_full_create_answers_running_with_the_echoes(server, made):
    s, box = made(metadata={"team": "a", "empty": ""}, timeout=120)
    assert s["status"]["state"] == "Running" and s["status"]["reason"] == "CONTAINER_RUNNING"
    assert s["status"]["lastTransitionAt"] == s["createdAt"]
    assert s["metadata"] == {"team": "a", "empty": ""} and s["entrypoint"] == ["tail", "-f", "/dev/null"]
    assert "expiresAt" in s and "platform" not in s and "image" not in s
    assert box["Name"] == "/sandbox-" + s["id"] and box["State"]["Running"]
    labels = box["Config"]["Labels"]
    assert labels["opensandbox.io/id"] == s["id"] and labels["team"] == "a" and labels["empty"] == ""
    assert labels["opensandbox.io/expires-at"].endswith("+00:00") and "opensandbox.io/manual-cleanup" not in labels
    assert box["Config"]["Cmd"] == ["tail", "-f", "/dev/null"]
    assert box["Config"]["Entrypoint"] == ["/opt/opensandbox/bootstrap.sh"]
    host = box["HostConfig"]
    assert not host["Privileged"] and box["Config"]["User"] == "" and host["RestartPolicy"]["Name"] in ("", "no")
    assert server.run(s["id"], "echo hello; exit 3") == ("hello\n", "", 3)
    got = server.get("/v1/sandboxes/" + s["id"]).json()
    assert got["image"]["uri"].removesuffix(":latest") == "cove-test/busybox" and got["expiresAt"] == s["expiresAt"]


def test_manual_cleanup_has_no_expiration(made):
    s, box = made(timeout=None, metadata={"k": "v"})
    assert "expiresAt" not in s and s["metadata"] == {"k": "v"} and s["entrypoint"] == ["tail", "-f", "/dev/null"]
    labels = box["Config"]["Labels"]
    assert labels["opensandbox.io/manual-cleanup"] == "true" and "opensandbox.io/expires-at" not in labels
    assert labels["opensandbox.io/id"] == s["id"]


def test_answers_have_no_nulls(server, made):
    s, _ = made()
    for j in (s, server.get("/v1/sandboxes/" + s["id"]).json(), server.get("/v1/sandboxes").json()):
        assert ": null" not in json.dumps(j)


def test_security_defaults_reach_the_container(made):
    _, box = made()
    host = box["HostConfig"]
    assert any(o.replace("=", ":") == "no-new-privileges:true" for o in host["SecurityOpt"])
    assert {c.removeprefix("CAP_") for c in host["CapDrop"]} == DROPPED and not host["CapAdd"]
    assert host["PidsLimit"] == 4096


def test_configured_hardening_reaches_the_container(docker):
    with dockerkit.serve(docker, {"docker": {"drop_capabilities": [], "no_new_privileges": False, "pids_limit": 77,
                                             "seccomp_profile": "unconfined", "sandbox_env": {"A": "server", "B": "server"},
                                             "sandbox_binds": ["/usr/share/zoneinfo:/zones:ro"]}}) as s:
        i = s.create(env={"B": "request", "C": "3"})["id"]
        box = docker.engine.sandbox(i)
        host = box["HostConfig"]
        assert not host["CapDrop"] and host["PidsLimit"] == 77
        assert host["SecurityOpt"] == ["seccomp=unconfined"]
        assert [e for e in env_of(box) if e[0] in "ABC"] == ["A=server", "B=request", "C=3"]
        assert host["Binds"] == ["/usr/share/zoneinfo:/zones:ro"]


@pytest.mark.parametrize("memory,want", [("512Mi", 536870912), ("1G", 10**9), ("2gi", 2**31), ("800000 KB", None), ("64000000", 64000000)])
def test_memory_units(server, made, memory, want):
    if want is None:
        server.refused(400, "SANDBOX::INVALID_PARAMETER", "resourceLimits.memory", resourceLimits={"memory": memory})
    else:
        assert made(resourceLimits={"memory": memory})[1]["HostConfig"]["Memory"] == want


@pytest.mark.parametrize("cpu,want", [("500m", 5 * 10**8), ("2", 2 * 10**9), ("0.25", 25 * 10**7), ("1.0005", 1000500000)])
def test_cpu_forms(made, cpu, want):
    assert made(resourceLimits={"cpu": cpu})[1]["HostConfig"]["NanoCpus"] == want


@pytest.mark.parametrize("key,value", [("memory", "lots"), ("memory", "1.5Gi"), ("memory", "1kib"), ("memory", ""), ("memory", "0"), ("cpu", "many"),
                                       ("cpu", "0"), ("cpu", "-1"), ("cpu", "nan"), ("cpu", "inf"), ("gpu", "none"), ("gpu", "0"), ("gpu", "-2")])
def test_limits_that_are_no_amount_are_refused_with_their_name(server, key, value):
    server.refused(400, "SANDBOX::INVALID_PARAMETER", f"resourceLimits.{key}", resourceLimits={key: value})


def test_limits_are_checked_memory_then_cpu_then_gpu(server):
    server.refused(400, text="resourceLimits.memory", resourceLimits={"gpu": "x", "cpu": "x", "memory": "x"})
    server.refused(400, text="resourceLimits.cpu", resourceLimits={"gpu": "x", "cpu": "x", "memory": "1Gi"})


def test_no_limits_and_unknown_ones_are_fine(made):
    _, box = made(resourceLimits={"disk": "1Gi", "ephemeral-storage": "2Gi"})
    assert box["HostConfig"]["Memory"] == 0 and box["HostConfig"]["NanoCpus"] == 0


@pytest.mark.parametrize("gpu,count", [("2", 2), ("all", -1), ("ALL", -1)])
def test_gpu_becomes_one_device_request(scripted, engine, gpu, count):
    engine.on("POST", "/containers/create", status=500, message="no such device driver")
    r = scripted.refused(500, "DOCKER::SANDBOX_START_FAILED", "no such device driver", resourceLimits={"gpu": gpu})
    asked = [x.json()["HostConfig"] for x in engine.seen("POST", "/containers/create") if "sandbox-execd" not in x.target]
    assert len(asked) == 1, r
    [d] = asked[0]["DeviceRequests"]
    assert d["Count"] == count and d["Capabilities"] == [["gpu"]]


def test_without_gpu_there_is_no_device_request(scripted, engine):
    i = scripted.create()["id"]
    [r] = [x for x in engine.seen("POST", "/containers/create") if i in x.target]
    assert not r.json()["HostConfig"].get("DeviceRequests")
    assert "Binds" not in r.json()["HostConfig"] or not r.json()["HostConfig"]["Binds"]
    scripted.delete(i)


def test_environment_in_order_with_empty_and_null(made):
    s, box = made(env={"Z": "1", "EMPTY": "", "NULL": None, "A": "2 3", "OPENSANDBOX_ID": "mine"})
    e = env_of(box)
    assert [x for x in e if x.split("=")[0] in ("Z", "EMPTY", "NULL", "A")] == ["Z=1", "EMPTY=", "A=2 3"]
    # the engine keeps the last of equal names
    assert [x for x in e if x.startswith("OPENSANDBOX_ID=")][-1] == "OPENSANDBOX_ID=" + s["id"]


def test_guard_variables_without_a_policy_do_not_reach_the_sandbox(server, made):
    _, box = made(env={"OPENSANDBOX_EGRESS_LOG_LEVEL": "debug", "A": "1"})
    assert not [e for e in env_of(box) if e.startswith("OPENSANDBOX_EGRESS_")]
    r = server.refused(400, "SANDBOX::INVALID_PARAMETER", env={"OPENSANDBOX_EGRESS_TOKEN": "mine"})
    assert "OPENSANDBOX_EGRESS_LOG_LEVEL" in r.json()["message"] and "OPENSANDBOX_EGRESS_POLICY_FILE" in r.json()["message"]


@ours
def test_interception_switch_without_a_policy_is_dropped(made):
    _, box = made(env={"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "true"})
    assert not [e for e in env_of(box) if "MITMPROXY" in e]


def test_agent_as_init(docker):
    with dockerkit.serve(docker, {"runtime": {"execd_run_as_init": True}}) as s:
        i = s.create()["id"]
        assert "EXECD_INIT=1" in env_of(docker.engine.sandbox(i))
        assert s.run(i, "cat /proc/1/cmdline | tr '\\0' ' '")[0].split()[0] == "/opt/opensandbox/execd"


def test_an_entrypoint_of_one_text_is_split_by_shell_rules(made):
    s, box = made(entrypoint=["tail -f '/dev/null'"])
    assert box["Config"]["Cmd"] == ["tail", "-f", "/dev/null"]
    s, box = made(entrypoint=["sh", "-c", "echo 'a b'; sleep 100"])
    assert box["Config"]["Cmd"] == ["sh", "-c", "echo 'a b'; sleep 100"]


def test_ports_are_published_and_labelled(server, made):
    s, box = made()
    labels = box["Config"]["Labels"]
    agent, http = int(labels["opensandbox.io/embedding-proxy-port"]), int(labels["opensandbox.io/http-port"])
    assert 40000 <= agent <= 60000 and 40000 <= http <= 60000 and agent != http
    assert box["HostConfig"]["PortBindings"] == {"44772/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(agent)}],
                                                 "8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(http)}]}


def test_port_range_is_kept_and_creates_at_once_never_share_a_port(docker):
    with dockerkit.serve(docker, {"docker": {"port_range_min": 21000, "port_range_max": 21100}}) as s:
        got, threads = [], [threading.Thread(target=lambda: got.append(s.create()["id"])) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        labels = [docker.engine.sandbox(i)["Config"]["Labels"] for i in got]
        ports = [int(l[k]) for l in labels for k in ("opensandbox.io/embedding-proxy-port", "opensandbox.io/http-port")]
        assert len(got) == 8 and len(set(ports)) == 16 and all(21000 <= p <= 21100 for p in ports)


@pytest.mark.parametrize("text", ["driver failed: Bind for 127.0.0.1:1 failed: port is already allocated", "listen tcp 127.0.0.1:1: bind: address already in use"])
def test_a_port_that_was_taken_meanwhile_is_replaced(scripted, engine, text):
    engine.on("POST", "/containers/[^/]*/start", status=500, message=text, times=2, match=lambda r: not helper(engine, r))
    i = scripted.create()["id"]
    tried = [x.json()["Labels"]["opensandbox.io/embedding-proxy-port"] for x in engine.seen("POST", "/containers/create") if i in x.target]
    assert len(tried) in (1, 3) and len(engine.seen("POST", "/containers/[^/]*/start")) >= 3
    box = engine.engine.sandbox(i)
    assert box["HostConfig"]["PortBindings"]["44772/tcp"][0]["HostPort"] == box["Config"]["Labels"]["opensandbox.io/embedding-proxy-port"]
    scripted.delete(i)


def helper(engine, r):
    """Is this request about the temporary container that the agent is read from?"""
    c = r.path.split("/")[2]
    return "sandbox-execd" in c or engine.engine.exists(c) and engine.engine.inspect(c)["Name"].startswith("/sandbox-execd")


def test_three_taken_ports_end_the_create(scripted, engine):
    census = dockerkit.Census(engine)
    engine.on("POST", "/containers/[^/]*/start", status=500, message="port is already allocated", match=lambda r: not helper(engine, r))
    scripted.refused(500, "DOCKER::SANDBOX_START_FAILED", "port is already allocated")
    assert len([r for r in engine.seen("POST", "/containers/[^/]*/start")]) == 3
    census.check()


# ---- refusals, in the order of the contract ----

def test_metadata_labels_are_checked(server):
    server.refused(400, "SANDBOX::INVALID_METADATA_LABEL", metadata={"bad key": "x"})
    server.refused(400, "SANDBOX::INVALID_METADATA_LABEL", metadata={"k": "-bad-"})
    server.refused(400, "SANDBOX::INVALID_METADATA_LABEL", metadata={"opensandbox.io/id": "x"})
    server.refused(400, "SANDBOX::INVALID_METADATA_LABEL", metadata={"k" * 64: "x"})


def test_pools_are_refused(server):
    server.refused(400, "SANDBOX::UNSUPPORTED_POOL_REF", extensions={"poolRef": "p"})


def test_timeout_above_the_configured_maximum(server):
    server.refused(400, "SANDBOX::INVALID_PARAMETER", "configured maximum of 3600s", timeout=7200)
    server.refused(422, timeout=59)


def test_timeout_that_is_no_date(docker):
    with dockerkit.serve(docker) as s:
        s.refused(400, "SANDBOX::INVALID_PARAMETER", "too large", timeout=10**15)


@pytest.mark.parametrize("platform", [{"os": "darwin", "arch": "amd64"}, {"os": "linux", "arch": "riscv64"}])
def test_unknown_platforms_are_refused(server, platform):
    server.refused(400, "SANDBOX::INVALID_PARAMETER", platform=platform)


def test_secure_access_is_refused(server):
    server.refused(400, "SANDBOX::INVALID_PARAMETER", "secureAccess is not supported when runtime.type='docker'", secureAccess=True)


@pytest.mark.parametrize("lifecycle", [{}, {"preStart": {"command": ["true"]}}])
def test_lifecycle_hooks_are_refused(server, lifecycle):
    server.refused(400, "SANDBOX::INVALID_PARAMETER", "lifecycle hooks are not supported by the Docker provider.", lifecycle=lifecycle)


def test_an_entrypoint_is_needed(server):
    server.refused(422, entrypoint=[])
    server.refused(422, entrypoint=...)


def test_templates_are_refused(server):
    r = server.request("POST", "/v1/sandboxes", {"templateId": "tpl-1", "timeout": 60})
    if dockerkit.IS_PEER:
        assert r.status == 400 and r.json()["code"] == "DOCKER::INVALID_ENTRYPOINT"
    else:
        assert r.status == 501 and r.json()["code"] == "FSB::API_NOT_SUPPORTED", r
    r = server.request("POST", "/v1/sandboxes", {"templateId": "tpl-1", "timeout": 60, "env": {}, "image": {"uri": "x"}})
    assert r.status == 422 and "env, image" in json.dumps(r.json())


@pytest.mark.parametrize("value", ["299", "86401", "x", "", " "])
def test_renew_extension_values(server, value):
    server.refused(400, "SANDBOX::INVALID_PARAMETER", extensions={"access.renew.extend.seconds": value})


def test_unknown_snapshots(server):
    r = server.request("POST", "/v1/sandboxes", {"snapshotId": "11111111-1111-4111-8111-111111111111", "resourceLimits": {}, "timeout": 60})
    assert r.status == 404 and r.json()["code"] == "SNAPSHOT::NOT_FOUND"


def test_which_refusal_wins(server):
    """Everything is wrong at once; what is complained about is repaired, step by step."""
    wrong = {"extensions": {"access.renew.extend.seconds": "1"}, "lifecycle": {}, "metadata": {"a b": "c"},
             "platform": {"os": "darwin", "arch": "x"}, "timeout": 7200, "secureAccess": True, "resourceLimits": {"cpu": "x"},
             "env": {"OPENSANDBOX_EGRESS_X": "1"}, "volumes": [{"name": "v", "host": {"path": "/etc"}, "mountPath": "/x"}]}
    steps = [("access.renew", {"extensions": ...}), ("lifecycle", {"lifecycle": ..., "extensions": {"poolRef": "p"}}), ("ool", {"extensions": ...}),
             ("a b", {"metadata": ...}), ("darwin", {"platform": ...}), ("3600s", {"timeout": 600}), ("secureAccess", {"secureAccess": ...}),
             ("resourceLimits.cpu", {"resourceLimits": {}}), ("OPENSANDBOX_EGRESS_X", {"env": ...})]
    for text, repair in steps:
        assert text in server.refused(400, **wrong).json()["message"]
        wrong.update(repair)
    assert server.refused(400, **wrong).json()["code"].startswith("VOLUME::")


# ---- extensions, platform ----

def test_extensions_are_labelled_and_echoed(server, made):
    s, box = made(extensions={"opensandbox.extensions.team": "blue", "access.renew.extend.seconds": " 600 ", "other": "x"})
    assert s["extensions"] == {"opensandbox.extensions.team": "blue"}
    labels = box["Config"]["Labels"]
    assert labels["opensandbox.io/extensions.team"] == "blue"
    assert labels["opensandbox.io/access-renew-extend-seconds"] == "600"
    assert not [k for k in labels if k.startswith("opensandbox.io/extensions.") and "renew" in k]
    got = server.get("/v1/sandboxes/" + s["id"]).json()
    assert got["extensions"] == s["extensions"] and "metadata" not in got


def test_platform_is_normalised_kept_and_echoed(server, made):
    s, box = made(platform={"os": " Linux ", "arch": "AMD64"})
    assert s["platform"] == {"os": "linux", "arch": "amd64"}
    assert box["Config"]["Labels"]["opensandbox.io/platform-os"] == "linux" and box["Config"]["Labels"]["opensandbox.io/platform-arch"] == "amd64"
    assert server.get("/v1/sandboxes/" + s["id"]).json()["platform"] == {"os": "linux", "arch": "amd64"}


def test_platform_reaches_the_engine(scripted, engine):
    i = scripted.create(platform={"os": "linux", "arch": "amd64"})["id"]
    [r] = [x for x in engine.seen("POST", "/containers/create") if "sandbox-" + i in x.target]
    assert r.query["platform"] == "linux/amd64"
    j = scripted.create()["id"]
    [r] = [x for x in engine.seen("POST", "/containers/create") if "sandbox-" + j in x.target]
    assert "platform" not in r.query
    assert "platform" not in scripted.get("/v1/sandboxes/" + j).json()
    scripted.delete(i), scripted.delete(j)


# ---- images ----

def arm64(j):
    return {**j, "Architecture": "arm64"}


def without_platform(target):
    return target.replace("&platform=linux%2Farm64", "").replace("&platform=linux/arm64", "").replace("platform=linux%2Farm64&", "").replace("platform=linux/arm64&", "")


def test_another_platform_than_the_cached_one_is_pulled(scripted, engine):
    pulled = engine.on("POST", "/images/create", status=500, message="scripted")
    scripted.refused(500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED", "scripted", platform={"os": "linux", "arch": "arm64"})
    [r] = engine.seen("POST", "/images/create")
    assert r.query["platform"] == "linux/arm64" and r.query["fromImage"].endswith("cove-test/busybox") and r.query["tag"] == "latest"
    assert pulled.used == 1


def test_a_cached_image_of_another_machine_is_pulled_again(scripted, engine):
    engine.on("GET", "/images/cove-test/busybox(:latest)?/json", edit=arm64)
    engine.on("POST", "/images/create", status=500, message="scripted")
    scripted.refused(500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED")
    [r] = engine.seen("POST", "/images/create")
    assert r.query["platform"] == "linux/amd64"


def test_a_cached_image_of_this_machine_is_not_pulled(scripted, engine):
    engine.on("GET", "/images/cove-test/busybox(:latest)?/json", edit=lambda j: {**j, "Architecture": "x86_64"})
    scripted.delete(scripted.create()["id"])
    scripted.delete(scripted.create(platform={"os": "linux", "arch": "amd64"})["id"])
    assert not engine.seen("POST", "/images/create")


def test_image_that_cannot_be_looked_up(scripted, engine):
    engine.on("GET", "/images/cove-test/busybox(:latest)?/json", status=500, message="store broken")
    scripted.refused(500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED", "store broken")
    assert not engine.seen("POST", "/images/create")


def test_missing_image_is_pulled_from_a_registry(docker, server):
    ref = docker.registry().push(docker, "busybox", "pulled")
    i = server.create(ref)["id"]
    assert server.get("/v1/sandboxes/" + i).json()["image"]["uri"].removesuffix(":latest") == ref
    server.delete(i)
    server.refused(500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED", image=ref + "-missing")
    docker.engine.remove_image(ref)


def test_registry_credentials(docker, server):
    ref = docker.registry(auth=True).push(docker, "busybox", "private")
    server.refused(500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED", image=ref)
    wrong = {"username": dockerkit.REGISTRY_USER, "password": "wrong-secret-1"}
    r = server.request("POST", "/v1/sandboxes", {"image": {"uri": ref, "auth": wrong}, "entrypoint": ["x"], "resourceLimits": {}, "timeout": 60})
    assert r.status == 500 and b"wrong-secret-1" not in r.body
    right = {"username": dockerkit.REGISTRY_USER, "password": dockerkit.REGISTRY_PASSWORD}
    r = server.request("POST", "/v1/sandboxes", {"image": {"uri": ref, "auth": right}, "entrypoint": ["tail", "-f", "/dev/null"], "resourceLimits": {}, "timeout": 60})
    assert r.status == 202, r
    i = r.json()["id"]
    assert dockerkit.REGISTRY_PASSWORD not in json.dumps(server.get("/v1/sandboxes/" + i).json())
    assert dockerkit.REGISTRY_PASSWORD not in server.log.read_text()
    assert dockerkit.REGISTRY_PASSWORD not in json.dumps(docker.engine.sandbox(i))
    server.delete(i)
    docker.engine.remove_image(ref)


def test_registry_down(docker, server):
    r = docker.registry()
    ref = r.push(docker, "busybox", "down")
    r.stop()
    server.refused(500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED", image=ref)
    r.start()
    server.delete(server.create(ref)["id"])
    docker.engine.remove_image(ref)


@ours
def test_creates_at_once_of_a_missing_image_share_one_pull(docker, scripted, engine):
    ref = docker.registry().push(docker, "busybox", "shared")
    engine.on("POST", "/images/create", delay=0.5)
    got, threads = [], [threading.Thread(target=lambda: got.append(scripted.create(ref)["id"])) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(got) == 4 and len(engine.seen("POST", "/images/create")) == 1
    for i in got:
        scripted.delete(i)
    docker.engine.remove_image(ref)


@ours
def test_labels_of_an_image_are_not_believed(docker, server, made):
    bad = {"opensandbox.io/expires-at": "2001-01-01T00:00:00+00:00", "opensandbox.io/egress-auth-token": "x", "opensandbox.io/volume-managed-by": '["precious"]',
           "opensandbox.io/egress-sidecar-for": "x", "opensandbox.io/snapshot-id": "x", "team": "image"}
    path, _ = dockerkit.busybox_image()
    docker.engine.import_tar(path, "cove-test/hostile", changes=[f"LABEL {k}={json.dumps(v)}" for k, v in bad.items()])
    docker.engine.call("POST", "/volumes/create", {"Name": "precious", "Labels": {"opensandbox.io/volume-managed-by": "server"}})
    s, box = made(image="cove-test/hostile", timeout=None, metadata={"mine": "1"})
    got = server.get("/v1/sandboxes/" + s["id"]).json()
    assert "expiresAt" not in got and "snapshotId" not in got and got["metadata"] == {"mine": "1"}
    labels = box["Config"]["Labels"]
    assert not [k for k in bad if k.startswith("opensandbox.io/") and labels.get(k)]
    assert "headers" not in server.get(f"/v1/sandboxes/{s['id']}/endpoints/18080").json()
    server.delete(s["id"])
    assert "precious" in docker.engine.volumes()
    docker.engine.call("DELETE", "/volumes/precious")


# ---- the agent's files ----

def test_agent_comes_from_the_configured_image_once_per_platform(docker):
    docker.image("busybox")
    with ScriptedEngine(docker) as e, dockerkit.serve(e) as s:
        fetched = lambda: [x for x in e.seen("POST", "/containers/create") if re.search("sandbox-execd-(?!probe)", x.target)]  # noqa: E731
        a, b = s.create()["id"], s.create()["id"]
        assert len(fetched()) == 1
        helper_box = fetched()[0].json()
        assert helper_box["Image"].removesuffix(":latest") == "cove-test/execd"
        # an image of another architecture gets that architecture's agent, without a request for a platform
        e.on("GET", "/images/.*/json", edit=arm64)
        e.on("POST", "/images/create", status=200, body=b'{"status":"done"}\n')
        e.on("GET", "/info", edit=lambda j: {**j, "Architecture": "aarch64"})
        e.on("POST", "/containers/create", target=without_platform, match=lambda r: "arm64" in r.target)
        c, d = s.create()["id"], s.create()["id"]
        assert len(fetched()) == 2, fetched()
        assert fetched()[1].query.get("platform") == "linux/arm64"
        assert "platform" not in [x for x in e.seen("POST", "/containers/create") if c in x.target][0].query
        e.clear()
        f = s.create()["id"]
        assert not fetched()
        assert not [x for x in docker.census()["containers"] if "execd" in x]
        for i in (a, b, c, d, f):
            s.delete(i)


def test_failing_copy_removes_the_container(docker):
    with ScriptedEngine(docker) as e:
        # an engine that does not see our files gets them copied
        e.on("GET", "/containers/[^/]*/archive", status=404, message="not seen", match=lambda r: "cove-probe" in r.target)
        e.on("PUT", "/containers/[^/]*/archive", status=500, message="copy broke")
        with dockerkit.serve(e) as s:
            census = dockerkit.Census(e)
            s.refused(500, "DOCKER::SANDBOX_EXECD_DISTRIBUTION_FAILED", "copy broke")
            census.check()


def test_failing_start_tells_the_engines_words(scripted, engine):
    census = dockerkit.Census(engine)
    engine.on("POST", "/containers/[^/]*/start", status=500, message="OCI runtime broke 4711", match=lambda r: not helper(engine, r))
    scripted.refused(500, "DOCKER::SANDBOX_START_FAILED", "OCI runtime broke 4711")
    census.check()


def test_failing_create_tells_the_engines_words(scripted, engine):
    engine.on("POST", "/containers/create", status=500, message="no space left on device", match=lambda r: "execd" not in r.target)
    scripted.refused(500, "DOCKER::SANDBOX_START_FAILED", "no space left on device")


def test_engine_without_platforms(docker):
    with ScriptedEngine(docker) as e:
        e.api_version = "1.40"
        with dockerkit.serve(e, {"docker": {}}) as s:
            if dockerkit.IS_PEER:
                pytest.skip("cannot: its client library always sends the argument")
            s.refused(400, "SANDBOX::INVALID_PARAMETER", "platform-aware", platform={"os": "linux", "arch": "amd64"})


def test_execd_image_missing(docker):
    with dockerkit.serve(docker, {"runtime": {"execd_image": "127.0.0.1:1/no-such/execd"}}) as s:
        s.refused(500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED")


def test_execd_image_without_the_files(docker):
    docker.image("busybox")
    with dockerkit.serve(docker, {"runtime": {"execd_image": "cove-test/busybox"}}) as s:
        s.refused(500, "DOCKER::SANDBOX_EXECD_DISTRIBUTION_FAILED")


@ours
def test_our_own_agent_in_every_kind_of_image(docker):
    images = [docker.image(k) for k in ("busybox", "scratch", "debian")]
    with dockerkit.DockerDaemon(docker) as s:
        for image in images:
            i = s.create(image, entrypoint=["/app"] if "scratch" in image else ["sleep", "1000"])["id"]
            if "scratch" in image:
                r = s.agent(i, "GET", "/ping")
                assert r.status == 200, r
            else:
                assert s.run(i, "echo in $OPENSANDBOX_ID")[0] == f"in {i}\n"
            s.delete(i)


# ---- networks ----

def test_networks_of_the_user(docker):
    docker.engine.call("POST", "/networks/create", {"Name": "Team-Net"})
    try:
        if not dockerkit.IS_PEER:  # it lower-cases names
            with dockerkit.serve(docker, {"docker": {"network_mode": "Team-Net"}}) as s:
                i = s.create()["id"]
                box = docker.engine.sandbox(i)
                assert box["HostConfig"]["NetworkMode"] == "Team-Net" and list(box["NetworkSettings"]["Networks"]) == ["Team-Net"]
                assert s.run(i, "echo ok")[0] == "ok\n"
                s.refused(400, "SANDBOX::INVALID_PARAMETER", "Team-Net", networkPolicy={})
    finally:
        docker.engine.raw("DELETE", "/networks/Team-Net")


def test_missing_network(docker):
    with dockerkit.serve(docker, {"docker": {"network_mode": "no-such-net"}}) as s:
        r = s.refused(400, "SANDBOX::INVALID_PARAMETER", "no-such-net")
        assert "docker network create" in r.json()["message"]


def test_network_look_up_fails(docker):
    with ScriptedEngine(docker) as e, dockerkit.serve(e, {"docker": {"network_mode": "some-net"}}) as s:
        e.on("GET", "/networks.*", status=500, message="network store broke")
        s.refused(500, "DOCKER::SANDBOX_START_FAILED")


def test_built_in_networks_are_not_looked_up(scripted, engine):
    scripted.delete(scripted.create()["id"])
    assert not engine.seen("GET", "/networks.*")


@ours
def test_no_network_and_no_ports(docker):
    with ScriptedEngine(docker) as e, dockerkit.serve(e, {"docker": {"network_mode": "none"}}) as s:
        r = s.request("POST", "/v1/sandboxes", {"image": {"uri": "cove-test/busybox"}, "entrypoint": ["tail", "-f", "/dev/null"], "resourceLimits": {}, "timeout": 60})
        made = [x.json() for x in e.seen("POST", "/containers/create") if "execd" not in x.target]
        assert made and not made[0]["HostConfig"].get("PortBindings"), r
        assert not e.seen("GET", "/networks.*")
        r = s.get(f"/v1/sandboxes/{r.json()['id']}/endpoints/44772")
        assert r.status == 500 and r.json()["code"] == "DOCKER::NETWORK_MODE_ENDPOINT_UNAVAILABLE", r
        assert 'docker.network_mode "none"' in r.json()["message"], r


def test_host_network_has_no_ports(docker):
    with ScriptedEngine(docker) as e, dockerkit.serve(e, {"docker": {"network_mode": "host"}}) as s:
        e.on("POST", "/containers/[^/]*/start", status=500, message="stop here", match=lambda r: not helper(e, r))
        s.refused(500, "DOCKER::SANDBOX_START_FAILED", "stop here")
        [c] = [x.json() for x in e.seen("POST", "/containers/create") if "execd" not in x.target]
        assert c["HostConfig"]["NetworkMode"] == "host" and not c["HostConfig"].get("PortBindings")
        assert "opensandbox.io/embedding-proxy-port" not in c["Labels"]
        assert not e.seen("GET", "/networks.*")


def test_secure_runtime(docker):
    with ScriptedEngine(docker) as e:
        e.on("GET", "/info", edit=lambda j: {**j, "Runtimes": {**j["Runtimes"], "runsc": {"path": "runsc"}}})
        with dockerkit.serve(e, {"secure_runtime": {"type": "gvisor", "docker_runtime": "runsc"}}) as s:
            e.on("POST", "/containers/create", status=500, message="stop here", match=lambda r: "execd" not in r.target)
            s.refused(500, text="stop here")
            [c] = [x.json() for x in e.seen("POST", "/containers/create") if "execd" not in x.target]
            assert c["HostConfig"]["Runtime"] == "runsc"
            s.refused(400, "SANDBOX::INVALID_PARAMETER", networkPolicy={})


def test_secure_runtime_that_the_engine_lacks(docker):
    s = dockerkit.serve(docker, {"secure_runtime": {"type": "gvisor", "docker_runtime": "runsc-x"}})
    try:
        with pytest.raises(AssertionError) as e:
            s.start(timeout=20)
        assert "runsc-x" in str(e.value) and "runc" in str(e.value)
    finally:
        s.stop()
        shutil.rmtree(s.dir)


# ---- isolation switch ----

def test_isolation_is_the_operators_choice(server, made):
    if dockerkit.IS_PEER:
        _, box = made(extensions={"bootstrap.execd.isolation": "enable"})
        assert box["HostConfig"]["CapAdd"] == ["SYS_ADMIN"]
    else:
        server.refused(400, "SANDBOX::INVALID_PARAMETER", extensions={"bootstrap.execd.isolation": "enable"})
    made(extensions={"bootstrap.execd.isolation": "other"})


# ---- ends ----

@ours
def test_a_client_that_goes_away_leaves_nothing_half_made(scripted, engine):
    census = dockerkit.Census(engine)
    gate = threading.Event()
    engine.on("POST", "/containers/[^/]*/start", gate=gate, match=lambda r: not helper(engine, r))
    c = scripted.connection()
    body = json.dumps({"image": {"uri": "cove-test/busybox"}, "entrypoint": ["tail", "-f", "/dev/null"], "resourceLimits": {}, "timeout": 60})
    c.request("POST", "/v1/sandboxes", body, {"OPEN-SANDBOX-API-KEY": dockerkit.covekit.API_KEY, "Content-Type": "application/json"})
    deadline = time.monotonic() + 20
    while not [x for x in engine.seen("POST", "/containers/[^/]*/start") if not helper(engine, x)] and time.monotonic() < deadline:
        time.sleep(0.05)
    c.close()
    gate.set()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        listed = {i["id"] for i in scripted.get("/v1/sandboxes?pageSize=200").json()["items"] if i["status"]["state"] == "Running"}
        there = {n.removeprefix("/sandbox-") for n in engine.census()["containers"] - census.before["containers"]}
        if listed == there:
            break
        time.sleep(0.1)
    assert listed == there
    for i in listed:
        scripted.delete(i)
    census.check()


@ours
def test_an_end_in_the_middle_of_a_pull_does_not_wait_for_it(docker):
    gate = threading.Event()
    with ScriptedEngine(docker) as e:
        s = dockerkit.serve(e, {"server": {"timeout_graceful_shutdown": 1}}).start()
        try:
            e.on("POST", "/images/create", gate=gate)

            def create():
                with contextlib.suppress(OSError, http.client.HTTPException):
                    s.request("POST", "/v1/sandboxes", {"image": {"uri": "cove-test/none-such"}, "entrypoint": ["true"], "resourceLimits": {}, "timeout": 60})
            t = threading.Thread(target=create)
            t.start()
            deadline = time.monotonic() + 20
            while not e.seen("POST", "/images/create") and time.monotonic() < deadline:
                time.sleep(0.05)
            begun = time.monotonic()
            assert s.stop(timeout=30) == 0 and time.monotonic() - begun < 20
            t.join(10)
        finally:
            gate.set()
            s.close()
