// No data loss: text that was displayed or typed is never lost.
import assert from 'node:assert/strict';
import { networkInterfaces } from 'node:os';
import test from 'node:test';
import {
  attach, finishedAnswer, fireTimers, holdTimers, importFile, kPhone, openPage, readStore, renderedHtml, replyWith,
  sendMessage, sleep, startConversation, startZinc, untilDraft, untilMessage, untilStore, useProxy,
} from './harness.mjs';

const proxy = useProxy();

const cuts = {
  'a fence': ['Text\n\n```python\nthis con', 'tinues here\n```\n\nend'],
  'a paragraph': ['One.\n\nThe beginning', ' and **the rest**.\n\nMore.'],
  'a list': ['- one\n- two ha', 'lf\n  - nested\n- three\n\nend'],
  'a table': ['| a | b |\n|---|---|\n| 1 | 2', ' |\n| 3 | 4 |\n\nend'],
  'a formula': ['So\n\n$$x^2 +', ' y^2$$\n\nand $a$.'],
  'a link': ['See [the bo', 'ok][b].\n\n[b]: https://example.org/'],
};
for (const [position, [first, second]] of Object.entries(cuts)) {
  test(`an answer interrupted inside ${position} and retried renders like a complete one`, async () => {
    proxy.script = (reply, body) => (body.continue_final_message ? replyWith(second, 3)(reply) : reply.delta({ content: first }));
    const { page, close } = await openPage(proxy.url);
    await sendMessage(page, 'go');
    await page.locator('.by-assistant .prose:not(:empty)').waitFor(); // sent in one event
    proxy.reply.disconnect();
    const answer = await finishedAnswer(page);
    await answer.getByRole('button', { name: 'Retry' }).click();
    await answer.locator('.notice').waitFor({ state: 'detached' });
    const live = await renderedHtml(page);
    await untilMessage(page, (message) => message.role === 'assistant' && message.content === first + second);
    await page.reload();
    assert.equal(live, await renderedHtml(page));
    await close();
  });
}

test('deleting a conversation stops its streaming answer, and Undo restores all text', async () => {
  let go;
  const wait = new Promise((resolve) => (go = resolve));
  proxy.script = async (reply) => {
    reply.delta({ content: 'first part' });
    await wait;
    if (!reply.connection.isOpen) return;
    reply.delta({ content: ' second part' });
    reply.end();
  };
  const { page, close } = await openPage(proxy.url);
  await sendMessage(page, 'to be deleted');
  await page.locator('.prose', { hasText: 'first part' }).waitFor();
  await page.fill('#prompt', 'a draft');
  await page.locator('.row').hover();
  await page.getByRole('button', { name: /^Actions for/ }).click();
  await page.locator('.menu').getByRole('button', { name: 'Delete' }).click();
  await page.locator('.toast button').waitFor();
  go();
  await sleep(400);
  await untilStore(page, (all) => Object.values(all).every((records) => records.length === 0));
  await page.locator('.toast button', { hasText: 'Undo' }).click();
  await page.locator('.by-assistant .prose', { hasText: 'first part' }).waitFor();
  assert.equal(await page.inputValue('#prompt'), 'a draft');
  await close();
});

test('another toast does not remove the Undo toast', async () => {
  proxy.script = replyWith('ok');
  const { page, close } = await openPage(proxy.url);
  for (const name of ['one', 'two']) {
    await page.keyboard.press('Control+Shift+O');
    await sendMessage(page, name);
    await page.locator('.row', { hasText: name }).waitFor();
    await finishedAnswer(page);
  }
  await page.locator('.row', { hasText: 'one' }).hover();
  await page.getByRole('button', { name: 'Actions for one' }).click();
  await page.locator('.menu').getByRole('button', { name: 'Delete' }).click();
  await page.locator('.toast', { hasText: 'Deleted' }).waitFor();
  await page.locator('.by-assistant').getByRole('button', { name: 'Copy' }).click();
  await page.locator('.toast', { hasText: /Copied|copy/ }).waitFor();
  await page.locator('.toast button', { hasText: 'Undo' }).click();
  await page.locator('.row', { hasText: 'one' }).waitFor();
  await close();
});

