// The page with a scripted model, for tests that need exact output.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import {
  attach, finishedAnswer, fireTimers, importFile, interruptedConversation, kPhone, openPage, pickFile, readStore,
  renderedHtml, replyWith, sendMessage, sleep, startConversation, untilDraft, untilMessage, untilStable, untilTokens, useProxy, ready } from './harness.mjs';

const proxy = useProxy();

test('markdown becomes headings, lists, tables, code and formulas', async () => {
  const text = [
    '# Title', '', 'A *word* and **another** with `code`, a [link](https://example.org/) and $e^{i\\pi}+1=0$.', '', '- one', '  - nested',
    '- two', '', '1. first', '2. second', '', '> quoted', '', '| a | b |', '|---|--:|', '| 1 | 2 |', '', '```python', 'def f(x):', '    return x', '```', '',
    '$$\\int_0^1 x^2\\,dx$$', '', 'A <b>tag</b> stays text. It costs $5 and $6.', '', '- [x] done',
  ].join('\n');
  const { page, answer, seen, close } = await startConversation(proxy, replyWith(text));
  assert.equal(await answer.locator('.prose h3').innerText(), 'Title');
  assert.equal(await answer.locator('.prose ul ul li').innerText(), 'nested');
  assert.equal(await answer.locator('.prose td').count(), 2);
  assert.equal(await answer.locator('.prose pre code').innerText(), 'def f(x):\n    return x');
  await answer.locator('.prose .hljs-keyword').first().waitFor();
  await answer.locator('.math .katex').nth(1).waitFor();
  assert.equal(await answer.locator('.math').count(), 2, 'prices are not formulas');
  assert.match(await answer.innerText(), /A <b>tag<\/b> stays text\. It costs \$5 and \$6\./);
  const link = answer.locator('.prose a');
  assert.match(await link.getAttribute('rel'), /noopener noreferrer/);
  assert.equal(await link.getAttribute('target'), '_blank');
  assert.deepEqual(seen, { foreign: [], errors: [], violations: [], executed: [] });
  const code = answer.locator('figure.code');
  await code.getByRole('button', { name: 'Wrap' }).click();
  assert.equal(await code.getByRole('button', { name: 'Wrap' }).getAttribute('aria-pressed'), 'true');
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await code.getByRole('button', { name: 'Copy' }).click();
  await page.locator('.toast', { hasText: 'Copied' }).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'def f(x):\n    return x');
  await close();
});

test('finished blocks are never rendered again', async () => {
  let go;
  const halfway = new Promise((resolve) => (go = resolve));
  proxy.script = async (reply) => {
    reply.delta({ content: '# Head\n\nFirst paragraph.\n\n```js\nlet a = 1;\n```\n\nThird' });
    await halfway;
    for (const word of ' paragraph grows\n\n- and\n- a\n- list\n\nend'.split(/(?<= )/)) reply.delta({ content: word });
    reply.end();
  };
  const { page, close } = await openPage(proxy.url);
  await sendMessage(page, 'go');
  await page.locator('.prose .block').nth(3).waitFor();
  await page.locator('.hljs-keyword').first().waitFor();
  await page.evaluate(() => {
    window.nMutations = 0;
    window.firstBlocks = [...document.querySelectorAll('.prose .block')].slice(0, 3);
    const watch = new MutationObserver((changes) => (window.nMutations += changes.filter((change) => !change.target.closest?.('code')).length));
    for (const block of window.firstBlocks) watch.observe(block, { childList: true, subtree: true, characterData: true, attributes: true });
  });
  go();
  await finishedAnswer(page);
  const nTouched = await page.evaluate(() => window.firstBlocks.every((block, i) => block === document.querySelectorAll('.prose .block')[i]) && window.nMutations);
  assert.equal(nTouched, 0);
  await close();
});

test('a streamed text renders like the complete text', async () => {
  const text = readFileSync(new URL('./sample.md', import.meta.url), 'utf8');
  const { page, close } = await startConversation(proxy, replyWith(text, 3));
  const streamed = await renderedHtml(page);
  await page.reload();
  const whole = await renderedHtml(page);
  assert.equal(streamed, whole);
  const { messages } = await readStore(page);
  assert.equal(messages.find((message) => message.role === 'assistant').content, text);
  await close();
});

test('reasoning has a pane with its own time and token count', async () => {
  proxy.script = (reply) => {
    for (const word of ['Let ', 'me ', 'see']) reply.delta({ reasoning_content: word });
  };
  const { page, close } = await openPage(proxy.url);
  await sendMessage(page, 'hi');
  await page.locator('.thought').waitFor();
  proxy.reply.delta({ content: 'Forty-two.' });
  proxy.reply.end();
  const answer = await finishedAnswer(page);
  assert.match(await answer.locator('.thought summary').innerText(), /Thought for \d[\d.]* m?s[\s\S]*7 tokens/);
  assert.equal(await answer.locator('.thought .prose').isVisible(), false);
  await answer.locator('.thought summary').click();
  assert.equal(await answer.locator('.thought .prose').innerText(), 'Let me see');
  assert.equal((await answer.locator(':scope > .prose').innerText()).trim(), 'Forty-two.');
  await close();
});

test('tool calls are cards with a field for the result', async () => {
  const { page, answer, close } = await startConversation(proxy, (reply, body) => {
    if (body.messages.at(-1).role === 'tool') return replyWith('It is sunny.')(reply);
    reply.delta({ tool_calls: [{ index: 0, id: 'c1', function: { name: 'weather', arguments: '' } }] });
    reply.delta({ tool_calls: [{ index: 0, function: { arguments: '{"city":"Oslo"}' } }] });
    reply.end('tool_calls');
  });
  const card = answer.locator('.card');
  assert.match(await card.innerText(), /weather[\s\S]*"city": "Oslo"/);
  await card.locator('textarea').fill('sun');
  await card.getByRole('button', { name: 'Send result' }).click();
  await page.getByText('It is sunny.').waitFor();
  const sent = proxy.requests.at(-1).messages;
  assert.deepEqual(sent.at(-1), { role: 'tool', tool_call_id: 'c1', content: 'sun' });
  assert.equal(sent.at(-2).tool_calls[0].function.name, 'weather');
  await close();
});

test('prefill progress is shown, with the cached part marked', async () => {
  let go;
  const wait = new Promise((resolve) => (go = resolve));
  proxy.script = async (reply) => {
    reply.event({ prompt_progress: { total: 1000, cache: 250, processed: 500 } });
    await wait;
    reply.delta({ content: 'done' });
    reply.end();
  };
  const { page, close } = await openPage(proxy.url);
  await sendMessage(page, 'long');
  await page.getByText('Processing the prompt: 500 of 1,000 tokens, 250 from the cache').waitFor();
  const widths = await page.locator('.live .bar span').evaluateAll((parts) => parts.map((part) => part.style.width));
  assert.deepEqual(widths, ['50%', '25%']);
  await page.locator('.gauge', { hasText: '500 of 2,048 tokens' }).waitFor(); // the context gauge is updated too
  go();
  const answer = await finishedAnswer(page);
  assert.match(await answer.locator('.figures').innerText(), /41\.5 tok\/s[\s\S]*first token after 121 ms[\s\S]*16 cached/);
  await close();
});

