// The page with the real server and a tiny model: serving, access control, and every feature that needs an engine.
import assert from 'node:assert/strict';
import http from 'node:http';
import { createReadStream, statSync } from 'node:fs';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import {
  attach, cleanUp, finishedAnswer, modelFolder, openPage, readStore, renderedAnswer, replyWith, sendMessage, setField,
  sleep, startProxy, startZinc, untilMessage,
} from './harness.mjs';

let zinc;
let endlessProxy;
before(async () => {
  zinc = await startZinc();
  endlessProxy = await startProxy(zinc.url);
  endlessProxy.isEndless = true;
});
after(cleanUp);

const get = (path, headers = {}, method = 'GET') =>
  new Promise((resolve, reject) => {
    const request = http.request(zinc.url + path, { headers, method }, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part));
      response.on('end', () => resolve({ status: response.statusCode, headers: response.headers, body: Buffer.concat(parts) }));
    });
    request.on('error', reject);
    request.end();
  });

test('the page is served compressed, with an ETag and a strict content security policy', async () => {
  const plain = await get('/');
  assert.equal(plain.status, 200);
  assert.match(plain.body.toString(), /<!doctype html>/);
  const policy = plain.headers['content-security-policy'];
  assert.match(policy, /default-src 'none'/);
  assert.doesNotMatch(policy, /unsafe-inline|unsafe-eval|\*/);
  assert.equal(plain.headers['cache-control'], 'no-cache');
  for (const encoding of ['br', 'gzip']) {
    const packed = await get('/', { 'accept-encoding': encoding });
    assert.equal(packed.headers['content-encoding'], encoding);
    assert.ok(packed.body.length < plain.body.length);
  }
  assert.equal((await get('/', { 'accept-encoding': 'br;q=0, gzip;q=0' })).headers['content-encoding'], undefined);
  assert.equal((await get('/', { 'if-none-match': plain.headers.etag })).status, 304);
  assert.equal((await get('/chat')).body.toString(), plain.body.toString());
  const script = /src="(\/assets\/[^"]+)"/.exec(plain.body.toString())[1];
  assert.match((await get(script)).headers['cache-control'], /immutable/);
  assert.equal((await get('/', {}, 'HEAD')).body.length, 0);
});

test('foreign origins and host names are rejected', async () => {
  for (const path of ['/', '/props', '/models']) {
    assert.equal((await get(path, { host: 'evil.example' })).status, 403, `${path} with a rebound host name`);
  }
  for (const path of ['/v1/chat/completions', '/v1/models/activate', '/v1/models/remove', '/v1/models/pull', '/v1/models/cancel']) {
    assert.equal((await get(path, { origin: 'https://evil.example' }, 'POST')).status, 403, path);
    assert.equal((await get(path, { origin: 'null' }, 'POST')).status, 403, path);
  }
});

test('model routes neither accept file paths nor reveal whether a file exists', async () => {
  for (const path of ['/v1/models/activate', '/v1/models/pull', '/v1/models/remove']) {
    for (const model of ['/etc/passwd', '../../etc/passwd', '/nowhere/at/all', '.']) {
      const response = await fetch(zinc.url + path, { method: 'POST', body: JSON.stringify({ model }) });
      assert.match((await response.json()).error.message, /^unknown model|was not downloaded by zinc and cannot be removed here$/, `${path} ${model}`);
    }
  }
});

