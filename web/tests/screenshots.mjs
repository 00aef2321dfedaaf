// Converts screenshots of the tests to WebP for the documentation:  node screenshots.mjs FOLDER
// The browser does the conversion, so no other tool is needed.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { cleanUp, openBrowser, outFolder } from './harness.mjs';

const kScreenshots = {
  'page-answer': 'answer-desktop-light',
  'page-dark': 'answer-desktop-dark',
  'page-probabilities': 'probabilities-desktop-light',
  'page-models': 'models-desktop-light',
  'page-phone': 'answer-phone-dark',
};
const folder = process.argv[2];
mkdirSync(folder, { recursive: true });
const page = await (await openBrowser()).newPage();
for (const [name, view] of Object.entries(kScreenshots)) {
  const png = readFileSync(join(outFolder, `${view}.png`)).toString('base64');
  const webp = await page.evaluate(async (data) => {
    const image = new Image();
    image.src = `data:image/png;base64,${data}`;
    await image.decode();
    const canvas = Object.assign(document.createElement('canvas'), { width: image.width, height: image.height });
    canvas.getContext('2d').drawImage(image, 0, 0);
    return canvas.toDataURL('image/webp', 0.82).split(',')[1];
  }, png);
  const bytes = Buffer.from(webp, 'base64');
  writeFileSync(join(folder, `${name}.webp`), bytes);
  console.log(`${name}.webp: ${bytes.length} bytes`);
}
await cleanUp();