test('every kind of failure has its notice', async () => {
  const cases = [
    ['is-empty', (reply) => reply.end(), /empty answer/],
    ['is-error', (reply) => reply.fail(500, { message: 'the device is lost', code: 'device_lost' }), /^The device is lost\./],
    ['is-error', (reply) => { reply.delta({ content: 'half' }); reply.event({ error: { message: 'a step failed' } }); }, /^A step failed\./],
    ['is-length', (reply) => { reply.delta({ content: 'half' }); reply.end('length'); }, /token limit/],
    ['is-context', (reply) => reply.fail(400, { message: 'the prompt has 9 tokens', code: 'context_length_exceeded' }), /longer than the context of the model\.[\s\S]*Your last message alone fills the context\.[\s\S]*New conversation/],
  ];
  for (const [name, script, text] of cases) {
    const { answer, close } = await startConversation(proxy, script);
    await answer.locator(`.notice.${name}`).waitFor();
    assert.match(await answer.locator('.notice').innerText(), text);
    await close();
  }
  const { answer, close } = await interruptedConversation(proxy, 'half');
  await answer.locator('.notice.is-lost', { hasText: 'The connection to the server was lost. Your text is safe. Retry continues from here.' }).waitFor();
  await close();
});

test('retrying after a lost connection loses no text', async () => {
  const { page, answer, close } = await interruptedConversation(proxy, 'The beginning', ' and the rest');
  await answer.getByRole('button', { name: 'Retry' }).click();
  await page.getByText('The beginning and the rest').waitFor();
  assert.deepEqual(proxy.requests.at(-1).messages.at(-1), { role: 'assistant', content: 'The beginning' });
  await close();
});

test('a reload during an answer loses no displayed text', async () => {
  proxy.script = async (reply) => {
    for (let i = 0; i < 400 && reply.connection.isOpen; ++i) {
      reply.delta({ content: `word${i} ` });
      await sleep(4);
    }
  };
  const { page, close } = await openPage(proxy.url);
  await sendMessage(page, 'go');
  await page.waitForFunction(() => (document.querySelector('.by-assistant .prose')?.textContent ?? '').length > 300);
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

test('the full history is sent without truncation', async () => {
  proxy.script = replyWith('x'.repeat(3000));
  proxy.requests.length = 0;
  const { page, close } = await openPage(proxy.url);
  for (const text of ['one', 'two', 'three']) {
    await sendMessage(page, text);
    await finishedAnswer(page);
    await page.waitForFunction(() => !document.querySelector('[aria-busy="true"]'));
  }
  const sent = proxy.requests.at(-1).messages;
  assert.deepEqual(sent.map((message) => message.role), ['user', 'assistant', 'user', 'assistant', 'user']);
  assert.equal(sent[1].content.length, 3000);
  await close();
});

test('dropped files and long pastes become attachments', async () => {
  proxy.script = replyWith('read');
  proxy.requests.length = 0;
  const { page, close } = await openPage(proxy.url);
  const transfer = await page.evaluateHandle(() => {
    const data = new DataTransfer();
    data.items.add(new File(['file content'], 'notes.txt', { type: 'text/plain' }));
    return data;
  });
  await page.dispatchEvent('body', 'dragover', { dataTransfer: transfer });
  await page.dispatchEvent('body', 'drop', { dataTransfer: transfer });
  await page.locator('.chips li', { hasText: 'notes.txt' }).waitFor();
  await page.focus('#prompt');
  await page.evaluate(() => {
    const data = new DataTransfer();
    data.setData('text/plain', 'long '.repeat(1000));
    document.getElementById('prompt').dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }));
  });
  await page.locator('.chips li', { hasText: 'pasted-1.txt' }).waitFor();
  await pickFile(page, 'x.bin', [0xff, 0xfe, 0x00, 0xd8]);
  await page.locator('.toast', { hasText: 'is not a text or PDF file' }).waitFor();
  await sendMessage(page, 'What is in them?');
  await finishedAnswer(page);
  const content = proxy.requests.at(-1).messages.at(-1).content;
  assert.match(content, /notes\.txt\n```\nfile content\n```/);
  assert.match(content, /(long ){1000}/);
  await close();
});

test('drafts survive a reload, each with its conversation', async () => {
  const { page, close } = await startConversation(proxy, replyWith('ok'), 'a conversation');
  await page.fill('#prompt', 'draft of the first');
  await page.keyboard.press('Control+Shift+O');
  await page.waitForFunction(() => document.getElementById('prompt').value === '');
  await page.fill('#prompt', 'draft of a new one');
  await page.reload();
  await page.waitForSelector('#prompt');
  assert.equal(await page.inputValue('#prompt'), 'draft of a new one');
  await page.locator('.row .title', { hasText: 'a conversation' }).click();
  await page.waitForFunction(() => document.getElementById('prompt').value === 'draft of the first');
  await close();
});

