// Hostile texts, of the kinds that public lists collect (OWASP's filter evasion sheet, PortSwigger's sheet, markdown and
// TeX ones): none runs, none makes a request, none leaves an element or attribute behind that could.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test, { after, before } from 'node:test';
import { answered, ask, cleanUp, openPage, pause, says, startGoBetween, startZinc } from './harness.mjs';

const vectors = JSON.parse(readFileSync(new URL('./xss_vectors.json', import.meta.url)));
let between;
before(async () => (between = await startGoBetween((await startZinc()).url)));
after(cleanUp);

// What is in the page that could do harm.
const remains = (page) =>
  page.evaluate(() => {
    const out = [];
    for (const element of document.querySelectorAll('#thread *, #sidebar *')) {
      const inMath = element.closest('.katex');
      if (/^(script|style|iframe|object|embed|link|meta|base|form|video|audio|picture|source|frame|portal)$/i.test(element.tagName) &&
          !element.matches('.editor, .card form')) out.push(element.outerHTML.slice(0, 200));
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

test(`there are ${vectors.length} vectors, at least 200`, () => assert.ok(new Set(vectors).size >= 200));

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
  });
  assert.equal((await remains(page)).length, 2);
  await (await context.newPage()).goto('http://localhost:9/').catch(() => undefined);
  assert.deepEqual({ executed: seen.executed, foreign: seen.foreign }, { executed: ['alert(7)'], foreign: ['http://localhost:9/'] });
  await close();
});

test('streamed in pieces of any size, none does anything', async () => {
  for (const size of [1, 5, 4000]) {
    const { page, seen, close } = await openPage(between.url);
    between.script = says(vectors.join('\n\n'), size);
    await ask(page, 'go');
    await answered(page);
    await poke(page);
    assert.deepEqual(await remains(page), [], `in pieces of ${size}`);
    assert.deepEqual({ executed: seen.executed, foreign: seen.foreign, errors: seen.errors }, { executed: [], foreign: [], errors: [] });
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
  await page.setInputFiles('#import', { name: 'x.json', mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(file)) });
  await page.waitForFunction((n) => document.querySelectorAll('.row').length === n, vectors.length);
  const bad = [];
  for (let i = 0; i < vectors.length; ++i) {
    await page.evaluate((at) => document.querySelectorAll('.row .title')[at].click(), i);
    await page.waitForFunction((at) => document.querySelectorAll('.row .title')[at].hasAttribute('aria-current'), i);
    await page.evaluate(() => { for (const pane of document.querySelectorAll('details')) pane.open = true; });
    const left = await remains(page);
    if (left.length > 0) bad.push([vectors[vectors.length - 1 - i], left]);
  }
  await poke(page);
  assert.deepEqual(bad, []);
  assert.deepEqual({ executed: seen.executed, foreign: seen.foreign, errors: seen.errors }, { executed: [], foreign: [], errors: [] });
  await close();
});
