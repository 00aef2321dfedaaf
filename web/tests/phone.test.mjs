// Every feature by touch, at phone width, in the dark theme.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import {
  attach, finishedAnswer, importFile, interruptedConversation, kPhone, openPage, readStore, renderedAnswer, replyWith, sendMessage,
  sleep, untilStable, useProxy,
} from './harness.mjs';

const proxy = useProxy();

const kPhoneOptions = { viewport: kPhone, hasTouch: true, isMobile: true, colorScheme: 'dark' };
const open = () => openPage(proxy.url, kPhoneOptions);
const tap = (page, name, scope = page) => scope.getByRole('button', { name, exact: true }).first().tap();
const assertNoOverflow = async (page) => assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'no horizontal overflow');
async function act(page, title, name) {
  if (!(await page.locator('#sidebar').isVisible())) await tap(page, 'Conversations');
  await tap(page, `Actions for ${title}`);
  await page.locator('.menu').getByRole('button', { name }).tap();
}

test('chat by touch: stream, reasoning, code, stop, continue, regenerate, branches, edit', async () => {
  let isOpen = true;
  proxy.script = async (reply, body) => {
    if (body.continue_final_message) return replyWith(' and on.')(reply);
    reply.delta({ reasoning_content: 'Let me see.' });
    reply.delta({ content: '## Head\n\n| a | b |\n|--|--|\n| 1 | 2 |\n\n$x^2$\n\n```js\nlet a = 1;\n```\n\nIt goes on' });
    while (isOpen && reply.connection.isOpen) {
      reply.delta({ content: ' on' });
      await sleep(15);
    }
    reply.end();
  };
  const { page, seen, close } = await open();
  await sendMessage(page, 'A question');
  await page.locator('figure.code').waitFor();
  await page.locator('.thought summary').tap();
  assert.equal((await page.locator('.thought .prose').innerText()).trim(), 'Let me see.');
  await tap(page, 'Wrap');
  await tap(page, 'Stop');
  // The library of formulas may arrive late and shift the layout: a tap would hit the place where the button was.
  let answer = await renderedAnswer(page);
  await untilStable(page);
  await answer.locator('.notice.is-stopped').getByRole('button', { name: 'Continue' }).tap();
  await page.locator('.prose', { hasText: 'and on.' }).waitFor();
  await finishedAnswer(page);
  await assertNoOverflow(page);
  isOpen = false;
  await tap(page, 'Regenerate', answer);
  await page.locator('.by-assistant .branches', { hasText: '2 / 2' }).waitFor();
  answer = await finishedAnswer(page);
  await tap(page, 'Previous branch', answer);
  await page.locator('.by-assistant .branches', { hasText: '1 / 2' }).waitFor();
  await tap(page, 'Edit');
  await page.fill('.editor textarea', 'Another question');
  await tap(page, 'Send', page.locator('.editor'));
  await page.locator('.by-user .branches', { hasText: '2 / 2' }).waitFor();
  await finishedAnswer(page);
  await assertNoOverflow(page);
  assert.deepEqual(seen, { foreign: [], errors: [], violations: [], executed: [] });
  await close();
});

