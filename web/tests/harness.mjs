// Shared by all tests: the real server with a tiny model, a proxy that replaces the model by a script where a test needs exact
// output, and the system's Chromium. The page and its content security policy come from the server.
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

export const here = dirname(fileURLToPath(import.meta.url));
export const modelFolder = process.env.ZINC_TEST_MODELS;
const zinc = process.env.ZINC_PROGRAM;
export const outFolder = process.env.ZINC_TEST_OUT;
mkdirSync(outFolder, { recursive: true });

const cleanups = [];
export async function cleanUp() {
  while (cleanups.length > 0) await cleanups.pop()();
}

// Starts `zinc serve`. `home` separates its models from those of the user who runs the tests.
export async function startZinc(args = [], { home = mkdtempSync(join(tmpdir(), 'zinc-page-')) } = {}) {
  const model = `tiny=${join(modelFolder, 'qwen3-q8_0.gguf')}`;
  const child = spawn(zinc, ['serve', model, '--port', '0', '--parallel', '4', '-c', '2048', ...args], {
    env: { ...process.env, HOME: home, XDG_CACHE_HOME: join(home, 'cache'), XDG_CONFIG_HOME: join(home, 'config'), HF_HOME: join(home, 'hf') },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stderr = '';
  child.stderr.on('data', (bytes) => (stderr += bytes));
  const url = await new Promise((resolve, reject) => {
    let out = '';
    child.stdout.on('data', (bytes) => {
      out += bytes;
      const found = /^listening on (\S+)/m.exec(out);
      if (found) resolve(found[1]);
    });
    child.on('exit', (code) => reject(new Error(`zinc exited with ${code}: ${stderr}`)));
  });
  const stop = (signal = 'SIGKILL') =>
    new Promise((resolve) => {
      if (child.exitCode !== null || child.signalCode !== null) return resolve();
      child.on('exit', () => resolve());
      child.kill(signal);
    });
  cleanups.push(async () => {
    await stop();
    rmSync(home, { recursive: true, force: true });
  });
  return { url, home, stop };
}

// A proxy between the page and the server. While `script` is set, the proxy answers chat requests itself: it calls
// script(reply, body), and `reply` sends the events.
export async function startProxy(target, proxy = {}) {
  Object.assign(proxy, { target, script: null, isSlow: false, isEndless: false, requests: [], url: '', open: new Set() });
  proxy.disconnectAll = () => proxy.open.forEach((response) => response.destroy());
  const server = http.createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      const body = Buffer.concat(parts);
      if (request.url === '/v1/chat/completions' && proxy.script) return runScript(proxy, JSON.parse(body), request, response);
      forward(proxy, request, body, response);
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  proxy.url = `http://127.0.0.1:${server.address().port}`;
  cleanups.push(() => {
    server.closeAllConnections?.();
    return new Promise((resolve) => server.close(resolve));
  });
  return proxy;
}

// Starts a server and a proxy before the first test of a file and stops them after the last.
export function useProxy() {
  const proxy = {};
  before(async () => startProxy((await startZinc()).url, proxy));
  after(cleanUp);
  return proxy;
}

// Opens a page, sends a message and waits for the scripted answer.
export async function startConversation(proxy, script, text = 'hi', options = {}) {
  proxy.script = script;
  proxy.requests.length = 0;
  const opened = await openPage(proxy.url, options);
  await sendMessage(opened.page, text);
  return { ...opened, answer: await finishedAnswer(opened.page) };
}

// The same with a connection that is lost after `words`; a retry returns `rest`.
export async function interruptedConversation(proxy, words, rest = '', options = {}) {
  proxy.script = (reply, body) => (body.continue_final_message ? replyWith(rest)(reply) : reply.delta({ content: words }));
  proxy.requests.length = 0;
  const opened = await openPage(proxy.url, options);
  await sendMessage(opened.page, 'go');
  await disconnectOnceShown(proxy, opened.page, words);
  return { ...opened, answer: await finishedAnswer(opened.page) };
}

// A tiny model with random weights may emit EOS anywhere; this request ignores EOS and leaves part of the context free.
const withoutEos = (body) => Buffer.from(JSON.stringify({ max_tokens: 300, ...JSON.parse(body), ignore_eos: true }));

function forward(proxy, request, original, response) {
  const isChat = request.url === '/v1/chat/completions';
  const isLimited = isChat && 'max_tokens' in JSON.parse(original);
  const body = proxy.isEndless && isChat ? withoutEos(original) : original;
  const to = new URL(proxy.target);
  const headers = { ...request.headers, host: to.host, connection: 'close' };
  if (request.method === 'POST') headers['content-length'] = body.length;
  if (headers.origin) headers.origin = to.origin;
  const upstream = http.request({ host: to.hostname, port: to.port, path: request.url, method: request.method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    proxy.open.add(response);
    response.on('close', () => proxy.open.delete(response));
    if (proxy.isSlow && request.method === 'POST') return void forwardSlowly(answer, response, isLimited);
    answer.pipe(response);
  });
  upstream.on('error', () => response.destroy());
  response.on('close', () => upstream.destroy());
  upstream.end(body);
}

// Forwards a stream event by event, at the speed of a larger model. If the server disconnects, so does the proxy. A stream
// without a token limit does not end but becomes silent, so that even a slow page can stop or lose it.
async function forwardSlowly(answer, response, isLimited) {
  let isOver = false;
  let rest = '';
  try {
    for await (const part of answer) {
      const events = (rest + part.toString('latin1')).split(/(?<=\n\n)/);
      rest = events.at(-1).endsWith('\n\n') ? '' : events.pop();
      for (const event of events) {
        if (response.destroyed) return;
        isOver ||= !isLimited && /"finish_reason": *"/.test(event);
        if (isOver) continue;
        response.write(event, 'latin1');
        await sleep(10);
      }
    }
    if (!isOver) response.end(rest, 'latin1');
  } catch {
    response.destroy();
  }
}

async function runScript(proxy, body, request, response) {
  proxy.requests.push(body);
  const connection = { isOpen: true };
  response.on('close', () => (connection.isOpen = false));
  const writeHead = () => {
    if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream' });
  };
  const reply = {
    connection,
    event(event) {
      writeHead();
      response.write(`data: ${JSON.stringify({ choices: [], ...event })}\n\n`);
    },
    delta(delta, more = {}) {
      reply.event({ choices: [{ index: 0, delta, logprobs: more.logprobs ?? null, finish_reason: null }] });
    },
    end(reason = 'stop', more = {}, used = {}) {
      reply.event({ choices: [{ index: 0, delta: {}, finish_reason: reason }], timings: timings(), ...more });
      reply.event({ usage: { ...usage(), ...used } });
      response.end('data: [DONE]\n\n');
    },
    disconnect() {
      response.destroy();
    },
    json(body, status = 200) {
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(body));
    },
    fail(status, error) {
      reply.json({ error }, status);
    },
  };
  proxy.reply = reply;
  await proxy.script(reply, body);
}

// Disconnects the streaming answer once the page shows these words: a broken stream loses the data that the browser has not
// delivered yet.
export async function disconnectOnceShown(proxy, page, words) {
  await page.locator('.by-assistant', { hasText: words }).last().waitFor();
  proxy.reply.disconnect();
}

export const timings = () => ({
  queued_ms: 1, prompt_n: 8, prompt_ms: 120, prompt_per_second: 66, predicted_n: 42, predicted_ms: 1000, predicted_per_second: 41.5,
  cache_n: 16, cache_miss: 'none',
});
export const usage = () => ({
  prompt_tokens: 24, completion_tokens: 42, total_tokens: 66, prompt_tokens_details: { cached_tokens: 16 },
  completion_tokens_details: { reasoning_tokens: 7 },
});

// A script that sends the text at once, in small pieces.
export const replyWith = (text, size = 7) => (reply) => {
  for (let at = 0; at < text.length; at += size) reply.delta({ content: text.slice(at, at + size) });
  reply.end();
};

// Long, because the machine may be busy; a test that waits this long has failed.
const kTimeoutMs = 120_000;

let browser;
export async function openBrowser() {
  browser ??= await chromium.launch({
    executablePath: process.env.ZINC_CHROMIUM ?? '/usr/bin/chromium',
    timeout: kTimeoutMs,
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--force-device-scale-factor=1'],
  });
  cleanups.push(async () => {
    await browser?.close();
    browser = undefined;
  });
  return browser;
}

// A browser context whose waits have the timeout of all tests.
export async function openContext(options = {}) {
  const context = await (await openBrowser()).newContext(options);
  context.setDefaultTimeout(kTimeoutMs);
  return context;
}

export const kDesktop = { width: 1280, height: 860 };
export const kPhone = { width: 390, height: 844 };

// In pages opened from now on, timers of at least this length fire only in fireTimers(). Otherwise a toast or a stream timeout
// could be over before a slow test has looked.
export const holdTimers = (pages, fromMs) =>
  pages.addInitScript((from) => {
    const { setTimeout: start, clearTimeout: clear } = window;
    const held = (window.heldTimers ??= new Map());
    window.setTimeout = (run, ms, ...rest) => {
      if (!(ms >= from)) return start(run, ms, ...rest);
      const id = -Math.random(); // never the id of a real timer
      held.set(id, () => run(...rest));
      return id;
    };
    window.clearTimeout = (id) => held.delete(id) || clear(id);
    window.fireTimers = () => {
      const callbacks = [...held.values()];
      held.clear();
      for (const run of callbacks) run();
    };
  }, fromMs);
export const fireTimers = (page) => page.evaluate(() => window.fireTimers());
const kMinHeldMs = 4000;

/** Waits until a page that was opened or reloaded takes keys. */
export async function ready(page) {
  await page.waitForSelector('#prompt');
  await page.waitForFunction(() => document.querySelector('dialog[open]') || !document.querySelector('.welcome')?.textContent.includes('Connecting…'));
}

// A new page that records forbidden events: executed scripts, requests to other origins, errors, violations of the policy.
// `prepare` runs before the page is opened.
export async function openPage(url, options = {}, prepare = async () => undefined) {
  const context = await openContext({ viewport: kDesktop, colorScheme: 'light', serviceWorkers: 'block', ...options });
  await holdTimers(context, kMinHeldMs);
  const page = await context.newPage();
  const seen = { foreign: [], errors: [], violations: [], executed: [] };
  const origin = new URL(url).origin;
  context.on('request', (request) => {
    if (!request.url().startsWith(origin) && !request.url().startsWith('blob:')) seen.foreign.push(request.url());
  });
  page.on('pageerror', (error) => seen.errors.push(error.message));
  page.on('console', (line) => {
    if (/Content Security Policy|Trusted/i.test(line.text())) seen.violations.push(line.text());
  });
  page.on('dialog', (dialog) => {
    seen.executed.push(dialog.message());
    void dialog.dismiss();
  });
  await context.exposeFunction('zincExecuted', (call) => seen.executed.push(call));
  await page.addInitScript(() => {
    for (const name of ['alert', 'prompt', 'confirm', 'print']) window[name] = (text) => window.zincExecuted(`${name}(${text})`);
  });
  await prepare(page);
  await page.goto(url);
  await ready(page);
  return { page, context, seen, close: () => context.close() };
}

// Waits for the end of an answer, which is stored after its last word is displayed: until then Enter does nothing. Returns once the
// message is displayed: a tap becomes a click only after a delay.
export async function sendMessage(page, text) {
  const nBefore = await page.locator('#thread .by-user').count();
  await page.fill('#prompt', text);
  await page.locator('.send:not(.is-stop):enabled').waitFor();
  const isPhone = await page.evaluate(() => matchMedia('(pointer: coarse) and (hover: none)').matches);
  if (isPhone) await page.getByRole('button', { name: 'Send' }).tap();
  else await page.press('#prompt', 'Enter');
  await page.waitForFunction((n) => document.querySelectorAll('#thread .by-user').length > n, nBefore);
}

// The last answer, once it has ended and is rendered.
export async function finishedAnswer(page) {
  await page.waitForFunction(() => {
    const last = [...document.querySelectorAll('.by-assistant')].at(-1);
    return last && last.getAttribute('aria-busy') === 'false' && !last.querySelector('[aria-busy="true"]');
  });
  return page.locator('.by-assistant').last();
}

// The last answer, once its formulas are rendered too; their library is loaded on demand.
export async function renderedAnswer(page) {
  const answer = await finishedAnswer(page);
  await page.waitForFunction(() => [...document.querySelectorAll('.math')].every((math) => math.matches('.is-raw') || math.querySelector('.katex')));
  return answer;
}

// Waits until no text is being rendered and the layout has not changed for ten frames.
export const untilStable = (page) =>
  page.evaluate(
    () =>
      new Promise((resolve) => {
        let [before, nSame] = ['', 0];
        const check = () => {
          const now = [scrollY, document.documentElement.scrollHeight, document.querySelector('[aria-busy="true"]')].join();
          const isRendering = document.querySelector('.prose[aria-busy="true"]') !== null;
          nSame = now === before && !isRendering ? nSame + 1 : 0;
          before = now;
          if (nSame < 10) requestAnimationFrame(check);
          else resolve();
        };
        check();
      }),
  );

// Waits until the answers show these tokens; many tokens, or few on a busy machine, are rendered in several steps.
export const untilTokens = (page, texts) =>
  page.waitForFunction((wanted) => JSON.stringify([...document.querySelectorAll('.text .token')].map((token) => token.textContent)) === wanted, JSON.stringify(texts));

// The HTML of the rendered last answer, without syntax highlighting, which arrives asynchronously.
export async function renderedHtml(page) {
  const answer = await renderedAnswer(page);
  const html = await answer.locator('.prose').innerHTML();
  return html.replace(/ data-(rendered|highlighted)="1"/g, '').replace(/<span class="hljs[^>]*>|<\/span>/g, '').replace(/<span>/g, '');
}

const setFile = (field) => (page, name, content) => page.setInputFiles(field, { name, mimeType: 'text/plain', buffer: Buffer.from(content) });
export const pickFile = setFile('#attach');
export async function attach(page, name, content) {
  await pickFile(page, name, content);
  await page.locator('.chips li', { hasText: name }).waitFor();
}
export const importFile = setFile('#import');

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// The page's IndexedDB content.
export const readStore = (page) =>
  page.evaluate(
    () =>
      new Promise((resolve, reject) => {
        const request = indexedDB.open('zinc');
        request.onerror = () => reject(request.error);
        request.onsuccess = () => {
          const names = ['conversations', 'messages', 'tokens', 'drafts'];
          const transaction = request.result.transaction(names);
          const all = names.map((name) => transaction.objectStore(name).getAll());
          transaction.oncomplete = () => {
            request.result.close();
            resolve(Object.fromEntries(names.map((name, i) => [name, all[i].result])));
          };
        };
      }),
  );

// Waits until `find` returns a truthy value, and returns it.
export async function eventually(find, what = find) {
  for (const end = Date.now() + kTimeoutMs; ; await sleep(50)) {
    const found = await find();
    if (found) return found;
    if (Date.now() > end) throw new Error(`timed out waiting for: ${what}`);
  }
}
// The same for the page's store.
export const untilStore = (page, find) => eventually(async () => find(await readStore(page)), find);
export const untilMessage = (page, matches) => untilStore(page, ({ messages }) => messages.find(matches));
export const untilDraft = (page, matches) => untilStore(page, ({ drafts }) => drafts.find(matches));

export async function setField(page, name, value) {
  await page.keyboard.press('Control+,');
  await page.fill(`dialog [name="${name}"]`, value);
  await page.press(`dialog [name="${name}"]`, 'Tab');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
}
