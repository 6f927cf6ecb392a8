// Time to live as an application sees it. The tests run at the same time, so that their waits overlap.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { ChangeFeedStartFrom } from "@azure/cosmos";
import { connect, drainChangeFeed, ids, newContainer, newDatabase, rejects, uniqueName } from "./support/cosmos.js";
import { deadlineMs, expiresExactly, isLive, passed } from "./support/expiry.js";
import { startNode } from "./support/node.js";

const LONG = 1_000;

let node;
let client;
let database;

before(async () => {
  node = await startNode();
  client = connect(node);
  database = await newDatabase(client);
});

after(async () => {
  client?.dispose();
  await node?.stop();
});

const body = (rest = {}) => ({ id: uniqueName("item"), pk: "p", ...rest });
const create = async (container, rest) => (await container.items.create(body(rest))).resource;

describe("the matrix of container and item", { concurrency: true }, () => {
  const n = 3;
  const containers = { off: {}, "-1": { defaultTtl: -1 }, n: { defaultTtl: n } };
  const items = { absent: {}, "-1": { ttl: -1 }, n: { ttl: n } };
  const expires = { "-1/n": true, "n/absent": true, "n/n": true };

  for (const [d, definition] of Object.entries(containers)) {
    for (const [t, rest] of Object.entries(items)) {
      const gone = expires[`${d}/${t}`] === true;
      test(`container ${d}, item ${t}: ${gone ? "expires" : "stays"}`, async () => {
        const container = await newContainer(database, { ...definition });
        const item = await create(container, rest);
        assert.equal(item.ttl, rest.ttl, "the item comes back as it was sent");
        if (gone) {
          await expiresExactly(container, item, n);
        } else {
          await passed(deadlineMs(item, n + 1));
          assert.ok(await isLive(container, item));
        }
        const listed = ids((await container.items.readAll().fetchAll()).resources);
        assert.deepEqual(listed, gone ? [] : [item.id]);
      });
    }
  }
});

describe("the item's own ttl", { concurrency: true }, () => {
  test("shorter than the default wins", async () => {
    const container = await newContainer(database, { defaultTtl: LONG });
    const item = await create(container, { ttl: 2 });
    await expiresExactly(container, item, 2);
  });

  test("longer than the default wins", async () => {
    const container = await newContainer(database, { defaultTtl: 1 });
    const item = await create(container, { ttl: 3 });
    await expiresExactly(container, item, 3);
  });

  test("of one second expires within the next two", async () => {
    const container = await newContainer(database, { defaultTtl: -1 });
    const item = await create(container, { ttl: 1 });
    await expiresExactly(container, item, 1);
  });

  test("may be as long as 2147483647", async () => {
    const container = await newContainer(database, { defaultTtl: 1 });
    const item = await create(container, { ttl: 2147483647 });
    await passed(deadlineMs(item, 3));
    assert.ok(await isLive(container, item));
  });

  test("is a whole number whatever its notation", async () => {
    const container = await newContainer(database, { defaultTtl: -1 });
    const item = await create(container, { ttl: 2.0 });
    await expiresExactly(container, item, 2);
  });

  for (const [name, ttl] of Object.entries({
    0: 0,
    "-2": -2,
    "-10": -10,
    1.5: 1.5,
    null: null,
    text: "60",
    true: true,
    "an object": {},
    "a list": [60],
    2147483648: 2147483648,
    "1e20": 1e20,
  })) {
    for (const defaultTtl of [undefined, -1, LONG]) {
      test(`${name} is refused on create, upsert and replace (default ${defaultTtl})`, async () => {
        const container = await newContainer(database, defaultTtl === undefined ? {} : { defaultTtl });
        const good = await create(container);
        const quoted = typeof ttl === "object" ? undefined : new RegExp(String(ttl).replace(/[.+]/g, "\\$&"), "i");
        const message = name === "1e20" ? undefined : quoted;
        await rejects(container.items.create(body({ ttl })), { code: 400, substatus: 0, message });
        await rejects(container.items.upsert(body({ ttl })), { code: 400, message });
        await rejects(container.item(good.id, "p").replace({ ...good, ttl }), { code: 400, message });
        assert.deepEqual(ids((await container.items.readAll().fetchAll()).resources), [good.id]);
      });
    }
  }
});

