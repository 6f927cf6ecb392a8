// The ways in which the SDK hands out the rows of a query, over one range and over several.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { connect, newContainer, newDatabase } from "./support/cosmos.js";
import { startNode } from "./support/node.js";

const COUNT = 60;
const GROUPS = 4;
const ITEMS = Array.from({ length: COUNT }, (_, n) => ({ id: `item ${n}`, pk: `key ${n % 7}`, n, group: n % GROUPS }));

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

/** All rows, taken in the way that the name says. */
const WAYS = {
  fetchAll: async (iterator) => (await iterator.fetchAll()).resources,
  fetchNext: async (iterator) => {
    const rows = [];
    while (iterator.hasMoreResults()) {
      rows.push(...((await iterator.fetchNext()).resources ?? []));
    }
    return rows;
  },
  getAsyncIterator: async (iterator) => {
    const rows = [];
    for await (const { resources } of iterator.getAsyncIterator()) rows.push(...resources);
    return rows;
  },
};

const byGroup = (rows) => [...rows].sort((a, b) => a.group - b.group);
const perGroup = (group) => ITEMS.filter((item) => item.group === group);

const QUERIES = {
  "SELECT VALUE c.n FROM c ORDER BY c.n": (rows) => assert.deepEqual(rows, ITEMS.map(({ n }) => n)),
  "SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 5 LIMIT 10": (rows) =>
    assert.deepEqual(rows, Array.from({ length: 10 }, (_, at) => COUNT - 6 - at)),
  "SELECT VALUE c.n FROM c WHERE c.n < 20": (rows) =>
    assert.deepEqual(rows.sort((a, b) => a - b), Array.from({ length: 20 }, (_, n) => n)),
  "SELECT DISTINCT VALUE c.pk FROM c": (rows) =>
    assert.deepEqual(rows.sort(), Array.from({ length: 7 }, (_, n) => `key ${n}`)),
  "SELECT VALUE SUM(c.n) FROM c": (rows) => assert.deepEqual(rows, [(COUNT * (COUNT - 1)) / 2]),
  "SELECT VALUE AVG(c.n) FROM c WHERE c.group = 1": (rows) => assert.deepEqual(rows, [29]),
  "SELECT c.group, COUNT(1) AS many, MAX(c.n) AS top FROM c GROUP BY c.group": (rows) => {
    const expected = [0, 1, 2, 3].map((group) => ({
      group,
      many: perGroup(group).length,
      top: Math.max(...perGroup(group).map(({ n }) => n)),
    }));
    assert.deepEqual(byGroup(rows), expected);
  },
};

for (const throughput of [400, 30_000]) {
  describe(`iterators over a container of ${throughput} RU/s`, () => {
    let container;
    before(async () => {
      container = await newContainer(database, { throughput });
      const operations = ITEMS.map((item) => ({ operationType: "Create", partitionKey: item.pk, resourceBody: item }));
      const made = await container.items.executeBulkOperations(operations);
      assert.ok(made.every(({ response }) => response?.statusCode === 201));
    });

    for (const [query, check] of Object.entries(QUERIES)) {
      for (const [way, take] of Object.entries(WAYS)) {
        test(`${way}: ${query}`, async () => {
          check(await take(container.items.query(query, { maxItemCount: 7 })));
          check(await take(container.items.query(query, { maxItemCount: 7, forceQueryPlan: true })));
        });
      }
    }

    test("pages hold at most maxItemCount rows", async () => {
      const iterator = container.items.query("SELECT * FROM c ORDER BY c.n", { maxItemCount: 8 });
      const sizes = [];
      while (iterator.hasMoreResults()) sizes.push((await iterator.fetchNext()).resources?.length ?? 0);
      assert.ok(sizes.every((size) => size <= 8), sizes.join());
      assert.equal(sizes.reduce((a, b) => a + b), COUNT);
    });

    test("an iterator that is reset begins again", async () => {
      const iterator = container.items.query("SELECT VALUE c.n FROM c ORDER BY c.n", { maxItemCount: 5 });
      const first = (await iterator.fetchNext()).resources;
      await iterator.fetchNext();
      iterator.reset();
      assert.deepEqual((await iterator.fetchNext()).resources, first);
    });

    test("metrics of all pages add up", async () => {
      const options = { maxItemCount: 10, populateQueryMetrics: true, populateIndexMetrics: true };
      const iterator = container.items.query("SELECT * FROM c WHERE c.n >= 30", options);
      let output = 0;
      while (iterator.hasMoreResults()) {
        const { headers, resources } = await iterator.fetchNext();
        if (resources === undefined) continue;
        const metrics = Object.values(headers["x-ms-documentdb-query-metrics"] ?? {});
        output += metrics.reduce((sum, one) => sum + one.outputDocumentCount, 0);
      }
      assert.equal(output, 30);
    });
  });
}

test("prefixes of hierarchical keys lead to their items only", async () => {
  const container = await newContainer(database, {
    partitionKey: { paths: ["/tenant", "/user", "/session"], kind: "MultiHash", version: 2 },
    throughput: 20_000,
  });
  for (const tenant of ["a", "b"]) {
    for (const user of ["x", "y"]) {
      for (const session of [1, 2, 3]) {
        await container.items.create({ id: `${tenant}${user}${session}`, tenant, user, session });
      }
    }
  }
  const cases = [
    [["a"], 6],
    [["a", "x"], 3],
    [["a", "x", 2], 1],
    [["c"], 0],
  ];
  for (const [partitionKey, count] of cases) {
    const { resources } = await container.items.query("SELECT * FROM c", { partitionKey, maxItemCount: 2 }).fetchAll();
    assert.equal(resources.length, count, partitionKey.join());
    const counted = await container.items.query("SELECT VALUE COUNT(1) FROM c", { partitionKey }).fetchAll();
    assert.deepEqual(counted.resources, [count], partitionKey.join());
  }
});