test('a draft with a 6 MB attachment survives a reload and is deleted after sending', async () => {
  proxy.script = replyWith('ok');
  const big = 'x'.repeat(6_000_000);
  const { page, close } = await openPage(proxy.url);
  await page.fill('#prompt', 'look at it');
  await attach(page, 'big.txt', big);
  await page.locator('.chips li').waitFor();
  await page.waitForFunction(() => !document.querySelector('.alarm'));
  await untilDraft(page, ({ text, attachments }) => text === 'look at it' && attachments.length === 1);
  await page.reload();
  await page.locator('.chips li', { hasText: 'big.txt' }).waitFor();
  assert.equal(await page.inputValue('#prompt'), 'look at it');
  proxy.requests.length = 0;
  await page.press('#prompt', 'Enter');
  await finishedAnswer(page);
  assert.ok(proxy.requests[0].messages[0].content.includes(big));
  await page.fill('#prompt', 'second');
  await attach(page, 'other.txt', big);
  await page.locator('.chips li').waitFor();
  await page.press('#prompt', 'Enter');
  await page.waitForFunction(() => document.querySelectorAll('.by-assistant .figures').length === 2);
  await untilStore(page, ({ drafts }) => drafts.length === 0);
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll('.message').length === 4);
  assert.equal(await page.inputValue('#prompt'), '');
  assert.equal(await page.locator('.chips li').count(), 0);
  assert.deepEqual((await readStore(page)).drafts, []);
  await close();
});

// Types and reloads in one task of the page; returns once the new page is loaded.
const typeAndReload = (page, text) =>
  Promise.all([
    page.waitForEvent('load'),
    page.evaluate((words) => {
      const field = document.getElementById('prompt');
      field.value = words;
      field.dispatchEvent(new InputEvent('input', { bubbles: true }));
      location.reload();
    }, text),
  ]);

test('text typed just before a reload is kept', async () => {
  const { page, close } = await openPage(proxy.url);
  await typeAndReload(page, 'just now');
  await page.waitForFunction(() => document.getElementById('prompt')?.value === 'just now');
  await close();
});

test('with localStorage nearly full, a reload during an answer loses no text', async () => {
  // The whole answer would exceed the quota; but most of it is in IndexedDB already, and only the rest is written.
  const words = (n) => Array.from({ length: n }, (_, i) => `word${i} `).join('');
  proxy.script = (reply) => reply.delta({ content: words(1000) });
  const { page, close } = await openPage(proxy.url);
  await page.evaluate(() => localStorage.setItem('other', 'x'.repeat(5 * 1024 * 1024 - 4096)));
  await sendMessage(page, 'go');
  await untilMessage(page, (message) => message.content === words(1000));
  proxy.reply.delta({ content: `${words(100)}the last` });
  await page.locator('.by-assistant .prose', { hasText: 'the last' }).waitFor();
  const seen = await page.evaluate(() => {
    const text = document.querySelector('.by-assistant .prose').textContent;
    location.reload();
    return text;
  });
  await page.waitForLoadState();
  await page.waitForSelector('.notice.is-stopped');
  const now = await page.locator('.by-assistant .prose').innerText();
  assert.ok(now.startsWith(seen.trim()), `had ${seen.length} characters, has ${now.length}`);
  await close();
});

test('an answer interrupted inside a tool call is regenerated, and a partial call accepts no result', async () => {
  let isFirst = true;
  proxy.script = (reply) => {
    reply.delta({ tool_calls: [{ index: 0, id: 'c1', function: { name: 'weather', arguments: '{"ci' } }] });
    if (isFirst) return;
    reply.delta({ tool_calls: [{ index: 0, function: { arguments: 'ty":"Oslo"}' } }] });
    reply.end('tool_calls');
  };
  proxy.requests.length = 0;
  const { page, close } = await openPage(proxy.url);
  await sendMessage(page, 'weather?');
  await untilMessage(page, (message) => message.toolCalls?.length === 1);
  proxy.reply.disconnect();
  const answer = await finishedAnswer(page);
  assert.equal(await answer.locator('.card form').count(), 0);
  isFirst = false;
  await answer.getByRole('button', { name: 'Retry' }).click();
  await page.locator('.card', { hasText: '"city": "Oslo"' }).locator('form').waitFor();
  assert.equal(proxy.requests.length, 2);
  assert.equal(proxy.requests[1].messages.length, 1);
  assert.equal(proxy.requests[1].continue_final_message, undefined);
  await close();
});

for (const end of ['closed', 'killed']) {
  test(`a second tab shows a streaming answer, and marks it as interrupted when the first tab is ${end}`, async () => {
    let go;
    const wait = new Promise((resolve) => (go = resolve));
    proxy.script = async (reply) => {
      reply.delta({ content: 'first words' });
      await wait;
      reply.delta({ content: ' and last words' });
    };
    const { page, context, close } = await openPage(proxy.url);
    await sendMessage(page, 'go');
    await untilMessage(page, (message) => message.content === 'first words');
    const other = await context.newPage();
    await other.goto(page.url());
    await other.getByText('Streaming in another tab').waitFor(); // instead of a notice
    go();
    await other.locator('.prose', { hasText: 'and last words' }).waitFor();
    if (end !== 'closed') await page.evaluate(() => (BroadcastChannel.prototype.postMessage = () => undefined));
    await page.close({ runBeforeUnload: false });
    await other.locator('.notice.is-stopped').waitFor();
    assert.equal((await other.locator('.by-assistant .prose').innerText()).trim(), 'first words and last words');
    assert.equal(await other.locator('.row .title').textContent(), 'go');
    await close();
  });
}

