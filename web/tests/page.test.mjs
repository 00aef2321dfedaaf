// The page with a scripted model: what needs exact answers.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test, { after, before } from 'node:test';
import { answered, ask, cleanUp, kPhone, openPage, pause, says, startGoBetween, startZinc, stored } from './harness.mjs';

let between;
before(async () => (between = await startGoBetween((await startZinc()).url)));
after(cleanUp);

async function conversation(script, text = 'hi', options) {
  between.script = script;
  between.requests.length = 0;
  const opened = await openPage(between.url, options);
  await ask(opened.page, text);
  const answer = await answered(opened.page);
  return { ...opened, answer };
}

test('markdown becomes headings, lists, tables, code and formulas', async () => {
  const text = [
    '# Title', '', 'A *word* and **another** with `code`, a [link](https://example.org/) and $e^{i\\pi}+1=0$.', '', '- one', '  - nested',
    '- two', '', '1. first', '2. second', '', '> quoted', '', '| a | b |', '|---|--:|', '| 1 | 2 |', '', '```python', 'def f(x):', '    return x', '```', '',
    '$$\\int_0^1 x^2\\,dx$$', '', 'A <b>tag</b> stays text. It costs $5 and $6.', '', '- [x] done',
  ].join('\n');
  const { page, answer, seen, close } = await conversation(says(text));
  assert.equal(await answer.locator('.prose h3').innerText(), 'Title');
  assert.equal(await answer.locator('.prose ul ul li').innerText(), 'nested');
  assert.equal(await answer.locator('.prose td').count(), 2);
  assert.equal(await answer.locator('.prose pre code').innerText(), 'def f(x):\n    return x');
  await answer.locator('.prose .hljs-keyword').first().waitFor();
  await answer.locator('.math .katex').nth(1).waitFor();
  assert.equal(await answer.locator('.math').count(), 2, 'prices are no formulas');
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

test('what is settled is never drawn again', async () => {
  let go;
  const halfway = new Promise((resolve) => (go = resolve));
  between.script = async (stage) => {
    stage.delta({ content: '# Head\n\nFirst paragraph.\n\n```js\nlet a = 1;\n```\n\nThird' });
    await halfway;
    for (const word of ' paragraph grows\n\n- and\n- a\n- list\n\nend'.split(/(?<= )/)) stage.delta({ content: word });
    stage.end();
  };
  const { page, close } = await openPage(between.url);
  await ask(page, 'go');
  await page.locator('.prose .block').nth(3).waitFor();
  await pause(300);
  await page.evaluate(() => {
    window.touched = 0;
    window.firstBlocks = [...document.querySelectorAll('.prose .block')].slice(0, 3);
    const watch = new MutationObserver((changes) => (window.touched += changes.filter((change) => !change.target.closest?.('code')).length));
    for (const block of window.firstBlocks) watch.observe(block, { childList: true, subtree: true, characterData: true, attributes: true });
  });
  go();
  await answered(page);
  const kept = await page.evaluate(() => window.firstBlocks.every((block, i) => block === document.querySelectorAll('.prose .block')[i]) && window.touched);
  assert.equal(kept, 0);
  await close();
});

test('a text drawn in pieces is the text drawn at once', async () => {
  const text = readFileSync(new URL('./sample.md', import.meta.url), 'utf8');
  const { page, close } = await conversation(says(text, 3));
  const drawn = async () => {
    const answer = await answered(page);
    await page.waitForFunction(() => [...document.querySelectorAll('.math')].every((math) => math.querySelector('.katex')));
    return answer.locator('.prose').innerHTML();
  };
  const streamed = await drawn();
  await page.reload();
  const whole = await drawn();
  const plain = (html) => html.replace(/ data-(drawn|colored)="1"/g, '').replace(/<span class="hljs[^>]*>|<\/span>/g, '').replace(/<span>/g, '');
  assert.equal(plain(streamed), plain(whole));
  const { messages } = await stored(page);
  assert.equal(messages.find((message) => message.role === 'assistant').content, text);
  await close();
});

test('a thought has a pane with its own time and count', async () => {
  const { answer, close } = await conversation(async (stage) => {
    for (const word of ['Let ', 'me ', 'see']) stage.delta({ reasoning_content: word });
    await pause(150);
    stage.delta({ content: 'Forty-two.' });
    stage.end();
  });
  assert.match(await answer.locator('.thought summary').innerText(), /Thought for \d+ ms[\s\S]*7 tokens/);
  assert.equal(await answer.locator('.thought .prose').isVisible(), false);
  await answer.locator('.thought summary').click();
  assert.equal(await answer.locator('.thought .prose').innerText(), 'Let me see');
  assert.equal((await answer.locator(':scope > .prose').innerText()).trim(), 'Forty-two.');
  await close();
});

test('tool calls are cards that take a result', async () => {
  const { page, answer, close } = await conversation((stage, body) => {
    if (body.messages.at(-1).role === 'tool') return says('It is sunny.')(stage);
    stage.delta({ tool_calls: [{ index: 0, id: 'c1', function: { name: 'weather', arguments: '' } }] });
    stage.delta({ tool_calls: [{ index: 0, function: { arguments: '{"city":"Oslo"}' } }] });
    stage.end('tool_calls');
  });
  const card = answer.locator('.card');
  assert.match(await card.innerText(), /weather[\s\S]*"city": "Oslo"/);
  await card.locator('textarea').fill('sun');
  await card.getByRole('button', { name: 'Send result' }).click();
  await page.getByText('It is sunny.').waitFor();
  const sent = between.requests.at(-1).messages;
  assert.deepEqual(sent.at(-1), { role: 'tool', tool_call_id: 'c1', content: 'sun' });
  assert.equal(sent.at(-2).tool_calls[0].function.name, 'weather');
  await close();
});

test('how far the prompt is read is shown, the cached part marked', async () => {
  let go;
  const wait = new Promise((resolve) => (go = resolve));
  between.script = async (stage) => {
    stage.say({ prompt_progress: { total: 1000, cache: 250, processed: 500 } });
    await wait;
    stage.delta({ content: 'done' });
    stage.end();
  };
  const { page, close } = await openPage(between.url);
  await ask(page, 'long');
  await page.getByText('Reading the prompt: 500 of 1,000 tokens, 250 from the cache').waitFor();
  const widths = await page.locator('.live .bar span').evaluateAll((parts) => parts.map((part) => part.style.width));
  assert.deepEqual(widths, ['50%', '25%']);
  go();
  const answer = await answered(page);
  assert.match(await answer.locator('.figures').innerText(), /41\.5 tok\/s[\s\S]*first after 121 ms[\s\S]*16 cached/);
  await close();
});

test('every way an answer can go wrong has its notice', async () => {
  const cases = [
    ['is-empty', (stage) => stage.end(), /empty answer/],
    ['is-error', (stage) => stage.refuse(500, { message: 'the device is lost', code: 'device_lost' }), /the device is lost/],
    ['is-error', (stage) => { stage.delta({ content: 'half' }); stage.say({ error: { message: 'a step failed' } }); setTimeout(stage.cut, 200); }, /a step failed/],
    ['is-lost', (stage) => { stage.delta({ content: 'half' }); setTimeout(stage.cut, 100); }, /kept/],
    ['is-length', (stage) => { stage.delta({ content: 'half' }); stage.end('length'); }, /token limit/],
    ['is-context', (stage) => stage.refuse(400, { message: 'the prompt has 9 tokens', code: 'context_length_exceeded' }), /Nothing was cut/],
  ];
  for (const [name, script, text] of cases) {
    const { answer, close } = await conversation(script);
    await answer.locator(`.notice.${name}`).waitFor();
    assert.match(await answer.locator('.notice').innerText(), text);
    await close();
  }
});

test('a lost connection is retried without losing a word', async () => {
  const { page, answer, close } = await conversation((stage, body) => {
    if (body.continue_final_message) return says(' and the rest')(stage);
    stage.delta({ content: 'The beginning' });
    setTimeout(stage.cut, 150);
  });
  await answer.getByRole('button', { name: 'Retry' }).click();
  await page.getByText('The beginning and the rest').waitFor();
  assert.deepEqual(between.requests.at(-1).messages.at(-1), { role: 'assistant', content: 'The beginning' });
  await close();
});

test('a reload in the middle of an answer loses no word that was on screen', async () => {
  between.script = async (stage) => {
    for (let i = 0; i < 400 && stage.connection.isOpen; ++i) {
      stage.delta({ content: `word${i} ` });
      await pause(4);
    }
  };
  const { page, close } = await openPage(between.url);
  await ask(page, 'go');
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

test('the whole history is sent, never cut', async () => {
  between.script = says('x'.repeat(3000));
  between.requests.length = 0;
  const { page, close } = await openPage(between.url);
  for (const text of ['one', 'two', 'three']) {
    await ask(page, text);
    await answered(page);
    await page.waitForFunction(() => !document.querySelector('[aria-busy="true"]'));
  }
  const sent = between.requests.at(-1).messages;
  assert.deepEqual(sent.map((message) => message.role), ['user', 'assistant', 'user', 'assistant', 'user']);
  assert.equal(sent[1].content.length, 3000);
  await close();
});

test('files dropped and long pastes become attachments', async () => {
  between.script = says('read');
  between.requests.length = 0;
  const { page, close } = await openPage(between.url);
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
  await page.locator('.chips li', { hasText: 'pasted' }).waitFor();
  await page.setInputFiles('#attach', { name: 'x.bin', mimeType: 'application/octet-stream', buffer: Buffer.from([0xff, 0xfe, 0x00, 0xd8]) });
  await page.locator('.toast', { hasText: 'is no text' }).waitFor();
  await ask(page, 'What is in them?');
  await answered(page);
  const content = between.requests.at(-1).messages.at(-1).content;
  assert.match(content, /notes\.txt\n```\nfile content\n```/);
  assert.match(content, /(long ){1000}/);
  await close();
});

test('drafts survive a reload, each with its conversation', async () => {
  const { page, close } = await conversation(says('ok'), 'a conversation');
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

test('conversations are searched, renamed, deleted, brought back, taken out and in', async () => {
  const { page, close } = await conversation(says('The answer has a rare xylophone in it.'), 'about music');
  await page.keyboard.press('Control+Shift+O');
  between.script = says('plain');
  await ask(page, 'about cooking');
  await answered(page);
  await page.keyboard.press('Control+K');
  await page.fill('#search', 'xylophone');
  await page.waitForFunction(() => document.querySelectorAll('.row').length === 1);
  assert.equal(await page.locator('.row .title').innerText(), 'about music');
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
  assert.match(await saved('Export as Markdown'), /^# Instruments\n[\s\S]*## You\n\nabout music\n[\s\S]*xylophone/);
  const json = await saved('Export as JSON');
  assert.equal(JSON.parse(json).conversations[0].messages.length, 2);
  await page.setInputFiles('#import', { name: 'in.json', mimeType: 'application/json', buffer: Buffer.from(json) });
  await page.waitForFunction(() => document.querySelectorAll('.row').length === 3);
  await page.getByText('xylophone').waitFor();
  await page.setInputFiles('#import', { name: 'bad.json', mimeType: 'application/json', buffer: Buffer.from('{"a":1}') });
  await page.locator('.toast', { hasText: 'could not be imported' }).waitFor();
  await close();
});

test('settings belong to their conversation, and the defaults are shown', async () => {
  const { page, close } = await conversation(says('ok'), 'first');
  await page.keyboard.press('Control+,');
  assert.equal(await page.locator('dialog [name="temperature"]').getAttribute('placeholder'), '1');
  await page.fill('dialog [name="temperature"]', '0.3');
  await page.fill('dialog [name="system"]', 'Be brief.');
  await page.press('dialog [name="system"]', 'Tab');
  await page.keyboard.press('Escape');
  await ask(page, 'again');
  await page.waitForFunction(() => document.querySelectorAll('.by-assistant .figures').length === 2);
  const sent = between.requests.at(-1);
  assert.equal(sent.temperature, 0.3);
  assert.deepEqual(sent.messages[0], { role: 'system', content: 'Be brief.' });
  await page.keyboard.press('Control+Shift+O');
  await ask(page, 'other');
  await answered(page);
  assert.equal(between.requests.at(-1).temperature, undefined);
  assert.equal(between.requests.at(-1).messages.length, 1);
  await close();
});

test('what an older version of the page stored is brought over', async () => {
  const { page, close } = await openPage(between.url);
  await page.goto(`${between.url}/licenses.txt`);
  await page.evaluate(
    () =>
      new Promise((resolve, reject) => {
        const gone = indexedDB.deleteDatabase('zinc');
        gone.onerror = reject;
        gone.onsuccess = () => {
          const opened = indexedDB.open('zinc', 1);
          opened.onupgradeneeded = () => opened.result.createObjectStore('conversations', { keyPath: 'id' });
          opened.onsuccess = () => {
            const change = opened.result.transaction('conversations', 'readwrite');
            change.objectStore('conversations').put({
              id: 'old', title: 'From before', created: 1, updated: 1,
              messages: [
                { id: 'm1', parent: null, role: 'user', content: 'old question', created: 1 },
                { id: 'm2', parent: 'm1', role: 'assistant', content: 'old **answer**', created: 2 },
              ],
            });
            change.oncomplete = () => { opened.result.close(); resolve(); };
          };
        };
      }),
  );
  await page.goto(between.url);
  await page.locator('.row .title', { hasText: 'From before' }).click();
  await page.locator('.prose strong', { hasText: 'answer' }).waitFor();
  await close();
});

test('a link that could carry something away is shown before it opens', async () => {
  const { page, answer, context, close } = await conversation(says('See [here](https://evil.example/?q=secret) and [there](https://example.org/).'));
  await answer.locator('a').first().click();
  await page.getByRole('dialog', { name: 'Open this link?' }).waitFor();
  assert.match(await page.locator('.address').innerText(), /q=secret/);
  await page.keyboard.press('Escape');
  assert.equal(context.pages().length, 1);
  await close();
});

test('everything can be reached with the keyboard', async () => {
  const { page, close } = await conversation(says('ok'), 'keys');
  await page.press('#prompt', 'ArrowUp');
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), 'Edit the message');
  await page.keyboard.press('Escape');
  for (const [key, title] of [['Control+,', 'Settings of this conversation'], ['Control+/', 'Keys'], ['Control+Shift+M', 'Models'], ['Control+Shift+C', 'Compare']]) {
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
  for (const name of ['New conversation', 'Search conversations', 'Model', 'Message', 'Regenerate', 'Continue', 'Attach text files', 'Edit']) {
    assert.ok([...reached].some((text) => text?.includes(name)), `${name} can be reached; reached: ${[...reached].join(', ')}`);
  }
  await close();
});

test('on a phone the list slides in and nothing is wider than the screen', async () => {
  const { page, close } = await conversation(says('# A\n\n| a | b |\n|--|--|\n| x | y |\n\n`' + 'long'.repeat(60) + '`'), 'phone', { viewport: kPhone, hasTouch: true, isMobile: true });
  assert.equal(await page.locator('#sidebar').isVisible(), false);
  await page.getByRole('button', { name: 'Conversations' }).click();
  await page.locator('#sidebar .row .title').click();
  await page.waitForFunction(() => getComputedStyle(document.getElementById('sidebar')).visibility === 'hidden');
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  await close();
});
