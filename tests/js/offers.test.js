import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { connect, newContainer, newDatabase, rejects } from "./support/cosmos.js";
import { startNode } from "./support/node.js";

let node;
let client;

before(async () => {
  node = await startNode();
  client = connect(node);
});

after(async () => {
  client?.dispose();
  await node?.stop();
});

describe("offers", () => {
  test("a container's manual throughput is read and replaced", async () => {
    const database = await newDatabase(client);
    const container = await newContainer(database, { throughput: 500 });
    const { resource, offer } = await container.readOffer();
    const { resource: definition } = await container.read();
    assert.equal(resource.content.offerThroughput, 500);
    assert.equal(resource.resource, definition._self);
    assert.equal(resource.offerResourceId, definition._rid);
    assert.equal(resource.offerVersion, "V2");
    assert.equal(resource._self, `offers/${resource._rid}/`);

    const changed = structuredClone(resource);
    changed.content.offerThroughput = 700;
    const replaced = await offer.replace(changed);
    assert.ok([200, 202].includes(replaced.statusCode));
    assert.equal(replaced.resource.content.offerThroughput, 700);
    assert.equal((await container.readOffer()).resource.content.offerThroughput, 700);
    assert.equal((await offer.read()).resource.content.offerThroughput, 700);
  });

  test("a container's autoscale throughput is read and replaced", async () => {
    const database = await newDatabase(client);
    const container = await newContainer(database, {
      maxThroughput: 4000,
      autoUpgradePolicy: { throughputPolicy: { incrementPercent: 15 } },
    });
    const { resource, offer } = await container.readOffer();
    const settings = resource.content.offerAutopilotSettings;
    assert.equal(settings.maxThroughput, 4000);
    assert.equal(settings.autoUpgradePolicy.throughputPolicy.incrementPercent, 15);
    const changed = structuredClone(resource);
    changed.content.offerAutopilotSettings.maxThroughput = 6000;
    await offer.replace(changed);
    assert.equal((await container.readOffer()).resource.content.offerAutopilotSettings.maxThroughput, 6000);
  });

  test("a container without throughput of its own gets 400 RU/s", async () => {
    const container = await newContainer(await newDatabase(client));
    assert.equal((await container.readOffer()).resource.content.offerThroughput, 400);
  });

  test("a database has one when asked for", async () => {
    const database = await newDatabase(client, { throughput: 600 });
    assert.equal((await database.readOffer()).resource.content.offerThroughput, 600);
    const without = await newDatabase(client);
    assert.equal((await without.readOffer()).resource, undefined);
  });

  test("containers share the throughput of their database", async () => {
    const database = await newDatabase(client, { throughput: 600 });
    const container = await newContainer(database);
    assert.equal((await container.readOffer()).resource, undefined);
  });

  test("are listed and go with their container", async () => {
    const database = await newDatabase(client);
    const container = await newContainer(database, { throughput: 900 });
    const { resource } = await container.readOffer();
    const listed = async () => (await client.offers.readAll().fetchAll()).resources.map(({ id }) => id);
    assert.ok((await listed()).includes(resource.id));
    await container.delete();
    assert.ok(!(await listed()).includes(resource.id));
    await rejects(client.offer(resource.id).read(), { code: 404 });
  });

  for (const [name, offerThroughput] of Object.entries({ "below the minimum": 300, negative: -400, "no step": 450 })) {
    test(`a throughput that is ${name} is refused`, async () => {
      const container = await newContainer(await newDatabase(client), { throughput: 500 });
      const { resource, offer } = await container.readOffer();
      const changed = structuredClone(resource);
      changed.content.offerThroughput = offerThroughput;
      await rejects(offer.replace(changed), { code: 400 });
      assert.equal((await container.readOffer()).resource.content.offerThroughput, 500);
    });
  }
});
