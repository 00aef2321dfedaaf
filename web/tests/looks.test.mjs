// Accessibility and screenshots: axe reports no violation at phone and desktop width, light and dark.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import test from 'node:test';
import {
  attach, disconnectOnceShown, finishedAnswer, kDesktop, kPhone, openPage, outFolder, pickFile, replyWith,
  sendMessage, sleep, startZinc, timings, untilStable, usage, useProxy,
} from './harness.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const sample = readFileSync(new URL('./sample.md', import.meta.url), 'utf8');
const proxy = useProxy();

// Evaluated through the debugger, to which the content security policy does not apply.
async function axeViolations(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] }));
  return violations.map((entry) => `${entry.id}: ${entry.nodes.map((node) => `${node.html.slice(0, 140)} ${node.any[0]?.message ?? ''}`).slice(0, 4).join(' | ')}`);
}

const tokens = ['The', ' sky', ' is', ' blue', ' because', ' air', ' scatters', ' short', ' waves', ' more', ' than', ' long', ' ones', '.'];
const p = [0.91, 0.62, 0.98, 0.74, 0.33, 0.45, 0.88, 0.21, 0.57, 0.96, 0.99, 0.69, 0.05, 0.97];
const wire = (text, value) => ({ token: text, logprob: Math.log(value), bytes: [...new TextEncoder().encode(text)] });
const probabilityScript = (reply) => {
  tokens.forEach((text, i) => {
    const top = [wire(text, p[i]), wire(' light', (1 - p[i]) / 4), wire(' the', (1 - p[i]) / 6)];
    reply.delta({ content: text }, { logprobs: { content: [{ ...wire(text, p[i]), top_logprobs: top }] } });
  });
  reply.end();
};

// Timings and usage that match the text.
const statsOf = (text) => {
  const n = Math.ceil(text.length / 4);
  return [{ timings: { ...timings(), predicted_n: n, predicted_ms: (n * 1000) / 41.5 } }, { ...usage(), completion_tokens: n, total_tokens: 24 + n }];
};

const attachNotes = (page) => attach(page, 'notes.txt', 'Some notes.\n'.repeat(40));
let release = () => undefined; // ends an answer that the script holds open