test('an answer streams with its statistics, stops at the token limit and can be continued', async () => {
  const { page, seen, close } = await openPage(endlessProxy.url);
  await setField(page, 'max_tokens', '24');
  await setField(page, 'seed', '7');
  await sendMessage(page, 'Tell me something');
  const answer = await finishedAnswer(page);
  await answer.locator('.notice.is-length').waitFor();
  assert.match(await answer.locator('.figures').innerText(), /tok\/s[\s\S]*first token after[\s\S]*24 tokens[\s\S]*prompt \d+/);
  await page.locator('.gauge', { hasText: /[1-9]\d* of 2,048 tokens/ }).waitFor();
  await page.getByRole('button', { name: 'Memory and cache figures' }).click();
  await page.locator('.gauge', { hasText: 'Memory' }).waitFor();
  const first = (await readStore(page)).messages.find((message) => message.role === 'assistant');
  await answer.getByRole('button', { name: 'Continue' }).click();
  const wordsOf = ({ content, reasoning }) => content + (reasoning ?? '');
  const second = await untilMessage(page, (message) => message.role === 'assistant' && !message.writing && wordsOf(message).length > wordsOf(first).length);
  assert.ok(wordsOf(second).startsWith(first.content || ''), 'the earlier text is unchanged');
  assert.deepEqual(seen, { foreign: [], errors: [], violations: [], executed: [] });
  await close();
});

test('regenerating and editing create branches, and branches can be switched', async () => {
  const { page, close } = await openPage(zinc.url);
  await setField(page, 'max_tokens', '8');
  await sendMessage(page, 'first question');
  let answer = await finishedAnswer(page);
  await answer.getByRole('button', { name: 'Regenerate' }).first().click();
  await page.locator('.by-assistant .branches', { hasText: '2 / 2' }).waitFor();
  answer = await finishedAnswer(page);
  await answer.getByRole('button', { name: 'Previous branch' }).click();
  await page.locator('.by-assistant .branches', { hasText: '1 / 2' }).waitFor();
  await page.locator('.by-user').hover();
  await page.getByRole('button', { name: 'Edit', exact: true }).click();
  await page.fill('.editor textarea', 'another question');
  await page.locator('.editor').getByRole('button', { name: 'Send' }).click();
  await page.locator('.by-user .branches', { hasText: '2 / 2' }).waitFor();
  await finishedAnswer(page);
  assert.equal(await page.locator('.by-user .said').textContent(), 'another question');
  await page.locator('.by-user').hover();
  await page.locator('.by-user').getByRole('button', { name: 'Previous branch' }).click();
  await page.locator('.by-user .said', { hasText: 'first question' }).waitFor();
  await close();
});

test('choosing an alternative token starts a branch that continues from it', async () => {
  const { page, close } = await openPage(endlessProxy.url);
  await setField(page, 'max_tokens', '12');
  await setField(page, 'temperature', '0');
  const off = page.getByRole('button', { name: 'Thinking on' });
  if (await off.isVisible()) await off.click();
  await page.locator('.pill', { hasText: 'Probabilities' }).click();
  await sendMessage(page, 'Count');
  const answer = await finishedAnswer(page);
  const tokens = answer.locator('.text .token');
  await tokens.nth(2).waitFor();
  await tokens.nth(1).click();
  const other = answer.locator('.alternatives li button:not(:disabled)').first();
  await other.click();
  await page.locator('.by-assistant .branches', { hasText: '2 / 2' }).waitFor();
  await finishedAnswer(page);
  const list = (await readStore(page)).messages.filter((message) => message.role === 'assistant').sort((a, b) => a.created - b.created);
  const records = (await readStore(page)).tokens;
  const [first, second] = list.map((message) => JSON.parse(records.find((entry) => entry.id === message.id).list));
  assert.ok(list[1].content.startsWith(second.slice(0, 2).map((token) => token.text).join('').trimStart()));
  assert.equal(second[0].text, first[0].text, 'earlier tokens are unchanged');
  assert.notEqual(second[1].text, first[1].text, 'the chosen token differs');
  assert.ok(second.length > 2, 'the answer continued');
  await close();
});

test('a conversation that exceeds the context is not truncated, and the page suggests what to do', async () => {
  const { page, close } = await openPage(zinc.url);
  await attach(page, 'long.txt', 'word '.repeat(6000));
  await page.locator('.chips li').waitFor();
  await sendMessage(page, 'Summarize');
  const answer = await finishedAnswer(page);
  await answer.locator('.notice.is-context').waitFor();
  assert.match(await answer.locator('.notice').innerText(), /^This conversation is longer than the context of the model\.\s+Your last message alone fills the context\. Shorten it, [^\n]*\s+New conversation$/);
  await close();
});

