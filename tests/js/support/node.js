// Starts and stops a real Bolide process for a test file.

import { spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { homedir, tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** The key that every emulator accepts; Bolide takes it on loopback only. */
export const WELL_KNOWN_KEY =
  "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

const READY_WAIT_MS_MAX = 15_000;
const STOP_WAIT_MS_MAX = 15_000;
const LOG_CHARS_MAX = 64 * 1024;

export function binaryPath() {
  if (process.env.BOLIDE_BINARY) return process.env.BOLIDE_BINARY;
  const target = process.env.CARGO_TARGET_DIR ?? path.join(homedir(), ".cache/bolide/target");
  return path.join(target, "release/bolide");
}

/** `count` distinct ports that were free a moment ago. */
export async function freePorts(count) {
  const servers = await Promise.all(
    Array.from(
      { length: count },
      () =>
        new Promise((resolve, reject) => {
          const server = createServer();
          server.once("error", reject);
          server.listen(0, "127.0.0.1", () => resolve(server));
        }),
    ),
  );
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((done) => server.close(done))));
  return ports;
}

export class Node {
  constructor(child, { port, healthPort, protocol, dataPath, ownsDataPath }) {
    this.child = child;
    this.port = port;
    this.healthPort = healthPort;
    this.protocol = protocol;
    this.dataPath = dataPath;
    this.ownsDataPath = ownsDataPath;
    this.log = "";
    this.exited = new Promise((resolve) => {
      child.once("error", (error) => resolve({ error }));
      child.once("exit", (code, signal) => resolve({ code, signal }));
    });
    const keep = (chunk) => {
      this.log = (this.log + chunk).slice(-LOG_CHARS_MAX);
    };
    child.stdout.setEncoding("utf8").on("data", keep);
    child.stderr.setEncoding("utf8").on("data", keep);
    // A test process that dies must not leave its node behind.
    this.killOnExit = () => child.kill("SIGKILL");
    process.once("exit", this.killOnExit);
    this.exited.then(() => process.removeListener("exit", this.killOnExit));
  }

  get endpoint() {
    return `${this.protocol}://127.0.0.1:${this.port}/`;
  }

  /** Gives a signed order on the health port. */
  order(pathAndQuery, method = "POST") {
    const date = new Date().toUTCString();
    const link = pathAndQuery.split("?")[0];
    const text = `${method}\nbolide\n`.toLowerCase() + `${link}\n${date.toLowerCase()}\n\n`;
    const signature = createHmac("sha256", Buffer.from(WELL_KNOWN_KEY, "base64")).update(text).digest("base64");
    const authorization = encodeURIComponent(`type=master&ver=1.0&sig=${signature}`);
    const headers = { authorization, "x-ms-date": date };
    return fetch(`http://127.0.0.1:${this.healthPort}/${pathAndQuery}`, { method, headers });
  }

  async waitUntilReady() {
    const deadline = Date.now() + READY_WAIT_MS_MAX;
    let ended;
    this.exited.then((result) => (ended = result));
    while (Date.now() < deadline) {
      if (ended) {
        throw new Error(`the node ended before it was ready: ${JSON.stringify(ended)}\n${this.log}`);
      }
      try {
        const answer = await fetch(`http://127.0.0.1:${this.healthPort}/ready`);
        await answer.arrayBuffer();
        if (answer.status === 200) return;
      } catch {
        // Not listening yet.
      }
      await sleep(10);
    }
    throw new Error(`the node was not ready after ${READY_WAIT_MS_MAX} ms\n${this.log}`);
  }

  /** Ends the process with `signal` and says how it ended. */
  async end(signal) {
    this.child.kill(signal);
    const late = sleep(STOP_WAIT_MS_MAX, "late", { ref: false });
    const result = await Promise.race([this.exited, late]);
    if (result === "late") {
      this.child.kill("SIGKILL");
      throw new Error(`the node ignored ${signal} for ${STOP_WAIT_MS_MAX} ms\n${this.log}`);
    }
    return result;
  }

  /** Stops as an operator would; a stop that is not clean fails the test. */
  async stop() {
    try {
      const { code, signal } = await this.end("SIGTERM");
      if (code !== 0) {
        throw new Error(`the node ended with code ${code}, signal ${signal}\n${this.log}`);
      }
    } finally {
      if (this.ownsDataPath) await this.removeData();
    }
  }

  async removeData() {
    await rm(this.dataPath, { recursive: true, force: true });
  }
}

/** The node takes `BOLIDE_…` variables as settings: those of the person who runs the tests must not reach it. */
function withoutSettings(env) {
  return Object.fromEntries(Object.entries(env).filter(([name]) => !name.startsWith("BOLIDE_")));
}

/** Spawns a node without waiting for it. */
export async function spawnNode({ protocol = "http", dataPath, args = [], env = {} } = {}) {
  const [port, healthPort] = await freePorts(2);
  const ownsDataPath = dataPath === undefined;
  dataPath ??= await mkdtemp(path.join(tmpdir(), "bolide-js-"));
  const child = spawn(
    binaryPath(),
    [
      "serve",
      ...["--data-path", dataPath],
      ...["--port", String(port)],
      ...["--health-port", String(healthPort)],
      ...["--protocol", protocol],
      ...args,
    ],
    { stdio: ["ignore", "pipe", "pipe"], env: { ...withoutSettings(process.env), ...env } },
  );
  return new Node(child, { port, healthPort, protocol, dataPath, ownsDataPath });
}

/** Spawns a node and waits until it serves. */
export async function startNode(options) {
  const node = await spawnNode(options);
  try {
    await node.waitUntilReady();
  } catch (error) {
    node.child.kill("SIGKILL");
    if (node.ownsDataPath) await node.removeData();
    throw error;
  }
  return node;
}