test('conversations can be searched, renamed, deleted, restored, exported and imported', async () => {
  const { page, close } = await startConversation(proxy, replyWith('The answer has a rare xylophone in it.'), 'about music');
  await page.keyboard.press('Control+Shift+O');
  proxy.script = replyWith('plain');
  await sendMessage(page, 'about cooking');
  await finishedAnswer(page);
  await page.keyboard.press('Control+K');
  await page.fill('#search', 'xylophone');
  await page.waitForFunction(() => document.querySelectorAll('.row').length === 1);
  assert.equal(await page.locator('.row .title').textContent(), 'about music');
  await page.fill('#search', '');
  const act = async (title, name) => {
    await page.locator('.row', { hasText: title }).hover();
    await page.getByRole('button', { name: `Actions for ${title}` }).click();
    await page.locator('.menu').getByRole('button', { name }).click();
  };
  await act('about music', 'Rename');
  await page.locator('.row input').fill('Instruments');
  await page.keyboard.press('Enter');
  await page.locator('.row .title', { hasText: 'Instruments' }).waitFor();
  await act('Instruments', 'Delete');
  await page.waitForFunction(() => document.querySelectorAll('.row').length === 1);
  await page.locator('.toast').getByRole('button', { name: 'Undo' }).click();
  await page.getByText('xylophone').waitFor();

  const saved = async (name) => {
    const [file] = await Promise.all([page.waitForEvent('download'), act('Instruments', name)]);
    return readFileSync(await file.path(), 'utf8');
  };
  assert.match(await saved('Export as Markdown'), /^<!-- zinc:1 conversation -->\n# Instruments\n[\s\S]*## You\n\nabout music\n[\s\S]*xylophone/);
  const json = await saved('Export as JSON');
  assert.equal(JSON.parse(json).conversations[0].messages.length, 2);
  await importFile(page, 'in.json', json);
  await page.waitForFunction(() => document.querySelectorAll('.row').length === 3);
  await page.getByText('xylophone').waitFor();
  await page.locator('.row .title', { hasText: 'Instruments (copy)' }).waitFor();
  await importFile(page, 'bad.json', '{"a":1}');
  await page.locator('.toast', { hasText: 'could not be imported' }).waitFor();
  await close();
});

test('a conversation saved by zinc chat can be imported and continued', async () => {
  proxy.script = replyWith('ok');
  proxy.requests.length = 0;
  const { page, close } = await openPage(proxy.url);
  const messages = [
    { role: 'system', content: 'Be brief.' }, { role: 'user', content: 'What is rain?\nAnd snow?' },
    { role: 'assistant', content: 'Water.', reasoning_content: 'They ask.' },
  ];
  await importFile(page, 'saved.json', JSON.stringify({ model: 'smollm2', messages }));
  await page.locator('.row .title', { hasText: 'What is rain?' }).waitFor();
  await page.locator('.prose', { hasText: 'Water.' }).waitFor();
  await sendMessage(page, 'Go on.');
  await finishedAnswer(page);
  assert.deepEqual(proxy.requests[0].messages, [...messages, { role: 'user', content: 'Go on.' }]);
  await close();
});

test('a value outside its range is marked in the settings', async () => {
  const { page, close } = await openPage(proxy.url);
  await page.keyboard.press('Control+,');
  await page.fill('dialog [name="temperature"]', '9');
  await page.locator('dialog .wrong', { hasText: 'Must be 0 to 2.' }).waitFor();
  assert.equal(await page.getAttribute('dialog [name="temperature"]', 'aria-invalid'), 'true');
  await page.fill('dialog [name="temperature"]', '0.9');
  await page.locator('dialog .wrong').waitFor({ state: 'detached' });
  await close();
});

test('Enter during an answer says why nothing is sent', async () => {
  proxy.script = (reply) => reply.delta({ content: 'The beginning' });
  const { page, close } = await openPage(proxy.url);
  await sendMessage(page, 'go');
  await page.locator('.prose', { hasText: 'The beginning' }).waitFor();
  await page.fill('#prompt', 'more');
  await page.press('#prompt', 'Enter');
  await page.locator('.toast', { hasText: 'still being written; Escape stops it' }).waitFor();
  assert.equal(await page.inputValue('#prompt'), 'more');
  await close();
});

test('settings belong to their conversation', async () => {
  const { page, close } = await startConversation(proxy, replyWith('ok'), 'first');
  await page.keyboard.press('Control+,');
  await page.fill('dialog [name="temperature"]', '0.3');
  await page.fill('dialog [name="system"]', 'Be brief.');
  await page.press('dialog [name="system"]', 'Tab');
  await page.keyboard.press('Escape');
  await sendMessage(page, 'again');
  await page.waitForFunction(() => document.querySelectorAll('.by-assistant .figures').length === 2);
  const sent = proxy.requests.at(-1);
  assert.equal(sent.temperature, 0.3);
  assert.deepEqual(sent.messages[0], { role: 'system', content: 'Be brief.' });
  await page.keyboard.press('Control+Shift+O');
  await sendMessage(page, 'other');
  await finishedAnswer(page);
  assert.notEqual(proxy.requests.at(-1).temperature, 0.3);
  assert.equal(proxy.requests.at(-1).messages.length, 1);
  await close();
});

test('a conversation whose model is not loaded says which model answers', async () => {
  const { page, close } = await openPage(proxy.url);
  const file = { format: 'zinc-conversations', version: 1, conversations: [{ title: 'old', head: 1, settings: { model: 'gone-7b' }, messages: [{ id: 1, role: 'user', content: 'hi' }] }] };
  await importFile(page, 'x.json', JSON.stringify(file));
  await page.locator('.gone', { hasText: 'gone-7b, which is not loaded; tiny answers' }).waitFor();
  await page.locator('.gone').getByRole('button', { name: 'Models' }).click();
  await page.getByRole('dialog', { name: 'Models' }).waitFor();
  await close();
});

test('data stored by version 1 of the page is migrated', async () => {
  const { page, close } = await openPage(proxy.url);
  await page.goto(`${proxy.url}/licenses.txt`);
  await page.evaluate(
    () =>
      new Promise((resolve, reject) => {
        const deletion = indexedDB.deleteDatabase('zinc');
        deletion.onerror = reject;
        deletion.onsuccess = () => {
          const opened = indexedDB.open('zinc', 1);
          opened.onupgradeneeded = () => opened.result.createObjectStore('conversations', { keyPath: 'id' });
          opened.onsuccess = () => {
            const transaction = opened.result.transaction('conversations', 'readwrite');
            transaction.objectStore('conversations').put({
              id: 'old', title: 'From before', created: 1, updated: 1,
              messages: [
                { id: 'm1', parent: null, role: 'user', content: 'old question', created: 1 },
                { id: 'm2', parent: 'm1', role: 'assistant', content: 'old **answer**', created: 2 },
              ],
            });
            transaction.oncomplete = () => { opened.result.close(); resolve(); };
          };
        };
      }),
  );
  await page.goto(proxy.url);
  await page.locator('.row .title', { hasText: 'From before' }).click();
  await page.locator('.prose strong', { hasText: 'answer' }).waitFor();
  await close();
});

test('no link in an answer opens before its address was shown, with any click and in any view', async () => {
  const links = ['https://evil.example/?q=secret', 'https://evil.example/', 'https://c2vjcmv0.evil.example/', 'https://evil.example/secret/path', 'mailto:a@evil.example'];
  const text = links.map((link, i) => `[link${i}](${link})`).join(' and ');
  const { page, context, seen, close } = await startConversation(proxy, replyWith(text));
  const addressShownBy = async (link, options) => {
    await link.click(options);
    await page.getByRole('dialog', { name: 'Open this link?' }).waitFor();
    const shown = await page.locator('.address').innerText();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.locator('.address').waitFor({ state: 'detached' });
    return shown;
  };
  for (let i = 0; i < links.length; ++i) {
    const link = page.locator('#thread .prose a', { hasText: `link${i}` });
    for (const options of [{}, { button: 'middle' }, { modifiers: ['Control'] }, { modifiers: ['Shift'] }]) assert.equal(await addressShownBy(link, options), links[i]);
  }
  assert.equal(await page.locator('.address').count(), 0);
  await page.keyboard.press('Alt+C');
  await page.fill('[aria-label="Prompt for both"]', 'q');
  await page.getByRole('button', { name: 'Ask both' }).click();
  await page.waitForFunction(() => document.querySelectorAll('.side .figures').length === 2);
  assert.equal(await addressShownBy(page.locator('.side .prose a').first(), {}), links[0]);
  assert.deepEqual(seen.foreign, []);
  assert.equal(context.pages().length, 1);
  await page.locator('.side .prose a').nth(1).click();
  await context.route('**/*', (route) => (route.request().url().startsWith(proxy.url) ? route.continue() : route.abort()));
  const [opened] = await Promise.all([context.waitForEvent('page'), page.getByRole('button', { name: 'Open', exact: true }).click()]);
  assert.equal(await opened.evaluate(() => window.opener).catch(() => null), null);
  await close();
});

test('actions in Compare do not change the open conversation', async () => {
  const { page, close } = await startConversation(proxy, (reply) => {
    reply.delta({ content: 'Hello **there**.\n\n```js\nlet a = 1;\n```\n' });
    reply.end('length');
  }, 'my conversation');
  await page.keyboard.press('Alt+C');
  await page.fill('[aria-label="Prompt for both"]', 'a question');
  await page.getByRole('button', { name: 'Ask both' }).click();
  await page.waitForFunction(() => document.querySelectorAll('.side .figures').length === 2);
  const side = page.locator('.side').first();
  await side.getByRole('button', { name: 'Wrap' }).click();
  assert.equal(await side.getByRole('button', { name: 'Wrap' }).getAttribute('aria-pressed'), 'true');
  for (const name of ['Regenerate', 'Continue']) {
    const n = proxy.requests.length;
    await side.getByRole('button', { name, exact: true }).click();
    await page.waitForFunction(() => document.querySelectorAll('.side .figures').length === 2 && !document.querySelector('.side [aria-busy="true"]'));
    assert.equal(proxy.requests.length, n + 1);
    assert.equal(proxy.requests.at(-1).messages[0].content, 'a question', `${name} sends the same prompt`);
    assert.equal(proxy.requests.at(-1).messages.length, name === 'Continue' ? 2 : 1);
  }
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  assert.equal(await page.locator('#thread .message').count(), 2);
  assert.equal(await page.locator('#thread .branches').count(), 0);
  const { conversations: [{ id }], messages } = await readStore(page);
  assert.equal(messages.filter((message) => message.conversation === id).length, 2);
  await page.keyboard.press('Alt+C');
  await page.locator('.side .figures').nth(1).waitFor(); // still there when the dialog opens again
  await close();
});

test('Escape closes open dialogs and fields first and stops the answer only otherwise', async () => {
  let isOpen = true;
  proxy.script = async (reply) => {
    reply.delta({ content: '[a](https://example.org/)\n\n```js\nlet a' });
    while (isOpen && reply.connection.isOpen) {
      reply.delta({ content: ' b' });
      await sleep(20);
    }
  };
  const { page, close } = await openPage(proxy.url);
  await sendMessage(page, 'go');
  await page.locator('figure.code').waitFor();
  const escapeKeepsStreaming = async (where) => {
    await page.keyboard.press('Escape');
    await sleep(60);
    assert.equal(await page.locator('.by-assistant[aria-busy="true"]').count(), 1, `Escape in ${where} does not stop the answer`);
  };
  await page.locator('.by-user').hover();
  await page.locator('.by-user .edit').click();
  await escapeKeepsStreaming('the editor');
  await page.locator('.editor').waitFor({ state: 'detached' });
  await page.locator('.prose a').click();
  await page.getByRole('dialog').waitFor();
  await escapeKeepsStreaming('the link dialog');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.locator('.row .title').dblclick();
  await page.locator('.row input').fill('discarded');
  await escapeKeepsStreaming('a title');
  assert.equal(await page.locator('.row .title').textContent(), 'go');
  await page.locator('.row').hover();
  await page.getByRole('button', { name: 'Actions for go' }).click();
  await escapeKeepsStreaming('a menu');
  await page.keyboard.press('Control+,');
  await page.getByRole('dialog').waitFor();
  await escapeKeepsStreaming('the settings');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.focus('#prompt');
  await page.keyboard.press('Escape');
  await page.locator('.notice.is-stopped').waitFor();
  isOpen = false;
  await close();
});

test('streaming code can be wrapped and stays wrapped', async () => {
  let isOpen = true;
  proxy.script = async (reply) => {
    reply.delta({ content: '```js\nlet a' });
    while (isOpen && reply.connection.isOpen) {
      reply.delta({ content: ' b' });
      await sleep(10);
    }
    reply.end();
  };
  const { page, close } = await openPage(proxy.url);
  await sendMessage(page, 'go');
  const wrap = page.getByRole('button', { name: 'Wrap' });
  await wrap.click();
  const n = (await page.locator('.prose pre').innerText()).length;
  await page.waitForFunction((before) => document.querySelector('.prose pre').innerText.length > before + 20, n);
  assert.equal(await wrap.getAttribute('aria-pressed'), 'true');
  assert.ok(await page.locator('.prose pre.is-wrapped').isVisible());
  isOpen = false;
  await finishedAnswer(page);
  assert.ok(await page.locator('.prose pre.is-wrapped').isVisible());
  await close();
});

test('continuing an answer keeps its reasoning time and token count', async () => {
  const { page, answer, close } = await startConversation(proxy, (reply, body) => {
    if (body.continue_final_message) {
      reply.delta({ content: ' more' });
      return reply.end('stop', {}, { completion_tokens_details: { reasoning_tokens: 0 } });
    }
    for (let i = 0; i < 9; ++i) reply.delta({ reasoning_content: 'a ' });
    reply.delta({ content: 'half' });
    reply.end('length');
  });
  const summary = answer.locator('.thought summary');
  const before = await summary.innerText();
  assert.match(before, /7 tokens/);
  await answer.getByRole('button', { name: 'Continue' }).click();
  await page.locator('.prose', { hasText: 'half more' }).waitFor();
  await finishedAnswer(page);
  assert.equal(await summary.innerText(), before);
  await close();
});

test('tokens are counted by the count from the server, not by events', async () => {
  let go;
  const wait = new Promise((resolve) => (go = resolve));
  proxy.script = async (reply) => {
    reply.event({ choices: [{ index: 0, delta: { content: 'four tokens at once' }, finish_reason: null }], completion_tokens: 4 });
    reply.event({ choices: [{ index: 0, delta: { content: ' and five more of them' }, finish_reason: null }], completion_tokens: 9 });
    await wait;
    reply.end();
  };
  const { page, close } = await openPage(proxy.url);
  await sendMessage(page, 'go');
  await page.locator('.live', { hasText: '9 tokens' }).waitFor();
  go();
  await close();
});

test('a silent stream without a running request counts as a lost connection', async () => {
  proxy.script = (reply) => reply.delta({ content: 'half of' });
  const { page, close } = await openPage(proxy.url);
  await sendMessage(page, 'go');
  await page.locator('.prose', { hasText: 'half of' }).waitFor();
  await fireTimers(page);
  await page.locator('.notice.is-lost', { hasText: 'stopped responding' }).waitFor();
  assert.equal((await page.locator('.by-assistant .prose').innerText()).trim(), 'half of');
  proxy.script = replyWith(' the answer');
  await page.getByRole('button', { name: 'Retry' }).click();
  await page.locator('.prose', { hasText: 'half of the answer' }).waitFor();
  await close();
});

test('while an answer streams, the server is polled every two seconds, and an unreachable server is reported', async () => {
  let go;
  const wait = new Promise((resolve) => (go = resolve));
  proxy.script = async (reply) => {
    reply.delta({ content: 'slow' });
    await wait;
    reply.end();
  };
  const { page, close } = await openPage(proxy.url);
  const polls = [];
  const begin = Date.now();
  page.on('request', (request) => request.url().endsWith('/v1/models') && polls.push(Date.now()));
  await sendMessage(page, 'go');
  await sleep(5000);
  while (polls.length < 3) await page.waitForEvent('request'); // the first may be the one at page load
  const seconds = (Date.now() - begin) / 1000;
  assert.ok(polls.length <= seconds / 2 + 2, `${polls.length} polls in ${seconds} s`);
  const { target } = proxy;
  proxy.target = 'http://127.0.0.1:9';
  await page.locator('.gone').waitFor();
  proxy.target = target;
  await page.locator('.gone').waitFor({ state: 'detached' });
  go();
  await close();
});

test('a model change by another client is detected', async () => {
  const { page, close } = await openPage(proxy.url);
  await page.waitForFunction(() => document.querySelector('.model-picker').value === 'tiny');
  for (const path of ['**/v1/models', '**/props']) {
    await page.route(path, async (route) => route.fulfill({ body: (await (await route.fetch()).text()).replaceAll('"tiny"', '"other"') }));
  }
  await page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await page.waitForFunction(() => document.querySelector('.model-picker').value === 'other');
  await close();
});

test('search also finds reasoning and attachments', async () => {
  const { page, close } = await startConversation(proxy, (reply) => {
    reply.delta({ reasoning_content: 'a marimba, perhaps' });
    replyWith('ok')(reply);
  }, 'first');
  await page.keyboard.press('Control+Shift+O');
  proxy.script = replyWith('ok');
  await attach(page, 'a.txt', 'there is a glockenspiel');
  await sendMessage(page, 'second');
  await finishedAnswer(page);
  for (const [word, title] of [['MARIMBA', 'first'], ['glockenspiel', 'second']]) {
    await page.fill('#search', word);
    await page.waitForFunction((name) => [...document.querySelectorAll('.row .title')].map((row) => row.textContent).join() === name, title);
  }
  await page.fill('#search', 'no such word');
  await page.getByText('Nothing found.').waitFor();
  await close();
});

test('an attachment that contains fences gets a longer fence', async () => {
  proxy.script = replyWith('ok');
  proxy.requests.length = 0;
  const { page, close } = await openPage(proxy.url);
  await attach(page, 'a.md', '```js\nx\n```\n````');
  await page.locator('.chips li').waitFor();
  await sendMessage(page, 'go');
  await finishedAnswer(page);
  assert.equal(proxy.requests[0].messages[0].content, 'a.md\n`````\n```js\nx\n```\n````\n`````\n\ngo');
  await close();
});

test('a formula cannot paint over content above it', async () => {
  const { page, close } = await startConversation(proxy, replyWith('$\\smash{\\raisebox{20em}{\\rule{20em}{20em}}}$\n\n$\\kern-20em\\rule{20em}{20em}$'), 'the question');
  await page.waitForFunction(() => document.querySelectorAll('.by-assistant .katex').length === 2);
  const covered = await page.evaluate(() => {
    scrollTo(0, 0);
    const box = document.querySelector('.by-user .said').getBoundingClientRect();
    const top = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
    return Boolean(top.closest('.prose'));
  });
  assert.equal(covered, false);
  assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector('.by-assistant .prose')).contain), 'paint');
  await close();
});

