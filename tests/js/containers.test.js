import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { connect, ids, newContainer, newDatabase, rejects, uniqueName } from "./support/cosmos.js";
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

describe("containers", () => {
  test("are created, read, listed, replaced and deleted", async () => {
    const id = uniqueName("coll");
    const created = await database.containers.create({ id, partitionKey: "/pk" });
    assert.equal(created.statusCode, 201);

    const read = await created.container.read();
    assert.equal(read.statusCode, 200);
    assert.deepEqual(read.resource, created.resource);

    const { resources } = await database.containers.readAll().fetchAll();
    assert.ok(ids(resources).includes(id));

    const replaced = await created.container.replace({ ...read.resource, defaultTtl: 60 });
    assert.equal(replaced.statusCode, 200);
    assert.equal(replaced.resource.defaultTtl, 60);
    assert.equal(replaced.resource._rid, read.resource._rid);
    assert.equal(replaced.resource._self, read.resource._self);
    assert.notEqual(replaced.resource._etag, read.resource._etag);
    assert.deepEqual((await created.container.read()).resource, replaced.resource);

    assert.equal((await created.container.delete()).statusCode, 204);
    await rejects(created.container.read(), { code: 404 });
    await rejects(created.container.delete(), { code: 404 });
    await rejects(created.container.replace(read.resource), { code: 404 });
  });

  test("come back with every default filled in", async () => {
    const { resource } = await database.containers.create({ id: uniqueName("coll"), partitionKey: "/pk" });
    assert.equal(Buffer.from(resource._rid.replaceAll("-", "/"), "base64").length, 8);
    const { resource: parent } = await database.read();
    assert.equal(resource._self, `${parent._self}colls/${resource._rid}/`);
    assert.match(resource._etag, /^".+"$/);
    assert.equal(resource._docs, "docs/");
    assert.equal(resource._sprocs, "sprocs/");
    assert.equal(resource._triggers, "triggers/");
    assert.equal(resource._udfs, "udfs/");
    assert.equal(resource._conflicts, "conflicts/");
    assert.equal(resource.indexingPolicy.indexingMode, "consistent");
    assert.equal(resource.indexingPolicy.automatic, true);
    assert.deepEqual(
      resource.indexingPolicy.includedPaths.map(({ path }) => path),
      ["/*"],
    );
    assert.deepEqual(
      resource.indexingPolicy.excludedPaths.map(({ path }) => path),
      ['/"_etag"/?'],
    );
    assert.equal(resource.conflictResolutionPolicy.mode, "LastWriterWins");
    assert.equal(resource.conflictResolutionPolicy.conflictResolutionPath, "/_ts");
    assert.equal(resource.geospatialConfig.type, "Geography");
    assert.deepEqual(resource.partitionKey.paths, ["/pk"]);
    assert.equal(resource.partitionKey.kind, "Hash");
    assert.ok([1, 2].includes(resource.partitionKey.version), "the version that clients must hash by is stated");
    assert.ok(!("defaultTtl" in resource), "time to live is off unless asked for");
  });

  test("createIfNotExists creates once and then finds", async () => {
    const body = () => ({ id: "once", partitionKey: "/pk" });
    const first = await database.containers.createIfNotExists(body());
    const second = await database.containers.createIfNotExists(body());
    assert.equal(first.statusCode, 201);
    assert.equal(second.statusCode, 200);
    assert.equal(second.resource._rid, first.resource._rid);
  });

  test("a second one with the same id is a conflict", async () => {
    const container = await newContainer(database);
    await rejects(newContainer(database, { id: container.id }), { code: 409, message: new RegExp(container.id) });
  });

  test("the same id in two databases names two containers", async () => {
    const other = await newDatabase(client);
    const first = await newContainer(database, { id: "twin" });
    const second = await newContainer(other, { id: "twin" });
    await first.items.create({ id: "a", pk: "p" });
    assert.equal((await second.item("a", "p").read()).statusCode, 404);
  });

  test("one created again is empty and has another rid", async () => {
    const container = await newContainer(database);
    const { resource: old } = await container.read();
    await container.items.create({ id: "a", pk: "p" });
    await container.delete();
    const again = await newContainer(database, { id: container.id });
    assert.notEqual((await again.read()).resource._rid, old._rid);
    assert.equal((await again.item("a", "p").read()).statusCode, 404);
    assert.deepEqual((await again.items.readAll().fetchAll()).resources, []);
  });

  test("in a database that is not there: 404", async () => {
    const missing = client.database("missing");
    await rejects(newContainer(missing), { code: 404 });
    await rejects(missing.container("c").read(), { code: 404 });
    await rejects(missing.containers.readAll().fetchAll(), { code: 404 });
  });

  test("replace honours If-Match", async () => {
    const container = await newContainer(database);
    const { resource } = await container.read();
    const condition = (value) => ({ accessCondition: { type: "IfMatch", condition: value } });
    await rejects(container.replace({ ...resource, defaultTtl: 5 }, condition('"stale"')), { code: 412 });
    assert.ok(!("defaultTtl" in (await container.read()).resource));
    const { statusCode } = await container.replace({ ...resource, defaultTtl: 5 }, condition(resource._etag));
    assert.equal(statusCode, 200);
  });

  test("a query over containers finds one by its id", async () => {
    const container = await newContainer(database);
    const query = { query: "SELECT * FROM c WHERE c.id = @id", parameters: [{ name: "@id", value: container.id }] };
    assert.deepEqual(ids((await database.containers.query(query).fetchAll()).resources), [container.id]);
  });

  test("quota information and index progress come when asked for", async () => {
    const container = await newContainer(database);
    const { headers } = await container.read({ populateQuotaInfo: true });
    assert.ok(headers["x-ms-resource-quota"]);
    assert.ok(headers["x-ms-resource-usage"]);
    assert.equal(String(headers["x-ms-documentdb-collection-index-transformation-progress"]), "100");
    assert.ok(!("x-ms-documentdb-collection-lazy-indexing-progress" in headers));
  });

  test("an id over 255 characters is refused", async () => {
    await rejects(newContainer(database, { id: "x".repeat(256) }), { code: 400, message: /less than '255' characters/ });
  });
});

