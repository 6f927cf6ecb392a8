// Changes of a container's defaultTtl: in force everywhere when the answer leaves, and never bringing anything back.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { connect, ids, newContainer, newDatabase, uniqueName } from "./support/cosmos.js";
import { deadlineMs, expiresExactly, isLive, passed } from "./support/expiry.js";
import { startNode } from "./support/node.js";

const LONG = 1_000;
const ITEMS = 24;

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

/** `defaultTtl` undefined switches time to live off. */
async function setDefaultTtl(container, defaultTtl) {
  const { resource } = await container.read();
  const { defaultTtl: _, ...rest } = resource;
  const answer = await container.replace(defaultTtl === undefined ? rest : { ...rest, defaultTtl });
  assert.equal(answer.resource.defaultTtl ?? undefined, defaultTtl ?? undefined);
}

/** Items over all shards of a container. */
async function fill(container, rest = {}) {
  const bodies = Array.from({ length: ITEMS }, () => ({ id: uniqueName("item"), pk: uniqueName("pk"), ...rest }));
  const answers = await Promise.all(bodies.map((item) => container.items.create(item)));
  return answers.map(({ resource }) => resource);
}

const newest = (items) => items.reduce((a, b) => (b._ts > a._ts ? b : a));
const count = async (container) => (await container.items.readAll().fetchAll()).resources.length;

async function assertAll(container, items, live) {
  const states = await Promise.all(items.map((item) => isLive(container, item)));
  assert.deepEqual(
    states,
    items.map(() => live),
  );
  assert.equal(await count(container), live ? items.length : 0);
}

describe("a change of defaultTtl", { concurrency: true }, () => {
  const sharded = (definition) => newContainer(database, { throughput: 40_000, ...definition });

  test("off to n counts from the _ts that items have", async () => {
    const container = await sharded({});
    const items = await fill(container);
    await passed(deadlineMs(newest(items), 2));
    await assertAll(container, items, true);
    await setDefaultTtl(container, 2);
    await assertAll(container, items, false);
  });

  test("off to n lets younger items live out their time", async () => {
    const container = await sharded({});
    const [item] = await fill(container);
    await setDefaultTtl(container, 3);
    await expiresExactly(container, item, 3);
  });

  test("off to -1 wakes the ttl of items", async () => {
    const container = await sharded({});
    const mortal = await fill(container, { ttl: 2 });
    const immortal = await fill(container);
    await passed(deadlineMs(newest(mortal), 2));
    assert.equal(await count(container), 2 * ITEMS, "off means off");
    await setDefaultTtl(container, -1);
    assert.deepEqual(
      ids((await container.items.readAll().fetchAll()).resources).sort(),
      ids(immortal).sort(),
    );
  });

  test("to a shorter time expires older items at once", async () => {
    const container = await sharded({ defaultTtl: LONG });
    const items = await fill(container);
    await passed(deadlineMs(newest(items), 2));
    await setDefaultTtl(container, 2);
    await assertAll(container, items, false);
  });

  test("to a longer time lets live items live longer", async () => {
    const container = await sharded({ defaultTtl: 4 });
    const items = await fill(container);
    await setDefaultTtl(container, LONG);
    await passed(deadlineMs(newest(items), 5));
    await assertAll(container, items, true);
  });

  test("n to off lets live items live", async () => {
    const container = await sharded({ defaultTtl: 4 });
    const items = await fill(container);
    await setDefaultTtl(container, undefined);
    await passed(deadlineMs(newest(items), 5));
    await assertAll(container, items, true);
  });

  test("null means off", async () => {
    const container = await sharded({ defaultTtl: 4 });
    const items = await fill(container);
    await setDefaultTtl(container, null);
    assert.ok((await container.read()).resource.defaultTtl == null);
    await passed(deadlineMs(newest(items), 5));
    await assertAll(container, items, true);
  });

  test("does not touch items with a ttl of their own", async () => {
    const container = await sharded({ defaultTtl: LONG });
    const own = await fill(container, { ttl: LONG });
    const never = await fill(container, { ttl: -1 });
    await passed(deadlineMs(newest([...own, ...never]), 2));
    await setDefaultTtl(container, 1);
    assert.equal(await count(container), 2 * ITEMS);
  });

  const revivals = { "a longer time": LONG, "-1": -1, off: undefined };
  for (const [name, next] of Object.entries(revivals)) {
    test(`to ${name} brings no expired item back`, async () => {
      const container = await sharded({ defaultTtl: 1 });
      const inherited = await fill(container);
      const own = await fill(container, { ttl: 1 });
      const all = [...inherited, ...own];
      await passed(deadlineMs(newest(all), 1));
      await setDefaultTtl(container, next);
      await assertAll(container, all, false);
      // Their places are free, and what is written there lives by the new rule.
      const [{ id, pk }] = inherited;
      const again = await container.items.create({ id, pk });
      assert.equal(again.statusCode, 201);
      await passed(deadlineMs(again.resource, 1));
      assert.ok(await isLive(container, again.resource));
    });
  }

  test("back and forth brings nothing back", async () => {
    const container = await sharded({ defaultTtl: LONG });
    const items = await fill(container);
    await passed(deadlineMs(newest(items), 1));
    for (const defaultTtl of [1, LONG, -1, undefined, 1, undefined, LONG]) {
      await setDefaultTtl(container, defaultTtl);
      assert.equal(await count(container), 0, `after ${defaultTtl}`);
    }
    await assertAll(container, items, false);
  });

  test("holds over a restart", async () => {
    const own = await startNode();
    const first = connect(own);
    try {
      const container = await newContainer(await newDatabase(first), { defaultTtl: 1 });
      const { resource: dead } = await container.items.create({ id: "dead", pk: "p" });
      await passed(deadlineMs(dead, 1));
      await setDefaultTtl(container, undefined);
      await container.items.create({ id: "live", pk: "p" });
      await own.end("SIGKILL");
      const again = await startNode({ dataPath: own.dataPath });
      const second = connect(again);
      try {
        const { resources } = await second
          .database(container.database.id)
          .container(container.id)
          .items.readAll()
          .fetchAll();
        assert.deepEqual(ids(resources), ["live"]);
      } finally {
        second.dispose();
        await again.stop();
      }
    } finally {
      first.dispose();
      own.child.kill("SIGKILL");
      await own.removeData();
    }
  });
});
