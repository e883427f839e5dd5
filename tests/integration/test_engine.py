"""The Engine client (src/docker) against a real dockerd: every call, over a Unix socket, TCP and TLS; faults that a
real engine gives. What it does with hostile answers is in src/docker/test-engine*.c."""
import base64
import contextlib
import hashlib
import io
import json
import os
import pathlib
import queue
import subprocess
import tarfile
import threading
import time

import covekit
import pytest

import dockerkit

ENG = covekit.BUILD / "tests/eng"
SLOW = covekit.SLOW


class Refused(AssertionError):
    def __init__(self, answer):
        super().__init__(json.dumps(answer))
        self.error, self.status, self.message = answer["error"], answer.get("status"), answer["message"]


class Eng:
    """The test program tests/integration/eng.c. Calls by name: eng.start(id="x") -> the answer, or Refused."""

    def __init__(self, host=None, env=None, **opts):
        if host:
            opts["host"] = host
        e = {k: v for k, v in os.environ.items() if not k.startswith("DOCKER_")}
        self.proc = subprocess.Popen([ENG, json.dumps(opts)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**e, **(env or {})})
        self.seq, self.lock = 0, threading.Lock()
        self.answers, self.events = {}, {}
        self.hello = json.loads(self.proc.stdout.readline())
        if not self.hello["ok"]:
            self.close()
            raise Refused(self.hello)
        self.reader = threading.Thread(target=self.read_answers, daemon=True)
        self.reader.start()

    def read_answers(self):
        for line in self.proc.stdout:
            j = json.loads(line)
            (self.events if "event" in j else self.answers)[j["seq"]].put(j)

    def send(self, op, **args):
        with self.lock:
            self.seq += 1
            seq = self.seq
            self.answers[seq], self.events[seq] = queue.Queue(), queue.Queue()
            self.proc.stdin.write(json.dumps({"op": op, "seq": seq, **args}) + "\n")
            self.proc.stdin.flush()
        return seq

    def answer(self, seq, timeout=60):
        a = self.answers[seq].get(timeout=timeout * SLOW)
        if not a["ok"]:
            raise Refused(a)
        return a

    def event(self, seq, timeout=30):
        return self.events[seq].get(timeout=timeout * SLOW)

    def call(self, op, **args):
        return self.answer(self.send(op, **args))

    def __getattr__(self, op):
        return lambda **args: self.call(op, **args)

    def close_stream(self, n):
        self.call("close", stream=n)

    def hwm_kib(self):
        return int(next(l for l in pathlib.Path(f"/proc/{self.proc.pid}/status").read_text().splitlines() if l.startswith("VmHWM")).split()[1])

    def sockets(self):
        n = 0
        for fd in pathlib.Path(f"/proc/{self.proc.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                n += os.readlink(fd).startswith("socket:")
        return n

    def close(self):
        self.proc.stdin.close()
        code = self.proc.wait(30 * SLOW)
        assert code in (0, 3), f"eng ended with {code}"  # a sanitizer's report ends it with another

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


@pytest.fixture(scope="module")
def eng(docker):
    docker.image("busybox")
    with Eng(docker.host) as e:
        yield e


@pytest.fixture
def box(docker, eng):
    """A running container."""
    i = eng.create(body={"Image": "cove-test/busybox", "Cmd": ["tail", "-f", "/dev/null"], "Labels": {"cove.test": "eng"}})["id"]
    eng.start(id=i)
    yield i
    docker.engine.remove(i)


def refused(error, status=None, text=None):
    @contextlib.contextmanager
    def check():
        with pytest.raises(Refused) as e:
            yield e
        assert e.value.error == error, e.value
        assert status is None or e.value.status == status, e.value
        assert text is None or text in e.value.message, e.value
    return check()


# ---- the engine ----

def test_ping_negotiates_and_info(docker, eng):
    theirs = docker.engine.raw("GET", "/_ping").headers["Api-Version"]
    assert eng.ping()["version"] == min(theirs, "1.47", key=lambda v: int(v.split(".")[1]))
    assert eng.info()["answer"]["OSType"] == "linux"


def test_version_of_the_environment(docker):
    with Eng(docker.host, env={"DOCKER_API_VERSION": "1.40"}) as e:
        assert e.ping()["version"] == "1.40"
        with refused("EOPNOTSUPP", text="platform"):
            e.create(platform="linux/amd64", body={"Image": "cove-test/busybox"})
    with refused("EINVAL", text="DOCKER_API_VERSION"):
        Eng(docker.host, env={"DOCKER_API_VERSION": "2"})


def test_host_of_the_environment(docker):
    with Eng(env={"DOCKER_HOST": docker.host}) as e:
        assert e.hello["host"] == docker.host and e.hello["unix"]
        e.ping()


def test_no_engine(tmp_path):
    with Eng(f"unix://{tmp_path}/none.sock") as e:
        with refused("EHOSTUNREACH", 0, "none.sock"):
            e.ping()
    with Eng(f"tcp://127.0.0.1:{covekit.free_port()}") as e:
        with refused("EHOSTUNREACH", 0, "refused"):
            e.list()


# ---- containers ----

def test_life_of_a_container(docker, eng):
    name = f"eng-life-{os.getpid()}"
    i = eng.create(name=name, platform="linux/" + ("amd64" if os.uname().machine == "x86_64" else "arm64"),
                   body={"Image": "cove-test/busybox", "Cmd": ["sh", "-c", "trap 'exit 7' TERM; echo out; echo err >&2; while :; do sleep 0.1; done"],
                         "Labels": {"cove.test": name}})["id"]
    with refused("EBUSY", 409, name):
        eng.create(name=name, body={"Image": "cove-test/busybox"})
    eng.start(id=name)
    eng.start(id=i)  # runs already
    j = eng.inspect(id=name)["answer"]
    assert j["Id"] == i and j["State"]["Running"]
    assert [c["Id"] for c in eng.list(filters={"label": [f"cove.test={name}"]})["answer"]] == [i]
    assert eng.list(filters={"label": ["cove.test=other"]})["answer"] == []
    eng.pause(id=i)
    assert docker.engine.inspect(i)["State"]["Paused"]
    eng.resume(id=i)
    waiting = eng.send("wait", id=i, thread=True)
    eng.stop(id=i, grace=10)
    eng.stop(id=i)  # stands already
    assert eng.answer(waiting)["status"] == 7
    assert eng.wait(id=i)["status"] == 7
    assert eng.list(all=False, filters={"label": [f"cove.test={name}"]})["answer"] == []
    with refused("EBUSY", 409):
        eng.kill(id=i)
    eng.start(id=i)
    eng.kill(id=i, signal="SIGKILL")
    assert eng.wait(id=i)["status"] == 137
    eng.remove(id=i)
    for op in ("inspect", "start", "stop", "kill", "remove", "pause", "resume", "wait", "logs"):
        with refused("ENOENT", 404, i):
            eng.call(op, id=i)


def test_remove_does_not_take_a_running_one_without_force(docker, eng, box):
    with refused("EBUSY", 409):
        eng.remove(id=box, force=False)
    assert docker.engine.inspect(box)["State"]["Running"]


def test_removals_at_once_all_end_with_it_gone(docker, eng):
    for _ in range(3):
        i = eng.create(body={"Image": "cove-test/busybox", "Cmd": ["tail", "-f", "/dev/null"]})["id"]
        eng.start(id=i)
        seqs = [eng.send("remove", id=i, thread=True) for _ in range(8)]
        won = 0
        for s in seqs:
            try:
                eng.answer(s)
                won += 1
            except Refused as e:
                assert (e.error, e.status) == ("ENOENT", 404), e
            assert not docker.engine.exists(i)
        assert won >= 1


def test_bad_names_never_reach_another_route(eng):
    for bad in ("", ".", "..", "a/../b", "x/json"):
        with refused("EINVAL"):
            eng.inspect(id=bad)
    with refused("ENOENT", 404):
        eng.inspect(id="no such %2f name?x=1")
    for bad in ("", "..", "a//b", "../containers/json"):
        with refused("EINVAL"):
            eng.image_inspect(ref=bad)


def test_a_wrong_body_is_refused_with_the_engines_words(eng):
    with refused("EINVAL", 400, "No command specified"):
        eng.create(body={"Cmd": []})
    with refused("ENOENT", 404, "No such image"):
        eng.create(body={"Image": "cove-test/none", "Cmd": ["x"]})


def logged(eng, docker, script, tty=False):
    i = eng.create(body={"Image": "cove-test/busybox", "Cmd": ["sh", "-c", script], "Tty": tty})["id"]
    eng.start(id=i)
    eng.wait(id=i)
    return i


def test_logs(docker, eng):
    i = logged(eng, docker, "echo one; sleep 0.3; echo two >&2; sleep 1.2; echo three; printf 'a\\377b'")
    try:
        assert eng.logs(id=i)["text"] == "one\ntwo\nthree\na\ufffdb"
        assert eng.logs(id=i, tail=2)["text"] == "three\na\ufffdb"
        assert eng.logs(id=i, max=9)["text"] == "ree\na\ufffdb"
        stamped = eng.logs(id=i, timestamps=True)["text"].splitlines()
        assert len(stamped) == 4 and all(l[4] == "-" and "Z " in l for l in stamped)
        at = stamped[2].split(" ")[0]
        us = int(time.mktime(time.strptime(at[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone) * 1_000_000 + int(at[20:26])
        assert eng.logs(id=i, since_us=us)["text"] == "three\na\ufffdb"
    finally:
        docker.engine.remove(i)


def test_logs_keep_the_last_bytes(docker, eng):
    i = logged(eng, docker, "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done")
    try:
        text = eng.logs(id=i, max=1000)["text"]
        assert 990 < len(text) <= 1000 and text.endswith("line 19998\nline 19999\n")
        whole = eng.logs(id=i)["text"]
        assert whole == "".join(f"line {n}\n" for n in range(20000))
    finally:
        docker.engine.remove(i)


def test_logs_of_a_terminal(docker, eng):
    i = logged(eng, docker, "echo one; echo two >&2", tty=True)
    try:
        assert eng.logs(id=i)["text"] == "one\r\ntwo\r\n"
    finally:
        docker.engine.remove(i)


def test_commit(docker, eng, box):
    docker.engine.exec(box, "sh", "-c", "echo kept > /kept")
    repo = f"cove-test/snap-{os.getpid()}"
    image = eng.commit(id=box, repo=repo, tag="x", changes=["ENV A=b", 'CMD ["cat","/kept"]'])["id"]
    try:
        j = eng.image_inspect(ref=repo + ":x")["answer"]
        assert j["Id"] == image and "A=b" in j["Config"]["Env"] and j["Config"]["Cmd"] == ["cat", "/kept"]
        i = logged_image(eng, repo + ":x")
        assert eng.logs(id=i)["text"] == "kept\n"
        docker.engine.remove(i)
    finally:
        eng.image_remove(ref=repo + ":x")
    with refused("ENOENT", 404):
        eng.image_inspect(ref=repo + ":x")
    with refused("ENOENT", 404):
        eng.commit(id="none")


def logged_image(eng, image):
    i = eng.create(body={"Image": image})["id"]
    eng.start(id=i)
    eng.wait(id=i)
    return i


# ---- volumes, networks, events ----

def test_volumes_and_networks(docker, eng):
    name = f"eng-vol-{os.getpid()}"
    assert eng.volume_create(name=name, labels={"cove.test": name})["answer"]["Name"] == name
    assert eng.volume_inspect(name=name)["answer"]["Labels"] == {"cove.test": name}
    assert [v["Name"] for v in eng.volume_list(filters={"label": [f"cove.test={name}"]})["answer"]] == [name]
    assert eng.volume_list(filters={"label": ["cove.test=other"]})["answer"] == []
    eng.volume_remove(name=name)
    with refused("ENOENT", 404):
        eng.volume_inspect(name=name)
    with refused("ENOENT", 404):
        eng.volume_remove(name=name)
    eng.volume_remove(name=name, force=True)
    assert eng.network_inspect(name="bridge")["answer"]["Name"] == "bridge"
    with refused("ENOENT", 404):
        eng.network_inspect(name="none such")


def test_a_volume_in_use_is_busy(docker, eng):
    name = f"eng-used-{os.getpid()}"
    eng.volume_create(name=name)
    i = eng.create(body={"Image": "cove-test/busybox", "Cmd": ["true"], "HostConfig": {"Binds": [name + ":/v"]}})["id"]
    with refused("EBUSY", 409, "in use"):
        eng.volume_remove(name=name)
    eng.remove(id=i)
    eng.volume_remove(name=name)


def test_events(docker, eng):
    label = f"eng-ev-{os.getpid()}"
    since = int(time.time())
    watch = eng.send("events", thread=True, filters={"label": [f"cove.test={label}"], "type": ["container"]})
    assert eng.event(watch)["event"] == "open"
    i = eng.create(body={"Image": "cove-test/busybox", "Cmd": ["true"], "Labels": {"cove.test": label}})["id"]
    eng.start(id=i)
    eng.wait(id=i)
    eng.remove(id=i)
    seen = []
    while "destroy" not in seen:
        e = eng.event(watch)["data"]
        assert e["Actor"]["ID"] == i
        seen.append(e["Action"])
    assert [a for a in seen if a in ("create", "start", "die", "destroy")] == ["create", "start", "die", "destroy"]
    eng.cancel(target=watch)
    with refused("ECANCELED"):
        eng.answer(watch, 5)
    # what was before, and the callback ends it
    again = eng.send("events", thread=True, since=since, filters={"label": [f"cove.test={label}"]}, until="die")
    with refused("EINTR"):
        eng.answer(again, 10)


def test_a_wait_is_cancelled(eng, box):
    waiting = eng.send("wait", id=box, thread=True)
    time.sleep(0.3)
    t = time.monotonic()
    eng.cancel(target=waiting)
    with refused("ECANCELED"):
        eng.answer(waiting, 5)
    assert time.monotonic() - t < 1 * SLOW


# ---- archives ----

def tar_of(files):
    b = io.BytesIO()
    with tarfile.open(fileobj=b, mode="w") as t:
        for name, data in files.items():
            i = tarfile.TarInfo(name)
            i.size = len(data)
            t.addfile(i, io.BytesIO(data))
    return b.getvalue()


@pytest.mark.parametrize("known", [False, True])
def test_archive_there_and_back(eng, box, tmp_path, known):
    data = tar_of({"a": b"hello", "dir/b": b"x" * 100000})
    (tmp_path / "in.tar").write_bytes(data)
    a = eng.put(id=box, path="/tmp", file=str(tmp_path / "in.tar"), length=len(data) if known else -1)
    assert a["bytes"] == len(data)
    eng.get(id=box, path="/tmp/dir/b", file=str(tmp_path / "out.tar"))
    with tarfile.open(tmp_path / "out.tar") as t:
        assert t.getnames() == ["b"] and t.extractfile("b").read() == b"x" * 100000


def test_archive_errors(docker, eng, box, tmp_path):
    (tmp_path / "in.tar").write_bytes(tar_of({"a": b"y" * (8 << 20)}))
    for op in ("put", "get"):
        with refused("ENOENT", 404):
            eng.call(op, id=box, path="/none/here", file=str(tmp_path / "in.tar"))
        with refused("ENOENT", 404):
            eng.call(op, id="none", path="/tmp", file=str(tmp_path / "in.tar"))
    # the engine refuses in the middle of it, and says so
    (tmp_path / "bad.tar").write_bytes(b"this is no tar at all" * 200000)
    with refused("EREMOTEIO", 500) as e:
        eng.put(id=box, path="/tmp", file=str(tmp_path / "bad.tar"))
    # the source breaks off: nothing is taken for whole
    with refused("EIO", text="reading what is to be sent"):
        eng.put(id=box, path="/tmp", file=str(tmp_path / "in.tar"), stop_after=1 << 20)
    with refused("EPROTO", text="shorter than announced"):
        eng.put(id=box, path="/tmp", file=str(tmp_path / "in.tar"), length=1 << 30)
    with refused("ENOSPC"):
        eng.get(id=box, path="/bin", file="/dev/null", stop_after=1000)
    assert eng.inspect(id=box)["answer"]["State"]["Running"]


def test_a_large_archive_takes_no_memory(docker, box, tmp_path):
    block = os.urandom(1 << 20)
    size = 200 << 20
    with tarfile.open(tmp_path / "big.tar", "w") as t:
        i = tarfile.TarInfo("big")
        i.size = size
        t.fileobj.write(i.tobuf())
        t.offset += 512
        for _ in range(size >> 20):
            t.fileobj.write(block)
        t.offset += size
    with Eng(docker.host) as e:
        e.ping()
        before = e.hwm_kib()
        e.put(id=box, path="/", file=str(tmp_path / "big.tar"))
        e.get(id=box, path="/big", file=str(tmp_path / "back.tar"))
        grown = e.hwm_kib() - before
    print(f"200 MiB there and back: VmHWM {before} KiB + {grown} KiB")
    assert grown < 2048 * SLOW
    with tarfile.open(tmp_path / "back.tar") as t:
        f = t.extractfile("big")
        assert all(f.read(1 << 20) == block for _ in range(size >> 20)) and f.read(1) == b""


# ---- execs ----

class Stream:
    def __init__(self, eng, container, cmd, tty=False, stdin=True, **extra):
        self.eng = eng
        self.exec = eng.exec(id=container, body={"Cmd": cmd, "AttachStdin": stdin, "AttachStdout": True, "AttachStderr": True,
                                                 "Tty": tty, **extra})["exec"]
        self.n = eng.exec_start(exec=self.exec, tty=tty)["stream"]

    def read(self, **args):
        a = self.eng.read(stream=self.n, **args)
        return a["which"], base64.b64decode(a["data"])

    def all(self):
        """{1: stdout, 2: stderr} until the end."""
        out = {1: b"", 2: b""}
        while True:
            which, data = self.read()
            if not data:
                return out
            out[which] += data

    def write(self, text, times=1):
        self.eng.write(stream=self.n, data=text, times=times)

    def end(self):
        self.eng.end(stream=self.n)

    def code(self):
        j = self.eng.exec_inspect(exec=self.exec)
        assert not j["running"]
        return j["code"]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.eng.close_stream(self.n)


def test_exec_output_and_code(eng, box):
    with Stream(eng, box, ["sh", "-c", "echo out; echo err >&2; exit 3"], stdin=False) as s:
        assert s.all() == {1: b"out\n", 2: b"err\n"}
        assert s.code() == 3


def test_exec_input_is_ended_while_output_goes_on(eng, box):
    with Stream(eng, box, ["sh", "-c", "cat; echo done; exit 5"]) as s:
        s.write("hello\n")
        assert s.read() == (1, b"hello\n")
        s.write("more\n")
        s.end()
        assert s.all()[1] == b"more\ndone\n"
        assert s.code() == 5


def test_exec_of_much_data_both_ways(eng, box):
    with Stream(eng, box, ["sh", "-c", "cat | md5sum; head -c 5000000 /dev/zero; head -c 3000000 /dev/zero >&2"]) as s:
        s.write("0123456789abcdef" * 4096, times=64)
        s.end()
        out = s.all()
        md5 = hashlib.md5(b"0123456789abcdef" * 4096 * 64).hexdigest()
        assert out[1].startswith(md5.encode()) and len(out[1]) == len(f"{md5}  -\n") + 5000000 and len(out[2]) == 3000000


def test_exec_small_reads(eng, box):
    with Stream(eng, box, ["sh", "-c", "echo 0123456789; echo abc >&2"], stdin=False) as s:
        got = []
        while True:
            which, data = s.read(size=3)
            if not data:
                break
            assert len(data) <= 3
            got.append((which, data))
        assert b"".join(d for w, d in got if w == 1) == b"0123456789\n" and b"".join(d for w, d in got if w == 2) == b"abc\n"


def test_exec_with_a_terminal(eng, box):
    with Stream(eng, box, ["sh"], tty=True) as s:
        eng.exec_resize(exec=s.exec, rows=33, cols=101)
        s.write("stty size; exit 4\n")
        out = s.all()
        assert b"33 101" in out[1] and out[2] == b""
        assert s.code() == 4


def test_exec_reads_without_waiting_and_with_a_limit(eng, box):
    with Stream(eng, box, ["cat"]) as s:
        with refused("EAGAIN"):
            s.read(timeout_ms=0)
        t = time.monotonic()
        with refused("ETIMEDOUT"):
            s.read(timeout_ms=300)
        assert 0.29 < time.monotonic() - t < 2 * SLOW
        s.write("x")
        assert s.read() == (1, b"x")
        # another thread breaks it off
        reading = eng.send("read", stream=s.n, timeout_ms=-1, thread=True)
        time.sleep(0.2)
        eng.abort(stream=s.n)
        with contextlib.suppress(Refused):
            assert eng.answer(reading, 5)["data"] == ""


def test_exec_writes_while_reading(eng, box):
    with Stream(eng, box, ["cat"]) as s:
        writing = eng.send("write", stream=s.n, data="z" * 65536, times=160, thread=True)
        n = 0
        while n < 160 * 65536:
            n += len(s.read()[1])
        eng.answer(writing)
        s.end()
        assert s.all() == {1: b"", 2: b""} and s.code() == 0


def test_exec_errors(eng, box):
    with refused("ENOENT", 404):
        eng.exec(id="none", body={"Cmd": ["x"]})
    with refused("ENOENT", 404):
        eng.exec_start(exec="0" * 64)
    with refused("ENOENT", 404):
        eng.exec_inspect(exec="0" * 64)
    x = eng.exec(id=box, body={"Cmd": ["/none"], "AttachStdout": True})["exec"]
    with contextlib.suppress(Refused):  # engines say it in the answer or in the stream
        n = eng.exec_start(exec=x)["stream"]
        while base64.b64decode(eng.read(stream=n)["data"]):
            pass
        eng.close_stream(n)
    assert eng.exec_inspect(exec=x)["code"] in (126, 127)


# ---- images ----

@pytest.fixture(scope="module")
def registries(docker):
    return docker.registry(), docker.registry(auth=True)


def test_pull(docker, eng, registries):
    ref = registries[0].push(docker, "busybox", "eng/pulled")
    with refused("ENOENT", 404):
        eng.image_inspect(ref=ref)
    s = eng.send("pull", ref=ref, progress=True, thread=True)
    eng.answer(s)
    lines = []
    while not eng.events[s].empty():
        lines.append(eng.event(s)["data"])
    assert any("Status: Downloaded newer image" in l.get("status", "") or "Digest" in l.get("status", "") for l in lines), lines
    j = eng.image_inspect(ref=ref)["answer"]
    digest = j["RepoDigests"][0]
    eng.image_remove(ref=ref)
    eng.pull(ref=digest, platform=f"linux/{j['Architecture']}")
    assert eng.image_inspect(ref=digest)["answer"]["Id"] == j["Id"]
    eng.image_remove(ref=digest, force=True)


def test_pull_of_what_is_not_there(docker, eng, registries):
    with refused("ENOENT", 404, "manifest unknown"):
        eng.pull(ref=registries[0].name + "/eng/none:1")
    with refused("EINVAL", 400):
        eng.pull(ref=registries[0].name + "/Bad Name")
    with pytest.raises(Refused):
        eng.pull(ref=f"127.0.0.1:{covekit.free_port()}/x:1")


def test_pull_with_credentials(docker, eng, registries):
    ref = registries[1].push(docker, "busybox", "eng/secret")
    user, password = dockerkit.REGISTRY_USER, dockerkit.REGISTRY_PASSWORD
    eng.pull(ref=ref, username=user, password=password)
    eng.image_inspect(ref=ref)
    eng.image_remove(ref=ref)
    for args in ({}, {"username": user, "password": "wrong-password"}):
        with refused("EACCES") as e:
            eng.pull(ref=ref, **args)
        assert "no basic auth credentials" in e.value.message or "unauthorized" in e.value.message, e.value
        assert "wrong-password" not in e.value.message and password not in e.value.message
    with refused("ENOENT", 404):
        eng.image_inspect(ref=ref)


# ---- TCP and TLS ----

def make_certificates(d):
    def openssl(*args):
        subprocess.run(["openssl", *args], check=True, capture_output=True, stdin=subprocess.DEVNULL, cwd=d)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    for ca in ("ca", "other-ca"):
        openssl("req", "-x509", *key, "-keyout", f"{ca}-key.pem", "-out", f"{ca}.pem", "-subj", f"/CN=cove {ca}", "-days", "30",
                "-addext", "basicConstraints=critical,CA:TRUE")
    for name, ca, ext in (("server", "ca", "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth"),
                          ("wrong-name", "ca", "subjectAltName=DNS:elsewhere.example\nextendedKeyUsage=serverAuth"),
                          ("client", "ca", "extendedKeyUsage=clientAuth"), ("stranger", "other-ca", "extendedKeyUsage=clientAuth")):
        (d / f"{name}.ext").write_text(ext)
        openssl("req", *key, "-keyout", f"{name}-key.pem", "-out", f"{name}.csr", "-subj", f"/CN=cove {name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}-key.pem", "-CAcreateserial", "-out", f"{name}.pem",
                "-days", "30", "-extfile", f"{name}.ext")
    for folder, ca, cert in (("good", "ca", "client"), ("foreign-client", "ca", "stranger"), ("foreign-ca", "other-ca", "client"), ("bare", "ca", None)):
        f = d / folder
        f.mkdir()
        (f / "ca.pem").write_bytes((d / f"{ca}.pem").read_bytes())
        if cert:
            (f / "cert.pem").write_bytes((d / f"{cert}.pem").read_bytes())
            (f / "key.pem").write_bytes((d / f"{cert}-key.pem").read_bytes())
    return d


class TcpDockerd(dockerkit.Dockerd):
    """Listens on TCP besides, plain or with TLS (server's certificate by name)."""

    def __init__(self, certs=None, server="server"):
        super().__init__()
        self.port = covekit.free_port()
        self.certs, self.server = certs, server

    def command(self):
        c = super().command() + ["-H", f"tcp://127.0.0.1:{self.port}"]
        if self.certs:
            c += ["--tlsverify", "--tlscacert", f"{self.certs}/ca.pem", "--tlscert", f"{self.certs}/{self.server}.pem", "--tlskey", f"{self.certs}/{self.server}-key.pem"]
        return c


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certs"))


def walk_through(e, tmp_path):
    """A bit of everything over one kind of connection."""
    i = e.create(body={"Image": "cove-test/busybox", "Cmd": ["tail", "-f", "/dev/null"]})["id"]
    e.start(id=i)
    data = tar_of({"f": os.urandom(1 << 20)})
    (tmp_path / "f.tar").write_bytes(data)
    e.put(id=i, path="/tmp", file=str(tmp_path / "f.tar"))
    e.get(id=i, path="/tmp/f", file=str(tmp_path / "g.tar"))
    with tarfile.open(tmp_path / "f.tar") as a, tarfile.open(tmp_path / "g.tar") as b:
        assert a.extractfile("f").read() == b.extractfile("f").read()
    with Stream(e, i, ["sh", "-c", "cat; echo done; echo err >&2; exit 5"]) as s:
        s.write("0123456789" * 6000, times=20)
        s.end()
        assert s.all() == {1: b"0123456789" * 120000 + b"done\n", 2: b"err\n"}
        assert s.code() == 5
    with Stream(e, i, ["cat"]) as s:  # reading and writing at once, from two threads
        writing = e.send("write", stream=s.n, data="z" * 65536, times=80, thread=True)
        n = 0
        while n < 80 * 65536:
            n += len(s.read()[1])
        e.answer(writing)
    watch = e.send("events", thread=True, filters={"container": [i]})
    assert e.event(watch)["event"] == "open"
    seqs = [e.send("inspect", id=i, thread=True) for _ in range(20)]
    assert all(e.answer(s)["answer"]["Id"] == i for s in seqs)
    waiting = e.send("wait", id=i, thread=True)
    e.kill(id=i)
    assert e.answer(waiting)["status"] == 137
    e.cancel(target=watch)
    with refused("ECANCELED"):
        e.answer(watch, 5)
    e.remove(id=i)


def test_tcp(tmp_path):
    with TcpDockerd() as d:
        d.image("busybox")
        with Eng(f"tcp://127.0.0.1:{d.port}") as e:
            assert not e.hello["unix"]
            walk_through(e, tmp_path)
        with Eng(f"http://localhost:{d.port}/") as e:
            e.ping()
        with Eng(f"https://127.0.0.1:{d.port}") as e:
            with refused("EHOSTUNREACH", 0, "TLS"):
                e.ping()


def test_tls(certs, tmp_path):
    with TcpDockerd(certs) as d:
        d.image("busybox")
        host = f"tcp://localhost:{d.port}"
        with Eng(host, tls_verify=1, cert_dir=str(certs / "good")) as e:
            walk_through(e, tmp_path)
        with Eng(f"https://127.0.0.1:{d.port}", env={"DOCKER_CERT_PATH": str(certs / "good")}) as e:
            e.ping()
        with Eng(host, env={"DOCKER_CERT_PATH": str(certs / "good"), "DOCKER_TLS_VERIFY": "1"}) as e:
            e.ping()
        for folder, text in (("foreign-ca", "TLS"), ("foreign-client", "TLS"), ("bare", "TLS")):
            with Eng(host, tls_verify=1, cert_dir=str(certs / folder)) as e:
                for _ in range(2):
                    with refused("EHOSTUNREACH", 0, text):
                        e.ping()
        with Eng(host, tls_verify=0) as e:  # no TLS with an engine that wants it
            with refused("EINVAL", 400, "HTTPS"):
                e.ping()


def test_tls_checks_the_name(certs):
    with TcpDockerd(certs, "wrong-name") as d:
        with Eng(f"tcp://localhost:{d.port}", tls_verify=1, cert_dir=str(certs / "good")) as e:
            with refused("EHOSTUNREACH", 0, "hostname mismatch"):
                e.ping()
        with Eng(f"tcp://127.0.0.1:{d.port}", tls_verify=1, cert_dir=str(certs / "good")) as e:
            with refused("EHOSTUNREACH", 0, "IP address mismatch"):
                e.ping()


def test_certificates_that_are_not_there(certs, tmp_path):
    with refused("ENOENT", text="ca.pem"):
        Eng("https://localhost:1", cert_dir=str(tmp_path))
    (tmp_path / "ca.pem").write_bytes((certs / "ca.pem").read_bytes())
    (tmp_path / "cert.pem").write_bytes((certs / "client.pem").read_bytes())
    with refused("ENOENT", text="key.pem"):
        Eng("https://localhost:1", cert_dir=str(tmp_path))
    (tmp_path / "key.pem").write_bytes((certs / "stranger-key.pem").read_bytes())
    with pytest.raises(Refused):
        Eng("https://localhost:1", cert_dir=str(tmp_path))


# ---- an engine that goes away, many at once ----

def test_engine_restarted_under_the_client():
    with dockerkit.Dockerd() as d:
        d.image("busybox")
        with Eng(d.host, timeout_ms=int(5000 * SLOW)) as e:
            for s in [e.send("list", thread=True) for _ in range(8)]:
                e.answer(s)
            i = e.create(body={"Image": "cove-test/busybox", "Cmd": ["tail", "-f", "/dev/null"], "StopSignal": "SIGKILL"})["id"]
            e.start(id=i)
            watch = e.send("events", thread=True)
            e.event(watch)
            d.restart()
            with refused("ECONNRESET"):
                e.answer(watch)
            assert e.inspect(id=i)["answer"]["Id"] == i  # the kept connections are stale
            e.start(id=i)
            d.stop()
            with refused("EHOSTUNREACH", 0):
                e.inspect(id=i)
            d.start()
            e.remove(id=i)
            d.freeze()
            t = time.monotonic()
            try:
                with refused("ETIMEDOUT", 0):
                    e.list()
            finally:
                d.freeze(False)
            assert 4 < time.monotonic() - t < 12 * SLOW
            e.list()


def test_many_at_once_keep_few_connections(docker, eng):
    seqs = [eng.send("create", thread=True, body={"Image": "cove-test/busybox", "Cmd": ["true"], "Labels": {"cove.test": "many"}}) for _ in range(40)]
    ids = [eng.answer(s)["id"] for s in seqs]
    assert len(set(ids)) == 40
    for s in [eng.send("remove", id=i, thread=True) for i in ids]:
        eng.answer(s)
    assert eng.list(filters={"label": ["cove.test=many"]})["answer"] == []
    assert eng.sockets() <= 8
