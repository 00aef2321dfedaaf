// Opens the page of a running server, chooses another model there and asks it:  node switch_model.mjs ADDRESS MODEL
// For tests that start the server themselves (tests/package/first_minutes.py).
import assert from 'node:assert/strict';
import { cleanUp, finishedAnswer, openPage, sendMessage, setField } from './harness.mjs';

const [address, model] = process.argv.slice(2);
try {
  const { page, seen } = await openPage(address);
  await setField(page, 'max_tokens', '8');
  await page.locator('.model-picker optgroup[label^="Installed"] option', { hasText: model }).waitFor({ state: 'attached' });
  await page.selectOption('.model-picker', model);
  await page.locator('.welcome', { hasText: model }).waitFor();
  await sendMessage(page, 'Hi');
  await (await finishedAnswer(page)).locator('.figures', { hasText: model }).waitFor();
  assert.deepEqual(seen, { foreign: [], errors: [], violations: [], executed: [] });
} finally {
  await cleanUp();
}
