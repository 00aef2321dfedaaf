// Takes the screenshots of the documentation with a real server and a real model:  node screenshots.mjs FOLDER
// Nothing is scripted: the text is what the model answers at temperature 0, the figures are those of this machine. The browser
// converts the pictures to WebP, so no other tool is needed.
import { spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { cleanUp, finishedAnswer, kDesktop, kPhone, openBrowser, openPage, sendMessage, setField, untilStable } from './harness.mjs';

const kModel = 'smollm2-135m-instruct';
const kQuestion = 'How does a hash table work? Show a short example in Python.';
const kShortQuestion = 'Why is the sky blue? Answer in two sentences.';

async function startServer() {
  const child = spawn(process.env.ZINC_PROGRAM, ['serve', kModel, '--port', '0'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const url = await new Promise((resolve, reject) => {
    let out = '';
    child.stdout.on('data', (bytes) => {
      const found = /(http:\/\/127\.0\.0\.1:\d+)/.exec((out += bytes));
      if (found) resolve(found[1]);
    });
    child.on('exit', (code) => reject(new Error(`zinc exited with ${code}`)));
  });
  return { url, stop: () => child.kill('SIGTERM') };
}

async function open(url, options) {
  const opened = await openPage(url, { reducedMotion: 'reduce', ...options });
  opened.page.setDefaultTimeout(300_000);
  return opened;
}

async function ask(page, question) {
  await setField(page, 'temperature', '0');
  await setField(page, 'max_tokens', '400');
  await sendMessage(page, question);
  await finishedAnswer(page);
  await page.evaluate(() => scrollTo(0, 0));
}

const views = {
  'page-answer': async (page) => ask(page, kQuestion),
  'page-dark': async (page) => ask(page, kQuestion),
  'page-phone': async (page) => ask(page, kQuestion),
  'page-probabilities': async (page) => {
    await page.locator('.pill', { hasText: 'Probabilities' }).click();
    await ask(page, kShortQuestion);
    await page.getByRole('button', { name: 'Got it' }).click();
    await page.locator('.text .token.p3, .text .token.p4, .text .token.p5').first().click();
    await page.locator('.alternatives').waitFor();
    await page.evaluate(() => scrollTo(0, 0));
  },
  'page-compare': async (page) => {
    await page.keyboard.press('Alt+C');
    await page.fill('[aria-label="Prompt for both"]', kShortQuestion);
    await page.getByRole('button', { name: 'Ask both' }).click();
    await page.waitForFunction(() => document.querySelectorAll('.side .figures').length === 2);
  },
  'page-models': async (page) => {
    await ask(page, kShortQuestion); // the speed to expect comes from an answer
    await page.keyboard.press('Alt+M');
    await page.locator(`[data-model="${kModel}"] .badge`).waitFor();
  },
};
const kOptions = { 'page-dark': { colorScheme: 'dark' }, 'page-phone': { viewport: kPhone, colorScheme: 'dark' } };

async function toWebp(png) {
  const page = await (await openBrowser()).newPage();
  const webp = await page.evaluate(async (data) => {
    const image = new Image();
    image.src = `data:image/png;base64,${data}`;
    await image.decode();
    const canvas = Object.assign(document.createElement('canvas'), { width: image.width, height: image.height });
    canvas.getContext('2d').drawImage(image, 0, 0);
    return canvas.toDataURL('image/webp', 0.82).split(',')[1];
  }, png.toString('base64'));
  await page.close();
  return Buffer.from(webp, 'base64');
}

const folder = process.argv[2];
mkdirSync(folder, { recursive: true });
const server = await startServer();
for (const [name, prepare] of Object.entries(views)) {
  const { page, close } = await open(server.url, { viewport: kDesktop, ...kOptions[name] });
  await prepare(page);
  await untilStable(page);
  const bytes = await toWebp(await page.screenshot());
  writeFileSync(join(folder, `${name}.webp`), bytes);
  console.log(`${name}.webp: ${bytes.length} bytes`);
  await close();
}
server.stop();
await cleanUp();