describe("the properties of a container", () => {
  const stored = {
    "an indexing policy": {
      indexingPolicy: {
        indexingMode: "consistent",
        automatic: true,
        includedPaths: [{ path: "/a/?" }, { path: "/b/*" }, { path: "/c/[]/d/?" }],
        excludedPaths: [{ path: "/*" }],
        compositeIndexes: [
          [
            { path: "/a", order: "ascending" },
            { path: "/b", order: "descending" },
          ],
        ],
      },
    },
    "a default time to live": { defaultTtl: 3600 },
    "a default time to live of -1": { defaultTtl: -1 },
    "the longest default time to live": { defaultTtl: 2147483647 },
    "computed properties": {
      computedProperties: [{ name: "cp_lower", query: "SELECT VALUE LOWER(c.name) FROM c" }],
    },
    "a conflict resolution policy": {
      conflictResolutionPolicy: { mode: "LastWriterWins", conflictResolutionPath: "/version" },
    },
    "a geometry configuration": { geospatialConfig: { type: "Geometry" } },
    "unique keys": { uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }, { paths: ["/a", "/b/c"] }] } },
    "an analytical time to live": { analyticalStorageTtl: -1 },
    "a nested partition key": { partitionKey: { paths: ["/a/b"], kind: "Hash", version: 2 } },
    "a quoted partition key": { partitionKey: { paths: ['/"a b"'], kind: "Hash", version: 2 } },
    "a version 1 partition key": { partitionKey: { paths: ["/pk"], kind: "Hash", version: 1 } },
    "a hierarchical partition key": {
      partitionKey: { paths: ["/tenant", "/user", "/session"], kind: "MultiHash", version: 2 },
    },
  };

  for (const [name, body] of Object.entries(stored)) {
    test(`keep ${name}`, async () => {
      const container = await newContainer(database, structuredClone(body));
      const { resource } = await container.read();
      for (const [property, expected] of Object.entries(body)) {
        assertContains(resource[property], expected, property);
      }
    });
  }

  test("the exclusion of _etag is added to a policy that lacks it", async () => {
    const container = await newContainer(database, {
      indexingPolicy: { includedPaths: [{ path: "/*" }], excludedPaths: [{ path: "/big/*" }] },
    });
    const { resource } = await container.read();
    const paths = resource.indexingPolicy.excludedPaths.map(({ path }) => path);
    assert.deepEqual(paths.sort(), ['/"_etag"/?', "/big/*"].sort());
  });

  test("the indexing mode is accepted in any case and stored in lower case", async () => {
    const container = await newContainer(database, { indexingPolicy: { indexingMode: "Consistent", automatic: true } });
    assert.equal((await container.read()).resource.indexingPolicy.indexingMode, "consistent");
  });

  test("indexing mode none is kept", async () => {
    const container = await newContainer(database, { indexingPolicy: { indexingMode: "none", automatic: false } });
    const { resource, headers } = await container.read({ populateQuotaInfo: true });
    assert.equal(resource.indexingPolicy.indexingMode, "none");
    assert.equal(String(headers["x-ms-documentdb-collection-index-transformation-progress"]), "100");
    await container.items.create({ id: "a", pk: "p", n: 1 });
    assert.equal((await container.item("a", "p").read()).resource.n, 1);
  });

  const refused = {
    "a partition key without a slash": [{ partitionKey: { paths: ["pk"] } }, /pk/],
    "a partition key with a trailing slash": [{ partitionKey: { paths: ["/pk/"] } }, /\/pk\//],
    "a partition key with a wildcard": [{ partitionKey: { paths: ["/pk/*"] } }, /\/pk\/\*/],
    "two paths with kind Hash": [{ partitionKey: { paths: ["/a", "/b"], kind: "Hash" } }, /Too many partition key paths/],
    "four levels": [
      { partitionKey: { paths: ["/a", "/b", "/c", "/d"], kind: "MultiHash", version: 2 } },
      /Too many partition key paths/,
    ],
    "a hierarchical key of version 1": [{ partitionKey: { paths: ["/a", "/b"], kind: "MultiHash", version: 1 } }, /1/],
    "an unknown partition key kind": [{ partitionKey: { paths: ["/a"], kind: "Rainbow" } }, /Rainbow/],
    "an unknown partition key version": [{ partitionKey: { paths: ["/a"], version: 7 } }, /7/],
    "an unknown indexing mode": [{ indexingPolicy: { indexingMode: "sometimes" } }, /sometimes/],
    "an included path without a slash": [{ indexingPolicy: { includedPaths: [{ path: "a/?" }] } }, /a\/\?/],
    "default time to live 0": [{ defaultTtl: 0 }, /0/],
    "default time to live -2": [{ defaultTtl: -2 }, /-2/],
    "default time to live -10": [{ defaultTtl: -10 }, /-10/],
    "default time to live 1.5": [{ defaultTtl: 1.5 }, /1\.5/],
    "default time to live as text": [{ defaultTtl: "60" }, /60/],
    "default time to live true": [{ defaultTtl: true }, /true/],
    "default time to live as object": [{ defaultTtl: {} }, /\{/],
    "default time to live too long": [{ defaultTtl: 2147483648 }, /2147483648/],
    "time to live without an index": [
      { defaultTtl: 60, indexingPolicy: { indexingMode: "none", automatic: false } },
      /Indexing mode value cannot be 'none'/,
    ],
    "eleven unique keys": [
      { uniqueKeyPolicy: { uniqueKeys: Array.from({ length: 11 }, (_, i) => ({ paths: [`/k${i}`] })) } },
      /1[01]/,
    ],
    "a unique key path without a slash": [{ uniqueKeyPolicy: { uniqueKeys: [{ paths: ["email"] }] } }, /email/],
    "throughput below the minimum": [{ throughput: 100 }, /is less than required minimum throughput|100/],
  };

  for (const [name, [body, message]] of Object.entries(refused)) {
    test(`refuse ${name} and leave nothing behind`, async () => {
      const id = uniqueName("refused");
      await rejects(newContainer(database, { id, ...structuredClone(body) }), { code: 400, message });
      await rejects(database.container(id).read(), { code: 404 });
    });
  }

  test("the partition key cannot change", async () => {
    const container = await newContainer(database);
    const { resource } = await container.read();
    await rejects(container.replace({ ...resource, partitionKey: { paths: ["/other"], kind: "Hash", version: 2 } }), {
      code: 400,
    });
    assert.deepEqual((await container.read()).resource, resource);
  });

  test("a replace may repeat the partition key as the client first wrote it", async () => {
    const id = uniqueName("coll");
    const { container } = await database.containers.create({ id, partitionKey: { paths: ["/pk"] } });
    const { statusCode } = await container.replace({ id, partitionKey: { paths: ["/pk"] }, defaultTtl: 30 });
    assert.equal(statusCode, 200);
  });

  test("unique keys cannot change, and are kept when a replace leaves them out", async () => {
    const container = await newContainer(database, { uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }] } });
    const { resource } = await container.read();
    const other = { uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/name"] }] } };
    await rejects(container.replace({ ...resource, ...other }), { code: 403 });
    const { uniqueKeyPolicy, ...without } = resource;
    await container.replace(without);
    assert.deepEqual((await container.read()).resource.uniqueKeyPolicy, uniqueKeyPolicy);
  });

  test("what a replace leaves out is reset", async () => {
    const container = await newContainer(database, {
      defaultTtl: 60,
      indexingPolicy: { includedPaths: [{ path: "/*" }], excludedPaths: [{ path: "/big/*" }] },
    });
    const { resource } = await container.read();
    await container.replace({ id: resource.id, partitionKey: resource.partitionKey });
    const { resource: reset } = await container.read();
    assert.ok(!("defaultTtl" in reset));
    assert.deepEqual(
      reset.indexingPolicy.excludedPaths.map(({ path }) => path),
      ['/"_etag"/?'],
    );
  });

  test("a replace that is refused changes nothing", async () => {
    const container = await newContainer(database, { defaultTtl: 60 });
    const { resource } = await container.read();
    await rejects(container.replace({ ...resource, defaultTtl: 0 }), { code: 400, message: /0/ });
    await rejects(container.replace({ ...resource, indexingPolicy: { indexingMode: "none", automatic: false } }), {
      code: 400,
      message: /Indexing mode value cannot be 'none'/,
    });
    assert.deepEqual((await container.read()).resource, resource);
  });

  test("time to live cannot be switched on while nothing is indexed", async () => {
    const container = await newContainer(database, { indexingPolicy: { indexingMode: "none", automatic: false } });
    const { resource } = await container.read();
    await rejects(container.replace({ ...resource, defaultTtl: 60 }), { code: 400, message: /Indexing mode/ });
  });
});