test('by touch: files, settings, tools, probabilities, a link', async () => {
  proxy.requests.length = 0;
  const wire = (text) => ({ token: text, logprob: -0.5, bytes: [...new TextEncoder().encode(text)] });
  proxy.script = (reply, body) => {
    if (body.messages.at(-1).role === 'tool') return replyWith('Sunny. [More](https://example.org/a)')(reply);
    if (body.tools) {
      reply.delta({ tool_calls: [{ index: 0, id: 'c1', function: { name: 'weather', arguments: '{"city":"Oslo"}' } }] });
      return reply.end('tool_calls');
    }
    for (const text of ['Yes', ',', ' indeed']) reply.delta({ content: text }, { logprobs: { content: [{ ...wire(text), top_logprobs: [wire(text), wire(' perhaps')] }] } });
    reply.end();
  };
  const { page, context, close } = await open();
  await attach(page, 'notes.txt', 'inside');
  await page.locator('.pill', { hasText: 'Probabilities' }).tap();
  await page.locator('.pill[aria-pressed="true"]', { hasText: 'Probabilities' }).waitFor();
  await sendMessage(page, 'Is it so?');
  let answer = await finishedAnswer(page);
  assert.match(proxy.requests[0].messages[0].content, /notes\.txt\n```\ninside/);
  await answer.locator('.text .token').nth(1).tap();
  await answer.locator('.alternatives li button:not(:disabled)').tap();
  await page.locator('.by-assistant .branches', { hasText: '2 / 2' }).waitFor();
  assert.equal(proxy.requests.at(-1).messages.at(-1).content, 'Yes perhaps');
  await finishedAnswer(page);
  await tap(page, 'Settings of this conversation');
  await page.fill('dialog [name="system"]', 'Be brief.');
  await page.fill('dialog [name="tools"]', '[{"type":"function","function":{"name":"weather"}}]');
  await tap(page, 'Close');
  await page.getByRole('dialog').waitFor({ state: 'detached' }); // behind it nothing takes the focus
  await sendMessage(page, 'And the weather?');
  await page.locator('.card textarea').fill('sun');
  await tap(page, 'Send result');
  await page.locator('.prose a').tap();
  await page.getByRole('dialog', { name: 'Open this link?' }).waitFor();
  await tap(page, 'Cancel');
  assert.equal(context.pages().length, 1);
  assert.deepEqual(proxy.requests.at(-1).messages[0], { role: 'system', content: 'Be brief.' });
  answer = await finishedAnswer(page);
  await assertNoOverflow(page);
  await close();
});

test('by touch: search, rename, delete, undo, export, import; models; Compare; theme', async () => {
  proxy.script = replyWith('A rare xylophone.');
  const { page, close } = await open();
  await sendMessage(page, 'music');
  await finishedAnswer(page);
  await tap(page, 'Conversations');
  await tap(page, 'New conversation');
  await page.waitForFunction(() => getComputedStyle(document.getElementById('sidebar')).visibility === 'hidden');
  proxy.script = replyWith('plain');
  await sendMessage(page, 'cooking');
  await finishedAnswer(page);
  await tap(page, 'Conversations');
  await page.fill('#search', 'xylophone');
  await page.waitForFunction(() => document.querySelectorAll('.row').length === 1);
  await act(page, 'music', 'Rename');
  await page.locator('.row input').fill('Instruments');
  await page.keyboard.press('Enter');
  await page.fill('#search', '');
  const [file] = await Promise.all([page.waitForEvent('download'), act(page, 'Instruments', 'Export as Markdown')]);
  const text = readFileSync(await file.path(), 'utf8');
  await act(page, 'Instruments', 'Delete');
  await page.waitForFunction(() => document.querySelectorAll('.row').length === 1);
  await page.locator('.toast').getByRole('button', { name: 'Undo' }).tap();
  await page.locator('.prose', { hasText: 'xylophone' }).waitFor();
  await importFile(page, 'in.md', text);
  await page.locator('.toast', { hasText: 'Imported 1' }).waitFor();
  assert.equal((await readStore(page)).conversations.length, 3);

  await tap(page, 'Conversations');
  await page.getByRole('combobox', { name: 'Theme' }).selectOption('light');
  assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme), 'light');
  await page.locator('#sidebar').getByRole('button', { name: 'Models' }).tap();
  await page.locator('[data-model="tiny"] .badge', { hasText: 'loaded' }).waitFor();
  await assertNoOverflow(page);
  await tap(page, 'Close');
  await page.locator('#sidebar').getByRole('button', { name: 'Compare' }).tap();
  await page.fill('[aria-label="Prompt for both"]', 'Say something');
  await tap(page, 'Ask both');
  await page.waitForFunction(() => document.querySelectorAll('.side .figures').length === 2);
  await assertNoOverflow(page);
  await tap(page, 'Continue with B');
  await page.locator('.by-user .said', { hasText: 'Say something' }).waitFor();
  await close();
});

test('by touch: retry after a lost connection', async () => {
  const { page, answer, close } = await interruptedConversation(proxy, 'The beginning', ' and the rest', kPhoneOptions);
  await answer.locator('.notice.is-lost').getByRole('button', { name: 'Retry' }).tap();
  await page.locator('.prose p', { hasText: 'The beginning and the rest' }).waitFor();
  await page.reload();
  await page.locator('.prose p', { hasText: 'The beginning and the rest' }).waitFor();
  await close();
});
