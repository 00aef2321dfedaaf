// What must never happen: a word that was on the screen, or that somebody wrote, is gone.
import assert from 'node:assert/strict';
import { networkInterfaces } from 'node:os';
import test from 'node:test';
import {
  answered, ask, attach, conversation, drawn, endWaits, holdWaits, importFile, kPhone, openPage, pause, says, setStage, startZinc, stored,
  until, untilDrafted, untilStored,
} from './harness.mjs';

const between = setStage();

const cuts = {
  'a fence': ['Text\n\n```python\nthis con', 'tinues here\n```\n\nend'],
  'a paragraph': ['One.\n\nThe beginning', ' and **the rest**.\n\nMore.'],
  'a list': ['- one\n- two ha', 'lf\n  - nested\n- three\n\nend'],
  'a table': ['| a | b |\n|---|---|\n| 1 | 2', ' |\n| 3 | 4 |\n\nend'],
  'a formula': ['So\n\n$$x^2 +', ' y^2$$\n\nand $a$.'],
  'a link': ['See [the bo', 'ok][b].\n\n[b]: https://example.org/'],
};
for (const [place, [first, second]] of Object.entries(cuts)) {
  test(`cut inside ${place} and retried, an answer is drawn as if it had come whole`, async () => {
    between.script = (stage, body) => (body.continue_final_message ? says(second, 3)(stage) : stage.delta({ content: first }));
    const { page, close } = await openPage(between.url);
    await ask(page, 'go');
    await page.locator('.by-assistant .prose:not(:empty)').waitFor(); // all of it came in one event
    between.stage.cut();
    const answer = await answered(page);
    await answer.getByRole('button', { name: 'Retry' }).click();
    await answer.locator('.notice').waitFor({ state: 'detached' });
    const live = await drawn(page);
    await untilStored(page, (message) => message.role === 'assistant' && message.content === first + second);
    await page.reload();
    assert.equal(live, await drawn(page));
    await close();
  });
}

test('deleting a conversation while it is answered ends the answer, and undo brings back every word', async () => {
  let go;
  const wait = new Promise((resolve) => (go = resolve));
  between.script = async (stage) => {
    stage.delta({ content: 'first part' });
    await wait;
    if (!stage.connection.isOpen) return;
    stage.delta({ content: ' second part' });
    stage.end();
  };
  const { page, close } = await openPage(between.url);
  await ask(page, 'to be deleted');
  await page.locator('.prose', { hasText: 'first part' }).waitFor();
  await page.fill('#prompt', 'a draft');
  await page.locator('.row').hover();
  await page.getByRole('button', { name: /^Actions for/ }).click();
  await page.locator('.menu').getByRole('button', { name: 'Delete' }).click();
  await page.locator('.toast button').waitFor();
  go();
  await pause(400);
  await until(page, (all) => Object.values(all).every((records) => records.length === 0));
  await page.locator('.toast button', { hasText: 'Undo' }).click();
  await page.locator('.by-assistant .prose', { hasText: 'first part' }).waitFor();
  assert.equal(await page.inputValue('#prompt'), 'a draft');
  await close();
});