test('renaming and deleting in one tab updates the other', async () => {
  proxy.script = replyWith('ok');
  const { page, context, close } = await openPage(proxy.url);
  await sendMessage(page, 'shared');
  await finishedAnswer(page);
  const other = await context.newPage();
  await other.goto(page.url());
  await other.locator('.by-assistant').waitFor();
  await page.locator('.row .title').dblclick();
  await page.locator('.row input').fill('Renamed');
  await page.keyboard.press('Enter');
  await other.locator('.row .title', { hasText: 'Renamed' }).waitFor();
  await other.locator('.row').hover();
  await other.getByRole('button', { name: 'Actions for Renamed' }).click();
  await other.locator('.menu').getByRole('button', { name: 'Delete' }).click();
  await page.locator('.welcome').waitFor();
  assert.equal(await page.locator('.row').count(), 0);
  await close();
});

test('if the store cannot be opened, the page says so and still chats', async () => {
  proxy.script = replyWith('an answer without storage');
  const { page, close } = await openPage(proxy.url);
  await page.goto(`${proxy.url}/licenses.txt`);
  await page.evaluate(
    () =>
      new Promise((resolve, reject) => {
        const deletion = indexedDB.deleteDatabase('zinc');
        deletion.onerror = reject;
        deletion.onsuccess = () => {
          const opened = indexedDB.open('zinc', 99); // of a newer version
          opened.onsuccess = () => { opened.result.close(); resolve(); };
        };
      }),
  );
  await page.goto(proxy.url);
  await page.locator('.alarm', { hasText: 'cannot be saved' }).waitFor();
  await sendMessage(page, 'hello');
  await page.locator('.prose', { hasText: 'an answer without storage' }).waitFor();
  await close();
});

test('importing files with any malformed field does not break the page', async () => {
  const { page, seen, close } = await openPage(proxy.url);
  const message = { id: 'm', parent: null, role: 'assistant', content: 'hello there', created: 1, conversation: 'a' };
  const wrong = ['x', 7, null, true, [], {}, [7], [null], ['x'], { kind: 7, text: {} }, [{ text: 7, top: 'x' }], [{ id: [], name: {}, arguments: 7 }]];
  const fields = ['toolCalls', 'attachments', 'tokens', 'notice', 'timings', 'usage', 'reasoning', 'model', 'parent', 'created', 'id', 'finish', 'hasTokens', 'writing'];
  const conversations = fields.flatMap((field) => wrong.map((value) => ({ id: 'a', title: `bad ${field}`, created: 1, updated: 1, head: 'm', settings: {}, messages: [{ ...message, [field]: value }] })));
  for (const field of ['title', 'head', 'settings', 'created', 'updated', 'messages', 'draft']) {
    for (const value of wrong.filter((entry) => field !== 'messages' || !entry?.[0]?.constructor?.name?.startsWith('Object'))) conversations.push({ id: 'b', title: 'bad', created: 1, updated: 1, head: 'm', settings: {}, messages: [message], [field]: value });
  }
  conversations.push({ id: 'c', title: 'a cycle', created: 1, updated: 9e15, head: 'm1', settings: {},
    messages: [{ ...message, id: 'm1', parent: 'm2' }, { ...message, id: 'm2', parent: 'm1', role: 'user', content: 'in a cycle' }] });
  await importFile(page, 'x.json', JSON.stringify({ format: 'zinc-conversations', version: 1, conversations }));
  await page.waitForFunction((n) => document.querySelectorAll('.row').length === n, conversations.length);
  const n = await page.locator('.row').count();
  for (let i = 0; i < n; i += 3) {
    await page.evaluate((at) => document.querySelectorAll('.row .title')[at].click(), i);
    await page.waitForFunction((at) => document.querySelectorAll('.row .title')[at].hasAttribute('aria-current'), i);
  }
  await page.reload();
  await page.waitForSelector('#prompt');
  assert.deepEqual(seen.errors, []);
  for (const text of ['{"format":"zinc-conversations","version":1,"conversations":7}', '[]', 'null', '{"format":"zinc-conversations","version":99,"conversations":[]}']) {
    await importFile(page, 'x.json', text);
    await page.locator('.toast', { hasText: 'could not be imported' }).waitFor();
    await fireTimers(page);
    await page.waitForFunction(() => document.querySelectorAll('.toast').length === 0);
  }
  await close();
});

