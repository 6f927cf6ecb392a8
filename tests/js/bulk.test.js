import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { PartitionKeyBuilder } from "@azure/cosmos";
import { connect, newContainer, newDatabase } from "./support/cosmos.js";
import { startNode } from "./support/node.js";

const ABSENT = new PartitionKeyBuilder().addNoneValue().build();

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

const create = (pk, id, rest = {}) => ({
  operationType: "Create",
  partitionKey: pk,
  resourceBody: { id, pk, ...rest },
});

// The number of shards must make no difference to a client.
for (const throughput of [400, 40_000]) {
  describe(`bulk on a container of ${throughput} RU/s`, () => {
    let container;
    before(async () => {
      container = await newContainer(database, { throughput });
    });

    test("a bulk that must not go on after an error leaves the rest undone", async () => {
      const operations = [create("s", "1"), create("s", "2", { ttl: -10 }), create("s", "3")];
      const stopped = await container.items.bulk(operations, { continueOnError: false });
      assert.deepEqual(stopped.map((each) => each.statusCode), [201, 400, 424]);
      assert.equal((await container.item("3", "s").read()).statusCode, 404);
    });

    test("executeBulkOperations reports each operation by itself", async () => {
      await container.items.create({ id: "there", pk: "b", n: 1 });
      const results = await container.items.executeBulkOperations([
        create("a", "1", { n: 1 }),
        create("b", "there"),
        { operationType: "Upsert", partitionKey: "c", resourceBody: { id: "2", pk: "c", n: 2 } },
        { operationType: "Read", partitionKey: "b", id: "there" },
        { operationType: "Replace", partitionKey: "b", id: "there", resourceBody: { id: "there", pk: "b", n: 5 } },
        {
          operationType: "Patch",
          partitionKey: "b",
          id: "there",
          resourceBody: { operations: [{ op: "incr", path: "/n", value: 1 }] },
        },
        { operationType: "Read", partitionKey: "nowhere", id: "nothing" },
        { operationType: "Delete", partitionKey: "b", id: "there" },
      ]);
      const codes = results.map(({ response, error }) => response?.statusCode ?? error?.code);
      assert.deepEqual(codes, [201, 409, 201, 200, 200, 200, 404, 204]);
      assert.equal(results[3].response.resourceBody.n, 1);
      assert.equal(results[5].response.resourceBody.n, 6);
      assert.equal((await container.item("there", "b").read()).statusCode, 404);
      assert.equal((await container.item("1", "a").read()).resource.n, 1);
    });

    test("bulk spreads over partitions and keeps the order of the results", async () => {
      const operations = Array.from({ length: 90 }, (_, i) => create(`pk-${i % 30}`, `bulk-${i}`, { i }));
      const results = await container.items.bulk(operations, { continueOnError: true });
      assert.equal(results.length, 90);
      results.forEach((result, i) => {
        assert.equal(result.statusCode, 201);
        assert.equal(result.resourceBody.i, i);
        assert.ok(result.requestCharge > 0);
      });
    });

    test("executeBulkOperations takes thousands", async () => {
      const operations = Array.from({ length: 2_000 }, (_, i) => create(`many-${i % 50}`, `i${i}`, { i, many: true }));
      const results = await container.items.executeBulkOperations(operations);
      assert.equal(results.filter(({ response }) => response?.statusCode === 201).length, 2_000);
      const query = "SELECT VALUE c.i FROM c WHERE c.many = true";
      const { resources } = await container.items.query(query).fetchAll();
      assert.equal(new Set(resources).size, 2_000);
    });

    test("keys of every type land where point reads find them", async () => {
      const keys = ["text", "", "é€😀", 0, -1, 3.25, true, false, null, ABSENT];
      const operations = keys.map((key, i) => ({
        operationType: "Upsert",
        partitionKey: key,
        resourceBody: key === ABSENT ? { id: "typed", i } : { id: "typed", pk: key, i },
      }));
      const results = await container.items.executeBulkOperations(operations);
      assert.deepEqual(
        results.map(({ response, error }) => response?.statusCode ?? error?.code),
        keys.map(() => 201),
      );
      for (const [i, key] of keys.entries()) {
        assert.equal((await container.item("typed", key).read()).resource?.i, i, JSON.stringify(key));
      }
    });
  });
}

test("bulk on hierarchical keys", async () => {
  const container = await newContainer(database, {
    partitionKey: { paths: ["/t", "/u"], kind: "MultiHash", version: 2 },
    throughput: 20_000,
  });
  const operations = Array.from({ length: 20 }, (_, i) => ({
    operationType: "Create",
    partitionKey: [`t${i % 4}`, i],
    resourceBody: { id: `i${i}`, t: `t${i % 4}`, u: i },
  }));
  const results = await container.items.executeBulkOperations(operations);
  assert.ok(results.every(({ response }) => response?.statusCode === 201));
  for (let i = 0; i < 20; i += 1) assert.equal((await container.item(`i${i}`, [`t${i % 4}`, i]).read()).statusCode, 200);
});
