// Choosing models: the picker, the models window, Compare, and what depends on the model's abilities.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import test, { before } from 'node:test';
import {
  eventually, finishedAnswer, modelFolder, openPage, replyWith, sendMessage, setField, startProxy, startZinc, timings, useProxy,
} from './harness.mjs';

const proxy = useProxy();
let two; // a server with two installed models
const post = (path, body) => fetch(two.url + path, { method: 'POST', body: JSON.stringify(body) });
before(async () => {
  two = await startZinc([`other=${join(modelFolder, 'llama-q8_0.gguf')}`]);
});
const loadedNames = async () => (await (await fetch(`${two.url}/props`)).json()).models.map(({ name }) => name);

test('the picker lists loaded and installed models, and choosing an installed one loads it', async () => {
  await post('/v1/models/activate', { model: 'tiny' });
  const { page, close } = await openPage(two.url);
  await page.locator('.model-picker optgroup[label^="Installed"] option', { hasText: 'other' }).waitFor({ state: 'attached' });
  await page.selectOption('.model-picker', 'other');
  await page.waitForFunction(() => document.querySelector('select.model-picker')?.value === 'other');
  assert.deepEqual(await loadedNames(), ['other']);
  await page.locator('.welcome', { hasText: 'other' }).waitFor();
  await page.selectOption('.model-picker', '');
  await page.getByRole('dialog', { name: 'Models' }).waitFor();
  await close();
});

test('a model that cannot be loaded is told in a sentence, and the picker shows the one that answers', async () => {
  await post('/v1/models/activate', { model: 'tiny' });
  const { page, close } = await openPage(two.url);
  await page.route('**/v1/models/activate', (route) => route.fulfill({ status: 500, json: { error: { message: 'the file is cut short' } } }));
  await page.locator('.model-picker option', { hasText: 'other' }).waitFor({ state: 'attached' });
  await page.selectOption('.model-picker', 'other');
  await page.locator('.toast', { hasText: 'could not be loaded: The file is cut short.' }).waitFor();
  assert.equal(await page.inputValue('.model-picker'), 'tiny');
  await close();
});

test('a loaded model can be unloaded, and the page then asks to choose one', async () => {
  await post('/v1/models/activate', { model: 'tiny' });
  const { page, close } = await openPage(two.url);
  await page.keyboard.press('Alt+M');
  const tiny = page.locator('[data-model="tiny"]');
  await tiny.getByRole('button', { name: 'Unload' }).click();
  await tiny.getByRole('button', { name: 'Load', exact: true }).waitFor();
  assert.deepEqual(await loadedNames(), []);
  await page.keyboard.press('Escape');
  await page.locator('.welcome', { hasText: 'No model is loaded.' }).getByRole('button', { name: 'Choose a model' }).click();
  await page.getByRole('dialog', { name: 'Models' }).waitFor();
  await close();
});

test('a question without a loaded model offers to choose one, and Retry answers it', async () => {
  await post('/v1/models/activate', { model: 'tiny' });
  await post('/v1/models/unload', { model: 'tiny' });
  const { page, close } = await openPage(two.url);
  await setField(page, 'max_tokens', '8');
  await sendMessage(page, 'hi');
  const notice = (await finishedAnswer(page)).locator('.notice.is-model');
  assert.equal(await notice.locator('p').innerText(), 'No model is loaded.');
  await notice.getByRole('button', { name: 'Choose a model' }).click();
  const tiny = page.locator('[data-model="tiny"]');
  await tiny.getByRole('button', { name: 'Load', exact: true }).click();
  await tiny.locator('.badge', { hasText: 'loaded' }).waitFor();
  await page.waitForFunction(() => document.querySelector('select.model-picker')?.value === 'tiny'); // its properties are fetched after the list
  await page.keyboard.press('Escape');
  await notice.getByRole('button', { name: 'Retry' }).click();
  await page.locator('.by-assistant .figures', { hasText: 'tiny' }).waitFor();
  await close();
});

test('Compare begins with two different models, loads what is not loaded, and explains itself', async () => {
  await post('/v1/models/activate', { model: 'tiny' });
  const front = await startProxy(two.url);
  front.script = replyWith('ok');
  const { page, close } = await openPage(front.url);
  await page.keyboard.press('Alt+C');
  await page.getByText('One question, two answers side by side').waitFor();
  await page.getByRole('combobox', { name: 'Model B' }).locator('option', { hasText: 'loads when asked' }).waitFor({ state: 'attached' });
  assert.deepEqual([await page.getByLabel('Model A').inputValue(), await page.getByLabel('Model B').inputValue()], ['tiny', 'other']);
  assert.deepEqual(await page.locator('.side summary').allInnerTexts(), ['Settings defaults of the model', 'Settings defaults of the model']);
  await page.fill('[aria-label="Prompt for both"]', 'hi');
  await page.getByRole('button', { name: 'Ask both' }).click();
  await page.waitForFunction(() => document.querySelectorAll('.side .figures').length === 2);
  assert.deepEqual(front.requests.map(({ model }) => model).sort(), ['other', 'tiny']);
  assert.deepEqual((await loadedNames()).sort(), ['other', 'tiny']);
  await close();
  const alone = await openPage(proxy.url);
  await alone.page.keyboard.press('Alt+C');
  await alone.page.getByText('Only one model is installed, so B is the same model at temperature 0').waitFor();
  assert.match(await alone.page.locator('.side summary').nth(1).innerText(), /temperature 0$/);
  await alone.close();
});