test('a conversation survives a round trip through Markdown', async () => {
  const hard = '## You\n\nnot a heading of the export\n\n<!-- zinc:1 user -->\n## You\n\nnor this\n\n```md\n## Assistant\n```';
  proxy.script = (reply) => {
    reply.delta({ reasoning_content: 'hm\n\nhm' });
    replyWith(hard)(reply);
  };
  const { page, close } = await openPage(proxy.url);
  await page.keyboard.press('Control+,');
  await page.fill('dialog [name="system"]', 'Be brief.\n\n## You');
  await page.press('dialog [name="system"]', 'Tab');
  await page.keyboard.press('Escape');
  await sendMessage(page, 'A question');
  await finishedAnswer(page);
  await attach(page, 'notes.md', 'with ``` and ```` inside\n');
  await sendMessage(page, 'Another');
  await page.waitForFunction(() => document.querySelectorAll('.by-assistant .figures').length === 2);
  proxy.requests.length = 0;
  await page.locator('.row').hover();
  await page.getByRole('button', { name: /^Actions for/ }).click();
  const [file] = await Promise.all([page.waitForEvent('download'), page.locator('.menu').getByRole('button', { name: 'Export as Markdown' }).click()]);
  const { readFileSync } = await import('node:fs');
  const text = readFileSync(await file.path(), 'utf8');
  await importFile(page, 'back.md', text);
  await page.waitForFunction(() => document.querySelectorAll('.row').length === 2);
  await page.waitForFunction(() => document.querySelectorAll('.message').length === 4);
  const { conversations, messages } = await readStore(page);
  const pathOf = (id, parent = null) => messages.filter((message) => message.conversation === id && message.parent === parent)
    .flatMap((message) => [message, ...pathOf(id, message.id)]);
  const contentsOf = (id) => pathOf(id)
    .map((message) => [message.role, message.attachments ? `${message.attachments.map((entry) => `${entry.name}\n\`\`\`\`\`\n${entry.text}\n\`\`\`\`\`\n\n`).join('')}${message.content}` : message.content, message.reasoning]);
  assert.equal(conversations.length, 2);
  assert.deepEqual(contentsOf(conversations[0].id), contentsOf(conversations[1].id));
  assert.equal(conversations[0].settings.system, conversations[1].settings.system);
  assert.equal(conversations[0].title, conversations[1].title);
  await importFile(page, 'elsewhere.md', '# Trip\n\n**User:**\n\nWhere to?\n\n**Assistant:**\n\nNorth.\n');
  await page.locator('.row .title', { hasText: 'Trip' }).waitFor();
  await page.locator('.by-user .said', { hasText: 'Where to?' }).waitFor();
  await page.locator('.by-assistant .prose', { hasText: 'North.' }).waitFor();
  await importFile(page, 'none.md', 'Just a text.');
  await page.locator('.toast', { hasText: 'no conversation found' }).waitFor();
  await close();
});

test('version 2 of the store is migrated, including tokens and drafts', async () => {
  const { page, close } = await openPage(proxy.url);
  await page.goto(`${proxy.url}/licenses.txt`);
  await page.evaluate(
    () =>
      new Promise((resolve, reject) => {
        indexedDB.deleteDatabase('zinc').onsuccess = () => {
          const opened = indexedDB.open('zinc', 2);
          opened.onerror = reject;
          opened.onupgradeneeded = () => {
            opened.result.createObjectStore('conversations', { keyPath: 'id' });
            opened.result.createObjectStore('messages', { keyPath: 'id' }).createIndex('conversation', 'conversation');
          };
          opened.onsuccess = () => {
            const transaction = opened.result.transaction(['conversations', 'messages'], 'readwrite');
            transaction.objectStore('conversations').put({ id: 'old', title: 'From before', created: 1, updated: 1, head: 'm2', settings: {}, draft: { text: 'kept', attachments: [] } });
            transaction.objectStore('messages').put({ id: 'm1', conversation: 'old', parent: null, role: 'user', content: 'q', created: 1 });
            transaction.objectStore('messages').put({ id: 'm2', conversation: 'old', parent: 'm1', role: 'assistant', content: 'Hi.', created: 2,
              tokens: [{ text: 'Hi', p: 0.5, top: [{ text: 'Yo', p: 0.4 }] }, { text: '.', p: 0.9, top: [] }] });
            transaction.oncomplete = () => { opened.result.close(); resolve(); };
          };
        };
      }),
  );
  await page.evaluate(() => localStorage.setItem('zinc.draft.', JSON.stringify({ text: 'of a new conversation', attachments: [] })));
  await page.goto(`${proxy.url}/#old`);
  const answer = await finishedAnswer(page);
  assert.equal(await page.inputValue('#prompt'), 'kept');
  await page.keyboard.press('Control+Shift+O');
  await page.waitForFunction(() => document.getElementById('prompt').value === 'of a new conversation');
  await page.goBack();
  await answer.getByRole('button', { name: 'Probabilities' }).click();
  await answer.locator('.token', { hasText: 'Hi' }).click();
  await answer.locator('.alternatives', { hasText: 'Yo' }).waitFor();
  assert.deepEqual((await readStore(page)).messages.map((message) => message.tokens), [undefined, undefined]);
  await close();
});

