// A shard that splits while the SDK reads it: iterators that were opened before go on after it.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ChangeFeedStartFrom } from "@azure/cosmos";
import { connect, drainChangeFeed, ids, newContainer, newDatabase } from "./support/cosmos.js";
import { startNode } from "./support/node.js";

const COUNT = 120;
const ALL = Array.from({ length: COUNT }, (_, n) => `item ${n}`).sort();

let node;
let client;
let database;
let container;

before(async () => {
  node = await startNode();
  client = connect(node);
  database = await newDatabase(client);
});

after(async () => {
  client?.dispose();
  await node?.stop();
});

/** Asks the node for a split; the ids of the parts. */
async function split(range) {
  const suffix = range === undefined ? "" : `&range=${range}`;
  const answer = await node.order(`split?container=dbs/${database.id}/colls/${container.id}${suffix}`);
  const { ranges, error } = await answer.json();
  assert.equal(answer.status, 200, error);
  return ranges;
}

/** A container with items under many keys, in one range. */
async function fill() {
  container = await newContainer(database);
  const items = Array.from({ length: COUNT }, (_, n) => ({ id: `item ${n}`, pk: `key ${n % 30}`, n, group: n % 4 }));
  const operations = items.map((item) => ({ operationType: "Create", partitionKey: item.pk, resourceBody: item }));
  const made = await container.items.executeBulkOperations(operations);
  assert.ok(made.every(({ response }) => response?.statusCode === 201));
}

async function rest(iterator) {
  const rows = [];
  while (iterator.hasMoreResults()) rows.push(...((await iterator.fetchNext()).resources ?? []));
  return rows;
}

const QUERIES = {
  "SELECT c.id, c.n FROM c": (rows) => assert.deepEqual(ids(rows).sort(), ALL),
  "SELECT c.id, c.n FROM c WHERE c.n >= 0": (rows) => assert.deepEqual(ids(rows).sort(), ALL),
  "SELECT c.id, c.n FROM c ORDER BY c.n": (rows) =>
    assert.deepEqual(
      rows.map(({ n }) => n),
      Array.from({ length: COUNT }, (_, n) => n),
    ),
  "SELECT c.id, c.n FROM c ORDER BY c.n DESC OFFSET 10 LIMIT 60": (rows) =>
    assert.deepEqual(
      rows.map(({ n }) => n),
      Array.from({ length: 60 }, (_, at) => COUNT - 11 - at),
    ),
};

for (const [query, check] of Object.entries(QUERIES)) {
  for (const forceQueryPlan of [false, true]) {
    test(`a query that was begun before two splits ends right${forceQueryPlan ? " by a plan" : ""}: ${query}`, async () => {
      await fill();
      const iterator = container.items.query(query, { maxItemCount: 10, forceQueryPlan });
      const rows = (await iterator.fetchNext()).resources ?? [];
      const [left] = await split();
      rows.push(...((await iterator.fetchNext()).resources ?? []));
      await split(left);
      rows.push(...(await rest(iterator)));
      check(rows);
    });
  }
}

test("a change feed that was begun before two splits has every change", async () => {
  await fill();
  const iterator = container.items.getChangeFeedIterator({
    changeFeedStartFrom: ChangeFeedStartFrom.Beginning(),
    maxItemCount: 10,
  });
  const first = await iterator.readNext();
  const seen = [...first.result];
  const [left, right] = await split();
  seen.push(...(await iterator.readNext()).result);
  await split(right);
  await container.items.upsert({ id: "new", pk: "key 3" });
  const drained = await drainChangeFeed(iterator);
  seen.push(...drained.items);
  assert.deepEqual([...new Set(ids(seen))].sort(), [...ALL, "new"].sort());
  assert.equal(seen.length, COUNT + 1, "nothing comes twice");
  // The token that is left goes on, over one more split.
  await split(left);
  await container.items.upsert({ id: "newer", pk: "key 4" });
  const again = container.items.getChangeFeedIterator({
    changeFeedStartFrom: ChangeFeedStartFrom.Continuation(drained.continuation),
  });
  assert.deepEqual(ids((await drainChangeFeed(again)).items), ["newer"]);
});

test("a client that knows the old range reads and writes on", async () => {
  await fill();
  const other = connect(node);
  const known = other.database(database.id).container(container.id);
  const before = await known.item("item 7", "key 7").read();
  await split();
  const read = await known.item("item 7", "key 7").read();
  assert.deepEqual(read.resource, before.resource);
  await known.items.upsert({ id: "item 7", pk: "key 7", n: -7 });
  assert.equal((await known.item("item 7", "key 7").read()).resource.n, -7);
  const { resources } = await container.readPartitionKeyRanges().fetchAll();
  assert.deepEqual(
    resources.map(({ id, parents }) => [id, parents]),
    [
      ["1", ["0"]],
      ["2", ["0"]],
    ],
  );
  other.dispose();
});
