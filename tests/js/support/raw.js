// Signed requests without the SDK, for what the SDK refuses to send.

import { createHmac } from "node:crypto";
import { WELL_KNOWN_KEY } from "./node.js";

export const API_VERSION = "2020-07-15";

export function signature({ verb, type = "", link = "", date, key = WELL_KNOWN_KEY }) {
  const text = `${verb.toLowerCase()}\n${type.toLowerCase()}\n${link}\n${date.toLowerCase()}\n\n`;
  const digest = createHmac("sha256", Buffer.from(key, "base64")).update(text, "utf8").digest("base64");
  return encodeURIComponent(`type=master&ver=1.0&sig=${digest}`);
}

export function signedHeaders({ verb, type, link, key, date = new Date().toUTCString() }) {
  return {
    authorization: signature({ verb, type, link, date, key }),
    "x-ms-date": date,
    "x-ms-version": API_VERSION,
    // Without it fetch would say text/plain.
    "content-type": "application/json",
  };
}

/** One request; `type` and `link` are what the signature covers. */
export async function request(node, { verb, path, type, link, key, date, headers = {}, body }) {
  const response = await fetch(new URL(path, node.endpoint), {
    method: verb,
    headers: { ...signedHeaders({ verb, type, link, key, date }), ...headers },
    body,
  });
  const text = await response.text();
  let json;
  try {
    json = JSON.parse(text);
  } catch {
    json = undefined;
  }
  return { status: response.status, headers: response.headers, text, json };
}