// The page on another machine of the local network: no TLS, so no secure context.
const address = Object.values(networkInterfaces()).flat().find((entry) => entry.family === 'IPv4' && !entry.internal)?.address;
test('over plain http from another machine, a phone can chat, copy and store', { skip: !address && 'this machine has only a loopback address' }, async () => {
  const remote = await startZinc(['--host', address, '--api-key', 'secret']);
  const { page, seen, close } = await openPage(remote.url.replace('0.0.0.0', address), { viewport: kPhone, hasTouch: true, isMobile: true });
  assert.equal(await page.evaluate(() => isSecureContext), false);
  await page.getByRole('dialog', { name: 'API key' }).waitFor();
  await page.fill('dialog input', 'secret');
  await page.keyboard.press('Enter');
  await page.locator('.welcome', { hasText: 'tiny' }).waitFor();
  assert.match(await page.locator('.welcome').innerText(), new RegExp(`on ${address}\\. Nothing you write goes anywhere else`));
  await page.fill('#prompt', 'hello');
  await page.getByRole('button', { name: 'Send' }).tap();
  const answer = await finishedAnswer(page);
  await answer.getByRole('button', { name: 'Copy' }).tap();
  await page.locator('.toast', { hasText: 'Copied' }).waitFor();
  await page.reload();
  await page.locator('.by-user .said', { hasText: 'hello' }).waitFor();
  const pulled = await page.evaluate(() => fetch('/v1/models/pull', {
    method: 'POST', headers: { authorization: 'Bearer secret' }, body: JSON.stringify({ model: 'http://127.0.0.1:9/x.gguf' }),
  }).then((response) => response.status));
  assert.equal(pulled, 403, 'a remote client cannot make the server download a URL');
  assert.deepEqual(seen.errors, []);
  await close();
});

test('an unsent edit survives Escape, another conversation and a reload; Cancel discards it', async () => {
  const { page, close } = await startConversation(proxy, replyWith('ok'), 'a question');
  const field = page.locator('.editor textarea');
  await page.locator('.by-user').getByRole('button', { name: 'Edit' }).click();
  await field.fill('a much better question');
  await page.keyboard.press('Escape');
  await field.waitFor({ state: 'detached' });
  await page.locator('.by-user').getByRole('button', { name: 'Edit' }).click();
  assert.equal(await field.inputValue(), 'a much better question');
  await field.pressSequentially(', and longer');
  await page.keyboard.press('Control+Shift+O');
  await field.waitFor({ state: 'detached' });
  await page.locator('.row .title', { hasText: 'a question' }).click();
  assert.equal(await field.inputValue(), 'a much better question, and longer');
  await page.reload();
  assert.equal(await field.inputValue(), 'a much better question, and longer');
  await page.getByRole('button', { name: 'Cancel' }).click();
  await page.reload();
  await page.locator('.said').waitFor();
  assert.equal(await field.count(), 0);
  await page.waitForFunction(() => document.activeElement?.id === 'prompt');
  assert.deepEqual((await readStore(page)).drafts, []);
  await close();
});

test('an edit or its cancellation that is still being written when the page closes is kept', async () => {
  const { page, close } = await startConversation(proxy, replyWith('ok'), 'a question');
  const field = page.locator('.editor textarea');
  // Transactions never complete: the browser aborts pending ones when the page closes.
  const delayStore = () => page.evaluate(() => {
    const begin = IDBDatabase.prototype.transaction;
    IDBDatabase.prototype.transaction = function (names, mode) {
      const transaction = begin.call(this, names, mode);
      if (mode !== 'readwrite' || names !== 'drafts') return transaction;
      const keepBusy = () => (transaction.objectStore('drafts').count().onsuccess = keepBusy);
      keepBusy();
      window.isStoreBusy = true;
      return transaction;
    };
  });
  const untilStoreBusy = () => page.waitForFunction(() => window.isStoreBusy);
  await delayStore();
  await page.locator('.by-user').getByRole('button', { name: 'Edit' }).click();
  await field.fill('a much better question');
  await untilStoreBusy();
  await page.reload();
  assert.equal(await field.inputValue(), 'a much better question');
  await delayStore();
  await page.getByRole('button', { name: 'Cancel' }).click();
  await untilStoreBusy();
  await page.reload();
  await page.locator('.by-user').getByRole('button', { name: 'Edit' }).waitFor();
  assert.equal(await field.count(), 0);
  assert.deepEqual((await readStore(page)).drafts, []);
  await close();
});

test('an unsent tool result survives a reload and is deleted after sending', async () => {
  const script = (reply, body) => {
    if (body.messages.at(-1).role === 'tool') return replyWith('Sunny.')(reply);
    reply.delta({ tool_calls: [{ index: 0, id: 'c1', function: { name: 'weather', arguments: '{}' } }] });
    reply.end('tool_calls');
  };
  const { page, close } = await startConversation(proxy, script, 'weather?');
  const field = page.getByLabel('Result of weather');
  await field.fill('sunny, 21 degrees');
  await page.reload();
  assert.equal(await field.inputValue(), 'sunny, 21 degrees');
  await page.getByRole('button', { name: 'Send result' }).click();
  await page.locator('.prose', { hasText: 'Sunny.' }).waitFor();
  await untilMessage(page, (message) => message.content === 'Sunny.');
  await untilStore(page, ({ drafts }) => drafts.length === 0);
  await close();
});