describe("an expired item", { concurrency: true }, () => {
  /** A container with an item `stays` and an expired item `gone`. */
  async function withExpired(definition = {}, rest = {}) {
    const container = await newContainer(database, { defaultTtl: 1, ...definition });
    await container.items.create({ id: "stays", pk: "p", ttl: -1, email: "stays", n: 1 });
    const { resource: gone } = await container.items.create({ id: "gone", pk: "p", email: "gone", n: 1, ...rest });
    await passed(deadlineMs(gone, 1));
    return { container, gone, item: container.item("gone", "p") };
  }

  test("is not read, replaced, patched or deleted", async () => {
    const { item, gone } = await withExpired();
    assert.equal((await item.read()).statusCode, 404);
    await rejects(item.replace(gone), { code: 404, substatus: 0 });
    await rejects(item.patch([{ op: "set", path: "/n", value: 2 }]), { code: 404 });
    await rejects(item.delete(), { code: 404 });
    assert.equal((await item.read()).statusCode, 404);
  });

  test("gives 404, not 412, to a conditional write", async () => {
    const { item, gone } = await withExpired();
    const accessCondition = { type: "IfMatch", condition: gone._etag };
    await rejects(item.replace(gone, { accessCondition }), { code: 404 });
    await rejects(item.delete({ accessCondition: { type: "IfMatch", condition: '"other"' } }), { code: 404 });
  });

  test("is in no list, query, count or change feed", async () => {
    const { container } = await withExpired();
    assert.deepEqual(ids((await container.items.readAll().fetchAll()).resources), ["stays"]);
    assert.deepEqual(ids((await container.items.readAll({ partitionKey: "p" }).fetchAll()).resources), ["stays"]);
    const query = (text) => container.items.query(text).fetchAll();
    assert.deepEqual((await query("SELECT VALUE c.id FROM c WHERE c.n = 1")).resources, ["stays"]);
    assert.deepEqual((await query("SELECT VALUE COUNT(1) FROM c")).resources, [1]);
    const changeFeedStartFrom = ChangeFeedStartFrom.Beginning();
    const { items } = await drainChangeFeed(container.items.getChangeFeedIterator({ changeFeedStartFrom }));
    assert.deepEqual(ids(items), ["stays"]);
  });

  test("leaves its id to a create", async () => {
    const { container, gone } = await withExpired();
    const again = await container.items.create({ id: "gone", pk: "p", ttl: -1, n: 2 });
    assert.equal(again.statusCode, 201);
    assert.notEqual(again.resource._rid, gone._rid);
    assert.equal((await container.item("gone", "p").read()).resource.n, 2);
  });

  test("leaves its id to an upsert, which creates", async () => {
    const { container } = await withExpired();
    assert.equal((await container.items.upsert({ id: "gone", pk: "p", ttl: -1 })).statusCode, 201);
  });

  test("leaves its unique keys to others", async () => {
    const { container } = await withExpired({ uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }] } });
    assert.equal((await container.items.create(body({ email: "gone" }))).statusCode, 201);
    await rejects(container.items.create(body({ email: "stays" })), { code: 409 });
  });

  test("is not there for a batch", async () => {
    const { container } = await withExpired();
    const response = await container.items.batch(
      [
        { operationType: "Create", resourceBody: { id: "gone", pk: "p", ttl: -1 } },
        { operationType: "Read", id: "gone" },
      ],
      "p",
    );
    assert.deepEqual(
      response.result.map(({ statusCode }) => statusCode),
      [201, 200],
    );
    const { container: other } = await withExpired();
    const failed = await other.items.batch([{ operationType: "Delete", id: "gone" }], "p");
    assert.deepEqual(
      failed.result.map(({ statusCode }) => statusCode),
      [404],
    );
  });

  test("is not there for bulk", async () => {
    const { container } = await withExpired();
    const results = await container.items.bulk([
      { operationType: "Read", id: "gone", partitionKey: "p" },
      { operationType: "Upsert", resourceBody: { id: "gone", pk: "p", ttl: -1 }, partitionKey: "p" },
    ]);
    assert.deepEqual(
      results.map(({ statusCode }) => statusCode),
      [404, 201],
    );
  });

  test("does not come back on a page that was begun before it expired", async () => {
    const container = await newContainer(database, { defaultTtl: -1 });
    const dying = [];
    for (let i = 0; i < 10; i += 1) dying.push(await create(container, { ttl: 1 }));
    await create(container, { id: "stays" });
    const iterator = container.items.readAll({ maxItemCount: 2 });
    await iterator.fetchNext();
    await passed(...dying.map((item) => deadlineMs(item, 1)));
    const later = [];
    while (iterator.hasMoreResults()) later.push(...ids((await iterator.fetchNext()).resources ?? []));
    assert.deepEqual(
      later.filter((id) => id !== "stays"),
      [],
    );
  });
});