test('everything can be reached with the keyboard', async () => {
  const { page, close } = await startConversation(proxy, replyWith('ok'), 'keys');
  await page.press('#prompt', 'ArrowUp');
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), 'Edit the message');
  await page.keyboard.press('Escape');
  for (const [key, title] of [['Control+,', 'Settings of this conversation'], ['Control+/', 'Keyboard shortcuts'], ['Alt+M', 'Models'], ['Alt+C', 'Compare']]) {
    await page.keyboard.press(key);
    await page.getByRole('dialog', { name: title }).waitFor();
    await page.keyboard.press('Escape');
    await page.waitForSelector('dialog', { state: 'detached' });
  }
  const reached = new Set();
  await page.evaluate(() => document.activeElement.blur());
  for (let i = 0; i < 60; ++i) {
    await page.keyboard.press('Tab');
    reached.add(await page.evaluate(() => document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.textContent?.trim()));
  }
  for (const name of ['New conversation', 'Search conversations', 'Model', 'Message', 'Regenerate', 'Attach text or PDF files', 'Edit']) {
    assert.ok([...reached].some((text) => text?.includes(name)), `${name} can be reached; reached: ${[...reached].join(', ')}`);
  }
  await close();
});

test('a key press right after page load is handled', async () => {
  const { page, close } = await openPage(proxy.url);
  await page.addInitScript(() => {
    new MutationObserver((_, watch) => {
      const field = document.getElementById('prompt');
      if (!field) return;
      watch.disconnect();
      field.dispatchEvent(new KeyboardEvent('keydown', { key: '/', ctrlKey: true, bubbles: true }));
    }).observe(document, { childList: true, subtree: true });
  });
  await page.reload();
  await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor();
  await close();
});

