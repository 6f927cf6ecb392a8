// Starting, stopping, crashing and starting again.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { connect, ids, newContainer, newDatabase, rejects, userProperties } from "./support/cosmos.js";
import { spawnNode, startNode } from "./support/node.js";

let dataPath;

before(async () => {
  dataPath = await mkdtemp(path.join(tmpdir(), "bolide-js-"));
});

after(async () => {
  if (dataPath) await rm(dataPath, { recursive: true, force: true });
});

async function withNode(options, work) {
  const node = await startNode(options);
  const client = connect(node, options.client);
  try {
    return await work(node, client);
  } finally {
    client.dispose();
    node.child.kill("SIGKILL");
    await node.exited;
    if (node.ownsDataPath) await node.removeData();
  }
}

describe("a node", () => {
  test("keeps everything over a clean stop and over kill -9", async () => {
    let definition;
    await withNode({ dataPath }, async (node, client) => {
      const database = await newDatabase(client, { id: "kept" });
      const container = await newContainer(database, {
        id: "kept",
        defaultTtl: 1_000,
        uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }] },
        throughput: 20_000,
      });
      for (let i = 0; i < 20; i += 1) await container.items.create({ id: `i${i}`, pk: `p${i}`, email: `e${i}`, n: 1 });
      await container.item("i1", "p1").patch([{ op: "incr", path: "/n", value: 1 }]);
      await container.item("i2", "p2").delete();
      ({ resource: definition } = await container.read());
      const { code } = await node.end("SIGTERM");
      assert.equal(code, 0);
    });
    for (let round = 0; round < 3; round += 1) {
      await withNode({ dataPath }, async (node, client) => {
        const container = client.database("kept").container("kept");
        assert.deepEqual((await container.read()).resource, definition);
        assert.equal((await container.readOffer()).resource.content.offerThroughput, 20_000);
        assert.equal((await container.items.readAll().fetchAll()).resources.length, 19 + round);
        assert.equal((await container.item("i1", "p1").read()).resource.n, 2);
        assert.equal((await container.item("i2", "p2").read()).statusCode, 404);
        await rejects(container.items.create({ id: "x", pk: "p3", email: "e3" }), { code: 409 });
        await container.items.create({ id: `round${round}`, pk: "r", email: `r${round}` });
        await node.end("SIGKILL");
      });
    }
  });

  test("has every acknowledged write after kill -9 under load", async () => {
    const acknowledged = new Map();
    const folder = await mkdtemp(path.join(tmpdir(), "bolide-js-"));
    try {
      await withNode({ dataPath: folder }, async (_, client) => {
        await newContainer(await newDatabase(client, { id: "load" }), { id: "load" });
      });
      for (let round = 0; round < 5; round += 1) {
        await withNode({ dataPath: folder }, async (node, client) => {
          const container = client.database("load").container("load");
          let stopped = false;
          const writer = async (number) => {
            for (let i = 0; !stopped; i += 1) {
              const id = `${round}-${number}-${i}`;
              try {
                const { resource } = await container.items.create({ id, pk: id, round });
                acknowledged.set(id, userProperties(resource));
              } catch {
                return;
              }
            }
          };
          const writers = Array.from({ length: 8 }, (_, number) => writer(number));
          await new Promise((resolve) => setTimeout(resolve, 150));
          await node.end("SIGKILL");
          stopped = true;
          client.dispose();
          await Promise.all(writers);
        });
      }
      await withNode({ dataPath: folder }, async (_, client) => {
        const container = client.database("load").container("load");
        const { resources } = await container.items.readAll({ maxItemCount: 1000 }).fetchAll();
        const stored = new Map(resources.map((item) => [item.id, userProperties(item)]));
        assert.ok(acknowledged.size > 50, `only ${acknowledged.size} writes`);
        for (const [id, item] of acknowledged) assert.deepEqual(stored.get(id), item);
      });
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  test("refuses a data folder that is in use, with exit code 3", async () => {
    const folder = await mkdtemp(path.join(tmpdir(), "bolide-js-"));
    await withNode({ dataPath: folder }, async (first, client) => {
      const second = await spawnNode({ dataPath: folder });
      const { code } = await second.exited;
      assert.equal(code, 3, second.log);
      assert.ok(second.log.includes(folder), "the message names the folder");
      await newDatabase(client);
      assert.equal((await first.end("SIGTERM")).code, 0);
    });
    await rm(folder, { recursive: true, force: true });
  });

  test("refuses an unknown flag with exit code 2", async () => {
    const node = await spawnNode({ args: ["--no-such-flag"] });
    assert.equal((await node.exited).code, 2);
    await node.removeData();
  });

  test("takes its key from a file", async () => {
    const folder = await mkdtemp(path.join(tmpdir(), "bolide-js-"));
    const key = Buffer.alloc(64, 42).toString("base64");
    const file = path.join(folder, "key");
    await writeFile(file, `${key}\n`, { mode: 0o600 });
    const options = { args: ["--key-file", file], client: { key } };
    await withNode(options, async (node, client) => {
      const { database } = await client.databases.create({ id: "mine" });
      assert.equal((await database.read()).statusCode, 200);
      const stranger = connect(node);
      await rejects(stranger.databases.readAll().fetchAll(), { code: 401 });
      stranger.dispose();
    });
    await rm(folder, { recursive: true, force: true });
  });

  test("says that it is alive and ready", async () => {
    await withNode({}, async (node) => {
      for (const probe of ["alive", "ready", "status"]) {
        const answer = await fetch(`http://127.0.0.1:${node.healthPort}/${probe}`);
        assert.equal(answer.status, 200, probe);
      }
    });
  });

  test("prints endpoint, key and connection string", async () => {
    await withNode({}, async (node) => {
      assert.ok(node.log.includes(`:${node.port}`), node.log);
      assert.match(node.log, /AccountEndpoint=.*AccountKey=/);
    });
  });

  test("serves a client that has only the connection string", async () => {
    await withNode({}, async (node) => {
      const [connectionString] = /AccountEndpoint=\S+/.exec(node.log);
      const client = connect(node, { endpoint: undefined, key: undefined, connectionString });
      await newDatabase(client);
      assert.equal(ids((await client.databases.readAll().fetchAll()).resources).length, 1);
      client.dispose();
    });
  });
});
