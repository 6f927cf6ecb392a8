import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { connect, ids, newContainer, newDatabase, rejects, uniqueName } from "./support/cosmos.js";
import { startNode } from "./support/node.js";

let node;

before(async () => {
  node = await startNode();
});

after(async () => {
  await node?.stop();
});

for (const consistencyLevel of ["Session", "Eventual", "ConsistentPrefix"]) {
  describe(`a client with consistency ${consistencyLevel}`, () => {
    let client;
    let container;
    before(async () => {
      client = connect(node, { consistencyLevel });
      container = await newContainer(await newDatabase(client), { throughput: 20_000 });
    });
    after(() => client?.dispose());

    test("reads what it wrote", async () => {
      for (let i = 0; i < 20; i += 1) {
        const { item, resource } = await container.items.create({ id: `i${i}`, pk: `p${i}`, n: 0 });
        assert.equal((await item.read()).resource.n, 0);
        await item.replace({ ...resource, n: 1 });
        assert.equal((await item.read()).resource.n, 1);
      }
      assert.equal((await container.items.readAll().fetchAll()).resources.length, 20);
    });

    test("queries, batches, patches and deletes", async () => {
      const pk = uniqueName("pk");
      await container.items.batch([{ operationType: "Create", resourceBody: { id: "a", pk, n: 1 } }], pk);
      await container.item("a", pk).patch([{ op: "incr", path: "/n", value: 1 }]);
      const { resources } = await container.items.query("SELECT * FROM c WHERE c.n = 2", { partitionKey: pk }).fetchAll();
      assert.deepEqual(ids(resources), ["a"]);
      await container.item("a", pk).delete();
      assert.equal((await container.item("a", pk).read()).statusCode, 404);
    });

    test("goes on after its container was created again", async () => {
      const { database } = container;
      const first = await newContainer(database, { id: "again" });
      for (let i = 0; i < 10; i += 1) await first.items.create({ id: `i${i}`, pk: "p" });
      await first.delete();
      const second = await newContainer(database, { id: "again" });
      await second.items.create({ id: "x", pk: "p" });
      assert.equal((await second.item("x", "p").read()).statusCode, 200);
    });
  });
}

describe("session tokens", () => {
  let client;
  let container;
  before(async () => {
    client = connect(node);
    container = await newContainer(await newDatabase(client));
  });
  after(() => client?.dispose());

  const number = (token) => Number(/#(\d+)/.exec(token)[1]);

  test("grow with every write and not with reads", async () => {
    const { item, headers, resource } = await container.items.create({ id: uniqueName("i"), pk: "p" });
    const first = number(headers["x-ms-session-token"]);
    const read = number((await item.read()).headers["x-ms-session-token"]);
    assert.ok(read >= first);
    const second = number((await item.replace(resource)).headers["x-ms-session-token"]);
    assert.ok(second > first);
    const deleted = number((await item.delete()).headers["x-ms-session-token"]);
    assert.ok(deleted > second);
  });

  test("are honoured when they are sent back", async () => {
    const { item, headers } = await container.items.create({ id: uniqueName("i"), pk: "p" });
    const sessionToken = headers["x-ms-session-token"];
    assert.equal((await item.read({ sessionToken })).statusCode, 200);
    assert.ok((await container.items.readAll({ sessionToken }).fetchAll()).resources.length > 0);
  });

  test("ahead of the server: 404 with sub-status 1002", async () => {
    const { resource, headers } = await container.items.create({ id: uniqueName("i"), pk: "p" });
    const ahead = headers["x-ms-session-token"].replace(/#\d+/, "#999999999");
    // With endpoint discovery the SDK would drop the token and ask again.
    const steadfast = connect(node, { connectionPolicy: { enableEndpointDiscovery: false } });
    const item = steadfast.database(container.database.id).container(container.id).item(resource.id, "p");
    const { statusCode, substatus } = await item.read({ sessionToken: ahead });
    steadfast.dispose();
    assert.equal(statusCode, 404);
    assert.equal(substatus, 1002);
  });

  test("that are garbage are refused", async () => {
    const { item } = await container.items.create({ id: uniqueName("i"), pk: "p" });
    await rejects(item.read({ sessionToken: "garbage" }), { code: 400 });
  });

  test("of a range that is not known are ignored", async () => {
    const { item } = await container.items.create({ id: uniqueName("i"), pk: "p" });
    assert.equal((await item.read({ sessionToken: "77:-1#5" })).statusCode, 200);
  });
});

test("a node of its own has every consistency level", async () => {
  const client = connect(node, { consistencyLevel: "Strong" });
  try {
    const database = await connectAndCreate();
    const read = await client.database(database.id).container("c").item("a", "p").read();
    assert.equal(read.resource.id, "a");
  } finally {
    client.dispose();
  }

  async function connectAndCreate() {
    const plain = connect(node);
    const database = await newDatabase(plain);
    const container = await newContainer(database, { id: "c" });
    await container.items.create({ id: "a", pk: "p" });
    plain.dispose();
    return database;
  }
});
