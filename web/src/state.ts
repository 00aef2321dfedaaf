// What the page shows, and every change to it. Signals hold what views draw; what is changed is written to the store.
import { batch, computed, effect, signal } from '@preact/signals';
import { getFigures, getLibrary, getProps } from './api';
import * as db from './db';
import type { Attachment, Conversation, Draft, Figures, Library, Message, Props, Settings } from './types';

export const conversations = signal<Conversation[]>([]);
export const openId = signal<string | null>(null);
// Messages of the open conversation. The map is replaced whenever the tree changes, its messages are changed in place.
export const messages = signal<Map<string, Message>>(new Map());
export const props = signal<Props | null>(null);
export const library = signal<Library | null>(null);
export const figures = signal<Map<string, Figures>>(new Map());
export const serverIsGone = signal(false);
export const toast = signal<{ text: string; action?: string; run?: () => void } | null>(null);
export type Panel = 'settings' | 'models' | 'compare' | 'help' | null;
export const panel = signal<Panel>(null);
export const sidebarIsOpen = signal(false);

// The latest first.
export const sorted = computed(() => [...conversations.value].sort((a, b) => b.updated - a.updated));
export const conversation = computed(() => conversations.value.find((entry) => entry.id === openId.value) ?? null);

effect(() => {
  document.title = conversation.value ? `${conversation.value.title} · zinc` : 'zinc';
});

export const newId = () => crypto.randomUUID();

// From the first message to the last of the path that is shown.
export const path = computed<Message[]>(() => pathTo(messages.value, conversation.value?.head ?? null));

export function pathTo(all: Map<string, Message>, head: string | null): Message[] {
  const out: Message[] = [];
  const seen = new Set<string>();
  for (let id = head; id && !seen.has(id); ) {
    const message = all.get(id);
    if (!message) break;
    seen.add(id);
    out.push(message);
    id = message.parent;
  }
  return out.reverse();
}

export function siblings(message: Message): Message[] {
  return childrenOf(message.parent).filter((other) => other.role === message.role);
}

function childrenOf(parent: string | null): Message[] {
  const out = [...messages.value.values()].filter((message) => message.parent === parent);
  return out.sort((a, b) => a.created - b.created);
}

// The model of a conversation: its own while the server has it, else the server's first.
export const model = computed(() => {
  const models = props.value?.models ?? [];
  const wanted = conversation.value?.settings.model ?? defaults.value.model;
  return models.find((entry) => entry.name === wanted) ?? models[0] ?? null;
});

// Settings that a new conversation begins with.
const kDefaultsName = 'zinc.defaults';
export const defaults = signal<Settings>(JSON.parse(localStorage.getItem(kDefaultsName) ?? '{}') as Settings);
effect(() => localStorage.setItem(kDefaultsName, JSON.stringify(defaults.value)));