test('on a phone Enter inserts a new line, and the button sends', async () => {
  proxy.script = replyWith('ok');
  proxy.requests.length = 0;
  const { page, close } = await openPage(proxy.url, { viewport: kPhone, hasTouch: true, isMobile: true });
  await page.tap('#prompt');
  await page.locator('#prompt:focus').waitFor();
  await page.keyboard.type('one');
  await page.keyboard.press('Enter');
  await page.keyboard.type('two');
  await page.getByRole('button', { name: 'Send' }).tap();
  await finishedAnswer(page);
  assert.equal(proxy.requests[0].messages[0].content, 'one\ntwo');
  await close();
});

test('on a phone the sidebar slides in and nothing overflows horizontally', async () => {
  const { page, close } = await startConversation(proxy, replyWith('# A\n\n| a | b |\n|--|--|\n| x | y |\n\n`' + 'long'.repeat(60) + '`'), 'phone', { viewport: kPhone, hasTouch: true, isMobile: true });
  assert.equal(await page.locator('#sidebar').isVisible(), false);
  await page.getByRole('button', { name: 'Conversations' }).click();
  await page.locator('#sidebar .row .title').click();
  await page.waitForFunction(() => getComputedStyle(document.getElementById('sidebar')).visibility === 'hidden');
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  await close();
});

test('switching branches of an early message keeps the scroll position', async () => {
  const long = replyWith(Array.from({ length: 60 }, (_, i) => `Paragraph ${i}.`).join('\n\n'));
  const { page, close } = await startConversation(proxy, long, 'first');
  await page.locator('.by-assistant').first().getByRole('button', { name: 'Regenerate' }).click();
  await page.locator('.by-assistant .branches', { hasText: '2 / 2' }).waitFor();
  await finishedAnswer(page);
  await sendMessage(page, 'second');
  await page.waitForFunction(() => document.querySelectorAll('.by-assistant .figures').length === 2);
  const branches = page.locator('.by-assistant .branches');
  await untilStable(page);
  const end = await page.evaluate(() => scrollY);
  await page.mouse.wheel(0, -200);
  await page.waitForFunction((was) => scrollY < was, end);
  await untilStable(page);
  await branches.scrollIntoViewIfNeeded();
  const top = () => page.evaluate(() => document.querySelector('.by-assistant .branches').getBoundingClientRect().top);
  // The page ends after the first branch. The second branch has later messages; switching to it must not scroll to the end.
  await branches.getByRole('button', { name: 'Previous branch' }).click();
  await page.locator('.branches', { hasText: '1 / 2' }).waitFor();
  await untilStable(page);
  const before = await top();
  assert.ok(before > 0 && before < 860, `the buttons are at ${before}`);
  await branches.getByRole('button', { name: 'Next branch' }).evaluate((button) => {
    button.click();
    for (const end = performance.now() + 1500; performance.now() < end; ); // as on a slow machine
  });
  await page.locator('.branches', { hasText: '2 / 2' }).waitFor();
  await untilStable(page);
  assert.ok(Math.abs((await top()) - before) < 60, `the buttons moved from ${before} to ${await top()}`);
  await close();
});

test('right-to-left text is displayed right to left, code is not', async () => {
  const { page, answer, close } = await startConversation(proxy, replyWith('مرحبا بالعالم\n\n```js\nlet a = 1;\n```\n\nBack again.'), 'שלום');
  const directions = await answer.locator('.prose .block').evaluateAll((blocks) => blocks.map((block) => getComputedStyle(block).direction));
  assert.deepEqual(directions, ['rtl', 'ltr', 'ltr']);
  assert.equal(await page.locator('.said').evaluate((said) => getComputedStyle(said).direction), 'rtl');
  await page.fill('#prompt', 'مرحبا');
  assert.equal(await page.locator('#prompt').evaluate((field) => getComputedStyle(field).direction), 'rtl');
  await close();
});

test('names of Object.prototype properties are not link references', async () => {
  const { answer, close } = await startConversation(proxy, replyWith('see [constructor] and [toString][valueOf] here\n\nand [constructor]'));
  assert.deepEqual(await answer.locator('.prose p').allInnerTexts(), ['see [constructor] and [toString][valueOf] here', 'and [constructor]']);
  await close();
});

test('a paste with both text and an image, as from a spreadsheet, inserts the text', async () => {
  const { page, close } = await openPage(proxy.url);
  const paste = (text, type) => page.evaluate(([words, kind]) => {
    const data = new DataTransfer();
    if (words) data.setData('text/plain', words);
    data.items.add(new File(['x'], 'it', { type: kind }));
    return document.getElementById('prompt').dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }));
  }, [text, type]);
  assert.equal(await paste('a\tb', 'image/png'), true, 'the browser pastes the text');
  assert.equal(await paste('notes.txt', 'text/plain'), false);
  await page.locator('.chips li').waitFor();
  assert.equal(await page.locator('.toast').count(), 0);
  await close();
});

