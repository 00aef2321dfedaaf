// A browser's fetch as a client of the API: on the server's own pages, on pages of others, and where those are let in.
import assert from 'node:assert/strict';
import http from 'node:http';
import test, { after, before } from 'node:test';
import { cleanUp, openBrowser, openPage, startZinc } from './harness.mjs';

let zinc;
let elsewhere; // an origin of its own, with an empty page
before(async () => {
  const server = http.createServer((_, response) => response.end('<!doctype html><title>elsewhere</title>'));
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  elsewhere = { origin: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
  zinc = await startZinc();
});
after(async () => {
  elsewhere.close();
  await cleanUp();
});

// Less than a stream may be behind, 256 KiB, before the server gives up a client that does not read.
const kAsked = {
  messages: [{ role: 'user', content: 'Say something.' }], max_tokens: 600, temperature: 1, seed: 3, ignore_eos: true,
};

// In the page: an answer as it comes, or as a whole.
const fetchAnswer = (page, url, body) =>
  page.evaluate(
    async ([to, asked]) => {
      const response = await fetch(`${to}/v1/chat/completions`, {
        method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(asked),
      });
      if (!asked.stream) return { status: response.status, text: (await response.json()).choices[0].message.content };
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

const openElsewhere = async () => {
  const context = await (await openBrowser()).newContext();
  const page = await context.newPage();
  await page.goto(elsewhere.origin);
  return { page, close: () => context.close() };
};

const requestsTaken = async () => {
  const text = await (await fetch(`${zinc.url}/metrics`)).text();
  return /^zinc_requests_submitted_total\S* (\S+)$/m.exec(text)?.[1] ?? assert.fail(text.slice(0, 2000));
};

test('the server\'s own page streams an answer, and it is the one that comes as a whole', async () => {
  const { page, close } = await openPage(zinc.url);
  const whole = await fetchAnswer(page, '', kAsked);
  assert.equal(whole.status, 200);
  assert.ok(whole.text.length > 0);
  const stream = await fetchAnswer(page, '', { ...kAsked, stream: true });
  assert.equal(stream.status, 200);
  assert.match(stream.type, /^text\/event-stream/);
  assert.equal(stream.text, whole.text);
  assert.ok(stream.n_pieces > 1, `${stream.n_pieces} pieces`);
  assert.equal(stream.last, '[DONE]');
  await close();
});

test('an answer that the page gives up ends in the engine too', async () => {
  const { page, close } = await openPage(zinc.url);
  await page.evaluate(async (asked) => {
    const control = new AbortController();
    const response = await fetch('/v1/chat/completions', {
      method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(asked), signal: control.signal,
    });
    await response.body.getReader().read();
    control.abort();
  }, { ...kAsked, max_tokens: 100000, stream: true });
  for (let tries = 0; ; ++tries) {
    const health = await (await fetch(`${zinc.url}/health`)).json();
    if (health.active_requests === 0) break;
    assert.ok(tries < 1200, JSON.stringify(health));
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  await close();
});

test('a page of another origin gets nothing, and what it sends blindly is not computed', async () => {
  const { page, close } = await openElsewhere();
  const before = await requestsTaken();
  const tries = await page.evaluate(async ([url, asked]) => {
    const attempt = (path, options) => fetch(url + path, options).then((r) => `read ${r.type} ${r.status}`, (e) => e.name);
    const body = JSON.stringify(asked);
    return {
      get: await attempt('/v1/models'),
      json: await attempt('/v1/chat/completions', { method: 'POST', headers: { 'content-type': 'application/json' }, body }),
      simple: await attempt('/v1/chat/completions', { method: 'POST', body }),
      blind: await attempt('/v1/chat/completions', { method: 'POST', mode: 'no-cors', body }),
    };
  }, [zinc.url, kAsked]);
  assert.deepEqual(tries, { get: 'TypeError', json: 'TypeError', simple: 'TypeError', blind: 'read opaque 0' });
  assert.equal(await requestsTaken(), before);
  await close();
});

test('an origin that is let in streams as the server\'s own page does', async () => {
  const open = await startZinc(['--cors-origin', elsewhere.origin]);
  const { page, close } = await openElsewhere();
  const stream = await fetchAnswer(page, open.url, { ...kAsked, stream: true });
  assert.equal(stream.status, 200);
  assert.ok(stream.n_pieces > 1);
  await close();
});