test('after a reload, Compare shows the prompt and all text received', async () => {
  proxy.script = async (reply) => {
    for (let i = 0; i < 500 && reply.connection.isOpen; ++i) {
      reply.delta({ content: `word${i} ` });
      await sleep(4);
    }
  };
  const { page, close } = await openPage(proxy.url);
  await page.keyboard.press('Alt+C');
  await page.fill('[aria-label="Prompt for both"]', 'One for both');
  await page.getByRole('button', { name: 'Ask both' }).click();
  await page.waitForFunction(() => [...document.querySelectorAll('.side .prose')].filter((prose) => prose.textContent.length > 900).length === 2);
  await page.press('[aria-label="Prompt for both"]', 'Enter'); // ignored while both sides are streaming
  const [seen] = await Promise.all([
    page.evaluate(() => {
      const texts = [...document.querySelectorAll('.side .prose')].map((prose) => prose.textContent.trim());
      location.reload();
      return texts;
    }),
    page.waitForEvent('load'), // a key pressed earlier would go to the old page
  ]);
  assert.ok(seen.every((text) => text.length > 900));
  await page.waitForSelector('#prompt');
  await page.keyboard.press('Alt+C');
  await page.waitForFunction(() => document.querySelectorAll('.side .notice.is-stopped').length === 2);
  const now = await page.locator('.side .prose').allTextContents();
  seen.forEach((text, i) => assert.ok(now[i].startsWith(text), `side ${i} had ${text.length} characters, has ${now[i].length}`));
  assert.equal(await page.inputValue('[aria-label="Prompt for both"]'), 'One for both');
  assert.equal(await page.locator('.row').count(), 0, 'Compare is not a listed conversation');
  await page.getByRole('button', { name: 'Continue with B' }).click();
  await page.locator('.by-user .said', { hasText: 'One for both' }).waitFor();
  await close();
});

test('an example prompt is appended to the draft and does not replace it', async () => {
  const { page, close } = await openPage(proxy.url);
  await page.fill('#prompt', 'my own words');
  await page.locator('.welcome li button').first().click();
  assert.match(await page.inputValue('#prompt'), /^my own words\n.*hash table/);
  await close();
});

test('settings input survives Escape and a reload, even if it is not valid JSON', async () => {
  const { page, close } = await openPage(proxy.url);
  const type = async (name, text) => {
    await page.keyboard.press('Control+,');
    await page.focus(`dialog [name="${name}"]`);
    await page.keyboard.type(text);
  };
  await type('system', 'Be brief.');
  await page.keyboard.press('Escape');
  await type('temperature', '0.3');
  await page.keyboard.press('Escape');
  await type('tools', '[{"type":');
  await page.keyboard.press('Escape');
  await type('system', ' And kind.');
  await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange'))); // triggers a re-render
  await sleep(300);
  await page.keyboard.type(' And true.');
  await page.reload();
  await page.waitForSelector('#prompt');
  await page.keyboard.press('Control+,');
  assert.equal(await page.inputValue('dialog [name="temperature"]'), '0.3');
  assert.equal(await page.inputValue('dialog [name="tools"]'), '[{"type":');
  assert.match(await page.inputValue('dialog [name="system"]'), /Be brief\./);
  assert.match(await page.inputValue('dialog [name="system"]'), /And kind\. And true\./);
  await page.locator('dialog .wrong', { hasText: 'Invalid' }).waitFor();
  await page.keyboard.press('Escape');
  proxy.script = replyWith('ok');
  proxy.requests.length = 0;
  await sendMessage(page, 'go');
  await finishedAnswer(page);
  assert.equal(proxy.requests[0].temperature, 0.3);
  assert.equal(proxy.requests[0].tools, undefined);
  await close();
});

test('text typed just before a reload does not lose an attachment too large for localStorage', async () => {
  const { page, close } = await openPage(proxy.url);
  await attach(page, 'big.txt', 'x'.repeat(6_000_000));
  await page.locator('.chips li').waitFor();
  await untilDraft(page, ({ attachments }) => attachments.length === 1);
  await typeAndReload(page, 'just now');
  await page.waitForFunction(() => document.getElementById('prompt')?.value === 'just now');
  await page.locator('.chips li', { hasText: 'big.txt' }).waitFor();
  await close();
});

