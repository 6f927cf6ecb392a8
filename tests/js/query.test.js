// One table of queries and rows, asked directly and through query plans, over one range and over several.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { connect, newContainer, newDatabase, pagesOf, rejects, userProperties } from "./support/cosmos.js";
import { startNode } from "./support/node.js";

const { items, cases } = JSON.parse(await readFile(new URL("../queries/cases.json", import.meta.url), "utf8"));

/** What the SDK cannot merge itself. */
const BEYOND_THE_CLIENT = [
  // It wants only values of one type to order by.
  "ORDER BY c.v",
  // Expressions over aggregates.
  "MAX(c.n) -",
  "'top': MAX",
  // The count of distinct rows is no feature that it claims.
  "(SELECT DISTINCT",
  // A distinct null is dropped.
  "DISTINCT VALUE c.g",
];

/** Queries that the SDK resumes with a token of its own; of a JOIN it skips rows twice that it got once. */
const WITH_TOKENS = (query) => !/JOIN|GROUP BY|DISTINCT|OFFSET|COUNT|SUM|AVG|MIN|MAX/.test(query);

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

function userRow(row) {
  return row !== null && typeof row === "object" && !Array.isArray(row) ? userProperties(row) : row;
}

function inOrder(rows) {
  return rows.map((row) => JSON.stringify(row)).sort();
}

function assertRows(found, { query, rows, ordered }) {
  const user = found.map(userRow);
  if (ordered) assert.deepEqual(user, rows, query);
  else {
    const plain = (row) =>
      row !== null && typeof row === "object" && !Array.isArray(row)
        ? Object.fromEntries(Object.entries(row).sort(([a], [b]) => (a < b ? -1 : 1)))
        : row;
    assert.deepEqual(inOrder(user.map(plain)), inOrder(rows.map(plain)), query);
  }
}

for (const throughput of [400, 30_000]) {
  describe(`queries of a container of ${throughput} RU/s`, () => {
    let container;

    before(async () => {
      container = await newContainer(database, { throughput });
      for (const item of items) await container.items.create(item);
    });

    for (const asked of cases) {
      const { query } = asked;
      test(`answered by the server: ${query}`, async () => {
        const { resources } = await container.items.query(query).fetchAll();
        assertRows(resources, asked);
        const pages = await pagesOf(container.items.query(query, { maxItemCount: 2 }));
        assert.ok(pages.every((page) => page.length <= 2));
        assertRows(pages.flat(), asked);
      });

      if (BEYOND_THE_CLIENT.some((part) => query.includes(part))) continue;
      test(`merged by the client: ${query}`, async () => {
        for (const maxItemCount of [1, 3, 100]) {
          const iterator = container.items.query(query, { forceQueryPlan: true, maxItemCount });
          assertRows((await iterator.fetchAll()).resources, asked);
        }
      });

      if (!WITH_TOKENS(query)) continue;
      test(`resumed by the client: ${query}`, async () => {
        const rows = [];
        let continuationToken;
        for (let page = 0; page < 50; page += 1) {
          const options = { enableQueryControl: true, maxItemCount: 2, continuationToken };
          const response = await container.items.query(query, options).fetchNext();
          rows.push(...(response.resources ?? []));
          continuationToken = response.continuationToken;
          if (!continuationToken) break;
        }
        assertRows(rows, asked);
      });
    }

    test("one partition key", async () => {
      const options = { partitionKey: "a", maxItemCount: 1 };
      const ids = await container.items.query("SELECT VALUE c.id FROM c ORDER BY c.n DESC", options).fetchAll();
      assert.deepEqual(ids.resources, ["a3", "a2", "a1"]);
      const count = await container.items.query("SELECT VALUE COUNT(1) FROM c", options).fetchAll();
      assert.deepEqual(count.resources, [3]);
    });

    test("query metrics are understood", async () => {
      const options = { populateQueryMetrics: true, maxItemCount: 100 };
      const iterator = container.items.query("SELECT * FROM c WHERE c.n > 7", options);
      const { resources, headers } = await iterator.fetchNext();
      assert.equal(resources.length, 3);
      const text = headers["x-ms-documentdb-query-metrics"];
      const [metrics] = Object.values(text);
      assert.equal(metrics.outputDocumentCount, 3);
      assert.ok(metrics.retrievedDocumentCount >= 3);
    });

    test("index metrics are understood", async () => {
      const iterator = container.items.query("SELECT * FROM c WHERE c.n > 7", { populateIndexMetrics: true });
      const { indexMetrics } = await iterator.fetchNext();
      assert.ok(Array.isArray(JSON.parse(decodeURIComponent(indexMetrics)).UtilizedSingleIndexes));
    });
  });
}

describe("refused queries", () => {
  let container;

  before(async () => {
    container = await newContainer(database);
    await container.items.create({ id: "1", pk: "a" });
  });

  for (const [query, message] of [
    ["SELECT * FROM", /SC1001/],
    ["SELEC * FROM c", /Syntax error, incorrect syntax near 'SELEC'/],
    ["SELECT NOPE(c.x) FROM c", /SC2005/],
    ["SELECT * FROM c WHERE c.x = @unknown", /@unknown/],
    ["SELECT VALUE d.x FROM c", /SC2001/],
  ]) {
    test(query, async () => {
      for (const forceQueryPlan of [false, true]) {
        const asked = container.items.query(query, { forceQueryPlan }).fetchAll();
        await rejects(asked, { code: 400, message });
      }
    });
  }

  test("a token of another query", async () => {
    for (const id of ["2", "3"]) await container.items.create({ id, pk: "a" });
    const first = await container.items.query("SELECT * FROM c", { maxItemCount: 1 }).fetchNext();
    const options = { maxItemCount: 1, continuationToken: first.continuationToken };
    await rejects(container.items.query("SELECT c.id FROM c", options).fetchNext(), {
      code: 400,
      message: /Invalid Continuation Token/,
    });
  });
});