test('stopping keeps the partial answer, and Continue resumes it', async () => {
  const proxy = await startProxy(zinc.url);
  proxy.isSlow = proxy.isEndless = true;
  const { page, close } = await openPage(proxy.url);
  await sendMessage(page, 'Talk for long');
  await page.waitForFunction(() => (document.querySelector('.by-assistant .prose')?.textContent ?? '').length > 20);
  await page.keyboard.press('Escape');
  const answer = await finishedAnswer(page);
  await answer.locator('.notice.is-stopped').waitFor();
  const shown = (await readStore(page)).messages.find((message) => message.role === 'assistant').content;
  await setField(page, 'max_tokens', '6');
  await answer.getByRole('button', { name: 'Continue' }).click();
  await answer.locator('.notice.is-length').waitFor();
  const now = (await readStore(page)).messages.find((message) => message.role === 'assistant').content;
  assert.ok(now.startsWith(shown) && now.length > shown.length);
  await close();
});

test('a server crash loses no text, and after a restart the answer can be continued', async () => {
  const first = await startZinc();
  const proxy = await startProxy(first.url);
  proxy.isSlow = proxy.isEndless = true;
  const { page, close } = await openPage(proxy.url);
  await sendMessage(page, 'Talk for long');
  await page.waitForFunction(() => (document.querySelector('.by-assistant .prose')?.textContent ?? '').length > 30);
  await first.stop();
  proxy.disconnectAll();
  const answer = await finishedAnswer(page);
  await answer.locator('.notice.is-lost').waitFor();
  // Reasoning and answer on screen are the text received, and the same after a reload.
  const words = async () => {
    await renderedAnswer(page);
    await page.evaluate(() => { for (const pane of document.querySelectorAll('details.thought')) pane.open = true; });
    return (await page.locator('.by-assistant .prose').allTextContents()).join('\n');
  };
  const before = (await readStore(page)).messages.find((message) => message.role === 'assistant');
  const shown = await words();
  assert.ok(shown.length > 30);
  await page.goto('about:blank'); // an open page would resume by itself
  proxy.target = (await startZinc()).url;
  await page.goto(`${proxy.url}/#${before.conversation}`);
  await page.locator('.notice.is-lost').waitFor();
  assert.equal(await words(), shown);
  await setField(page, 'max_tokens', '8');
  await page.getByRole('button', { name: 'Retry' }).click();
  await page.locator('.notice.is-length').waitFor();
  const now = (await readStore(page)).messages.find((message) => message.role === 'assistant');
  assert.equal(now.id, before.id);
  assert.ok(now.content.startsWith(before.content) && (now.reasoning ?? '').startsWith(before.reasoning ?? ''));
  assert.ok((now.content + (now.reasoning ?? '')).length > (before.content + (before.reasoning ?? '')).length);
  const grown = await words();
  assert.ok(grown.length > shown.length);
  await page.reload();
  await page.locator('.notice.is-length').waitFor();
  assert.equal(await words(), grown, 'an answer received in two parts renders like a complete one');
  await close();
});

