import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { connect, ids, newContainer, newDatabase, rejects, uniqueName, userProperties } from "./support/cosmos.js";
import { startNode } from "./support/node.js";

let node;
let client;
let database;
let container;

before(async () => {
  node = await startNode();
  client = connect(node);
  database = await newDatabase(client);
  container = await newContainer(database, { defaultTtl: -1 });
});

after(async () => {
  client?.dispose();
  await node?.stop();
});

const codes = (response) => response.result.map(({ statusCode }) => statusCode);
const create = (pk, id, rest = {}) => ({ operationType: "Create", resourceBody: { id, pk, ...rest } });
const live = async (pk) => ids((await container.items.readAll({ partitionKey: pk }).fetchAll()).resources).sort();

describe("a transactional batch", () => {
  test("carries out every kind of operation in order", async () => {
    const pk = uniqueName("pk");
    await container.items.create({ id: "replace", pk, n: 1 });
    await container.items.create({ id: "delete", pk });
    await container.items.create({ id: "patch", pk, n: 1 });
    await container.items.create({ id: "read", pk, n: 7 });
    const response = await container.items.batch(
      [
        create(pk, "create", { n: 1 }),
        { operationType: "Upsert", resourceBody: { id: "upsert", pk, n: 1 } },
        { operationType: "Upsert", resourceBody: { id: "upsert", pk, n: 2 } },
        { operationType: "Replace", id: "replace", resourceBody: { id: "replace", pk, n: 2 } },
        { operationType: "Read", id: "read" },
        { operationType: "Delete", id: "delete" },
        {
          operationType: "Patch",
          id: "patch",
          resourceBody: { operations: [{ op: "incr", path: "/n", value: 4 }], condition: "from c where c.n = 1" },
        },
      ],
      pk,
    );
    assert.equal(response.code, 200);
    assert.deepEqual(codes(response), [201, 201, 200, 200, 200, 204, 200]);
    const [created, , upserted, replaced, read, deleted, patched] = response.result;
    assert.deepEqual(userProperties(created.resourceBody), { id: "create", pk, n: 1 });
    assert.equal(upserted.resourceBody.n, 2);
    assert.equal(replaced.resourceBody.n, 2);
    assert.equal(read.resourceBody.n, 7);
    assert.equal(deleted.resourceBody, undefined);
    assert.equal(patched.resourceBody.n, 5);
    for (const result of response.result) assert.ok(result.requestCharge >= 0);
    assert.equal(created.eTag, created.resourceBody._etag);
    assert.deepEqual(await live(pk), ["create", "patch", "read", "replace", "upsert"]);
    assert.deepEqual((await container.item("patch", pk).read()).resource, patched.resourceBody);
  });

  test("does nothing when one operation fails", async () => {
    const pk = uniqueName("pk");
    await container.items.create({ id: "there", pk, n: 1 });
    const response = await container.items.batch(
      [
        create(pk, "fresh"),
        { operationType: "Patch", id: "there", resourceBody: { operations: [{ op: "incr", path: "/n", value: 1 }] } },
        { operationType: "Delete", id: "there" },
        create(pk, "fresh"),
        { operationType: "Read", id: "there" },
      ],
      pk,
    );
    assert.equal(response.code, 207);
    assert.deepEqual(codes(response), [424, 424, 424, 409, 424]);
    assert.deepEqual(await live(pk), ["there"]);
    assert.equal((await container.item("there", pk).read()).resource.n, 1);
  });

  const failures = {
    "a read of what is not there": [{ operationType: "Read", id: "nothing" }, 404],
    "a delete of what is not there": [{ operationType: "Delete", id: "nothing" }, 404],
    "a stale etag": [{ operationType: "Delete", id: "there", ifMatch: '"stale"' }, 412],
    "a condition that is false": [
      {
        operationType: "Patch",
        id: "there",
        resourceBody: { operations: [{ op: "set", path: "/n", value: 1 }], condition: "from c where c.n = 99" },
      },
      412,
    ],
    "an illegal ttl": [{ operationType: "Upsert", resourceBody: { id: "there", pk: "PK", ttl: 0 } }, 400],
    "another partition key": [{ operationType: "Create", resourceBody: { id: "x", pk: "foreign" } }, 400],
  };
  for (const [name, [operation, code]] of Object.entries(failures)) {
    test(`reports ${name} as ${code} and rolls back`, async () => {
      const pk = uniqueName("pk");
      await container.items.create({ id: "there", pk, n: 1 });
      const failing = structuredClone(operation);
      if (failing.resourceBody?.pk === "PK") failing.resourceBody.pk = pk;
      const response = await container.items.batch([create(pk, "fresh"), failing], pk);
      assert.equal(response.code, 207);
      assert.deepEqual(codes(response), [424, code]);
      assert.deepEqual(await live(pk), ["there"]);
    });
  }

  test("sees its own writes", async () => {
    const pk = uniqueName("pk");
    const response = await container.items.batch(
      [
        create(pk, "a", { n: 1 }),
        { operationType: "Read", id: "a" },
        { operationType: "Delete", id: "a" },
        create(pk, "a", { n: 2 }),
      ],
      pk,
    );
    assert.deepEqual(codes(response), [201, 200, 204, 201]);
    assert.equal((await container.item("a", pk).read()).resource.n, 2);
  });

  test("takes 100 operations; the server refuses none at all", async () => {
    const pk = uniqueName("pk");
    const response = await container.items.batch(
      Array.from({ length: 100 }, (_, i) => create(pk, `i${i}`)),
      pk,
    );
    assert.equal(response.code, 200);
    assert.equal((await live(pk)).length, 100);
    await rejects(container.items.batch([], pk), { code: 400, message: /Batch request has no operations/ });
  });

  test("leaves the bodies out when the client does not want them", async () => {
    const pk = uniqueName("pk");
    const response = await container.items.batch([create(pk, "a")], pk, { contentResponseOnWriteEnabled: false });
    assert.deepEqual(codes(response), [201]);
    assert.equal(response.result[0].resourceBody, undefined);
    assert.match(response.result[0].eTag, /^".+"$/);
  });

  test("works on null, absent and hierarchical keys", async () => {
    const onNull = await container.items.batch([{ operationType: "Create", resourceBody: { id: "n", pk: null } }], null);
    assert.deepEqual(codes(onNull), [201]);
    const absent = await container.items.batch([{ operationType: "Create", resourceBody: { id: "none" } }]);
    assert.deepEqual(codes(absent), [201]);
    const tenants = await newContainer(database, {
      partitionKey: { paths: ["/t", "/u"], kind: "MultiHash", version: 2 },
    });
    const response = await tenants.items.batch(
      [{ operationType: "Create", resourceBody: { id: "x", t: "T", u: "U" } }],
      ["T", "U"],
    );
    assert.deepEqual(codes(response), [201]);
    assert.equal((await tenants.item("x", ["T", "U"]).read()).statusCode, 200);
  });

  test("holds unique keys inside itself", async () => {
    const unique = await newContainer(database, { uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }] } });
    const response = await unique.items.batch(
      [create("p", "a", { email: "x" }), create("p", "b", { email: "x" })],
      "p",
    );
    assert.deepEqual(codes(response), [424, 409]);
    assert.deepEqual((await unique.items.readAll().fetchAll()).resources, []);
  });

  test("of several at once each is atomic", async () => {
    const pk = uniqueName("pk");
    const batches = Array.from({ length: 20 }, (_, i) =>
      container.items.batch([create(pk, `own-${i}`), create(pk, "prize", { winner: i })], pk),
    );
    const results = await Promise.all(batches);
    const winners = results.filter(({ code }) => code === 200);
    assert.equal(winners.length, 1);
    const { resource } = await container.item("prize", pk).read();
    assert.deepEqual(await live(pk), [`own-${resource.winner}`, "prize"].sort());
  });
});
