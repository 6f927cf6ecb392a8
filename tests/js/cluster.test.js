import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { connect, newContainer, newDatabase, rejects } from "./support/cosmos.js";
import { freePorts, startNode } from "./support/node.js";

const NODES = [1, 2, 3];
let folder;
let nodes = [];

before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), "bolide-js-cluster-"));
  const key = path.join(folder, "cluster.key");
  await writeFile(key, "0123456789abcdef".repeat(4));
  const ports = await freePorts(NODES.length);
  const members = NODES.map((number, at) => `${number}=127.0.0.1:${ports[at]}`).join(",");
  const settings = (number) => ({
    "cluster.node": number,
    "cluster.members": members,
    "cluster.key_file": key,
    "server.consistency": "bounded-staleness",
  });
  nodes = await Promise.all(
    NODES.map((number) => {
      const args = Object.entries(settings(number)).flatMap(([name, value]) => ["--set", `${name}=${value}`]);
      return startNode({ args });
    }),
  );
});

after(async () => {
  await Promise.all(nodes.map((node) => node.stop()));
  await rm(folder, { recursive: true, force: true });
});

test("any node answers at the account's level and at weaker ones, and refuses a stronger one", async () => {
  const writer = connect(nodes[0]);
  const database = await newDatabase(writer);
  const container = await newContainer(database, { id: "c" });
  await container.items.create({ id: "a", pk: "p", n: 1 });
  for (const node of nodes) {
    for (const consistencyLevel of ["BoundedStaleness", "Session", "ConsistentPrefix", "Eventual"]) {
      const client = connect(node, { consistencyLevel });
      const account = await client.getDatabaseAccount();
      assert.equal(account.resource.consistencyPolicy, "BoundedStaleness");
      const item = client.database(database.id).container("c").item("a", "p");
      // A replica may be a moment behind.
      let read = await item.read();
      for (let tries = 0; read.statusCode !== 200 && tries < 500; tries += 1) read = await item.read();
      assert.equal(read.resource.n, 1);
      client.dispose();
    }
    const strong = connect(node, { consistencyLevel: "Strong" });
    const item = strong.database(database.id).container("c").item("a", "p");
    await rejects(item.read(), { code: 400, message: /'Strong' is stronger .* 'BoundedStaleness'/ });
    strong.dispose();
  }
  writer.dispose();
});
