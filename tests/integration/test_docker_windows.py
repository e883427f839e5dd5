"""The Windows profile on the Docker driver (lifecycle.md §4.12): a Linux container that runs a guest. No guest is started here:
what is tested is what the container gets. COVE_TEST_SERVER=peer runs the file against the official server."""
import datetime
import os
import shutil
import time

import pytest

import dockerkit
from scripted_engine import ScriptedEngine

WINDOWS = {"os": "windows", "arch": "amd64"}
DEVICES = ["/dev/kvm", "/dev/net/tun"]
OEM = "opensandbox-win-oem-"
has_devices = pytest.mark.skipif(not all(os.path.exists(d) for d in DEVICES), reason="cannot: no /dev/kvm and /dev/net/tun here")
ours = pytest.mark.skipif(dockerkit.IS_PEER, reason="cannot: the official server leaves its volume behind there")
pytestmark = has_devices


@pytest.fixture(scope="module")
def guest(docker):
    """An image with an entrypoint of its own, as the images with QEMU have."""
    path, _ = dockerkit.busybox_image()
    docker.engine.import_tar(path, "cove-test/guest", changes=['ENTRYPOINT ["/bin/busybox"]', 'CMD ["tail", "-f", "/dev/null"]'])
    docker.image("egress")
    return "cove-test/guest"


@pytest.fixture(scope="module")
def scripted(docker, guest):
    with ScriptedEngine(docker) as e, dockerkit.serve(e) as s:
        yield s


@pytest.fixture
def made(scripted, engine, guest):
    with dockerkit.nothing_left(scripted) as ids:
        def make(**fields):
            s = scripted.create(guest, **{"platform": WINDOWS, "entrypoint": ["tail", "-f", "/dev/null"], "resourceLimits": {}, **fields})
            ids.append(s["id"])
            return s, engine.engine.sandbox(s["id"])
        yield make
        engine.clear()


def env(box):
    return dict(e.split("=", 1) for e in box["Config"]["Env"])


def test_the_image_keeps_its_entrypoint_and_gets_no_agent(made, engine):
    s, box = made(entrypoint=["tail", "-f", "/dev/null"])
    [r] = [x for x in engine.seen("POST", "/containers/create") if "sandbox-" + s["id"] in x.target]
    assert "platform" not in r.query and not r.json().get("Entrypoint")
    assert box["Config"]["Entrypoint"] == ["/bin/busybox"] and box["Config"]["Cmd"] == ["tail", "-f", "/dev/null"]
    put = [x for x in engine.seen("PUT", "/containers/[^/]+/archive")]
    assert {x.query["path"] for x in put} <= {"/", "/oem"}, "only the OEM files"
    got = engine.engine.raw("GET", f"/containers/{box['Id']}/archive?path=/opt/opensandbox")
    assert got.status == 404
    assert s["platform"] == WINDOWS


def test_a_command_is_not_split(scripted, engine, guest):
    engine.on("POST", "/containers/create", status=500, message="stop here", match=lambda r: "execd" not in r.target)
    scripted.refused(500, text="stop here", image=guest, platform=WINDOWS, entrypoint=["run me whole"], resourceLimits={})
    [r] = [x for x in engine.seen("POST", "/containers/create") if "execd" not in x.target]
    assert r.json()["Cmd"] == ["run me whole"]


def test_devices_capabilities_binds_and_ports(made):
    s, box = made()
    host = box["HostConfig"]
    assert sorted(d["PathOnHost"] for d in host["Devices"]) == DEVICES
    caps = lambda l: {c.removeprefix("CAP_") for c in l or []}  # noqa: E731
    assert caps(host["CapAdd"]) == {"NET_ADMIN", "NET_RAW"} and not caps(host["CapDrop"]) & {"NET_ADMIN", "NET_RAW"}
    assert "SYS_ADMIN" in caps(host["CapDrop"])
    assert host["Binds"] == [f"{OEM}{s['id']}:/oem:rw"]
    assert set(host["PortBindings"]) == {"44772/tcp", "8080/tcp", "3389/tcp", "3389/udp", "8006/tcp"}
    labels = box["Config"]["Labels"]
    assert labels["opensandbox.io/embedding-proxy-port"] == host["PortBindings"]["44772/tcp"][0]["HostPort"]
    assert host["Memory"] == 0 and host["NanoCpus"] == 0 and not host["DeviceRequests"]


def test_oem_files_are_installed_and_the_volume_ends_with_the_sandbox(scripted, made, engine):
    s, box = made()
    for name, text in (("install.bat", b"@echo stand-in"), ("execd.exe", b"MZ stand-in")):
        r = engine.engine.raw("GET", f"/containers/{box['Id']}/archive?path=/oem/{name}")
        assert r.status == 200 and text in r.body, name
    assert OEM + s["id"] in engine.engine.volumes()
    scripted.delete(s["id"])
    assert OEM + s["id"] not in engine.engine.volumes()
    [gone] = [x for x in engine.seen("DELETE", "/volumes/.*") if OEM in x.path]
    assert gone.path.endswith(s["id"])


def test_no_volume_call_for_linux(scripted, engine):
    i = scripted.create(engine.image("busybox"))["id"]
    engine.clear()
    scripted.delete(i)
    assert not engine.seen("DELETE", "/volumes/.*")


def test_limits_become_variables(made):
    s, box = made(resourceLimits={"cpu": "3500m", "memory": "8Gi", "disk": "64G"}, env={"CPU_CORES": "99", "USER_PORTS": "9000,8080", "VERSION": "11"})
    e = env(box)
    assert (e["CPU_CORES"], e["RAM_SIZE"], e["DISK_SIZE"], e["VERSION"]) == ("4", "8G", "64G", "11")
    assert e["USER_PORTS"] == "9000,8080,44772,3389,8006"
    assert box["HostConfig"]["Memory"] == 0 and box["HostConfig"]["NanoCpus"] == 0 and s["platform"] == WINDOWS


