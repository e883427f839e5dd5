"""The official Python SDK, unmodified, against a real daemon with either driver: sync and async, proxy on and off."""
import asyncio
import contextlib
import hashlib
import os
import pathlib
import threading
import time
import urllib.request
import uuid
from datetime import datetime, timedelta, timezone

import pytest
from opensandbox import Sandbox
from opensandbox.config import ConnectionConfig
from opensandbox.config.connection_sync import ConnectionConfigSync
from opensandbox.exceptions import SandboxException
from opensandbox.models.execd import ExecutionHandlers, RunCommandOpts
from opensandbox.models.filesystem import WriteEntry
from opensandbox.models.sandboxes import SandboxFilter
from opensandbox.sync.manager import SandboxManagerSync
from opensandbox.sync.sandbox import SandboxSync

from covekit import API_KEY

SERVERS = (pathlib.Path(__file__).parent / "servers.py").read_text()


@pytest.fixture(params=[False, True], ids=["direct", "server-proxy"])
def config(daemon, request):
    return ConnectionConfigSync(domain=f"127.0.0.1:{daemon.port}", api_key=API_KEY, use_server_proxy=request.param)


@pytest.fixture(params=["default", "small"])
def image(request, daemon):
    return daemon.image if request.param == "default" else daemon.small


@pytest.fixture(autouse=True)
def default_image(daemon):
    global DEFAULT
    DEFAULT = daemon.image


DEFAULT = None


@contextlib.contextmanager
def sandbox(config, image=None, **kw):
    image = image or DEFAULT
    s = SandboxSync.create(image, connection_config=config, timeout=timedelta(minutes=5), **kw)
    try:
        yield s
    finally:
        with contextlib.suppress(SandboxException):
            s.kill()
        s.close()


def test_create_run_kill(config, image):
    with sandbox(config, image, env={"GREETING": "hello there"}) as s:
        assert s.is_healthy()
        info = s.get_info()
        assert info.status.state == "Running"
        assert info.image.image.removesuffix(":latest") == image
        assert info.expires_at > datetime.now(timezone.utc) + timedelta(minutes=4)
        r = s.commands.run("echo $GREETING; echo oops >&2; exit 3")
        assert "".join(m.text for m in r.logs.stdout) == "hello there\n"
        assert "".join(m.text for m in r.logs.stderr) == "oops\n"
        assert r.exit_code == 3 and r.error.name == "CommandExecError" and r.error.value == "3"
        r = s.commands.run("printf 'a\\n\\nb'")
        assert [m.text for m in r.logs.stdout] == ["a\n", "\n", "b"]
        assert r.exit_code == 0 and r.complete is not None and r.error is None
        s.kill()
        with pytest.raises(SandboxException):
            s.get_info()


def test_output_streams_while_the_command_runs(config):
    with sandbox(config) as s:
        seen = []
        from opensandbox.models.execd_sync import ExecutionHandlersSync
        handlers = ExecutionHandlersSync(on_stdout=lambda m: seen.append((time.monotonic(), m.text)),
                                         on_init=lambda i: seen.append((time.monotonic(), i.id)))
        s.commands.run("echo first; sleep 0.5; echo second", handlers=handlers)
        assert [t for _, t in seen[1:]] == ["first\n", "second\n"]
        assert seen[2][0] - seen[1][0] > 0.3, "both lines arrived together"


def test_argv_cwd_env_uid_timeout(config, image):
    with sandbox(config, image) as s:
        r = s.commands.run(["printf", "%s|", "a b", "*", "$HOME"])
        assert r.text == "a b|*|$HOME|"
        r = s.commands.run("pwd; id -u; echo $X", opts=RunCommandOpts(working_directory="/tmp", uid=1000, gid=1000, envs={"X": "y z"}))
        assert r.text.split("\n") == ["/tmp", "1000", "y z"]
        t = time.monotonic()
        r = s.commands.run("sleep 60", opts=RunCommandOpts(timeout=timedelta(milliseconds=300)))
        assert time.monotonic() - t < 5 and r.error is not None and r.error.traceback[0] == "signal: killed"


def test_background_command(config):
    with sandbox(config) as s:
        r = s.commands.run("echo start; sleep 0.3; echo end; exit 4", opts=RunCommandOpts(background=True))
        assert r.id and r.exit_code is None
        deadline = time.monotonic() + 10
        while (st := s.commands.get_command_status(r.id)).running and time.monotonic() < deadline:
            time.sleep(0.05)
        assert st.running is False and st.exit_code == 4
        logs = s.commands.get_background_command_logs(r.id)
        assert logs.content == "start\nend\n"
        assert s.commands.get_background_command_logs(r.id, cursor=logs.cursor).content == ""


def test_interrupt_from_the_init_handler(config):
    from opensandbox.models.execd_sync import ExecutionHandlersSync
    with sandbox(config) as s:
        t = time.monotonic()
        threads = []

        def stop(i):
            threads.append(threading.Thread(target=s.commands.interrupt, args=(i.id,)))
            threads[0].start()

        r = s.commands.run("sleep 30", handlers=ExecutionHandlersSync(on_init=stop))
        threads[0].join()
        assert time.monotonic() - t < 5
        assert r.error.value == "-1" and r.error.traceback[0] == "signal: terminated"
        with pytest.raises(SandboxException):
            s.commands.interrupt(uuid.uuid4().hex)


