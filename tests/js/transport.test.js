// The same port speaks HTTP/1.1 and HTTP/2, in the clear and under TLS.

import assert from "node:assert/strict";
import http2 from "node:http2";
import https from "node:https";
import tls from "node:tls";
import { after, before, describe, test } from "node:test";
import { connect, ids, newContainer, newDatabase } from "./support/cosmos.js";
import { startNode } from "./support/node.js";
import { signedHeaders } from "./support/raw.js";

/** One signed `GET /` over HTTP/2. */
function accountOverHttp2(endpoint, options) {
  return new Promise((resolve, reject) => {
    const session = http2.connect(endpoint, options);
    session.once("error", reject);
    const stream = session.request({ ":path": "/", ...signedHeaders({ verb: "GET" }) });
    let status;
    let body = "";
    stream.once("response", (headers) => (status = headers[":status"]));
    stream.setEncoding("utf8").on("data", (chunk) => (body += chunk));
    stream.once("error", reject);
    stream.once("end", () => {
      session.close();
      resolve({ status, body: JSON.parse(body) });
    });
  });
}

describe("http", () => {
  let node;
  before(async () => {
    node = await startNode();
  });
  after(() => node?.stop());

  test("answers HTTP/2 with prior knowledge", async () => {
    const { status, body } = await accountOverHttp2(node.endpoint);
    assert.equal(status, 200);
    assert.equal(body.writableLocations[0].databaseAccountEndpoint, node.endpoint);
  });

  test("answers HTTP/1.1 on the same port", async () => {
    const answer = await fetch(node.endpoint, { headers: signedHeaders({ verb: "GET" }) });
    assert.equal(answer.status, 200);
  });
});

describe("https", () => {
  let node;
  let certificate;
  before(async () => {
    node = await startNode({ protocol: "https" });
    certificate = await certificateOf(node);
  });
  after(() => node?.stop());

  test("has a self-signed certificate that is good for localhost", async () => {
    const text = certificate.subjectaltname;
    assert.match(text, /DNS:localhost/);
    assert.match(text, /IP Address:127\.0\.0\.1/);
    assert.ok(new Date(certificate.valid_to) > new Date());
  });

  test("serves the SDK that trusts the certificate", async () => {
    const agent = new https.Agent({ ca: pem(certificate), keepAlive: true });
    const client = connect(node, { agent });
    const container = await newContainer(await newDatabase(client), { defaultTtl: -1 });
    await container.items.create({ id: "a", pk: "p" });
    await container.item("a", "p").patch([{ op: "set", path: "/n", value: 1 }]);
    assert.deepEqual(ids((await container.items.readAll().fetchAll()).resources), ["a"]);
    assert.equal((await container.item("a", "p").delete()).statusCode, 204);
    client.dispose();
    agent.destroy();
  });

  test("serves the SDK that looks at no certificate", async () => {
    const agent = new https.Agent({ rejectUnauthorized: false });
    const client = connect(node, { agent });
    assert.equal((await client.getDatabaseAccount()).resource.writableLocations[0].databaseAccountEndpoint, node.endpoint);
    client.dispose();
    agent.destroy();
  });

  test("agrees on HTTP/2 when the client offers it", async () => {
    const { status } = await accountOverHttp2(node.endpoint, { ca: pem(certificate) });
    assert.equal(status, 200);
  });

  test("keeps its certificate over a restart", async () => {
    const first = await startNode({ protocol: "https" });
    const before = await certificateOf(first);
    assert.equal((await first.end("SIGTERM")).code, 0);
    const second = await startNode({ protocol: "https", dataPath: first.dataPath });
    assert.equal((await certificateOf(second)).fingerprint256, before.fingerprint256);
    await second.stop();
    await first.removeData();
  });
});

function certificateOf(node) {
  return new Promise((resolve, reject) => {
    const socket = tls.connect({ port: node.port, host: "127.0.0.1", rejectUnauthorized: false }, () => {
      resolve(socket.getPeerCertificate(true));
      socket.end();
    });
    socket.once("error", reject);
  });
}

function pem(certificate) {
  const text = certificate.raw.toString("base64").replace(/.{64}/g, "$&\n");
  return `-----BEGIN CERTIFICATE-----\n${text}\n-----END CERTIFICATE-----\n`;
}
