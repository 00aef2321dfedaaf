// The server is away: the page opens, old conversations can be read, and a lost answer continues once the server is back.
import assert from 'node:assert/strict';
import test from 'node:test';
import {
  eventually, finishedAnswer, fireTimers, openPage, replyWith, sendMessage, startConversation, startProxy, startZinc, untilMessage, useProxy,
} from './harness.mjs';

const proxy = useProxy();
const kAllow = { serviceWorkers: 'allow' };
const kDeadServer = 'http://127.0.0.1:9';
const kPatienceMs = 4000; // of the service worker, for a silent server; then it shows the stored page

const untilControlled = (page) => page.waitForFunction(() => navigator.serviceWorker.controller !== null);

test('while the server is away, a reload opens the page and old conversations can be read', async () => {
  const { page, seen, close } = await startConversation(proxy, replyWith('An **old** answer.\n\n```js\nlet a = 1;\n```'), 'an old question', kAllow);
  await untilControlled(page);
  const { target } = proxy;
  proxy.target = kDeadServer;
  await page.reload();
  await page.locator('.prose strong', { hasText: 'old' }).waitFor();
  await page.locator('.gone', { hasText: 'The server cannot be reached; retrying…' }).waitFor();
  await page.keyboard.press('Control+Shift+O');
  await page.locator('.welcome', { hasText: 'Your conversations can be read meanwhile.' }).waitFor();
  const status = await page.evaluate(() => fetch('/v1/models').then((response) => response.status, () => 'failed'));
  assert.equal(status, 'failed', 'the API is never answered from the cache');
  proxy.target = target;
  await fireTimers(page);
  await page.locator('.gone').waitFor({ state: 'detached' });
  await page.locator('.welcome', { hasText: 'tiny' }).waitFor();
  assert.deepEqual(seen, { foreign: [], errors: [], violations: [], executed: [] });
  await close();
});

test('a new version of the page is shown at once, not the stored one', async () => {
  const { page, context, close } = await openPage(proxy.url, kAllow);
  await untilControlled(page);
  await context.route(`${proxy.url}/`, async (route) => {
    const html = await (await route.fetch()).text();
    await route.fulfill({ contentType: 'text/html', body: html.replace('<title>zinc</title>', '<title>zinc</title><meta name="version" content="new">') });
  });
  const isNew = async () => (await page.locator('meta[name="version"]').count()) === 1;
  for (let attempt = 1; ; ++attempt) {
    const begin = Date.now();
    await page.reload();
    if (await isNew()) break;
    assert.ok(Date.now() - begin > kPatienceMs, 'the stored page was shown though the server answered in time');
    assert.ok(attempt < 10, 'the machine is too slow for this test');
  }
  await close();
});

test('an answer whose connection was lost continues by itself when the server is back', async () => {
  proxy.script = (reply, body) => (body.continue_final_message ? replyWith(' and the rest.')(reply) : reply.delta({ content: 'The beginning' }));
  proxy.requests.length = 0;
  const { page, close } = await openPage(proxy.url);
  await sendMessage(page, 'go');
  await page.locator('.prose', { hasText: 'The beginning' }).waitFor();
  const { target, script } = proxy;
  Object.assign(proxy, { target: kDeadServer, script: null });
  proxy.reply.disconnect();
  const answer = await finishedAnswer(page);
  await answer.locator('.notice.is-lost', { hasText: 'The connection to the server was lost. Your text is safe. The answer continues when the server is back.' }).waitFor();
  Object.assign(proxy, { target, script });
  await page.locator('.prose', { hasText: 'The beginning and the rest.' }).waitFor();
  assert.equal(proxy.requests.length, 2);
  await untilMessage(page, (message) => message.content === 'The beginning and the rest.' && !message.writing);
  await close();
});

test('the same after a reload while the server is away', async () => {
  proxy.script = (reply, body) => (body.continue_final_message ? replyWith(' and the rest.')(reply) : reply.delta({ content: 'The beginning' }));
  const { page, close } = await openPage(proxy.url, kAllow);
  await untilControlled(page);
  await sendMessage(page, 'go');
  await page.locator('.prose', { hasText: 'The beginning' }).waitFor();
  const { target, script } = proxy;
  Object.assign(proxy, { target: kDeadServer, script: null });
  proxy.reply.disconnect();
  await untilMessage(page, (message) => message.notice?.kind === 'lost');
  await page.reload();
  await page.locator('.notice.is-lost', { hasText: 'The answer continues when the server is back.' }).waitFor();
  Object.assign(proxy, { target, script });
  await page.locator('.prose', { hasText: 'The beginning and the rest.' }).waitFor();
  await close();
});

test('a page opened while the server loads its model says so, and shows the model once it is loaded', async () => {
  let isLoading = true;
  const withoutModels = {
    '/props': (body) => ({ ...body, models: [] }),
    '/v1/models': (body) => ({ ...body, data: [] }),
    '/models': (body) => ({ ...body, activating: 'tiny' }),
  };
  const { page, close } = await openPage(proxy.url, {}, async (page) => {
    for (const [path, change] of Object.entries(withoutModels)) {
      await page.route(`${proxy.url}${path}`, async (route) => {
        const response = await route.fetch();
        await route.fulfill({ response, json: isLoading ? change(await response.json()) : await response.json() });
      });
    }
  });
  await page.locator('.welcome', { hasText: 'Loading tiny…' }).waitFor();
  await page.locator('.model-picker', { hasText: 'Loading tiny…' }).waitFor();
  isLoading = false;
  await page.locator('.welcome', { hasText: 'You are talking to tiny' }).waitFor(); // the poll of an idle page is held
  await close();
});

test('an answer that brings no text when it is resumed is not resumed again', async () => {
  proxy.script = (reply) => reply.delta({ content: 'The beginning' });
  proxy.requests.length = 0;
  const { page, close } = await openPage(proxy.url);
  await sendMessage(page, 'go');
  await page.locator('.prose', { hasText: 'The beginning' }).waitFor();
  const { target } = proxy;
  const lose = async () => {
    Object.assign(proxy, { target: kDeadServer, script: null });
    proxy.reply.disconnect();
    await page.locator('.gone').waitFor();
  };
  const comeBack = () => Object.assign(proxy, { target, script: () => undefined }); // accepts, never answers
  await lose();
  comeBack();
  await eventually(() => proxy.requests.length === 2);
  await page.locator('.by-assistant[aria-busy="true"]').waitFor();
  await lose();
  await page.locator('.notice.is-lost', { hasText: 'Retry continues from here.' }).waitFor(); // promises nothing
  comeBack();
  await page.locator('.gone').waitFor({ state: 'detached' });
  await page.waitForTimeout(300);
  assert.equal(proxy.requests.length, 2);
  await close();
});

test('a server that is stopped and started again needs no reload', async () => {
  const first = await startZinc();
  const front = await startProxy(first.url); // keeps the port, which another program could take meanwhile
  const { page, close } = await openPage(front.url);
  await page.locator('.welcome', { hasText: 'tiny' }).waitFor();
  await first.stop();
  await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await page.locator('.gone', { hasText: 'cannot be reached' }).waitFor();
  front.target = (await startZinc()).url;
  await page.locator('.gone').waitFor({ state: 'detached' });
  await close();
});