test('models are listed with their fit, downloaded, cancelled, loaded and removed', async () => {
  const file = join(modelFolder, 'llama-q8_0.gguf');
  let isSlow = false;
  const fileServer = http.createServer(async (request, response) => {
    const size = statSync(file).size;
    const range = /bytes=(\d+)-(\d*)/.exec(request.headers.range ?? '');
    const from = range ? Number(range[1]) : 0;
    const to = range?.[2] ? Math.min(Number(range[2]), size - 1) : size - 1;
    response.writeHead(range ? 206 : 200, {
      'content-length': to - from + 1, 'accept-ranges': 'bytes', etag: '"one"',
      ...(range ? { 'content-range': `bytes ${from}-${to}/${size}` } : {}),
    });
    if (request.method === 'HEAD') return response.end();
    const stream = createReadStream(file, { start: from, end: to, highWaterMark: 4096 });
    for await (const part of stream) {
      if (response.destroyed) return;
      response.write(part);
      while (isSlow && !response.destroyed) await sleep(20);
    }
    response.end();
  });
  await new Promise((resolve) => fileServer.listen(0, '127.0.0.1', resolve));
  const source = `http://127.0.0.1:${fileServer.address().port}/other.gguf`;
  const { page, close } = await openPage(zinc.url);
  await page.keyboard.press('Alt+M');
  await page.locator('[data-model="tiny"] .badge', { hasText: 'loaded' }).waitFor();
  assert.match(await page.locator('[data-model="tiny"]').innerText(), /Fits: needs/);
  assert.match(await page.getByRole('region', { name: 'All models' }).innerText(), /GB[\s\S]*apache/i);

  isSlow = true;
  await page.fill('[aria-label="Source of a model"]', source);
  await page.locator('.source form button').click();
  await page.locator('.loading progress').waitFor();
  await page.locator('.loading').getByRole('button', { name: 'Cancel' }).click();
  await page.locator('.loading').waitFor({ state: 'detached' });

  isSlow = false;
  await page.locator('.source form button').click();
  const row = page.locator('[data-model="other"]');
  const tiny = page.locator('[data-model="tiny"]');
  await row.getByRole('button', { name: 'Load alongside' }).click();
  await row.locator('.badge').waitFor();
  await tiny.locator('.badge').waitFor(); // the other model stays loaded
  await tiny.getByRole('button', { name: 'Remove' }).waitFor({ state: 'detached' });
  assert.deepEqual((await (await fetch(`${zinc.url}/v1/models`)).json()).data.map((entry) => entry.id), ['tiny', 'other']);
  await page.evaluate(() => fetch('/v1/models/activate', { method: 'POST', body: JSON.stringify({ model: 'tiny' }) }));
  await page.keyboard.press('Escape');
  await page.keyboard.press('Alt+M');
  await row.getByRole('button', { name: 'Load', exact: true }).click();
  await row.locator('.badge').waitFor();
  await tiny.locator('.badge').waitFor({ state: 'detached' });
  await tiny.getByRole('button', { name: 'Load', exact: true }).waitFor(); // a model given by path can be loaded again
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => document.querySelector('.model-picker').value === 'other');
  await setField(page, 'max_tokens', '4');
  await sendMessage(page, 'Hello');
  await (await finishedAnswer(page)).locator('.figures', { hasText: 'other' }).waitFor();

  await page.keyboard.press('Alt+M');
  await page.locator('[data-model="other"]').getByRole('button', { name: 'Remove' }).click();
  await page.locator('[data-model="other"]').getByRole('button', { name: 'Unload and delete the file' }).click();
  await page.locator('[data-model="other"]').waitFor({ state: 'detached' });
  await close();
  fileServer.close();
  await zinc.stop();
  zinc = await startZinc();
});

test('Compare answers one prompt with two settings, and either answer can become a conversation', async () => {
  const { page, close } = await openPage(zinc.url);
  await setField(page, 'max_tokens', '16');
  await page.keyboard.press('Alt+C');
  await page.fill('[aria-label="Prompt for both"]', 'Say something');
  await page.getByRole('button', { name: 'Ask both' }).click();
  await page.waitForFunction(() => document.querySelectorAll('.side .figures').length === 2);
  await page.getByRole('button', { name: 'Continue with A' }).click();
  await page.locator('.by-user .said', { hasText: 'Say something' }).waitFor();
  assert.equal(await page.locator('#thread .by-assistant').count(), 1);
  await close();
});

