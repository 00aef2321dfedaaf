// What the tests of the page share: the real server with a tiny model, a go-between that plays a scripted model where a
// test wants one, and Debian's Chromium. Everything else of the page, its policy included, is the server's own.
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

// Starts `zinc serve`. `home` keeps its models apart from those of whoever runs the tests.
export async function startZinc(args = [], { port = 0, home = mkdtempSync(join(tmpdir(), 'zinc-page-')) } = {}) {
  const model = `tiny=${join(modelFolder, 'qwen3-q8_0.gguf')}`;
  const child = spawn(zinc, ['serve', model, '--port', String(port), '--parallel', '4', '-c', '2048', ...args], {
    env: { ...process.env, HOME: home, XDG_CACHE_HOME: join(home, 'cache'), XDG_CONFIG_HOME: join(home, 'config'), HF_HOME: join(home, 'hf') },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  child.stderr.on('data', (bytes) => (said += bytes));
  const url = await new Promise((resolve, reject) => {
    let out = '';
    child.stdout.on('data', (bytes) => {
      out += bytes;
      const found = /^listening on (\S+)/m.exec(out);
      if (found) resolve(found[1]);
    });
    child.on('exit', (code) => reject(new Error(`zinc ended with ${code}: ${said}`)));
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
  return { url, port: Number(new URL(url).port), home, stop };
}

// Stands between the page and the server. While `script` is set, it answers chat requests itself: a function that is
// given the request's body and `say`, which sends one event.
export async function startGoBetween(target, between = {}) {
  Object.assign(between, { target, script: null, isSlow: false, isEndless: false, requests: [], url: '', open: new Set() });
  between.cut = () => between.open.forEach((response) => response.destroy());
  const server = http.createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      const body = Buffer.concat(parts);
      if (request.url === '/v1/chat/completions' && between.script) return play(between, JSON.parse(body), request, response);
      pass(between, request, body, response);
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  between.url = `http://127.0.0.1:${server.address().port}`;
  cleanups.push(() => {
    server.closeAllConnections?.();
    return new Promise((resolve) => server.close(resolve));
  });
  return between;
}

// The stage of a test file: a server with a go-between before it, there from its first test to its last.
export function setStage() {
  const between = {};
  before(async () => startGoBetween((await startZinc()).url, between));
  after(cleanUp);
  return between;
}

// A page in which a question was asked, and answered as the script has it.
export async function conversation(between, script, text = 'hi', options = {}) {
  between.script = script;
  between.requests.length = 0;
  const opened = await openPage(between.url, options);
  await ask(opened.page, text);
  return { ...opened, answer: await answered(opened.page) };
}

// One whose connection is cut after the first words; a retry brings the rest.
export async function cutConversation(between, words, rest = '', options = {}) {
  between.script = (stage, body) => (body.continue_final_message ? says(rest)(stage) : stage.delta({ content: words }));
  between.requests.length = 0;
  const opened = await openPage(between.url, options);
  await ask(opened.page, 'go');
  await cutOnceShown(between, opened.page, words);
  return { ...opened, answer: await answered(opened.page) };
}

// A tiny model of random weights may end its answer anywhere; this one does not. Some of its context is left for more.
const endless = (body) => Buffer.from(JSON.stringify({ max_tokens: 300, ...JSON.parse(body), ignore_eos: true }));

function pass(between, request, asked, response) {
  const isChat = request.url === '/v1/chat/completions';
  const isLimited = isChat && 'max_tokens' in JSON.parse(asked);
  const body = between.isEndless && isChat ? endless(asked) : asked;
  const to = new URL(between.target);
  const headers = { ...request.headers, host: to.host, connection: 'close' };
  if (request.method === 'POST') headers['content-length'] = body.length;
  if (headers.origin) headers.origin = to.origin;
  const onward = http.request({ host: to.hostname, port: to.port, path: request.url, method: request.method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    between.open.add(response);
    response.on('close', () => between.open.delete(response));
    if (between.isSlow && request.method === 'POST') return void trickle(answer, response, isLimited);
    answer.pipe(response);
  });
  onward.on('error', () => response.destroy());
  response.on('close', () => onward.destroy());
  onward.end(body);
}

// Passes a stream on event by event, as a larger model would make them; where the server's end is cut, so is this one.
// One without a limit does not end, but falls silent: however slow the page is, it can be stopped or cut.
async function trickle(answer, response, isLimited) {
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
        await pause(10);
      }
    }
    if (!isOver) response.end(rest, 'latin1');
  } catch {
    response.destroy();
  }
}

async function play(between, body, request, response) {
  between.requests.push(body);
  const connection = { isOpen: true };
  response.on('close', () => (connection.isOpen = false));
  const begin = () => {
    if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream' });
  };
  const stage = {
    connection,
    say(event) {
      begin();
      response.write(`data: ${JSON.stringify({ choices: [], ...event })}\n\n`);
    },
    delta(delta, more = {}) {
      stage.say({ choices: [{ index: 0, delta, logprobs: more.logprobs ?? null, finish_reason: null }] });
    },
    end(reason = 'stop', more = {}, used = {}) {
      stage.say({ choices: [{ index: 0, delta: {}, finish_reason: reason }], timings: timings(), ...more });
      stage.say({ usage: { ...usage(), ...used } });
      response.end('data: [DONE]\n\n');
    },
    cut() {
      response.destroy();
    },
    refuse(status, error) {
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ error }));
    },
  };
  between.stage = stage;
  await between.script(stage, body);
}

