"""What an operator meets: configuration checks, start-up guards, keys, log files, metrics."""
import contextlib
import http.server
import json
import os
import pty
import re
import signal
import subprocess

import threading
import time

import pytest

import covekit

COVED = str(covekit.BIN / "coved")


def clean_env(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENSANDBOX_", "SANDBOX_", "DOCKER_", "OTEL_"))}
    return {**env, **more}


def coved(*args, stdin=subprocess.DEVNULL, timeout=30, **env):
    return subprocess.run([COVED, *map(str, args)], capture_output=True, text=True, stdin=stdin, timeout=timeout,
                          env=clean_env(**env))


def wait_for(what, timeout=10):
    end = time.monotonic() + timeout * covekit.SLOW
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError("it did not come")


# ---- commands ----

def test_check_config_prints_what_is_wrong(tmp_path):
    f = tmp_path / "c.toml"
    f.write_text('[server]\nport = 70000\n')
    r = coved("--check-config", "--config", f)
    assert r.returncode == 1
    assert r.stderr == f"coved: {f}:2: server.port: expected an integer from 1 to 65535\n"
    f.write_text('[server]\napi_key = "0123456789abcdef"\ncolour = "red"\n')
    r = coved("--check-config", "--config", f)
    assert r.returncode == 0 and not r.stderr
    assert r.stdout == f"warning: {f}:3: server.colour is no known key, ignored\n{f}: good\n"
    f.write_text('[server\n')
    assert coved("--check-config", "--config", f).returncode == 1
    assert coved("--check-config", "--config", tmp_path / "none.toml").returncode == 1
    assert coved("--nonsense").returncode == 2


def test_the_environment_chooses_the_file_and_replaces_keys(tmp_path):
    f = tmp_path / "c.toml"
    f.write_text('[store]\ntype = "postgresql"\n')
    r = coved("--check-config", SANDBOX_CONFIG_PATH=str(f))
    assert r.returncode == 1 and "store.postgresql.dsn: expected to be set" in r.stderr
    r = coved("--check-config", SANDBOX_CONFIG_PATH=str(f), OPENSANDBOX_STORE_POSTGRESQL_DSN="postgresql://u:hidden@h/d")
    assert r.returncode == 0 and "hidden" not in r.stdout + r.stderr
    r = coved("--check-config", SANDBOX_CONFIG_PATH=str(f), OPENSANDBOX_STORE_POSTGRESQL_DSN="x",
              OPENSANDBOX_SECURE_ACCESS_KEYS="a=aGlkZGVu")
    assert r.returncode == 1 and "OPENSANDBOX_SECURE_ACCESS_KEYS" in r.stderr and "aGlk" not in r.stderr
    home = tmp_path / "home"
    home.mkdir()
    (home / ".sandbox.toml").write_text("[log]\nlevel = 'loud'\n")
    if not os.path.exists("/etc/cove/coved.toml"):
        r = coved("--check-config", HOME=str(home))
        assert r.returncode == 1 and ".sandbox.toml:2: log.level" in r.stderr


@pytest.mark.parametrize("example", ["native", "docker", "docker-zh"])
def test_init_config_writes_a_file_that_is_good(tmp_path, example):
    f = tmp_path / "c.toml"
    r = coved("init-config", f, "--example", example)
    assert r.returncode == 0 and f.stat().st_mode & 0o777 == 0o600
    assert f'type = "{example.split("-")[0]}"' in f.read_text()
    assert coved("--check-config", "--config", f).returncode == 0
    f.write_text("# mine\n")
    r = coved("init-config", f, "--example", example)
    assert r.returncode == 1 and "--force" in r.stderr and f.read_text() == "# mine\n"
    assert coved("init-config", f, "--force").returncode == 0 and "[native]" in f.read_text()


def test_init_config_has_no_kubernetes_example(tmp_path):
    r = coved("init-config", tmp_path / "c.toml", "--example", "k8s")
    assert r.returncode == 1 and "kubernetes" in r.stderr and not (tmp_path / "c.toml").exists()


def test_migrate_snapshots_says_what_it_lacks(tmp_path):
    r = coved("migrate-snapshots", "--from", tmp_path / "none.db")
    assert r.returncode == 1 and "--to" in r.stderr
    assert coved("--dry-run").returncode == 2


# ---- a daemon without a key ----

DOCKER = '[runtime]\ntype = "docker"\n[server]\nstate_dir = "{0}/state"\nrun_dir = "{0}/run"\nport = {1}\nhost = "127.0.0.1"\n'


def docker_config(tmp_path):
    f = tmp_path / "c.toml"
    f.write_text(DOCKER.format(tmp_path, covekit.free_port()))
    return f


def test_docker_without_a_key_ends_before_it_looks_for_an_engine(tmp_path):
    f = docker_config(tmp_path)
    nowhere = "unix:///nonexistent/docker.sock"
    for value in (None, "yes", "1", " YES"):
        env = {"OPENSANDBOX_INSECURE_SERVER": value} if value else {}
        r = coved("--config", f, DOCKER_HOST=nowhere, **env)
        assert r.returncode == 1, r
        assert "no API key" in r.stderr and "engine" not in r.stderr and (value or "none") not in r.stderr.replace("=YES", "")
        assert not (tmp_path / "state").exists()
    r = coved("--config", f, DOCKER_HOST=nowhere, OPENSANDBOX_INSECURE_SERVER="YES")
    assert r.returncode == 1 and "no API key" not in r.stderr  # now it is the engine that is missing


def ask(tmp_path, answer):
    """Runs coved on a terminal, types the answer; the text shown and the exit status."""
    f = docker_config(tmp_path)
    main, sub = pty.openpty()
    p = subprocess.Popen([COVED, "--config", str(f)], stdin=sub, stdout=sub, stderr=sub, start_new_session=True,
                         env=clean_env(DOCKER_HOST="unix:///nonexistent/docker.sock"))
    os.close(sub)
    shown = b""
    try:
        while b"YES to go on" not in shown:
            shown += os.read(main, 4096)
        os.write(main, answer.encode() + b"\n")
        with contextlib.suppress(OSError):
            while True:
                piece = os.read(main, 4096)
                if not piece:
                    break
                shown += piece
    finally:
        status = p.wait(20)
        os.close(main)
    return shown.decode(), status


def test_at_a_terminal_the_question_is_asked(tmp_path):
    shown, status = ask(tmp_path, "yes")
    assert status == 1 and "no API key" in shown
    shown, status = ask(tmp_path, "YES")
    assert status == 1 and "coved: no API key" not in shown  # it went on, to the engine that is not there


def test_native_without_a_key_serves_its_socket_alone():
    class Keyless(covekit.Daemon):
        def write_config(self):
            super().write_config()
            self.config.write_text(self.config.read_text().replace(f'api_key = "{covekit.API_KEY}"', 'api_key = ""'))

    with Keyless() as d:
        assert d.get("/v1/sandboxes", unix=True, key=None).status == 200
        with pytest.raises(OSError):
            d.get("/health")
        d.config.write_text(d.config.read_text().replace('api_key = ""', f'api_key = "{covekit.API_KEY}"'))
        d.proc.send_signal(signal.SIGHUP)
        wait_for(lambda: "opens at the next start" in d.log.read_text())


# ---- keys, logs, metrics of a running one ----

KEYS = '\n[server.api_keys]\nci = "key-of-the-ci-system"\n'


def test_the_host_may_be_a_name(tmp_path):
    d = covekit.Daemon()
    write = d.write_config

    def with_host(name):
        write()
        d.config.write_text(d.config.read_text().replace('host = "127.0.0.1"', f'host = "{name}"'))
    d.write_config = lambda: with_host("localhost")
    with d:
        assert d.get("/health").status == 200
        with_host("no.such.host.invalid")
        r = coved("--config", d.config, "--state-dir", tmp_path, "--socket", tmp_path / "s")
        assert r.returncode == 1 and "server.host" in r.stderr and "no.such.host.invalid" in r.stderr, r


def test_keys_have_names_and_are_rotated():
    with covekit.Daemon(KEYS) as d:
        def status(key):
            return d.get("/v1/sandboxes", key=key).status
        assert status(covekit.API_KEY) == status("key-of-the-ci-system") == 200
        assert status("key-of-the-ci-syste") == status("key-of-the-ci-systemm") == 401
        log = d.log.read_text()
        assert re.search(r"request .*path=/v1/sandboxes .*key=ci\n", log) and "key=default" in log
        assert "key-of-the-ci-system" not in log and covekit.API_KEY not in log

        text = d.config.read_text()
        d.config.write_text(text.replace("key-of-the-ci-system", "another-key-of-the-ci"))
        d.proc.send_signal(signal.SIGHUP)
        wait_for(lambda: status("another-key-of-the-ci") == 200)
        assert status("key-of-the-ci-system") == 401

        d.config.write_text(text.replace(KEYS, "").replace(f'api_key = "{covekit.API_KEY}"', 'api_key = ""'))
        d.proc.send_signal(signal.SIGHUP)
        wait_for(lambda: "take the last API key away" in d.log.read_text())
        assert status("another-key-of-the-ci") == 200 and status(None) == 401
        d.config.write_text(text + "ops = 5\n")
        d.proc.send_signal(signal.SIGHUP)
        wait_for(lambda: "reload refused" in d.log.read_text())
        assert status(covekit.API_KEY) == 200
        d.config.write_text(text)


def test_log_files_are_rotated_and_opened_again(tmp_path):
    logs = tmp_path / "made" / "here"
    section = f"""
[log]
file_enabled = true
file_path = "{logs}/server.log"
access_file_path = "{logs}/access.log"
file_max_bytes = 4000
file_backup_count = 2
"""
    with covekit.Daemon(section) as d:
        d.get("/v1/sandboxes", headers={"X-Request-ID": "my-request"})
        line = wait_for(lambda: [x for x in (logs / "access.log").read_text().splitlines() if "my-request" in x])[0]
        assert re.fullmatch(r"INFO:     \d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d{4} \[my-request\] coved: request peer=.* status=200 .*", line)
        assert "serving" in (logs / "server.log").read_text() and "my-request" not in (logs / "server.log").read_text()
        for _ in range(60):
            d.get("/health")
        names = sorted(p.name for p in logs.iterdir())
        assert names == ["access.log", "access.log.1", "access.log.2", "server.log"]
        assert all((logs / n).stat().st_size <= 4000 for n in names)
        (logs / "access.log").rename(logs / "moved.log")
        d.proc.send_signal(signal.SIGUSR1)
        wait_for((logs / "access.log").exists)
        d.get("/health", headers={"X-Request-ID": "after"})
        wait_for(lambda: "[after]" in (logs / "access.log").read_text())
        assert d.log.read_text().count("request ") == 0  # nothing of it on standard error


def test_a_full_disk_stops_no_daemon(tmp_path):
    section = f'[log]\nfile_enabled = true\nfile_path = "/dev/full"\naccess_file_path = "/dev/full"\n'
    with covekit.Daemon(section) as d:
        assert d.get("/health").status == 200
        wait_for(lambda: "path=/health" in d.log.read_text())  # it went to standard error


def test_reload_is_an_option_without_meaning():
    with covekit.Daemon(args=["--reload"]) as d:
        assert d.get("/health").status == 200
        assert "--reload has no effect" in d.log.read_text()


def test_metrics_show_what_was_done():
    with covekit.Daemon() as d:
        assert d.get("/metrics", key=None).status == 401
        assert d.get("/metrics", key=None, unix=True).status == 200
        sandbox = d.create()["id"]
        text = d.get("/metrics").body.decode()
        assert 'cove_sandboxes{state="Running"} 1\n' in text
        assert 'cove_sandbox_create_seconds_count{driver="native",success="true"} 1\n' in text
        assert 'cove_sandbox_create_step_seconds_count{step="driver"} 1\n' in text
        rss = int(float(re.search(r"^process_resident_memory_bytes (\S+)$", text, re.M).group(1)))
        assert 1 << 20 < rss < 1 << 30
        fds = float(re.search(r"^process_open_fds (\S+)$", text, re.M).group(1))
        assert abs(fds - len(os.listdir(f"/proc/{d.proc.pid}/fd"))) <= 40  # the pools are being filled
        d.request("DELETE", "/v1/sandboxes/" + sandbox)
        text = d.get("/metrics").body.decode()
        assert 'cove_sandboxes{state="Running"} 0\n' in text
        assert 'cove_sandbox_operations_total{operation="delete",success="true"} 1\n' in text
        for line in text.splitlines():
            assert line.startswith("# ") or re.fullmatch(r'[a-z_]+(\{[^{}]*(\{[a-z.]+\}[^{}]*)*\})? \S+', line), line


def test_metrics_may_be_public():
    class Public(covekit.Daemon):
        def write_config(self):
            super().write_config()
            self.config.write_text(self.config.read_text().replace("[server]\n", "[server]\nmetrics_public = true\n"))

    with Public() as d:
        assert d.get("/metrics", key=None).status == 200
        assert d.get("/metricsx", key=None).status == 401
        assert d.get("/v1/sandboxes", key=None).status == 401


class Collector:
    """A collector of OTLP over HTTP: keeps what is posted. answers: statuses to give before 200."""

    def __init__(self, answers=()):
        self.got, self.answers = [], list(answers)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.got.append((self.path, dict(self.headers), body))
                self.send_response(outer.answers.pop(0) if outer.answers else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *a):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def metric(body, name):
    for m in body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]:
        if m["name"] == name:
            return m["histogram"]["dataPoints"]
    return []