const entryOf = (id, more) => ({
  id, display_name: id, homepage_url: '', family: id, parameters: '4B', quantization: 'Q4_K_M', license: 'Apache-2.0', size_bytes: 2e9, installed: false,
  managed: false, active: false, served_as: null, fit: 'fits', required_bytes: 3e9, fit_source: 'catalog', status: 'experimental', thinks: false,
  activating: false, release_date: '2025-01', fits_gpu: null, recommended_for_chat: false, ...more,
});
const libraryOf = (data, download = null) => ({ object: 'list', memory_bytes: 16e9, memory_available_bytes: 12e9, activating: '', download, data });
const openLibrary = async (data, download) => {
  // Before the page is opened: the real list, already on its way, would replace this one.
  const opened = await openPage(proxy.url, {}, (page) => page.route('**/models', (route) =>
    (new URL(route.request().url()).pathname === '/models' ? route.fulfill({ json: libraryOf(data, download) }) : route.continue())));
  await opened.page.keyboard.press('Alt+M');
  return opened;
};
const namesIn = (page, section) => page.getByRole('region', { name: section }).locator('.model strong').allInnerTexts();

test('the models window has the recommended models first, finds and sorts, and keeps its head in view', async () => {
  const data = [
    entryOf('old-3b', { release_date: '2023-05' }),
    entryOf('here-1b', { installed: true, parameters: '1B', recommended_for_chat: true }),
    entryOf('new-4b', { release_date: '2026-03', thinks: true, recommended_for_chat: true }),
    entryOf('huge-70b', { release_date: '2026-04', parameters: '70B', fit: 'too large', size_bytes: 40e9 }),
    entryOf('slow-30b', { release_date: '2026-04', parameters: '30B', size_bytes: 9e9 }),
    entryOf('sparse-30b', { release_date: '2026-02', parameters: '30B-A3B', size_bytes: 8e9, recommended_for_chat: true }),
    entryOf('effective-2b', { release_date: '2024-02', parameters: 'E2B', size_bytes: 5e9 }),
    ...Array.from({ length: 12 }, (_, i) => entryOf(`filler-${i}`, { family: 'old-3b', size_bytes: 1e9 + i })),
  ];
  const { page, close } = await openLibrary(data);
  await page.locator('[data-model="new-4b"]').waitFor();
  assert.deepEqual(await namesIn(page, 'Recommended for this machine'), ['new-4b', 'sparse-30b']);
  assert.deepEqual(await namesIn(page, 'Installed'), ['here-1b']);
  assert.match(await page.locator('[data-model="new-4b"]').innerText(), /thinks/);
  await page.getByLabel('Order').selectOption('small');
  assert.equal((await namesIn(page, 'All models'))[0], 'filler-0');
  await page.getByLabel('Order').selectOption('fast');
  assert.equal((await namesIn(page, 'All models'))[0], 'effective-2b');
  await page.locator('[data-model="huge-70b"]').scrollIntoViewIfNeeded();
  const top = await page.getByRole('dialog').evaluate((dialog) => dialog.querySelector('header').getBoundingClientRect().top - dialog.getBoundingClientRect().top);
  assert.ok(top >= 0 && top < 4, `the head is at ${top}`);
  assert.ok(await page.getByRole('button', { name: 'Close' }).isVisible());
  await page.getByLabel('Search models').fill('30b apache');
  assert.deepEqual((await page.locator('.model strong').allInnerTexts()).sort(), ['slow-30b', 'sparse-30b']);
  await page.getByLabel('Search models').fill('nothing like it');
  await page.getByText('No model matches “nothing like it”.').waitFor();
  await close();
});

test('after an answer the models window tells the speed to expect, in proportion to the active weights', async () => {
  const data = [
    entryOf('tiny', { installed: true, active: true, served_as: 'tiny', size_bytes: 1e9, parameters: '1B' }),
    entryOf('dense-4b', { size_bytes: 4e9 }), entryOf('sparse-30b', { size_bytes: 20e9, parameters: '30B-A3B' }),
  ];
  const { page, close } = await openLibrary(data);
  await page.locator('[data-model="dense-4b"]').waitFor();
  assert.equal(await page.locator('.speed').count(), 0, 'unknown before the first answer');
  await page.keyboard.press('Escape');
  proxy.script = (reply) => {
    reply.delta({ content: 'ok' });
    reply.end('stop', { timings: { ...timings(), predicted_n: 100, predicted_per_second: 40 } });
  };
  await sendMessage(page, 'hi');
  await finishedAnswer(page);
  await page.keyboard.press('Alt+M');
  await page.locator('[data-model="dense-4b"]', { hasText: 'about 10.0 tok/s here' }).waitFor();
  await page.locator('[data-model="sparse-30b"]', { hasText: 'about 20.0 tok/s here' }).waitFor();
  await close();
});

