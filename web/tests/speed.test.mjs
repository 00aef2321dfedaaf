// How smooth it is, by the browser's own tracing: an answer of 4,000 tokens at 300 a second, and a long conversation.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test, { after, before } from 'node:test';
import { answered, ask, cleanUp, openBrowser, openPage, pause, startGoBetween, startZinc, stored } from './harness.mjs';

let between;
before(async () => (between = await startGoBetween((await startZinc()).url)));
after(cleanUp);

const sample = readFileSync(new URL('./sample.md', import.meta.url), 'utf8');
const kTokens = 4000;
const kPerSecond = 300;

// About four characters a token, as models have it; never inside a surrogate pair.
function tokensOf(text) {
  const characters = [...text];
  const out = [];
  for (let i = 0; i < characters.length; i += 4) out.push(characters.slice(i, i + 4).join(''));
  return out;
}

// Long tasks of the page's main thread after `fromMs`. One that was long because the processor did other programs' work
// meanwhile is theirs, not the page's.
const kOwnMs = 40;
function longTasks(trace, fromMs) {
  const events = JSON.parse(trace.toString()).traceEvents;
  const mains = new Set(events.filter((event) => event.name === 'thread_name' && event.args?.name === 'CrRendererMain').map((event) => `${event.pid}:${event.tid}`));
  const tasks = events.filter((event) => event.ph === 'X' && /RunTask$/.test(event.name) && mains.has(`${event.pid}:${event.tid}`));
  assert.ok(tasks.length > 100, `the trace has ${tasks.length} tasks`);
  const begin = Math.min(...tasks.map((event) => event.ts));
  const long = tasks
    .filter((event) => (event.ts - begin) / 1000 > fromMs && event.dur > 50_000)
    .map((event) => ({ at: (event.ts - begin) / 1000, ms: event.dur / 1000, ownMs: (event.tdur ?? event.dur) / 1000 }));
  const own = long.filter((task) => task.ownMs > kOwnMs);
  if (long.length > own.length) console.log(`not the page's: ${JSON.stringify(long.filter((task) => !own.includes(task)))}`);
  return own;
}

// A machine that does something else now and then gets a second try; a page that is slow needs more than luck.
const timed = (name, run) =>
  test(name, async () => {
    try {
      await run();
    } catch (error) {
      console.log(`once more, after: ${error.message}`);
      await run();
    }
  });

const kCategories = ['toplevel', 'disabled-by-default-devtools.timeline', 'devtools.timeline', '__metadata'];

timed('4,000 tokens of markdown at 300 a second: no long task, frames under 20 ms, no word lost', async () => {
  let text = '';
  while (text.length < kTokens * 4) text += sample;
  const tokens = tokensOf(text).slice(0, kTokens);
  text = tokens.join('');
  between.script = async (stage) => {
    const begin = performance.now();
    for (let i = 0; i < tokens.length; ) {
      const due = Math.min(tokens.length, Math.floor(((performance.now() - begin) / 1000) * kPerSecond) + 1);
      for (; i < due; ++i) stage.delta({ content: tokens[i] });
      await pause(2);
    }
    stage.end();
  };
  const browser = await openBrowser();
  const { page, close } = await openPage(between.url);
  page.setDefaultTimeout(60_000);
  await page.evaluate(() => {
    window.frames_ = [];
    let last = performance.now();
    const tick = (now) => {
      window.frames_.push(now - last);
      last = now;
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  });
  await browser.startTracing(page, { categories: kCategories });
  await ask(page, 'go');
  const answer = await answered(page);
  await pause(500);
  const trace = await browser.stopTracing();
  const frames = (await page.evaluate(() => window.frames_)).sort((a, b) => a - b);
  const median = frames[Math.floor(frames.length / 2)];
  const long = longTasks(trace, 1000);
  console.log(`median frame ${median.toFixed(1)} ms, 99 % under ${frames[Math.floor(frames.length * 0.99)].toFixed(1)} ms, long tasks: ${JSON.stringify(long)}`);
  const message = (await stored(page)).messages.find((entry) => entry.role === 'assistant');
  assert.equal(message.content, text, 'every token is there');
  const streamed = await answer.locator('.prose').textContent();
  await page.reload();
  assert.equal(streamed, await (await answered(page)).locator('.prose').textContent(), 'what streamed is what it is');
  assert.ok(median < 20, `the median frame took ${median} ms`);
  assert.deepEqual(long, []);
  await close();
});

timed('500 messages open in under 300 ms and scroll without a long task', async () => {
  const browser = await openBrowser();
  const { page, close } = await openPage(between.url);
  const messages = [];
  for (let i = 0; i < 500; ++i) {
    messages.push({ id: `m${i}`, conversation: 'long', parent: i ? `m${i - 1}` : null, role: i % 2 ? 'assistant' : 'user', created: i,
      content: i % 2 ? sample.slice((i * 37) % 800, (i * 37) % 800 + 1500) : `Question ${i}: ${'why '.repeat(20)}` });
  }
  const base = { created: 1, settings: {} };
  const file = { format: 'zinc-conversations', version: 1, conversations: [
    { ...base, id: 'long', title: 'Long one', updated: 1, head: 'm499', messages },
    { ...base, id: 'short', title: 'Short one', updated: 2, head: 's', messages: [{ id: 's', conversation: 'short', parent: null, role: 'user', content: 'hi', created: 1 }] },
  ] };
  await page.setInputFiles('#import', { name: 'x.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(file)) });
  await page.locator('.row .title', { hasText: 'Short one' }).waitFor();
  const open = (title) => page.evaluate(async (name) => {
    const button = [...document.querySelectorAll('.row .title')].find((entry) => entry.textContent === name);
    const begin = performance.now();
    button.click();
    while (!button.hasAttribute('aria-current')) await new Promise((resolve) => setTimeout(resolve));
    await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve))); // drawn
    return performance.now() - begin;
  }, title);
  const times = [];
  for (let i = 0; i < 5; ++i) {
    await open('Short one');
    await pause(200);
    times.push(await open('Long one'));
    assert.equal(await page.locator('.message').count(), 500);
  }
  times.sort((a, b) => a - b);
  await pause(500);
  await browser.startTracing(page, { categories: kCategories });
  for (let i = 0; i < 60; ++i) {
    await page.mouse.wheel(0, -900);
    await pause(16);
  }
  await pause(300);
  const long = longTasks(await browser.stopTracing(), 0);
  console.log(`opened in ${times.map((time) => time.toFixed(0)).join(', ')} ms; long tasks: ${JSON.stringify(long)}`);
  assert.ok(times[2] < 300, `the median of opening is ${times[2]} ms`);
  assert.deepEqual(long, []);
  await close();
});