def test_files(config, image):
    with sandbox(config, image) as s:
        blob = os.urandom(3 << 20)
        s.files.write_files([WriteEntry(path="/tmp/a/b/blob", data=blob, mode=600), WriteEntry(path="/tmp/a/text", data="héllo\n", mode=644)])
        assert s.files.read_bytes("/tmp/a/b/blob") == blob
        assert s.files.read_file("/tmp/a/text") == "héllo\n"
        assert s.files.read_bytes("/tmp/a/b/blob", range_header="bytes=0-9") == blob[:10]
        got = hashlib.sha256()
        for chunk in s.files.read_bytes_stream("/tmp/a/b/blob"):
            got.update(chunk)
        assert got.hexdigest() == hashlib.sha256(blob).hexdigest()
        info = s.files.get_file_info(["/tmp/a/b/blob"])["/tmp/a/b/blob"]
        assert info.size == len(blob) and info.mode == 600
        assert s.commands.run("sha256sum < /tmp/a/b/blob").text.split()[0] == hashlib.sha256(blob).hexdigest()
        s.files.delete_files(["/tmp/a/text"])
        with pytest.raises(SandboxException):
            s.files.read_file("/tmp/a/text")


def test_http_port_through_its_endpoint(config):
    with sandbox(config) as s:
        s.files.write_file("/tmp/servers.py", SERVERS)
        s.commands.run("python3 /tmp/servers.py http 8123", opts=RunCommandOpts(background=True))
        ep = s.get_endpoint(8123)
        url = f"http://{ep.endpoint}/a%2Fb/c?x=1&x=2&flag"
        body = fetch(url, ep.headers)
        assert body.startswith("GET /a%2Fb/c?x=1&x=2&flag "), body
        assert "key=None" in body
        data = os.urandom(1 << 20)
        assert fetch(f"http://{ep.endpoint}/post", {**ep.headers, "OPEN-SANDBOX-API-KEY": API_KEY}, data) == hashlib.sha256(data).hexdigest()


def fetch(url, headers, data=None):
    deadline = time.monotonic() + 15
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, headers or {}), timeout=10) as r:
                return r.read().decode()
        except urllib.error.HTTPError as e:
            if e.code != 502 or time.monotonic() > deadline:
                raise
            time.sleep(0.1)  # the server inside is starting


def test_websocket_port_through_its_endpoint(config):
    from websockets.sync.client import connect
    with sandbox(config) as s:
        s.files.write_file("/tmp/servers.py", SERVERS)
        s.commands.run("python3 /tmp/servers.py ws 8124 > /tmp/ws.log & for i in $(seq 100); do grep -q listening /tmp/ws.log && break; sleep 0.05; done")
        ep = s.get_endpoint(8124)
        with connect(f"ws://{ep.endpoint}/echo?x=1", additional_headers=ep.headers) as ws:
            ws.send("text ✓")
            assert ws.recv() == "text ✓"
            blob = os.urandom(200_000)
            ws.send(blob)
            assert ws.recv() == blob


def test_list_with_metadata_filter_renew_and_manager(config):
    tag = uuid.uuid4().hex
    with sandbox(config, metadata={"project": tag, "n": "1"}) as a, sandbox(config, metadata={"project": tag, "n": "2"}) as b, \
            SandboxManagerSync.create(connection_config=config) as m:
        assert {i.id for i in m.list_sandbox_infos(SandboxFilter(metadata={"project": tag})).sandbox_infos} == {a.id, b.id}
        only = m.list_sandbox_infos(SandboxFilter(metadata={"project": tag, "n": "2"}, states=["Running"])).sandbox_infos
        assert [i.id for i in only] == [b.id]
        page = m.list_sandbox_infos(SandboxFilter(metadata={"project": tag}, page_size=1))
        assert page.pagination.total_items == 2 and page.pagination.has_next_page
        assert not m.list_sandbox_infos(SandboxFilter(metadata={"project": "other"})).sandbox_infos
        before = a.get_info().expires_at
        a.renew(timedelta(hours=1))
        assert a.get_info().expires_at > before
        m.kill_sandbox(b.id)
        assert [i.id for i in m.list_sandbox_infos(SandboxFilter(metadata={"project": tag})).sandbox_infos] == [a.id]


def test_connect_pause_resume_metrics(config):
    with sandbox(config) as s:
        other = SandboxSync.connect(s.id, connection_config=config)
        assert other.commands.run("echo ok").text == "ok"
        other.close()
        s.pause()
        assert s.get_info().status.state == "Paused"
        back = SandboxSync.resume(s.id, connection_config=config)
        assert back.commands.run("echo again").text == "again"
        m = back.get_metrics()
        assert m.memory_total_in_mib > 0
        back.close()


def test_manual_cleanup_and_errors(daemon, config):
    s = SandboxSync.create(DEFAULT, connection_config=config, timeout=None)
    try:
        assert s.get_info().expires_at is None
    finally:
        s.kill()
        s.close()
    with pytest.raises(SandboxException) as e:
        SandboxSync.create("127.0.0.1:1/no-such-image" if daemon.driver != "native" else "local/no-such-image", connection_config=config)
    assert "no-such-image" in str(e.value)
    bad = ConnectionConfigSync(domain=config.domain, api_key="wrong")
    with pytest.raises(SandboxException):
        SandboxSync.create(DEFAULT, connection_config=bad)


def test_async_sdk_ten_at_once(daemon):
    config = ConnectionConfig(domain=f"127.0.0.1:{daemon.port}", api_key=API_KEY)

    async def one(i):
        s = await Sandbox.create(daemon.image, connection_config=config, timeout=timedelta(minutes=5))
        try:
            lines = []

            async def on_stdout(m):
                lines.append(m.text)

            r = await s.commands.run(f"seq 1 {200 + i}", handlers=ExecutionHandlers(on_stdout=on_stdout))
            assert r.exit_code == 0
            return "".join(lines) == "".join(f"{n}\n" for n in range(1, 201 + i))
        finally:
            await s.kill()
            await s.close()

    async def everything():
        return await asyncio.gather(*(one(i) for i in range(10)))

    assert asyncio.run(everything()) == [True] * 10
