"""What a start finds on the Docker driver: its own sandboxes, those of another server, and what is none (lifecycle.md §5.6)."""
import datetime
import json
import subprocess
import time
import uuid

import dockerkit
from lifekit import by_hand, iso, iso_label, ours, renew, server, state, wait_for, when  # noqa: F401 (fixtures)


def test_restart_keeps_everything(docker):
    s = dockerkit.serve(docker).start()
    try:
        a = s.create(timeout=600, metadata={"k": "v"})["id"]
        b = s.create(timeout=None, networkPolicy={})["id"]
        renew(s, a, 5000)
        s.request("PATCH", f"/v1/sandboxes/{a}/metadata", {"k": None, "n": "1"})
        s.request("POST", f"/v1/sandboxes/{b}/pause")
        want = {i: s.get("/v1/sandboxes/" + i).json() for i in (a, b)}
        ends = {i: s.get(f"/v1/sandboxes/{i}/endpoints/44772").json() for i in (a, b)}
        for how in (s.stop, s.kill):
            how()
            s.start()
            assert {i: s.get("/v1/sandboxes/" + i).json() for i in (a, b)} == want
            assert {i: s.get(f"/v1/sandboxes/{i}/endpoints/44772").json() for i in (a, b)} == ends
        assert s.run(a, "echo on")[0] == "on\n"
        assert s.request("POST", f"/v1/sandboxes/{b}/resume").status == 202
        s.delete(a), s.delete(b)
    finally:
        s.close()


def test_renewal_survives_a_restart(docker):
    """The label of the container cannot change; what was acknowledged counts."""
    s = dockerkit.serve(docker).start()
    try:
        i = s.create(timeout=60)["id"]
        at = iso(7200)
        assert s.request("POST", f"/v1/sandboxes/{i}/renew-expiration", {"expiresAt": at}).status == 200
        s.kill()
        s.start()
        assert when(s.get("/v1/sandboxes/" + i).json()["expiresAt"]) == when(at)
        s.delete(i)
    finally:
        s.close()


def test_sandboxes_of_another_server_are_taken_over(docker):
    running, manual, due = by_hand(docker, iso_label(900), team="blue"), by_hand(docker), by_hand(docker, iso_label(-5))
    bad = by_hand(docker, "no time")
    s = dockerkit.serve(docker)
    try:
        s.start()
        got = s.get("/v1/sandboxes/" + running).json()
        assert got["status"]["state"] == "Running" and got["metadata"] == {"team": "blue"} and got["entrypoint"] == ["tail", "-f", "/dev/null"]
        assert 800 < (when(got["expiresAt"]) - datetime.datetime.now(datetime.timezone.utc)).total_seconds() < 901
        assert "expiresAt" not in s.get("/v1/sandboxes/" + manual).json()
        wait_for(lambda: not docker.engine.exists("sandbox-" + due))
        log = s.log.read_text()
        assert not [l for l in log.splitlines() if manual in l and ("WARN" in l.upper())], "a manual one is no reason for a warning"
        if not dockerkit.IS_PEER:  # it would be ended at once there
            assert "expiresAt" not in s.get("/v1/sandboxes/" + bad).json() and bad in log
        assert renew(s, running, 60).status == 200
        s.delete(running), s.delete(manual)
        s.request("DELETE", "/v1/sandboxes/" + bad)
    finally:
        s.close()
        for i in (running, manual, due, bad):
            docker.engine.remove("sandbox-" + i)


def test_persisted_override_of_another_server_beats_the_label(docker, tmp_path):
    i = by_hand(docker, iso_label(-60))
    store = tmp_path / ".opensandbox/metadata/_expiration"
    store.mkdir(parents=True)
    at = iso_label(1800)
    (store / f"{i}.json").write_text(json.dumps({"expires_at": at}))
    s = dockerkit.serve(docker, env={"HOME": str(tmp_path)})
    try:
        s.start()
        time.sleep(0.5)
        assert docker.engine.exists("sandbox-" + i)
        assert when(s.get("/v1/sandboxes/" + i).json()["expiresAt"]) == when(at)
        s.delete(i)
    finally:
        s.close()
        docker.engine.remove("sandbox-" + i)


