import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { connect, ids, newContainer, newDatabase, rejects, uniqueName } from "./support/cosmos.js";
import { startNode } from "./support/node.js";

let node;
let client;

before(async () => {
  node = await startNode();
  client = connect(node);
});

after(async () => {
  client?.dispose();
  await node?.stop();
});

describe("databases", () => {
  test("are created, read, listed and deleted", async () => {
    const id = uniqueName("db");
    const created = await client.databases.create({ id });
    assert.equal(created.statusCode, 201);
    assert.equal(created.resource.id, id);

    const read = await created.database.read();
    assert.equal(read.statusCode, 200);
    assert.deepEqual(read.resource, created.resource);

    const { resources } = await client.databases.readAll().fetchAll();
    assert.ok(ids(resources).includes(id));

    const deleted = await created.database.delete();
    assert.equal(deleted.statusCode, 204);
    await rejects(created.database.read(), { code: 404, substatus: 0 });
    await rejects(created.database.delete(), { code: 404, substatus: 0 });
  });

  test("carry the system properties that the SDKs rely on", async () => {
    const database = await newDatabase(client);
    const { resource } = await database.read();
    assert.equal(Buffer.from(resource._rid.replaceAll("-", "/"), "base64").length, 4);
    assert.equal(resource._self, `dbs/${resource._rid}/`);
    assert.match(resource._etag, /^".+"$/);
    assert.equal(resource._colls, "colls/");
    assert.equal(resource._users, "users/");
    assert.ok(Math.abs(resource._ts - Date.now() / 1000) < 60);
  });

  test("createIfNotExists creates once and then finds", async () => {
    const id = uniqueName("db");
    const first = await client.databases.createIfNotExists({ id });
    const second = await client.databases.createIfNotExists({ id });
    assert.equal(first.statusCode, 201);
    assert.equal(second.statusCode, 200);
    assert.equal(second.resource._rid, first.resource._rid);
  });

  test("a second one with the same id is a conflict", async () => {
    const database = await newDatabase(client);
    await rejects(client.databases.create({ id: database.id }), { code: 409, message: new RegExp(database.id) });
  });

  test("names that differ in case are different databases", async () => {
    const id = uniqueName("Case");
    await client.databases.create({ id });
    assert.equal((await client.databases.create({ id: id.toUpperCase() })).statusCode, 201);
  });

  for (const id of ["colls", "docs", "a b", "plus+sign", "ümläut€", "per%cent", "semi;colon&amp=1", "😀"]) {
    test(`may be named ${JSON.stringify(id)}`, async () => {
      const { database, statusCode } = await client.databases.create({ id });
      assert.equal(statusCode, 201);
      assert.equal((await database.read()).resource.id, id);
      const container = await newContainer(database, { id });
      await container.items.create({ id, pk: id });
      assert.equal((await container.item(id, id).read()).resource.id, id);
      assert.equal((await database.delete()).statusCode, 204);
    });
  }

  test("an id over 255 characters is refused", async () => {
    assert.equal((await client.databases.create({ id: "x".repeat(255) })).statusCode, 201);
    await rejects(client.databases.create({ id: "x".repeat(256) }), { code: 400, message: /less than '255' characters/ });
  });

  test("an empty id is refused", async () => {
    await rejects(client.databases.create({ id: "" }), { code: 400 });
  });

  test("deleting one deletes its containers", async () => {
    const database = await newDatabase(client);
    const container = await newContainer(database);
    await container.items.create({ id: "a", pk: "p" });
    await database.delete();
    await rejects(container.read(), { code: 404 });
    const again = await client.databases.create({ id: database.id });
    assert.deepEqual((await again.database.containers.readAll().fetchAll()).resources, []);
  });

  test("delete honours If-Match", async () => {
    const database = await newDatabase(client);
    const { resource } = await database.read();
    const condition = (value) => ({ accessCondition: { type: "IfMatch", condition: value } });
    await rejects(database.delete(condition('"stale"')), { code: 412 });
    assert.equal((await database.delete(condition(resource._etag))).statusCode, 204);
  });

  test("a query over databases finds one by its id", async () => {
    const database = await newDatabase(client);
    const spec = { query: "SELECT * FROM root r WHERE r.id = @id", parameters: [{ name: "@id", value: database.id }] };
    const { resources } = await client.databases.query(spec).fetchAll();
    assert.deepEqual(ids(resources), [database.id]);
  });

  test("are listed in pages", async () => {
    for (let i = 0; i < 5; i += 1) await newDatabase(client);
    const all = ids((await client.databases.readAll().fetchAll()).resources).sort();
    const iterator = client.databases.readAll({ maxItemCount: 2 });
    const seen = [];
    while (iterator.hasMoreResults()) {
      const { resources } = await iterator.fetchNext();
      assert.ok((resources ?? []).length <= 2);
      seen.push(...ids(resources ?? []));
    }
    assert.deepEqual(seen.sort(), all);
  });
});