describe("the countdown", { concurrency: true }, () => {
  const ttl = 3;
  const rewrites = {
    replace: async (container, item) => (await container.item(item.id, "p").replace(item)).resource,
    upsert: async (container, item) => (await container.items.upsert(item)).resource,
    patch: async (container, item) =>
      (await container.item(item.id, "p").patch([{ op: "set", path: "/n", value: 1 }])).resource,
    "a batch": async (container, item) => {
      const operation = { operationType: "Upsert", resourceBody: { id: item.id, pk: "p" } };
      return (await container.items.batch([operation], "p")).result[0].resourceBody;
    },
  };
  for (const [name, rewrite] of Object.entries(rewrites)) {
    test(`starts again with ${name}`, async () => {
      const container = await newContainer(database, { defaultTtl: ttl });
      const item = await create(container);
      await passed(deadlineMs(item, 2));
      const { _ts } = await rewrite(container, item);
      assert.ok(_ts > item._ts);
      await passed(deadlineMs(item, ttl));
      assert.ok(await isLive(container, item), "the old deadline means nothing any more");
      await expiresExactly(container, { ...item, _ts }, ttl);
    });
  }

  test("does not start again with a read", async () => {
    const container = await newContainer(database, { defaultTtl: 2 });
    const item = await create(container);
    await expiresExactly(container, item, 2);
  });

  test("is shortened by a patch of ttl", async () => {
    const container = await newContainer(database, { defaultTtl: -1 });
    const item = await create(container, { ttl: LONG });
    const { resource } = await container.item(item.id, "p").patch([{ op: "set", path: "/ttl", value: 1 }]);
    await expiresExactly(container, resource, 1);
  });

  test("goes back to the default when ttl is removed", async () => {
    const container = await newContainer(database, { defaultTtl: 2 });
    const kept = await create(container, { ttl: -1 });
    const short = await create(container, { ttl: LONG });
    const { resource } = await container.item(short.id, "p").patch([{ op: "remove", path: "/ttl" }]);
    const { ttl: _, ...without } = kept;
    const { resource: replaced } = await container.item(kept.id, "p").replace(without);
    await Promise.all([expiresExactly(container, resource, 2), expiresExactly(container, replaced, 2)]);
  });

  test("is stopped by ttl -1", async () => {
    const container = await newContainer(database, { defaultTtl: 2 });
    const item = await create(container);
    await container.item(item.id, "p").patch([{ op: "add", path: "/ttl", value: -1 }]);
    await passed(deadlineMs(item, 4));
    assert.ok(await isLive(container, item));
  });
});

test("thousands that fall due together are all gone at their second", async () => {
  const container = await newContainer(database, { defaultTtl: 4, throughput: 20_000 });
  const operations = Array.from({ length: 2_000 }, (_, i) => ({
    operationType: "Create",
    partitionKey: `p${i % 20}`,
    resourceBody: { id: `i${i}`, pk: `p${i % 20}`, ...(i % 4 === 0 ? { ttl: -1 } : {}) },
  }));
  const results = await container.items.executeBulkOperations(operations);
  const last = Math.max(...results.map(({ response }) => response.resourceBody._ts));
  await passed((last + 4) * 1000);
  assert.deepEqual((await container.items.query("SELECT VALUE COUNT(1) FROM c").fetchAll()).resources, [500]);
  const { resources } = await container.items.readAll({ maxItemCount: 1000 }).fetchAll();
  assert.equal(resources.length, 500);
  assert.ok(resources.every(({ ttl }) => ttl === -1));
});
