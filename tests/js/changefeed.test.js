import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ChangeFeedStartFrom } from "@azure/cosmos";
import { connect, drainChangeFeed, ids, newContainer, newDatabase, rejects, uniqueName } from "./support/cosmos.js";
import { startNode } from "./support/node.js";

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

const feed = (container, changeFeedStartFrom, options = {}) =>
  container.items.getChangeFeedIterator({ changeFeedStartFrom, ...options });
const fromBeginning = (container, scope, options) => feed(container, ChangeFeedStartFrom.Beginning(scope), options);

async function secondAfter(seconds) {
  await sleep(Math.max(0, (seconds + 1) * 1000 - Date.now()) + 20);
}

describe("the change feed", { concurrency: true }, () => {
  for (const throughput of [400, 30_000]) {
    test(`of ${throughput} RU/s gives every item once at its latest version`, async () => {
      const container = await newContainer(database, { throughput });
      for (let i = 0; i < 30; i += 1) await container.items.create({ id: `i${i}`, pk: `p${i % 6}`, version: 1 });
      await container.item("i3", "p3").replace({ id: "i3", pk: "p3", version: 2 });
      await container.item("i4", "p4").patch([{ op: "incr", path: "/version", value: 1 }]);
      await container.items.upsert({ id: "i5", pk: "p5", version: 2 });
      await container.item("i6", "p0").delete();
      const { items } = await drainChangeFeed(fromBeginning(container, undefined, { maxItemCount: 4 }));
      const seen = ids(items);
      assert.equal(new Set(seen).size, seen.length);
      assert.equal(seen.length, 29);
      assert.ok(!seen.includes("i6"));
      for (const id of ["i3", "i4", "i5"]) assert.equal(items.find((item) => item.id === id).version, 2);
      for (const item of items) assert.ok(Number.isInteger(item._lsn));
    });
  }

  test("of one partition key is in the order of its changes", async () => {
    const container = await newContainer(database, { throughput: 30_000 });
    for (let i = 0; i < 12; i += 1) await container.items.create({ id: `i${i}`, pk: i % 2 ? "odd" : "even" });
    await container.items.upsert({ id: "i1", pk: "odd", changed: true });
    const { items } = await drainChangeFeed(fromBeginning(container, "odd", { maxItemCount: 2 }));
    assert.deepEqual(ids(items), ["i3", "i5", "i7", "i9", "i11", "i1"]);
    const sequence = items.map(({ _lsn }) => _lsn);
    assert.deepEqual(
      sequence,
      [...sequence].sort((a, b) => a - b),
    );
  });

  test("of the feed ranges adds up to that of the container", async () => {
    const container = await newContainer(database, { throughput: 40_000 });
    const expected = [];
    for (let i = 0; i < 40; i += 1) {
      await container.items.create({ id: `i${i}`, pk: `p${i}` });
      expected.push(`i${i}`);
    }
    const ranges = await container.getFeedRanges();
    assert.equal(ranges.length, 4);
    const parts = await Promise.all(ranges.map((range) => drainChangeFeed(fromBeginning(container, range))));
    assert.ok(parts.filter(({ items }) => items.length > 0).length > 1, "the items lie on more than one shard");
    assert.deepEqual(ids(parts.flatMap(({ items }) => items)).sort(), expected.sort());
  });

  test("pages hold at most what was asked for", async () => {
    const container = await newContainer(database);
    for (let i = 0; i < 7; i += 1) await container.items.create({ id: `i${i}`, pk: "p" });
    const iterator = fromBeginning(container, undefined, { maxItemCount: 3 });
    const sizes = [];
    for (;;) {
      const response = await iterator.readNext();
      if (response.statusCode === 304) break;
      sizes.push(response.result.length);
    }
    assert.deepEqual(sizes, [3, 3, 1]);
  });

  test("of an empty container says that nothing is new", async () => {
    const container = await newContainer(database);
    const response = await fromBeginning(container).readNext();
    assert.equal(response.statusCode, 304);
    assert.ok(response.continuationToken);
  });

  test("goes on from where it stopped, in the same and in another iterator", async () => {
    const container = await newContainer(database, { throughput: 20_000 });
    await container.items.create({ id: "a", pk: "1" });
    const iterator = fromBeginning(container);
    const first = await drainChangeFeed(iterator);
    assert.deepEqual(ids(first.items), ["a"]);

    await container.items.create({ id: "b", pk: "2" });
    assert.deepEqual(ids((await drainChangeFeed(iterator)).items), ["b"]);

    const resumed = feed(container, ChangeFeedStartFrom.Continuation(first.continuation));
    assert.deepEqual(ids((await drainChangeFeed(resumed)).items), ["b"]);
  });

  test("of a partition key goes on from its continuation", async () => {
    const container = await newContainer(database);
    for (const id of ["a", "b", "c"]) await container.items.create({ id, pk: "p" });
    const page = await fromBeginning(container, "p", { maxItemCount: 2 }).readNext();
    assert.deepEqual(ids(page.result), ["a", "b"]);
    const resumed = feed(container, ChangeFeedStartFrom.Continuation(page.continuationToken));
    assert.deepEqual(ids((await drainChangeFeed(resumed)).items), ["c"]);
  });

  test("from now shows only what comes later", async () => {
    const container = await newContainer(database, { throughput: 20_000 });
    for (let i = 0; i < 5; i += 1) await container.items.create({ id: `old${i}`, pk: `p${i}` });
    const iterator = feed(container, ChangeFeedStartFrom.Now());
    assert.equal((await iterator.readNext()).statusCode, 304);
    await container.items.create({ id: "new", pk: "p1" });
    assert.deepEqual(ids((await drainChangeFeed(iterator)).items), ["new"]);
  });

  test("from now of one partition key", async () => {
    const container = await newContainer(database);
    await container.items.create({ id: "old", pk: "p" });
    const iterator = feed(container, ChangeFeedStartFrom.Now("p"));
    assert.equal((await iterator.readNext()).statusCode, 304);
    await container.items.create({ id: "other", pk: "q" });
    await container.items.create({ id: "new", pk: "p" });
    assert.deepEqual(ids((await drainChangeFeed(iterator)).items), ["new"]);
  });

  test("from a time shows what changed since", async () => {
    const container = await newContainer(database, { throughput: 20_000 });
    const { resource: old } = await container.items.create({ id: "old", pk: "p" });
    await container.items.create({ id: "changed", pk: "q" });
    await secondAfter(old._ts + 1);
    await container.items.create({ id: "new", pk: "r" });
    await container.items.upsert({ id: "changed", pk: "q", again: true });
    const since = new Date((old._ts + 1) * 1000);
    const { items } = await drainChangeFeed(feed(container, ChangeFeedStartFrom.Time(since)));
    assert.deepEqual(ids(items).sort(), ["changed", "new"]);
    const ofKey = await drainChangeFeed(feed(container, ChangeFeedStartFrom.Time(since, "r")));
    assert.deepEqual(ids(ofKey.items), ["new"]);
    const future = new Date(Date.now() + 3_600_000);
    assert.deepEqual((await drainChangeFeed(feed(container, ChangeFeedStartFrom.Time(future)))).items, []);
  });

  test("does not show expired items", async () => {
    const container = await newContainer(database, { defaultTtl: -1 });
    await container.items.create({ id: "stays", pk: "p" });
    const { resource } = await container.items.create({ id: "goes", pk: "p", ttl: 1 });
    await secondAfter(resource._ts);
    assert.deepEqual(ids((await drainChangeFeed(fromBeginning(container))).items), ["stays"]);
    assert.deepEqual(ids((await drainChangeFeed(fromBeginning(container, "p"))).items), ["stays"]);
  });

  test("shows an item that was deleted and created again once", async () => {
    const container = await newContainer(database);
    const { item } = await container.items.create({ id: "a", pk: "p", n: 1 });
    await container.items.create({ id: "b", pk: "p" });
    await item.delete();
    await container.items.create({ id: "a", pk: "p", n: 2 });
    const { items } = await drainChangeFeed(fromBeginning(container));
    assert.deepEqual(
      items.map(({ id, n }) => [id, n]),
      [
        ["b", undefined],
        ["a", 2],
      ],
    );
  });

  test("shows a batch as a whole", async () => {
    const container = await newContainer(database);
    const operations = ["a", "b", "c"].map((id) => ({ operationType: "Create", resourceBody: { id, pk: "p" } }));
    await container.items.batch(operations, "p");
    const { items } = await drainChangeFeed(fromBeginning(container));
    assert.deepEqual(ids(items).sort(), ["a", "b", "c"]);
    assert.equal(new Set(items.map(({ _lsn }) => _lsn)).size, 1, "a transaction is one change");
  });

  test("of hierarchical keys by prefix", async () => {
    const container = await newContainer(database, {
      partitionKey: { paths: ["/t", "/u"], kind: "MultiHash", version: 2 },
      throughput: 20_000,
    });
    for (const t of ["T", "S"]) for (const u of [1, 2]) await container.items.create({ id: `${t}${u}`, t, u });
    assert.deepEqual(ids((await drainChangeFeed(fromBeginning(container, ["T"]))).items).sort(), ["T1", "T2"]);
    assert.deepEqual(ids((await drainChangeFeed(fromBeginning(container, ["S", 2]))).items), ["S2"]);
  });

  test("refuses a continuation of a container that was created again", async () => {
    const id = uniqueName("again");
    const container = await newContainer(database, { id });
    await container.items.create({ id: "a", pk: "p" });
    const { continuation } = await drainChangeFeed(fromBeginning(container));
    await container.delete();
    const again = await newContainer(database, { id });
    await assert.rejects(feed(again, ChangeFeedStartFrom.Continuation(continuation)).readNext(), /continuation/);
  });

  test("the older readChangeFeed call works too", async () => {
    const container = await newContainer(database);
    for (const id of ["a", "b"]) await container.items.create({ id, pk: "p" });
    const iterator = container.items.changeFeed("p", { startFromBeginning: true });
    assert.deepEqual(ids((await iterator.fetchNext()).result), ["a", "b"]);
  });

  test("of a container that is not there: 404", async () => {
    await assert.rejects(fromBeginning(database.container("missing")).readNext(), (error) => error.code === 404);
    await rejects(database.container("missing").read(), { code: 404 });
  });
});