test('a title being typed survives a re-render', async () => {
  const { page, close } = await startConversation(proxy, replyWith('ok'), 'a title');
  await page.locator('.row .title').dblclick();
  const field = page.locator('.row input');
  await field.pressSequentially('new');
  await page.evaluate(async () => {
    const channel = new BroadcastChannel('zinc'); // as if another tab changed it
    channel.postMessage({ conversations: [location.hash.slice(1)] });
  });
  await sleep(300);
  await page.keyboard.type(' words');
  assert.equal(await field.inputValue(), 'new words');
  await field.dispatchEvent('keydown', { key: 'Enter', isComposing: true });
  assert.equal(await field.count(), 1, 'Enter during IME composition does not submit');
  await page.keyboard.press('Escape');
  await page.locator('.row .title', { hasText: 'a title' }).waitFor();
  await page.locator('.row .title').dblclick();
  await field.fill('renamed');
  await page.keyboard.press('Enter');
  await page.locator('.row .title', { hasText: 'renamed' }).waitFor();
  await close();
});

test('a file is attached to the draft that was open when it was added', async () => {
  const { page, close } = await startConversation(proxy, replyWith('ok'), 'the first');
  await page.evaluate(() => {
    const { arrayBuffer } = File.prototype;
    File.prototype.arrayBuffer = async function () {
      await new Promise((resolve) => (window.resumeRead = resolve));
      return arrayBuffer.call(this);
    };
  });
  await pickFile(page, 'slow.txt', 'text');
  await page.keyboard.press('Control+Shift+O');
  await page.locator('.welcome').waitFor();
  await page.evaluate(() => window.resumeRead());
  await untilDraft(page, ({ attachments }) => attachments.length === 1);
  assert.equal(await page.locator('.chips li').count(), 0);
  await page.locator('.row .title').click();
  await page.locator('.chips li', { hasText: 'slow.txt' }).waitFor();
  await close();
});

test('each Undo toast stays for its full time when more conversations are deleted', async () => {
  proxy.script = replyWith('ok');
  const { page, close } = await openPage(proxy.url);
  for (const name of ['one', 'two', 'three', 'four']) {
    await page.keyboard.press('Control+Shift+O');
    await sendMessage(page, name);
    await page.locator('.row', { hasText: name }).waitFor();
    await finishedAnswer(page);
  }
  for (const name of ['one', 'two', 'three', 'four']) {
    await page.getByRole('button', { name: `Actions for ${name}`, exact: true }).evaluate((button) => button.click());
    await page.locator('.menu').getByRole('button', { name: 'Delete' }).click();
    await page.locator('.toast', { hasText: `“${name}”` }).waitFor();
  }
  await page.locator('.toast', { hasText: '“one”' }).getByRole('button', { name: 'Undo' }).click();
  await page.locator('.row', { hasText: 'one' }).waitFor();
  await close();
});

test('Compare keeps all answers of a side and their probabilities, also after a reload', async () => {
  let n = 0;
  const wire = (text) => ({ token: text, logprob: -0.5, bytes: [...new TextEncoder().encode(text)] });
  proxy.script = (reply) => {
    const text = `answer${++n}`;
    reply.delta({ content: text }, { logprobs: { content: [{ ...wire(text), top_logprobs: [wire(text), wire('other')] }] } });
    reply.end();
  };
  const { page, close } = await openPage(proxy.url);
  await page.locator('.pill', { hasText: 'Probabilities' }).click();
  await page.keyboard.press('Alt+C');
  await page.fill('[aria-label="Prompt for both"]', 'One for both');
  await page.getByRole('button', { name: 'Ask both' }).click();
  const side = page.locator('.side').first();
  await page.waitForFunction(() => document.querySelectorAll('.side .figures').length === 2);
  const text = side.locator('.tokens .text');
  const first = (await text.textContent()).trim();
  await side.getByRole('button', { name: 'Regenerate', exact: true }).click();
  await text.filter({ hasText: 'answer3' }).waitFor();
  await side.getByText('2 / 2').waitFor();
  await side.getByRole('button', { name: 'Previous branch' }).click();
  await text.filter({ hasText: first }).waitFor();
  await untilMessage(page, (message) => message.content === 'answer3' && !message.writing);
  await page.reload();
  await page.waitForSelector('#prompt');
  await page.keyboard.press('Alt+C');
  await side.getByText('2 / 2').waitFor();
  await side.getByRole('button', { name: 'Previous branch' }).click();
  await text.filter({ hasText: first }).waitFor();
  await page.getByRole('button', { name: 'Continue with A' }).click();
  const answer = page.locator('#thread .by-assistant');
  await answer.locator('.token', { hasText: first }).click();
  await answer.locator('.alternatives', { hasText: 'other' }).waitFor();
  await close();
});

test('the token view also shows text received without probabilities', async () => {
  const wire = (text) => ({ token: text, logprob: -0.5, bytes: [...new TextEncoder().encode(text)] });
  const tokens = (reply, ...words) => {
    for (const word of words) reply.delta({ content: word }, { logprobs: { content: [{ ...wire(word), top_logprobs: [wire(word)] }] } });
    reply.end('length');
  };
  const plainly = (reply) => {
    reply.delta({ content: ' three four' });
    reply.end('length');
  };
  proxy.script = (reply, body) => (body.logprobs ? tokens(reply, 'One', ' two') : plainly(reply));
  const { page, close } = await openPage(proxy.url);
  const pill = page.locator('.pill', { hasText: 'Probabilities' });
  await pill.click();
  await sendMessage(page, 'go');
  const answer = await finishedAnswer(page);
  await pill.click();
  await answer.getByRole('button', { name: 'Continue' }).click();
  await page.locator('.prose', { hasText: 'three four' }).waitFor();
  await answer.getByRole('button', { name: 'Probabilities' }).click();
  await untilTokens(page, ['One', ' two', ' three four']);
  await pill.click();
  await answer.getByRole('button', { name: 'Continue' }).click();
  await untilTokens(page, ['One', ' two', ' three four', 'One', ' two']);
  await close();
});

test('a tool call accepts a result only while nothing but results follows it', async () => {
  proxy.script = (reply, body) => {
    if (body.messages.at(-1).content === 'something else') return replyWith('All right.')(reply);
    reply.delta({ tool_calls: [{ index: 0, id: 'c1', function: { name: 'weather', arguments: '{}' } }] });
    reply.end('tool_calls');
  };
  const { page, close } = await openPage(proxy.url);
  await sendMessage(page, 'weather?');
  const form = page.locator('.card form');
  await form.waitFor();
  await sendMessage(page, 'something else');
  await (await finishedAnswer(page)).locator('.prose', { hasText: 'All right.' }).waitFor();
  assert.equal(await form.count(), 0);
  await sendMessage(page, 'again'); // a server may reuse an id
  await form.waitFor();
  assert.equal(await form.count(), 1);
  await form.locator('textarea').fill('sunny');
  await form.getByRole('button', { name: 'Send result' }).click();
  await page.locator('.card .result', { hasText: 'sunny' }).waitFor();
  assert.equal(await page.locator('.card .result').count(), 1);
  await close();
});

test('a text that cannot be rendered is shown as plain text with its footer', async () => {
  proxy.script = (reply) => reply.delta({ content: 'Some **words**' });
  const { page, seen, close } = await openPage(proxy.url);
  await page.evaluate(() => {
    Node.prototype.isEqualNode = () => {
      throw new RangeError('too deep');
    };
  });
  await sendMessage(page, 'go');
  await page.locator('.prose strong', { hasText: 'words' }).waitFor();
  for (const part of [' and', ' more\n\n', 'to the end.']) proxy.reply.delta({ content: part });
  proxy.reply.end();
  const answer = await finishedAnswer(page);
  await answer.locator('.figures').waitFor();
  assert.equal(await answer.locator('.prose.is-plain').textContent(), 'Some **words** and more\n\nto the end.');
  assert.deepEqual(seen.errors, []);
  await close();
});

