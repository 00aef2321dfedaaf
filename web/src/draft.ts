// What is being written and not sent yet: of each conversation, and of the one that is not begun.
import { effect, signal } from '@preact/signals';
import * as db from './db';
import { keepDraftOnLeaving, storeFailed } from './keep';
import { openId } from './state';
import type { Attachment, Draft } from './types';

const kUnbegun = '';
const kEmpty: Draft = { text: '', attachments: [] };
const kSaveAfterMs = 200;

export const draft = signal<Draft>(kEmpty);
const drafts = new Map<string, Draft>();
const placeOf = () => openId.peek() ?? kUnbegun;
let timer: ReturnType<typeof setTimeout> | undefined;
let unsaved: string | null = null; // whose draft

effect(() => {
  const id = openId.value ?? kUnbegun;
  saveNow();
  draft.value = drafts.get(id) ?? kEmpty;
});

// Where an earlier page kept them.
const kOldName = 'zinc.draft.';
async function takeOld(): Promise<void> {
  for (const name of Object.keys(localStorage).filter((key) => key.startsWith(kOldName))) {
    const { text = '', attachments = [] } = JSON.parse(localStorage.getItem(name)!) as Partial<Draft>;
    await db.saveDraft(name.slice(kOldName.length), { text, attachments });
    localStorage.removeItem(name);
  }
}

export async function loadDrafts(): Promise<void> {
  await takeOld();
  for (const { id, text, attachments } of await db.allDrafts()) drafts.set(id, { text, attachments });
  draft.value = drafts.get(placeOf()) ?? kEmpty;
}

function saveNow(): void {
  clearTimeout(timer);
  if (unsaved === null) return;
  const id = unsaved;
  unsaved = null;
  db.saveDraft(id, drafts.get(id) ?? kEmpty).catch(storeFailed);
}

export function setDraft(change: Partial<Draft>): void {
  draft.value = { ...draft.value, ...change };
  drafts.set(placeOf(), draft.value);
  unsaved = placeOf();
  clearTimeout(timer);
  if (change.attachments) saveNow(); // may be too large for the last moment
  else timer = setTimeout(saveNow, kSaveAfterMs);
}

export function addAttachments(list: Attachment[]): void {
  setDraft({ attachments: [...draft.value.attachments, ...list] });
}

// Gives the draft to `send`; only what was sent is no draft any more.
export function sendDraft(send: (text: string, attachments: Attachment[]) => void): void {
  const id = placeOf();
  const { text, attachments } = draft.value;
  send(text.trim(), attachments);
  drafts.delete(id);
  if (placeOf() === id) draft.value = kEmpty;
  unsaved = id;
  saveNow();
}

export function forgetDraft(id: string): Draft | undefined {
  const known = drafts.get(id);
  drafts.delete(id);
  if (unsaved === id) unsaved = null;
  return known;
}

export function bringBackDraft(id: string, known: Draft): void {
  drafts.set(id, known);
  db.saveDraft(id, known).catch(storeFailed);
}

keepDraftOnLeaving(() => (unsaved === null ? null : { id: unsaved, ...(drafts.get(unsaved) ?? kEmpty) }));