describe("partition key ranges", () => {
  for (const [throughput, shards] of [
    [400, 1],
    [10_000, 1],
    [10_100, 2],
    [40_000, 4],
  ]) {
    test(`${throughput} RU/s make ${shards} ranges that tile the key space`, async () => {
      const container = await newContainer(database, { throughput });
      const { resources } = await container.readPartitionKeyRanges().fetchAll();
      assert.equal(resources.length, shards);
      const sorted = [...resources].sort((a, b) => (a.minInclusive < b.minInclusive ? -1 : 1));
      assert.equal(sorted[0].minInclusive, "");
      assert.equal(sorted.at(-1).maxExclusive, "FF");
      for (let i = 1; i < sorted.length; i += 1) {
        assert.equal(sorted[i].minInclusive, sorted[i - 1].maxExclusive);
      }
      assert.equal(new Set(ids(resources)).size, shards);
      assert.equal((await container.getFeedRanges()).length, shards);
    });
  }
});

/** Every property that was sent comes back with the same value; the server may add others. */
function assertContains(actual, expected, where) {
  if (Array.isArray(expected)) {
    assert.ok(Array.isArray(actual) && actual.length >= expected.length, where);
    expected.forEach((value, i) => assertContains(actual[i], value, `${where}[${i}]`));
  } else if (expected !== null && typeof expected === "object") {
    for (const [key, value] of Object.entries(expected)) assertContains(actual?.[key], value, `${where}.${key}`);
  } else {
    assert.equal(actual, expected, where);
  }
}