test('two tabs that edit the same draft each get their own text back', async () => {
  proxy.script = replyWith('ok');
  const { page, context, close } = await openPage(proxy.url);
  await page.fill('#prompt', 'words of the first tab');
  await untilDraft(page, ({ text }) => text === 'words of the first tab');
  const other = await context.newPage();
  await other.goto(proxy.url);
  await other.fill('#prompt', 'words of the second tab');
  await untilDraft(page, ({ text }) => text === 'words of the second tab');
  await page.reload();
  await page.waitForFunction(() => document.getElementById('prompt')?.value === 'words of the first tab');
  await other.press('#prompt', 'Enter');
  await finishedAnswer(other);
  await sleep(300);
  await page.reload();
  await page.waitForFunction(() => document.getElementById('prompt')?.value === 'words of the first tab');
  await close();
});

test('pending writes of a closed page stay until they are stored, and corrupt ones are ignored', async () => {
  const { page, context, close } = await openPage(proxy.url);
  const pending = { conversations: [{ id: 'c', title: 'Left behind', created: 1, updated: 1, head: null, settings: {} }], messages: [], drafts: [] };
  const names = () => page.evaluate(() => Object.keys(localStorage).filter((name) => name.startsWith('zinc.tail.')).sort());
  await page.evaluate((text) => {
    localStorage.setItem('zinc.tail.broken', '{');
    localStorage.setItem('zinc.tail.gone', text);
  }, JSON.stringify(pending));
  const broken = await context.newPage();
  await broken.addInitScript(() => {
    IDBFactory.prototype.open = () => {
      throw new Error('quota exceeded');
    };
  });
  await broken.goto(proxy.url);
  await broken.locator('.alarm', { hasText: 'quota exceeded' }).waitFor();
  assert.ok((await names()).includes('zinc.tail.gone'));
  await broken.close();
  await page.reload();
  await page.locator('.row', { hasText: 'Left behind' }).waitFor();
  assert.deepEqual(await names(), []);
  assert.equal(await page.locator('.alarm').count(), 0);
  await close();
});

test('persistent storage is requested from the browser after the first message', async () => {
  proxy.script = replyWith('ok');
  const { page, close } = await openPage(proxy.url);
  await page.evaluate(() => {
    window.nPersistCalls = 0;
    navigator.storage.persist = () => Promise.resolve(++window.nPersistCalls > 0);
  });
  assert.equal(await page.evaluate(() => window.nPersistCalls), 0, 'not before data is stored');
  await sendMessage(page, 'go');
  await finishedAnswer(page);
  await page.waitForFunction(() => window.nPersistCalls === 1);
  await close();
});

// From the next page load on, writes to the store exceed the quota until `window.hasSpace` is set.
const withFullStore = (page) =>
  page.addInitScript(() => {
    const { put } = IDBObjectStore.prototype;
    IDBObjectStore.prototype.put = function (...args) {
      if (!window.hasSpace) throw new DOMException('quota exceeded', 'QuotaExceededError');
      return put.apply(this, args);
    };
  });

test('the draft copy of a tab is used only once', async () => {
  const { page, close } = await openPage(proxy.url);
  await page.fill('#prompt', 'early words');
  await page.reload();
  await page.waitForFunction(() => document.getElementById('prompt')?.value === 'early words');
  assert.equal(await page.evaluate(() => sessionStorage.getItem('zinc.own')), null);
  await close();
});

test('pending writes that exceed the quota do not hide existing conversations', async () => {
  const { page, context, close } = await startConversation(proxy, replyWith('here I am'), 'an old one');
  await untilMessage(page, (message) => message.content === 'here I am' && !message.writing);
  await page.evaluate(() => {
    const pendingWrites = (id) => JSON.stringify({ conversations: [{ id, title: `Left ${id}`, created: 1, updated: 1, head: null, settings: {} }], messages: [], drafts: [] });
    for (const id of ['one', 'two']) localStorage.setItem(`zinc.tail.${id}`, pendingWrites(id));
  });
  const other = await context.newPage();
  await withFullStore(other);
  await other.goto(page.url());
  await other.locator('.alarm', { hasText: 'quota exceeded' }).waitFor();
  await other.locator('.row', { hasText: 'an old one' }).waitFor();
  await other.locator('.prose', { hasText: 'here I am' }).waitFor();
  assert.equal(await other.evaluate(() => Object.keys(localStorage).filter((name) => name.startsWith('zinc.tail.')).length), 2);
  await close();
});

