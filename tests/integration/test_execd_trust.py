"""The certificate step of bootstrap (lifecycle.md §4.3 step 1): in roots of stand-in tools, in empty ones, with this machine's own tools."""
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import time

import pytest

import covekit
from execdkit import Agent, binary, wait_for
from test_execd_init import static_only

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="cannot: needs root")
SWITCH = {"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": "Yes"}
CERT, MERGED = "/opt/opensandbox/mitmproxy-ca-cert.pem", "/opt/opensandbox/merged-ca-certificates.pem"
PEM = "-----BEGIN CERTIFICATE-----\nMIIBstandin\n-----END CERTIFICATE-----\n"
NAMES = ("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE")
# what a stand-in does: notes its name and arguments, whether it sees a secret, then what its file .do says
TOOL = """#!/bin/sh
echo "${0##*/} $*" >> /calls
if [ -n "$EXECD_ACCESS_TOKEN" ]; then echo secret >> /calls; fi
if [ -e "$0.do" ]; then . "$0.do"; fi
"""


class Root:
    """A root with busybox; tools are stand-ins."""

    def __init__(self, path, cert=PEM):
        static_only()
        self.path = path / "root"
        for d in ("bin", "proc", "dev", "etc", "opt/opensandbox", "root"):
            (self.path / d).mkdir(parents=True)
        shutil.copy(shutil.which("busybox") or "/bin/busybox", self.path / "bin/busybox")
        for name in ("sh", "env", "cat", "sleep", "mkdir", "cp", "id"):
            (self.path / "bin" / name).symlink_to("busybox")
        os.mknod(self.path / "dev/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        (self.path / "dev/null").chmod(0o666)
        shutil.copy(binary(), self.path / "execd")
        self.path.chmod(0o755)
        (self.path / "calls").touch()
        (self.path / "calls").chmod(0o666)
        if cert:
            self.write(CERT, cert)

    def write(self, name, text, mode=0o644):
        p = self.path / name.lstrip("/")
        p.parent.mkdir(parents=True, exist_ok=True)
        p.write_text(text)
        p.chmod(mode)

    def read(self, name):
        return (self.path / name.lstrip("/")).read_text()

    def tool(self, name, do=""):
        self.write(name, TOOL, 0o755)
        self.write(name + ".do", do)
        return self

    def calls(self):
        return self.read("/calls").splitlines()

    def start(self, argv=("sleep", "300"), env=None, user=None, **kw):
        a = Agent(["bootstrap", *argv], env={"PATH": "/bin", **SWITCH, **(env or {})}, flags=False, program="/execd",
                  wrap=["/usr/sbin/chroot", *([f"--userspec={user}"] if user else []), str(self.path)], **kw)
        a.env["EXECD"] = f"/x/execd --port {a.port}"
        return a


def variables(text):
    return {k: v for k, v in (line.split("=", 1) for line in text.splitlines() if "=" in line) if k in NAMES}


def assert_trusts(a, bundle=MERGED):
    """Commands see the variables, and so does the entrypoint."""
    want = {"NODE_EXTRA_CA_CERTS": CERT, "REQUESTS_CA_BUNDLE": bundle, "SSL_CERT_FILE": bundle, "CURL_CA_BUNDLE": bundle}
    assert variables(a.run(["env"]).out) == want
    child = next(iter(pathlib.Path(f"/proc/{a.pid()}/task/{a.pid()}/children").read_text().split()))
    assert variables(pathlib.Path(f"/proc/{child}/environ").read_text().replace("\0", "\n")) == want


def test_every_store_is_told(tmp_path):
    r = Root(tmp_path).tool("/usr/sbin/update-ca-certificates").tool("/bin/certutil").tool("/opt/jdk-x/bin/keytool").tool("/bin/keytool")
    r.tool("/bin/python3", "echo /lib/certifi.pem")
    r.write("/lib/certifi.pem", "certifi's")
    r.write("/etc/ssl/certs/ca-certificates.crt", "Debian's\n")
    for home in ("/opt/jdk-x", "/srv/jdk", "/usr/lib/jvm/old/jre"):
        r.write(home + "/lib/security/cacerts", "store")
    (r.path / "usr/lib/jvm/alias").symlink_to("/opt/jdk-x")
    with r.start(env={"JAVA_HOME": "/srv/jdk", "HOME": "/root", "EXECD_ACCESS_TOKEN": "s", "SSL_CERT_FILE": "/mine.pem"}, token="s") as a:
        assert_trusts(a)
    assert r.read(MERGED) == "certifi's\n" + PEM
    assert r.read("/usr/local/share/ca-certificates/opensandbox-mitmproxy-ca.crt") == PEM
    calls = r.calls()
    assert "secret" not in calls
    assert calls[0] == "update-ca-certificates "
    assert calls[2:4] == ["certutil -d sql:/root/.pki/nssdb -N --empty-password",
                          f"certutil -d sql:/root/.pki/nssdb -A -t C,, -n opensandbox-mitmproxy -i {CERT}"]
    java = [c for c in calls if c.startswith("keytool")]
    assert all(c.startswith(f"keytool -importcert -noprompt -trustcacerts -alias opensandbox-mitmproxy -file {CERT} -keystore /") for c in java)
    assert sorted(c.split()[9] for c in java) == [h + "/lib/security/cacerts" for h in ("/opt/jdk-x", "/srv/jdk", "/usr/lib/jvm/old/jre")]


@pytest.mark.parametrize("bundle", ["/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"])
def test_bundles_of_other_systems(bundle, tmp_path):
    r = Root(tmp_path).tool("/usr/bin/update-ca-trust").tool("/bin/python", "exit 1")
    r.write("/etc/ssl/certs/ca-certificates.crt", "")  # an empty one is none
    r.write(bundle, "theirs\n")
    with r.start() as a:
        assert_trusts(a)
    assert r.read(MERGED) == "theirs\n" + PEM and "update-ca-trust extract" in r.calls()
    assert r.read("/etc/pki/ca-trust/source/anchors/opensandbox-mitmproxy-ca.pem") == PEM


def test_scratch(tmp_path):
    r = Root(tmp_path)
    for f in (r.path / "bin").iterdir():
        if f.name not in ("busybox", "env", "sleep"):
            f.unlink()
    with r.start() as a:
        assert_trusts(a, bundle=CERT)
        assert b"no tool for the system's certificate store" in a.stderr()
    assert r.read(MERGED) == PEM


def test_an_entry_of_an_earlier_start_is_replaced(tmp_path):
    r = Root(tmp_path).tool("/bin/keytool", 'case "$*" in -delete*) : > /gone ;; *) [ -e /gone ] || { echo exists; exit 1; } ;; esac').tool("/bin/certutil")
    r.write("/srv/jdk/lib/security/cacerts", "store")
    r.write("/root/.pki/nssdb/cert9.db", "db")
    with r.start(env={"JAVA_HOME": "/srv/jdk"}) as a:
        assert b"Java" not in a.stderr()
    assert [c.split()[1] for c in r.calls() if c.startswith("keytool")] == ["-importcert", "-delete", "-importcert"]
    assert [c.split()[3] for c in r.calls() if c.startswith("certutil")] == ["-D", "-A"]


def test_failures_are_warnings(tmp_path):
    r = Root(tmp_path)
    for name in ("/bin/update-ca-certificates", "/bin/certutil", "/bin/keytool", "/bin/python3"):
        r.tool(name, "echo broken-${0##*/} >&2; exit 9")
    r.write("/srv/jdk/lib/security/cacerts", "store")
    with r.start(env={"JAVA_HOME": "/srv/jdk"}) as a:
        assert_trusts(a, bundle=CERT)
        log = a.stderr().decode()
    for name in ("update-ca-certificates", "certutil", "keytool"):
        assert f"broken-{name}" in log, log
    assert "ERROR" not in log.upper().replace("ERROR=", "")


@pytest.mark.parametrize("sudo", [False, True])
def test_as_another_user(sudo, tmp_path):
    r = Root(tmp_path).tool("/usr/sbin/update-ca-certificates")
    if sudo:
        r.tool("/bin/sudo")
    r.write("/etc/ssl/cert.pem", "x\n")
    with r.start(user="1234:1234", env={"HOME": "/nowhere"}) as a:
        assert_trusts(a, bundle=CERT)  # the folder is root's
        assert (b"sudo: not found" in a.stderr()) == (not sudo)
    to = "/usr/local/share/ca-certificates"
    assert r.calls() == ([f"sudo -n mkdir -p {to}", f"sudo -n cp {CERT} {to}/opensandbox-mitmproxy-ca.crt", "sudo -n update-ca-certificates"] if sudo else [])


# ---- the wait ----

def begin(r, **kw):
    """Starts without waiting for the agent to answer."""
    a = r.start(**kw)
    a.proc = subprocess.Popen(a.cmd, env=a.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while b"waiting for the guard" not in (line := a.proc.stderr.readline()):
        assert line, "it did not wait"
    return a


def test_the_entrypoint_waits_for_a_whole_certificate(tmp_path):
    r = Root(tmp_path, cert=None)
    a = begin(r, argv=("env",))
    r.write(CERT, PEM[:40])
    time.sleep(0.3)
    assert a.proc.poll() is None
    r.write("/opt/opensandbox/new", PEM)
    (r.path / "opt/opensandbox/new").rename(r.path / CERT[1:])
    start = time.monotonic()
    out, _ = a.proc.communicate(timeout=20)
    assert a.proc.returncode == 0 and variables(out.decode())["SSL_CERT_FILE"] == CERT and r.read(MERGED) == PEM
    assert time.monotonic() - start < 0.9 * covekit.SLOW  # told, not looked for


@pytest.mark.parametrize("what", ["empty", "directory", "fifo"])
def test_what_is_no_certificate_is_not_taken(what, tmp_path):
    r = Root(tmp_path, cert=None)
    p = r.path / CERT[1:]
    {"empty": p.touch, "directory": p.mkdir, "fifo": lambda: os.mkfifo(p)}[what]()
    a = begin(r, argv=("env",))
    with pytest.raises(subprocess.TimeoutExpired):
        a.proc.communicate(timeout=1.5)
    a.proc.terminate()
    a.proc.communicate(timeout=10)


def test_other_text_is_taken_when_it_rests(tmp_path):
    r = Root(tmp_path, cert="not PEM")
    a = begin(r, argv=("env",))
    out, _ = a.proc.communicate(timeout=20)
    assert variables(out.decode())["NODE_EXTRA_CA_CERTS"] == CERT


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait(sig, tmp_path):
    r = Root(tmp_path, cert=None)
    a = begin(r)
    a.proc.send_signal(sig)
    assert a.proc.wait(5) == 128 + sig
    a.proc.communicate()


def test_a_signal_ends_a_tool_of_pid_1(tmp_path):
    r = Root(tmp_path).tool("/bin/update-ca-certificates", "sleep 20 & echo $! > /started; wait")
    a = r.start()
    a.proc = subprocess.Popen(["unshare", "-fp", *a.cmd], env=a.env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for("the tool", lambda: (r.path / "started").exists())
    os.kill(a.pid(), signal.SIGTERM)
    assert a.proc.wait(5) == 143


# ---- when it runs ----

@pytest.mark.parametrize("value", ["", "0", "off"])
def test_not_wanted(value, tmp_path):
    r = Root(tmp_path, cert=None).tool("/bin/update-ca-certificates")
    with r.start(env={"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT": value}) as a:
        assert variables(a.run(["env"]).out) == {}
    assert r.calls() == []


def test_once_and_before_the_pre_script(tmp_path):
    r = Root(tmp_path).tool("/bin/update-ca-certificates")
    r.write("/pre", "export SEEN=$SSL_CERT_FILE\n")
    with r.start(env={"EXECD_BOOTSTRAP_PRE_SCRIPT": "/pre", "CURL_CA_BUNDLE": "/mine"}) as a:
        got = dict(line.split("=", 1) for line in a.run(["env"]).out.splitlines())
    assert got["SEEN"] == got["SSL_CERT_FILE"] == CERT and got["CURL_CA_BUNDLE"] == "/mine"
    assert r.calls() == ["update-ca-certificates "]


# ---- real tools ----

def test_with_the_tools_of_this_machine(tmp_path):
    """update-ca-certificates and keytool as Debian has them, over copies of this machine's stores."""
    for p in ("update-ca-certificates", "keytool", "openssl"):
        if not shutil.which(p):
            pytest.skip(f"cannot: {p} is not installed")
    opt, share, certs, home, jdk = (tmp_path / n for n in ("opt", "share", "certs", "home", "home/.jdks/copy"))
    for d in (opt / "opensandbox", share, jdk / "lib/security"):
        d.mkdir(parents=True)
    real = next(pathlib.Path("/usr/lib/jvm").glob("*/lib/security/cacerts"), None)
    if not real:
        pytest.skip("cannot: this machine has no Java key store")
    shutil.copytree("/etc/ssl/certs", certs, symlinks=True)
    shutil.copy(real.resolve(), jdk / "lib/security/cacerts")
    pem = opt / "opensandbox" / CERT.rsplit("/", 1)[1]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "/dev/null",
                    "-subj", "/CN=cove-test-trust", "-days", "2", "-out", pem], check=True, capture_output=True)
    script = "".join(f"mount --bind {a} {b}; " for a, b in ((opt, "/opt"), (share, "/usr/local/share/ca-certificates"), (certs, "/etc/ssl/certs")))
    p = subprocess.run(["unshare", "-m", "sh", "-ec", script + 'exec "$@"', "x", binary(), "bootstrap", "sh", "-c",
                        "cp $SSL_CERT_FILE $HOME/merged; openssl verify $NODE_EXTRA_CA_CERTS; keytool -list -cacerts -storepass changeit -alias opensandbox-mitmproxy"],
                       env={"PATH": os.environ["PATH"], "HOME": str(home), "EXECD": "x --port 0", **SWITCH}, capture_output=True, text=True, timeout=110)
    assert p.returncode == 0, p.stderr
    assert f"{CERT}: OK" in p.stdout and "trustedCertEntry" in p.stdout  # the system's and Java's stores know it
    assert (home / "merged").read_text().endswith(pem.read_text())
    assert pem.read_text() in (certs / "ca-certificates.crt").read_text()
    listed = subprocess.run(["keytool", "-list", "-keystore", jdk / "lib/security/cacerts", "-storepass", "changeit", "-alias", "opensandbox-mitmproxy"],
                            capture_output=True, text=True)
    assert "trustedCertEntry" in listed.stdout, listed
