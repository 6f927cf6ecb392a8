import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { PartitionKeyBuilder } from "@azure/cosmos";
import { connect, ids, newContainer, newDatabase, rejects, uniqueName, userProperties } from "./support/cosmos.js";
import { startNode } from "./support/node.js";

const GUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

const ABSENT = new PartitionKeyBuilder().addNoneValue().build();

let node;
let client;
let database;
let container;

before(async () => {
  node = await startNode();
  client = connect(node);
  database = await newDatabase(client);
  container = await newContainer(database);
});

after(async () => {
  client?.dispose();
  await node?.stop();
});

const newId = () => uniqueName("item");

describe("items", () => {
  test("are created and read back as they were sent", async () => {
    const body = {
      id: newId(),
      pk: "p",
      text: 'a "quoted" \\ line\nwith ü, 😀,   and \u0000',
      numbers: [0, -1, 1.5, 1e-7, 123456789012, 1.7976931348623157e308],
      nested: { deep: { deeper: [null, true, false, {}, []] } },
      empty: "",
      "odd key /~.\"'": 1,
    };
    const created = await container.items.create(structuredClone(body));
    assert.equal(created.statusCode, 201);
    assert.deepEqual(userProperties(created.resource), body);
    const read = await container.item(body.id, "p").read();
    assert.equal(read.statusCode, 200);
    assert.deepEqual(read.resource, created.resource);
  });

  test("keep the order of their properties", async () => {
    const id = newId();
    await container.items.create({ zebra: 1, id, apple: 2, pk: "p", mango: 3 });
    const { resource } = await container.item(id, "p").read();
    assert.deepEqual(Object.keys(userProperties(resource)), ["zebra", "id", "apple", "pk", "mango"]);
  });

  test("carry the system properties", async () => {
    const id = newId();
    const { resource } = await container.items.create({ id, pk: "p" });
    const { resource: parent } = await container.read();
    const rid = Buffer.from(resource._rid.replaceAll("-", "/"), "base64");
    assert.equal(rid.length, 16);
    assert.deepEqual(rid.subarray(0, 8), Buffer.from(parent._rid.replaceAll("-", "/"), "base64"));
    assert.equal(resource._self, `${parent._self}docs/${resource._rid}/`);
    assert.match(resource._etag, /^".+"$/);
    assert.equal(resource._attachments, "attachments/");
    assert.ok(Number.isInteger(resource._ts));
    assert.ok(Math.abs(resource._ts - Date.now() / 1000) < 5);
  });

  test("system properties in a body are overwritten, not believed", async () => {
    const body = { id: newId(), pk: "p", _ts: 1, _etag: "mine", _rid: "mine", _self: "mine", _attachments: "mine" };
    const { resource } = await container.items.create(body);
    assert.ok(resource._ts > 1_600_000_000);
    for (const property of ["_etag", "_rid", "_self", "_attachments"]) assert.notEqual(resource[property], "mine");
  });

  test("answers carry charge, activity, session token and etag", async () => {
    const { headers, resource, requestCharge, activityId, etag } = await container.items.create({ id: newId(), pk: "p" });
    assert.ok(requestCharge > 0);
    assert.match(activityId, GUID);
    assert.equal(etag, resource._etag);
    assert.match(headers["x-ms-session-token"], /^\d+:-?\d+#\d+/);
    assert.match(String(headers.lsn), /^\d+$/);
    assert.match(headers["x-ms-documentdb-partitionkeyrangeid"], /^\d+$/);
    assert.equal(headers["x-ms-alt-content-path"], `dbs/${database.id}/colls/${container.id}`);
    assert.equal(headers["x-ms-content-path"], (await container.read()).resource._rid);
  });

  test("a client without an id gets one", async () => {
    const { resource } = await container.items.create({ pk: "p" });
    assert.match(resource.id, GUID);
  });

  test("an item without an id is refused when the client does not add one", async () => {
    const options = { disableAutomaticIdGeneration: true };
    await rejects(container.items.create({ pk: "p" }, options), { code: 400, message: /id/ });
    await rejects(container.items.create({ id: "", pk: "p" }, options), { code: 400 });
  });

  test("a second create with the same id and key is a conflict, under another key it is not", async () => {
    const id = newId();
    await container.items.create({ id, pk: "p" });
    await rejects(container.items.create({ id, pk: "p" }), { code: 409, substatus: 0 });
    assert.equal((await container.items.create({ id, pk: "q" })).statusCode, 201);
  });

  test("upsert creates, then replaces", async () => {
    const id = newId();
    const created = await container.items.upsert({ id, pk: "p", n: 1, gone: true });
    assert.equal(created.statusCode, 201);
    const replaced = await container.items.upsert({ id, pk: "p", n: 2 });
    assert.equal(replaced.statusCode, 200);
    assert.deepEqual(userProperties(replaced.resource), { id, pk: "p", n: 2 });
    assert.equal(replaced.resource._rid, created.resource._rid);
    assert.notEqual(replaced.resource._etag, created.resource._etag);
  });

  test("replace replaces the whole item", async () => {
    const { item, resource } = await container.items.create({ id: newId(), pk: "p", old: 1 });
    const replaced = await item.replace({ id: resource.id, pk: "p", fresh: 2 });
    assert.equal(replaced.statusCode, 200);
    assert.deepEqual(userProperties(replaced.resource), { id: resource.id, pk: "p", fresh: 2 });
    assert.equal(replaced.resource._rid, resource._rid);
    assert.equal(replaced.resource._self, resource._self);
    assert.deepEqual((await item.read()).resource, replaced.resource);
  });

  test("replace of what is not there: 404", async () => {
    const id = newId();
    await rejects(container.item(id, "p").replace({ id, pk: "p" }), { code: 404 });
  });

  test("replace may change the id to a free one", async () => {
    const { item } = await container.items.create({ id: newId(), pk: "p" });
    const { resource: other } = await container.items.create({ id: newId(), pk: "p" });
    await rejects(item.replace({ id: other.id, pk: "p" }), { code: 409 });
    const { resource } = await item.replace({ id: newId(), pk: "p", renamed: true });
    assert.equal((await item.read()).statusCode, 404);
    assert.equal((await container.item(resource.id, "p").read()).resource.renamed, true);
  });

  test("delete removes, once", async () => {
    const { item, resource } = await container.items.create({ id: newId(), pk: "p" });
    const deleted = await item.delete();
    assert.equal(deleted.statusCode, 204);
    assert.equal((await item.read()).statusCode, 404);
    await rejects(item.delete(), { code: 404, substatus: 0 });
    const again = await container.items.create({ id: resource.id, pk: "p" });
    assert.notEqual(again.resource._rid, resource._rid);
  });

  test("a read of what is not there: 404 with its error", async () => {
    const { resource, statusCode, headers } = await container.item("nothing", "p").read();
    assert.equal(statusCode, 404);
    assert.equal(resource, undefined);
    assert.ok(Number(headers["x-ms-request-charge"]) > 0);
  });

  test("in a container that is not there: 404", async () => {
    const missing = database.container("missing");
    await rejects(missing.items.create({ id: "a", pk: "p" }), { code: 404 });
    await rejects(missing.items.readAll().fetchAll(), { code: 404 });
  });

  for (const id of ["a b", "plus+", "per%20cent", "ünïcødé", "日本語", "😀", "'quote'", "tab\tand\nline", "docs", "."]) {
    test(`may have the id ${JSON.stringify(id)}`, async () => {
      const { resource, item } = await container.items.create({ id, pk: "ids" });
      assert.equal(resource.id, id);
      if (id === "." || /[\t\n]|%20/.test(id)) return; // No client can put these into a path unharmed.
      assert.equal((await item.read()).resource?.id, id);
      assert.equal((await item.delete()).statusCode, 204);
    });
  }

  test("an id may have 1023 bytes and no more", async () => {
    const longest = "x".repeat(1023);
    assert.equal((await container.items.create({ id: longest, pk: "p" })).statusCode, 201);
    assert.equal((await container.item(longest, "p").read()).statusCode, 200);
    await rejects(container.items.create({ id: "x".repeat(1024), pk: "p" }), { code: 400, message: /'1024'/ });
    await rejects(container.items.create({ id: "ü".repeat(512), pk: "p" }), { code: 400 });
  });

  test("an item may have 2 MB and no more", async () => {
    const room = 2 * 1024 * 1024 - 200;
    const { item } = await container.items.create({ id: newId(), pk: "big", data: "x".repeat(room) });
    assert.equal((await item.read()).resource.data.length, room);
    await rejects(container.items.create({ id: newId(), pk: "big", data: "x".repeat(room + 400) }), { code: 413 });
  });

  test("nesting may be 128 deep and no more", async () => {
    // The item itself is the first level.
    const nested = (depth) => JSON.parse("[".repeat(depth) + "]".repeat(depth));
    assert.equal((await container.items.create({ id: newId(), pk: "p", nested: nested(127) })).statusCode, 201);
    await rejects(container.items.create({ id: newId(), pk: "p", nested: nested(200) }), { code: 400, message: /128/ });
  });
});

describe("partition keys", () => {
  const values = {
    text: "text",
    "empty text": "",
    "text with quotes": 'a"b\\c',
    "unicode text": "é€😀",
    zero: 0,
    integer: 42,
    negative: -1,
    fraction: 3.25,
    true: true,
    false: false,
    null: null,
  };
  for (const [name, pk] of Object.entries(values)) {
    test(`may be ${name}`, async () => {
      const id = newId();
      const { item } = await container.items.create({ id, pk, n: 1 });
      assert.equal((await item.read()).statusCode, 200);
      assert.equal((await container.item(id, pk).read()).resource.n, 1);
      assert.equal((await container.item(id, pk).replace({ id, pk, n: 2 })).resource.n, 2);
      assert.equal((await container.item(id, "another").read()).statusCode, 404);
      assert.equal((await container.item(id, pk).delete()).statusCode, 204);
    });
  }

  test("may be absent", async () => {
    const id = newId();
    await container.items.create({ id, n: 1 });
    assert.equal((await container.item(id).read()).resource.n, 1);
    assert.equal((await container.item(id, ABSENT).read()).resource.n, 1);
    assert.equal((await container.item(id, null).read()).statusCode, 404);
    assert.equal((await container.item(id).delete()).statusCode, 204);
  });

  test("absent, null, false, 0 and empty text are five partitions", async () => {
    const id = newId();
    for (const body of [{}, { pk: null }, { pk: false }, { pk: 0 }, { pk: "" }]) {
      assert.equal((await container.items.create({ id, ...body })).statusCode, 201);
    }
  });

  test("may lie deep in the item", async () => {
    const deep = await newContainer(database, { partitionKey: { paths: ["/a/b"], version: 2 } });
    const { item } = await deep.items.create({ id: "x", a: { b: "key" } });
    assert.equal((await item.read()).resource.a.b, "key");
    assert.equal((await deep.item("x", "key").read()).statusCode, 200);
  });

  test("version 1 keys find their items on every shard", async () => {
    const sharded = await newContainer(database, {
      partitionKey: { paths: ["/pk"], kind: "Hash", version: 1 },
      throughput: 40_000,
    });
    for (let i = 0; i < 24; i += 1) await sharded.items.create({ id: "x", pk: `key-${i}`, i });
    for (let i = 0; i < 24; i += 1) assert.equal((await sharded.item("x", `key-${i}`).read()).resource?.i, i);
    assert.equal((await sharded.items.readAll().fetchAll()).resources.length, 24);
  });

  test("a key that differs from the item's is refused", async () => {
    const id = newId();
    await container.items.create({ id, pk: "p" });
    await rejects(container.item(id, "p").replace({ id, pk: "q" }), {
      code: 400,
      substatus: 1001,
      message: /doesn't match partition key field values specified in the document/,
    });
  });

});

describe("hierarchical partition keys", () => {
  let tenants;
  before(async () => {
    tenants = await newContainer(database, {
      partitionKey: { paths: ["/tenant", "/user", "/session"], kind: "MultiHash", version: 2 },
      throughput: 20_000,
    });
    for (const tenant of ["T", "S"]) {
      for (const user of ["u1", "u2"]) {
        for (let session = 0; session < 3; session += 1) {
          await tenants.items.create({ id: `${tenant}-${user}-${session}`, tenant, user, session });
        }
      }
    }
  });

  test("items are found by the whole key", async () => {
    const { resource } = await tenants.item("T-u1-2", ["T", "u1", 2]).read();
    assert.equal(resource.session, 2);
    assert.equal((await tenants.item("T-u1-2", ["T", "u2", 2]).read()).statusCode, 404);
  });

  test("a prefix selects the items below it", async () => {
    const below = async (partitionKey) =>
      ids((await tenants.items.readAll({ partitionKey }).fetchAll()).resources).sort();
    assert.deepEqual(await below(["T", "u1"]), ["T-u1-0", "T-u1-1", "T-u1-2"]);
    assert.equal((await below(["T"])).length, 6);
    assert.deepEqual(await below(["S", "u2", 1]), ["S-u2-1"]);
    assert.deepEqual(await below(["nobody"]), []);
  });

  test("a prefix is not enough for a point operation", async () => {
    await rejects(tenants.item("T-u1-0", ["T", "u1"]).replace({ id: "T-u1-0", tenant: "T", user: "u1", session: 0 }), {
      code: 400,
      substatus: 1001,
    });
  });

  test("a level may be null or absent", async () => {
    const { item } = await tenants.items.create({ id: "partial", tenant: "N", user: null });
    assert.equal((await item.read()).statusCode, 200);
    assert.equal((await item.delete()).statusCode, 204);
  });
});

describe("unique keys", () => {
  let unique;
  before(async () => {
    unique = await newContainer(database, {
      uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }, { paths: ["/first", "/last"] }] },
    });
  });

  const person = (pk, email, first, last) => ({ id: newId(), pk, email, first, last });

  test("hold within one partition key", async () => {
    await unique.items.create(person("a", "x@y", "A", "B"));
    await rejects(unique.items.create(person("a", "x@y", "C", "D")), { code: 409 });
    assert.equal((await unique.items.create(person("b", "x@y", "A", "B"))).statusCode, 201);
  });

  test("of several paths collide only when all are equal", async () => {
    await unique.items.create(person("c", "1", "A", "B"));
    assert.equal((await unique.items.create(person("c", "2", "A", "C"))).statusCode, 201);
    await rejects(unique.items.create(person("c", "3", "A", "B")), { code: 409 });
  });

  test("hold for upsert, replace and patch too", async () => {
    const { resource: first } = await unique.items.create(person("d", "1", "A", "A"));
    const { item, resource: second } = await unique.items.create(person("d", "2", "B", "B"));
    await rejects(unique.items.upsert({ ...second, email: "1" }), { code: 409 });
    await rejects(item.replace({ ...second, email: "1" }), { code: 409 });
    await rejects(item.patch([{ op: "set", path: "/email", value: "1" }]), { code: 409 });
    assert.equal((await item.read()).resource.email, "2");
    assert.equal((await unique.items.upsert({ ...first, extra: 1 })).statusCode, 200, "an item does not collide with itself");
  });

  test("an absent value is a value", async () => {
    await unique.items.create({ id: newId(), pk: "e", first: "A", last: "A" });
    await rejects(unique.items.create({ id: newId(), pk: "e", first: "B", last: "B" }), { code: 409 });
  });

  test("numbers compare as numbers, and not with text", async () => {
    await unique.items.create(person("f", 1, "A", "A"));
    await rejects(unique.items.create(person("f", 1.0, "B", "B")), { code: 409 });
    assert.equal((await unique.items.create(person("f", "1", "C", "C"))).statusCode, 201);
  });

  test("are free again after a delete or a change", async () => {
    const { item, resource } = await unique.items.create(person("g", "1", "A", "A"));
    await item.replace({ ...resource, email: "2" });
    const { item: other } = await unique.items.create(person("g", "1", "B", "B"));
    await other.delete();
    assert.equal((await unique.items.create(person("g", "1", "C", "C"))).statusCode, 201);
  });
});

describe("deleting by partition key", () => {
  test("removes the whole partition and nothing else", async () => {
    const own = await newContainer(database);
    for (let i = 0; i < 5; i += 1) {
      await own.items.create({ id: `a${i}`, pk: "a" });
      await own.items.create({ id: `b${i}`, pk: "b" });
    }
    const { statusCode } = await own.deleteAllItemsForPartitionKey("a");
    assert.ok([200, 204].includes(statusCode));
    const left = (await own.items.readAll().fetchAll()).resources;
    assert.deepEqual(ids(left).sort(), ["b0", "b1", "b2", "b3", "b4"]);
  });
});