def attributes(point):
    return {a["key"]: next(iter(a["value"].values())) for a in point["attributes"]}


def test_metrics_are_exported_to_a_collector():
    collector = Collector(answers=[503])
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://localhost:{collector.port}/", "OTEL_EXPORTER_OTLP_HEADERS": "x-token=a%20b",
           "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test"}
    try:
        with covekit.Daemon("[otel]\nenabled = true\nservice_name = 'mine'\nexport_interval_millis = 1000\n", env=env) as d:
            event = {"eventType": "sandbox.create", "createDurationMs": 42, "success": True}
            r = d.request("POST", "/v1/metrics/events", event, {"User-Agent": "OpenSandbox-Python-SDK/1.1.1"})
            assert r.status == 204
            wait_for(lambda: len(collector.got) >= 2 and metric(collector.got[-1][2], "opensandbox.sandbox.create.duration"))
            path, headers, body = collector.got[-1]
            assert path == "/v1/metrics" and headers["Content-Type"] == "application/json" and headers["x-token"] == "a b"
            resource = attributes(body["resourceMetrics"][0]["resource"])
            assert resource["service.name"] == "mine" and resource["deployment.environment"] == "test"
            point, = metric(body, "opensandbox.sandbox.create.duration")
            assert attributes(point) == {"sdk.language": "python", "sdk.version": "1.1.1", "success": True}
            assert point["count"] == "1" and point["sum"] == 42.0
            assert sum(map(int, point["bucketCounts"])) == 1 and len(point["bucketCounts"]) == len(point["explicitBounds"]) + 1
            routes = [attributes(p) for p in metric(body, "server.http.request.duration")]
            assert {"http_method": "POST", "http_route": "/v1/metrics/events", "http_status_code": "204"} in routes
            log = d.log.read_text()
            assert log.count("metrics cannot be exported") == 1 and "the collector answered 503" in log and "a b" not in log
            assert "metrics are exported again" in log
    finally:
        collector.close()


def test_an_address_of_a_collector_that_cannot_be_used_stops_the_start(tmp_path):
    d = covekit.Daemon("[otel]\nenabled = true\n", env={"OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector.example"})
    try:
        with pytest.raises(AssertionError) as e:
            d.start()
        assert "TLS" in str(e.value)
    finally:
        d.close()
