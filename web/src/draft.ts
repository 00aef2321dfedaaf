// What is being written and not sent yet: of each conversation, of the one that is not begun, and what is written
// elsewhere, such as an edit of a message.
import { effect, signal } from '@preact/signals';
import * as db from './db';
import { keepDraftsOnLeaving, storeFailed } from './keep';
import { openId } from './state';
import type { Attachment, Draft } from './types';

const kUnbegun = '';
const kEmpty: Draft = { text: '', attachments: [] };
const kSaveAfterMs = 200;

export const draft = signal<Draft>(kEmpty);
const drafts = new Map<string, Draft>();
export const placeOf = () => openId.peek() ?? kUnbegun;
let timer: ReturnType<typeof setTimeout> | undefined;
// Whose drafts the store does not have yet. The browser gives up what is under way when the page goes away, so that a
// draft is in here until it is stored.
const unsaved = new Map<string, { isUnderWay: boolean }>();

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

// All tabs share the store, and two may write in the same place. What this tab shows it also keeps for itself, over a
// reload.
const kOwnName = 'zinc.own';
function takeOwn(): void {
  const own = sessionStorage.getItem(kOwnName);
  if (!own) return;
  sessionStorage.removeItem(kOwnName); // a tab that is made of this one later would take it for newer than it is
  const { id, text } = JSON.parse(own) as { id: string; text: string };
  const known = drafts.get(id) ?? kEmpty;
  if (known.text !== text) change(id, { ...known, text });
}

function keepOwn(): void {
  const { text } = draft.peek();
  try {
    if (text) sessionStorage.setItem(kOwnName, JSON.stringify({ id: placeOf(), text }));
    else sessionStorage.removeItem(kOwnName);
  } catch {
    // It is in the store, as long as no other tab writes there.
  }
}

export async function loadDrafts(): Promise<void> {
  await takeOld();
  for (const { id, ...entry } of await db.allDrafts()) drafts.set(id, entry);
  takeOwn();
  draft.value = drafts.get(placeOf()) ?? kEmpty;
}

function saveNow(): void {
  clearTimeout(timer);
  for (const [id, state] of unsaved) {
    if (state.isUnderWay) continue;
    state.isUnderWay = true;
    const stored = () => unsaved.get(id) === state && unsaved.delete(id);
    db.saveDraft(id, drafts.get(id) ?? kEmpty).then(stored, (error: unknown) => {
      state.isUnderWay = false;
      storeFailed(error);
    });
  }
}

function change(id: string, to: Draft): void {
  if (to.text || to.attachments.length > 0) drafts.set(id, { ...to, at: Date.now() });
  else drafts.delete(id);
  unsaved.set(id, { isUnderWay: false });
  clearTimeout(timer);
  timer = setTimeout(saveNow, kSaveAfterMs);
}

export function setDraft(to: Partial<Draft>): void {
  draft.value = { ...draft.value, ...to };
  change(placeOf(), draft.value);
  if (to.attachments) saveNow(); // may be too large for the last moment
}

// To the draft of `place`, which another one may have taken the screen from meanwhile.
export function addAttachments(list: Attachment[], place = placeOf()): void {
  if (place === placeOf()) return setDraft({ attachments: [...draft.value.attachments, ...list] });
  const known = drafts.get(place) ?? kEmpty;
  change(place, { ...known, attachments: [...known.attachments, ...list] });
  saveNow();
}

// A text that is written elsewhere than in the field of the conversation; an empty one is forgotten.
export const keptText = (id: string) => drafts.get(id)?.text;
export const keepText = (id: string, text: string) => change(id, { text, attachments: [] });

const sent = new Set<string>(); // whose drafts, of messages that are not stored yet

// Gives the draft to `send`, which says whether it is stored as a message; only then it is no draft in the store any more.
export function sendDraft(send: (text: string, attachments: Attachment[]) => Promise<boolean>): void {
  const id = placeOf();
  const { text, attachments } = draft.value;
  void send(text.trim(), attachments).then((isStored) => {
    sent.delete(id);
    if (!isStored) return;
    unsaved.set(id, { isUnderWay: false });
    saveNow();
  });
  sent.add(id);
  drafts.delete(id);
  unsaved.delete(id);
  if (placeOf() === id) draft.value = kEmpty;
}

// Of a conversation and of what was written at its messages. What is given back can be brought back.
export function forgetDrafts(id: string, messages: string[]): [string, Draft][] {
  const owners = new Set([id, ...messages]);
  const known = [...drafts].filter(([name]) => owners.has(name.split(':')[0]));
  for (const [name] of known) {
    drafts.delete(name);
    unsaved.delete(name);
  }
  return known;
}

export function bringBackDrafts(known: [string, Draft][]): void {
  for (const [id, entry] of known) change(id, entry);
  saveNow();
}

keepDraftsOnLeaving(() => {
  keepOwn();
  return [...new Set([...unsaved.keys(), ...sent])].map((id) => ({ id, ...(drafts.get(id) ?? { ...kEmpty, at: Date.now() }) }));
});