test('mistakes and failed downloads are told in place and in the words of the page', async () => {
  const failed = { id: 'some-4b', state: 'failed', downloaded_bytes: 0, download_total_bytes: 0, error: 'https://example.org/a/b.gguf: status 404' };
  const { page, close } = await openLibrary([entryOf('some-4b')], failed);
  const row = page.locator('[data-model="some-4b"]');
  await row.getByText('The download failed. Check the connection and download again').waitFor();
  assert.equal(await row.getByText('example.org').isVisible(), false, 'the raw message is folded away');
  await page.getByLabel('Source of a model').fill('garbage');
  await page.keyboard.press('Enter');
  await page.locator('.source .wrong', { hasText: 'No model is called “garbage”. Enter a name from the list, hf:ORG/REPO:FILE, or the URL of a .gguf file.' }).waitFor();
  assert.equal(await page.locator('.toast').count(), 0);
  await close();

  const elsewhere = { ...failed, id: 'hf:foo/bar' };
  const many = await openLibrary(Array.from({ length: 40 }, (_, i) => entryOf(`some-${i}b`)), elsewhere);
  await many.page.getByLabel('Source of a model').fill('garbage');
  await many.page.keyboard.press('Enter');
  await many.page.locator('.source .wrong', { hasText: 'No model is called' }).waitFor();
  assert.equal(await many.page.locator('.source .wrong').count(), 1, 'the failed download of another source is not shown with it');
  const scroll = () => many.page.locator('dialog').evaluate((dialog) => [dialog.querySelector('.source .wrong')?.getBoundingClientRect().bottom - dialog.getBoundingClientRect().bottom, dialog.scrollTop]);
  await eventually(async () => (await scroll())[0] <= 0, 'the error to be scrolled into view');
  assert.ok((await scroll())[1] > 0);
  await many.page.getByLabel('Search models').fill('some');
  await eventually(async () => (await scroll())[1] === 0, 'the first hits to be in view');
  await many.close();
  const connecting = await openLibrary([entryOf('some-4b')], { ...failed, state: 'downloading', error: undefined });
  await connecting.page.locator('.loading', { hasText: 'Connecting…' }).waitFor();
  await connecting.close();
});

test('thinking is offered as the model supports it', async () => {
  const toggle = { kind: 'toggle', can_disable: true, efforts: [], default: 'off', budget: true };
  const effort = { kind: 'effort', can_disable: false, efforts: ['low', 'medium', 'high'], default: 'medium', budget: true };
  const none = { kind: 'none', can_disable: false, efforts: [], default: 'off', budget: false };
  const openWith = async (thinking) => {
    proxy.script = replyWith('ok');
    proxy.requests.length = 0;
    return openPage(proxy.url, {}, (page) => page.route('**/props', async (route) => {
      const body = await (await route.fetch()).json();
      for (const model of body.models) model.thinking = thinking;
      await route.fulfill({ json: body });
    }));
  };
  const nBudgetFields = async (page) => {
    await page.keyboard.press('Control+,');
    await page.getByRole('dialog').waitFor();
    const n = await page.locator('dialog [name="thinking_budget"]').count();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    return n;
  };
  let { page, close } = await openWith(toggle);
  await page.getByRole('button', { name: 'Thinking off' }).click();
  await page.getByRole('button', { name: 'Thinking on' }).waitFor();
  await setField(page, 'thinking_budget', '64');
  await sendMessage(page, 'hi');
  await eventually(() => proxy.requests.length === 1);
  assert.deepEqual([proxy.requests[0].enable_thinking, proxy.requests[0].thinking_budget], [true, 64]);
  await close();

  ({ page, close } = await openWith(effort));
  await page.getByLabel('Thinking effort').selectOption('high');
  await sendMessage(page, 'hi');
  await eventually(() => proxy.requests.length === 1);
  assert.deepEqual([proxy.requests[0].reasoning_effort, proxy.requests[0].enable_thinking, proxy.requests[0].thinking_budget], ['high', undefined, undefined]);
  await close();

  ({ page, close } = await openWith(none));
  assert.equal(await page.locator('.pill', { hasText: 'Thinking' }).count(), 0);
  assert.equal(await nBudgetFields(page), 0, 'no limit of thinking for a model that does not think');
  await close();
});
