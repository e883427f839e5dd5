// The official JavaScript SDK, unmodified, driven by node's test runner. Started by test_js_sdk.py.
import test from "node:test";
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { createRequire } from "node:module";

const require = createRequire(process.env.COVE_JS_MODULES + "/");
const { ConnectionConfig, Sandbox, SandboxManager } = require("@alibaba-group/opensandbox");
const WebSocket = require("ws");
const { COVE_DOMAIN: domain, COVE_KEY: apiKey, COVE_IMAGE: dflt, COVE_ROOTFS: rootfs, COVE_SERVERS: servers, COVE_DRIVER: driver } = process.env;
const script = readFileSync(servers, "utf8");

async function withSandbox(opts, fn) {
  const s = await Sandbox.create({ timeoutSeconds: 300, ...opts });
  try {
    await fn(s);
  } finally {
    await s.kill().catch(() => {});
    await s.close();
  }
}

for (const useServerProxy of [false, true]) {
  const connectionConfig = new ConnectionConfig({ domain, apiKey, useServerProxy });
  const mode = useServerProxy ? "server-proxy" : "direct";

  for (const image of [dflt, rootfs]) {
    test(`${mode} ${image}: run, streams, exit code, env`, () =>
      withSandbox({ connectionConfig, image, env: { A: "x y" } }, async (s) => {
        assert.equal((await s.getInfo()).status.state, "Running");
        const seen = [];
        const r = await s.commands.run("echo $A; echo oops >&2; exit 5", undefined, { onStdout: (m) => seen.push(m.text) });
        assert.deepEqual(seen, ["x y\n"]);
        assert.equal(r.logs.stderr.map((m) => m.text).join(""), "oops\n");
        assert.equal(r.exitCode, 5);
        const ok = await s.commands.run("true");
        assert.equal(ok.exitCode, 0);
      }));

    test(`${mode} ${image}: files round trip`, () =>
      withSandbox({ connectionConfig, image }, async (s) => {
        const blob = randomBytes(2 << 20);
        await s.files.writeFiles([{ path: "/tmp/deep/er/blob", data: blob, mode: 644 }, { path: "/tmp/deep/t", data: "tëxt" }]);
        assert.ok(Buffer.from(await s.files.readBytes("/tmp/deep/er/blob")).equals(blob));
        assert.equal(await s.files.readFile("/tmp/deep/t"), "tëxt");
        const part = await s.files.readBytes("/tmp/deep/er/blob", { range: "bytes=0-9" });
        assert.ok(Buffer.from(part).equals(blob.subarray(0, 10)));
        const sum = await s.commands.run("sha256sum < /tmp/deep/er/blob");
        assert.equal(sum.logs.stdout[0].text.split(" ")[0], createHash("sha256").update(blob).digest("hex"));
        await s.files.deleteFiles(["/tmp/deep/t"]);
        await assert.rejects(s.files.readFile("/tmp/deep/t"));
      }));
  }

  test(`${mode}: interrupt, unknown interrupt, background`, () =>
    withSandbox({ connectionConfig, image: dflt }, async (s) => {
      const started = Date.now();
      const r = await s.commands.run("sleep 30", undefined, { onInit: (i) => s.commands.interrupt(i.id) });
      assert.ok(Date.now() - started < 5000);
      assert.equal(r.error.value, "-1");
      await assert.rejects(s.commands.interrupt("0123456789abcdef0123456789abcdef"));
      const b = await s.commands.run("echo bg; exit 2", { background: true });
      let st;
      for (let i = 0; i < 100 && (st = await s.commands.getCommandStatus(b.id)).running; i++) await delay(50);
      assert.equal(st.exitCode, 2);
      assert.equal((await s.commands.getBackgroundCommandLogs(b.id)).content, "bg\n");
    }));

  test(`${mode}: HTTP and WebSocket servers in the sandbox`, () =>
    withSandbox({ connectionConfig, image: dflt }, async (s) => {
      await s.files.writeFiles([{ path: "/tmp/servers.py", data: script }]);
      await s.commands.run("python3 /tmp/servers.py http 8125", { background: true });
      await s.commands.run("python3 /tmp/servers.py ws 8126", { background: true });
      const http = await s.getEndpoint(8125);
      let res;
      for (let i = 0; i < 100; i++) {
        res = await fetch(`http://${http.endpoint}/p%20q?z=%2B`, { headers: http.headers });
        if (res.status !== 502) break;
        await delay(50);
      }
      assert.match(await res.text(), /^GET \/p%20q\?z=%2B /);
      const ws = await s.getEndpoint(8126);
      let echoed;
      for (let i = 0; i < 100 && echoed === undefined; i++) {
        echoed = await new Promise((resolve) => {
          const c = new WebSocket(`ws://${ws.endpoint}/`, { headers: ws.headers });
          c.on("open", () => c.send("ping ✓"));
          c.on("message", (d) => { resolve(d.toString()); c.close(); });
          c.on("error", () => resolve(undefined));
          c.on("close", () => resolve(undefined)); // the proxy accepts, then closes with 1011, while nobody listens
        });
        if (echoed === undefined) await delay(50);
      }
      assert.equal(echoed, "ping ✓");
    }));

  test(`${mode}: list by metadata, renew, kill`, async () => {
    const tag = randomBytes(8).toString("hex");
    const manager = SandboxManager.create({ connectionConfig });
    await withSandbox({ connectionConfig, image: dflt, metadata: { tag } }, async (s) => {
      const found = await manager.listSandboxInfos({ metadata: { tag }, states: ["Running"] });
      assert.deepEqual(found.items.map((i) => i.id), [s.id]);
      const before = (await s.getInfo()).expiresAt;
      await s.renew(3600);
      assert.ok(new Date((await s.getInfo()).expiresAt) > new Date(before));
      await manager.killSandbox(s.id);
      assert.equal((await manager.listSandboxInfos({ metadata: { tag } })).items.length, 0);
    });
    await manager.close();
  });

  test(`${mode}: pause, resume, metadata`, () =>
    withSandbox({ connectionConfig, image: rootfs, metadata: { a: "1" } }, async (s) => {
      await s.pause();
      assert.equal((await s.getInfo()).status.state, "Paused");
      const back = await s.resume();
      assert.equal((await back.commands.run("echo on")).logs.stdout[0].text.trim(), "on");
      assert.deepEqual((await back.patchMetadata({ a: null, b: "2" })).metadata, { b: "2" });
      await back.close();
    }));

  test(`${mode}: volumes`, () => {
    const pvc = { claimName: "js-" + randomBytes(4).toString("hex") };
    const claim = (more) => [{ name: "v", pvc: { ...pvc, ...more }, mountPath: "/data" }];
    return withSandbox({ connectionConfig, image: rootfs, volumes: claim({ deleteOnSandboxTermination: true }) }, async (s) => {
      await s.commands.run("echo shared > /data/f");
      await withSandbox({ connectionConfig, image: rootfs, volumes: claim() }, async (r) => {
        assert.equal((await r.commands.run("cat /data/f")).logs.stdout[0].text.trim(), "shared");
      });
    });
  });

  if (driver === "native") continue; // what follows its capabilities refuse

  test(`${mode}: network policy`, () =>
    withSandbox({ connectionConfig, image: rootfs, networkPolicy: { defaultAction: "deny", egress: [{ action: "allow", target: "example.com" }] } }, async (s) => {
      assert.deepEqual((await s.getEgressPolicy()).egress.map((r) => r.target), ["example.com"]);
      await s.patchEgressRules([{ action: "deny", target: "bad.example.com" }]);
      assert.deepEqual((await s.getEgressPolicy()).egress.map((r) => r.target), ["bad.example.com", "example.com"]);
    }));

  test(`${mode}: snapshots`, async () => {
    const manager = SandboxManager.create({ connectionConfig });
    await withSandbox({ connectionConfig, image: rootfs }, async (s) => {
      await s.commands.run("echo kept > /root/f");
      const { id } = await manager.createSnapshot(s.id, { name: "js" });
      let snap;
      for (let i = 0; i < 200 && (snap = await manager.getSnapshot(id)).status.state === "Creating"; i++) await delay(50);
      assert.equal(snap.status.state, "Ready");
      assert.ok((await manager.listSnapshots({ sandboxId: s.id })).items.some((x) => x.id === id));
      await withSandbox({ connectionConfig, snapshotId: id }, async (r) => {
        assert.equal((await r.commands.run("cat /root/f")).logs.stdout[0].text.trim(), "kept");
        assert.equal((await r.getInfo()).snapshotId, id);
      });
      await manager.deleteSnapshot(id);
    });
    await manager.close();
  });
}
