// How it looks: axe finds nothing to fault at phone and desktop width, light and dark, and pictures are kept.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import test from 'node:test';
import { answered, ask, attach, cutOnceShown, kDesktop, kPhone, openPage, outFolder, pause, pickFile, says, settled, setStage, startZinc, timings, usage } from './harness.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const sample = readFileSync(new URL('./sample.md', import.meta.url), 'utf8');
const between = setStage();

// Run through the debugger, which no policy holds back.
async function faults(page) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] }));
  return violations.map((entry) => `${entry.id}: ${entry.nodes.map((node) => `${node.html.slice(0, 140)} ${node.any[0]?.message ?? ''}`).slice(0, 4).join(' | ')}`);
}

const tokens = ['The', ' sky', ' is', ' blue', ' because', ' air', ' scatters', ' short', ' waves', ' more', ' than', ' long', ' ones', '.'];
const p = [0.91, 0.62, 0.98, 0.74, 0.33, 0.45, 0.88, 0.21, 0.57, 0.96, 0.99, 0.69, 0.05, 0.97];
const wire = (text, value) => ({ token: text, logprob: Math.log(value), bytes: [...new TextEncoder().encode(text)] });
const probable = (stage) => {
  tokens.forEach((text, i) => {
    const top = [wire(text, p[i]), wire(' light', (1 - p[i]) / 4), wire(' the', (1 - p[i]) / 6)];
    stage.delta({ content: text }, { logprobs: { content: [{ ...wire(text, p[i]), top_logprobs: top }] } });
  });
  stage.end();
};

// Figures that belong to the text.
const figuresOf = (text) => {
  const n = Math.ceil(text.length / 4);
  return [{ timings: { ...timings(), predicted_n: n, predicted_ms: (n * 1000) / 41.5 } }, { ...usage(), completion_tokens: n, total_tokens: 24 + n }];
};

const dropFile = (page) => attach(page, 'notes.txt', 'Some notes.\n'.repeat(40));
let release = () => undefined; // lets an answer that is held come to its end

const views = {
  async welcome() {},
  async answer(page) {
    between.script = async (stage) => {
      stage.delta({ reasoning_content: 'They want the idea, then code.' });
      await pause(400); // for the time that the picture shows
      stage.delta({ reasoning_content: ' A table helps.' });
      for (let at = 0; at < sample.length; at += 60) stage.delta({ content: sample.slice(at, at + 60) });
      stage.end('stop', ...figuresOf(sample));
    };
    await ask(page, 'How does a hash table work?');
    await answered(page);
    await page.locator('.math .katex').first().waitFor();
    await page.locator('.hljs-keyword').first().waitFor();
    await page.evaluate(() => scrollTo(0, 0));
  },
  async writing(page) {
    between.script = async (stage) => {
      stage.delta({ reasoning_content: 'Weighing what to say first.' });
      stage.delta({ content: 'It turns a **key** into a place:\n\n```python\nindex = hash(key) % n' });
      await new Promise((resolve) => (release = resolve));
      stage.end();
    };
    await ask(page, 'How does a hash table work?');
    await page.locator('figure.code').waitFor();
    await page.locator('.thought summary').click();
  },
  async reading(page) {
    between.script = async (stage) => {
      stage.say({ prompt_progress: { total: 12_000, cache: 3000, processed: 7400 } });
      await new Promise((resolve) => (release = resolve));
      stage.end();
    };
    await dropFile(page);
    await ask(page, 'Summarise the notes.');
    await page.getByText('Reading the prompt').waitFor();
  },
  async editor(page) {
    between.script = says('Fine.');
    await ask(page, 'A question that is not quite right');
    await answered(page);
    await page.press('#prompt', 'ArrowUp');
    await page.locator('.editor').waitFor();
  },
  async attachments(page) {
    await dropFile(page);
    await pickFile(page, 'x.bin', [0xff, 0xfe, 0x00, 0xd8]);
    await page.locator('.toast').waitFor();
  },
  async link(page) {
    between.script = says('See [the article](https://example.org/hash?from=chat).');
    await ask(page, 'Where can I read more?');
    await (await answered(page)).locator('a').click();
    await page.getByRole('dialog').waitFor();
  },
  async keys(page) {
    await page.getByRole('button', { name: 'Keys' }).click();
    await page.getByRole('dialog').waitFor();
  },
  async probabilities(page) {
    between.script = probable;
    await page.locator('.pill', { hasText: 'Probabilities' }).click();
    await ask(page, 'Why is the sky blue?');
    const answer = await answered(page);
    await answer.getByRole('button', { name: 'Probabilities' }).click();
    await answer.locator('.text .token').nth(4).click();
    await answer.locator('.alternatives').waitFor();
  },
  async notices(page) {
    between.script = (stage) => stage.delta({ content: 'Half of an' });
    await ask(page, 'Will you finish?');
    await cutOnceShown(between, page, 'Half of an');
    await answered(page);
  },
  async tools(page) {
    between.script = (stage) => {
      stage.delta({ tool_calls: [{ index: 0, id: 'c', function: { name: 'weather', arguments: '{"city":"Oslo"}' } }] });
      stage.end('tool_calls');
    };
    await ask(page, 'What is the weather?');
    await answered(page);
  },
  async settings(page) {
    await page.keyboard.press('Control+,');
    await page.waitForSelector('dialog');
  },
  async models(page) {
    await page.keyboard.press('Control+Shift+M');
    await page.locator('[data-model="tiny"] .badge').waitFor();
  },
  async compare(page) {
    between.script = says('An answer of **two** lines.\n\nThis is the second.');
    await page.keyboard.press('Control+Shift+C');
    await page.fill('[aria-label="Prompt for both"]', 'Say two lines');
    await page.getByRole('button', { name: 'Ask both' }).click();
    await page.waitForFunction(() => document.querySelectorAll('.side .figures').length === 2);
  },
  async list(page) {
    between.script = says('Fine.');
    await ask(page, 'A conversation for the list');
    await answered(page);
    const opener = page.getByRole('button', { name: 'Conversations' });
    if (await opener.isVisible()) await opener.click();
    await page.locator('.row').first().hover();
    await page.getByRole('button', { name: /^Actions for/ }).click();
    await page.locator('.menu').waitFor();
  },
};

for (const [place, viewport] of Object.entries({ desktop: kDesktop, phone: kPhone })) {
  for (const colorScheme of ['light', 'dark']) {
    for (const [name, prepare] of Object.entries(views)) {
      test(`${name} on a ${place}, ${colorScheme}`, async () => {
        const { page, close } = await openPage(between.url, { viewport, colorScheme, reducedMotion: 'reduce' });
        await prepare(page);
        await settled(page);
        await page.screenshot({ path: join(outFolder, `${name}-${place}-${colorScheme}.png`) });
        assert.deepEqual(await faults(page), []);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'nothing is wider than the screen');
        release();
        await close();
      });
    }
  }
}

test('the question for a key, on a phone and a desktop, light and dark', async () => {
  const locked = await startZinc(['--api-key', 'secret']);
  for (const [place, viewport] of Object.entries({ desktop: kDesktop, phone: kPhone })) {
    for (const colorScheme of ['light', 'dark']) {
      const { page, close } = await openPage(locked.url, { viewport, colorScheme, reducedMotion: 'reduce' });
      await page.getByRole('dialog', { name: 'API key' }).waitFor();
      await page.screenshot({ path: join(outFolder, `key-${place}-${colorScheme}.png`) });
      assert.deepEqual(await faults(page), []);
      await close();
    }
  }
});
