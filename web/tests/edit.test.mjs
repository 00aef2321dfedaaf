// Changing messages: editing answers in place, deleting one message, regenerating with another model.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import test from 'node:test';
import {
  finishedAnswer, modelFolder, openPage, readStore, replyWith, sendMessage, startConversation, startProxy, startZinc, untilMessage, untilStore,
  useProxy,
} from './harness.mjs';

const proxy = useProxy();

test('an answer is edited in place, the model sees the change, and Undo restores it', async () => {
  const { page, answer, close } = await startConversation(proxy, replyWith('Berlin is in **France**.'), 'Where is Berlin?');
  await answer.getByRole('button', { name: 'Edit the answer' }).click();
  const field = answer.getByRole('textbox', { name: 'Edit the answer' });
  assert.equal(await field.inputValue(), 'Berlin is in **France**.');
  await field.fill('Berlin is in **Germany**.');
  await answer.getByRole('button', { name: 'Save' }).click();
  await answer.locator('.prose strong', { hasText: 'Germany' }).waitFor();
  await page.locator('.toast', { hasText: 'Answer changed' }).getByRole('button', { name: 'Undo' }).click();
  await answer.locator('.prose strong', { hasText: 'France' }).waitFor();
  await answer.getByRole('button', { name: 'Edit the answer' }).click();
  await field.fill('Berlin is in **Germany**, and');
  await answer.getByRole('button', { name: 'Save' }).click();
  await answer.locator('.prose', { hasText: 'Germany, and' }).waitFor();
  await page.reload();
  await answer.locator('.prose', { hasText: 'Germany, and' }).waitFor();
  proxy.script = replyWith(' so is Bonn.');
  await answer.getByRole('button', { name: 'Continue' }).click(); // offered because the answer was changed
  await answer.locator('.prose', { hasText: 'Germany, and so is Bonn.' }).waitFor();
  assert.equal(proxy.requests.at(-1).messages.at(-1).content, 'Berlin is in **Germany**, and');
  await sendMessage(page, 'Sure?');
  await finishedAnswer(page);
  assert.equal(proxy.requests.at(-1).messages[1].content, 'Berlin is in **Germany**, and so is Bonn.');
  await close();
});

test('a complete answer offers no Continue, an incomplete one does', async () => {
  const { page, answer, close } = await startConversation(proxy, replyWith('All of it.'));
  assert.equal(await answer.getByRole('button', { name: 'Continue' }).count(), 0);
  proxy.script = (reply) => {
    reply.delta({ content: 'Half of' });
    reply.end('length');
  };
  await sendMessage(page, 'again');
  await (await finishedAnswer(page)).getByRole('button', { name: 'Continue' }).waitFor();
  await close();
});

test('one message is deleted, its neighbors become one turn, and Undo restores it', async () => {
  const { page, close } = await startConversation(proxy, replyWith('First answer.'), 'first question');
  proxy.script = replyWith('Second answer.');
  await sendMessage(page, 'second question');
  await page.locator('.by-assistant', { hasText: 'Second answer.' }).waitFor();
  await finishedAnswer(page);
  const first = page.locator('.by-assistant').first();
  await first.getByRole('button', { name: 'Delete' }).click();
  await page.waitForFunction(() => document.querySelectorAll('#thread .message').length === 3);
  await page.locator('.toast', { hasText: 'Answer deleted' }).getByRole('button', { name: 'Undo' }).click();
  await page.getByText('First answer.').waitFor();
  assert.deepEqual(await page.locator('#thread .message').evaluateAll((list) => list.map((entry) => entry.getAttribute('aria-label'))), ['You', 'Answer', 'You', 'Answer']);
  await first.getByRole('button', { name: 'Delete' }).click();
  await untilStore(page, ({ messages }) => messages.length === 3);
  await page.reload();
  await page.getByText('Second answer.').waitFor();
  assert.equal(await page.getByText('First answer.').count(), 0);
  proxy.script = replyWith('Third answer.');
  await sendMessage(page, 'third question');
  await page.locator('.by-assistant', { hasText: 'Third answer.' }).waitFor();
  assert.deepEqual(proxy.requests.at(-1).messages.map(({ role, content }) => `${role}: ${content}`), [
    'user: first question\n\nsecond question', 'assistant: Second answer.', 'user: third question',
  ]);
  await close();
});

test('deleting the last message shows its other branch, and a streaming answer is stopped', async () => {
  const { page, answer, close } = await startConversation(proxy, replyWith('One.'), 'a question');
  proxy.script = (reply) => reply.delta({ content: 'Two, and' });
  await answer.getByRole('button', { name: 'Regenerate' }).click();
  await page.locator('.prose', { hasText: 'Two, and' }).waitFor();
  await page.locator('.by-user').hover();
  await page.getByRole('button', { name: 'Stop' }).click();
  await (await finishedAnswer(page)).getByRole('button', { name: 'Delete' }).click();
  await page.locator('.prose', { hasText: 'One.' }).waitFor();
  assert.equal(await page.locator('.branches').count(), 0);
  await page.locator('.by-assistant').getByRole('button', { name: 'Delete' }).click();
  await untilStore(page, ({ messages }) => messages.length === 1);
  assert.equal(await page.locator('#thread .message').count(), 1);
  await close();
});

test('deleting a message in one tab removes it from the other', async () => {
  const { page, context, answer, close } = await startConversation(proxy, replyWith('Gone soon.'));
  const other = await context.newPage();
  await other.goto(page.url());
  await other.getByText('Gone soon.').waitFor();
  await answer.getByRole('button', { name: 'Delete' }).click();
  await other.getByText('Gone soon.').waitFor({ state: 'detached' });
  await close();
});

test('an answer is regenerated with another model, which is loaded first', async () => {
  const two = await startZinc([`other=${join(modelFolder, 'llama-q8_0.gguf')}`]);
  const front = await startProxy(two.url);
  front.script = replyWith('Scripted.');
  await fetch(`${two.url}/v1/models/activate`, { method: 'POST', body: JSON.stringify({ model: 'tiny' }) });
  const { page, close } = await openPage(front.url);
  await sendMessage(page, 'a question');
  const answer = await finishedAnswer(page);
  await answer.getByRole('button', { name: 'Regenerate with another model' }).click();
  await answer.locator('.menu').getByRole('button', { name: /other.*loads first/ }).click();
  await page.locator('.by-assistant .branches', { hasText: '2 / 2' }).waitFor();
  await (await finishedAnswer(page)).locator('.figures', { hasText: 'other' }).waitFor();
  assert.equal(front.requests.at(-1).model, 'other');
  assert.equal(await page.inputValue('.model-picker'), 'other');
  await untilMessage(page, (message) => message.model === 'other' && !message.writing);
  assert.deepEqual((await readStore(page)).messages.map(({ model }) => model).filter(Boolean).sort(), ['other', 'tiny']);
  await close();
  await two.stop();
});