const wireToken = (text, p = 0.6) => ({ token: text, logprob: Math.log(p), bytes: [...new TextEncoder().encode(text)] });
const sendTokens = (reply, ...words) => {
  for (const word of words) reply.delta({ content: word }, { logprobs: { content: [{ ...wireToken(word), top_logprobs: [wireToken(word), wireToken(' else', 0.2)] }] } });
};

test('probabilities are visible at once: words are tinted while they stream, with a hint the first time', async () => {
  let go;
  const wait = new Promise((resolve) => (go = resolve));
  proxy.script = async (reply) => {
    sendTokens(reply, 'The', ' **sky**', ' is\n');
    await wait;
    sendTokens(reply, 'blue', '.');
    reply.end();
  };
  const { page, close } = await openPage(proxy.url);
  await page.locator('.pill', { hasText: 'Probabilities' }).click();
  await sendMessage(page, 'why?');
  const answer = page.locator('.by-assistant');
  await answer.locator('.text .token.p6', { hasText: 'sky' }).waitFor();
  assert.equal(await answer.getAttribute('aria-busy'), 'true', 'while the answer streams');
  await page.evaluate(() => (window.firstToken = document.querySelector('.text .token')));
  go();
  await finishedAnswer(page);
  await untilTokens(page, ['The', ' **sky**', ' is\n', 'blue', '.']);
  assert.ok(await page.evaluate(() => window.firstToken.isConnected), 'tokens are not rendered again');
  await answer.locator('.first-time', { hasText: 'the less sure the model was' }).getByRole('button', { name: 'Got it' }).click();
  await answer.locator('.text .token').nth(3).click();
  await answer.locator('.alternatives', { hasText: 'else' }).waitFor();
  await answer.getByRole('button', { name: 'Probabilities' }).click();
  await answer.locator('.prose strong', { hasText: 'sky' }).waitFor();
  await page.reload();
  await answer.locator('.text .token').nth(4).waitFor();
  assert.equal(await page.locator('.first-time').count(), 0, 'the hint is shown once');
  await page.locator('.pill', { hasText: 'Probabilities' }).click();
  await answer.locator('.prose strong', { hasText: 'sky' }).waitFor();
  await close();
});

test('code is colored while it streams, and stays colored while it grows', async () => {
  const { page, close } = await openPage(proxy.url);
  const kMaxLines = 200; // growing code of 6,000 characters and more is colored at its end only
  let [grows, isOpen] = [false, true];
  proxy.script = async (reply) => {
    reply.delta({ content: '```js\nlet first = 1;\n' });
    for (let i = 0; isOpen && reply.connection.isOpen; await sleep(15)) {
      if (grows && i < kMaxLines) reply.delta({ content: `let a${i++} = "text";\n` });
    }
    reply.end();
  };
  await sendMessage(page, 'go');
  await page.locator('.hljs-keyword').first().waitFor();
  await page.evaluate(() => {
    window.keyword = document.querySelector('.hljs-keyword');
    window.nLost = 0;
    const check = () => {
      if (!document.querySelector('.hljs-keyword')) ++window.nLost;
      requestAnimationFrame(check);
    };
    check();
  });
  grows = true;
  await page.waitForFunction(() => document.querySelectorAll('.hljs-string').length > 20);
  assert.equal(await page.locator('.by-assistant').getAttribute('aria-busy'), 'true');
  assert.ok(await page.evaluate(() => window.keyword.isConnected && window.nLost === 0), 'colors do not flicker');
  isOpen = false;
  await finishedAnswer(page);
  await page.waitForFunction(() => {
    const code = document.querySelector('pre code');
    return (code.textContent.match(/"text"/g) ?? []).length === code.querySelectorAll('.hljs-string').length;
  });
  const { messages } = await readStore(page);
  assert.equal(`\`\`\`js\n${await page.locator('pre code').textContent()}\n`, messages.find(({ role }) => role === 'assistant').content);
  await close();
});

test('<details> is a folded part with Markdown in it, other HTML stays text', async () => {
  const text = 'Before\n\n<details onclick="zincExecuted(1)">\n<summary>More *here* <img src=x></summary>\n\nInner **text**\n\n<details><summary>Nested</summary>deep</details>\n\n- last\n\n</details>\n\nAfter <u>it</u>';
  const { page, answer, seen, close } = await startConversation(proxy, replyWith(text, 3));
  const outer = answer.locator('.prose .block > details');
  assert.match(await outer.locator('> summary').innerText(), /^More here <img src=x>$/);
  assert.equal(await answer.locator('.prose strong').isVisible(), false);
  await outer.locator('> summary').click();
  assert.ok(await answer.locator('.prose strong', { hasText: 'text' }).isVisible());
  assert.equal(await outer.locator('details summary').innerText(), 'Nested');
  assert.equal(await outer.locator('li').innerText(), 'last');
  assert.match(await answer.innerText(), /After <u>it<\/u>/);
  assert.equal(await answer.locator('.prose [onclick], .prose img').count(), 0);
  const streamed = await renderedHtml(page);
  await page.reload();
  assert.equal((await renderedHtml(page)), streamed.replace('<details open="">', '<details>'));
  assert.deepEqual(seen, { foreign: [], errors: [], violations: [], executed: [] });
  await close();
});

test('the composer does not move when an answer ends, and figures for engineers are behind a toggle', async () => {
  const { page, close } = await openPage(proxy.url);
  const top = () => page.locator('.box').evaluate((box) => box.getBoundingClientRect().top);
  const before = await top();
  proxy.script = replyWith('ok');
  await sendMessage(page, 'hi');
  await finishedAnswer(page);
  await page.locator('.gauge', { hasText: '66 of 2,048 tokens' }).waitFor();
  assert.equal(await top(), before);
  assert.equal(await page.locator('.gauge').count(), 1, 'only the context');
  await page.getByRole('button', { name: 'Memory and cache figures' }).click();
  await page.locator('.gauge', { hasText: 'Memory' }).waitFor();
  await page.reload();
  await page.locator('.gauge', { hasText: 'Memory' }).waitFor();
  await close();
});

test('focus rings and hover squares are not clipped, and a row’s menu does not cover its title', async () => {
  const { page, answer, close } = await startConversation(proxy, replyWith('ok'), `A title ${'that is long '.repeat(12)}`);
  const kRingPx = 4;
  const insets = (locator) => locator.evaluate((element) => {
    const [inner, outer] = [element.getBoundingClientRect(), element.closest('.message').getBoundingClientRect()];
    return [inner.left - outer.left, outer.right - inner.right];
  });
  assert.ok((await insets(answer.locator('footer button').first()))[0] >= 0);
  await page.locator('.by-user').hover();
  await page.locator('.by-user .edit').click();
  assert.ok((await insets(page.locator('.editor textarea'))).every((space) => space >= kRingPx));
  await page.locator('.row').hover();
  const { textEnd, menu } = await page.locator('.row').evaluate((row) => {
    const title = row.querySelector('.title');
    return { textEnd: title.getBoundingClientRect().right - parseFloat(getComputedStyle(title).paddingRight), menu: row.querySelector('.row-menu').getBoundingClientRect().left };
  });
  assert.ok(textEnd <= menu, `the title ends at ${textEnd}, the menu begins at ${menu}`);
  await close();
});