test('another message does not take the undo away', async () => {
  between.script = says('ok');
  const { page, close } = await openPage(between.url);
  for (const name of ['one', 'two']) {
    await page.keyboard.press('Control+Shift+O');
    await ask(page, name);
    await page.locator('.row', { hasText: name }).waitFor();
    await answered(page);
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

test('a draft with six megabytes attached survives a reload, and is gone once it was sent', async () => {
  between.script = says('ok');
  const big = 'x'.repeat(6_000_000);
  const { page, close } = await openPage(between.url);
  await page.fill('#prompt', 'look at it');
  await attach(page, 'big.txt', big);
  await page.locator('.chips li').waitFor();
  await page.waitForFunction(() => !document.querySelector('.alarm'));
  await untilDrafted(page, ({ text, attachments }) => text === 'look at it' && attachments.length === 1);
  await page.reload();
  await page.locator('.chips li', { hasText: 'big.txt' }).waitFor();
  assert.equal(await page.inputValue('#prompt'), 'look at it');
  between.requests.length = 0;
  await page.press('#prompt', 'Enter');
  await answered(page);
  assert.ok(between.requests[0].messages[0].content.includes(big));
  await page.fill('#prompt', 'second');
  await attach(page, 'other.txt', big);
  await page.locator('.chips li').waitFor();
  await page.press('#prompt', 'Enter');
  await page.waitForFunction(() => document.querySelectorAll('.by-assistant .figures').length === 2);
  await until(page, ({ drafts }) => drafts.length === 0);
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll('.message').length === 4);
  assert.equal(await page.inputValue('#prompt'), '');
  assert.equal(await page.locator('.chips li').count(), 0);
  assert.deepEqual((await stored(page)).drafts, []);
  await close();
});

test('a word typed in the last moment before a reload is still there', async () => {
  const { page, close } = await openPage(between.url);
  await page.evaluate(() => {
    const field = document.getElementById('prompt');
    field.value = 'just now';
    field.dispatchEvent(new InputEvent('input', { bubbles: true }));
    location.reload();
  });
  await page.waitForFunction(() => document.getElementById('prompt')?.value === 'just now');
  await close();
});

test('with the small store of the browser full, a reload in the middle of an answer loses no word', async () => {
  // More than there is room for; but most of it is stored, and what comes then is not much.
  const words = (n) => Array.from({ length: n }, (_, i) => `word${i} `).join('');
  between.script = (stage) => stage.delta({ content: words(1000) });
  const { page, close } = await openPage(between.url);
  await page.evaluate(() => localStorage.setItem('other', 'x'.repeat(5 * 1024 * 1024 - 4096)));
  await ask(page, 'go');
  await untilStored(page, (message) => message.content === words(1000));
  between.stage.delta({ content: `${words(100)}the last` });
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

test('an answer cut inside a tool call is asked for anew, and half a call takes no result', async () => {
  let isFirst = true;
  between.script = (stage) => {
    stage.delta({ tool_calls: [{ index: 0, id: 'c1', function: { name: 'weather', arguments: '{"ci' } }] });
    if (isFirst) return;
    stage.delta({ tool_calls: [{ index: 0, function: { arguments: 'ty":"Oslo"}' } }] });
    stage.end('tool_calls');
  };
  between.requests.length = 0;
  const { page, close } = await openPage(between.url);
  await ask(page, 'weather?');
  await untilStored(page, (message) => message.toolCalls?.length === 1);
  between.stage.cut();
  const answer = await answered(page);
  assert.equal(await answer.locator('.card form').count(), 0);
  isFirst = false;
  await answer.getByRole('button', { name: 'Retry' }).click();
  await page.locator('.card', { hasText: '"city": "Oslo"' }).locator('form').waitFor();
  assert.equal(between.requests.length, 2);
  assert.equal(between.requests[1].messages.length, 1);
  assert.equal(between.requests[1].continue_final_message, undefined);
  await close();
});

for (const end of ['closed', 'gone without a word']) {
  test(`a second tab shows an answer grow, and takes it over when the first is ${end}`, async () => {
    let go;
    const wait = new Promise((resolve) => (go = resolve));
    between.script = async (stage) => {
      stage.delta({ content: 'first words' });
      await wait;
      stage.delta({ content: ' and last words' });
    };
    const { page, context, close } = await openPage(between.url);
    await ask(page, 'go');
    await untilStored(page, (message) => message.content === 'first words');
    const other = await context.newPage();
    await other.goto(page.url());
    await other.getByText('Being written in another tab').waitFor(); // in the place of a notice
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

test('what one tab deletes or renames, the other shows', async () => {
  between.script = says('ok');
  const { page, context, close } = await openPage(between.url);
  await ask(page, 'shared');
  await answered(page);
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

test('a store that cannot be opened is said, and the page still talks', async () => {
  between.script = says('an answer all the same');
  const { page, close } = await openPage(between.url);
  await page.goto(`${between.url}/licenses.txt`);
  await page.evaluate(
    () =>
      new Promise((resolve, reject) => {
        const gone = indexedDB.deleteDatabase('zinc');
        gone.onerror = reject;
        gone.onsuccess = () => {
          const opened = indexedDB.open('zinc', 99); // of a newer page
          opened.onsuccess = () => { opened.result.close(); resolve(); };
        };
      }),
  );
  await page.goto(between.url);
  await page.locator('.alarm', { hasText: 'cannot be kept' }).waitFor();
  await ask(page, 'hello');
  await page.locator('.prose', { hasText: 'an answer all the same' }).waitFor();
  await close();
});

test('files that are malformed in any field leave a page that works', async () => {
  const { page, seen, close } = await openPage(between.url);
  const message = { id: 'm', parent: null, role: 'assistant', content: 'hello there', created: 1, conversation: 'a' };
  const wrong = ['x', 7, null, true, [], {}, [7], [null], ['x'], { kind: 7, text: {} }, [{ text: 7, top: 'x' }], [{ id: [], name: {}, arguments: 7 }]];
  const fields = ['toolCalls', 'attachments', 'tokens', 'notice', 'timings', 'usage', 'reasoning', 'model', 'parent', 'created', 'id', 'finish', 'hasTokens', 'writing'];
  const conversations = fields.flatMap((field) => wrong.map((value) => ({ id: 'a', title: `bad ${field}`, created: 1, updated: 1, head: 'm', settings: {}, messages: [{ ...message, [field]: value }] })));
  for (const field of ['title', 'head', 'settings', 'created', 'updated', 'messages', 'draft']) {
    for (const value of wrong.filter((entry) => field !== 'messages' || !entry?.[0]?.constructor?.name?.startsWith('Object'))) conversations.push({ id: 'b', title: 'bad', created: 1, updated: 1, head: 'm', settings: {}, messages: [message], [field]: value });
  }
  conversations.push({ id: 'c', title: 'a circle', created: 1, updated: 9e15, head: 'm1', settings: {},
    messages: [{ ...message, id: 'm1', parent: 'm2' }, { ...message, id: 'm2', parent: 'm1', role: 'user', content: 'round and round' }] });
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
    await endWaits(page);
    await page.waitForFunction(() => document.querySelectorAll('.toast').length === 0);
  }
  await close();
});

test('a conversation goes out as Markdown and comes back the same', async () => {
  const hard = '## You\n\nnot a heading of ours\n\n<!-- zinc:1 user -->\n## You\n\nnor this\n\n```md\n## Assistant\n```';
  between.script = (stage) => {
    stage.delta({ reasoning_content: 'hm\n\nhm' });
    says(hard)(stage);
  };
  const { page, close } = await openPage(between.url);
  await page.keyboard.press('Control+,');
  await page.fill('dialog [name="system"]', 'Be brief.\n\n## You');
  await page.press('dialog [name="system"]', 'Tab');
  await page.keyboard.press('Escape');
  await ask(page, 'A question');
  await answered(page);
  await attach(page, 'notes.md', 'with ``` and ```` inside\n');
  await ask(page, 'Another');
  await page.waitForFunction(() => document.querySelectorAll('.by-assistant .figures').length === 2);
  between.requests.length = 0;
  await page.locator('.row').hover();
  await page.getByRole('button', { name: /^Actions for/ }).click();
  const [file] = await Promise.all([page.waitForEvent('download'), page.locator('.menu').getByRole('button', { name: 'Export as Markdown' }).click()]);
  const { readFileSync } = await import('node:fs');
  const text = readFileSync(await file.path(), 'utf8');
  await importFile(page, 'back.md', text);
  await page.waitForFunction(() => document.querySelectorAll('.row').length === 2);
  await page.waitForFunction(() => document.querySelectorAll('.message').length === 4);
  const { conversations, messages } = await stored(page);
  const pathOf = (id, parent = null) => messages.filter((message) => message.conversation === id && message.parent === parent)
    .flatMap((message) => [message, ...pathOf(id, message.id)]);
  const told = (id) => pathOf(id)
    .map((message) => [message.role, message.attachments ? `${message.attachments.map((entry) => `${entry.name}\n\`\`\`\`\`\n${entry.text}\n\`\`\`\`\`\n\n`).join('')}${message.content}` : message.content, message.reasoning]);
  assert.equal(conversations.length, 2);
  assert.deepEqual(told(conversations[0].id), told(conversations[1].id));
  assert.equal(conversations[0].settings.system, conversations[1].settings.system);
  assert.equal(conversations[0].title, conversations[1].title);
  await importFile(page, 'elsewhere.md', '# Trip\n\n**User:**\n\nWhere to?\n\n**Assistant:**\n\nNorth.\n');
  await page.locator('.row .title', { hasText: 'Trip' }).waitFor();
  await page.locator('.by-user .said', { hasText: 'Where to?' }).waitFor();
  await page.locator('.by-assistant .prose', { hasText: 'North.' }).waitFor();
  await importFile(page, 'none.md', 'Just a text.');
  await page.locator('.toast', { hasText: 'no conversation was found' }).waitFor();
  await close();
});

test('what version 2 of the store kept is brought over, tokens and drafts included', async () => {
  const { page, close } = await openPage(between.url);
  await page.goto(`${between.url}/licenses.txt`);
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
            const change = opened.result.transaction(['conversations', 'messages'], 'readwrite');
            change.objectStore('conversations').put({ id: 'old', title: 'From before', created: 1, updated: 1, head: 'm2', settings: {}, draft: { text: 'kept', attachments: [] } });
            change.objectStore('messages').put({ id: 'm1', conversation: 'old', parent: null, role: 'user', content: 'q', created: 1 });
            change.objectStore('messages').put({ id: 'm2', conversation: 'old', parent: 'm1', role: 'assistant', content: 'Hi.', created: 2,
              tokens: [{ text: 'Hi', p: 0.5, top: [{ text: 'Yo', p: 0.4 }] }, { text: '.', p: 0.9, top: [] }] });
            change.oncomplete = () => { opened.result.close(); resolve(); };
          };
        };
      }),
  );
  await page.evaluate(() => localStorage.setItem('zinc.draft.', JSON.stringify({ text: 'of the unbegun', attachments: [] })));
  await page.goto(`${between.url}/#old`);
  const answer = await answered(page);
  assert.equal(await page.inputValue('#prompt'), 'kept');
  await page.keyboard.press('Control+Shift+O');
  await page.waitForFunction(() => document.getElementById('prompt').value === 'of the unbegun');
  await page.goBack();
  await answer.getByRole('button', { name: 'Probabilities' }).click();
  await answer.locator('.token', { hasText: 'Hi' }).click();
  await answer.locator('.alternatives', { hasText: 'Yo' }).waitFor();
  assert.deepEqual((await stored(page)).messages.map((message) => message.tokens), [undefined, undefined]);
  await close();
});

// The page of another machine of the house: no TLS, and so no secure context.
const address = Object.values(networkInterfaces()).flat().find((entry) => entry.family === 'IPv4' && !entry.internal)?.address;
test('over plain http from another machine, a phone can talk, copy and keep', { skip: !address && 'this machine has no address but its own' }, async () => {
  const house = await startZinc(['--host', address, '--api-key', 'secret']);
  const { page, seen, close } = await openPage(house.url.replace('0.0.0.0', address), { viewport: kPhone, hasTouch: true, isMobile: true });
  assert.equal(await page.evaluate(() => isSecureContext), false);
  await page.getByRole('dialog', { name: 'API key' }).waitFor();
  await page.fill('dialog input', 'secret');
  await page.keyboard.press('Enter');
  await page.locator('.welcome', { hasText: 'tiny' }).waitFor();
  assert.match(await page.locator('.welcome').innerText(), new RegExp(`on ${address}\\. Nothing you write goes anywhere else`));
  await page.fill('#prompt', 'hello');
  await page.getByRole('button', { name: 'Send' }).tap();
  const answer = await answered(page);
  await answer.getByRole('button', { name: 'Copy' }).tap();
  await page.locator('.toast', { hasText: 'Copied' }).waitFor();
  await page.reload();
  await page.locator('.by-user .said', { hasText: 'hello' }).waitFor();
  const pulled = await page.evaluate(() => fetch('/v1/models/pull', {
    method: 'POST', headers: { authorization: 'Bearer secret' }, body: JSON.stringify({ model: 'http://127.0.0.1:9/x.gguf' }),
  }).then((response) => response.status));
  assert.equal(pulled, 403, 'and cannot have this machine fetch what it names');
  assert.deepEqual(seen.errors, []);
  await close();
});

test('an edit that is not sent survives Escape, another conversation and a reload; cancelled, it is gone', async () => {
  const { page, close } = await conversation(between, says('ok'), 'a question');
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
  assert.deepEqual((await stored(page)).drafts, []);
  await close();
});

test('an edit, and its end, that the store is busy with when the page goes away are taken along', async () => {
  const { page, close } = await conversation(between, says('ok'), 'a question');
  const field = page.locator('.editor textarea');
  // A store that ends nothing: the browser gives up what is under way when the page goes.
  const delayStore = () => page.evaluate(() => {
    const begin = IDBDatabase.prototype.transaction;
    IDBDatabase.prototype.transaction = function (names, mode) {
      const change = begin.call(this, names, mode);
      if (mode !== 'readwrite' || names !== 'drafts') return change;
      const goOn = () => (change.objectStore('drafts').count().onsuccess = goOn);
      goOn();
      window.isStoreBusy = true;
      return change;
    };
  });
  const busy = () => page.waitForFunction(() => window.isStoreBusy);
  await delayStore();
  await page.locator('.by-user').getByRole('button', { name: 'Edit' }).click();
  await field.fill('a much better question');
  await busy();
  await page.reload();
  assert.equal(await field.inputValue(), 'a much better question');
  await delayStore();
  await page.getByRole('button', { name: 'Cancel' }).click();
  await busy();
  await page.reload();
  await page.locator('.by-user').getByRole('button', { name: 'Edit' }).waitFor();
  assert.equal(await field.count(), 0);
  assert.deepEqual((await stored(page)).drafts, []);
  await close();
});

test('what is written as the result of a tool survives a reload, and is gone once it was given', async () => {
  const script = (stage, body) => {
    if (body.messages.at(-1).role === 'tool') return says('Sunny.')(stage);
    stage.delta({ tool_calls: [{ index: 0, id: 'c1', function: { name: 'weather', arguments: '{}' } }] });
    stage.end('tool_calls');
  };
  const { page, close } = await conversation(between, script, 'weather?');
  const field = page.getByLabel('Result of weather');
  await field.fill('sunny, 21 degrees');
  await page.reload();
  assert.equal(await field.inputValue(), 'sunny, 21 degrees');
  await page.getByRole('button', { name: 'Send result' }).click();
  await page.locator('.prose', { hasText: 'Sunny.' }).waitFor();
  await untilStored(page, (message) => message.content === 'Sunny.');
  await until(page, ({ drafts }) => drafts.length === 0);
  await close();
});

test('Compare shows after a reload what was asked and every word that had come', async () => {
  between.script = async (stage) => {
    for (let i = 0; i < 500 && stage.connection.isOpen; ++i) {
      stage.delta({ content: `word${i} ` });
      await pause(4);
    }
  };
  const { page, close } = await openPage(between.url);
  await page.keyboard.press('Control+Shift+C');
  await page.fill('[aria-label="Prompt for both"]', 'One for both');
  await page.getByRole('button', { name: 'Ask both' }).click();
  await page.waitForFunction(() => [...document.querySelectorAll('.side .prose')].filter((prose) => prose.textContent.length > 900).length === 2);
  await page.press('[aria-label="Prompt for both"]', 'Enter'); // while both answer, this asks nothing
  const seen = await page.evaluate(() => {
    const texts = [...document.querySelectorAll('.side .prose')].map((prose) => prose.textContent.trim());
    location.reload();
    return texts;
  });
  assert.ok(seen.every((text) => text.length > 900));
  await page.waitForLoadState();
  await page.waitForSelector('#prompt');
  await page.keyboard.press('Control+Shift+C');
  await page.waitForFunction(() => document.querySelectorAll('.side .notice.is-stopped').length === 2);
  const now = await page.locator('.side .prose').allTextContents();
  seen.forEach((text, i) => assert.ok(now[i].startsWith(text), `side ${i} had ${text.length} characters, has ${now[i].length}`));
  assert.equal(await page.inputValue('[aria-label="Prompt for both"]'), 'One for both');
  assert.equal(await page.locator('.row').count(), 0, 'it is no conversation');
  await page.getByRole('button', { name: 'Go on with B' }).click();
  await page.locator('.by-user .said', { hasText: 'One for both' }).waitFor();
  await close();
});

test('an idea is put to what is written, not in its place', async () => {
  const { page, close } = await openPage(between.url);
  await page.fill('#prompt', 'my own words');
  await page.locator('.welcome li button').first().click();
  assert.match(await page.inputValue('#prompt'), /^my own words\n.*hash table/);
  await close();
});

test('what is typed in the settings is kept by Escape and by a reload, JSON or not', async () => {
  const { page, close } = await openPage(between.url);
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
  await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange'))); // what is drawn meanwhile
  await pause(300);
  await page.keyboard.type(' And true.');
  await page.reload();
  await page.waitForSelector('#prompt');
  await page.keyboard.press('Control+,');
  assert.equal(await page.inputValue('dialog [name="temperature"]'), '0.3');
  assert.equal(await page.inputValue('dialog [name="tools"]'), '[{"type":');
  assert.match(await page.inputValue('dialog [name="system"]'), /Be brief\./);
  assert.match(await page.inputValue('dialog [name="system"]'), /And kind\. And true\./);
  await page.locator('dialog .wrong', { hasText: 'Not taken' }).waitFor();
  await page.keyboard.press('Escape');
  between.script = says('ok');
  between.requests.length = 0;
  await ask(page, 'go');
  await answered(page);
  assert.equal(between.requests[0].temperature, 0.3);
  assert.equal(between.requests[0].tools, undefined);
  await close();
});

test('a word typed in the last moment does not cost an attachment that is too large for it', async () => {
  const { page, close } = await openPage(between.url);
  await attach(page, 'big.txt', 'x'.repeat(6_000_000));
  await page.locator('.chips li').waitFor();
  await untilDrafted(page, ({ attachments }) => attachments.length === 1);
  await page.evaluate(() => {
    const field = document.getElementById('prompt');
    field.value = 'just now';
    field.dispatchEvent(new InputEvent('input', { bubbles: true }));
    location.reload();
  });
  await page.waitForFunction(() => document.getElementById('prompt')?.value === 'just now');
  await page.locator('.chips li', { hasText: 'big.txt' }).waitFor();
  await close();
});

test('two tabs that write in the same place find each its own words again', async () => {
  between.script = says('ok');
  const { page, context, close } = await openPage(between.url);
  await page.fill('#prompt', 'words of the first tab');
  await untilDrafted(page, ({ text }) => text === 'words of the first tab');
  const other = await context.newPage();
  await other.goto(between.url);
  await other.fill('#prompt', 'words of the second tab');
  await untilDrafted(page, ({ text }) => text === 'words of the second tab');
  await page.reload();
  await page.waitForFunction(() => document.getElementById('prompt')?.value === 'words of the first tab');
  await other.press('#prompt', 'Enter');
  await answered(other);
  await pause(300);
  await page.reload();
  await page.waitForFunction(() => document.getElementById('prompt')?.value === 'words of the first tab');
  await close();
});

test('what a page left behind stays until it is stored, and what cannot be read does not stand in the way', async () => {
  const { page, context, close } = await openPage(between.url);
  const tail = { conversations: [{ id: 'c', title: 'Left behind', created: 1, updated: 1, head: null, settings: {} }], messages: [], drafts: [] };
  const names = () => page.evaluate(() => Object.keys(localStorage).filter((name) => name.startsWith('zinc.tail.')).sort());
  await page.evaluate((text) => {
    localStorage.setItem('zinc.tail.broken', '{');
    localStorage.setItem('zinc.tail.gone', text);
  }, JSON.stringify(tail));
  const broken = await context.newPage();
  await broken.addInitScript(() => {
    IDBFactory.prototype.open = () => {
      throw new Error('no room');
    };
  });
  await broken.goto(between.url);
  await broken.locator('.alarm', { hasText: 'no room' }).waitFor();
  assert.ok((await names()).includes('zinc.tail.gone'));
  await broken.close();
  await page.reload();
  await page.locator('.row', { hasText: 'Left behind' }).waitFor();
  assert.deepEqual(await names(), []);
  assert.equal(await page.locator('.alarm').count(), 0);
  await close();
});

test('the browser is asked not to throw conversations away when it is short of room', async () => {
  between.script = says('ok');
  const { page, close } = await openPage(between.url);
  await page.evaluate(() => {
    window.asked = 0;
    navigator.storage.persist = () => Promise.resolve(++window.asked > 0);
  });
  assert.equal(await page.evaluate(() => window.asked), 0, 'not before there is anything to keep');
  await ask(page, 'go');
  await answered(page);
  await page.waitForFunction(() => window.asked === 1);
  await close();
});

// From the next page on, what is put into the store fails, as in a browser without room; `window.hasRoom` ends that.
const withoutRoom = (page) =>
  page.addInitScript(() => {
    const { put } = IDBObjectStore.prototype;
    IDBObjectStore.prototype.put = function (...args) {
      if (!window.hasRoom) throw new DOMException('no room is left', 'QuotaExceededError');
      return put.apply(this, args);
    };
  });

test('a copy that a tab kept of its draft is used once, and never over what was written later', async () => {
  const { page, close } = await openPage(between.url);
  await page.fill('#prompt', 'early words');
  await page.reload();
  await page.waitForFunction(() => document.getElementById('prompt')?.value === 'early words');
  assert.equal(await page.evaluate(() => sessionStorage.getItem('zinc.own')), null);
  await close();
});

test('what a page left behind and the store has no room for does not hide the conversations', async () => {
  const { page, context, close } = await conversation(between, says('here I am'), 'an old one');
  await untilStored(page, (message) => message.content === 'here I am' && !message.writing);
  await page.evaluate(() => {
    const left = (id) => JSON.stringify({ conversations: [{ id, title: `Left ${id}`, created: 1, updated: 1, head: null, settings: {} }], messages: [], drafts: [] });
    for (const id of ['one', 'two']) localStorage.setItem(`zinc.tail.${id}`, left(id));
  });
  const other = await context.newPage();
  await withoutRoom(other);
  await other.goto(page.url());
  await other.locator('.alarm', { hasText: 'no room is left' }).waitFor();
  await other.locator('.row', { hasText: 'an old one' }).waitFor();
  await other.locator('.prose', { hasText: 'here I am' }).waitFor();
  assert.equal(await other.evaluate(() => Object.keys(localStorage).filter((name) => name.startsWith('zinc.tail.')).length), 2);
  await close();
});

test('without room in the store, what was said is still there after going elsewhere, and stored once there is room', async () => {
  between.script = says('an answer');
  const { page, seen, close } = await openPage(between.url);
  await withoutRoom(page);
  await page.reload();
  await page.waitForSelector('#prompt');
  await ask(page, 'first');
  await answered(page);
  await page.keyboard.press('Control+Shift+O');
  await page.locator('.welcome').waitFor();
  await page.locator('.row .title', { hasText: 'first' }).click();
  await page.locator('.by-user .said', { hasText: 'first' }).waitFor();
  await page.locator('.prose', { hasText: 'an answer' }).waitFor();
  await page.locator('.alarm').waitFor();
  await page.keyboard.press('Control+Shift+O');
  await page.evaluate(() => (window.hasRoom = true));
  await ask(page, 'second');
  await answered(page);
  await page.waitForFunction(() => !document.querySelector('.alarm'));
  const { conversations, messages } = await stored(page);
  assert.deepEqual(conversations.map(({ title }) => title).sort(), ['first', 'second']);
  assert.deepEqual(messages.map(({ content }) => content).sort(), ['an answer', 'an answer', 'first', 'second']);
  assert.deepEqual(seen.errors, []);
  await close();
});

test('with the store closed under the page, what was said stays in reach, and the next word is stored again', async () => {
  between.script = says('an answer');
  const { page, seen, close } = await openPage(between.url);
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
  await ask(page, 'first');
  await answered(page);
  await page.keyboard.press('Control+Shift+O');
  await page.locator('.welcome').waitFor();
  await page.locator('.row .title', { hasText: 'first' }).click();
  await page.locator('.prose', { hasText: 'an answer' }).waitFor();
  await page.evaluate(() => (window.isClosed = false));
  await ask(page, 'second');
  await page.waitForFunction(() => document.querySelectorAll('.by-assistant .figures').length === 2 && !document.querySelector('.alarm'));
  assert.equal((await stored(page)).messages.length, 4);
  assert.deepEqual(seen.errors, []);
  await close();
});

test('a draft is forgotten only once it is stored as a message', async () => {
  between.script = says('ok');
  const { page, context, close } = await openPage(between.url);
  await page.fill('#prompt', 'a long thought');
  await until(page, ({ drafts }) => drafts.length > 0);
  await page.evaluate(() => {
    IDBObjectStore.prototype.put = () => {
      throw new DOMException('no room is left', 'QuotaExceededError');
    };
  });
  await page.press('#prompt', 'Enter');
  await answered(page);
  assert.equal(await page.inputValue('#prompt'), '');
  await pause(400);
  assert.deepEqual((await stored(page)).drafts.map(({ text }) => text), ['a long thought']);
  await close();
});

test('an answer that its tab ends while another asks about it is not cut back', async () => {
  const { page, context, close } = await conversation(between, says('a beginning'), 'go');
  const record = await untilStored(page, (message) => message.role === 'assistant' && !message.writing);
  const address = page.url();
  await page.goto(`${between.url}/licenses.txt`);
  await page.evaluate((message) => new Promise((resolve) => {
    window.write = (put, then) => {
      const opened = indexedDB.open('zinc');
      opened.onsuccess = () => {
        const change = opened.result.transaction('messages', 'readwrite');
        change.objectStore('messages').put(put);
        change.oncomplete = () => { opened.result.close(); then(); };
      };
    };
    window.write({ ...message, writing: true }, resolve);
  }), record);
  const other = await context.newPage();
  await holdWaits(other, 250); // for which it waits for who writes it
  await other.goto(address, { waitUntil: 'commit' });
  await other.waitForFunction(() => window.held?.size > 0);
  await page.evaluate((message) => new Promise((resolve) => {
    window.write({ ...message, content: 'a beginning and the end', writing: false }, resolve);
  }), record);
  await endWaits(other);
  await other.locator('.prose', { hasText: 'a beginning and the end' }).waitFor();
  assert.equal(await other.locator('.notice').count(), 0);
  assert.equal((await stored(other)).messages.find(({ id }) => id === record.id).content, 'a beginning and the end');
  await close();
});

test('what a tab left behind does not win over a draft that was written later', async () => {
  const { page, close } = await openPage(between.url);
  await page.fill('#prompt', 'the later words');
  await until(page, ({ drafts }) => drafts.length > 0);
  await page.evaluate(() => {
    sessionStorage.clear();
    const left = { conversations: [], messages: [], drafts: [{ id: '', text: 'the earlier words', attachments: [], at: 1 }] };
    localStorage.setItem('zinc.tail.gone', JSON.stringify(left));
    addEventListener('pagehide', () => sessionStorage.clear());
  });
  await page.reload();
  await page.waitForFunction(() => document.getElementById('prompt')?.value === 'the later words');
  assert.equal(await page.evaluate(() => localStorage.getItem('zinc.tail.gone')), null);
  await close();
});