test('with a full store, messages stay available and are stored once there is space', async () => {
  proxy.script = replyWith('an answer');
  const { page, seen, close } = await openPage(proxy.url);
  await withFullStore(page);
  await page.reload();
  await page.waitForSelector('#prompt');
  await sendMessage(page, 'first');
  await finishedAnswer(page);
  await page.keyboard.press('Control+Shift+O');
  await page.locator('.welcome').waitFor();
  await page.locator('.row .title', { hasText: 'first' }).click();
  await page.locator('.by-user .said', { hasText: 'first' }).waitFor();
  await page.locator('.prose', { hasText: 'an answer' }).waitFor();
  await page.locator('.alarm').waitFor();
  await page.keyboard.press('Control+Shift+O');
  await page.evaluate(() => (window.hasSpace = true));
  await sendMessage(page, 'second');
  await finishedAnswer(page);
  await page.waitForFunction(() => !document.querySelector('.alarm'));
  const { conversations, messages } = await readStore(page);
  assert.deepEqual(conversations.map(({ title }) => title).sort(), ['first', 'second']);
  assert.deepEqual(messages.map(({ content }) => content).sort(), ['an answer', 'an answer', 'first', 'second']);
  assert.deepEqual(seen.errors, []);
  await close();
});

test('if the store is closed, messages stay available, and later writes are stored again', async () => {
  proxy.script = replyWith('an answer');
  const { page, seen, close } = await openPage(proxy.url);
  await page.addInitScript(() => {
    const { open } = IDBFactory.prototype;
    IDBFactory.prototype.open = function (...args) {
      if (window.isClosed) throw new Error('the store is closed');
      return open.apply(this, args);
    };
    window.isClosed = true;
  });
  await page.reload();
  await page.locator('.alarm', { hasText: 'the store is closed' }).waitFor();
  await sendMessage(page, 'first');
  await finishedAnswer(page);
  await page.keyboard.press('Control+Shift+O');
  await page.locator('.welcome').waitFor();
  await page.locator('.row .title', { hasText: 'first' }).click();
  await page.locator('.prose', { hasText: 'an answer' }).waitFor();
  await page.evaluate(() => (window.isClosed = false));
  await sendMessage(page, 'second');
  await page.waitForFunction(() => document.querySelectorAll('.by-assistant .figures').length === 2 && !document.querySelector('.alarm'));
  assert.equal((await readStore(page)).messages.length, 4);
  assert.deepEqual(seen.errors, []);
  await close();
});

test('a draft is deleted only after its message is stored', async () => {
  proxy.script = replyWith('ok');
  const { page, context, close } = await openPage(proxy.url);
  await page.fill('#prompt', 'a long draft');
  await untilStore(page, ({ drafts }) => drafts.length > 0);
  await page.evaluate(() => {
    IDBObjectStore.prototype.put = () => {
      throw new DOMException('quota exceeded', 'QuotaExceededError');
    };
  });
  await page.press('#prompt', 'Enter');
  await finishedAnswer(page);
  assert.equal(await page.inputValue('#prompt'), '');
  await sleep(400);
  assert.deepEqual((await readStore(page)).drafts.map(({ text }) => text), ['a long draft']);
  await close();
});

test('an answer that ends while another tab queries it is not overwritten', async () => {
  const { page, context, close } = await startConversation(proxy, replyWith('a beginning'), 'go');
  const record = await untilMessage(page, (message) => message.role === 'assistant' && !message.writing);
  const address = page.url();
  await page.goto(`${proxy.url}/licenses.txt`);
  await page.evaluate((message) => new Promise((resolve) => {
    window.write = (put, then) => {
      const opened = indexedDB.open('zinc');
      opened.onsuccess = () => {
        const transaction = opened.result.transaction('messages', 'readwrite');
        transaction.objectStore('messages').put(put);
        transaction.oncomplete = () => { opened.result.close(); then(); };
      };
    };
    window.write({ ...message, writing: true }, resolve);
  }), record);
  const other = await context.newPage();
  await holdTimers(other, 250); // how long it waits for replies of other tabs
  await other.goto(address, { waitUntil: 'commit' });
  await other.waitForFunction(() => window.heldTimers?.size > 0);
  await page.evaluate((message) => new Promise((resolve) => {
    window.write({ ...message, content: 'a beginning and the end', writing: false }, resolve);
  }), record);
  await fireTimers(other);
  await other.locator('.prose', { hasText: 'a beginning and the end' }).waitFor();
  assert.equal(await other.locator('.notice').count(), 0);
  assert.equal((await readStore(other)).messages.find(({ id }) => id === record.id).content, 'a beginning and the end');
  await close();
});

test('pending writes of a closed tab do not replace a newer draft', async () => {
  const { page, close } = await openPage(proxy.url);
  await page.fill('#prompt', 'the later words');
  await untilStore(page, ({ drafts }) => drafts.length > 0);
  await page.evaluate(() => {
    sessionStorage.clear();
    const pending = { conversations: [], messages: [], drafts: [{ id: '', text: 'the earlier words', attachments: [], at: 1 }] };
    localStorage.setItem('zinc.tail.gone', JSON.stringify(pending));
    addEventListener('pagehide', () => sessionStorage.clear());
  });
  await page.reload();
  await page.waitForFunction(() => document.getElementById('prompt')?.value === 'the later words');
  assert.equal(await page.evaluate(() => localStorage.getItem('zinc.tail.gone')), null);
  await close();
});
