// The context: a true gauge, a warning before it is full, and the choices when it is exceeded.
import assert from 'node:assert/strict';
import test from 'node:test';
import {
  finishedAnswer, importFile, openPage, replyWith, sendMessage, startConversation, startProxy, untilStore, usage, useProxy,
} from './harness.mjs';

const proxy = useProxy();
const kContext = 2048;

// A conversation of `n` turns with `words` words each.
const conversationOf = (n, words) => JSON.stringify({
  format: 'zinc-conversations', version: 1,
  conversations: [{ title: 'long', head: n, settings: {}, messages: Array.from({ length: n }, (_, i) => ({
    id: i + 1, parent: i, role: i % 2 ? 'assistant' : 'user', content: `turn${i} ${'word '.repeat(words)}`, created: i,
  })) }],
});
const countOf = async (messages) => (await (await fetch(`${proxy.target}/apply-template`, { method: 'POST', body: JSON.stringify({ messages }) })).json()).count;
const gauge = (page, text) => page.locator('.gauge', { hasText: text }).waitFor();
const number = (n) => n.toLocaleString('en-US');

test('after a stopped answer the gauge shows the tokens that the server counts, also after a reload', async () => {
  proxy.script = (reply) => reply.delta({ content: 'A few words of an answer' });
  const { page, close } = await openPage(proxy.url);
  await gauge(page, `0 of ${number(kContext)} tokens`);
  await sendMessage(page, 'a question');
  await page.locator('.prose', { hasText: 'A few words' }).waitFor();
  await page.keyboard.press('Escape');
  await finishedAnswer(page);
  const n = await countOf([{ role: 'user', content: 'a question' }, { role: 'assistant', content: 'A few words of an answer' }]);
  assert.ok(n > 10);
  await gauge(page, `${n} of ${number(kContext)} tokens`);
  await page.reload();
  await gauge(page, `${n} of ${number(kContext)} tokens`);
  await close();
});

test('an imported conversation is counted, and the gauge says unknown if it cannot be', async () => {
  const { page, close } = await openPage(proxy.url);
  await page.route('**/apply-template', (route) => route.abort());
  await importFile(page, 'x.json', conversationOf(4, 40));
  await gauge(page, `unknown, of ${number(kContext)} tokens`);
  await page.unroute('**/apply-template');
  await importFile(page, 'y.json', conversationOf(6, 40));
  const n = await countOf(Array.from({ length: 6 }, (_, i) => ({ role: i % 2 ? 'assistant' : 'user', content: `turn${i} ${'word '.repeat(40)}` })));
  await gauge(page, `${number(n)} of ${number(kContext)} tokens`);
  await importFile(page, 'z.json', conversationOf(8, 120));
  await page.locator('.gone', { hasText: 'This conversation is longer than the context of the model' }).waitFor();
  await close();
});

test('from 80% on the page warns and offers to leave out the oldest messages', async () => {
  const answerOf = (total) => (reply) => {
    reply.delta({ content: 'ok' });
    reply.end('stop', {}, { ...usage(), total_tokens: total });
  };
  const { page, close } = await startConversation(proxy, answerOf(Math.floor(kContext * 0.79)), 'one');
  await gauge(page, `${number(Math.floor(kContext * 0.79))} of`);
  assert.equal(await page.locator('.gone').count(), 0);
  proxy.script = answerOf(Math.ceil(kContext * 0.81));
  await sendMessage(page, 'two');
  await page.locator('.gone', { hasText: 'fills 81% of the context' }).getByRole('button', { name: 'Leave out the oldest messages' }).waitFor();
  await close();
});