// Cuts the connection of the answer under way once the page shows these words: a stream that breaks takes with it what
// it has not handed out.
export async function cutOnceShown(between, page, words) {
  await page.locator('.by-assistant', { hasText: words }).last().waitFor();
  between.stage.cut();
}

export const timings = () => ({
  queued_ms: 1, prompt_n: 8, prompt_ms: 120, prompt_per_second: 66, predicted_n: 42, predicted_ms: 1000, predicted_per_second: 41.5,
  cache_n: 16, cache_miss: 'none',
});
export const usage = () => ({
  prompt_tokens: 24, completion_tokens: 42, total_tokens: 66, prompt_tokens_details: { cached_tokens: 16 },
  completion_tokens_details: { reasoning_tokens: 7 },
});

// A script that says the text at once, in small pieces.
export const says = (text, size = 7) => (stage) => {
  for (let at = 0; at < text.length; at += size) stage.delta({ content: text.slice(at, at + size) });
  stage.end();
};

// What is waited for comes at once, but on a busy machine; a test that waits so long has failed.
const kPatience_ms = 120_000;

let browser;
export async function openBrowser() {
  browser ??= await chromium.launch({
    executablePath: process.env.ZINC_CHROMIUM ?? '/usr/bin/chromium',
    timeout: kPatience_ms,
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu', '--force-device-scale-factor=1'],
  });
  cleanups.push(async () => {
    await browser?.close();
    browser = undefined;
  });
  return browser;
}

export const kDesktop = { width: 1280, height: 860 };
export const kPhone = { width: 390, height: 844 };

// Waits of that length and more, in pages that are opened from then on, end when the test says so and not before: how long
// a toast is shown, or a silence is borne, is otherwise over before a slow test has looked.
export const holdWaits = (pages, from_ms) =>
  pages.addInitScript((from) => {
    const { setTimeout: start, clearTimeout: clear } = window;
    const held = (window.held ??= new Map());
    window.setTimeout = (run, ms, ...rest) => {
      if (!(ms >= from)) return start(run, ms, ...rest);
      const id = -Math.random(); // as no timer of the browser has
      held.set(id, () => run(...rest));
      return id;
    };
    window.clearTimeout = (id) => held.delete(id) || clear(id);
    window.endWaits = () => {
      const due = [...held.values()];
      held.clear();
      for (const run of due) run();
    };
  }, from_ms);
export const endWaits = (page) => page.evaluate(() => window.endWaits());
const kLongWait_ms = 4000;

// A fresh page that notes what must never happen: scripts that ran, requests elsewhere, errors, violations of the policy.
export async function openPage(url, options = {}) {
  const context = await (await openBrowser()).newContext({ viewport: kDesktop, colorScheme: 'light', ...options });
  context.setDefaultTimeout(kPatience_ms);
  await holdWaits(context, kLongWait_ms);
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
  await context.exposeFunction('zincExecuted', (what) => seen.executed.push(what));
  await page.addInitScript(() => {
    for (const name of ['alert', 'prompt', 'confirm', 'print']) window[name] = (text) => window.zincExecuted(`${name}(${text})`);
  });
  await page.goto(url);
  await page.waitForSelector('#prompt');
  await page.waitForFunction(() => document.querySelector('dialog[open]') || !document.querySelector('.welcome')?.textContent.includes('Connecting…'));
  return { page, context, seen, close: () => context.close() };
}