def test_an_override_ends_with_its_sandbox(docker, tmp_path):
    docker.image("busybox")
    (tmp_path / ".opensandbox/metadata/_expiration").mkdir(parents=True)  # an official server was here before
    with dockerkit.serve(docker, env={"HOME": str(tmp_path)}) as s:
        kept = lambda i: [p for p in tmp_path.rglob("*") if i in p.name]  # noqa: E731
        gone, deleted = s.create()["id"], s.create()["id"]
        for i in (gone, deleted):
            assert renew(s, i, 600).status == 200
            s.request("PATCH", f"/v1/sandboxes/{i}/metadata", {"a": "b"})
            wait_for(lambda: kept(i), text="where other tools look for a renewal")
        assert renew(s, gone, 2).status == 200
        docker.engine.remove("sandbox-" + gone)
        s.delete(deleted)
        wait_for(lambda: not kept(gone) and not kept(deleted))


def test_overdue_at_start_goes_with_its_sidecar(docker):
    i = by_hand(docker, iso_label(-5), **{"opensandbox.io/platform-os": "linux", "opensandbox.io/egress-auth-token": "t" * 32})
    docker.engine.run("sandbox-egress-" + i, docker.image("egress"), Labels={"opensandbox.io/egress-sidecar-for": i})
    orphan = str(uuid.uuid4())
    docker.engine.run("sandbox-egress-" + orphan, docker.image("egress"), Labels={"opensandbox.io/egress-sidecar-for": orphan})
    with dockerkit.serve(docker):
        wait_for(lambda: not any(docker.engine.exists(n + x) for n in ("sandbox-", "sandbox-egress-") for x in (i, orphan)))


@ours
def test_labels_of_an_image_make_no_sandbox(docker, tmp_path):
    """Whoever makes an image could else have a container of it taken over, expired, and any port of the host proxied."""
    i = str(uuid.uuid4())
    changes = [f"LABEL opensandbox.io/id={i}", "LABEL opensandbox.io/expires-at=2020-01-01T00:00:00+00:00", "LABEL opensandbox.io/http-port=22"]
    docker.image("busybox")
    docker.engine.import_tar(dockerkit.busybox_image()[0], "cove-test/labelled", changes=changes)
    docker.engine.run("not-a-sandbox", "cove-test/labelled", Cmd=["tail", "-f", "/dev/null"])
    try:
        with dockerkit.serve(docker) as s:
            assert s.get("/v1/sandboxes/" + i).status == 404 and "comes from its image" in s.log.read_text()
            time.sleep(0.3)
        assert docker.engine.inspect("not-a-sandbox")["State"]["Running"]
    finally:
        docker.engine.remove("not-a-sandbox")
        docker.engine.remove_image("cove-test/labelled")


@ours
def test_mounts_of_a_foreign_label_stay(docker, tmp_path):
    place = tmp_path / "data"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], check=True)
    i = by_hand(docker, **{"opensandbox.io/ossfs-mounts": json.dumps([str(place)])})
    try:
        with dockerkit.serve(docker) as s:
            s.delete(i)
            assert place.is_mount()
    finally:
        subprocess.run(["umount", str(place)])
        docker.engine.remove("sandbox-" + i)


@ours
def test_the_name_goes_before_a_copied_label(docker):
    """A container that somebody ran from a commit of a sandbox has its labels too, and is listed first."""
    s = dockerkit.serve(docker).start()
    try:
        i = s.create()["id"]
        s.stop()
        labels = docker.engine.inspect("sandbox-" + i)["Config"]["Labels"]
        docker.engine.run("copy-of-one", docker.image("busybox"), Labels=labels, Cmd=["tail", "-f", "/dev/null"])
        s.start()
        s.delete(i)
        assert docker.engine.exists("copy-of-one") and not docker.engine.exists("sandbox-" + i)
    finally:
        s.close()
        docker.engine.remove("copy-of-one")


@ours
def test_a_users_container_is_left_alone(docker):
    docker.engine.run("my-database", docker.image("busybox"), Cmd=["tail", "-f", "/dev/null"], Labels={"app": "db"})
    try:
        with dockerkit.serve(docker) as s:
            assert not [x for x in s.get("/v1/sandboxes").json()["items"]]
        assert docker.engine.inspect("my-database")["State"]["Running"]
    finally:
        docker.engine.remove("my-database")