test('the API key dialog cannot be dismissed, and a late 401 does not reject a new key', async () => {
  const locked = await startZinc(['--api-key', 'secret']);
  const proxy = await startProxy(locked.url);
  const { page, close } = await openPage(proxy.url);
  await page.getByRole('dialog', { name: 'API key' }).waitFor();
  for (let i = 0; i < 4; ++i) await page.keyboard.press('Escape');
  await page.waitForFunction(() => document.querySelector('dialog').open); // reopened if the browser closed it
  // The response to a request without the key arrives after the key was entered.
  let go, onSent;
  const late = new Promise((resolve) => (go = resolve));
  const isSent = new Promise((resolve) => (onSent = resolve));
  await page.route('**/models', async (route) => {
    const hasKey = Boolean(route.request().headers().authorization);
    if (!hasKey) await (onSent(), late);
    await route.continue();
  });
  void page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await isSent;
  await page.fill('dialog input', 'secret');
  await page.keyboard.press('Enter');
  await page.locator('.welcome', { hasText: 'tiny' }).waitFor();
  go();
  await sleep(400);
  assert.equal(await page.getByRole('dialog').count(), 0);
  await close();
});

test('empty fields show the recommended sampling, and requests use it', async () => {
  const proxy = await startProxy(zinc.url);
  proxy.script = replyWith('ok');
  const { page, close } = await openPage(proxy.url);
  const { models } = await (await fetch(`${zinc.url}/props`)).json();
  const { recommended_sampling: sampling } = models[0];
  await page.keyboard.press('Control+,');
  for (const name of ['temperature', 'top_p', 'top_k', 'min_p']) {
    assert.equal(Number(await page.locator(`dialog [name="${name}"]`).getAttribute('placeholder')), Number(sampling[name].toFixed(4)), name);
  }
  assert.match(await page.locator('dialog').innerText(), new RegExp(`from ${sampling.origin}`));
  await page.fill('dialog [name="top_k"]', '7');
  await page.press('dialog [name="top_k"]', 'Tab');
  await page.keyboard.press('Escape');
  await sendMessage(page, 'go');
  await finishedAnswer(page);
  const sent = proxy.requests[0];
  assert.deepEqual([sent.temperature, sent.top_p, sent.top_k], [sampling.temperature, sampling.top_p, 7]);
  await close();
});

test('the API key is requested once', async () => {
  const locked = await startZinc(['--api-key', 'secret']);
  const { page, context, close } = await openPage(locked.url);
  await page.getByRole('dialog', { name: 'API key' }).waitFor();
  await page.fill('dialog input', 'wrong');
  await page.keyboard.press('Enter');
  await page.getByText('Wrong key.').waitFor();
  await page.fill('dialog input', 'secret');
  await page.keyboard.press('Enter');
  await page.locator('.welcome', { hasText: 'tiny' }).waitFor();
  const again = await context.newPage();
  await again.goto(locked.url);
  await again.locator('.welcome', { hasText: 'tiny' }).waitFor();
  assert.equal(await again.getByRole('dialog').count(), 0);
  await close();
});

test('a conversation offers to load its installed model if it is not loaded', async () => {
  const two = await startZinc([`other=${join(modelFolder, 'llama-q8_0.gguf')}`]);
  const { page, close } = await openPage(two.url);
  await page.waitForFunction(() => document.querySelectorAll('.model-picker option').length === 3);
  await setField(page, 'max_tokens', '4');
  await page.selectOption('.model-picker', 'other');
  await sendMessage(page, 'Hello');
  await (await finishedAnswer(page)).locator('.figures', { hasText: 'other' }).waitFor();
  // Another client replaces the model.
  const body = JSON.stringify({ model: 'tiny' });
  await fetch(`${two.url}/v1/models/activate`, { method: 'POST', body });
  await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await page.locator('.gone', { hasText: 'other, which is not loaded; tiny answers' }).waitFor();
  // The list of installed models is fetched after the loaded ones.
  await page.waitForFunction(() => [...document.querySelectorAll('.model-picker option')].map((option) => option.textContent).join() === 'tiny,other,More models…');
  await page.locator('.gone').getByRole('button', { name: 'Load other' }).click();
  await page.locator('.gone').waitFor({ state: 'detached' });
  await sendMessage(page, 'Again');
  await page.locator('.by-assistant').nth(1).locator('.figures', { hasText: 'other' }).waitFor();
  await close();
  await two.stop();
});