// A tap is not a click before the browser has made it one; what is asked is shown at once then.
export async function ask(page, text) {
  const nBefore = await page.locator('#thread .by-user').count();
  await page.fill('#prompt', text);
  const isPhone = await page.evaluate(() => matchMedia('(pointer: coarse) and (hover: none)').matches);
  if (isPhone) await page.getByRole('button', { name: 'Send' }).tap();
  else await page.press('#prompt', 'Enter');
  await page.waitForFunction((n) => document.querySelectorAll('#thread .by-user').length > n, nBefore);
}

// The last answer, once it has come to its end and its text is drawn.
export async function answered(page) {
  await page.waitForFunction(() => {
    const last = [...document.querySelectorAll('.by-assistant')].at(-1);
    return last && last.getAttribute('aria-busy') === 'false' && !last.querySelector('[aria-busy="true"]');
  });
  return page.locator('.by-assistant').last();
}

// The last answer with its formulas, which are drawn once their library is there.
export async function drawnAnswer(page) {
  const answer = await answered(page);
  await page.waitForFunction(() => [...document.querySelectorAll('.math')].every((math) => math.matches('.is-raw') || math.querySelector('.katex')));
  return answer;
}

// Waits until nothing on the page has moved for ten frames.
export const settled = (page) =>
  page.evaluate(
    () =>
      new Promise((resolve) => {
        let [before, nSame] = ['', 0];
        const look = () => {
          const now = [scrollY, document.documentElement.scrollHeight, document.querySelector('[aria-busy="true"]')].join();
          nSame = now === before ? nSame + 1 : 0;
          before = now;
          if (nSame < 10) requestAnimationFrame(look);
          else resolve();
        };
        look();
      }),
  );

// The markup of the last answer once all of it is drawn, but for the colours of code, which come when they come.
export async function drawn(page) {
  const answer = await drawnAnswer(page);
  const html = await answer.locator('.prose').innerHTML();
  return html.replace(/ data-(drawn|colored)="1"/g, '').replace(/<span class="hljs[^>]*>|<\/span>/g, '').replace(/<span>/g, '');
}

const give = (field) => (page, name, content) => page.setInputFiles(field, { name, mimeType: 'text/plain', buffer: Buffer.from(content) });
export const pickFile = give('#attach');
export async function attach(page, name, content) {
  await pickFile(page, name, content);
  await page.locator('.chips li', { hasText: name }).waitFor();
}
export const importFile = give('#import');

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// What the page has stored.
export const stored = (page) =>
  page.evaluate(
    () =>
      new Promise((resolve, reject) => {
        const opened = indexedDB.open('zinc');
        opened.onerror = () => reject(opened.error);
        opened.onsuccess = () => {
          const names = ['conversations', 'messages', 'tokens', 'drafts'];
          const change = opened.result.transaction(names);
          const all = names.map((name) => change.objectStore(name).getAll());
          change.oncomplete = () => {
            opened.result.close();
            resolve(Object.fromEntries(names.map((name, i) => [name, all[i].result])));
          };
        };
      }),
  );

// Waits until `finds` returns something, and returns that.
export async function eventually(finds, what = finds) {
  for (const end = Date.now() + kPatience_ms; ; await pause(50)) {
    const found = await finds();
    if (found) return found;
    if (Date.now() > end) throw new Error(`it never came to be so: ${what}`);
  }
}
// The same of what is stored.
export const until = (page, finds) => eventually(async () => finds(await stored(page)), finds);
export const untilStored = (page, fits) => until(page, ({ messages }) => messages.find(fits));
export const untilDrafted = (page, fits) => until(page, ({ drafts }) => drafts.find(fits));

export async function setField(page, name, value) {
  await page.keyboard.press('Control+,');
  await page.fill(`dialog [name="${name}"]`, value);
  await page.press(`dialog [name="${name}"]`, 'Tab');
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
}