export const theme = signal(localStorage.getItem('zinc.theme') ?? 'system');
effect(() => {
  localStorage.setItem('zinc.theme', theme.value);
  if (theme.value === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});

const broken = (error: unknown) => {
  toast.value = { text: `The browser could not store this: ${String(error)}` };
};

// What was handed to the store and is not known to be there yet, by id; of a record only the latest.
const unsaved = {
  turn: 0,
  conversations: new Map<string, { turn: number; record: Conversation }>(),
  messages: new Map<string, { turn: number; record: Message }>(),
};

function store(entries: Conversation[], changed: Message[]): void {
  const turn = ++unsaved.turn;
  for (const record of entries) unsaved.conversations.set(record.id, { turn, record });
  for (const record of changed) unsaved.messages.set(record.id, { turn, record });
  db.save(entries, changed)
    .then(() => {
      for (const { id } of entries) if (unsaved.conversations.get(id)?.turn === turn) unsaved.conversations.delete(id);
      for (const { id } of changed) if (unsaved.messages.get(id)?.turn === turn) unsaved.messages.delete(id);
    })
    .catch(broken);
}

export function keep(changed: Message[], entry = conversation.value): void {
  store(entry ? [entry] : [], changed);
}

export function changeConversation(id: string, change: Partial<Conversation>): void {
  conversations.value = conversations.value.map((entry) => (entry.id === id ? { ...entry, ...change } : entry));
  const changed = conversations.value.find((entry) => entry.id === id);
  if (changed) store([changed], []);
}

export function changeSettings(change: Partial<Settings>): void {
  const entry = conversation.value;
  const merge = (old: Settings): Settings => {
    const all = { ...old, ...change } as Record<string, unknown>;
    for (const name of Object.keys(all)) if (all[name] === undefined || all[name] === '') delete all[name];
    return all;
  };
  if (entry) changeConversation(entry.id, { settings: merge(entry.settings) });
  else defaults.value = merge(defaults.value);
}

export const settings = computed<Settings>(() => conversation.value?.settings ?? defaults.value);

export function messageChanged(): void {
  messages.value = new Map(messages.value);
}

export function addMessage(message: Message): void {
  const all = new Map(messages.value);
  all.set(message.id, message);
  batch(() => {
    messages.value = all;
    changeConversation(message.conversation, { head: message.id, updated: Date.now() });
  });
  keep([message]);
}

export function showBranch(message: Message): void {
  let head = message;
  for (let next = childrenOf(head.id); next.length > 0; next = childrenOf(head.id)) head = next.at(-1)!;
  changeConversation(message.conversation, { head: head.id });
}

export function startConversation(first: string): Conversation {
  const now = Date.now();
  const entry: Conversation = {
    id: newId(),
    title: titleOf(first),
    created: now,
    updated: now,
    head: null,
    settings: { ...defaults.value },
  };
  batch(() => {
    conversations.value = [entry, ...conversations.value];
    messages.value = new Map();
    openId.value = entry.id;
  });
  showAddress(entry.id);
  return entry;
}

export function titleOf(text: string): string {
  const line = text.trim().split('\n')[0].replace(/\s+/g, ' ');
  return line.length > 60 ? `${line.slice(0, 57).trimEnd()}…` : line || 'New conversation';
}

let opening = 0;
export async function openConversation(id: string | null): Promise<void> {
  const turn = ++opening;
  if (id && id === openId.value) {
    sidebarIsOpen.value = false;
    return;
  }
  const list = id ? await db.messagesOf(id) : [];
  if (turn !== opening) return; // another one was asked for meanwhile
  for (const message of list) {
    if (!message.writing || isWriting(message.id)) continue;
    message.writing = false;
    message.notice = { kind: 'stopped', text: 'The page was closed while this answer was being written.' };
    store([], [message]);
  }
  batch(() => {
    messages.value = new Map(list.map((message) => [message.id, liveMessages.get(message.id) ?? message]));
    openId.value = id;
    sidebarIsOpen.value = false;
  });
  showAddress(id);
}

function showAddress(id: string | null): void {
  const hash = id ? `#${id}` : '';
  if (location.hash !== hash) history.pushState(null, '', hash || '/');
}

// Answers under way, also of conversations that are not shown.
export const liveMessages = new Map<string, Message>();
const isWriting = (id: string) => liveMessages.has(id);

// What is on the screen when the page goes away is written at once: the browser's store may not get that far any more.
const kTailName = 'zinc.tail';
type Tail = { conversations: Conversation[]; messages: Message[] };
addEventListener('pagehide', () => {
  const written = new Map([...unsaved.messages].map(([id, { record }]) => [id, record]));
  for (const [id, live] of liveMessages) written.set(id, live);
  const tail: Tail = {
    conversations: [...unsaved.conversations.values()].map(({ record }) => record),
    messages: [...written.values()],
  };
  if (tail.conversations.length + tail.messages.length > 0) localStorage.setItem(kTailName, JSON.stringify(tail));
  saveDraftNow();
});
async function takeTail(): Promise<void> {
  const text = localStorage.getItem(kTailName);
  if (!text) return;
  const { conversations: entries = [], messages: written = [] } = JSON.parse(text) as Partial<Tail>;
  const length = (message: Message) => message.content.length + (message.reasoning?.length ?? 0);
  const longer: Message[] = [];
  for (const message of written) {
    const known = await db.messageOf(message.id);
    if (!known || length(message) >= length(known)) longer.push(message);
  }
  await db.save(entries, longer);
  localStorage.removeItem(kTailName);
}

export async function deleteConversation(id: string): Promise<void> {
  const entry = conversations.value.find((other) => other.id === id);
  if (!entry) return;
  const kept = await db.messagesOf(id);
  await db.erase(id);
  conversations.value = conversations.value.filter((other) => other.id !== id);
  if (openId.value === id) await openConversation(null);
  toast.value = {
    text: `Deleted “${entry.title}”`,
    action: 'Undo',
    run: () => {
      void db.save([entry], kept).then(() => {
        conversations.value = [...conversations.value, entry];
        void openConversation(id);
      });
    },
  };
}

// Drafts: of each conversation, and of the one that is not begun yet.
const kDraftName = 'zinc.draft';
export const draft = signal<Draft>({ text: '', attachments: [] });
let draftTimer: ReturnType<typeof setTimeout> | undefined;
let draftOf: string | null = null;
let draftIsNew = false; // not stored yet

effect(() => {
  const id = openId.value;
  const entry = conversations.peek().find((other) => other.id === id);
  if (draftIsNew) saveDraftNow();
  draftOf = id;
  const stored = localStorage.getItem(`${kDraftName}.${id ?? ''}`);
  draft.value = stored ? (JSON.parse(stored) as Draft) : (entry?.draft ?? { text: '', attachments: [] });
});

export function setDraft(change: Partial<Draft>): void {
  draft.value = { ...draft.value, ...change };
  draftIsNew = true;
  clearTimeout(draftTimer);
  draftTimer = setTimeout(saveDraftNow, 200);
}
function saveDraftNow(): void {
  draftIsNew = false;
  const { text, attachments } = draft.peek();
  const name = `${kDraftName}.${draftOf ?? ''}`;
  try {
    if (text || attachments.length) localStorage.setItem(name, JSON.stringify(draft.peek()));
    else localStorage.removeItem(name);
  } catch {
    // A draft larger than the browser keeps this way goes with the conversation.
    if (draftOf) changeConversation(draftOf, { draft: draft.peek() });
  }
}

export function addAttachments(list: Attachment[]): void {
  setDraft({ attachments: [...draft.value.attachments, ...list] });
}

export async function refreshProps(): Promise<void> {
  props.value = await getProps();
  serverIsGone.value = false;
}

export async function refreshLibrary(): Promise<void> {
  library.value = await getLibrary();
}

export async function refreshFigures(): Promise<void> {
  try {
    const list = await getFigures();
    figures.value = new Map(list.data.map((entry) => [entry.id, entry.figures]));
    if (serverIsGone.value || list.data.length !== props.value?.models.length) await refreshProps();
    serverIsGone.value = false;
  } catch {
    serverIsGone.value = true;
  }
}

export async function loadAll(): Promise<void> {
  await takeTail();
  const list = await db.allConversations();
  conversations.value = list;
  await openFromAddress();
}

export async function openFromAddress(): Promise<void> {
  const id = location.hash.slice(1);
  await openConversation(conversations.value.some((entry) => entry.id === id) ? id : null);
}
