// Drafts: unsent input per conversation, for a new conversation, and for other fields such as a message edit.
import { effect, signal } from '@preact/signals';
import * as db from './db';
import { saveDraftsOnClose, storeFailed } from './persist';
import { openId } from './state';
import type { Attachment, Draft } from './types';

const kNewConversation = '';
const kEmptyDraft: Draft = { text: '', attachments: [] };
const kSaveAfterMs = 200;

export const draft = signal<Draft>(kEmptyDraft);
const drafts = new Map<string, Draft>();
export const draftKey = () => openId.peek() ?? kNewConversation;
let timer: ReturnType<typeof setTimeout> | undefined;
// Drafts that are not stored yet. The browser aborts pending writes when the page closes, so a draft stays here until
// the write has completed.
const unsaved = new Map<string, { isSaving: boolean }>();

effect(() => {
  const id = openId.value ?? kNewConversation;
  saveNow();
  draft.value = drafts.get(id) ?? kEmptyDraft;
});

// Where earlier versions of the page stored drafts.
const kOldPrefix = 'zinc.draft.';
async function migrateOldDrafts(): Promise<void> {
  for (const name of Object.keys(localStorage).filter((key) => key.startsWith(kOldPrefix))) {
    const { text = '', attachments = [] } = JSON.parse(localStorage.getItem(name)!) as Partial<Draft>;
    await db.saveDraft(name.slice(kOldPrefix.length), { text, attachments });
    localStorage.removeItem(name);
  }
}

// All tabs share the store, and two may edit the same draft. Each tab also keeps its own copy across a reload.
const kOwnName = 'zinc.own';
function restoreOwnCopy(): void {
  const own = sessionStorage.getItem(kOwnName);
  if (!own) return;
  sessionStorage.removeItem(kOwnName); // a duplicated tab would otherwise treat this copy as newer than it is
  const { id, text } = JSON.parse(own) as { id: string; text: string };
  const stored = drafts.get(id) ?? kEmptyDraft;
  if (stored.text !== text) update(id, { ...stored, text });
}

function saveOwnCopy(): void {
  const { text } = draft.peek();
  try {
    if (text) sessionStorage.setItem(kOwnName, JSON.stringify({ id: draftKey(), text }));
    else sessionStorage.removeItem(kOwnName);
  } catch {
    // The draft is in the store too, unless another tab overwrites it.
  }
}

export async function loadDrafts(): Promise<void> {
  await migrateOldDrafts();
  for (const { id, ...entry } of await db.allDrafts()) drafts.set(id, entry);
  restoreOwnCopy();
  draft.value = drafts.get(draftKey()) ?? kEmptyDraft;
}

function saveNow(): void {
  clearTimeout(timer);
  for (const [id, state] of unsaved) {
    if (state.isSaving) continue;
    state.isSaving = true;
    const stored = () => unsaved.get(id) === state && unsaved.delete(id);
    db.saveDraft(id, drafts.get(id) ?? kEmptyDraft).then(stored, (error: unknown) => {
      state.isSaving = false;
      storeFailed(error);
    });
  }
}

function update(id: string, next: Draft): void {
  if (next.text || next.attachments.length > 0) drafts.set(id, { ...next, at: Date.now() });
  else drafts.delete(id);
  unsaved.set(id, { isSaving: false });
  clearTimeout(timer);
  timer = setTimeout(saveNow, kSaveAfterMs);
}

export function setDraft(change: Partial<Draft>): void {
  draft.value = { ...draft.value, ...change };
  update(draftKey(), draft.value);
  if (change.attachments) saveNow(); // may be too large to save while the page closes
}

// Adds to the draft of `key`, even if another draft is displayed by now.
export function addAttachments(list: Attachment[], key = draftKey()): void {
  if (key === draftKey()) return setDraft({ attachments: [...draft.value.attachments, ...list] });
  const current = drafts.get(key) ?? kEmptyDraft;
  update(key, { ...current, attachments: [...current.attachments, ...list] });
  saveNow();
}

// A draft of another field than the composer; an empty one is deleted.
export const draftText = (id: string) => drafts.get(id)?.text;
export const setDraftText = (id: string, text: string) => update(id, { text, attachments: [] });

const sent = new Set<string>(); // drafts whose messages are not stored yet

// Passes the draft to `send`, which returns whether it was stored as a message; only then the stored draft is deleted.
export function sendDraft(send: (text: string, attachments: Attachment[]) => Promise<boolean>): void {
  const id = draftKey();
  const { text, attachments } = draft.value;
  void send(text.trim(), attachments).then((isStored) => {
    sent.delete(id);
    if (!isStored) return;
    unsaved.set(id, { isSaving: false });
    saveNow();
  });
  sent.add(id);
  drafts.delete(id);
  unsaved.delete(id);
  if (draftKey() === id) draft.value = kEmptyDraft;
}

// Removes the drafts of a conversation and of its messages. Returns them for undo.
export function removeDrafts(id: string, messages: string[]): [string, Draft][] {
  const owners = new Set([id, ...messages]);
  const removed = [...drafts].filter(([key]) => owners.has(key.split(':')[0]));
  for (const [key] of removed) {
    drafts.delete(key);
    unsaved.delete(key);
  }
  return removed;
}

export function restoreDrafts(removed: [string, Draft][]): void {
  for (const [id, entry] of removed) update(id, entry);
  saveNow();
}

saveDraftsOnClose(() => {
  saveOwnCopy();
  return [...new Set([...unsaved.keys(), ...sent])].map((id) => ({ id, ...(drafts.get(id) ?? { ...kEmptyDraft, at: Date.now() }) }));
});