test('leaving out the oldest messages is a choice: they stay visible, the answer comes, and the choice can be undone', async () => {
  const front = await startProxy(proxy.target);
  const { page, close } = await openPage(front.url);
  const bodies = [];
  page.on('request', (request) => request.url().endsWith('/v1/chat/completions') && bodies.push(JSON.parse(request.postData())));
  await importFile(page, 'x.json', conversationOf(40, 30));
  await page.locator('.message').nth(39).waitFor();
  await sendMessage(page, 'the last question');
  const notice = (await finishedAnswer(page)).locator('.notice.is-context');
  assert.match(await notice.innerText(), /^This conversation is longer than the context of the model\./);
  assert.equal(bodies.at(-1).messages.length, 41, 'nothing is left out before the choice');
  await notice.getByRole('button', { name: 'Leave out the oldest messages' }).click();
  await page.locator('.cut', { hasText: 'The messages above are no longer sent to the model.' }).waitFor();
  await (await finishedAnswer(page)).locator('.figures').waitFor();
  const { messages } = bodies.at(-1);
  assert.ok(messages.length > 1 && messages.length < 41, `${messages.length} messages were sent`);
  assert.equal(messages[0].role, 'user');
  assert.equal(messages.at(-1).content, 'the last question');
  assert.ok((await countOf(messages)) <= kContext / 2);
  assert.equal(await page.locator('.message').count(), 42, 'all messages stay visible');
  assert.equal(await page.locator('.message.is-left-out').count(), 41 - messages.length);
  await untilStore(page, ({ conversations }) => conversations.some(({ context }) => context));
  await page.reload();
  await page.locator('.cut').getByRole('button', { name: 'Send them again' }).click();
  await page.locator('.cut').waitFor({ state: 'detached' });
  await untilStore(page, ({ conversations }) => conversations.every(({ context }) => !context));
  await close();
});

test('a last message that alone fills the context is told so', async () => {
  const front = await startProxy(proxy.target);
  const { page, close } = await openPage(front.url);
  await sendMessage(page, 'word '.repeat(4000));
  const first = (await finishedAnswer(page)).locator('.notice.is-context');
  await first.getByText('Your last message alone fills the context.').waitFor();
  assert.equal(await first.getByRole('button', { name: 'Leave out the oldest messages' }).count(), 0, 'there is none');
  await sendMessage(page, 'word '.repeat(4000));
  const notice = (await finishedAnswer(page)).locator('.notice.is-context');
  await notice.getByRole('button', { name: 'Leave out the oldest messages' }).click();
  await notice.getByText('Your last message alone fills the context.').waitFor();
  await close();
});

test('with a summary, the model summarizes the oldest messages in parts and the summary is sent instead', async () => {
  const summaries = [];
  proxy.script = (reply, body) => {
    if (!body.stream) {
      summaries.push(body.messages[0].content);
      return reply.json({ choices: [{ message: { content: `Summary number ${summaries.length}.` } }] });
    }
    if (body.messages.length > 30) return reply.fail(400, { message: 'too long', code: 'context_length_exceeded' });
    replyWith('Answered.')(reply);
  };
  const { page, close } = await openPage(proxy.url);
  await importFile(page, 'x.json', conversationOf(40, 60));
  await page.locator('.message').nth(39).waitFor();
  await sendMessage(page, 'the last question');
  await (await finishedAnswer(page)).getByRole('button', { name: 'Continue with a summary' }).click();
  await page.locator('.prose', { hasText: 'Answered.' }).waitFor();
  assert.ok(summaries.length > 1, `${summaries.length} parts`);
  assert.match(summaries[0], /turn0 word[\s\S]*turn1 word/);
  assert.match(summaries[1], /Summary of what came before:\nSummary number 1\./);
  const { messages } = proxy.requests.at(-1);
  assert.match(messages[0].content, new RegExp(`^Summary of our conversation so far:\nSummary number ${summaries.length}\\.\n\nturn`));
  await page.locator('.cut summary').click();
  await page.locator('.cut', { hasText: `Summary number ${summaries.length}.` }).waitFor();
  await close();
});

test("the system prompt of the model's own template is the placeholder", async () => {
  const { page, close } = await openPage(proxy.url);
  await page.route('**/apply-template', (route) => {
    const { messages } = route.request().postDataJSON();
    const [first] = messages;
    const system = first.role === 'system' ? first.content : 'You are a helpful AI assistant named SmolLM';
    const prompt = `<|im_start|>system\n${system}<|im_end|>\n<|im_start|>user\n${messages.at(-1).content}<|im_end|>\n<|im_start|>assistant\n`;
    return route.fulfill({ json: { prompt, count: 9 } });
  });
  await page.keyboard.press('Control+,');
  await page.getByPlaceholder('You are a helpful AI assistant named SmolLM').waitFor();
  await page.getByText("the model's own chat template adds the text above").waitFor();
  await page.fill('dialog [name="system"]', 'Be brief.');
  await page.getByText("the model's own chat template adds the text above").waitFor({ state: 'hidden' });
  await close();
  const plain = await openPage(proxy.url); // the tiny model's template adds none
  await plain.page.keyboard.press('Control+,');
  await plain.page.getByPlaceholder('Empty: the model gets no system prompt.').waitFor();
  await plain.close();
});
