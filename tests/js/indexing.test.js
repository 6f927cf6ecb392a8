// Indexes as the JavaScript SDK sees them: leave to scan, computed properties, places, metrics, progress.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { connect, ids, newContainer, newDatabase, rejects } from "./support/cosmos.js";
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

async function rows(container, query, options) {
  return (await container.items.query(query, options).fetchAll()).resources;
}

/** What the index metrics say was used and would help. */
async function metrics(container, query) {
  const { indexMetrics } = await container.items.query(query, { populateIndexMetrics: true }).fetchNext();
  const decoded = JSON.parse(decodeURIComponent(indexMetrics));
  const specs = (entries) => entries.map((entry) => entry.IndexSpec ?? entry.IndexSpecs);
  return Object.fromEntries(Object.entries(decoded).map(([kind, entries]) => [kind, specs(entries)]));
}

test("a container without an index is scanned only with leave", async () => {
  const indexingPolicy = { indexingMode: "none", automatic: false };
  const container = await newContainer(database, { indexingPolicy });
  for (const id of ["1", "2", "3"]) await container.items.create({ id, pk: "a", n: Number(id) });
  assert.equal((await container.item("2", "a").read()).resource.n, 2);
  // This SDK reads all items by a query.
  const all = await container.items.readAll({ enableScanInQuery: true }).fetchAll();
  assert.equal(all.resources.length, 3);
  const query = "SELECT * FROM c WHERE c.n > 1";
  for (const options of [{}, { partitionKey: "a" }, { enableScanInQuery: false }]) {
    await rejects(rows(container, query, options), { code: 400, message: /allow scan/ });
  }
  assert.deepEqual(ids(await rows(container, query, { enableScanInQuery: true })).sort(), ["2", "3"]);
  const one = await rows(container, query, { enableScanInQuery: true, partitionKey: "a" });
  assert.deepEqual(ids(one).sort(), ["2", "3"]);
});

test("time to live and the mode none exclude each other, from either side", async () => {
  const none = { indexingMode: "none", automatic: false };
  const message = /Indexing mode value cannot be 'none'/;
  await rejects(newContainer(database, { indexingPolicy: none, defaultTtl: 10 }), { code: 400, message });
  const container = await newContainer(database, { indexingPolicy: none });
  const { resource } = await container.read();
  await rejects(container.replace({ ...resource, defaultTtl: 10 }), { code: 400, message });
});

test("a lazy container tells how far its index is", async () => {
  const container = await newContainer(database, { indexingPolicy: { indexingMode: "lazy" } });
  for (let n = 0; n < 20; n += 1) await container.items.create({ id: String(n), pk: "a", n });
  const progress = async () => {
    const { headers } = await container.read({ populateQuotaInfo: true });
    return headers["x-ms-documentdb-collection-lazy-indexing-progress"];
  };
  assert.notEqual(await progress(), undefined);
  for (let look = 0; look < 500 && String(await progress()) !== "100"; look += 1) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.deepEqual(await rows(container, "SELECT VALUE COUNT(1) FROM c WHERE c.n >= 0"), [20]);
});

describe("computed properties", () => {
  const computedProperties = [{ name: "lower", query: "SELECT VALUE LOWER(c.name) FROM c" }];
  for (const [kind, indexingPolicy] of [
    ["not indexed", undefined],
    ["indexed", { includedPaths: [{ path: "/*" }, { path: "/lower/?" }] }],
  ]) {
    test(kind, async () => {
      const container = await newContainer(database, { computedProperties, indexingPolicy, throughput: 30_000 });
      for (const [at, name] of ["Zoe", "ada", "BOB"].entries()) {
        await container.items.create({ id: String(at), pk: `p${at}`, name });
      }
      assert.deepEqual(ids(await rows(container, "SELECT * FROM c WHERE c.lower = 'bob'")), ["2"]);
      const options = { forceQueryPlan: true };
      const ordered = await rows(container, "SELECT c.id, c.lower FROM c ORDER BY c.lower", options);
      assert.deepEqual(ordered.map((row) => row.lower), ["ada", "bob", "zoe"]);
      const everything = await rows(container, "SELECT * FROM c");
      assert.ok(everything.every((item) => !("lower" in item)));
      const used = await metrics(container, "SELECT * FROM c WHERE c.lower = 'bob'");
      assert.deepEqual(used.UtilizedSingleIndexes, kind === "indexed" ? ["/lower/?"] : []);
      // Another meaning of the name: the index follows.
      const { resource } = await container.read();
      const changed = [{ name: "lower", query: "SELECT VALUE CONCAT(LOWER(c.name), '!') FROM c" }];
      await container.replace({ ...resource, computedProperties: changed });
      assert.deepEqual(await rows(container, "SELECT * FROM c WHERE c.lower = 'bob'"), []);
      assert.deepEqual(ids(await rows(container, "SELECT * FROM c WHERE c.lower = 'bob!'")), ["2"]);
    });
  }
});

test("index metrics name what was used and what would help", async () => {
  const indexingPolicy = {
    includedPaths: [{ path: "/*" }],
    excludedPaths: [{ path: "/hidden/?" }],
    compositeIndexes: [
      [
        { path: "/g", order: "ascending" },
        { path: "/n", order: "descending" },
      ],
    ],
    spatialIndexes: [{ path: "/place/*", types: ["Point"] }],
  };
  const container = await newContainer(database, { indexingPolicy });
  for (let n = 0; n < 40; n += 1) {
    const place = { type: "Point", coordinates: [n, 10] };
    await container.items.create({ id: String(n), pk: "a", n, g: n % 4, hidden: n, place });
  }
  const near = 'ST_DISTANCE(c.place, {"type": "Point", "coordinates": [7, 10]}) < 1000';
  for (const [query, kind, expected] of [
    ["SELECT * FROM c WHERE c.n = 3", "UtilizedSingleIndexes", ["/n/?"]],
    [`SELECT * FROM c WHERE ${near}`, "UtilizedSingleIndexes", ["/place/*"]],
    ["SELECT * FROM c WHERE c.hidden = 3", "PotentialSingleIndexes", ["/hidden/?"]],
    ["SELECT * FROM c ORDER BY c.g, c.n DESC", "UtilizedCompositeIndexes", [["/g ASC", "/n DESC"]]],
    ["SELECT * FROM c WHERE c.n = 3 AND c.id > '2'", "PotentialCompositeIndexes", [["/n ASC", "/id ASC"]]],
  ]) {
    assert.deepEqual((await metrics(container, query))[kind], expected, query);
  }
  assert.deepEqual(ids(await rows(container, `SELECT * FROM c WHERE ${near}`)), ["7"]);
});