@pytest.mark.parametrize("memory,disk,want", [("4096M", "1T", ("4G", "1024G")), ("5000Mi", "65G", ("5G", "65G"))])
def test_sizes_in_whole_g(made, memory, disk, want):
    e = env(made(resourceLimits={"cpu": "2", "memory": memory, "storage": disk})[1])
    assert (e["RAM_SIZE"], e["DISK_SIZE"]) == want


def test_default_ports_of_the_guest(made):
    assert env(made()[1])["USER_PORTS"] == "44772,8080,3389,8006"


@pytest.mark.parametrize("limits,text", [
    ({"cpu": "1", "memory": "1G", "disk": "1G"}, "resourceLimits.cpu >= 2"), ({"cpu": "2", "memory": "1G", "disk": "1G"}, "resourceLimits.memory >= 4"),
    ({"cpu": "2", "memory": "4G", "disk": "1G"}, ">= 64G"), ({"ephemeral-storage": "10G"}, ">= 64G"),
])
def test_minimum_limits(scripted, guest, limits, text):
    scripted.refused(400, "SANDBOX::INVALID_PARAMETER", text, image=guest, platform=WINDOWS, resourceLimits=limits)


def test_with_a_network_policy(scripted, made, engine):
    s, box = made(networkPolicy={})
    side = engine.engine.sidecar(s["id"])
    keys = {"44772/tcp", "8080/tcp", "3389/tcp", "3389/udp", "8006/tcp", "18080/tcp"}
    assert set(side["HostConfig"]["PortBindings"]) == keys
    # the official server's client library adds /tcp to the text
    assert {p.replace("/udp/tcp", "/udp") if dockerkit.IS_PEER else p for p in side["Config"]["ExposedPorts"]} == keys
    assert box["HostConfig"]["NetworkMode"] == "container:" + side["Id"] and not box["HostConfig"]["PortBindings"]
    caps = lambda l: {c.removeprefix("CAP_") for c in l or []}  # noqa: E731
    assert "NET_ADMIN" in caps(box["HostConfig"]["CapAdd"]) and "NET_ADMIN" not in caps(box["HostConfig"]["CapDrop"])
    labels = box["Config"]["Labels"]
    assert labels["opensandbox.io/embedding-proxy-port"] == side["HostConfig"]["PortBindings"]["44772/tcp"][0]["HostPort"]
    assert labels["opensandbox.io/http-port"] == side["HostConfig"]["PortBindings"]["8080/tcp"][0]["HostPort"]
    assert "18080" not in env(box)["USER_PORTS"]


def test_pull_without_a_platform(scripted, engine):
    engine.on("POST", "/images/create", status=500, message="stop here")
    scripted.refused(500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED", image="127.0.0.1:1/dockur/windows", platform=WINDOWS, resourceLimits={})
    [r] = engine.seen("POST", "/images/create")
    assert "platform" not in r.query
    # a cached Linux image is what such an image is
    engine.clear()
    scripted.delete(scripted.create("cove-test/guest", platform=WINDOWS, resourceLimits={})["id"])
    assert not engine.seen("POST", "/images/create")


def test_missing_devices(docker, guest, tmp_path):
    """The server in a mount namespace whose /dev has the usual nodes only."""
    keep = "null zero full random urandom tty"
    script = (f"mount --make-rprivate / && mkdir -p {tmp_path}/dev && mount -t tmpfs none {tmp_path}/dev && for n in {keep}; do touch {tmp_path}/dev/$n; "
              f"mount --bind /dev/$n {tmp_path}/dev/$n; done; ln -s /proc/self/fd {tmp_path}/dev/fd; mkdir {tmp_path}/dev/shm; mount --move {tmp_path}/dev /dev && exec \"$@\"")
    with dockerkit.serve(docker, prefix=[shutil.which("unshare"), "-m", "sh", "-c", script, "sh"]) as s:
        r = s.refused(400, "SANDBOX::INVALID_PARAMETER", "/dev/kvm", image=guest, platform=WINDOWS, resourceLimits={})
        assert "/dev/net/tun" in r.json()["message"]
        s.delete(s.create(docker.image("busybox"))["id"])


@ours
def test_execd_image_without_the_windows_files(docker, guest):
    with dockerkit.serve(docker, {"runtime": {"execd_image": docker.image("busybox")}}) as s:
        census = dockerkit.Census(docker)
        s.refused(500, "DOCKER::SANDBOX_EXECD_DISTRIBUTION_FAILED", image=guest, platform=WINDOWS, resourceLimits={})
        census.check()


@ours
def test_failing_installation(scripted, engine, guest):
    census = dockerkit.Census(engine)
    engine.on("PUT", "/containers/[^/]*/archive", status=500, message="copy broke")
    scripted.refused(500, "DOCKER::SANDBOX_BOOTSTRAP_INSTALL_FAILED", image=guest, platform=WINDOWS, resourceLimits={})
    engine.clear()
    census.check()


def test_what_belongs_to_a_vanished_one_goes_with_it(scripted, docker, guest):
    i = scripted.create(guest, platform=WINDOWS, resourceLimits={})["id"]
    due = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=2)).isoformat()
    assert scripted.request("POST", f"/v1/sandboxes/{i}/renew-expiration", {"expiresAt": due}).status == 200
    docker.engine.remove("sandbox-" + i)
    deadline = time.monotonic() + 15
    while OEM + i in docker.engine.volumes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert OEM + i not in docker.engine.volumes()
    assert scripted.get("/v1/sandboxes/" + i).status == 404