const views = {
  async welcome() {},
  async answer(page) {
    proxy.script = async (reply) => {
      reply.delta({ reasoning_content: 'They want the idea, then code.' });
      await sleep(400); // the screenshot shows this reasoning time
      reply.delta({ reasoning_content: ' A table helps.' });
      for (let at = 0; at < sample.length; at += 60) reply.delta({ content: sample.slice(at, at + 60) });
      reply.end('stop', ...statsOf(sample));
    };
    await sendMessage(page, 'How does a hash table work?');
    await finishedAnswer(page);
    await page.locator('.math .katex').first().waitFor();
    await page.locator('.hljs-keyword').first().waitFor();
    await page.evaluate(() => scrollTo(0, 0));
  },
  async writing(page) {
    proxy.script = async (reply) => {
      reply.delta({ reasoning_content: 'Deciding what to explain first.' });
      reply.delta({ content: 'It turns a **key** into an index:\n\n```python\nindex = hash(key) % n' });
      await new Promise((resolve) => (release = resolve));
      reply.end();
    };
    await sendMessage(page, 'How does a hash table work?');
    await page.locator('figure.code').waitFor();
    await page.locator('.thought summary').click();
  },
  async reading(page) {
    proxy.script = async (reply) => {
      reply.event({ prompt_progress: { total: 12_000, cache: 3000, processed: 7400 } });
      await new Promise((resolve) => (release = resolve));
      reply.end();
    };
    await attachNotes(page);
    await sendMessage(page, 'Summarize the notes.');
    await page.getByText('Processing the prompt').waitFor();
  },
  async editor(page) {
    proxy.script = replyWith('Fine.');
    await sendMessage(page, 'A question that is not quite right');
    await finishedAnswer(page);
    await page.press('#prompt', 'ArrowUp');
    await page.locator('.editor').waitFor();
  },
  async attachments(page) {
    await attachNotes(page);
    await pickFile(page, 'x.bin', [0xff, 0xfe, 0x00, 0xd8]);
    await page.locator('.toast').waitFor();
  },
  async link(page) {
    proxy.script = replyWith('See [the article](https://example.org/hash?from=chat).');
    await sendMessage(page, 'Where can I read more?');
    await (await finishedAnswer(page)).locator('a').click();
    await page.getByRole('dialog').waitFor();
  },
  async keys(page) {
    await page.getByRole('button', { name: 'Keyboard shortcuts' }).click();
    await page.getByRole('dialog').waitFor();
  },
  async probabilities(page) {
    proxy.script = probabilityScript;
    await page.locator('.pill', { hasText: 'Probabilities' }).click();
    await sendMessage(page, 'Why is the sky blue?');
    const answer = await finishedAnswer(page);
    await answer.locator('.text .token').nth(4).click();
    await answer.locator('.alternatives').waitFor();
  },
  async notices(page) {
    proxy.script = (reply) => reply.delta({ content: 'Half of an' });
    await sendMessage(page, 'Will you finish?');
    await disconnectOnceShown(proxy, page, 'Half of an');
    await finishedAnswer(page);
  },
  async overflow(page) {
    proxy.script = replyWith('Fine.');
    await sendMessage(page, 'A question');
    await finishedAnswer(page);
    proxy.script = (reply) => reply.fail(400, { message: 'too long', code: 'context_length_exceeded' });
    await sendMessage(page, 'One question more');
    await (await finishedAnswer(page)).getByRole('button', { name: 'Continue with a summary' }).waitFor();
  },
  async correction(page) {
    proxy.script = replyWith('Not quite right.');
    await sendMessage(page, 'Is it right?');
    await (await finishedAnswer(page)).getByRole('button', { name: 'Edit the answer' }).click();
    await page.locator('.editor textarea:focus').waitFor();
  },
  async tools(page) {
    proxy.script = (reply) => {
      reply.delta({ tool_calls: [{ index: 0, id: 'c', function: { name: 'weather', arguments: '{"city":"Oslo"}' } }] });
      reply.end('tool_calls');
    };
    await sendMessage(page, 'What is the weather?');
    await finishedAnswer(page);
  },
  async settings(page) {
    await page.keyboard.press('Control+,');
    await page.waitForSelector('dialog');
  },
  async models(page) {
    await page.keyboard.press('Alt+M');
    await page.locator('[data-model="tiny"] .badge').waitFor();
  },
  async compare(page) {
    proxy.script = replyWith('An answer of **two** lines.\n\nThis is the second.');
    await page.keyboard.press('Alt+C');
    await page.fill('[aria-label="Prompt for both"]', 'Say two lines');
    await page.getByRole('button', { name: 'Ask both' }).click();
    await page.waitForFunction(() => document.querySelectorAll('.side .figures').length === 2);
  },
  async list(page) {
    proxy.script = replyWith('Fine.');
    await sendMessage(page, 'A conversation for the list');
    await finishedAnswer(page);
    const opener = page.getByRole('button', { name: 'Conversations' });
    if (await opener.isVisible()) await opener.click();
    await page.locator('.row').first().hover();
    await page.getByRole('button', { name: /^Actions for/ }).click();
    await page.locator('.menu').waitFor();
  },
};

for (const [device, viewport] of Object.entries({ desktop: kDesktop, phone: kPhone })) {
  for (const colorScheme of ['light', 'dark']) {
    for (const [name, prepare] of Object.entries(views)) {
      test(`${name} on a ${device}, ${colorScheme}`, async () => {
        const { page, close } = await openPage(proxy.url, { viewport, colorScheme, reducedMotion: 'reduce' });
        await prepare(page);
        await untilStable(page);
        await page.screenshot({ path: join(outFolder, `${name}-${device}-${colorScheme}.png`) });
        assert.deepEqual(await axeViolations(page), []);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'no horizontal overflow');
        release();
        await close();
      });
    }
  }
}

test('API key dialog on a phone and a desktop, light and dark', async () => {
  const locked = await startZinc(['--api-key', 'secret']);
  for (const [device, viewport] of Object.entries({ desktop: kDesktop, phone: kPhone })) {
    for (const colorScheme of ['light', 'dark']) {
      const { page, close } = await openPage(locked.url, { viewport, colorScheme, reducedMotion: 'reduce' });
      await page.getByRole('dialog', { name: 'API key' }).waitFor();
      await page.screenshot({ path: join(outFolder, `key-${device}-${colorScheme}.png`) });
      assert.deepEqual(await axeViolations(page), []);
      await close();
    }
  }
});
