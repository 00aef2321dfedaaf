// A browser's fetch as an API client: from the server's own origin, from a foreign origin, and from an allowed origin.
import assert from 'node:assert/strict';
import http from 'node:http';
import test, { after, before } from 'node:test';
import { cleanUp, openContext, openPage, startZinc } from './harness.mjs';

let zinc;
let foreign, neighbor; // other origins, with an empty page: a foreign host, and another port of this machine
const servePage = async (address) => {
  const server = http.createServer((_, response) => response.end('<!doctype html><title>another</title>'));
  await new Promise((resolve) => server.listen(0, address, resolve));
  return { origin: `http://${address}:${server.address().port}`, close: () => server.close() };
};
before(async () => {
  [foreign, neighbor] = [await servePage('127.0.0.2'), await servePage('127.0.0.1')];
  zinc = await startZinc();
});
after(async () => {
  for (const server of [foreign, neighbor]) server.close();
  await cleanUp();
});

// Below the 256 KiB of unread output after which the server drops a client that does not read.
const kRequest = {
  messages: [{ role: 'user', content: 'Say something.' }], max_tokens: 600, temperature: 1, seed: 3, ignore_eos: true,
};

// Fetches a completion inside the page, streamed or not.
const fetchCompletion = (page, url, body) =>
  page.evaluate(
    async ([base, request]) => {
      const response = await fetch(`${base}/v1/chat/completions`, {
        method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(request),
      });
      if (!request.stream) return { status: response.status, text: (await response.json()).choices[0].message.content };
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let received = '';
      for (let part = await reader.read(); !part.done; part = await reader.read()) received += part.value;
      const events = received.split('\n\n').filter((event) => event.startsWith('data: ')).map((event) => event.slice(6));
      const pieces = events.filter((data) => data !== '[DONE]').map((data) => JSON.parse(data).choices[0]?.delta.content ?? '');
      return {
        status: response.status, type: response.headers.get('content-type'), text: pieces.join(''),
        n_pieces: pieces.filter((piece) => piece).length, last: events.at(-1),
      };
    },
    [url, body],
  );

const openOrigin = async (origin) => {
  const context = await openContext();
  const page = await context.newPage();
  await page.goto(origin);
  return { page, close: () => context.close() };
};

const nSubmittedRequests = async () => {
  const text = await (await fetch(`${zinc.url}/metrics`)).text();
  return /^zinc_requests_submitted_total\S* (\S+)$/m.exec(text)?.[1] ?? assert.fail(text.slice(0, 2000));
};

test('the same origin can stream, and the streamed text equals the non-streamed text', async () => {
  const { page, close } = await openPage(zinc.url);
  const whole = await fetchCompletion(page, '', kRequest);
  assert.equal(whole.status, 200);
  assert.ok(whole.text.length > 0);
  const stream = await fetchCompletion(page, '', { ...kRequest, stream: true });
  assert.equal(stream.status, 200);
  assert.match(stream.type, /^text\/event-stream/);
  assert.equal(stream.text, whole.text);
  assert.ok(stream.n_pieces > 1, `${stream.n_pieces} pieces`);
  assert.equal(stream.last, '[DONE]');
  await close();
});

test('aborting a fetch cancels the request in the engine', async () => {
  const { page, close } = await openPage(zinc.url);
  await page.evaluate(async (request) => {
    const control = new AbortController();
    const response = await fetch('/v1/chat/completions', {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(request), signal: control.signal,
    });
    await response.body.getReader().read();
    control.abort();
  }, { ...kRequest, max_tokens: 100000, stream: true });
  for (let tries = 0; ; ++tries) {
    const health = await (await fetch(`${zinc.url}/health`)).json();
    if (health.active_requests === 0) break;
    assert.ok(tries < 1200, JSON.stringify(health));
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await close();
});

test('a foreign origin can read nothing, and its blind requests are not executed', async () => {
  const { page, close } = await openOrigin(foreign.origin);
  const before = await nSubmittedRequests();
  const tries = await page.evaluate(async ([url, request]) => {
    const attempt = (path, options) => fetch(url + path, options).then((r) => `read ${r.type} ${r.status}`, (e) => e.name);
    const body = JSON.stringify(request);
    return {
      get: await attempt('/v1/models'),
      json: await attempt('/v1/chat/completions', { method: 'POST', headers: { 'content-type': 'application/json' }, body }),
      simple: await attempt('/v1/chat/completions', { method: 'POST', body }),
      blind: await attempt('/v1/chat/completions', { method: 'POST', mode: 'no-cors', body }),
    };
  }, [zinc.url, kRequest]);
  assert.deepEqual(tries, { get: 'TypeError', json: 'TypeError', simple: 'TypeError', blind: 'read opaque 0' });
  assert.equal(await nSubmittedRequests(), before);
  await close();
});

test('an allowed origin can stream like the same origin', async () => {
  const allowing = await startZinc(['--cors-origin', foreign.origin]);
  const { page, close } = await openOrigin(foreign.origin);
  const stream = await fetchCompletion(page, allowing.url, { ...kRequest, stream: true });
  assert.equal(stream.status, 200);
  assert.ok(stream.n_pieces > 1);
  await close();
});

test('a page of this machine on another port can stream', async () => {
  const { page, close } = await openOrigin(neighbor.origin);
  const stream = await fetchCompletion(page, zinc.url, { ...kRequest, stream: true });
  assert.equal(stream.status, 200);
  await close();
});
