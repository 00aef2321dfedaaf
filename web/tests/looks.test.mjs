// How it looks: axe finds nothing to fault at phone and desktop width, light and dark, and pictures are kept.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { answered, ask, cleanUp, kDesktop, kPhone, openPage, outFolder, pause, says, startGoBetween, startZinc } from './harness.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const sample = readFileSync(new URL('./sample.md', import.meta.url), 'utf8');
let between;
before(async () => (between = await startGoBetween((await startZinc()).url)));
after(cleanUp);

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

const views = {
  async welcome() {},
  async answer(page) {
    between.script = async (stage) => {
      stage.delta({ reasoning_content: 'They want the idea, then code.' });
      await pause(400);
      stage.delta({ reasoning_content: ' A table helps.' });
      await says(sample, 60)(stage);
    };
    await ask(page, 'How does a hash table work?');
    await answered(page);
    await page.locator('.math .katex').first().waitFor();
    await page.locator('.hljs-keyword').first().waitFor();
    await page.evaluate(() => scrollTo(0, 0));
  },
  async probabilities(page) {
    between.script = probable;
    await page.locator('.pill', { hasText: 'Probabilities' }).click();
    await ask(page, 'Why is the sky blue?');
    const answer = await answered(page);
    await answer.getByRole('button', { name: 'Probabilities' }).click();
    await answer.locator('.text .token').nth(4).click();
  },
  async notices(page) {
    between.script = (stage) => {
      stage.delta({ content: 'Half of an' });
      setTimeout(stage.cut, 50);
    };
    await ask(page, 'Will you finish?');
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
  },
};

for (const [place, viewport] of Object.entries({ desktop: kDesktop, phone: kPhone })) {
  for (const colorScheme of ['light', 'dark']) {
    for (const [name, prepare] of Object.entries(views)) {
      test(`${name} on a ${place}, ${colorScheme}`, async () => {
        const { page, close } = await openPage(between.url, { viewport, colorScheme, reducedMotion: 'reduce' });
        await prepare(page);
        await pause(250);
        await page.screenshot({ path: join(outFolder, `${name}-${place}-${colorScheme}.png`) });
        assert.deepEqual(await faults(page), []);
        await close();
      });
    }
  }
}