test('titles are cut by width, not by length', async () => {
  const title = 'A question with more than sixty characters that fits in the header of a wide window';
  const { page, close } = await startConversation(proxy, replyWith('ok'), title);
  const head = page.locator('.head .title');
  assert.equal(await head.textContent(), title);
  assert.ok(await head.evaluate((element) => element.scrollWidth <= element.clientWidth), 'it fits');
  await page.setViewportSize(kPhone);
  await page.waitForFunction((width) => innerWidth === width, kPhone.width);
  assert.ok(await head.evaluate((element) => element.scrollWidth > element.clientWidth && getComputedStyle(element).textOverflow === 'ellipsis'));
  assert.equal(await page.locator('.model-picker').evaluate((element) => getComputedStyle(element).textOverflow), 'ellipsis');
  await close();
});

test('the list can be folded away and stays folded', async () => {
  const { page, close } = await openPage(proxy.url);
  const list = page.locator('#sidebar');
  await page.keyboard.press('Control+B');
  await list.waitFor({ state: 'hidden' });
  assert.equal(await page.locator('.column').evaluate((column) => column.getBoundingClientRect().left), 0);
  await page.reload();
  await page.getByRole('button', { name: 'Show the list' }).click();
  await list.waitFor();
  await page.getByRole('button', { name: 'Hide the list' }).click();
  await list.waitFor({ state: 'hidden' });
  await page.keyboard.press('Control+K');
  await page.locator('#search:focus').waitFor();
  await close();
});

test('no shortcut is one that browsers keep for themselves', async () => {
  const { page, close } = await openPage(proxy.url);
  await page.keyboard.press('Control+/');
  const keys = await page.locator('.keys kbd').allInnerTexts();
  for (const taken of ['Ctrl+Shift+C', 'Ctrl+Shift+M', 'Ctrl+Shift+I', 'Ctrl+Shift+J', 'Ctrl+N', 'Ctrl+T', 'Ctrl+W']) assert.ok(!keys.includes(taken), taken);
  assert.ok(keys.includes('Alt+M') && keys.includes('Alt+C') && keys.includes('Ctrl+B'));
  await close();
});

test('the theme menu has a visible label', async () => {
  const { page, close } = await openPage(proxy.url);
  assert.ok(await page.locator('#sidebar label', { hasText: 'Theme' }).isVisible());
  await page.getByLabel('Theme').selectOption('dark');
  assert.equal(await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme), 'dark');
  await close();
});

test('presets hold a system prompt and sampling; sliders and Reset change the values that are sent', async () => {
  proxy.script = replyWith('ok');
  proxy.requests.length = 0;
  const { page, close } = await openPage(proxy.url);
  const dialog = page.getByRole('dialog');
  await page.keyboard.press('Control+,');
  await page.fill('dialog [name="system"]', 'Talk like a pirate.');
  await page.getByRole('slider', { name: 'Temperature, slider' }).fill('1.5');
  assert.equal(await page.inputValue('dialog [name="temperature"]'), '1.5');
  await dialog.getByRole('button', { name: 'Save as preset' }).click();
  await dialog.getByLabel('Name of the preset').fill('Pirate');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('[name="preset"]').value === 'Pirate');
  await dialog.getByRole('button', { name: 'Reset to defaults' }).click();
  assert.deepEqual([await page.inputValue('dialog [name="system"]'), await page.inputValue('dialog [name="temperature"]')], ['', '']);
  await page.reload();
  await ready(page);
  await page.keyboard.press('Control+,');
  await dialog.getByLabel('Preset').selectOption('Pirate');
  await page.keyboard.press('Escape');
  await sendMessage(page, 'hi');
  await finishedAnswer(page);
  assert.equal(proxy.requests[0].temperature, 1.5);
  assert.deepEqual(proxy.requests[0].messages[0], { role: 'system', content: 'Talk like a pirate.' });
  await page.keyboard.press('Control+,');
  await dialog.getByLabel('Preset').selectOption('Precise');
  assert.deepEqual([await page.inputValue('dialog [name="system"]'), await page.inputValue('dialog [name="temperature"]')], ['', '0']);
  await dialog.getByLabel('Preset').selectOption('Pirate');
  await dialog.getByRole('button', { name: 'Delete preset' }).click();
  assert.deepEqual(await page.locator('[name="preset"] option').allInnerTexts(), ['Own settings', 'Defaults of the model', 'Precise', 'Creative']);
  await close();
});

// A PDF with one line of text per page; without lines, with an empty page.
function pdfOf(...lines) {
  const pages = lines.length > 0 ? lines : [''];
  const contents = pages.map((line) => (line ? `BT /F1 12 Tf 72 720 Td (${line}) Tj ET` : ''));
  const objects = [
    '<< /Type /Catalog /Pages 2 0 R >>',
    `<< /Type /Pages /Count ${pages.length} /Kids [${pages.map((_, i) => `${4 + 2 * i} 0 R`).join(' ')}] >>`,
    '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>',
    ...contents.flatMap((content, i) => [
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents ${5 + 2 * i} 0 R >>`,
      `<< /Length ${content.length} >>\nstream\n${content}\nendstream`,
    ]),
  ];
  let out = '%PDF-1.4\n';
  const offsets = objects.map((object, i) => {
    const at = out.length;
    out += `${i + 1} 0 obj\n${object}\nendobj\n`;
    return String(at).padStart(10, '0');
  });
  const table = `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${offsets.map((at) => `${at} 00000 n \n`).join('')}`;
  return `${out}${table}trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${out.length}\n%%EOF\n`;
}

test('the text of a PDF is attached, read on this machine; images and empty PDFs are refused with the reason', async () => {
  proxy.script = replyWith('read');
  proxy.requests.length = 0;
  const { page, seen, close } = await openPage(proxy.url);
  const loaded = [];
  page.on('request', (request) => loaded.push(new URL(request.url()).pathname));
  const pick = (name, mimeType, content) => page.setInputFiles('#attach', { name, mimeType, buffer: Buffer.from(content, 'latin1') });
  assert.ok(!loaded.some((path) => path.startsWith('/assets/pdf-')), 'the reader is not part of the first view');
  await pick('letter.pdf', 'application/pdf', pdfOf('Dear zinc, the ship arrived.', 'Page two has 400 bananas.'));
  await page.locator('.chips li', { hasText: 'letter.pdf' }).waitFor();
  assert.ok(loaded.some((path) => path.startsWith('/assets/pdf-')));
  await pick('cat.png', 'image/png', '\x89PNG');
  await page.locator('.toast', { hasText: 'cat.png was not attached: zinc cannot read images.' }).waitFor();
  await pick('scan.pdf', 'application/pdf', pdfOf());
  await page.locator('.toast', { hasText: 'scan.pdf contains no text; its pages are probably scanned images.' }).waitFor();
  await pick('broken.pdf', 'application/pdf', '%PDF-1.4 garbage');
  await page.locator('.toast', { hasText: 'broken.pdf could not be read' }).waitFor();
  await sendMessage(page, 'What is in it?');
  await finishedAnswer(page);
  assert.match(proxy.requests[0].messages[0].content, /^letter\.pdf\n```\nDear zinc, the ship arrived\.\n\nPage two has 400 bananas\.\n```\n\nWhat is in it\?$/);
  assert.deepEqual(seen, { foreign: [], errors: [], violations: [], executed: [] });
  await close();
});

test('an edited question says that its old version stays', async () => {
  const { page, close } = await startConversation(proxy, replyWith('ok'), 'a question');
  await page.press('#prompt', 'ArrowUp');
  await page.locator('.editor', { hasText: 'The old version stays as a branch.' }).getByRole('button', { name: 'Send' }).waitFor();
  await close();
});
